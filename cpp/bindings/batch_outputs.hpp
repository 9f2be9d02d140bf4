#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "batches.hpp"
#include "errors.hpp"
#include "outputs.hpp"
#include "ringback/gather.hpp"
#include "structure.hpp"

// The outputs of one batch: which arrays it has, the caller's `out`, and where the core writes.
namespace ringback::bindings {

// The caller's container for a field of `out`: an item of a dict, an attribute of an earlier batch, or null.
template <class FieldName>
pybind11::object given_out(PyObject* out, FieldName field) {
    const char* const name = name_of(field);
    if (out == nullptr || out == Py_None) return {};
    if (PyDict_Check(out)) {
        PyObject* const item = PyDict_GetItemString(out, name);
        return item == nullptr ? pybind11::object() : pybind11::reinterpret_borrow<pybind11::object>(item);
    }
    pybind11::object value = pybind11::getattr(out, name, pybind11::none());
    return value.is_none() ? pybind11::object() : value;
}

template <class FieldName>
void check_out(PyObject* out, PyTypeObject* type) {
    if (out == nullptr || out == Py_None || Py_TYPE(out) == type) return;
    if (!PyDict_Check(out))
        throw TypeMistake("out must be a dict of arrays by field name, or an earlier batch, got " + shown(out));
    for (const auto& item : pybind11::reinterpret_borrow<pybind11::dict>(out)) {
        bool known = false;
        for (int f = 0; f < static_cast<int>(FieldName::count); ++f)
            known =
                known || (PyUnicode_Check(item.first.ptr()) &&
                          PyUnicode_CompareWithASCIIString(item.first.ptr(), name_of(static_cast<FieldName>(f))) == 0);
        if (!known)
            throw std::invalid_argument("out must have fields of the batch only, got " + shown(item.first.ptr()));
    }
}

// Plans the outputs of one batch and turns them into its named tuple.
template <class FieldName>
class BatchOutputs {
  public:
    BatchOutputs(PyTypeObject* type, PyObject* out, std::vector<std::int64_t> leading)
        : type_(type), out_(out), leading_(std::move(leading)) {
        check_out<FieldName>(out, type);
        single_.reserve(8);
        nested_.reserve(4);
    }

    // A field with one array: scalars a step.
    std::size_t scalar(FieldName field, DType dtype) {
        return single(field, outputs_.add(array_type(dtype), leading_, {}));
    }
    std::size_t exact(FieldName field, DType dtype, std::size_t axes) {
        return single(field, outputs_.add_exact(array_type(dtype), std::span(leading_).first(axes)));
    }

    // A field with the structure of a space; `base` is the schema's index of its first leaf. Answers the first output.
    std::size_t nested(FieldName field, const Part& part) {
        const std::vector<Field>& fields = part.fields;
        std::size_t first = 0;
        for (std::size_t i = 0; i < fields.size(); ++i) {
            const std::size_t output = outputs_.add(array_type(fields[i].dtype), leading_, fields[i].shape);
            if (i == 0) first = output;
        }
        if (const pybind11::object given = given_out(out_, field))
            part.structure.flatten(
                given.ptr(), "", [&](std::size_t i, PyObject* leaf) { outputs_.use(first + i, leaf, fields[i].name); });
        nested_.push_back({field, first, &part.structure});
        return first;
    }

    Outputs& outputs() noexcept { return outputs_; }
    template <class T>
    T* as(std::size_t output) const noexcept {
        return outputs_.as<T>(output);
    }

    PyObject* release() {
        Batch<FieldName> batch(type_);
        for (const auto& [field, output] : single_) batch.set(field, outputs_.take(output));
        for (const Nested& n : nested_)
            batch.set(n.field, n.structure->build([&](std::size_t i) { return outputs_.take(n.first + i); }));
        return batch.release();
    }

  private:
    struct Nested {
        FieldName field;
        std::size_t first;
        const Structure* structure;
    };

    std::size_t single(FieldName field, std::size_t output) {
        if (out_ != nullptr)
            if (const pybind11::object given = given_out(out_, field))
                outputs_.use(output, given.ptr(), name_of(field));
        single_.emplace_back(field, output);
        return output;
    }

