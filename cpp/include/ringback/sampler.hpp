#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringback/rng.hpp"
#include "ringback/step_store.hpp"

namespace ringback {

// Draws numbers, without memory of its own between calls but for what it reuses.
//
// Every answer is exactly uniform: over what there is (with replacement), or over the ordered choices of `out.size()`
// different ones (without). The cost does not depend on how much there is. Equal generators give equal draws.
//
// Threads: one sampler a thread. Errors: std::invalid_argument when more is asked for than there is, with both numbers.
class Sampler {
  public:
    // out[i] in [0, bound), bound < 2^32. Without replacement all differ; then out.size() <= bound must hold.
    // O(out.size()).
    void draw(Rng& generator, std::int64_t bound, bool replace, std::span<std::int64_t> out);

    // Offsets (0 is the oldest step) of live steps, and prefetches where their rows are looked up.
    void draw_steps(Rng& rng, const StepStore& store, bool replace, std::span<std::int64_t> offsets);

    // Starts of windows. O(out.size() log episodes).
    void draw_windows(Rng& rng, const StepStore& store, const WindowIndex& index, bool replace,
                      std::span<WindowStart> out);

    // What the two throw.
    [[noreturn]] static void refuse_steps(std::int64_t count, std::int64_t stored);
    [[noreturn]] static void refuse_windows(std::int64_t count, std::int64_t starts, const WindowSpec& spec);

  private:
    // The generator comes and goes by value, so that its state stays in registers while numbers are written.
    static Rng draw_any(Rng rng, std::int64_t bound, std::span<std::int64_t> out);
    Rng draw_different(Rng rng, std::int64_t bound, std::span<std::int64_t> out);

    std::vector<std::uint32_t> seen_;  // open addressing; value + 1, 0 is empty
    std::vector<std::int64_t> shuffled_, drawn_;
};

}  // namespace ringback
