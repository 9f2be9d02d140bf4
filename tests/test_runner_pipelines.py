"""The runner with pipelines, modules and callbacks: everything once, at its time, for the episodes that are open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ringback import EnvRunner, ReplayBuffer
from ringback.connectors import (
    AddObservations,
    Columns,
    Connector,
    ConnectorPipeline,
    SampleActions,
    ToNumpy,
    ToTensor,
)
from ringback.errors import EnvError
from tests.counting import (
    MODES,
    Counting,
    CountingImage,
    Drawing,
    by_hand,
    constant,
    joined,
    lane_of,
    lanes,
    plain,
    rows_of,
)

NEXT_STEP, SAME_STEP, DISABLED = MODES


class Watching(Connector):
    """Notes what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
        seen = [(episode.id_, episode.t) for episode in episodes]
        latest = [plain(episode.get_observations(-1)) for episode in episodes]
        self.calls.append({"seen": seen, "latest": latest, "columns": dict(batch), **kwargs})
        return batch


class TenTimes(Connector):
    """Multiplies the newest observation by ten, in the episode itself."""

    def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
        for episode in episodes:
            episode.set_observations(new_data=episode.get_observations(-1) * 10, at_indices=-1)
        return batch


class Remembering(Connector):
    """Reads three steps back."""

    @property
    def lookback(self) -> int:
        return 3

    def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
        for episode in episodes:
            rewards = episode.get_rewards(slice(-3, None), fill=-1.0)
            self.add_batch_item(batch, "three", np.array(rewards), episode)
        return batch


def observing(*pieces: Connector) -> list[Connector]:
    return [*pieces, AddObservations()]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
class TestEachObservationOnce:
    @pytest.mark.parametrize("module", [constant, None])
    def test_in_time_order_over_calls_of_sample(self, mode: AutoresetMode, count: int, module: Any) -> None:
        watching = Watching()
        with EnvRunner(lanes(Counting, count, mode), module, env_to_module=observing(watching)) as runner:
            chunks = [chunk for n in (1, 3, 20, 2, 9) for chunk in runner.sample(num_timesteps=n)]
        seen = [one for call in watching.calls for one in call["seen"]]
        assert max(Counter(seen).values()) == 1
        for id_ in {id_ for id_, _ in seen}:
            steps = sum(len(chunk) for chunk in chunks if chunk.id_ == id_)
            assert [t for one, t in seen if one == id_] == list(range(steps + 1))

    def test_also_when_whole_episodes_are_asked_for(self, mode: AutoresetMode, count: int) -> None:
        with EnvRunner(lanes(Counting, count, mode), constant, env_to_module=observing(TenTimes())) as runner:
            for number in (1, 2, 5):
                for episode in runner.sample(num_episodes=number):
                    observations = plain(episode.get_observations())
                    first = observations[0][0]
                    assert [row[0] - first for row in observations] == [10.0 * t for t in range(len(episode) + 1)]
                    assert first % 1000 == 0

    def test_module_acts_on_what_came_out(self, mode: AutoresetMode, count: int) -> None:
        batches: list[Any] = []

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            batches.extend(plain(batch["obs"]))
            return {"actions": np.full(len(batch["obs"]), 3)}

        with EnvRunner(lanes(Counting, count, mode), module, env_to_module=observing(TenTimes())) as runner:
            chunks = [chunk for n in (2, 2, 17) for chunk in runner.sample(num_timesteps=n)]
        # An action is asked for exactly once at each observation that a step starts from.
        starts = [plain(observation) for chunk in chunks for observation in chunk.get_observations()[:-1]]
        assert sorted(batches) == sorted(starts)

    def test_final_observations_come_in_a_batch_of_their_own(self, mode: AutoresetMode, count: int) -> None:
        watching = Watching()
        with EnvRunner(lanes(Counting, count, mode), constant, env_to_module=observing(watching)) as runner:
            episodes = runner.sample(num_episodes=4)
        ends = {(episode.id_, len(episode)) for episode in episodes}
        for call in watching.calls:
            kinds = {one in ends for one in call["seen"]}
            assert len(kinds) == 1


