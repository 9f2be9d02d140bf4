#include "module.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
    m.doc() = "The compiled core of ringback: use it through the package, not by itself.";
    ringback::bindings::bind_lookback(m);
}
