"""A replay buffer and its slow twin, driven side by side and compared after each call."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ringback import ReplayBuffer
from tests.reference.replay import ReplayOracle
from tests.replay.worlds import Space

TRANSITIONS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "dones",
    "terminations",
    "truncations",
    "discounts",
    "n_steps",
    "ids",
    "extras",
)
SEQUENCES = (
    "observations",
    "actions",
    "rewards",
    "dones",
    "terminations",
    "truncations",
    "is_first",
    "is_last",
    "ids",
    "start_ids",
    "extras",
)


def assert_same(got: Any, want: Any, where: str = "batch") -> None:
    """Compare two structures of arrays: keys, shapes, dtypes and bits (NaN equal to NaN)."""
    if isinstance(want, Mapping):
        assert isinstance(got, Mapping), where
        assert set(got) == set(want), where
        for name in want:
            assert_same(got[name], want[name], f"{where}/{name}")
    elif isinstance(want, tuple):
        assert isinstance(got, tuple), where
        assert len(got) == len(want), where
        for place, part in enumerate(want):
            assert_same(got[place], part, f"{where}/{place}")
    elif want is None:
        assert got is None, where
    else:
        assert isinstance(got, np.ndarray), where
        assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{where}: {got.dtype}{got.shape}"
        np.testing.assert_array_equal(got, want, err_msg=where)


def fields_of(batch: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields of a batch."""
    return {name: getattr(batch, name) for name in names}


def assert_batch(batch: Any, want: Mapping[str, Any]) -> None:
    """Compare a batch of transitions or sequences with what the slow twin says it must hold."""
    for name, part in want.items():
        got = getattr(batch, name)
        if name == "extras" and not part:
            assert not got
        else:
            assert_same(got, part, name)


class Twin:
    """`ReplayBuffer` and `ReplayOracle` with the same content."""

    def __init__(
        self,
        capacity: int,
        observation_space: Space,
        action_space: Space,
        extras: Mapping[str, Space] | None = None,
        cast: dict[str, str] | None = None,
        on_mismatch: Any = "keep",
        seed: Any = 0,
    ) -> None:
        self.real = ReplayBuffer(
            capacity,
            observation_space,
            action_space,
            seed=seed,
            extras=dict(extras) if extras else None,
            cast=cast,
            on_mismatch=on_mismatch,
        )
        self.slow = ReplayOracle(capacity, observation_space, action_space, extras, cast, on_mismatch)

    def add(self, *arguments: Any, **options: Any) -> Any:
        """Add one step to both; None if both refuse it."""
        return self._both(lambda buffer: buffer.add(*arguments, **options))

    def add_batch(self, *arguments: Any, **options: Any) -> Any:
        """Add a step of each of several streams to both; None if both refuse them."""
        return self._both(lambda buffer: buffer.add_batch(*arguments, **options))

    def add_episode(self, *arguments: Any, **options: Any) -> Any:
        """Add a chunk to both; None if both refuse it."""
        return self._both(lambda buffer: buffer.add_episode(*arguments, **options))

    def end_episode(self, stream: int | str) -> Any:
        """Close a stream's episode in both."""
        return self._both(lambda buffer: buffer.end_episode(stream))

    def set(self, numbers: Sequence[int], name: str, values: Any) -> Any:
        """Replace a field in both."""
        return self._both(lambda buffer: buffer.set(numbers, name, values))

    def _both(self, call: Callable[[Any], Any]) -> Any:
        answers: list[Any] = []
        for buffer in (self.slow, self.real):
            try:
                answers.append(call(buffer))
            except ValueError as refusal:
                answers.append(refusal)
        slow, real = answers
        if isinstance(slow, Exception) or isinstance(real, Exception):
            if not (isinstance(slow, Exception) and isinstance(real, Exception)):
                raise AssertionError(f"one refuses, one does not: {slow!r}, {real!r}")
            return None
        if real is None or isinstance(real, bool):
            assert real is slow
        else:
            np.testing.assert_array_equal(real, slow)
        return real

    def check(self, lengths: Iterable[int] | None = None) -> None:
        """Compare everything that can be read without drawing; windows of all lengths unless some are named."""
        real, slow = self.real, self.slow
        assert len(real) == len(slow)
        assert real.total_added == slow.written
        assert real.is_full == (len(slow) == slow.capacity)
        assert real.num_episodes == slow.num_episodes
        assert real.stats()["kept_successors"] == slow.kept_successors
        live = slow.live()
        np.testing.assert_array_equal(real.valid_starts(), live)
        if live:
            assert_batch(real.get(np.array(live)), slow.transitions(live))
        for length in range(1, len(live) + 1) if lengths is None else lengths:
            if length <= len(live):
                np.testing.assert_array_equal(real.valid_starts(length), slow.starts(length), f"windows of {length}")

    def sample_transitions(
        self, batch_size: int, n_step: int = 1, gamma: float | None = None, replace: bool = False
    ) -> Any:
        """Draw from the real one and compare each row with what the slow one says of its id."""
        batch = self.real.sample_transitions(batch_size, n_step=n_step, gamma=gamma, replace=replace)
        numbers = batch.ids.tolist()
        assert len(numbers) == batch_size
        assert set(numbers) <= set(self.slow.live())
        assert replace or len(set(numbers)) == batch_size
        assert_batch(batch, self.slow.transitions(numbers, n_step, gamma))
        return batch

    def sample_sequences(self, batch_size: int, length: int, replace: bool = False) -> Any:
        """Draw windows from the real one and compare them with what the slow one says of their starts."""
        batch = self.real.sample_sequences(batch_size, length, replace=replace)
        numbers = batch.start_ids.tolist()
        assert len(numbers) == batch_size
        assert set(numbers) <= set(self.slow.starts(length))
        assert replace or len(set(numbers)) == batch_size
        assert_batch(batch, self.slow.sequences(numbers, length))
        return batch

    def round_trip(self, way: str) -> None:
        """Replace the real one by a copy of itself, after checking that both go on with the same draws."""
        original = self.real
        if way == "pickle":
            self.real = pickle.loads(pickle.dumps(original))
        elif way == "deepcopy":
            self.real = copy.deepcopy(original)
        else:
            policy: Any = self.slow.on_mismatch
            self.real = ReplayBuffer(
                original.capacity,
                self.slow.spaces["observation"],
                self.slow.spaces["action"],
                seed=99,
                extras=self.slow.extras or None,
                cast=self.slow.cast,
                on_mismatch=policy,
            )
            self.real.set_state(original.get_state() if way == "state" else original.iter_state(1000))
        if len(original):
            for _ in range(2):
                a, b = original.sample_transitions(len(original)), self.real.sample_transitions(len(original))
                assert_same(fields_of(a, TRANSITIONS), fields_of(b, TRANSITIONS))
                c, d = original.sample_sequences(5, 1, replace=True), self.real.sample_sequences(5, 1, replace=True)
                assert_same(fields_of(c, SEQUENCES), fields_of(d, SEQUENCES))
