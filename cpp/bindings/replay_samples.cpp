#include <algorithm>

#include "arguments.hpp"
#include "batch_outputs.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "replay.hpp"
#include "requests.hpp"

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
    std::vector<std::int64_t> each;  // of every row its n, where that is drawn
    WindowRows windows;
    TransitionOut transitions;
    SequenceOut sequences;

    void draw_each(Rng& rng, const Sums& sums, std::size_t count) {
        each.clear();
        if (sums.low == sums.high) return;
        const auto choices = static_cast<std::uint64_t>(sums.high - sums.low) + 1;
        for (std::size_t i = 0; i < count; ++i)
            each.push_back(sums.low + static_cast<std::int64_t>(rng.below(choices)));
    }
    NStep step(const Sums& sums) const noexcept {
        NStep step = sums.step();
        if (!each.empty()) step.each = each.data();
        return step;
    }
};

// Batches of at least this many rows are refused before memory for them is asked for.
constexpr std::size_t kCheckFirst = 4096;

Workspace& workspace() {
    thread_local Workspace work;
    return work;
}

}  // namespace

void Replay::check_whole(const Source& source, const StepStore& store) {
    if (source.side == Side::any && store.split().is_set())
        throw std::invalid_argument(
            "a buffer that was split must be sampled through one of its views, got a call on the whole");
}

// Calls f(core, index) with the counts of the valid starts, which from now on the store keeps.
template <class F>
void Replay::with_index(const WindowSpec& spec, std::size_t bytes, F&& f) const {
    const auto attempt = [&](const Core& core) {
        const WindowIndex* const index = core.store->window_index(spec);
        if (index != nullptr) f(core, *index);
        return index != nullptr;
    };
    while (!core_.read(bytes, attempt)) core_.write(0, [&](Core& core) { core.store->prepare_windows(spec); });
}

template <class F>
void Replay::with_rng(const Source& source, const Core& core, F&& f) const {
    const std::lock_guard guard(source.own_rng != nullptr ? *source.own_mutex : core.rng_mutex);
    f(source.own_rng != nullptr ? *source.own_rng : core.rng);
}

// Numbers of starts and their weights.
void Replay::draw_by_priority(const Source& source, const Core& core, double beta, std::span<std::int64_t> numbers,
                              float* weights) const {
    thread_local std::vector<double> masses;
    masses.resize(numbers.size());
    with_rng(source, core, [&](Rng& rng) { core.priorities->draw(rng, *core.store, rule_->draws, numbers, masses); });
    core.priorities->weights(masses, beta, rule_->normalise, {weights, numbers.size()});
}

Rng Replay::forked_rng() const {
    Rng::State words{};
    core_.read(0, [&](const Core& core) {
        with_rng({}, core, [&](Rng& rng) {
            for (auto& word : words) word = rng.next();
        });
    });
    return Rng(words);
}

std::int64_t Replay::count_starts(const WindowSpec& spec) const {
    std::int64_t starts = 0;
    with_index(spec, 0, [&](const Core&, const WindowIndex& index) { starts = index.starts.total(); });
    return starts;
}

std::int64_t Replay::steps_on(Side side) const {
    WindowSpec spec;
    spec.side = side;
    return count_starts(spec);
}

// ---- transitions ----

PyObject* Replay::sample_transitions(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    return sample_transitions(Source{}, args, given, keywords);
}

