#pragma once

#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "naive_store.hpp"
#include "ringback/rng.hpp"
#include "ringback/step_store.hpp"
#include "steps.hpp"

// Seeded random programs that drive a store and its twin, and what compares the two.
namespace ringback::twin {

// "" where the bytes are equal, else what differs.
inline std::string difference(const std::byte* got, const std::string& want, const std::string& what) {
    return std::memcmp(got, want.data(), want.size()) == 0 ? "" : what + " differs";
}

inline std::string difference_in_row(const StepStore& store, const NaiveStep& want) {
    const std::string where = "step " + std::to_string(want.number) + ": ";
    if (!store.is_live(want.number)) return where + "not live";
    const std::uint32_t row = store.row_of_number(want.number);
    const StepTime time = store.time(row);
    if (store.number(row) != want.number) return where + "number is " + std::to_string(store.number(row));
    if (time.t != want.t) return where + "t is " + std::to_string(time.t) + ", not " + std::to_string(want.t);
    if (store.tag(row).flags != want.flags) return where + "flags are " + std::to_string(store.tag(row).flags);
    for (std::size_t f = 0; f < want.fields.size(); ++f)
        if (auto d = difference(store.field(row, f), want.fields[f], where + store.schema().field(f).name); !d.empty())
            return d;
    for (std::size_t leaf = 0; leaf < want.successor.size(); ++leaf)
        if (auto d = difference(store.successor(row, leaf), want.successor[leaf], where + "successor"); !d.empty())
            return d;
    const Episode& episode = store.episode(time.episode);
    if (!episode.in_use || !episode.extent().holds(time.t)) return where + "its episode does not hold it";
    if (store.row_of(episode, time.t) != row) return where + "its episode leads to another row";
    return "";
}

// Units and sides, by the episodes' newest steps.
inline std::string difference_in_sides(const StepStore& store, const NaiveStore& naive) {
    for (const NaiveStep& step : naive.live()) {
        const Episode& episode = store.episode_of(store.row_of_number(step.number));
        const std::string where = "step " + std::to_string(step.number) + ": ";
        if (episode.unit != naive.episode(step.episode).unit) return where + "unit is " + std::to_string(episode.unit);
        if (episode.side != naive.side(step.episode)) return where + "it is on another side";
        if (episode.open != naive.episode(step.episode).open) return where + "its episode is open or closed";
    }
    return "";
}

// Sizes, counts and the bound on pages.
inline std::string difference_in_counts(const StepStore& store, const NaiveStore& naive) {
    const auto differ = [](const char* what, std::int64_t got, std::int64_t want) {
        return got == want ? std::string()
                           : std::string(what) + " is " + std::to_string(got) + ", not " + std::to_string(want);
    };
    const std::string differences[] = {
        differ("live", store.live(), static_cast<std::int64_t>(naive.live().size())),
        differ("written", store.written(), naive.written()),
        differ("kept_successors", store.kept_successors(), naive.kept()),
        differ("episode_count", store.episode_count(), static_cast<std::int64_t>(naive.episode_count())),
        differ("open_count", store.open_count(), static_cast<std::int64_t>(naive.open_episodes())),
        differ("dormant streams", static_cast<std::int64_t>(store.streams().dormant().size()),
               static_cast<std::int64_t>(naive.dormant_count()))};
    for (const auto& d : differences)
        if (!d.empty()) return d;
    auto want = naive.dormant().begin();
    for (const auto* node : store.streams().dormant()) {
        if (node->first != want->stream || node->second.next_t != want->next_t || node->second.unit != want->unit)
            return "a dormant stream is " + to_string(node->first) + " at " + std::to_string(node->second.next_t);
        ++want;
    }
    const std::int64_t bound =
        store.capacity() / store.rows_per_page() + 2 * static_cast<std::int64_t>(naive.most_open()) + 1;
    return store.pages_in_use() <= bound ? "" : "I7: " + std::to_string(store.pages_in_use()) + " pages are in use";
}

// A start is named by the step that is taken there and, by arrivals, the one that led there: -1 where there is none.
using StartName = std::pair<std::int64_t, std::int64_t>;

inline StartName name_of(const NaiveRow& row) {
    return {row.step == nullptr ? -1 : row.step->number, row.arrived == nullptr ? -1 : row.arrived->number};
}
inline StartName name_of(const StepStore& store, const WindowStart& start, bool arrival) {
    const Episode& episode = store.episode(start.slot);
    const auto number = [&](std::int64_t t) {
        return episode.extent().holds(t) ? store.number(store.row_of(episode, t)) : -1;
    };
    return {number(start.t), arrival ? number(start.t - 1) : -1};
}
inline WindowStart start_of(const StepStore& store, const NaiveRow& row) {
    if (row.step != nullptr) return {store.time(store.row_of_number(row.step->number)).episode, row.t};
    return {store.time(store.row_of_number(row.arrived->number)).episode, row.t};
}

inline std::vector<WindowStart> starts_of(const StepStore& store, const std::vector<NaiveLine>& lines,
                                          const std::vector<NaiveStart>& starts) {
    std::vector<WindowStart> out;
    for (const NaiveStart& start : starts) out.push_back(start_of(store, lines[start.line].rows[start.row]));
    return out;
}

inline std::string spelled(const WindowSpec& spec) {
    return "windows of " + std::to_string(spec.length) + " every " + std::to_string(spec.period) + " history " +
           std::to_string(spec.history) + (spec.pad ? " pad" : "") + (spec.arrival ? " arrival" : "") +
           (spec.whole ? " whole" : "") + (spec.cross ? " cross" : "") + " side " +
           std::to_string(static_cast<int>(spec.side)) + ": ";
}

// The starts: listed, and counted since they were prepared.
inline std::string difference_in_windows(const StepStore& store, const NaiveStore& naive, const WindowSpec& spec) {
    const std::string where = spelled(spec);
    if (!spec.cross && store.valid_starts(spec) != naive.valid_starts(spec)) return where + "valid_starts differ";
    const WindowIndex* const index = store.window_index(spec);
    if (index == nullptr) return "";
    const std::vector<NaiveLine> lines = naive.lines(spec);
    std::multiset<StartName> ranked, want;
    for (const NaiveStart& start : NaiveStore::starts(lines, spec))
        want.insert(name_of(lines[start.line].rows[start.row]));
    if (index->starts.total() != static_cast<std::int64_t>(want.size()))
        return where + "counted " + std::to_string(index->starts.total()) + ", not " + std::to_string(want.size());
    std::vector<std::int64_t> ranks(want.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<WindowStart> found(ranks.size());
    store.find_starts(*index, ranks, found);
    for (const WindowStart& start : found) ranked.insert(name_of(store, start, spec.arrival));
    return ranked == want ? "" : where + "the ranks are not the starts";
}

inline std::string difference(const StepStore& store, const NaiveStore& naive) {
    if (auto d = difference_in_counts(store, naive); !d.empty()) return d;
    for (const NaiveStep& step : naive.live())
        if (auto d = difference_in_row(store, step); !d.empty()) return d;
    return difference_in_sides(store, naive);
}

// Two stores of one content: what a checkpoint holds is equal byte for byte.
inline bool same_content(const Saved& a, const Saved& b) {
    const auto same_episode = [](const StepStore::EpisodeState& x, const StepStore::EpisodeState& y) {
        return x.slot == y.slot && x.birth == y.birth && x.first == y.first && x.end == y.end && x.unit == y.unit &&
               x.number == y.number && x.open == y.open && x.numbered == y.numbered && x.has_stream == y.has_stream &&
               x.stream == y.stream;
    };
    const auto same_dormant = [](const StepStore::DormantState& x, const StepStore::DormantState& y) {
        return x.stream == y.stream && x.next_t == y.next_t && x.unit == y.unit;
    };
    return a.state.written == b.state.written && a.state.births == b.state.births && a.state.units == b.state.units &&
           a.state.kept == b.state.kept && a.state.split == b.state.split &&
           std::equal(a.state.episodes.begin(), a.state.episodes.end(), b.state.episodes.begin(),
                      b.state.episodes.end(), same_episode) &&
           std::equal(a.state.dormant.begin(), a.state.dormant.end(), b.state.dormant.begin(), b.state.dormant.end(),
                      same_dormant) &&
           a.state.free_episodes == b.state.free_episodes && a.fields == b.fields && a.successors == b.successors &&
           a.t == b.t && a.episode == b.episode && a.flags == b.flags && a.owned == b.owned;
}

struct ProgramShape {
    Schema schema;
    std::int64_t capacity = 0;
    Mismatch mismatch = Mismatch::keep;
    std::size_t streams = 1;        // numbered ones, and as many names at a time
    std::uint64_t odds_of_end = 8;  // an episode ends once in so many steps
    std::size_t longest_chunk = 6;
    bool one_writer = false;  // one episode at a time, in chunks
    Split split = {};         // from the first step on
    Split late_split = {};    // at some call
};

inline constexpr Mismatch kPolicies[] = {Mismatch::keep, Mismatch::split, Mismatch::raise};

// A shape for each seed: 1..40 streams, capacities 1..200, every schema, every policy.
inline ProgramShape small_shape(std::uint64_t seed) {
    Rng rng(seed + 1000);
    const std::vector<Schema> all = schemas();
    ProgramShape shape{all[seed % all.size()], 0, kPolicies[seed / all.size() % 3], 0, 0, 0};
    shape.capacity = 1 + static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 12 : 200));
    shape.streams = 1 + rng.below(rng.below(2) == 0 ? 3 : 40);
    shape.odds_of_end = 2 + rng.below(rng.below(2) == 0 ? 6 : 60);
    shape.longest_chunk = 1 + rng.below(12);
    if (rng.below(2) == 0) return shape;
    const Split split{2 + static_cast<std::int64_t>(rng.below(4)), rng.next()};
    (rng.below(2) == 0 ? shape.late_split : shape.split) = split;
    if (shape.split.is_set() && rng.below(3) != 0) {
        shape.split.block = 1 + static_cast<std::int64_t>(rng.below(5));
        shape.split.gap = static_cast<std::int64_t>(rng.below(3));
    }
    return shape;
}

