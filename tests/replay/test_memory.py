"""What a buffer costs: its own count of bytes is held to account, and so is the process."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import play
from tests.replay.worlds import counted

FRAME = gym.spaces.Box(0, 255, (84, 84), np.uint8)


def test_a_frame_is_stored_once_and_once_more_an_episode() -> None:
    capacity, length = 4000, 250
    buffer = ReplayBuffer(capacity, FRAME, gym.spaces.Discrete(4))
    frames = [counted(FRAME, k) for k in range(255)]
    for step in range(capacity + 777):
        buffer.add(frames[step % 255], 1, 0.0, frames[(step + 1) % 255], step % length == length - 1)
    assert buffer.nbytes <= 1.02 * 7056 * capacity + 7056 * buffer.num_episodes
    assert buffer.nbytes >= 7056 * capacity


def test_sampling_costs_no_memory() -> None:
    buffer = ReplayBuffer(500, FRAME, gym.spaces.Discrete(4), seed=1)
    for step in range(700):
        buffer.add(counted(FRAME, step), 1, 0.0, counted(FRAME, step + 1), step % 90 == 89)
    before = buffer.nbytes
    for _ in range(1000):
        buffer.sample_transitions(4, n_step=3, gamma=0.9)
        buffer.sample_sequences(2, 30)
    buffer.valid_starts(30)
    assert buffer.nbytes == before


@pytest.mark.parametrize("size", [4])
def test_windows_of_many_lengths_do_not_pile_up(size: int) -> None:
    buffer = ReplayBuffer(1000, size, 1, seed=1)
    for episode in range(100):
        play(buffer, episode, 10 + 3 * episode % 250, size=size)
    sizes = []
    for length in range(1, 121):
        buffer.sample_sequences(1, length)
        sizes.append(buffer.nbytes)
    assert max(sizes[20:]) <= max(sizes[:20])


@pytest.mark.parametrize("size", [4, 17, 2000])
def test_many_short_episodes_as_streams_of_their_own_cost_no_more_than_one_stream(size: int) -> None:
    episodes = 50_000 if size == 4 else 3000
    one, many = (ReplayBuffer(1000, size, 1) for _ in range(2))
    rows = [np.full(size, k, np.float32) for k in range(4)]
    for episode in range(episodes):
        for t in range(3):
            one.add(rows[t], [0.0], 0.0, rows[t + 1], t == 2)
            many.add(rows[t], [0.0], 0.0, rows[t + 1], t == 2, False, episode)
    assert many.nbytes <= one.nbytes
    assert many.stats()["open_episodes"] == 0


def test_silent_open_streams_do_not_pile_up() -> None:
    buffer = ReplayBuffer(1000, 4, 1)
    row = np.zeros(4, np.float32)
    sizes = []
    for stream in range(40_000):
        buffer.add(row, [0.0], 0.0, row, False, False, stream)
        if stream % 10_000 == 9_999:
            sizes.append(buffer.nbytes)
    assert sizes[-1] <= sizes[0] * 1.01


@pytest.mark.parametrize("space", [gym.spaces.Box(-np.inf, np.inf, (17,), np.float32), FRAME])
def test_arbitrary_successors_cost_at_most_twice(space: gym.spaces.Box) -> None:
    capacity = 1000
    matching, arbitrary = (ReplayBuffer(capacity, space, 1) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(2 * capacity + 100):
            end = step % 100 == 99
            matching.add(counted(space, step), [0.0], 0.0, counted(space, step + 1), end)
            arbitrary.add(counted(space, 2 * step), [0.0], 0.0, counted(space, 2 * step + 1), end)
    assert arbitrary.nbytes <= 2 * matching.nbytes
    ids = arbitrary.valid_starts()
    batch = arbitrary.get(ids)
    for k in (0, 500, 999):
        np.testing.assert_array_equal(batch.observations[k], counted(space, 2 * int(ids[k])))
        np.testing.assert_array_equal(batch.next_observations[k], counted(space, 2 * int(ids[k]) + 1))


def test_memory_kept_for_successors_is_used_again() -> None:
    buffer = ReplayBuffer(500, 50, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(1000):
            buffer.add(np.full(50, 2 * step, np.float32), [0.0], 0.0, np.full(50, 2 * step + 1, np.float32), False)
        once = buffer.nbytes
        for step in range(1000, 9000):
            buffer.add(np.full(50, 2 * step, np.float32), [0.0], 0.0, np.full(50, 2 * step + 1, np.float32), False)
    assert buffer.nbytes == once


def test_a_full_ring_stays_as_large_as_it_is() -> None:
    buffer = ReplayBuffer(300, 20, 1)
    for episode in range(3):
        play(buffer, episode, 300, size=20)
    before = buffer.nbytes
    for episode in range(10):
        play(buffer, episode, 300, size=20)
    assert buffer.nbytes == before


def test_storage_has_the_dtype_of_the_space() -> None:
    def bytes_of(space: gym.Space) -> int:  # type: ignore[type-arg]
        buffer = ReplayBuffer(600, space, gym.spaces.Discrete(3))
        for step in range(600):
            buffer.add(counted(space, step), 1, 0.0, counted(space, step + 1), False)
        return buffer.nbytes

    for nested in (False, True):
        small, large = (
            bytes_of(gym.spaces.Dict({"camera": space}) if nested else space)
            for space in (FRAME, gym.spaces.Box(0, 255, (84, 84), np.float32))
        )
        assert 3.8 < large / small < 4.1


@pytest.mark.parametrize(
    ("capacity", "least"), [(10**9, 7_056_000_000_000), (10**12, 7_056_000_000_000_000), (2**62, 2**62 * 7056)]
)
def test_what_cannot_be_allocated_is_refused_with_its_bytes(capacity: int, least: int) -> None:
    with pytest.raises(MemoryError, match="capacity must fit") as refusal:
        ReplayBuffer(capacity, FRAME, gym.spaces.Discrete(4))
    units = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18}
    said = re.findall(r"([0-9.]+) (kB|MB|GB|TB|PB|EB)\b", str(refusal.value))
    assert max(float(number) * units[unit] for number, unit in said) >= least, str(refusal.value)


def test_a_batch_that_cannot_be_allocated_is_refused_with_its_bytes() -> None:
    one, two = (ReplayBuffer(50, 2, 1, seed=1) for _ in range(2))
    for buffer in (one, two):
        play(buffer, 0, 30, size=2)
    with pytest.raises(
        MemoryError, match=r"ReplayBuffer.sample_transitions: the batch must fit in memory, got 9007199254740992 bytes"
    ):
        one.sample_transitions(2**50, replace=True)
    with pytest.raises(
        MemoryError, match=r"ReplayBuffer.sample_sequences: the batch must fit in memory, got more than"
    ):
        one.sample_sequences(2**61, 4, replace=True)
    np.testing.assert_array_equal(one.sample_transitions(9).ids, two.sample_transitions(9).ids)


PROCESS = """
import numpy as np, gymnasium as gym
from ringback import ReplayBuffer

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

frame = np.zeros((84, 84), np.uint8)
warm = ReplayBuffer(10, gym.spaces.Box(0, 255, (84, 84), np.uint8), 1)
for step in range(20):
    warm.add(frame, [0.0], 0.0, frame, step % 5 == 4)
warm.sample_transitions(5)
base = resident()
buffer = ReplayBuffer(10_000, gym.spaces.Box(0, 255, (84, 84), np.uint8), 1, seed=1)
early = resident() - base
for step in range(10_000):
    buffer.add(frame, [0.0], 0.0, frame, step % 100 == 99)
full = resident() - base
for step in range(50_000):
    buffer.add(frame, [0.0], 0.0, frame, step % 100 == 99)
for _ in range(300):
    buffer.sample_transitions(32)
after = resident() - base
print(buffer.nbytes, early, full, after)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_process_uses_what_the_buffer_says_and_stays_flat() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True)
    says, early, full, after = map(int, done.stdout.split())
    assert early < 0.2 * says  # pages come as they are needed
    assert 0.95 * says < full < 1.1 * says
    assert after < full + 0.05 * says
