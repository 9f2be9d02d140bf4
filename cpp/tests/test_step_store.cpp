#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "chance.hpp"
#include "programs.hpp"
#include "ringback/sampler.hpp"
#include "ringback/step_store.hpp"
#include "steps.hpp"

using namespace ringback;
using namespace ringback::twin;

namespace {

// All kinds of windows that were prepared are compared once in four calls, one of them each time.
std::string first_difference(Program& program, int call) {
    std::vector<WindowSpec> specs{{1}, program.any_spec()};
    const std::vector<WindowSpec>& prepared = program.prepared();
    if (call % 4 == 0) specs.insert(specs.end(), prepared.begin(), prepared.end());
    if (!prepared.empty()) specs.push_back(prepared[program.rng().below(prepared.size())]);
    for (const auto& store : program.stores()) {
        if (auto d = difference(*store, program.naive()); !d.empty()) return d;
        for (const WindowSpec& spec : specs)
            if (auto d = difference_in_windows(*store, program.naive(), spec); !d.empty()) return d;
    }
    return "";
}

struct Written {
    std::int64_t number;
    std::string refused;
};

// One step on one stream.
Written write(StepStore& store, const StreamKey& key, const Given& given) {
    const Columns columns(store.schema(), {given});
    std::int64_t id = -1;
    try {
        store.write(columns.rows(), {&key, 1}, {&id, 1});
    } catch (const std::invalid_argument& error) {
        return {-1, error.what()};
    }
    return {id, ""};
}

Written write_chunk(StepStore& store, const StreamKey& key, const std::vector<Given>& steps, std::int64_t start,
                    bool cut = false, bool terminated = false, bool truncated = false) {
    const Columns columns(store.schema(), steps);
    std::vector<std::int64_t> ids(steps.size(), -1);
    try {
        store.write_chunk(columns.rows(), key, start, cut, terminated, truncated, ids);
    } catch (const std::invalid_argument& error) {
        return {-1, error.what()};
    }
    return {ids.empty() ? -1 : ids[0], ""};
}

std::vector<Given> run_of_steps(const Schema& schema, std::uint64_t first, std::size_t count) {
    std::vector<Given> steps;
    for (std::uint64_t i = 0; i < count; ++i) steps.push_back(counting_step(schema, first + i));
    return steps;
}

StreamKey number(std::int64_t n) { return n; }
StreamKey name(const char* text) { return std::string(text); }

StepTime time_of(const StepStore& store, std::int64_t id) { return store.time(store.row_of_number(id)); }
const Episode& episode_of(const StepStore& store, std::int64_t id) { return store.episode_of(store.row_of_number(id)); }
StepTag tag_of(const StepStore& store, std::int64_t id) { return store.tag(store.row_of_number(id)); }

}  // namespace

TEST_SUITE("random programs against a list of episodes (I1-I7)") {
    TEST_CASE("after every call the store holds what the list holds, restored stores that go along do too") {
        for (std::uint64_t seed = 0; seed < 240; ++seed) {
            CAPTURE(seed);
            Program program(small_shape(seed), seed);
            const int calls = seed % 24 == 0 ? 300 : 70;
            for (int call = 0; call < calls; ++call) {
                CAPTURE(call);
                REQUIRE(program.step() == "");
                if (call % 50 == 33) REQUIRE(program.fork() == "");
                REQUIRE(first_difference(program, call) == "");
            }
            if (program.stores().size() == 2)
                REQUIRE(same_content(save(*program.stores()[0]), save(*program.stores()[1])));
        }
    }

    TEST_CASE("the smallest capacities, where a write evicts the very episode that it continues") {
        for (std::uint64_t seed = 0; seed < 120; ++seed) {
            CAPTURE(seed);
            const auto capacity = static_cast<std::int64_t>(1 + seed % 4);
            Program program({vectors(), capacity, kPolicies[seed % 3], 1 + seed % 5, 2 + seed % 9, 5}, seed);
            for (int call = 0; call < 150; ++call) {
                CAPTURE(call);
                REQUIRE(program.step() == "");
                if (call % 50 == 20) REQUIRE(program.fork() == "");
                REQUIRE(first_difference(program, call) == "");
            }
        }
    }

    TEST_CASE("pages of every size") {
        std::set<std::int64_t> sizes;
        for (const std::int64_t capacity : {63, 128, 300, 600, 1111, 2222, 4200})
            for (const std::size_t streams : {7, 1}) {
                CAPTURE(capacity);
                CAPTURE(streams);
                ProgramShape shape{streams == 1 || capacity % 2 == 0 ? vectors() : wide_record(),
                                   capacity,
                                   Mismatch::keep,
                                   streams,
                                   30,
                                   90};
                shape.one_writer = streams == 1;
                Program program(shape, static_cast<std::uint64_t>(capacity));
                sizes.insert(program.store().rows_per_page());
                for (int call = 0; call < 300; ++call) {
                    CAPTURE(call);
                    REQUIRE(program.step() == "");
                    if (call % 60 == 59) {
                        for (const auto& store : program.stores()) REQUIRE(difference(*store, program.naive()) == "");
                        REQUIRE(program.store().valid_starts({20}) == program.naive().valid_starts({20}));
                        for (const auto& store : program.stores())
                            for (std::int64_t offset = 0; offset < store->live(); ++offset) {
                                const std::uint32_t row = store->row_at_offset(offset);
                                const Episode& episode = store->episode_of(row);
                                const std::int64_t t = store->time(row).t, number = store->oldest() + offset;
                                REQUIRE(store->number(row) == number);
                                REQUIRE(store->number_of(episode, t) == number);
                                for (std::int64_t before = 0; before <= std::min<std::int64_t>(t - episode.first, 3);
                                     ++before)
                                    REQUIRE(store->row_before(row, before) == store->row_of(episode, t - before));
                            }
                    }
                    if (call == 150) REQUIRE(program.fork() == "");
                }
            }
        CHECK(sizes == std::set<std::int64_t>{1, 2, 4, 8, 16, 32, 64});
    }
}

