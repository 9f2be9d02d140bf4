#include "ringback/step_store.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "ringback/check.hpp"
#include "ringback/copy.hpp"

namespace ringback {

namespace {

constexpr std::int64_t kNewUnit = -1;  // a unit of its own
constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 30;
constexpr std::int64_t kMaxPageRows = 64, kMaxPageBytes = 16384, kMinPages = 64;

// A power of two, at most 64 rows, 16 KiB and capacity / 64: larger pages gain a few per cent and cost memory with
// streams.
int page_shift_for(std::int64_t capacity, std::size_t row_bytes) {
    const std::int64_t most =
        std::min({kMaxPageRows, kMaxPageBytes / static_cast<std::int64_t>(row_bytes), capacity / kMinPages});
    return most < 2 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(most))) - 1;
}

std::string readable_bytes(double bytes) {
    static constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    std::size_t unit = 0;
    while (bytes >= 1000 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
    const auto tenths = static_cast<long long>(bytes * 10 + 0.5);
    return std::to_string(tenths / 10) + (unit == 0 ? "" : "." + std::to_string(tenths % 10)) + " " + kUnits[unit];
}

template <class T>
bool equal_values(const std::byte* a, const std::byte* b, std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
        T x, y;
        std::memcpy(&x, a + i, sizeof(T));
        std::memcpy(&y, b + i, sizeof(T));
        if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
    }
    return true;
}

bool equal_halves(const std::byte* a, const std::byte* b, std::size_t bytes) noexcept {
    const auto is_nan = [](std::uint16_t x) { return (x & 0x7c00U) == 0x7c00U && (x & 0x3ffU) != 0; };
    for (std::size_t i = 0; i < bytes; i += 2) {
        std::uint16_t x, y;
        std::memcpy(&x, a + i, 2);
        std::memcpy(&y, b + i, 2);
        const bool both_zero = ((x | y) & 0x7fffU) == 0;
        if (x != y && !both_zero && !(is_nan(x) && is_nan(y))) return false;
    }
    return true;
}

// Equal as values: NaN equals NaN, -0 equals 0.
bool equal_values(DType dtype, const std::byte* a, const std::byte* b, std::size_t bytes) noexcept {
    switch (dtype) {
        case DType::f16:
            return equal_halves(a, b, bytes);
        case DType::f32:
            return equal_values<float>(a, b, bytes);
        case DType::f64:
            return equal_values<double>(a, b, bytes);
        default:
            return std::memcmp(a, b, bytes) == 0;
    }
}

}  // namespace

void StepStore::Lane::push(std::uint32_t page) {
    if (end - first == static_cast<std::int64_t>(ring.size())) {
        std::vector<std::uint32_t> larger(ring.size() * 2);
        for (std::int64_t i = first; i < end; ++i)
            larger[static_cast<std::size_t>(i) & (larger.size() - 1)] = page_at(i);
        ring = std::move(larger);
    }
    ring[static_cast<std::size_t>(end++) & (ring.size() - 1)] = page;
}

StepStore::StepStore(Schema schema, std::int64_t capacity, Mismatch mismatch)
    : schema_(std::move(schema)),
      capacity_(capacity),
      mismatch_(mismatch),
      streams_(static_cast<std::size_t>(std::max<std::int64_t>(capacity, 1))) {
    if (capacity < 1) throw std::invalid_argument("capacity must be >= 1 step, got " + std::to_string(capacity));
    const double bytes =
        static_cast<double>(capacity) * static_cast<double>(schema_.row_bytes() + sizeof(std::uint32_t));
    if (const std::uint64_t limit = memory_limit(); bytes > static_cast<double>(limit))
        throw OutOfMemory("capacity must fit in this machine's memory (" + readable_bytes(static_cast<double>(limit)) +
                          "), got " + std::to_string(capacity) + " steps of " + std::to_string(schema_.row_bytes()) +
                          " bytes (" + readable_bytes(bytes) + ")");
    if (capacity > kMaxCapacity)
        throw std::invalid_argument("capacity must be <= 2**30 steps, got " + std::to_string(capacity));
    page_shift_ = page_shift_for(capacity, schema_.row_bytes());
    page_mask_ = rows_per_page() - 1;
    row_of_.resize(static_cast<std::size_t>(capacity));
    columns_.resize(schema_.columns().size());
    entry_columns_.resize(schema_.observation_columns());
    reserve(1, 1);
}

