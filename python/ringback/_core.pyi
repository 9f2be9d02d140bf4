from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, type_check_only

import numpy as np
import numpy.typing as npt

BATCH_FIELDS: dict[str, tuple[str, ...]]

class Transitions(tuple[Any, Any, Any, Any, Any]):
    n_fields: ClassVar[int]
    n_sequence_fields: ClassVar[int]
    n_unnamed_fields: ClassVar[int]
    __match_args__: ClassVar[tuple[str, ...]]
    def __new__(cls, sequence: Iterable[Any], dict: Mapping[str, Any] = ...) -> Transitions: ...
    @property
    def observations(self) -> Any: ...
    @property
    def actions(self) -> Any: ...
    @property
    def rewards(self) -> Any: ...
    @property
    def next_observations(self) -> Any: ...
    @property
    def dones(self) -> Any: ...
    @property
    def terminations(self) -> Any: ...
    @property
    def truncations(self) -> Any: ...
    @property
    def discounts(self) -> Any: ...
    @property
    def n_steps(self) -> Any: ...
    @property
    def ids(self) -> Any: ...
    @property
    def extras(self) -> dict[str, Any]: ...
    @property
    def weights(self) -> Any: ...
    @property
    def sources(self) -> Any: ...

class Sequences(tuple[Any, Any, Any, Any]):
    n_fields: ClassVar[int]
    n_sequence_fields: ClassVar[int]
    n_unnamed_fields: ClassVar[int]
    __match_args__: ClassVar[tuple[str, ...]]
    def __new__(cls, sequence: Iterable[Any], dict: Mapping[str, Any] = ...) -> Sequences: ...
    @property
    def observations(self) -> Any: ...
    @property
    def actions(self) -> Any: ...
    @property
    def rewards(self) -> Any: ...
    @property
    def dones(self) -> Any: ...
    @property
    def terminations(self) -> Any: ...
    @property
    def truncations(self) -> Any: ...
    @property
    def is_first(self) -> Any: ...
    @property
    def is_last(self) -> Any: ...
    @property
    def ids(self) -> Any: ...
    @property
    def start_ids(self) -> Any: ...
    @property
    def extras(self) -> dict[str, Any]: ...
    @property
    def valid(self) -> Any: ...
    @property
    def mask(self) -> Any: ...
    @property
    def lengths(self) -> Any: ...
    @property
    def burn_in_lengths(self) -> Any: ...
    @property
    def next_observations(self) -> Any: ...
    @property
    def discounts(self) -> Any: ...
    @property
    def n_steps(self) -> Any: ...
    @property
    def is_terminal(self) -> Any: ...
    @property
    def start_state(self) -> Any: ...
    @property
    def weights(self) -> Any: ...
    @property
    def sources(self) -> Any: ...

@type_check_only
class _Sampling:  # what Replay and ReplayView have in common
    def sample_transitions(
        self,
        batch_size: int,
        *,
        n_step: int | tuple[int, int] = 1,
        gamma: float | None = None,
        replace: bool = False,
        out: Transitions | Mapping[str, Any] | None = None,
        stack: int | Mapping[str, int] | None = None,
        stack_fill: str | float = "first",
        beta: float = 0.4,
    ) -> Transitions: ...
    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        replace: bool = False,
        out: Sequences | Mapping[str, Any] | None = None,
        burn_in: int = 0,
        pad: bool = False,
        period: int = 1,
        n_step: int | tuple[int, int] = 1,
        gamma: float | None = None,
        stack: int | Mapping[str, int] | None = None,
        stack_fill: str | float = "first",
        cross_episodes: bool = False,
        layout: str = "step",
        next_observations: bool = False,
        time_major: bool = False,
        start_state: str | None = None,
        beta: float = 0.4,
    ) -> Sequences: ...
    def sample_episodes(
        self,
        batch_size: int,
        max_length: int | None = None,
        *,
        replace: bool = False,
        out: Sequences | Mapping[str, Any] | None = None,
        n_step: int | tuple[int, int] = 1,
        gamma: float | None = None,
        stack: int | Mapping[str, int] | None = None,
        stack_fill: str | float = "first",
        layout: str = "step",
        next_observations: bool = False,
        time_major: bool = False,
    ) -> Sequences: ...
    def get(
        self,
        ids: npt.ArrayLike,
        n_step: int = 1,
        gamma: float | None = None,
        *,
        stack: int | Mapping[str, int] | None = None,
        stack_fill: str | float = "first",
        out: Transitions | Mapping[str, Any] | None = None,
    ) -> Transitions: ...
    def valid_starts(
        self,
        length: int = 1,
        *,
        pad: bool = False,
        period: int = 1,
        stack: int | Mapping[str, int] | None = None,
    ) -> npt.NDArray[np.int64]: ...

