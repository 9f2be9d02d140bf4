#include "ringback/gather.hpp"

#include <algorithm>
#include <cstring>

#include "ringback/prefetch.hpp"

namespace ringback {

namespace {

constexpr std::size_t kBlock = 16;
constexpr std::size_t kLargestBlockCopy = 512;

// How many of `count` rows may be copied in whole blocks: a block copy overruns into the rows behind, which are written
// later; it must not overrun the output.
std::size_t rows_in_blocks(std::size_t count, std::size_t bytes) noexcept {
    const std::size_t total = count * bytes, copied = (bytes + kBlock - 1) / kBlock * kBlock;
    return bytes > kLargestBlockCopy || copied > total ? 0 : (total - copied) / bytes + 1;
}

inline void copy_blocks(std::byte* target, const std::byte* source, std::size_t blocks) noexcept {
    for (std::size_t b = 0; b < blocks; ++b) std::memcpy(target + b * kBlock, source + b * kBlock, kBlock);
}

// How many rows ahead of the copying memory is asked for.
std::size_t rows_ahead(const Schema& schema, std::size_t small) { return schema.columns().empty() ? small : 2; }

// Whether the next row of the lane lies right behind this one, in the same page.
bool next_is_adjacent(const StepStore& store, std::uint32_t row) noexcept {
    return ((row + 1) & static_cast<std::uint32_t>(store.rows_per_page() - 1)) != 0;
}

std::uint32_t next_row(const StepStore& store, std::uint32_t row, std::uint32_t slot, std::int64_t t) noexcept {
    return next_is_adjacent(store, row) ? row + 1 : store.row_of(store.episode(slot), t + 1);
}

float reward_at(const StepStore& store, std::uint32_t row) noexcept {
    float reward;
    std::memcpy(&reward, store.field(row, store.schema().reward_index()), sizeof reward);
    return reward;
}

}  // namespace

void window_rows(const StepStore& store, const Episode& episode, std::int64_t t, std::span<std::uint32_t> rows) noexcept {
    const auto page_rows = static_cast<std::uint32_t>(store.rows_per_page());
    for (std::size_t i = 0; i < rows.size();) {
        std::uint32_t row = store.row_of(episode, t + static_cast<std::int64_t>(i));
        const std::size_t left = page_rows - (row & (page_rows - 1));
        for (const std::size_t stop = std::min(rows.size(), i + left); i < stop; ++i) rows[i] = row++;
    }
}

void Gather::plan(const Schema& schema, std::span<const FieldOut> fields, std::size_t count, Plan& plan) {
    plan.small.clear();
    plan.columns.clear();
    for (const FieldOut& out : fields) {
        const Place& place = schema.place(out.field);
        if (place.in_column())
            plan.columns.push_back({place.column, place.bytes, out.data});
        else
            plan.small.push_back({place.offset, place.bytes, (place.bytes + kBlock - 1) / kBlock,
                                  rows_in_blocks(count, place.bytes), out.data});
    }
}

void Gather::copy_small(const Plan& plan, const std::byte* record, std::size_t i) noexcept {
    for (const SmallCopy& copy : plan.small) {
        if (i < copy.block_rows)
            copy_blocks(copy.data + i * copy.bytes, record + copy.offset, copy.blocks);
        else
            std::memcpy(copy.data + i * copy.bytes, record + copy.offset, copy.bytes);
    }
}

void Gather::copy_row(const StepStore& store, std::uint32_t row, std::size_t i) const noexcept {
    copy_small(own_, store.record(row), i);
    for (const ColumnCopy& copy : own_.columns)
        std::memcpy(copy.data + i * copy.bytes, store.column(copy.column, row), copy.bytes);
}

void Gather::copy_successor(const StepStore& store, std::size_t i) const noexcept {
    const Successor& from = successors_[i];
    copy_small(next_, from.record, i);
    for (const ColumnCopy& copy : next_.columns)
        std::memcpy(copy.data + i * copy.bytes,
                    from.in_pool ? store.entry_column(copy.column, from.index) : store.column(copy.column, from.index), copy.bytes);
}

void Gather::transitions(const StepStore& store, std::span<const std::uint32_t> rows, NStep n_step, const TransitionOut& out) {
    const Schema& schema = store.schema();
    const std::size_t count = rows.size();
    const std::size_t ahead = rows_ahead(schema, 32), halfway = ahead / 2;
    n_step.n = std::min(n_step.n, store.capacity());
    const std::size_t span = schema.record_bytes() * static_cast<std::size_t>(std::min<std::int64_t>(n_step.n, 16)) +
                             schema.observation_bytes();
    plan(schema, out.fields, count, own_);
    plan(schema, out.next_observation, count, next_);
    successors_.resize(count);
    reduced_.resize(count);

    const auto fetch = [&](std::size_t i) {
        prefetch_span(store.record(rows[i]), span, 16);
        for (std::size_t c = 0; c < schema.columns().size(); ++c) prefetch_span(store.column(static_cast<std::int32_t>(c), rows[i]), 512);
    };
    const auto resolve = [&](std::size_t i) {
        std::uint32_t row = rows[i];
        StepHeader step = store.header(row);
        Reduced sum{row, 1, reward_at(store, row), n_step.gamma};
        if (n_step.n > 1) {
            sum.steps = resolve_window(store.episode(step.episode).extent(), step.t, step.t + n_step.n).count;
            for (std::int64_t k = 1; k < sum.steps; ++k) {
                row = next_row(store, row, step.episode, step.t + k - 1);
                sum.reward += sum.discount * static_cast<double>(reward_at(store, row));
                sum.discount *= n_step.gamma;
            }
            sum.last_row = row;
            step = store.header(row);
        }
        reduced_[i] = sum;
        if (step.link != 0) {
            successors_[i] = {store.entry_record(step.link - 1), step.link - 1, true};
            prefetch_span(successors_[i].record, schema.observation_bytes());
        } else {
            const std::uint32_t next = next_row(store, row, step.episode, step.t);
            successors_[i] = {store.record(next), next, false};
            if (!next_is_adjacent(store, row)) prefetch_span(successors_[i].record, schema.observation_bytes());
        }
    };

    for (std::size_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
    for (std::size_t i = 0; i < std::min(halfway, count); ++i) resolve(i);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + ahead < count) fetch(i + ahead);
        if (i + halfway < count) resolve(i + halfway);
        copy_row(store, rows[i], i);
        copy_successor(store, i);
        const Reduced& sum = reduced_[i];
        const std::uint8_t flags = store.flags(sum.last_row);
        const bool terminated = (flags & kTerminated) != 0;
        out.reward[i] = static_cast<float>(sum.reward);
        out.done[i] = terminated ? 1.0F : 0.0F;
        out.terminated[i] = terminated;
        out.truncated[i] = (flags & kTruncated) != 0;
        if (out.discount != nullptr) out.discount[i] = terminated ? 0.0F : static_cast<float>(sum.discount);
        if (out.steps != nullptr) out.steps[i] = sum.steps;
        out.ids[i] = store.header(rows[i]).number;
    }
}

