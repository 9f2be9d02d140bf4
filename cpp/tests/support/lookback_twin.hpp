#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ringback/lookback.hpp"

// The slow twin of the resolver: it walks over every time asked for and looks whether it is there.
namespace ringback::twin {

using Times = std::vector<std::optional<std::int64_t>>;  // one entry a row; nothing where the row is missing

inline std::int64_t time_of(Extent extent, std::int64_t index, Negative negative) {
    if (index < 0 && negative == Negative::kFromEnd) return extent.end + index;
    return index;
}

inline Times window(Extent extent, std::int64_t start, std::int64_t stop) {
    Times out;
    for (std::int64_t t = start; t < stop; ++t)
        out.push_back(extent.holds(t) ? std::optional<std::int64_t>(t) : std::nullopt);
    return out;
}

// Clipping as Python documents it for its own sequences: a bound outside is first moved to the nearest end.
inline std::int64_t pull_in(std::int64_t bound, std::int64_t low, std::int64_t high) {
    while (bound < low) ++bound;
    while (bound > high) --bound;
    return bound;
}

inline Times slice(Extent extent, SliceBounds bounds, Negative negative, Outside outside) {
    const bool up = bounds.step > 0;
    std::int64_t start = bounds.start ? time_of(extent, *bounds.start, negative) : (up ? 0 : extent.end - 1);
    std::int64_t stop = bounds.stop ? time_of(extent, *bounds.stop, negative) : (up ? extent.end : -1);
    if (outside == Outside::kClip) {
        const std::int64_t low = up ? extent.begin : extent.begin - 1;
        const std::int64_t high = up ? extent.end : extent.end - 1;
        start = pull_in(start, low, high);
        stop = pull_in(stop, low, high);
    }
    Times out;
    const bool one_side = (start < extent.begin && stop < extent.begin) || (start >= extent.end && stop >= extent.end);
    if (outside == Outside::kFill && one_side && (up ? stop < start : start < stop)) std::swap(start, stop);
    for (std::int64_t t = start; up ? t < stop : t > stop; t += bounds.step)
        out.push_back(extent.holds(t) ? std::optional<std::int64_t>(t) : std::nullopt);
    return out;
}

// The rows of an answer of the resolver, spelled out.
inline Times spelled(const StridedWindow& w) {
    Times out(static_cast<std::size_t>(w.fill_left), std::nullopt);
    for (std::int64_t k = 0; k < w.count; ++k) out.push_back(w.first + k * w.step);
    out.insert(out.end(), static_cast<std::size_t>(w.fill_right), std::nullopt);
    return out;
}

inline Times spelled(const Window& w) { return spelled(StridedWindow{w.fill_left, w.first, w.count, w.fill_right, 1}); }

}  // namespace ringback::twin