PyObject* Replay::sample_transitions(const Source& source, PyObject* const* args, Py_ssize_t given,
                                     PyObject* keywords) {
    static constexpr Signature<8> kSignature{
        {"batch_size", "n_step", "gamma", "replace", "out", "stack", "stack_fill", "beta"}, 1, 1};
    const auto [batch_size, n_step, gamma, replace_flag, out, stack, stack_fill, beta_given] =
        kSignature.parse(args, given, keywords);
    const std::int64_t count = read_count(batch_size, "batch_size");
    const bool replace = replace_flag != nullptr && read_flag(replace_flag, "replace");
    const Sums sums = read_sums(n_step, gamma);
    const Stacks stacks = read_stacks(stack, stack_fill, parts());
    const auto size = static_cast<std::size_t>(count);
    WindowSpec spec;
    spec.history = stacks.history();
    spec.side = source.side;
    const double beta = read_beta(beta_given);
    const bool prioritised = is_prioritised(source);
    if (prioritised) rule_->check_transitions(spec);
    const bool any_step = spec == WindowSpec{};  // whatever is stored may be drawn
    if (size >= kCheckFirst && !prioritised) {
        const std::int64_t stored = any_step ? live() : count_starts(spec);
        if (stored == 0 || (!replace && count > stored)) Sampler::refuse_steps(count, stored);
    }

    TransitionOutputs batch(parts(), count, sums, stacks, rule_.has_value(), out);
    Workspace& work = workspace();
    TransitionOut to = std::move(work.transitions);
    batch.allocate(to);
    std::int64_t* const ids = batch.ids();
    const auto gather = [&](const Core& core) { work.gather.transitions(*core.store, work.rows, work.step(sums), to); };
    work.rows.resize(size);
    if (prioritised) {
        core_.read(batch.outputs().bytes(), [&](const Core& core) {
            const StepStore& store = *core.store;
            check_whole(source, store);
            if (core.priorities->starts() == 0) Sampler::refuse_steps(count, 0);
            draw_by_priority(source, core, beta, {ids, size}, batch.weights());
            with_rng(source, core, [&](Rng& rng) { work.draw_each(rng, sums, size); });
            core.sampled += count;
            for (std::size_t i = 0; i < size; ++i) work.rows[i] = store.row_at_offset(ids[i] - store.oldest());
            gather(core);
        });
    } else if (any_step) {
        core_.read(batch.outputs().bytes(), [&](const Core& core) {
            const StepStore& store = *core.store;
            check_whole(source, store);
            work.offsets.resize(size);
            with_rng(source, core, [&](Rng& rng) {
                work.sampler.draw_steps(rng, store, replace, work.offsets);
                work.draw_each(rng, sums, size);
                core.sampled += count;
            });
            store.rows_at_offsets(work.offsets, work.rows);
            gather(core);
            const std::int64_t oldest = store.oldest();
            for (std::size_t i = 0; i < size; ++i) ids[i] = oldest + work.offsets[i];
        });
    } else {
        with_index(spec, batch.outputs().bytes(), [&](const Core& core, const WindowIndex& index) {
            const StepStore& store = *core.store;
            check_whole(source, store);
            work.starts.resize(size);
            with_rng(source, core, [&](Rng& rng) {
                work.sampler.draw_windows(rng, store, index, replace, work.starts);
                work.draw_each(rng, sums, size);
                core.sampled += count;
            });
            for (std::size_t i = 0; i < size; ++i) {
                const auto [slot, t] = work.starts[i];
                work.rows[i] = store.row_of(store.episode(slot), t);
                ids[i] = store.number_of(store.episode(slot), t);
            }
            gather(core);
        });
    }
    if (rule_ && !prioritised) std::fill_n(batch.weights(), size, 1.0F);
    work.transitions = std::move(to);
    return batch.release(wrapping());
}

PyObject* Replay::get(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    return get(Source{}, args, given, keywords);
}

PyObject* Replay::get(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<6> kSignature{{"ids", "n_step", "gamma", "stack", "stack_fill", "out"}, 1, 3};
    const auto [ids, n_step, gamma, stack, stack_fill, out] = kSignature.parse(args, given, keywords);
    const std::vector<std::int64_t> numbers = read_ids(ids);
    const Sums sums = read_sums(n_step, gamma);
    if (sums.low != sums.high)
        throw std::invalid_argument("n_step must be an integer where ids are given, got " + shown(n_step));
    const Stacks stacks = read_stacks(stack, stack_fill, parts());
    WindowSpec spec;
    spec.history = stacks.history();
    TransitionOutputs batch(parts(), static_cast<std::int64_t>(numbers.size()), sums, stacks, false, out);
    Workspace& work = workspace();
    TransitionOut to = std::move(work.transitions);
    batch.allocate(to);
    core_.read(batch.outputs().bytes(), [&](const Core& core) {
        const StepStore& store = *core.store;
        work.rows.clear();
        for (const std::int64_t number : numbers) {
            const std::uint32_t row = store.row_of_number(number);
            const Episode& episode = store.episode_of(row);
            if (source.side != Side::any && episode.side != source.side)
                throw std::invalid_argument("ids must be of steps on this side of the split, got " +
                                            std::to_string(number));
            if (!readable_rows(episode.stored(), spec).holds(store.time(row).t))
                throw std::invalid_argument("ids must be of steps whose " + std::to_string(spec.history) +
                                            " older frames are stored, got " + std::to_string(number));
            work.rows.push_back(row);
        }
        std::copy(numbers.begin(), numbers.end(), batch.ids());
        work.gather.transitions(store, work.rows, sums.step(), to);
    });
    work.transitions = std::move(to);
    return batch.release(wrapping());
}

