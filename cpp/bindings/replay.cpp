#include "replay.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "arguments.hpp"
#include "batches.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "outputs.hpp"

namespace py = pybind11;

namespace ringback::bindings {

namespace {

// What a sampling thread works with; reused from call to call.
struct Workspace {
    Sampler sampler;
    Gather gather;
    std::vector<std::int64_t> offsets;
    std::vector<WindowStart> starts;
    std::vector<std::uint32_t> rows;
    TransitionOut transitions;
    SequenceOut sequences;
};

// Batches of at least this many rows are refused before memory for them is asked for.
constexpr std::size_t kCheckFirst = 4096;

Workspace& workspace() {
    thread_local Workspace work;
    return work;
}

Mismatch mismatch_of(const std::string& name) {
    if (name == "keep") return Mismatch::keep;
    if (name == "split") return Mismatch::split;
    if (name == "raise") return Mismatch::raise;
    throw std::invalid_argument("on_mismatch must be 'keep', 'split' or 'raise', got '" + name + "'");
}

StreamKey stream_of(PyObject* value, const char* name = "stream") {
    if (value == nullptr) return std::int64_t{0};
    return read_integer(value, name);
}

StreamKey stream_or_name(py::handle value) {
    if (PyUnicode_Check(value.ptr())) return read_text(value.ptr(), "stream");
    return stream_of(value.ptr());
}

std::vector<std::int64_t> read_ids(PyObject* ids) {
    const py::object array =
        py::reinterpret_steal<py::object>(PyArray_FromAny(ids, nullptr, 0, 1, NPY_ARRAY_DEFAULT, nullptr));
    if (!array) {
        PyErr_Clear();
        throw TypeMistake("ids must be an integer or a 1-D array of integers, got " + shown(ids));
    }
    auto* const a = reinterpret_cast<PyArrayObject*>(array.ptr());
    const char kind = PyArray_DESCR(a)->kind;
    if (PyArray_SIZE(a) > 0 && kind != 'i' && kind != 'u') throw TypeMistake("ids must be integers, got " + shown(ids));
    if (kind == 'u' && PyArray_ITEMSIZE(a) == 8 && PyArray_SIZE(a) > 0) {
        const py::object largest = array.attr("max")().attr("item")();
        if (largest > py::int_(std::numeric_limits<std::int64_t>::max()))
            throw std::invalid_argument("ids must fit in 63 bits, got " + shown(largest.ptr()));
    }
    const py::object wide = py::reinterpret_steal<py::object>(PyArray_FromAny(
        array.ptr(), PyArray_DescrFromType(NPY_INT64), 0, 1, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST, nullptr));
    if (!wide) throw py::error_already_set();
    const auto* data = static_cast<const std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(wide.ptr())));
    return {data, data + PyArray_SIZE(a)};
}

py::object array_of(const std::vector<std::int64_t>& values) {
    npy_intp size = static_cast<npy_intp>(values.size());
    PyObject* const array = PyArray_SimpleNew(1, &size, NPY_INT64);
    if (array == nullptr) throw py::error_already_set();
    std::copy(values.begin(), values.end(),
              static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array))));
    return py::reinterpret_steal<py::object>(array);
}

// The caller's container for a field of `out`: an item of a dict, an attribute of an earlier batch, or null.
template <class FieldName>
py::object given_out(PyObject* out, FieldName field) {
    const char* const name = name_of(field);
    if (out == nullptr || out == Py_None) return {};
    if (PyDict_Check(out)) {
        PyObject* const item = PyDict_GetItemString(out, name);
        return item == nullptr ? py::object() : py::reinterpret_borrow<py::object>(item);
    }
    py::object value = py::getattr(out, name, py::none());
    return value.is_none() ? py::object() : value;
}

