#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ringback/check.hpp"

namespace ringback {

// Episodes that follow each other on one stream, so that windows can run on over their ends.
//
//   position   0 1 2 3 | 4 5 6 | 7 8 ...      of a step: base + t
//   episode    A       | B     | C
//
// By arrivals each closed episode has one more row, so positions are further by the episodes before (`ordinal`).
//
// Costs: O(1), find O(log episodes of the run). Threads: const methods may run side by side.
class Runs {
  public:
    struct Member {
        std::uint32_t slot;    // of the episode
        std::int64_t base;     // position of its t = 0 by steps
        std::int64_t ordinal;  // episodes ever before it in the run

        // Of row t; the first live row of the run's oldest episode need not be its first.
        std::int64_t position(std::int64_t t, bool arrival) const noexcept {
            return base + t + (arrival ? ordinal : 0);
        }
    };
    struct Run {
        std::vector<Member> members;  // oldest first, from `head` on
        std::size_t head = 0;
        bool numbered = false;
        std::int64_t number = 0;

        const Member& oldest() const noexcept { return members[head]; }
        const Member& newest() const noexcept { return members.back(); }
    };

    bool tracked() const noexcept { return tracked_; }
    void track() noexcept { tracked_ = true; }
    void clear() { *this = Runs(); }

    // The newest episode of the stream's run, or null.
    const Member* newest_of(std::int64_t number) const {
        const auto found = latest_.find(number);
        return found == latest_.end() ? nullptr : &runs_[found->second].newest();
    }
    // The episode goes on where the newest of the stream's run ended.
    void join(std::uint32_t slot, std::int64_t number, std::int64_t previous_end) {
        const std::uint32_t id = latest_.at(number);
        const Member& last = runs_[id].newest();
        append(id, {slot, last.base + previous_end, last.ordinal + 1});
    }
    // The episode begins a run; a numbered stream's next ones may join it.
    void begin(std::uint32_t slot, bool numbered, std::int64_t number) {
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(runs_.size()));
            runs_.emplace_back();
        }
        const std::uint32_t id = free_.back();
        free_.pop_back();
        runs_[id].members.clear();
        runs_[id].head = 0;
        runs_[id].numbered = numbered;
        runs_[id].number = number;
        if (numbered) latest_[number] = id;
        append(id, {slot, 0, 0});
    }
    // The episode, the oldest of its run, is gone.
    void drop(std::uint32_t slot) {
        const std::uint32_t id = run_of_[slot];
        Run& run = runs_[id];
        RB_ASSUME(run.oldest().slot == slot);
        if (++run.head == run.members.size()) {
            if (const auto found = latest_.find(run.number);
                run.numbered && found != latest_.end() && found->second == id)
                latest_.erase(found);
            free_.push_back(id);
        } else if (run.head >= 32 && run.head * 2 > run.members.size()) {
            run.members.erase(run.members.begin(), run.members.begin() + static_cast<std::ptrdiff_t>(run.head));
            run.head = 0;
        }
    }

    const Run& run_of(std::uint32_t slot) const noexcept { return runs_[run_of_[slot]]; }
    // The member of the episode's run in which a position lies.
    static std::size_t find(const Run& run, std::int64_t position, bool arrival) noexcept {
        const auto behind =
            std::upper_bound(run.members.begin() + static_cast<std::ptrdiff_t>(run.head), run.members.end(), position,
                             [&](std::int64_t p, const Member& member) { return p < member.position(0, arrival); });
        return static_cast<std::size_t>(
            std::max<std::ptrdiff_t>(behind - run.members.begin() - 1, static_cast<std::ptrdiff_t>(run.head)));
    }

  private:
    void append(std::uint32_t id, const Member& member) {
        runs_[id].members.push_back(member);
        if (run_of_.size() <= member.slot) run_of_.resize(member.slot + 1);
        run_of_[member.slot] = id;
    }

    bool tracked_ = false;
    std::vector<Run> runs_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> run_of_;                       // by episode slot
    std::unordered_map<std::int64_t, std::uint32_t> latest_;  // by stream: the run that its next episode may join
};

}  // namespace ringback