// ---- sequences ----

PyObject* Replay::sample_sequences(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    return sample_sequences(Source{}, args, given, keywords);
}

PyObject* Replay::sample_sequences(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<17> kSignature{
        {"batch_size", "length", "replace", "out", "burn_in", "pad", "period", "n_step", "gamma", "stack", "stack_fill",
         "cross_episodes", "layout", "next_observations", "time_major", "start_state", "beta"},
        2,
        2};
    const auto v = kSignature.parse(args, given, keywords);
    const std::int64_t count = read_count(v[0], "batch_size");
    const bool replace = v[2] != nullptr && read_flag(v[2], "replace");
    SequenceRequest request =
        read_sequence_request({v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]},
                              read_count(v[1], "length"), parts());
    WindowSpec& spec = request.layout.spec;
    spec.side = source.side;
    const double beta = read_beta(v[16]);
    const bool prioritised = is_prioritised(source);
    if (prioritised) rule_->check_sequences(spec);
    if (const std::int64_t stored = live(); spec.length > stored && !spec.pad && !spec.arrival)
        throw std::invalid_argument("length must be <= the steps stored (" + std::to_string(stored) + "), got " +
                                    std::to_string(spec.length));
    const std::int64_t starts = prioritised ? count : count_starts(spec);
    if (starts == 0 || (!replace && count > starts)) Sampler::refuse_windows(count, starts, spec);

    SequenceOutputs batch(parts(), count, request, rule_.has_value(), v[3]);
    Workspace& work = workspace();
    SequenceOut to = std::move(work.sequences);
    batch.allocate(to);
    const auto gather = [&](const Core& core) {
        lay_out(*core.store, work.starts, request.layout, work.windows);
        if (request.sums.low != request.sums.high)
            with_rng(source, core, [&](Rng& rng) { work.draw_each(rng, request.sums, work.windows.rows.size()); });
        core.sampled += work.windows.steps();
        work.gather.sequences(*core.store, work.windows, work.step(request.sums), to);
        batch.describe(work.windows);
    };
    work.each.clear();
    work.starts.resize(static_cast<std::size_t>(count));
    if (prioritised) {
        work.offsets.resize(work.starts.size());
        core_.read(batch.outputs().bytes(), [&](const Core& core) {
            const StepStore& store = *core.store;
            check_whole(source, store);
            if (core.priorities->starts() == 0) Sampler::refuse_windows(count, 0, spec);
            draw_by_priority(source, core, beta, work.offsets, batch.weights());
            for (std::size_t i = 0; i < work.starts.size(); ++i) {
                const StepTime& time = store.time(store.row_at_offset(work.offsets[i] - store.oldest()));
                work.starts[i] = {time.episode, time.t};
            }
            gather(core);
        });
    } else {
        with_index(spec, batch.outputs().bytes(), [&](const Core& core, const WindowIndex& index) {
            check_whole(source, *core.store);
            with_rng(source, core,
                     [&](Rng& rng) { work.sampler.draw_windows(rng, *core.store, index, replace, work.starts); });
            gather(core);
        });
        if (rule_) std::fill_n(batch.weights(), work.starts.size(), 1.0F);
    }
    work.sequences = std::move(to);
    return batch.release(wrapping());
}

PyObject* Replay::sample_episodes(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    return sample_episodes(Source{}, args, given, keywords);
}