// Calls one random method after the other on the store, on a restored one that goes along with it, and on the twin.
class Program {
  public:
    Program(ProgramShape shape, std::uint64_t seed)
        : shape_(std::move(shape)), rng_(seed), naive_(shape_.schema, shape_.capacity, shape_.mismatch) {
        stores_.push_back(std::make_unique<StepStore>(shape_.schema, shape_.capacity, shape_.mismatch));
        for (std::size_t i = 0; i < shape_.streams; ++i) {
            numbers_.emplace_back(static_cast<std::int64_t>(rng_.next()));  // any int64
            names_.emplace_back(new_name());
        }
        numbers_[0] = std::numeric_limits<std::int64_t>::min();
        if (shape_.split.is_set()) split(shape_.split);
    }

    // One call. "" or what went wrong.
    std::string step() {
        const std::uint64_t choice = rng_.below(100);
        if (shape_.one_writer && choice < 80) return write_chunk();
        if (choice < 55) return write(1 + (rng_.below(2) == 0 ? 0 : rng_.below(shape_.streams)));
        if (choice < 80) return write_chunk();
        if (choice < 88) return end_episode();
        if (choice < 89) return end_all();
        if (choice < 95) return set_field();
        if (choice < 96 && shape_.late_split.is_set()) return split(shape_.late_split);
        const WindowSpec spec = any_spec();
        for (auto& store : stores_) store->prepare_windows(spec);
        if (prepared_.size() == StepStore::kWindowIndexes) prepared_.erase(prepared_.begin());
        prepared_.push_back(spec);
        return "";
    }

