#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "chance.hpp"
#include "ringback/sampler.hpp"
#include "steps.hpp"

using namespace ringback;
using namespace ringback::twin;

namespace {

// Counts of each ordered answer of `count` draws below `bound` without replacement.
std::map<std::vector<std::int64_t>, std::int64_t> orders(std::int64_t bound, std::size_t count, int draws) {
    Rng rng(static_cast<std::uint64_t>(bound) * 100 + count);
    Sampler sampler;
    std::map<std::vector<std::int64_t>, std::int64_t> seen;
    std::vector<std::int64_t> out(count);
    for (int i = 0; i < draws; ++i) {
        sampler.draw(rng, bound, false, out);
        ++seen[out];
    }
    return seen;
}

bool all_equally_often(const std::map<std::vector<std::int64_t>, std::int64_t>& seen) {
    std::vector<std::int64_t> counts;
    for (const auto& [order, n] : seen) counts.push_back(n);
    return looks_uniform(counts);
}

// `steps` steps of one stream, whose episodes have the given lengths in turn; the last may be open.
StepStore filled(std::int64_t capacity, std::int64_t steps, const std::vector<std::int64_t>& lengths) {
    StepStore store(vectors(), capacity, Mismatch::keep);
    const StreamKey key = std::int64_t{0};
    std::int64_t id = 0, episode = 0, t = 0;
    for (std::int64_t n = 0; n < steps; ++n) {
        Given given = counting_step(store.schema(), static_cast<std::uint64_t>(n));
        given.terminated = ++t == lengths[static_cast<std::size_t>(episode) % lengths.size()];
        if (given.terminated) {
            ++episode;
            t = 0;
        }
        store.write(Columns(store.schema(), {given}).rows(), {&key, 1}, {&id, 1});
    }
    return store;
}

std::int64_t number_of(const StepStore& store, WindowStart start) {
    return store.number(store.row_of(store.episode(start.slot), start.t));
}

}  // namespace

TEST_CASE("with replacement every value is equally likely, at every place of the answer") {
    Rng rng(std::uint64_t{1});
    Sampler sampler;
    constexpr std::size_t kPlaces = 3;
    for (const std::int64_t bound : {1, 2, 7, 100}) {
        std::vector<std::vector<std::int64_t>> counts(kPlaces,
                                                      std::vector<std::int64_t>(static_cast<std::size_t>(bound)));
        std::vector<std::int64_t> out(kPlaces);
        for (int i = 0; i < 50000; ++i) {
            sampler.draw(rng, bound, true, out);
            for (std::size_t place = 0; place < kPlaces; ++place)
                ++counts[place].at(static_cast<std::size_t>(out[place]));
        }
        if (bound > 1)
            for (const auto& at_place : counts) CHECK(looks_uniform(at_place));
    }
}

TEST_CASE("with replacement equal neighbours are as likely as chance makes them") {
    Rng rng(std::uint64_t{2});
    Sampler sampler;
    std::vector<std::int64_t> out(2), pairs(49);
    for (int i = 0; i < 100000; ++i) {
        sampler.draw(rng, 7, true, out);
        ++pairs.at(static_cast<std::size_t>(out[0] * 7 + out[1]));
    }
    CHECK(looks_uniform(pairs));
}

TEST_CASE("without replacement all ordered choices are equally likely, many of few and few of many") {
    const struct {
        std::int64_t bound;
        std::size_t count, choices;
    } cases[] = {{2, 1, 2},   {2, 2, 2},  {3, 3, 6},    {4, 2, 12},   {4, 3, 24},  {5, 2, 20}, {5, 4, 120},
                 {6, 3, 120}, {7, 2, 42}, {9, 4, 3024}, {8, 4, 1680}, {7, 4, 840}, {5, 5, 120}};
    for (const auto& c : cases) {
        CAPTURE(c.bound);
        CAPTURE(c.count);
        const auto seen = orders(c.bound, c.count, static_cast<int>(c.choices) * 100);
        CHECK(seen.size() == c.choices);
        CHECK(all_equally_often(seen));
    }
}

TEST_CASE("without replacement all numbers differ and lie below the bound, for every size of answer") {
    Rng rng(std::uint64_t{3});
    Sampler sampler;
    for (std::int64_t bound = 1; bound <= 70; ++bound)
        for (std::size_t count = 0; count <= static_cast<std::size_t>(bound); ++count) {
            std::vector<std::int64_t> out(count);
            sampler.draw(rng, bound, false, out);
            const std::set<std::int64_t> different(out.begin(), out.end());
            REQUIRE(different.size() == count);
            if (count > 0) REQUIRE((*different.begin() >= 0 && *different.rbegin() < bound));
        }
}

TEST_CASE("a few out of very many differ too") {
    Rng rng(std::uint64_t{4});
    Sampler sampler;
    std::vector<std::int64_t> out(5000);
    for (const std::int64_t bound : {std::int64_t{10000}, std::int64_t{1} << 31, (std::int64_t{1} << 32) - 1}) {
        sampler.draw(rng, bound, false, out);
        CHECK(std::set<std::int64_t>(out.begin(), out.end()).size() == out.size());
        CHECK(*std::min_element(out.begin(), out.end()) >= 0);
        CHECK(*std::max_element(out.begin(), out.end()) < bound);
    }
}

TEST_CASE("equal generators give equal draws, whatever the sampler drew before (I8)") {
    Sampler fresh, used;
    Rng other(std::uint64_t{99});
    std::vector<std::int64_t> a(40), b(40), many(900);
    for (const std::int64_t bound : {50, 79, 80, 81, 100000}) {
        used.draw(other, 1000, false, many);
        Rng first(std::uint64_t{5}), second(std::uint64_t{5});
        fresh.draw(first, bound, false, a);
        used.draw(second, bound, false, b);
        CHECK(a == b);
        CHECK(first.state() == second.state());
    }
}

