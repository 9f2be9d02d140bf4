#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "chance.hpp"
#include "naive_store.hpp"
#include "ringback/priorities.hpp"
#include "steps.hpp"

using namespace ringback;
using namespace ringback::twin;

namespace {

// Priorities by number in a map; after each step every start is looked for anew.
class NaivePriorities {
  public:
    NaivePriorities(PriorityOptions options, std::int64_t capacity) : options_(options), capacity_(capacity) {}

    // Whether a window may start at this step: every row of it, and every step that its stack needs, is there.
    bool is_start(const NaiveStore& store, const NaiveStep& step) const {
        const WindowSpec& windows = options_.windows;
        if (step.t % windows.period != 0) return false;
        const auto is_live = [&](std::int64_t t) {
            return std::any_of(store.live().begin(), store.live().end(),
                               [&](const auto& other) { return other.episode == step.episode && other.t == t; });
        };
        for (std::int64_t t = step.t; t < step.t + (windows.pad ? 1 : windows.length); ++t)
            if (!is_live(t)) return false;
        for (std::int64_t t = std::max<std::int64_t>(0, step.t - windows.history); t < step.t; ++t)
            if (!is_live(t)) return false;
        return true;
    }

    // A step was written.
    void follow(const NaiveStore& store) {
        std::map<std::int64_t, double> kept;
        std::vector<std::int64_t> fresh;
        for (const NaiveStep& step : store.live()) {
            if (!is_start(store, step)) continue;
            if (const auto old = mass.find(step.number); old != mass.end())
                kept.insert(*old);
            else
                fresh.push_back(step.number);
        }
        mass = std::move(kept);
        const double value = options_.fresh == NewPriority::max_ever ? ever : largest();
        for (const std::int64_t number : fresh) mass[number] = value > 0 ? value : 1;
    }

    double largest() const {
        double largest = 0;
        for (const auto& [number, value] : mass) largest = std::max(largest, value);
        return largest;
    }
    double smallest() const {
        double smallest = 0;
        for (const auto& [number, value] : mass)
            if (value > 0 && (smallest == 0 || value < smallest)) smallest = value;
        return smallest;
    }
    double total() const {
        double total = 0;
        for (const auto& [number, value] : mass) total += value;
        return total;
    }

    std::int64_t update(const std::vector<std::int64_t>& numbers, const std::vector<double>& abs_td) {
        std::int64_t skipped = 0;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            if (mass.count(numbers[i]) == 0) {
                ++skipped;
                continue;
            }
            const double value = std::pow(abs_td[i] + options_.eps, options_.alpha);
            mass[numbers[i]] = value == 0 ? 0 : std::clamp(value, Priorities::kLeast, Priorities::kMost);
            ever = std::max(ever, mass[numbers[i]]);
        }
        return skipped;
    }

    std::map<std::int64_t, double> mass;  // of the starts
    double ever = 0;

  private:
    PriorityOptions options_;
    std::int64_t capacity_;
};

std::vector<double> read(const Priorities& priorities, const StepStore& store) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t number = store.oldest(); number < store.written(); ++number) numbers.push_back(number);
    std::vector<double> masses(numbers.size(), -1);
    priorities.read(store, numbers, masses);
    return masses;
}

// A store, its priorities, and the twins of both.
struct World {
    World(std::int64_t capacity, const PriorityOptions& options)
        : naive_store(vectors(), capacity, Mismatch::keep),
          store(std::make_unique<StepStore>(vectors(), capacity, Mismatch::keep)),
          naive(options, capacity),
          priorities(std::make_unique<Priorities>(capacity, options)) {}

