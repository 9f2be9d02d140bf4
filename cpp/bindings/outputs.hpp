#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "inputs.hpp"
#include "numpy.hpp"
#include "ringback/schema.hpp"

namespace ringback::bindings {

// What becomes of arrays before they are handed out: tensors, say.
struct Wrapping {
    PyObject* function = nullptr;  // null: nothing
    bool arrays_only = false;      // what the caller gave instead of an array is left as it is
};

// Arrays on their way to Python: planned one by one, allocated together, filled without the interpreter's lock.
//
// Each is fresh, writable and aligned to 64 bytes. Small ones of one batch share a block of memory, so keeping one of
// them keeps the batch alive; large ones own theirs. Blocks are recycled through a pool of at most 64 MiB, which spares
// page faults. The caller's own arrays can stand in for fresh ones.
class Outputs {
  public:
    Outputs();
    ~Outputs();
    Outputs(const Outputs&) = delete;
    Outputs& operator=(const Outputs&) = delete;

    // Plans an array of `type` with shape (*leading, *row); a row without axes gets one of 1. Answers its number.
    std::size_t add(const ArrayType& type, std::span<const std::int64_t> leading, std::span<const std::int64_t> row);
    // The same with exactly this shape.
    std::size_t add_exact(const ArrayType& type, std::span<const std::int64_t> shape);
    // The caller's array (or a CPU tensor) for it; throws TypeMistake or std::invalid_argument with `name`.
    void use(std::size_t output, PyObject* given, const std::string& name);

    // Allocates what is not the caller's. Throws std::bad_alloc with the bytes.
    void allocate();

    std::size_t count() const noexcept { return slots_.size(); }
    std::size_t bytes() const noexcept { return bytes_; }  // of all outputs
    std::byte* data(std::size_t output) const noexcept { return slots_[output].data; }
    template <class T>
    T* as(std::size_t output) const noexcept {
        return reinterpret_cast<T*>(slots_[output].data);
    }
    // A new reference to it, wrapped. Throws what the wrapping does.
    PyObject* take(std::size_t output, const Wrapping& wrapping) const;

    static constexpr int kMaxAxes = 12;

  private:
    struct Slot {
        ArrayType type;
        int axes;
        npy_intp shape[kMaxAxes];
        std::size_t bytes;
        std::byte* data;
        PyObject* object;  // the array, or what the caller gave
    };

    // The slots of this thread's last batch: with their memory the next one need not ask for any.
    static std::vector<Slot>& spare_slots() noexcept;

    std::vector<Slot> slots_;
    std::vector<PyObject*> kept_;
    std::size_t bytes_ = 0;
};

// A fresh one-dimensional array of these numbers.
template <class T>
pybind11::object array_of(DType dtype, const std::vector<T>& values) {
    Outputs outputs;
    const std::int64_t size = static_cast<std::int64_t>(values.size());
    const std::size_t output = outputs.add_exact(array_type(dtype), {&size, 1});
    outputs.allocate();
    if (size > 0) std::memcpy(outputs.data(output), values.data(), values.size() * sizeof(T));
    return pybind11::reinterpret_steal<pybind11::object>(outputs.take(output, {}));
}

}  // namespace ringback::bindings
