"""What the training programs share: rounds, validations, how networks are stepped, and files."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import nn

from ringback import EnvRunner
from ringback.examples import dqn, recurrent, sac, stepping, training
from tests.examples import puzzles
from tests.examples.corridor import CORRIDOR, register

register()
puzzles.register()
torch.set_num_threads(1)

SMALL = dqn.Settings(
    CORRIDOR, seed=1, steps=2_500, width=32, batch_size=32, capacity=2_000, warmup=200, tau=0.02, validate_every=250
)


BRIEF: dict[Any, training.Settings] = {
    dqn: SMALL,
    recurrent: recurrent.Settings(puzzles.RECALL, seed=1, width=8, batch_size=4, warmup=50),
    sac: sac.Settings(puzzles.AIM, seed=1, width=8, batch_size=4, warmup=50),
}


def weights(network: nn.Module) -> list[Any]:
    return [value.tolist() for value in network.state_dict().values()]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_round_plays_one_step_in_each_environment_and_says_how_many_updates_are_due(num_envs: int) -> None:
    settings = training.Settings(CORRIDOR, steps=30, num_envs=num_envs, warmup=6, update_every=4, validate_every=1_000)
    rounds: list[tuple[float, int, int, int]] = []
    reports: list[training.Progress] = []
    with (
        EnvRunner(CORRIDOR, num_envs=num_envs, seed=0) as runner,
        training.Run(settings, runner, nn.Linear(1, 1), lambda *_, **__: [-5.0, -7.0], reports.append) as run,
    ):
        for done in run.rounds():
            steps = sum(len(chunk) for chunk in run.play())
            run.note(steps=float(steps))
            rounds.append((done, steps, run.updates, run.step))
    assert [step for *_, step in rounds] == list(range(num_envs, 31, num_envs))
    for done, steps, updates, step in rounds:
        assert steps == num_envs
        assert done == (step - num_envs) / 30
        due = [earlier for earlier in range(step - steps + 1, step + 1) if earlier % 4 == 0]
        assert updates == (len(due) if step - steps >= 6 else 0)
    assert [report.step for report in reports] == [step for *_, step in rounds]
    assert all(report.figures == {"steps": num_envs} for report in reports)
    assert [report.validation_return for report in reports] == [None] * (len(reports) - 1) + [-6.0]
    finished = [value for report in reports for value in report.finished]
    assert len(finished) == reports[-1].episodes > 0
    assert reports[-1].recent_return == pytest.approx(sum(finished[-20:]) / len(finished[-20:]))
    assert math.isnan(reports[0].recent_return)


def test_interrupt_ends_with_what_there_is() -> None:
    settings = dataclasses.replace(SMALL, env="ringback-tests/Interrupted-v0", validate_every=10_000)
    result = dqn.train(settings)
    assert (result.reason, result.step) == ("interrupted", 299)
    untrained = dqn.train(dataclasses.replace(settings, steps=1)).network
    assert weights(result.network) != weights(untrained)


def test_network_of_the_best_validation_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = iter([-20.0, -7.0, -7.0, -9.0, -8.0])
    seen: list[Any] = []

    def fake(network: dqn.QNetwork, env: str, episodes: int, *, seed: tuple[int, ...]) -> list[float]:
        assert (env, episodes, seed) == (CORRIDOR, 20, (1, training.VALIDATION))
        seen.append(weights(network))
        return [next(returns)] * episodes

    monkeypatch.setattr(dqn, "evaluate", fake)
    result = dqn.train(dataclasses.replace(SMALL, steps=250, validate_every=50, warmup=50))
    assert result.reason == "steps"
    assert weights(result.network) == seen[2]  # of equal ones the latest


def test_single_bad_episode_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dqn, "evaluate", lambda *_, **__: [-3.0] * 19 + [-6.0])
    assert dqn.train(dataclasses.replace(SMALL, steps=200, validate_every=40)).reason == "steps"


def test_adam_steps_as_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    ours = torch.randn(50, generator=generator)
    theirs = ours.clone().requires_grad_()
    adam, reference = stepping.Adam(ours), torch.optim.Adam([theirs], lr=0.0)
    for step in range(200):
        theirs.grad = torch.randn(50, generator=generator) * 10 ** (step % 3)
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        adam.step(theirs.grad.clone(), 0.1 / (step + 1))
        reference.step()
        torch.testing.assert_close(ours, theirs.detach())


def test_step_is_clipped_and_the_slow_copy_takes_on_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    before = copy.deepcopy(network)
    stepper = stepping.Stepper(network, clip=0.5)
    steps: list[tuple[torch.Tensor, float]] = []
    monkeypatch.setattr(stepper._adam, "step", lambda gradient, rate: steps.append((gradient, rate)))
    for scale in (1e-3, 1e3):
        loss = scale * network(torch.arange(6.0).reshape(2, 3)).sum()
        wanted = torch.cat(
            [part.flatten() for part in torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)]
        )
        stepper.step(loss, 0.25)
        gradient, rate = steps.pop()
        assert rate == 0.25
        assert wanted.norm() < 0.5 if scale < 1 else wanted.norm() > 0.5
        torch.testing.assert_close(gradient, wanted if scale < 1 else wanted / wanted.norm() * 0.5)

    slow = stepping.SlowCopy(network, stepper, 0.25)
    stepper.vector += 1
    slow.follow()
    for was, fast, now in zip(before.parameters(), network.parameters(), slow.network.parameters(), strict=True):
        torch.testing.assert_close(fast, was + 1)
        torch.testing.assert_close(now, was + 0.25)
        assert not now.requires_grad


def test_mean_fades() -> None:
    mean = math.nan
    for value in (4.0, 2.0, 1.0):
        mean = stepping.fading_mean(mean, torch.tensor(value))
    assert mean == pytest.approx(0.99 * (0.99 * 4 + 0.01 * 2) + 0.01)


def test_file_is_data_only(tmp_path: Path) -> None:
    torch.save({"program": "dqn", "settings": {"env": Path()}, "weights": {}}, tmp_path / "model.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        training.read(tmp_path / "model.pt", dqn.Settings)


@pytest.mark.parametrize("program", BRIEF, ids=lambda program: program.__name__.rpartition(".")[2])
def test_training_validation_and_test_share_no_episode(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[int] = []
    original = gym.Env.reset

    def note(self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            resets.append(seed)
        return original(self, seed=seed, options=options)

    monkeypatch.setattr(gym.Env, "reset", note)
    settings = dataclasses.replace(BRIEF[program], steps=100, num_envs=4, validate_every=1_000)
    network = program.train(settings).network
    program.evaluate(network, settings.env, 20, seed=(1, training.TEST))
    assert len(resets) == len(set(resets)) == 4 + 20 + 20
