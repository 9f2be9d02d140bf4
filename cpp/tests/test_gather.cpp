#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "programs.hpp"
#include "ringback/gather.hpp"
#include "ringback/window_rows.hpp"
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

// What is asked for.
struct Request {
    std::vector<std::int64_t> frames;  // of each observation leaf's stack, 0: no stack
    bool odd = false;                  // every second field only
    bool next = true;
    bool discounts = true, steps = true, masks = true;
    NStep n_step = {};
    std::vector<std::int64_t> each;  // of every row its own n
    std::vector<std::string> fills;  // a frame of each observation leaf, before t = 0; empty: observation 0

    std::int64_t history() const {
        std::int64_t most = 1;
        for (const std::int64_t k : frames) most = std::max(most, k);
        return most - 1;
    }
    const std::byte* fill(std::size_t f) const {
        return fills.empty() ? nullptr : reinterpret_cast<const std::byte*>(fills[f].data());
    }
    NStep summed() const { return {n_step.n, n_step.gamma, each.empty() ? nullptr : each.data()}; }
};

// All outputs of a batch of `count` rows in `windows` windows.
struct Outputs {
    Outputs(const Schema& schema, std::size_t count, std::size_t windows, const Request& request)
        : reward(count),
          done(count),
          discount(count),
          terminated(count),
          truncated(count),
          first(count),
          last(count),
          valid(count),
          mask(count),
          steps(count),
          ids(count) {
        for (std::size_t f = 0; f < schema.fields().size(); ++f) {
            const std::size_t bytes = schema.field(f).bytes;
            const std::int64_t frames = f < request.frames.size() ? request.frames[f] : 0;
            const bool is_observation = f < schema.observation_count();
            const auto row = bytes * static_cast<std::size_t>(std::max<std::int64_t>(frames, 1));
            if (is_observation && request.next) next.emplace_back(f, count * row);
            if (f == schema.reward_index()) continue;
            if (request.odd && f % 2 == 0) continue;
            (is_observation ? observation : fields).emplace_back(f, count * row);
            start.emplace_back(f, windows * bytes);
        }
        for (auto& [f, bytes] : observation) ask(out.observation, out.stacks, f, bytes, request);
        for (auto& [f, bytes] : next) ask(out.next_observation, out.next_stacks, f, bytes, request);
        for (auto& [f, bytes] : fields) out.fields.push_back({f, bytes.data()});
        for (auto& [f, bytes] : start) out.start_fields.push_back({f, bytes.data()});
        out.reward = reward.data();
        out.done = done.data();
        out.terminated = terminated.data();
        out.truncated = truncated.data();
        out.first = first.data();
        out.last = last.data();
        out.ids = ids.data();
        if (request.discounts) out.discount = discount.data();
        if (request.steps) out.steps = steps.data();
        if (!request.masks) return;
        out.valid = valid.data();
        out.mask = mask.data();
    }

    TransitionOut transitions() const {
        TransitionOut some;
        static_cast<RowsOut&>(some) = out;
        return some;
    }

    bool any_overrun() const {
        for (const auto* outputs : {&observation, &next, &fields, &start})
            for (const auto& [f, bytes] : *outputs)
                if (bytes.is_overrun()) return true;
        return reward.is_overrun() || done.is_overrun() || discount.is_overrun() || terminated.is_overrun() ||
               truncated.is_overrun() || first.is_overrun() || last.is_overrun() || valid.is_overrun() ||
               mask.is_overrun() || steps.is_overrun() || ids.is_overrun();
    }

    using Asked = std::vector<std::pair<std::size_t, Output<std::byte>>>;
    Asked observation, next, fields, start;
    Output<float> reward, done, discount;
    Output<std::uint8_t> terminated, truncated, first, last, valid, mask;
    Output<std::int64_t> steps, ids;
    SequenceOut out;