// Room for so many more steps of so many streams, so that a write cannot fail half-way.
void StepStore::reserve(std::size_t steps, std::size_t streams) {
    if (const std::size_t pages = std::min(steps, (steps >> page_shift_) + 2 * streams); free_pages_.size() < pages) {
        const std::size_t whole = static_cast<std::size_t>(capacity_ >> page_shift_) + 3;
        const std::size_t want =
            std::max<std::size_t>(page_count_ == 0 ? whole : 0, page_count_ + page_count_ / 8 + pages);
        if (want << page_shift_ > std::numeric_limits<std::uint32_t>::max())
            throw OutOfMemory("ringback: more than 2**32 rows in use by open streams");
        const std::size_t rows = want << page_shift_;
        records_.reserve(rows * schema_.record_bytes());
        numbers_.reserve(rows * sizeof(std::int64_t));
        times_.reserve(rows * sizeof(StepTime));
        for (std::size_t c = 0; c < columns_.size(); ++c) columns_[c].reserve(rows * schema_.columns()[c]);
        page_live_.resize(want);
        free_pages_.reserve(want);
        // The back is taken first: pages that were in use before, then those of the lowest address.
        std::vector<std::uint32_t> fresh;
        for (std::size_t page = want; page-- > page_count_;) fresh.push_back(static_cast<std::uint32_t>(page));
        free_pages_.insert(free_pages_.begin(), fresh.begin(), fresh.end());
        page_count_ = static_cast<std::uint32_t>(want);
    }
    if (free_entries_.size() < steps) {
        const std::size_t want = std::size_t{entry_count_} + entry_count_ / 2 + std::max<std::size_t>(steps, 16);
        if (want >= StepTag::kMaxLink) throw OutOfMemory("ringback: more than 2**30 successors kept");
        entry_records_.reserve(want * schema_.observation_bytes());
        for (std::size_t c = 0; c < entry_columns_.size(); ++c) entry_columns_[c].reserve(want * schema_.columns()[c]);
        free_entries_.reserve(want);
        std::vector<std::uint32_t> fresh;
        for (std::size_t entry = want; entry-- > entry_count_;) fresh.push_back(static_cast<std::uint32_t>(entry));
        free_entries_.insert(free_entries_.begin(), fresh.begin(), fresh.end());
        entry_count_ = static_cast<std::uint32_t>(want);
    }
}

// ---- writing ----

void StepStore::write(const StepRows& rows, std::span<const StreamKey> streams, std::span<std::int64_t> ids) {
    if (mismatch_ == Mismatch::raise) check_matches(rows, streams);
    reserve(rows.count, rows.count);
    for (std::size_t i = 0; i < rows.count; ++i) {
        StreamTable::Node* stream = streams_.find(streams[i]);
        ids[i] = write_one(rows, i, stream, streams[i], rows.terminated[i] != 0, rows.truncated[i] != 0);
        if (listener_ != nullptr) listener_->step_written(*this);
    }
}

