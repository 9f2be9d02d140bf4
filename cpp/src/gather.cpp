#include "ringback/gather.hpp"

#include <algorithm>
#include <cstring>

#include "ringback/prefetch.hpp"

namespace ringback {

namespace {

// Rows whose fields are copied one field after the other, while they are in the cache.
constexpr std::size_t kRun = 16;
// Before its lines are asked for the page of a row is, by one line alone: kRun rows before, or so many segments. The
// first access to a page looks its address up, which takes longer than to fetch a line, and each access that comes
// before that is known looks it up again.
constexpr std::size_t kPageSegments = 8;
constexpr std::size_t kPageBytes = 4096;  // of the processor's pages, the smallest of any
constexpr std::uint64_t kInPool = std::uint64_t{1} << 63, kNothing = ~std::uint64_t{0};

// How many rows ahead of the copying memory is asked for: enough to hide its latency, not more than is in flight at
// once.
std::size_t rows_ahead(const Schema& schema, std::size_t small) { return schema.columns().empty() ? small : 2; }

std::byte* bytes_of(void* out) noexcept { return static_cast<std::byte*>(out); }

float float_at(const std::byte* place) noexcept {
    float value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

// How many frames before a row's own its stacks have.
std::uint32_t frames_before(const RowsOut& out) noexcept {
    std::int64_t most = 1;
    for (const StackOut& stack : out.stacks) most = std::max(most, stack.frames);
    return static_cast<std::uint32_t>(std::min(most - 1, std::int64_t{64}));
}

void prefetch_columns(const StepStore& store, std::uint32_t row) noexcept {
    constexpr std::size_t kBeginning = 512;  // hardware goes on from there
    for (std::size_t c = 0; c < store.schema().columns().size(); ++c)
        prefetch_span(store.column(static_cast<std::int32_t>(c), row), kBeginning);
}

}  // namespace

// Held by value, because stores of bytes may alias whatever lies in memory, which is then read again for each row.
struct Gather::Records {
    explicit Records(const StepStore& from) noexcept
        : store(from),
          base(from.record(0)),
          stride(from.schema().record_bytes()),
          reward(from.schema().place(from.schema().reward_index()).offset),
          page_mask(static_cast<std::uint32_t>(from.rows_per_page() - 1)) {}
    const std::byte* at(std::uint32_t row) const noexcept { return base + row * stride; }

