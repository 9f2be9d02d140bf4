#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "batches.hpp"
#include "errors.hpp"
#include "outputs.hpp"
#include "requests.hpp"
#include "ringback/gather.hpp"
#include "structure.hpp"

// The outputs of one batch: which arrays it has, the caller's `out`, and where the core writes.
namespace ringback::bindings {

// The caller's container for a field of `out`: an item of a dict, a field of an earlier batch, or null.
template <class FieldName>
pybind11::object given_out(PyObject* out, FieldName field) {
    if (out == nullptr || out == Py_None) return {};
    if (PyDict_Check(out)) {
        PyObject* const item = PyDict_GetItemString(out, name_of(field));
        return item == nullptr ? pybind11::object() : pybind11::reinterpret_borrow<pybind11::object>(item);
    }
    PyObject* const value = PyStructSequence_GetItem(out, static_cast<Py_ssize_t>(field));
    return value == Py_None ? pybind11::object() : pybind11::reinterpret_borrow<pybind11::object>(value);
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

    // A field with the structure of a space, an axis of frames before the rows of stacked leaves. Answers the output of
    // its first leaf.
    std::size_t nested(FieldName field, const Part& part, const Stacks* stacks = nullptr) {
        std::size_t first = 0;
        for (std::size_t i = 0; i < part.fields.size(); ++i) {
            const std::int64_t frames = stacks == nullptr ? 0 : stacks->of(i);
            const std::size_t output =
                frames == 0 ? add_leaf(part.fields[i], leading_) : add_stack(part.fields[i], frames);
            if (i == 0) first = output;
        }
        const auto output_of = [first](std::size_t i) { return first + i; };
        use_given(field, part.structure, part.fields, output_of);
        nested_.push_back({field, &part.structure, first, kNone});
        return first;
    }

    // A dict of which one child becomes a field of its own, one row a window: its leaves come last.
    struct Parted {
        std::size_t first, first_of_child;
    };
    Parted nested_without(FieldName field, const Part& part, std::size_t child, FieldName child_field,
                          std::int64_t windows) {
        const auto [begin, end] = part.structure.child_at(child).leaves();
        const std::size_t first = outputs_.count();
        for (std::size_t i = 0; i < part.fields.size(); ++i)
            if (i < begin || i >= end) add_leaf(part.fields[i], leading_);
        const std::size_t first_of_child = outputs_.count();
        for (std::size_t i = begin; i < end; ++i) add_leaf(part.fields[i], {&windows, 1});
        if (const pybind11::object given = out_ == nullptr ? pybind11::object() : given_out(out_, field)) {
            if (!PyDict_Check(given.ptr())) throw TypeMistake("out: extras must be a dict, got " + shown(given.ptr()));
            for (std::size_t c = 0; c < part.structure.size(); ++c)
                if (c != child)
                    part.structure.child_at(c).flatten(part.structure.item_of(given.ptr(), c).ptr(), "",
                                                       [&, b = begin, e = end](std::size_t i, PyObject* leaf) {
                                                           outputs_.use(first + i - (i >= e ? e - b : 0), leaf,
                                                                        part.fields[i].name);
                                                       });
        }
        nested_.push_back({field, &part.structure, first, child});
        nested_.push_back({child_field, &part.structure.child_at(child), first_of_child - begin, kNone});
        use_given(child_field, part.structure.child_at(child), part.fields,
                  [&](std::size_t i) { return first_of_child + i - begin; });
        return {first, first_of_child};
    }

    Outputs& outputs() noexcept { return outputs_; }
    template <class T>
    T* as(std::size_t output) const noexcept {
        return outputs_.as<T>(output);
    }

    PyObject* release(const Wrapping& wrapping) {
        Batch<FieldName> batch(type_);
        for (const auto& [field, output] : single_) batch.set(field, outputs_.take(output, wrapping));
        for (const Nested& n : nested_) {
            if (n.without == kNone) {
                batch.set(n.field,
                          n.structure->build([&](std::size_t i) { return outputs_.take(n.first + i, wrapping); }));
                continue;
            }
            const auto [begin, end] = n.structure->child_at(n.without).leaves();
            const auto take = [&, b = begin, e = end](std::size_t i) {
                return outputs_.take(n.first + i - (i >= e ? e - b : 0), wrapping);
            };
            batch.set(n.field, n.structure->build_without(n.without, take));
        }
        return batch.release();
    }

  protected:
    std::size_t single(FieldName field, std::size_t output) {
        if (out_ != nullptr)
            if (const pybind11::object given = given_out(out_, field))
                outputs_.use(output, given.ptr(), name_of(field));
        single_.emplace_back(field, output);
        return output;
    }

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    struct Nested {
        FieldName field;
        const Structure* structure;
        std::size_t first;    // leaf i is output first + i; behind the child that is left out, by its leaves less
        std::size_t without;  // that child, or kNone
    };

    std::size_t add_leaf(const Field& field, std::span<const std::int64_t> leading) {
        return outputs_.add(array_type(field.dtype), leading, field.shape);
    }
    std::size_t add_stack(const Field& field, std::int64_t frames) {
        std::vector<std::int64_t> leading = leading_;
        leading.push_back(frames);
        return outputs_.add(array_type(field.dtype), leading, field.shape);
    }
    template <class OutputOf>
    void use_given(FieldName field, const Structure& structure, const std::vector<Field>& fields, OutputOf output_of) {
        if (out_ == nullptr) return;
        if (const pybind11::object given = given_out(out_, field))
            structure.flatten(given.ptr(), "",
                              [&](std::size_t i, PyObject* leaf) { outputs_.use(output_of(i), leaf, fields[i].name); });
    }

    PyTypeObject* type_;
    PyObject* out_;
    std::vector<std::int64_t> leading_;
    Outputs outputs_;
    std::vector<std::pair<FieldName, std::size_t>> single_;
    std::vector<Nested> nested_;
};

// Where the leaves of an observation go, from the first output on.
inline void list_observation(const Parts& parts, const Outputs& outputs, std::size_t first, const Stacks& stacks,
                             std::vector<FieldOut>& plain, std::vector<StackOut>& stacked) {
    plain.clear();
    stacked.clear();
    for (std::size_t i = 0; i < parts.schema.observation_count(); ++i) {
        std::byte* const data = outputs.data(first + i);
        if (stacks.of(i) == 0)
            plain.push_back({i, data});
        else
            stacked.push_back({i, stacks.of(i), data, stacks.fill_of(i)});
    }
}

// Where actions and extras go; without the extras [begin, end).
inline void list_fields(const Parts& parts, const Outputs& outputs, std::size_t actions, std::size_t extras,
                        std::vector<FieldOut>& fields, std::size_t begin = 0, std::size_t end = 0) {
    const Schema& schema = parts.schema;
    fields.clear();
    for (std::size_t i = 0; i < schema.action_count(); ++i)
        fields.push_back({schema.observation_count() + i, outputs.data(actions + i)});
    std::size_t output = extras;
    for (std::size_t i = 0; i < schema.fields().size() - schema.extras_begin(); ++i)
        if (i < begin || i >= end) fields.push_back({schema.extras_begin() + i, outputs.data(output++)});
}

class TransitionOutputs : public BatchOutputs<TransitionField> {
    using F = TransitionField;