class TestWhatPiecesGet:
    @pytest.mark.parametrize("mode", MODES)
    def test_open_episodes_in_order_with_their_lanes_and_generators(self, mode: AutoresetMode) -> None:
        into, out = Watching(), Watching()
        pipelines = {"env_to_module": observing(into), "module_to_env": [ToNumpy(), out, SampleActions()]}
        with EnvRunner(lanes(Counting, 3, mode), constant, **pipelines) as runner:  # type: ignore[arg-type]
            runner.sample(num_timesteps=30, explore=False)
            generators: dict[int, set[int]] = {}
            for call in into.calls:
                indices = call["shared_data"]["env_indices"]
                assert indices == sorted(indices) == [int(row[0]) // 10_000 for row in call["latest"]]
                assert len(call["shared_data"]["generators"]) == len(indices)
                for index, generator in zip(indices, call["shared_data"]["generators"], strict=True):
                    generators.setdefault(index, set()).add(id(generator))
                assert (call["explore"], call["rl_module"]) == (False, constant)
            assert [len(generators[index]) for index in range(3)] == [1, 1, 1]
            assert len(set.union(*generators.values())) == 3
        assert all(call["columns"]["actions"].tolist() == [3] * len(call["seen"]) for call in out.calls)
        assert any(len(call["seen"]) < 3 for call in out.calls) == (mode is NEXT_STEP)

    def test_both_pipelines_share_their_data_over_a_step(self) -> None:
        class Telling(Connector):
            def __call__(self, *, batch: Any, episodes: Any, shared_data: Any = None, **kwargs: Any) -> Any:
                shared_data["told"] = [episode.t for episode in episodes]
                return batch

        class Asking(Connector):
            def __call__(self, *, batch: Any, episodes: Any, shared_data: Any = None, **kwargs: Any) -> Any:
                batch["told"] = np.array(shared_data["told"])
                return batch

        pipelines = {"env_to_module": observing(Telling()), "module_to_env": [ToNumpy(), SampleActions(), Asking()]}
        with EnvRunner(lanes(Counting, 2, SAME_STEP), constant, **pipelines) as runner:  # type: ignore[arg-type]
            for chunk in runner.sample(num_timesteps=20):
                assert plain(chunk.get_extra_model_outputs("told")) == list(range(len(chunk)))

    def test_spaces_of_the_environment(self) -> None:
        pipeline = ConnectorPipeline([AddObservations()])
        with EnvRunner(Counting(), env_to_module=pipeline) as runner:
            assert runner.env_to_module is pipeline
            assert pipeline.input_observation_space == Counting.observation_space
            assert pipeline.input_action_space == Counting.action_space
            assert runner.module_to_env.input_action_space == Counting.action_space

    def test_pipelines_without_pieces_are_taken_too(self) -> None:
        def module(batch: dict[str, Any]) -> dict[str, Any]:
            return {"actions": np.array([3]), "columns": np.array([len(batch)])}

        into, out = ConnectorPipeline(), ConnectorPipeline()
        with EnvRunner(Counting(), module, env_to_module=into, module_to_env=out) as runner:
            assert (runner.env_to_module, runner.module_to_env) == (into, out)
            (chunk, *_) = runner.sample(num_timesteps=2)
        assert plain(chunk.get_extra_model_outputs("columns")) == [0, 0]

    def test_lookback_is_what_the_pieces_read(self) -> None:
        with EnvRunner(lanes(Counting, 1, DISABLED), constant, env_to_module=observing(Remembering())) as runner:
            assert runner.lookback == 3
            runner.sample(num_timesteps=2)
            chunks = runner.sample(num_timesteps=3)
        assert chunks[0].rewards.lookback == 2
        message = "EnvRunner: lookback must be >= 3 for Remembering, got 2"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            EnvRunner(Counting(), lookback=2, env_to_module=observing(Remembering()))
        with EnvRunner(Counting(), lookback=5, env_to_module=observing(Remembering())) as runner:
            assert runner.lookback == 5
        with EnvRunner(Counting()) as runner:
            assert runner.lookback == 1

    @pytest.mark.parametrize("mode", MODES)
    def test_lookback_reaches_over_cuts(self, mode: AutoresetMode) -> None:
        batches: list[Any] = []

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            batches.append(plain(batch["three"]))
            return {"actions": [3]}

        env = SyncVectorEnv([lambda: Counting(lengths=[5])], autoreset_mode=mode)
        with EnvRunner(env, module, env_to_module=observing(Remembering())) as runner:
            for _ in range(5):
                runner.sample(num_timesteps=1)
        assert batches == [
            [[-1.0, -1.0, -1.0]], [[-1.0, -1.0, 1.0]], [[-1.0, 1.0, 2.0]], [[1.0, 2.0, 3.0]], [[2.0, 3.0, 4.0]],
        ]  # fmt: skip

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("tensors", [False, True])
    def test_infos_reach_the_module_as_a_list(self, tensors: bool, mode: AutoresetMode) -> None:
        class Informing(Connector):
            def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
                for episode in episodes:
                    self.add_batch_item(batch, Columns.INFOS, episode.get_infos(-1), episode)
                return batch

        seen: list[Any] = []

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            assert type(batch["infos"]) is list
            assert len(batch["infos"]) == len(batch["obs"])
            seen.extend(zip(batch["obs"][:, 0].tolist(), map(plain, batch["infos"]), strict=True))
            return {"actions": np.full(len(batch["obs"]), 3)}

        pieces = observing(Informing(), *([ToTensor()] if tensors else []))
        with EnvRunner(lanes(Counting, 2, mode), module, env_to_module=pieces) as runner:
            chunks = [chunk for n in (1, 30) for chunk in runner.sample(num_timesteps=n)]
        rows = [row for chunk in chunks for row in rows_of(chunk)]
        assert sorted(seen, key=str) == sorted(((row[1][0], row[7]) for row in rows), key=str)
        assert {len(info) for _, info in seen} == {1, 2, 3}  # they are ragged

    def test_lookback_is_checked_again_when_a_piece_came_later(self) -> None:
        message = "EnvRunner.sample: lookback must be >= 3 for Remembering, got 1; pass EnvRunner(lookback=3)"
        for name in ("env_to_module", "module_to_env"):
            for module in (constant, None):
                with EnvRunner(Counting(lengths=[9]), module) as runner:
                    (first,) = runner.sample(num_timesteps=2)
                    getattr(runner, name).append(Remembering())
                    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                        runner.sample(num_timesteps=1)
                    getattr(runner, name).remove(Remembering)
                    (second,) = runner.sample(num_timesteps=1)  # nothing has happened
                    assert (second.id_, second.t_started) == (first.id_, 2)
        with EnvRunner(Counting(lengths=[9]), constant, lookback=3) as runner:
            runner.env_to_module.append(Remembering())
            assert len(runner.sample(num_timesteps=5)[0]) == 5

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("force_reset", [False, True])
    def test_pieces_that_come_later_see_random_play_too(self, force_reset: bool, mode: AutoresetMode) -> None:
        watching = Watching()
        with EnvRunner(lanes(Counting, 2, mode)) as runner:
            runner.sample(num_timesteps=4)
            runner.env_to_module.append(watching)
            chunks = runner.sample(num_timesteps=20, force_reset=force_reset)
        seen = Counter(one for call in watching.calls for one in call["seen"])
        played = {(chunk.id_, t) for chunk in chunks for t in range(chunk.t_started, chunk.t + 1)}
        assert {id_: t for id_, t in seen.keys() - played} == {id_: 0 for id_, _ in seen.keys() - played}  # just begun
        assert seen.keys() >= played
        assert max(seen.values()) == 1
        assert {chunk.t_started > 0 for chunk in chunks} == {False} if force_reset else {False, True}

    def test_one_piece_and_what_is_none(self) -> None:
        with EnvRunner(Counting(), constant, env_to_module=AddObservations()) as runner:
            assert len(runner.sample(num_timesteps=2)[0]) == 2
        with pytest.raises(TypeError, match=r"^EnvRunner: module_to_env must be a ConnectorPipeline, a Connector or"):
            EnvRunner(Counting(), module_to_env=[3])  # type: ignore[list-item]


class TestActions:
    def test_environment_gets_actions_of_its_own(self) -> None:
        class Doubling(Connector):
            def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
                batch["actions_for_env"] = batch["actions"] * 2
                return batch

        envs = [Counting(lane) for lane in range(2)]
        env = SyncVectorEnv([lambda: envs[0], lambda: envs[1]], autoreset_mode=NEXT_STEP)
        with EnvRunner(env, constant, module_to_env=[ToNumpy(), SampleActions(), Doubling()]) as runner:
            chunks = runner.sample(num_timesteps=20)
        for lane, env_ in enumerate(envs):
            taken = [action for chunk in chunks if lane_of(chunk) == lane for action in plain(chunk.get_actions())]
            assert taken == [3] * len(taken)
            assert env_.actions == [6] * len(taken)
            assert all("actions_for_env" not in chunk.extra_model_outputs for chunk in chunks)

    @pytest.mark.parametrize("mode", MODES)
    def test_sampled_actions_are_the_same_in_all_modes_and_numbers(self, mode: AutoresetMode) -> None:
        def module(batch: dict[str, Any]) -> dict[str, Any]:
            logits = np.stack([np.full(5, 0.1) * np.arange(5) for _ in batch["obs"]])
            return {"action_dist_inputs": logits.astype(np.float32)}

        def play(mode: AutoresetMode, count: int) -> dict[int, list[Any]]:
            actions: dict[int, list[Any]] = {lane: [] for lane in range(count)}
            with EnvRunner(lanes(Counting, count, mode), module, seed=3) as runner:
                for n in (5, 40 * count):
                    for chunk in runner.sample(num_timesteps=n):
                        actions[lane_of(chunk)] += zip(
                            plain(chunk.get_actions()), plain(chunk.get_extra_model_outputs("action_logp")), strict=True
                        )
            return {lane: row[:30] for lane, row in actions.items()}

        want = play(DISABLED, 3)
        assert {action for action, _ in want[0]} == {2, 3, 4, 5, 6}
        assert want[0] != want[1] != want[2]
        assert play(mode, 3) == want
        assert play(mode, 1)[0] == want[0]

    def test_explore_chooses_the_best_or_samples(self) -> None:
        def module(batch: dict[str, Any]) -> dict[str, Any]:
            return {
                "action_dist_inputs": np.tile(np.array([0.0, 0.1, 0.3, 0.2, 0.0], np.float32), (len(batch["obs"]), 1))
            }

        with EnvRunner(Counting(), module, seed=0, explore=False) as runner:
            actions = [plain(chunk.get_actions()) for chunk in runner.sample(num_timesteps=30)]
            assert {action for row in actions for action in row} == {4}
            actions = [plain(chunk.get_actions()) for chunk in runner.sample(num_timesteps=60, explore=True)]
            assert {action for row in actions for action in row} == {2, 3, 4, 5, 6}
            assert runner.explore is False

    def test_object_with_two_forwards(self) -> None:
        class Both:
            def forward_exploration(self, batch: dict[str, Any]) -> dict[str, Any]:
                return {"actions": np.full(len(batch["obs"]), 2)}

            def forward_inference(self, batch: dict[str, Any]) -> dict[str, Any]:
                return {"actions": np.full(len(batch["obs"]), 6)}

        with EnvRunner(Counting(lengths=[9]), Both()) as runner:  # type: ignore[arg-type]
            assert plain(runner.sample(num_timesteps=2)[0].get_actions()) == [2, 2]
            assert plain(runner.sample(num_timesteps=2, explore=False)[0].get_actions()) == [6, 6]


class TestTorch:
    def test_module_works_as_it_is(self) -> None:
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)
                self.seen: list[Any] = []

            def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
                self.seen.append((batch["obs"].dtype, torch.is_grad_enabled()))
                means = self.layer(batch["obs"])
                return {"actions": means, "value": means.sum(-1)}

        net = Net()
        with EnvRunner(lanes(Drawing, 2, NEXT_STEP), net, seed=0) as runner:
            assert [type(piece) for piece in runner.env_to_module] == [AddObservations, ToTensor]
            chunks = runner.sample(num_timesteps=10)
        assert set(net.seen) == {(torch.float32, False)}
        assert torch.is_grad_enabled()
        for chunk in chunks:
            observations = torch.as_tensor(np.array(chunk.get_observations()[:-1]))
            torch.testing.assert_close(torch.as_tensor(np.array(chunk.get_actions())), net.layer(observations).detach())
            assert all(type(value) is np.float32 for value in chunk.get_extra_model_outputs("value"))

    def test_module_may_be_exchanged(self) -> None:
        import torch

        class Net(torch.nn.Module):
            def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
                return {"actions": torch.full((len(batch["obs"]),), 5)}

        with EnvRunner(lanes(Counting, 2, DISABLED)) as runner:
            runner.sample(num_timesteps=3)
            taken = []
            for module, action in ((constant, 3), (Net(), 5), (constant, 3)):
                runner.module = module
                taken += [set(plain(chunk.get_actions())) == {action} for chunk in runner.sample(num_timesteps=4)]
            assert all(taken)
            assert len(taken) >= 6

    def test_exchange_keeps_the_pipeline_with_its_pieces_and_spaces(self) -> None:
        import torch

        class Net(torch.nn.Module):
            def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
                assert isinstance(batch["obs"], torch.Tensor)
                return {"actions": torch.full((len(batch["obs"]),), 5)}

        def check(*kinds: type[Connector]) -> None:
            assert runner.env_to_module is pipeline
            assert [type(piece) for piece in pipeline] == list(kinds)
            assert [piece.input_observation_space for piece in pipeline] == [Counting.observation_space] * len(kinds)
            assert [piece.input_action_space for piece in pipeline] == [Counting.action_space] * len(kinds)
            assert runner.sample(num_timesteps=4)

        with EnvRunner(lanes(Counting, 2, DISABLED), constant) as runner:
            pipeline = runner.env_to_module
            pipeline.append(first := Watching())
            check(AddObservations, Watching)
            runner.module = lambda batch: constant(batch)
            check(AddObservations, Watching)
            runner.module = Net()
            check(AddObservations, Watching, ToTensor)
            pipeline.append(Watching())
            runner.module = Net()
            check(AddObservations, Watching, ToTensor, Watching)
            runner.module = constant
            check(AddObservations, Watching, Watching)
            runner.module = None
            check(AddObservations, Watching, Watching)
            runner.module = Net()
            check(AddObservations, Watching, Watching, ToTensor)
        seen = Counter(one for call in first.calls for one in call["seen"])
        assert max(seen.values()) == 1
        assert len(seen) >= 7 * 4

    @pytest.mark.parametrize("callbacks", [None, {"on_episode_step": lambda: None}])
    @pytest.mark.parametrize("mode", MODES)
    def test_module_acts_on_the_present_after_random_play(self, mode: AutoresetMode, callbacks: Any) -> None:
        seen: list[Any] = []

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            seen.extend(plain(batch["obs"]))
            return {"actions": np.full(len(batch["obs"]), 3)}

        with EnvRunner(lanes(Counting, 2, mode), callbacks=callbacks) as runner:
            starts = []
            for _ in range(4):
                runner.module = None
                runner.sample(num_timesteps=7)
                runner.module = module
                chunks = runner.sample(num_timesteps=5)
                starts += [plain(observation) for chunk in chunks for observation in chunk.get_observations()[:-1]]
        assert sorted(seen) == sorted(starts)

    def test_exchange_leaves_a_pipeline_that_was_given_alone(self) -> None:
        import torch

        with EnvRunner(lanes(Counting, 2, DISABLED), constant, env_to_module=observing()) as runner:
            runner.module = torch.nn.Identity()
            assert [type(piece) for piece in runner.env_to_module] == [AddObservations]

    def test_tensors_of_bfloat16_need_no_piece(self) -> None:
        import torch

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            rows = torch.as_tensor(batch["obs"]).to(torch.bfloat16)
            return {"actions": torch.full((len(rows),), 4), "value": {"half": rows * 0.5}}

        with EnvRunner(lanes(Counting, 1, DISABLED), module, module_to_env=[SampleActions()]) as runner:
            (episode,) = runner.sample(num_timesteps=2)
        assert plain(episode.get_actions()) == [4, 4]
        values = [value["half"] for value in episode.get_extra_model_outputs("value")]
        assert (plain(tuple(values)), values[0].dtype) == (([0.0], [0.5]), np.float32)


