#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ringback/check.hpp"

namespace ringback {

// Sums over leaves, eight children a node (one cache line of 64-bit values).
//
//   level 0   the leaves, padded with zeros to whole nodes
//   level k   entry i is the sum of entries 8i .. 8i+7 of level k-1;  the top level has eight entries
//
// Costs: set and find O(log8 n); grow amortised O(1) a leaf. With integers, sums are exact.
// Threads: const methods may run side by side, anything else needs exclusive access.
class CountTree {
  public:
    static constexpr std::size_t kFan = 8;

    CountTree() { grow(kFan); }

    std::size_t size() const noexcept { return levels_[0].size(); }
    std::int64_t total() const noexcept { return total_; }
    std::int64_t get(std::size_t leaf) const noexcept { return levels_[0][leaf]; }

    // At least n leaves; new ones are 0.
    void grow(std::size_t n) {
        std::size_t want = levels_.empty() ? kFan : levels_[0].size();
        while (want < n) want *= 2;
        if (!levels_.empty() && want == levels_[0].size()) return;
        std::vector<std::int64_t> leaves = levels_.empty() ? std::vector<std::int64_t>() : std::move(levels_[0]);
        leaves.resize(want);
        levels_.clear();
        levels_.push_back(std::move(leaves));
        while (levels_.back().size() > kFan) {
            const auto& below = levels_.back();
            std::vector<std::int64_t> sums((below.size() + kFan - 1) / kFan);
            for (std::size_t i = 0; i < below.size(); ++i) sums[i / kFan] += below[i];
            sums.resize((sums.size() + kFan - 1) / kFan * kFan);
            levels_.push_back(std::move(sums));
        }
    }

    // Leaf must be < size().
    void set(std::size_t leaf, std::int64_t count) noexcept {
        const std::int64_t change = count - levels_[0][leaf];
        if (change == 0) return;
        for (auto& level : levels_) {
            level[leaf] += change;
            leaf /= kFan;
        }
        total_ += change;
    }

    // The leaf in which the rank-th unit lies, and its place inside that leaf. 0 <= rank < total(). Never a zero leaf.
    std::pair<std::size_t, std::int64_t> find(std::int64_t rank) const {
        RB_ASSUME(rank >= 0 && rank < total_);
        std::size_t node = 0;
        for (std::size_t k = levels_.size(); k-- > 0;) {
            const std::int64_t* child = levels_[k].data() + node * kFan;
            // All eight are looked at, without a branch: where to stop is a guess that would fail once a level.
            std::size_t behind = 0;
            std::int64_t sum = 0, before = 0;
            for (std::size_t i = 0; i < kFan; ++i) {
                sum += child[i];
                const bool is_behind = sum <= rank;
                behind += static_cast<std::size_t>(is_behind);
                before = is_behind ? sum : before;
            }
            rank -= before;
            node = node * kFan + behind;
        }
        return {node, rank};
    }

  private:
    std::vector<std::vector<std::int64_t>> levels_;
    std::int64_t total_ = 0;
};

}  // namespace ringback
