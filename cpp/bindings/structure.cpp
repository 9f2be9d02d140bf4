#include "structure.hpp"

#include "errors.hpp"

namespace py = pybind11;

namespace ringback::bindings {

namespace {

DType dtype_of(const std::string& name) {
    static constexpr std::pair<const char*, DType> kNames[] = {
        {"bool", DType::b1},    {"int8", DType::i8},     {"uint8", DType::u8},    {"int16", DType::i16},
        {"uint16", DType::u16}, {"int32", DType::i32},   {"uint32", DType::u32},  {"int64", DType::i64},
        {"uint64", DType::u64}, {"float16", DType::f16}, {"float32", DType::f32}, {"float64", DType::f64}};
    for (const auto& [known, dtype] : kNames)
        if (name == known) return dtype;
    throw std::invalid_argument("dtype must be bool, an integer or a float of 16 to 64 bits, got " + name);
}

}  // namespace

Structure::Structure(py::handle spec, std::vector<Field>& fields) {
    const auto parts = spec.cast<py::tuple>();
    const auto kind = parts[0].cast<std::string>();
    path_ = parts[1].cast<std::string>();
    if (kind == "leaf") {
        field_ = fields.size();
        fields.push_back(
            {path_, dtype_of(parts[2].cast<std::string>()), parts[3].cast<std::vector<std::int64_t>>(), 0});
        return;
    }
    kind_ = kind == "dict" ? Kind::dict : Kind::tuple;
    for (const py::handle item : parts[2].cast<py::tuple>()) {
        if (kind_ == Kind::dict) keys_.push_back(item.cast<py::tuple>()[0]);
        children_.emplace_back(
            kind_ == Kind::dict ? py::object(item.cast<py::tuple>()[1]) : py::reinterpret_borrow<py::object>(item),
            fields);
    }
}

std::size_t Structure::find(const std::string& key) const {
    std::size_t i = 0;
    while (i < keys_.size() && !(PyUnicode_Check(keys_[i].ptr()) && keys_[i].cast<std::string>() == key)) ++i;
    return i;
}

std::pair<std::size_t, std::size_t> Structure::leaves() const {
    if (kind_ == Kind::leaf) return {field_, field_ + 1};
    if (children_.empty()) return {0, 0};
    return {children_.front().leaves().first, children_.back().leaves().second};
}

py::object Structure::check_dict(PyObject* value, const char* prefix) const {
    if (!PyDict_Check(value)) throw TypeMistake(prefix + path_ + " must be a dict, got " + shown(value));
    if (static_cast<std::size_t>(PyDict_Size(value)) != keys_.size()) {
        py::list keys;
        for (const auto& key : keys_) keys.append(key);
        throw std::invalid_argument(prefix + path_ + " must have the keys " + py::repr(keys).cast<std::string>() +
                                    ", got " +
                                    py::repr(py::list(py::reinterpret_borrow<py::dict>(value))).cast<std::string>());
    }
    return py::reinterpret_borrow<py::object>(value);
}

py::object Structure::check_tuple(PyObject* value, const char* prefix) const {
    if (!PyTuple_Check(value) && !PyList_Check(value))
        throw TypeMistake(prefix + path_ + " must be a tuple, got " + shown(value));
    auto held = py::reinterpret_steal<py::object>(PySequence_Tuple(value));
    if (!held) throw py::error_already_set();
    if (static_cast<std::size_t>(PyTuple_GET_SIZE(held.ptr())) != children_.size())
        throw std::invalid_argument(prefix + path_ + " must have " + std::to_string(children_.size()) + " parts, got " +
                                    std::to_string(PyTuple_GET_SIZE(held.ptr())));
    return held;
}

py::object Structure::child(PyObject* value, std::size_t i, const char* prefix) const {
    if (kind_ == Kind::tuple)
        return py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(value, static_cast<Py_ssize_t>(i)));
    PyObject* const item = PyDict_GetItemWithError(value, keys_[i].ptr());
    if (item == nullptr) {
        if (PyErr_Occurred()) throw py::error_already_set();
        throw std::invalid_argument(prefix + path_ + " must have the key " + shown(keys_[i].ptr()) + ", got " +
                                    py::repr(py::list(py::reinterpret_borrow<py::dict>(value))).cast<std::string>());
    }
    return py::reinterpret_borrow<py::object>(item);
}

}  // namespace ringback::bindings
