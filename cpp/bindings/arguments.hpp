#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <string>

#include "errors.hpp"

namespace ringback::bindings {

// Arguments of a METH_FASTCALL | METH_KEYWORDS method by name: pybind11's own handling costs more than the hot calls.
// The first `required` must be given, the first `positional` may be given by position.
template <std::size_t N>
struct Signature {
    std::array<const char*, N> names;
    std::size_t required;
    std::size_t positional;

    using Values = std::array<PyObject*, N>;  // borrowed; null where absent

    Values parse(PyObject* const* args, Py_ssize_t given, PyObject* keywords) const {
        Values values{};
        if (static_cast<std::size_t>(given) > positional)
            throw TypeMistake("at most " + std::to_string(positional) + " positional argument" +
                              (positional == 1 ? "" : "s") + " must be given, got " + std::to_string(given));
        for (Py_ssize_t i = 0; i < given; ++i) values[static_cast<std::size_t>(i)] = args[i];
        const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
        for (Py_ssize_t k = 0; k < named; ++k) {
            PyObject* const keyword = PyTuple_GET_ITEM(keywords, k);
            std::size_t i = 0;
            while (i < N && PyUnicode_CompareWithASCIIString(keyword, names[i]) != 0) ++i;
            if (i == N) throw TypeMistake("arguments must be among " + listed() + ", got " + shown(keyword));
            if (values[i] != nullptr) throw TypeMistake(std::string(names[i]) + " must be given once, got it twice");
            values[i] = args[given + k];
        }
        for (std::size_t i = 0; i < required; ++i)
            if (values[i] == nullptr) throw TypeMistake(std::string(names[i]) + " must be given");
        return values;
    }

  private:
    std::string listed() const {
        std::string all;
        for (const char* name : names) all += (all.empty() ? "" : ", ") + std::string(name);
        return all;
    }
};

// An integer (anything with __index__, but no bool) in int64; throws TypeMistake or std::invalid_argument.
std::int64_t read_integer(PyObject* value, const char* name);
// The same, at least 1.
std::int64_t read_count(PyObject* value, const char* name);
// A str that is valid Unicode.
std::string read_text(PyObject* value, const char* name);
// Anything that equals 0 or 1: bool, np.bool_, number, array of one element.
bool read_flag(PyObject* value, const char* name);

}  // namespace ringback::bindings
