#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ringback/windows.hpp"

using namespace ringback;

// The slow twin walks over rows one by one and looks at each.
namespace {

using Times = std::vector<std::int64_t>;

bool exists(const Stored& stored, const WindowSpec& spec, std::int64_t t) {
    const auto step = [&](std::int64_t at) { return stored.first <= at && at < stored.end; };
    if (!spec.arrival) return step(t);
    return (t == 0 || step(t - 1)) && (step(t) || (t == stored.end && !stored.open));
}

Times readable(const Stored& stored, const WindowSpec& spec) {
    Times rows;
    for (std::int64_t t = stored.first; t <= stored.end; ++t) {
        bool whole = true;
        for (std::int64_t back = 0; back <= spec.history && back <= t; ++back)
            whole = whole && exists(stored, spec, t - back);
        if (whole) rows.push_back(t);
    }
    return rows;
}

Times starts(const Stored& stored, const WindowSpec& spec) {
    const Times rows = readable(stored, spec);
    Times out;
    for (const std::int64_t t : rows) {
        if (spec.whole) {
            if (t == 0 && !stored.open && static_cast<std::int64_t>(rows.size()) <= spec.length) out.push_back(t);
            continue;
        }
        if (t % spec.period != 0) continue;
        bool fits = true;
        for (std::int64_t k = 0; !spec.pad && k < spec.length; ++k)
            fits = fits && std::find(rows.begin(), rows.end(), t + k) != rows.end();
        if (fits) out.push_back(t);
    }
    return out;
}

Times spelled(const WindowStarts& starts) {
    Times out;
    for (std::int64_t i = 0; i < starts.count; ++i) out.push_back(starts.at(i));
    return out;
}

template <class Check>
void for_all_small(Check check) {
    for (std::int64_t first = 0; first <= 6; ++first)
        for (std::int64_t end = first + 1; end <= 13; ++end)
            for (const bool open : {false, true})
                for (const bool arrival : {false, true})
                    for (std::int64_t history = 0; history <= 4; ++history)
                        check(Stored{first, end, open}, arrival, history);
}

}  // namespace

TEST_CASE("the readable rows are those whose history is stored or lies before t = 0") {
    for_all_small([](const Stored& stored, bool arrival, std::int64_t history) {
        WindowSpec spec;
        spec.arrival = arrival;
        spec.history = history;
        const Extent rows = readable_rows(stored, spec);
        Times got;
        for (std::int64_t t = rows.begin; t < rows.end; ++t) got.push_back(t);
        CAPTURE(stored.first);
        CAPTURE(stored.end);
        CAPTURE(stored.open);
        CAPTURE(arrival);
        CAPTURE(history);
        REQUIRE(got == readable(stored, spec));
    });
}

TEST_CASE("the starts of every kind of window are the twin's, one by one") {
    for_all_small([](const Stored& stored, bool arrival, std::int64_t history) {
        for (std::int64_t length = 1; length <= 15; ++length)
            for (std::int64_t period = 1; period <= 5; ++period)
                for (const bool pad : {false, true})
                    for (const bool whole : {false, true}) {
                        const WindowSpec spec{length, period, history, pad, arrival, whole};
                        const WindowStarts got = window_starts(stored, spec);
                        const Times want = starts(stored, spec);
                        if (spelled(got) == want) continue;
                        CAPTURE(stored.first);
                        CAPTURE(stored.end);
                        CAPTURE(stored.open);
                        CAPTURE(arrival);
                        CAPTURE(history);
                        CAPTURE(length);
                        CAPTURE(period);
                        CAPTURE(pad);
                        CAPTURE(whole);
                        REQUIRE(spelled(got) == want);
                    }
    });
}

TEST_CASE("a row is a start if and only if it is listed") {
    for (std::int64_t first = 0; first <= 4; ++first)
        for (std::int64_t count = 0; count <= 4; ++count)
            for (std::int64_t period = 1; period <= 4; ++period) {
                const WindowStarts some{first, count, period};
                const Times listed = spelled(some);
                for (std::int64_t row = 0; row <= 25; ++row)
                    REQUIRE(some.holds(row) == (std::find(listed.begin(), listed.end(), row) != listed.end()));
            }
}

TEST_CASE("a window is the rows from burn-in before its start to its length behind it, as far as there are any") {
    for (std::int64_t begin = 0; begin <= 4; ++begin)
        for (std::int64_t end = begin + 1; end <= 9; ++end)
            for (std::int64_t start = begin; start < end; ++start)
                for (std::int64_t length = 1; length <= 11; ++length)
                    for (std::int64_t burn_in = 0; burn_in <= 6; ++burn_in) {
                        Times want, got;
                        for (std::int64_t t = start - burn_in; t < start + length; ++t)
                            if (begin <= t && t < end) want.push_back(t);
                        const Window window = window_at({begin, end}, start, length, burn_in);
                        for (std::int64_t k = 0; k < window.count; ++k) got.push_back(window.first + k);
                        REQUIRE(got == want);
                    }
}

TEST_CASE("the largest numbers overflow nothing") {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const Stored stored{5, 20, false};
    CHECK(window_starts(stored, {kMost}).count == 0);
    CHECK(window_starts(stored, {1, kMost}).count == 0);
    CHECK(window_starts(Stored{0, 20, false}, {1, kMost}).count == 1);
    CHECK(window_starts(stored, {1, 1, kMost, false, true}).count == 0);
    CHECK(spelled(window_starts(Stored{0, 3, false}, {1, 1, kMost})) == Times{0, 1, 2});
    CHECK(window_starts(Stored{0, 20, false}, {kMost, 1, 0, false, true, true}).count == 1);
    CHECK(spelled(window_starts(stored, {kMost, 7, 0, true})) == Times{7, 14});
    const Window window = window_at({5, 20}, 9, kMost, kMost);
    CHECK(window.first == 5);
    CHECK(window.count == 15);
}