template <class FieldName>
void check_out(PyObject* out, PyTypeObject* type) {
    if (out == nullptr || out == Py_None || Py_TYPE(out) == type) return;
    if (!PyDict_Check(out))
        throw TypeMistake("out must be a dict of arrays by field name, or an earlier batch, got " + shown(out));
    for (const auto& item : py::reinterpret_borrow<py::dict>(out)) {
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
    }

    // A field with one array: scalars a step.
    std::size_t scalar(FieldName field, DType dtype) {
        return single(field, outputs_.add(array_type(dtype), leading_, {}));
    }
    std::size_t exact(FieldName field, DType dtype, std::size_t axes) {
        return single(field, outputs_.add_exact(array_type(dtype), std::span(leading_).first(axes)));
    }

    // A field with the structure of a space; `base` is the schema's index of its first leaf. Answers the first output.
    std::size_t nested(FieldName field, const Structure& structure, const std::vector<Field>& fields) {
        std::size_t first = 0;
        for (std::size_t i = 0; i < fields.size(); ++i) {
            const std::size_t output = outputs_.add(array_type(fields[i].dtype), leading_, fields[i].shape);
            if (i == 0) first = output;
        }
        if (const py::object given = given_out(out_, field))
            structure.flatten(given.ptr(), "",
                              [&](std::size_t i, PyObject* leaf) { outputs_.use(first + i, leaf, fields[i].name); });
        nested_.push_back({field, first, &structure});
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
            if (const py::object given = given_out(out_, field)) outputs_.use(output, given.ptr(), name_of(field));
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

// The outputs of a batch of transitions, and where the core writes them.
class TransitionOutputs : public BatchOutputs<TransitionField> {
    using F = TransitionField;

  public:
    TransitionOutputs(const Schema& schema, const Structure& observation, const std::vector<Field>& observation_fields,
                      const Structure& action, const std::vector<Field>& action_fields, const Structure& extras,
                      const std::vector<Field>& extras_fields, std::int64_t count, bool discounted, PyObject* out)
        : BatchOutputs(transitions_type(), out, {count}), schema_(schema), discounted_(discounted) {
        observations_ = nested(F::observations, observation, observation_fields);
        next_ = nested(F::next_observations, observation, observation_fields);
        actions_ = nested(F::actions, action, action_fields);
        extras_ = nested(F::extras, extras, extras_fields);
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
        to.fields.clear();
        to.next_observation.clear();
        for (std::size_t i = 0; i < schema_.observation_count(); ++i) {
            to.fields.push_back({i, outputs().data(observations_ + i)});
            to.next_observation.push_back({i, outputs().data(next_ + i)});
        }
        for (std::size_t i = 0; i < schema_.action_count(); ++i)
            to.fields.push_back({schema_.observation_count() + i, outputs().data(actions_ + i)});
        for (std::size_t i = schema_.extras_begin(); i < schema_.fields().size(); ++i)
            to.fields.push_back({i, outputs().data(extras_ + i - schema_.extras_begin())});
        to.reward = as<float>(reward_);
        to.done = as<float>(done_);
        to.terminated = as<std::uint8_t>(terminated_);
        to.truncated = as<std::uint8_t>(truncated_);
        to.discount = discounted_ ? as<float>(discount_) : nullptr;
        to.steps = discounted_ ? as<std::int64_t>(steps_) : nullptr;
        to.ids = as<std::int64_t>(ids_);
    }

  private:
    const Schema& schema_;
    bool discounted_;
    std::size_t observations_, next_, actions_, extras_, reward_, done_, terminated_, truncated_, discount_ = 0,
                                                                                                  steps_ = 0, ids_;
};

}  // namespace

Replay::Replay(std::int64_t capacity, py::handle observation, py::handle action, py::handle extras,
               const Rng::State& seed, const std::string& on_mismatch)
    : observation_(observation, observation_fields_),
      action_(action, action_fields_),
      extras_(extras, extras_fields_),
      schema_(observation_fields_, action_fields_, extras_fields_),
      capacity_(capacity),
      mismatch_(mismatch_of(on_mismatch)),
      core_(new_store(), seed) {
    for (const Field& field : schema_.fields())
        if (field.shape.size() + 4 > Outputs::kMaxAxes)
            throw std::invalid_argument(field.name + " must have at most 8 axes, got " +
                                        std::to_string(field.shape.size()));
}

std::unique_ptr<StepStore> Replay::new_store() const {
    return std::make_unique<StepStore>(schema_, capacity_, mismatch_);
}

std::int64_t Replay::live() const {
    return core_.read(0, [](const Core& core) { return core.store->live(); });
}

std::int64_t Replay::capacity() const { return capacity_; }

// ---- writing
// ---------------------------------------------------------------------------------------------------------

std::string Replay::names_of_extras() const {
    std::string names;
    for (const Field& field : extras_fields_) names += (names.empty() ? "" : ", ") + field.name;
    return names;
}

void Replay::check_extras_given(PyObject* extras) const {
    if (extras_fields_.empty() && extras != nullptr && extras != Py_None && PyDict_Check(extras) &&
        PyDict_Size(extras) == 0)
        return;
    const bool given = extras != nullptr && extras != Py_None;
    if (given && extras_fields_.empty())
        throw std::invalid_argument("extras must be declared at construction, got " + shown(extras));
    if (!given && !extras_fields_.empty())
        throw std::invalid_argument("extras must be given with every step, got None; declared are " +
                                    names_of_extras());
}

// The warning comes before the first write that follows its cause: if it is an error, that write has changed nothing.
template <class F>
void Replay::write(std::size_t steps, F&& f) {
    if (kept_many_ && !warned_) {
        warned_ = true;
        if (PyErr_WarnEx(
                PyExc_UserWarning,
                "ReplayBuffer: more than 1 % of the observations differ from the next_observation of the step before; "
                "each of these is kept beside the rows, at the price of memory (stats()['kept_successors'] counts "
                "them)",
                1) < 0)
            throw py::error_already_set();
    }
    const bool many = core_.write(steps * schema_.row_bytes(), [&](Core& core) {
        ++core.version;
        f(*core.store);
        return core.store->written() >= 100 && core.store->kept_successors() * 100 > core.store->written();
    });
    kept_many_ = kept_many_ || many;
}

PyObject* Replay::add(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<8> kSignature{
        {"observation", "action", "reward", "next_observation", "terminated", "truncated", "stream", "extras"}, 5, 8};
    const auto [observation, action, reward, next_observation, terminated, truncated, stream, extras] =
        kSignature.parse(args, given, keywords);

    Inputs inputs(schema_);
    Pointers fields(schema_.fields().size()), successors(schema_.observation_count());
    const std::size_t actions = schema_.observation_count(), first_extra = schema_.extras_begin();
    observation_.flatten(observation, "", [&](std::size_t i, PyObject* leaf) { fields[i] = inputs.row(i, leaf); });
    action_.flatten(action, "",
                    [&](std::size_t i, PyObject* leaf) { fields[actions + i] = inputs.row(actions + i, leaf); });
    fields[schema_.reward_index()] = inputs.row(schema_.reward_index(), reward);
    observation_.flatten(next_observation, "next_",
                         [&](std::size_t i, PyObject* leaf) { successors[i] = inputs.row(i, leaf, "next_"); });
    if (extras != nullptr || !extras_fields_.empty()) {
        check_extras_given(extras);
        if (!extras_fields_.empty())
            extras_.flatten(extras, "", [&](std::size_t i, PyObject* leaf) {
                fields[first_extra + i] = inputs.row(first_extra + i, leaf);
            });
    }
    const std::uint8_t ended = read_flag(terminated, "terminated");
    const std::uint8_t cut = truncated != nullptr && read_flag(truncated, "truncated");
    const StreamKey key = stream_of(stream);

    std::int64_t id = 0;
    write(1, [&](StepStore& store) {
        store.write({1, fields.span(), successors.span(), &ended, &cut}, {&key, 1}, {&id, 1});
    });
    return PyLong_FromLongLong(id);
}

PyObject* Replay::add_batch(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<8> kSignature{
        {"observations", "actions", "rewards", "next_observations", "terminations", "truncations", "streams", "extras"},
        5,
        8};
    const auto [observations, actions, rewards, next_observations, terminations, truncations, streams, extras] =
        kSignature.parse(args, given, keywords);

    // The number of streams is the length of the terminations.
    const Py_ssize_t length = PyObject_Size(terminations);
    if (length < 0) {
        PyErr_Clear();
        throw TypeMistake("terminations must be an array of shape (E,), got " + shown(terminations));
    }
    const auto count = static_cast<std::size_t>(length);
    Inputs inputs(schema_);
    Pointers fields(schema_.fields().size()), successors(schema_.observation_count());
    const std::size_t first_action = schema_.observation_count(), first_extra = schema_.extras_begin();
    observation_.flatten(observations, "",
                         [&](std::size_t i, PyObject* leaf) { fields[i] = inputs.rows(i, leaf, count); });
    action_.flatten(actions, "", [&](std::size_t i, PyObject* leaf) {
        fields[first_action + i] = inputs.rows(first_action + i, leaf, count);
    });
    fields[schema_.reward_index()] = inputs.rows(schema_.reward_index(), rewards, count);
    observation_.flatten(next_observations, "next_",
                         [&](std::size_t i, PyObject* leaf) { successors[i] = inputs.rows(i, leaf, count, "next_"); });
    check_extras_given(extras);
    if (!extras_fields_.empty())
        extras_.flatten(extras, "", [&](std::size_t i, PyObject* leaf) {
            fields[first_extra + i] = inputs.rows(first_extra + i, leaf, count);
        });
    const std::uint8_t* const ended = inputs.flags(terminations, count, "terminations");
    const std::uint8_t* const cut = inputs.flags(truncations, count, "truncations");

    std::vector<StreamKey> named;
    if (streams == nullptr || streams == Py_None) {
        while (first_streams_.size() < count)
            first_streams_.emplace_back(static_cast<std::int64_t>(first_streams_.size()));
    } else {
        const py::object items = py::reinterpret_steal<py::object>(PySequence_Fast(streams, ""));
        if (!items) {
            PyErr_Clear();
            throw TypeMistake("streams must be a sequence of integers, got " + shown(streams));
        }
        if (PySequence_Fast_GET_SIZE(items.ptr()) != length)
            throw std::invalid_argument("streams must have one entry a step (" + std::to_string(count) + "), got " +
                                        std::to_string(PySequence_Fast_GET_SIZE(items.ptr())));
        std::vector<std::int64_t> numbers(count);
        for (std::size_t i = 0; i < count; ++i) {
            numbers[i] = read_integer(PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), "streams");
            named.emplace_back(numbers[i]);
        }
        std::sort(numbers.begin(), numbers.end());
        const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
        if (twice != numbers.end())
            throw std::invalid_argument("streams must differ, got " + std::to_string(*twice) + " twice");
    }

    const std::vector<StreamKey>& keys = named.empty() ? first_streams_ : named;
    npy_intp size = static_cast<npy_intp>(count);
    const py::object ids = py::reinterpret_steal<py::object>(PyArray_SimpleNew(1, &size, NPY_INT64));
    if (!ids) throw py::error_already_set();
    auto* const out = static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids.ptr())));
    write(count, [&](StepStore& store) {
        store.write({count, fields.span(), successors.span(), ended, cut}, {keys.data(), count}, {out, count});
    });
    return py::object(ids).release().ptr();
}

