#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "programs.hpp"
#include "ringback/gather.hpp"
#include "steps.hpp"

using namespace ringback;
using namespace ringback::twin;

namespace {

// An output of exactly `count` elements, followed by bytes that nobody may touch.
template <class T>
class Output {
  public:
    explicit Output(std::size_t count) : count_(count), bytes_(count * sizeof(T) + kCanary, kUntouched) {}

    T* data() { return reinterpret_cast<T*>(bytes_.data()); }
    T at(std::size_t i) const {
        T value;
        std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof value);
        return value;
    }
    std::string row(std::size_t i, std::size_t width) const {
        return {reinterpret_cast<const char*>(bytes_.data()) + i * width, width};
    }
    bool is_overrun() const {
        for (std::size_t i = count_ * sizeof(T); i < bytes_.size(); ++i)
            if (bytes_[i] != kUntouched) return true;
        return false;
    }

  private:
    static constexpr std::size_t kCanary = 64;
    static constexpr std::byte kUntouched{0xA5};
    std::size_t count_;
    std::vector<std::byte> bytes_;
};

// All outputs of a batch. `odd` asks for every second field only, and for neither discounts nor step counts.
struct Transitions {
    Transitions(const Schema& schema, std::size_t count, bool odd)
        : reward(count), done(count), discount(count), terminated(count), truncated(count), steps(count) {
        for (std::size_t f = odd ? 1 : 0; f < schema.fields().size(); f += odd ? 2 : 1) {
            if (f == schema.reward_index()) continue;
            asked.push_back(f);
            fields.emplace_back(count * schema.field(f).bytes);
        }
        for (std::size_t leaf = 0; leaf < schema.observation_count(); ++leaf)
            next.emplace_back(count * schema.field(leaf).bytes);
        for (std::size_t i = 0; i < asked.size(); ++i) out.fields.push_back({asked[i], fields[i].data()});
        for (std::size_t leaf = 0; leaf < next.size(); ++leaf)
            out.next_observation.push_back({leaf, next[leaf].data()});
        out.reward = reward.data();
        out.done = done.data();
        out.terminated = terminated.data();
        out.truncated = truncated.data();
        if (odd) return;
        out.discount = discount.data();
        out.steps = steps.data();
    }

    bool any_overrun() const {
        for (const auto& f : fields)
            if (f.is_overrun()) return true;
        for (const auto& f : next)
            if (f.is_overrun()) return true;
        return reward.is_overrun() || done.is_overrun() || discount.is_overrun() || terminated.is_overrun() ||
               truncated.is_overrun() || steps.is_overrun();
    }

    std::vector<std::size_t> asked;
    std::vector<Output<std::byte>> fields, next;
    Output<float> reward, done, discount;
    Output<std::uint8_t> terminated, truncated;
    Output<std::int64_t> steps;
    TransitionOut out;
};

struct Sequences {
    Sequences(const Schema& schema, std::size_t count)
        : reward(count), done(count), terminated(count), truncated(count), first(count), last(count), ids(count) {
        for (std::size_t f = 0; f < schema.fields().size(); ++f) {
            if (f == schema.reward_index()) continue;
            asked.push_back(f);
            fields.emplace_back(count * schema.field(f).bytes);
        }
        for (std::size_t i = 0; i < asked.size(); ++i) out.fields.push_back({asked[i], fields[i].data()});
        out.reward = reward.data();
        out.done = done.data();
        out.terminated = terminated.data();
        out.truncated = truncated.data();
        out.first = first.data();
        out.last = last.data();
        out.ids = ids.data();
    }

    bool any_overrun() const {
        for (const auto& f : fields)
            if (f.is_overrun()) return true;
        return reward.is_overrun() || done.is_overrun() || terminated.is_overrun() || truncated.is_overrun() ||
               first.is_overrun() || last.is_overrun() || ids.is_overrun();
    }