TEST_SUITE("I1: the live set") {
    TEST_CASE("the last steps by age live, whichever stream wrote them") {
        StepStore store(vectors(), 5, Mismatch::keep);
        for (std::int64_t n = 0; n < 23; ++n) {
            CHECK(write(store, number(n % 3), counting_step(store.schema(), static_cast<std::uint64_t>(n))).number ==
                  n);
            CHECK(store.live() == std::min<std::int64_t>(5, n + 1));
            CHECK(store.oldest() == std::max<std::int64_t>(0, n - 4));
            for (std::int64_t offset = 0; offset < store.live(); ++offset)
                CHECK(store.number(store.row_at_offset(offset)) == store.oldest() + offset);
        }
    }

    TEST_CASE("a chunk longer than the ring leaves its last steps") {
        StepStore store(vectors(), 4, Mismatch::keep);
        write_chunk(store, name("long"), run_of_steps(store.schema(), 0, 11), 0);
        CHECK(store.live() == 4);
        for (std::int64_t id = 7; id < 11; ++id) CHECK(time_of(store, id).t == id);
        CHECK(store.valid_starts({4}) == std::vector<std::int64_t>{7});
    }
}

TEST_SUITE("I2: successors") {
    TEST_CASE("the newest step of an open episode has its successor at once") {
        StepStore store(vectors(), 8, Mismatch::keep);
        const Given given = counting_step(store.schema(), 40);
        const std::int64_t id = write(store, number(0), given).number;
        const std::uint32_t row = store.row_of_number(id);
        CHECK(difference(store.successor(row, 0), given.successor[0], "successor") == "");
    }

    TEST_CASE("a successor that is the next observation is stored once, one that differs is kept beside the rows") {
        StepStore store(vectors(), 8, Mismatch::keep);
        write(store, number(0), counting_step(store.schema(), 0));
        write(store, number(0), counting_step(store.schema(), 1));   // as announced
        write(store, number(0), counting_step(store.schema(), 50));  // another one
        CHECK(tag_of(store, 0).link == 0);
        CHECK(tag_of(store, 1).link != 0);
        CHECK(store.kept_successors() == 1);
        const std::uint32_t row = store.row_of_number(1);
        CHECK(difference(store.successor(row, 0), counting_step(store.schema(), 1).successor[0], "") == "");
    }

    TEST_CASE("NaN equals NaN and -0 equals 0, and both keep their bytes") {
        for (const Mismatch policy : kPolicies)
            for (const bool nan : {false, true}) {
                StepStore store(vectors(), 8, policy);
                Given first = counting_step(store.schema(), 0), second = counting_step(store.schema(), 1);
                put_float(store.schema(), first.successor, nan ? std::nan("1") : 0.0);
                put_float(store.schema(), second.fields, nan ? -std::nan("2") : -0.0);
                REQUIRE(first.successor[0] != second.fields[0]);
                write(store, number(0), first);
                CHECK(write(store, number(0), second).refused == "");
                CHECK(store.kept_successors() == 0);
                CHECK(store.episode_count() == 1);
                const std::uint32_t row = store.row_of_number(0);
                CHECK(difference(store.successor(row, 0), first.successor[0], "successor") == "");
                CHECK(difference(store.field(store.row_of_number(1), 0), second.fields[0], "observation") == "");
            }
    }

    TEST_CASE("half-precision leaves are compared as values too") {
        const Schema schema({field("observation", DType::f16, {4})}, {}, {});
        const std::uint16_t announced[4] = {0x0000, 0x7e00, 0x3c00, 0x7c00}, same[4] = {0x8000, 0xfe01, 0x3c00, 0x7c00},
                            other[4] = {0x0000, 0x7e00, 0x3c00, 0xfc00};  // -inf is not inf
        const auto bytes = [](const std::uint16_t (&x)[4]) {
            return std::string(reinterpret_cast<const char*>(x), sizeof x);
        };
        for (const bool equal : {true, false}) {
            StepStore store(schema, 8, Mismatch::keep);
            Given first = counting_step(schema, 0), second = counting_step(schema, 1);
            first.successor[0] = bytes(announced);
            second.fields[0] = equal ? bytes(same) : bytes(other);
            write(store, number(0), first);
            write(store, number(0), second);
            CHECK(store.kept_successors() == (equal ? 0 : 1));
        }
    }

    TEST_CASE("a truncated step leads to its own successor, not to what the stream sees after its reset") {
        StepStore store(vectors(), 8, Mismatch::split);
        Given last = counting_step(store.schema(), 7);
        last.truncated = true;
        write(store, number(0), last);
        write(store, number(0), counting_step(store.schema(), 500));
        const std::uint32_t row = store.row_of_number(0);
        CHECK(difference(store.successor(row, 0), last.successor[0], "successor") == "");
        CHECK(store.tag(row).flags == kTruncated);
        CHECK(time_of(store, 1).t == 0);
    }
}

