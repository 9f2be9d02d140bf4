// Microbenchmarks of the core: writing, drawing, gathering, scanning. Steps of 17 + 6 floats, rings that are full and
// warm. Each one checks the rows it got once, before it is timed; a wrong row makes it fail.
//
//     cmake --workflow --preset bench && build/bench/bench/cpp/bench_core

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ringback/gather.hpp"
#include "ringback/rng.hpp"
#include "ringback/sampler.hpp"
#include "ringback/step_store.hpp"
#include "ringback/sum_tree.hpp"

using namespace ringback;

namespace {

constexpr std::size_t kObservation = 17, kAction = 6;
constexpr std::int64_t kMillion = 1000000;

// The step that is written as number n, so that any row can be checked by its number. Contents repeat after kPeriod
// steps.
constexpr std::int64_t kPeriod = 4096, kMostStreams = 16;
float observed(std::int64_t n, std::size_t k) {
    return static_cast<float>(n % kPeriod + kPeriod * static_cast<std::int64_t>(k));
}
float acted(std::int64_t n, std::size_t k) { return -1.0F - observed(n, k); }
float rewarded(std::int64_t n) { return 0.5F + observed(n, 0); }

// Writes steps in turn to a number of streams, each seeing what it was told to expect, with episodes of random length.
class Writer {
  public:
    Writer(std::int64_t capacity, std::size_t streams, std::uint64_t shortest, std::uint64_t longest)
        : store_({{{"observation", DType::f32, {kObservation}}}, {{"action", DType::f32, {kAction}}}, {}}, capacity,
                 Mismatch::keep),
          rng_(std::uint64_t{1}),
          shortest_(shortest),
          longest_(longest),
          left_(streams),
          ids_(streams),
          terminated_(streams),
          truncated_(streams) {
        for (std::int64_t n = 0; n < kPeriod + 2 * kMostStreams; ++n) {
            for (std::size_t k = 0; k < kObservation; ++k) observations_.push_back(observed(n, k));
            for (std::size_t k = 0; k < kAction; ++k) actions_.push_back(acted(n, k));
            rewards_.push_back(rewarded(n));
        }
        for (std::size_t i = 0; i < streams; ++i) streams_.emplace_back(static_cast<std::int64_t>(i));
        for (auto& left : left_) left = length();
        // Twice round: every page, entry and table has been touched.
        while (store_.written() < 2 * capacity) write();
    }

    // One step of each stream. A step's successor is the observation of the step `stride` numbers later.
    void write() {
        const auto n = static_cast<std::size_t>(store_.written() % kPeriod);
        const std::array fields{at(observations_, n * kObservation), at(actions_, n * kAction), at(rewards_, n)};
        const std::array successors{at(observations_, (n + streams_.size()) * kObservation)};
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            terminated_[i] = --left_[i] == 0;
            if (left_[i] == 0) left_[i] = length();
        }
        store_.write({streams_.size(), fields, successors, terminated_.data(), truncated_.data()}, streams_, ids_);
    }

    StepStore& store() { return store_; }
    std::int64_t stride() const { return static_cast<std::int64_t>(streams_.size()); }

  private:
    std::uint64_t length() { return shortest_ + rng_.below(longest_ - shortest_ + 1); }
    static const std::byte* at(const std::vector<float>& column, std::size_t i) {
        return reinterpret_cast<const std::byte*>(column.data() + i);
    }

    StepStore store_;
    Rng rng_;
    std::uint64_t shortest_, longest_;
    std::vector<StreamKey> streams_;
    std::vector<std::uint64_t> left_;  // steps to the end of each stream's episode
    std::vector<std::int64_t> ids_;
    std::vector<float> observations_, actions_, rewards_;  // a period of steps, and those that follow it
    std::vector<std::uint8_t> terminated_, truncated_;
};

// The last ring asked for is kept: most benchmarks of one size come one after the other.
Writer& warm_ring(std::int64_t capacity, std::size_t streams = 1) {
    static std::unique_ptr<Writer> writer;
    if (writer == nullptr || writer->store().capacity() != capacity ||
        writer->stride() != static_cast<std::int64_t>(streams)) {
        writer.reset();
        writer = std::make_unique<Writer>(capacity, streams, 50, 1000);
    }
    return *writer;
}

// Outputs of a batch of transitions or of windows.
struct Batch {
    explicit Batch(std::size_t count)
        : rows(count),
          observations(count * kObservation),
          next_observations(count * kObservation),
          actions(count * kAction),
          rewards(count),
          dones(count),
          flags(4, std::vector<std::uint8_t>(count)),
          ids(count) {}

