#include <algorithm>

#include "arguments.hpp"
#include "batch_outputs.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "replay.hpp"

// Reading: samples, and steps by id.
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

}  // namespace

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

    TransitionOutputs batch(parts(), count, discounted, out);
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
        const std::int64_t oldest = core.store->oldest();
        std::int64_t* const ids = batch.ids();
        for (std::size_t i = 0; i < size; ++i) {
            work.rows[i] = core.store->row_at_offset(work.offsets[i]);
            ids[i] = oldest + work.offsets[i];
        }
        work.gather.transitions(*core.store, work.rows, reduce, to);
    });
    work.transitions = std::move(to);
    return handed_out(batch.release());
}

// Valid starts of windows of `length` steps; from now on the store counts them.
std::int64_t Replay::count_starts(std::int64_t length) {
    for (;;) {
        const std::int64_t starts = core_.read(0, [&](const Core& core) {
            const WindowIndex* const index = core.store->window_index(length);
            return index == nullptr ? std::int64_t{-1} : index->starts.total();
        });
        if (starts >= 0) return starts;
        core_.write(0, [&](Core& core) { core.store->prepare_windows(length); });
    }
}

PyObject* Replay::sample_sequences(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
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
    const std::int64_t starts = count_starts(length);
    if (starts == 0 || (!replace && count > starts)) Sampler::refuse_windows(count, starts, length);

    SequenceOutputs batch(parts(), count, length, out);
    Workspace& work = workspace();
    SequenceOut to = std::move(work.sequences);
    batch.allocate(to);

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
        for (std::size_t i = 0; i < size; ++i) batch.start_ids()[i] = to.ids[i * steps];
        return true;
    };
    while (!core_.read(batch.outputs().bytes(), sample)) count_starts(length);
    work.sequences = std::move(to);
    return handed_out(batch.release());
}

py::object Replay::valid_starts(std::int64_t length) const {
    const std::vector<std::int64_t> starts =
        core_.read(Lock::kLarge, [&](const Core& core) { return core.store->valid_starts(length); });
    return array_of(DType::i64, starts);
}

py::object Replay::get(py::object ids) const {
    const std::vector<std::int64_t> numbers = read_ids(ids.ptr());
    TransitionOutputs batch(parts(), static_cast<std::int64_t>(numbers.size()), false, nullptr);
    Workspace& work = workspace();
    TransitionOut to = std::move(work.transitions);
    batch.allocate(to);
    core_.read(batch.outputs().bytes(), [&](const Core& core) {
        work.rows.clear();
        for (const std::int64_t number : numbers) work.rows.push_back(core.store->row_of_number(number));
        std::copy(numbers.begin(), numbers.end(), batch.ids());
        work.gather.transitions(*core.store, work.rows, {}, to);
    });
    work.transitions = std::move(to);
    PyObject* const finished = handed_out(batch.release());
    if (finished == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(finished);
}

}  // namespace ringback::bindings
