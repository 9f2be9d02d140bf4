#include "requests.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arguments.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "numpy.hpp"

namespace py = pybind11;

namespace ringback::bindings {

namespace {

bool is_given(PyObject* value) noexcept { return value != nullptr && value != Py_None; }

double read_number(PyObject* value, const char* name) {
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        throw TypeMistake(std::string(name) + " must be a number, got " + shown(value));
    }
    return number;
}

template <class T>
bool holds(double value) noexcept {
    return value == std::floor(value) && value >= static_cast<double>(std::numeric_limits<T>::min()) &&
           value <= static_cast<double>(std::numeric_limits<T>::max()) &&
           (sizeof(T) < 8 || std::abs(value) <= 9007199254740992.0);
}

bool holds(DType dtype, double value) noexcept {
    switch (dtype) {
        case DType::b1:
            return value == 0.0 || value == 1.0;
        case DType::i8:
            return holds<std::int8_t>(value);
        case DType::u8:
            return holds<std::uint8_t>(value);
        case DType::i16:
            return holds<std::int16_t>(value);
        case DType::u16:
            return holds<std::uint16_t>(value);
        case DType::i32:
            return holds<std::int32_t>(value);
        case DType::u32:
            return holds<std::uint32_t>(value);
        case DType::i64:
            return holds<std::int64_t>(value);
        case DType::u64:
            return holds<std::uint64_t>(value);
        case DType::f16:
            return !std::isfinite(value) || std::abs(value) < 65520.0;
        case DType::f32:
            return !std::isfinite(value) || std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
        case DType::f64:
            return true;
    }
    return false;
}

// A row of the field with that value, which it can hold, in each element.
std::vector<std::byte> filled_row(const Field& field, double value) {
    PyArray_Descr* const descr = PyArray_DescrFromType(array_type(field.dtype).number);
    const py::object element = py::reinterpret_steal<py::object>(
        PyArray_FromAny(py::float_(value).ptr(), descr, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST, nullptr));
    if (!element) throw py::error_already_set();
    const void* const bytes = PyArray_DATA(reinterpret_cast<PyArrayObject*>(element.ptr()));
    std::vector<std::byte> row(field.bytes);
    for (std::size_t at = 0; at < row.size(); at += size_of(field.dtype))
        std::memcpy(row.data() + at, bytes, size_of(field.dtype));
    return row;
}

bool flag(PyObject* value, const char* name) { return value != nullptr && read_flag(value, name); }

}  // namespace

Sums read_sums(PyObject* n_step, PyObject* gamma) {
    Sums sums;
    if (n_step != nullptr && (PyTuple_Check(n_step) || PyList_Check(n_step))) {
        const py::object pair = py::reinterpret_steal<py::object>(PySequence_Tuple(n_step));
        if (PyTuple_GET_SIZE(pair.ptr()) != 2)
            throw std::invalid_argument("n_step must be an integer or a pair (low, high), got " + shown(n_step));
        sums.low = read_count(PyTuple_GET_ITEM(pair.ptr(), 0), "n_step[0]");
        sums.high = read_count(PyTuple_GET_ITEM(pair.ptr(), 1), "n_step[1]");
        if (sums.low > sums.high)
            throw std::invalid_argument("n_step must be a pair (low, high) with low <= high, got " + shown(n_step));
    } else if (n_step != nullptr) {
        sums.low = sums.high = read_count(n_step, "n_step");
    }
    if (is_given(gamma)) {
        sums.gamma = read_number(gamma, "gamma");
        if (!(*sums.gamma >= 0.0 && *sums.gamma <= 1.0))
            throw std::invalid_argument("gamma must be in [0, 1], got " + shown(gamma));
    } else if (sums.high > 1) {
        throw std::invalid_argument("gamma must be given with n_step > 1, got None");
    }
    return sums;
}

std::int64_t Stacks::history() const noexcept {
    std::int64_t most = 1;
    for (const std::int64_t n : frames) most = std::max(most, n);
    return most - 1;
}

