#pragma once

#include <cstddef>

namespace ringback {

inline void prefetch(const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address, 0, 3);
#else
    static_cast<void>(address);
#endif
}

// Every cache line of [address, address + bytes), at most `most` of them: hardware follows a long run by itself.
inline void prefetch_span(const std::byte* address, std::size_t bytes, std::size_t most = 8) noexcept {
    if (bytes == 0) return;
    constexpr std::size_t kLine = 64;
    const std::size_t lines = (bytes + kLine - 1) / kLine;
    for (std::size_t i = 0; i < (lines < most ? lines : most); ++i) prefetch(address + i * kLine);
    if (lines <= most) prefetch(address + bytes - 1);  // the span may straddle one line more
}

}  // namespace ringback
