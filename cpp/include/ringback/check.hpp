#pragma once

#include <stdexcept>
#include <string>

// RB_ASSUME(condition): an internal precondition. Checked in the presets dev, asan and tsan (RINGBACK_CHECKED), free
// otherwise. A caller's mistake that can arrive from Python is never an RB_ASSUME: it throws, in every build.
#ifdef RINGBACK_CHECKED
#define RB_ASSUME(condition)                                                                              \
    do {                                                                                                  \
        if (!(condition)) throw std::logic_error("ringback: a bug, please report: " #condition " is false"); \
    } while (false)
#else
#define RB_ASSUME(condition) static_cast<void>(0)
#endif
