#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ringback/step_store.hpp"

namespace ringback {

// Where one field goes: row i of the answer at data + i * bytes of the field.
struct FieldOut {
    std::size_t field;
    std::byte* data;
};

// n-step reduction: at most n rewards are summed, each discounted by one more gamma.
struct NStep {
    std::int64_t n = 1;
    double gamma = 1.0;
};

// What a batch of transitions is written to; one row a start. Only `discount` and `steps` may be null.
struct TransitionOut {
    std::vector<FieldOut> fields;            // of the start's own row (the reward apart)
    std::vector<FieldOut> next_observation;  // observation leaves, of the observation after the last summed step
    float* reward = nullptr;                 // sum of gamma^k * reward[t + k], in float64, rounded once
    float* done = nullptr;                   // 1 where the last summed step terminated
    std::uint8_t* terminated = nullptr;      // flags of the last summed step
    std::uint8_t* truncated = nullptr;
    float* discount = nullptr;      // gamma^m * (1 - terminated)
    std::int64_t* steps = nullptr;  // m, the number of rewards summed
};

// What a batch of windows is written to; `length` rows a window.
struct SequenceOut {
    std::vector<FieldOut> fields;
    float* reward = nullptr;
    float* done = nullptr;
    std::uint8_t* terminated = nullptr;
    std::uint8_t* truncated = nullptr;
    std::uint8_t* first = nullptr;  // the first step of an episode
    std::uint8_t* last = nullptr;   // the newest step of an episode, ended or open
    std::int64_t* ids = nullptr;
};

// Copies rows out of a store. It prefetches ahead of the copying, allocates nothing once its scratch space has its
// size, takes no lock and knows no Python.
//
// Threads: one a thread. Errors: none; the rows must be live.
class Gather {
  public:
    // Sums stop at both kinds of end and at what is stored of an open episode (invariant I3 of the store).
    void transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step,
                     const TransitionOut& out);

    // Windows of `length` live steps each, given by the row lookup below.
    void sequences(const StepStore& store, std::span<const std::uint32_t> rows, std::size_t length,
                   const SequenceOut& out);

  private:
    // Copies `count` rows of `bytes` from sources[r] + offset to consecutive rows at target. Some kinds copy in blocks
    // and overrun the row by less than one, into rows that are written later.
    using Copier = void (*)(std::byte* target, const std::byte* const* sources, std::size_t offset, std::size_t bytes,
                            std::size_t count) noexcept;
    struct SmallCopy {  // one small field, out of records
        std::size_t offset, bytes;
        std::size_t safe_rows;  // of these the copier may overrun; the rest is copied exactly
        Copier copier;
        std::byte* data;
    };
    struct ColumnCopy {  // one large field, out of a column
        std::int32_t column;
        std::size_t bytes;
        std::byte* data;
    };
    struct Plan {
        std::vector<SmallCopy> small;
        std::vector<ColumnCopy> columns;
    };
    struct Reduced {  // what n steps from one start come to
        double reward, discount;
        std::int64_t steps;
    };
    // Where the successor of a start lies for columns: its row, or its side-pool entry with the highest bit set.
    using SuccessorIndex = std::uint64_t;

    static Copier copier_for(std::size_t bytes) noexcept;
    static void plan_small(Plan& plan, std::size_t offset, std::size_t bytes, std::size_t count, std::byte* data);
    static void plan(const Schema& schema, std::span<const FieldOut> fields, std::size_t count, Plan& plan);
    static void copy_small(const Plan& plan, const std::byte* const* records, std::size_t begin,
                           std::size_t end) noexcept;
    void copy_columns(const StepStore& store, std::span<const std::uint32_t> rows, std::size_t begin,
                      std::size_t end) const noexcept;
    void copy_successor_columns(const StepStore& store, std::size_t begin, std::size_t end) const noexcept;
    template <bool kReduce>
    void resolve(const StepStore& store, std::uint32_t row, std::size_t i, NStep n_step) noexcept;
    template <bool kReduce>
    void gather_transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step,
                            const TransitionOut& out);

    Plan own_, next_;
    std::vector<const std::byte*> records_, last_records_, successors_;  // by start; last: of the last summed step
    std::vector<SuccessorIndex> successor_index_;
    std::vector<Reduced> reduced_;
};

// The rows of the steps t .. t + length - 1 of an episode, which must be live.
void window_rows(const StepStore& store, const Episode& episode, std::int64_t t,
                 std::span<std::uint32_t> rows) noexcept;

}  // namespace ringback
