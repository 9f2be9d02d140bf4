#include "ringback/lookback.hpp"

#include "module.hpp"
#include "numpy.hpp"

// The resolver for Python: plain CPython functions, because pybind11's own argument handling costs more than the work.
//
// All of them take `indices` as an episode's getters do: None, anything with __index__, a slice, or a sequence of
// things with __index__ (list, tuple, integer array).
namespace {

using ringback::Extent;
using ringback::Negative;
using ringback::Outside;

struct Ref {  // an owned reference
    PyObject* p;
    explicit Ref(PyObject* owned) noexcept : p(owned) {}
    ~Ref() { Py_XDECREF(p); }
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;
    PyObject* release() noexcept { return std::exchange(p, nullptr); }
    explicit operator bool() const noexcept { return p != nullptr; }
};

// What all functions share: the extent, the meaning of negative indices, what becomes of items outside, and the name
// for messages.
struct Request {
    Extent extent;
    Negative negative;
    Outside outside;
    PyObject* where;  // borrowed
};

Negative negative_of(PyObject* neg_index_as_lookback) noexcept {
    return PyObject_IsTrue(neg_index_as_lookback) == 1 ? Negative::kIntoLookback : Negative::kFromEnd;
}

void raise_bad_type(const Request& r, PyObject* indices) {
    PyErr_Format(PyExc_TypeError, "%U: indices must be None, an int, a slice, or a sequence of ints, got %R", r.where,
                 indices);
}

void raise_outside(const Request& r, PyObject* index) {
    const auto size = static_cast<long long>(r.extent.end - r.extent.begin);
    const long long low = r.negative == Negative::kFromEnd ? -size : r.extent.begin;
    PyErr_Format(PyExc_IndexError,
                 "%U: indices must be in [%lld, %lld) with %lld lookback steps, got %S; pass fill= to pad", r.where,
                 low, static_cast<long long>(r.extent.end), static_cast<long long>(-r.extent.begin), index);
}

// NumPy's own bool is no index, but older releases take it for one with no more than a warning.
bool is_numpy_bool(PyObject* index) noexcept { return PyArray_IsScalar(index, Bool); }

// The position in the data (time + lookback) that one index means, -1 for a fill, -2 with an error set.
std::int64_t position_of(const Request& r, PyObject* index) {
    if (is_numpy_bool(index)) {
        raise_bad_type(r, index);
        return -2;
    }
    const Py_ssize_t i = PyNumber_AsSsize_t(index, nullptr);  // beyond the range: its nearest end
    if (i == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -2;
        PyErr_Clear();
        raise_bad_type(r, index);
        return -2;
    }
    const std::int64_t time = ringback::resolve_index(r.extent, i, r.negative);
    if (r.extent.holds(time)) return time - r.extent.begin;
    if (r.outside == Outside::kFill) return -1;
    raise_outside(r, index);
    return -2;
}

bool bound_of(const Request& r, PyObject* given, std::optional<std::int64_t>& out) {
    if (given == Py_None) return true;
    const Py_ssize_t value = PyNumber_AsSsize_t(given, nullptr);
    if (value == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
        raise_bad_type(r, given);
        return false;
    }
    out = value;
    return true;
}

// indices is None or a slice.
bool window_of(const Request& r, PyObject* indices, ringback::StridedWindow& out) {
    ringback::SliceBounds bounds;
    if (indices != Py_None) {
        auto* slice = reinterpret_cast<PySliceObject*>(indices);
        std::optional<std::int64_t> step;
        if (!bound_of(r, slice->start, bounds.start) || !bound_of(r, slice->stop, bounds.stop) ||
            !bound_of(r, slice->step, step))
            return false;
        bounds.step = step.value_or(1);
        if (bounds.step == 0) {
            PyErr_Format(PyExc_ValueError, "%U: the step of a slice must not be 0, got %R", r.where, indices);
            return false;
        }
    }
    out = ringback::resolve_slice(r.extent, bounds, r.negative, r.outside);
    return true;
}

bool is_window(PyObject* indices) noexcept { return indices == Py_None || PySlice_Check(indices); }

// One index? (A one-dimensional array has __index__ too, but refuses to be one.)
bool is_single(PyObject* indices) noexcept {
    if (PyLong_Check(indices)) return true;
    if (PyList_Check(indices) || PyTuple_Check(indices) || !PyIndex_Check(indices) || is_numpy_bool(indices))
        return false;
    const Ref as_int(PyNumber_Index(indices));
    if (!as_int) PyErr_Clear();
    return static_cast<bool>(as_int);
}

PyObject* sequence_of(const Request& r, PyObject* indices) {
    if (PySequence_Check(indices) && !PyUnicode_Check(indices) && !PyBytes_Check(indices)) {
        PyObject* items = PySequence_Fast(indices, "");
        if (items != nullptr) return items;
        PyErr_Clear();
    }
    raise_bad_type(r, indices);
    return nullptr;
}

// What `made_of` makes of the position of one index, or the list of what it makes of those of several.
template <class MadeOf>
PyObject* for_indices(const Request& r, PyObject* indices, MadeOf made_of) {
    const auto one = [&](PyObject* index) -> PyObject* {
        const std::int64_t position = position_of(r, index);
        return position == -2 ? nullptr : made_of(position, index);
    };
    if (is_single(indices)) return one(indices);
    const Ref items(sequence_of(r, indices));
    if (!items) return nullptr;
    Ref out(PyList_New(0));
    if (!out) return nullptr;
    // The length is asked for again each time: an item's __index__ is any code, and could change the list.
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.p); ++k) {
        const Ref index(Py_NewRef(PySequence_Fast_GET_ITEM(items.p, k)));
        const Ref made(one(index.p));
        if (!made || PyList_Append(out.p, made.p) < 0) return nullptr;
    }
    return out.release();
}

