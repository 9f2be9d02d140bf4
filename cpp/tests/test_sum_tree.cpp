#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "chance.hpp"
#include "ringback/rng.hpp"
#include "ringback/sum_tree.hpp"

using namespace ringback;
using namespace ringback::twin;

namespace {

constexpr double kTiny = std::numeric_limits<double>::denorm_min(), kHuge = 1e298;

// The slow twin: leaves in a list, and walks along it.
struct NaiveTree {
    std::vector<double> leaves;

    long double total() const {
        long double sum = 0;
        for (const double leaf : leaves) sum += leaf;
        return sum;
    }
    double smallest() const {
        double smallest = 0;
        for (const double leaf : leaves)
            if (leaf != 0 && (smallest == 0 || leaf < smallest)) smallest = leaf;
        return smallest;
    }
    double largest() const { return *std::max_element(leaves.begin(), leaves.end()); }

    // How far outside the leaf the mass lies, as a share of the total. Rounding explains a little.
    long double distance(std::uint32_t leaf, double mass) const {
        long double before = 0;
        for (std::uint32_t i = 0; i < leaf; ++i) before += leaves[i];
        const long double below = before - mass, above = mass - (before + leaves[leaf]);
        return std::max({below, above, 0.0L}) / total();
    }
};

// "" or the first thing in which the tree is not its twin.
std::string difference(const SumTree& tree, const NaiveTree& naive, const std::vector<double>& masses) {
    for (std::uint32_t i = 0; i < naive.leaves.size(); ++i)
        if (tree.get(i) != naive.leaves[i]) return "leaf " + std::to_string(i);
    const long double total = naive.total();
    if (std::abs(tree.total() - total) > 1e-15L * total) return "the total";
    if (tree.extremes().smallest != naive.smallest()) return "the smallest leaf";
    if (tree.extremes().largest != naive.largest()) return "the largest leaf";
    if (tree.total() == 0) return total == 0 ? "" : "a total of zero";
    std::vector<std::uint32_t> found(masses.size());
    tree.find(masses, found);
    for (std::size_t i = 0; i < masses.size(); ++i) {
        if (found[i] >= naive.leaves.size()) return "no leaf at mass " + std::to_string(masses[i]);
        if (naive.leaves[found[i]] == 0) return "a zero leaf at mass " + std::to_string(masses[i]);
        if (naive.distance(found[i], std::min(masses[i], tree.total())) > 1e-14L)
            return "a leaf far from mass " + std::to_string(masses[i]);
        std::uint32_t alone = 0;
        tree.find({&masses[i], 1}, {&alone, 1});
        if (alone != found[i]) return "another leaf when asked alone for mass " + std::to_string(masses[i]);
    }
    return "";
}

double unit(Rng& rng) { return static_cast<double>(rng.next() >> 11) * 0x1p-53; }

// Masses between the leaves, and on their borders, where rounding decides.
std::vector<double> some_masses(Rng& rng, const SumTree& tree, std::size_t count) {
    const double total = tree.total();
    std::vector<double> masses{0, total, std::nextafter(total, 0), std::nextafter(total, 2 * total), total / 2};
    while (masses.size() < count) masses.push_back(unit(rng) * total);
    double border = 0;
    for (std::uint32_t leaf = 0; leaf < tree.capacity() && masses.size() < 2 * count; ++leaf) {
        border += tree.get(leaf);
        if (rng.below(static_cast<std::uint64_t>(tree.capacity()) / count + 1) != 0) continue;
        for (const double mass : {border, std::nextafter(border, 0), std::nextafter(border, 2 * border)})
            masses.push_back(mass);
    }
    return masses;
}

// What leaves are made of: small counts (exact sums), reals, many magnitudes, the ends of the range.
enum class Kind { counts, reals, magnitudes, tiny, huge };
constexpr Kind kKinds[] = {Kind::counts, Kind::reals, Kind::magnitudes, Kind::tiny, Kind::huge};

double some_value(Rng& rng, Kind kind, std::uint64_t odds_of_zero) {
    if (rng.below(odds_of_zero) == 0) return 0;
    switch (kind) {
        case Kind::counts:
            return 1.0 + static_cast<double>(rng.below(3));
        case Kind::reals:
            return unit(rng) + 1e-9;
        case Kind::magnitudes:
            return std::ldexp(1 + unit(rng), static_cast<int>(rng.below(200)) - 100);
        case Kind::tiny:
            return kTiny * static_cast<double>(1 + rng.below(5));
        case Kind::huge:
            return kHuge * (1 + unit(rng));
    }
    return 0;
}

// Random batches of sets. "" or the first thing that went wrong.
std::string run(std::int64_t capacity, Kind kind, std::uint64_t odds_of_zero, int batches, std::uint64_t seed) {
    Rng rng(seed);
    SumTree tree(capacity), singly(capacity);
    NaiveTree naive{std::vector<double>(static_cast<std::size_t>(capacity))};
    for (int batch = 0; batch < batches; ++batch) {
        std::vector<std::uint32_t> leaves;
        std::vector<double> values;
        const std::uint64_t most = rng.below(3) == 0 ? 700 : 12;
        for (std::uint64_t n = rng.below(most); n > 0; --n) {
            const auto leaf = static_cast<std::uint32_t>(rng.below(static_cast<std::uint64_t>(capacity)));
            leaves.push_back(rng.below(4) == 0 && !leaves.empty() ? leaves[rng.below(leaves.size())] : leaf);
            values.push_back(some_value(rng, kind, odds_of_zero));
            naive.leaves[leaves.back()] = values.back();
            singly.set({&leaves.back(), 1}, {&values.back(), 1});
        }
        tree.set(leaves, values);
        if (tree.total() != singly.total() || tree.extremes().smallest != singly.extremes().smallest ||
            tree.extremes().largest != singly.extremes().largest)
            return "a batch is not its single sets";
        if (const std::string d = difference(tree, naive, some_masses(rng, tree, 24)); !d.empty()) return d;
    }
    return "";
}

}  // namespace