TEST_SUITE("mismatches") {
    TEST_CASE("split closes the episode as truncated and begins a new one at t = 0") {
        StepStore store(vectors(), 8, Mismatch::split);
        write(store, number(4), counting_step(store.schema(), 0));
        write(store, number(4), counting_step(store.schema(), 90));
        CHECK(store.tag(store.row_of_number(0)).flags == kTruncated);
        CHECK(time_of(store, 1).t == 0);
        CHECK(store.episode_count() == 2);
        CHECK(store.open_count() == 1);
        CHECK(store.kept_successors() == 0);
    }

    TEST_CASE("raise refuses the whole call and changes nothing (I6)") {
        StepStore store(vectors(), 8, Mismatch::raise);
        write(store, number(1), counting_step(store.schema(), 0));
        write(store, number(2), counting_step(store.schema(), 100));
        const Saved before = save(store);
        const std::vector<StreamKey> keys{number(1), number(2)};
        const Columns columns(store.schema(), {counting_step(store.schema(), 1), counting_step(store.schema(), 70)});
        std::vector<std::int64_t> ids(2);
        CHECK_THROWS_WITH_AS(
            store.write(columns.rows(), keys, ids),
            "observation must equal the next_observation of the step before, got another one on stream 2; "
            "call end_episode after a reset from outside",
            std::invalid_argument);
        CHECK(same_content(save(store), before));
    }
}

TEST_SUITE("chunks") {
    TEST_CASE("chunks of one episode become one episode again, however interleaved with others") {
        StepStore store(vectors(), 100, Mismatch::raise);
        const Schema& schema = store.schema();
        write_chunk(store, name("a"), run_of_steps(schema, 0, 3), 0);
        write_chunk(store, name("b"), run_of_steps(schema, 500, 2), 0);
        write_chunk(store, name("a"), run_of_steps(schema, 3, 4), 3);
        write_chunk(store, name("b"), run_of_steps(schema, 502, 2), 2, false, true);
        CHECK(store.episode_count() == 2);
        CHECK(store.valid_starts({7}) == std::vector<std::int64_t>{0});
        CHECK(store.valid_starts({4}) == std::vector<std::int64_t>{0, 1, 2, 3, 5});
        CHECK(store.tag(store.row_of_number(10)).flags == kTerminated);
    }

    TEST_CASE(
        "a chunk again, one after a gap, one after the end: each is refused in one sentence and changes nothing (I6)") {
        StepStore store(vectors(), 100, Mismatch::keep);
        const std::vector<Given> steps = run_of_steps(store.schema(), 0, 3);
        write_chunk(store, name("a"), steps, 0);
        write_chunk(store, name("done"), steps, 0, false, true);
        const Saved before = save(store);
        CHECK(write_chunk(store, name("a"), steps, 0).refused ==
              "a chunk of episode 'a' must start where the last one ended (t = 3), got t = 0 again");
        CHECK(write_chunk(store, name("a"), steps, 5).refused ==
              "a chunk of episode 'a' must start where the last one ended (t = 3), got t = 5; pass gap=\"cut\" to "
              "begin with "
              "missing history");
        CHECK(write_chunk(store, name("done"), steps, 3).refused ==
              "episode 'done' must be added once, got a chunk from t = 3 after its end at t = 3");
        CHECK(write_chunk(store, name("done"), steps, 0, true).refused != "");
        CHECK(same_content(save(store), before));
    }

    TEST_CASE("with cut a gap begins an episode with missing history") {
        StepStore store(vectors(), 100, Mismatch::keep);
        write_chunk(store, name("a"), run_of_steps(store.schema(), 0, 2), 0);
        write_chunk(store, name("a"), run_of_steps(store.schema(), 7, 2), 7, true);
        CHECK(store.tag(store.row_of_number(1)).flags == kTruncated);
        CHECK(time_of(store, 2).t == 7);
        CHECK(store.episode_count() == 2);
        CHECK(store.valid_starts({2}) == std::vector<std::int64_t>{0, 2});
        CHECK(write_chunk(store, name("a"), run_of_steps(store.schema(), 9, 1), 9).refused == "");
        CHECK(store.valid_starts({3}) == std::vector<std::int64_t>{2});
    }

    TEST_CASE("a chunk without steps after a gap says where the next one is to start") {
        StepStore store(vectors(), 100, Mismatch::keep);
        write_chunk(store, name("a"), run_of_steps(store.schema(), 0, 2), 0);
        CHECK(write_chunk(store, name("a"), {}, 7, true).refused == "");
        CHECK(store.tag(store.row_of_number(1)).flags == kTruncated);
        CHECK(store.episode_count() == 1);
        CHECK(write_chunk(store, name("a"), run_of_steps(store.schema(), 7, 2), 7).refused == "");
        CHECK(time_of(store, 2).t == 7);
    }

    TEST_CASE("a chunk that starts before 0 or beyond any time is refused and changes nothing (I6)") {
        StepStore store(vectors(), 100, Mismatch::keep);
        write_chunk(store, name("a"), run_of_steps(store.schema(), 0, 2), 0);
        const Saved before = save(store);
        for (const std::int64_t start : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
                                         (std::int64_t{1} << 59) + 1, std::numeric_limits<std::int64_t>::max()})
            for (const char* key : {"a", "new"}) {
                CHECK(write_chunk(store, name(key), run_of_steps(store.schema(), 7, 2), start, true)
                          .refused.find(", got t = " + std::to_string(start)) != std::string::npos);
                CHECK(same_content(save(store), before));
            }
        // The latest start that is taken: its windows are found like any others.
        write_chunk(store, name("a"), run_of_steps(store.schema(), 7, 3), std::int64_t{1} << 59, true);
        CHECK(store.valid_starts({3}) == std::vector<std::int64_t>{2});
    }

    TEST_CASE("a chunk without steps adds none, but its flags end the episode") {
        StepStore store(vectors(), 100, Mismatch::keep);
        write_chunk(store, name("a"), run_of_steps(store.schema(), 0, 2), 0);
        write_chunk(store, name("a"), {}, 2);
        CHECK(store.open_count() == 1);
        write_chunk(store, name("a"), {}, 2, false, true, true);
        CHECK(store.open_count() == 0);
        CHECK(store.written() == 2);
        CHECK(store.tag(store.row_of_number(1)).flags == (kTerminated | kTruncated));
    }

    TEST_CASE("an evicted open episode is remembered by its next t alone, and goes on without history") {
        StepStore store(vectors(), 3, Mismatch::keep);
        write_chunk(store, name("a"), run_of_steps(store.schema(), 0, 2), 0);
        write_chunk(store, name("b"), run_of_steps(store.schema(), 100, 3), 0);
        CHECK(store.episode_count() == 1);
        CHECK(store.streams().dormant().size() == 1);
        CHECK(write_chunk(store, name("a"), run_of_steps(store.schema(), 0, 1), 0).refused != "");
        CHECK(write_chunk(store, name("a"), run_of_steps(store.schema(), 2, 1), 2).refused == "");
        CHECK(time_of(store, 5).t == 2);
        CHECK(store.streams().dormant().empty());
    }

    TEST_CASE("at most `capacity` dormant streams are remembered, the oldest is forgotten first") {
        StepStore store(vectors(), 2, Mismatch::keep);
        for (std::int64_t n = 0; n < 5; ++n)
            write(store, number(n), counting_step(store.schema(), static_cast<std::uint64_t>(n)));
        // 3 and 4 live, 1 and 2 are dormant, 0 is forgotten.
        CHECK(store.streams().dormant().size() == 2);
        CHECK(time_of(store, write(store, number(0), counting_step(store.schema(), 0)).number).t == 0);
        CHECK(time_of(store, write(store, number(2), counting_step(store.schema(), 2)).number).t == 1);
    }
}

