"""Batches out of several buffers, with an exact share of each."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ringback._core import BATCH_FIELDS, Sequences, Transitions
from ringback.episodes.structure import map_structure, rebuild
from ringback.replay.batch_fields import batch_of, fields_of
from ringback.replay.batches import Batches

if TYPE_CHECKING:
    import torch

__all__ = ["Mix", "mix"]

_REMEMBERED = 16  # kinds of batches whose shapes are remembered
# What a batch of windows has once a window, also where time comes first.
_ONCE_A_WINDOW = frozenset({"start_ids", "lengths", "burn_in_lengths", "weights", "start_state", "sources"})
_Batch = TypeVar("_Batch", Transitions, Sequences)


def mix(sources: Iterable[tuple[Any, float]]) -> Mix:
    """Sample from several buffers at once, such as a fixed data set and what the agent sees now.

    Parameters
    ----------
    sources : iterable of (buffer, float)
        Buffers (or views of a split, but one of each pair) with the same spaces, extras and device, and the share that
        each has in a batch; the shares are above 0 and sum to 1.

    Returns
    -------
    Mix

    Raises
    ------
    ValueError
        If a share is not above 0, or they do not sum to 1 within rounding.

    Examples
    --------
    >>> from ringback import ReplayBuffer
    >>> offline, online = (ReplayBuffer(100, 1, 1, seed=k) for k in range(2))
    >>> for t in range(10):
    ...     _ = offline.add([-t], [0], 0.0, [-t - 1], False)
    ...     _ = online.add([t], [0], 1.0, [t + 1], False)
    >>> batch = mix([(offline, 0.25), (online, 0.75)]).sample_transitions(8)
    >>> batch.sources.tolist(), batch.rewards.ravel().tolist()
    ([0, 0, 1, 1, 1, 1, 1, 1], [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """
    return Mix(sources)


class Mix:
    """Draws from several buffers in fixed shares; :func:`mix` makes one.

    Parameters
    ----------
    sources : iterable of (buffer, float)
        See :func:`mix`.

    Notes
    -----
    The rows of a batch are ordered by source. How many each gives is exact: the whole part of its share of the batch,
    then one row each for those with the largest remainders, the earlier one if two are equal. A share that is too small
    for a row in a batch of this size gives none.

    Every buffer draws from its own generator, so a mix gives what its buffers would give. Once the shapes of a kind of
    batch are known, its arrays are allocated once and every buffer writes its rows into them; the first batch of a
    kind, batches with time first and batches on another device than the CPU are joined by a copy.
    """

    def __init__(self, sources: Iterable[tuple[Any, float]]) -> None:
        pairs = list(sources)
        if not pairs:
            raise ValueError("mix: sources must hold a buffer, got none")
        for k, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"mix: sources[{k}] must be a pair of buffer and share, got {pair!r}")
            buffer, share = pair
            if isinstance(buffer, Mix) or not hasattr(buffer, "sample_transitions"):
                raise TypeError(f"mix: sources[{k}] must be a replay buffer, got {buffer!r}")
            if isinstance(share, bool) or not isinstance(share, (int, float, np.number)):
                raise TypeError(f"mix: the share of sources[{k}] must be a number, got {share!r}")
            if not (share > 0 and math.isfinite(share)):
                raise ValueError(f"mix: the share of sources[{k}] must be > 0, got {share!r}")
        total = math.fsum(share for _, share in pairs)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"mix: shares must sum to 1, got {total:g}")
        self._buffers = tuple(buffer for buffer, _ in pairs)
        self._shares = tuple(float(share) / total for _, share in pairs)
        devices = {str(_device(buffer)) for buffer in self._buffers}
        if len(devices) > 1:
            raise ValueError(f"mix: sources must have one device, got {sorted(devices)}")
        self._fills = devices <= {"None", "cpu"}
        self._templates: dict[Any, dict[str, Any]] = {}
        self._counts: dict[int, tuple[int, ...]] = {}

    @property
    def buffers(self) -> tuple[Any, ...]:
        """The buffers, in order: ``batch.sources`` holds indices of this tuple."""
        return self._buffers

    @property
    def shares(self) -> tuple[float, ...]:
        """Their shares, in order; they sum to 1."""
        return self._shares

    @property
    def device(self) -> str | torch.device | None:
        """Where batches go as tensors; None: they are NumPy arrays."""
        device: str | torch.device | None = _device(self._buffers[0])
        return device

    def __repr__(self) -> str:
        parts = ", ".join(f"{share:g} of {buffer!r}" for buffer, share in zip(self._buffers, self._shares, strict=True))
        return f"<Mix of {parts}>"

    def counts(self, batch_size: int) -> tuple[int, ...]:
        """Say how many rows each buffer gives to a batch.

        Parameters
        ----------
        batch_size : int
            B, at least 1.

        Returns
        -------
        tuple of int
            They sum to B.
        """
        counted = self._counts.get(batch_size) if type(batch_size) is int else None
        if counted is not None:
            return counted
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
            raise TypeError(f"Mix.counts: batch_size must be an integer, got {batch_size!r}")
        if batch_size < 1:
            raise ValueError(f"Mix.counts: batch_size must be >= 1, got {batch_size}")
        exact = np.array(self._shares) * int(batch_size)
        counts = np.floor(exact + 1e-9).astype(np.int64)
        missing = int(batch_size) - int(counts.sum())
        counts[np.argsort(np.round(counts - exact, 9), kind="stable")[:missing]] += 1
        if len(self._counts) >= _REMEMBERED:
            self._counts.clear()
        self._counts[int(batch_size)] = tuple(counts.tolist())
        return self._counts[int(batch_size)]

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def sample_transitions(
        self,
        batch_size: int,
        n_step: int | tuple[int, int] = 1,
        gamma: float | None = None,
        replace: bool = False,
        out: Transitions | Mapping[str, Any] | None = None,
        *,
        stack: int | Mapping[str, int] | None = None,
        stack_fill: str | float = "first",
        beta: float | None = None,
    ) -> Transitions:
        """Draw single steps of all buffers.

        Parameters
        ----------
        batch_size : int
            B, at least 1.
        n_step, gamma, replace, stack, stack_fill
            As for a buffer's ``sample_transitions``, the same for all.
        out : Transitions or mapping, optional
            Arrays to fill, of all B rows: an earlier batch, or some fields by name.
        beta : float, optional
            For the prioritised buffers among them.

        Returns
        -------
        Transitions
            With ``sources``, (B,) int64: the index of each row's buffer. ``weights`` are there if a buffer is
            prioritised; the rows of the others have weight 1.

        Raises
        ------
        ValueError
            If a buffer cannot give its rows; the message names it. Buffers before it have drawn by then.
        """
        options = _given({"n_step": (n_step, 1), "gamma": (gamma, None), "replace": (replace, False)})
        options |= _given({"stack": (stack, None), "stack_fill": (stack_fill, "first")})
        return self._sample("sample_transitions", Transitions, batch_size, out, options, beta)

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        replace: bool = False,
        out: Sequences | Mapping[str, Any] | None = None,
        *,
        burn_in: int = 0,
        pad: bool = False,
        period: int = 1,
        n_step: int = 1,
        gamma: float | None = None,
        stack: int | Mapping[str, int] | None = None,
        stack_fill: str | float = "first",
        cross_episodes: bool = False,
        layout: str = "step",
        next_observations: bool = False,
        time_major: bool = False,
        start_state: str | None = None,
        beta: float | None = None,
    ) -> Sequences:
        """Draw windows of all buffers.

        Parameters
        ----------
        batch_size : int
            B, at least 1.
        length, replace, burn_in, pad, period, n_step, gamma, stack, stack_fill
            As for a buffer's ``sample_sequences``, the same for all.
        cross_episodes, layout, next_observations, time_major, start_state
            Likewise.
        out : Sequences or mapping, optional
            Arrays to fill, of all B windows: an earlier batch, or some fields by name.
        beta : float, optional
            For the prioritised buffers among them.

        Returns
        -------
        Sequences
            With ``sources``, (B,) int64, as in :meth:`sample_transitions`.

        Raises
        ------
        ValueError
            If a buffer cannot give its windows; the message names it. Buffers before it have drawn by then.
        """
        options: dict[str, Any] = {"length": length}
        options |= _given(
            {
                "replace": (replace, False),
                "burn_in": (burn_in, 0),
                "pad": (pad, False),
                "period": (period, 1),
                "n_step": (n_step, 1),
                "gamma": (gamma, None),
                "stack": (stack, None),
                "stack_fill": (stack_fill, "first"),
                "cross_episodes": (cross_episodes, False),
                "layout": (layout, "step"),
                "next_observations": (next_observations, False),
                "time_major": (time_major, False),
                "start_state": (start_state, None),
            }
        )
        return self._sample("sample_sequences", Sequences, batch_size, out, options, beta)

    def _sample(
        self, method: str, kind: type[_Batch], batch_size: int, out: Any, options: dict[str, Any], beta: float | None
    ) -> _Batch:
        where = f"Mix.{method}"
        counts = self.counts(batch_size)
        given = _fields_given(out, kind, where)
        time_first = bool(options.get("time_major", False))
        key = (method, counts, repr(options), beta is None)
        template = self._templates.get(key) if self._fills and not time_first else None
        if template is None:
            parts = [self._draw(where, k, count, None, options, beta) for k, count in enumerate(counts) if count]
            batch = self._joined(kind, parts, counts, time_first, given, where)
            if len(self._templates) >= _REMEMBERED:
                self._templates.clear()
            self._templates[key] = {
                name: map_structure(_Empty, value) for name, value in batch.items() if value is not None
            }
        else:
            batch = dict.fromkeys(BATCH_FIELDS[kind.__name__])
            for name, value in template.items():
                batch[name] = _made(value, given.get(name), name, where)
            low = 0
            for k, count in enumerate(counts):
                if not count:
                    continue
                rows = slice(low, low + count)
                low += count
                part = {
                    name: map_structure(operator.itemgetter(rows), value)
                    for name, value in batch.items()
                    if value is not None and name != "sources"
                }
                drawn = self._draw(where, k, count, part, options, beta)
                for name, value in part.items():
                    _settle(value, getattr(drawn, name))
                batch["sources"][rows] = k
        return batch_of(kind, batch)

    def _draw(self, where: str, k: int, count: int, out: Any, options: dict[str, Any], beta: float | None) -> Any:
        buffer = self._buffers[k]
        if beta is not None and _is_prioritized(buffer):
            options = {**options, "beta": beta}
        try:
            return getattr(buffer, where.removeprefix("Mix."))(count, out=out, **options)
        except ValueError as error:
            raise ValueError(
                f"{where}: sources[{k}] must give {count} rows for its share of {self._shares[k]:g}, got: {error}"
            ) from error

    def _joined(
        self, kind: type[Any], parts: list[Any], counts: tuple[int, ...], time_first: bool, given: Any, where: str
    ) -> dict[str, Any]:
        used = [k for k, count in enumerate(counts) if count]
        batch: dict[str, Any] = {}
        for name in BATCH_FIELDS[kind.__name__]:
            values = [getattr(part, name) for part in parts]
            if name == "sources":
                batch[name] = self._sources(counts, batch["ids"], given.get(name), where)
                continue
            if name == "weights" and any(value is not None for value in values):
                like = next(value for value in values if value is not None)
                values = [
                    _ones(like, counts[k]) if value is None else value for k, value in zip(used, values, strict=True)
                ]
            axis = 1 if time_first and name not in _ONCE_A_WINDOW else 0
            batch[name] = _join(values, axis, name, used, where)
            if given.get(name) is not None and batch[name] is not None:
                batch[name] = _copied(batch[name], given[name], name, where)
        return batch

    def _sources(self, counts: tuple[int, ...], ids: Any, given: Any, where: str) -> Any:
        numbers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        sources = numbers if isinstance(ids, np.ndarray) else ids.new_tensor(numbers)
        return sources if given is None else _copied(sources, given, "sources", where)

    def batches(self, batch_size: int, prefetch: int = 2, *, length: int | None = None, **options: Any) -> Batches:
        """Iterate over batches without end, drawn ahead by a thread.

        Parameters
        ----------
        batch_size : int
            B, at least 1.
        prefetch : int, default 2
            Batches to keep ready; 0: no thread.
        length : int, optional
            Give sequences of so many steps instead of transitions.
        **options
            More arguments for :meth:`sample_transitions` or :meth:`sample_sequences`.

        Returns
        -------
        Batches
            See there. Each buffer draws from a generator that is forked from its own here and now.
        """
        return Batches(self, batch_size, None, prefetch, length=length, options=options)

    def _sampling_view(self) -> Mix:
        views = [buffer._sampling_view() for buffer in self._buffers]
        return Mix(zip(views, self._shares, strict=True))

    # ---- priorities --------------------------------------------------------------------------------------------------

    def update_priorities(self, batch: Transitions | Sequences | tuple[Any, Any], abs_td: Any) -> int:
        """Give the priorities of a batch to the buffers that its rows came from.

        Parameters
        ----------
        batch : Transitions, Sequences, or pair of arrays (ids, sources), shape (B,) each, int64
            Of this mix. For windows the ids are ``start_ids``.
        abs_td : array or tensor, shape (B,) or (B, 1), float
            Absolute TD errors, unweighted. Those of buffers without priorities go nowhere.

        Returns
        -------
        int
            How many ids were stale, and skipped.

        Raises
        ------
        ValueError
            If a number is negative, NaN or infinite, or the shapes do not fit. No buffer has changed then.
        """
        where = "Mix.update_priorities"
        if isinstance(batch, (Transitions, Sequences)):
            ids, sources = (batch.start_ids if isinstance(batch, Sequences) else batch.ids), batch.sources
            if sources is None:
                raise ValueError(f"{where}: batch must say its sources, got one that does not come from a mix")
        elif isinstance(batch, (tuple, list)) and len(batch) == 2:
            ids, sources = batch
        else:
            raise TypeError(f"{where}: batch must be a batch or a pair (ids, sources), got {batch!r}")
        ids, sources, errors = _as_array(ids), _as_array(sources), _as_array(abs_td)
        if ids.ndim != 1 or sources.shape != ids.shape:
            raise ValueError(f"{where}: ids and sources must have shape (B,), got {ids.shape} and {sources.shape}")
        if sources.dtype.kind not in "iu" or not ((sources >= 0) & (sources < len(self._buffers))).all():
            raise ValueError(f"{where}: sources must be integers in [0, {len(self._buffers)}), got {sources!r}")
        if errors.dtype.kind not in "fiu":
            raise TypeError(f"{where}: abs_td must hold real numbers, got dtype {errors.dtype}")
        if errors.shape not in (ids.shape, (*ids.shape, 1)):
            raise ValueError(f"{where}: abs_td must have shape {ids.shape} or {(*ids.shape, 1)}, got {errors.shape}")
        errors = errors.reshape(-1).astype(np.float64)
        fine = np.isfinite(errors) & (errors >= 0)
        if not fine.all():
            raise ValueError(f"{where}: abs_td must be finite and >= 0, got {float(errors[~fine][0])!r}")
        skipped = 0
        for k, buffer in enumerate(self._buffers):
            rows = sources == k
            if rows.any() and _takes_updates(buffer):
                skipped += int(buffer.update_priorities(ids[rows], errors[rows]))
        return skipped


class _Empty:
    """How to make an array like one that was seen, without keeping that one."""

    def __init__(self, leaf: Any) -> None:
        self._shape = tuple(leaf.shape)
        self._like = np.empty(0, leaf.dtype) if isinstance(leaf, np.ndarray) else leaf.new_empty(0)

    def make(self) -> Any:
        if isinstance(self._like, np.ndarray):
            return np.empty(self._shape, self._like.dtype)
        return self._like.new_empty(self._shape)

    def take(self, given: Any, path: str, where: str) -> Any:
        """Check the shape and dtype of the caller's array; whatever else may be wrong, the buffers say."""
        if not hasattr(given, "shape") or not hasattr(given, "dtype"):
            raise TypeError(f"{where}: out: {path} must be an array or a CPU tensor, got {given!r}")
        want, got = ((tuple(x), str(y).removeprefix("torch.")) for x, y in (self._form(), (given.shape, given.dtype)))
        if want != got:
            raise ValueError(
                f"{where}: out: {path} must have shape {want[0]} and dtype {want[1]}, got {got[0]} and {got[1]}"
            )
        return given

    def _form(self) -> tuple[tuple[int, ...], Any]:
        return self._shape, self._like.dtype


def _made(template: Any, given: Any, path: str, where: str) -> Any:
    """Make the arrays of one field, or take the caller's."""
    if isinstance(template, _Empty):
        return template.make() if given is None else template.take(given, path, where)
    if given is None:
        return map_structure(operator.methodcaller("make"), template)
    paths = [(key, f"{path}/{key}") for key in (template if isinstance(template, dict) else range(len(template)))]
    try:
        parts = [_made(template[key], given[key], at, where) for key, at in paths]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"{where}: out: {path} must have the structure of the batch, got {given!r}") from None
    return rebuild(template, parts)


def _settle(rows: Any, drawn: Any) -> None:
    """Copy what a buffer did not write in place; weights that it does not know are 1."""
    if isinstance(rows, dict):
        for name, part in rows.items():
            _settle(part, drawn[name])
    elif isinstance(rows, tuple):
        for part, other in zip(rows, drawn, strict=True):
            _settle(part, other)
    elif drawn is not rows:
        rows[...] = 1 if drawn is None else drawn


def _device(buffer: Any) -> Any:
    return getattr(getattr(buffer, "buffer", buffer), "device", None)


def _is_prioritized(buffer: Any) -> bool:
    return hasattr(getattr(buffer, "buffer", buffer), "priorities")


def _takes_updates(buffer: Any) -> bool:
    return _is_prioritized(buffer) and getattr(buffer, "side", "") != "validation"


def _given(options: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Keep the options that are not the default."""
    return {
        name: value
        for name, (value, default) in options.items()
        if value is not default and (type(value) is not type(default) or value != default)
    }


def _fields_given(out: Any, kind: type[Any], where: str) -> dict[str, Any]:
    names = BATCH_FIELDS[kind.__name__]
    if out is None:
        return {}
    if isinstance(out, kind):
        return fields_of(out)
    if not isinstance(out, Mapping):
        raise TypeError(f"{where}: out must be a dict of arrays by field name, or an earlier batch, got {out!r}")
    unknown = [name for name in out if name not in names]
    if unknown:
        raise ValueError(f"{where}: out must have fields of the batch only, got {unknown[0]!r}")
    return dict(out)


def _join(values: list[Any], axis: int, path: str, used: list[int], where: str) -> Any:
    """Put the same field of several batches behind one another."""
    first = values[0]
    for k, value in zip(used, values, strict=True):
        if _form(value, axis) != _form(first, axis):
            raise ValueError(
                f"{where}: sources[{k}] must give {path} as sources[{used[0]}] does ({_form(first, axis)}), "
                f"got {_form(value, axis)}"
            )
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: _join([value[key] for value in values], axis, f"{path}/{key}", used, where) for key in first}
    if isinstance(first, tuple):
        return tuple(_join([value[k] for value in values], axis, f"{path}/{k}", used, where) for k in range(len(first)))
    if isinstance(first, np.ndarray):
        return np.concatenate(values, axis=axis)
    import torch

    return torch.cat(values, dim=axis)


def _form(value: Any, axis: int) -> str:
    """Describe what must be the same in all sources."""
    if value is None:
        return "None"
    if isinstance(value, dict):
        return f"a dict with the keys {list(value)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    shape = ["…" if k == axis else str(n) for k, n in enumerate(value.shape)]
    return f"({', '.join(shape)}) {value.dtype}"


def _copied(value: Any, given: Any, path: str, where: str) -> Any:
    """Copy a field into the caller's array for it, and answer with that one."""
    if isinstance(value, dict):
        return {key: _copied(part, given[key], f"{path}/{key}", where) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(part, given[k], f"{path}/{k}", where) for k, part in enumerate(value))
    target = given if isinstance(given, np.ndarray) or not hasattr(given, "numpy") else given.numpy()
    source = value if isinstance(value, np.ndarray) else value.cpu().numpy()
    if not isinstance(target, np.ndarray):
        raise TypeError(f"{where}: out: {path} must be an array or a CPU tensor, got {given!r}")
    if (target.shape, target.dtype) != (source.shape, source.dtype):
        raise ValueError(
            f"{where}: out: {path} must have shape {source.shape} and dtype {source.dtype}, "
            f"got {target.shape} and {target.dtype}"
        )
    target[...] = source
    return given


def _ones(like: Any, count: int) -> Any:
    shape = (count, *like.shape[1:])
    return np.ones(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_ones(shape)


def _as_array(values: Any) -> npt.NDArray[Any]:
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