class Replay(_Sampling):
    _wrap: Any
    _wrap_arrays_only: bool
    def __init__(
        self,
        capacity: int,
        observation: tuple[Any, ...],
        action: tuple[Any, ...],
        extras: tuple[Any, ...],
        seed: Sequence[int],
        on_mismatch: str,
        priority: Mapping[str, Any] | None = None,
    ) -> None: ...
    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        next_observation: Any,
        terminated: Any,
        truncated: Any = False,
        stream: int = 0,
        extras: Mapping[str, Any] | None = None,
    ) -> int: ...
    def add_batch(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminations: Any,
        truncations: Any = None,
        streams: Any = None,
        extras: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.int64]: ...
    def _add_chunk(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        extras: Any,
        steps: int,
        stream: int | str,
        start: int,
        terminated: bool,
        truncated: bool,
        cut: bool,
        /,
    ) -> npt.NDArray[np.int64]: ...
    def _end_episode(self, stream: int | str, /) -> bool: ...
    def _update_priorities(self, ids: npt.ArrayLike, abs_td: Any) -> int: ...
    def _priorities(self, ids: npt.ArrayLike, /) -> npt.NDArray[np.float64]: ...
    @property
    def _is_split(self) -> bool: ...
    def _split(self, groups: int, seed: int, block: int, gap: int, /) -> None: ...
    def _locate(
        self, ids: npt.ArrayLike, /
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]: ...
    def _steps_at(self, ids: npt.ArrayLike, times: npt.ArrayLike, /) -> npt.NDArray[np.int64]: ...
    def _set(self, ids: npt.ArrayLike, field: str, values: Any, /) -> None: ...
    def _stats(self) -> dict[str, int]: ...
    def _state_header(self) -> dict[str, Any]: ...
    def _state_rows(self, begin: int, count: int, version: int, /) -> dict[str, Any]: ...
    def _set_state(self, header: Mapping[str, Any], parts: Iterable[Any], close_open: bool, /) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...

class ReplayView(_Sampling):
    def __init__(self, buffer: Replay, side: str, own_generator: bool) -> None: ...
    @property
    def buffer(self) -> Any: ...
    def __len__(self) -> int: ...
    def update_priorities(self, ids: npt.ArrayLike, abs_td: Any) -> int: ...

def held_out(units: Sequence[int], groups: int, seed: int, /) -> npt.NDArray[np.bool_]: ...

# Episodes: window resolution and array rows. `where` names the caller in messages.
def lookback_take(
    data: list[Any], lookback: int, indices: Any, neg_index_as_lookback: bool, where: str, fill: Any = ..., /
) -> Any: ...
def lookback_positions(
    size: int, lookback: int, indices: Any, neg_index_as_lookback: bool, fill: bool, where: str, /
) -> Any: ...
def lookback_window(begin: int, end: int, start: int, stop: int, /) -> tuple[int, int, int, int]: ...
def rows_put(rows: npt.NDArray[Any], position: int, item: Any, low: Any, high: Any, /) -> bool: ...
def rows_inside(rows: npt.NDArray[Any], low: Any, high: Any, /) -> bool: ...
def rows_stack(items: list[Any], /) -> npt.NDArray[Any] | None: ...
def rows_newest(episodes: Sequence[Any], track: str, /) -> npt.NDArray[Any] | None: ...
def rows_one_hot(values: npt.NDArray[Any], n: int, start: int, /) -> npt.NDArray[np.float32] | None: ...
def rows_one_hots(
    values: npt.NDArray[Any], nvec: npt.NDArray[np.int64], start: npt.NDArray[np.int64], /
) -> npt.NDArray[np.float32] | None: ...
def rows_same(a: npt.NDArray[Any], b: npt.NDArray[Any], /) -> bool: ...