py::object Replay::add_chunk(py::object observations, py::object actions, py::object rewards, py::object extras,
                             std::int64_t steps, py::object stream, py::object started, bool terminated, bool truncated,
                             bool cut) {
    const std::int64_t start = read_integer(started.ptr(), "t_started");
    const auto count = static_cast<std::size_t>(steps);
    Inputs inputs(schema_);
    Pointers fields(schema_.fields().size()), successors(schema_.observation_count());
    const std::size_t first_action = schema_.observation_count(), first_extra = schema_.extras_begin();
    const StreamKey key = stream_or_name(stream);
    if (count > 0) {
        observation_.flatten(observations.ptr(), "", [&](std::size_t i, PyObject* leaf) {
            fields[i] = inputs.rows(i, leaf, count + 1);
            successors[i] = fields[i] + schema_.place(i).bytes;
        });
        action_.flatten(actions.ptr(), "", [&](std::size_t i, PyObject* leaf) {
            fields[first_action + i] = inputs.rows(first_action + i, leaf, count);
        });
        fields[schema_.reward_index()] = inputs.rows(schema_.reward_index(), rewards.ptr(), count);
        check_extras_given(extras.ptr());
        if (!extras_fields_.empty())
            extras_.flatten(extras.ptr(), "", [&](std::size_t i, PyObject* leaf) {
                fields[first_extra + i] = inputs.rows(first_extra + i, leaf, count);
            });
    }
    std::vector<std::int64_t> ids(count);
    write(count, [&](StepStore& store) {
        store.write_chunk({count, fields.span(), successors.span(), nullptr, nullptr}, key, start, cut, terminated,
                          truncated, ids);
    });
    return array_of(ids);
}

