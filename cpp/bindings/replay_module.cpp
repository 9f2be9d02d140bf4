#include "arguments.hpp"
#include "batches.hpp"
#include "errors.hpp"
#include "module.hpp"
#include "outputs.hpp"
#include "replay.hpp"
#include "replay_docs.hpp"
#include "replay_view.hpp"

namespace py = pybind11;

namespace ringback::bindings {

namespace {

// The object behind a method descriptor's self, whose type Python has checked.
template <class T>
T* object_of(PyObject* self) {
    auto* const instance = reinterpret_cast<py::detail::instance*>(self);
    auto* const object = static_cast<T*>(instance->simple_layout ? instance->simple_value_holder[0]
                                                                 : instance->get_value_and_holder().value_ptr());
    if (object == nullptr)
        PyErr_SetString(PyExc_RuntimeError, "ReplayBuffer: __init__ must be called first, got a call without");
    return object;
}

template <class T>
using Method = PyObject* (T::*)(PyObject* const*, Py_ssize_t, PyObject*);

template <class T, Method<T> method, const char* name>
PyObject* fast_call(PyObject* self, PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
    T* const object = object_of<T>(self);
    if (object == nullptr) return nullptr;
    try {
        return (object->*method)(args, given, keywords);
    } catch (...) {
        const char* const shown_name = name + (name[0] == '_' ? 1 : 0);
        report((std::string(object->class_name()) + "." + shown_name).c_str(), std::current_exception());
        return nullptr;
    }
}

constexpr char kAdd[] = "add", kAddBatch[] = "add_batch", kSampleTransitions[] = "sample_transitions",
               kSampleSequences[] = "sample_sequences", kSampleEpisodes[] = "sample_episodes", kGet[] = "get",
               kValidStarts[] = "valid_starts", kUpdatePriorities[] = "update_priorities",
               kUpdate[] = "_update_priorities";

template <class T, Method<T> method, const char* name>
PyMethodDef fast_method(const char* doc) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&fast_call<T, method, name>)),
            METH_FASTCALL | METH_KEYWORDS, doc};
}

PyMethodDef replay_methods[] = {
    fast_method<Replay, &Replay::add, kAdd>(docs::kAdd),
    fast_method<Replay, &Replay::add_batch, kAddBatch>(docs::kAddBatch),
    fast_method<Replay, &Replay::sample_transitions, kSampleTransitions>(docs::kSampleTransitions),
    fast_method<Replay, &Replay::sample_sequences, kSampleSequences>(docs::kSampleSequences),
    fast_method<Replay, &Replay::sample_episodes, kSampleEpisodes>(docs::kSampleEpisodes),
    fast_method<Replay, &Replay::get, kGet>(docs::kGet),
    fast_method<Replay, &Replay::valid_starts, kValidStarts>(docs::kValidStarts),
    fast_method<Replay, &Replay::update_priorities, kUpdate>(docs::kUpdatePriorities),
};

PyMethodDef view_methods[] = {
    fast_method<ReplayView, &ReplayView::sample_transitions, kSampleTransitions>(docs::kSampleTransitions),
    fast_method<ReplayView, &ReplayView::sample_sequences, kSampleSequences>(docs::kSampleSequences),
    fast_method<ReplayView, &ReplayView::sample_episodes, kSampleEpisodes>(docs::kSampleEpisodes),
    fast_method<ReplayView, &ReplayView::get, kGet>(docs::kGet),
    fast_method<ReplayView, &ReplayView::valid_starts, kValidStarts>(docs::kValidStarts),
    fast_method<ReplayView, &ReplayView::update_priorities, kUpdatePriorities>(docs::kUpdatePriorities),
};

template <std::size_t N>
void add_methods(const py::handle& type, PyMethodDef (&methods)[N]) {
    for (PyMethodDef& method : methods) {
        PyObject* const descriptor = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method);
        if (descriptor == nullptr) throw py::error_already_set();
        py::setattr(type, method.ml_name, py::reinterpret_steal<py::object>(descriptor));
    }
}

Side side_of(const std::string& name) {
    if (name == "train") return Side::train;
    if (name == "validation") return Side::validation;
    return Side::any;
}

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
                         const std::vector<std::uint64_t>& seed, const std::string& on_mismatch, py::object priority) {
                 return named(priority.is_none() ? "ReplayBuffer" : "PrioritizedReplayBuffer", [&] {
                     return std::make_unique<Replay>(capacity, observation, action, extras, seed_words(seed),
                                                     on_mismatch, priority);
                 });
             }),
             py::arg("capacity"), py::arg("observation"), py::arg("action"), py::arg("extras"), py::arg("seed"),
             py::arg("on_mismatch"), py::arg("priority") = py::none())
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
        .def("_split",
             [](Replay& self, std::int64_t groups, std::uint64_t seed, std::int64_t block, std::int64_t gap) {
                 named("ReplayBuffer.split", [&] { self.split({groups, seed, block, gap}); });
             })
        .def("_priorities",
             [](const Replay& self, py::object ids) {
                 return named("PrioritizedReplayBuffer.priorities", [&] { return self.priorities(ids); });
             })
        .def("_locate",
             [](const Replay& self, py::object ids) { return named("ReplayBuffer", [&] { return self.locate(ids); }); })
        .def("_steps_at",
             [](const Replay& self, py::object ids, py::object times) {
                 return named("ReplayBuffer", [&] { return self.steps_at(ids, times); });
             })
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
        .def_property_readonly("_is_split", &Replay::is_split)
        .def_readwrite("_wrap", &Replay::wrap)
        .def_readwrite("_wrap_arrays_only", &Replay::wrap_arrays_only);

    add_methods(replay, replay_methods);

    py::class_<ReplayView> view(m, "ReplayView", "The compiled side of a view of a ringback.ReplayBuffer.");
    view.def(py::init([](py::object buffer, const std::string& side, bool own_generator) {
                 return named("BufferView", [&] {
                     return std::make_unique<ReplayView>(std::move(buffer), side_of(side), own_generator);
                 });
             }),
             py::arg("buffer"), py::arg("side"), py::arg("own_generator"))
        .def("__len__", [](const ReplayView& self) { return named("len", [&] { return self.size(); }); })
        .def_property_readonly("buffer", &ReplayView::buffer, "The whole buffer.");
    add_methods(view, view_methods);

    // One of every `groups` units is held out: which of these units are.
    m.def("held_out", [](const std::vector<std::int64_t>& units, std::int64_t groups, std::uint64_t seed) {
        const Split split{groups, seed, 0, 0};
        std::vector<std::uint8_t> held;
        for (const std::int64_t unit : units) held.push_back(split.side_of(unit) == Side::validation);
        return array_of(DType::b1, held);
    });
}

}  // namespace ringback::bindings