    std::string split(const Split& split) {
        naive_.split(split);
        for (auto& store : stores_) store->split(split);
        return "";
    }

    // From here on a restored store goes along. "" or what differs between it and the one it came from.
    std::string fork() {
        const Saved saved = save(store());
        stores_.resize(1);
        stores_.push_back(restored(shape_.schema, shape_.capacity, shape_.mismatch, saved, 1 + rng_.below(9)));
        return same_content(save(*stores_[1]), saved) ? "" : "the restored store has another content";
    }

    const StepStore& store() const { return *stores_[0]; }
    const std::vector<std::unique_ptr<StepStore>>& stores() const { return stores_; }
    const NaiveStore& naive() const { return naive_; }
    Rng& rng() { return rng_; }
    std::int64_t any_length() {
        return 1 + static_cast<std::int64_t>(rng_.below(std::min<std::uint64_t>(9, capacity())));
    }
    // Windows of any kind.
    WindowSpec any_spec() {
        const auto chance = [&](std::uint64_t odds) { return rng_.below(odds) == 0; };
        WindowSpec spec{any_length()};
        if (chance(2)) spec.history = static_cast<std::int64_t>(rng_.below(4));
        spec.pad = chance(3);
        spec.arrival = chance(3);
        spec.whole = chance(6);
        spec.cross = !spec.whole && chance(3);
        if (!spec.cross && chance(2)) spec.period = 1 + static_cast<std::int64_t>(rng_.below(4));
        if (chance(2)) spec.side = static_cast<Side>(rng_.below(3));
        return spec;
    }
    // Up to `count` starts of windows, some of them more than once.
    std::vector<NaiveStart> some_starts(const std::vector<NaiveLine>& lines, const WindowSpec& spec,
                                        std::size_t count) {
        const std::vector<NaiveStart> all = NaiveStore::starts(lines, spec);
        std::vector<NaiveStart> chosen;
        for (std::size_t i = 0; i < count && !all.empty(); ++i) chosen.push_back(all[rng_.below(all.size())]);
        return chosen;
    }
    // The last kinds that were prepared, those of the store that goes along too.
    const std::vector<WindowSpec>& prepared() const { return prepared_; }
    std::uint64_t capacity() const { return static_cast<std::uint64_t>(shape_.capacity); }

