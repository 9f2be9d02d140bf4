#include <algorithm>
#include <cstring>
#include <type_traits>

#include "module.hpp"
#include "numpy.hpp"

namespace {

PyArrayObject* as_array(PyObject* object) noexcept { return reinterpret_cast<PyArrayObject*>(object); }

// An array of plain numbers that can be read and written as one block of memory.
bool is_plain(PyObject* object) noexcept {
    if (!PyArray_CheckExact(object)) return false;
    PyArrayObject* a = as_array(object);
    return PyArray_ISCARRAY_RO(a) && (PyArray_ISNUMBER(a) || PyArray_ISBOOL(a));
}

bool same_row_shape(PyArrayObject* rows, PyArrayObject* row) noexcept {
    return PyArray_NDIM(rows) == PyArray_NDIM(row) + 1 &&
           PyArray_CompareLists(PyArray_DIMS(rows) + 1, PyArray_DIMS(row), PyArray_NDIM(row));
}

// Calls f with a value of the C type of that number; false if it is none of the common ones.
template <class F>
bool with_type(int type_num, F f) {
    switch (type_num) {
        case NPY_FLOAT:
            return f(npy_float{});
        case NPY_DOUBLE:
            return f(npy_double{});
        case NPY_BOOL:
            return f(npy_bool{});
        case NPY_BYTE:
            return f(npy_byte{});
        case NPY_UBYTE:
            return f(npy_ubyte{});
        case NPY_SHORT:
            return f(npy_short{});
        case NPY_USHORT:
            return f(npy_ushort{});
        case NPY_INT:
            return f(npy_int{});
        case NPY_UINT:
            return f(npy_uint{});
        case NPY_LONG:
            return f(npy_long{});
        case NPY_ULONG:
            return f(npy_ulong{});
        case NPY_LONGLONG:
            return f(npy_longlong{});
        case NPY_ULONGLONG:
            return f(npy_ulonglong{});
        default:
            return false;
    }
}

// Whether `count` rows of `size` numbers are inside the bounds of a row; either bound may be absent. NaN is inside.
template <class T>
bool inside(const T* rows, std::size_t count, std::size_t size, const T* low, const T* high) noexcept {
    bool good = true;
    for (std::size_t r = 0; r < count; ++r, rows += size) {
        if (low)
            for (std::size_t k = 0; k < size; ++k) good &= !(rows[k] < low[k]);
        if (high)
            for (std::size_t k = 0; k < size; ++k) good &= !(rows[k] > high[k]);
    }
    return good;
}

// The bounds of a row as the leaf rules hold them: None, or an array of the rows' dtype and shape.
bool bound_ok(PyObject* bound, PyArrayObject* rows) noexcept {
    if (bound == Py_None) return true;
    return is_plain(bound) && PyArray_TYPE(as_array(bound)) == PyArray_TYPE(rows) &&
           same_row_shape(rows, as_array(bound));
}

bool block_inside(PyArrayObject* rows, const char* data, std::size_t count, PyObject* low, PyObject* high) {
    if (low == Py_None && high == Py_None) return true;
    if (!bound_ok(low, rows) || !bound_ok(high, rows)) return false;
    const npy_intp size = PyArray_MultiplyList(PyArray_DIMS(rows) + 1, PyArray_NDIM(rows) - 1);
    return with_type(PyArray_TYPE(rows), [&](auto zero) {
        using T = decltype(zero);
        const auto of = [](PyObject* bound) {
            return bound == Py_None ? nullptr : static_cast<const T*>(PyArray_DATA(as_array(bound)));
        };
        return inside(reinterpret_cast<const T*>(data), count, static_cast<std::size_t>(size), of(low), of(high));
    });
}

// Writes one number of Python or NumPy; false if it is not of a kind that the dtype holds exactly.
bool put_number(int type_num, PyObject* item, char* to) {
    if (PyFloat_Check(item)) {
        const double value = PyFloat_AS_DOUBLE(item);
        const float single = static_cast<float>(value);
        if (type_num == NPY_DOUBLE) return std::memcpy(to, &value, sizeof value), true;
        if (type_num == NPY_FLOAT) return std::memcpy(to, &single, sizeof single), true;
        return false;
    }
    if (PyLong_CheckExact(item)) {
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0) return false;
        return with_type(type_num,
                         [&](auto zero) {
                             using T = decltype(zero);
                             const T cast = static_cast<T>(value);
                             // Further out the way back to an integer would be undefined, and no double is exact.
                             constexpr long long kExact = 1LL << 53;
                             if (std::is_unsigned_v<T> && value < 0) return false;
                             if (value < -kExact || value > kExact || static_cast<long long>(cast) != value)
                                 return false;
                             std::memcpy(to, &cast, sizeof cast);
                             return true;
                         }) &&
               type_num != NPY_BOOL;
    }
    if (!PyArray_IsScalar(item, Number)) return false;
    PyArray_Descr* descr = PyArray_DescrFromScalar(item);
    const bool same = descr != nullptr && descr->type_num == type_num;
    Py_XDECREF(descr);
    if (same) PyArray_ScalarAsCtype(item, to);
    return same;
}

