"""The recorder against a list of transitions from a plain loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ringback import PrioritizedReplayBuffer, ReplayBuffer
from ringback.errors import EnvError
from ringback.recorder import VectorRecorder
from tests.counting import (
    MODES,
    Counting,
    CountingDict,
    CountingImage,
    CountingTuple,
    Reusing,
    Row,
    by_hand,
    lanes,
    plain,
)

NEXT_STEP, SAME_STEP, DISABLED = MODES


def buffer_for(envs: VectorEnv[Any, Any, Any], **options: Any) -> ReplayBuffer:
    return ReplayBuffer(10_000, envs.single_observation_space, envs.single_action_space, seed=0, **options)


def play(envs: VectorEnv[Any, Any, Any], recorder: VectorRecorder, steps: int, *, extras: bool = False) -> Any:
    """Step on by the loop that a user writes; return the ids, shape (steps, E)."""
    ids = []
    for number in range(steps):
        actions = np.full(envs.num_envs, 3)
        actions[0] = 2 + number % 5
        step = envs.step(actions)
        more = {"number": np.full((envs.num_envs, 1), number)} if extras else None
        ids.append(recorder.step(actions, *step, extras=more))
        ended = step[2] | step[3]
        if envs.metadata["autoreset_mode"] is DISABLED and ended.any():
            observations, _ = envs.reset(options={"reset_mask": ended.copy()})
            recorder.reset(observations, mask=ended)
    return np.array(ids)


def stored(buffer: ReplayBuffer, ids: Any) -> list[Row]:
    """Transitions (obs, action, reward, next obs, flags) of the ids that are none of -1, as plain values."""
    if not (ids >= 0).any():
        return []
    batch = buffer.get(ids[ids >= 0])
    columns = [batch.observations, batch.actions, batch.rewards, batch.next_observations]
    columns += [batch.terminations, batch.truncations]
    return [tuple(plain(row_of(column, index)) for column in columns) for index in range(len(batch.rewards))]


def row_of(column: Any, index: int) -> Any:
    """A row of a structure of arrays; scalars, which the buffer gives as (B, 1), as scalars."""
    if isinstance(column, dict):
        return {key: row_of(value, index) for key, value in column.items()}
    if isinstance(column, tuple):
        return tuple(row_of(value, index) for value in column)
    return column[index] if column[index].shape != (1,) else column[index][0]


def expected(kind: type[Counting], lane: int, steps: int) -> list[Row]:
    """The same transitions of a plain loop (actions apart)."""
    rows = [row for episode in by_hand(kind(lane), steps) for row in episode]
    return [(squeezed(row[1]), row[3], squeezed(row[4]), row[5], row[6]) for row in rows]


def squeezed(observation: Any) -> Any:
    return observation[0] if isinstance(observation, list) and len(observation) == 1 else observation


@pytest.mark.parametrize("mode", MODES)
class TestSameAsPlainList:
    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
    @pytest.mark.parametrize("kind", [Counting, CountingDict, CountingTuple, CountingImage])
    @pytest.mark.parametrize("options", [{}, {"copy": False}])
    def test_in_this_process(
        self, kind: type[Counting], count: int, options: dict[str, Any], mode: AutoresetMode
    ) -> None:
        self.check(kind, lanes(kind, count, mode, **options), mode)

    @pytest.mark.parametrize(("kind", "count"), [(CountingDict, 1), (Counting, 3), (CountingImage, 5)])
    def test_in_worker_processes(self, kind: type[Counting], count: int, mode: AutoresetMode) -> None:
        self.check(kind, lanes(kind, count, mode, vector=AsyncVectorEnv, copy=count == 3), mode)

    @staticmethod
    def check(kind: type[Counting], envs: VectorEnv[Any, Any, Any], mode: AutoresetMode) -> None:
        buffer = buffer_for(envs)
        recorder = VectorRecorder(buffer, envs)
        recorder.reset(envs.reset()[0])
        ids = play(envs, recorder, 40)
        envs.close()
        assert sorted(ids[ids >= 0].tolist()) == list(range(len(buffer)))
        for lane in range(envs.num_envs):
            got = stored(buffer, ids[:, lane])
            assert [(row[0], *row[2:]) for row in got] == expected(kind, lane, len(got))
            actions = np.array([2 + number % 5 for number in range(40)] if lane == 0 else [3] * 40)
            assert [row[1] for row in got] == actions[ids[:, lane] >= 0].tolist()
        ends = sum(1 for row in stored(buffer, ids.ravel()) if row[4] or row[5])
        assert (buffer.stats()["kept_successors"], buffer.num_episodes) == (0, ends + buffer.stats()["open_episodes"])
        dead = int((ids < 0).sum())
        assert (dead > 0) == (mode is NEXT_STEP)


@pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED])
def test_environment_that_reuses_its_array(mode: AutoresetMode) -> None:
    envs = lanes(Reusing, 2, mode, copy=False)
    buffer = buffer_for(envs)
    recorder = VectorRecorder(buffer, envs)
    recorder.reset(envs.reset()[0])
    ids = play(envs, recorder, 20)
    for lane in range(2):
        got = stored(buffer, ids[:, lane])
        assert [(row[0], *row[2:]) for row in got] == expected(Counting, lane, len(got))


@pytest.mark.parametrize("mode", MODES)
def test_extras_go_with_their_steps(mode: AutoresetMode) -> None:
    envs = lanes(Counting, 2, mode)
    buffer = buffer_for(envs, extras={"number": (1,)})
    recorder = VectorRecorder(buffer, envs)
    recorder.reset(envs.reset()[0])
    ids = play(envs, recorder, 12, extras=True)
    for number, row in enumerate(ids):
        for id_ in row[row >= 0]:
            assert buffer.get([id_]).extras["number"].tolist() == [[number]]


def test_prioritised_buffer_and_streams_of_its_own() -> None:
    first, second = (lanes(Counting, 2, SAME_STEP) for _ in range(2))
    buffer = PrioritizedReplayBuffer(1_000, first.single_observation_space, first.single_action_space, seed=0)
    recorders = [VectorRecorder(buffer, first), VectorRecorder(buffer, second, first_stream=7)]
    assert [recorder.streams.tolist() for recorder in recorders] == [[0, 1], [7, 8]]
    for envs, recorder in zip((first, second), recorders, strict=True):
        recorder.reset(envs.reset()[0])
    ids = [play(envs, recorder, 3) for envs, recorder in zip((first, second), recorders, strict=True)]
    assert stored(buffer, ids[0].ravel()) == stored(buffer, ids[1].ravel())
    assert buffer.stats()["kept_successors"] == 0


def test_seven_steps_of_next_step_mode_are_six_transitions() -> None:
    envs = SyncVectorEnv([lambda: Counting(lengths=[3])], autoreset_mode=NEXT_STEP)
    buffer = buffer_for(envs)
    recorder = VectorRecorder(buffer, envs)
    recorder.reset(envs.reset()[0])
    ids = play(envs, recorder, 7)
    assert ids.ravel().tolist() == [0, 1, 2, -1, 3, 4, 5]
    assert [(row[0], row[3]) for row in stored(buffer, ids.ravel())] == [
        (0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (100.0, 101.0), (101.0, 102.0), (102.0, 103.0),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
class TestResetFromOutside:
    def test_open_episodes_are_closed(self, mode: AutoresetMode) -> None:
        envs = SyncVectorEnv([lambda: Counting(lengths=[50])], autoreset_mode=mode)
        buffer = buffer_for(envs)
        recorder = VectorRecorder(buffer, envs)
        recorder.reset(envs.reset()[0])
        before = play(envs, recorder, 3)
        recorder.reset(envs.reset()[0])
        after = play(envs, recorder, 2)
        got = stored(buffer, np.concatenate([before, after]).ravel())
        assert [(row[0], row[3], row[4], row[5]) for row in got] == [
            (0.0, 1.0, False, False),
            (1.0, 2.0, False, False),
            (2.0, 3.0, False, True),
            (100.0, 101.0, False, False),
            (101.0, 102.0, False, False),
        ]
        with pytest.raises(ValueError, match=r"windows of 4 steps \(0\)"):
            buffer.sample_sequences(1, 4)

    def test_mask_leaves_the_others_alone(self, mode: AutoresetMode) -> None:
        envs = lanes(lambda lane: Counting(lane, [50]), 3, mode)
        buffer = buffer_for(envs)
        recorder = VectorRecorder(buffer, envs)
        recorder.reset(envs.reset()[0])
        play(envs, recorder, 2)
        mask = np.array([False, True, False])
        observations, _ = envs.reset(options={"reset_mask": mask.copy()})
        observations[[0, 2]] = -1.0  # what a mask leaves out is not looked at
        recorder.reset(observations, mask)
        ids = play(envs, recorder, 1)
        assert [row[0] for row in stored(buffer, ids.ravel())] == [2.0, 10_100.0, 20_002.0]
        assert (buffer.num_episodes, buffer.stats()["open_episodes"]) == (4, 3)
        assert buffer.stats()["kept_successors"] == 0

    def test_episode_that_has_ended_is_not_ended_again(self, mode: AutoresetMode) -> None:
        envs = SyncVectorEnv([lambda: Counting(lengths=[2])], autoreset_mode=mode)
        buffer = buffer_for(envs)
        recorder = VectorRecorder(buffer, envs)
        recorder.reset(envs.reset()[0])
        actions = np.array([3])
        for _ in range(2):
            recorder.step(actions, *envs.step(actions))
        recorder.reset(envs.reset()[0])  # in NEXT_STEP mode: before the row that would have been the start
        ids = [recorder.step(actions, *envs.step(actions)) for _ in range(2)]
        got = stored(buffer, np.concatenate([[0, 1], *ids]))
        first = 100.0 if mode is not SAME_STEP else 200.0
        assert [row[0] for row in got] == [0.0, 1.0, first, first + 1]
        assert got[1][4:] == (True, False)


class Given(VectorEnv[Any, Any, Any]):
    """A vector environment of two lanes that is never stepped: rows are made up by the test."""

    num_envs = 2
    single_observation_space = gym.spaces.Box(-1.0, 1e6, (1,), np.float64)
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, mode: AutoresetMode) -> None:
        self.metadata = {"autoreset_mode": mode}


def objects(*items: Any) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


NO, YES = np.array([False, False]), np.array([True, False])


def rows(
    observations: Any = None, rewards: Any = None, terminations: Any = YES, truncations: Any = NO, infos: Any = None
) -> tuple[Any, ...]:
    return (
        np.array([[5.0], [3.0]]) if observations is None else observations,
        np.array([1.0, 2.0], np.float32) if rewards is None else rewards,
        terminations,
        truncations,
        infos or {},
    )


class TestSameStep:
    @pytest.mark.parametrize("key", ["final_obs", "final_observation"])
    @pytest.mark.parametrize("final", [objects(np.array([3.0]), None), np.array([[3.0], [99.0]]), [[3], None]])
    def test_final_observation_under_both_names_and_in_all_containers(self, key: str, final: Any) -> None:
        envs = Given(SAME_STEP)
        buffer = buffer_for(envs)
        recorder = VectorRecorder(buffer, envs)
        recorder.reset(np.array([[2.0], [2.0]]))
        assert recorder.step([1, 1], *rows(infos={key: final})).tolist() == [0, 1]
        recorder.step([0, 0], *rows(np.array([[6.0], [4.0]]), terminations=NO))
        batch = buffer.get([0, 1, 2, 3])
        assert batch.observations.ravel().tolist() == [2.0, 2.0, 5.0, 3.0]
        assert batch.next_observations.ravel().tolist() == [3.0, 3.0, 6.0, 4.0]
        assert batch.rewards.ravel().tolist() == [1.0, 2.0, 1.0, 2.0]

    @pytest.mark.parametrize(
        ("infos", "got"),
        [
            ({}, 'infos["final_obs"] must hold the last observation of an episode, got infos with []'),
            (
                {"final_obs": objects(None, None)},
                'infos["final_obs"] must hold the last observation of an episode, got None',
            ),
            (
                {"final_obs": np.array([[3.0], [9.0]]), "_final_obs": NO},
                'infos["final_obs"] must hold the last observation of an episode, got None',
            ),
            (
                {"final_obs": objects(np.array([3.0, 4.0]), None)},
                "the final observation must have shape (1,) and dtype float64, got shape (2,) and dtype float64",
            ),
        ],
    )
    def test_hidden_or_odd_final_observation_is_an_error_that_changes_nothing(self, infos: Any, got: str) -> None:
        envs = Given(SAME_STEP)
        buffer = buffer_for(envs)
        recorder = VectorRecorder(buffer, envs)
        recorder.reset(np.array([[2.0], [2.0]]))
        message = f"VectorRecorder.step: {got} for sub-environment 0"
        with pytest.raises(EnvError, match=f"^{re.escape(message)}$") as caught:
            recorder.step([1, 1], *rows(infos=infos))
        assert caught.value.env_index == 0
        assert len(buffer) == 0
        recorder.step([1, 1], *rows(infos={"final_obs": objects(np.array([3.0]), None)}))
        assert buffer.get([0, 1]).next_observations.ravel().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("mode", MODES)
def test_nan_reward_of_a_step_is_an_error_that_changes_nothing(mode: AutoresetMode) -> None:
    envs = Given(mode)
    buffer = buffer_for(envs)
    recorder = VectorRecorder(buffer, envs)
    recorder.reset(np.array([[2.0], [2.0]]))
    message = "VectorRecorder.step: the reward must be a number, got nan for sub-environment 1"
    ends = np.array([False, False])
    with pytest.raises(EnvError, match=f"^{re.escape(message)}$") as caught:
        recorder.step([1, 1], np.array([[3.0], [3.0]]), np.array([5.0, np.nan]), ends, ends, {})
    assert caught.value.env_index == 1
    assert len(buffer) == 0
    recorder.step([1, 1], np.array([[3.0], [3.0]]), np.array([5.0, 6.0]), ends, ends, {})
    assert buffer.get([0, 1]).rewards.ravel().tolist() == [5.0, 6.0]
    assert buffer.get([0, 1]).next_observations.ravel().tolist() == [3.0, 3.0]


def test_nan_as_reward_of_a_reset_row_means_nothing() -> None:
    envs = Given(NEXT_STEP)
    buffer = buffer_for(envs)
    recorder = VectorRecorder(buffer, envs)
    recorder.reset(np.array([[2.0], [2.0]]))
    one, none = np.array([False, True]), np.array([False, False])
    recorder.step([1, 1], np.array([[3.0], [3.0]]), np.array([5.0, 6.0]), one, none, {})
    recorder.step([1, 1], np.array([[4.0], [2.0]]), np.array([7.0, np.nan]), none, none, {})
    assert buffer.get(buffer.valid_starts()).rewards.ravel().tolist() == [5.0, 6.0, 7.0]


def bad_calls() -> list[Any]:
    def made(mode: AutoresetMode = NEXT_STEP, *, reset: bool = True) -> VectorRecorder:
        envs = Given(mode)
        recorder = VectorRecorder(buffer_for(envs), envs)
        if reset:
            recorder.reset(np.array([[2.0], [2.0]]))
        return recorder

    def after_an_end() -> None:
        recorder = made(DISABLED)
        recorder.step([1, 1], *rows())
        recorder.step([1, 1], *rows(terminations=NO))

    undeclared = Given(NEXT_STEP)
    undeclared.metadata = {}
    observations = np.array([[2.0], [2.0]])
    each = "must have one row for each of 2 sub-environments, got shape"
    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (
            lambda: made(reset=False).step([1, 1], *rows()),
            RuntimeError,
            "VectorRecorder.step: recorder.reset must be called first, got a step before any reset",
        ),
        (
            after_an_end,
            RuntimeError,
            "VectorRecorder.step: sub-environments [0] must be reset after the end of their episodes, got another "
            "step; call recorder.reset(observations, mask=...)",
        ),
        (
            lambda: made().step([1, 1], *rows(rewards=np.ones(3))),
            ValueError,
            f"VectorRecorder.step: rewards {each} (3,)",
        ),
        (
            lambda: made().step([1, 1], *rows(terminations=[True])),
            ValueError,
            f"VectorRecorder.step: terminations {each} (1,)",
        ),
        (
            lambda: made().step([1, 1], *rows(np.ones((3, 1)))),
            ValueError,
            "VectorRecorder.step: observations must have shape (2, 1), got shape (3, 1)",
        ),
        (
            lambda: made().reset(np.ones(2)),
            ValueError,
            "VectorRecorder.reset: observations must have shape (2, 1), got shape (2,)",
        ),
        (
            lambda: made().reset(observations, [True]),
            ValueError,
            "VectorRecorder.reset: mask must be 2 bools, one for each sub-environment, got shape (1,) of dtype bool",
        ),
        (
            lambda: made().reset(observations, [0, 1]),
            ValueError,
            "VectorRecorder.reset: mask must be 2 bools, one for each sub-environment, got shape (2,) of dtype int64",
        ),
        (
            lambda: made(reset=False).reset(observations, [True, False]),
            ValueError,
            "VectorRecorder.reset: mask must be None for the first reset, got one for 1 of 2 sub-environments",
        ),
        (
            lambda: VectorRecorder(buffer_for(undeclared), undeclared),
            ValueError,
            'VectorRecorder: env.metadata["autoreset_mode"] must be a gymnasium.vector.AutoresetMode, got None; '
            "without it the ends of episodes cannot be read",
        ),
    ]
    return calls


@pytest.mark.parametrize(("call", "error", "message"), bad_calls())
def test_wrong_calls_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("mode", MODES)
def test_step_that_the_buffer_refuses_changes_nothing(mode: AutoresetMode) -> None:
    envs = Given(mode)
    buffer = buffer_for(envs)
    recorder = VectorRecorder(buffer, envs)
    recorder.reset(np.array([[2.0], [2.0]]))
    infos = {"final_obs": objects(np.array([3.0]), None)}
    with pytest.raises(TypeError, match="action must have an integer dtype"):
        recorder.step(np.ones((2, 7)), *rows(infos=infos))
    assert len(buffer) == 0
    recorder.step([1, 1], *rows(infos=infos))
    assert buffer.get([0, 1]).observations.ravel().tolist() == [2.0, 2.0]


def test_tour_with_a_native_vector_environment() -> None:
    envs = gym.make_vec("CartPole-v1", num_envs=8)
    buffer = ReplayBuffer(100_000, envs.single_observation_space, envs.single_action_space, seed=0)
    recorder = VectorRecorder(buffer, envs)
    envs.action_space.seed(0)
    obs, _ = envs.reset(seed=0)
    recorder.reset(obs)
    ended = skipped = 0
    for _ in range(500):
        actions = envs.action_space.sample()
        step = envs.step(actions)
        skipped += int((recorder.step(actions, *step) < 0).sum())
        ended += int((step[2] | step[3]).sum())
        obs = step[0]
    assert len(buffer) + skipped == 8 * 500
    assert buffer.num_episodes >= ended > 100
    assert buffer.stats()["kept_successors"] == 0
    batch = buffer.sample_transitions(64)
    assert batch.observations.shape == (64, 4)
    envs.close()