Stacks read_stacks(PyObject* stack, PyObject* fill, const Parts& parts) {
    Stacks stacks;
    const std::vector<Field>& leaves = parts.observation.fields;
    if (is_given(stack)) {
        if (PyDict_Check(stack)) {
            stacks.frames.assign(leaves.size(), 0);
            for (const auto& [key, frames] : py::reinterpret_borrow<py::dict>(stack)) {
                const std::string path = "observation/" + read_text(key.ptr(), "a key of stack");
                std::size_t leaf = 0;
                while (leaf < leaves.size() && leaves[leaf].name != path) ++leaf;
                if (leaf == leaves.size())
                    throw std::invalid_argument("stack must name leaves of the observation, got " + shown(key.ptr()));
                stacks.frames[leaf] = read_count(frames.ptr(), "stack");
            }
        } else {
            stacks.frames.assign(leaves.size(), read_count(stack, "stack"));
        }
    }
    if (!is_given(fill)) return stacks;
    if (PyUnicode_Check(fill)) {
        if (PyUnicode_CompareWithASCIIString(fill, "first") != 0)
            throw std::invalid_argument("stack_fill must be \"first\" or a number, got " + shown(fill));
        return stacks;
    }
    const double value = read_number(fill, "stack_fill");
    stacks.fills.resize(leaves.size());
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
        if (stacks.of(leaf) == 0) continue;
        if (!holds(leaves[leaf].dtype, value))
            throw std::invalid_argument("stack_fill must be a value that " + leaves[leaf].name + " can hold, got " +
                                        shown(fill));
        stacks.fills[leaf] = filled_row(parts.schema.field(leaf), value);
    }
    return stacks;
}

WindowSpec read_window_spec(PyObject* length, PyObject* pad, PyObject* period, PyObject* stack, const Parts& parts,
                            const char* length_name) {
    WindowSpec spec;
    if (length != nullptr) spec.length = read_count(length, length_name);
    if (period != nullptr) spec.period = read_count(period, "period");
    spec.pad = flag(pad, "pad");
    spec.history = read_stacks(stack, nullptr, parts).history();
    return spec;
}

SequenceRequest read_sequence_request(const SequenceArguments& given, std::int64_t length, const Parts& parts) {
    SequenceRequest request;
    WindowSpec& spec = request.layout.spec;
    spec.length = length;
    if (given.burn_in != nullptr) {
        request.layout.burn_in = read_integer(given.burn_in, "burn_in");
        if (request.layout.burn_in < 0)
            throw std::invalid_argument("burn_in must be >= 0, got " + std::to_string(request.layout.burn_in));
        if (request.layout.burn_in > kFarTime || length > kFarTime)
            throw std::invalid_argument("burn_in and length must be below 2**60, got " +
                                        std::to_string(request.layout.burn_in) + " and " + std::to_string(length));
    }
    spec.pad = flag(given.pad, "pad");
    if (given.period != nullptr) spec.period = read_count(given.period, "period");
    request.sums = read_sums(given.n_step, given.gamma);
    request.stacks = read_stacks(given.stack, given.stack_fill, parts);
    spec.history = request.stacks.history();
    spec.cross = flag(given.cross_episodes, "cross_episodes");
    if (spec.cross && spec.period > 1)
        throw std::invalid_argument("period must be 1 with cross_episodes, got " + std::to_string(spec.period));
    if (given.layout != nullptr) {
        const std::string layout = read_text(given.layout, "layout");
        if (layout != "step" && layout != "arrival")
            throw std::invalid_argument("layout must be 'step' or 'arrival', got " + shown(given.layout));
        spec.arrival = layout == "arrival";
    }
    request.next_observations = flag(given.next_observations, "next_observations");
    if (spec.arrival && request.sums.discounted())
        throw std::invalid_argument("layout must be 'step' with n_step or gamma, got 'arrival'");
    if (spec.arrival && request.next_observations)
        throw std::invalid_argument("layout must be 'step' with next_observations, got 'arrival'");
    request.layout.time_major = flag(given.time_major, "time_major");
    if (is_given(given.start_state)) {
        const std::size_t extra = parts.extras.structure.find(read_text(given.start_state, "start_state"));
        if (extra == parts.extras.structure.size())
            throw std::invalid_argument("start_state must name one of the extras, got " + shown(given.start_state));
        request.start_state = extra;
    }
    return request;
}

}  // namespace ringback::bindings