bool put(PyArrayObject* store, npy_intp position, PyObject* item) {
    char* to = PyArray_BYTES(store) + position * PyArray_STRIDE(store, 0);
    if (PyArray_NDIM(store) == 1) return put_number(PyArray_TYPE(store), item, to);
    if (!is_plain(item) || PyArray_TYPE(as_array(item)) != PyArray_TYPE(store) ||
        !same_row_shape(store, as_array(item)))
        return false;
    std::memcpy(to, PyArray_DATA(as_array(item)), static_cast<std::size_t>(PyArray_STRIDE(store, 0)));
    return true;
}

PyObject* rows_put(PyObject*, PyObject* const* args, Py_ssize_t n) {
    if (n != 5) return PyErr_SetString(PyExc_TypeError, "rows_put: wrong arguments"), nullptr;
    const Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    if (position == -1 && PyErr_Occurred()) return nullptr;
    if (!is_plain(args[0]) || !PyArray_ISWRITEABLE(as_array(args[0]))) Py_RETURN_FALSE;
    PyArrayObject* store = as_array(args[0]);
    if (PyArray_NDIM(store) < 1 || position < 0 || position >= PyArray_DIM(store, 0)) Py_RETURN_FALSE;
    if (!put(store, position, args[2])) Py_RETURN_FALSE;
    const char* row = PyArray_BYTES(store) + position * PyArray_STRIDE(store, 0);
    return PyBool_FromLong(block_inside(store, row, 1, args[3], args[4]));
}

PyObject* rows_inside(PyObject*, PyObject* const* args, Py_ssize_t n) {
    if (n != 3) return PyErr_SetString(PyExc_TypeError, "rows_inside: wrong arguments"), nullptr;
    if (!is_plain(args[0]) || PyArray_NDIM(as_array(args[0])) < 1) Py_RETURN_FALSE;
    PyArrayObject* rows = as_array(args[0]);
    const auto count = static_cast<std::size_t>(PyArray_DIM(rows, 0));
    return PyBool_FromLong(block_inside(rows, PyArray_BYTES(rows), count, args[1], args[2]));
}

// The dtype of the column that a list starting with this item could become; -1 for none.
int column_type(PyObject* first) {
    if (PyFloat_CheckExact(first)) return NPY_DOUBLE;
    if (PyLong_CheckExact(first)) return NPY_INT64;
    if (!PyArray_IsScalar(first, Number)) return -1;
    PyArray_Descr* descr = PyArray_DescrFromScalar(first);
    const int type_num = descr != nullptr ? descr->type_num : -1;
    Py_XDECREF(descr);
    return PyTypeNum_ISNUMBER(type_num) ? type_num : -1;
}

