#pragma once

#include <pybind11/pybind11.h>

// One function a file: each binds one class or one family of functions.
namespace ringback::bindings {

void bind_lookback(pybind11::module_& m);
// Fast ways for the common cases of an episode's arrays. Each of the functions says when a case is not one of them, and
// the caller then takes the slow way through NumPy, which also words the errors.
void bind_episode_rows(pybind11::module_& m);
void bind_replay(pybind11::module_& m);

}  // namespace ringback::bindings