    const StepStore& store;
    const std::byte* base;
    std::size_t stride, reward;
    std::uint32_t page_mask;
};

void Gather::add_to_plan(const Schema& schema, std::span<const FieldOut> fields, Plan& plan) {
    for (const FieldOut& out : fields) {
        const Place& place = schema.place(out.field);
        if (place.in_column())
            plan.columns.push_back({place.column, place.bytes, out.data});
        else
            plan.small.push_back({place.offset, RowCopier(place.bytes), out.data});
    }
}

void Gather::copy_small(const Plan& plan, const std::byte* const* records, std::size_t begin,
                        std::size_t end) noexcept {
    for (const SmallCopy& copy : plan.small)
        copy.copier(copy.data + begin * copy.copier.bytes(), ScatteredRows{records + begin, copy.offset}, end - begin);
}

// Rows that lie behind each other in memory are copied at once.
void Gather::copy_columns(const StepStore& store, const Plan& plan, const Source* sources, std::size_t begin,
                          std::size_t end) noexcept {
    for (const ColumnCopy& copy : plan.columns)
        for (std::size_t i = begin; i < end;) {
            const Source source = sources[i];
            std::size_t rows = 1;
            while (source != kNothing && i + rows < end && sources[i + rows] == source + rows) ++rows;
            std::byte* const target = copy.data + i * copy.bytes;
            const auto index = static_cast<std::uint32_t>(source);
            if (source == kNothing)
                std::memset(target, 0, copy.bytes);
            else if ((source & kInPool) != 0)
                copy_bytes(target, store.entry_column(copy.column, index), rows * copy.bytes);
            else
                copy_bytes(target, store.column(copy.column, index), rows * copy.bytes);
            i += rows;
        }
}

void Gather::make_room(const Schema& schema, const RowsOut& out, std::size_t count, bool resolving) {
    const std::size_t with_columns = schema.columns().empty() ? 0 : count;
    records_.resize(count);
    own_sources_.resize(with_columns);
    if (!resolving) return;
    successors_.resize(count);
    flags_.resize(count);
    successor_sources_.resize(with_columns);
    last_rows_.resize(out.next_stacks.empty() ? 0 : count);
}

Gather::Scratch Gather::scratch() noexcept {
    return {records_.data(), successors_.data(), successor_sources_.empty() ? nullptr : successor_sources_.data(),
            last_rows_.empty() ? nullptr : last_rows_.data(), flags_.data()};
}

// Finds the last summed step of the start in `row`, sums on the way, and finds where its successor lies.
template <bool kReduce>
inline Gather::Resolved Gather::resolve(const Records& records, std::uint32_t row, std::int64_t n,
                                        double gamma) noexcept {
    const StepStore& store = records.store;
    Resolved found{{0.0, gamma, 1}, row, 0, nullptr, kNothing};
    if constexpr (kReduce) {
        Reduced& sum = found.sum;
        sum.reward = float_at(records.at(row) + records.reward);
        for (; sum.steps < n && store.goes_on(row); ++sum.steps) {
            row = store.next_row(row);
            sum.reward += sum.discount * static_cast<double>(float_at(records.at(row) + records.reward));
            sum.discount *= gamma;
        }
        found.last_row = row;
    }
    const StepTag tag = store.tag(row);
    found.flags = tag.flags;
    if (tag.link == 0) {
        const std::uint32_t next = store.next_row(row);
        found.successor = records.at(next);
        found.successor_source = next;
        if (store.next_is_adjacent(row)) return found;
    } else {
        found.successor = store.entry_record(tag.link - 1);
        found.successor_source = kInPool | (tag.link - 1);
    }
    prefetch_span(found.successor, store.schema().observation_bytes());
    return found;
}

// What row i of the answer comes to but for what is copied.
template <bool kReduce>
inline void Gather::put_resolved(const Scratch& to, const RowsOut& out, std::size_t i, const Resolved& found) noexcept {
    to.successors[i] = found.successor;
    if (to.successor_sources != nullptr) to.successor_sources[i] = found.successor_source;
    if (to.last_rows != nullptr) to.last_rows[i] = found.last_row;
    if constexpr (kReduce) out.reward[i] = static_cast<float>(found.sum.reward);
    if (out.discount != nullptr)
        out.discount[i] = static_cast<float>(found.sum.discount) * static_cast<float>(1 - (found.flags & kTerminated));
    if (out.steps != nullptr) out.steps[i] = found.sum.steps;
    to.flags[i] = found.flags;
}

// The flags of all rows, from those of their last summed steps.
void Gather::put_ends(const RowsOut& out, std::size_t count) const noexcept {
    const std::uint8_t* const flags = flags_.data();
    std::uint8_t *const terminated = out.terminated, *const truncated = out.truncated;
    float* const done = out.done;
    for (std::size_t i = 0; i < count; ++i) terminated[i] = flags[i] & kTerminated;
    for (std::size_t i = 0; i < count; ++i) truncated[i] = static_cast<std::uint8_t>(flags[i] >> 1);
    for (std::size_t i = 0; i < count; ++i) done[i] = static_cast<float>(flags[i] & kTerminated);
}

template <bool kReduce>
void Gather::gather_transitions(const StepStore& store, std::span<const std::uint32_t> rows, const NStep& n_step,
                                const TransitionOut& out) {
    const Schema& schema = store.schema();
    const std::size_t count = rows.size();
    const bool has_columns = !schema.columns().empty();
    const std::size_t run = has_columns ? 1 : kRun;
    const std::size_t span = schema.record_bytes() * static_cast<std::size_t>(std::min<std::int64_t>(n_step.n, 8)) +
                             schema.observation_bytes();
    const std::uint32_t history = frames_before(out);
    const Records records(store);
    const auto find_page = [records, rows](std::size_t i) { prefetch(records.at(rows[i])); };
    const auto fetch = [&, records, rows, span, history, has_columns](std::size_t i) {
        prefetch_span(records.at(rows[i]), span, 16);
        if (history == 0 && !has_columns) return;
        const std::uint32_t before = std::min(history, rows[i] & records.page_mask), oldest = rows[i] - before;
        prefetch_span(records.at(oldest), before * records.stride, 16);
        if (has_columns) prefetch_columns(store, oldest);
        if (history > 0) prefetch(&store.time(rows[i]));
    };
    const std::size_t ahead = rows_ahead(schema, 2 * kRun), far_ahead = ahead + kRun, halfway = std::min(ahead, kRun);
    std::size_t paged = 0, fetched = 0, found = 0;
    const auto advance = [count](std::size_t& from, std::size_t to, auto visit) {
        for (to = std::min(to, count); from < to; ++from) visit(from);
    };
    advance(paged, far_ahead, find_page);
    advance(fetched, ahead, fetch);

    // While these are on their way:
    forget_plans();
    add_to_plan(schema, out.observation, step_);
    add_to_plan(schema, out.fields, step_);
    if (!kReduce) add_to_plan(schema, {{{schema.reward_index(), bytes_of(out.reward)}}}, step_);
    add_to_plan(schema, out.next_observation, next_);
    make_room(schema, out, count, true);
    const auto find = [&out, n_step, records, rows, to = scratch()](std::size_t i) {
        to.records[i] = records.at(rows[i]);
        put_resolved<kReduce>(to, out, i, resolve<kReduce>(records, rows[i], n_step.of(i), n_step.gamma));
    };
    advance(found, halfway, find);

    for (std::size_t begin = 0; begin < count; begin += run) {
        const std::size_t end = std::min(begin + run, count);
        advance(paged, end + far_ahead, find_page);
        advance(fetched, end + ahead, fetch);
        advance(found, end + halfway, find);
        copy_small(step_, records_.data(), begin, end);
        copy_small(next_, successors_.data(), begin, end);
        if (!has_columns) continue;
        for (std::size_t i = begin; i < end; ++i) own_sources_[i] = rows[i];
        copy_columns(store, step_, own_sources_.data(), begin, end);
        copy_columns(store, next_, successor_sources_.data(), begin, end);
    }
    put_ends(out, count);
}

void Gather::forget_plans() noexcept {
    for (Plan* const plan : {&observation_, &next_, &step_, &reward_}) {
        plan->small.clear();
        plan->columns.clear();
    }
}

void Gather::transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step,
                         const TransitionOut& out) {
    n_step.n = std::min(n_step.n, store.capacity());
    if (n_step.n > 1)
        gather_transitions<true>(store, rows, n_step, out);
    else
        gather_transitions<false>(store, rows, n_step, out);
    copy_stacks(
        store, out, rows.size(), [&](std::size_t i) { return StackEnd{rows[i], false}; },
        [&](std::size_t i) { return StackEnd{last_rows_[i], true}; });
}

void Gather::sequences(const StepStore& store, const WindowRows& windows, NStep n_step, const SequenceOut& out) {
    n_step.n = std::min(n_step.n, store.capacity());
    copy_rows(store, windows, n_step, out);
    put_flags(store, windows, n_step, out);
    const std::vector<std::uint32_t>&rows = windows.rows, &arrived = windows.arrived;
    copy_stacks(
        store, out, rows.size(),
        [&](std::size_t i) {
            const bool behind = rows[i] == kNoRow && !arrived.empty();
            return StackEnd{behind ? arrived[i] : rows[i], behind};
        },
        [&](std::size_t i) { return StackEnd{last_rows_[i], true}; });
    for (const FieldOut& field : out.start_fields) {
        const std::size_t bytes = store.schema().place(field.field).bytes;
        for (std::size_t w = 0; w < windows.windows; ++w) {
            const std::uint32_t row = rows[windows.first_of(w)];
            if (row == kNoRow)
                std::memset(field.data + w * bytes, 0, bytes);
            else
                copy_bytes(field.data + w * bytes, store.field(row, field.field), bytes);
        }
    }
}

// All but flags and stacks.
void Gather::copy_rows(const StepStore& store, const WindowRows& windows, const NStep& n_step, const SequenceOut& out) {
    const Schema& schema = store.schema();
    const std::vector<std::uint32_t>&rows = windows.rows, &arrived = windows.arrived;
    const std::size_t count = rows.size();
    const bool has_columns = !schema.columns().empty(), by_arrival = !arrived.empty();
    const bool reduced = n_step.n > 1;
    const bool resolving = reduced || !out.next_observation.empty() || !out.next_stacks.empty();
    const std::size_t ahead = rows_ahead(schema, 3 * kRun);
    forget_plans();
    add_to_plan(schema, out.observation, by_arrival ? observation_ : step_);
    add_to_plan(schema, out.fields, step_);
    add_to_plan(schema, out.next_observation, next_);
    if (!reduced) add_to_plan(schema, {{{schema.reward_index(), bytes_of(out.reward)}}}, by_arrival ? reward_ : step_);
    if (!has_columns && !by_arrival && !resolving && windows.stride == 1) return copy_segments(store, windows, out);
    make_room(schema, out, count, resolving);
    nothing_.assign(schema.record_bytes(), std::byte{0});
    if (by_arrival) {
        observed_.resize(count);
        arrived_.resize(count);
        if (has_columns) observed_sources_.resize(count);
    }

    const std::byte* const nothing = nothing_.data();
    const Records in(store);
    const Scratch to = scratch();
    const std::byte** const records = records_.data();
    const std::int64_t* const numbers = store.numbers();
    const std::uint32_t* const row_of = rows.data();
    const auto fetch = [&, in, nothing, records, row_of, numbers, has_columns](std::size_t i) {
        const std::uint32_t row = row_of[i];
        records[i] = nothing;
        if (row == kNoRow) return;
        records[i] = in.at(row);
        prefetch_span(records[i], in.stride, 16);
        prefetch(&numbers[row]);
        if (has_columns) prefetch_columns(store, row);
    };
    // The observation that is there by arrivals: the step's own, or, behind the last step, what that led to.
    const auto observe = [&](std::size_t i) {
        arrived_[i] = arrived[i] == kNoRow ? nothing : store.record(arrived[i]);
        observed_[i] = records[i];
        if (has_columns) observed_sources_[i] = row_of[i] == kNoRow ? kNothing : row_of[i];
        if (row_of[i] != kNoRow || arrived[i] == kNoRow) return;
        const std::uint32_t entry = store.tag(arrived[i]).link - 1;
        observed_[i] = store.entry_record(entry);
        if (has_columns) observed_sources_[i] = kInPool | entry;
    };
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
    for (std::size_t begin = 0; begin < count; begin += kRun) {
        const std::size_t end = std::min(begin + kRun, count);
        for (std::size_t i = begin + ahead; i < std::min(end + ahead, count); ++i) fetch(i);
        for (std::size_t i = begin; resolving && i < end; ++i) {
            const std::int64_t n = n_step.of(i);
            if (row_of[i] == kNoRow)
                put_resolved<true>(to, out, i, {{0.0, 0.0, 0}, kNoRow, 0, nothing, kNothing});
            else if (reduced)
                put_resolved<true>(to, out, i, resolve<true>(in, row_of[i], n, n_step.gamma));
            else
                put_resolved<false>(to, out, i, resolve<false>(in, row_of[i], n, n_step.gamma));
        }
        if (by_arrival)
            for (std::size_t i = begin; i < end; ++i) observe(i);
        copy_small(step_, records, begin, end);
        if (by_arrival) {
            copy_small(observation_, observed_.data(), begin, end);
            copy_small(reward_, arrived_.data(), begin, end);
        }
        if (!next_.small.empty()) copy_small(next_, successors_.data(), begin, end);
        for (std::size_t i = begin; i < end; ++i) out.ids[i] = row_of[i] == kNoRow ? -1 : numbers[row_of[i]];
        if (!has_columns) continue;
        for (std::size_t i = begin; i < end; ++i) own_sources_[i] = row_of[i] == kNoRow ? kNothing : row_of[i];
        if (by_arrival) copy_columns(store, observation_, observed_sources_.data(), begin, end);
        copy_columns(store, step_, own_sources_.data(), begin, end);
        copy_columns(store, next_, successor_sources_.data(), begin, end);
    }
}

// The common case: what lies in the rows of windows alone. These lie behind each other at least up to a page's end.
void Gather::copy_segments(const StepStore& store, const WindowRows& windows, const SequenceOut& out) {
    segments_.clear();
    for (const WindowRows::Piece& piece : windows.pieces) {
        std::size_t at = piece.out;
        store.visit_runs(store.episode(piece.slot), piece.t, piece.count, [&](std::uint32_t row, std::size_t rows) {
            if (at > piece.out && row == segments_.back().row + segments_.back().count)
                segments_.back().count += static_cast<std::uint32_t>(rows);  // the next page lies behind
            else
                segments_.push_back({at, row, static_cast<std::uint32_t>(rows)});
            at += rows;
        });
    }
    const std::byte* const base = store.record(0);
    const std::size_t stride = store.schema().record_bytes(), count = windows.rows.size();
    // Asks for the next rows. As many are asked for as are copied: more at once would wait for each other.
    std::size_t fetching = 0, fetched = 0;
    const auto fetch = [&](std::size_t rows) {
        while (rows > 0 && fetching < segments_.size()) {
            const Segment& segment = segments_[fetching];
            const std::size_t taken = std::min(rows, segment.count - fetched);
            const std::size_t first = segment.row + fetched;
            prefetch_span(base + first * stride, taken * stride, taken * 16);
            store.prefetch_numbers(static_cast<std::uint32_t>(first), taken);
            rows -= taken;
            fetched += taken;
            if (fetched == segment.count) ++fetching, fetched = 0;
        }
    };
    const auto find_pages = [&](const Segment& segment) {
        const std::byte* const begin = base + segment.row * stride;
        for (std::size_t at = 0; at < segment.count * stride; at += kPageBytes) prefetch(begin + at);
    };
    // Rows between two segments are not there.
    const auto clear = [&](std::size_t begin, std::size_t end) {
        for (const SmallCopy& copy : step_.small)
            std::memset(copy.data + begin * copy.copier.bytes(), 0, (end - begin) * copy.copier.bytes());
        std::fill(out.ids + begin, out.ids + end, -1);
    };
    for (std::size_t s = 0; s < std::min(kPageSegments, segments_.size()); ++s) find_pages(segments_[s]);
    fetch(3 * kRun);
    std::size_t done = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
        if (s + kPageSegments < segments_.size()) find_pages(segments_[s + kPageSegments]);
        const Segment& segment = segments_[s];
        if (done < segment.out) clear(done, segment.out);
        for (std::size_t k = 0; k < segment.count; k += kRun) {
            const std::size_t rows = std::min(kRun, segment.count - k);
            fetch(rows);
            const std::byte* const source = base + (segment.row + k) * stride;
            for (const SmallCopy& copy : step_.small)
                copy.copier(copy.data + (segment.out + k) * copy.copier.bytes(),
                            RowsApart{source + copy.offset, stride}, rows);
        }
        done = segment.out + segment.count;
    }
    clear(done, count);
    for (const WindowRows::Piece& piece : windows.pieces)
        store.numbers_of(store.episode(piece.slot), piece.t,
                         {out.ids + piece.out, static_cast<std::size_t>(piece.count)});
}