PyObject* stack_numbers(PyObject* items) {
    PyObject* first = PyList_GET_ITEM(items, 0);
    const int type_num = column_type(first);
    if (type_num < 0) Py_RETURN_NONE;
    npy_intp count = PyList_GET_SIZE(items);
    PyObject* out = PyArray_SimpleNew(1, &count, type_num);
    if (out == nullptr) return nullptr;
    char* to = PyArray_BYTES(as_array(out));
    const npy_intp step = PyArray_STRIDE(as_array(out), 0);
    for (npy_intp k = 0; k < count; ++k, to += step) {
        PyObject* item = PyList_GET_ITEM(items, k);
        if (Py_TYPE(item) != Py_TYPE(first) || !put_number(type_num, item, to)) {
            Py_DECREF(out);
            Py_RETURN_NONE;
        }
    }
    return out;
}

PyObject* stack_arrays(PyObject* items) {
    PyObject* first = PyList_GET_ITEM(items, 0);
    PyArrayObject* like = as_array(first);
    if (!is_plain(first) || PyArray_NDIM(like) >= NPY_MAXDIMS - 1) Py_RETURN_NONE;
    npy_intp dims[NPY_MAXDIMS];
    dims[0] = PyList_GET_SIZE(items);
    std::copy_n(PyArray_DIMS(like), PyArray_NDIM(like), dims + 1);
    PyObject* out = PyArray_SimpleNew(PyArray_NDIM(like) + 1, dims, PyArray_TYPE(like));
    if (out == nullptr) return nullptr;
    char* to = PyArray_BYTES(as_array(out));
    const auto bytes = static_cast<std::size_t>(PyArray_NBYTES(like));
    for (npy_intp k = 0; k < dims[0]; ++k, to += bytes) {
        PyObject* item = PyList_GET_ITEM(items, k);
        if (!is_plain(item) || PyArray_TYPE(as_array(item)) != PyArray_TYPE(like) ||
            !same_row_shape(as_array(out), as_array(item))) {
            Py_DECREF(out);
            Py_RETURN_NONE;
        }
        std::memcpy(to, PyArray_DATA(as_array(item)), bytes);
    }
    return out;
}

PyObject* rows_stack(PyObject*, PyObject* items) {
    if (!PyList_CheckExact(items) || PyList_GET_SIZE(items) == 0) Py_RETURN_NONE;
    return PyArray_CheckExact(PyList_GET_ITEM(items, 0)) ? stack_arrays(items) : stack_numbers(items);
}

// The last item of a track in list form; null, with or without an error set, if it has none.
PyObject* last_item(PyObject* episode, PyObject* name) {
    namespace py = pybind11;
    static PyObject* const kFinalized = PyUnicode_InternFromString("finalized");
    static PyObject* const kStore = PyUnicode_InternFromString("_store");
    const auto track = py::reinterpret_steal<py::object>(PyObject_GetAttr(episode, name));
    if (!track) return nullptr;
    const auto finalized = py::reinterpret_steal<py::object>(PyObject_GetAttr(track.ptr(), kFinalized));
    if (!finalized || finalized.ptr() != Py_False) return nullptr;
    const auto store = py::reinterpret_steal<py::object>(PyObject_GetAttr(track.ptr(), kStore));
    if (!store || !PyList_CheckExact(store.ptr()) || PyList_GET_SIZE(store.ptr()) == 0) return nullptr;
    PyObject* item = PyList_GET_ITEM(store.ptr(), PyList_GET_SIZE(store.ptr()) - 1);
    Py_INCREF(item);
    return item;
}