    void ask(RowsOut& out) {
        out.observation = {{0, reinterpret_cast<std::byte*>(observations.data())}};
        out.fields = {{1, reinterpret_cast<std::byte*>(actions.data())}};
        out.reward = rewards.data();
        out.done = dones.data();
        out.terminated = flags[0].data();
        out.truncated = flags[1].data();
    }
    TransitionOut transitions() {
        TransitionOut out;
        ask(out);
        out.next_observation = {{0, reinterpret_cast<std::byte*>(next_observations.data())}};
        return out;
    }
    SequenceOut sequences() {
        SequenceOut out;
        ask(out);
        out.first = flags[2].data();
        out.last = flags[3].data();
        out.ids = ids.data();
        return out;
    }

    bool is_right(std::int64_t stride, bool with_successors) const {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const std::int64_t n = ids[i];
            if (rewards[i] != rewarded(n)) return false;
            for (std::size_t k = 0; k < kObservation; ++k) {
                if (observations[i * kObservation + k] != observed(n, k)) return false;
                if (with_successors && next_observations[i * kObservation + k] != observed(n + stride, k)) return false;
            }
            for (std::size_t k = 0; k < kAction; ++k)
                if (actions[i * kAction + k] != acted(n, k)) return false;
        }
        return true;
    }

    std::vector<std::uint32_t> rows;
    std::vector<float> observations, next_observations, actions, rewards, dones;
    std::vector<std::vector<std::uint8_t>> flags;
    std::vector<std::int64_t> ids;
};

void count_rows(benchmark::State& state, std::size_t rows) {
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(rows));
}

bool newest_is_right(Writer& writer) {
    Batch batch(static_cast<std::size_t>(writer.stride()));
    const StepStore& store = writer.store();
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
        batch.ids[i] = store.written() - writer.stride() + static_cast<std::int64_t>(i);
        batch.rows[i] = store.row_of_number(batch.ids[i]);
    }
    Gather().transitions(store, batch.rows, {}, batch.transitions());
    return batch.is_right(writer.stride(), true);
}

void write(benchmark::State& state) {
    Writer& writer = warm_ring(kMillion, static_cast<std::size_t>(state.range(0)));
    writer.write();
    if (!newest_is_right(writer)) return state.SkipWithError("wrong rows");
    for (auto _ : state) writer.write();
    count_rows(state, static_cast<std::size_t>(state.range(0)));
}
BENCHMARK(write)->ArgName("streams")->Arg(1)->Arg(16);

void draw(benchmark::State& state) {
    const StepStore& store = warm_ring(state.range(0)).store();
    Sampler sampler;
    Rng rng(std::uint64_t{1});
    std::vector<std::int64_t> offsets(256);
    for (auto _ : state) {
        sampler.draw_steps(rng, store, state.range(1) != 0, offsets);
        benchmark::DoNotOptimize(offsets.data());
    }
    for (const std::int64_t offset : offsets)
        if (offset < 0 || offset >= store.live()) return state.SkipWithError("a step that is not there");
    count_rows(state, offsets.size());
}
BENCHMARK(draw)->ArgNames({"steps", "replace"})->Args({kMillion, 0})->Args({kMillion, 1});

// Draws, looks rows up and gathers, as one call of sample_transitions(256) does.
void transitions(benchmark::State& state) {
    Writer& writer = warm_ring(state.range(0));
    const StepStore& store = writer.store();
    Sampler sampler;
    Gather gather;
    Rng rng(std::uint64_t{1});
    std::vector<std::int64_t> offsets(256);
    Batch batch(offsets.size());
    const TransitionOut out = batch.transitions();
    const NStep n_step{state.range(1), 0.99};
    const auto sample = [&](NStep n) {
        sampler.draw_steps(rng, store, false, offsets);
        for (std::size_t i = 0; i < offsets.size(); ++i) {
            batch.ids[i] = store.oldest() + offsets[i];
            batch.rows[i] = store.row_at_offset(offsets[i]);
        }
        gather.transitions(store, batch.rows, n, out);
    };
    sample({});
    if (!batch.is_right(writer.stride(), true)) return state.SkipWithError("wrong rows");
    for (auto _ : state) {
        sample(n_step);
        benchmark::ClobberMemory();
    }
    count_rows(state, batch.rows.size());
}
BENCHMARK(transitions)
    ->ArgNames({"steps", "n"})
    ->Args({10000, 1})
    ->Args({100000, 1})
    ->Args({kMillion, 1})
    ->Args({kMillion, 3})
    ->Args({4 * kMillion, 1});