    void write(std::int64_t stream, bool terminated = false) {
        Given given = counting_step(store->schema(), count++);
        given.terminated = terminated;
        const StreamKey key = stream;
        std::int64_t id = 0;
        store->write(Columns(store->schema(), {given}).rows(), {&key, 1}, {&id, 1});
        naive_store.write({given}, {key});
        follow();
    }
    void write_chunk(const std::string& name, std::int64_t start) {
        const StreamKey key = name;
        const Given given = counting_step(store->schema(), count++);
        std::int64_t id = 0;
        store->write_chunk(Columns(store->schema(), {given}).rows(), key, start, true, false, false, {&id, 1});
        naive_store.write_chunk({given}, key, start, true, false, false);
        follow();
    }
    void end(const StreamKey& key) {
        store->end_episode(key);
        naive_store.end_episode(key);
        follow();
    }
    void follow() {
        priorities->catch_up(*store);
        naive.follow(naive_store);
    }
    std::int64_t update(const std::vector<std::int64_t>& numbers, const std::vector<double>& abs_td) {
        naive.update(numbers, abs_td);
        return priorities->update(*store, numbers, abs_td);
    }

    // Goes on with a store and priorities that were built from the content of these.
    void save_and_restore(Rng& rng) {
        const Saved saved = save(*store);
        const std::vector<double> masses = read(*priorities, *store);
        auto other = std::make_unique<Priorities>(store->capacity(), priorities->options());
        store = restored(store->schema(), store->capacity(), Mismatch::keep, saved, 1 + rng.below(9));
        for (std::size_t i = 0; i < masses.size();) {
            const std::size_t part = std::min<std::size_t>(1 + rng.below(9), masses.size() - i);
            other->restore(*store, store->oldest() + static_cast<std::int64_t>(i), std::span(masses).subspan(i, part));
            i += part;
        }
        other->restore_largest_ever(priorities->largest_ever());
        priorities = std::move(other);
    }

    // "" or the first thing in which the two differ.
    std::string difference() const {
        const std::vector<double> masses = read(*priorities, *store);
        for (std::size_t i = 0; i < masses.size(); ++i) {
            const std::int64_t number = store->oldest() + static_cast<std::int64_t>(i);
            const auto want = naive.mass.find(number);
            if (masses[i] != (want == naive.mass.end() ? 0 : want->second) || std::signbit(masses[i]))
                return "the mass of " + std::to_string(number) + " is " + std::to_string(masses[i]);
        }
        if (priorities->starts() != static_cast<std::int64_t>(naive.mass.size())) return "the count of starts";
        if (std::abs(priorities->total() - naive.total()) > 1e-12 * naive.total()) return "the total";
        if (priorities->largest_ever() != naive.ever) return "the largest ever";
        return "";
    }

    std::string difference_in_draws(Rng& rng, std::size_t count) const {
        std::vector<std::int64_t> numbers(count);
        std::vector<double> masses(count);
        std::vector<float> weights(count);
        for (const Draws draws : {Draws::stratified, Draws::independent}) {
            priorities->draw(rng, *store, draws, numbers, masses);
            for (std::size_t i = 0; i < count; ++i) {
                const auto mass = naive.mass.find(numbers[i]);
                if (mass == naive.mass.end()) return "drew " + std::to_string(numbers[i]) + ", which is no start";
                if (mass->second == 0) return "drew a start without mass";
                if (mass->second != masses[i]) return "another mass with a draw than the start has";
            }
            for (const Normalise normalise : {Normalise::by_buffer, Normalise::by_batch}) {
                const double beta = 0.25 * static_cast<double>(rng.below(5));
                priorities->weights(masses, beta, normalise, weights);
                const double smallest = normalise == Normalise::by_buffer
                                            ? naive.smallest()
                                            : *std::min_element(masses.begin(), masses.end());
                const auto weight = [&](double mass) {  // as the paper has it
                    return std::pow(static_cast<double>(naive.mass.size()) * mass / naive.total(), -beta);
                };
                for (std::size_t i = 0; i < count; ++i)
                    if (std::abs(weights[i] - weight(masses[i]) / weight(smallest)) > 1e-6) return "a weight";
            }
        }
        return "";
    }

