#include "inputs.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "arguments.hpp"
#include "errors.hpp"

namespace py = pybind11;

namespace ringback::bindings {

ArrayType array_type(DType dtype) noexcept {
    switch (dtype) {
        case DType::b1:
            return {NPY_BOOL, 'b', 1};
        case DType::i8:
            return {NPY_INT8, 'i', 1};
        case DType::u8:
            return {NPY_UINT8, 'u', 1};
        case DType::i16:
            return {NPY_INT16, 'i', 2};
        case DType::u16:
            return {NPY_UINT16, 'u', 2};
        case DType::i32:
            return {NPY_INT32, 'i', 4};
        case DType::u32:
            return {NPY_UINT32, 'u', 4};
        case DType::i64:
            return {NPY_INT64, 'i', 8};
        case DType::u64:
            return {NPY_UINT64, 'u', 8};
        case DType::f16:
            return {NPY_FLOAT16, 'f', 2};
        case DType::f32:
            return {NPY_FLOAT32, 'f', 4};
        case DType::f64:
            return {NPY_FLOAT64, 'f', 8};
    }
    return {NPY_VOID, 'V', 0};
}

namespace {

std::string shape_text(std::span<const std::int64_t> shape, std::optional<std::size_t> rows) {
    std::string text = rows ? std::to_string(*rows) : "";
    for (const std::int64_t n : shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
    const bool single = shape.size() + (rows ? 1 : 0) == 1;
    return "(" + text + (single ? ",)" : ")");
}

std::string shape_text(PyArrayObject* array) {
    std::vector<std::int64_t> shape(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
    return shape_text(shape, std::nullopt);
}

// The field's row shape (behind a leading axis of `rows`); one-element rows may come with or without an axis of 1.
bool shape_fits(const Field& field, PyArrayObject* array, std::optional<std::size_t> rows) noexcept {
    const npy_intp* dims = PyArray_DIMS(array);
    std::size_t count = static_cast<std::size_t>(PyArray_NDIM(array));
    if (rows) {
        if (count == 0 || static_cast<std::size_t>(dims[0]) != *rows) return false;
        ++dims;
        --count;
    }
    const auto& shape = field.shape;
    const bool one_element = shape.empty() || (shape.size() == 1 && shape[0] == 1);
    if (one_element) return count == 0 || (count == 1 && dims[0] == 1);
    if (count != shape.size()) return false;
    for (std::size_t i = 0; i < count; ++i)
        if (dims[i] != shape[i]) return false;
    return true;
}

bool same_type(PyArrayObject* array, const ArrayType& type) noexcept {
    const PyArray_Descr* descr = PyArray_DESCR(array);
    return descr->kind == type.kind && static_cast<std::size_t>(PyArray_ITEMSIZE(array)) == type.bytes &&
           PyArray_ISNOTSWAPPED(array);
}

std::string dtype_name(PyArrayObject* array) {
    return py::str(py::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array)))).cast<std::string>();
}

std::string dtype_name_of(const ArrayType& type) {
    return py::str(py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type.number))))
        .cast<std::string>();
}

std::string rule_for(const Field& field) {
    switch (array_type(field.dtype).kind) {
        case 'b':
            return "must be bool";
        case 'f':
            return "must be a number";
        default:
            return "must have an integer dtype";
    }
}

// Integers must fit the field; what does not is named.
void check_range(const ArrayType& type, PyArrayObject* array, const std::string& name) {
    const py::object values = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(array));
    if (PyArray_SIZE(array) == 0) return;
    const int bits = static_cast<int>(type.bytes * 8) - (type.kind == 'i' ? 1 : 0);
    const py::int_ one(1);
    const py::object high = type.kind == 'b' ? py::object(one) : py::object((one << py::int_(bits)) - one);
    const py::object low = type.kind == 'i' ? py::object(-(one << py::int_(bits))) : py::object(py::int_(0));
    for (const char* extreme : {"min", "max"}) {
        const py::object value = values.attr(extreme)().attr("item")();
        if (value < low || value > high)
            throw std::invalid_argument(name + " must be in [" + py::str(low).cast<std::string>() + ", " +
                                        py::str(high).cast<std::string>() + "], got " +
                                        py::str(value).cast<std::string>());
    }
}