// A piece lies inside one episode: only its first row can begin that, only its last row can end it, unless more rewards
// than one are summed.
void Gather::put_flags(const StepStore& store, const WindowRows& windows, const NStep& n_step, const SequenceOut& out) {
    const std::size_t count = windows.rows.size(), stride = windows.stride;
    std::memset(out.done, 0, count * sizeof(float));
    for (std::uint8_t* flags : {out.terminated, out.truncated, out.first, out.last}) std::memset(flags, 0, count);
    const auto put_end = [&](std::size_t i, std::uint8_t flags) {
        out.terminated[i] = (flags & kTerminated) != 0;
        out.truncated[i] = (flags & kTruncated) != 0;
        out.done[i] = (flags & kTerminated) != 0 ? 1.0F : 0.0F;
    };
    const bool by_arrival = !windows.arrived.empty();
    for (const WindowRows::Piece& piece : windows.pieces) {
        const Episode& episode = store.episode(piece.slot);
        const std::size_t last = piece.out + static_cast<std::size_t>(piece.count - 1) * stride;
        const std::int64_t newest = by_arrival && !episode.open ? episode.end : episode.end - 1;
        if (piece.t == 0) out.first[piece.out] = 1;
        if (piece.t + piece.count - 1 != newest) continue;
        const bool behind = by_arrival && newest == episode.end;  // the row behind the last step
        if (!by_arrival || behind) out.last[last] = 1;
        if (!by_arrival || behind) put_end(last, store.tag(episode.newest).flags);
    }
    const bool reduced = n_step.n > 1;
    if (reduced) put_ends(out, count);
    for (std::size_t i = 0; !reduced && (out.discount != nullptr || out.steps != nullptr) && i < count; ++i) {
        const bool there = windows.rows[i] != kNoRow;
        const float discount = there ? static_cast<float>(n_step.gamma) : 0.0F;
        if (out.discount != nullptr) out.discount[i] = discount * (1.0F - out.done[i]);
        if (out.steps != nullptr) out.steps[i] = there ? 1 : 0;
    }
    if (out.valid != nullptr) std::memset(out.valid, 0, count);
    if (out.mask != nullptr) std::memset(out.mask, 0, count);
    for (std::size_t w = 0; w < windows.windows; ++w) {
        const auto burn_in = static_cast<std::size_t>(windows.burn_in_lengths[w]);
        const std::size_t rows = burn_in + static_cast<std::size_t>(windows.lengths[w]), at = windows.first_of(w);
        if (out.valid != nullptr)
            for (std::size_t k = 0; k < rows; ++k) out.valid[at + k * stride] = 1;
        if (out.mask != nullptr)
            for (std::size_t k = burn_in; k < rows; ++k) out.mask[at + k * stride] = 1;
    }
}