bool Replay::end_episode(py::object stream) {
    const StreamKey key = stream_or_name(stream);
    return core_.write(0, [&](Core& core) {
        ++core.version;
        return core.store->end_episode(key);
    });
}

std::size_t Replay::field_named(const std::string& name) const {
    std::string known;
    for (std::size_t i = 0; i < schema_.fields().size(); ++i) {
        if (schema_.field(i).name == name) return i;
        known += (i == 0 ? "" : ", ") + schema_.field(i).name;
    }
    throw std::invalid_argument("field must be one of " + known + ", got '" + name + "'");
}

void Replay::set(py::object ids, const std::string& field, py::object values) {
    // A space's own name stands for all its leaves.
    const std::vector<std::int64_t> numbers = read_ids(ids.ptr());
    Inputs inputs(schema_);
    std::vector<std::pair<std::size_t, const std::byte*>> columns;
    const auto leaves = [&](const Structure& structure, std::size_t first) {
        structure.flatten(values.ptr(), "", [&](std::size_t i, PyObject* leaf) {
            columns.emplace_back(first + i, inputs.rows(first + i, leaf, numbers.size()));
        });
    };
    if (field == observation_.path()) {
        leaves(observation_, 0);
    } else if (field == action_.path()) {
        leaves(action_, schema_.observation_count());
    } else {
        const std::size_t f = field_named(field);
        columns.emplace_back(f, inputs.rows(f, values.ptr(), numbers.size()));
    }
    core_.write(numbers.size() * schema_.row_bytes(), [&](Core& core) {
        ++core.version;
        std::vector<std::uint32_t> rows;
        for (const std::int64_t number : numbers) rows.push_back(core.store->row_of_number(number));
        for (const auto& [f, data] : columns)
            for (std::size_t i = 0; i < rows.size(); ++i)
                core.store->set_field(rows[i], f, data + i * schema_.place(f).bytes);
    });
}

