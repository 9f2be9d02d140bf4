#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ringback/count_tree.hpp"
#include "ringback/lookback.hpp"
#include "ringback/memory.hpp"
#include "ringback/prefetch.hpp"
#include "ringback/rng.hpp"
#include "ringback/runs.hpp"
#include "ringback/schema.hpp"
#include "ringback/streams.hpp"
#include "ringback/windows.hpp"

namespace ringback {

inline constexpr std::uint8_t kTerminated = 1, kTruncated = 2;

// What to do when the observation of a step differs from the successor that the step before was given.
enum class Mismatch : std::uint8_t { keep, split, raise };

// Rows to be written: column pointers, one step after the other, in the schema's order and dtypes.
struct StepRows {
    std::size_t count = 0;
    std::span<const std::byte* const> fields;      // one a field: `count` rows of it
    std::span<const std::byte* const> successors;  // one an observation leaf
    const std::uint8_t* terminated = nullptr;      // `count` flags, 0 or 1
    const std::uint8_t* truncated = nullptr;
};

struct Episode {
    std::int64_t birth = 0;   // counts all episodes ever begun
    std::int64_t first = 0;   // index of its oldest live step
    std::int64_t end = 0;     // index after its newest step
    std::int64_t origin = 0;  // its lane position of t = 0: step t lies at position origin + t
    std::uint32_t lane = 0;
    std::uint32_t newest = 0;  // the row of step end - 1; kept, although it follows, to spare each write the way there
    std::int64_t unit = 0;     // what a split deals with as one: pieces without a declared end between them share it
    std::int64_t number = 0;   // of a numbered stream, the number
    bool in_use = false;
    bool open = false;
    bool ended = false;  // closed by an end, not merely by the end of its block
    bool numbered = false;
    Side side = Side::train;
    StreamTable::Node* stream = nullptr;  // null once a numbered stream's episode has ended

    Extent extent() const noexcept { return {first, end}; }
    Stored stored() const noexcept { return {first, end, open, ended}; }
};

// Valid starts of one kind of windows, counted an episode, so that the r-th start of all is found in O(log episodes).
// Where windows cross episodes, those of a whole run are counted at its newest episode.
struct WindowIndex {
    WindowSpec spec;
    CountTree starts;  // a leaf an episode slot
};

// The first row of a window: row t of the episode in `slot`.
struct WindowStart {
    std::uint32_t slot;
    std::int64_t t;
};

// How the store is parted. One of every `groups` units is held out, each group's at a place that only the seed and the
// group decide, so that sides are known at birth and stay as they are. With `block`, units are blocks of so many steps
// of an episode, with `gap` unused steps behind each.
struct Split {
    std::int64_t groups = 0;  // 0: no split
    std::uint64_t seed = 0;
    std::int64_t block = 0, gap = 0;

    bool is_set() const noexcept { return groups > 0; }
    Side side_of(std::int64_t unit) const noexcept;
    bool operator==(const Split&) const = default;
};

class StepStore;

// Is told of every step, right after it was written.
class StepListener {
  public:
    virtual void step_written(const StepStore& store) = 0;

  protected:
    ~StepListener() = default;
};

// The last `capacity` steps of any number of streams, by age.
//
//   age ring   row_of[capacity]   slot (number mod capacity) holds the row of that step
//   pages      rows_per_page rows each; a page belongs to one lane, and a lane fills its pages one after the other
//   lanes      whoever writes has one; an episode that ends leaves its lane and its half-filled page to the next one
//   side pool  successor observations that are not the next row's observation
//
//       number   0   1   2   3   4   5   6          lane 0   page 0 [0 2 4 6]  page 2 [ …
//       row_of   0   4   1   5   2   6   3          lane 1   page 1 [1 3 5 .]
//
// Invariants
//   I1  The live set is the last min(capacity, written) steps in the order of writing.
//   I2  Every live step has exactly the successor observation that it was given. Where the next row of its episode has
//   the
//       same bytes it is stored once; for the newest step of an episode, and wherever it differs, in the side pool.
//   I3  A window never leaves its episode: not over an end, not over the write position, not into evicted rows.
//   I4  Writing a step is O(1) amortised and allocates nothing once warm; all input is copied, all output is copied.
//   I5  A number names one step for ever; row_of_number refuses numbers that are not live.
//   I6  A call that throws has changed nothing.
//   I7  A silent stream neither blocks eviction nor keeps a page: a page whose rows are all evicted is free,
//   half-filled or
//       not. At most capacity / rows_per_page + 2 * streams + 1 pages are in use.
//   I8  State and answers depend on the calls alone.
//
// Threads: const methods may run side by side, anything else needs exclusive access.
// Errors: std::invalid_argument and std::out_of_range without a "Where:" (the caller knows it), OutOfMemory.
class StepStore {
  public:
    // Throws std::invalid_argument for a capacity < 1 or > 2^30, OutOfMemory (with the bytes) if it cannot fit this
    // machine.
    StepStore(Schema schema, std::int64_t capacity, Mismatch mismatch);
    StepStore(StepStore&&) = default;
    StepStore& operator=(StepStore&&) = delete;  // the streams' nodes live in a pool of their own

