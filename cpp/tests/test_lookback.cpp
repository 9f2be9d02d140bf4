#include <doctest/doctest.h>

#include <limits>

#include "lookback_twin.hpp"
#include "ringback/lookback.hpp"

using namespace ringback;

namespace {

constexpr Negative kNegatives[] = {Negative::kFromEnd, Negative::kIntoLookback};
constexpr Outside kOutsides[] = {Outside::kClip, Outside::kFill};
constexpr std::int64_t kReach = 9;  // further out than twice the largest extent below

template <class F>
void for_each_extent(F f) {
    for (std::int64_t lookback = 0; lookback <= 3; ++lookback)
        for (std::int64_t length = 0; length <= 4; ++length) f(Extent{-lookback, length});
}

std::optional<std::int64_t> bound(std::int64_t k) {  // kReach + 1 stands for an absent bound
    return k > kReach ? std::nullopt : std::optional<std::int64_t>(k);
}

}  // namespace

TEST_CASE("an index means the same time as in the slow twin, in every small extent") {
    for_each_extent([](Extent e) {
        for (Negative negative : kNegatives)
            for (std::int64_t i = -kReach; i <= kReach; ++i)
                CHECK(resolve_index(e, i, negative) == twin::time_of(e, i, negative));
    });
}

TEST_CASE("a non-negative index never reaches the lookback") {
    for_each_extent([](Extent e) {
        for (Negative negative : kNegatives)
            for (std::int64_t i = 0; i <= kReach; ++i) CHECK(resolve_index(e, i, negative) >= 0);
    });
}

TEST_CASE("a window is the slow twin's window, in every small extent") {
    for_each_extent([](Extent e) {
        for (std::int64_t start = -kReach; start <= kReach; ++start)
            for (std::int64_t stop = -kReach; stop <= kReach; ++stop)
                REQUIRE(twin::spelled(resolve_window(e, start, stop)) == twin::window(e, start, stop));
    });
}

TEST_CASE("a window of an extent whose first rows are gone is the slow twin's window") {
    for (std::int64_t begin = 0; begin <= 4; ++begin)
        for (std::int64_t end = begin; end <= 6; ++end)
            for (std::int64_t start = -3; start <= kReach; ++start)
                for (std::int64_t stop = -3; stop <= kReach; ++stop)
                    REQUIRE(twin::spelled(resolve_window({begin, end}, start, stop)) ==
                            twin::window({begin, end}, start, stop));
}

TEST_CASE("a window wholly outside is fill on the side where it lies") {
    const Window left = resolve_window({-2, 3}, -9, -5);
    CHECK(left.fill_left == 4);
    CHECK(left.fill_right == 0);
    const Window right = resolve_window({-2, 3}, 5, 9);
    CHECK(right.fill_left == 0);
    CHECK(right.fill_right == 4);
}

TEST_CASE("a slice of any step is the slow twin's slice, in every small extent") {
    for_each_extent([](Extent e) {
        for (Negative negative : kNegatives)
            for (Outside outside : kOutsides)
                for (std::int64_t step : {-5, -3, -2, -1, 1, 2, 3, 5})
                    for (std::int64_t start = -kReach; start <= kReach + 1; ++start)
                        for (std::int64_t stop = -kReach; stop <= kReach + 1; ++stop) {
                            const SliceBounds bounds{bound(start), bound(stop), step};
                            REQUIRE(twin::spelled(resolve_slice(e, bounds, negative, outside)) ==
                                    twin::slice(e, bounds, negative, outside));
                        }
    });
}

TEST_CASE("the largest numbers there are do not overflow") {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
    const Extent e{-2, 3};
    CHECK(resolve_index(e, kMin, Negative::kFromEnd) < e.begin);
    CHECK(resolve_index(e, kMax, Negative::kFromEnd) > e.end);
    const Window w = resolve_window(e, kMin, kMax);
    CHECK(w.first == -2);
    CHECK(w.count == 5);
    for (Negative negative : kNegatives) {
        CHECK(resolve_slice(e, {kMin, kMax, 1}, Negative::kIntoLookback, Outside::kClip).count == 5);
        CHECK(resolve_slice(e, {kMax, kMin, -1}, negative, Outside::kClip).count == 5);
        CHECK(resolve_slice(e, {0, kMax, kMax}, negative, Outside::kClip).count == 1);
        CHECK(resolve_slice(e, {kMin, kMax, kMax}, negative, Outside::kFill).fill_left >= 1);
    }
}

TEST_CASE("the answers are known while compiling") {
    static_assert(resolve_window({-1, 5}, -3, 2).fill_left == 2);
    static_assert(resolve_slice({-1, 5}, {std::nullopt, std::nullopt, -1}, Negative::kFromEnd, Outside::kClip).count ==
                  5);
}