// Whether values of one kind may be stored as another at all.
void check_kind(const Field& field, const ArrayType& type, PyArrayObject* array, const std::string& name) {
    const char given = PyArray_DESCR(array)->kind;
    const bool number = given == 'b' || given == 'i' || given == 'u' || given == 'f';
    if (number && (type.kind == 'f' || given != 'f')) return;
    if (given == 'f') {
        const py::module_ numpy = py::module_::import("numpy");
        const py::object values = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(array));
        if (!numpy.attr("isfinite")(values).attr("all")().cast<bool>())
            throw std::invalid_argument(name + " must be finite integers, got " + shown(values.ptr()));
    }
    if (given == 'O')
        throw TypeMistake(name + " must be an array of numbers, got " + shown(reinterpret_cast<PyObject*>(array)));
    throw TypeMistake(name + " " + rule_for(field) +
                      (type.kind == 'f' || type.kind == 'b' ? "" : " (" + dtype_name_of(type) + ")") + ", got " +
                      dtype_name(array));
}

}  // namespace

Inputs::~Inputs() {
    for (std::size_t i = 0; i < kept_count_; ++i) Py_DECREF(kept_[i]);
    for (PyObject* object : kept_more_) Py_DECREF(object);
}

void Inputs::keep(PyObject* owned) {
    if (kept_count_ < kept_.size())
        kept_[kept_count_++] = owned;
    else
        kept_more_.push_back(owned);
}

const std::byte* Inputs::row(std::size_t field, PyObject* value, const char* prefix) {
    const Field& f = schema_.field(field);
    if (f.shape.empty())
        if (const std::byte* data = scalar(f, value)) return data;
    return array(f, value, std::nullopt, prefix);
}

const std::byte* Inputs::rows(std::size_t field, PyObject* value, std::size_t rows, const char* prefix) {
    return array(schema_.field(field), value, rows, prefix);
}

// The common scalars without going through an array; null: not one of them, or it needs a closer look.
const std::byte* Inputs::scalar(const Field& field, PyObject* value) {
    if (scalar_count_ == kScalars) return nullptr;
    auto* const place = reinterpret_cast<std::byte*>(&scalars_[scalar_count_]);
    const auto put = [&](auto number) {
        std::memcpy(place, &number, sizeof number);
        ++scalar_count_;
        return place;
    };
    const auto put_float = [&](double number) -> const std::byte* {
        if (field.dtype == DType::f32) return put(static_cast<float>(number));
        if (field.dtype == DType::f64) return put(number);
        return nullptr;
    };
    if (PyFloat_Check(value)) return put_float(PyFloat_AS_DOUBLE(value));
    if (PyArray_IsScalar(value, Float32)) return put_float(static_cast<double>(PyArrayScalar_VAL(value, Float32)));
    std::int64_t number;
    if (PyArray_IsScalar(value, Int64)) {
        number = PyArrayScalar_VAL(value, Int64);
    } else if (PyLong_Check(value)) {
        int overflow = 0;
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow != 0) return nullptr;
    } else if (PyArray_IsScalar(value, Int32)) {
        number = PyArrayScalar_VAL(value, Int32);
    } else {
        return nullptr;
    }
    switch (field.dtype) {
        case DType::i64:
            return put(number);
        case DType::f32:
            return put(static_cast<float>(number));
        case DType::f64:
            return put(static_cast<double>(number));
        case DType::i32:
            return number == static_cast<std::int32_t>(number) ? put(static_cast<std::int32_t>(number)) : nullptr;
        case DType::u8:
            return number == static_cast<std::uint8_t>(number) ? put(static_cast<std::uint8_t>(number)) : nullptr;
        case DType::i8:
            return number == static_cast<std::int8_t>(number) ? put(static_cast<std::int8_t>(number)) : nullptr;
        default:
            return nullptr;
    }
}

