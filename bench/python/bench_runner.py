"""Stepping 16 CartPoles with random actions: the runner beside a bare loop over the same vector environment.

    python bench/python/bench_runner.py [--quick]

The bare loop is ``envs.step(envs.action_space.sample())`` and keeps nothing. The runner hands back episodes, in each
call of `sample` 100 steps of each sub-environment; the recorder writes the bare loop's steps into a replay buffer. A
call is one ``envs.step``, with the rows that `NEXT_STEP` mode spends on resets in it for everybody. The second table
has the mode that spends none, which is the one of a runner that is given an id.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ringback import EnvRunner, ReplayBuffer, SingleAgentEpisode, VectorRecorder
from side_by_side import Contender, arguments, at_most, compare

ENVS = 16
ROUNDS = 100  # steps of all sub-environments in one turn
BAR = 1 / 0.8  # at least 0.8 times the steps per second of the bare loop


def make(mode: AutoresetMode) -> VectorEnv[Any, Any, Any]:
    """Return CartPoles one after the other in this process."""
    return gym.make_vec("CartPole-v1", ENVS, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})


class Bare:
    """A loop that steps and keeps nothing."""

    def __init__(self, mode: AutoresetMode) -> None:
        self.envs = make(mode)
        self.envs.action_space.seed(0)
        self.envs.reset(seed=0)
        self.disabled = mode is AutoresetMode.DISABLED

    def run(self) -> None:
        """Take a turn."""
        envs = self.envs
        for _ in range(ROUNDS):
            _, _, terminations, truncations, _ = envs.step(envs.action_space.sample())
            if self.disabled:
                ended = terminations | truncations
                if ended.any():
                    envs.reset(options={"reset_mask": ended})


class Recorded(Bare):
    """The same loop with a recorder."""

    def __init__(self, mode: AutoresetMode) -> None:
        super().__init__(mode)
        self.buffer = ReplayBuffer(20_000, self.envs.single_observation_space, self.envs.single_action_space, seed=0)
        self.recorder = VectorRecorder(self.buffer, self.envs)
        self.recorder.reset(self.envs.reset(seed=0)[0])

    def run(self) -> None:
        """Take a turn."""
        envs, recorder = self.envs, self.recorder
        for _ in range(ROUNDS):
            actions = envs.action_space.sample()
            step = envs.step(actions)
            recorder.step(actions, *step)
            if self.disabled:
                ended = step[2] | step[3]
                if ended.any():
                    recorder.reset(envs.reset(options={"reset_mask": ended.copy()})[0], ended)

    def check(self) -> None:
        """Check that successors go on as CartPole does, and nothing else."""
        self.run()
        batch = self.buffer.sample_transitions(len(self.buffer))
        assert follows(batch.observations, batch.actions.ravel(), batch.next_observations)
        assert self.buffer.stats()["kept_successors"] == 0


class Run:
    """The runner."""

    def __init__(self, runner: EnvRunner) -> None:
        self.runner = runner
        self.chunks: list[SingleAgentEpisode] = []
        self.calls = ROUNDS
        if runner.env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP:
            turns = 20
            runner.sample(num_timesteps=turns * ENVS * ROUNDS)
            self.calls += round(len(runner.finished) / turns / ENVS)  # each end costs a row

    def run(self) -> None:
        """Take a turn."""
        self.chunks = self.runner.sample(num_timesteps=ENVS * ROUNDS)

    def check(self) -> None:
        """Check the episodes of a turn: as many steps as asked for, each as CartPole goes on."""
        self.run()
        assert ENVS * ROUNDS <= sum(map(len, self.chunks)) < ENVS * (ROUNDS + 1)
        for chunk in self.chunks:
            observations, actions = np.array(chunk.get_observations()), np.array(chunk.get_actions())
            assert follows(observations[:-1], actions, observations[1:])
            assert chunk.get_rewards() == [1.0] * len(chunk)
            assert chunk.is_done == bool((np.abs(observations[-1][[0, 2]]) > [2.4, np.pi / 15]).any())


def follows(observations: Any, actions: Any, successors: Any) -> bool:
    """Tell whether CartPole leads from the observations to the successors (Florian 2007, as gymnasium computes it)."""
    x, v, angle, turn = observations.astype(np.float64).T
    force = np.where(actions == 1, 10.0, -10.0)
    cosine, sine = np.cos(angle), np.sin(angle)
    push = (force + 0.05 * turn**2 * sine) / 1.1
    bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    pull = push - 0.05 * bend * cosine / 1.1
    want = np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], 1)
    return bool(np.allclose(successors, want, atol=1e-5))


def main() -> None:
    """Print both tables."""
    quick = arguments(str(__doc__)).quick
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        bare, recorded = Bare(mode), Recorded(mode)
        runners = [("ringback.EnvRunner", Run(EnvRunner(make(mode), seed=0)))]
        if mode is AutoresetMode.DISABLED:
            runners.append(("ringback.EnvRunner of an id", Run(EnvRunner("CartPole-v1", num_envs=ENVS, seed=0))))
        contenders = [Contender("bare loop", bare.run, calls=ROUNDS)]
        contenders += [Contender(name, one.run, one.check, one.calls, *at_most(BAR)) for name, one in runners]
        contenders.append(Contender("bare loop with VectorRecorder", recorded.run, recorded.check, ROUNDS))
        times = compare(f"step {ENVS} CartPole-v1 with random actions, mode {mode.name}", contenders, quick)
        steps = ENVS * ROUNDS / runners[0][1].calls  # of a call
        for name, timing in times.items():
            print(f"{name}: {steps / timing.median * 1e6:,.0f} steps per second")


if __name__ == "__main__":
    main()