  private:
    static void ask(std::vector<FieldOut>& plain, std::vector<StackOut>& stacks, std::size_t f,
                    Output<std::byte>& bytes, const Request& request) {
        if (f < request.frames.size() && request.frames[f] > 0)
            stacks.push_back({f, request.frames[f], bytes.data(), request.fill(f)});
        else
            plain.push_back({f, bytes.data()});
    }
};

float reward_of(const Schema& schema, const NaiveStep& step) {
    float reward;
    std::memcpy(&reward, step.fields[schema.reward_index()].data(), sizeof reward);
    return reward;
}

// The slow twin: looks for each observation and walks from step to step.
class Expected {
  public:
    Expected(const Schema& schema, const NaiveStore& naive, const Request& request)
        : schema_(schema), naive_(naive), request_(request) {}

    // "" or what differs in output row i, which is to be `row`, or nothing.
    std::string wrong(const Outputs& got, std::size_t i, const NaiveRow* row, bool sequence) const {
        const std::string where = "output row " + std::to_string(i) + ": ";
        const NaiveStep* const step = row == nullptr ? nullptr : row->step;
        const NaiveStep* end = step;
        double sum = step == nullptr ? 0.0 : reward_of(schema_, *step), factor = request_.n_step.gamma;
        std::int64_t steps = step == nullptr ? 0 : 1;
        const std::int64_t most = request_.each.empty() ? request_.n_step.n : request_.each[i];
        for (; step != nullptr && steps < most && naive_.next(*end) != nullptr; ++steps) {
            end = naive_.next(*end);
            sum += factor * static_cast<double>(reward_of(schema_, *end));
            factor *= request_.n_step.gamma;
        }
        for (const auto& [f, bytes] : got.observation) {
            std::string want;
            for (std::int64_t k = frames(f) - 1; k >= 0; --k)
                want += row == nullptr ? nothing(f) : observed(f, row->episode, row->t - k, nullptr);
            if (bytes.row(i, want.size()) != want) return where + schema_.field(f).name;
        }
        for (const auto& [f, bytes] : got.next) {
            std::string want;
            for (std::int64_t k = frames(f) - 1; k >= 0; --k)
                want += end == nullptr ? nothing(f) : observed(f, end->episode, end->t + 1 - k, end);
            if (bytes.row(i, want.size()) != want) return where + "next " + schema_.field(f).name;
        }
        for (const auto& [f, bytes] : got.fields)
            if (bytes.row(i, schema_.field(f).bytes) != (step == nullptr ? nothing(f) : step->fields[f]))
                return where + schema_.field(f).name;
        int flags = end == nullptr ? 0 : end->flags;
        const bool arrivals = row != nullptr && by_arrival;
        if (arrivals) {
            sum = row->arrived == nullptr ? 0.0 : reward_of(schema_, *row->arrived);
            flags = step == nullptr ? row->arrived->flags : 0;
        }
        if (got.reward.at(i) != static_cast<float>(sum)) return where + "reward";
        if (got.terminated.at(i) != (flags & 1)) return where + "terminated";
        if (got.truncated.at(i) != (flags >> 1)) return where + "truncated";
        if (got.done.at(i) != ((flags & 1) != 0 ? 1.0F : 0.0F)) return where + "done";
        const bool stops = step == nullptr || (flags & 1) != 0;
        if (request_.discounts && !by_arrival && got.discount.at(i) != (stops ? 0.0F : static_cast<float>(factor)))
            return where + "discount";
        if (request_.steps && !by_arrival && got.steps.at(i) != steps) return where + "steps";
        if (!sequence) return "";
        if (got.ids.at(i) != (step == nullptr ? -1 : step->number)) return where + "id";
        if (got.first.at(i) != (row != nullptr && row->t == 0 ? 1 : 0)) return where + "first";
        const bool last = arrivals ? step == nullptr : step != nullptr && naive_.next(*step) == nullptr;
        if (got.last.at(i) != (last ? 1 : 0)) return where + "last";
        return "";
    }

    bool by_arrival = false;