void Gather::sequences(const StepStore& store, std::span<const std::uint32_t> rows, std::size_t length, const SequenceOut& out) {
    const Schema& schema = store.schema();
    const std::size_t count = rows.size();
    const std::size_t ahead = rows_ahead(schema, 48);
    plan(schema, out.fields, count, own_);

    const auto fetch = [&](std::size_t i) {
        prefetch_span(store.record(rows[i]), schema.record_bytes(), 16);
        for (std::size_t c = 0; c < schema.columns().size(); ++c) prefetch_span(store.column(static_cast<std::int32_t>(c), rows[i]), 512);
    };
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + ahead < count) fetch(i + ahead);
        copy_row(store, rows[i], i);
        out.reward[i] = reward_at(store, rows[i]);
        out.ids[i] = store.header(rows[i]).number;
    }

    // A window lies inside one episode: only its first row can begin it, only its last row can end it.
    std::memset(out.done, 0, count * sizeof(float));
    for (std::uint8_t* flags : {out.terminated, out.truncated, out.first, out.last}) std::memset(flags, 0, count);
    for (std::size_t begin = 0; begin < count; begin += length) {
        const std::size_t end = begin + length - 1;
        const StepHeader newest = store.header(rows[end]);
        const std::uint8_t flags = store.flags(rows[end]);
        out.first[begin] = store.header(rows[begin]).t == 0;
        out.last[end] = newest.t + 1 == store.episode(newest.episode).end;
        out.terminated[end] = (flags & kTerminated) != 0;
        out.truncated[end] = (flags & kTruncated) != 0;
        out.done[end] = (flags & kTerminated) != 0 ? 1.0F : 0.0F;
    }
}

}  // namespace ringback