TEST_CASE("steps are drawn uniformly: before full, exactly full, one past full, after several wraps") {
    constexpr std::int64_t kCapacity = 37;
    for (const std::int64_t written : {1, 23, 37, 38, 150})
        for (const bool replace : {true, false}) {
            CAPTURE(written);
            CAPTURE(replace);
            const StepStore store = filled(kCapacity, written, {5, 3, 9});
            const auto live = static_cast<std::size_t>(store.live());
            Rng rng(static_cast<std::uint64_t>(written));
            Sampler sampler;
            std::vector<std::int64_t> counts(live), out(std::min<std::size_t>(live, 5));
            for (int i = 0; i < 8000; ++i) {
                sampler.draw_steps(rng, store, replace, out);
                for (const std::int64_t offset : out) ++counts.at(static_cast<std::size_t>(offset));
            }
            if (replace && live > 1) CHECK(looks_uniform(counts));
            // Without replacement counts scatter less than chi-squared says; each step must still be reached.
            if (live > 1) CHECK(chi_squared_uniform(counts) < chi_squared_bound(static_cast<double>(live - 1)));
            CHECK(*std::min_element(counts.begin(), counts.end()) > 0);
        }
}

TEST_CASE("window starts are drawn uniformly over the valid ones and nothing else") {
    constexpr std::int64_t kCapacity = 53;
    for (const std::int64_t written : {23, 53, 54, 210})
        for (const std::int64_t length : {1, 2, 4, 9}) {
            CAPTURE(written);
            CAPTURE(length);
            StepStore store = filled(kCapacity, written, {5, 3, 9, 1, 12});
            store.prepare_windows({length});
            const std::vector<std::int64_t> valid = store.valid_starts({length});
            REQUIRE(!valid.empty());
            std::map<std::int64_t, std::int64_t> counts;
            for (const std::int64_t id : valid) counts[id] = 0;
            Rng rng(static_cast<std::uint64_t>(written * 10 + length));
            Sampler sampler;
            std::vector<WindowStart> out(6);
            for (int i = 0; i < 6000; ++i) {
                sampler.draw_windows(rng, store, *store.window_index({length}), true, out);
                for (const WindowStart start : out) ++counts[number_of(store, start)];
            }
            CHECK(counts.size() == valid.size());
            std::vector<std::int64_t> flat;
            for (const auto& [id, n] : counts) flat.push_back(n);
            if (flat.size() > 1) CHECK(looks_uniform(flat));
        }
}

TEST_CASE("all valid starts without replacement are each drawn once, in any order") {
    StepStore store = filled(40, 95, {5, 3, 9, 1, 12});
    store.prepare_windows({3});
    const std::vector<std::int64_t> valid = store.valid_starts({3});
    std::vector<WindowStart> out(valid.size());
    Rng rng(std::uint64_t{6});
    Sampler sampler;
    std::set<std::vector<std::int64_t>> orders_seen;
    for (int i = 0; i < 20; ++i) {
        sampler.draw_windows(rng, store, *store.window_index({3}), false, out);
        std::vector<std::int64_t> drawn;
        for (const WindowStart start : out) drawn.push_back(number_of(store, start));
        orders_seen.insert(drawn);
        std::sort(drawn.begin(), drawn.end());
        REQUIRE(drawn == valid);
    }
    CHECK(orders_seen.size() == 20);
}

TEST_CASE("a draw of a window consumes the generator by what is there, not by what is cached (I8)") {
    StepStore a = filled(40, 95, {5, 3, 9}), b = filled(40, 95, {5, 3, 9});
    a.prepare_windows({3});
    for (const std::int64_t length : {1, 2, 4, 3}) b.prepare_windows({length});
    Rng first(std::uint64_t{7}), second(std::uint64_t{7});
    Sampler sampler;
    std::vector<WindowStart> x(9), y(9);
    sampler.draw_windows(first, a, *a.window_index({3}), false, x);
    sampler.draw_windows(second, b, *b.window_index({3}), false, y);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(number_of(a, x[i]) == number_of(b, y[i]));
    CHECK(first.state() == second.state());
}

TEST_CASE("more than there is, or anything out of nothing, is refused with both numbers, and draws nothing") {
    const StepStore empty(vectors(), 4, Mismatch::keep);
    StepStore store = filled(9, 7, {4});
    store.prepare_windows({3});
    Rng rng(std::uint64_t{8});
    const Rng::State before = rng.state();
    Sampler sampler;
    std::vector<std::int64_t> out(8), one(1);
    std::vector<WindowStart> windows(4), window(1);
    CHECK_THROWS_WITH_AS(
        sampler.draw_steps(rng, store, false, out),
        "batch_size must be <= the steps stored (7), got 8; pass replace=True to draw steps more than once",
        std::invalid_argument);
    CHECK_THROWS_WITH_AS(sampler.draw_steps(rng, empty, true, one), "batch_size must be <= the steps stored (0), got 1",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(
        sampler.draw_windows(rng, store, *store.window_index({3}), false, windows),
        "batch_size must be <= the valid starts of windows of 3 steps (3), got 4; pass replace=True to draw "
        "starts more than once",
        std::invalid_argument);
    store.prepare_windows({5});
    CHECK_THROWS_WITH_AS(sampler.draw_windows(rng, store, *store.window_index({5}), true, window),
                         "batch_size must be <= the valid starts of windows of 5 steps (0), got 1",
                         std::invalid_argument);
    CHECK(rng.state() == before);
    sampler.draw_steps(rng, store, true, out);
    sampler.draw_windows(rng, store, *store.window_index({3}), true, windows);
}