const std::byte* Inputs::array(const Field& field, PyObject* value, std::optional<std::size_t> rows,
                               const char* prefix) {
    const ArrayType type = array_type(field.dtype);
    if (PyArray_CheckExact(value)) {
        auto* const array = reinterpret_cast<PyArrayObject*>(value);
        if (same_type(array, type) && PyArray_IS_C_CONTIGUOUS(array) && shape_fits(field, array, rows)) {
            Py_INCREF(value);
            keep(value);
            return static_cast<const std::byte*>(PyArray_DATA(array));
        }
    }
    const std::string name = prefix + field.name;
    PyObject* const converted = PyArray_FromAny(value, nullptr, 0, 0, 0, nullptr);
    if (converted == nullptr) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_TypeError))
            throw py::error_already_set();
        PyErr_Clear();
        throw TypeMistake(name + " must be an array, got " + shown(value));
    }
    auto* array = reinterpret_cast<PyArrayObject*>(converted);
    const py::object held = py::reinterpret_steal<py::object>(converted);
    if (!PyTypeNum_ISNUMBER(PyArray_TYPE(array)) && !PyTypeNum_ISBOOL(PyArray_TYPE(array)) &&
        PyArray_TYPE(array) == NPY_OBJECT && PyArray_NDIM(array) == 0 && PyLong_Check(value))
        throw std::invalid_argument(name + " must fit in 64 bits, got " + shown(value));
    check_kind(field, type, array, name);
    if (!shape_fits(field, array, rows))
        throw std::invalid_argument(name + " must have shape " + shape_text(field.shape, rows) + ", got " +
                                    shape_text(array));
    const char given = PyArray_DESCR(array)->kind;
    if (type.kind != 'f' && !(given == type.kind && static_cast<std::size_t>(PyArray_ITEMSIZE(array)) <= type.bytes))
        check_range(type, array, name);
    PyObject* const stored = PyArray_FromAny(
        converted, PyArray_DescrFromType(type.number), 0, 0,
        NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST | NPY_ARRAY_ENSUREARRAY, nullptr);
    if (stored == nullptr) throw py::error_already_set();
    keep(stored);
    return static_cast<const std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(stored)));
}

const std::uint8_t* Inputs::flags(PyObject* value, std::size_t rows, const char* name) {
    if (value == nullptr || value == Py_None) {
        zeros_.resize(rows);
        return zeros_.data();
    }
    static const Field kFlag{"", DType::b1, {}, 1};
    Field field = kFlag;
    field.name = name;
    if (PyArray_CheckExact(value) && same_type(reinterpret_cast<PyArrayObject*>(value), array_type(DType::b1)))
        return reinterpret_cast<const std::uint8_t*>(array(field, value, rows, ""));
    // Numbers that are 0 or 1 are flags too (a textbook's float `done`).
    const py::module_ numpy = py::module_::import("numpy");
    const py::object given = numpy.attr("asarray")(py::handle(value));
    const auto kind = given.attr("dtype").attr("kind").cast<std::string>();
    if (kind != "b" && kind != "i" && kind != "u" && kind != "f")
        throw TypeMistake(std::string(name) + " must be bool, got " + py::str(given.attr("dtype")).cast<std::string>());
    const py::object as_bool = given.attr("astype")("bool");
    if (!numpy.attr("array_equal")(given, as_bool).cast<bool>())
        throw std::invalid_argument(std::string(name) + " must be True or False, got " + shown(given.ptr()));
    return reinterpret_cast<const std::uint8_t*>(array(field, as_bool.ptr(), rows, ""));
}

std::vector<std::int64_t> read_ids(PyObject* ids) {
    const py::object array =
        py::reinterpret_steal<py::object>(PyArray_FromAny(ids, nullptr, 0, 1, NPY_ARRAY_DEFAULT, nullptr));
    if (!array) {
        PyErr_Clear();
        throw TypeMistake("ids must be an integer or a 1-D array of integers, got " + shown(ids));
    }
    auto* const a = reinterpret_cast<PyArrayObject*>(array.ptr());
    const char kind = PyArray_DESCR(a)->kind;
    if (PyArray_SIZE(a) > 0 && kind != 'i' && kind != 'u') throw TypeMistake("ids must be integers, got " + shown(ids));
    if (kind == 'u' && PyArray_ITEMSIZE(a) == 8 && PyArray_SIZE(a) > 0) {
        const py::object largest = array.attr("max")().attr("item")();
        if (largest > py::int_(std::numeric_limits<std::int64_t>::max()))
            throw std::invalid_argument("ids must fit in 63 bits, got " + shown(largest.ptr()));
    }
    const py::object wide = py::reinterpret_steal<py::object>(PyArray_FromAny(
        array.ptr(), PyArray_DescrFromType(NPY_INT64), 0, 1, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST, nullptr));
    if (!wide) throw py::error_already_set();
    const auto* data = static_cast<const std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(wide.ptr())));
    return {data, data + PyArray_SIZE(a)};
}

}  // namespace ringback::bindings
