#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ringback/copy.hpp"
#include "ringback/step_store.hpp"
#include "ringback/window_rows.hpp"

namespace ringback {

// Where one field goes: row i of the answer at data + i * bytes of the field.
struct FieldOut {
    std::size_t field;
    std::byte* data;
};

// Where an observation leaf goes with the `frames` - 1 observations before it, oldest first.
struct StackOut {
    std::size_t field;
    std::int64_t frames;
    std::byte* data;
    const std::byte* fill = nullptr;  // a frame that stands for those before t = 0; null: observation 0 again
};

// n-step reduction: at most n rewards are summed, each discounted by one more gamma.
struct NStep {
    std::int64_t n = 1;
    double gamma = 1.0;
    const std::int64_t* each = nullptr;  // of every row its own n, at most `n`

    std::int64_t of(std::size_t row) const noexcept { return each == nullptr ? n : each[row]; }
};

// What every read of rows can be written to. What is null or empty is not asked for.
struct RowsOut {
    std::vector<FieldOut> observation, next_observation;  // leaves without a stack
    std::vector<StackOut> stacks, next_stacks;            // leaves with one, of as many frames in both
    std::vector<FieldOut> fields;                         // actions and extras
    float* reward = nullptr;                              // sum of gamma^k * reward[t + k], in float64, rounded once
    float* done = nullptr;                                // 1 where the last summed step terminated
    std::uint8_t* terminated = nullptr;                   // flags of the last summed step
    std::uint8_t* truncated = nullptr;
    float* discount = nullptr;      // gamma^m * (1 - terminated)
    std::int64_t* steps = nullptr;  // m, the number of rewards summed
};

// A batch of transitions: one row a start. All fields, the flags and next_observation are asked for.
struct TransitionOut : RowsOut {};

// A batch of windows, in the order of its WindowRows. A row that is not there is zeros, its id -1.
struct SequenceOut : RowsOut {
    std::uint8_t* first = nullptr;  // the first row of an episode
    std::uint8_t* last = nullptr;   // the newest step of an episode, ended or open; by arrivals its last row
    std::int64_t* ids = nullptr;
    std::uint8_t* valid = nullptr;       // may be null: the row is there
    std::uint8_t* mask = nullptr;        // may be null: the row is there and is not burnt in
    std::vector<FieldOut> start_fields;  // of the first row of each window
};

// Copies rows out of a store. It prefetches ahead of the copying, allocates nothing once its scratch space has its
// size, takes no lock and knows no Python.
//
// Threads: one a thread. Errors: none; the rows must be live, and so must be what their stacks need.
class Gather {
  public:
    // Sums stop at both kinds of end and at what is stored of an open episode (invariant I3 of the store).
    void transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step,
                     const TransitionOut& out);

    // By arrivals neither n-step sums nor successors may be asked for.
    void sequences(const StepStore& store, const WindowRows& windows, NStep n_step, const SequenceOut& out);

  private:
    struct SmallCopy {  // one small field, out of records
        std::size_t offset;
        RowCopier copier;
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
    struct Segment {  // rows that lie behind each other, in the output as in the store
        std::size_t out;
        std::uint32_t row, count;
    };
    struct Reduced {  // what n steps from one start come to
        double reward, discount;
        std::int64_t steps;
    };
    // Where an observation, or another field of a step, lies: a row; an entry of the side pool, with kInPool set; or
    // nowhere (kNothing).
    using Source = std::uint64_t;
    // What is found out about a start: what is summed, and where the successor of the last summed step lies.
    struct Resolved {
        Reduced sum;
        std::uint32_t last_row;
        std::uint8_t flags;  // of the last summed step
        const std::byte* successor;
        Source successor_source;
    };
    // Where what was found out goes, row by row; null where it is not needed.
    struct Scratch {
        const std::byte** records;
        const std::byte** successors;
        Source* successor_sources;
        std::uint32_t* last_rows;
        std::uint8_t* flags;
    };
    struct Records;  // of a store
    // An observation by the step that had it (or that led to it): where a stack ends.
    struct StackEnd {
        std::uint32_t row;
        bool successor;
    };
    using Frames = std::vector<const std::byte*>;

    static void add_to_plan(const Schema& schema, std::span<const FieldOut> fields, Plan& plan);
    void forget_plans() noexcept;
    // Rows [begin, end) of the output.
    static void copy_small(const Plan& plan, const std::byte* const* records, std::size_t begin,
                           std::size_t end) noexcept;
    static void copy_columns(const StepStore& store, const Plan& plan, const Source* sources, std::size_t begin,
                             std::size_t end) noexcept;
    template <bool kReduce>
    static Resolved resolve(const Records& records, std::uint32_t row, std::int64_t n, double gamma) noexcept;
    template <bool kReduce>
    static void put_resolved(const Scratch& to, const RowsOut& out, std::size_t i, const Resolved& found) noexcept;
    Scratch scratch() noexcept;
    void put_ends(const RowsOut& out, std::size_t count) const noexcept;
    template <bool kReduce>
    void gather_transitions(const StepStore& store, std::span<const std::uint32_t> rows, const NStep& n_step,
                            const TransitionOut& out);
    void copy_rows(const StepStore& store, const WindowRows& windows, const NStep& n_step, const SequenceOut& out);
    void copy_segments(const StepStore& store, const WindowRows& windows, const SequenceOut& out);
    void put_flags(const StepStore& store, const WindowRows& windows, const NStep& n_step, const SequenceOut& out);
    static void find_frames(const StepStore& store, const StackOut& stack, const StackEnd& end, Frames& frames);
    static void put_frame(const Schema& schema, const StackOut& stack, std::size_t i, std::size_t k,
                          const Frames& frames) noexcept;
    template <class EndOf, class NextEndOf>
    void copy_stacks(const StepStore& store, const RowsOut& out, std::size_t count, EndOf&& end_of,
                     NextEndOf&& next_end_of);

    void make_room(const Schema& schema, const RowsOut& out, std::size_t count, bool resolving);

    Plan step_, next_;                                    // what lies in the row itself, and in its successor
    Plan observation_, reward_;                           // by arrivals, where these lie elsewhere
    std::vector<std::byte> nothing_;                      // a record of zeros
    std::vector<const std::byte*> records_, successors_;  // by row
    std::vector<const std::byte*> observed_, arrived_;    // by arrivals
    std::vector<Source> own_sources_, observed_sources_, successor_sources_;  // empty without columns
    std::vector<std::uint32_t> last_rows_;                                    // empty without stacks of successors
    std::vector<std::uint8_t> flags_;                                         // of the last summed steps
    std::vector<Segment> segments_;
    Frames frames_, next_frames_;
};

}  // namespace ringback
