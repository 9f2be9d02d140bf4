#define RINGBACK_IMPORTS_NUMPY
#include "module.hpp"

#include "numpy.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
    if (_import_array() < 0) throw py::error_already_set();
    m.doc() = "The compiled core of ringback: use it through the package, not by itself.";
    ringback::bindings::bind_lookback(m);
    ringback::bindings::bind_episode_rows(m);
    ringback::bindings::bind_replay(m);
}
