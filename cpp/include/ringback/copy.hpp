#pragma once

#include <cstddef>

namespace ringback {

// memcpy, but never at a quarter of its speed: so slow is the string instruction by which C libraries move long runs on
// some processors (AMD Zen 3) where the target lies up to a cache line behind the source, counted within a page. Large
// NumPy arrays begin 16 bytes behind a page's beginning, the columns of a store at one.
void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

// Where the rows of a field lie: in records that may be anywhere, or so many bytes apart.
struct ScatteredRows {
    const std::byte* const* records;
    std::size_t offset;
    const std::byte* at(std::size_t row) const noexcept { return records[row] + offset; }
};
struct RowsApart {
    const std::byte* first;
    std::size_t stride;
    const std::byte* at(std::size_t row) const noexcept { return first + row * stride; }
};

// Copies rows of one size to rows behind each other. Neither reads nor writes a byte beside them.
//
//   row of 68 bytes    [0, 32) [32, 64) [36, 68)      in blocks of one register each, the last one flush with the end
//
// Long rows are left to copy_bytes. `wide`: by registers of 32 bytes, which not every machine of an architecture has.
class RowCopier {
  public:
    static bool has_wide_registers() noexcept;
    explicit RowCopier(std::size_t bytes, bool wide = has_wide_registers()) noexcept;

    std::size_t bytes() const noexcept { return bytes_; }
    void operator()(std::byte* target, ScatteredRows rows, std::size_t count) const noexcept {
        scattered_(target, rows, bytes_, count);
    }
    void operator()(std::byte* target, RowsApart rows, std::size_t count) const noexcept {
        apart_(target, rows, bytes_, count);
    }

  private:
    template <class Rows>
    using Function = void (*)(std::byte* target, Rows rows, std::size_t bytes, std::size_t count) noexcept;

    std::size_t bytes_;
    Function<ScatteredRows> scattered_;
    Function<RowsApart> apart_;
};

}  // namespace ringback