// ---- reading
// ---------------------------------------------------------------------------------------------------------

PyObject* Replay::handed_out(PyObject* batch) const {
    if (finish.is_none()) return batch;
    PyObject* const finished = PyObject_CallOneArg(finish.ptr(), batch);
    Py_DECREF(batch);
    return finished;
}

PyObject* Replay::sample_transitions(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<5> kSignature{{"batch_size", "n_step", "gamma", "replace", "out"}, 1, 1};
    const auto [batch_size, n_step, gamma, replace_flag, out] = kSignature.parse(args, given, keywords);
    const std::int64_t count = read_count(batch_size, "batch_size");
    const bool replace = replace_flag != nullptr && read_flag(replace_flag, "replace");
    NStep reduce;
    if (n_step != nullptr) reduce.n = read_count(n_step, "n_step");
    const bool discounted = gamma != nullptr && gamma != Py_None;
    if (discounted) {
        reduce.gamma = PyFloat_AsDouble(gamma);
        if (reduce.gamma == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            throw TypeMistake("gamma must be a number, got " + shown(gamma));
        }
        if (!(reduce.gamma >= 0.0 && reduce.gamma <= 1.0))
            throw std::invalid_argument("gamma must be in [0, 1], got " + shown(gamma));
    } else if (reduce.n > 1) {
        throw std::invalid_argument("gamma must be given with n_step > 1, got None");
    }
    const auto size = static_cast<std::size_t>(count);
    if (size >= kCheckFirst) {
        const std::int64_t stored = live();
        if (stored == 0 || (!replace && count > stored)) Sampler::refuse_steps(count, stored);
    }

    TransitionOutputs batch(schema_, observation_, observation_fields_, action_, action_fields_, extras_,
                            extras_fields_, count, discounted, out);
    Workspace& work = workspace();
    TransitionOut to = std::move(work.transitions);
    batch.allocate(to);
    core_.read(batch.outputs().bytes(), [&](const Core& core) {
        work.offsets.resize(size);
        work.rows.resize(size);
        {
            const std::lock_guard guard(core.rng_mutex);
            work.sampler.draw_steps(core.rng, *core.store, replace, work.offsets);
            core.sampled += count;
        }
        for (std::size_t i = 0; i < size; ++i) work.rows[i] = core.store->row_at_offset(work.offsets[i]);
        work.gather.transitions(*core.store, work.rows, reduce, to);
    });
    work.transitions = std::move(to);
    return handed_out(batch.release());
}

