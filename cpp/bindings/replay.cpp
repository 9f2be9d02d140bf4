#include "replay.hpp"

#include <algorithm>

#include "arguments.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "outputs.hpp"

namespace py = pybind11;

// Writing, and what is known of the whole.
namespace ringback::bindings {

namespace {

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

}  // namespace

Replay::Replay(std::int64_t capacity, py::handle observation, py::handle action, py::handle extras,
               const Rng::State& seed, const std::string& on_mismatch, py::object priority)
    : observation_(observation),
      action_(action),
      extras_(extras),
      schema_(observation_.fields, action_.fields, extras_.fields),
      capacity_(capacity),
      mismatch_(mismatch_of(on_mismatch)),
      core_(new_store(), seed) {
    for (const Field& field : schema_.fields())
        if (field.shape.size() + 4 > Outputs::kMaxAxes)
            throw std::invalid_argument(field.name + " must have at most 8 axes, got " +
                                        std::to_string(field.shape.size()));
    if (priority.is_none()) return;
    rule_.emplace(priority.cast<py::dict>(), parts());
    core_.write(0, [&](Core& core) {
        core.priorities = new_priorities();
        core.store->tell(core.priorities.get());
    });
}

std::unique_ptr<Priorities> Replay::new_priorities() const {
    return rule_ ? std::make_unique<Priorities>(capacity_, rule_->options) : nullptr;
}

std::unique_ptr<StepStore> Replay::new_store() const {
    return std::make_unique<StepStore>(schema_, capacity_, mismatch_);
}

std::int64_t Replay::live() const {
    return core_.read(0, [](const Core& core) { return core.store->live(); });
}

std::int64_t Replay::capacity() const { return capacity_; }

// ---- writing ----

std::string Replay::names_of_extras() const {
    std::string names;
    for (const Field& field : extras_.fields) names += (names.empty() ? "" : ", ") + field.name;
    return names;
}

void Replay::check_extras_given(PyObject* extras) const {
    if (extras_.fields.empty() && extras != nullptr && extras != Py_None && PyDict_Check(extras) &&
        PyDict_Size(extras) == 0)
        return;
    const bool given = extras != nullptr && extras != Py_None;
    if (given && extras_.fields.empty())
        throw std::invalid_argument("extras must be declared at construction, got " + shown(extras));
    if (!given && !extras_.fields.empty())
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
    observation_.structure.flatten(observation, "",
                                   [&](std::size_t i, PyObject* leaf) { fields[i] = inputs.row(i, leaf); });
    action_.structure.flatten(
        action, "", [&](std::size_t i, PyObject* leaf) { fields[actions + i] = inputs.row(actions + i, leaf); });
    fields[schema_.reward_index()] = inputs.row(schema_.reward_index(), reward);
    observation_.structure.flatten(next_observation, "next_", [&](std::size_t i, PyObject* leaf) {
        successors[i] = inputs.row(i, leaf, "next_");
    });
    if (extras != nullptr || !extras_.fields.empty()) {
        check_extras_given(extras);
        if (!extras_.fields.empty())
            extras_.structure.flatten(extras, "", [&](std::size_t i, PyObject* leaf) {
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
    observation_.structure.flatten(observations, "",
                                   [&](std::size_t i, PyObject* leaf) { fields[i] = inputs.rows(i, leaf, count); });
    action_.structure.flatten(actions, "", [&](std::size_t i, PyObject* leaf) {
        fields[first_action + i] = inputs.rows(first_action + i, leaf, count);
    });
    fields[schema_.reward_index()] = inputs.rows(schema_.reward_index(), rewards, count);
    observation_.structure.flatten(next_observations, "next_", [&](std::size_t i, PyObject* leaf) {
        successors[i] = inputs.rows(i, leaf, count, "next_");
    });
    check_extras_given(extras);
    if (!extras_.fields.empty())
        extras_.structure.flatten(extras, "", [&](std::size_t i, PyObject* leaf) {
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
        observation_.structure.flatten(observations.ptr(), "", [&](std::size_t i, PyObject* leaf) {
            fields[i] = inputs.rows(i, leaf, count + 1);
            successors[i] = fields[i] + schema_.place(i).bytes;
        });
        action_.structure.flatten(actions.ptr(), "", [&](std::size_t i, PyObject* leaf) {
            fields[first_action + i] = inputs.rows(first_action + i, leaf, count);
        });
        fields[schema_.reward_index()] = inputs.rows(schema_.reward_index(), rewards.ptr(), count);
        check_extras_given(extras.ptr());
        if (!extras_.fields.empty())
            extras_.structure.flatten(extras.ptr(), "", [&](std::size_t i, PyObject* leaf) {
                fields[first_extra + i] = inputs.rows(first_extra + i, leaf, count);
            });
    }
    std::vector<std::int64_t> ids(count);
    write(count, [&](StepStore& store) {
        store.write_chunk({count, fields.span(), successors.span(), nullptr, nullptr}, key, start, cut, terminated,
                          truncated, ids);
    });
    return array_of(DType::i64, ids);
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
    if (field == observation_.structure.path()) {
        leaves(observation_.structure, 0);
    } else if (field == action_.structure.path()) {
        leaves(action_.structure, schema_.observation_count());
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
                       store.bytes() + (core.priorities ? core.priorities->bytes() : 0)};
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
