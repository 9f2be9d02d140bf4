"""torchrl: TensorDicts in and out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import checks
import numpy as np
import rows
import torch
from rows import Pictures, Steps, Timeline
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, Sequence, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import (
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
)
from torchrl.envs.transforms import MultiStepTransform
from work import BATCH, CLIP, CLIPS, LENGTH, SEQUENCES, STACKS, Job, repeat, td_errors, way

PACKAGES = ("torchrl", "tensordict", "numpy", "torch")
torch.set_num_threads(1)
CHUNK = 10_000


def tensordict(observations: Any, actions: Any, rewards: Any, successors: Any, terminated: Any, truncated: Any) -> Any:
    """Return steps as an environment of torchrl gives them; successors may be None."""
    count = len(rewards)
    after = {
        "reward": torch.from_numpy(rewards).reshape(count, 1),
        "done": torch.from_numpy(terminated | truncated).reshape(count, 1),
        "terminated": torch.from_numpy(terminated).reshape(count, 1),
        "truncated": torch.from_numpy(truncated).reshape(count, 1),
    }
    if successors is not None:
        after["observation"] = torch.from_numpy(successors)
    now = {"observation": torch.from_numpy(observations), "action": torch.from_numpy(actions)}
    return TensorDict({**now, "next": TensorDict(after, [count])}, [count])


def part_of(steps: Steps, part: slice, successors: bool) -> Any:
    """Return some of the steps."""
    return tensordict(
        steps.observations[part],
        steps.actions[part],
        steps.rewards[part],
        steps.next_observations[part] if successors else None,
        steps.terminations[part],
        steps.truncations[part],
    )


def filled(steps: Steps, size: int, batch: int, successors: bool = True, **options: Any) -> Any:
    """Return a buffer that has taken all the steps."""
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=batch, **options)
    for begin in range(0, len(steps), min(CHUNK, size)):
        buffer.extend(part_of(steps, slice(begin, begin + min(CHUNK, size)), successors))
    return buffer


def look(steps: Steps, live: checks.Live, batch: Any, n_step: int = 1) -> checks.Findings:
    """Look at one batch."""
    after = batch["next"]
    columns = (batch["observation"], batch["action"], after["reward"], after["observation"], after["terminated"])
    return checks.transitions(steps, live, *columns, n_step=n_step)


def sampling(steps: Steps, live: checks.Live, sample: Callable[[], Any], n_step: int = 1) -> Job:
    """Sample transitions and look at them."""
    return Job(sample, lambda: checks.several(lambda: look(steps, live, sample(), n_step), 40))


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(size: int, steps: Steps, columns: list[Any], write: Callable[[Any], Callable[..., None]]) -> Job:
    """Write the same steps round and round; the buffer is filled before."""
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=BATCH)
    for _ in range(size // len(steps) + 1):
        buffer.extend(part_of(steps, slice(None), successors=True))
    run = repeat(write(buffer), zip(*columns, strict=True))
    run()
    check = sampling(steps, checks.Live(len(steps), len(steps)), buffer.sample).check
    return Job(run, check, len(columns[0]))


@way("W1", "add of a TensorDict, built for it", "")
def add(size: int) -> Job:
    def write(buffer: Any) -> Callable[..., None]:
        def one(observation: Any, action: Any, reward: Any, successor: Any, terminated: Any, truncated: Any) -> None:
            after = {
                "observation": torch.from_numpy(successor),
                "reward": torch.tensor([reward]),
                "done": torch.tensor([terminated or truncated]),
                "terminated": torch.tensor([terminated]),
                "truncated": torch.tensor([truncated]),
            }
            now = {"observation": torch.from_numpy(observation), "action": torch.tensor(action)}
            buffer.add(TensorDict({**now, "next": TensorDict(after, [])}, []))

        return one

    steps = rows.small_vectors()
    scalars = [column.tolist() for column in (steps.actions, steps.rewards, steps.terminations, steps.truncations)]
    actions, rewards, terminated, truncated = scalars
    columns = [steps.observations, actions, rewards, steps.next_observations, terminated, truncated]
    return writer(size, steps, columns, write)


@way("W2", "extend by a TensorDict, built for it", "")
def add_streams(size: int) -> Job:
    def write(buffer: Any) -> Callable[..., None]:
        return lambda *given: buffer.extend(tensordict(*given))

    steps = rows.stream_vectors()
    columns = [steps.observations, steps.actions, steps.rewards, steps.next_observations]
    side_by_side = list(map(rows.side_by_side, [*columns, steps.terminations, steps.truncations]))
    return writer(size, steps, side_by_side, write)


# ---- transitions -----------------------------------------------------------------------------------------------------


def uniform(size: int, sampler: Any) -> Job:
    """Sample transitions."""
    steps = rows.mixed_vectors(size)
    return sampling(steps, checks.Live(size, len(steps)), filled(steps, size, BATCH, sampler=sampler).sample)


@way("W3", "RandomSampler", "torch")
def uniform_random(size: int) -> Job:
    return uniform(size, RandomSampler())


@way("W3", "SamplerWithoutReplacement", "torch")
def uniform_without(size: int) -> Job:
    return uniform(size, SamplerWithoutReplacement())


@way("W7", "MultiStepTransform, at writing", "torch")
def three_step(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    buffer = filled(steps, size, BATCH, transform=MultiStepTransform(rows.N_STEP, rows.GAMMA))
    live = checks.Live(size + rows.N_STEP, len(steps))  # the newest n wait for their sums outside of the ring
    return sampling(steps, live, buffer.sample, rows.N_STEP)


@way("W6", "PrioritizedSampler", "torch")
def priorities(size: int) -> Job:
    try:
        sampler = PrioritizedSampler(size, alpha=checks.ALPHA, beta=checks.BETA)
    except RuntimeError as error:
        raise RuntimeError(f"its C++ extension does not load with torch {torch.__version__}: {error}") from error
    steps, errors = rows.mixed_vectors(size), td_errors()
    buffer = filled(steps, size, BATCH, sampler=sampler)

    def call() -> Any:
        batch = buffer.sample()
        buffer.update_priority(batch["index"], torch.from_numpy(next(errors)))
        return batch

    def check() -> checks.Findings:
        numbers = rows.ring(np.arange(len(steps)), size)
        buffer.update_priority(torch.arange(size), torch.from_numpy(checks.errors_of(numbers)))
        draws = (buffer.sample() for _ in range(200))
        seen = ((batch["observation"], batch["priority_weight"]) for batch in draws)
        return checks.priorities(checks.Live(size, len(steps)), seen)

    return Job(call, check)


# ---- sequences -------------------------------------------------------------------------------------------------------


def slices(length: int, cached: bool) -> dict[str, Any]:
    """Options of a buffer that samples slices of episodes."""
    return {"sampler": SliceSampler(slice_len=length, end_key=("next", "done"), cache_values=cached)}


def unit(length: int) -> dict[str, Any]:
    """Options of a buffer that moves windows back where they would cross an end."""
    return {"sample_unit": Sequence(length=length, episode_boundary="stop")}


def windows(size: int, anchors: int, options: dict[str, Any], one_add_before: bool = False) -> Job:
    """Windows of four columns; a Sequence counts anchors, a SliceSampler rows."""
    steps = rows.mixed_vectors(size)
    buffer = filled(steps, size, anchors, successors=False, **options)
    sample = buffer.sample
    adds = 0
    more = [part_of(steps, slice(i, i + 1), successors=False)[0] for i in range(100)] if one_add_before else []

    def add_and_sample() -> Any:
        nonlocal adds
        buffer.add(more[adds % len(more)])
        adds += 1
        return sample()

    def look_at_windows() -> checks.Findings:
        batch = sample()
        columns = (batch["observation"], batch["action"], batch["next", "reward"], batch["next", "terminated"])
        folded = [column.reshape(SEQUENCES, LENGTH, *column.shape[1:]) for column in columns]
        return checks.sequences(steps, checks.Live(size, len(steps)), *folded)

    def check() -> checks.Findings:
        return checks.Findings() if adds else checks.several(look_at_windows, 20)

    return Job(add_and_sample if one_add_before else sample, check)


@way("W5v", "SliceSampler", "torch")
def windows_slices(size: int) -> Job:
    return windows(size, SEQUENCES * LENGTH, slices(LENGTH, cached=False))


@way("W5v", "SliceSampler, cache_values", "torch")
def windows_cached(size: int) -> Job:
    return windows(size, SEQUENCES * LENGTH, slices(LENGTH, cached=True))


@way("W5v", "Sequence, episode_boundary='stop'", "torch")
def windows_unit(size: int) -> Job:
    return windows(size, SEQUENCES, unit(LENGTH))


@way("W8a", "windows of 50 by SliceSampler, cache_values: alone", "torch")
def windows_alone(size: int) -> Job:
    return windows(size, SEQUENCES * LENGTH, slices(LENGTH, cached=True))


@way("W8a", "windows of 50 by SliceSampler, cache_values: one add before each", "torch")
def windows_between(size: int) -> Job:
    return windows(size, SEQUENCES * LENGTH, slices(LENGTH, cached=True), one_add_before=True)


def clips(size: int, anchors: int, options: dict[str, Any]) -> Job:
    """Windows of pictures."""
    of, pictures = rows.picture_line(size), Pictures((64, 64, 3))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=anchors, **options)
    for part in of.parts():
        number = np.arange(part.start, part.stop)
        rewards = (number % 997).astype(np.float32)
        flags = (of.terminations[part], of.truncations[part])
        buffer.extend(tensordict(pictures.draw(of.pictures[part]), number % 4, rewards, None, *flags))
    sample = buffer.sample

    def look_at_windows() -> checks.Findings:
        batch = sample()
        shown = batch["observation"].reshape(CLIPS, CLIP, 64, 64, 3)
        rewards = batch["next", "reward"].reshape(CLIPS, CLIP)
        return checks.picture_sequences(of, pictures, checks.Live(size, len(of)), shown, rewards)

    return Job(sample, lambda: checks.several(look_at_windows, 3))


@way("W5i", "SliceSampler", "torch")
def clips_slices(size: int) -> Job:
    return clips(size, CLIPS * CLIP, slices(CLIP, cached=False))


@way("W5i", "SliceSampler, cache_values", "torch")
def clips_cached(size: int) -> Job:
    return clips(size, CLIPS * CLIP, slices(CLIP, cached=True))


@way("W5i", "Sequence, episode_boundary='stop'", "torch")
def clips_unit(size: int) -> Job:
    return clips(size, CLIPS, unit(CLIP))


# ---- stacks ----------------------------------------------------------------------------------------------------------


def stack_part(of: Timeline, pictures: Pictures, part: slice) -> Any:
    """Return whole stacks, as an Atari wrapper hands them over."""
    number = np.arange(part.start, part.stop)
    now, after = (pictures.draw(rows.stack_numbers(of, number, ahead)) for ahead in (0, 1))
    rewards = (number % 997).astype(np.float32)
    return tensordict(now, number % 4, rewards, after, of.terminations[part], of.truncations[part])


@way("W4", "whole stacks, stored twice (at most 20,000 steps)", "torch")
def stacks(size: int) -> Job:
    size = min(size, 20_000)
    of, pictures = rows.picture_line(size), Pictures((84, 84))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=STACKS)
    for part in of.parts(200):
        buffer.extend(stack_part(of, pictures, part))
    sample: Callable[[], Any] = functools.partial(buffer.sample)

    def look_at_stacks() -> checks.Findings:
        batch = sample()
        live, after = checks.Live(size, len(of)), batch["next"]
        return checks.stacks(of, pictures, live, batch["observation"], after["observation"], after["reward"])

    return Job(sample, lambda: checks.several(look_at_stacks, 10), holds=size)