void StepStore::write_chunk(const StepRows& rows, const StreamKey& stream, std::int64_t start, bool cut,
                            bool terminated, bool truncated, std::span<std::int64_t> ids) {
    if (start < 0 || start > kMaxTime)
        throw std::invalid_argument("a chunk must start at t in [0, 2**59], got t = " + std::to_string(start));
    StreamTable::Node* node = streams_.find(stream);
    std::int64_t expected = 0;
    if (node != nullptr) {
        const auto& known = node->second;
        expected = known.state == StreamTable::State::dormant ? known.next_t : episodes_[known.episode].end;
        if (known.state == StreamTable::State::finished)
            throw std::invalid_argument("episode " + to_string(stream) + " must be added once, got a chunk from t = " +
                                        std::to_string(start) + " after its end at t = " + std::to_string(expected));
    }
    if (start < expected)
        throw std::invalid_argument("a chunk of episode " + to_string(stream) +
                                    " must start where the last one ended (t = " + std::to_string(expected) +
                                    "), got t = " + std::to_string(start) + " again");
    const bool gap = start > expected;
    if (gap && !cut)
        throw std::invalid_argument("a chunk of episode " + to_string(stream) +
                                    " must start where the last one ended (t = " + std::to_string(expected) +
                                    "), got t = " + std::to_string(start) +
                                    "; pass gap=\"cut\" to begin with missing history");
    if (!gap && rows.count > 0 && mismatch_ == Mismatch::raise)
        check_matches({1, rows.fields, rows.successors}, {&stream, 1});
    reserve(rows.count, 1);

    std::int64_t unit = kNewUnit;
    if (gap && node != nullptr) {
        const bool open = node->second.state == StreamTable::State::open;
        unit = open ? episodes_[node->second.episode].unit : node->second.unit;
        if (open) split_off(node);
        streams_.forget(node);
        node = nullptr;
    }
    if (rows.count == 0) {
        if (gap && !(terminated || truncated)) {  // where the next chunk is to start
            streams_.sleep(streams_.open(stream, kNoEpisode), start, unit == kNewUnit ? units_++ : unit);
            streams_.forget_surplus();
        }
        if (node == nullptr || !(terminated || truncated)) return;
        const auto flags = static_cast<std::uint8_t>((terminated ? kTerminated : 0) | (truncated ? kTruncated : 0));
        if (node->second.state == StreamTable::State::open)
            finish_episode(node->second.episode, flags);
        else
            streams_.forget(node);
        return;
    }
    if (gap) {
        const std::uint32_t slot = begin_episode(stream, start, unit);
        node = streams_.open(stream, slot);
        episodes_[slot].stream = node;
    }
    for (std::size_t i = 0; i < rows.count; ++i) {
        const bool last = i + 1 == rows.count;
        ids[i] = write_one(rows, i, node, stream, last && terminated, last && truncated);
        if (listener_ != nullptr) listener_->step_written(*this);
    }
}

bool StepStore::end_episode(const StreamKey& stream) {
    StreamTable::Node* const node = streams_.find(stream);
    if (node == nullptr || node->second.state == StreamTable::State::finished) return false;
    if (node->second.state == StreamTable::State::open)
        finish_episode(node->second.episode, kTruncated);
    else
        streams_.forget(node);
    return true;
}

void StepStore::end_all_episodes() {
    for (std::uint32_t slot = 0; slot < episodes_.size(); ++slot)
        if (episodes_[slot].in_use && episodes_[slot].open) finish_episode(slot, kTruncated);
    while (!streams_.dormant().empty()) streams_.forget(streams_.dormant().front());
}

void StepStore::set_field(std::uint32_t row, std::size_t field, const std::byte* value) noexcept {
    copy_bytes(mutable_field(row, field), value, schema_.place(field).bytes);
}

StepStore::Match StepStore::compare(const StreamTable::Node* stream, const StepRows& rows,
                                    std::size_t i) const noexcept {
    if (stream == nullptr || stream->second.state != StreamTable::State::open) return Match::none;
    const Episode& episode = episodes_[stream->second.episode];
    if (episode.first == episode.end) return Match::none;
    Match match = Match::same;
    for (std::size_t leaf = 0; leaf < schema_.observation_count(); ++leaf) {
        const std::byte* const given = rows.fields[leaf] + row_offset(leaf, i);
        const std::byte* const stored = successor(episode.newest, leaf);
        const std::size_t bytes = schema_.place(leaf).bytes;
        if (std::memcmp(given, stored, bytes) == 0) continue;
        if (!equal_values(schema_.field(leaf).dtype, given, stored, bytes)) return Match::differs;
        match = Match::equal;
    }
    return match;
}

