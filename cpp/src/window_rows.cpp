#include "ringback/window_rows.hpp"

#include <algorithm>
#include <numeric>

namespace ringback {

namespace {

// The steps t .. t + count - 1 of an episode, `stride` apart in the output.
void put_rows(const StepStore& store, const Episode& episode, std::int64_t t, std::int64_t count, std::size_t stride,
              std::uint32_t* out) noexcept {
    store.visit_runs(episode, t, count, [&](std::uint32_t row, std::size_t rows) {
        if (stride == 1)
            std::iota(out, out + rows, row);
        else
            for (std::size_t r = 0; r < rows; ++r) out[r * stride] = row++;
        out += rows * stride;
    });
}

class LayingOut {
  public:
    LayingOut(const StepStore& store, const WindowLayout& layout, WindowRows& out)
        : store_(store), layout_(layout), spec_(layout.spec), out_(out) {}

    void window(std::size_t index, const WindowStart& start) {
        next_ = out_.first_of(index);
        const Episode& episode = store_.episode(start.slot);
        Window window;
        if (spec_.cross) {
            const Runs::Run& run = store_.runs().run_of(start.slot);
            const std::int64_t position = run.members[member_of(run, start)].position(start.t, spec_.arrival);
            window = place(store_.run_rows(run, spec_), position);
            put_run(run, window.first, window.count);
            out_.burn_in_lengths[index] = position - window.first;
        } else {
            window = place(readable_rows(episode.stored(), spec_), start.t);
            put_piece(start.slot, window.first, window.count);
            out_.burn_in_lengths[index] = start.t - window.first;
        }
        out_.lengths[index] = window.count - out_.burn_in_lengths[index];
    }

  private:
    Window place(Extent rows, std::int64_t start) const noexcept {
        return window_at(rows, start, spec_.length, layout_.burn_in);
    }

    // Bases rise along a run, so that an episode is found by any of its positions.
    std::size_t member_of(const Runs::Run& run, const WindowStart& start) const noexcept {
        std::size_t low = run.head, high = run.members.size();
        const std::int64_t birth = store_.episode(start.slot).birth;
        while (high - low > 1) {
            const std::size_t middle = (low + high) / 2;
            (store_.episode(run.members[middle].slot).birth <= birth ? low : high) = middle;
        }
        return low;
    }

    void put_run(const Runs::Run& run, std::int64_t position, std::int64_t count) {
        for (std::size_t m = Runs::find(run, position, spec_.arrival); count > 0; ++m) {
            const Runs::Member& member = run.members[m];
            const std::int64_t t = position - member.position(0, spec_.arrival);
            const std::int64_t end = readable_rows(store_.episode(member.slot).stored(), spec_).end;
            const std::int64_t rows = std::min(count, end - t);
            put_piece(member.slot, t, rows);
            position += rows;
            count -= rows;
        }
    }

    void put_piece(std::uint32_t slot, std::int64_t t, std::int64_t count) {
        const Episode& episode = store_.episode(slot);
        out_.pieces.push_back({next_, t, count, slot});
        const std::int64_t steps = std::min(count, episode.end - t);  // by arrivals the last row has no step
        put_rows(store_, episode, t, steps, out_.stride, out_.rows.data() + next_);
        if (spec_.arrival) {
            const std::int64_t skipped = t == 0 ? 1 : 0;  // nothing led to the first row
            put_rows(store_, episode, t + skipped - 1, count - skipped, out_.stride,
                     out_.arrived.data() + next_ + static_cast<std::size_t>(skipped) * out_.stride);
        }
        next_ += static_cast<std::size_t>(count) * out_.stride;
    }

    const StepStore& store_;
    const WindowLayout& layout_;
    const WindowSpec& spec_;
    WindowRows& out_;
    std::size_t next_ = 0;
};

}  // namespace

void lay_out(const StepStore& store, std::span<const WindowStart> starts, const WindowLayout& layout, WindowRows& out) {
    const WindowSpec& spec = layout.spec;
    out.windows = starts.size();
    out.width = static_cast<std::size_t>(layout.burn_in + spec.length);
    out.stride = layout.time_major ? out.windows : 1;
    const std::size_t count = out.windows * out.width;
    const bool padded = spec.pad || spec.whole || layout.burn_in > 0 || spec.arrival;
    out.rows.resize(count);
    if (padded) std::fill(out.rows.begin(), out.rows.end(), kNoRow);
    out.arrived.clear();
    if (spec.arrival) out.arrived.resize(count, kNoRow);
    out.pieces.clear();
    out.lengths.resize(out.windows);
    out.burn_in_lengths.resize(out.windows);
    LayingOut laying(store, layout, out);
    for (std::size_t i = 0; i < starts.size(); ++i) laying.window(i, starts[i]);
}

void window_rows(const StepStore& store, const Episode& episode, std::int64_t t,
                 std::span<std::uint32_t> rows) noexcept {
    put_rows(store, episode, t, static_cast<std::int64_t>(rows.size()), 1, rows.data());
}

}  // namespace ringback
