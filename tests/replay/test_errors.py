"""Each refusal is one sentence that names argument, rule and value, and leaves the buffer as it was."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.worlds import Chunk, f32

DICT = gym.spaces.Dict(
    {"camera": gym.spaces.Box(0, 255, (4, 4), np.uint8), "speed": gym.spaces.Box(-9, 9, (2,), np.float32)}
)
DISCRETE = gym.spaces.Discrete(5)
GOOD = {"camera": np.zeros((4, 4), np.uint8), "speed": np.zeros(2, np.float32)}
Z = [0.0, 0.0]
NAN = float("nan")
Make = Callable[[], Any]
Refusal = tuple[Make, str, type[Exception], str, tuple[Any, ...], dict[str, Any]]


def refusal(make: Make, method: str, kind: type[Exception], text: str, *arguments: Any, **options: Any) -> Refusal:
    """Name a call on what `make` returns (without a method: the constructor), and how it must fail."""
    return make, method, kind, f"ReplayBuffer{'.' if method else ''}{method}: {text}", arguments, options


def nothing() -> None:
    """Stand for the buffer where the constructor refuses."""


def empty() -> ReplayBuffer:
    """Return a buffer without a step."""
    return ReplayBuffer(5, 2, DISCRETE)


def small(**options: Any) -> ReplayBuffer:
    """Return a buffer of vectors with ids 4 to 8 live, all of one open episode."""
    buffer = ReplayBuffer(5, 2, DISCRETE, **options)
    for t in range(9):
        buffer.add([t, t], t % 5, t, [t + 1, t + 1], False)
    return buffer


def pictured() -> ReplayBuffer:
    """Return a buffer of a structure."""
    buffer = ReplayBuffer(5, DICT, DISCRETE)
    buffer.add(GOOD, 1, 0.0, GOOD, True)
    return buffer


def with_extras() -> ReplayBuffer:
    """Return an empty buffer with two extras."""
    return ReplayBuffer(5, 2, DISCRETE, extras={"logp": (), "state": (3,)})


def raising() -> ReplayBuffer:
    """Return a buffer that refuses mismatches, with an open episode that stands at (9, 9)."""
    buffer = ReplayBuffer(5, 2, DISCRETE, on_mismatch="raise")
    buffer.add([8.0, 8.0], 1, 0.0, [9.0, 9.0], False)
    return buffer


def broken() -> ReplayBuffer:
    """Return a buffer whose episodes all have three steps."""
    buffer = ReplayBuffer(9, 2, DISCRETE)
    for t in range(9):
        buffer.add([t, t], 1, 0.0, [t + 1, t + 1], t % 3 == 2)
    return buffer


def chunk(start: int, **parts: Any) -> Chunk:
    """Return two steps of episode "a" from `start` on."""
    given: dict[str, Any] = {
        "observations": [f32([t, t]) for t in range(start, start + 3)],
        "actions": [t % 5 for t in range(start, start + 2)],
        "rewards": [float(t) for t in range(start, start + 2)],
    }
    return Chunk("a", start, **(given | parts))


def chunked() -> ReplayBuffer:
    """Return a buffer with the first chunk of episode "a"."""
    buffer = small()
    buffer.add_episode(chunk(0))
    return buffer


def finished() -> ReplayBuffer:
    """Return a buffer with all of episode "a"."""
    buffer = small()
    buffer.add_episode(chunk(0, terminated=True))
    return buffer


# fmt: off
REFUSALS = [
    # construction
    refusal(nothing, "", ValueError, "capacity must be >= 1 step, got 0", 0, 2, 2),
    refusal(nothing, "", ValueError, "capacity must be >= 1 step, got -3", -3, 2, 2),
    refusal(nothing, "", TypeError, "capacity must be an integer, got 1.5", 1.5, 2, 2),
    refusal(nothing, "", TypeError, "capacity must be an integer, got True", True, 2, 2),
    refusal(nothing, "", ValueError, "observation_space must be >= 1 dimension, got 0", 10, 0, 2),
    refusal(nothing, "", ValueError, "action_space must be >= 1 dimension, got -1", 10, 2, -1),
    refusal(nothing, "", TypeError, "observation_space must be a gymnasium space or a number of dimensions, got 'x'",
            10, "x", 2),
    refusal(nothing, "", TypeError, "observation_space must be a gymnasium space or a number of dimensions, got 2.5",
            10, 2.5, 2),
    refusal(nothing, "", TypeError,
            "observation must be a Box, Discrete, MultiDiscrete or MultiBinary space, or a Dict or Tuple of "
            "these, got Text(1, 5, charset=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz)",
            10, gym.spaces.Text(5), 2),
    refusal(nothing, "", TypeError,
            "observation/a must be a Box, Discrete, MultiDiscrete or MultiBinary space, or a Dict or Tuple of "
            "these, got Graph(Discrete(5), None)",
            10, gym.spaces.Dict({"a": gym.spaces.Graph(DISCRETE, None)}), 2),
    refusal(nothing, "", ValueError, "the observation must have at least one leaf, got none",
            10, gym.spaces.Dict({}), 2),
    refusal(nothing, "", ValueError, "seed must be an int >= 0 or a tuple of such, got -1", 10, 2, 2, seed=-1),
    refusal(nothing, "", TypeError, "seed must be None, an int >= 0 or a tuple of such, got 'x'", 10, 2, 2, seed="x"),
    refusal(nothing, "", TypeError, "seed must be None, an int >= 0 or a tuple of such, got (1, 2.5)",
            10, 2, 2, seed=(1, 2.5)),
    refusal(nothing, "", ValueError, "on_mismatch must be 'keep', 'split' or 'raise', got 'ignore'",
            10, 2, 2, on_mismatch="ignore"),
    refusal(nothing, "", TypeError, "on_mismatch must be 'keep', 'split' or 'raise', got None",
            10, 2, 2, on_mismatch=None),
    refusal(nothing, "", ValueError, "cast must name a stored field, got 'obs'", 10, 2, 2, cast={"obs": "float32"}),
    refusal(nothing, "", TypeError, "observation must have a dtype that NumPy knows, got 'floaty'",
            10, 2, 2, cast={"observation": "floaty"}),
    refusal(nothing, "", TypeError, "observation must be bool, an integer or a float of 16 to 64 bits, got complex64",
            10, 2, 2, cast={"observation": "complex64"}),
    refusal(nothing, "", TypeError, "cast must be a mapping of field to dtype, got 'float32'",
            10, 2, 2, cast="float32"),
    refusal(nothing, "", ValueError, "an extra's name must be a new word without '/', got 'observation'",
            10, 2, 2, extras={"observation": ()}),
    refusal(nothing, "", ValueError, "an extra's name must be a new word without '/', got 'reward'",
            10, 2, 2, extras={"reward": ()}),
    refusal(nothing, "", ValueError, "an extra's name must be a new word without '/', got 'a/b'",
            10, 2, 2, extras={"a/b": ()}),
    refusal(nothing, "", ValueError, "an extra's name must be a new word without '/', got ''",
            10, 2, 2, extras={"": ()}),
    refusal(nothing, "", TypeError, "extra 'a' must be declared as a shape, a pair (shape, dtype) or a space, got 'x'",
            10, 2, 2, extras={"a": "x"}),
    refusal(nothing, "", ValueError, "every dimension of a must be >= 1, got 0", 10, 2, 2, extras={"a": (0,)}),
    refusal(nothing, "", ValueError, "every dimension of a must be >= 1, got -1", 10, 2, 2, extras={"a": (-1,)}),
    refusal(nothing, "", TypeError, "a must be bool, an integer or a float of 16 to 64 bits, got complex64",
            10, 2, 2, extras={"a": ((2,), "complex64")}),
    refusal(nothing, "", TypeError, "extras must be a mapping of name to shape, got ['a']", 10, 2, 2, extras=["a"]),
    refusal(nothing, "", ValueError, "an extra's name must be a new word without '/', got 3", 10, 2, 2, extras={3: ()}),
    # add
    refusal(small, "add", ValueError, "observation must have shape (2,), got (3,)", [1.0, 2.0, 3.0], 1, 0.0, Z, False),
    refusal(small, "add", ValueError, "next_observation must have shape (2,), got (1,)", Z, 1, 0.0, [1.0], False),
    refusal(small, "add", ValueError, "observation must have shape (2,), got (1, 2)",
            np.zeros((1, 2)), 1, 0.0, Z, False),
    refusal(small, "add", TypeError, "observation must be a number, got <U1", "x", 1, 0.0, Z, False),
    refusal(small, "add", TypeError, "observation must be an array of numbers, got array(None, dtype=object)",
            None, 1, 0.0, Z, False),
    refusal(small, "add", TypeError, "observation must be a number, got <U32", [1.0, "x"], 1, 0.0, Z, False),
    refusal(small, "add", TypeError, "observation must be an array, got [[1.0], [2.0, 3.0]]",
            [[1.0], [2.0, 3.0]], 1, 0.0, Z, False),
    refusal(small, "add", TypeError, "observation must be a number, got complex128", [1j, 0], 1, 0.0, Z, False),
    refusal(small, "add", TypeError, "action must have an integer dtype (int64), got float64", Z, 1.0, 0.0, Z, False),
    refusal(small, "add", ValueError, "action must be finite integers, got array(nan)", Z, NAN, 0.0, Z, False),
    refusal(small, "add", ValueError, "action must be finite integers, got array(inf)", Z, float("inf"), 0.0, Z, False),
    refusal(small, "add", ValueError, "action must be finite integers, got array([nan])",
            Z, np.array([NAN]), 0.0, Z, False),
    refusal(small, "add", ValueError,
            "action must be in [-9223372036854775808, 9223372036854775807], got 9223372036854775808",
            Z, 2**63, 0.0, Z, False),
    refusal(small, "add", ValueError, "action must have shape (), got (2,)", Z, [1, 2], 0.0, Z, False),
    refusal(small, "add", TypeError, "action must be an array of numbers, got array(None, dtype=object)",
            Z, None, 0.0, Z, False),
    refusal(small, "add", TypeError, "action must have an integer dtype (int64), got <U2", Z, "up", 0.0, Z, False),
    refusal(small, "add", ValueError, "reward must have shape (), got (2,)", Z, 1, [1.0, 2.0], Z, False),
    refusal(small, "add", TypeError, "reward must be an array of numbers, got array(None, dtype=object)",
            Z, 1, None, Z, False),
    refusal(small, "add", TypeError, "reward must be a number, got <U1", Z, 1, "x", Z, False),
    refusal(small, "add", TypeError, "terminated must be a bool, got None", Z, 1, 0.0, Z, None),
    refusal(small, "add", ValueError, "terminated must be True or False, got 2", Z, 1, 0.0, Z, 2),
    refusal(small, "add", ValueError, "terminated must be True or False, got nan", Z, 1, 0.0, Z, NAN),
    refusal(small, "add", TypeError, "terminated must be a bool, got 'no'", Z, 1, 0.0, Z, "no"),
    refusal(small, "add", TypeError, "terminated must be a bool, got [True, False]", Z, 1, 0.0, Z, [True, False]),
    refusal(small, "add", TypeError, "truncated must be a bool, got None", Z, 1, 0.0, Z, False, None),
    refusal(small, "add", TypeError, "stream must be an integer, got 1.0", Z, 1, 0.0, Z, False, False, 1.0),
    refusal(small, "add", TypeError, "stream must be an integer, got True", Z, 1, 0.0, Z, False, False, True),
    refusal(small, "add", ValueError, "stream must fit in 64 bits, got 9223372036854775808",
            Z, 1, 0.0, Z, False, False, 2**63),
    refusal(small, "add", ValueError, "extras must be declared at construction, got {'logp': 1.0}",
            Z, 1, 0.0, Z, False, False, 0, {"logp": 1.0}),
    refusal(small, "add", TypeError, "terminated must be given", Z, 1, 0.0, Z),
    refusal(small, "add", TypeError, "at most 8 positional arguments must be given, got 9",
            Z, 1, 0.0, Z, False, False, 0, None, 1),
    refusal(small, "add", TypeError,
            "arguments must be among observation, action, reward, next_observation, terminated, truncated, "
            "stream, extras, got 'done'",
            Z, 1, 0.0, Z, False, done=True),
    refusal(small, "add", TypeError, "action must be given once, got it twice", Z, 1, 0.0, Z, False, action=1),
    refusal(raising, "add", ValueError,
            "observation must equal the next_observation of the step before, got another one on stream 0; call "
            "end_episode after a reset from outside",
            Z, 1, 0.0, Z, False),
    refusal(pictured, "add", TypeError, "observation must be a dict, got 3", 3, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError, "observation must have the keys ['camera', 'speed'], got ['camera']",
            {"camera": GOOD["camera"]}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError,
            "observation must have the keys ['camera', 'speed'], got ['camera', 'speed', 'more']",
            GOOD | {"more": 1}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError, "observation must have the key 'speed', got ['camera', 'velocity']",
            {"camera": GOOD["camera"], "velocity": Z}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError, "observation/camera must have shape (4, 4), got (4, 3)",
            GOOD | {"camera": np.zeros((4, 3), np.uint8)}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", TypeError, "observation/camera must have an integer dtype (uint8), got float64",
            GOOD | {"camera": np.zeros((4, 4))}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError, "observation/camera must be in [0, 255], got 256",
            GOOD | {"camera": np.full((4, 4), 256)}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError, "observation/camera must be in [0, 255], got -1",
            GOOD | {"camera": np.full((4, 4), -1)}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError,
            "observation/camera must be finite integers, got an array of shape (4, 4) and dtype float64",
            GOOD | {"camera": np.full((4, 4), NAN)}, 1, 0.0, GOOD, False),
    refusal(pictured, "add", ValueError, "next_observation/speed must have shape (2,), got (1,)",
            GOOD, 1, 0.0, GOOD | {"speed": [1.0]}, False),
    refusal(with_extras, "add", ValueError, "extras must be given with every step, got None; declared are logp, state",
            Z, 1, 0.0, Z, False),
    refusal(with_extras, "add", ValueError, "extras must have the keys ['logp', 'state'], got ['logp']",
            Z, 1, 0.0, Z, False, extras={"logp": 1.0}),
    refusal(with_extras, "add", ValueError, "state must have shape (3,), got (1,)",
            Z, 1, 0.0, Z, False, extras={"logp": 1.0, "state": [1.0], }),
    refusal(with_extras, "add", ValueError,
            "extras must have the keys ['logp', 'state'], got ['logp', 'state', 'value']",
            Z, 1, 0.0, Z, False, extras={"logp": 1.0, "state": [1.0] * 3, "value": 1.0}),
    refusal(with_extras, "add", TypeError, "extras must be a dict, got [1.0]", Z, 1, 0.0, Z, False, extras=[1.0]),
    # add_batch
    refusal(small, "add_batch", TypeError, "terminations must be an array of shape (E,), got False",
            [Z], [1], [0.0], [Z], False),
    refusal(small, "add_batch", ValueError, "observation must have shape (2, 2), got (1, 2)",
            [Z], [1], [0.0], [Z], [False, False]),
    refusal(small, "add_batch", ValueError, "action must have shape (2,), got (1,)",
            [Z, Z], [1], [0.0, 0.0], [Z, Z], [False, False]),
    refusal(small, "add_batch", ValueError, "reward must have shape (2,), got (1,)",
            [Z, Z], [1, 1], [0.0], [Z, Z], [False, False]),
    refusal(small, "add_batch", ValueError, "next_observation must have shape (2, 2), got (1, 2)",
            [Z, Z], [1, 1], [0.0, 0.0], [Z], [False, False]),
    refusal(small, "add_batch", ValueError, "truncations must have shape (2,), got (1,)",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], [False]),
    refusal(small, "add_batch", ValueError, "terminations must be True or False, got array([0, 2])",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, 2]),
    refusal(small, "add_batch", ValueError, "terminations must be True or False, got array([ 0., nan])",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, NAN]),
    refusal(small, "add_batch", TypeError, "terminations must be bool, got <U1",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], ["a", "b"]),
    refusal(small, "add_batch", TypeError, "action must have an integer dtype (int64), got float64",
            [Z, Z], [1, 1.5], [0.0, 0.0], [Z, Z], [False, False]),
    refusal(small, "add_batch", ValueError, "action must be finite integers, got array([ 1., nan])",
            [Z, Z], [1, NAN], [0.0, 0.0], [Z, Z], [False, False]),
    refusal(small, "add_batch", ValueError, "observation must have shape (2, 2), got (2,)",
            Z, [1, 1], [0.0, 0.0], [Z, Z], [False, False]),
    refusal(small, "add_batch", ValueError, "streams must have one entry a step (2), got 1",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], None, [1]),
    refusal(small, "add_batch", ValueError, "streams must differ, got 4 twice",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], None, [4, 4]),
    refusal(small, "add_batch", TypeError, "streams must be an integer, got 1.0",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], None, [1.0, 2.0]),
    refusal(small, "add_batch", ValueError, "streams must fit in 64 bits, got 9223372036854775808",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], None, [1, 2**63]),
    refusal(small, "add_batch", TypeError, "streams must be a sequence of integers, got 3",
            [Z, Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], None, 3),
    refusal(raising, "add_batch", ValueError,
            "observation must equal the next_observation of the step before, got another one on stream 0; call "
            "end_episode after a reset from outside",
            [[9, 9], Z], [1, 1], [0.0, 0.0], [Z, Z], [False, False], None, [7, 0]),
    # add_episode, end_episode
    refusal(small, "add_episode", TypeError, "episode must be a SingleAgentEpisode or read like one, got 3", 3),
    refusal(small, "add_episode", ValueError,
            "a chunk of episode 'a' must start where the last one ended (t = 0), got t = 3; pass gap=\"cut\" to "
            "begin with missing history",
            chunk(3)),
    refusal(small, "add_episode", ValueError, "gap must be 'raise' or 'cut', got 'skip'", chunk(0), gap="skip"),
    refusal(chunked, "add_episode", ValueError,
            "a chunk of episode 'a' must start where the last one ended (t = 2), got t = 0 again",
            chunk(0)),
    refusal(chunked, "add_episode", ValueError,
            "a chunk of episode 'a' must start where the last one ended (t = 2), got t = 1 again",
            chunk(1), gap="cut"),
    refusal(chunked, "add_episode", ValueError,
            "a chunk of episode 'a' must start where the last one ended (t = 2), got t = 5; pass gap=\"cut\" to "
            "begin with missing history",
            chunk(5)),
    refusal(finished, "add_episode", ValueError,
            "episode 'a' must be added once, got a chunk from t = 0 after its end at t = 2",
            chunk(0)),
    refusal(finished, "add_episode", ValueError,
            "episode 'a' must be added once, got a chunk from t = 2 after its end at t = 2",
            chunk(2)),
    refusal(small, "add_episode", ValueError, "reward must have shape (2,), got (1,)", chunk(0, rewards=[1.0])),
    refusal(small, "add_episode", ValueError, "observation must have shape (3, 2), got (2, 2)",
            chunk(0, observations=[Z, Z])),
    refusal(with_extras, "add_episode", ValueError,
            "extras must be among the extra model outputs, got none named 'logp'",
            chunk(0)),
    refusal(small, "end_episode", TypeError, "stream must be an integer, got 1.5", 1.5),
    refusal(small, "end_episode", TypeError, "stream must be an integer, got None", None),
    refusal(small, "end_episode", ValueError, "stream must fit in 64 bits, got 9223372036854775808", 2**63),
    # sampling
    refusal(empty, "sample_transitions", ValueError, "batch_size must be <= the steps stored (0), got 1", 1),
    refusal(empty, "sample_transitions", ValueError, "batch_size must be <= the steps stored (0), got 1",
            1, replace=True),
    refusal(empty, "sample_sequences", ValueError, "length must be <= the steps stored (0), got 1", 1, 1),
    refusal(small, "sample_transitions", ValueError,
            "batch_size must be <= the steps stored (5), got 6; pass replace=True to draw steps more than once",
            6),
    refusal(small, "sample_transitions", ValueError, "batch_size must be >= 1, got 0", 0),
    refusal(small, "sample_transitions", ValueError, "batch_size must be >= 1, got -2", -2),
    refusal(small, "sample_transitions", TypeError, "batch_size must be an integer, got 2.0", 2.0),
    refusal(small, "sample_transitions", TypeError, "batch_size must be an integer, got True", True),
    refusal(small, "sample_transitions", TypeError, "batch_size must be an integer, got None", None),
    refusal(small, "sample_transitions", ValueError, "batch_size must fit in 64 bits, got 9223372036854775808", 2**63),
    refusal(small, "sample_transitions", ValueError,
            "batch_size must be <= the steps stored (5), got 4611686018427387904; pass replace=True to draw steps"
            " more than once",
            2**62),
    refusal(small, "sample_transitions", TypeError, "batch_size must be given", ),
    refusal(small, "sample_transitions", TypeError, "at most 1 positional argument must be given, got 2", 2, 3),
    refusal(small, "sample_transitions", ValueError, "gamma must be given with n_step > 1, got None", 2, n_step=2),
    refusal(small, "sample_transitions", ValueError, "n_step must be >= 1, got 0", 2, n_step=0, gamma=0.9),
    refusal(small, "sample_transitions", TypeError, "n_step must be an integer, got 1.5", 2, n_step=1.5, gamma=0.9),
    refusal(small, "sample_transitions", TypeError, "gamma must be a number, got 'x'", 2, n_step=2, gamma="x"),
    refusal(small, "sample_transitions", ValueError, "gamma must be in [0, 1], got 1.5", 2, n_step=2, gamma=1.5),
    refusal(small, "sample_transitions", ValueError, "gamma must be in [0, 1], got -0.1", 2, n_step=2, gamma=-0.1),
    refusal(small, "sample_transitions", ValueError, "gamma must be in [0, 1], got nan", 2, n_step=2, gamma=NAN),
    refusal(small, "sample_transitions", TypeError, "replace must be a bool, got 'yes'", 2, replace="yes"),
    refusal(small, "sample_transitions", TypeError, "replace must be a bool, got None", 2, replace=None),
    refusal(small, "sample_transitions", TypeError,
            "arguments must be among batch_size, n_step, gamma, replace, out, stack, stack_fill, beta, got 'frames'",
            2, frames=4),
    refusal(small, "sample_sequences", ValueError, "length must be <= the steps stored (5), got 6", 1, 6),
    refusal(small, "sample_sequences", ValueError,
            "batch_size must be <= the valid starts of windows of 4 steps (2), got 3; pass replace=True to draw "
            "starts more than once",
            3, 4),
    refusal(small, "sample_sequences", ValueError, "batch_size must be >= 1, got 0", 0, 2),
    refusal(small, "sample_sequences", ValueError, "length must be >= 1, got 0", 2, 0),
    refusal(small, "sample_sequences", ValueError, "length must be >= 1, got -1", 2, -1),
    refusal(small, "sample_sequences", TypeError, "length must be an integer, got 1.0", 2, 1.0),
    refusal(small, "sample_sequences", TypeError, "length must be given", 2),
    refusal(small, "sample_sequences", ValueError, "length must be <= the steps stored (5), got 4611686018427387904",
            1, 2**62),
    refusal(small, "sample_sequences", ValueError,
            "batch_size must be <= the valid starts of windows of 2 steps (4), got 4611686018427387904; pass "
            "replace=True to draw starts more than once",
            2**62, 2),
    refusal(broken, "sample_sequences", ValueError,
            "batch_size must be <= the valid starts of windows of 4 steps (0), got 1",
            1, 4),
    refusal(broken, "sample_sequences", ValueError,
            "batch_size must be <= the valid starts of windows of 4 steps (0), got 1",
            1, 4, replace=True),
    refusal(small, "valid_starts", ValueError, "length must be >= 1, got 0", 0),
    refusal(small, "valid_starts", ValueError, "length must be >= 1, got -1", -1),
    refusal(small, "valid_starts", TypeError, "length must be an integer, got 1.0", 1.0),
    refusal(small, "valid_starts", TypeError, "length must be an integer, got 'x'", "x"),
    # get and set
    refusal(small, "get", IndexError, "ids must be of live steps, in [4, 9), got 3", [3]),
    refusal(small, "get", IndexError, "ids must be of live steps, in [4, 9), got 9", [9]),
    refusal(small, "get", IndexError, "ids must be of live steps, in [4, 9), got -1", [-1]),
    refusal(small, "get", IndexError, "ids must be of live steps, in [4, 9), got 3", [4, 3]),
    refusal(small, "get", TypeError, "ids must be integers, got [1.0]", [1.0]),
    refusal(small, "get", TypeError, "ids must be integers, got ['x']", ["x"]),
    refusal(small, "get", TypeError, "ids must be an integer or a 1-D array of integers, got [[4, 5]]", [[4, 5]]),
    refusal(small, "get", TypeError, "ids must be integers, got [True]", [True]),
    refusal(small, "get", TypeError, "ids must be integers, got None", None),
    refusal(small, "get", ValueError, "ids must fit in 63 bits, got 9223372036854775808", [2**63]),
    refusal(small, "set", IndexError, "ids must be of live steps, in [4, 9), got 3", [3], "reward", [0.0]),
    refusal(small, "set", ValueError, "field must be one of observation, action, reward, got 'done'",
            [4], "done", [0.0]),
    refusal(small, "set", TypeError, "field must be a string, got 3", [4], 3, [0.0]),
    refusal(small, "set", ValueError, "reward must have shape (1,), got (2,)", [4], "reward", [0.0, 1.0]),
    refusal(small, "set", TypeError, "reward must be a number, got <U1", [4], "reward", ["x"]),
    refusal(small, "set", TypeError, "action must have an integer dtype (int64), got float64", [4], "action", [1.5]),
    refusal(small, "set", ValueError, "action must be finite integers, got array([nan])", [4], "action", [NAN]),
    refusal(small, "set", ValueError, "observation must have shape (1, 2), got (1, 3)",
            [4], "observation", [[1.0, 2.0, 3.0]]),
    refusal(pictured, "set", ValueError, "observation must have the keys ['camera', 'speed'], got ['camera']",
            [0], "observation", {"camera": np.zeros((1, 4, 4), np.uint8)}),
    refusal(pictured, "set", ValueError, "observation/camera must be in [0, 255], got 300",
            [0], "observation/camera", np.full((1, 4, 4), 300)),
    refusal(pictured, "set", ValueError,
            "field must be one of observation/camera, observation/speed, action, reward, got 'observation/sound'",
            [0], "observation/sound", [0]),
    # state
    refusal(small, "set_state", TypeError, "state must be a dict or an iterable of dicts, got 3", 3),
    refusal(small, "set_state", ValueError, "state must have the field 'parts', got none", {}),
    refusal(small, "set_state", ValueError,
            "state must have the fields [('observation', 'float32', (2,)), ('action', 'int64', ()), ('reward', "
            "'float32', ())], got [('observation', 'float32', (2,)), ('action', 'int64', ()), ('reward', "
            "'float32', ()), ('logp', 'float32', ()), ('state', 'float32', (3,))]",
            with_extras().get_state()),
    refusal(small, "set_state", ValueError, "state must be of version 1, got 999",
            small().get_state() | {"version": 999}),
    refusal(small, "set_state", ValueError, "state must be of a buffer of the same capacity (5), got 6",
            ReplayBuffer(6, 2, DISCRETE).get_state()),
    refusal(small, "iter_state", ValueError, "max_bytes must be >= 1, got 0", 0),
    refusal(small, "iter_state", TypeError, "max_bytes must be an integer, got 1.5", 1.5),
]
# fmt: on


@pytest.mark.parametrize(
    ("make", "method", "kind", "text", "arguments", "options"), REFUSALS, ids=[row[3] for row in REFUSALS]
)
def test_a_refusal_says_what_must_be_and_changes_nothing(
    make: Make, method: str, kind: type[Exception], text: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    buffer = make()
    before = pickle.dumps(buffer.get_state()) if buffer else None
    with pytest.raises(kind) as caught:
        getattr(buffer, method)(*arguments, **options) if method else ReplayBuffer(*arguments, **options)
    assert type(caught.value) is kind
    assert str(caught.value) == text
    assert (pickle.dumps(buffer.get_state()) if buffer else None) == before


def test_all_texts_have_one_form() -> None:
    for _, _, _, text, _, _ in REFUSALS:
        assert re.fullmatch(r"ReplayBuffer(\.\w+)?: [^\n]* must [^\n]*[^.\n]", text), text