void StepStore::check_matches(const StepRows& rows, std::span<const StreamKey> streams) {
    for (std::size_t i = 0; i < rows.count; ++i)
        if (compare(streams_.find(streams[i]), rows, i) == Match::differs)
            throw std::invalid_argument(
                "observation must equal the next_observation of the step before, got another one on stream " +
                to_string(streams[i]) + "; call end_episode after a reset from outside");
}

std::int64_t StepStore::write_one(const StepRows& rows, std::size_t i, StreamTable::Node*& stream, const StreamKey& key,
                                  bool terminated, bool truncated) {
    RB_ASSUME(stream == nullptr || stream->second.state != StreamTable::State::finished);
    const Match match = compare(stream, rows, i);
    if (match == Match::differs && mismatch_ == Mismatch::split) {
        // The key lives on: a named stream's chunks count on, a numbered one begins anew.
        const std::int64_t end = episodes_[stream->second.episode].end, unit = episodes_[stream->second.episode].unit;
        split_off(stream);
        stream->second.episode = begin_episode(key, std::holds_alternative<std::string>(key) ? end : 0, unit);
        episodes_[stream->second.episode].stream = stream;
    } else if (match == Match::differs) {
        ++kept_;
    }
    if (stream == nullptr) {
        stream = streams_.open(key, begin_episode(key, 0, kNewUnit));
        episodes_[stream->second.episode].stream = stream;
    } else if (stream->second.state == StreamTable::State::dormant) {
        wake(stream);
    } else if (split_.block > 0) {
        begin_block_if_due(stream);
    }
    if (written_ >= capacity_) {
        evict();
        if (stream->second.state == StreamTable::State::dormant) {  // that was the last live step of this very episode
            wake(stream);
        }
        streams_.forget_surplus();
    }

    const std::uint32_t slot = stream->second.episode;
    Episode& episode = episodes_[slot];
    std::uint32_t entry;
    if (match == Match::same && episode.first < episode.end) {
        entry = tag(episode.newest).link - 1;
        put_tag(episode.newest, {0, 0});
    } else {
        entry = take_entry();
    }
    fill_entry(entry, rows.successors, i);

    const std::uint32_t row = put_row(episode);
    fill_row(row, rows, i);
    put_place(row, written_, {episode.end, slot});
    put_tag(row, {0, entry + 1});
    ++episode.end;
    row_of_[static_cast<std::size_t>(next_slot_)] = row;
    if (++next_slot_ == capacity_) next_slot_ = 0;
    if (!windows_.empty()) count_windows(slot);
    prefetch_next_write(row);
    if (terminated || truncated)
        finish_episode(slot, static_cast<std::uint8_t>((terminated ? kTerminated : 0) | (truncated ? kTruncated : 0)));
    if (!episodes_[slot].open && std::holds_alternative<std::int64_t>(key)) stream = nullptr;
    return written_++;
}

// What this lane's next step will touch, and the rows that go soon: they are cold, and there is time until then.
void StepStore::prefetch_next_write(std::uint32_t row) const noexcept {
    constexpr std::int64_t kAhead = 24;
    const std::byte* const next = record(row) + schema_.record_bytes();
    for (std::size_t byte = 0; byte < std::min<std::size_t>(schema_.record_bytes(), 256); byte += 64)
        prefetch_to_write(next + byte);
    prefetch_to_write(numbers() + row + 1);
    prefetch_to_write(times() + row + 1);
    if (written_ < capacity_ || capacity_ <= kAhead) return;
    const std::int64_t slot = oldest_slot_ + kAhead;
    const std::uint32_t going = row_of_[static_cast<std::size_t>(slot < capacity_ ? slot : slot - capacity_)];
    prefetch(record(going) + schema_.tag_offset());
    prefetch(times() + going);
}

