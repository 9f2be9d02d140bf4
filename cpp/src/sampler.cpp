#include "ringback/sampler.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>

#include "ringback/check.hpp"

namespace ringback {

void Sampler::draw(Rng& generator, std::int64_t bound, bool replace, std::span<std::int64_t> out) {
    generator = replace ? draw_any(generator, bound, out) : draw_different(generator, bound, out);
}

Rng Sampler::draw_any(Rng rng, std::int64_t bound, std::span<std::int64_t> out) {
    for (auto& number : out) number = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(bound)));
    return rng;
}

Rng Sampler::draw_different(Rng rng, std::int64_t bound, std::span<std::int64_t> out) {
    const auto count = static_cast<std::int64_t>(out.size());
    RB_ASSUME(count <= bound);
    if (count > bound / 2) {
        // Many of few: the first places of a shuffle.
        shuffled_.resize(static_cast<std::size_t>(bound));
        std::iota(shuffled_.begin(), shuffled_.end(), 0);
        for (std::int64_t i = 0; i < count; ++i) {
            const auto j = i + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(bound - i)));
            std::swap(shuffled_[static_cast<std::size_t>(i)], shuffled_[static_cast<std::size_t>(j)]);
            out[static_cast<std::size_t>(i)] = shuffled_[static_cast<std::size_t>(i)];
        }
        return rng;
    }
    // Few of many: draw again what was drawn before.
    RB_ASSUME(bound < std::int64_t{1} << 32);
    // The table is so large that two numbers seldom meet. Uniform numbers need no hash.
    const std::size_t mask = 8 * std::bit_ceil(out.size()) - 1;
    seen_.assign(mask + 1, 0);
    for (auto& number : out) {
        for (;;) {
            const std::uint64_t value = rng.below(static_cast<std::uint64_t>(bound));
            const auto mark = static_cast<std::uint32_t>(value + 1);
            std::size_t place = value & mask;
            while (seen_[place] != 0 && seen_[place] != mark) place = (place + 1) & mask;
            if (seen_[place] == mark) continue;
            seen_[place] = mark;
            number = static_cast<std::int64_t>(value);
            break;
        }
    }
    return rng;
}

void Sampler::refuse_steps(std::int64_t count, std::int64_t stored) {
    throw std::invalid_argument("batch_size must be <= the steps stored (" + std::to_string(stored) + "), got " +
                                std::to_string(count) +
                                (stored == 0 ? "" : "; pass replace=True to draw steps more than once"));
}

void Sampler::refuse_windows(std::int64_t count, std::int64_t starts, const WindowSpec& spec) {
    const std::string what =
        spec.whole         ? "finished and wholly stored episodes of at most " + std::to_string(spec.length) + " steps"
        : spec.length == 1 ? "steps that can be drawn"
                           : "valid starts of windows of " + std::to_string(spec.length) + " steps";
    throw std::invalid_argument("batch_size must be <= the " + what + " (" + std::to_string(starts) + "), got " +
                                std::to_string(count) +
                                (starts == 0 ? "" : "; pass replace=True to draw starts more than once"));
}

void Sampler::draw_steps(Rng& rng, const StepStore& store, bool replace, std::span<std::int64_t> offsets) {
    const auto count = static_cast<std::int64_t>(offsets.size());
    if (store.live() == 0 || (!replace && count > store.live())) refuse_steps(count, store.live());
    draw(rng, store.live(), replace, offsets);
    for (const std::int64_t offset : offsets) store.prefetch_row_at_offset(offset);
}

void Sampler::draw_windows(Rng& rng, const StepStore& store, const WindowIndex& index, bool replace,
                           std::span<WindowStart> out) {
    const auto count = static_cast<std::int64_t>(out.size());
    const std::int64_t total = index.starts.total();
    if (total == 0 || (!replace && count > total)) refuse_windows(count, total, index.spec);
    drawn_.resize(out.size());
    draw(rng, total, replace, drawn_);
    store.find_starts(index, drawn_, out);
}

}  // namespace ringback
