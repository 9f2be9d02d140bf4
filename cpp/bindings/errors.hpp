#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <stdexcept>
#include <string>

// Errors on their way to Python. The core and the conversions say what is wrong without saying where; report puts
// "Where: " in front and picks the exception class.
namespace ringback::bindings {

struct TypeMistake : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void report(const char* where, std::exception_ptr error) noexcept {
    const auto raise = [&](PyObject* type, const char* what) { PyErr_Format(type, "%s: %s", where, what); };
    try {
        std::rethrow_exception(error);
    } catch (pybind11::error_already_set& e) {
        e.restore();
    } catch (const TypeMistake& e) {
        raise(PyExc_TypeError, e.what());
    } catch (const std::out_of_range& e) {
        raise(PyExc_IndexError, e.what());
    } catch (const std::invalid_argument& e) {
        raise(PyExc_ValueError, e.what());
    } catch (const std::bad_alloc& e) {
        raise(PyExc_MemoryError, e.what());
    } catch (const std::exception& e) {
        raise(PyExc_RuntimeError, e.what());
    }
}

// Runs f for a method that pybind11 calls.
template <class F>
auto named(const char* where, F&& f) {
    try {
        return f();
    } catch (...) {
        report(where, std::current_exception());
        throw pybind11::error_already_set();
    }
}

// A value for a message: its repr, or shape and dtype of an array.
std::string shown(PyObject* value);

}  // namespace ringback::bindings
