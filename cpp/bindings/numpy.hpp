#pragma once

// The one place that includes NumPy's C API; module.cpp fills its table (RINGBACK_IMPORTS_NUMPY).
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL ringback_numpy_api
#ifndef RINGBACK_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
