#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "programs.hpp"
#include "ringback/window_rows.hpp"
#include "steps.hpp"

using namespace ringback;
using namespace ringback::twin;

namespace {

std::int64_t number_in(const StepStore& store, std::uint32_t row) { return row == kNoRow ? -1 : store.number(row); }

// The twin: row by row. Output row k of window w is named from its window's k-th row, or from nothing.
std::string wrong_layout(const StepStore& store, const std::vector<NaiveLine>& lines,
                         const std::vector<NaiveStart>& starts, const WindowLayout& layout, WindowRows& got) {
    lay_out(store, starts_of(store, lines, starts), layout, got);
    const auto width = static_cast<std::size_t>(layout.burn_in + layout.spec.length);
    if (got.windows != starts.size() || got.width != width) return "another shape";
    if (got.rows.size() != starts.size() * width) return "another number of rows";
    if (got.arrived.size() != (layout.spec.arrival ? got.rows.size() : 0)) return "another number of arrivals";
    std::size_t piece = 0;
    std::int64_t steps = 0;
    for (std::size_t w = 0; w < starts.size(); ++w) {
        const NaiveWindow want =
            NaiveStore::window(lines[starts[w].line], starts[w].row, layout.spec.length, layout.burn_in);
        const std::string where = "window " + std::to_string(w) + ": ";
        if (got.burn_in_lengths[w] != static_cast<std::int64_t>(want.burn_in)) return where + "burn-in";
        if (got.lengths[w] != static_cast<std::int64_t>(want.rows.size() - want.burn_in)) return where + "length";
        steps += static_cast<std::int64_t>(want.rows.size());
        for (std::size_t k = 0; k < width; ++k) {
            const std::size_t at = layout.time_major ? k * starts.size() + w : w * width + k;
            if (at != got.first_of(w) + k * got.stride) return where + "it lies elsewhere";
            const StartName name = k < want.rows.size() ? name_of(want.rows[k]) : StartName{-1, -1};
            if (number_in(store, got.rows[at]) != name.first) return where + "row " + std::to_string(k);
            if (layout.spec.arrival && number_in(store, got.arrived[at]) != name.second)
                return where + "arrival at row " + std::to_string(k);
            if (k >= want.rows.size()) continue;
            const bool begins = k == 0 || want.rows[k - 1].episode != want.rows[k].episode;
            if (!begins) continue;
            std::int64_t count = 1;
            while (k + static_cast<std::size_t>(count) < want.rows.size() &&
                   want.rows[k + static_cast<std::size_t>(count)].episode == want.rows[k].episode)
                ++count;
            if (piece == got.pieces.size()) return where + "a piece is missing";
            const WindowRows::Piece& has = got.pieces[piece++];
            if (has.out != at || has.t != want.rows[k].t || has.count != count ||
                has.slot != start_of(store, want.rows[k]).slot)
                return where + "a piece is wrong";
        }
    }
    if (piece != got.pieces.size()) return "a piece is left over";
    return got.steps() == steps ? "" : "another number of steps";
}

WindowLayout any_layout(Program& program) {
    WindowLayout layout{program.any_spec()};
    if (program.rng().below(2) == 0) layout.burn_in = static_cast<std::int64_t>(program.rng().below(5));
    layout.time_major = program.rng().below(2) == 0;
    return layout;
}

// How often each kind of window was compared.
struct Seen {
    int arrival = 0, pad = 0, whole = 0, cross = 0, over_ends = 0, burn_in = 0, end_rows = 0;

    void count(const WindowLayout& layout, const WindowRows& rows) {
        arrival += layout.spec.arrival ? 1 : 0;
        pad += layout.spec.pad ? 1 : 0;
        whole += layout.spec.whole ? 1 : 0;
        cross += layout.spec.cross ? 1 : 0;
        over_ends += rows.pieces.size() > rows.windows ? 1 : 0;
        burn_in += layout.burn_in > 0 ? 1 : 0;
        for (std::size_t i = 0; i < rows.arrived.size(); ++i)
            end_rows += rows.rows[i] == kNoRow && rows.arrived[i] != kNoRow ? 1 : 0;
    }
    int least() const { return std::min({arrival, pad, whole, cross, over_ends, burn_in, end_rows}); }
};

}  // namespace