PyObject* rows_newest(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
    if (n_args != 2 || !PyUnicode_CheckExact(args[1]))
        return PyErr_SetString(PyExc_TypeError, "rows_newest: wrong arguments"), nullptr;
    const auto episodes = pybind11::reinterpret_steal<pybind11::object>(PySequence_List(args[0]));
    if (!episodes) return nullptr;
    const Py_ssize_t count = PyList_GET_SIZE(episodes.ptr());
    const auto items = pybind11::reinterpret_steal<pybind11::object>(PyList_New(count));
    if (!items) return nullptr;
    for (Py_ssize_t k = 0; k < count; ++k) {
        PyObject* item = last_item(PyList_GET_ITEM(episodes.ptr(), k), args[1]);
        if (item == nullptr) {
            if (PyErr_Occurred()) return nullptr;
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(items.ptr(), k, item);
    }
    return rows_stack(nullptr, items.ptr());
}

// A float32 array of zeros, shape (*values.shape, n).
PyObject* zeros_for(int ndim, const npy_intp* shape, npy_intp n) {
    npy_intp dims[NPY_MAXDIMS];
    std::copy_n(shape, ndim, dims);
    dims[ndim] = n;
    return PyArray_ZEROS(ndim + 1, dims, NPY_FLOAT, 0);
}

bool mark(float* row, long long value, long long n, long long start) noexcept {
    const auto place = static_cast<unsigned long long>(value) - static_cast<unsigned long long>(start);
    if (place >= static_cast<unsigned long long>(n)) return false;
    row[place] = 1.0F;
    return true;
}

bool code_array(PyArrayObject* values, float* row, long long n, long long start) {
    return with_type(PyArray_TYPE(values), [&](auto zero) {
        using T = decltype(zero);
        const T* value = static_cast<const T*>(PyArray_DATA(values));
        bool good = true;
        for (npy_intp k = 0; k < PyArray_SIZE(values); ++k, row += n)
            good = mark(row, static_cast<long long>(value[k]), n, start) && good;
        return good;
    });
}

PyObject* rows_one_hot(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
    if (n_args != 3) return PyErr_SetString(PyExc_TypeError, "rows_one_hot: wrong arguments"), nullptr;
    const long long n = PyLong_AsLongLong(args[1]);
    const long long start = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) return nullptr;
    PyObject* values = args[0];
    if (!is_plain(values) || !PyArray_ISINTEGER(as_array(values)) || PyArray_NDIM(as_array(values)) >= NPY_MAXDIMS - 1)
        Py_RETURN_NONE;
    PyObject* out = zeros_for(PyArray_NDIM(as_array(values)), PyArray_DIMS(as_array(values)), n);
    if (out == nullptr) return nullptr;
    if (code_array(as_array(values), static_cast<float*>(PyArray_DATA(as_array(out))), n, start)) return out;
    Py_DECREF(out);
    Py_RETURN_NONE;
}

// int64 has two type numbers where long and long long are alike.
bool is_int64(PyArrayObject* a) noexcept { return PyArray_ISSIGNED(a) && PyArray_ITEMSIZE(a) == 8; }

// Rows of k integers as k codes side by side.
template <class T>
bool code_rows(const T* value, npy_intp rows, float* row, const npy_int64* nvec, const npy_int64* start, npy_intp k) {
    bool good = true;
    for (npy_intp r = 0; r < rows; ++r)
        for (npy_intp c = 0; c < k; ++c, ++value) {
            good = mark(row, static_cast<long long>(*value), nvec[c], start[c]) && good;
            row += nvec[c];
        }
    return good;
}

