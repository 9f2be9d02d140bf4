#pragma once

#include <pybind11/pybind11.h>

namespace ringback::bindings {

// The named tuples that samples come in, made like os.stat_result: they unpack into the textbook's arrays and carry
// more by name. Fields are given by number; what is not given is None.
enum class TransitionField {
    observations,
    actions,
    rewards,
    next_observations,
    dones,
    terminations,
    truncations,
    discounts,
    n_steps,
    ids,
    extras,
    weights,
    sources,
    count
};
enum class SequenceField {
    observations,
    actions,
    rewards,
    dones,
    terminations,
    truncations,
    is_first,
    is_last,
    ids,
    start_ids,
    extras,
    valid,
    mask,
    lengths,
    burn_in_lengths,
    next_observations,
    discounts,
    n_steps,
    is_terminal,
    start_state,
    weights,
    sources,
    count
};

PyTypeObject* transitions_type();
PyTypeObject* sequences_type();
const char* name_of(TransitionField field) noexcept;
const char* name_of(SequenceField field) noexcept;

// One named tuple in the making.
template <class FieldName>
class Batch {
  public:
    explicit Batch(PyTypeObject* type)
        : object_(pybind11::reinterpret_steal<pybind11::object>(PyStructSequence_New(type))) {
        if (!object_) throw pybind11::error_already_set();
        for (int i = 0; i < static_cast<int>(FieldName::count); ++i)
            PyStructSequence_SetItem(object_.ptr(), i, Py_NewRef(Py_None));
    }
    void set(FieldName field, PyObject* owned) {
        const auto i = static_cast<Py_ssize_t>(field);
        Py_DECREF(PyStructSequence_GetItem(object_.ptr(), i));
        PyStructSequence_SetItem(object_.ptr(), i, owned);
    }
    void set(FieldName field, pybind11::object value) { set(field, value.release().ptr()); }
    PyObject* release() { return object_.release().ptr(); }

  private:
    pybind11::object object_;
};

}  // namespace ringback::bindings
