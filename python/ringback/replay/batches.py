"""A stream of batches, drawn ahead of their use by a thread."""

from __future__ import annotations

import atexit
import inspect
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Batches"]


class Batches:
    """Iterates over batches of a replay buffer; ``buffer.batches(...)`` makes one.

    Parameters
    ----------
    buffer : ReplayBuffer, view of a split, or Mix
        Where batches come from. Draws come from a generator that is forked from the buffer's here and now: they do not
        depend on what else is sampled, nor does anything else depend on how far ahead this has drawn.
    batch_size : int
        B, at least 1.
    epochs : int, optional
        End after every step that is stored was given so many times. Each epoch takes the steps that are there when it
        begins, in a random order; its last batch may be shorter. Steps that are evicted before their turn are left out
        and counted in :attr:`dropped`. Default: batches without end, drawn as the buffer draws them.
    prefetch : int, default 2
        Batches that a thread keeps ready. 0: no thread, each is drawn when it is asked for.
    length : int, optional
        Give sequences of so many steps (``sample_sequences``) instead of transitions.
    options : mapping, optional
        More arguments for ``sample_transitions`` or ``sample_sequences``; with `epochs`, for ``get``.

    Raises
    ------
    TypeError, ValueError
        If a number is out of range, an option unknown, or `epochs` is asked for with sequences.

    Notes
    -----
    Batches come in the order in which they were drawn, and while nothing is added to the buffer they are the same for
    every `prefetch`. If the buffer is written to meanwhile, a batch shows it as it was when the batch was drawn, up to
    `prefetch` batches ago.

    The thread starts with the first ``next()`` and ends with :meth:`close`, at the end of a ``with`` block, with the
    last epoch, when the iterator is garbage, and at the interpreter's exit. If drawing fails, the error comes up in the
    ``next()`` whose batch it was; the ``next()`` after it tries again. Several threads may call ``next()``. A forked
    child must make an iterator of its own, over a buffer of its own.

    Examples
    --------
    >>> from ringback import ReplayBuffer
    >>> buffer = ReplayBuffer(100, 1, 1, seed=0)
    >>> for t in range(10):
    ...     _ = buffer.add([t], [0], float(t), [t + 1], False)
    >>> with Batches(buffer, 4, epochs=1) as batches:
    ...     rewards = [batch.rewards.ravel() for batch in batches]
    >>> [len(part) for part in rewards], sorted(np.concatenate(rewards).tolist()) == list(range(10))
    ([4, 4, 2], True)
    """

    def __init__(
        self,
        buffer: Any,
        batch_size: int,
        epochs: int | None = None,
        prefetch: int = 2,
        *,
        length: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        where = "batches"
        batch_size = _count(batch_size, "batch_size", 1, where)
        prefetch = _count(prefetch, "prefetch", 0, where)
        given = dict(options or {})
        if "out" in given:
            raise ValueError(f"{where}: out must not be given: batches are drawn ahead, each into arrays of its own")
        if epochs is not None:
            epochs = _count(epochs, "epochs", 1, where)
            if length is not None:
                raise ValueError(f"{where}: epochs must be None with length=, got {epochs}")
        if length is not None:
            given["length"] = _count(length, "length", 1, where)
        seed = _generator_words(buffer)
        view = buffer._sampling_view()  # moves the buffer's generator, so that the next one gets another seed
        draw: Callable[[], tuple[Any, int]]
        sample = view.sample_transitions if length is None else view.sample_sequences
        known = inspect.signature(sample if epochs is None else buffer.get).parameters
        unknown = given.keys() - known.keys()
        if unknown:
            raise TypeError(f"{where}: options must be among {list(known)[1:]}, got {sorted(unknown)}")
        if epochs is not None:
            draw = _Epochs(buffer, batch_size, epochs, given, seed)
        else:
            draw = _Endless(sample, batch_size, given)
        self._what = f"{buffer!r}, {batch_size}, epochs={epochs}, prefetch={prefetch}" + "".join(
            f", {name}={value!r}" for name, value in given.items()
        )
        self._process = os.getpid()
        self._dropped = 0
        self._line = _Line(draw, prefetch)
        # Without a reference to self, or the thread would keep alive what is to end it.
        self._finalizer = weakref.finalize(self, self._line.stop)
        self._finalizer.atexit = False  # _end_all does it, and waits

    @property
    def dropped(self) -> int:
        """Steps that were evicted before their turn in an epoch, up to the last batch given."""
        return self._dropped

    def __repr__(self) -> str:
        return f"Batches({self._what})"

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if os.getpid() != self._process:
            raise RuntimeError("batches must be used by the process that made them, got a call in a forked child")
        batch, dropped = self._line.take()
        self._dropped += dropped
        if batch is None:
            raise StopIteration
        return batch

    def close(self) -> None:
        """End the thread, and wait until it has. A second call does nothing; ``next()`` has no more batches then."""
        self._line.stop()
        self._line.join()

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("batches cannot be pickled; pickle the buffer, and make new ones from it")


class _Endless:
    """Batches as the buffer draws them."""

    def __init__(self, sample: Callable[..., Any], batch_size: int, options: dict[str, Any]) -> None:
        self._sample, self._batch_size, self._options = sample, batch_size, options

    def __call__(self) -> tuple[Any, int]:
        return self._sample(self._batch_size, **self._options), 0


class _Epochs:
    """Every step once, in a random order, and again."""

    def __init__(
        self, buffer: Any, batch_size: int, epochs: int, options: dict[str, Any], seed: npt.NDArray[np.uint64]
    ) -> None:
        self._buffer, self._batch_size, self._options = buffer, batch_size, options
        self._starts = {name: options[name] for name in ("stack",) if name in options}
        self._left = epochs
        self._order: npt.NDArray[np.int64] = np.empty(0, np.int64)  # what is left of this epoch
        self._random = np.random.default_rng(seed)

    def __call__(self) -> tuple[Any, int]:
        dropped = 0
        while True:
            if not len(self._order):
                if not self._left:
                    return None, dropped
                starts = self._buffer.valid_starts(**self._starts)
                if not len(starts):
                    raise ValueError("batches: the buffer must hold a step when an epoch begins, got none")
                self._order = self._random.permutation(starts)
                self._left -= 1
            ids, passed = self._next_live()
            try:
                batch = self._buffer.get(ids, **self._options) if len(ids) else None
            except (IndexError, ValueError):  # a writer was quicker, or what was wrong is something else
                left = ids[np.isin(ids, self._buffer.valid_starts(**self._starts))]
                if len(left) == len(ids):
                    raise
                self._order = np.concatenate((left, self._order[passed:]))
                dropped += passed - len(left)
                continue
            self._order = self._order[passed:]
            dropped += passed - len(ids)
            if batch is not None:
                return batch, dropped

    def _next_live(self) -> tuple[npt.NDArray[np.int64], int]:
        """Return the next ids that are live, at most a batch of them, and how many were passed on the way."""
        stats = getattr(self._buffer, "buffer", self._buffer)._stats()
        oldest = stats["added"] - stats["size"]
        ids, passed = self._order[:0], 0
        while len(ids) < self._batch_size and passed < len(self._order):
            more = self._order[passed : passed + self._batch_size - len(ids)]
            ids, passed = np.concatenate((ids, more[more >= oldest])), passed + len(more)
        return ids, passed


class _Line:
    """What was drawn and not yet taken, and the thread that draws.

    The thread holds on to this and not to `Batches`, which ends it. Nothing here may be touched in a forked child: the
    lock may have been held, and the thread is not there.
    """

    def __init__(self, draw: Callable[[], tuple[Any, int]], prefetch: int) -> None:
        self._draw, self._prefetch = draw, prefetch
        # Re-entrant: garbage collection inside of it may call stop().
        self._condition = threading.Condition(threading.RLock())
        self._ready: deque[tuple[tuple[Any, int], BaseException | None]] = deque()
        self._thread: threading.Thread | None = None
        self._over = False  # stopped, or no batch is left
        self._process = os.getpid()

    def take(self) -> tuple[Any, int]:
        """Return the next batch, or None for the end, and how many steps were dropped before it."""
        with self._condition:
            while not self._ready:
                if self._over:
                    return None, 0
                if not self._prefetch:
                    item = self._draw()
                    self._over = item[0] is None
                    return item
                if self._thread is None:
                    # A daemon, or the interpreter would wait for it before _end_all can stop it.
                    thread = threading.Thread(target=self._run, name="ringback.batches", daemon=True)
                    thread.start()
                    self._thread = thread
                    _running.add(self)
                self._condition.wait()
            item, error = self._ready.popleft()
            self._condition.notify_all()
        if error is not None:
            raise error
        return item

    def _run(self) -> None:
        while self._wait_for_room():
            item: tuple[Any, int] = None, 0
            error: BaseException | None = None
            try:
                item = self._draw()
            except BaseException as raised:
                error = raised
            with self._condition:
                if not self._over:
                    self._ready.append((item, error))
                    self._over = item[0] is None and error is None
                    self._condition.notify_all()
            if error is not None:
                break
            del item  # what waits in line is enough to keep alive
        with self._condition:
            self._thread = None
            _running.discard(self)
            self._condition.notify_all()

    def _wait_for_room(self) -> bool:
        with self._condition:
            while len(self._ready) >= self._prefetch and not self._over:
                self._condition.wait()
            return not self._over

    def stop(self) -> None:
        if os.getpid() == self._process:
            with self._condition:
                self._over = True
                self._ready.clear()
                self._condition.notify_all()

    def join(self) -> None:
        thread = self._thread
        if thread is not None and os.getpid() == self._process and thread is not threading.current_thread():
            thread.join()


_running: set[_Line] = set()


@atexit.register
def _end_all() -> None:
    """End all threads while the interpreter is still whole: one that comes back to it later would crash."""
    lines = list(_running)
    for line in lines:
        line.stop()
    for line in lines:
        line.join()


def _generator_words(buffer: Any) -> npt.NDArray[np.uint64]:
    """Return what the buffer's generator, or those of a mix, are at now."""
    parts = getattr(buffer, "buffers", (buffer,))
    headers = [getattr(part, "buffer", part)._state_header() for part in parts]
    return np.concatenate([header["generator"] for header in headers])


def _count(value: Any, name: str, least: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where}: {name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{where}: {name} must be >= {least}, got {value}")
    return int(value)
