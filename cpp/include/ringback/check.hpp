#pragma once

#include <stdexcept>
#include <string>

// RB_ASSUME(condition): an internal precondition. Checked in the presets dev, asan and tsan (RINGBACK_CHECKED), free
// otherwise. A caller's mistake that can arrive from Python is never an RB_ASSUME: it throws, in every build.
#ifdef RINGBACK_CHECKED
#define RB_ASSUME(condition)                                   \
    do {                                                       \
        if (!(condition)) ringback::assume_failed(#condition); \
    } while (false)
#else
#define RB_ASSUME(condition) static_cast<void>(0)
#endif

namespace ringback {

[[noreturn]] inline void assume_failed(const char* condition) {
    throw std::logic_error(std::string("ringback: a bug, please report: not ") + condition);
}

}  // namespace ringback
