#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "ringback/check.hpp"
#include "ringback/copy.hpp"
#include "ringback/step_store.hpp"

// The content of a store as a caller keeps it, and a store built from it.
namespace ringback {

StepStore::State StepStore::state() const {
    State state;
    state.written = written_;
    state.births = births_;
    state.units = units_;
    state.split = split_;
    state.kept = kept_;
    for (std::uint32_t slot = 0; slot < episodes_.size(); ++slot) {
        const Episode& episode = episodes_[slot];
        if (!episode.in_use) continue;
        const bool has_stream = episode.stream != nullptr;
        state.episodes.push_back({slot, episode.birth, episode.first, episode.end, episode.unit, episode.number,
                                  episode.open, episode.numbered, has_stream,
                                  has_stream ? episode.stream->first : StreamKey()});
    }
    std::sort(state.episodes.begin(), state.episodes.end(),
              [](const auto& a, const auto& b) { return a.birth < b.birth; });
    for (const auto* node : streams_.dormant())
        state.dormant.push_back({node->first, node->second.next_t, node->second.unit});
    state.free_episodes = free_episodes_;
    return state;
}

void StepStore::read_rows(std::int64_t begin, std::size_t count, const RowState& out) const {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t row = row_of_number(begin + static_cast<std::int64_t>(i));
        const StepTag step = tag(row);
        for (std::size_t f = 0; f < schema_.fields().size(); ++f)
            copy_bytes(out.fields[f] + row_offset(f, i), field(row, f), schema_.place(f).bytes);
        out.t[i] = time(row).t;
        out.episode[i] = time(row).episode;
        out.flags[i] = step.flags;
        out.owned[i] = step.link != 0;
    }
}

namespace {

void require(bool condition, const char* rule) {
    if (!condition) throw std::invalid_argument(std::string("state must be consistent, got one in which ") + rule);
}

constexpr std::int64_t kMaxCount = std::int64_t{1} << 62;

}  // namespace

void StepStore::restore(const State& state) {
    RB_ASSUME(written_ == 0 && episodes_.empty());
    windows_.clear();
    runs_.clear();
    split_ = state.split;
    require(split_.groups >= 0 && split_.groups < kMaxCount && split_.block >= 0 && split_.block < kMaxTime &&
                split_.gap >= 0 && split_.gap < kMaxTime,
            "the split is out of range");
    require(state.units >= 0 && state.units < kMaxCount, "a counter is out of range");
    require(state.written >= 0 && state.written < kMaxCount && state.births >= 0 && state.births < kMaxCount &&
                state.kept >= 0 && state.kept < kMaxCount,
            "a counter is out of range");
    const std::size_t slots = state.episodes.size() + state.free_episodes.size();
    require(slots <= 2 * static_cast<std::size_t>(capacity_) + 64, "there are more episodes than steps");
    std::vector<bool> seen(slots);
    const auto see = [&](std::uint32_t slot) {
        require(slot < slots && !seen[slot], "episode slots are not a permutation");
        seen[slot] = true;
    };
    episodes_.resize(slots);
    restored_ends_.assign(slots, 0);
    std::int64_t steps = 0, last_birth = -1;
    std::unordered_map<std::int64_t, std::uint32_t> newest_slots;  // of each numbered stream
    for (const EpisodeState& e : state.episodes) {
        see(e.slot);
        require(e.birth > last_birth, "episodes are not in the order of their births");
        last_birth = e.birth;
        require(e.first >= 0 && e.first < e.end && e.end < 2 * kMaxTime && e.end - e.first <= capacity_,
                "an episode has no steps");
        require(e.birth >= 0 && e.birth < state.births, "an episode's birth is out of range");
        require(e.unit >= 0 && e.unit < state.units, "an episode's unit is out of range");
        require(!e.open || e.has_stream, "an open episode has no stream");
        require(!e.has_stream || e.open || std::holds_alternative<std::string>(e.stream),
                "a closed episode has a numbered stream");
        require(!e.has_stream || streams_.find(e.stream) == nullptr, "two episodes have one stream");
        if (e.numbered) {  // one episode at a time writes to a numbered stream
            require(!e.open || e.stream == StreamKey(e.number), "an open episode has another stream's number");
            const auto [newest, is_new] = newest_slots.try_emplace(e.number, e.slot);
            require(is_new || !episodes_[newest->second].open,
                    "an episode begins while another one of its stream is open");
            newest->second = e.slot;
        }
        steps += e.end - e.first;
        Episode& episode = episodes_[e.slot];
        episode.birth = e.birth;
        episode.first = episode.end = e.first;
        episode.unit = e.unit;
        episode.number = e.number;
        episode.numbered = e.numbered;
        episode.in_use = true;
        episode.side = side_of(episode);
        restored_ends_[e.slot] = e.end;
        if (e.has_stream) {
            episode.stream = streams_.open(e.stream, e.slot);
            if (!e.open) streams_.finish(episode.stream);
        }
        episode.open = e.open;
        open_count_ += e.open ? 1 : 0;
        ++episode_count_;
    }
    require(steps == std::min(state.written, capacity_), "the episodes' steps do not add up");
    for (const std::uint32_t slot : state.free_episodes) see(slot);
    for (const DormantState& d : state.dormant) {
        require(streams_.find(d.stream) == nullptr, "two episodes have one stream");
        require(d.next_t >= 0 && d.next_t < 2 * kMaxTime, "a dormant stream's step is out of range");
        require(d.unit >= 0 && d.unit < state.units, "a dormant stream's unit is out of range");
        streams_.sleep(streams_.open(d.stream, kNoEpisode), d.next_t, d.unit);
    }
    streams_.forget_surplus();
    free_episodes_ = state.free_episodes;
    births_ = state.births;
    units_ = state.units;
    kept_ = state.kept;
    written_ = first_number_ = state.written - steps;
    next_slot_ = oldest_slot_ = written_ % capacity_;
    restored_written_ = state.written;
}

