#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

// Which rows of one episode does a read ask for? Pure functions that answer it; the only code that knows about edges.
//
// Rows are named by their **time**. A piece of an episode with L lookback rows and T steps has the extent [-L, T):
//
//        lookback          this piece
//     -L  ...  -2  -1 | 0  1  2  ...  T-1
//
// and a read of any window of it is answered by
//
//     fill_left missing rows · count rows from time `first` on · fill_right missing rows
//
// **Invariants**
//  I1  Every time that an answer names as present lies in the extent.
//  I2  A filling answer holds exactly the rows asked for: fill_left + count + fill_right of them, in the order asked
//  for. I3  A non-negative index never names a time below 0.
//
// **Threads** No state. **Errors** None: each function is total and noexcept; times beyond +-kFarTime are taken for it.
namespace ringback {

// Further than any time that exists, and far enough from the ends of int64 that sums of a few do not overflow.
inline constexpr std::int64_t kFarTime = std::int64_t{1} << 60;

// The times that exist: [begin, end).
struct Extent {
    std::int64_t begin;
    std::int64_t end;

    constexpr bool holds(std::int64_t time) const noexcept { return begin <= time && time < end; }
};

// fill_left missing rows, then the times first .. first+count-1, then fill_right missing rows.
struct Window {
    std::int64_t fill_left;
    std::int64_t first;
    std::int64_t count;
    std::int64_t fill_right;
};

// A Window whose present rows are `step` apart: first, first+step, ... (step may be negative, never 0).
struct StridedWindow {
    std::int64_t fill_left;
    std::int64_t first;
    std::int64_t count;
    std::int64_t fill_right;
    std::int64_t step;
};

// What a negative index means.
enum class Negative : std::uint8_t {
    kFromEnd,       // -1 is the last row; far enough back it reaches the lookback
    kIntoLookback,  // -1 is the row before time 0
};

// What becomes of the part of a slice that lies outside of the extent.
enum class Outside : std::uint8_t {
    kClip,  // it is left out, the way Python's own sequences do it
    kFill,  // each of its rows is counted as missing; a slice wholly on one side of the extent is all missing rows,
            // |stop - start| / |step| of them, rounded up, whichever way it runs (the rule of RLlib's buffers)
};

// A Python slice: absent bounds stand for the whole piece without its lookback. step is never 0.
struct SliceBounds {
    std::optional<std::int64_t> start;
    std::optional<std::int64_t> stop;
    std::int64_t step = 1;
};

constexpr std::int64_t near_time(std::int64_t time) noexcept { return std::clamp(time, -kFarTime, kFarTime); }

// The time that an index means; it may lie outside of the extent. O(1).
constexpr std::int64_t resolve_index(Extent extent, std::int64_t index, Negative negative) noexcept {
    const bool from_end = index < 0 && negative == Negative::kFromEnd;
    return near_time(near_time(index) + (from_end ? extent.end : 0));
}

// The times [start, stop), clipped to the extent; what lies outside is counted as fill. start >= stop is the empty
// window. A window wholly outside is all fill on the side where it lies. O(1).
constexpr Window resolve_window(Extent extent, std::int64_t start, std::int64_t stop) noexcept {
    start = near_time(start);
    stop = near_time(stop);
    const std::int64_t total = std::max<std::int64_t>(0, stop - start);
    const std::int64_t first = std::clamp(start, extent.begin, extent.end);
    const std::int64_t last = std::clamp(stop, extent.begin, extent.end);
    const std::int64_t count = std::max<std::int64_t>(0, last - first);
    const std::int64_t fill_left = std::clamp<std::int64_t>(extent.begin - start, 0, total);
    return {fill_left, first, count, total - fill_left - count};
}

namespace detail {

// How many of start, start+step, ... lie below stop; step > 0.
constexpr std::int64_t count_steps(std::int64_t start, std::int64_t stop, std::int64_t step) noexcept {
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}

// The rising case: start, start+step, ... below stop, with step > 0.
constexpr StridedWindow rising(Extent extent, std::int64_t start, std::int64_t stop, std::int64_t step,
                               Outside outside) noexcept {
    if (outside == Outside::kClip) {
        start = std::clamp(start, extent.begin, extent.end);
        return {0, start, count_steps(start, std::min(stop, extent.end), step), 0, step};
    }
    const std::int64_t total = count_steps(start, stop, step);
    const std::int64_t fill_left = std::min(total, count_steps(start, extent.begin, step));
    const std::int64_t first = start + fill_left * step;
    const std::int64_t count = std::min(total - fill_left, count_steps(first, extent.end, step));
    return {fill_left, first, count, total - fill_left - count, step};
}

// A slice whose bounds both lie before the extent, or both behind it.
constexpr StridedWindow all_missing(Extent extent, std::int64_t start, std::int64_t stop, std::int64_t step) noexcept {
    const std::int64_t total = count_steps(std::min(start, stop), std::max(start, stop), step < 0 ? -step : step);
    if (std::max(start, stop) < extent.begin) return {total, extent.begin, 0, 0, step};
    return {0, extent.end, 0, total, step};
}

}  // namespace detail

// The rows that a slice asks for, in the order it asks for them (fill_left comes first in that order). An absent start
// or stop never reaches the lookback, whatever the sign of the step; a present one is read like an index. O(1).
constexpr StridedWindow resolve_slice(Extent extent, SliceBounds bounds, Negative negative, Outside outside) noexcept {
    const std::int64_t step = near_time(bounds.step);
    const bool falling = step < 0;
    const std::int64_t origin = std::clamp<std::int64_t>(0, extent.begin, extent.end);
    std::int64_t start = falling ? extent.end - 1 : origin;
    std::int64_t stop = falling ? origin - 1 : extent.end;
    if (bounds.start) start = resolve_index(extent, *bounds.start, negative);
    if (bounds.stop) stop = resolve_index(extent, *bounds.stop, negative);
    if (outside == Outside::kFill && (std::max(start, stop) < extent.begin || std::min(start, stop) >= extent.end))
        return detail::all_missing(extent, start, stop, step);
    if (!falling) return detail::rising(extent, start, stop, step, outside);
    // Seen in a mirror (time -> -time) a falling slice rises.
    StridedWindow mirrored = detail::rising({1 - extent.end, 1 - extent.begin}, -start, -stop, -step, outside);
    mirrored.first = -mirrored.first;
    mirrored.step = step;
    return mirrored;
}

}  // namespace ringback
