#include "ringback/memory.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

// Under the address sanitizer a region is a plain allocation, so that a write past its end is seen.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define RB_MAPPED_REGIONS
#endif

namespace ringback {

namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 2;

std::uint64_t limit_in_file(const char* path) noexcept {
    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
    if (std::FILE* file = std::fopen(path, "r")) {
        unsigned long long value = 0;
        if (std::fscanf(file, "%llu", &value) == 1 && value > 0) limit = value;  // the file may say "max"
        std::fclose(file);
    }
    return limit;
}

}  // namespace

std::uint64_t memory_limit() noexcept {
    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) limit = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
#endif
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
        if (const std::uint64_t group = limit_in_file(path); group < limit) limit = group;
    return limit;
}

void Region::swap(Region& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
}

#ifdef RB_MAPPED_REGIONS

Region::~Region() {
    if (data_ != nullptr) munmap(data_, mapped_);
}

void Region::reserve(std::size_t bytes) {
    if (bytes <= size_) return;
    if (bytes > kMost) throw OutOfMemory("ringback: no memory for " + std::to_string(bytes) + " bytes");
    constexpr std::size_t kPage = std::size_t{1} << 12, kHugePage = std::size_t{1} << 21;
    const std::size_t unit = bytes >= kHugePage ? kHugePage : kPage;
    const std::size_t mapped = (bytes + unit - 1) / unit * unit;
    void* const moved = data_ == nullptr ? mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                         : mremap(data_, mapped_, mapped, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) throw OutOfMemory("ringback: no memory for " + std::to_string(mapped) + " bytes");
    if (unit == kHugePage) madvise(moved, mapped, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(moved);
    size_ = bytes;
    mapped_ = mapped;
}

#else

Region::~Region() { std::free(data_); }

void Region::reserve(std::size_t bytes) {
    if (bytes <= size_) return;
    if (bytes > kMost) throw OutOfMemory("ringback: no memory for " + std::to_string(bytes) + " bytes");
    auto* const moved = static_cast<std::byte*>(std::calloc(bytes, 1));
    if (moved == nullptr) throw OutOfMemory("ringback: no memory for " + std::to_string(bytes) + " bytes");
    if (size_ > 0) std::memcpy(moved, data_, size_);
    std::free(data_);
    data_ = moved;
    size_ = bytes;
    mapped_ = bytes;
}

#endif

}  // namespace ringback
