"""What the pictures show, taken back out of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from ringback import PrioritizedReplayBuffer, ReplayBuffer, plot
from ringback.errors import MissingExtraError
from tests.replay.playing import play


class Prioritised(ReplayBuffer):
    """A buffer with priorities that are known: 1 / (1 + number), and none for every seventh step."""

    def priorities(self, ids: Any) -> Any:
        ids = np.asarray(ids)
        return np.where(ids % 7 == 0, 0.0, 1.0 / (1 + ids))


def recorded(rounds: int = 5, capacity: int = 60, resolution: int = 20) -> plot.PriorityHistory:
    buffer = Prioritised(capacity, 1, 1)
    history = plot.PriorityHistory(buffer, resolution)
    for episode in range(rounds):
        play(buffer, episode, 25)
        history.record()
    return history


def test_a_record_has_the_mean_by_age_and_the_largest_by_rank() -> None:
    history = recorded()
    assert history.times.tolist() == [25, 50, 75, 100, 125]
    assert history.by_age.shape == (5, 20)
    for k, added in enumerate(history.times.astype(int).tolist()):
        live = range(max(added - 60, 0), added)
        for place, got in enumerate(history.by_age[k].tolist()):
            ages = range(3 * place, 3 * place + 3)
            values = [1 / (added - age) for age in ages if added - 1 - age in live and (added - 1 - age) % 7]
            np.testing.assert_allclose(got, np.mean(values) if values else np.nan)
        ordered = sorted((1 / (1 + number) for number in live if number % 7), reverse=True)
        ranks, largest = history.by_rank[k]
        assert ranks[0] == 1
        assert ranks[-1] == len(ordered)
        np.testing.assert_allclose(largest, [ordered[int(rank) - 1] for rank in ranks])


def test_priorities_are_drawn_by_age_over_time_and_sorted() -> None:
    history = recorded()
    figure = plot.priorities(history)
    left, right = figure.axes[:2]
    table: Any = left.collections[0].get_array()
    np.testing.assert_allclose(np.ma.filled(table, np.nan), history.by_age.T)
    assert left.get_xlabel() == "steps added"
    assert len(right.lines) == 5
    for line, (ranks, values) in zip(right.lines, history.by_rank, strict=True):
        np.testing.assert_allclose(np.asarray(line.get_xdata()), ranks)
        np.testing.assert_allclose(np.asarray(line.get_ydata()), values)
    assert (right.get_xscale(), right.get_yscale()) == ("log", "log")
    colours: list[Any] = [line.get_color() for line in right.lines]
    assert colours[0][2] > colours[0][0]  # cold at the start
    assert colours[-1][0] > colours[-1][2]  # warm at the end


def test_a_buffer_is_one_record_and_many_records_are_thinned_out() -> None:
    buffer = Prioritised(50, 1, 1)
    play(buffer, 0, 30)
    assert len(plot.priorities(buffer).axes[1].lines) == 1
    history = plot.PriorityHistory(buffer, 4, unit="updates")
    for k in range(100):
        history.record(k)
    figure = plot.priorities(history)
    assert len(figure.axes[1].lines) == 60
    assert figure.axes[0].get_xlabel() == "updates"


def test_priorities_of_a_real_buffer_are_those_that_it_draws_by() -> None:
    buffer = PrioritizedReplayBuffer(60, 1, 1, seed=0, alpha=0.5, eps=0.0)
    play(buffer, 0, 40)
    buffer.update_priorities(np.arange(40), np.arange(40) ** 2 + 1.0)
    history = plot.PriorityHistory(buffer, 60)
    history.record()
    np.testing.assert_allclose(history.by_age[0, :40], np.sqrt(np.arange(39, -1, -1) ** 2 + 1.0))
    assert np.isnan(history.by_age[0, 40:]).all()
    assert len(plot.priorities(history).axes) == 3


def test_records_are_in_order_of_time() -> None:
    history = recorded()
    message = r"^PriorityHistory.record: time must be > 125 \(the last one\), got 125$"
    with pytest.raises(ValueError, match=message):
        history.record()
    history.record(126)
    assert len(history) == 6


def test_occupancy_has_a_bar_for_each_episode_in_the_row_of_its_stream() -> None:
    buffer = ReplayBuffer(99, 1, 1)
    lengths = {0: [13, 30, 40], 1: [50, 25], 2: [9, 9, 9, 48]}
    left = {stream: list(parts) for stream, parts in lengths.items()}
    spans: dict[tuple[int, int], list[int]] = {}
    number = 0
    for t in range(60):
        for stream in lengths:
            parts = left[stream]
            parts[0] -= 1
            episode = len(lengths[stream]) - len(parts)
            buffer.add([t], [0], t, [t + 1], parts[0] == 0, stream=stream)
            spans.setdefault((stream, episode), []).append(number)
            number += 1
            if parts[0] == 0:
                parts.pop(0)
    alive = {key: [n - 180 for n in numbers if n >= 81] for key, numbers in spans.items()}
    alive = {key: numbers for key, numbers in alive.items() if numbers}
    figure = plot.occupancy(buffer)
    above, below = figure.axes
    boxes = [path.get_extents() for path in above.collections[0].get_paths()]
    assert sorted((box.x0, box.x1) for box in boxes) == sorted((n[0], n[-1] + 1) for n in alive.values())
    rows = {(box.x0, box.x1): round(box.y0 + 0.4) for box in boxes}
    streams = {key: {rows[n[0], n[-1] + 1] for (stream, _), n in alive.items() if stream == key} for key in lengths}
    assert sorted(row for rows_ in streams.values() for row in rows_) == [1, 2, 3]
    assert above.get_title() == f"{len(alive)} episodes in 99 of 99 steps"
    finished, unfinished = (sum(box.get_height() for box in container) for container in below.containers)
    still = sum(len(n) for (stream, k), n in alive.items() if left[stream] and k == len(lengths[stream]) - 1)
    assert (finished, unfinished) == (99 - still, still)


def test_occupancy_by_sides() -> None:
    buffer = ReplayBuffer(100, 1, 1)
    train, validation = buffer.split(0.25, seed=3)
    for episode in range(4):
        play(buffer, episode, 20)
    above, below = plot.occupancy(buffer, {"train": train, "validation": validation}).axes
    assert below.get_legend_handles_labels()[1] == ["train", "validation"]
    assert [sum(box.get_height() for box in container) for container in below.containers] == [60, 20]
    colours = np.asarray(above.collections[0].get_facecolor())
    held_out = [int(validation.valid_starts()[0]) // 20 == episode for episode in range(4)]
    assert len({tuple(colour) for colour in colours.tolist()}) == 2
    np.testing.assert_array_equal((colours == colours[held_out.index(True)]).all(axis=1), held_out)


def test_occupancy_of_blocks_shows_what_is_not_used() -> None:
    buffer = ReplayBuffer(100, 1, 1)
    train, validation = buffer.split(0.5, seed=3, block=20, gap=5)
    play(buffer, 0, 75, None)
    below = plot.occupancy(buffer, {"train": train, "validation": validation}).axes[1]
    assert below.get_legend_handles_labels()[1] == ["train", "validation", "unused"]
    counts = [sum(box.get_height() for box in container) for container in below.containers]
    assert counts == [len(train), len(validation), 75 - len(train) - len(validation)]
    assert counts[2] == 15


def test_what_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = Prioritised(50, 1, 1)
    with pytest.raises(ValueError, match=r"^plot.occupancy: buffer must hold a step, got none$"):
        plot.occupancy(buffer)
    with pytest.raises(ValueError, match=r"^plot.priorities: history must have a record, got none$"):
        plot.priorities(plot.PriorityHistory(buffer))
    with pytest.raises(ValueError, match=r"^plot.priorities: a step must have a priority, got none$"):
        plot.priorities(buffer)
    with pytest.raises(TypeError, match=r"^PriorityHistory: buffer must have priorities, got <ReplayBuffer"):
        plot.priorities(ReplayBuffer(5, 1, 1))
    with pytest.raises(ValueError, match=r"^PriorityHistory: resolution must be >= 2, got 1$"):
        plot.PriorityHistory(buffer, 1)
    play(buffer, 0, 5)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (plot.occupancy, plot.priorities):
        with pytest.raises(MissingExtraError, match=r"^plot.\w+: needs the extra 'plot' \(matplotlib\); pip install"):
            draw(buffer)
