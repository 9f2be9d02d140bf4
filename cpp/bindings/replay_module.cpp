#include "arguments.hpp"
#include "batches.hpp"
#include "errors.hpp"
#include "module.hpp"
#include "replay.hpp"
#include "replay_docs.hpp"

namespace py = pybind11;

namespace ringback::bindings {

namespace {

// The object behind a method descriptor's self, whose type Python has checked.
Replay* replay_of(PyObject* self) {
    auto* const instance = reinterpret_cast<py::detail::instance*>(self);
    auto* const replay = static_cast<Replay*>(instance->simple_layout ? instance->simple_value_holder[0]
                                                                      : instance->get_value_and_holder().value_ptr());
    if (replay == nullptr)
        PyErr_SetString(PyExc_RuntimeError, "ReplayBuffer: __init__ must be called first, got a call without");
    return replay;
}

using Method = PyObject* (Replay::*)(PyObject* const*, Py_ssize_t, PyObject*);

template <Method method, const char* where>
PyObject* fast_call(PyObject* self, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    Replay* const replay = replay_of(self);
    if (replay == nullptr) return nullptr;
    return reporting(where, [&] { return (replay->*method)(args, given, keywords); });
}

constexpr char kAdd[] = "ReplayBuffer.add";
constexpr char kAddBatch[] = "ReplayBuffer.add_batch";
constexpr char kSampleTransitions[] = "ReplayBuffer.sample_transitions";
constexpr char kSampleSequences[] = "ReplayBuffer.sample_sequences";

template <Method method, const char* where>
PyMethodDef fast_method(const char* name, const char* doc) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&fast_call<method, where>)),
            METH_FASTCALL | METH_KEYWORDS, doc};
}

PyMethodDef fast_methods[] = {
    fast_method<&Replay::add, kAdd>("add", docs::kAdd),
    fast_method<&Replay::add_batch, kAddBatch>("add_batch", docs::kAddBatch),
    fast_method<&Replay::sample_transitions, kSampleTransitions>("sample_transitions", docs::kSampleTransitions),
    fast_method<&Replay::sample_sequences, kSampleSequences>("sample_sequences", docs::kSampleSequences),
};

template <class FieldName>
py::tuple names_of() {
    py::tuple names(static_cast<std::size_t>(FieldName::count));
    for (std::size_t f = 0; f < names.size(); ++f) names[f] = name_of(static_cast<FieldName>(f));
    return names;
}

Rng::State seed_words(const std::vector<std::uint64_t>& words) {
    if (words.size() != 4) throw std::invalid_argument("seed must be four 64-bit words");
    return {words[0], words[1], words[2], words[3]};
}

}  // namespace

void bind_replay(py::module_& m) {
    m.attr("Transitions") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(transitions_type()));
    m.attr("Sequences") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(sequences_type()));

    m.attr("BATCH_FIELDS") = py::dict(py::arg("Transitions") = names_of<TransitionField>(),
                                      py::arg("Sequences") = names_of<SequenceField>());

    py::class_<Replay> replay(m, "Replay", "The compiled side of ringback.ReplayBuffer.");
    replay
        .def(py::init([](std::int64_t capacity, py::object observation, py::object action, py::object extras,
                         const std::vector<std::uint64_t>& seed, const std::string& on_mismatch) {
                 return named("ReplayBuffer", [&] {
                     return std::make_unique<Replay>(capacity, observation, action, extras, seed_words(seed),
                                                     on_mismatch);
                 });
             }),
             py::arg("capacity"), py::arg("observation"), py::arg("action"), py::arg("extras"), py::arg("seed"),
             py::arg("on_mismatch"))
        .def("_add_chunk",
             [](Replay& self, py::object observations, py::object actions, py::object rewards, py::object extras,
                std::int64_t steps, py::object stream, py::object start, bool terminated, bool truncated, bool cut) {
                 return named("ReplayBuffer.add_episode", [&] {
                     return self.add_chunk(observations, actions, rewards, extras, steps, stream, start, terminated,
                                           truncated, cut);
                 });
             })
        .def("_end_episode",
             [](Replay& self, py::object stream) {
                 return named("ReplayBuffer.end_episode", [&] { return self.end_episode(stream); });
             })
        .def("_valid_starts",
             [](const Replay& self, py::object length) {
                 return named("ReplayBuffer.valid_starts",
                              [&] { return self.valid_starts(read_count(length.ptr(), "length")); });
             })
        .def("_get", [](const Replay& self,
                        py::object ids) { return named("ReplayBuffer.get", [&] { return self.get(ids); }); })
        .def("_set",
             [](Replay& self, py::object ids, py::object field, py::object values) {
                 named("ReplayBuffer.set", [&] { self.set(ids, read_text(field.ptr(), "field"), values); });
             })
        .def("_stats", [](const Replay& self) { return named("ReplayBuffer.stats", [&] { return self.stats(); }); })
        .def("_state_header",
             [](const Replay& self) { return named("ReplayBuffer.get_state", [&] { return self.state_header(); }); })
        .def("_state_rows",
             [](const Replay& self, std::int64_t begin, std::int64_t count, std::uint64_t version) {
                 return named("ReplayBuffer.get_state", [&] { return self.state_rows(begin, count, version); });
             })
        .def("_set_state",
             [](Replay& self, py::dict header, py::iterable parts, bool close_open) {
                 named("ReplayBuffer.set_state", [&] { self.set_state(header, parts, close_open); });
             })
        .def("__len__", [](const Replay& self) { return named("len", [&] { return self.live(); }); })
        .def_property_readonly("capacity", &Replay::capacity, "Steps that fit, over all streams.")
        .def_readwrite("_finish", &Replay::finish);

    for (PyMethodDef& method : fast_methods) {
        PyObject* const descriptor = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(replay.ptr()), &method);
        if (descriptor == nullptr) throw py::error_already_set();
        replay.attr(method.ml_name) = py::reinterpret_steal<py::object>(descriptor);
    }
}

}  // namespace ringback::bindings