    NaiveStore naive_store;
    std::unique_ptr<StepStore> store;
    NaivePriorities naive;
    std::unique_ptr<Priorities> priorities;
    std::uint64_t count = 1;
};

PriorityOptions some_options(Rng& rng) {
    PriorityOptions options;
    options.windows.length = rng.below(3) == 0 ? 1 : 1 + static_cast<std::int64_t>(rng.below(5));
    options.windows.period = rng.below(2) == 0 ? 1 : 1 + static_cast<std::int64_t>(rng.below(4));
    options.windows.history = rng.below(2) == 0 ? 0 : static_cast<std::int64_t>(rng.below(4));
    options.windows.pad = rng.below(3) == 0;
    options.alpha = rng.below(4) == 0 ? 0 : 0.3 * static_cast<double>(rng.below(5));
    options.eps = rng.below(3) == 0 ? 0 : 1e-6;
    options.fresh = rng.below(2) == 0 ? NewPriority::max_live : NewPriority::max_ever;
    return options;
}

std::string run(std::uint64_t seed, int calls) {
    Rng rng(seed);
    const std::int64_t capacity = 1 + static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 8 : 60));
    World world(capacity, some_options(rng));
    const std::uint64_t streams = 1 + rng.below(6), odds_of_end = 2 + rng.below(20);
    std::int64_t chunk_at = 0;
    for (int call = 0; call < calls; ++call) {
        const std::uint64_t choice = rng.below(20);
        if (choice < 12) {
            world.write(static_cast<std::int64_t>(rng.below(streams)), rng.below(odds_of_end) == 0);
        } else if (choice < 14) {
            chunk_at = world.naive_store.next_t(StreamKey("chunks")) + (rng.below(9) == 0 ? 2 : 0);
            world.write_chunk("chunks", chunk_at);
        } else if (choice < 15) {
            world.end(static_cast<std::int64_t>(rng.below(streams)));
        } else if (choice < 18 && world.store->written() > 0) {
            std::vector<std::int64_t> numbers;
            std::vector<double> abs_td;
            const std::int64_t reach = std::min(world.store->written(), 2 * capacity);
            for (std::uint64_t n = rng.below(12); n > 0; --n) {
                numbers.push_back(world.store->written() - 1 -
                                  static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(reach))));
                abs_td.push_back(0.5 * static_cast<double>(rng.below(4)) * static_cast<double>(rng.below(30)));
            }
            NaivePriorities before = world.naive;
            const std::int64_t skipped = before.update(numbers, abs_td);
            if (world.update(numbers, abs_td) != skipped) return "another number of ids was skipped";
        } else if (choice == 19 && rng.below(8) == 0) {
            world.save_and_restore(rng);
        }
        if (const std::string d = world.difference(); !d.empty()) return d + " in call " + std::to_string(call);
        if (world.naive.total() == 0 || call % 4 != 0) continue;
        if (const std::string d = world.difference_in_draws(rng, 1 + rng.below(20)); !d.empty()) return d;
    }
    return "";
}

PriorityOptions plain() {
    PriorityOptions options;
    options.alpha = 1;
    options.eps = 0;
    return options;
}

// As many steps of one stream as there are masses, which they get.
World with_masses(const std::vector<double>& masses, PriorityOptions options = plain()) {
    World world(static_cast<std::int64_t>(masses.size()), options);
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 0; i < masses.size(); ++i) {
        world.write(0);
        numbers.push_back(static_cast<std::int64_t>(i));
    }
    world.update(numbers, masses);
    return world;
}

template <class Call>
std::string refusal(Call call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "was not refused";
}

}  // namespace

TEST_CASE("random programs leave the masses that a map holds, and draw from them (P1, P2, P3)") {
    for (std::uint64_t seed = 0; seed < 600; ++seed) {
        CAPTURE(seed);
        REQUIRE(run(seed, 120) == "");
    }
}