    // ---- writing ----

    // One step of each of rows.count streams, in that order; the streams differ. ids[i] receives the number of step i.
    void write(const StepRows& rows, std::span<const StreamKey> streams, std::span<std::int64_t> ids);

    // Consecutive steps of one episode (rows may be empty). `start` is the index of the first; it must be where the
    // stream stands (0 for a new one); with `cut`, a later index closes what is open as truncated and begins an episode
    // with missing history. `terminated`/`truncated`: the flags of the last step, also when it was written earlier.
    // Inside the chunk each successor is taken to be the next row's observation's equal: Mismatch::raise looks at the
    // first row only.
    void write_chunk(const StepRows& rows, const StreamKey& stream, std::int64_t start, bool cut, bool terminated,
                     bool truncated, std::span<std::int64_t> ids);

    // Closes the stream's open episode as truncated. False: none is open.
    bool end_episode(const StreamKey& stream);
    void end_all_episodes();

    // Overwrites one field of a live step; for an observation also what the step before leads to, where that is stored
    // once.
    void set_field(std::uint32_t row, std::size_t field, const std::byte* value) noexcept;

    void tell(StepListener* listener) noexcept { listener_ = listener; }  // null: nobody

    // Parts the store from now on; what is stored is parted too. Throws std::invalid_argument for another split than
    // before, and for one by blocks once there are steps.
    void split(const Split& split);
    const Split& split() const noexcept { return split_; }

    // ---- reading ----

    const Schema& schema() const noexcept { return schema_; }
    std::int64_t capacity() const noexcept { return capacity_; }
    std::int64_t written() const noexcept { return written_; }
    std::int64_t live() const noexcept { return written_ < capacity_ ? written_ : capacity_; }
    std::int64_t oldest() const noexcept { return written_ - live(); }
    std::int64_t episode_count() const noexcept { return episode_count_; }  // with at least one live step
    std::int64_t open_count() const noexcept { return open_count_; }        // of these, open
    std::int64_t kept_successors() const noexcept { return kept_; }         // mismatches ever kept beside the rows
    std::int64_t pages_in_use() const noexcept;
    std::int64_t rows_per_page() const noexcept { return std::int64_t{1} << page_shift_; }
    std::size_t bytes() const noexcept;  // in use by rows, side pool and tables; window indexes apart