class TestCallbacks:
    @staticmethod
    def noting(events: list[Any]) -> dict[str, Callable[..., None]]:
        def on_episode_start(episode: Any, env_index: int) -> None:
            events.append(("start", episode.id_, env_index, episode.t))

        def on_episode_step(*, episode: Any, env_index: int, **rest: Any) -> None:
            assert rest["runner"] is rest["env_runner"]
            assert rest["env"] is rest["runner"].env
            events.append(("step", episode.id_, env_index, episode.t))

        def on_episode_end(episode: Any, env_index: int, record: Any, runner: EnvRunner) -> None:
            assert episode.is_done
            assert record.id_ == episode.id_
            events.append(("end", episode.id_, env_index, record.length))

        functions = (on_episode_start, on_episode_step, on_episode_end)
        return {function.__name__: function for function in functions}

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("number", [1, 2, 5])
    def test_exactly_once_when_whole_episodes_are_asked_for(self, number: int, count: int, mode: AutoresetMode) -> None:
        events: list[Any] = []
        with EnvRunner(lanes(Counting, count, mode), callbacks=self.noting(events)) as runner:
            episodes = runner.sample(num_episodes=number)
        want = []
        for episode, record in zip(episodes, runner.finished, strict=True):
            head = (episode.id_, record.env_index)
            want.append(("start", *head, 0))
            want += [("step", *head, t + 1) for t in range(len(episode))]
            want.append(("end", *head, len(episode)))
        assert sorted(events) == sorted(want)
        for episode in episodes:  # in this order, too
            mine = [event for event in events if event[1] == episode.id_]
            assert [event[0] for event in mine] == ["start", *["step"] * len(episode), "end"]

    @pytest.mark.parametrize("mode", MODES)
    def test_exactly_once_over_calls_of_sample(self, mode: AutoresetMode) -> None:
        events: list[Any] = []
        with EnvRunner(lanes(Counting, 2, mode), constant, callbacks=[self.noting(events)]) as runner:
            chunks, ended = [], []
            for n in (1, 2, 3, 20, 1):
                chunks += runner.sample(num_timesteps=n)
                ended += [record.id_ for record in runner.finished]
        assert Counter(event[1] for event in events if event[0] == "step") == {
            id_: sum(len(chunk) for chunk in chunks if chunk.id_ == id_) for id_ in {chunk.id_ for chunk in chunks}
        }
        assert [event[1] for event in events if event[0] == "end"] == ended
        starts = [event[1] for event in events if event[0] == "start"]
        assert len(starts) == len(set(starts))
        assert set(starts) >= {chunk.id_ for chunk in chunks}

    def test_object_with_one_method_sees_what_the_pipeline_made(self) -> None:
        class Callbacks:
            def __init__(self) -> None:
                self.latest: list[Any] = []

            def on_episode_step(self, episode: Any) -> None:
                self.latest.append(plain(episode.get_observations(-1))[0])

        callbacks = Callbacks()
        env = SyncVectorEnv([lambda: Counting(lengths=[3])], autoreset_mode=SAME_STEP)
        with EnvRunner(env, constant, env_to_module=observing(TenTimes()), callbacks=callbacks) as runner:
            runner.sample(num_timesteps=4)
        assert callbacks.latest == [10.0, 20.0, 30.0, 1010.0]

    def test_what_is_none_is_named(self) -> None:
        message = (
            "EnvRunner: callbacks must have one of the functions on_episode_start, on_episode_step, on_episode_end, "
            "got 3"
        )
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            EnvRunner(Counting(), callbacks=[3])

    def test_error_of_a_callback_is_the_users(self) -> None:
        def on_episode_end(**_: Any) -> None:
            raise LookupError

        with EnvRunner(Counting(lengths=[3]), constant, callbacks={"on_episode_end": on_episode_end}) as runner:
            with pytest.raises(LookupError):
                runner.sample(num_timesteps=5)
            assert runner.dropped_timesteps == 3
            chunks = runner.sample(num_timesteps=2)
            assert joined(chunks)[0][0][0][1] == [100.0]