  private:
    StreamKey new_name() { return "episode " + std::to_string(names_made_++); }

    // The next step of a stream: mostly its observation is the successor that was given, sometimes only its equal.
    Given next_step(const std::optional<Leaves>& before) {
        Given given = counting_step(shape_.schema, count_++);
        if (rng_.below(12) == 0) put_float(shape_.schema, given.successor, rng_.below(2) == 0 ? 0.0 : std::nan("1"));
        if (before) {
            const std::uint64_t choice = rng_.below(20);
            if (choice != 0) std::copy(before->begin(), before->end(), given.fields.begin());
            if (choice == 1) make_equal(given.fields);
        }
        return given;
    }

    // Other bytes for the same value, where there is such a value: -0 for 0, another NaN for NaN.
    void make_equal(Leaves& fields) {
        for (std::size_t leaf = 0; leaf < shape_.schema.observation_count(); ++leaf) {
            const DType dtype = shape_.schema.field(leaf).dtype;
            if (dtype != DType::f32 && dtype != DType::f64) continue;
            const double value = element(dtype, fields[leaf].data());
            if (value == 0) put_float(shape_.schema, fields, -0.0);
            if (std::isnan(value)) put_float(shape_.schema, fields, -std::nan("2"));
            return;
        }
    }

    template <class OnStore, class OnTwin>
    std::string both(const std::string& what, OnStore on_store, OnTwin on_twin) {
        std::vector<std::int64_t> want;
        bool refused = false;
        try {
            want = on_twin();
        } catch (const std::invalid_argument&) {
            refused = true;
        }
        for (auto& store : stores_) {
            const bool small = store->live() <= 64;
            const Saved before = refused && small ? save(*store) : Saved{};
            std::vector<std::int64_t> got(shape_.streams + shape_.longest_chunk, -1);
            try {
                on_store(*store, got);
                if (refused) return what + " was not refused";
            } catch (const std::invalid_argument&) {
                if (!refused) return what + " was refused";
                if (small && !same_content(save(*store), before))
                    return what + " was refused and changed something (I6)";
                continue;
            }
            for (std::size_t i = 0; i < want.size(); ++i)
                if (got[i] != want[i]) return what + " gave the number " + std::to_string(got[i]);
        }
        return "";
    }

