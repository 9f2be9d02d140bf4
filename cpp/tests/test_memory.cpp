#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "ringback/memory.hpp"

using namespace ringback;

namespace {

std::byte counted(std::size_t i) { return static_cast<std::byte>(i * 7 + 1); }

bool all_zero(const Region& region, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
        if (region.data()[i] != std::byte{0}) return false;
    return true;
}

bool all_counted(const Region& region, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
        if (region.data()[i] != counted(i)) return false;
    return true;
}

}  // namespace

TEST_CASE("a new region holds nothing") {
    const Region region;
    CHECK(region.size() == 0);
    CHECK(region.data() == nullptr);
}

TEST_CASE("a region grows, keeps its content, and is zero where nothing was written") {
    // Sizes below and above one page and one huge page, none a multiple of either.
    Region region;
    std::size_t filled = 0;
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{100}, std::size_t{4095}, std::size_t{4097}, std::size_t{50000},
          std::size_t{2000001}, std::size_t{2097153}, std::size_t{9000007}}) {
        region.reserve(bytes);
        REQUIRE(region.size() == bytes);
        CHECK(all_counted(region, 0, filled));
        CHECK(all_zero(region, filled, bytes));
        for (; filled < bytes; ++filled) region.data()[filled] = counted(filled);
    }
}

TEST_CASE("asking for less than there is changes nothing") {
    Region region;
    region.reserve(1000);
    region.data()[999] = counted(999);
    const std::byte* const before = region.data();
    region.reserve(10);
    region.reserve(0);
    CHECK(region.size() == 1000);
    CHECK(region.data() == before);
    CHECK(region.data()[999] == counted(999));
}

TEST_CASE("a region that is moved takes its content along") {
    Region region;
    region.reserve(100);
    for (std::size_t i = 0; i < 100; ++i) region.data()[i] = counted(i);
    Region moved(std::move(region));
    CHECK(all_counted(moved, 0, 100));
    Region assigned;
    assigned.reserve(5);
    assigned = std::move(moved);
    CHECK(assigned.size() == 100);
    CHECK(all_counted(assigned, 0, 100));
}

#ifndef __SANITIZE_ADDRESS__  // which stops at such a request by itself
TEST_CASE("memory that no machine has is refused with the number of bytes, and the region stays as it was") {
    Region region;
    region.reserve(100);
    region.data()[99] = counted(99);
    std::string message;
    try {
        region.reserve(std::size_t{1} << 60);
    } catch (const OutOfMemory& error) {
        message = error.what();
    }
    CHECK(message.find("11529215046") != std::string::npos);
    CHECK(region.size() == 100);
    CHECK(region.data()[99] == counted(99));
}
#endif

TEST_CASE("the memory of this machine is known, and more than a few megabytes") {
    CHECK(memory_limit() > std::uint64_t{1} << 24);
    CHECK(memory_limit() < std::uint64_t{1} << 60);
}
