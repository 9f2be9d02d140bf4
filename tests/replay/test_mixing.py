"""Batches out of several buffers: exact shares, each source's own draws, and priorities that go home."""

from __future__ import annotations

from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ringback import PrioritizedReplayBuffer, ReplayBuffer, Sequences, Transitions
from ringback._core import BATCH_FIELDS
from ringback.episodes.structure import map_structure
from ringback.replay.mixing import mix
from tests.reference.goals import shares
from tests.replay.twin import assert_same
from tests.replay.worlds import counted, nested

SPACE = nested()


def source(number: int, steps: int = 60, device: Any = None, seed: int = 3) -> ReplayBuffer:
    """Return a buffer whose step t says 100 * number + t."""
    buffer = ReplayBuffer(80, SPACE, gym.spaces.Discrete(7), device, seed=(seed, number), extras={"logp": ()})
    for t in range(steps):
        k = 100 * number + t
        buffer.add(counted(SPACE, k), k % 7, k, counted(SPACE, k + 1), t % 20 == 19, extras={"logp": k / 2})
    return buffer


def fields(batch: Any) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in BATCH_FIELDS[type(batch).__name__] if name != "sources"}


def joined(parts: list[Any], axis: int = 0) -> Any:
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {name: joined([part[name] for part in parts], axis) for name in first}
    if isinstance(first, tuple):
        return tuple(joined([part[k] for part in parts], axis) for k in range(len(first)))
    return np.concatenate(parts, axis=axis)


def arrays(value: Any) -> Any:
    return map_structure(lambda leaf: leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf, value)


# ---- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        (0.25, 0.75),
        (0.5, 0.5),
        (1.0,),
        (1 / 3, 1 / 3, 1 / 3),
        (0.1,) * 10,
        (0.29, 0.71),
        (0.05, 0.9, 0.05),
        (0.6, 0.3, 0.1),
    ],
)
def test_counts_are_exact_and_remainders_go_to_the_largest(parts: tuple[float, ...]) -> None:
    made = mix([(source(0, 1), part) for part in parts])
    for batch_size in (1, 2, 3, 4, 7, 8, 10, 32, 100, 256, 1000):
        counts = made.counts(batch_size)
        assert sum(counts) == batch_size
        assert list(counts) == shares(batch_size, parts)
        assert all(abs(count - batch_size * part) < 1 for count, part in zip(counts, parts, strict=True))
    assert mix([(source(0, 1), 0.25), (source(1, 1), 0.75)]).counts(8) == (2, 6)


# ---- batches ---------------------------------------------------------------------------------------------------------

TRANSITION_OPTIONS: list[dict[str, Any]] = [
    {},
    {"n_step": 3, "gamma": 0.9},
    {"n_step": (1, 4), "gamma": 0.9},
    {"replace": True},
    {"stack": 3},
    {"stack": {"camera": 2}, "stack_fill": 7},
]
SEQUENCE_OPTIONS: list[dict[str, Any]] = [
    {},
    {"burn_in": 2, "pad": True},
    {"period": 4, "n_step": 2, "gamma": 0.5},
    {"next_observations": True, "stack": 2},
    {"layout": "arrival"},
    {"start_state": "logp"},
    {"cross_episodes": True},
    {"replace": True},
    {"time_major": True, "burn_in": 1, "start_state": "logp"},
]


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("options", TRANSITION_OPTIONS, ids=str)
def test_transitions_are_what_the_sources_would_give(options: dict[str, Any], device: Any) -> None:
    apart = [source(k) for k in range(3)]
    together = mix([(source(k, device=device), share) for k, share in enumerate((0.25, 0.5, 0.25))])
    for round_ in range(4):  # the first batch of a kind is joined, the others are written in place
        parts = [buffer.sample_transitions(count, **options) for buffer, count in zip(apart, (3, 6, 3), strict=True)]
        batch = together.sample_transitions(12, **options)
        assert isinstance(batch, Transitions)
        assert_same(arrays(fields(batch)), {name: joined([getattr(p, name) for p in parts]) for name in fields(batch)})
        assert_same(arrays(batch.sources), np.repeat(np.arange(3), (3, 6, 3)))
        if round_:
            assert isinstance(batch.rewards, np.ndarray if device is None else torch.Tensor)
    if not options:
        observations, actions, *_ = batch
        assert observations is batch.observations
        assert actions is batch.actions


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("options", SEQUENCE_OPTIONS, ids=str)
def test_windows_are_what_the_sources_would_give(options: dict[str, Any], device: Any) -> None:
    apart = [source(k) for k in range(2)]
    together = mix([(source(k, device=device), share) for k, share in enumerate((0.4, 0.6))])
    once = ("start_ids", "lengths", "burn_in_lengths", "weights", "start_state")
    for _ in range(3):
        parts = [buffer.sample_sequences(count, 5, **options) for buffer, count in zip(apart, (4, 6), strict=True)]
        batch = together.sample_sequences(10, 5, **options)
        assert isinstance(batch, Sequences)
        time_first = bool(options.get("time_major"))
        want = {
            name: joined([getattr(p, name) for p in parts], int(time_first and name not in once))
            for name in fields(batch)
        }
        assert_same(arrays(fields(batch)), want)
        assert_same(arrays(batch.sources), np.repeat(np.arange(2), (4, 6)))