namespace {

const StackOut* stack_of(const std::vector<StackOut>& stacks, std::size_t field) noexcept {
    for (const StackOut& stack : stacks)
        if (stack.field == field) return &stack;
    return nullptr;
}

}  // namespace

// Where the frames of one row of a stack lie, oldest first; a row that is not there has none.
void Gather::find_frames(const StepStore& store, const StackOut& stack, const StackEnd& end, Frames& frames) {
    frames.clear();
    if (end.row == kNoRow) return;
    frames.resize(static_cast<std::size_t>(stack.frames));
    const std::int64_t t = store.time(end.row).t, newest = t + (end.successor ? 1 : 0);
    const Window window = resolve_window({0, newest + 1}, newest + 1 - stack.frames, newest + 1);
    const auto missing = static_cast<std::size_t>(window.fill_left);
    for (std::int64_t k = 0; k < window.count; ++k)
        frames[missing + static_cast<std::size_t>(k)] =
            window.first + k > t ? store.successor(end.row, stack.field)
                                 : store.field(store.row_before(end.row, t - window.first - k), stack.field);
    std::fill_n(frames.begin(), missing, stack.fill != nullptr ? stack.fill : frames[missing]);
}

void Gather::put_frame(const Schema& schema, const StackOut& stack, std::size_t i, std::size_t k,
                       const Frames& frames) noexcept {
    const std::size_t bytes = schema.place(stack.field).bytes;
    std::byte* const target = stack.data + (i * static_cast<std::size_t>(stack.frames) + k) * bytes;
    if (frames.empty())
        std::memset(target, 0, bytes);
    else
        copy_bytes(target, frames[k], bytes);
}

// A stack of observations and the one of their successors have most frames in common, so these are copied in turn: what
// was just read for the one is in the cache for the other.
template <class EndOf, class NextEndOf>
void Gather::copy_stacks(const StepStore& store, const RowsOut& out, std::size_t count, EndOf&& end_of,
                         NextEndOf&& next_end_of) {
    const Schema& schema = store.schema();
    for (std::size_t field = 0; field < schema.observation_count(); ++field) {
        const StackOut *const stack = stack_of(out.stacks, field), *const next = stack_of(out.next_stacks, field);
        if (stack == nullptr && next == nullptr) continue;
        const auto frames = static_cast<std::size_t>((stack != nullptr ? stack : next)->frames);
        for (std::size_t i = 0; i < count; ++i) {
            if (stack != nullptr) find_frames(store, *stack, end_of(i), frames_);
            if (next != nullptr) find_frames(store, *next, next_end_of(i), next_frames_);
            for (std::size_t k = 0; k <= frames; ++k) {
                if (stack != nullptr && k < frames) put_frame(schema, *stack, i, k, frames_);
                if (next != nullptr && k > 0) put_frame(schema, *next, i, k - 1, next_frames_);
            }
        }
    }
}

}  // namespace ringback
