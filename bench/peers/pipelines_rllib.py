"""How long do our pipelines and our runner take beside RLlib's, on the same episodes?

Needs an environment of its own with ``ray[rllib]==2.60.0``, CPU torch and ringback:

    python bench/peers/pipelines_rllib.py [--quick] [--only WORD] [--turns N] [--out FILE.json]

Three kinds of rows: the env-to-module pipeline for 16 open episodes in list form, after each step that they make; the
learner's pipeline for 32 episodes of 200 steps in array form; and a step of 16 CartPole-v1 with random actions, also
beside a bare loop over the same vector environment. RLlib's pipelines are those that its configs and learners build,
its runner is made from a PPOConfig; no cluster is started.

Both sides do the same work on the same data in one process, one thread, a few calls each in turn. What a call consumes
(the next step of every episode, a fresh copy of the episodes) is made before it, unmeasured. A turn's figure is the
median of its calls; a row gives the medians of the turns and the median of the ratios within a turn. What the
two give is compared before the first turn and after the last. A row without a bar is only there to be looked at. The
exit status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import statistics
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
from ray.rllib.algorithms.dqn import DQNConfig  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.connectors.env_to_module import MeanStdFilter, PrevActionsPrevRewards  # noqa: E402
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule  # noqa: E402
from ray.rllib.core import DEFAULT_MODULE_ID  # noqa: E402
from ray.rllib.core.rl_module.apis import ValueFunctionAPI  # noqa: E402
from ray.rllib.core.rl_module.rl_module import RLModuleSpec  # noqa: E402
from ray.rllib.core.rl_module.torch import TorchRLModule  # noqa: E402
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner  # noqa: E402
from ray.rllib.env.single_agent_episode import SingleAgentEpisode as TheirEpisode  # noqa: E402
from turns import Arrays, Measured, Row, Side, measure  # noqa: E402

from ringback import EnvRunner  # noqa: E402
from ringback import connectors as our  # noqa: E402
from ringback.episodes import SingleAgentEpisode as OurEpisode  # noqa: E402

ENVS, OPEN_STEPS, STATE = 16, 20, 8
EPISODES, STEPS, MAX_SEQ_LEN = 32, 200, 24
GAMMA, LAMBDA = 0.99, 0.95
VECTOR, IMAGE, CHOICE = (
    gym.spaces.Box(-1e6, 1e6, (4,), np.float32),
    gym.spaces.Box(0, 255, (84, 84, 1), np.uint8),
    gym.spaces.Discrete(2),
)


class Module(TorchRLModule, ValueFunctionAPI):
    """A module of RLlib's that computes next to nothing, so that the pipelines around it are what is compared."""

    def setup(self) -> None:
        self.stateful = self.model_config["stateful"]
        self.nothing = torch.nn.Parameter(torch.zeros(1))  # RLlib's learner builds an optimiser

    def get_initial_state(self) -> dict[str, Any]:
        return {"h": torch.zeros(STATE)} if self.stateful else {}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Any:
        return batch["obs"].sum(-1) / 1000


def module(space: gym.Space[Any] = VECTOR, stateful: bool = False) -> RLModuleSpec:
    return RLModuleSpec(Module, space, CHOICE, model_config={"stateful": stateful, "max_seq_len": MAX_SEQ_LEN})


# Steps: observation = 100 * episode + t and a little more in each place, so that a row out of place is seen.


def observation(space: gym.Space[Any], episode: int, t: int) -> np.ndarray[Any, Any]:
    if space is VECTOR:
        return np.array([100 * episode + t + 0.25 * k for k in range(4)], np.float32)
    out = np.full(space.shape, (100 * episode + t) % 256, np.uint8)
    out[t % 84, episode] = t % 251
    return out


def extras(episode: int, t: int, stateful: bool) -> dict[str, Any]:
    out = {"action_logp": np.float32(-0.5 * t), "action_dist_inputs": np.array([episode, t], np.float32)}
    return {**out, "state_out": {"h": np.full(STATE, 100 * episode + t, np.float32)}} if stateful else out