TEST_SUITE("ends") {
    TEST_CASE("end_episode says whether something was open, and sets truncated") {
        StepStore store(vectors(), 8, Mismatch::keep);
        CHECK_FALSE(store.end_episode(number(0)));
        write(store, number(0), counting_step(store.schema(), 0));
        CHECK(store.end_episode(number(0)));
        CHECK_FALSE(store.end_episode(number(0)));
        CHECK(store.tag(store.row_of_number(0)).flags == kTruncated);
        CHECK(time_of(store, write(store, number(0), counting_step(store.schema(), 1)).number).t == 0);
    }

    TEST_CASE("end_all_episodes closes what is open and forgets what sleeps") {
        StepStore store(vectors(), 3, Mismatch::keep);
        for (std::int64_t n = 0; n < 5; ++n)
            write(store, number(n), counting_step(store.schema(), static_cast<std::uint64_t>(n)));
        store.end_all_episodes();
        CHECK(store.open_count() == 0);
        CHECK(store.episode_count() == 3);
        CHECK(store.streams().size() == 0);
        for (std::int64_t id = 2; id < 5; ++id) CHECK(store.tag(store.row_of_number(id)).flags == kTruncated);
    }
}

TEST_SUITE("I3: windows") {
    TEST_CASE("a window never leaves its episode: not over an end, the write position or what is evicted") {
        StepStore store(vectors(), 6, Mismatch::keep);
        for (std::uint64_t n = 0; n < 9; ++n) {
            Given given = counting_step(store.schema(), n);
            given.terminated = n == 4;
            write(store, number(0), given);
        }
        // Live are 3, 4 | 5, 6, 7, 8.
        CHECK(store.valid_starts({2}) == std::vector<std::int64_t>{3, 5, 6, 7});
        CHECK(store.valid_starts({4}) == std::vector<std::int64_t>{5});
        CHECK(store.valid_starts({5}).empty());
        CHECK(store.valid_starts({std::numeric_limits<std::int64_t>::max()}).empty());
    }

    TEST_CASE("the counts of the last lengths asked for are kept, an older one is given up") {
        StepStore store(vectors(), 20, Mismatch::keep);
        for (std::int64_t length = 1; length <= 10; ++length) store.prepare_windows({length});
        for (std::int64_t length = 1; length <= 10; ++length)
            CHECK((store.window_index({length}) != nullptr) ==
                  (length > 10 - static_cast<std::int64_t>(StepStore::kWindowIndexes)));
        for (std::uint64_t n = 0; n < 9; ++n) write(store, number(0), counting_step(store.schema(), n));
        CHECK(store.window_index({6})->starts.total() == 4);
        CHECK(store.window_index({3})->starts.total() == 7);
    }
}