    // The row of the step that is `offset` steps younger than the oldest. 0 <= offset < live().
    std::uint32_t row_at_offset(std::int64_t offset) const noexcept {
        // With one writer at a time since the start, its lane's few page numbers say it as well as the whole age ring:
        // a lane skips positions only when all its rows are evicted, and pages are smaller than the ring.
        if (lanes_.size() == 1) return row_at(lanes_[0], oldest() + offset - first_number_);
        return *slot_at_offset(offset);
    }
    void rows_at_offsets(std::span<const std::int64_t> offsets, std::span<std::uint32_t> rows) const noexcept {
        if (lanes_.size() != 1) {
            for (std::size_t i = 0; i < offsets.size(); ++i) rows[i] = *slot_at_offset(offsets[i]);
            return;
        }
        const Lane& lane = lanes_[0];
        const std::int64_t begin = oldest() - first_number_;
        for (std::size_t i = 0; i < offsets.size(); ++i) rows[i] = row_at(lane, begin + offsets[i]);
    }
    // Brings nearer what row_at_offset will read.
    void prefetch_row_at_offset(std::int64_t offset) const noexcept {
        if (lanes_.size() != 1) prefetch(slot_at_offset(offset));
    }
    // Hands `visit(row, count)` the rows of the steps t .. t + steps - 1 of the episode, all of them live, in order, as
    // runs that lie behind each other.
    template <class Visit>
    void visit_runs(const Episode& episode, std::int64_t t, std::int64_t steps, Visit&& visit) const {
        for (const std::int64_t end = t + steps; t < end;) {
            const std::uint32_t row = row_of(episode, t);
            const std::int64_t count = std::min(end - t, rows_per_page() - (row & page_mask_));
            visit(row, static_cast<std::size_t>(count));
            t += count;
        }
    }
    // The numbers of the steps t .. t + numbers.size() - 1 of the episode, all of them live. One writer's follow from
    // its positions, so that no memory is read for them.
    void numbers_of(const Episode& episode, std::int64_t t, std::span<std::int64_t> numbers) const noexcept;
    std::int64_t number_of(const Episode& episode, std::int64_t t) const noexcept {
        return lanes_.size() == 1 ? first_number_ + episode.origin + t : number(row_of(episode, t));
    }
    // Brings nearer what numbers_of will read of `count` rows that lie behind each other.
    void prefetch_numbers(std::uint32_t row, std::size_t count) const noexcept {
        if (lanes_.size() != 1)
            prefetch_span(reinterpret_cast<const std::byte*>(numbers() + row), count * sizeof(std::int64_t));
    }
    bool is_live(std::int64_t number) const noexcept { return number >= oldest() && number < written_; }
    // Throws std::out_of_range: "must be live, in [oldest, written), got number".
    std::uint32_t row_of_number(std::int64_t number) const;
    // The row of step t of the episode; t must be live.
    std::uint32_t row_of(const Episode& episode, std::int64_t t) const noexcept {
        return row_at(lanes_[episode.lane], episode.origin + t);
    }
    // Brings nearer what row_of will read.
    void prefetch_row_of(const Episode& episode, std::int64_t t) const noexcept {
        prefetch(lanes_[episode.lane].place_of((episode.origin + t) >> page_shift_));
    }

    const Episode& episode(std::uint32_t slot) const noexcept { return episodes_[slot]; }
    const Episode* episodes() const noexcept { return episodes_.data(); }
    std::size_t episode_slots() const noexcept { return episodes_.size(); }
    const StreamTable& streams() const noexcept { return streams_; }

    const std::byte* record(std::uint32_t row) const noexcept { return records_.data() + row * schema_.record_bytes(); }
    const std::byte* column(std::int32_t c, std::uint32_t row) const noexcept {
        return columns_[static_cast<std::size_t>(c)].data() + row * schema_.columns()[static_cast<std::size_t>(c)];
    }
    const std::int64_t* numbers() const noexcept { return reinterpret_cast<const std::int64_t*>(numbers_.data()); }
    const StepTime* times() const noexcept { return reinterpret_cast<const StepTime*>(times_.data()); }
    std::int64_t number(std::uint32_t row) const noexcept { return numbers()[row]; }
    const StepTime& time(std::uint32_t row) const noexcept { return times()[row]; }
    const Episode& episode_of(std::uint32_t row) const noexcept { return episodes_[time(row).episode]; }
    StepTag tag(std::uint32_t row) const noexcept { return tag_of(record(row)); }
    StepTag tag_of(const std::byte* record) const noexcept {
        std::uint32_t word;
        std::memcpy(&word, record + schema_.tag_offset(), sizeof word);
        return StepTag::from(word);
    }
    // The row of the step after this one in its episode, whether the two have the observation in common or not; the
    // step must not be the episode's newest.
    std::uint32_t next_row(std::uint32_t row) const noexcept {
        if (next_is_adjacent(row)) return row + 1;
        return row_of(episode_of(row), time(row).t + 1);
    }
    // The row of the step `steps` before this one in its episode, which must be live.
    std::uint32_t row_before(std::uint32_t row, std::int64_t steps) const noexcept {
        if ((row & page_mask_) >= steps) return row - static_cast<std::uint32_t>(steps);
        return row_of(episode_of(row), time(row).t - steps);
    }
    // Whether the step has a successor step in its episode. A row whose successor is the next one's observation says so
    // itself; otherwise it is the episode's newest step, or one beside which another observation is kept.
    bool goes_on(std::uint32_t row) const noexcept {
        return tag(row).link == 0 || time(row).t + 1 < episode_of(row).end;
    }
    bool next_is_adjacent(std::uint32_t row) const noexcept {
        return ((row + 1) & static_cast<std::uint32_t>(page_mask_)) != 0;
    }
    const std::byte* field(std::uint32_t row, std::size_t index) const noexcept {
        const Place& place = schema_.place(index);
        return place.in_column() ? column(place.column, row) : record(row) + place.offset;
    }
    // Where observation leaf `leaf` of the step's successor lies.
    const std::byte* successor(std::uint32_t row, std::size_t leaf) const noexcept;
    const std::byte* entry_record(std::uint32_t entry) const noexcept {
        return entry_records_.data() + entry * schema_.observation_bytes();
    }
    const std::byte* entry_column(std::int32_t c, std::uint32_t entry) const noexcept {
        return entry_columns_[static_cast<std::size_t>(c)].data() +
               entry * schema_.columns()[static_cast<std::size_t>(c)];
    }