void valid_starts(benchmark::State& state) {
    StepStore& store = warm_ring(kMillion).store();
    store.prepare_windows({state.range(0)});
    if (static_cast<std::int64_t>(store.valid_starts({state.range(0)}).size()) !=
        store.window_index({state.range(0)})->starts.total())
        return state.SkipWithError("another count of starts than the one kept");
    for (auto _ : state) benchmark::DoNotOptimize(store.valid_starts({state.range(0)}));
    count_rows(state, static_cast<std::size_t>(kMillion));
}
BENCHMARK(valid_starts)->ArgName("length")->Arg(50)->Unit(benchmark::kMillisecond);

// Draws 32 windows and gathers their rows, as one call of sample_sequences(32, length) does.
void sequences(benchmark::State& state) {
    const auto length = static_cast<std::size_t>(state.range(0));
    Writer& writer = warm_ring(kMillion);
    StepStore& store = writer.store();
    store.prepare_windows({state.range(0)});
    const WindowIndex& index = *store.window_index({state.range(0)});
    Sampler sampler;
    Gather gather;
    Rng rng(std::uint64_t{1});
    std::vector<WindowStart> starts(32);
    Batch batch(starts.size() * length);
    const SequenceOut out = batch.sequences();
    WindowRows windows;
    const auto sample = [&] {
        sampler.draw_windows(rng, store, index, false, starts);
        lay_out(store, starts, {index.spec}, windows);
        gather.sequences(store, windows, {}, out);
    };
    sample();
    for (std::size_t i = 0; i < batch.ids.size(); ++i)
        if (batch.ids[i] != batch.ids[i / length * length] + static_cast<std::int64_t>(i % length))
            return state.SkipWithError("steps that do not follow each other");
    if (!batch.is_right(writer.stride(), false)) return state.SkipWithError("wrong rows");
    for (auto _ : state) {
        sample();
        benchmark::ClobberMemory();
    }
    count_rows(state, batch.rows.size());
}
BENCHMARK(sequences)->ArgName("length")->Arg(50);

// A sum tree of random leaves, with many batches of 256 stratified masses and as many of new values.
struct FullTree {
    static constexpr std::size_t kBatch = 256, kBatches = 64;

    explicit FullTree(std::int64_t leaves) : tree(leaves) {
        Rng rng(std::uint64_t{1});
        const auto unit = [&] { return static_cast<double>(rng.next() >> 11) * 0x1p-53; };
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
            const auto at = static_cast<std::uint32_t>(leaf);
            const double value = unit() + 1e-6;
            tree.set({&at, 1}, {&value, 1});
        }
        for (std::size_t i = 0; i < kBatch * kBatches; ++i) {
            masses.push_back((static_cast<double>(i % kBatch) + unit()) * tree.total() / kBatch);
            values.push_back(unit() + 1e-6);
        }
    }
    void find() { tree.find(std::span(masses).subspan(batch * kBatch, kBatch), found); }
    void set() { tree.set(found, std::span(values).subspan(batch * kBatch, kBatch)); }
    void go_on() { batch = (batch + 1) % kBatches; }

    // Every mass lies in the leaf found, but for rounding.
    bool is_right() const {
        double before = 0;
        std::uint32_t leaf = 0;
        for (std::size_t i = 0; i < kBatch; ++i) {
            while (leaf < found[i]) before += tree.get(leaf++);
            const double mass = std::min(masses[batch * kBatch + i], tree.total());
            if (mass < before - 1e-6 || mass > before + tree.get(leaf) + 1e-6) return false;
        }
        return true;
    }

    SumTree tree;
    std::vector<double> masses, values;
    std::vector<std::uint32_t> found = std::vector<std::uint32_t>(kBatch);
    std::size_t batch = 0;
};

// Finds 256 leaves, and sets them in the second benchmark.
void draw_by_priority(benchmark::State& state, bool with_updates) {
    FullTree full(state.range(0));
    full.find();
    if (!full.is_right()) return state.SkipWithError("a leaf that does not hold its mass");
    for (auto _ : state) {
        full.find();
        if (with_updates) full.set();
        full.go_on();
        benchmark::ClobberMemory();
    }
    if (full.find(); !full.is_right()) return state.SkipWithError("a leaf that does not hold its mass");
    count_rows(state, FullTree::kBatch);
}
void find_masses(benchmark::State& state) { draw_by_priority(state, false); }
void find_masses_and_set(benchmark::State& state) { draw_by_priority(state, true); }
BENCHMARK(find_masses)->ArgName("leaves")->Arg(10000)->Arg(kMillion);
BENCHMARK(find_masses_and_set)->ArgName("leaves")->Arg(10000)->Arg(kMillion);

}  // namespace

BENCHMARK_MAIN();
