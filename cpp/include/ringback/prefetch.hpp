#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ringback {

inline void prefetch(const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
    // Without the empty statement GCC takes a function that does nothing but prefetch for pure, and drops calls of it.
    __asm__ volatile("" : : "r"(address));
    __builtin_prefetch(address, 0, 3);
#else
    static_cast<void>(address);
#endif
}

// The same for memory that is to be written.
inline void prefetch_to_write(const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
    __asm__ volatile("" : : "r"(address));
    __builtin_prefetch(address, 1, 3);
#else
    static_cast<void>(address);
#endif
}

// Every cache line of [address, address + bytes), at most `most` of them: hardware follows a long run by itself. How
// many prefetches that takes depends on `bytes` alone, never on the address, so that no branch is guessed wrong.
inline void prefetch_span(const std::byte* address, std::size_t bytes, std::size_t most = 8) noexcept {
    if (bytes == 0) return;
    constexpr std::size_t kLine = 64;
    const std::size_t before = std::min((bytes + kLine - 2) / kLine, most - 1);  // lines but for the last one
    for (std::size_t line = 0; line < before; ++line) prefetch(address + line * kLine);
    prefetch(address + std::min(before * kLine, bytes - 1));
}

}  // namespace ringback