PyObject* rows_one_hots(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
    if (n_args != 3) return PyErr_SetString(PyExc_TypeError, "rows_one_hots: wrong arguments"), nullptr;
    for (int i = 0; i < 3; ++i)
        if (!is_plain(args[i]) || !PyArray_ISINTEGER(as_array(args[i]))) Py_RETURN_NONE;
    PyArrayObject* values = as_array(args[0]);
    PyArrayObject* nvec = as_array(args[1]);
    PyArrayObject* start = as_array(args[2]);
    const npy_intp k = PyArray_SIZE(nvec);
    const int ndim = PyArray_NDIM(values);
    if (!is_int64(nvec) || !is_int64(start) || PyArray_SIZE(start) != k || ndim < 1 ||
        PyArray_DIM(values, ndim - 1) != k)
        Py_RETURN_NONE;
    const auto* sizes = static_cast<const npy_int64*>(PyArray_DATA(nvec));
    const auto* first = static_cast<const npy_int64*>(PyArray_DATA(start));
    long long width = 0;
    for (npy_intp c = 0; c < k; ++c) width += sizes[c];
    PyObject* out = zeros_for(ndim - 1, PyArray_DIMS(values), static_cast<npy_intp>(width));
    if (out == nullptr) return nullptr;
    const npy_intp rows = k == 0 ? 0 : PyArray_SIZE(values) / k;
    float* row = static_cast<float*>(PyArray_DATA(as_array(out)));
    const bool good = with_type(PyArray_TYPE(values), [&](auto zero) {
        using T = decltype(zero);
        return code_rows(static_cast<const T*>(PyArray_DATA(values)), rows, row, sizes, first, k);
    });
    if (good) return out;
    Py_DECREF(out);
    Py_RETURN_NONE;
}

PyObject* rows_same(PyObject*, PyObject* const* args, Py_ssize_t n_args) {
    if (n_args != 2) return PyErr_SetString(PyExc_TypeError, "rows_same: wrong arguments"), nullptr;
    if (!is_plain(args[0]) || !is_plain(args[1])) Py_RETURN_FALSE;
    PyArrayObject* a = as_array(args[0]);
    PyArrayObject* b = as_array(args[1]);
    const bool same = PyArray_TYPE(a) == PyArray_TYPE(b) && PyArray_NDIM(a) == PyArray_NDIM(b) &&
                      PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), PyArray_NDIM(a)) &&
                      std::memcmp(PyArray_DATA(a), PyArray_DATA(b), static_cast<std::size_t>(PyArray_NBYTES(a))) == 0;
    return PyBool_FromLong(same);
}

template <class F>
PyCFunction fast(F f) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

PyMethodDef kMethods[] = {
    {"rows_put", fast(rows_put), METH_FASTCALL,
     "rows_put($module, rows, position, item, low, high, /)\n--\n\n"
     "Write one item into a row of an array. False if the item is not of the array's kind, or not inside the bounds\n"
     "(None or arrays of a row's shape and dtype); the row may be written then all the same."},
    {"rows_inside", fast(rows_inside), METH_FASTCALL,
     "rows_inside($module, rows, low, high, /)\n--\n\n"
     "Whether all rows are inside the bounds. False may also mean that this function cannot tell."},
    {"rows_stack", rows_stack, METH_O,
     "rows_stack($module, items, /)\n--\n\n"
     "A list of arrays of one shape and dtype, or of numbers of one type, as one array; None if it is no such list."},
    {"rows_newest", fast(rows_newest), METH_FASTCALL,
     "rows_newest($module, episodes, track, /)\n--\n\n"
     "What rows_stack makes of the last item of each episode's track of that name; None also if a track is not in "
     "list\n"
     "form, or has no item."},
    {"rows_one_hot", fast(rows_one_hot), METH_FASTCALL,
     "rows_one_hot($module, values, n, start, /)\n--\n\n"
     "An array of integers as one-hot rows, float32; None if it is no such array or a value is outside."},
    {"rows_one_hots", fast(rows_one_hots), METH_FASTCALL,
     "rows_one_hots($module, values, nvec, start, /)\n--\n\n"
     "Rows of integers, shape (..., k), as their one-hot codes side by side, float32; nvec and start are int64 arrays\n"
     "of length k. None if the arrays are no such ones or a value is outside."},
    {"rows_same", fast(rows_same), METH_FASTCALL,
     "rows_same($module, a, b, /)\n--\n\n"
     "Whether two arrays are the same byte for byte. False may also mean that this function cannot tell."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

namespace ringback::bindings {

void bind_episode_rows(pybind11::module_& m) {
    if (PyModule_AddFunctions(m.ptr(), kMethods) < 0) throw pybind11::error_already_set();
}

}  // namespace ringback::bindings
