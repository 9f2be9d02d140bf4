"""ringback, in the environment that the bench runs in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import checks
import numpy as np
import rows
from gymnasium import spaces
from rows import Pictures, Steps, Timeline
from work import BATCH, CLIP, CLIPS, LENGTH, SEQUENCES, STACKS, Job, repeat, td_errors, way

from ringback import ReplayBuffer

PACKAGES = ("ringback", "numpy", "torch", "gymnasium")


def box(size: int) -> spaces.Box:
    """Return the space of float32 vectors."""
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def fields(steps: Steps) -> zip[tuple[Any, ...]]:
    """Return the arguments of `add`, step by step."""
    return zip(
        steps.observations,
        steps.actions,
        steps.rewards.tolist(),
        steps.next_observations,
        steps.terminations.tolist(),
        steps.truncations.tolist(),
        strict=True,
    )


def filled(size: int, steps: Steps, kind: Callable[..., Any] = ReplayBuffer, **options: Any) -> Any:
    """Return a buffer of `size` that has taken all the steps one by one."""
    buffer = kind(size, box(rows.OBSERVATION), box(rows.ACTION), seed=0, **options)
    for given in fields(steps):
        buffer.add(*given)
    return buffer


@functools.cache
def shared(size: int) -> Any:
    """The buffer of the workloads that only read it."""
    return filled(size, rows.mixed_vectors(size))


@functools.cache
def prepared(steps: Steps) -> list[tuple[Any, ...]]:
    """The arguments of `add`, made before the clock starts."""
    return list(fields(steps))


def forget() -> None:
    """Free what is shared."""
    shared.cache_clear()
    prepared.cache_clear()
    filled_with_pictures.cache_clear()


def live(buffer: Any, steps: int) -> checks.Live:
    """Which steps the buffer must hold."""
    return checks.Live(len(buffer), steps, buffer.total_added - 1)


def transitions(buffer: Any, steps: Steps, sample: Callable[[], Any], n_step: int = 1) -> Job:
    """Sample transitions and look at them."""

    def look() -> checks.Findings:
        return checks.transitions(steps, live(buffer, len(steps)), *sample(), n_step=n_step)

    return Job(sample, lambda: checks.several(look, 40))


def sequences(buffer: Any, steps: Steps, sample: Callable[[], Any]) -> Job:
    """Sample sequences and look at them."""

    def look() -> checks.Findings:
        return checks.sequences(steps, live(buffer, len(steps)), *sample())

    return Job(sample, lambda: checks.several(look, 20))


# ---- writing ---------------------------------------------------------------------------------------------------------


@way("W1", "add, positional", "")
def add(size: int) -> Job:
    steps = rows.small_vectors()
    buffer = ReplayBuffer(size, box(4), spaces.Discrete(2), seed=0)
    run = repeat(buffer.add, fields(steps))
    for _ in range(size // len(steps) + 1):
        run()
    return Job(run, transitions(buffer, steps, lambda: buffer.sample_transitions(BATCH)).check, len(steps))


@way("W2", "add_batch, positional", "")
def add_streams(size: int) -> Job:
    steps = rows.stream_vectors()
    buffer = ReplayBuffer(size, box(rows.OBSERVATION), box(rows.ACTION), seed=0)
    columns = (steps.observations, steps.actions, steps.rewards, steps.next_observations)
    flags = (steps.terminations, steps.truncations)
    arguments = list(zip(*map(rows.side_by_side, (*columns, *flags)), strict=True))
    run = repeat(buffer.add_batch, arguments)
    for _ in range(size // len(steps) + 1):
        run()
    check = transitions(buffer, steps, lambda: buffer.sample_transitions(BATCH)).check
    return Job(run, check, len(arguments))


# ---- transitions -----------------------------------------------------------------------------------------------------


@way("W3", "sample_transitions")
@way("W7", "1-step")
def uniform(size: int) -> Job:
    buffer = shared(size)
    return transitions(buffer, rows.mixed_vectors(size), functools.partial(buffer.sample_transitions, BATCH))


@way("W3", "sample_transitions, out=")
def uniform_out(size: int) -> Job:
    buffer = shared(size)
    sample = functools.partial(buffer.sample_transitions, BATCH, out=buffer.sample_transitions(BATCH))
    return transitions(buffer, rows.mixed_vectors(size), sample)


@way("W3", "sample_transitions", "torch")
def uniform_torch(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    buffer = filled(size, steps, device="cpu")
    return transitions(buffer, steps, functools.partial(buffer.sample_transitions, BATCH))


@way("W7", "3-step")
def three_step(size: int) -> Job:
    buffer = shared(size)
    sample = functools.partial(buffer.sample_transitions, BATCH, n_step=rows.N_STEP, gamma=rows.GAMMA)
    return transitions(buffer, rows.mixed_vectors(size), sample, rows.N_STEP)


# ---- priorities ------------------------------------------------------------------------------------------------------


def prioritised(size: int) -> tuple[Any, Callable[[], Any], Callable[[], checks.Findings]]:
    """Return a buffer, a function that samples and updates, and its check."""
    from ringback import PrioritizedReplayBuffer  # type: ignore[attr-defined, unused-ignore]

    steps = rows.mixed_vectors(size)
    buffer = filled(size, steps, PrioritizedReplayBuffer, alpha=checks.ALPHA)
    errors = td_errors()

    def call() -> Any:
        batch = buffer.sample_transitions(BATCH, beta=checks.BETA)
        buffer.update_priorities(batch.ids, next(errors))
        return batch

    def check() -> checks.Findings:
        ids = np.arange(buffer.total_added - size, buffer.total_added)
        buffer.update_priorities(ids, checks.errors_of(ids % len(steps)))
        draws = (buffer.sample_transitions(BATCH, beta=checks.BETA) for _ in range(200))
        return checks.priorities(live(buffer, len(steps)), ((batch[0], batch.weights) for batch in draws))

    return buffer, call, check


@way("W6", "sample, update_priorities")
def priorities(size: int) -> Job:
    _, call, check = prioritised(size)
    return Job(call, check)


# ---- sequences -------------------------------------------------------------------------------------------------------


@way("W5v", "sample_sequences")
def windows(size: int) -> Job:
    buffer = shared(size)
    return sequences(buffer, rows.mixed_vectors(size), functools.partial(buffer.sample_sequences, SEQUENCES, LENGTH))


@way("W5v", "sample_sequences, out=")
def windows_out(size: int) -> Job:
    buffer = shared(size)
    out = buffer.sample_sequences(SEQUENCES, LENGTH)
    sample = functools.partial(buffer.sample_sequences, SEQUENCES, LENGTH, out=out)
    return sequences(buffer, rows.mixed_vectors(size), sample)


@functools.cache
def filled_with_pictures(size: int, shape: tuple[int, ...]) -> tuple[ReplayBuffer, Timeline, Pictures]:
    """Return a buffer of pictures, and what is in it; each picture is made, given and forgotten."""
    of, pictures = rows.picture_line(size), Pictures(shape)
    buffer = ReplayBuffer(size, spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(4), seed=0)
    terminated, truncated = of.terminations.tolist(), of.truncations.tolist()
    for part in of.parts():
        drawn = pictures.draw(np.append(of.pictures[part], of.pictures[part.stop - 1] + 1))
        for step in range(part.start, part.stop):
            now, after = drawn[step - part.start], drawn[step - part.start + 1]
            buffer.add(now, step % 4, float(step % 997), after, terminated[step], truncated[step])
    return buffer, of, pictures


def clips(size: int, into: bool) -> Job:
    """Windows of pictures, into fresh arrays or into the same ones."""
    buffer, of, pictures = filled_with_pictures(size, (64, 64, 3))
    sample = functools.partial(buffer.sample_sequences, CLIPS, CLIP)
    if into:
        sample = functools.partial(sample, out=sample())

    def look() -> checks.Findings:
        batch = sample()
        return checks.picture_sequences(of, pictures, live(buffer, len(of)), batch.observations, batch.rewards)

    return Job(sample, lambda: checks.several(look, 3))


@way("W5i", "sample_sequences")
def clips_fresh(size: int) -> Job:
    return clips(size, False)


@way("W5i", "sample_sequences, out=")
def clips_out(size: int) -> Job:
    return clips(size, True)


# ---- stacks ----------------------------------------------------------------------------------------------------------


def stacks(size: int, shape: tuple[int, int], into: bool = False) -> Job:
    """Stacks of four pictures and what they lead to, into fresh arrays or into the same ones."""
    buffer, of, pictures = filled_with_pictures(size, shape)
    sample: Callable[..., Any] = functools.partial(buffer.sample_transitions, STACKS, stack=rows.STACK)  # type: ignore[call-arg, unused-ignore]
    if into:
        sample = functools.partial(sample, out=sample())

    def look() -> checks.Findings:
        batch = sample()
        answer = (batch.observations, batch.next_observations, batch.rewards)
        return checks.stacks(of, pictures, live(buffer, len(of)), *answer)

    return Job(sample, lambda: checks.several(look, 10))


@way("W4", "stack=4")
def atari(size: int) -> Job:
    return stacks(size, (84, 84))


@way("W4", "stack=4, out=")
def atari_out(size: int) -> Job:
    return stacks(size, (84, 84), into=True)


# ---- growth, and writing between the reads ---------------------------------------------------------------------------

Sampler = tuple[Any, Steps, Job]  # a buffer, what was written to it, and the sampling


def after_one_add(buffer: Any, steps: Steps, sample: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that adds the next of the steps, round and round, and samples."""
    arguments, position, add_one = prepared(steps), 0, buffer.add

    def both() -> Any:
        nonlocal position
        if position == 0:
            buffer.end_episode()  # the last of the steps does not go on with the first
        add_one(*arguments[position])
        position = position + 1 if position + 1 < len(arguments) else 0
        return sample()

    return both


