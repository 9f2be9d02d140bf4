#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ringback/step_store.hpp"

namespace ringback {

// No row: zeros in every answer.
inline constexpr std::uint32_t kNoRow = 0xffffffffU;

// How windows are laid out: burn_in + spec.length rows each, left-aligned, real rows first.
struct WindowLayout {
    WindowSpec spec;
    std::int64_t burn_in = 0;
    bool time_major = false;  // (width, windows) instead of (windows, width)
};

// The rows of a batch of windows, one an output row, in the order of the output.
struct WindowRows {
    // Consecutive rows of one episode inside a window.
    struct Piece {
        std::size_t out;  // output row of its first one
        std::int64_t t;   // row of the episode that this is
        std::int64_t count;
        std::uint32_t slot;  // of the episode
    };

    std::size_t windows = 0, width = 0, stride = 1;  // stride: from one row of a window to its next
    std::vector<std::uint32_t> rows;                 // the step that is taken there, or kNoRow
    std::vector<std::uint32_t> arrived;              // by arrivals: the step that led there, or kNoRow
    std::vector<Piece> pieces;
    std::vector<std::int64_t> lengths, burn_in_lengths;  // of each window

    std::int64_t steps() const noexcept {  // rows that are there
        std::int64_t sum = 0;
        for (const Piece& piece : pieces) sum += piece.count;
        return sum;
    }
    std::size_t first_of(std::size_t window) const noexcept { return stride == 1 ? window * width : window; }
};

// Finds the rows of the windows from these starts, which must be valid ones. O(rows).
void lay_out(const StepStore& store, std::span<const WindowStart> starts, const WindowLayout& layout, WindowRows& out);

// The rows of the steps t .. t + rows.size() - 1 of an episode, which must be live.
void window_rows(const StepStore& store, const Episode& episode, std::int64_t t,
                 std::span<std::uint32_t> rows) noexcept;

}  // namespace ringback