// How wide the batch becomes is known once the episodes are drawn; should one of them be gone before it is copied (a
// writer on another thread), they are drawn again.
PyObject* Replay::sample_episodes(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<11> kSignature{{"batch_size", "max_length", "replace", "out", "n_step", "gamma", "stack",
                                               "stack_fill", "layout", "next_observations", "time_major"},
                                              1,
                                              2};
    const auto v = kSignature.parse(args, given, keywords);
    const std::int64_t count = read_count(v[0], "batch_size");
    const bool limited = v[1] != nullptr && v[1] != Py_None;
    const bool replace = v[2] != nullptr && read_flag(v[2], "replace");
    SequenceRequest request =
        read_sequence_request({nullptr, nullptr, nullptr, v[4], v[5], v[6], v[7], nullptr, v[8], v[9], v[10], nullptr},
                              limited ? read_count(v[1], "max_length") : kFarTime, parts());
    WindowSpec& spec = request.layout.spec;
    spec.whole = true;
    spec.side = source.side;
    const WindowSpec drawn_by = spec;
    const std::int64_t episodes = count_starts(spec);
    if (episodes == 0 || (!replace && count > episodes)) Sampler::refuse_windows(count, episodes, spec);

    Workspace& work = workspace();
    std::vector<std::int64_t> births(static_cast<std::size_t>(count));
    for (;;) {
        with_index(drawn_by, 0, [&](const Core& core, const WindowIndex& index) {
            const StepStore& store = *core.store;
            check_whole(source, store);
            work.starts.resize(births.size());
            with_rng(source, core,
                     [&](Rng& rng) { work.sampler.draw_windows(rng, store, index, replace, work.starts); });
            if (!limited) spec.length = 1;
            for (std::size_t i = 0; i < births.size(); ++i) {
                const Episode& episode = store.episode(work.starts[i].slot);
                births[i] = episode.birth;
                if (!limited) spec.length = std::max(spec.length, readable_rows(episode.stored(), spec).end);
            }
        });
        SequenceOutputs batch(parts(), count, request, false, v[3]);
        SequenceOut to = std::move(work.sequences);
        batch.allocate(to);
        const bool copied = core_.read(batch.outputs().bytes(), [&](const Core& core) {
            const StepStore& store = *core.store;
            for (std::size_t i = 0; i < births.size(); ++i) {
                const Episode& episode = store.episode(work.starts[i].slot);
                if (!episode.in_use || episode.birth != births[i] || episode.first != 0) return false;
            }
            lay_out(store, work.starts, request.layout, work.windows);
            with_rng(source, core, [&](Rng& rng) {
                work.draw_each(rng, request.sums, work.windows.rows.size());
                core.sampled += work.windows.steps();
            });
            work.gather.sequences(store, work.windows, work.step(request.sums), to);
            batch.describe(work.windows);
            return true;
        });
        work.sequences = std::move(to);
        if (copied) return batch.release(wrapping());
    }
}

// ---- which steps ----

PyObject* Replay::valid_starts(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    return valid_starts(Source{}, args, given, keywords);
}

PyObject* Replay::valid_starts(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<4> kSignature{{"length", "pad", "period", "stack"}, 0, 1};
    const auto [length, pad, period, stack] = kSignature.parse(args, given, keywords);
    WindowSpec spec = read_window_spec(length, pad, period, stack, parts());
    spec.side = source.side;
    const std::vector<std::int64_t> starts =
        core_.read(Lock::kLarge, [&](const Core& core) { return core.store->valid_starts(spec); });
    return array_of(DType::i64, starts).release().ptr();
}

py::tuple Replay::locate(py::object ids) const {
    const std::vector<std::int64_t> numbers = read_ids(ids.ptr());
    std::vector<std::int64_t> t, first, end;
    std::vector<std::uint8_t> open;
    core_.read(0, [&](const Core& core) {
        for (const std::int64_t number : numbers) {
            const std::uint32_t row = core.store->row_of_number(number);
            const Episode& episode = core.store->episode_of(row);
            t.push_back(core.store->time(row).t);
            first.push_back(episode.first);
            end.push_back(episode.end);
            open.push_back(episode.open);
        }
    });
    return py::make_tuple(array_of(DType::i64, t), array_of(DType::i64, first), array_of(DType::i64, end),
                          array_of(DType::b1, open));
}

py::object Replay::steps_at(py::object ids, py::object times) const {
    const std::vector<std::int64_t> numbers = read_ids(ids.ptr()), t = read_ids(times.ptr());
    if (numbers.size() != t.size())
        throw std::invalid_argument("times must be as many as ids (" + std::to_string(numbers.size()) + "), got " +
                                    std::to_string(t.size()));
    std::vector<std::int64_t> found(numbers.size());
    core_.read(0, [&](const Core& core) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const Episode& episode = core.store->episode_of(core.store->row_of_number(numbers[i]));
            if (!episode.extent().holds(t[i]))
                throw std::invalid_argument("times must be of stored steps of the episode, in [" +
                                            std::to_string(episode.first) + ", " + std::to_string(episode.end) +
                                            "), got " + std::to_string(t[i]));
            found[i] = core.store->number_of(episode, t[i]);
        }
    });
    return array_of(DType::i64, found);
}

bool Replay::is_split() const {
    return core_.read(0, [](const Core& core) { return core.store->split().is_set(); });
}

void Replay::split(const Split& split) {
    core_.write(Lock::kLarge, [&](Core& core) {
        core.store->split(split);
        ++core.version;
        if (core.priorities) core.priorities->recount(*core.store);
    });
}

}  // namespace ringback::bindings