std::uint32_t StepStore::put_row(Episode& episode) {
    Lane& lane = lanes_[episode.lane];
    if (episode.first == episode.end) episode.origin = lane.next - episode.end;
    RB_ASSUME(episode.origin + episode.end == lane.next);
    const std::int64_t index = lane.next >> page_shift_;
    if (index == lane.end) {
        RB_ASSUME(!free_pages_.empty());
        lane.push(free_pages_.back());
        free_pages_.pop_back();
    }
    const std::uint32_t page = lane.page_at(index);
    ++page_live_[page];
    episode.newest = page << page_shift_ | static_cast<std::uint32_t>(lane.next++ & page_mask_);
    return episode.newest;
}

void StepStore::fill_row(std::uint32_t row, const StepRows& rows, std::size_t i) noexcept {
    for (std::size_t f = 0; f < schema_.places().size(); ++f)
        copy_bytes(mutable_field(row, f), rows.fields[f] + row_offset(f, i), schema_.place(f).bytes);
}

void StepStore::fill_entry(std::uint32_t entry, std::span<const std::byte* const> successors, std::size_t i) noexcept {
    for (std::size_t leaf = 0; leaf < schema_.observation_count(); ++leaf) {
        const Place& place = schema_.place(leaf);
        std::byte* const target =
            place.in_column() ? entry_columns_[static_cast<std::size_t>(place.column)].data() + entry * place.bytes
                              : entry_records_.data() + entry * schema_.observation_bytes() + place.offset;
        copy_bytes(target, successors[leaf] + row_offset(leaf, i), place.bytes);
    }
}

void StepStore::evict() {
    const std::uint32_t row = row_of_[static_cast<std::size_t>(oldest_slot_)];
    if (++oldest_slot_ == capacity_) oldest_slot_ = 0;
    const StepTime gone = time(row);
    Episode& episode = episodes_[gone.episode];
    if (const std::uint32_t link = tag(row).link; link != 0) free_entries_.push_back(link - 1);

    const std::uint32_t page = row >> page_shift_;
    if (--page_live_[page] == 0) {
        Lane& lane = lanes_[episode.lane];
        RB_ASSUME(lane.first < lane.end && lane.page_at(lane.first) == page);
        ++lane.first;
        lane.next = std::max(lane.next, lane.first << page_shift_);  // what is left of a half-filled page is given up
        free_pages_.push_back(page);
    }
    episode.first = gone.t + 1;
    if (episode.first == episode.end)
        drop_episode(gone.episode);
    else if (!windows_.empty())
        count_windows(gone.episode);
}

// ---- episodes ----

void StepStore::wake(StreamTable::Node* stream) {
    const std::int64_t t = stream->second.next_t;
    const bool new_block = split_.block > 0 && block_begins(t);
    streams_.wake(stream, begin_episode(stream->first, t, new_block ? kNewUnit : stream->second.unit));
    episodes_[stream->second.episode].stream = stream;
}

std::uint32_t StepStore::begin_episode(const StreamKey& key, std::int64_t t, std::int64_t unit) {
    if (free_episodes_.empty()) {
        free_episodes_.push_back(static_cast<std::uint32_t>(episodes_.size()));
        episodes_.emplace_back();
        for (auto& window : windows_) window->starts.grow(episodes_.size());
    }
    const std::uint32_t slot = free_episodes_.back();
    free_episodes_.pop_back();
    const auto* const number = std::get_if<std::int64_t>(&key);
    Episode& episode = episodes_[slot];
    episode = {};
    episode.birth = births_++;
    episode.first = episode.end = t;
    episode.lane = take_lane();
    episode.unit = unit == kNewUnit ? units_++ : unit;
    episode.numbered = number != nullptr;
    episode.number = number == nullptr ? 0 : *number;
    episode.in_use = episode.open = true;
    episode.side = side_of(episode);
    if (runs_.tracked()) join_run(slot);
    ++episode_count_;
    ++open_count_;
    return slot;
}