TEST_SUITE("units and splits") {
    TEST_CASE("of each group of units exactly one is held out, at a place that the seed alone decides") {
        for (std::int64_t groups = 2; groups <= 9; ++groups)
            for (std::uint64_t seed = 0; seed < 5; ++seed) {
                const Split split{groups, seed}, again{groups, seed}, other{groups, seed + 100};
                std::vector<std::int64_t> places(static_cast<std::size_t>(groups));
                bool differs = false;
                for (std::int64_t group = 0; group < 900; ++group) {
                    std::int64_t held_out = 0;
                    for (std::int64_t i = 0; i < groups; ++i) {
                        const Side side = split.side_of(group * groups + i);
                        REQUIRE(side == again.side_of(group * groups + i));
                        differs = differs || side != other.side_of(group * groups + i);
                        REQUIRE((side == Side::train || side == Side::validation));
                        if (side == Side::train) continue;
                        ++held_out;
                        ++places[static_cast<std::size_t>(i)];
                    }
                    REQUIRE(held_out == 1);
                }
                CHECK(looks_uniform(places));
                CHECK(differs);
            }
        CHECK(Split{}.side_of(0) == Side::train);
    }

    TEST_CASE("an end that is declared ends a unit, a mismatch, a cut and a silence do not") {
        StepStore store(vectors(), 6, Mismatch::split);
        const Schema& schema = store.schema();
        Given last = counting_step(schema, 0);
        last.terminated = true;
        const auto unit = [&] { return episode_of(store, store.written() - 1).unit; };
        write(store, number(1), last);
        CHECK(unit() == 0);
        write(store, number(1), counting_step(schema, 10));
        CHECK(unit() == 1);
        write(store, number(1), counting_step(schema, 50));  // another observation than announced
        CHECK(unit() == 1);
        store.end_episode(number(1));
        write(store, number(1), counting_step(schema, 90));
        CHECK(unit() == 2);
        write_chunk(store, name("a"), run_of_steps(schema, 200, 1), 0);
        CHECK(unit() == 3);
        write_chunk(store, name("a"), run_of_steps(schema, 300, 1), 1);  // another observation than announced
        CHECK(unit() == 3);
        write_chunk(store, name("a"), run_of_steps(schema, 400, 1), 7, true);
        CHECK(unit() == 3);
        write_chunk(store, name("a"), {}, 9, true);
        write_chunk(store, name("a"), run_of_steps(schema, 500, 1), 9);
        CHECK(unit() == 3);
        for (std::uint64_t n = 0; n < 7; ++n) write(store, number(2), counting_step(schema, 600 + n));
        CHECK(unit() == 4);
        CHECK(store.streams().dormant().size() == 2);
        write(store, number(1), counting_step(schema, 91));
        CHECK(unit() == 2);
        write_chunk(store, name("a"), run_of_steps(schema, 700, 1), 12, true);
        CHECK(unit() == 3);
    }

    TEST_CASE("sides are those of the units, stay for life, and are the same whenever the split was asked for") {
        const Split split{3, 77};
        StepStore first(vectors(), 30, Mismatch::keep), late(vectors(), 30, Mismatch::keep),
            large(vectors(), 4000, Mismatch::keep);
        first.split(split);
        large.split(split);
        Rng rng(std::uint64_t{5});
        for (std::uint64_t n = 0; n < 600; ++n) {
            Given given = counting_step(first.schema(), n);
            given.terminated = rng.below(4) == 0;
            const StreamKey key = static_cast<std::int64_t>(rng.below(3));
            for (StepStore* store : {&first, &late, &large}) write(*store, key, given);
            if (n == 333) {
                late.prepare_windows({1, 1, 0, false, false, false, false, Side::validation});
                late.split(split);
            }
            for (std::int64_t id = first.oldest(); id < first.written(); ++id) {
                const Side side = episode_of(first, id).side;
                REQUIRE(side == split.side_of(episode_of(first, id).unit));
                REQUIRE(side == episode_of(large, id).side);
                REQUIRE(episode_of(late, id).side == (n < 333 ? Side::train : side));
            }
        }
    }

    TEST_CASE("a split gives up what was counted before, and is taken again but not in another way") {
        StepStore store(vectors(), 30, Mismatch::keep);
        const WindowSpec held_out{1, 1, 0, false, false, false, false, Side::validation};
        write(store, number(0), counting_step(store.schema(), 0));
        store.prepare_windows(held_out);
        CHECK(store.window_index(held_out)->starts.total() == 0);
        CHECK_THROWS_WITH_AS(store.split({2, 1, 3, 0}),
                             "a split by blocks must come before the first step, got 1 steps", std::invalid_argument);
        store.split({2, 1});
        CHECK(store.window_index(held_out) == nullptr);
        store.prepare_windows(held_out);
        CHECK(store.window_index(held_out)->starts.total() == (Split{2, 1}.side_of(0) == Side::validation ? 1 : 0));
        store.split({2, 1});
        for (const Split& other : {Split{3, 1}, Split{2, 2}, Split{2, 1, 4, 0}})
            CHECK_THROWS_WITH_AS(store.split(other), "a buffer must be split in one way, got another one than before",
                                 std::invalid_argument);
        CHECK(store.split() == Split{2, 1});
    }

    TEST_CASE("blocks are units, the gaps behind them are on no side, and neither end has a flag") {
        // Blocks of three steps, two unused ones behind each: 0 1 2 . . 5 6 7 . . 10 11
        StepStore store(vectors(), 40, Mismatch::keep);
        const Split split{2, 9, 3, 2};
        store.split(split);
        const Schema& schema = store.schema();
        for (std::uint64_t n = 0; n < 12; ++n) {
            Given given = counting_step(schema, n);
            given.truncated = n == 11;
            write(store, number(0), given);
        }
        for (std::int64_t id = 0; id < 12; ++id) {
            CAPTURE(id);
            const Episode& episode = episode_of(store, id);
            CHECK(time_of(store, id).t == id);
            CHECK(episode.unit == id / 5);
            CHECK(episode.side == (id % 5 >= 3 ? Side::unused : split.side_of(id / 5)));
            CHECK(episode.first == (id % 5 >= 3 ? id / 5 * 5 + 3 : id / 5 * 5));
            CHECK(tag_of(store, id).flags == (id == 11 ? kTruncated : 0));
            const std::uint32_t row = store.row_of_number(id);
            CHECK(difference(store.successor(row, 0),
                             counting_step(schema, static_cast<std::uint64_t>(id)).successor[0], "successor") == "");
        }
        CHECK(store.valid_starts({3}) == std::vector<std::int64_t>{0, 5});
        CHECK(store.episode_count() == 5);
        CHECK(store.open_count() == 0);
    }

    TEST_CASE("a piece behind a mismatch or a cut may begin where a block does") {
        StepStore store(vectors(), 40, Mismatch::split);
        store.split({2, 9, 3, 2});
        const Schema& schema = store.schema();
        write(store, number(0), counting_step(schema, 0));
        write(store, number(0), counting_step(schema, 50));
        CHECK(time_of(store, 1).t == 0);
        CHECK(tag_of(store, 0).flags == kTruncated);
        write_chunk(store, name("a"), run_of_steps(schema, 100, 2), 0);
        write_chunk(store, name("a"), run_of_steps(schema, 200, 2), 5, true);
        CHECK(time_of(store, 4).t == 5);
        CHECK(tag_of(store, 3).flags == kTruncated);
        CHECK(store.open_count() == 2);
    }

    TEST_CASE("a restored store keeps units, sides and the split, and goes on with them") {
        for (const Split& split : {Split{3, 5}, Split{2, 8, 3, 1}}) {
            StepStore store(vectors(), 25, Mismatch::keep);
            store.split(split);
            std::uint64_t n = 0;
            const auto write_some = [&](StepStore& to) {
                for (std::uint64_t k = 0; k < 30; ++k) {
                    Given given = counting_step(to.schema(), n + k);
                    given.terminated = (n + k) % 7 == 0;
                    write(to, number(static_cast<std::int64_t>(k % 4)), given);
                }
            };
            for (; n < 90; n += 30) write_some(store);
            const auto copy = restored(vectors(), 25, Mismatch::keep, save(store), 4);
            CHECK(copy->split() == split);
            CHECK(same_content(save(*copy), save(store)));
            write_some(store);
            write_some(*copy);
            for (std::int64_t id = store.oldest(); id < store.written(); ++id) {
                CHECK(episode_of(*copy, id).unit == episode_of(store, id).unit);
                CHECK(episode_of(*copy, id).side == episode_of(store, id).side);
            }
        }
    }
}

