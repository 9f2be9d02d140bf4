"""flashbax: jitted, the buffer's state donated to every call that changes it.

A step is stored once, and a successor is the row behind it; what the row behind an episode's end is worth shows in the
checks. Keys are split inside of the jitted call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import checks
import flashbax
import jax
import numpy as np
import rows
from rows import Pictures, Steps
from work import BATCH, CLIP, CLIPS, LENGTH, SEQUENCES, STACKS, Job, repeat, td_errors, way

PACKAGES = ("flashbax", "jax", "jaxlib", "numpy")
UNSUPPORTED = {"W7": "no n-step sums"}
jax.config.update("jax_cpu_enable_async_dispatch", False)
_cores = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(_cores)})  # XLA starts as many threads as it may use cores
jax.devices()
os.sched_setaffinity(0, _cores)

Tree = dict[str, Any]


def tree(steps: Steps, part: Any) -> Tree:
    """Return some of the steps as a buffer takes them."""
    return {
        "observation": steps.observations[part],
        "action": steps.actions[part],
        "reward": steps.rewards[part],
        "done": steps.terminations[part],
    }


class Held:
    """A buffer with its state and its keys.

    `add` takes chunks along a leading time axis, or whatever the buffer was made for.
    """

    def __init__(self, buffer: Any, example: Tree) -> None:
        self.state = buffer.init(example)
        self.key = jax.random.PRNGKey(0)
        self._add = jax.jit(buffer.add, donate_argnums=0)
        self._set = jax.jit(buffer.set_priorities, donate_argnums=0) if hasattr(buffer, "set_priorities") else None

        def draw(state: Any, key: Any) -> tuple[Any, Any]:
            key, used = jax.random.split(key)
            return buffer.sample(state, used), key

        self._draw = jax.jit(draw)

    def add(self, chunk: Tree) -> None:
        self.state = self._add(self.state, chunk)

    def sample(self) -> Any:
        batch, self.key = self._draw(self.state, self.key)
        return jax.block_until_ready(batch)

    def set_priorities(self, at: Any, priorities: Any) -> None:
        self.state = self._set(self.state, at, priorities)  # type: ignore[misc]


def fill(held: Held, count: int, piece: Callable[[slice], Tree], leading: Callable[[Any], Any], longest: int) -> Held:
    """Write `count` steps in equal chunks, for each length is compiled anew, and the rest one by one."""
    longest = min(longest, count)
    begins = range(0, count - longest + 1, longest)
    for begin in begins:
        held.add(jax.tree.map(leading, piece(slice(begin, begin + longest))))
    for step in range(begins[-1] + longest, count):
        held.add(jax.tree.map(leading, piece(slice(step, step + 1))))
    return held


def flat(size: int, batch: int, make: Any = flashbax.make_flat_buffer, **options: Any) -> Any:
    """Return a flat buffer that is written in sequences."""
    return make(max_length=size, min_length=batch, sample_batch_size=batch, add_sequences=True, **options)


def filled(steps: Steps, held: Held, leading: Callable[[Any], Any] = lambda column: column) -> Held:
    """Write all the steps."""
    return fill(held, len(steps), lambda part: tree(steps, part), leading, len(steps) // 125)


def example(steps: Steps) -> Tree:
    """Return the first step."""
    return jax.tree.map(jax.numpy.asarray, tree(steps, 0))  # type: ignore[no-any-return]


def sampling(steps: Steps, size: int, held: Held) -> Job:
    """Sample transitions and look at them."""

    def look() -> checks.Findings:
        pair = held.sample().experience
        columns = [pair.first[name] for name in ("observation", "action", "reward")]
        columns += [pair.second["observation"], pair.first["done"]]
        return checks.transitions(steps, checks.Live(size, len(steps)), *columns)

    return Job(held.sample, lambda: checks.several(look, 40))


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(size: int, steps: Steps, buffer: Any, chunks: list[Tree]) -> Job:
    """Write the same steps round and round; the first rounds fill the buffer."""
    held = Held(buffer, example(steps))
    run = repeat(held.add, ((chunk,) for chunk in chunks))
    for _ in range(size // len(steps) + 1):
        run()
    return Job(run, sampling(steps, len(steps), held).check, len(chunks))


@way("W1", "add, jitted", "")
def add(size: int) -> Job:
    steps = rows.small_vectors()
    buffer = flashbax.make_flat_buffer(max_length=size, min_length=BATCH, sample_batch_size=BATCH)
    return writer(size, steps, buffer, [tree(steps, i) for i in range(len(steps))])


@way("W2", "add of 16 rows, jitted", "")
def add_streams(size: int) -> Job:
    steps = rows.stream_vectors()
    buffer = flashbax.make_flat_buffer(
        max_length=size, min_length=BATCH, sample_batch_size=BATCH, add_batch_size=rows.STREAMS
    )
    columns = jax.tree.map(rows.side_by_side, tree(steps, slice(None)))
    count = len(columns["reward"])
    return writer(size, steps, buffer, [jax.tree.map(lambda column, i=i: column[i], columns) for i in range(count)])


# ---- transitions -----------------------------------------------------------------------------------------------------


@way("W3", "flat buffer", "jax")
def uniform(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    return sampling(steps, size, filled(steps, Held(flat(size, BATCH), example(steps))))


@way("W6", "prioritised flat buffer (no weights)", "jax")
def priorities(size: int) -> Job:
    steps, errors = rows.mixed_vectors(size), td_errors()
    buffer = flat(size, BATCH, flashbax.make_prioritised_flat_buffer, priority_exponent=checks.ALPHA)
    held = filled(steps, Held(buffer, example(steps)))

    def call() -> Any:
        batch = held.sample()
        held.set_priorities(batch.indices, next(errors))
        return batch

    def check() -> checks.Findings:
        numbers = rows.ring(np.arange(len(steps)), size)
        held.set_priorities(np.arange(size), checks.errors_of(numbers))
        draws = (held.sample() for _ in range(200))
        seen = ((batch.experience.first["observation"], None) for batch in draws)
        return checks.priorities(checks.Live(size, len(steps)), seen)

    return Job(call, check)


# ---- sequences -------------------------------------------------------------------------------------------------------


def trajectories(size: int, batch: int, length: int) -> Any:
    """Return a buffer of one endless row of steps."""
    return flashbax.make_trajectory_buffer(
        add_batch_size=1,
        sample_batch_size=batch,
        sample_sequence_length=length,
        period=1,
        min_length_time_axis=length,
        max_length_time_axis=size,
    )


@way("W5v", "trajectory buffer", "jax")
def windows(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    held = Held(trajectories(size, SEQUENCES, LENGTH), example(steps))
    filled(steps, held, lambda column: column[None])

    def look() -> checks.Findings:
        batch = held.sample().experience
        columns = (batch[name] for name in ("observation", "action", "reward", "done"))
        return checks.sequences(steps, checks.Live(size, len(steps)), *columns)

    return Job(held.sample, lambda: checks.several(look, 20))


@way("W5i", "trajectory buffer", "jax")
def clips(size: int) -> Job:
    of, pictures = rows.picture_line(size), Pictures((64, 64, 3))

    def piece(part: slice) -> Tree:
        number = np.arange(part.start, part.stop)
        rewards = (number % 997).astype(np.float32)
        shown = pictures.draw(of.pictures[part])
        return {"observation": shown, "action": number % 4, "reward": rewards, "done": of.terminations[part]}

    first = jax.tree.map(lambda column: jax.numpy.asarray(column[0]), piece(slice(0, 1)))
    held = Held(trajectories(size, CLIPS, CLIP), first)
    fill(held, len(of), piece, lambda column: column[None], len(of) // 50)

    def look() -> checks.Findings:
        batch = held.sample().experience
        live = checks.Live(size, len(of))
        return checks.picture_sequences(of, pictures, live, batch["observation"], batch["reward"])

    return Job(held.sample, lambda: checks.several(look, 3))


# ---- stacks ----------------------------------------------------------------------------------------------------------


@way("W4", "flat buffer of whole stacks", "jax")
def stacks(size: int) -> Job:
    of, pictures = rows.picture_line(size), Pictures((84, 84))

    def piece(part: slice) -> Tree:
        number = np.arange(part.start, part.stop)
        shown = pictures.draw(rows.stack_numbers(of, number))
        rewards = (number % 997).astype(np.float32)
        return {"observation": shown, "action": number % 4, "reward": rewards, "done": of.terminations[part]}

    first = jax.tree.map(lambda column: jax.numpy.asarray(column[0]), piece(slice(0, 1)))
    held = fill(Held(flat(size, STACKS), first), len(of), piece, lambda column: column, len(of) // 250)

    def look() -> checks.Findings:
        pair = held.sample().experience
        live = checks.Live(size, len(of))
        shown, after = pair.first["observation"], pair.second["observation"]
        return checks.stacks(of, pictures, live, shown, after, pair.first["reward"])

    return Job(held.sample, lambda: checks.several(look, 10))