    std::vector<std::size_t> asked;
    std::vector<Output<std::byte>> fields;
    Output<float> reward, done;
    Output<std::uint8_t> terminated, truncated, first, last;
    Output<std::int64_t> ids;
    SequenceOut out;
};

float reward_of(const Schema& schema, const NaiveStep& step) {
    float reward;
    std::memcpy(&reward, step.fields[schema.reward_index()].data(), sizeof reward);
    return reward;
}

// The slow twin: walks from step to step.
std::string wrong_transition(const Schema& schema, const NaiveStore& naive, std::int64_t start, NStep n_step,
                             const Transitions& got, std::size_t i) {
    const NaiveStep& begin = naive.step(start);
    const NaiveStep* end = &begin;
    double sum = reward_of(schema, begin), factor = n_step.gamma;
    std::int64_t steps = 1;
    while (steps < n_step.n && naive.next(*end) != nullptr) {
        end = naive.next(*end);
        sum += factor * static_cast<double>(reward_of(schema, *end));
        factor *= n_step.gamma;
        ++steps;
    }
    const std::string where = "start " + std::to_string(start) + ": ";
    for (std::size_t k = 0; k < got.asked.size(); ++k)
        if (got.fields[k].row(i, schema.field(got.asked[k]).bytes) != begin.fields[got.asked[k]])
            return where + schema.field(got.asked[k]).name;
    for (std::size_t leaf = 0; leaf < got.next.size(); ++leaf)
        if (got.next[leaf].row(i, schema.field(leaf).bytes) != end->successor[leaf]) return where + "next observation";
    if (got.reward.at(i) != static_cast<float>(sum)) return where + "reward";
    if (got.terminated.at(i) != (end->flags & 1)) return where + "terminated";
    if (got.truncated.at(i) != (end->flags >> 1)) return where + "truncated";
    if (got.done.at(i) != ((end->flags & 1) != 0 ? 1.0F : 0.0F)) return where + "done";
    if (got.out.steps != nullptr && got.steps.at(i) != steps) return where + "steps";
    if (got.out.discount != nullptr &&
        got.discount.at(i) != ((end->flags & 1) != 0 ? 0.0F : static_cast<float>(factor)))
        return where + "discount";
    return "";
}

std::string wrong_transitions(Gather& gather, const StepStore& store, const NaiveStore& naive,
                              const std::vector<std::int64_t>& starts, NStep n_step, bool odd) {
    const Schema& schema = store.schema();
    std::vector<std::uint32_t> rows;
    for (const std::int64_t id : starts) rows.push_back(store.row_of_number(id));
    Transitions got(schema, starts.size(), odd);
    gather.transitions(store, rows, n_step, got.out);
    if (got.any_overrun()) return "an output is overrun";
    for (std::size_t i = 0; i < starts.size(); ++i)
        if (auto wrong = wrong_transition(schema, naive, starts[i], n_step, got, i); !wrong.empty()) return wrong;
    return "";
}

