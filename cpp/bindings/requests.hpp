#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ringback/gather.hpp"
#include "structure.hpp"

// What a caller asks of a sample, read from Python arguments (null where absent) and checked.
namespace ringback::bindings {

// n-step sums: a fixed n, or one drawn for each row from [low, high].
struct Sums {
    std::int64_t low = 1, high = 1;
    std::optional<double> gamma;

    bool discounted() const noexcept { return gamma.has_value(); }
    NStep step() const noexcept { return {high, gamma.value_or(1.0)}; }
};
Sums read_sums(PyObject* n_step, PyObject* gamma);

// Frame stacks of the observation's leaves: how many frames, 0 for a leaf without.
struct Stacks {
    std::vector<std::int64_t> frames;           // empty: no leaf has any
    std::vector<std::vector<std::byte>> fills;  // a frame of each leaf; empty: observation 0 stands for what is missing

    std::int64_t of(std::size_t leaf) const noexcept { return frames.empty() ? 0 : frames[leaf]; }
    const std::byte* fill_of(std::size_t leaf) const noexcept { return fills.empty() ? nullptr : fills[leaf].data(); }
    std::int64_t history() const noexcept;  // older steps that the largest stack needs
};
Stacks read_stacks(PyObject* stack, PyObject* fill, const Parts& parts);

// The arguments of sample_sequences and sample_episodes beside batch_size and length.
struct SequenceRequest {
    WindowLayout layout;
    Sums sums;
    Stacks stacks;
    bool next_observations = false;
    std::optional<std::size_t> start_state;  // which of the extras

    bool successors() const noexcept { return next_observations || sums.high > 1; }
    bool ragged() const noexcept { return layout.spec.pad || layout.spec.whole || layout.burn_in > 0; }
};
struct SequenceArguments {
    PyObject *burn_in, *pad, *period, *n_step, *gamma, *stack, *stack_fill, *cross_episodes, *layout,
        *next_observations, *time_major, *start_state;
};
SequenceRequest read_sequence_request(const SequenceArguments& given, std::int64_t length, const Parts& parts);

// Windows of which some may start: also the arguments of valid_starts.
WindowSpec read_window_spec(PyObject* length, PyObject* pad, PyObject* period, PyObject* stack, const Parts& parts,
                            const char* length_name = "length");

}  // namespace ringback::bindings
