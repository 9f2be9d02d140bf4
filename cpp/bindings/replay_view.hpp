#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>

#include "replay.hpp"

namespace ringback::bindings {

// A buffer as seen from one side of its split, or by a generator of its own; it keeps the buffer alive.
class ReplayView {
  public:
    ReplayView(pybind11::object buffer, Side side, bool own_generator)
        : buffer_(std::move(buffer)), replay_(buffer_.cast<Replay&>()), side_(side) {
        if (own_generator) rng_ = std::make_unique<Rng>(replay_.forked_rng());
    }

    const char* class_name() const noexcept { return "BufferView"; }

    PyObject* sample_transitions(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return replay_.sample_transitions(source(), args, given, keywords);
    }
    PyObject* sample_sequences(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return replay_.sample_sequences(source(), args, given, keywords);
    }
    PyObject* sample_episodes(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return replay_.sample_episodes(source(), args, given, keywords);
    }
    PyObject* get(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return replay_.get(source(), args, given, keywords);
    }
    PyObject* valid_starts(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return replay_.valid_starts(source(), args, given, keywords);
    }
    PyObject* update_priorities(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return replay_.update_priorities(source(), args, given, keywords);
    }
    std::int64_t size() const { return side_ == Side::any ? replay_.live() : replay_.steps_on(side_); }
    pybind11::object buffer() const { return buffer_; }

  private:
    Source source() noexcept { return {side_, rng_ ? &mutex_ : nullptr, rng_.get()}; }

    pybind11::object buffer_;
    Replay& replay_;
    Side side_;
    std::mutex mutex_;
    std::unique_ptr<Rng> rng_;
};

}  // namespace ringback::bindings