TEST_CASE("several steps at once: exactly the valid starts have mass, and those that had some keep it (P1)") {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        Rng rng(seed);
        const std::int64_t capacity = 1 + static_cast<std::int64_t>(rng.below(30));
        PriorityOptions options = some_options(rng);
        if (options.alpha == 0) options.alpha = 1;
        World world(capacity, options);
        const std::uint64_t odds_of_end = 2 + rng.below(30);
        for (int round = 0; round < 25; ++round) {
            const std::map<std::int64_t, double> before = world.naive.mass;
            std::vector<StreamKey> keys;
            std::vector<Given> steps;
            for (std::uint64_t stream = rng.below(6); stream > 0; --stream) {
                keys.emplace_back(static_cast<std::int64_t>(stream));
                steps.push_back(counting_step(world.store->schema(), world.count++));
                steps.back().terminated = rng.below(odds_of_end) == 0;
            }
            std::vector<std::int64_t> ids(keys.size() + 70);
            world.store->write(Columns(world.store->schema(), steps).rows(), keys, std::span(ids).first(keys.size()));
            world.naive_store.write(steps, keys);
            if (rng.below(3) == 0) {
                steps.assign(rng.below(70), counting_step(world.store->schema(), world.count++));
                const StreamKey key = "chunks";
                const std::int64_t start = world.naive_store.next_t(key);
                world.store->write_chunk(Columns(world.store->schema(), steps).rows(), key, start, false, false, false,
                                         std::span(ids).first(steps.size()));
                world.naive_store.write_chunk(steps, key, start, false, false, false);
            }
            world.priorities->catch_up(*world.store);
            world.naive.follow(world.naive_store);
            const std::vector<double> masses = read(*world.priorities, *world.store);
            for (std::size_t i = 0; i < masses.size(); ++i) {
                const std::int64_t number = world.store->oldest() + static_cast<std::int64_t>(i);
                const auto want = world.naive.mass.find(number);
                REQUIRE((want == world.naive.mass.end()) == (masses[i] == 0));
                if (want == world.naive.mass.end()) continue;
                if (before.count(number) != 0) REQUIRE(masses[i] == want->second);
                want->second = masses[i];  // which one it got depends on what came and went
            }
            REQUIRE(world.difference() == "");
            std::vector<std::int64_t> numbers;
            std::vector<double> abs_td;
            for (const auto& [number, mass] : world.naive.mass)
                if (rng.below(3) == 0) {
                    numbers.push_back(number);
                    abs_td.push_back(1 + static_cast<double>(rng.below(9)));
                }
            REQUIRE(world.update(numbers, abs_td) == 0);
        }
    }
}

TEST_CASE("a batch of new starts gets the largest live priority, as one after the other would") {
    for (const std::size_t count : {1, 2, 5, 300}) {
        World world = with_masses({4, 9, 2, 1, 1, 1, 1, 1, 1, 1});
        const std::vector<Given> steps(count, counting_step(world.store->schema(), 5));
        std::vector<std::int64_t> ids(count);
        const StreamKey key = "more";
        world.store->write_chunk(Columns(world.store->schema(), steps).rows(), key, 0, false, false, false, ids);
        world.priorities->catch_up(*world.store);
        const std::vector<double> masses = read(*world.priorities, *world.store);
        if (count <= 10) CHECK(masses.back() == 9);  // it was there when the first came, and was handed on
        CHECK(world.priorities->starts() == 10);
    }
}

TEST_CASE("a start gains its mass when the last row of its window arrives, whichever streams write in between") {
    PriorityOptions options = plain();
    options.windows.length = 3;
    World world(50, options);
    world.write(0), world.write(1), world.write(0), world.write(1), world.write(1);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{0, 1, 0, 0, 0});
    world.write(0);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{1, 1, 0, 0, 0, 0});
    CHECK(world.priorities->starts() == 2);
}

