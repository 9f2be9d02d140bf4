#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ringback/rng.hpp"
#include "ringback/runs.hpp"

using namespace ringback;

namespace {

// The slow twin: of each run its episodes with their steps, the dropped ones too.
struct NaiveMember {
    std::uint32_t slot;
    std::int64_t steps;
    bool gone;
};
struct NaiveRun {
    std::vector<NaiveMember> members;

    // Rows before the member's t = 0.
    std::int64_t before(std::size_t m, bool arrival) const {
        std::int64_t sum = 0;
        for (std::size_t k = 0; k < m; ++k) sum += members[k].steps + (arrival ? 1 : 0);
        return sum;
    }
};

// "" or what differs, for every member and every position from the oldest live member on.
std::string difference(const Runs& runs, const NaiveRun& want) {
    std::vector<std::size_t> live;
    for (std::size_t m = 0; m < want.members.size(); ++m)
        if (!want.members[m].gone) live.push_back(m);
    const Runs::Run& run = runs.run_of(want.members[live[0]].slot);
    if (run.members.size() - run.head != live.size()) return "another number of members";
    if (run.oldest().slot != want.members[live.front()].slot) return "another oldest";
    if (run.newest().slot != want.members[live.back()].slot) return "another newest";
    for (const bool arrival : {false, true})
        for (std::size_t k = 0; k < live.size(); ++k) {
            const NaiveMember& member = want.members[live[k]];
            if (&runs.run_of(member.slot) != &run) return "a member is of another run";
            if (run.members[run.head + k].slot != member.slot) return "members are out of order";
            for (std::int64_t t = 0; t < member.steps + (arrival ? 1 : 0); ++t) {
                const std::int64_t position = want.before(live[k], arrival) + t;
                if (run.members[run.head + k].position(t, arrival) != position) return "another position";
                if (Runs::find(run, position, arrival) != run.head + k) return "a position is found elsewhere";
            }
        }
    return "";
}

}  // namespace

TEST_CASE("runs of random streams hold the twin's episodes at the twin's positions") {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        CAPTURE(seed);
        Rng rng(seed);
        Runs runs;
        std::vector<NaiveRun> naive;
        std::map<std::int64_t, std::size_t> latest;            // stream → its newest run, if an episode of it lives
        std::deque<std::pair<std::size_t, std::size_t>> ages;  // (run, member), oldest first
        std::vector<std::uint32_t> free_slots;
        std::uint32_t slots = 0;
        for (int call = 0; call < 600; ++call) {
            CAPTURE(call);
            // Stretches that grow and stretches that shrink, so that long runs lose many heads.
            const bool grows = call % 200 < 120;
            if (ages.empty() || rng.below(10) < (grows ? 8U : 3U)) {
                std::uint32_t slot = slots;
                if (free_slots.empty()) {
                    ++slots;
                } else {
                    slot = free_slots.back();
                    free_slots.pop_back();
                }
                const auto stream = static_cast<std::int64_t>(rng.below(2 + seed % 3));
                const auto steps = static_cast<std::int64_t>(1 + rng.below(4));
                const bool numbered = rng.below(20) != 0;
                const Runs::Member* const newest = runs.newest_of(stream);
                REQUIRE((newest != nullptr) == (latest.count(stream) != 0));
                if (numbered && newest != nullptr && rng.below(30) != 0) {
                    NaiveRun& run = naive[latest[stream]];
                    REQUIRE(newest->slot == run.members.back().slot);
                    runs.join(slot, stream, run.members.back().steps);
                    run.members.push_back({slot, steps, false});
                    ages.emplace_back(latest[stream], run.members.size() - 1);
                } else {
                    runs.begin(slot, numbered, stream);
                    naive.push_back({{{slot, steps, false}}});
                    if (numbered) latest[stream] = naive.size() - 1;
                    ages.emplace_back(naive.size() - 1, 0);
                }
            } else {
                const auto [run, m] = ages.front();
                ages.pop_front();
                NaiveMember& gone = naive[run].members[m];
                gone.gone = true;
                runs.drop(gone.slot);
                free_slots.push_back(gone.slot);
                if (m + 1 == naive[run].members.size())
                    for (auto entry = latest.begin(); entry != latest.end(); ++entry)
                        if (entry->second == run) {
                            latest.erase(entry);
                            break;
                        }
            }
            if (call % 7 != 0) continue;
            for (const auto& [run, m] : ages)
                if (m == 0 || naive[run].members[m - 1].gone) REQUIRE(difference(runs, naive[run]) == "");
        }
    }
}

TEST_CASE("a run that began while the stream had another leaves the older one's episodes alone") {
    Runs runs;
    runs.begin(0, true, 5);
    runs.begin(1, true, 5);
    CHECK(runs.newest_of(5)->slot == 1);
    runs.drop(0);
    CHECK(runs.newest_of(5)->slot == 1);
    runs.drop(1);
    CHECK(runs.newest_of(5) == nullptr);
}

TEST_CASE("a stream without a number is never joined, whatever its number would be") {
    Runs runs;
    runs.begin(0, true, 0);
    runs.begin(1, false, 0);
    CHECK(runs.newest_of(0)->slot == 0);
    runs.drop(1);
    CHECK(runs.newest_of(0)->slot == 0);
}

TEST_CASE("a cleared one has no runs and is not tracked") {
    Runs runs;
    CHECK_FALSE(runs.tracked());
    runs.track();
    runs.begin(0, true, 1);
    CHECK(runs.tracked());
    runs.clear();
    CHECK_FALSE(runs.tracked());
    CHECK(runs.newest_of(1) == nullptr);
}