TEST_CASE("a new tree is all zero") {
    const SumTree tree(100);
    CHECK(tree.capacity() == 100);
    CHECK(tree.total() == 0);
    CHECK(tree.extremes().smallest == 0);
    CHECK(tree.extremes().largest == 0);
    for (std::uint32_t leaf = 0; leaf < 100; ++leaf) CHECK(tree.get(leaf) == 0);
}

TEST_CASE("every capacity: random batches leave what a plain list holds, found by what lies where (S1, S2, S3)") {
    for (std::int64_t capacity = 1; capacity <= 600; ++capacity) {
        CAPTURE(capacity);
        const Kind kind = kKinds[capacity % 5];
        REQUIRE(run(capacity, kind, 2 + static_cast<std::uint64_t>(capacity / 5 % 4), 6,
                    static_cast<std::uint64_t>(capacity)) == "");
    }
}

TEST_CASE("small trees of every kind of value, longer") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        REQUIRE(run(1 + static_cast<std::int64_t>(seed * 7 % 90), kKinds[seed % 5], 1 + seed / 5 % 6, 25, seed) == "");
    }
}

TEST_CASE("a large tree, with leaves set and found far apart") {
    for (const Kind kind : kKinds) REQUIRE(run(70001, kind, 3, 3, 5) == "");
}

TEST_CASE("the largest tree there is costs only what is touched") {
#ifdef __SANITIZE_ADDRESS__
    constexpr std::uint32_t kLast = (1U << 24) - 1;  // there, all that is reserved is touched
#else
    constexpr std::uint32_t kLast = (1U << 31) - 1;
#endif
    SumTree tree(std::int64_t{kLast} + 1);
    const std::uint32_t leaves[] = {0, 7, 8, kLast / 2, kLast};
    const double values[] = {1, 2, 4, 8, 16};
    tree.set(leaves, values);
    CHECK(tree.total() == 31);
    CHECK(tree.extremes().smallest == 1);
    CHECK(tree.extremes().largest == 16);
    const double masses[] = {0, 1, 2.5, 3, 6, 7, 14, 15, 30, 1000};
    std::uint32_t found[10] = {};
    tree.find(masses, found);
    const std::uint32_t want[] = {0, 7, 7, 8, 8, kLast / 2, kLast / 2, kLast, kLast, kLast};
    for (int i = 0; i < 10; ++i) CHECK(found[i] == want[i]);
}

TEST_CASE("one leaf among zeros is found by every mass, wherever it is and however small (S3)") {
    for (const double value : {1.0, kTiny, kHuge, 0.1})
        for (std::uint32_t leaf = 0; leaf < 75; ++leaf) {
            SumTree tree(75);
            tree.set({&leaf, 1}, {&value, 1});
            const double masses[] = {0, value / 2, value, std::nextafter(value, 0), 3 * value, 1e300};
            std::uint32_t found[6] = {};
            tree.find(masses, found);
            for (const std::uint32_t one : found) REQUIRE(one == leaf);
        }
}