  private:
    std::int64_t frames(std::size_t f) const {
        return f < request_.frames.size() ? std::max<std::int64_t>(request_.frames[f], 1) : 1;
    }
    std::string nothing(std::size_t f) const { return std::string(schema_.field(f).bytes, '\0'); }

    // Observation t of an episode. `led`: the step whose successor it is.
    std::string observed(std::size_t f, std::int64_t episode, std::int64_t t, const NaiveStep* led) const {
        if (t < 0 && !request_.fills.empty()) return request_.fills[f];
        if (led != nullptr && t == led->t + 1) return led->successor[f];
        const NaiveStep* const step = naive_.find(episode, std::max<std::int64_t>(t, 0));
        return step != nullptr ? step->fields[f] : naive_.find(episode, t - 1)->successor[f];
    }

    const Schema& schema_;
    const NaiveStore& naive_;
    const Request& request_;
};

std::string wrong_transitions(Gather& gather, const StepStore& store, const NaiveStore& naive,
                              const std::vector<std::int64_t>& starts, const Request& request) {
    const Schema& schema = store.schema();
    std::vector<std::uint32_t> rows;
    for (const std::int64_t id : starts) rows.push_back(store.row_of_number(id));
    const Outputs got(schema, starts.size(), 0, request);
    gather.transitions(store, rows, request.summed(), got.transitions());
    if (got.any_overrun()) return "an output is overrun";
    const Expected expected(schema, naive, request);
    for (std::size_t i = 0; i < starts.size(); ++i) {
        const NaiveStep& step = naive.step(starts[i]);
        const NaiveRow row{step.episode, step.t, &step, nullptr};
        if (auto wrong = expected.wrong(got, i, &row, false); !wrong.empty()) return wrong;
    }
    return "";
}

std::string wrong_sequences(Gather& gather, const StepStore& store, const NaiveStore& naive,
                            const std::vector<NaiveLine>& lines, const std::vector<NaiveStart>& starts,
                            const WindowLayout& layout, const Request& request) {
    const Schema& schema = store.schema();
    WindowRows rows;
    lay_out(store, starts_of(store, lines, starts), layout, rows);
    const Outputs got(schema, rows.rows.size(), starts.size(), request);
    gather.sequences(store, rows, request.summed(), got.out);
    if (got.any_overrun()) return "an output is overrun";
    Expected expected(schema, naive, request);
    expected.by_arrival = layout.spec.arrival;
    for (std::size_t w = 0; w < starts.size(); ++w) {
        const NaiveWindow want =
            NaiveStore::window(lines[starts[w].line], starts[w].row, layout.spec.length, layout.burn_in);
        for (std::size_t k = 0; k < rows.width; ++k) {
            const std::size_t i = rows.first_of(w) + k * rows.stride;
            const bool there = k < want.rows.size();
            if (auto wrong = expected.wrong(got, i, there ? &want.rows[k] : nullptr, true); !wrong.empty())
                return wrong;
            if (!request.masks) continue;
            if (got.valid.at(i) != (there ? 1 : 0)) return "valid";
            if (got.mask.at(i) != (there && k >= want.burn_in ? 1 : 0)) return "mask";
        }
        for (const auto& [f, bytes] : got.start) {
            const NaiveStep* const step = want.rows[0].step;
            const std::string first = step == nullptr ? std::string(schema.field(f).bytes, '\0') : step->fields[f];
            if (bytes.row(w, first.size()) != first) return "start of window: " + schema.field(f).name;
        }
    }
    return "";
}

