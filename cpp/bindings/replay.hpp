#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "guarded.hpp"
#include "outputs.hpp"
#include "ringback/gather.hpp"
#include "ringback/priorities.hpp"
#include "ringback/rng.hpp"
#include "ringback/sampler.hpp"
#include "ringback/step_store.hpp"
#include "structure.hpp"

namespace ringback::bindings {

// Where a sample is drawn from, and by which generator.
struct Source {
    Side side = Side::any;
    std::mutex* own_mutex = nullptr;  // with the generator: of a view that has one
    Rng* own_rng = nullptr;
};

// What a prioritised buffer was made for.
struct PriorityRule {
    PriorityRule(pybind11::dict rule, const Parts& parts);

    void check_transitions(const WindowSpec& spec) const;
    void check_sequences(const WindowSpec& spec) const;

    PriorityOptions options;
    Draws draws = Draws::stratified;
    Normalise normalise = Normalise::by_buffer;
    bool windows = false;  // it draws windows, not transitions

  private:
    void check_history(const WindowSpec& spec) const;
};

struct Interpreter {
    using Released = pybind11::gil_scoped_release;
};

// The C++ side of ringback.ReplayBuffer: one store, its generator, and the structure of what goes in and comes out.
//
// Every method converts and checks its arguments, allocates its outputs, and only then goes for the lock (see Guarded).
class Replay {
  public:
    Replay(std::int64_t capacity, pybind11::handle observation, pybind11::handle action, pybind11::handle extras,
           const Rng::State& seed, const std::string& on_mismatch, pybind11::object priority);

    const char* class_name() const noexcept { return rule_ ? "PrioritizedReplayBuffer" : "ReplayBuffer"; }

    // The hot calls, by vectorcall arguments.
    PyObject* add(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* add_batch(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_transitions(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_sequences(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_episodes(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* get(PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* valid_starts(PyObject* const* args, Py_ssize_t given, PyObject* keywords);

    // The same of one side, or by a generator of its own.
    PyObject* sample_transitions(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_sequences(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* sample_episodes(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* get(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* valid_starts(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* update_priorities(const Source& source, PyObject* const* args, Py_ssize_t given, PyObject* keywords);
    PyObject* update_priorities(PyObject* const* args, Py_ssize_t given, PyObject* keywords) {
        return update_priorities(Source{}, args, given, keywords);
    }
    pybind11::object priorities(pybind11::object ids) const;
    std::int64_t steps_on(Side side) const;
    // A generator for a view: seeded by a draw of the buffer's own.
    Rng forked_rng() const;

    void split(const Split& split);
    bool is_split() const;
    // Of each step: its t, and the live part [first, end) of its episode, and whether more may come.
    pybind11::tuple locate(pybind11::object ids) const;
    // The ids of other steps of the same episodes.
    pybind11::object steps_at(pybind11::object ids, pybind11::object times) const;

    // observations (T + 1, ...), actions (T, ...), rewards (T,), extras {name: (T, ...)}
    pybind11::object add_chunk(pybind11::object observations, pybind11::object actions, pybind11::object rewards,
                               pybind11::object extras, std::int64_t steps, pybind11::object stream,
                               pybind11::object started, bool terminated, bool truncated, bool cut);
    bool end_episode(pybind11::object stream);
    void set(pybind11::object ids, const std::string& field, pybind11::object values);

    pybind11::dict stats() const;
    std::int64_t live() const;
    std::int64_t capacity() const;

    // State in parts: a header, then the steps [begin, begin + count) by number; `version` is the header's _version.
    pybind11::dict state_header() const;
    pybind11::dict state_rows(std::int64_t begin, std::int64_t count, std::uint64_t version) const;
    void set_state(pybind11::dict header, pybind11::iterable parts, bool close_open);

    // Called with each array of a sample before it is handed out (to make a tensor of it); None: nothing.
    pybind11::object wrap = pybind11::none();
    bool wrap_arrays_only = false;

  private:
    struct Core {
        explicit Core(std::unique_ptr<StepStore> s, const Rng::State& seed) : store(std::move(s)), rng(seed) {}
        std::unique_ptr<StepStore> store;
        std::unique_ptr<Priorities> priorities;  // null: draws are uniform
        // Drawing is const for the store; the generator has a lock of its own, taken inside the shared one.
        mutable std::mutex rng_mutex;
        mutable Rng rng;
        mutable std::atomic<std::int64_t> sampled{0};  // steps
        std::uint64_t version = 0;  // counts the writes, so that a state read in parts notices one in between
    };
    using Lock = Guarded<Core, Interpreter>;

    static constexpr double kBeta = 0.4;

    std::unique_ptr<StepStore> new_store() const;
    std::unique_ptr<Priorities> new_priorities() const;
    bool is_prioritised(const Source& source) const noexcept;
    double read_beta(PyObject* beta) const;
    void draw_by_priority(const Source& source, const Core& core, double beta, std::span<std::int64_t> numbers,
                          float* weights) const;
    std::string names_of_extras() const;
    void check_extras_given(PyObject* extras) const;
    template <class F>
    void write(std::size_t steps, F&& f);
    Parts parts() const noexcept { return {schema_, observation_, action_, extras_}; }
    std::int64_t count_starts(const WindowSpec& spec) const;
    template <class F>
    void with_index(const WindowSpec& spec, std::size_t bytes, F&& f) const;
    template <class F>
    void with_rng(const Source& source, const Core& core, F&& f) const;
    static void check_whole(const Source& source, const StepStore& store);
    Wrapping wrapping() const noexcept { return {wrap.is_none() ? nullptr : wrap.ptr(), wrap_arrays_only}; }
    std::size_t field_named(const std::string& name) const;

    Part observation_, action_, extras_;
    Schema schema_;
    std::int64_t capacity_;
    Mismatch mismatch_;
    std::optional<PriorityRule> rule_;
    mutable Lock core_;  // counting starts of a new kind of windows is a write that no reader sees
    // 0, 1, 2, ...: as many as a batch has had. Touched with the interpreter's lock held only.
    std::vector<StreamKey> first_streams_;
    bool kept_many_ = false, warned_ = false;  // successors kept beside the rows
};

}  // namespace ringback::bindings
