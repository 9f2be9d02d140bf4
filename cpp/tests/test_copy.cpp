#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ringback/copy.hpp"

using namespace ringback;

namespace {

constexpr std::byte kUntouched{0xEE};

std::byte byte_of(std::size_t row, std::size_t k) { return static_cast<std::byte>((row * 31 + k * 7 + 1) % 251); }

// Rows of exactly `bytes` bytes, each an allocation of its own, so that the address sanitizer sees a byte read beside.
struct Records {
    Records(std::size_t bytes, std::size_t count) {
        for (std::size_t r = 0; r < count; ++r) {
            owned.push_back(std::make_unique<std::byte[]>(bytes));
            for (std::size_t k = 0; k < bytes; ++k) owned.back()[k] = byte_of(r, k);
            at.push_back(owned.back().get());
        }
    }
    std::vector<std::unique_ptr<std::byte[]>> owned;
    std::vector<const std::byte*> at;
};

// The first byte of `got` that is neither the row's nor, beside the rows, untouched; or its size.
std::size_t first_wrong(const std::vector<std::byte>& got, std::size_t before, std::size_t bytes, std::size_t count) {
    for (std::size_t i = 0; i < got.size(); ++i) {
        const bool inside = i >= before && i < before + bytes * count;
        const std::byte want = inside ? byte_of((i - before) / bytes, (i - before) % bytes) : kUntouched;
        if (got[i] != want) return i;
    }
    return got.size();
}

}  // namespace

TEST_CASE("Rows of every size are copied, and not a byte beside them") {
    for (const bool wide : {false, true}) {
        if (wide && !RowCopier::has_wide_registers()) continue;
        for (std::size_t bytes = 1; bytes <= 600; ++bytes)
            for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
                CAPTURE(wide);
                CAPTURE(bytes);
                CAPTURE(count);
                const RowCopier copy(bytes, wide);
                CHECK(copy.bytes() == bytes);
                const Records records(bytes, count);
                const std::size_t before = bytes % 5;
                std::vector<std::byte> got(before + bytes * count + 40, kUntouched);
                copy(got.data() + before, ScatteredRows{records.at.data(), 0}, count);
                CHECK(first_wrong(got, before, bytes, count) == got.size());

                const std::size_t stride = bytes + 3;
                std::vector<std::byte> apart(count == 0 ? 0 : stride * (count - 1) + bytes, kUntouched);
                for (std::size_t r = 0; r < count; ++r)
                    for (std::size_t k = 0; k < bytes; ++k) apart[r * stride + k] = byte_of(r, k);
                std::vector<std::byte> again(before + bytes * count + 40, kUntouched);
                copy(again.data() + before, RowsApart{apart.data(), stride}, count);
                CHECK(first_wrong(again, before, bytes, count) == again.size());
            }
    }
}

TEST_CASE("A field lies at an offset of its record") {
    const Records records(40, 2);
    const RowCopier copy(6);
    std::vector<std::byte> got(12);
    copy(got.data(), ScatteredRows{records.at.data(), 20}, 2);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == byte_of(i / 6, 20 + i % 6));
}

TEST_CASE("Runs are copied wherever they lie within a page, and not a byte beside them") {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{1024}, std::size_t{1025}, std::size_t{5000}, std::size_t{12288}})
        for (const std::size_t behind :
             {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{63}, std::size_t{64}, std::size_t{4095}}) {
            CAPTURE(bytes);
            CAPTURE(behind);
            const Records records(bytes, 1);
            const auto source = reinterpret_cast<std::uintptr_t>(records.at[0]);
            std::vector<std::byte> got(2 * 4096 + bytes, kUntouched);
            const std::size_t before = (source + behind - reinterpret_cast<std::uintptr_t>(got.data())) % 4096;
            copy_bytes(got.data() + before, records.at[0], bytes);
            CHECK(first_wrong(got, before, bytes, 1) == got.size());
        }
}