Request any_request(const Schema& schema, Rng& rng, std::size_t count) {
    const auto chance = [&](std::uint64_t odds) { return rng.below(odds) == 0; };
    Request request;
    if (!chance(3))
        for (std::size_t leaf = 0; leaf < schema.observation_count(); ++leaf)
            request.frames.push_back(static_cast<std::int64_t>(rng.below(5)));
    request.odd = chance(3);
    request.next = !chance(3);
    request.discounts = !chance(3);
    request.steps = !chance(3);
    request.masks = !chance(3);
    const NStep sums[] = {{1, 1.0}, {1, 0.9}, {2, 0.5}, {3, 0.99}, {1000, 0.9}};
    request.n_step = sums[rng.below(std::size(sums))];
    if (request.n_step.n > 1 && chance(2))
        for (std::size_t i = 0; i < count; ++i)
            request.each.push_back(1 + static_cast<std::int64_t>(rng.below(
                                           std::min<std::uint64_t>(static_cast<std::uint64_t>(request.n_step.n), 6))));
    if (chance(2))
        for (std::size_t f = 0; f < schema.observation_count(); ++f) {
            request.fills.emplace_back(schema.field(f).bytes, '\0');
            for (char& byte : request.fills.back()) byte = static_cast<char>(rng.below(256));
        }
    return request;
}

// One batch of windows of any kind, and all that can be asked for of them.
std::string any_sequences(Gather& gather, Program& program, std::size_t count, std::int64_t length = 0) {
    const Schema& schema = program.store().schema();
    WindowLayout layout{program.any_spec()};
    if (length > 0) layout.spec.length = length;
    layout.burn_in = program.rng().below(2) == 0 ? 0 : static_cast<std::int64_t>(program.rng().below(5));
    layout.time_major = program.rng().below(2) == 0;
    const std::size_t rows = count * static_cast<std::size_t>(layout.burn_in + layout.spec.length);
    Request request = any_request(schema, program.rng(), rows);
    layout.spec.history = request.history();
    if (layout.spec.arrival) {
        request.next = false;
        request.n_step = {};
        request.each.clear();
    }
    program.stores()[0]->prepare_windows(layout.spec);
    const std::vector<NaiveLine> lines = program.naive().lines(layout.spec);
    const auto starts = program.some_starts(lines, layout.spec, count);
    const std::string wrong = wrong_sequences(gather, program.store(), program.naive(), lines, starts, layout, request);
    return wrong.empty() ? "" : spelled(layout.spec) + wrong;
}

Request sums_of(NStep n_step) {
    Request request;
    request.n_step = n_step;
    return request;
}

std::vector<std::int64_t> some_of(Rng& rng, const std::vector<std::int64_t>& ids, std::size_t count) {
    std::vector<std::int64_t> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(ids[rng.below(ids.size())]);
    return chosen;
}

}  // namespace

TEST_CASE("transitions of random programs are the twin's, whatever is asked for, and overrun no output (I2, I3)") {
    Gather gather;  // one for all: what it reuses must not show
    for (std::uint64_t seed = 0; seed < 126; ++seed) {
        CAPTURE(seed);
        Program program(small_shape(seed), seed + 500);
        for (int round = 0; round < 6; ++round) {
            for (int call = 0; call < 25; ++call) REQUIRE(program.step() == "");
            for (const std::size_t count : {1, 2, 3, 17, 70})
                for (int draw = 0; draw < 2; ++draw) {
                    const Request request = any_request(program.store().schema(), program.rng(), count);
                    const auto starts = program.naive().valid_starts({1, 1, request.history()});
                    if (starts.empty()) continue;
                    REQUIRE(wrong_transitions(gather, program.store(), program.naive(),
                                              some_of(program.rng(), starts, count), request) == "");
                }
        }
    }
}

TEST_CASE("windows of random programs are the twin's, whatever is asked for, and overrun no output (I3)") {
    Gather gather;
    for (std::uint64_t seed = 0; seed < 126; ++seed) {
        CAPTURE(seed);
        Program program(small_shape(seed), seed + 900);
        for (int round = 0; round < 6; ++round) {
            for (int call = 0; call < 25; ++call) REQUIRE(program.step() == "");
            for (const std::size_t count : {1, 1, 2, 2, 7, 20}) REQUIRE(any_sequences(gather, program, count) == "");
        }
    }
}