def step_of(space: gym.Space[Any], episode: int, t: int, stateful: bool) -> dict[str, Any]:
    """Step t, with the observation that it leads to."""
    return {
        "observation": observation(space, episode, t + 1),
        "action": np.int64((episode + t) % 2),
        "reward": 1000.0 * episode + t,
        "infos": {},
        "extra_model_outputs": extras(episode, t, stateful),
    }


def as_arrays(value: Any, name: str = "") -> Arrays:
    """All leaves of a batch, by their path."""
    if isinstance(value, dict):
        inner = [as_arrays(each, f"{name}.{key}" if name else str(key)) for key, each in value.items()]
        return {path: array for part in inner for path, array in part.items()}
    return {name: np.asarray(value)}


# Env to module ---------------------------------------------------------------------------------------------------


class Stepping:
    """16 open episodes; before each call every one of them makes a step, unless caches are to stay warm."""

    warm = False

    def __init__(self, episode: Any, pipeline: Any, rl_module: Any, space: Any, stateful: bool, translate: Any) -> None:
        self.pipeline, self.rl_module, self.space, self.stateful = pipeline, rl_module, space, stateful
        self.translate = translate
        self.episodes = [episode(observation_space=space, action_space=CHOICE) for _ in range(ENVS)]
        for k, each in enumerate(self.episodes):
            each.add_env_reset(observation(space, k, 0), {})
        self.t = 0
        for _ in range(OPEN_STEPS):
            self.call(self.prepare())

    def prepare(self) -> dict[str, Any]:
        if self.t < OPEN_STEPS or not self.warm:
            for k, each in enumerate(self.episodes):
                each.add_env_step(**step_of(self.space, k, self.t, self.stateful))
            self.t += 1
        return {}

    def call(self, given: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = self.pipeline(
            rl_module=self.rl_module, batch=given, episodes=self.episodes, explore=True, shared_data={}
        )
        return out

    def answer(self, result: dict[str, Any]) -> Arrays:
        return as_arrays(self.translate(result))

    def units(self, result: Any) -> int:
        return 1


def unchanged(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def frames_first(batch: dict[str, Any]) -> dict[str, Any]:
    """RLlib stacks along the last axis, (rows, 84, 84, k); we give (rows, k, 84, 84, 1), oldest first as well."""
    return {**batch, "obs": np.moveaxis(np.asarray(batch["obs"]), -1, 1)[..., None]}


def columns_apart(batch: dict[str, Any]) -> dict[str, Any]:
    """RLlib puts previous actions and rewards into the observation and lays the one-hot actions side by side."""
    obs = batch["obs"]
    coded = np.asarray(obs["prev_n_actions"]).reshape(ENVS, -1, int(CHOICE.n))
    return {"obs": obs["_orig_obs"], "prev_actions": coded, "prev_rewards": obs["prev_n_rewards"]}


def last_row(batch: dict[str, Any]) -> dict[str, Any]:
    """RLlib counts and changes one episode after the other, we count all of them first: only the last one agrees."""
    return {"obs": np.asarray(batch["obs"])[-1]}


def stepping(
    name: str,
    pieces: Callable[[], list[Any]],
    theirs: Callable[[], list[Any]] = list,
    space: gym.Space[Any] = VECTOR,
    stateful: bool = False,
    translate: Callable[[dict[str, Any]], dict[str, Any]] = unchanged,
    both: Callable[[dict[str, Any]], dict[str, Any]] = unchanged,
    calls: int = 200,
    kind: type[Stepping] = Stepping,
    bar: float | None = 5.0,
) -> Row:
    """A row: our pieces and ToTensor, which batches, beside RLlib's default pipeline with its pieces in front."""

    def ours() -> Side:
        pipeline = our.ConnectorPipeline(
            [*pieces(), our.ToTensor()], input_observation_space=space, input_action_space=CHOICE
        )
        return kind(OurEpisode, pipeline, module(space, stateful).build(), space, stateful, both)

    def rllib() -> Side:
        config = PPOConfig().environment(observation_space=space, action_space=CHOICE)
        config.env_runners(env_to_module_connector=lambda env, spaces, device: theirs())
        pipeline = config.build_env_to_module_connector(spaces={"__env_single__": (space, CHOICE)})
        return kind(
            TheirEpisode, pipeline, module(space, stateful).build(), space, stateful, lambda out: both(translate(out))
        )

    return Row(f"env to module, 16 episodes: {name}", ours, rllib, bar, calls, at_a_time=20)


class Warm(Stepping):
    """The same call again and again."""

    warm = True


def stepping_rows() -> list[Row]:
    plain: list[tuple[str, dict[str, Any]]] = [
        ("feed-forward", {"pieces": lambda: [our.AddObservations()]}),
        (
            "stateful (time dimension, states)",
            {"pieces": lambda: [our.AddObservations(), our.AddTimeDim(), our.AddStates()], "stateful": True},
        ),
        (
            "stack of 4 images 84×84×1",
            {
                "pieces": lambda: [our.FrameStack(4)],
                "theirs": lambda: [FrameStackingEnvToModule(num_frames=4)],
                "space": IMAGE,
                "translate": frames_first,
                "calls": 100,
            },
        ),
    ]
    written: list[tuple[str, dict[str, Any]]] = [
        (
            "2 previous actions, one-hot, and rewards",
            {
                "pieces": lambda: [our.AddObservations(), our.PreviousActionsRewards(2)],
                "theirs": lambda: [PrevActionsPrevRewards(n_prev_actions=2, n_prev_rewards=2)],
                "translate": columns_apart,
            },
        ),
        (
            "running mean and deviation, kept in the episodes",
            {
                "pieces": lambda: [our.MeanStdFilter(write_to_episodes=True), our.AddObservations()],
                "theirs": lambda: [MeanStdFilter()],
                "both": last_row,
            },
        ),
        (
            "running mean and deviation, ours in the batch only",
            {
                "pieces": lambda: [our.AddObservations(), our.MeanStdFilter()],
                "theirs": lambda: [MeanStdFilter()],
                "both": last_row,
            },
        ),
    ]
    rows = [stepping(name, **what) for name, what in [*plain, *written]]
    # What RLlib writes into the episodes it would write again and again: only the others can be called so.
    return rows + [stepping(f"{name}; warm", kind=Warm, bar=None, **what) for name, what in plain]


# Learner ---------------------------------------------------------------------------------------------------------


class Learning:
    """32 finished or cut episodes in array form; every call gets a copy of its own, for some pieces lengthen them."""

    def __init__(self, episode: Any, pipeline: Any, rl_module: Any, stateful: bool) -> None:
        self.pipeline, self.rl_module = pipeline, rl_module
        self.originals = [self.whole(episode, k, stateful) for k in range(EPISODES)]

    @staticmethod
    def whole(episode: Any, k: int, stateful: bool) -> Any:
        out = episode(observation_space=VECTOR, action_space=CHOICE)
        out.add_env_reset(observation(VECTOR, k, 0), {})
        for t in range(STEPS):
            last = t == STEPS - 1
            ends = {"terminated": last and k % 3 == 0, "truncated": last and k % 3 == 1}
            out.add_env_step(**step_of(VECTOR, k, t, stateful), **ends)
        return out.to_numpy()

    def prepare(self) -> list[Any]:
        return [copy.deepcopy(each) for each in self.originals]

    def call(self, given: list[Any]) -> dict[str, Any]:
        out: dict[str, Any] = self.pipeline(
            rl_module=self.rl_module, batch={}, episodes=given, explore=False, shared_data={}
        )
        return out

    def answer(self, result: dict[str, Any]) -> Arrays:
        return over_steps(as_arrays(result.get(DEFAULT_MODULE_ID, result)))

    def units(self, result: Any) -> int:
        return 1


def over_steps(batch: Arrays) -> Arrays:
    """Look at real steps alone: in the added rows RLlib leaves sums over two episodes, and scales all by them too."""
    if "advantages" in batch:
        real = batch["loss_mask"]
        advantages = batch["advantages"][real]
        batch["advantages"] = (advantages - advantages.mean()) / advantages.std()
        batch["value_targets"] = batch["value_targets"][real]
    return batch


def learning(
    name: str, pieces: Callable[[], list[Any]], config: Any = PPOConfig, stateful: bool = False, plain: bool = False
) -> Row:
    """A row: our pieces beside the pipeline of a learner, or (plain) beside the one before an algorithm adds to it."""

    def ours() -> Side:
        pipeline = our.ConnectorPipeline(pieces(), input_observation_space=VECTOR, input_action_space=CHOICE)
        return Learning(OurEpisode, pipeline, module(stateful=stateful).build(), stateful)

    def rllib() -> Side:
        built = config().environment(observation_space=VECTOR, action_space=CHOICE)
        built.training(gamma=GAMMA, **({"lambda_": LAMBDA} if config is PPOConfig else {}))
        if config is PPOConfig:
            built.rl_module(rl_module_spec=module(stateful=stateful))
        learner = built.build_learner(spaces={DEFAULT_MODULE_ID: (VECTOR, CHOICE)})
        pipeline = built.build_learner_connector(VECTOR, CHOICE) if plain else learner._learner_connector
        return Learning(TheirEpisode, pipeline, learner.module, stateful)

    return Row(f"learner, 32 episodes × 200 steps: {name}", ours, rllib, 5.0, 10)


def learner_rows() -> list[Row]:
    def default(*between: Any) -> list[Any]:
        return [our.AddObservations(as_learner_connector=True), *between, our.AddColumns()]

    def gae() -> Any:
        return our.GeneralAdvantageEstimation(gamma=GAMMA, lambda_=LAMBDA)

    return [
        learning("default", lambda: [*default(), our.ToTensor()], plain=True),
        learning(
            "DQN's, with next observations", lambda: [*default(our.AddNextObservations()), our.ToTensor()], DQNConfig
        ),
        learning(
            "stateful, sequences of 24",
            lambda: [
                *default(),
                our.AddTimeDim(as_learner_connector=True),
                our.AddStates(as_learner_connector=True),
                our.ToTensor(),
            ],
            stateful=True,
            plain=True,
        ),
        learning("PPO's, one more step and GAE", lambda: [our.AddOneStep(), *default(), our.ToTensor(), gae()]),
    ]


# Runner ----------------------------------------------------------------------------------------------------------


class Running:
    """Random actions on 16 CartPole-v1, a unit is a step of one of them."""

    def __init__(self, sample: Callable[[], Any], between: Callable[[], Any] = dict) -> None:
        self.sample, self.between = sample, between

    def prepare(self) -> None:
        self.between()

    def call(self, given: None) -> Any:
        return self.sample()

    def answer(self, result: Any) -> Arrays:
        steps = sum(len(episode) for episode in result)
        if not SAMPLED <= steps < SAMPLED + ENVS:
            raise SystemExit(f"runner: {steps} steps, asked for {SAMPLED}")
        for episode in result:
            check_physics(episode)
        return {}

    def units(self, result: Any) -> int:
        return sum(len(episode) for episode in result)


class Looping(Running):
    """The same vector environment stepped with nothing kept; the row after an end is a reset, not a step."""

    def __init__(self, envs: Any) -> None:
        self.envs, self.between = envs, dict
        self.ended = np.zeros(ENVS, bool)
        envs.reset(seed=1)

    def call(self, given: None) -> Any:
        envs, ends = self.envs, []
        for _ in range(SAMPLED // ENVS):
            _, _, terminations, truncations, _ = envs.step(envs.action_space.sample())
            ends.append((terminations, truncations))
        return ends

    def answer(self, result: Any) -> Arrays:
        return {}

    def units(self, result: Any) -> int:
        before, steps = self.ended, 0
        for terminations, truncations in result:
            steps += ENVS - int(before.sum())
            before = terminations | truncations
        self.ended = before
        return steps


SAMPLED = 64 * ENVS
PHYSICS = gym.make("CartPole-v1").unwrapped


def check_physics(episode: Any) -> None:
    """Raise unless every observation is what CartPole makes of the one before and the action between."""
    PHYSICS.reset(seed=0)
    observations = np.asarray(episode.get_observations())
    for now, then, action in zip(observations[:-1], observations[1:], episode.get_actions(), strict=True):
        PHYSICS.state, PHYSICS.steps_beyond_terminated = tuple(now.astype(float)), None
        made, _, ended, *_ = PHYSICS.step(int(action))
        if not np.allclose(made, then, atol=1e-4):
            raise SystemExit(f"runner: {action} leads from {now} to {made}, not to {then}")
    if episode.is_terminated and not ended:
        raise SystemExit(f"runner: an episode terminated at {then}")


def running_rows() -> list[Row]:
    def cart_poles(mode: str) -> Any:
        return gym.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode=mode)

    def ours(mode: str) -> Side:
        runner = EnvRunner(cart_poles(mode), seed=1)
        return Running(partial(runner.sample, num_timesteps=SAMPLED))

    def theirs(mode: str, with_module: bool = True) -> Side:
        config = PPOConfig().environment("CartPole-v1").debugging(seed=1)
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=ENVS, gym_env_vectorize_mode=mode)
        runner = SingleAgentEnvRunner(config=config)
        if not with_module:
            runner.module = None
        # Metrics are asked for as an algorithm does: RLlib keeps all finished episodes until then.
        return Running(partial(runner.sample, num_timesteps=SAMPLED, random_actions=True), runner.get_metrics)

    def loop(mode: str) -> Side:
        return Looping(cart_poles(mode))

    def row(name: str, mode: str, other: Callable[[], Side], bar: float | None) -> Row:
        return Row(f"runner, 16 CartPole, {name}", partial(ours, mode), other, bar, 4)

    one_by_one, native = "sync", "vector_entry_point"
    return [
        row("SyncVectorEnv: RLlib's runner", one_by_one, partial(theirs, one_by_one), 3.0),
        row("SyncVectorEnv: the same without its module", one_by_one, partial(theirs, one_by_one, False), None),
        row("SyncVectorEnv: a bare loop", one_by_one, partial(loop, one_by_one), 0.8),
        row("all in arrays: RLlib's runner", native, partial(theirs, native), None),
        row("all in arrays: a bare loop", native, partial(loop, native), None),
    ]


# ------------------------------------------------------------------------------------------------------------------


def line(row: Measured, verdict: str) -> str:
    bar = "" if row.bar is None else f"{row.bar:.2f}x"
    ours, theirs = statistics.median(row.ours), statistics.median(row.theirs)
    return f"{row.name:78s} {ours:9.1f} {theirs:9.1f} {row.ratio:6.2f}x {bar:>6s} {verdict}".rstrip()


def table(rows: list[Measured], versions: dict[str, str]) -> str:
    """The same in Markdown, with the least and the most of the turns."""

    def spread(figures: list[float]) -> str:
        return f"{statistics.median(figures):,.1f} ({min(figures):,.1f}..{max(figures):,.1f})"

    lines = [
        "Microseconds a call, of a runner a step: median (min..max) of "
        f"{len(rows[0].ours)} turns; {', '.join(f'{name} {number}' for name, number in versions.items())}.",
        "",
        "| what | ringback | the other | ratio | bar | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:g}"
        verdict = row.verdict.replace("missed", "**missed**")
        cells = (row.name, spread(row.ours), spread(row.theirs), f"{row.ratio:.2f}", bar, verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one turn of two calls: it still runs and is right; figures mean nothing"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name holds this")
    parser.add_argument("--turns", type=int, default=11, metavar="N", help="turns of each side [11]")
    parser.add_argument(
        "--out", type=Path, default=None, metavar="FILE", help="also write: a table if it ends in .md, else all as JSON"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [row for row in [*stepping_rows(), *learner_rows(), *running_rows()] if options.only in row.name]
    if not chosen:
        parser.error(f"--only must be part of a row's name, got {options.only!r}")
    print(f"{'microseconds a call; of a runner: a step':78s} {'ours':>9s} {'the other':>9s} {'ratio':>7s} {'bar':>6s}")
    found = []
    for row in chosen:
        found.append(measure(row, 1 if options.quick else options.turns, 2 if options.quick else None))
        print(line(found[-1], "" if options.quick else found[-1].verdict), flush=True)
    if options.out:
        versions = {name: version(name) for name in ("ray", "torch", "numpy", "gymnasium")}
        content = {"quick": options.quick, "versions": versions, "rows": [row.as_dict() for row in found]}
        text = table(found, versions) if options.out.suffix == ".md" else json.dumps(content, indent=1) + "\n"
        options.out.write_text(text)
    missed = [row.name for row in found if row.verdict == "missed"]
    if missed and not options.quick:
        print("missed:", "; ".join(missed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
