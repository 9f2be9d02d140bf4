#include "ringback/copy.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define RB_WIDE_REGISTERS
#endif

namespace ringback {

namespace {

constexpr std::size_t kMostBlocks = 16;  // of a row; longer ones are left to copy_bytes

// kBlocks blocks of kBlock bytes cover the row, the last two of them overlapping.
template <class Rows, std::size_t kBlock, std::size_t kBlocks>
void copy_blocks(std::byte* target, Rows rows, std::size_t bytes, std::size_t count) noexcept {
    const std::size_t last = bytes - kBlock;
    for (std::size_t r = 0; r < count; ++r, target += bytes) {
        const std::byte* const source = rows.at(r);
        for (std::size_t b = 0; b + 1 < kBlocks; ++b) std::memcpy(target + b * kBlock, source + b * kBlock, kBlock);
        std::memcpy(target + last, source + last, kBlock);
    }
}

#ifdef RB_WIDE_REGISTERS
constexpr std::size_t kWideBlock = 32;

// The same, by instructions that the compiler may not choose by itself.
template <class Rows, std::size_t kBlocks>
__attribute__((target("avx2"))) void copy_wide_blocks(std::byte* target, Rows rows, std::size_t bytes,
                                                      std::size_t count) noexcept {
    const std::size_t last = bytes - kWideBlock;
    for (std::size_t r = 0; r < count; ++r, target += bytes) {
        const std::byte* const source = rows.at(r);
        for (std::size_t b = 0; b < kBlocks; ++b) {
            const std::size_t at = b + 1 < kBlocks ? b * kWideBlock : last;
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + at),
                                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + at)));
        }
    }
}
#endif

template <class Rows>
void copy_any(std::byte* target, Rows rows, std::size_t bytes, std::size_t count) noexcept {
    for (std::size_t r = 0; r < count; ++r) copy_bytes(target + r * bytes, rows.at(r), bytes);
}

template <class Rows>
using Function = void (*)(std::byte*, Rows, std::size_t, std::size_t) noexcept;

template <class Rows>
Function<Rows> function_for(std::size_t bytes, [[maybe_unused]] bool wide) noexcept {
#ifdef RB_WIDE_REGISTERS
    static constexpr auto kWide = []<std::size_t... kLess>(std::index_sequence<kLess...>) {
        return std::array<Function<Rows>, sizeof...(kLess)>{&copy_wide_blocks<Rows, kLess + 1>...};
    }(std::make_index_sequence<kMostBlocks>());
    if (wide && bytes >= kWideBlock)
        return bytes <= kMostBlocks * kWideBlock ? kWide[(bytes - 1) / kWideBlock] : &copy_any<Rows>;
#endif
    static constexpr auto kNarrow = []<std::size_t... kLess>(std::index_sequence<kLess...>) {
        return std::array<Function<Rows>, sizeof...(kLess)>{&copy_blocks<Rows, 16, kLess + 1>...};
    }(std::make_index_sequence<kMostBlocks>());
    if (bytes >= 16) return bytes <= kMostBlocks * 16 ? kNarrow[(bytes - 1) / 16] : &copy_any<Rows>;
    if (bytes >= 8) return bytes == 8 ? &copy_blocks<Rows, 8, 1> : &copy_blocks<Rows, 8, 2>;
    if (bytes >= 4) return bytes == 4 ? &copy_blocks<Rows, 4, 1> : &copy_blocks<Rows, 4, 2>;
    if (bytes >= 2) return bytes == 2 ? &copy_blocks<Rows, 2, 1> : &copy_blocks<Rows, 2, 2>;
    return &copy_blocks<Rows, 1, 1>;
}

}  // namespace

RowCopier::RowCopier(std::size_t bytes, bool wide) noexcept
    : bytes_(bytes),
      scattered_(function_for<ScatteredRows>(bytes, wide)),
      apart_(function_for<RowsApart>(bytes, wide)) {}

bool RowCopier::has_wide_registers() noexcept {
#ifdef RB_WIDE_REGISTERS
    static const bool has = __builtin_cpu_supports("avx2") != 0;
    return has;
#else
    return false;
#endif
}

void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
    constexpr std::size_t kPage = 4096, kLine = 64;
    const std::size_t behind =
        (reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source)) % kPage;
    std::size_t at = 0;
    if (behind > 0 && behind < kLine)
        for (; at + kLine <= bytes; at += kLine) std::memcpy(target + at, source + at, kLine);
    std::memcpy(target + at, source + at, bytes - at);
}

}  // namespace ringback
