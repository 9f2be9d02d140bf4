#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "guarded.hpp"
#include "ringback/gather.hpp"
#include "ringback/rng.hpp"
#include "ringback/sampler.hpp"
#include "ringback/step_store.hpp"
#include "structure.hpp"

namespace ringback::bindings {

struct Interpreter {
    using Released = pybind11::gil_scoped_release;
};

// The C++ side of ringback.ReplayBuffer: one store, its generator, and the structure of what goes in and comes out.
//
// Every method converts and checks its arguments, allocates its outputs, and only then goes for the lock (see Guarded).
class Replay {
  public:
    Replay(std::int64_t capacity, pybind11::handle observation, pybind11::handle action, pybind11::handle extras,
           const Rng::State& seed, const std::string& on_mismatch);

    // The hot calls, by vectorcall arguments.
    PyObject* add(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* add_batch(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_transitions(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_sequences(PyObject* const* args, Py_ssize_t given, PyObject* keywords);

    // observations (T + 1, ...), actions (T, ...), rewards (T,), extras {name: (T, ...)}
    pybind11::object add_chunk(pybind11::object observations, pybind11::object actions, pybind11::object rewards,
                               pybind11::object extras, std::int64_t steps, pybind11::object stream,
                               pybind11::object started, bool terminated, bool truncated, bool cut);
    bool end_episode(pybind11::object stream);
    pybind11::object valid_starts(std::int64_t length) const;
    pybind11::object get(pybind11::object ids) const;
    void set(pybind11::object ids, const std::string& field, pybind11::object values);

    pybind11::dict stats() const;
    std::int64_t live() const;
    std::int64_t capacity() const;

    // State in parts: a header, then the steps [begin, begin + count) by number; `version` is the header's _version.
    pybind11::dict state_header() const;
    pybind11::dict state_rows(std::int64_t begin, std::int64_t count, std::uint64_t version) const;
    void set_state(pybind11::dict header, pybind11::iterable parts, bool close_open);

    // Called with each sample before it is handed out (to make tensors of it); None: nothing.
    pybind11::object finish = pybind11::none();

  private:
    struct Core {
        explicit Core(std::unique_ptr<StepStore> s, const Rng::State& seed) : store(std::move(s)), rng(seed) {}
        std::unique_ptr<StepStore> store;
        // Drawing is const for the store; the generator has a lock of its own, taken inside the shared one.
        mutable std::mutex rng_mutex;
        mutable Rng rng;
        mutable std::int64_t sampled = 0;
        std::uint64_t version = 0;  // counts the writes, so that a state read in parts notices one in between
    };
    using Lock = Guarded<Core, Interpreter>;

    std::unique_ptr<StepStore> new_store() const;
    std::string names_of_extras() const;
    void check_extras_given(PyObject* extras) const;
    template <class F>
    void write(std::size_t steps, F&& f);
    Parts parts() const noexcept { return {schema_, observation_, action_, extras_}; }
    std::int64_t count_starts(std::int64_t length);
    PyObject* handed_out(PyObject* batch) const;
    std::size_t field_named(const std::string& name) const;

    Part observation_, action_, extras_;
    Schema schema_;
    std::int64_t capacity_;
    Mismatch mismatch_;
    Lock core_;
    // 0, 1, 2, ...: as many as a batch has had. Touched with the interpreter's lock held only.
    std::vector<StreamKey> first_streams_;
    bool kept_many_ = false, warned_ = false;  // successors kept beside the rows
};

}  // namespace ringback::bindings
