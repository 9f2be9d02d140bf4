#pragma once

#include <algorithm>
#include <cstdint>

#include "ringback/lookback.hpp"

// Which windows of an episode, or of a run of episodes, may be drawn. Pure functions over the window resolver.
//
//   rows     what a window is made of. By steps: row t is step t. By arrivals: row t is observation t with the reward
//            that came with it, so a closed episode of T steps has T + 1 rows
//   start    the first row to train on; burn-in rows lie before it
//
// **Threads** No state. **Errors** None.
namespace ringback {

// Which part of a split an episode belongs to.
enum class Side : std::uint8_t { train, validation, unused, any };

struct WindowSpec {
    std::int64_t length = 1;   // rows to train on
    std::int64_t period = 1;   // a window starts at the rows 0, period, 2 period, ... of its episode
    std::int64_t history = 0;  // steps before a row that its frame stack needs, as far as there were any
    bool pad = false;          // a window may be shorter than its length
    bool arrival = false;      // rows are arrivals, not steps
    bool whole = false;        // one window an episode: all of it, if it has ended, is complete and not too long
    bool cross = false;        // windows run on over the ends of episodes, along one stream; the period is 1
    Side side = Side::any;

    bool operator==(const WindowSpec&) const = default;
};

// What is stored of an episode: the times of its steps, and whether more may come. first < end.
struct Stored {
    std::int64_t first, end;
    bool open;
    bool ended = !open;  // closed by an end; a block of an episode is closed without one
};

// The rows that can be read in full: what a row needs of older steps is stored, or lies before t = 0. O(1).
constexpr Extent readable_rows(const Stored& stored, const WindowSpec& spec) noexcept {
    const std::int64_t end = stored.end + (spec.arrival && !stored.open ? 1 : 0);
    const std::int64_t missing = stored.first == 0 ? 0 : near_time(spec.history) + (spec.arrival ? 1 : 0);
    return {std::min(stored.first + missing, end), end};
}

// Starts first, first + period, ...: `count` of them.
struct WindowStarts {
    std::int64_t first, count, period;
    constexpr std::int64_t at(std::int64_t i) const noexcept { return first + i * period; }
    constexpr bool holds(std::int64_t row) const noexcept {
        return row >= first && (row - first) % period == 0 && (row - first) / period < count;
    }
};

// Starts of windows along rows that follow each other without a gap. O(1).
constexpr WindowStarts window_starts(Extent rows, const WindowSpec& spec) noexcept {
    const std::int64_t last = rows.end - (spec.pad ? 1 : near_time(spec.length));
    const std::int64_t period = near_time(spec.period);
    const std::int64_t before = rows.begin % period;
    const std::int64_t first = rows.begin + (before == 0 ? 0 : period - before);
    return {first, last < first ? 0 : (last - first) / period + 1, period};
}

// Starts of windows of one episode. O(1).
constexpr WindowStarts window_starts(const Stored& stored, const WindowSpec& spec) noexcept {
    const Extent rows = readable_rows(stored, spec);
    if (!spec.whole) return window_starts(rows, spec);
    return {0, stored.first == 0 && stored.ended && rows.end <= spec.length ? 1 : 0, 1};
}

// The rows of the window that starts at row `start`: `burn_in` of them before it as far as there are any, then `length`
// as far as there are any. O(1).
constexpr Window window_at(Extent rows, std::int64_t start, std::int64_t length, std::int64_t burn_in) noexcept {
    return resolve_window(rows, start - near_time(burn_in), start + near_time(length));
}

}  // namespace ringback
