#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ringback/count_tree.hpp"
#include "ringback/rng.hpp"

using namespace ringback;

namespace {

// The slow twin: walks the leaves.
std::pair<std::size_t, std::int64_t> find(const std::vector<std::int64_t>& leaves, std::int64_t rank) {
    for (std::size_t leaf = 0;; ++leaf) {
        if (rank < leaves[leaf]) return {leaf, rank};
        rank -= leaves[leaf];
    }
}

// The first bad rank, or -1.
std::int64_t first_difference(const CountTree& tree, const std::vector<std::int64_t>& leaves) {
    const std::int64_t total = std::accumulate(leaves.begin(), leaves.end(), std::int64_t{0});
    if (tree.total() != total) return total;
    for (std::int64_t rank = 0; rank < total; ++rank)
        if (tree.find(rank) != find(leaves, rank)) return rank;
    return -1;
}

}  // namespace

TEST_CASE("a new tree is empty and has room for a few leaves") {
    const CountTree tree;
    CHECK(tree.total() == 0);
    CHECK(tree.size() == CountTree::kFan);
    for (std::size_t leaf = 0; leaf < tree.size(); ++leaf) CHECK(tree.get(leaf) == 0);
}

TEST_CASE("every rank is found in every size of tree, with zero leaves here and there") {
    Rng rng(std::uint64_t{1});
    for (std::size_t size = 1; size <= 600; size += size < 140 ? 1 : 23) {
        CountTree tree;
        tree.grow(size);
        REQUIRE(tree.size() >= size);
        std::vector<std::int64_t> leaves(size);
        for (std::size_t leaf = 0; leaf < size; ++leaf) {
            leaves[leaf] = rng.below(3) == 0 ? 0 : static_cast<std::int64_t>(rng.below(4));
            tree.set(leaf, leaves[leaf]);
        }
        REQUIRE(first_difference(tree, leaves) == -1);
    }
}

TEST_CASE("random sets and growths leave what a plain vector holds") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        Rng rng(seed);
        CountTree tree;
        std::vector<std::int64_t> leaves(1);
        for (int step = 0; step < 120; ++step) {
            if (rng.below(10) == 0) {
                leaves.resize(leaves.size() + rng.below(2 * leaves.size()));
                if (leaves.size() > 5000) leaves.resize(5000);
                tree.grow(leaves.size());
            }
            const std::size_t leaf = rng.below(leaves.size());
            leaves[leaf] = static_cast<std::int64_t>(rng.below(4));
            tree.set(leaf, leaves[leaf]);
            REQUIRE(tree.get(leaf) == leaves[leaf]);
            if (step % 8 == 0) REQUIRE(first_difference(tree, leaves) == -1);
        }
        REQUIRE(first_difference(tree, leaves) == -1);
    }
}

TEST_CASE("growing to a smaller size changes nothing") {
    CountTree tree;
    tree.grow(100);
    tree.set(99, 5);
    const std::size_t size = tree.size();
    tree.grow(3);
    CHECK(tree.size() == size);
    CHECK(tree.find(4) == std::pair<std::size_t, std::int64_t>{99, 4});
}

TEST_CASE("counts beyond 32 bits are summed exactly") {
    CountTree tree;
    tree.grow(70);
    tree.set(0, std::int64_t{1} << 40);
    tree.set(69, (std::int64_t{1} << 40) + 1);
    CHECK(tree.total() == (std::int64_t{1} << 41) + 1);
    CHECK(tree.find((std::int64_t{1} << 40) - 1).first == 0);
    CHECK(tree.find(std::int64_t{1} << 40) == std::pair<std::size_t, std::int64_t>{69, 0});
    CHECK(tree.find(std::int64_t{1} << 41) == std::pair<std::size_t, std::int64_t>{69, std::int64_t{1} << 40});
}
