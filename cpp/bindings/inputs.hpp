#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "numpy.hpp"
#include "ringback/schema.hpp"

namespace ringback::bindings {

// What NumPy calls a field.
struct ArrayType {
    int number;         // NPY_...
    char kind;          // 'b' 'i' 'u' 'f'
    std::size_t bytes;  // an element
};
ArrayType array_type(DType dtype) noexcept;

// Python values on their way into the store: contiguous bytes of a field's dtype, one row or `rows` of them.
//
// An array that already is what the store holds is used in place (and kept alive); anything else is converted once.
// Values are never changed in silence: floats do not become integers, integers must fit.
class Inputs {
  public:
    explicit Inputs(const Schema& schema) noexcept : schema_(schema) {}
    ~Inputs();
    Inputs(const Inputs&) = delete;
    Inputs& operator=(const Inputs&) = delete;

    // A value for one row of a field. Throws TypeMistake, std::invalid_argument with `prefix` and the field's name.
    const std::byte* row(std::size_t field, PyObject* value, const char* prefix = "");
    // A value with a leading axis of `rows`.
    const std::byte* rows(std::size_t field, PyObject* value, std::size_t rows, const char* prefix = "");
    // `rows` flags; null or None: all 0.
    const std::uint8_t* flags(PyObject* value, std::size_t rows, const char* name);

    static constexpr std::size_t kScalars = 16;

  private:
    const std::byte* scalar(const Field& field, PyObject* value);
    const std::byte* array(const Field& field, PyObject* value, std::optional<std::size_t> rows, const char* prefix);
    void keep(PyObject* owned);

    const Schema& schema_;
    std::array<PyObject*, 16> kept_{};
    std::size_t kept_count_ = 0;
    std::vector<PyObject*> kept_more_;
    std::vector<std::uint8_t> zeros_;  // flags that were not given
    std::array<std::uint64_t, kScalars> scalars_;
    std::size_t scalar_count_ = 0;
};

// Ids from an integer or a 1-D array of integers; throws TypeMistake or std::invalid_argument.
std::vector<std::int64_t> read_ids(PyObject* ids);

// Pointers to the fields of a write, in the schema's order, without allocating for ordinary schemas.
class Pointers {
  public:
    explicit Pointers(std::size_t count) : count_(count) {
        if (count > few_.size()) many_.resize(count);
    }
    const std::byte*& operator[](std::size_t i) noexcept { return data()[i]; }
    std::span<const std::byte* const> span() noexcept { return {data(), count_}; }

  private:
    const std::byte** data() noexcept { return many_.empty() ? few_.data() : many_.data(); }

    std::size_t count_;
    std::array<const std::byte*, 16> few_{};
    std::vector<const std::byte*> many_;
};

}  // namespace ringback::bindings