void StepStore::restore_rows(const RowContent& rows) {
    require(static_cast<std::int64_t>(rows.count) <= restored_written_ - written_,
            "there are more steps than were counted");
    reserve(rows.count, rows.count);
    StepRows content{rows.count, rows.fields, rows.successors};
    std::size_t next_successor = 0;
    for (std::size_t i = 0; i < rows.count; ++i) {
        const std::uint32_t slot = rows.episode[i];
        require(slot < episodes_.size() && episodes_[slot].in_use, "a step is of no episode");
        Episode& episode = episodes_[slot];
        const std::int64_t end = restored_ends_[slot];
        require(rows.t[i] == episode.end && episode.end < end, "a step is out of order");
        const bool last = rows.t[i] + 1 == end;
        const bool ended = last && !episode.open;
        if (ended) episode.ended = rows.flags[i] != 0;
        const bool is_block = split_.block > 0;  // the end of a block has no flag
        require(ended ? rows.flags[i] >= (is_block ? 0 : 1) && rows.flags[i] <= 3 : rows.flags[i] == 0,
                "an end is not where the episode ends");
        require(rows.owned[i] != 0 || !last, "the newest step of an episode has no successor");
        if (episode.numbered) {
            std::int64_t& birth = restored_births_.try_emplace(episode.number, episode.birth).first->second;
            require(birth <= episode.birth, "the episodes of a stream are mixed up");
            birth = episode.birth;
        }
        if (episode.first == episode.end) episode.lane = take_lane();
        std::uint32_t link = 0;
        if (rows.owned[i] != 0) {
            require(next_successor < rows.successor_count, "a successor is missing");
            link = take_entry() + 1;
            fill_entry(link - 1, rows.successors, next_successor++);
        }
        const std::uint32_t row = put_row(episode);
        fill_row(row, content, i);
        put_place(row, written_++, {episode.end++, slot});
        put_tag(row, {rows.flags[i], link});
        row_of_[static_cast<std::size_t>(next_slot_)] = row;
        if (++next_slot_ == capacity_) next_slot_ = 0;
        if (ended) free_lanes_.push_back(episode.lane);
    }
    require(next_successor == rows.successor_count, "a successor is left over");
}

void StepStore::restore_done() {
    require(written_ == restored_written_, "steps are missing");
    restored_ends_ = {};
    restored_births_ = {};
}

}  // namespace ringback