TEST_CASE("zero leaves behind the last are never reached by a mass that rounding leaves over (S3)") {
    // 0.1 is not a sum of powers of two: what is left of a mass after a few subtractions is off by a little.
    Rng rng(std::uint64_t{7});
    for (int round = 0; round < 3000; ++round) {
        const std::uint32_t capacity = 2 + static_cast<std::uint32_t>(rng.below(200));
        SumTree tree(capacity);
        std::vector<std::uint32_t> leaves;
        std::vector<double> values;
        for (std::uint32_t leaf = 0; leaf < capacity; ++leaf)
            if (rng.below(3) == 0) {
                leaves.push_back(leaf);
                values.push_back(0.1 * static_cast<double>(1 + rng.below(9)));
            }
        if (leaves.empty()) continue;
        tree.set(leaves, values);
        std::vector<double> masses;
        double border = 0;
        for (const double value : values) {
            border += value;
            for (double mass : {border, std::nextafter(border, 0), std::nextafter(border, 1e9)}) masses.push_back(mass);
        }
        std::vector<std::uint32_t> found(masses.size());
        tree.find(masses, found);
        for (const std::uint32_t leaf : found) REQUIRE(tree.get(leaf) > 0);
    }
}

TEST_CASE("sums do not remember what was there before (S1)") {
    SumTree fresh(1000), used(1000);
    Rng rng(std::uint64_t{3});
    std::vector<std::uint32_t> leaves(1000);
    std::vector<double> values(1000);
    for (std::uint32_t i = 0; i < 1000; ++i) leaves[i] = i;
    for (int round = 0; round < 50; ++round) {
        for (double& value : values) value = some_value(rng, Kind::magnitudes, 4);
        used.set(leaves, values);
    }
    fresh.set(leaves, values);
    CHECK(used.total() == fresh.total());
    const std::vector<double> masses = some_masses(rng, fresh, 500);
    std::vector<std::uint32_t> a(masses.size()), b(masses.size());
    fresh.find(masses, a);
    used.find(masses, b);
    CHECK(a == b);
    for (double& value : values) value = 0;
    used.set(leaves, values);
    CHECK(used.total() == 0);
    CHECK(used.extremes().largest == 0);
}

TEST_CASE("the last of equal leaves in a batch wins, also across a long batch") {
    for (const std::size_t between : {0, 1, 254, 255, 256, 600}) {
        SumTree tree(2000);
        std::vector<std::uint32_t> leaves{1234};
        std::vector<double> values{5};
        for (std::size_t i = 0; i < between; ++i) {
            leaves.push_back(static_cast<std::uint32_t>(i));
            values.push_back(1);
        }
        leaves.push_back(1234);
        values.push_back(0.5);
        tree.set(leaves, values);
        CHECK(tree.get(1234) == 0.5);
        CHECK(tree.total() == 0.5 + static_cast<double>(between));
        CHECK(tree.extremes().smallest == 0.5);
        CHECK(tree.extremes().largest == (between > 0 ? 1 : 0.5));
    }
}

TEST_CASE("uniform masses fall on leaves in proportion to what these hold") {
    Rng rng(std::uint64_t{11});
    constexpr std::uint32_t kLeaves = 150;
    SumTree tree(kLeaves);
    for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf) {
        const double value = leaf % 3 == 0 ? 0 : 1 + leaf % 5;
        tree.set({&leaf, 1}, {&value, 1});
    }
    std::vector<std::int64_t> counts(kLeaves);
    std::vector<double> masses(100000);
    std::vector<std::uint32_t> found(masses.size());
    for (double& mass : masses) mass = unit(rng) * tree.total();
    tree.find(masses, found);
    for (const std::uint32_t leaf : found) ++counts[leaf];
    double statistic = 0, degrees = -1;
    for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf) {
        const double expected = static_cast<double>(masses.size()) * tree.get(leaf) / tree.total();
        if (expected == 0) {
            CHECK(counts[leaf] == 0);
            continue;
        }
        statistic += std::pow(static_cast<double>(counts[leaf]) - expected, 2) / expected;
        ++degrees;
    }
    CHECK(statistic < chi_squared_bound(degrees));
}