TEST_CASE("windows of random programs are laid out row by row as the twin's") {
    WindowRows rows;  // one for all: what it held before must not show
    Seen seen;
    for (std::uint64_t seed = 0; seed < 126; ++seed) {
        CAPTURE(seed);
        Program program(small_shape(seed), seed + 2000);
        for (int round = 0; round < 6; ++round) {
            for (int call = 0; call < 25; ++call) REQUIRE(program.step() == "");
            for (int draw = 0; draw < 12; ++draw) {
                const WindowLayout layout = any_layout(program);
                program.stores()[0]->prepare_windows(layout.spec);
                const std::vector<NaiveLine> lines = program.naive().lines(layout.spec);
                const std::size_t count = program.rng().below(2) == 0 ? 1 : 1 + program.rng().below(30);
                const auto starts = program.some_starts(lines, layout.spec, count);
                CAPTURE(spelled(layout.spec));
                CAPTURE(layout.burn_in);
                CAPTURE(layout.time_major);
                REQUIRE(wrong_layout(program.store(), lines, starts, layout, rows) == "");
                if (!starts.empty()) seen.count(layout, rows);
            }
        }
    }
    CHECK(seen.least() > 100);
}

TEST_CASE("long windows run over pages of 64 rows and over many episodes") {
    WindowRows rows;
    Program program({vectors(), 4200, Mismatch::keep, 3, 30, 150}, 21);
    for (int call = 0; call < 600; ++call) REQUIRE(program.step() == "");
    REQUIRE(program.store().rows_per_page() == 64);
    for (int draw = 0; draw < 40; ++draw) {
        WindowLayout layout = any_layout(program);
        layout.spec.length = 50 + static_cast<std::int64_t>(program.rng().below(100));
        program.stores()[0]->prepare_windows(layout.spec);
        const std::vector<NaiveLine> lines = program.naive().lines(layout.spec);
        REQUIRE(wrong_layout(program.store(), lines, program.some_starts(lines, layout.spec, 5), layout, rows) == "");
    }
}

TEST_CASE("windows that cross join episodes of one side that begin at t = 0, and no others") {
    // One numbered stream, episodes of two steps: A B C. Then the same with B on another side.
    StepStore store(vectors(), 20, Mismatch::keep);
    const WindowSpec spec{3, 1, 0, false, false, false, true};
    store.prepare_windows(spec);
    const StreamKey key = std::int64_t{7};
    for (std::uint64_t n = 0; n < 6; ++n) {
        Given given = counting_step(store.schema(), n);
        given.terminated = n % 2 == 1;
        std::int64_t id = 0;
        store.write(Columns(store.schema(), {given}).rows(), {&key, 1}, {&id, 1});
    }
    CHECK(store.window_index(spec)->starts.total() == 4);
    WindowRows rows;
    const std::int64_t rank = 1;
    std::vector<WindowStart> starts(1);
    store.find_starts(*store.window_index(spec), {&rank, 1}, starts);
    lay_out(store, starts, {spec, 1}, rows);
    REQUIRE(rows.pieces.size() == 2);
    CHECK(rows.pieces[1].out == 2);
    CHECK(rows.burn_in_lengths[0] == 1);
    std::uint64_t seed = 0;
    const auto parted = [&] {
        const Split split{2, seed};
        return split.side_of(0) != split.side_of(1);  // two of a group never lie on one side
    };
    REQUIRE(parted());
    while (Split{2, seed}.side_of(1) == Split{2, seed}.side_of(2)) ++seed;
    store.split({2, seed});
    CHECK(store.window_index(spec) == nullptr);
    store.prepare_windows(spec);
    CHECK(store.window_index(spec)->starts.total() == 0);
}

TEST_CASE("no windows at all are laid out as none") {
    const StepStore store(vectors(), 4, Mismatch::keep);
    WindowRows rows;
    for (const bool time_major : {false, true}) {
        lay_out(store, {}, {{3, 1, 0, true, true}, 2, time_major}, rows);
        CHECK(rows.rows.empty());
        CHECK(rows.arrived.empty());
        CHECK(rows.pieces.empty());
        CHECK(rows.lengths.empty());
        CHECK(rows.steps() == 0);
    }
}