void StepStore::finish_episode(std::uint32_t slot, std::uint8_t flags) {
    Episode& episode = episodes_[slot];
    RB_ASSUME(episode.in_use && episode.open && episode.first < episode.end);
    put_tag(episode.newest, {flags, tag(episode.newest).link});
    episode.open = false;
    episode.ended = flags != 0;
    --open_count_;
    free_lanes_.push_back(episode.lane);
    if (episode.stream != nullptr && !streams_.finish(episode.stream)) episode.stream = nullptr;
    if (!windows_.empty()) count_windows(slot);
}

// Ends the stream's open episode as truncated and parts the two: the stream stays in the table, without an episode.
void StepStore::split_off(StreamTable::Node* stream) {
    const std::uint32_t slot = stream->second.episode;
    episodes_[slot].stream = nullptr;
    finish_episode(slot, kTruncated);
}

// The last live step of the episode is gone.
void StepStore::drop_episode(std::uint32_t slot) {
    Episode& episode = episodes_[slot];
    if (episode.open) {
        free_lanes_.push_back(episode.lane);
        --open_count_;
        streams_.sleep(episode.stream, episode.end, episode.unit);
    } else if (episode.stream != nullptr) {
        streams_.forget(episode.stream);
    }
    episode.in_use = false;
    episode.stream = nullptr;
    --episode_count_;
    free_episodes_.push_back(slot);
    if (runs_.tracked()) runs_.drop(slot);
    if (!windows_.empty()) count_windows(slot);
}

std::uint32_t StepStore::take_lane() {
    if (free_lanes_.empty()) {
        lanes_.emplace_back();
        return static_cast<std::uint32_t>(lanes_.size() - 1);
    }
    const std::uint32_t lane = free_lanes_.back();
    free_lanes_.pop_back();
    return lane;
}

std::uint32_t StepStore::take_entry() noexcept {
    const std::uint32_t entry = free_entries_.back();
    free_entries_.pop_back();
    entries_touched_ = std::max(entries_touched_, entry + 1);
    return entry;
}

// ---- reading ----

std::int64_t StepStore::pages_in_use() const noexcept {
    return static_cast<std::int64_t>(page_count_) - static_cast<std::int64_t>(free_pages_.size());
}

std::size_t StepStore::bytes() const noexcept {
    std::size_t bytes = static_cast<std::size_t>(pages_in_use() << page_shift_) * schema_.row_bytes();
    bytes += entries_touched_ * schema_.entry_bytes();
    bytes +=
        row_of_.size() * sizeof(std::uint32_t) + page_live_.size() + free_entries_.capacity() * sizeof(std::uint32_t);
    bytes += episodes_.size() * sizeof(Episode) + free_episodes_.capacity() * sizeof(std::uint32_t);
    for (const Lane& lane : lanes_) bytes += sizeof(Lane) + lane.ring.size() * sizeof(std::uint32_t);
    return bytes + streams_.size() * sizeof(StreamTable::Node);
}

std::uint32_t StepStore::row_of_number(std::int64_t number) const {
    if (!is_live(number))
        throw std::out_of_range("ids must be of live steps, in [" + std::to_string(oldest()) + ", " +
                                std::to_string(written_) + "), got " + std::to_string(number));
    return row_at_offset(number - oldest());
}

std::byte* StepStore::mutable_field(std::uint32_t row, std::size_t index) noexcept {
    const Place& place = schema_.place(index);
    return place.in_column() ? columns_[static_cast<std::size_t>(place.column)].data() + row * place.bytes
                             : record(row) + place.offset;
}

