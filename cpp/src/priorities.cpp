#include "ringback/priorities.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>

#include "ringback/check.hpp"

namespace ringback {

namespace {

constexpr std::size_t kBlock = 256;  // draws that are found together

bool is_start(double leaf) noexcept { return std::bit_cast<std::uint64_t>(leaf) != 0; }

std::string to_text(double value) {
    std::array<char, 32> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

bool is_amount(double value) noexcept { return value >= 0 && value <= std::numeric_limits<double>::max(); }

void require_amount(const char* name, double value, const std::string& where = "") {
    if (!is_amount(value))
        throw std::invalid_argument(std::string(name) + " must be finite and >= 0, got " + to_text(value) + where);
}

// Uniform over [0, 1).
double unit(Rng& rng) noexcept { return static_cast<double>(rng.next() >> 11) * 0x1p-53; }

}  // namespace

Priorities::Priorities(std::int64_t capacity, const PriorityOptions& options) : options_(options), tree_(capacity) {
    RB_ASSUME(!options.windows.arrival && !options.windows.whole && !options.windows.cross);
    require_amount("alpha", options.alpha);
    require_amount("eps", options.eps);
    if (options.windows.history > 0) places_.resize(static_cast<std::size_t>(capacity));
}

std::size_t Priorities::bytes() const noexcept {
    return tree_.bytes() + places_.size() * sizeof(Place) + slots_.capacity() * sizeof(std::uint32_t) +
           masses_.capacity() * sizeof(double);
}

// ---- following the store ----

bool Priorities::is_start(const Episode& episode, std::int64_t t) const noexcept {
    const WindowSpec& windows = options_.windows;
    const bool on_side = windows.side == Side::any || windows.side == episode.side;
    return on_side && window_starts(episode.stored(), windows).holds(t);
}

void Priorities::catch_up(const StepStore& store) {
    RB_ASSUME(store.capacity() == tree_.capacity());
    for (; seen_ < store.written(); ++seen_) {
        if (seen_ >= tree_.capacity()) {
            take(next_slot_);
            if (!places_.empty()) leave_without_history(store, places_[next_slot_]);
        }
        if (store.is_live(seen_)) arrive(store, seen_, next_slot_);
        if (++next_slot_ == tree_.capacity()) next_slot_ = 0;
    }
    flush();
}

// The row of this step makes one start valid: that of the first window which ends with it, or itself.
void Priorities::arrive(const StepStore& store, std::int64_t number, std::uint32_t slot) {
    const StepTime step = store.time(store.row_at_offset(number - store.oldest()));
    const Episode& episode = store.episode(step.episode);
    if (!places_.empty()) places_[slot] = {step.episode, static_cast<std::uint32_t>(step.t)};
    const std::int64_t before = options_.windows.pad ? 0 : options_.windows.length - 1;
    if (!is_start(episode, step.t - before)) return;
    if (before > 0) slot = ring(store).slot(store.number_of(episode, step.t - before));
    give(slot);
}

// The starts that needed a step which is gone: the one `history` steps later, and the ones before it if that was t = 0.
void Priorities::leave_without_history(const StepStore& store, Place gone) {
    const Episode& episode = store.episode(gone.episode);
    if (!episode.in_use) return;
    // t lies before what is stored of the episode. So it does where the slot is another episode's by now, and what is
    // `history` steps later is no start of that one either.
    const auto newest_gone = static_cast<std::uint32_t>(episode.first - 1);
    const std::int64_t t = episode.first - 1 - static_cast<std::int64_t>(newest_gone - gone.t);
    const std::int64_t last = t + options_.windows.history;
    for (std::int64_t later = t == 0 ? 1 : last; later <= last; ++later) {
        if (!episode.extent().holds(later)) continue;
        RB_ASSUME(!is_start(episode, later));
        take(ring(store).slot(store.number_of(episode, later)));
    }
}

double Priorities::largest() const noexcept { return std::max(tree_.extremes().largest, given_); }

double Priorities::fresh_mass() {
    if (options_.fresh == NewPriority::max_ever) return largest_ever_ > 0 ? largest_ever_ : 1;
    if (largest_taken_) flush();
    return largest() > 0 ? largest() : 1;
}

// New starts, side by side, mostly have the same mass: then the tree need not be asked.
bool Priorities::neighbours_hold(std::uint32_t slot, double mass) const noexcept {
    const std::uint32_t first = slot / SumTree::kFan * SumTree::kFan;
    for (std::uint32_t i = first; i < first + SumTree::kFan; ++i)
        if (tree_.get(i) == mass) return true;
    return false;
}

void Priorities::give(std::uint32_t slot) {
    given_ = fresh_mass();
    tree_.put(slot, given_);
    slots_.push_back(slot);
    ++starts_;
}

void Priorities::take(std::uint32_t slot) {
    const double mass = tree_.get(slot);
    if (!ringback::is_start(mass)) return;
    tree_.put(slot, 0);
    slots_.push_back(slot);
    largest_taken_ |= mass == largest() && !neighbours_hold(slot, mass);
    --starts_;
}

void Priorities::flush() {
    tree_.update(slots_);
    slots_.clear();
    given_ = 0;
    largest_taken_ = false;
}

void Priorities::recount(const StepStore& store) {
    catch_up(store);
    for (const bool giving : {false, true}) {
        for (std::int64_t number = store.oldest(); number < store.written(); ++number) {
            const StepTime step = store.time(store.row_at_offset(number - store.oldest()));
            const std::uint32_t slot = ring(store).slot(number);
            const bool was = ringback::is_start(tree_.get(slot));
            const bool is = is_start(store.episode(step.episode), step.t);
            if (giving && is && !was) give(slot);
            if (!giving && was && !is) take(slot);
        }
        flush();
    }
}

// ---- priorities ----

double Priorities::priority_of(double abs_td) const noexcept {
    const double priority = std::pow(abs_td + options_.eps, options_.alpha);
    return priority == 0 ? -0.0 : std::clamp(priority, kLeast, kMost);
}

std::int64_t Priorities::update(const StepStore& store, std::span<const std::int64_t> numbers,
                                std::span<const double> abs_td) {
    RB_ASSUME(numbers.size() == abs_td.size() && seen_ == store.written() && slots_.empty());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (!is_amount(abs_td[i])) require_amount("abs_td", abs_td[i], " at index " + std::to_string(i));
        if (numbers[i] < 0 || numbers[i] >= seen_)
            throw std::out_of_range("ids must be of steps that were added, in [0, " + std::to_string(seen_) +
                                    "), got " + std::to_string(numbers[i]));
    }
    const Ring at = ring(store);
    slots_.reserve(numbers.size());
    masses_.reserve(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] < at.oldest) continue;
        slots_.push_back(at.slot(numbers[i]));
        masses_.push_back(abs_td[i]);
        tree_.prefetch_leaf(slots_.back());
    }
    for (double& mass : masses_) mass = priority_of(mass);  // while the leaves are on their way
    std::size_t count = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        slots_[count] = slots_[i];
        masses_[count] = masses_[i];
        count += ringback::is_start(tree_.get(slots_[i])) ? 1 : 0;
    }
    slots_.resize(count);
    masses_.resize(count);
    for (const double mass : masses_) largest_ever_ = std::max(largest_ever_, mass);
    tree_.set(slots_, masses_);
    slots_.clear();
    masses_.clear();
    return static_cast<std::int64_t>(numbers.size() - count);
}