PyObject* Replay::sample_sequences(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    using F = SequenceField;
    static constexpr Signature<4> kSignature{{"batch_size", "length", "replace", "out"}, 2, 2};
    const auto [batch_size, length_given, replace_flag, out] = kSignature.parse(args, given, keywords);
    const std::int64_t count = read_count(batch_size, "batch_size");
    const std::int64_t length = read_count(length_given, "length");
    const bool replace = replace_flag != nullptr && read_flag(replace_flag, "replace");
    const auto size = static_cast<std::size_t>(count), steps = static_cast<std::size_t>(length);
    const std::int64_t stored = live();
    if (length > stored)
        throw std::invalid_argument("length must be <= the steps stored (" + std::to_string(stored) + "), got " +
                                    std::to_string(length));
    for (bool counted = false; !counted;) {
        std::int64_t starts = 0;
        counted = core_.read(0, [&](const Core& core) {
            const WindowIndex* const index = core.store->window_index(length);
            if (index != nullptr) starts = index->starts.total();
            return index != nullptr;
        });
        if (!counted)
            core_.write(0, [&](Core& core) { core.store->prepare_windows(std::min(length, core.store->capacity())); });
        if (counted && (starts == 0 || (!replace && count > starts))) Sampler::refuse_windows(count, starts, length);
    }

    BatchOutputs<F> batch(sequences_type(), out, {count, length});
    const std::size_t observations = batch.nested(F::observations, observation_, observation_fields_);
    const std::size_t actions = batch.nested(F::actions, action_, action_fields_);
    const std::size_t extras = batch.nested(F::extras, extras_, extras_fields_);
    const std::size_t reward = batch.scalar(F::rewards, DType::f32), done = batch.scalar(F::dones, DType::f32);
    const std::size_t terminated = batch.scalar(F::terminations, DType::b1),
                      truncated = batch.scalar(F::truncations, DType::b1);
    const std::size_t first = batch.scalar(F::is_first, DType::b1), last = batch.scalar(F::is_last, DType::b1);
    const std::size_t ids = batch.exact(F::ids, DType::i64, 2), start_ids = batch.exact(F::start_ids, DType::i64, 1);

    Workspace& work = workspace();
    Outputs& outputs = batch.outputs();
    outputs.allocate();
    SequenceOut to = std::move(work.sequences);
    to.fields.clear();
    for (std::size_t i = 0; i < schema_.observation_count(); ++i)
        to.fields.push_back({i, outputs.data(observations + i)});
    for (std::size_t i = 0; i < schema_.action_count(); ++i)
        to.fields.push_back({schema_.observation_count() + i, outputs.data(actions + i)});
    for (std::size_t i = schema_.extras_begin(); i < schema_.fields().size(); ++i)
        to.fields.push_back({i, outputs.data(extras + i - schema_.extras_begin())});
    to.reward = batch.template as<float>(reward);
    to.done = batch.template as<float>(done);
    to.terminated = batch.template as<std::uint8_t>(terminated);
    to.truncated = batch.template as<std::uint8_t>(truncated);
    to.first = batch.template as<std::uint8_t>(first);
    to.last = batch.template as<std::uint8_t>(last);
    to.ids = batch.template as<std::int64_t>(ids);
    auto* const starts_out = batch.template as<std::int64_t>(start_ids);

    // False: this length is not counted yet.
    const auto sample = [&](const Core& core) {
        const StepStore& store = *core.store;
        const WindowIndex* const index = store.window_index(length);
        if (index == nullptr) return false;
        work.starts.resize(size);
        work.rows.resize(size * steps);
        {
            const std::lock_guard guard(core.rng_mutex);
            work.sampler.draw_windows(core.rng, store, *index, replace, work.starts);
            core.sampled += count * length;
        }
        for (std::size_t i = 0; i < size; ++i)
            window_rows(store, store.episode(work.starts[i].slot), work.starts[i].t,
                        {work.rows.data() + i * steps, steps});
        work.gather.sequences(store, work.rows, steps, to);
        for (std::size_t i = 0; i < size; ++i) starts_out[i] = to.ids[i * steps];
        return true;
    };
    while (!core_.read(outputs.bytes(), sample))
        core_.write(0, [&](Core& core) { core.store->prepare_windows(length); });
    work.sequences = std::move(to);
    return handed_out(batch.release());
}