def alone_and_between(workload: str, case: str) -> Callable[[Callable[[int], Sampler]], Callable[[int], Sampler]]:
    """Register a sampler alone, and with one add before each call."""

    def register(make: Callable[[int], Sampler]) -> Callable[[int], Sampler]:
        @way(workload, f"{case}: alone")
        def alone(size: int) -> Job:
            return make(size)[2]

        @way(workload, f"{case}: one add before each")
        def between(size: int) -> Job:
            buffer, steps, job = make(size)
            return Job(after_one_add(buffer, steps, job.run), job.check)

        return make

    return register


@alone_and_between("W8a", "uniform")
def plain_uniform(size: int) -> Sampler:
    steps = rows.mixed_vectors(size)
    buffer = filled(size, steps)
    return buffer, steps, transitions(buffer, steps, functools.partial(buffer.sample_transitions, BATCH))


@alone_and_between("W8a", "3-step")
def plain_three_step(size: int) -> Sampler:
    steps = rows.mixed_vectors(size)
    buffer = filled(size, steps)
    sample = functools.partial(buffer.sample_transitions, BATCH, n_step=rows.N_STEP, gamma=rows.GAMMA)
    return buffer, steps, transitions(buffer, steps, sample, rows.N_STEP)


@alone_and_between("W8a", "prioritised, with its update")
def plain_prioritised(size: int) -> Sampler:
    buffer, call, check = prioritised(size)
    return buffer, rows.mixed_vectors(size), Job(call, check)