void Priorities::read(const StepStore& store, std::span<const std::int64_t> numbers, std::span<double> masses) const {
    RB_ASSUME(numbers.size() == masses.size() && seen_ == store.written());
    const Ring at = ring(store);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (!store.is_live(numbers[i])) store.row_of_number(numbers[i]);  // throws
        masses[i] = tree_.get(at.slot(numbers[i])) + 0.0;                 // -0 becomes 0
    }
}

// ---- drawing ----

void Priorities::draw(Rng& generator, const StepStore& store, Draws draws, std::span<std::int64_t> numbers,
                      std::span<double> masses) const {
    RB_ASSUME(numbers.size() == masses.size() && seen_ == store.written());
    if (numbers.empty()) return;
    if (!(tree_.total() > 0))
        throw std::invalid_argument("batch_size must be 0 while none of the " + std::to_string(starts_) +
                                    " starts has a priority above 0, got " + std::to_string(numbers.size()));
    Rng rng = generator;
    const Ring at = ring(store);
    const double share = tree_.total() / static_cast<double>(numbers.size());
    for (std::size_t begin = 0; begin < numbers.size(); begin += kBlock) {
        const std::size_t count = std::min(kBlock, numbers.size() - begin);
        std::array<double, kBlock> wanted;
        std::array<std::uint32_t, kBlock> found;
        for (std::size_t i = 0; i < count; ++i)
            wanted[i] = draws == Draws::stratified ? (static_cast<double>(begin + i) + unit(rng)) * share
                                                   : unit(rng) * tree_.total();
        tree_.find({wanted.data(), count}, {found.data(), count});
        for (std::size_t i = 0; i < count; ++i) {
            masses[begin + i] = tree_.get(found[i]);
            numbers[begin + i] = at.number(found[i]);
            store.prefetch_row_at_offset(numbers[begin + i] - at.oldest);
        }
    }
    generator = rng;
}