TEST_SUITE("I4, I7: memory") {
    TEST_CASE("fifty thousand short episodes of as many streams take the pages of one stream") {
        constexpr std::int64_t kCapacity = 20000;
        const auto used = [](bool one_stream) {
            StepStore store(vectors(), kCapacity, Mismatch::keep);
            for (std::int64_t n = 0; n < 50000; ++n) {
                Given given = counting_step(store.schema(), static_cast<std::uint64_t>(n));
                given.terminated = true;
                write(store, one_stream ? number(0) : number(n), given);
            }
            return std::pair(store.pages_in_use(), store.bytes());
        };
        CHECK(used(true) == used(false));
    }

    TEST_CASE("a silent stream keeps neither its half-filled page nor its steps") {
        StepStore store(vectors(), 640, Mismatch::keep);
        REQUIRE(store.rows_per_page() > 1);
        for (std::int64_t n = 0; n < 40; ++n)
            write(store, number(n), counting_step(store.schema(), static_cast<std::uint64_t>(n)));
        for (std::uint64_t n = 0; n < 700; ++n) write(store, number(-1), counting_step(store.schema(), n));
        CHECK(store.pages_in_use() <= 640 / store.rows_per_page() + 1);
        CHECK(store.episode_count() == 1);
        CHECK(store.streams().dormant().size() == 40);
    }

    TEST_CASE("a ring that is full does not grow, however much is written") {
        StepStore store(vectors(), 500, Mismatch::keep);
        std::uint64_t n = 0;
        const auto write_many = [&] {
            for (int i = 0; i < 3000; ++i, ++n) {
                Given given = counting_step(store.schema(), n);
                given.truncated = n % 17 == 0;
                write(store, number(static_cast<std::int64_t>(n % 5)), given);
            }
        };
        write_many();
        const std::size_t bytes = store.bytes();
        for (int round = 0; round < 4; ++round) write_many();
        CHECK(store.bytes() <= bytes + bytes / 20);
    }
}

TEST_SUITE("I5: numbers") {
    TEST_CASE("a number that is not live is refused, with the range that is") {
        StepStore store(vectors(), 4, Mismatch::keep);
        for (std::uint64_t n = 0; n < 10; ++n) write(store, number(0), counting_step(store.schema(), n));
        for (const std::int64_t id : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{0},
                                      std::int64_t{5}, std::int64_t{10}, std::numeric_limits<std::int64_t>::max()})
            CHECK_THROWS_AS(store.row_of_number(id), std::out_of_range);
        CHECK_THROWS_WITH_AS(store.row_of_number(5), "ids must be of live steps, in [6, 10), got 5", std::out_of_range);
        for (std::int64_t id = 6; id < 10; ++id) CHECK(store.number(store.row_of_number(id)) == id);
    }
}