    // ---- windows ----

    // Counts of the valid starts, kept up to date by every write from prepare_windows on (the last kWindowIndexes kinds
    // prepared). Null: call prepare_windows first, O(episodes).
    const WindowIndex* window_index(const WindowSpec& spec) const noexcept;
    void prepare_windows(const WindowSpec& spec);

    // Of each rank the start: the rank-th of all. 0 <= rank < index.starts.total().
    void find_starts(const WindowIndex& index, std::span<const std::int64_t> ranks,
                     std::span<WindowStart> starts) const noexcept;

    // Numbers of all valid starts, oldest first. O(live). Not for windows that cross episodes.
    std::vector<std::int64_t> valid_starts(const WindowSpec& spec) const;

    // The episodes of one numbered stream that follow each other, each from its t = 0 on: known once windows that cross
    // episodes are prepared.
    const Runs& runs() const noexcept { return runs_; }
    // The rows of a run that windows may have, by position.
    Extent run_rows(const Runs::Run& run, const WindowSpec& spec) const noexcept;

    // ---- state: content, not layout ----

    struct EpisodeState {
        std::uint32_t slot;
        std::int64_t birth, first, end, unit, number;
        bool open, numbered;
        bool has_stream;
        StreamKey stream;
    };
    struct DormantState {
        StreamKey stream;
        std::int64_t next_t, unit;
    };
    struct State {
        std::int64_t written = 0, births = 0, units = 0, kept = 0;
        Split split;
        std::vector<EpisodeState> episodes;        // live ones, by birth
        std::vector<DormantState> dormant;         // oldest first
        std::vector<std::uint32_t> free_episodes;  // slots, in the order they are taken from the back
    };
    State state() const;
    // The rows of live steps [begin, begin + count) by number. `owned`: 1 where the successor is not the next row's.
    struct RowState {
        std::span<std::byte* const> fields;  // out, `count` rows each
        std::span<std::int64_t> t;           // out
        std::span<std::uint32_t> episode;    // out: slot
        std::span<std::uint8_t> flags;       // out
        std::span<std::uint8_t> owned;       // out
    };
    void read_rows(std::int64_t begin, std::size_t count, const RowState& out) const;

    // Builds the same content in an empty store: restore, then restore_rows for all live steps by number, then
    // restore_done. Each throws std::invalid_argument on content that contradicts itself; the store is then useless.
    void restore(const State& state);
    struct RowContent {
        std::size_t count = 0;
        std::span<const std::byte* const> fields;
        std::span<const std::byte* const> successors;  // one row for each owned successor, in order
        std::size_t successor_count = 0;
        const std::int64_t* t = nullptr;
        const std::uint32_t* episode = nullptr;
        const std::uint8_t* flags = nullptr;
        const std::uint8_t* owned = nullptr;
    };
    void restore_rows(const RowContent& rows);
    void restore_done();

    static constexpr std::size_t kWindowIndexes = 8;
    // Indices of steps stay well below what the window resolver takes for infinite.
    static constexpr std::int64_t kMaxTime = std::int64_t{1} << 59;

  private:
    // The pages of one writer, oldest first; page_at counts the pages that the lane has ever had.
    struct Lane {
        std::vector<std::uint32_t> ring = std::vector<std::uint32_t>(4);  // size a power of two
        std::int64_t first = 0, end = 0;                                  // pages held: [first, end)
        std::int64_t next = 0;                                            // position of the next row
        std::uint32_t page_at(std::int64_t index) const noexcept { return *place_of(index); }
        const std::uint32_t* place_of(std::int64_t index) const noexcept {
            return ring.data() + (static_cast<std::size_t>(index) & (ring.size() - 1));
        }
        void push(std::uint32_t page);
    };

    std::uint32_t row_at(const Lane& lane, std::int64_t position) const noexcept {
        return lane.page_at(position >> page_shift_) << page_shift_ | static_cast<std::uint32_t>(position & page_mask_);
    }
    const std::uint32_t* slot_at_offset(std::int64_t offset) const noexcept {
        const std::int64_t slot = oldest_slot_ + offset;
        return row_of_.data() + (slot < capacity_ ? slot : slot - capacity_);
    }