def window_sampler(size: int, steps: Steps, length: int, replace: bool = False) -> Sampler:
    """A sampler of windows out of a buffer of its own."""
    buffer = filled(size, steps)
    sample = functools.partial(buffer.sample_sequences, SEQUENCES, length, replace=replace)
    return buffer, steps, sequences(buffer, steps, sample)


@alone_and_between("W8a", "windows of 50")
def plain_windows(size: int) -> Sampler:
    return window_sampler(size, rows.mixed_vectors(size), LENGTH)


@alone_and_between("W8b", "windows of 50, episodes of 20, 0.05 % valid starts")
def rare_windows(size: int) -> Sampler:
    return window_sampler(size, rows.rare_vectors(size, LENGTH), LENGTH, replace=True)


@alone_and_between("W8b", "windows as long as the episodes (200)")
def whole_windows(size: int) -> Sampler:
    return window_sampler(size, rows.equal_vectors(size, 200), 200, replace=size < 10_000)


def validation_view(size: int) -> tuple[ReplayBuffer, Any, Steps]:
    """A buffer of 20-step episodes that keeps one in a hundred for validation."""
    steps = rows.short_vectors(size)
    buffer = ReplayBuffer(size, box(rows.OBSERVATION), box(rows.ACTION), seed=0)
    _, validation = buffer.split(validation=0.01, seed=0)  # type: ignore[attr-defined, unused-ignore]
    for given in fields(steps):
        buffer.add(*given)
    return buffer, validation, steps


@alone_and_between("W8b", "1 % validation view, uniform")
def validation_uniform(size: int) -> Sampler:
    buffer, validation, steps = validation_view(size)
    sample = functools.partial(validation.sample_transitions, BATCH, replace=True)
    return buffer, steps, transitions(buffer, steps, sample)


@alone_and_between("W8b", "1 % validation view, windows of 10")
def validation_windows(size: int) -> Sampler:
    buffer, validation, steps = validation_view(size)
    sample = functools.partial(validation.sample_sequences, SEQUENCES, 10, replace=True)
    return buffer, steps, sequences(buffer, steps, sample)


@way("W8a", "stack=4 of 16×16: alone")
def small_stacks(size: int) -> Job:
    return stacks(size, (16, 16))
