#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace ringback {

// Memory that this process may use, in bytes: the machine's, or its control group's limit where that is lower.
std::uint64_t memory_limit() noexcept;

// std::bad_alloc that says what was asked for.
class OutOfMemory : public std::bad_alloc {
  public:
    explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

// One growing array of bytes that is zero at first. Growing keeps the content but may move it; memory is committed when
// it is first touched, so reserving much costs nothing.
class Region {
  public:
    Region() = default;
    ~Region();
    Region(Region&& other) noexcept { swap(other); }
    Region& operator=(Region&& other) noexcept {
        swap(other);
        return *this;
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    // Makes the array at least `bytes` long. Throws OutOfMemory; then nothing has changed.
    void reserve(std::size_t bytes);

    std::byte* data() noexcept { return data_; }
    const std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }

  private:
    void swap(Region& other) noexcept;

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;    // usable bytes
    std::size_t mapped_ = 0;  // in whole pages
};

}  // namespace ringback