PyObject* taken(PyObject* data, std::int64_t position, PyObject* fill) {
    return Py_NewRef(position < 0 ? fill : PyList_GET_ITEM(data, static_cast<Py_ssize_t>(position)));
}

PyObject* take_window(const Request& r, PyObject* data, PyObject* indices, PyObject* fill) {
    ringback::StridedWindow w{};
    if (!window_of(r, indices, w)) return nullptr;
    const std::int64_t total = w.fill_left + w.count + w.fill_right;
    PyObject* out = PyList_New(static_cast<Py_ssize_t>(total));
    if (out == nullptr) return nullptr;
    // A bound's __index__ is any code, and so is what the garbage collector may have run: is the list still the same?
    if (PyList_GET_SIZE(data) != r.extent.end - r.extent.begin) {
        Py_DECREF(out);
        PyErr_Format(PyExc_RuntimeError, "%U: the data must not change while it is read, got %zd items", r.where,
                     PyList_GET_SIZE(data));
        return nullptr;
    }
    std::int64_t position = w.first - r.extent.begin;
    for (std::int64_t k = 0; k < total; ++k) {
        const bool present = w.fill_left <= k && k < w.fill_left + w.count;
        PyList_SET_ITEM(out, static_cast<Py_ssize_t>(k), taken(data, present ? position : -1, fill));
        if (present) position += w.step;
    }
    return out;
}

bool read_request(PyObject* size_from, PyObject* lookback, PyObject* neg, bool filled, PyObject* where, Request& out) {
    const std::int64_t size = PyList_Check(size_from) ? PyList_GET_SIZE(size_from) : PyLong_AsLongLong(size_from);
    const std::int64_t rows_before = PyLong_AsLongLong(lookback);
    if ((size == -1 || rows_before == -1) && PyErr_Occurred()) return false;
    if (rows_before < 0 || rows_before > size) {
        PyErr_Format(PyExc_ValueError, "lookback: lookback must be in [0, %lld], got %lld",
                     static_cast<long long>(size), static_cast<long long>(rows_before));
        return false;
    }
    out = {{-rows_before, size - rows_before}, negative_of(neg), filled ? Outside::kFill : Outside::kClip, where};
    return true;
}

bool check_call(const char* name, PyObject* const* args, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most,
                Py_ssize_t where) {
    if (given < least || given > most || !PyUnicode_Check(args[where])) {
        PyErr_Format(PyExc_TypeError, "%s: wrong arguments", name);
        return false;
    }
    return true;
}