def test_a_share_too_small_for_a_row_gives_none() -> None:
    made = mix([(source(0), 0.9), (source(1, 0), 0.1)])
    for _ in range(3):
        batch = made.sample_transitions(4)
        assert batch.sources.tolist() == [0] * 4
    with pytest.raises(ValueError, match=r"sources\[1\] must give 1 rows"):
        made.sample_transitions(10)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_arrays_are_allocated_once_and_can_be_the_callers(device: Any) -> None:
    made = mix([(source(0, device=device), 0.5), (source(1, device=device), 0.5)])
    plain = mix([(source(0, device=device), 0.5), (source(1, device=device), 0.5)])
    first = made.sample_transitions(8)
    plain.sample_transitions(8)
    for _ in range(3):
        again = made.sample_transitions(8, out=first)
        want = plain.sample_transitions(8)
        for name, value in fields(again).items():
            if isinstance(value, dict):
                assert (
                    value["camera" if "camera" in value else "logp"]
                    is getattr(first, name)["camera" if "camera" in value else "logp"]
                )
            elif value is not None:
                assert value is getattr(first, name), name
        assert again.sources is first.sources
        assert_same(arrays(fields(again)), arrays(fields(want)))
    rewards = np.full((8, 1), -1, np.float32)
    batch = made.sample_transitions(8, n_step=2, gamma=0.9, out={"rewards": rewards})
    assert batch.rewards is rewards
    assert (rewards != -1).all()
    assert batch.observations["camera"] is not first.observations["camera"]


def test_batches_do_not_share_memory_with_one_another() -> None:
    made = mix([(source(0), 0.5), (source(1), 0.5)])
    one, two, three = (made.sample_transitions(8) for _ in range(3))
    kept = two.rewards.copy()
    one.rewards[:] = three.rewards[:] = -7
    np.testing.assert_array_equal(two.rewards, kept)


def test_views_of_splits_can_be_mixed() -> None:
    buffers = [source(k) for k in range(2)]
    trains = [buffer.split(0.5, seed=1)[0] for buffer in buffers]
    made = mix([(trains[0], 0.5), (trains[1], 0.5)])
    for _ in range(3):
        batch = made.sample_transitions(10)
        for k, view in enumerate(trains):
            assert set(batch.ids[batch.sources == k].tolist()) <= set(view.valid_starts().tolist())


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_run_ahead_and_are_the_same_for_every_prefetch(prefetch: int) -> None:
    plain, ahead = (mix([(source(0), 0.5), (source(1), 0.5)]) for _ in range(2))
    with plain.batches(8, 0, n_step=2, gamma=0.9) as want, ahead.batches(8, prefetch, n_step=2, gamma=0.9) as got:
        for a, b in islice(zip(want, got, strict=True), 10):
            assert_same(fields(b), fields(a))
            assert b.sources.tolist() == [0] * 4 + [1] * 4
    with plain.batches(8, 0, length=4) as want, ahead.batches(8, prefetch, length=4) as got:
        for a, b in islice(zip(want, got, strict=True), 10):
            assert_same(fields(b), fields(a))
    np.testing.assert_array_equal(plain.sample_transitions(8).ids, ahead.sample_transitions(8).ids)


# ---- priorities ------------------------------------------------------------------------------------------------------


def prioritised(number: int, steps: int = 40, **options: Any) -> PrioritizedReplayBuffer:
    """Return a buffer in which the priority of step t is t + 1."""
    buffer = PrioritizedReplayBuffer(80, 1, 1, seed=(1, number), alpha=1.0, eps=0.0, **options)
    for t in range(steps):
        buffer.add([t], [0], 100 * number + t, [t + 1], False)
    buffer.update_priorities(np.arange(steps), np.arange(steps) + 1.0)
    return buffer


def plain(number: int, steps: int = 40) -> ReplayBuffer:
    buffer = ReplayBuffer(80, 1, 1, seed=(1, number))
    for t in range(steps):
        buffer.add([t], [0], 100 * number + t, [t + 1], False)
    return buffer