const std::byte* StepStore::successor(std::uint32_t row, std::size_t leaf) const noexcept {
    const Place& place = schema_.place(leaf);
    const std::uint32_t link = tag(row).link;
    if (link == 0) return field(next_row(row), leaf);
    const std::uint32_t entry = link - 1;
    return place.in_column() ? entry_column(place.column, entry) : entry_record(entry) + place.offset;
}

// ---- splits ----

Side Split::side_of(std::int64_t unit) const noexcept {
    if (!is_set()) return Side::train;
    const auto k = static_cast<std::uint64_t>(groups), u = static_cast<std::uint64_t>(unit);
    Rng place(seed ^ ((u / k + 1) * 0xd1342543de82ef95ULL));
    return place.below(k) == u % k ? Side::validation : Side::train;
}

bool StepStore::block_begins(std::int64_t t) const noexcept { return t % (split_.block + split_.gap) == 0; }

Side StepStore::side_of(const Episode& episode) const noexcept {
    const bool in_gap = split_.block > 0 && episode.end % (split_.block + split_.gap) >= split_.block;
    return in_gap ? Side::unused : split_.side_of(episode.unit);
}

// A block, and the unused steps behind it, are episodes of their own as far as windows go: the step is written behind
// the one before, in the same lane, and neither has a flag.
void StepStore::begin_block_if_due(StreamTable::Node* stream) {
    const std::uint32_t slot = stream->second.episode;
    const std::int64_t t = episodes_[slot].end;
    if (episodes_[slot].first == t) return;  // begun just now, behind a cut or a mismatch
    const bool begins = block_begins(t);
    if (!begins && (split_.gap == 0 || t % (split_.block + split_.gap) != split_.block)) return;
    const std::int64_t unit = episodes_[slot].unit;
    episodes_[slot].stream = nullptr;
    finish_episode(slot, 0);
    stream->second.episode = begin_episode(stream->first, t, begins ? kNewUnit : unit);
    episodes_[stream->second.episode].stream = stream;
}

void StepStore::split(const Split& split) {
    if (split_.is_set() && split != split_)
        throw std::invalid_argument("a buffer must be split in one way, got another one than before");
    if (split.block > 0 && !split_.is_set() && written_ > 0)
        throw std::invalid_argument("a split by blocks must come before the first step, got " +
                                    std::to_string(written_) + " steps");
    split_ = split;
    for (Episode& episode : episodes_)
        if (split_.block == 0) episode.side = split_.side_of(episode.unit);
    windows_.clear();
    runs_.clear();
}

// ---- windows ----

void StepStore::join_run(std::uint32_t slot) {
    const Episode& episode = episodes_[slot];
    if (episode.numbered && episode.first == 0)
        if (const Runs::Member* const last = runs_.newest_of(episode.number);
            last != nullptr && episodes_[last->slot].side == episode.side) {
            const std::uint32_t before = last->slot;
            runs_.join(slot, episode.number, episodes_[before].end);
            for (auto& window : windows_)
                if (window->spec.cross) window->starts.set(before, 0);
            return;
        }
    runs_.begin(slot, episode.numbered, episode.number);
}

Extent StepStore::run_rows(const Runs::Run& run, const WindowSpec& spec) const noexcept {
    const auto position = [&](const Runs::Member& member, std::int64_t t) { return member.position(t, spec.arrival); };
    const auto rows = [&](const Runs::Member& member) { return readable_rows(episodes_[member.slot].stored(), spec); };
    return {position(run.oldest(), rows(run.oldest()).begin), position(run.newest(), rows(run.newest()).end)};
}

std::int64_t StepStore::count_starts(const WindowSpec& spec, std::uint32_t slot) const noexcept {
    const Episode& episode = episodes_[slot];
    if (!episode.in_use || (spec.side != Side::any && spec.side != episode.side)) return 0;
    if (!spec.cross) return window_starts(episode.stored(), spec).count;
    const Runs::Run& run = runs_.run_of(slot);
    return run.newest().slot == slot ? window_starts(run_rows(run, spec), spec).count : 0;
}