    // How a write goes on from the stream's last step.
    enum class Match : std::uint8_t { none, same, equal, differs };  // equal: the same values in other bytes (-0, NaN)

    std::size_t row_offset(std::size_t field, std::size_t i) const noexcept { return i * schema_.place(field).bytes; }
    Match compare(const StreamTable::Node* stream, const StepRows& rows, std::size_t i) const noexcept;
    void check_matches(const StepRows& rows, std::span<const StreamKey> streams);
    void reserve(std::size_t steps, std::size_t streams);
    // `stream` may be null (unknown yet); null again once a numbered stream's episode has ended.
    std::int64_t write_one(const StepRows& rows, std::size_t i, StreamTable::Node*& stream, const StreamKey& key,
                           bool terminated, bool truncated);
    void prefetch_next_write(std::uint32_t row) const noexcept;
    std::uint32_t put_row(Episode& episode);
    void fill_row(std::uint32_t row, const StepRows& rows, std::size_t i) noexcept;
    void fill_entry(std::uint32_t entry, std::span<const std::byte* const> successors, std::size_t i) noexcept;
    void evict();

    std::uint32_t begin_episode(const StreamKey& key, std::int64_t t, std::int64_t unit);
    void wake(StreamTable::Node* stream);
    bool block_begins(std::int64_t t) const noexcept;
    void begin_block_if_due(StreamTable::Node* stream);
    Side side_of(const Episode& episode) const noexcept;
    void finish_episode(std::uint32_t slot, std::uint8_t flags);
    void split_off(StreamTable::Node* stream);
    void drop_episode(std::uint32_t slot);
    std::int64_t count_starts(const WindowSpec& spec, std::uint32_t slot) const noexcept;
    void count_windows(std::uint32_t slot) noexcept;
    void join_run(std::uint32_t slot);
    std::uint32_t take_lane();
    std::uint32_t take_entry() noexcept;
    std::byte* record(std::uint32_t row) noexcept { return records_.data() + row * schema_.record_bytes(); }
    std::byte* mutable_field(std::uint32_t row, std::size_t index) noexcept;
    void put_place(std::uint32_t row, std::int64_t number, const StepTime& time) noexcept {
        std::memcpy(numbers_.data() + row * sizeof number, &number, sizeof number);
        std::memcpy(times_.data() + row * sizeof time, &time, sizeof time);
    }
    void put_tag(std::uint32_t row, StepTag tag) noexcept {
        const std::uint32_t word = tag.word();
        std::memcpy(record(row) + schema_.tag_offset(), &word, sizeof word);
    }

    Schema schema_;
    std::int64_t capacity_;
    Mismatch mismatch_;
    int page_shift_ = 0;
    std::int64_t page_mask_ = 0;

    std::vector<std::uint32_t> row_of_;  // the age ring
    std::int64_t written_ = 0, oldest_slot_ = 0, next_slot_ = 0;
    std::int64_t first_number_ = 0;  // of the first step written here: not 0 after a restore

    Region records_, numbers_, times_;
    std::vector<Region> columns_;
    std::uint32_t page_count_ = 0;           // pages that there is room for
    std::vector<std::uint32_t> free_pages_;  // taken from the back
    std::vector<std::uint8_t> page_live_;    // live rows of each page

    Region entry_records_;
    std::vector<Region> entry_columns_;
    std::uint32_t entry_count_ = 0;      // entries that there is room for
    std::uint32_t entries_touched_ = 0;  // entries that were ever in use
    std::vector<std::uint32_t> free_entries_;

    std::vector<Lane> lanes_;
    std::vector<std::uint32_t> free_lanes_;

    std::vector<Episode> episodes_;
    std::vector<std::uint32_t> free_episodes_;
    std::int64_t births_ = 0, units_ = 0, episode_count_ = 0, open_count_ = 0, kept_ = 0;

    StreamTable streams_;
    StepListener* listener_ = nullptr;
    Split split_;
    std::vector<std::unique_ptr<WindowIndex>> windows_;  // newest last
    Runs runs_;

    std::vector<std::int64_t> restored_ends_;                         // while restoring: each episode's end, by slot
    std::unordered_map<std::int64_t, std::int64_t> restored_births_;  // of each numbered stream's newest episode so far
    std::int64_t restored_written_ = 0;
};

}  // namespace ringback