std::string wrong_sequences(Gather& gather, const StepStore& store, const NaiveStore& naive,
                            const std::vector<std::int64_t>& starts, std::size_t length) {
    const Schema& schema = store.schema();
    std::vector<std::uint32_t> rows(starts.size() * length);
    for (std::size_t w = 0; w < starts.size(); ++w) {
        const StepTime first = store.time(store.row_of_number(starts[w]));
        window_rows(store, store.episode(first.episode), first.t, std::span(rows).subspan(w * length, length));
    }
    Sequences got(schema, rows.size());
    gather.sequences(store, rows, length, got.out);
    if (got.any_overrun()) return "an output is overrun";
    for (std::size_t w = 0, i = 0; w < starts.size(); ++w) {
        const NaiveStep* want = &naive.step(starts[w]);
        for (std::size_t k = 0; k < length; ++k, ++i) {
            if (k > 0) want = naive.next(*want);
            const std::string where = "window " + std::to_string(starts[w]) + "+" + std::to_string(k) + ": ";
            for (std::size_t f = 0; f < got.asked.size(); ++f)
                if (got.fields[f].row(i, schema.field(got.asked[f]).bytes) != want->fields[got.asked[f]])
                    return where + schema.field(got.asked[f]).name;
            if (got.reward.at(i) != reward_of(schema, *want)) return where + "reward";
            if (got.ids.at(i) != want->number) return where + "id";
            if (got.terminated.at(i) != (want->flags & 1)) return where + "terminated";
            if (got.truncated.at(i) != (want->flags >> 1)) return where + "truncated";
            if (got.done.at(i) != ((want->flags & 1) != 0 ? 1.0F : 0.0F)) return where + "done";
            if (got.first.at(i) != (want->t == 0 ? 1 : 0)) return where + "first";
            if (got.last.at(i) != (naive.next(*want) == nullptr ? 1 : 0)) return where + "last";
        }
    }
    return "";
}

std::vector<std::int64_t> some_of(Rng& rng, const std::vector<std::int64_t>& ids, std::size_t count) {
    std::vector<std::int64_t> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(ids[rng.below(ids.size())]);
    return chosen;
}

}  // namespace

TEST_CASE("transitions of random programs are the twin's, for every n, and overrun no output (I2, I3)") {
    Gather gather;  // one for all: what it reuses must not show
    for (std::uint64_t seed = 0; seed < 84; ++seed) {
        CAPTURE(seed);
        Program program(small_shape(seed), seed + 500);
        for (int round = 0; round < 6; ++round) {
            for (int call = 0; call < 25; ++call) REQUIRE(program.step() == "");
            const std::vector<std::int64_t> live = program.naive().valid_starts(1);
            if (live.empty()) continue;
            for (const std::size_t count : {1, 2, 3, 17, 70})
                for (const NStep n_step : {NStep{1, 1.0}, NStep{2, 0.5}, NStep{3, 0.99}, NStep{1000, 0.9}}) {
                    const auto starts = some_of(program.rng(), live, count);
                    REQUIRE(wrong_transitions(gather, program.store(), program.naive(), starts, n_step,
                                              count % 2 == 0) == "");
                }
        }
    }
}

TEST_CASE("sequences of random programs are the twin's, and overrun no output (I3)") {
    Gather gather;
    for (std::uint64_t seed = 0; seed < 84; ++seed) {
        CAPTURE(seed);
        Program program(small_shape(seed), seed + 900);
        for (int round = 0; round < 6; ++round) {
            for (int call = 0; call < 25; ++call) REQUIRE(program.step() == "");
            for (const std::size_t length : {1, 2, 3, 7}) {
                const std::vector<std::int64_t> valid = program.naive().valid_starts(static_cast<std::int64_t>(length));
                if (valid.empty()) continue;
                for (const std::size_t count : {1, 2, 30})
                    REQUIRE(wrong_sequences(gather, program.store(), program.naive(),
                                            some_of(program.rng(), valid, count), length) == "");
            }
        }
    }
}

TEST_CASE("windows and n-step sums run across pages of 64 rows and over the wrap of the ring") {
    Gather gather;
    Program program({vectors(), 4200, Mismatch::keep, 3, 200, 150}, 11);
    for (int call = 0; call < 600; ++call) REQUIRE(program.step() == "");
    REQUIRE(program.store().rows_per_page() == 64);
    REQUIRE(program.store().written() > 4200);
    for (const std::size_t length : {60, 100}) {
        const std::vector<std::int64_t> valid = program.naive().valid_starts(static_cast<std::int64_t>(length));
        REQUIRE(!valid.empty());
        CHECK(wrong_sequences(gather, program.store(), program.naive(), some_of(program.rng(), valid, 6), length) ==
              "");
        const NStep n_step{static_cast<std::int64_t>(length), 0.97};
        CHECK(wrong_transitions(gather, program.store(), program.naive(), some_of(program.rng(), valid, 6), n_step,
                                false) == "");
    }
}

