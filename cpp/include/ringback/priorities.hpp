#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ringback/rng.hpp"
#include "ringback/step_store.hpp"
#include "ringback/sum_tree.hpp"
#include "ringback/windows.hpp"

namespace ringback {

// What a start gets before its first update: the largest priority that can be drawn now, or that an update ever gave;
// 1 where there is none.
enum class NewPriority : std::uint8_t { max_live, max_ever };

// A batch of B draws: one out of each B-th part of all mass, or each out of all of it.
enum class Draws : std::uint8_t { stratified, independent };

// What the largest weight of a batch is divided by: the largest that any start has, or any of the batch.
enum class Normalise : std::uint8_t { by_buffer, by_batch };

struct PriorityOptions {
    WindowSpec windows;  // what is drawn; by steps, not `whole` and not `cross`
    double alpha = 0.6;
    double eps = 1e-6;
    NewPriority fresh = NewPriority::max_live;
};

// Which starts of a store's windows may be drawn, and how often: proportional prioritised replay (Schaul et al., 2016,
// sections 3.3 and 3.4). A start has the priority (abs_td + eps)^alpha of its last update.
//
//   leaves    one a slot of the age ring (number mod capacity), of that step:   +0  no start
//                                                                               -0  a start that is never drawn
//                                                                               > 0 a start of that mass
//
// Invariants
//   P1  After catch_up a step has a leaf exactly when it is a valid start (windows.hpp), whatever its priority.
//   P2  Only starts of a mass above zero are drawn, and only those enter the largest and the smallest.
//   P3  A number that is stale changes nothing: its slot belongs to another step.
//   P4  A call that throws has changed nothing.
// Masses lie in [kLeast, kMost], so that no sum of them is infinite and no ratio of two is zero; what an update gives
// beyond is taken for the nearer end. An error and an eps of 0 give no mass at all.
//
// Costs: a step written or an update O(log8 capacity), a draw too, independent of what was written before.
// Memory: 11.5 bytes a step of capacity, 8 more with a history.
// Threads: const methods may run side by side, anything else needs exclusive access. The store is the same each time.
// Errors: std::invalid_argument and std::out_of_range without a "Where:" (the caller knows it), OutOfMemory.
class Priorities : public StepListener {
  public:
    static constexpr double kLeast = 1e-150, kMost = 1e150;

    // For an empty store. Throws std::invalid_argument unless alpha and eps are finite and >= 0.
    Priorities(std::int64_t capacity, const PriorityOptions& options);

    const PriorityOptions& options() const noexcept { return options_; }
    std::int64_t starts() const noexcept { return starts_; }
    double total() const noexcept { return tree_.total(); }
    double largest_ever() const noexcept { return largest_ever_; }  // that an update gave; 0: none yet
    std::size_t bytes() const noexcept;

    // ---- following the store ----

    void step_written(const StepStore& store) override { catch_up(store); }

    // To be called after every step written. It may be called after several: they are gone through one by one, but by
    // what is stored at the end. P1 holds all the same; a start that came and went in between cannot hand on the mass
    // that it would have had. O(steps written).
    void catch_up(const StepStore& store);

    // Like catch_up, after anything else changed what a start is (a split). Starts keep what they have. O(live).
    void recount(const StepStore& store);

    // ---- priorities ----

    // Gives starts the priorities of their errors; the last of equal numbers wins. Numbers that are stale, or no
    // starts, are skipped: returns how many. Throws std::invalid_argument for an error that is negative, infinite or
    // NaN, std::out_of_range for a number that was never written.
    std::int64_t update(const StepStore& store, std::span<const std::int64_t> numbers, std::span<const double> abs_td);

    // The mass of each step, 0 where it is no start. Throws std::out_of_range for one that is not live.
    void read(const StepStore& store, std::span<const std::int64_t> numbers, std::span<double> masses) const;

    // ---- drawing, with replacement ----

    // Numbers of starts and their masses. Throws std::invalid_argument if there is no mass. Stratified draws come in
    // the order of the ring's slots.
    void draw(Rng& rng, const StepStore& store, Draws draws, std::span<std::int64_t> numbers,
              std::span<double> masses) const;

    // The weights (N mass / total)^-beta of what was drawn, divided by the largest. Throws std::invalid_argument unless
    // beta is finite and >= 0.
    void weights(std::span<const double> masses, double beta, Normalise normalise, std::span<float> weights) const;

    // ---- state: the masses that `read` gives of all live steps, and largest_ever ----

    // Into a new object, once the store is restored: masses of steps [begin, begin + masses.size()), in parts by number
    // without a gap. Throws std::invalid_argument for what cannot have been read; the object is then useless.
    void restore(const StepStore& store, std::int64_t begin, std::span<const double> masses);
    void restore_largest_ever(double largest);

  private:
    struct Place {
        std::uint32_t episode = 0;  // slot in the episode table
        std::uint32_t t = 0;        // the low bits
    };
    // Offsets (0 is the oldest step) and slots of the age ring turn into each other without a division.
    struct Ring {
        std::int64_t oldest, oldest_slot, capacity;
        std::uint32_t slot(std::int64_t number) const noexcept {
            const std::int64_t slot = oldest_slot + (number - oldest);
            return static_cast<std::uint32_t>(slot < capacity ? slot : slot - capacity);
        }
        std::int64_t number(std::uint32_t slot) const noexcept {
            const std::int64_t offset = slot - oldest_slot;
            return oldest + (offset < 0 ? offset + capacity : offset);
        }
    };

    Ring ring(const StepStore& store) const noexcept {
        return {store.oldest(), store.oldest() % tree_.capacity(), tree_.capacity()};
    }
    double priority_of(double abs_td) const noexcept;
    double largest() const noexcept;
    double fresh_mass();
    bool is_start(const Episode& episode, std::int64_t t) const noexcept;
    void arrive(const StepStore& store, std::int64_t number, std::uint32_t slot);
    void leave_without_history(const StepStore& store, Place gone);
    bool neighbours_hold(std::uint32_t slot, double mass) const noexcept;
    void give(std::uint32_t slot);
    void take(std::uint32_t slot);
    void flush();
    void check_restored(double mass, bool start) const;

    PriorityOptions options_;
    SumTree tree_;
    std::int64_t starts_ = 0;
    double largest_ever_ = 0;
    std::int64_t seen_ = 0;        // steps of the store
    std::uint32_t next_slot_ = 0;  // of step number `seen_`
    std::vector<Place> places_;    // of each slot's step; only with a history

    std::vector<std::uint32_t> slots_;  // whose leaves were put since the tree was up to date
    std::vector<double> masses_;        // what an update puts there
    double given_ = 0;                  // the largest mass given since then
    bool largest_taken_ = false;        // the largest may be gone
};

}  // namespace ringback