def test_weights_are_those_of_each_source_and_1_without_priorities() -> None:
    made = mix([(prioritised(0), 0.5), (plain(1), 0.25), (prioritised(2), 0.25)])
    alone = [prioritised(0), plain(1), prioritised(2)]
    for _ in range(3):
        batch = made.sample_transitions(16, beta=0.7)
        want = [
            alone[0].sample_transitions(8, beta=0.7).weights,
            np.ones((4, 1), np.float32),
            alone[2].sample_transitions(4, beta=0.7).weights,
        ]
        alone[1].sample_transitions(4)
        assert_same(batch.weights, np.concatenate(want))
    assert mix([(plain(0), 0.5), (plain(1), 0.5)]).sample_transitions(4, beta=0.7).weights is None


@pytest.mark.parametrize("form", ["batch", "pair"])
@pytest.mark.parametrize("column", [False, True])
def test_new_priorities_go_to_the_buffers_that_the_rows_came_from(form: str, column: bool) -> None:
    made = mix([(prioritised(0), 0.25), (plain(1), 0.5), (prioritised(2), 0.25)])
    for _ in range(2):
        batch = made.sample_transitions(16, beta=0.4)
        errors = 1000.0 + np.arange(16)
        given = torch.from_numpy(errors[:, None] if column else errors)
        target: Any = batch if form == "batch" else (batch.ids, batch.sources)
        assert made.update_priorities(target, given) == 0
        for k in (0, 2):
            rows = batch.sources == k
            want = dict(zip(batch.ids[rows].tolist(), errors[rows].tolist(), strict=True))  # the last one counts
            got = made.buffers[k].priorities(list(want))
            np.testing.assert_allclose(got, list(want.values()))


def test_windows_are_updated_at_their_starts_and_stale_ones_are_counted() -> None:
    buffers = [prioritised(k, sequence_length=4) for k in range(2)]
    made = mix([(buffers[0], 0.5), (buffers[1], 0.5)])
    batch = made.sample_sequences(8, 4, beta=0.4)
    assert made.update_priorities(batch, np.full(8, 500.0)) == 0
    for k in range(2):
        assert (buffers[k].priorities(batch.start_ids[batch.sources == k]) == 500).all()
    for t in range(80):
        buffers[1].add([t], [0], t, [t + 1], False)
    assert made.update_priorities(batch, np.full(8, 600.0)) == 4


def test_validation_sides_draw_uniformly_and_keep_no_priorities() -> None:
    train, validation = prioritised(0, 0).split(0.5, seed=1)
    for _ in range(8):
        for t in range(5):
            train.buffer.add([t], [0], t, [t + 1], t == 4)
    made = mix([(train, 0.5), (validation, 0.5)])
    for _ in range(2):
        batch = made.sample_transitions(8, beta=0.4)
        assert (batch.weights[batch.sources == 1] == 1).all()
        assert made.update_priorities(batch, np.arange(8) + 2.0) == 0
    assert (train.buffer.priorities(validation.valid_starts()) == 0).all()
    assert (train.buffer.priorities(batch.ids[:4]) >= 2).all()


@pytest.mark.parametrize(
    ("error", "errors", "message"),
    [
        (ValueError, [1.0] * 7 + [-1.0], "abs_td must be finite and >= 0, got -1.0"),
        (ValueError, [1.0] * 7 + [float("nan")], "abs_td must be finite and >= 0, got nan"),
        (ValueError, [1.0] * 7 + [float("inf")], "abs_td must be finite and >= 0, got inf"),
        (ValueError, [1.0] * 7, r"abs_td must have shape \(8,\) or \(8, 1\), got \(7,\)"),
        (TypeError, ["x"] * 8, "abs_td must hold real numbers, got dtype <U1"),
    ],
)
def test_a_refused_update_changes_no_buffer(error: Any, errors: Any, message: str) -> None:
    buffers = [prioritised(k) for k in range(2)]
    made = mix([(buffers[0], 0.5), (buffers[1], 0.5)])
    batch = made.sample_transitions(8, beta=0.4)
    with pytest.raises(error, match=rf"^Mix.update_priorities: {message}$"):
        made.update_priorities(batch, errors)
    for buffer in buffers:
        np.testing.assert_array_equal(buffer.priorities(np.arange(40)), np.arange(40) + 1.0)