    PyTypeObject* type_;
    PyObject* out_;
    std::vector<std::int64_t> leading_;
    Outputs outputs_;
    std::vector<std::pair<FieldName, std::size_t>> single_;
    std::vector<Nested> nested_;
};

// Where the leaves of three parts go, from the first output of each.
inline void list_fields(const Parts& parts, const Outputs& outputs, std::size_t observations, std::size_t actions,
                        std::size_t extras, std::vector<FieldOut>& fields) {
    const Schema& schema = parts.schema;
    fields.clear();
    for (std::size_t i = 0; i < schema.observation_count(); ++i) fields.push_back({i, outputs.data(observations + i)});
    for (std::size_t i = 0; i < schema.action_count(); ++i)
        fields.push_back({schema.observation_count() + i, outputs.data(actions + i)});
    for (std::size_t i = schema.extras_begin(); i < schema.fields().size(); ++i)
        fields.push_back({i, outputs.data(extras + i - schema.extras_begin())});
}

class TransitionOutputs : public BatchOutputs<TransitionField> {
    using F = TransitionField;

  public:
    TransitionOutputs(const Parts& parts, std::int64_t count, bool discounted, PyObject* out)
        : BatchOutputs(transitions_type(), out, {count}), parts_(parts), discounted_(discounted) {
        observations_ = nested(F::observations, parts.observation);
        next_ = nested(F::next_observations, parts.observation);
        actions_ = nested(F::actions, parts.action);
        extras_ = nested(F::extras, parts.extras);
        reward_ = scalar(F::rewards, DType::f32);
        done_ = scalar(F::dones, DType::f32);
        terminated_ = scalar(F::terminations, DType::b1);
        truncated_ = scalar(F::truncations, DType::b1);
        if (discounted) discount_ = scalar(F::discounts, DType::f32);
        if (discounted) steps_ = scalar(F::n_steps, DType::i64);
        ids_ = exact(F::ids, DType::i64, 1);
    }

    void allocate(TransitionOut& to) {
        outputs().allocate();
        list_fields(parts_, outputs(), observations_, actions_, extras_, to.fields);
        to.next_observation.clear();
        for (std::size_t i = 0; i < parts_.schema.observation_count(); ++i)
            to.next_observation.push_back({i, outputs().data(next_ + i)});
        to.reward = as<float>(reward_);
        to.done = as<float>(done_);
        to.terminated = as<std::uint8_t>(terminated_);
        to.truncated = as<std::uint8_t>(truncated_);
        to.discount = discounted_ ? as<float>(discount_) : nullptr;
        to.steps = discounted_ ? as<std::int64_t>(steps_) : nullptr;
    }
    std::int64_t* ids() const noexcept { return as<std::int64_t>(ids_); }

  private:
    Parts parts_;
    bool discounted_;
    // The numbers of the outputs.
    std::size_t observations_, next_, actions_, extras_, reward_, done_, terminated_, truncated_, ids_;
    std::size_t discount_ = 0, steps_ = 0;
};

class SequenceOutputs : public BatchOutputs<SequenceField> {
    using F = SequenceField;

  public:
    SequenceOutputs(const Parts& parts, std::int64_t count, std::int64_t length, PyObject* out)
        : BatchOutputs(sequences_type(), out, {count, length}), parts_(parts) {
        observations_ = nested(F::observations, parts.observation);
        actions_ = nested(F::actions, parts.action);
        extras_ = nested(F::extras, parts.extras);
        reward_ = scalar(F::rewards, DType::f32);
        done_ = scalar(F::dones, DType::f32);
        terminated_ = scalar(F::terminations, DType::b1);
        truncated_ = scalar(F::truncations, DType::b1);
        first_ = scalar(F::is_first, DType::b1);
        last_ = scalar(F::is_last, DType::b1);
        ids_ = exact(F::ids, DType::i64, 2);
        start_ids_ = exact(F::start_ids, DType::i64, 1);
    }

    void allocate(SequenceOut& to) {
        outputs().allocate();
        list_fields(parts_, outputs(), observations_, actions_, extras_, to.fields);
        to.reward = as<float>(reward_);
        to.done = as<float>(done_);
        to.terminated = as<std::uint8_t>(terminated_);
        to.truncated = as<std::uint8_t>(truncated_);
        to.first = as<std::uint8_t>(first_);
        to.last = as<std::uint8_t>(last_);
        to.ids = as<std::int64_t>(ids_);
    }

    std::int64_t* start_ids() const noexcept { return as<std::int64_t>(start_ids_); }

  private:
    Parts parts_;
    std::size_t observations_, actions_, extras_, reward_, done_, terminated_, truncated_, first_, last_, ids_,
        start_ids_;
};

}  // namespace ringback::bindings