TEST_CASE("an eviction takes the mass of starts whose stack it took away, the first ones all at once") {
    PriorityOptions options = plain();
    options.windows.history = 2;
    World world(6, options);
    for (int i = 0; i < 6; ++i) world.write(0);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{1, 1, 1, 1, 1, 1});
    world.write(0);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{0, 0, 1, 1, 1, 1});
    world.write(0);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{0, 0, 1, 1, 1, 1});
}

TEST_CASE("new starts get the largest live priority, or the largest that was ever given") {
    for (const NewPriority fresh : {NewPriority::max_live, NewPriority::max_ever}) {
        PriorityOptions options = plain();
        options.fresh = fresh;
        World world = with_masses({5, 2, 2}, options);
        world.write(0);  // in the place of the 5
        CHECK(read(*world.priorities, *world.store).back() == (fresh == NewPriority::max_live ? 2 : 5));
    }
    World world = with_masses({0.25, 0.5});
    world.write(0);
    CHECK(read(*world.priorities, *world.store).back() == 0.5);  // the 1 that it began with is forgotten
    world.update({1, 2}, {0, 0});
    world.write(0);
    CHECK(read(*world.priorities, *world.store).back() == 1);  // there is no largest
}

TEST_CASE("a start with an error of 0 and no eps is not drawn, is still a start, and may come back") {
    World world = with_masses({0, 3, 0});
    Rng rng(std::uint64_t{1});
    CHECK(world.priorities->starts() == 3);
    CHECK(world.difference_in_draws(rng, 200) == "");
    CHECK(world.update({1}, {0}) == 0);
    std::vector<std::int64_t> numbers(4);
    std::vector<double> masses(4);
    CHECK(refusal([&] { world.priorities->draw(rng, *world.store, Draws::stratified, numbers, masses); }) ==
          "batch_size must be 0 while none of the 3 starts has a priority above 0, got 4");
    CHECK(world.update({2}, {7}) == 0);
    world.priorities->draw(rng, *world.store, Draws::stratified, numbers, masses);
    CHECK(numbers == std::vector<std::int64_t>{2, 2, 2, 2});
    CHECK(masses == std::vector<double>{7, 7, 7, 7});
}

TEST_CASE("updates skip what is stale and what is no start, and say how many (P3)") {
    PriorityOptions options = plain();
    options.windows.length = 2;
    World world(4, options);
    for (int i = 0; i < 6; ++i) world.write(0);
    CHECK(world.update({0, 1, 2, 3, 5, 2, 2}, {9, 9, 5, 6, 9, 8, 7}) == 3);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{7, 6, 1, 0});
    CHECK(world.update({}, {}) == 0);
    world.write(0);
    CHECK(read(*world.priorities, *world.store) == std::vector<double>{6, 1, 6, 0});
}

TEST_CASE("a bad error or number is refused with the whole update (P4)") {
    World world = with_masses({1, 2, 3});
    world.write(0);
    const std::pair<double, std::string> cases[] = {{-1, "-1"},
                                                    {-1e-300, "-1e-300"},
                                                    {std::nan(""), "nan"},
                                                    {std::numeric_limits<double>::infinity(), "inf"},
                                                    {-std::numeric_limits<double>::infinity(), "-inf"}};
    for (const auto& [bad, text] : cases) {
        std::vector<double> abs_td{7, 7, 7, bad};
        const std::vector<std::int64_t> numbers{1, 2, 3, 0};  // a stale one is no excuse
        CHECK(refusal([&] { world.priorities->update(*world.store, numbers, abs_td); }) ==
              "abs_td must be finite and >= 0, got " + text + " at index 3");
        CHECK(world.difference() == "");
    }
    for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{4}, std::numeric_limits<std::int64_t>::max()}) {
        const std::vector<std::int64_t> numbers{1, bad};
        const std::vector<double> abs_td{7, 7};
        CHECK(refusal([&] { world.priorities->update(*world.store, numbers, abs_td); }) ==
              "ids must be of steps that were added, in [0, 4), got " + std::to_string(bad));
        CHECK(world.difference() == "");
    }
    std::vector<double> masses(2);
    const std::vector<std::int64_t> stale{1, 0};
    CHECK_THROWS_AS(world.priorities->read(*world.store, stale, masses), std::out_of_range);
}

