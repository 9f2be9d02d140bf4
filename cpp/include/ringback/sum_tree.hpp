#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ringback/memory.hpp"
#include "ringback/prefetch.hpp"

namespace ringback {

// Sums and extremes of non-negative float64 leaves, eight children a node (one cache line).
//
//   level 0   the leaves, padded with zeros to whole nodes; -0 is as good a zero as +0
//   level k   entry i is the sum of entries 8i .. 8i+7 of level k-1; beside it stand their extremes, the smallest that
//             is not zero and the largest;  the top level is one node
//
// Invariants
//   S1  An entry is computed anew from its eight children whenever one of them changes: nothing drifts, and sums depend
//       on the leaves alone, not on how they came about.
//   S2  An entry is zero exactly when its children are: sums of non-negative numbers never round down to zero.
//   S3  A find never answers with a zero leaf, however sums and masses round.
//
// Costs: set and find O(log8 capacity) a leaf. A batch goes level by level, so that its cache misses overlap; memory is
// committed when it is first touched. Nothing is allocated after construction.
// Threads: const methods may run side by side, anything else needs exclusive access.
// Errors: OutOfMemory by the constructor. Otherwise callers check; what they must hold to is said at each method.
class SumTree {
  public:
    static constexpr std::uint32_t kFan = 8;

    struct Extremes {
        double smallest = 0;  // of those that are not zero; 0 if all are
        double largest = 0;
    };

    // Leaves 0 .. capacity-1, all zero. 1 <= capacity <= 2^31.
    explicit SumTree(std::int64_t capacity);

    std::int64_t capacity() const noexcept { return capacity_; }
    double total() const noexcept { return total_; }
    const Extremes& extremes() const noexcept { return extremes_; }
    // Leaves that only fill the last node may be asked for too.
    double get(std::uint32_t leaf) const noexcept { return sums_[0][leaf]; }
    void prefetch_leaf(std::uint32_t leaf) const noexcept { prefetch(sums_[0] + leaf); }
    std::size_t bytes() const noexcept { return memory_.size(); }

    // leaves[i] becomes values[i]; the last of equal leaves wins. Values are >= 0 and their total is finite; where the
    // processor takes subnormal numbers for zero, none is subnormal.
    void set(std::span<const std::uint32_t> leaves, std::span<const double> values);

    // The same by parts, for who reads leaves in between: put writes a leaf, update then brings up to date what all
    // leaves put since were summed up in. Until then nothing but get is right.
    void put(std::uint32_t leaf, double value) noexcept { sums_[0][leaf] = value; }
    void update(std::span<const std::uint32_t> leaves);

    // leaves[i] is the one in which masses[i] lies when the leaves are laid side by side, up to rounding; a mass of
    // total() or more lies in the last that is not zero. Masses are >= 0, and total() > 0.
    void find(std::span<const double> masses, std::span<std::uint32_t> leaves) const;

  private:
    static constexpr std::size_t kBlock = 256;  // leaves that go up or down together
    // Entries of one level, in the order of the leaves that were set.
    struct Entries {
        std::array<std::uint32_t, kBlock> index;
        std::size_t count = 0;

        // Calls change(entry) for each, which says whether the parent is to know; the parents take their place.
        template <class Change>
        void climb(std::size_t all, Change change) noexcept {
            if (count > all) {  // then all of them once
                count = all;
                for (std::size_t i = 0; i < count; ++i) index[i] = static_cast<std::uint32_t>(i);
            }
            const std::size_t entries = count;
            count = 0;
            std::uint32_t last = ~0U;
            for (std::size_t i = 0; i < entries; ++i) {
                const std::uint32_t entry = index[i], parent = entry / kFan;
                const bool goes_up = change(entry) & (parent != last);
                index[count] = parent;
                count += goes_up;
                last = goes_up ? parent : last;
            }
        }
    };
    static constexpr std::size_t kLevels = 11;  // of 2^31 leaves
    static constexpr std::size_t kLine = 64;

    void update_block(std::span<const std::uint32_t> leaves) noexcept;
    void find_block(std::span<const double> masses, std::span<std::uint32_t> leaves) const noexcept;

    std::int64_t capacity_;
    std::size_t top_ = 0;                           // the highest level
    std::array<std::size_t, kLevels> sizes_{};      // entries of each level, in whole nodes
    std::array<double*, kLevels> sums_{};           // into memory_
    std::array<Extremes*, kLevels> extremes_at_{};  // likewise, from level 1 on
    double total_ = 0;
    Extremes extremes_;
    Region memory_;
};

}  // namespace ringback
