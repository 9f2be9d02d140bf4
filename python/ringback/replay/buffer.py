"""The replay buffer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from ringback import _core
from ringback.episodes.recurrent_states import STATE_OUT, states_before
from ringback.episodes.structure import batch
from ringback.replay.batches import Batches
from ringback.replay.spaces import Cast, as_space, spec_of_extras, spec_of_space
from ringback.replay.splits import split_groups, split_seed
from ringback.replay.views import BufferView

if TYPE_CHECKING:
    import torch

_STATE_VERSION = 1
_PART_BYTES = 64 * 2**20


class ReplayBuffer(_core.Replay):
    """The last ``capacity`` steps of any number of streams, to be drawn as transitions or as sequences.

    Parameters
    ----------
    capacity : int
        N, in steps over all streams together. Once full, the oldest step is the next one to go.
    observation_space, action_space : gymnasium.Space or int
        Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these, nested; an int stands for float32 vectors
        of that size. They fix shapes and dtypes: what is stored never depends on the first item.
    device : str or torch.device, optional
        Where samples go as torch tensors; by default they are NumPy arrays.
    seed : int or sequence of int, optional
        Of the buffer's own generator. ``(7, rank)`` gives each rank a stream of its own. None: from the system.
    extras : mapping, optional
        Named columns that come with every step: a shape (float32), a pair ``(shape, dtype)``, or a space.
    cast : mapping of str to dtype, optional
        Dtypes to store instead of the spaces' own, such as ``{"observation": "float32"}``; a leaf goes by its path,
        such as ``"observation/camera"``.
    on_mismatch : {"keep", "split", "raise"}
        What to do when an observation differs from the successor given one step earlier (NaN equals NaN). ``"keep"``
        stores both, so that every read is exact; ``"split"`` takes it for an unmarked reset and closes the episode as
        truncated; ``"raise"`` refuses the step.

    Raises
    ------
    TypeError
        A space that has no fixed size, or arguments of the wrong kind.
    ValueError
        A capacity below 1, an unknown ``on_mismatch``, a ``cast`` that names nothing.
    MemoryError
        A capacity that cannot fit this machine; the message has the bytes.

    Notes
    -----
    A successor observation is stored once, as the next step's observation, and beside the rows where there is no next
    step: at both kinds of end, at the newest step, and where the given data differ. Each stream's steps lie in pages of
    their own, so windows are contiguous however streams interleave.

    All methods may be called from several threads: many readers or one writer at a time. A forked child must not use
    the buffer of its parent.

    Examples
    --------
    >>> buffer = ReplayBuffer(1000, 1, 1, seed=0)
    >>> for t in range(5):
    ...     _ = buffer.add([t], [-t], float(t), [t + 1], terminated=t == 4)
    >>> observations, actions, rewards, next_observations, dones = buffer.sample_transitions(5)
    >>> bool((next_observations == observations + 1).all())
    True
    >>> sorted(buffer.sample_sequences(2, 4).rewards[:, 0, 0].tolist())
    [0.0, 1.0]
    """

    _priority_rule: dict[str, Any] | None = None  # what draws are by, if not uniform

    def __init__(
        self,
        capacity: int,
        observation_space: gym.Space[Any] | int,
        action_space: gym.Space[Any] | int,
        device: str | torch.device | None = None,
        *,
        seed: int | Sequence[int] | None = None,
        extras: Mapping[str, Any] | None = None,
        cast: Mapping[str, Any] | None = None,
        on_mismatch: Literal["keep", "split", "raise"] = "keep",
    ) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)):
            raise TypeError(f"ReplayBuffer: capacity must be an integer, got {capacity!r}")
        if not -(2**63) <= capacity < 2**63:
            raise MemoryError(f"ReplayBuffer: capacity must fit in memory, got {capacity} steps")
        if not isinstance(on_mismatch, str):
            raise TypeError(f"ReplayBuffer: on_mismatch must be 'keep', 'split' or 'raise', got {on_mismatch!r}")
        self._observation_space = as_space(observation_space, "observation_space")
        self._action_space = as_space(action_space, "action_space")
        casts = Cast(cast)
        observation = spec_of_space(self._observation_space, "observation", casts)
        action = spec_of_space(self._action_space, "action", casts)
        columns = spec_of_extras({} if extras is None else extras, casts)
        casts.check_used()
        super().__init__(
            int(capacity), observation, action, columns, _seed_words(seed), on_mismatch, self._priority_rule
        )
        self._device = device
        self._on_mismatch = on_mismatch
        self._extras = dict(extras or {})
        self._cast = dict(cast or {})
        if device is not None:
            from ringback.replay.tensors import to_tensor_on

            self._wrap, self._wrap_arrays_only = to_tensor_on(device)

    # ---- what it is --------------------------------------------------------------------------------------------------

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The space of one observation."""
        return self._observation_space

    @property
    def action_space(self) -> gym.Space[Any]:
        """The space of one action."""
        return self._action_space

    @property
    def device(self) -> str | torch.device | None:
        """Where samples go as tensors; None: they are NumPy arrays."""
        return self._device

    @property
    def is_full(self) -> bool:
        """Whether the next step evicts one."""
        return len(self) == self.capacity

    @property
    def num_episodes(self) -> int:
        """Episodes of which at least one step is stored."""
        return int(self._stats()["episodes"])

    @property
    def total_added(self) -> int:
        """Steps ever added; also the next step's id."""
        return int(self._stats()["added"])

    @property
    def nbytes(self) -> int:
        """Bytes that steps, successors and tables take now. Sampling does not change it."""
        return int(self._stats()["bytes"])

    def stats(self) -> dict[str, Any]:
        """Count what happened so far.

        Returns
        -------
        dict
            ``size`` and ``capacity`` (steps), ``episodes`` (with a stored step), ``open_episodes``, ``added``,
            ``sampled`` and ``evicted`` (steps), ``kept_successors`` (observations that differed from the successor
            given before, and are kept beside the rows), ``bytes``; ``ratio`` (steps sampled for each one added),
            ``mean_age`` (of the stored steps, in steps added since), ``train`` and ``validation`` (steps on either side
            of a split; None without one).
        """
        counts = self._stats()
        sides: tuple[Literal["train", "validation"], ...] = ("train", "validation")
        size, added = counts["size"], counts["added"]
        return {
            **counts,
            "ratio": counts["sampled"] / added if added else 0.0,
            "mean_age": (size - 1) / 2 if size else 0.0,
            **{side: len(BufferView(self, side)) if self._is_split else None for side in sides},
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}/{self.capacity} steps, {self.num_episodes} episodes>"

    # ---- writing -----------------------------------------------------------------------------------------------------

    def add_episode(
        self,
        episode: Any,
        gap: Literal["raise", "cut"] = "raise",
        initial_state: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.int64]:
        """Write an episode, or the next chunk of one.

        Chunks of one episode (the same ``id_``, ``t_started`` where the last one ended) become one episode again,
        however they interleave with others. Lookback rows are not data. A chunk without steps adds none, but its flags
        count.

        Parameters
        ----------
        episode : SingleAgentEpisode
            In list or in array form. Declared extras are read from its extra model outputs of the same names.
        gap : {"raise", "cut"}
            What to do when steps are missing between the last chunk and this one: refuse, or close what there is as
            truncated and begin an episode with missing history (its ``t`` counts on, ``is_first`` stays false).
        initial_state : mapping, optional
            ``{"state_in": value}``: the recurrent state before the chunk's first step, for a chunk without lookback.
            The extra ``state_in`` is the state before each step; where the module gave only ``state_out``, step t gets
            that of step t - 1, out of the chunk or its lookback.

        Returns
        -------
        ndarray, shape (T,), int64
            The ids of the steps.

        Raises
        ------
        ValueError
            A chunk that was added before, one after a gap, or data that do not fit the spaces. Nothing has changed
            then.

        Notes
        -----
        O(T), one copy a column. An open episode whose steps are all evicted is remembered by its next ``t`` alone; at
        most ``capacity`` such, the oldest forgotten first.
        """
        where = "ReplayBuffer.add_episode"
        if gap not in ("raise", "cut"):
            raise ValueError(f"{where}: gap must be 'raise' or 'cut', got {gap!r}")
        if not all(hasattr(episode, name) for name in ("id_", "t_started", "is_numpy", "get_observations")):
            raise TypeError(f"{where}: episode must be a SingleAgentEpisode or read like one, got {episode!r}")
        steps = len(episode)
        observations = actions = rewards = extras = None
        if steps:
            form = _as_is if episode.is_numpy else _batched
            observations = form("observation", episode.get_observations(slice(0, steps + 1)))
            actions = form("action", episode.get_actions(slice(0, steps)))
            rewards = form("reward", episode.get_rewards(slice(0, steps)))
            extras = {name: _extra(episode, name, steps, form, initial_state or {}) for name in self._extras}
        return self._add_chunk(
            observations,
            actions,
            rewards,
            extras,
            steps,
            episode.id_,
            episode.t_started,
            bool(episode.is_terminated),
            bool(episode.is_truncated),
            gap == "cut",
        )

    def end_episode(self, stream: int | str = 0) -> bool:
        """Close the open episode of a stream as truncated: for a reset from outside.

        Parameters
        ----------
        stream : int or str
            The stream's number, or the ``id_`` of an episode added in chunks.

        Returns
        -------
        bool
            Whether an episode was open.
        """
        return self._end_episode(stream)

    def set(self, ids: npt.ArrayLike, field: str, values: Any) -> None:
        """Overwrite one field of stored steps.

        Parameters
        ----------
        ids : int array, shape (K,)
            Of live steps; the last of duplicates wins.
        field : str
            ``"observation"``, ``"action"``, ``"reward"``, an extra's name, or a leaf's path such as
            ``"observation/camera"``. Flags cannot be set.
        values : array, shape (K, ...), nested as the field

        Raises
        ------
        IndexError
            An id that is stale or was never given. Nothing has changed then.
        ValueError
            An unknown field, or values that do not fit.

        Notes
        -----
        The observation of step t is also what step t-1 leads to: setting it changes that step's ``next_observations``
        as well, unless that one was given another successor.
        """
        self._set(ids, field, values)

    # ---- sides -------------------------------------------------------------------------------------------------------

    def split(
        self, validation: float = 0.1, seed: int = 0, *, block: int | None = None, gap: int = 0
    ) -> tuple[BufferView, BufferView]:
        """Hold episodes out: part the buffer, for good, into a training and a validation side.

        Parameters
        ----------
        validation : float in (0, 0.5]
            One of every k = round(1 / validation) episodes, counted as they are born, is held out whole. Which one of
            the k is random.
        seed : int
            Of that choice.
        block : int, optional
            For tasks that never end: split time instead. Steps [0, block) of an episode are one unit, the next ``gap``
            are on no side, and so on. To be asked for before the first step is added.
        gap : int
            Unused steps behind each block, so that neighbours in time do not lie on both sides.

        Returns
        -------
        train, validation : BufferView
            They sample from their side only. The buffer itself then refuses to, because that would leak.

        Raises
        ------
        ValueError
            A share out of range, another split than before, or blocks after the first step.

        Notes
        -----
        Sides are decided at birth, by the seed and the episode's place in the order of births: they stay as they are
        while the buffer grows and wraps, and in the state. Pieces of one stream without a declared end between them
        (a mismatch, a gap) stay on one side. No window crosses. O(episodes).
        """
        where = "ReplayBuffer.split"
        groups = split_groups(where, validation)
        seed = split_seed(where, seed)
        for name, value, least in (("block", block, 1), ("gap", gap, 0)):
            if value is None and name == "block":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{where}: {name} must be an integer, got {value!r}")
            if not least <= value < 2**58:
                raise ValueError(f"{where}: {name} must be in [{least}, 2**58), got {value!r}")
        if block is None and gap:
            raise ValueError(f"{where}: gap must be 0 without block, got {gap!r}")
        self._split(groups, seed, int(block or 0), int(gap))
        return BufferView(self, "train"), BufferView(self, "validation")

    # ---- batches -----------------------------------------------------------------------------------------------------

    def batches(
        self,
        batch_size: int,
        epochs: int | None = None,
        prefetch: int = 2,
        *,
        length: int | None = None,
        **options: Any,
    ) -> Batches:
        """Iterate over batches that a thread draws ahead; see ``Batches``.

        Parameters
        ----------
        batch_size : int
            B, at least 1.
        epochs : int, optional
            Every stored step so many times, in a random order; by default batches without end, as
            ``sample_transitions`` draws them.
        prefetch : int
            Batches to be ready ahead of their use; 0: no thread.
        length : int, optional
            Sequences of so many steps instead of transitions.
        **options
            More arguments of ``sample_transitions`` or ``sample_sequences``.

        Returns
        -------
        Batches
            An iterator, to be closed with ``close()`` or by a ``with`` block.
        """
        return Batches(self, batch_size, epochs, prefetch, length=length, options=options)

    def _sampling_view(self) -> BufferView:
        """Return this buffer with a generator of its own, seeded from the buffer's."""
        if self._is_split:
            raise ValueError(
                "ReplayBuffer.batches: a buffer that was split must be sampled through one of its views, got a call on "
                "the whole"
            )
        return BufferView(self, "any", own_generator=True)

    # ---- state -------------------------------------------------------------------------------------------------------

    def iter_state(self, max_bytes: int = _PART_BYTES) -> Iterator[dict[str, Any]]:
        """Yield the state in parts, so that it need not fit in memory twice.

        Parameters
        ----------
        max_bytes : int
            About how large a part may be.

        Yields
        ------
        dict
            First a header, then parts that hold the steps by number. ``set_state`` takes the iterator, or a list of
            them.

        Raises
        ------
        RuntimeError
            The buffer was written to in between.
        """
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, np.integer)):
            raise TypeError(f"ReplayBuffer.iter_state: max_bytes must be an integer, got {max_bytes!r}")
        if max_bytes < 1:
            raise ValueError(f"ReplayBuffer.iter_state: max_bytes must be >= 1, got {max_bytes!r}")
        return self._iter_state(int(max_bytes))

    def _iter_state(self, max_bytes: int) -> Iterator[dict[str, Any]]:
        header = self._state_header()
        version = header.pop("_version")
        yield {"version": _STATE_VERSION, **header}
        oldest = max(header["written"] - self.capacity, 0)
        sizes = [np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in header["schema"]]
        row = 2 * sum(sizes) + 32  # at most: every step with a successor of its own
        rows = max(max_bytes // row, 1)
        for begin in range(oldest, header["written"], rows):
            yield self._state_rows(begin, min(rows, header["written"] - begin), version)

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next calls depend on: steps, open episodes, counters, generator.

        Returns
        -------
        dict
            Plain arrays, numbers and strings: content, not layout. See ``iter_state`` for large buffers.
        """
        parts = self.iter_state()
        return {**next(parts), "parts": list(parts)}

    def set_state(self, state: Mapping[str, Any] | Iterable[Mapping[str, Any]], close_open: bool = False) -> None:
        """Take over a state: the next draws are those of the buffer that it came from.

        Parameters
        ----------
        state : dict or iterable of dict
            From ``get_state`` or ``iter_state`` of a buffer with the same capacity and spaces.
        close_open : bool
            Close open episodes as truncated: for environments that were reset meanwhile. By default they go on.

        Raises
        ------
        ValueError
            A state of another schema or capacity, of a newer version, with missing fields or one that contradicts
            itself. The buffer is as it was then.
        """
        where = "ReplayBuffer.set_state"
        if isinstance(state, Mapping):
            if "parts" not in state:
                raise ValueError(f"{where}: state must have the field 'parts', got none")
            header, parts = dict(state), iter(state["parts"])
        else:
            parts = iter(state) if isinstance(state, Iterable) else iter(())
            first = next(parts, None)
            if not isinstance(first, Mapping):
                raise TypeError(f"{where}: state must be a dict or an iterable of dicts, got {state!r}")
            header = dict(first)
        version = header.get("version")
        if version is None:
            raise ValueError(f"{where}: state must have the field 'version', got {sorted(map(str, header))}")
        if version != _STATE_VERSION:
            raise ValueError(f"{where}: state must be of version {_STATE_VERSION}, got {version!r}")
        schema = [tuple(field) for field in self._state_header()["schema"]]
        given = [tuple(field) for field in header.get("schema", ())]
        if given != schema:
            raise ValueError(f"{where}: state must have the fields {schema}, got {given}")
        self._set_state(header, parts, close_open)

    def _options(self) -> dict[str, Any]:
        """Return what another buffer like this one is made with."""
        return {
            "capacity": self.capacity,
            "observation_space": self._observation_space,
            "action_space": self._action_space,
            "device": None if self._device is None else str(self._device),
            "seed": 0,
            "extras": self._extras,
            "cast": self._cast,
            "on_mismatch": self._on_mismatch,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self._options()), self.get_state()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.set_state(state)


def _unpickle(kind: type[ReplayBuffer], options: dict[str, Any]) -> ReplayBuffer:
    return kind(**options)


def _seed_words(seed: int | Sequence[int] | None) -> list[int]:
    """Spread a seed over the generator's four words; later numbers of a sequence are a spawn key."""
    if seed is None:
        sequence = np.random.SeedSequence()
    else:
        numbers = tuple(seed) if isinstance(seed, (tuple, list)) else (seed,)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
                raise TypeError(f"ReplayBuffer: seed must be None, an int >= 0 or a tuple of such, got {seed!r}")
        if not numbers or min(numbers) < 0:
            raise ValueError(f"ReplayBuffer: seed must be an int >= 0 or a tuple of such, got {seed!r}")
        sequence = np.random.SeedSequence(int(numbers[0]), spawn_key=tuple(int(n) for n in numbers[1:]))
    return [int(word) for word in sequence.generate_state(4, np.uint64)]


def _as_is(name: str, values: Any) -> Any:
    return values


def _batched(name: str, values: Any) -> Any:
    try:
        return batch(values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"ReplayBuffer.add_episode: {name} must have one structure and shape, got {error}") from None


def _extra(episode: Any, name: str, steps: int, form: Any, initial_state: Mapping[str, Any]) -> Any:
    if name == "state_in" and name not in episode.extra_model_outputs:
        return _states_before(episode, steps, initial_state)
    try:
        return form(name, episode.get_extra_model_outputs(name, slice(0, steps)))
    except KeyError:
        raise ValueError(
            f"ReplayBuffer.add_episode: extras must be among the extra model outputs, got none named {name!r}"
        ) from None


def _states_before(episode: Any, steps: int, initial_state: Mapping[str, Any]) -> Any:
    """Return the state before each step: what came out of the step before it."""
    where = "ReplayBuffer.add_episode"
    if STATE_OUT not in episode.extra_model_outputs and (steps > 1 or "state_in" not in initial_state):
        raise ValueError(
            f"{where}: extras must be among the extra model outputs, got neither 'state_in' nor 'state_out'"
        )

    def initial() -> Any:
        if "state_in" not in initial_state:
            raise ValueError(f"{where}: initial_state must have 'state_in' for a chunk without lookback, got none")
        return initial_state["state_in"]

    return states_before(episode, initial, where, unseen=initial)