TEST_SUITE("construction") {
    TEST_CASE("a capacity below one step is refused") {
        for (const std::int64_t capacity :
             {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()})
            CHECK_THROWS_WITH_AS(StepStore(vectors(), capacity, Mismatch::keep),
                                 ("capacity must be >= 1 step, got " + std::to_string(capacity)).c_str(),
                                 std::invalid_argument);
    }

    TEST_CASE("a capacity that no machine can hold is refused with the bytes, before any memory is asked for") {
        for (const std::int64_t capacity : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
            std::string message;
            try {
                const StepStore store(wide_record(), capacity, Mismatch::keep);
            } catch (const OutOfMemory& error) {
                message = error.what();
            }
            CHECK(message.find("capacity must fit in this machine's memory (") == 0);
            CHECK(message.find("got " + std::to_string(capacity) + " steps of ") != std::string::npos);
        }
    }

    TEST_CASE("a store that is moved takes its streams along") {
        StepStore store(vectors(), 5, Mismatch::raise);
        for (std::uint64_t n = 0; n < 3; ++n) write(store, number(0), counting_step(store.schema(), n));
        StepStore moved(std::move(store));
        CHECK(write(moved, number(0), counting_step(moved.schema(), 3)).number == 3);
        CHECK(time_of(moved, 3).t == 3);
        CHECK(moved.end_episode(number(0)));
    }
}

TEST_SUITE("state (I8)") {
    TEST_CASE("the same calls give the same state, with or without a prepared window") {
        for (std::uint64_t seed = 0; seed < 12; ++seed) {
            Program a(small_shape(seed), seed), b(small_shape(seed), seed);
            for (int call = 0; call < 100; ++call) {
                REQUIRE(a.step() == "");
                REQUIRE(b.step() == "");
            }
            CHECK(same_content(save(a.store()), save(b.store())));
        }
    }

    TEST_CASE("a restored store draws the same steps and windows") {
        for (std::uint64_t seed = 0; seed < 60; ++seed) {
            CAPTURE(seed);
            Program program(small_shape(seed), seed);
            for (int call = 0; call < 120; ++call) REQUIRE(program.step() == "");
            if (program.store().live() == 0) continue;
            REQUIRE(program.fork() == "");
            const std::int64_t length = program.any_length();
            for (const auto& store : program.stores()) store->prepare_windows({length});
            if (program.store().window_index({length})->starts.total() == 0) continue;
            Rng first(seed), second(seed);
            Sampler sampler;
            std::vector<WindowStart> a(20), b(20);
            sampler.draw_windows(first, *program.stores()[0], *program.stores()[0]->window_index({length}), true, a);
            sampler.draw_windows(second, *program.stores()[1], *program.stores()[1]->window_index({length}), true, b);
            for (std::size_t i = 0; i < a.size(); ++i) {
                CHECK(a[i].slot == b[i].slot);
                CHECK(a[i].t == b[i].t);
            }
        }
    }

    TEST_CASE("windows that were prepared before a state is restored are counted after it") {
        StepStore store(vectors(), 10, Mismatch::keep);
        for (std::uint64_t n = 0; n < 7; ++n)
            write(store, number(static_cast<std::int64_t>(n % 2)), counting_step(store.schema(), n));
        const Saved saved = save(store);
        StepStore second(vectors(), 10, Mismatch::keep);
        second.prepare_windows({2});
        second.restore(saved.state);
        const std::vector<const std::byte*> fields = [&] {
            std::vector<const std::byte*> pointers;
            for (const auto& bytes : saved.fields) pointers.push_back(reinterpret_cast<const std::byte*>(bytes.data()));
            return pointers;
        }();
        const auto* const successors = reinterpret_cast<const std::byte*>(saved.successors[0].data());
        StepStore::RowContent rows{
            saved.t.size(),    fields, {&successors, 1}, 0, saved.t.data(), saved.episode.data(), saved.flags.data(),
            saved.owned.data()};
        for (const std::uint8_t owned : saved.owned) rows.successor_count += owned;
        second.restore_rows(rows);
        second.restore_done();
        second.prepare_windows({2});
        CHECK(second.window_index({2})->starts.total() == 5);
    }
}

