#include "arguments.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "replay.hpp"
#include "requests.hpp"

// Priorities: what a prioritised buffer draws by, given at construction and updated by the caller.
namespace py = pybind11;

namespace ringback::bindings {

namespace {

// Errors of any shape with one number an id: an array, or a tensor on any device, with or without a gradient.
py::object read_errors(PyObject* value) {
    py::object given = py::reinterpret_borrow<py::object>(value);
    if (!PyArray_Check(value) && py::hasattr(given, "detach"))
        given = given.attr("detach")().attr("cpu")().attr("numpy")();
    py::object array = py::reinterpret_steal<py::object>(
        PyArray_FromAny(given.ptr(), PyArray_DescrFromType(NPY_FLOAT64), 0, 2, NPY_ARRAY_CARRAY_RO, nullptr));
    if (!array) {
        PyErr_Clear();
        throw TypeMistake("abs_td must be an array of floats, got " + shown(value));
    }
    return array;
}

}  // namespace

PriorityRule::PriorityRule(py::dict rule, const Parts& parts) {
    const auto text = [&](const char* name) { return read_text(rule[name].ptr(), name); };
    options.alpha = rule["alpha"].cast<double>();
    options.eps = rule["eps"].cast<double>();
    const std::string fresh = text("new_priority");
    if (fresh != "max_live" && fresh != "max_ever")
        throw std::invalid_argument("new_priority must be 'max_live' or 'max_ever', got '" + fresh + "'");
    options.fresh = fresh == "max_live" ? NewPriority::max_live : NewPriority::max_ever;
    const std::string by = text("weights");
    if (by != "buffer" && by != "batch")
        throw std::invalid_argument("weights must be 'buffer' or 'batch', got '" + by + "'");
    normalise = by == "buffer" ? Normalise::by_buffer : Normalise::by_batch;
    const std::string how = text("draw");
    if (how != "stratified" && how != "independent")
        throw std::invalid_argument("draw must be 'stratified' or 'independent', got '" + how + "'");
    draws = how == "stratified" ? Draws::stratified : Draws::independent;
    windows = !rule["sequence_length"].is_none();
    options.windows = read_window_spec(windows ? rule["sequence_length"].ptr() : nullptr, rule["pad"].ptr(),
                                       rule["period"].ptr(), rule["stack"].ptr(), parts, "sequence_length");
    if (!windows && (options.windows.pad || options.windows.period > 1))
        throw std::invalid_argument("pad and period must come with sequence_length, got them without");
    options.windows.side = Side::train;
}

void PriorityRule::check_transitions(const WindowSpec& spec) const {
    if (windows)
        throw std::invalid_argument("the buffer must draw what it was made for, windows of " +
                                    std::to_string(options.windows.length) + " steps, got a call for transitions");
    check_history(spec);
}

void PriorityRule::check_sequences(const WindowSpec& spec) const {
    const WindowSpec& made = options.windows;
    if (!windows)
        throw std::invalid_argument(
            "the buffer must draw what it was made for, transitions, got a call for sequences; "
            "pass sequence_length at construction");
    const auto check = [](const char* name, std::int64_t want, std::int64_t got) {
        if (want != got)
            throw std::invalid_argument(std::string(name) + " must be what the buffer was made for (" +
                                        std::to_string(want) + "), got " + std::to_string(got));
    };
    check("length", made.length, spec.length);
    check("period", made.period, spec.period);
    check("pad", made.pad, spec.pad);
    if (spec.cross || spec.arrival)
        throw std::invalid_argument(std::string(spec.cross ? "cross_episodes must be False" : "layout must be 'step'") +
                                    " where priorities draw, got " + (spec.cross ? "True" : "'arrival'"));
    check_history(spec);
}

void PriorityRule::check_history(const WindowSpec& spec) const {
    if (spec.history > options.windows.history)
        throw std::invalid_argument("stack must be at most what the buffer was made for (" +
                                    std::to_string(options.windows.history + 1) + "), got " +
                                    std::to_string(spec.history + 1));
}

bool Replay::is_prioritised(const Source& source) const noexcept {
    return rule_.has_value() && source.side != Side::validation;
}

double Replay::read_beta(PyObject* beta) const {
    if (beta == nullptr) return kBeta;
    if (!rule_) throw TypeMistake("beta must be given to a PrioritizedReplayBuffer only, got " + shown(beta));
    const double value = PyFloat_AsDouble(beta);
    if (value == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        throw TypeMistake("beta must be a number, got " + shown(beta));
    }
    if (!(value >= 0.0 && value <= std::numeric_limits<double>::max()))
        throw std::invalid_argument("beta must be finite and >= 0, got " + shown(beta));
    return value;
}

PyObject* Replay::update_priorities(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    static constexpr Signature<2> kSignature{{"ids", "abs_td"}, 2, 2};
    const auto [ids, abs_td] = kSignature.parse(args, given, keywords);
    if (!rule_) throw TypeMistake("priorities must be those of a PrioritizedReplayBuffer, got a buffer without");
    if (source.side == Side::validation)
        throw std::invalid_argument(
            "priorities must be updated on the training side, got a call on the validation side");
    const std::vector<std::int64_t> numbers = read_ids(ids);
    const py::object errors = read_errors(abs_td);
    auto* const array = reinterpret_cast<PyArrayObject*>(errors.ptr());
    const int axes = PyArray_NDIM(array);
    const auto size = static_cast<npy_intp>(numbers.size());
    if (PyArray_SIZE(array) != size || (axes == 2 && PyArray_DIM(array, 1) != 1))
        throw std::invalid_argument("abs_td must have shape (" + std::to_string(size) + ",) or (" +
                                    std::to_string(size) + ", 1), one for each id, got " +
                                    py::repr(errors.attr("shape")).cast<std::string>());
    const std::span<const double> values{static_cast<const double*>(PyArray_DATA(array)), numbers.size()};
    const std::int64_t skipped = core_.write(0, [&](Core& core) {
        const std::int64_t count = core.priorities->update(*core.store, numbers, values);
        ++core.version;
        return count;
    });
    return PyLong_FromLongLong(skipped);
}

py::object Replay::priorities(py::object ids) const {
    if (!rule_) throw TypeMistake("priorities must be those of a PrioritizedReplayBuffer, got a buffer without");
    const std::vector<std::int64_t> numbers = read_ids(ids.ptr());
    std::vector<double> masses(numbers.size());
    core_.read(0, [&](const Core& core) { core.priorities->read(*core.store, numbers, masses); });
    return array_of(DType::f64, masses);
}

}  // namespace ringback::bindings