    std::string write(std::uint64_t streams) {
        std::vector<StreamKey> keys;
        std::vector<Given> steps;
        const std::uint64_t first = rng_.below(numbers_.size());
        for (std::uint64_t i = 0; i < streams; ++i) {
            keys.push_back(numbers_[(first + i) % numbers_.size()]);
            steps.push_back(next_step(naive_.last_successor(keys.back())));
            steps.back().terminated = rng_.below(shape_.odds_of_end) == 0;
            steps.back().truncated = rng_.below(2 * shape_.odds_of_end) == 0;
        }
        const Columns columns(shape_.schema, steps);
        return both(
            "write",
            [&](StepStore& store, auto& ids) { store.write(columns.rows(), keys, std::span(ids).first(keys.size())); },
            [&] { return naive_.write(steps, keys); });
    }

    std::string write_chunk() {
        StreamKey& key = names_[rng_.below(names_.size())];
        if (!shape_.one_writer && rng_.below(16) == 0) key = new_name();
        const std::int64_t stands_at = naive_.next_t(key);
        std::int64_t start = stands_at;
        if (rng_.below(8) == 0) start += static_cast<std::int64_t>(rng_.below(4)) - 1;
        const bool cut = rng_.below(2) == 0;
        std::vector<Given> steps;
        std::optional<Leaves> before = start == stands_at ? naive_.last_successor(key) : std::nullopt;
        for (std::uint64_t n = rng_.below(shape_.longest_chunk + 1); n > 0; --n) {
            steps.push_back(next_step(before));
            before = steps.back().successor;
            // Only the first step of a chunk can be refused: inside it the writer's observations are one list.
            if (shape_.mismatch == Mismatch::raise && steps.size() > 1)
                std::copy(steps[steps.size() - 2].successor.begin(), steps[steps.size() - 2].successor.end(),
                          steps.back().fields.begin());
        }
        const bool terminated = rng_.below(shape_.odds_of_end) == 0,
                   truncated = rng_.below(2 * shape_.odds_of_end) == 0;
        const Columns columns(shape_.schema, steps);
        const std::string wrong = both(
            "write_chunk",
            [&](StepStore& store, auto& ids) {
                store.write_chunk(columns.rows(), key, start, cut, terminated, truncated,
                                  std::span(ids).first(steps.size()));
            },
            [&] { return naive_.write_chunk(steps, key, start, cut, terminated, truncated); });
        if (naive_.is_finished(key) && rng_.below(4) != 0) key = new_name();
        return wrong;
    }

    std::string end_episode() {
        const auto& keys = rng_.below(2) == 0 ? numbers_ : names_;
        const StreamKey key = keys[rng_.below(keys.size())];
        const bool want = naive_.end_episode(key);
        for (auto& store : stores_)
            if (store->end_episode(key) != want) return "end_episode gave another answer";
        return "";
    }

    std::string end_all() {
        naive_.end_all();
        for (auto& store : stores_) store->end_all_episodes();
        return "";
    }

    std::string set_field() {
        if (naive_.live().empty()) return "";
        const std::int64_t number = naive_.live()[rng_.below(naive_.live().size())].number;
        const std::size_t f = rng_.below(shape_.schema.fields().size());
        const std::string value = counting(shape_.schema.field(f), 100000 + count_++);
        for (auto& store : stores_)
            store->set_field(store->row_of_number(number), f, reinterpret_cast<const std::byte*>(value.data()));
        naive_.set_field(number, f, value);
        return "";
    }

    ProgramShape shape_;
    Rng rng_;
    NaiveStore naive_;
    std::vector<std::unique_ptr<StepStore>> stores_;
    std::vector<StreamKey> numbers_, names_;
    std::vector<WindowSpec> prepared_;
    std::uint64_t count_ = 1;
    int names_made_ = 0;
};

}  // namespace ringback::twin