void StepStore::count_windows(std::uint32_t slot) noexcept {
    for (auto& window : windows_) {
        window->starts.set(slot, count_starts(window->spec, slot));
        if (!window->spec.cross) continue;
        const std::uint32_t newest = runs_.run_of(slot).newest().slot;
        if (newest != slot) window->starts.set(newest, count_starts(window->spec, newest));
    }
}

void StepStore::numbers_of(const Episode& episode, std::int64_t t, std::span<std::int64_t> numbers) const noexcept {
    if (lanes_.size() == 1) return std::iota(numbers.begin(), numbers.end(), number_of(episode, t));
    auto out = numbers.begin();
    visit_runs(episode, t, std::ssize(numbers),
               [&](std::uint32_t row, std::size_t count) { out = std::copy_n(this->numbers() + row, count, out); });
}

// What was found is read in a second pass, so that the caches' misses of all ranks overlap.
void StepStore::find_starts(const WindowIndex& index, std::span<const std::int64_t> ranks,
                            std::span<WindowStart> starts) const noexcept {
    const WindowSpec& spec = index.spec;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const auto [leaf, place] = index.starts.find(ranks[i]);
        starts[i] = {static_cast<std::uint32_t>(leaf), place};
        prefetch_span(reinterpret_cast<const std::byte*>(&episodes_[leaf]), sizeof(Episode));
    }
    for (WindowStart& start : starts) {
        if (spec.cross) {
            const Runs::Run& run = runs_.run_of(start.slot);
            const std::int64_t position = window_starts(run_rows(run, spec), spec).at(start.t);
            const Runs::Member& member = run.members[Runs::find(run, position, spec.arrival)];
            start = {member.slot, position - member.position(0, spec.arrival)};
        } else {
            const Episode& episode = episodes_[start.slot];
            start.t = window_starts(episode.stored(), spec).at(start.t);
            prefetch_row_of(episode, start.t);
        }
    }
}

const WindowIndex* StepStore::window_index(const WindowSpec& spec) const noexcept {
    for (const auto& window : windows_)
        if (window->spec == spec) return window.get();
    return nullptr;
}

void StepStore::prepare_windows(const WindowSpec& spec) {
    if (window_index(spec) != nullptr) return;
    if (spec.cross && !runs_.tracked()) {
        runs_.track();
        std::vector<std::uint32_t> by_birth;
        for (std::uint32_t slot = 0; slot < episodes_.size(); ++slot)
            if (episodes_[slot].in_use) by_birth.push_back(slot);
        std::sort(by_birth.begin(), by_birth.end(),
                  [&](std::uint32_t a, std::uint32_t b) { return episodes_[a].birth < episodes_[b].birth; });
        for (const std::uint32_t slot : by_birth) join_run(slot);
    }
    auto window = std::make_unique<WindowIndex>();
    window->spec = spec;
    window->starts.grow(episodes_.size());
    for (std::uint32_t slot = 0; slot < episodes_.size(); ++slot) window->starts.set(slot, count_starts(spec, slot));
    if (windows_.size() == kWindowIndexes) windows_.erase(windows_.begin());
    windows_.push_back(std::move(window));
}

std::vector<std::int64_t> StepStore::valid_starts(const WindowSpec& spec) const {
    RB_ASSUME(!spec.cross);
    std::vector<std::int64_t> starts;
    const std::int64_t first = oldest();
    for (std::int64_t offset = 0; offset < live(); ++offset) {
        const StepTime& step = time(row_at_offset(offset));
        const Episode& episode = episodes_[step.episode];
        if (spec.side != Side::any && spec.side != episode.side) continue;
        if (window_starts(episode.stored(), spec).holds(step.t)) starts.push_back(first + offset);
    }
    return starts;
}

}  // namespace ringback