  public:
    TransitionOutputs(const Parts& parts, std::int64_t count, const Sums& sums, const Stacks& stacks, bool weighted,
                      PyObject* out)
        : BatchOutputs(transitions_type(), out, {count}),
          parts_(parts),
          stacks_(stacks),
          discounted_(sums.discounted()),
          weighted_(weighted) {
        observations_ = nested(F::observations, parts.observation, &stacks);
        next_ = nested(F::next_observations, parts.observation, &stacks);
        actions_ = nested(F::actions, parts.action);
        extras_ = nested(F::extras, parts.extras);
        reward_ = scalar(F::rewards, DType::f32);
        done_ = scalar(F::dones, DType::f32);
        terminated_ = scalar(F::terminations, DType::b1);
        truncated_ = scalar(F::truncations, DType::b1);
        if (discounted_) discount_ = scalar(F::discounts, DType::f32);
        if (discounted_) steps_ = scalar(F::n_steps, DType::i64);
        if (weighted_) weights_ = scalar(F::weights, DType::f32);
        ids_ = exact(F::ids, DType::i64, 1);
    }

    void allocate(TransitionOut& to) {
        outputs().allocate();
        list_observation(parts_, outputs(), observations_, stacks_, to.observation, to.stacks);
        list_observation(parts_, outputs(), next_, stacks_, to.next_observation, to.next_stacks);
        list_fields(parts_, outputs(), actions_, extras_, to.fields);
        to.reward = as<float>(reward_);
        to.done = as<float>(done_);
        to.terminated = as<std::uint8_t>(terminated_);
        to.truncated = as<std::uint8_t>(truncated_);
        to.discount = discounted_ ? as<float>(discount_) : nullptr;
        to.steps = discounted_ ? as<std::int64_t>(steps_) : nullptr;
    }
    std::int64_t* ids() const noexcept { return as<std::int64_t>(ids_); }
    float* weights() const noexcept { return weighted_ ? as<float>(weights_) : nullptr; }

  private:
    Parts parts_;
    const Stacks& stacks_;
    bool discounted_, weighted_;
    // The numbers of the outputs.
    std::size_t observations_, next_, actions_, extras_, reward_, done_, terminated_, truncated_, ids_;
    std::size_t discount_ = 0, steps_ = 0, weights_ = 0;
};

class SequenceOutputs : public BatchOutputs<SequenceField> {
    using F = SequenceField;

