"""Lists of episodes in two sides: whole episodes, the right number of them, and the sides of a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer, SingleAgentEpisode
from ringback.replay.splits import split_episodes
from tests.replay.statistics import assert_uniform


def episode(name: str, start: int, steps: int) -> SingleAgentEpisode:
    return SingleAgentEpisode(
        name,
        observations=[np.array([t], np.float32) for t in range(start, start + steps + 1)],
        actions=[np.array([0.0], np.float32)] * steps,
        rewards=[float(t) for t in range(start, start + steps)],
        t_started=start,
        len_lookback_buffer=0,
    )


@pytest.mark.parametrize(
    ("count", "validation", "held_out"),
    [(15, 0.2, 3), (30, 0.1, 3), (100, 0.1, 10), (10, 0.5, 5), (9, 1 / 3, 3), (4, 0.25, 1), (40, 0.15, 5), (0, 0.1, 0)],
)
def test_the_right_number_is_held_out_also_of_few(count: int, validation: float, held_out: int) -> None:
    for seed in range(20):
        train, rest = split_episodes(range(count), validation, seed)
        assert held_out <= len(rest) <= held_out + (count % round(1 / validation) > 0)
        assert sorted(train + rest) == list(range(count))
        assert train == sorted(train)
        assert rest == sorted(rest)


def test_every_group_gives_one_at_a_random_place() -> None:
    places = []
    for seed in range(20):
        _, held_out = split_episodes(range(500), 0.1, seed)
        assert [k // 10 for k in held_out] == list(range(50))
        places += [k % 10 for k in held_out]
    assert_uniform(places, range(10))


def test_later_episodes_move_no_earlier_one() -> None:
    _, of_all = split_episodes(range(95), 0.1, 3)
    for count in range(95):
        assert split_episodes(range(count), 0.1, 3)[1] == [k for k in of_all if k < count]
    assert split_episodes(range(95), 0.1, 4)[1] != of_all


def test_chunks_of_one_episode_stay_together() -> None:
    names = [f"e{k}" for k in range(40)]
    whole = [episode(name, 0, 5) for name in names]
    order = np.random.default_rng(0).permutation(3 * 40)
    chunks = [episode(names[k % 40], 2 * (k // 40), 2) for k in order]
    first = list(dict.fromkeys(chunk.id_ for chunk in chunks))
    train, held_out = split_episodes(chunks, 0.2, 1)
    assert len(train) == 3 * 32
    assert len(held_out) == 3 * 8
    of_whole = split_episodes([whole[names.index(name)] for name in first], 0.2, 1)[1]
    assert {chunk.id_ for chunk in held_out} == {e.id_ for e in of_whole}
    assert {chunk.id_ for chunk in held_out}.isdisjoint(chunk.id_ for chunk in train)


@pytest.mark.parametrize("seed", [0, 1, 12345678901234567890])
def test_sides_are_those_of_a_buffer(seed: int) -> None:
    episodes = [episode(f"e{k}", 0, 3 + k % 4) for k in range(60)]
    buffer = ReplayBuffer(150, 1, 1)
    added = {e.id_: buffer.add_episode(e)[-1] for e in episodes}
    _, held_out = split_episodes(episodes, 0.2, seed)
    _, view = buffer.split(0.2, seed)
    live = set(buffer.valid_starts().tolist())
    on_side = set(view.valid_starts().tolist())
    names = {e.id_ for e in held_out}
    for name, last in added.items():
        assert (last in on_side) == (name in names and last in live)
    assert 0 < len(on_side) < len(live) < sum(map(len, episodes))


def test_a_chunk_without_steps_begins_no_episode() -> None:
    names = [f"e{k}" for k in range(10)]
    chunks = [episode(name, 0, 3) for name in names]
    _, held_out = split_episodes([episode(names[9], 0, 0), *chunks], 0.2, 5)
    assert [e.id_ for e in held_out if len(e)] == [e.id_ for e in split_episodes(chunks, 0.2, 5)[1]]


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (ValueError, {"validation": 0}, r"validation must be in \(0, 0.5\], got 0"),
        (ValueError, {"validation": 0.7}, r"validation must be in \(0, 0.5\], got 0.7"),
        (ValueError, {"validation": float("nan")}, r"validation must be in \(0, 0.5\], got nan"),
        (TypeError, {"validation": "0.1"}, "validation must be a number, got '0.1'"),
        (ValueError, {"seed": -3}, r"seed must be in \[0, 2\*\*64\), got -3"),
        (TypeError, {"seed": 0.5}, "seed must be an integer, got 0.5"),
    ],
)
def test_wrong_arguments_are_named(error: Any, options: Any, message: str) -> None:
    with pytest.raises(error, match=rf"^split_episodes: {message}$"):
        split_episodes([1, 2, 3], **options)
