#pragma once

#include <array>
#include <cstdint>

namespace ringback {

// A seedable generator: xoshiro256++ 1.0 (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021).
// The same words of state give the same stream on every platform.
//
// Threads: none of it is safe to share; the owner has a lock.
class Rng {
  public:
    using State = std::array<std::uint64_t, 4>;

    // Expands a single number with SplitMix64, as the authors of xoshiro advise.
    explicit Rng(std::uint64_t seed) noexcept {
        for (auto& word : state_) {
            seed += 0x9e3779b97f4a7c15ULL;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
            word = z ^ (z >> 31);
        }
    }

    // Takes the four words as they are; all zero (the one state that xoshiro cannot leave) stands for seed 0.
    explicit Rng(const State& state) noexcept : state_(state) {
        if ((state[0] | state[1] | state[2] | state[3]) == 0) *this = Rng(std::uint64_t{0});
    }

    const State& state() const noexcept { return state_; }

    std::uint64_t next() noexcept {
        const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = rotate(state_[3], 45);
        return result;
    }

    // Uniform over [0, bound), without bias: Lemire, "Fast random integer generation in an interval", 2019,
    // algorithm 5. bound must be positive.
    std::uint64_t below(std::uint64_t bound) noexcept {
        std::uint64_t high, low;
        multiply(next(), bound, high, low);
        if (low < bound) {
            const std::uint64_t threshold = (0 - bound) % bound;
            while (low < threshold) multiply(next(), bound, high, low);
        }
        return high;
    }

  private:
    static std::uint64_t rotate(std::uint64_t x, int k) noexcept { return (x << k) | (x >> (64 - k)); }

    static void multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& high, std::uint64_t& low) noexcept {
#ifdef __SIZEOF_INT128__
        __extension__ using Wide = unsigned __int128;
        const Wide product = static_cast<Wide>(a) * b;
        high = static_cast<std::uint64_t>(product >> 64);
        low = static_cast<std::uint64_t>(product);
#else
        const std::uint64_t a0 = a & 0xffffffffU, a1 = a >> 32, b0 = b & 0xffffffffU, b1 = b >> 32;
        const std::uint64_t p00 = a0 * b0, p01 = a0 * b1, p10 = a1 * b0;
        const std::uint64_t middle = (p00 >> 32) + (p01 & 0xffffffffU) + (p10 & 0xffffffffU);
        high = a1 * b1 + (p01 >> 32) + (p10 >> 32) + (middle >> 32);
        low = a * b;
#endif
    }

    State state_;
};

}  // namespace ringback
