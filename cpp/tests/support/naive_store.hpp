#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ringback/schema.hpp"
#include "ringback/step_store.hpp"

// The slow, obvious twin of the step store: a list of steps in the order of writing, a list of episodes, and nothing
// clever.
namespace ringback::twin {

using Leaves = std::vector<std::string>;  // the bytes of each field, or of each observation leaf

// A step as its writer gives it.
struct Given {
    Leaves fields;     // in the schema's order
    Leaves successor;  // one an observation leaf
    bool terminated = false;
    bool truncated = false;
};

struct NaiveStep {
    std::int64_t number;
    std::int64_t t;
    std::int64_t episode;  // counts episodes
    Leaves fields;
    Leaves successor;
    int flags;  // 1 terminated, 2 truncated
};

// An episode, or a piece of one: what windows do not leave.
struct NaiveEpisode {
    bool open;
    std::int64_t next_t;
    std::optional<StreamKey> stream;  // nothing once a numbered stream's episode has ended
    std::int64_t begin;               // t of the first step ever
    std::int64_t unit;
    StreamKey writer;
};

struct NaiveDormant {
    StreamKey stream;
    std::int64_t next_t, unit;
};

// A row of a window: the step taken there and the one that led there, as far as the rows' kind has them.
struct NaiveRow {
    std::int64_t episode, t;
    const NaiveStep* step;
    const NaiveStep* arrived;
};

// Rows that follow each other and can be read in full.
struct NaiveLine {
    std::vector<NaiveRow> rows;
    bool complete;  // of one episode, from its beginning to its end
};

struct NaiveStart {
    std::size_t line, row;
};

struct NaiveWindow {
    std::vector<NaiveRow> rows;
    std::size_t burn_in;  // rows before the start
};

inline double half_to_double(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// The floating-point value of one element; only asked for floating-point fields.
inline double element(DType dtype, const char* at) {
    if (dtype == DType::f16) {
        std::uint16_t bits;
        std::memcpy(&bits, at, sizeof bits);
        return half_to_double(bits);
    }
    if (dtype == DType::f32) {
        float value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    double value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

inline bool equal_values(const Field& field, const std::string& a, const std::string& b) {
    if (field.dtype != DType::f16 && field.dtype != DType::f32 && field.dtype != DType::f64) return a == b;
    for (std::size_t i = 0; i < a.size(); i += size_of(field.dtype)) {
        const double x = element(field.dtype, a.data() + i), y = element(field.dtype, b.data() + i);
        if (!(x == y || (std::isnan(x) && std::isnan(y)))) return false;
    }
    return true;
}

class NaiveStore {
  public:
    NaiveStore(const Schema& schema, std::int64_t capacity, Mismatch mismatch)
        : schema_(schema), capacity_(static_cast<std::size_t>(capacity)), mismatch_(mismatch) {}

    // One step of each of several streams: all of them, or none if one is refused.
    std::vector<std::int64_t> write(const std::vector<Given>& steps, const std::vector<StreamKey>& keys) {
        for (std::size_t i = 0; i < steps.size(); ++i) refuse_mismatch(steps[i], keys[i]);
        std::vector<std::int64_t> ids;
        for (std::size_t i = 0; i < steps.size(); ++i) {
            ids.push_back(append(steps[i], keys[i]));
            if (steps[i].terminated || steps[i].truncated) close(open_.at(keys[i]), flags_of(steps[i]));
        }
        return ids;
    }

    std::vector<std::int64_t> write_chunk(const std::vector<Given>& steps, const StreamKey& key, std::int64_t start,
                                          bool cut, bool terminated, bool truncated) {
        if (finished_.count(key) != 0) throw std::invalid_argument("the episode has ended");
        const std::int64_t stands_at = next_t(key);
        if (start < stands_at) throw std::invalid_argument("the chunk was there before");
        if (start > stands_at && !cut) throw std::invalid_argument("there is a gap");
        if (start == stands_at && !steps.empty()) refuse_mismatch(steps[0], key);
        std::optional<std::int64_t> unit;
        if (start > stands_at) {
            unit = unit_of(key);
            part(key, 2);
        }
        std::vector<std::int64_t> ids;
        for (std::size_t i = 0; i < steps.size(); ++i)
            ids.push_back(i == 0 && start > stands_at ? append(steps[i], key, start, unit) : append(steps[i], key));
        const int flags = (terminated ? 1 : 0) | (truncated ? 2 : 0);
        if (flags != 0 && open_.count(key) != 0) close(open_.at(key), flags);
        if (flags != 0) forget_dormant(key);
        if (flags == 0 && steps.empty() && start > stands_at) sleep(key, start, unit ? *unit : units_++);
        return ids;
    }

    bool end_episode(const StreamKey& key) {
        const bool known = open_.count(key) != 0 || is_dormant(key);
        if (open_.count(key) != 0) close(open_.at(key), 2);
        forget_dormant(key);
        return known;
    }

    void end_all() {
        while (!open_.empty()) close(open_.begin()->second, 2);
        dormant_.clear();
    }

    void split(const Split& split) { split_ = split; }

    void set_field(std::int64_t number, std::size_t field, const std::string& value) {
        NaiveStep& changed = step(number);
        NaiveStep* const before = step_of(changed.episode, changed.t - 1);
        // What the step before leads to is the same memory only if it has the same bytes (and no -0 or NaN made a
        // difference).
        if (before != nullptr && field < schema_.observation_count() && stored_once(*before))
            before->successor[field] = value;
        changed.fields[field] = value;
    }

    // ---- reading ----

    const std::deque<NaiveStep>& live() const { return live_; }
    std::int64_t written() const { return written_; }
    std::int64_t kept() const { return kept_; }
    std::size_t open_episodes() const { return open_.size(); }
    std::size_t dormant_count() const { return dormant_.size(); }
    const std::list<NaiveDormant>& dormant() const { return dormant_; }
    std::size_t most_open() const { return most_open_; }
    bool is_finished(const StreamKey& key) const { return finished_.count(key) != 0; }

    std::size_t episode_count() const {
        std::map<std::int64_t, int> seen;
        for (const auto& s : live_) seen[s.episode] = 1;
        return seen.size();
    }

    // The index of the next step of a stream.
    std::int64_t next_t(const StreamKey& key) const {
        if (open_.count(key) != 0) return episodes_.at(open_.at(key)).next_t;
        const NaiveDormant* const dormant = find_dormant(key);
        return dormant == nullptr ? 0 : dormant->next_t;
    }

    // The successor that the newest step of a stream was given, if that step lives.
    std::optional<Leaves> last_successor(const StreamKey& key) const {
        if (open_.count(key) == 0) return std::nullopt;
        const std::int64_t episode = open_.at(key);
        for (auto s = live_.rbegin(); s != live_.rend(); ++s)
            if (s->episode == episode) return s->successor;
        return std::nullopt;
    }

    const NaiveStep& step(std::int64_t number) const {
        return live_.at(static_cast<std::size_t>(number - live_[0].number));
    }
    const NaiveStep* next(const NaiveStep& of) const {
        for (const auto& s : live_)
            if (s.episode == of.episode && s.t == of.t + 1) return &s;
        return nullptr;
    }
    bool is_open(const NaiveStep& of) const { return episodes_.at(of.episode).open; }

    const NaiveEpisode& episode(std::int64_t id) const { return episodes_.at(id); }
    Side side(std::int64_t id) const {
        const NaiveEpisode& of = episodes_.at(id);
        return region(of.begin) % 2 != 0 ? Side::unused : split_.side_of(of.unit);
    }
    const NaiveStep* find(std::int64_t episode, std::int64_t t) const {
        for (const auto& s : live_)
            if (s.episode == episode && s.t == t) return &s;
        return nullptr;
    }

    // The rows that windows of this kind are made of: a line an episode, or one a stream as long as its episodes
    // follow each other.
    std::vector<NaiveLine> lines(const WindowSpec& spec) const {
        std::map<std::int64_t, std::map<std::int64_t, const NaiveStep*>> steps;  // by episode, by t
        for (const auto& s : live_) steps[s.episode][s.t] = &s;
        std::vector<NaiveLine> lines;
        std::map<StreamKey, std::pair<std::size_t, Side>> newest;  // line and side of each stream's last episode
        for (const auto& [id, of] : steps) {
            const NaiveEpisode& owner = episodes_.at(id);
            const NaiveLine line = line_of(id, of, spec);
            const auto before = newest.find(owner.writer);
            const bool joins = spec.cross && std::holds_alternative<std::int64_t>(owner.writer) && owner.begin == 0 &&
                               before != newest.end() && before->second.second == side(id);
            if (spec.side != Side::any && spec.side != side(id)) {
                newest.erase(owner.writer);
            } else if (joins) {
                auto& rows = lines[before->second.first].rows;
                rows.insert(rows.end(), line.rows.begin(), line.rows.end());
            } else {
                newest[owner.writer] = {lines.size(), side(id)};
                lines.push_back(line);
            }
        }
        return lines;
    }

    static std::vector<NaiveStart> starts(const std::vector<NaiveLine>& lines, const WindowSpec& spec) {
        std::vector<NaiveStart> starts;
        for (std::size_t line = 0; line < lines.size(); ++line)
            for (std::size_t i = 0; i < lines[line].rows.size(); ++i) {
                const auto left = static_cast<std::int64_t>(lines[line].rows.size() - i);
                const bool fits = spec.whole ? i == 0 && lines[line].complete && left <= spec.length
                                             : spec.pad || left >= spec.length;
                const bool due = spec.whole || spec.cross || lines[line].rows[i].t % spec.period == 0;
                if (fits && due) starts.push_back({line, i});
            }
        return starts;
    }

    static NaiveWindow window(const NaiveLine& line, std::size_t start, std::int64_t length, std::int64_t burn_in) {
        NaiveWindow window{{}, 0};
        for (std::size_t i = 0; i < line.rows.size(); ++i) {
            const auto from_start = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(start);
            if (from_start < -burn_in || from_start >= length) continue;
            window.rows.push_back(line.rows[i]);
            window.burn_in += from_start < 0 ? 1 : 0;
        }
        return window;
    }

    // Numbers of the steps that windows start at, oldest first.
    std::vector<std::int64_t> valid_starts(const WindowSpec& spec) const {
        const std::vector<NaiveLine> all = lines(spec);
        std::vector<std::int64_t> numbers;
        for (const NaiveStart& start : starts(all, spec))
            if (const NaiveStep* const step = all[start.line].rows[start.row].step) numbers.push_back(step->number);
        std::sort(numbers.begin(), numbers.end());
        return numbers;
    }

  private:
    static int flags_of(const Given& given) { return (given.terminated ? 1 : 0) | (given.truncated ? 2 : 0); }

    NaiveStep& step(std::int64_t number) { return live_.at(static_cast<std::size_t>(number - live_[0].number)); }

    // Blocks of a split are the even regions of an episode, the unused steps behind them the odd ones.
    std::int64_t region(std::int64_t t) const {
        if (split_.block == 0) return 0;
        const std::int64_t period = split_.block + split_.gap;
        return 2 * (t / period) + (t % period >= split_.block ? 1 : 0);
    }
    bool block_begins(std::int64_t t) const { return split_.block > 0 && t % (split_.block + split_.gap) == 0; }

    // The unit that the stream's last step belonged to, unless its end was declared.
    std::optional<std::int64_t> unit_of(const StreamKey& key) const {
        if (open_.count(key) != 0) return episodes_.at(open_.at(key)).unit;
        const NaiveDormant* const dormant = find_dormant(key);
        return dormant == nullptr ? std::nullopt : std::optional<std::int64_t>(dormant->unit);
    }

    NaiveLine line_of(std::int64_t id, const std::map<std::int64_t, const NaiveStep*>& steps,
                      const WindowSpec& spec) const {
        const NaiveEpisode& of = episodes_.at(id);
        const auto at = [&](std::int64_t t) { return steps.count(t) != 0 ? steps.at(t) : nullptr; };
        const auto exists = [&](std::int64_t t) {
            if (!spec.arrival) return at(t) != nullptr;
            return (t == 0 || at(t - 1) != nullptr) && (at(t) != nullptr || !of.open);
        };
        NaiveLine line{{}, !of.open};
        for (std::int64_t t = steps.begin()->first; t <= of.next_t; ++t) {
            bool readable = true;
            for (std::int64_t k = 0; k <= spec.history && k <= t; ++k) readable = readable && exists(t - k);
            if (readable) line.rows.push_back({id, t, at(t), spec.arrival ? at(t - 1) : nullptr});
        }
        const bool ended = steps.rbegin()->second->flags != 0;  // not merely its block
        line.complete = line.complete && ended && !line.rows.empty() && line.rows[0].t == 0;
        return line;
    }

    NaiveStep* step_of(std::int64_t episode, std::int64_t t) {
        for (auto& s : live_)
            if (s.episode == episode && s.t == t) return &s;
        return nullptr;
    }

    bool stored_once(const NaiveStep& before) const { return once_.count(before.number) != 0; }

    bool is_dormant(const StreamKey& key) const { return find_dormant(key) != nullptr; }
    const NaiveDormant* find_dormant(const StreamKey& key) const {
        for (const NaiveDormant& dormant : dormant_)
            if (dormant.stream == key) return &dormant;
        return nullptr;
    }
    void forget_dormant(const StreamKey& key) {
        dormant_.remove_if([&](const auto& d) { return d.stream == key; });
    }

    bool differs(const Given& given, const StreamKey& key) const {
        const auto expected = last_successor(key);
        if (!expected) return false;
        for (std::size_t leaf = 0; leaf < expected->size(); ++leaf)
            if (!equal_values(schema_.field(leaf), (*expected)[leaf], given.fields[leaf])) return true;
        return false;
    }

    void refuse_mismatch(const Given& given, const StreamKey& key) const {
        if (mismatch_ == Mismatch::raise && differs(given, key)) throw std::invalid_argument("the observation differs");
    }

    // `unit`: of the piece before, where a gap was cut out.
    std::int64_t append(const Given& given, const StreamKey& key, std::int64_t begin_at = 0,
                        std::optional<std::int64_t> unit = std::nullopt) {
        std::int64_t t = std::max(begin_at, next_t(key));
        if (differs(given, key) && mismatch_ == Mismatch::split) {
            unit = unit_of(key);
            part(key, 2);
            if (!std::holds_alternative<std::string>(key)) t = 0;
        } else {
            if (differs(given, key)) ++kept_;
            if (!unit && !block_begins(t)) unit = unit_of(key);
            if (open_.count(key) != 0 && region(t) != region(t - 1)) part(key, 0);
        }
        forget_dormant(key);
        if (open_.count(key) == 0) {
            open_[key] = births_;
            episodes_[births_++] = {true, t, key, t, unit ? *unit : units_++, key};
        }
        most_open_ = std::max(most_open_, open_.size());
        const std::int64_t episode = open_.at(key);
        if (NaiveStep* const before = step_of(episode, t - 1); before != nullptr && same_bytes(*before, given))
            once_[before->number] = true;
        live_.push_back({written_, t, episode, given.fields, given.successor, 0});
        episodes_[episode].next_t = t + 1;
        if (live_.size() > capacity_) evict();
        return written_++;
    }

    static bool same_bytes(const NaiveStep& before, const Given& given) {
        return std::equal(before.successor.begin(), before.successor.end(), given.fields.begin());
    }

    void evict() {
        const NaiveStep gone = live_.front();
        live_.pop_front();
        once_.erase(gone.number);
        for (const auto& s : live_)
            if (s.episode == gone.episode) return;
        const NaiveEpisode episode = episodes_.at(gone.episode);
        episodes_.erase(gone.episode);
        if (!episode.stream) return;
        if (!episode.open) {
            finished_.erase(*episode.stream);
            return;
        }
        open_.erase(*episode.stream);
        sleep(*episode.stream, episode.next_t, episode.unit);
    }

    void close(std::int64_t episode, int flags) {
        NaiveEpisode& closed = episodes_.at(episode);
        for (auto s = live_.rbegin(); s != live_.rend(); ++s)
            if (s->episode == episode) {
                s->flags = flags;
                break;
            }
        closed.open = false;
        const StreamKey key = *closed.stream;
        open_.erase(key);
        if (std::holds_alternative<std::string>(key))
            finished_[key] = true;
        else
            closed.stream.reset();
    }

    void sleep(const StreamKey& key, std::int64_t next_t, std::int64_t unit) {
        dormant_.push_back({key, next_t, unit});
        if (dormant_.size() > capacity_) dormant_.pop_front();
    }

    // Closes what the stream has open, and the two know each other no more.
    void part(const StreamKey& key, int flags) {
        if (open_.count(key) != 0) {
            const std::int64_t episode = open_.at(key);
            close(episode, flags);
            episodes_.at(episode).stream.reset();
        }
        finished_.erase(key);
        forget_dormant(key);
    }

    Schema schema_;
    std::size_t capacity_;
    Mismatch mismatch_;
    std::deque<NaiveStep> live_;
    Split split_;
    std::int64_t written_ = 0, births_ = 0, units_ = 0, kept_ = 0;
    std::size_t most_open_ = 0;
    std::map<std::int64_t, NaiveEpisode> episodes_;  // with a live step
    std::map<StreamKey, std::int64_t> open_;         // stream → its open episode
    std::map<StreamKey, bool> finished_;             // names of ended episodes with a live step
    std::list<NaiveDormant> dormant_;                // asleep for longest first
    std::map<std::int64_t, bool> once_;              // steps whose successor is the next step's observation
};

}  // namespace ringback::twin
