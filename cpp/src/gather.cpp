#include "ringback/gather.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ringback/prefetch.hpp"

namespace ringback {

namespace {

constexpr std::size_t kBlock = 16;       // bytes copied at once
constexpr std::size_t kMostBlocks = 16;  // rows longer than that are left to memcpy
constexpr std::size_t kRun = 4;  // rows whose fields are copied one field after the other, while they are in the cache
constexpr std::uint64_t kInPool = std::uint64_t{1} << 63;

// How many rows ahead of the copying memory is asked for: enough to hide its latency, not more than is in flight at
// once.
std::size_t rows_ahead(const Schema& schema, std::size_t small) { return schema.columns().empty() ? small : 2; }

template <std::size_t kBytes>
void copy_exactly(std::byte* target, const std::byte* const* sources, std::size_t offset, std::size_t,
                  std::size_t count) noexcept {
    for (std::size_t r = 0; r < count; ++r) std::memcpy(target + r * kBytes, sources[r] + offset, kBytes);
}

void copy_any(std::byte* target, const std::byte* const* sources, std::size_t offset, std::size_t bytes,
              std::size_t count) noexcept {
    for (std::size_t r = 0; r < count; ++r) std::memcpy(target + r * bytes, sources[r] + offset, bytes);
}

template <std::size_t kBlocks>
void copy_blocks(std::byte* target, const std::byte* const* sources, std::size_t offset, std::size_t bytes,
                 std::size_t count) noexcept {
    for (std::size_t r = 0; r < count; ++r, target += bytes) {
        const std::byte* const source = sources[r] + offset;
        for (std::size_t b = 0; b < kBlocks; ++b) std::memcpy(target + b * kBlock, source + b * kBlock, kBlock);
    }
}

// How many of `count` rows may be copied in whole blocks without overrunning the output.
std::size_t rows_in_blocks(std::size_t count, std::size_t bytes) noexcept {
    const std::size_t total = count * bytes, copied = (bytes + kBlock - 1) / kBlock * kBlock;
    return copied > total ? 0 : (total - copied) / bytes + 1;
}

std::byte* bytes_of(void* out) noexcept { return static_cast<std::byte*>(out); }

float float_at(const std::byte* place) noexcept {
    float value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

void prefetch_columns(const StepStore& store, std::uint32_t row) noexcept {
    constexpr std::size_t kBeginning = 512;  // hardware goes on from there
    for (std::size_t c = 0; c < store.schema().columns().size(); ++c)
        prefetch_span(store.column(static_cast<std::int32_t>(c), row), kBeginning);
}

}  // namespace

void window_rows(const StepStore& store, const Episode& episode, std::int64_t t,
                 std::span<std::uint32_t> rows) noexcept {
    const auto page_rows = static_cast<std::uint32_t>(store.rows_per_page());
    for (std::size_t i = 0; i < rows.size();) {
        std::uint32_t row = store.row_of(episode, t + static_cast<std::int64_t>(i));
        const std::size_t left = page_rows - (row & (page_rows - 1));
        for (const std::size_t stop = std::min(rows.size(), i + left); i < stop; ++i) rows[i] = row++;
    }
}

Gather::Copier Gather::copier_for(std::size_t bytes) noexcept {
    static constexpr auto kCopiers = []<std::size_t... kBlocks>(std::index_sequence<kBlocks...>) {
        return std::array<Copier, sizeof...(kBlocks)>{&copy_blocks<kBlocks + 1>...};
    }(std::make_index_sequence<kMostBlocks>());
    switch (bytes) {
        case 1:
            return &copy_exactly<1>;
        case 4:
            return &copy_exactly<4>;
        case 8:
            return &copy_exactly<8>;
        default:
            return bytes > kMostBlocks * kBlock ? &copy_any : kCopiers[(bytes - 1) / kBlock];
    }
}

void Gather::plan_small(Plan& plan, std::size_t offset, std::size_t bytes, std::size_t count, std::byte* data) {
    plan.small.push_back({offset, bytes, rows_in_blocks(count, bytes), copier_for(bytes), data});
}

void Gather::plan(const Schema& schema, std::span<const FieldOut> fields, std::size_t count, Plan& plan) {
    plan.small.clear();
    plan.columns.clear();
    for (const FieldOut& out : fields) {
        const Place& place = schema.place(out.field);
        if (place.in_column())
            plan.columns.push_back({place.column, place.bytes, out.data});
        else
            plan_small(plan, place.offset, place.bytes, count, out.data);
    }
}

void Gather::copy_small(const Plan& plan, const std::byte* const* records, std::size_t begin,
                        std::size_t end) noexcept {
    for (const SmallCopy& copy : plan.small) {
        const std::size_t safe_end = std::clamp(copy.safe_rows, begin, end);
        copy.copier(copy.data + begin * copy.bytes, records + begin, copy.offset, copy.bytes, safe_end - begin);
        if (safe_end < end)
            copy_any(copy.data + safe_end * copy.bytes, records + safe_end, copy.offset, copy.bytes, end - safe_end);
    }
}

void Gather::copy_columns(const StepStore& store, std::span<const std::uint32_t> rows, std::size_t begin,
                          std::size_t end) const noexcept {
    for (const ColumnCopy& copy : own_.columns)
        for (std::size_t i = begin; i < end; ++i)
            std::memcpy(copy.data + i * copy.bytes, store.column(copy.column, rows[i]), copy.bytes);
}

void Gather::copy_successor_columns(const StepStore& store, std::size_t begin, std::size_t end) const noexcept {
    for (const ColumnCopy& copy : next_.columns)
        for (std::size_t i = begin; i < end; ++i) {
            const SuccessorIndex from = successor_index_[i];
            const auto index = static_cast<std::uint32_t>(from);
            std::memcpy(
                copy.data + i * copy.bytes,
                (from & kInPool) != 0 ? store.entry_column(copy.column, index) : store.column(copy.column, index),
                copy.bytes);
        }
}

// Finds the last summed step of the start in `row`, sums on the way, and finds where its successor lies.
template <bool kReduce>
void Gather::resolve(const StepStore& store, std::uint32_t row, std::size_t i, NStep n_step) noexcept {
    const Schema& schema = store.schema();
    const std::byte* record = store.record(row);
    records_[i] = record;
    if constexpr (kReduce) {
        const std::size_t reward = schema.place(schema.reward_index()).offset;
        const StepTime& step = store.time(row);
        Reduced sum{float_at(record + reward), n_step.gamma, 1};
        sum.steps = resolve_window(store.episode(step.episode).extent(), step.t, step.t + n_step.n).count;
        for (std::int64_t k = 1; k < sum.steps; ++k) {
            row = store.next_row(row);
            sum.reward += sum.discount * static_cast<double>(float_at(store.record(row) + reward));
            sum.discount *= n_step.gamma;
        }
        reduced_[i] = sum;
        record = store.record(row);
    }
    last_records_[i] = record;
    if (const std::uint32_t link = store.tag_of(record).link; link == 0) {
        const std::uint32_t next = store.next_row(row);
        successors_[i] = store.record(next);
        successor_index_[i] = next;
        if (store.next_is_adjacent(row)) return;
    } else {
        successors_[i] = store.entry_record(link - 1);
        successor_index_[i] = kInPool | (link - 1);
    }
    prefetch_span(successors_[i], schema.observation_bytes());
}

template <bool kReduce>
void Gather::gather_transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step,
                                const TransitionOut& out) {
    const Schema& schema = store.schema();
    const std::size_t count = rows.size();
    const std::size_t ahead = rows_ahead(schema, 16), halfway = std::min<std::size_t>(ahead, 4);
    const std::size_t span = schema.record_bytes() * static_cast<std::size_t>(std::min<std::int64_t>(n_step.n, 8)) +
                             schema.observation_bytes();
    const std::size_t run = schema.columns().empty() ? kRun : 1;
    // Stores of bytes may alias anything, so what the loops need is held in locals.
    const std::byte* const base = store.record(0);
    const std::size_t stride = schema.record_bytes();
    const bool has_columns = !schema.columns().empty();
    const auto fetch = [&, base, stride, span, has_columns](std::size_t i) {
        prefetch_span(base + rows[i] * stride, span, 16);
        if constexpr (kReduce) prefetch(&store.time(rows[i]));
        if (has_columns) prefetch_columns(store, rows[i]);
    };
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
    for (std::size_t i = 0; i < std::min(halfway, count); ++i) resolve<kReduce>(store, rows[i], i, n_step);

    const std::byte* const* const last_records = last_records_.data();
    const Reduced* const reduced = reduced_.data();
    struct {
        std::uint8_t *terminated, *truncated;
        float *done, *reward, *discount;
        std::int64_t* steps;
    } const to{out.terminated, out.truncated, out.done, out.reward, out.discount, out.steps};
    for (std::size_t begin = 0; begin < count; begin += run) {
        const std::size_t end = std::min(begin + run, count);
        for (std::size_t i = begin; i < end; ++i) {
            if (i + ahead < count) fetch(i + ahead);
            if (i + halfway < count) resolve<kReduce>(store, rows[i + halfway], i + halfway, n_step);
        }
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint8_t flags = store.tag_of(last_records[i]).flags;
            const std::uint8_t terminated = flags & kTerminated;
            to.terminated[i] = terminated;
            to.truncated[i] = static_cast<std::uint8_t>(flags >> 1);
            to.done[i] = static_cast<float>(terminated);
            if constexpr (kReduce) to.reward[i] = static_cast<float>(reduced[i].reward);
            if (to.discount != nullptr)
                to.discount[i] = static_cast<float>(kReduce ? reduced[i].discount : n_step.gamma) *
                                 static_cast<float>(1 - terminated);
            if (to.steps != nullptr) to.steps[i] = kReduce ? reduced[i].steps : 1;
        }
        copy_small(own_, records_.data(), begin, end);
        copy_small(next_, successors_.data(), begin, end);
        copy_columns(store, rows, begin, end);
        copy_successor_columns(store, begin, end);
    }
}