def test_updates_that_belong_nowhere_are_named() -> None:
    made = mix([(prioritised(0), 1.0)])
    with pytest.raises(ValueError, match=r"^Mix.update_priorities: batch must say its sources, got one that does not"):
        made.update_priorities(made.buffers[0].sample_transitions(2), [1.0, 1.0])
    with pytest.raises(TypeError, match=r"update_priorities: batch must be a batch or a pair \(ids, sources\), got 3$"):
        made.update_priorities(3, [1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sources must be integers in \[0, 1\), got array\(\[1\]\)$"):
        made.update_priorities(([0], [1]), [1.0])
    with pytest.raises(ValueError, match=r"ids and sources must have shape \(B,\), got \(2,\) and \(1,\)$"):
        made.update_priorities(([0, 1], [0]), [1.0])


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_source_that_is_too_small_is_named() -> None:
    made = mix([(source(0, 60), 0.25), (source(1, 5), 0.75)])
    message = r"^Mix.sample_transitions: sources\[1\] must give 6 rows for its share of 0.75, got: .*5"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            made.sample_transitions(8)
    assert made.sample_transitions(6).sources.tolist() == [0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match=r"^Mix.sample_sequences: sources\[1\] must give 3 rows for its share of 0.75"):
        made.sample_sequences(4, 5)
    made.sample_sequences(4, 5, replace=True)


def test_sources_that_differ_are_named() -> None:
    other = ReplayBuffer(9, SPACE, gym.spaces.Discrete(7), extras={"logp": ((), np.float64)})
    other.add(counted(SPACE, 0), 0, 0, counted(SPACE, 1), False, extras={"logp": 0})
    message = (
        r"^Mix.sample_transitions: sources\[1\] must give extras/logp as sources\[0\] does "
        r"\(\(…, 1\) float32\), got \(…, 1\) float64$"
    )
    with pytest.raises(ValueError, match=message):
        mix([(source(0), 0.5), (other, 0.5)]).sample_transitions(2)
    plain = ReplayBuffer(9, 1, 1)
    plain.add([0], [0], 0, [1], False)
    with pytest.raises(ValueError, match=r"sources\[1\] must give observations as sources\[0\] does \(a dict with the"):
        mix([(source(0), 0.5), (plain, 0.5)]).sample_transitions(2)


@pytest.mark.parametrize(
    ("error", "sources", "message"),
    [
        (ValueError, [], "sources must hold a buffer, got none"),
        (ValueError, [(0.5, 0.4)], "shares must sum to 1, got 0.9"),
        (ValueError, [(0.5, 0.6)], "shares must sum to 1, got 1.1"),
        (ValueError, [(0.0, 1.0)], r"the share of sources\[0\] must be > 0, got 0.0"),
        (ValueError, [(1.5, -0.5)], r"the share of sources\[1\] must be > 0, got -0.5"),
        (ValueError, [(1.0, float("nan"))], r"the share of sources\[1\] must be > 0, got nan"),
        (TypeError, [(1.0, "1")], r"the share of sources\[1\] must be a number, got '1'"),
    ],
)
def test_wrong_shares_are_named(error: Any, sources: Any, message: str) -> None:
    pairs = [(source(0, 1), share) for shares_ in sources for share in shares_]
    with pytest.raises(error, match=rf"^mix: {message}$"):
        mix(pairs)


def test_wrong_sources_are_named() -> None:
    with pytest.raises(TypeError, match=r"^mix: sources\[0\] must be a replay buffer, got 3$"):
        mix([(3, 1.0)])
    with pytest.raises(TypeError, match=r"^mix: sources\[0\] must be a pair of buffer and share, got <Rep"):
        mix([source(0)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^mix: sources\[0\] must be a replay buffer, got <Mix of 1 of <Rep"):
        mix([(mix([(source(0), 1.0)]), 1.0)])
    with pytest.raises(ValueError, match=r"^mix: sources must have one device, got \['None', 'cpu'\]$"):
        mix([(source(0), 0.5), (source(1, device="cpu"), 0.5)])


def test_wrong_batch_sizes_and_outs_are_named() -> None:
    made = mix([(source(0), 1.0)])
    with pytest.raises(ValueError, match=r"^Mix.counts: batch_size must be >= 1, got 0$"):
        made.sample_transitions(0)
    with pytest.raises(TypeError, match=r"^Mix.counts: batch_size must be an integer, got 2.0$"):
        made.sample_transitions(2.0)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"^Mix.sample_transitions: out must have fields of the batch only, got 'obs'$"
    ):
        made.sample_transitions(2, out={"obs": 1})
    with pytest.raises(TypeError, match=r"^Mix.sample_transitions: out must be a dict of arrays by field name, or an"):
        made.sample_transitions(2, out=made.sample_sequences(2, 3))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^Mix.sample_transitions: .*out: rewards must have shape \(2, 1\)"):
            made.sample_transitions(2, out={"rewards": np.empty((3, 1), np.float32)})
        with pytest.raises(
            ValueError, match=r"out: sources must have shape \(2,\) and dtype int64, got \(2,\) and float"
        ):
            made.sample_transitions(2, out={"sources": np.empty(2)})
        with pytest.raises(TypeError, match=r"out: rewards must be an array or a CPU tensor, got \[0, 0\]"):
            made.sample_transitions(2, out={"rewards": [0, 0]})
        made.sample_transitions(2)
