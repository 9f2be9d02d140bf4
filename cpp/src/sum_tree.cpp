#include "ringback/sum_tree.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "ringback/check.hpp"

// Comparing the eight one by one makes a find an eighth slower.
#if defined(__SSE2__) && !defined(RINGBACK_PLAIN)
#include <emmintrin.h>
#define RB_SIGNS_AT_ONCE
#endif

namespace ringback {

namespace {

constexpr std::size_t whole_nodes(std::size_t entries) {
    return (entries + SumTree::kFan - 1) / SumTree::kFan * SumTree::kFan;
}

using Extremes = SumTree::Extremes;

// In two halves that a compiler can add side by side.
double sum_of(const double* c) noexcept { return ((c[0] + c[2]) + (c[4] + c[6])) + ((c[1] + c[3]) + (c[5] + c[7])); }

Extremes extremes_at(const double* node, std::size_t i) noexcept { return {node[i], node[i]}; }
Extremes extremes_at(const Extremes* node, std::size_t i) noexcept { return node[i]; }

// Of eight leaves, or of the extremes of eight entries.
template <class Child>
Extremes extremes_of(const Child* node) noexcept {
    Extremes found = extremes_at(node, 0);
    for (std::size_t i = 1; i < SumTree::kFan; ++i) {
        found.smallest = std::min(found.smallest, extremes_at(node, i).smallest);
        found.largest = std::max(found.largest, extremes_at(node, i).largest);
    }
    if (found.smallest != 0) return found;
    found.smallest = found.largest;
    for (std::size_t i = 0; i < SumTree::kFan; ++i)
        if (const double smallest = extremes_at(node, i).smallest; smallest != 0)
            found.smallest = std::min(found.smallest, smallest);
    return found;
}

// How a mass goes on in a node of eight: which child, and what of the mass is left there.
struct Turn {
    std::uint32_t child;
    double mass;
};

bool is_zero(double value) noexcept { return std::bit_cast<std::uint64_t>(value) << 1 == 0; }

// The children are taken off the mass one by one, and the child taken is the last before which the rest is not below
// zero. If it is not the last of all, the rest falls below zero behind it, so it is not zero. The last of all may be:
// by rounding the rest may outlast the node.
Turn turn(const double* c, double mass) noexcept {
    const double rest1 = mass - c[0], rest2 = rest1 - c[1], rest3 = rest2 - c[2], rest4 = rest3 - c[3],
                 rest5 = rest4 - c[4], rest6 = rest5 - c[5], rest7 = rest6 - c[6];
#ifdef RB_SIGNS_AT_ONCE
    const __m128d pairs[] = {_mm_setr_pd(mass, rest1), _mm_setr_pd(rest2, rest3), _mm_setr_pd(rest4, rest5),
                             _mm_setr_pd(rest6, rest7)};
    alignas(16) double rest[SumTree::kFan];
    for (std::size_t i = 0; i < 4; ++i) _mm_store_pd(rest + 2 * i, pairs[i]);
    const auto signs_of = [](__m128d a, __m128d b) {  // those of four numbers
        return static_cast<std::uint32_t>(_mm_movemask_ps(_mm_shuffle_ps(_mm_castpd_ps(a), _mm_castpd_ps(b), 0xdd)));
    };
    const std::uint32_t below = signs_of(pairs[0], pairs[1]) | signs_of(pairs[2], pairs[3]) << 4;
    auto child = static_cast<std::uint32_t>(std::countr_zero(below | 1U << SumTree::kFan)) - 1;
#else
    const double rest[SumTree::kFan] = {mass, rest1, rest2, rest3, rest4, rest5, rest6, rest7};
    std::uint32_t child = 0;
    for (std::size_t i = 1; i < SumTree::kFan; ++i) child += rest[i] >= 0 ? 1 : 0;
#endif
    while (is_zero(c[child]) && child > 0) --child;
    return {child, rest[child]};
}

}  // namespace

SumTree::SumTree(std::int64_t capacity) : capacity_(capacity) {
    RB_ASSUME(capacity >= 1 && capacity <= std::int64_t{1} << 31);
    std::size_t entries = whole_nodes(static_cast<std::size_t>(capacity)), bytes = 0;
    for (;; entries = whole_nodes(entries / kFan), ++top_) {
        sizes_[top_] = entries;
        bytes += entries * (sizeof(double) + (top_ > 0 ? sizeof(Extremes) : 0));
        if (entries == kFan) break;
    }
    memory_.reserve(bytes + kLine);
    auto* at = memory_.data() + (kLine - reinterpret_cast<std::uintptr_t>(memory_.data()) % kLine) % kLine;
    for (std::size_t level = 0; level <= top_; ++level) {
        sums_[level] = reinterpret_cast<double*>(at);
        at += sizes_[level] * sizeof(double);
    }
    for (std::size_t level = 1; level <= top_; ++level) {
        extremes_at_[level] = reinterpret_cast<Extremes*>(at);
        at += sizes_[level] * sizeof(Extremes);
    }
}

// ---- set ----

void SumTree::set(std::span<const std::uint32_t> leaves, std::span<const double> values) {
    RB_ASSUME(leaves.size() == values.size());
    RB_ASSUME(std::all_of(leaves.begin(), leaves.end(), [&](std::int64_t leaf) { return leaf < capacity_; }));
    RB_ASSUME(std::all_of(values.begin(), values.end(), [](double value) { return value >= 0; }));
    for (std::size_t begin = 0; begin < leaves.size(); begin += kBlock) {
        const std::span block = leaves.subspan(begin, std::min(kBlock, leaves.size() - begin));
        for (const std::uint32_t leaf : block) prefetch_to_write(sums_[0] + leaf);
        for (std::size_t i = 0; i < block.size(); ++i) put(block[i], values[begin + i]);
        update(block);
    }
}

void SumTree::update(std::span<const std::uint32_t> leaves) {
    for (std::size_t i = 0; i < leaves.size(); i += kBlock)
        update_block(leaves.subspan(i, std::min(kBlock, leaves.size() - i)));
    RB_ASSUME(total_ <= std::numeric_limits<double>::max());
}

void SumTree::update_block(std::span<const std::uint32_t> leaves) noexcept {
    Entries entries, changed;
    for (const std::uint32_t leaf : leaves) {
        const std::uint32_t entry = leaf / kFan;
        entries.index[entries.count++] = entry;
        changed.index[changed.count++] = entry;
        if (top_ == 0) continue;
        prefetch_to_write(sums_[1] + entry);
        prefetch_to_write(extremes_at_[1] + entry);
    }
    for (std::size_t level = 1; level <= top_; ++level) {
        const std::size_t nodes = sizes_[level - 1] / kFan;
        entries.climb(nodes, [&](std::size_t entry) {
            sums_[level][entry] = sum_of(sums_[level - 1] + entry * kFan);
            return true;
        });
        // Few extremes change, and only those go up.
        changed.climb(nodes, [&](std::size_t entry) {
            const Extremes found =
                level == 1 ? extremes_of(sums_[0] + entry * kFan) : extremes_of(extremes_at_[level - 1] + entry * kFan);
            Extremes& kept = extremes_at_[level][entry];
            const bool differs = (kept.smallest != found.smallest) | (kept.largest != found.largest);  // no branch
            kept = found;
            return differs;
        });
    }
    total_ = sum_of(sums_[top_]);
    extremes_ = top_ == 0 ? extremes_of(sums_[0]) : extremes_of(extremes_at_[top_]);
}

// ---- find ----

void SumTree::find(std::span<const double> masses, std::span<std::uint32_t> leaves) const {
    RB_ASSUME(masses.size() == leaves.size() && total_ > 0);
    RB_ASSUME(std::all_of(masses.begin(), masses.end(), [](double mass) { return mass >= 0; }));
    for (std::size_t i = 0; i < masses.size(); i += kBlock) {
        const std::size_t count = std::min(kBlock, masses.size() - i);
        find_block(masses.subspan(i, count), leaves.subspan(i, count));
    }
}

void SumTree::find_block(std::span<const double> masses, std::span<std::uint32_t> leaves) const noexcept {
    std::array<double, kBlock> left;
    std::copy(masses.begin(), masses.end(), left.begin());
    std::fill(leaves.begin(), leaves.end(), 0U);
    for (std::size_t level = top_ + 1; level-- > 0;) {
        const double* const sums = sums_[level];
        const double* const below = sums_[level > 0 ? level - 1 : 0];
        for (std::size_t i = 0; i < leaves.size(); ++i) {
            const std::size_t node = std::size_t{leaves[i]} * kFan;
            const Turn next = turn(sums + node, left[i]);
            left[i] = next.mass;
            leaves[i] = static_cast<std::uint32_t>(node + next.child);
            if (level > 0) prefetch(below + (node + next.child) * kFan);
        }
    }
}

}  // namespace ringback