// N and the total cancel out: what is left is (smallest mass / mass)^beta.
void Priorities::weights(std::span<const double> masses, double beta, Normalise normalise,
                         std::span<float> weights) const {
    RB_ASSUME(masses.size() == weights.size());
    require_amount("beta", beta);
    if (masses.empty()) return;
    const double smallest =
        normalise == Normalise::by_buffer ? tree_.extremes().smallest : *std::min_element(masses.begin(), masses.end());
    for (std::size_t i = 0; i < masses.size(); ++i) {
        const double ratio = smallest / masses[i];
        // Twice as fast in single precision, where that can hold the ratio.
        weights[i] = ratio >= std::numeric_limits<float>::min()
                         ? std::pow(static_cast<float>(ratio), static_cast<float>(beta))
                         : static_cast<float>(std::pow(ratio, beta));
    }
}

// ---- state ----

void Priorities::check_restored(double mass, bool start) const {
    const bool fits = start ? mass == 0 || (mass >= kLeast && mass <= kMost) : mass == 0;
    if (!fits)
        throw std::invalid_argument("state must be consistent, got one in which a step that is " +
                                    std::string(start ? "a" : "no") + " start has the priority " + to_text(mass));
}

void Priorities::restore(const StepStore& store, std::int64_t begin, std::span<const double> masses) {
    RB_ASSUME(store.capacity() == tree_.capacity());
    for (std::size_t i = 0; i < masses.size(); ++i) {
        const std::int64_t number = begin + static_cast<std::int64_t>(i);
        const std::uint32_t slot = ring(store).slot(number);
        const StepTime step = store.time(store.row_of_number(number));
        const bool start = is_start(store.episode(step.episode), step.t);
        check_restored(masses[i], start);
        if (!places_.empty()) places_[slot] = {step.episode, static_cast<std::uint32_t>(step.t)};
        if (!start) continue;
        tree_.put(slot, masses[i] > 0 ? masses[i] : -0.0);
        slots_.push_back(slot);
        ++starts_;
    }
    flush();
    seen_ = store.written();
    next_slot_ = static_cast<std::uint32_t>(seen_ % tree_.capacity());
}

void Priorities::restore_largest_ever(double largest) {
    check_restored(largest, true);
    largest_ever_ = largest;
}

}  // namespace ringback