TEST_CASE("an n beyond every episode, up to the largest int64, gives every step as a start") {
    Gather gather;
    Program program({vectors(), 50, Mismatch::keep, 3, 5, 6}, 12);
    for (int call = 0; call < 80; ++call) REQUIRE(program.step() == "");
    const NStep n_step{std::numeric_limits<std::int64_t>::max(), 0.99};
    CHECK(wrong_transitions(gather, program.store(), program.naive(), program.naive().valid_starts(1), n_step, false) ==
          "");
}

TEST_CASE("an empty batch touches nothing") {
    Gather gather;
    const StepStore store(vectors(), 4, Mismatch::keep);
    Transitions transitions(store.schema(), 0, false);
    Sequences sequences(store.schema(), 0);
    gather.transitions(store, {}, {}, transitions.out);
    gather.sequences(store, {}, 3, sequences.out);
    CHECK_FALSE(transitions.any_overrun());
    CHECK_FALSE(sequences.any_overrun());
}

TEST_CASE("a batch equals its transitions gathered one by one") {
    Program program({odd_sizes(), 90, Mismatch::keep, 4, 9, 6}, 13);
    for (int call = 0; call < 80; ++call) REQUIRE(program.step() == "");
    Gather gather;
    const std::vector<std::int64_t> live = program.naive().valid_starts(1);
    CHECK(wrong_transitions(gather, program.store(), program.naive(), live, {3, 0.9}, false) == "");
    for (const std::int64_t id : live)
        REQUIRE(wrong_transitions(gather, program.store(), program.naive(), {id}, {3, 0.9}, false) == "");
}

TEST_CASE("rewards are summed in float64 and rounded once") {
    // 1 + 2^-24 + 2^-24: float32 sums lose both small terms, a float64 sum keeps them.
    const Schema schema = vectors();
    StepStore store(schema, 8, Mismatch::keep);
    const StreamKey key = std::int64_t{0};
    const float rewards[] = {1.0F, 0x1p-24F, 0x1p-24F};
    std::uint64_t count = 0;
    for (const float reward : rewards) {
        Given given = counting_step(schema, count++);
        std::memcpy(given.fields[schema.reward_index()].data(), &reward, sizeof reward);
        std::int64_t id = 0;
        store.write(Columns(schema, {given}).rows(), {&key, 1}, {&id, 1});
    }
    Transitions got(schema, 1, false);
    const std::uint32_t row = store.row_of_number(0);
    Gather().transitions(store, {&row, 1}, {3, 1.0}, got.out);
    CHECK(got.reward.at(0) == 1.0F + 0x1p-23F);
}

TEST_CASE("a time limit bootstraps and a terminal does not, a step with both flags is terminal") {
    const Schema schema = vectors();
    StepStore store(schema, 8, Mismatch::keep);
    for (int flags = 0; flags < 4; ++flags) {
        Given given = counting_step(schema, static_cast<std::uint64_t>(flags));
        given.terminated = (flags & 1) != 0;
        given.truncated = (flags & 2) != 0;
        const StreamKey key = std::int64_t{flags};
        std::int64_t id = 0;
        store.write(Columns(schema, {given}).rows(), {&key, 1}, {&id, 1});
    }
    const std::vector<std::uint32_t> rows{store.row_of_number(0), store.row_of_number(1), store.row_of_number(2),
                                          store.row_of_number(3)};
    Transitions got(schema, 4, false);
    Gather().transitions(store, rows, {1, 0.5}, got.out);
    const float discounts[] = {0.5F, 0.0F, 0.5F, 0.0F};
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(got.discount.at(i) == discounts[i]);
        CHECK(got.done.at(i) == static_cast<float>(i & 1));
        CHECK(got.truncated.at(i) == (i >> 1));
    }
}
