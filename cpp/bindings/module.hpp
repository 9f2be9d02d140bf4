#pragma once

#include <pybind11/pybind11.h>

// One function a file: each binds one class or one family of functions.
namespace ringback::bindings {

void bind_lookback(pybind11::module_& m);
void bind_replay(pybind11::module_& m);

}  // namespace ringback::bindings