def test_clock_of_an_episode() -> None:
    with EnvRunner(lanes(Counting, 1, DISABLED), constant) as runner:
        runner.sample(num_timesteps=1)
        runner.sample(num_timesteps=1)
        (chunk,) = runner.sample(num_timesteps=1)
        (record,) = runner.finished
    assert record.seconds > chunk.get_duration_s() >= 0


@pytest.mark.parametrize("mode", MODES)
def test_chunks_of_a_pipeline_go_into_a_buffer(mode: AutoresetMode) -> None:
    with EnvRunner(lanes(Counting, 2, mode), constant, env_to_module=observing(Remembering())) as runner:
        buffer = ReplayBuffer(1_000, runner.observation_space, runner.action_space, seed=0)
        for n in (3, 1, 30, 2):
            for episode in runner.sample(num_timesteps=n):
                buffer.add_episode(episode)
    batch = buffer.sample_transitions(len(buffer))
    got = zip(
        batch.observations.ravel().tolist(),
        batch.rewards.ravel().tolist(),
        batch.next_observations.ravel().tolist(),
        batch.terminations.ravel().tolist(),
        batch.truncations.ravel().tolist(),
        strict=True,
    )
    assert len(buffer) == runner.total_timesteps
    transitions = sorted(got)
    for lane in range(2):
        mine = [row for row in transitions if row[0] // 10_000 == lane]
        assert len(mine) > 10
        played = [row for episode in by_hand(Counting(lane), len(mine)) for row in episode]
        assert mine == sorted((row[1][0], row[3], row[4][0], row[5], row[6]) for row in played)


def test_mountain_car_with_a_list_of_actions() -> None:
    from ringback.connectors import ListItems

    def module(batch: dict[str, Any]) -> dict[str, Any]:
        return {"actions": np.full((len(batch["obs"]), 1), 0.5, np.float32)}

    envs = gym.make_vec("MountainCarContinuous-v0", num_envs=3, vectorization_mode="sync")
    with EnvRunner(envs, module, module_to_env=[ToNumpy(), SampleActions(), ListItems()], seed=0) as runner:
        chunks = runner.sample(num_timesteps=9)
    assert [plain(chunk.get_actions()) for chunk in chunks] == [[[0.5]] * 3] * 3


class TestUnseenPlay:
    """Random play that nobody watches is logged as arrays and made into episodes at the end: the same episodes."""

    @staticmethod
    def play(kind: type[Counting], mode: AutoresetMode, count: int, callbacks: Any, **options: Any) -> list[Any]:
        handed = []
        with EnvRunner(lanes(kind, count, mode, **options), seed=4, callbacks=callbacks) as runner:
            for n in (1, 2, 40, 3, 1, 17):
                chunks = runner.sample(num_timesteps=n)
                handed.append(
                    (
                        [(chunk.t_started, chunk.is_terminated, chunk.is_truncated) for chunk in chunks],
                        [(rows_of(chunk), [type(item) for item in chunk.get_actions()]) for chunk in chunks],
                        [plain(chunk.get_observations(slice(-1, 1), neg_index_as_lookback=True)) for chunk in chunks],
                        [(one.env_index, one.return_, one.length) for one in runner.finished],
                        (runner.total_timesteps, runner.total_episodes, runner.dropped_timesteps),
                    )
                )
                assert all(record.seconds >= 0 for record in runner.finished)
                assert all(0 < chunk.get_duration_s() < 60 for chunk in chunks if chunk.t_started == 0)
        return handed

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("count", [1, 2, 5])
    @pytest.mark.parametrize("kind", [Counting, CountingImage, Drawing])
    def test_as_watched(self, kind: type[Counting], count: int, mode: AutoresetMode) -> None:
        watched = self.play(kind, mode, count, {"on_episode_step": lambda: None})
        assert self.play(kind, mode, count, None) == watched
        assert self.play(kind, mode, count, None, copy=False) == watched

    def test_native_arrays_that_are_used_again(self) -> None:
        class Native(gym.vector.VectorEnv[Any, Any, Any]):
            """Two lanes with episodes of three steps in NEXT_STEP mode, in arrays that are written again and again."""

            num_envs = 2
            metadata: dict[str, Any] = {"autoreset_mode": NEXT_STEP}  # noqa: RUF012
            single_observation_space = gym.spaces.Box(0, 255, (1,), np.uint8)
            single_action_space = gym.spaces.Discrete(2)

            def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
                self.t = 0
                self.out = np.zeros((2, 1), np.uint8), np.zeros(2, np.float32), np.zeros(2, bool), np.zeros(2, bool)
                self.infos = {"speed": np.zeros(2)}
                return self.out[0], {}

            def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
                self.t += 1
                observations, rewards, terminations, _ = self.out
                observations[:, 0] = self.t, self.t + 100
                rewards[:] = self.t + 0.5
                terminations[:] = self.t % 4 == 3
                self.infos["speed"][:] = self.t * 2
                return (*self.out, self.infos)

        with EnvRunner(Native()) as runner:
            first, second, *rest = runner.sample(num_timesteps=12)
        assert [plain(one.get_observations()) for one in (first, second)] == [
            [[0], [1], [2], [3]],
            [[0], [101], [102], [103]],
        ]
        assert first.get_rewards() == [1.5, 2.5, 3.5]
        assert plain(tuple(first.get_infos())) == ({}, {"speed": 2}, {"speed": 4}, {"speed": 6})
        assert [plain(one.get_observations()) for one in rest] == [[[4], [5], [6], [7]], [[104], [105], [106], [107]]]
        assert first.get_observations(-1).dtype == np.uint8

    @pytest.mark.parametrize("callbacks", [None, {"on_episode_step": lambda: None}])
    @pytest.mark.parametrize("wrong", [None, 5])
    def test_reward_of_a_row_that_is_no_step_means_nothing(self, wrong: int | None, callbacks: Any) -> None:
        class Unrewarding(gym.vector.VectorEnv[Any, Any, Any]):
            """Two lanes in NEXT_STEP mode whose rows of resets have NaN as reward; at call `wrong` a step has, too."""

            num_envs = 2
            metadata: dict[str, Any] = {"autoreset_mode": NEXT_STEP}  # noqa: RUF012
            single_observation_space = gym.spaces.Box(-1.0, 1e6, (1,), np.float64)
            single_action_space = gym.spaces.Discrete(2)

            def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
                self.calls = 0
                self.t, self.episode = np.zeros(2), np.zeros(2)
                self.ended = np.zeros(2, bool)
                return self.observe(), {}

            def observe(self) -> Any:
                return (10_000 * np.arange(2) + 100 * self.episode + self.t)[:, None]

            def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
                self.calls += 1
                self.t = np.where(self.ended, 0, self.t + 1)
                self.episode += self.ended
                rewards = np.where(self.ended, np.nan, 1000 * self.episode + self.t)
                self.ended = self.t == [3, 4]
                if self.calls == wrong:
                    rewards[0] = np.nan
                return self.observe(), rewards, self.ended, self.ended & False, {}

        with EnvRunner(Unrewarding(), callbacks=callbacks) as runner:
            if wrong is None:
                chunks = runner.sample(num_timesteps=20)
                assert 20 <= sum(map(len, chunks)) <= 21
            else:
                with pytest.raises(EnvError, match="sub-environment 0: the reward must be a number, got nan at step 1"):
                    runner.sample(num_timesteps=20)
        if wrong is None:
            for lane, episodes in joined(chunks).items():
                assert [[row[1][0] for row in rows] for rows in episodes] == [
                    [10_000.0 * lane + 100 * number + t for t in range(len(rows))]
                    for number, rows in enumerate(episodes)
                ]
                assert [len(rows) for rows in episodes[:-1]] == [3 + lane] * (len(episodes) - 1)
                assert [[row[3] for row in rows] for rows in episodes] == [
                    [1000.0 * number + t + 1 for t in range(len(rows))] for number, rows in enumerate(episodes)
                ]
                assert all(rows[-1][5] for rows in episodes[:-1])
