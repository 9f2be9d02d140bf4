#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "chance.hpp"
#include "ringback/rng.hpp"

using namespace ringback;

TEST_CASE("the stream is the published one of xoshiro256++ from the state 1, 2, 3, 4") {
    Rng rng(Rng::State{1, 2, 3, 4});
    const std::uint64_t published[] = {41943041ULL,
                                       58720359ULL,
                                       3588806011781223ULL,
                                       3591011842654386ULL,
                                       9228616714210784205ULL,
                                       9973669472204895162ULL,
                                       14011001112246962877ULL,
                                       12406186145184390807ULL,
                                       15849039046786891736ULL,
                                       10450023813501588000ULL};
    for (const std::uint64_t value : published) CHECK(rng.next() == value);
}

TEST_CASE("a single number is expanded by the published SplitMix64") {
    const Rng rng(std::uint64_t{1234567});
    CHECK(rng.state() ==
          Rng::State{6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL, 4593380528125082431ULL});
}

TEST_CASE("the state is copied out and in, and the stream goes on from there") {
    Rng rng(std::uint64_t{7});
    for (int i = 0; i < 100; ++i) rng.next();
    Rng copy(rng.state());
    for (int i = 0; i < 100; ++i) REQUIRE(copy.next() == rng.next());
}

TEST_CASE("the all-zero state, which the generator could never leave, stands for seed 0") {
    CHECK(Rng(Rng::State{0, 0, 0, 0}).state() == Rng(std::uint64_t{0}).state());
}

TEST_CASE("bounded draws stay below every bound") {
    Rng rng(std::uint64_t{1});
    for (const std::uint64_t bound : {1ULL, 2ULL, 3ULL, 7ULL, 1000003ULL, 1ULL << 32, (1ULL << 63) + 1, ~0ULL})
        for (int i = 0; i < 1000; ++i) REQUIRE(rng.below(bound) < bound);
}

TEST_CASE("bounded draws reach every value equally often") {
    Rng rng(std::uint64_t{2});
    for (const std::uint64_t bound : {2ULL, 3ULL, 10ULL, 97ULL, 1000ULL}) {
        std::vector<std::int64_t> counts(bound);
        for (int i = 0; i < 200000; ++i) ++counts[rng.below(bound)];
        CHECK(twin::looks_uniform(counts));
    }
}

TEST_CASE("bounded draws have no bias where plain multiplication would favour every third value by half") {
    // Of 3 * 2^62 values 2^64 words reach one third twice without rejection: x mod 3 would be uneven by far.
    constexpr std::uint64_t kBound = 3ULL << 62;
    Rng rng(std::uint64_t{3});
    std::vector<std::int64_t> residues(3), thirds(3);
    for (int i = 0; i < 300000; ++i) {
        const std::uint64_t value = rng.below(kBound);
        ++residues[value % 3];
        ++thirds[value >> 62];
    }
    CHECK(twin::looks_uniform(residues));
    CHECK(twin::looks_uniform(thirds));
}