TEST_CASE("options and beta are refused where they make no sense") {
    PriorityOptions options;
    options.alpha = -0.5;
    CHECK(refusal([&] { Priorities(5, options); }) == "alpha must be finite and >= 0, got -0.5");
    options.alpha = std::nan("");
    CHECK(refusal([&] { Priorities(5, options); }) == "alpha must be finite and >= 0, got nan");
    options.alpha = 1;
    options.eps = -1e-6;
    CHECK(refusal([&] { Priorities(5, options); }) == "eps must be finite and >= 0, got -1e-06");
    const World world = with_masses({1, 2});
    const std::vector<double> masses{1, 2};
    std::vector<float> weights(2);
    CHECK(refusal([&] { world.priorities->weights(masses, -1, Normalise::by_buffer, weights); }) ==
          "beta must be finite and >= 0, got -1");
}

TEST_CASE("errors at the ends of the range are stored as the nearest mass, and nothing becomes infinite") {
    PriorityOptions options = plain();
    for (const double alpha : {0.5, 1.0, 3.0}) {
        options.alpha = alpha;
        World world = with_masses({1e300, 1e300, 1e300, std::numeric_limits<double>::max(), 1e-320, 0, 1}, options);
        Rng rng(std::uint64_t{3});
        CHECK(std::isfinite(world.priorities->total()));
        CHECK(world.difference() == "");
        CHECK(world.difference_in_draws(rng, 64) == "");
        const std::vector<double> ends{Priorities::kLeast, 1, Priorities::kMost};
        std::vector<float> weights(3, -1);
        for (const double beta : {0.0, 1e-3, 0.4, 1.0}) {
            world.priorities->weights(ends, beta, Normalise::by_batch, weights);
            CHECK(weights[0] == 1);
            CHECK(weights[1] == doctest::Approx(std::pow(10.0, -150 * beta)).epsilon(1e-5));
            CHECK(weights[2] == doctest::Approx(std::pow(10.0, -300 * beta)).epsilon(1e-5));
        }
    }
}

TEST_CASE("stratified draws of equal masses give each start once") {
    for (std::size_t size = 1; size < 140; size += size < 20 ? 1 : 17) {
        const World world = with_masses(std::vector<double>(size, 0.1));
        Rng rng(size);
        std::vector<std::int64_t> numbers(size);
        std::vector<double> masses(size);
        world.priorities->draw(rng, *world.store, Draws::stratified, numbers, masses);
        for (std::size_t i = 0; i < size; ++i) REQUIRE(numbers[i] == static_cast<std::int64_t>(i));
    }
}

TEST_CASE("draws are in proportion to the masses, for every place of a stratified batch together too") {
    std::vector<double> masses;
    for (int i = 0; i < 37; ++i) masses.push_back(i % 5 == 4 ? 0 : 1 + (7 * i) % 5);
    const World world = with_masses(masses);
    for (const Draws draws : {Draws::stratified, Draws::independent})
        for (const std::size_t batch : {1, 10, 600}) {
            Rng rng(batch);
            std::vector<std::int64_t> numbers(batch), counts(masses.size());
            std::vector<double> found(batch);
            const std::size_t rounds = 60000 / batch;
            for (std::size_t round = 0; round < rounds; ++round) {
                world.priorities->draw(rng, *world.store, draws, numbers, found);
                for (const std::int64_t number : numbers) ++counts[static_cast<std::size_t>(number)];
            }
            double statistic = 0, degrees = -1;
            for (std::size_t i = 0; i < masses.size(); ++i) {
                const double expected = static_cast<double>(rounds * batch) * masses[i] / world.priorities->total();
                if (expected == 0) {
                    CHECK(counts[i] == 0);
                    continue;
                }
                statistic += std::pow(static_cast<double>(counts[i]) - expected, 2) / expected;
                ++degrees;
            }
            CHECK(statistic < chi_squared_bound(degrees));
            // Of many strata each start gets its share almost to the draw; chance alone would be seen.
            if (draws == Draws::stratified && batch == 600) CHECK(statistic < degrees / 4);
            if (draws == Draws::independent) CHECK(statistic > degrees / 4);
        }
}

