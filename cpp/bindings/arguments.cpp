#include "arguments.hpp"

#include "numpy.hpp"

namespace py = pybind11;

namespace ringback::bindings {

std::string shown(PyObject* value) {
    if (PyArray_Check(value) && PyArray_SIZE(reinterpret_cast<PyArrayObject*>(value)) > 4) {
        const py::object array = py::reinterpret_borrow<py::object>(value);
        return "an array of shape " + py::repr(array.attr("shape")).cast<std::string>() + " and dtype " +
               py::str(array.attr("dtype")).cast<std::string>();
    }
    PyObject* const repr = PyObject_Repr(value);
    if (repr == nullptr) {
        PyErr_Clear();
        return std::string("a ") + Py_TYPE(value)->tp_name;
    }
    std::string text = py::reinterpret_steal<py::str>(repr);
    constexpr std::size_t kMost = 80;
    if (text.size() > kMost) {
        std::size_t cut = kMost;
        while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0U) == 0x80U) --cut;  // not inside a character
        text = text.substr(0, cut) + "...";
    }
    return text;
}

std::int64_t read_integer(PyObject* value, const char* name) {
    if (PyBool_Check(value) || PyArray_IsScalar(value, Bool) || !PyIndex_Check(value))
        throw TypeMistake(std::string(name) + " must be an integer, got " + shown(value));
    const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(value));
    if (!index) {
        PyErr_Clear();
        throw TypeMistake(std::string(name) + " must be an integer, got " + shown(value));
    }
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0) throw std::invalid_argument(std::string(name) + " must fit in 64 bits, got " + shown(value));
    if (number == -1 && PyErr_Occurred()) throw py::error_already_set();
    return number;
}

std::int64_t read_count(PyObject* value, const char* name) {
    const std::int64_t number = read_integer(value, name);
    if (number < 1) throw std::invalid_argument(std::string(name) + " must be >= 1, got " + std::to_string(number));
    return number;
}

std::string read_text(PyObject* value, const char* name) {
    if (!PyUnicode_Check(value)) throw TypeMistake(std::string(name) + " must be a string, got " + shown(value));
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text == nullptr) {
        PyErr_Clear();
        throw std::invalid_argument(std::string(name) + " must be valid Unicode text, got " + shown(value));
    }
    return {text, static_cast<std::size_t>(size)};
}

bool read_flag(PyObject* value, const char* name) {
    if (value == Py_True) return true;
    if (value == Py_False) return false;
    if (PyArray_IsScalar(value, Bool)) return PyArrayScalar_VAL(value, Bool) != 0;
    py::object number;
    if (PyArray_Check(value) && PyArray_SIZE(reinterpret_cast<PyArrayObject*>(value)) == 1)
        return read_flag(py::reinterpret_borrow<py::object>(value).attr("item")().ptr(), name);
    if (PyNumber_Check(value) && !PyArray_Check(value))
        number = py::reinterpret_steal<py::object>(PyNumber_Float(value));
    if (!number) {
        PyErr_Clear();
        throw TypeMistake(std::string(name) + " must be a bool, got " + shown(value));
    }
    const double flag = PyFloat_AS_DOUBLE(number.ptr());
    if (flag != 0.0 && flag != 1.0)
        throw std::invalid_argument(std::string(name) + " must be True or False, got " + shown(value));
    return flag == 1.0;
}

}  // namespace ringback::bindings