namespace {

template <class T>
void damage_number(T& number, Rng& rng) {
    switch (rng.below(6)) {
        case 0:
            number = static_cast<T>(static_cast<std::uint64_t>(number) + 1);  // the largest wraps
            break;
        case 1:
            number = static_cast<T>(static_cast<std::uint64_t>(number) - 1);
            break;
        case 2:
            number = std::numeric_limits<T>::max();
            break;
        case 3:
            number = std::numeric_limits<T>::min();
            break;
        case 4:
            number = static_cast<T>(rng.below(40));
            break;
        default:
            number = static_cast<T>(rng.next());
    }
}

template <class T>
void damage_list(std::vector<T>& list, Rng& rng) {
    if (list.empty()) return;
    const std::size_t i = rng.below(list.size()), j = rng.below(list.size());
    switch (rng.below(3)) {
        case 0:
            list.push_back(list[i]);
            break;
        case 1:
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        default:
            std::swap(list[i], list[j]);
    }
}

template <class T>
void damage_one_of(std::vector<T>& numbers, Rng& rng) {
    if (!numbers.empty()) damage_number(numbers[rng.below(numbers.size())], rng);
}

// One lie in the content. The lists of rows keep their lengths: those are the caller's to check.
void damage(Saved& saved, Rng& rng) {
    auto& state = saved.state;
    switch (rng.below(13)) {
        case 0:
            return damage_number(state.written, rng);
        case 1:
            return damage_number(state.births, rng);
        case 2:
            return damage_number(state.kept, rng);
        case 3:
            return damage_list(state.episodes, rng);
        case 4:
            return rng.below(2) == 0 ? damage_list(state.free_episodes, rng) : damage_one_of(state.free_episodes, rng);
        case 5:
            if (state.dormant.empty()) return;
            if (rng.below(2) == 0) return damage_list(state.dormant, rng);
            return damage_number(rng.below(2) == 0 ? state.dormant[rng.below(state.dormant.size())].next_t
                                                   : state.dormant[rng.below(state.dormant.size())].unit,
                                 rng);
        case 6: {
            if (state.episodes.empty()) return;
            auto& episode = state.episodes[rng.below(state.episodes.size())];
            switch (rng.below(11)) {
                case 0:
                    return damage_number(episode.slot, rng);
                case 1:
                    return damage_number(episode.birth, rng);
                case 2:
                    return damage_number(episode.first, rng);
                case 3:
                    return damage_number(episode.end, rng);
                case 4:
                    episode.open = !episode.open;
                    return;
                case 5:
                    episode.has_stream = !episode.has_stream;
                    return;
                case 6:
                    return damage_number(episode.unit, rng);
                case 7:
                    return damage_number(episode.number, rng);
                case 8:
                    episode.numbered = !episode.numbered;
                    return;
                case 9:
                    episode.number = state.episodes[rng.below(state.episodes.size())].number;
                    return;
                default:
                    episode.stream = state.episodes[rng.below(state.episodes.size())].stream;
                    return;
            }
        }
        case 7:
            return damage_one_of(saved.t, rng);
        case 8:
            return damage_one_of(saved.episode, rng);
        case 9:
            return damage_one_of(saved.flags, rng);
        case 10:
            return damage_number(state.units, rng);
        case 11: {
            auto& split = state.split;
            std::int64_t* const numbers[] = {&split.groups, &split.block, &split.gap};
            return damage_number(*numbers[rng.below(3)], rng);
        }
        default:
            return damage_one_of(saved.owned, rng);
    }
}

// Reads all of a store and writes on: whatever was accepted must hold together.
void use(StepStore& store) {
    const Saved saved = save(store);
    CHECK(static_cast<std::int64_t>(saved.t.size()) == store.live());
    const WindowSpec specs[] = {{1}, {2}, {2, 1, 0, false, false, false, true}};
    for (const WindowSpec& spec : specs) {
        store.prepare_windows(spec);
        const WindowIndex* const index = store.window_index(spec);
        REQUIRE(index != nullptr);
        if (!spec.cross) CHECK(index->starts.total() == static_cast<std::int64_t>(store.valid_starts(spec).size()));
    }
    for (std::uint64_t n = 0; n < 2 * static_cast<std::uint64_t>(store.capacity()); ++n) {
        write(store, number(static_cast<std::int64_t>(n % 3)), counting_step(store.schema(), n));
        if (n % 5 == 0) store.end_episode(number(static_cast<std::int64_t>(n % 2)));
    }
    store.end_all_episodes();
    CHECK(store.open_count() == 0);
}

}  // namespace

TEST_SUITE("damaged state") {
    TEST_CASE("a state with one lie is refused with invalid_argument, or holds together") {
        std::int64_t refused = 0, accepted = 0;
        for (std::uint64_t seed = 0; seed < 60; ++seed) {
            CAPTURE(seed);
            ProgramShape shape = small_shape(seed);
            shape.capacity = 2 + shape.capacity % 30;
            Program program(shape, seed);
            for (int call = 0; call < 60; ++call) REQUIRE(program.step() == "");
            const Saved whole = save(program.store());
            for (int lie = 0; lie < 60; ++lie) {
                CAPTURE(lie);
                Saved saved = whole;
                damage(saved, program.rng());
                std::unique_ptr<StepStore> store;
                try {
                    store = restored(shape.schema, shape.capacity, shape.mismatch, saved, 1 + program.rng().below(9));
                } catch (const std::invalid_argument& error) {
                    CHECK(std::string(error.what()).find("state must be consistent, got one in which ") == 0);
                    ++refused;
                    continue;
                }
                ++accepted;
                use(*store);
            }
        }
        CHECK(refused > 1000);
        CHECK(accepted > 100);  // a lie that is no lie, such as another count of kept successors
    }

    TEST_CASE("too few rows, too many rows, a missing and a surplus successor are refused") {
        StepStore store(vectors(), 10, Mismatch::keep);
        for (std::uint64_t n = 0; n < 7; ++n)
            write(store, number(static_cast<std::int64_t>(n % 2)), counting_step(store.schema(), n));
        const Saved whole = save(store);
        const auto refusal = [](const Saved& saved) {
            try {
                restored(vectors(), 10, Mismatch::keep, saved, 3);
            } catch (const std::invalid_argument& error) {
                return std::string(error.what())
                    .substr(std::string("state must be consistent, got one in which ").size());
            }
            return std::string();
        };
        CHECK(refusal(whole) == "");
        Saved saved = whole;
        saved.t.pop_back();
        CHECK(refusal(saved) == "steps are missing");
        saved = whole;
        saved.t.push_back(7);
        saved.episode.push_back(0);
        saved.flags.push_back(0);
        saved.owned.push_back(1);
        for (std::size_t f = 0; f < saved.fields.size(); ++f)
            saved.fields[f].append(store.schema().field(f).bytes, '\0');
        saved.successors[0].append(store.schema().field(0).bytes, '\0');
        CHECK(refusal(saved) == "there are more steps than were counted");
        saved = whole;
        saved.successors[0].resize(saved.successors[0].size() - store.schema().field(0).bytes);
        CHECK(refusal(saved) == "a successor is missing");
    }
}