  public:
    SequenceOutputs(const Parts& parts, std::int64_t count, const SequenceRequest& request, bool weighted,
                    PyObject* out)
        : BatchOutputs(sequences_type(), out, leading(count, request.layout)),
          parts_(parts),
          request_(request),
          weighted_(weighted) {
        observations_ = nested(F::observations, parts.observation, &request.stacks);
        actions_ = nested(F::actions, parts.action);
        if (request.start_state) {
            const auto [first, child] =
                nested_without(F::extras, parts.extras, *request.start_state, F::start_state, count);
            extras_ = first;
            start_state_ = child;
        } else {
            extras_ = nested(F::extras, parts.extras);
        }
        if (request.successors()) next_ = nested(F::next_observations, parts.observation, &request.stacks);
        reward_ = scalar(F::rewards, DType::f32);
        done_ = scalar(F::dones, DType::f32);
        terminated_ = scalar(F::terminations, DType::b1);
        truncated_ = scalar(F::truncations, DType::b1);
        if (request.layout.spec.arrival) terminal_ = scalar(F::is_terminal, DType::b1);
        first_ = scalar(F::is_first, DType::b1);
        last_ = scalar(F::is_last, DType::b1);
        if (request.sums.discounted()) discount_ = scalar(F::discounts, DType::f32);
        if (request.sums.discounted()) steps_ = scalar(F::n_steps, DType::i64);
        if (request.ragged()) {
            valid_ = scalar(F::valid, DType::b1);
            mask_ = scalar(F::mask, DType::b1);
            lengths_ = window_scalar(F::lengths, DType::i64, count);
        }
        if (request.layout.burn_in > 0) burn_in_ = window_scalar(F::burn_in_lengths, DType::i64, count);
        if (weighted_) weights_ = window_scalar(F::weights, DType::f32, count);
        ids_ = exact(F::ids, DType::i64, 2);
        start_ids_ = single(F::start_ids, outputs().add_exact(array_type(DType::i64), {&count, 1}));
    }

    void allocate(SequenceOut& to) {
        outputs().allocate();
        list_observation(parts_, outputs(), observations_, request_.stacks, to.observation, to.stacks);
        to.next_observation.clear();
        to.next_stacks.clear();
        if (request_.successors())
            list_observation(parts_, outputs(), next_, request_.stacks, to.next_observation, to.next_stacks);
        to.start_fields.clear();
        std::size_t begin = 0, end = 0;
        if (request_.start_state) {
            std::tie(begin, end) = parts_.extras.structure.child_at(*request_.start_state).leaves();
            for (std::size_t i = begin; i < end; ++i)
                to.start_fields.push_back({parts_.schema.extras_begin() + i, outputs().data(start_state_ + i - begin)});
        }
        list_fields(parts_, outputs(), actions_, extras_, to.fields, begin, end);
        to.reward = as<float>(reward_);
        to.done = as<float>(done_);
        to.terminated = as<std::uint8_t>(terminated_);
        to.truncated = as<std::uint8_t>(truncated_);
        to.first = as<std::uint8_t>(first_);
        to.last = as<std::uint8_t>(last_);
        to.ids = as<std::int64_t>(ids_);
        to.discount = request_.sums.discounted() ? as<float>(discount_) : nullptr;
        to.steps = request_.sums.discounted() ? as<std::int64_t>(steps_) : nullptr;
        to.valid = request_.ragged() ? as<std::uint8_t>(valid_) : nullptr;
        to.mask = request_.ragged() ? as<std::uint8_t>(mask_) : nullptr;
    }

    // What is known of each window beside its rows.
    void describe(const WindowRows& windows) const {
        for (std::size_t w = 0; w < windows.windows; ++w) {
            const auto start = static_cast<std::size_t>(windows.burn_in_lengths[w]) * windows.stride;
            as<std::int64_t>(start_ids_)[w] = as<std::int64_t>(ids_)[windows.first_of(w) + start];
        }
        if (request_.layout.spec.arrival)
            std::copy_n(as<std::uint8_t>(terminated_), windows.rows.size(), as<std::uint8_t>(terminal_));
        if (request_.ragged()) copy_to(lengths_, windows.lengths);
        if (request_.layout.burn_in > 0) copy_to(burn_in_, windows.burn_in_lengths);
    }
    float* weights() const noexcept { return weighted_ ? as<float>(weights_) : nullptr; }

  private:
    static std::vector<std::int64_t> leading(std::int64_t count, const WindowLayout& layout) {
        const std::int64_t width = layout.burn_in + layout.spec.length;
        return layout.time_major ? std::vector{width, count} : std::vector{count, width};
    }
    std::size_t window_scalar(F field, DType dtype, std::int64_t count) {
        return single(field, outputs().add(array_type(dtype), {&count, 1}, {}));
    }
    void copy_to(std::size_t output, const std::vector<std::int64_t>& values) const {
        std::copy(values.begin(), values.end(), as<std::int64_t>(output));
    }

    Parts parts_;
    const SequenceRequest& request_;
    bool weighted_;
    std::size_t observations_, actions_, extras_, reward_, done_, terminated_, truncated_, first_, last_, ids_,
        start_ids_;
    std::size_t next_ = 0, start_state_ = 0, discount_ = 0, steps_ = 0, valid_ = 0, mask_ = 0, lengths_ = 0,
                burn_in_ = 0, weights_ = 0, terminal_ = 0;
};

}  // namespace ringback::bindings