void Gather::transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step,
                         const TransitionOut& out) {
    const std::size_t count = rows.size();
    const Schema& schema = store.schema();
    n_step.n = std::min(n_step.n, store.capacity());
    plan(schema, out.fields, count, own_);
    if (n_step.n == 1)
        plan_small(own_, schema.place(schema.reward_index()).offset, sizeof(float), count, bytes_of(out.reward));
    plan(schema, out.next_observation, count, next_);
    records_.resize(count);
    last_records_.resize(count);
    successors_.resize(count);
    successor_index_.resize(count);
    if (n_step.n > 1) {
        reduced_.resize(count);
        gather_transitions<true>(store, rows, n_step, out);
    } else {
        gather_transitions<false>(store, rows, n_step, out);
    }
}

void Gather::sequences(const StepStore& store, std::span<const std::uint32_t> rows, std::size_t length,
                       const SequenceOut& out) {
    const Schema& schema = store.schema();
    const std::size_t count = rows.size();
    const std::size_t ahead = rows_ahead(schema, 48), run = schema.columns().empty() ? kRun : 1;
    plan(schema, out.fields, count, own_);
    plan_small(own_, schema.place(schema.reward_index()).offset, sizeof(float), count, bytes_of(out.reward));
    records_.resize(count);

    const std::byte* const base = store.record(0);
    const std::size_t stride = schema.record_bytes();
    const bool has_columns = !schema.columns().empty();
    const std::byte** const records = records_.data();
    const std::int64_t* const numbers = store.numbers();
    const auto fetch = [&, base, stride, records, has_columns](std::size_t i) {
        const std::byte* const record = base + rows[i] * stride;
        records[i] = record;
        prefetch_span(record, stride, 16);
        prefetch(&numbers[rows[i]]);
        if (has_columns) prefetch_columns(store, rows[i]);
    };
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
    for (std::size_t begin = 0; begin < count; begin += run) {
        const std::size_t end = std::min(begin + run, count);
        for (std::size_t i = begin + ahead; i < std::min(end + ahead, count); ++i) fetch(i);
        copy_small(own_, records_.data(), begin, end);
        copy_columns(store, rows, begin, end);
        for (std::size_t i = begin; i < end; ++i) out.ids[i] = numbers[rows[i]];
    }

    // A window lies inside one episode: only its first row can begin it, only its last row can end it.
    std::memset(out.done, 0, count * sizeof(float));
    for (std::uint8_t* flags : {out.terminated, out.truncated, out.first, out.last}) std::memset(flags, 0, count);
    for (std::size_t begin = 0; begin < count; begin += length) {
        const std::size_t end = begin + length - 1;
        const StepTime newest = store.time(rows[end]);
        const std::uint8_t flags = store.tag(rows[end]).flags;
        out.first[begin] = newest.t + 1 == static_cast<std::int64_t>(length);
        out.last[end] = newest.t + 1 == store.episode(newest.episode).end;
        out.terminated[end] = (flags & kTerminated) != 0;
        out.truncated[end] = (flags & kTruncated) != 0;
        out.done[end] = (flags & kTerminated) != 0 ? 1.0F : 0.0F;
    }
}

}  // namespace ringback