TEST_CASE("equal generators give equal draws, in blocks or not, and go on alike (I8)") {
    const World world = with_masses({3, 1, 4, 1, 5, 9, 2, 6});
    for (const Draws draws : {Draws::stratified, Draws::independent}) {
        Rng a(std::uint64_t{5}), b(std::uint64_t{5});
        std::vector<std::int64_t> one(700), two(700);
        std::vector<double> masses(700);
        world.priorities->draw(a, *world.store, draws, one, masses);
        world.priorities->draw(b, *world.store, draws, two, masses);
        CHECK(one == two);
        CHECK(a.state() == b.state());
        CHECK(a.state() != Rng(std::uint64_t{5}).state());
    }
}

TEST_CASE("a state that cannot have been read is refused") {
    PriorityOptions options = plain();
    options.windows.length = 2;
    World world(5, options);
    for (int i = 0; i < 4; ++i) world.write(0);
    const auto restore = [&](std::vector<double> masses) {
        return refusal([&] { Priorities(5, options).restore(*world.store, 0, masses); });
    };
    CHECK(restore({1, 0, 2, 0}) == "was not refused");
    CHECK(restore({1, 0, 2, 3}) ==
          "state must be consistent, got one in which a step that is no start has the priority 3");
    CHECK(restore({-1, 0, 2, 0}) ==
          "state must be consistent, got one in which a step that is a start has the priority -1");
    CHECK(restore({1, std::nan(""), 2, 0}) ==
          "state must be consistent, got one in which a step that is a start has the priority nan");
    CHECK(restore({1, 0, 1e200, 0}) ==
          "state must be consistent, got one in which a step that is a start has the priority 1e+200");
    CHECK(refusal([&] { Priorities(5, options).restore_largest_ever(-2); }) ==
          "state must be consistent, got one in which a step that is a start has the priority -2");
}

TEST_CASE("a split takes the mass of the held-out side, now and later") {
    PriorityOptions options = plain();
    options.windows.side = Side::train;
    World world(60, options);
    const auto write_some = [&](int episodes) {
        for (int episode = 0; episode < episodes; ++episode)
            for (int t = 0; t < 3; ++t) {
                world.write(7, t == 2);
                const std::int64_t newest = world.store->written() - 1;
                world.priorities->update(*world.store, {&newest, 1}, std::vector<double>{2.0 + episode});
            }
    };
    write_some(8);
    const std::vector<double> before = read(*world.priorities, *world.store);
    CHECK(world.priorities->starts() == 24);
    Split split;
    split.groups = 4;
    split.seed = 3;
    world.store->split(split);
    world.priorities->recount(*world.store);
    const auto check_sides = [&] {
        std::int64_t held_out = 0;
        const std::vector<double> masses = read(*world.priorities, *world.store);
        for (std::size_t i = 0; i < masses.size(); ++i) {
            const std::uint32_t row = world.store->row_at_offset(static_cast<std::int64_t>(i));
            const bool train = world.store->episode_of(row).side == Side::train;
            CHECK((masses[i] > 0) == train);
            if (train && i < before.size() && world.store->oldest() == 0) CHECK(masses[i] == before[i]);
            held_out += train ? 0 : 1;
        }
        CHECK(held_out > 0);
        CHECK(world.priorities->starts() == world.store->live() - held_out);
    };
    check_sides();
    write_some(6);
    check_sides();
    write_some(20);
    check_sides();
}