TEST_CASE("windows, stacks and n-step sums run across pages of 64 rows and over the wrap of the ring") {
    Gather gather;
    Program program({vectors(), 4200, Mismatch::keep, 3, 200, 150}, 11);
    for (int call = 0; call < 600; ++call) REQUIRE(program.step() == "");
    REQUIRE(program.store().rows_per_page() == 64);
    REQUIRE(program.store().written() > 4200);
    for (const std::int64_t length : {60, 100}) {
        Request request = sums_of({length, 0.97});
        request.frames = {70};
        const auto starts = program.naive().valid_starts({1, 1, 69});
        REQUIRE(!starts.empty());
        CHECK(wrong_transitions(gather, program.store(), program.naive(), some_of(program.rng(), starts, 6), request) ==
              "");
        for (int draw = 0; draw < 12; ++draw) REQUIRE(any_sequences(gather, program, 3, length) == "");
    }
}

TEST_CASE("windows of nothing but their own rows, shorter and longer than the runs in which they are copied") {
    Gather gather;
    Program program({vectors(), 4200, Mismatch::keep, 3, 200, 150}, 12);
    for (int call = 0; call < 600; ++call) REQUIRE(program.step() == "");
    Request request;
    request.next = false;
    for (const std::int64_t length : {1, 15, 16, 17, 33, 60, 100})
        for (const bool pad : {false, true})
            for (const std::int64_t burn_in : {0, 20}) {
                WindowSpec spec{length};
                spec.pad = pad;
                const std::vector<NaiveLine> lines = program.naive().lines(spec);
                const auto starts = program.some_starts(lines, spec, 5);
                REQUIRE(!starts.empty());
                CHECK(wrong_sequences(gather, program.store(), program.naive(), lines, starts, {spec, burn_in},
                                      request) == "");
            }
}

TEST_CASE("an n beyond every episode, up to the largest int64, gives every step as a start") {
    Gather gather;
    Program program({vectors(), 50, Mismatch::keep, 3, 5, 6}, 12);
    for (int call = 0; call < 80; ++call) REQUIRE(program.step() == "");
    const NStep n_step{std::numeric_limits<std::int64_t>::max(), 0.99};
    CHECK(wrong_transitions(gather, program.store(), program.naive(), program.naive().valid_starts({1}),
                            sums_of(n_step)) == "");
}

TEST_CASE("an empty batch touches nothing") {
    Gather gather;
    const StepStore store(vectors(), 4, Mismatch::keep);
    for (const std::int64_t n : {1, 3}) {
        Request request;
        request.frames = {2};
        const Outputs got(store.schema(), 0, 0, request);
        gather.transitions(store, {}, {n}, got.transitions());
        gather.sequences(store, {}, {n}, got.out);
        CHECK_FALSE(got.any_overrun());
    }
}

TEST_CASE("a batch equals its transitions gathered one by one") {
    Program program({odd_sizes(), 90, Mismatch::keep, 4, 9, 6}, 13);
    for (int call = 0; call < 80; ++call) REQUIRE(program.step() == "");
    Gather gather;
    const std::vector<std::int64_t> live = program.naive().valid_starts({1});
    CHECK(wrong_transitions(gather, program.store(), program.naive(), live, sums_of({3, 0.9})) == "");
    for (const std::int64_t id : live)
        REQUIRE(wrong_transitions(gather, program.store(), program.naive(), {id}, sums_of({3, 0.9})) == "");
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
    const Outputs got(schema, 1, 0, {});
    const std::uint32_t row = store.row_of_number(0);
    Gather().transitions(store, {&row, 1}, {3, 1.0}, got.transitions());
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
    const Outputs got(schema, 4, 0, {});
    Gather().transitions(store, rows, {1, 0.5}, got.transitions());
    const float discounts[] = {0.5F, 0.0F, 0.5F, 0.0F};
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(got.discount.at(i) == discounts[i]);
        CHECK(got.done.at(i) == static_cast<float>(i & 1));
        CHECK(got.truncated.at(i) == (i >> 1));
    }
}