PyObject* lookback_take(PyObject*, PyObject* const* args, Py_ssize_t n) {
    if (!check_call("lookback_take", args, n, 5, 6, 4)) return nullptr;
    PyObject* data = args[0];
    PyObject* indices = args[2];
    PyObject* fill = n == 6 ? args[5] : nullptr;
    if (!PyList_Check(data)) {
        PyErr_Format(PyExc_TypeError, "lookback_take: data must be a list, got %R", data);
        return nullptr;
    }
    Request r{};
    if (!read_request(data, args[1], args[3], fill != nullptr, args[4], r)) return nullptr;
    if (is_window(indices)) return take_window(r, data, indices, fill);
    return for_indices(r, indices, [&](std::int64_t position, PyObject* index) -> PyObject* {
        if (position < PyList_GET_SIZE(data)) return taken(data, position, fill);
        raise_outside(r, index);  // its __index__ has shortened the list
        return nullptr;
    });
}

// The present rows of a window as a slice of the data.
PyObject* slice_of(const Request& r, const ringback::StridedWindow& w) {
    const std::int64_t start = w.count > 0 ? w.first - r.extent.begin : 0;
    const std::int64_t stop = w.count > 0 ? start + (w.count - 1) * w.step + (w.step > 0 ? 1 : -1) : 0;
    const Ref start_obj(PyLong_FromLongLong(start));
    const Ref stop_obj(stop < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(stop));
    const Ref step_obj(w.step == 1 ? Py_NewRef(Py_None) : PyLong_FromLongLong(w.step));
    if (!start_obj || !stop_obj || !step_obj) return nullptr;
    return PySlice_New(start_obj.p, stop_obj.p, step_obj.p);
}

PyObject* positions_of_window(const Request& r, PyObject* indices) {
    ringback::StridedWindow w{};
    if (!window_of(r, indices, w)) return nullptr;
    Ref slice(slice_of(r, w));
    if (!slice) return nullptr;
    return Py_BuildValue("LNLL", static_cast<long long>(w.fill_left), slice.release(), static_cast<long long>(w.count),
                         static_cast<long long>(w.fill_right));
}

PyObject* lookback_positions(PyObject*, PyObject* const* args, Py_ssize_t n) {
    if (!check_call("lookback_positions", args, n, 6, 6, 5)) return nullptr;
    PyObject* indices = args[2];
    Request r{};
    if (!read_request(args[0], args[1], args[3], PyObject_IsTrue(args[4]) == 1, args[5], r)) return nullptr;
    if (is_window(indices)) return positions_of_window(r, indices);
    return for_indices(r, indices, [](std::int64_t position, PyObject*) { return PyLong_FromLongLong(position); });
}

PyObject* lookback_window(PyObject*, PyObject* const* args, Py_ssize_t n) {
    long long v[4];
    if (n != 4) {
        PyErr_SetString(PyExc_TypeError, "lookback_window: wrong arguments");
        return nullptr;
    }
    for (int k = 0; k < 4; ++k) {
        v[k] = PyLong_AsLongLong(args[k]);
        if (v[k] == -1 && PyErr_Occurred()) return nullptr;
    }
    const ringback::Window w = ringback::resolve_window({v[0], v[1]}, v[2], v[3]);
    return Py_BuildValue("LLLL", static_cast<long long>(w.fill_left), static_cast<long long>(w.first),
                         static_cast<long long>(w.count), static_cast<long long>(w.fill_right));
}

template <class F>
PyCFunction fast(F f) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

PyMethodDef kMethods[] = {
    {"lookback_take", fast(lookback_take), METH_FASTCALL,
     "lookback_take($module, data, lookback, indices, neg_index_as_lookback, where, fill=<none>, /)\n--\n\n"
     "The items of a list that indices ask for: one item for an index, else a list. Without fill, an index outside\n"
     "raises IndexError and a slice clips; with fill, the missing ones are that object."},
    {"lookback_positions", fast(lookback_positions), METH_FASTCALL,
     "lookback_positions($module, size, lookback, indices, neg_index_as_lookback, fill, where, /)\n--\n\n"
     "Where in data of that size the rows lie: an int for an index, (fill_left, slice, count, fill_right) for None or\n"
     "a slice, a list of ints for a sequence. With fill true, -1 stands for a missing row, else that is an "
     "IndexError."},
    {"lookback_window", fast(lookback_window), METH_FASTCALL,
     "lookback_window($module, begin, end, start, stop, /)\n--\n\n"
     "The times [start, stop) in the extent [begin, end): (fill_left, first, count, fill_right)."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

namespace ringback::bindings {

void bind_lookback(pybind11::module_& m) {
    if (PyModule_AddFunctions(m.ptr(), kMethods) < 0) throw pybind11::error_already_set();
}

}  // namespace ringback::bindings