py::object Replay::valid_starts(std::int64_t length) const {
    const std::vector<std::int64_t> starts =
        core_.read(Lock::kLarge, [&](const Core& core) { return core.store->valid_starts(length); });
    return array_of(starts);
}

py::object Replay::get(py::object ids) const {
    const std::vector<std::int64_t> numbers = read_ids(ids.ptr());
    TransitionOutputs batch(schema_, observation_, observation_fields_, action_, action_fields_, extras_,
                            extras_fields_, static_cast<std::int64_t>(numbers.size()), false, nullptr);
    Workspace& work = workspace();
    TransitionOut to = std::move(work.transitions);
    batch.allocate(to);
    core_.read(batch.outputs().bytes(), [&](const Core& core) {
        work.rows.clear();
        for (const std::int64_t number : numbers) work.rows.push_back(core.store->row_of_number(number));
        work.gather.transitions(*core.store, work.rows, {}, to);
    });
    work.transitions = std::move(to);
    PyObject* const finished = handed_out(batch.release());
    if (finished == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(finished);
}

py::dict Replay::stats() const {
    struct Numbers {
        std::int64_t size, episodes, open, added, sampled, evicted, kept;
        std::size_t bytes;
    };
    const Numbers n = core_.read(0, [](const Core& core) {
        const StepStore& store = *core.store;
        const std::lock_guard guard(core.rng_mutex);
        return Numbers{store.live(),
                       store.episode_count(),
                       store.open_count() + static_cast<std::int64_t>(store.streams().dormant().size()),
                       store.written(),
                       core.sampled,
                       store.oldest(),
                       store.kept_successors(),
                       store.bytes()};
    });
    py::dict stats;
    stats["size"] = n.size;
    stats["capacity"] = capacity_;
    stats["episodes"] = n.episodes;
    stats["open_episodes"] = n.open;
    stats["added"] = n.added;
    stats["sampled"] = n.sampled;
    stats["evicted"] = n.evicted;
    stats["kept_successors"] = n.kept;
    stats["bytes"] = n.bytes;
    return stats;
}

}  // namespace ringback::bindings
