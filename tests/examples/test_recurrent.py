"""The recurrent program remembers what it saw, and learns from windows what a loop over their steps would."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from ringback import EnvRunner, ReplayBuffer
from ringback.examples import dqn, recurrent, training
from tests.examples import corridor, puzzles

corridor.register()
puzzles.register()
torch.set_num_threads(1)

SMALL = recurrent.Settings(
    puzzles.RECALL,
    seed=1,
    num_envs=1,
    steps=4_000,
    width=24,
    batch_size=16,
    capacity=4_000,
    warmup=200,
    update_every=2,
    learning_rate=5e-3,
    tau=0.05,
    gamma=0.5,
    n_step=2,
    length=4,
    burn_in=3,
    period=4,
    validate_every=250,
)


def weights(network: nn.Module) -> list[Any]:
    return [value.tolist() for value in network.state_dict().values()]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_learns_to_remember_over_more_steps_than_a_window_has(num_envs: int) -> None:
    result = recurrent.train(dataclasses.replace(SMALL, num_envs=num_envs))
    assert result.reason == "solved"
    assert result.step < SMALL.steps
    assert recurrent.evaluate(result.network, puzzles.RECALL, 30, seed=(99,)) == [puzzles.RECALL_STEPS] * 30


def test_without_memory_only_the_first_step_is_won() -> None:
    names = [field.name for field in dataclasses.fields(dqn.QSettings) if field.name != "steps"]
    settings = dqn.Settings(**{name: getattr(SMALL, name) for name in names}, steps=2_000)
    returns = dqn.evaluate(dqn.train(settings).network, puzzles.RECALL, 200, seed=(99,))
    # It answers all blank steps alike: 11 right in one half of the episodes, 11 wrong in the other.
    assert set(returns) <= {puzzles.RECALL_STEPS, 2 - puzzles.RECALL_STEPS}
    assert abs(np.mean(returns) - 1) < 5 * 11 / np.sqrt(200)


def test_same_seed_same_network_and_another_seed_another() -> None:
    brief = dataclasses.replace(SMALL, steps=260, validate_every=1_000)
    first, second, other = (recurrent.train(dataclasses.replace(brief, seed=seed)).network for seed in (3, 3, 4))
    assert weights(first) == weights(second) != weights(other)


def test_saved_network_comes_back(tmp_path: Path) -> None:
    settings = dataclasses.replace(SMALL, steps=210)
    network = recurrent.train(settings).network
    training.save(network, settings, tmp_path / "model.pt")
    loaded, same_settings = recurrent.load(tmp_path / "model.pt")
    assert same_settings == settings
    assert weights(loaded) == weights(network)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_step": 5}, "train: n_step must be <= length (4), got 5"),
        ({"burn_in": 0}, "train: burn_in must be >= 1, got 0"),
    ],
)
def test_settings_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        dataclasses.replace(SMALL, **changes)
    assert str(raised.value) == message


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^train: ringback-tests/Aim-v0 must have a Discrete action space, got Box"):
        recurrent.train(recurrent.Settings(puzzles.AIM))


class TestNetwork:
    NETWORK = recurrent.RecurrentQNetwork(6, 3, 8)
    SEEN = torch.arange(2.0 * 5 * 6).reshape(2, 5, 2, 3) / 20
    STATE = torch.linspace(-1, 1, 2 * 2 * 8).reshape(2, 2, 8)

    def test_sequence_is_the_same_as_one_step_after_the_other(self) -> None:
        values, after = self.NETWORK(self.SEEN, self.STATE)
        assert values.shape == (2, 5, 3)
        state = self.STATE
        for t in range(5):
            one, state = self.NETWORK(self.SEEN[:, t : t + 1], state)
            torch.testing.assert_close(one[:, 0], values[:, t])
        torch.testing.assert_close(state, after)

    @pytest.mark.parametrize("lengths", [(0, 5), (3, 1), (0, 0), (5, 5)])
    def test_it_remembers_as_many_steps_as_it_is_told(self, lengths: tuple[int, int]) -> None:
        after = self.NETWORK.remember(self.SEEN, self.STATE, torch.tensor(lengths)[:, None])
        assert not after.requires_grad
        for k, length in enumerate(lengths):
            state = self.STATE[k : k + 1]
            if length:
                state = self.NETWORK(self.SEEN[k : k + 1, :length], state)[1]
            torch.testing.assert_close(after[k], state[0].detach())


def test_states_go_from_step_to_step_through_episodes_and_into_the_buffer() -> None:
    """In chunks of any length, the state before a step is what the network makes of all that was seen before it."""
    torch.manual_seed(0)
    network = recurrent.RecurrentQNetwork(1, 2, 8)
    space = gym.spaces.Discrete(2, start=3)
    policy = recurrent.Policy(network, space, seed=(5,))
    policy.epsilon = 0.3
    buffer = ReplayBuffer(500, puzzles.Recall.observation_space, space, "cpu", extras={"state_in": (2, 8)}, seed=0)
    with EnvRunner(puzzles.RECALL, policy, num_envs=3, seed=2, env_to_module=recurrent.to_module("cpu")) as runner:
        for steps in (1, 2, 3, 7, 20, 60):
            for chunk in runner.sample(num_timesteps=steps):
                buffer.add_episode(chunk, initial_state={"state_in": policy.get_initial_state()})
    whole = buffer.sample_episodes(len(runner_ends := buffer.valid_starts(puzzles.RECALL_STEPS)))
    assert len(runner_ends) >= 4
    states = torch.zeros(len(runner_ends), 2, 8)
    for t in range(puzzles.RECALL_STEPS):
        torch.testing.assert_close(whole.extras["state_in"][:, t], states)
        states = network(whole.observations[:, t : t + 1], states)[1].detach()
    assert states.abs().max() > 0.1


# ---- the update ------------------------------------------------------------------------------------------------------

EPISODES = (
    (23, "terminated"),
    (17, "truncated"),
    (2, "terminated"),
    (1, "truncated"),
    (9, "open"),
    (1, "terminated"),
    (14, "open"),
)


def observation(episode: int, t: int) -> Any:
    return np.array([100 * episode + t, t % 5], np.float32)


def action(episode: int, t: int) -> int:
    return 2 + (episode + t) % 3


def state_before(episode: int, t: int) -> Any:
    return np.full((2, 8), 0.01 * (10 * episode + t), np.float32)


def counting_buffer(lost: int) -> ReplayBuffer:
    """Return the episodes above in a buffer that has lost its first so many steps."""
    capacity = sum(length for length, _ in EPISODES) - lost
    buffer = ReplayBuffer(capacity, 2, gym.spaces.Discrete(3, start=2), "cpu", extras={"state_in": (2, 8)}, seed=0)
    for stream, (length, end) in enumerate(EPISODES):
        for t in range(length):
            last = t == length - 1
            buffer.add(
                observation(stream, t),
                action(stream, t),
                0.1 * (10 * stream + t),
                observation(stream, t + 1),
                last and end == "terminated",
                last and end == "truncated",
                stream,
                extras={"state_in": state_before(stream, t)},
            )
    return buffer


def made_learner(**changes: Any) -> Any:
    torch.manual_seed(0)
    settings = dataclasses.replace(SMALL, learning_rate=0.1, **changes)
    network = recurrent.RecurrentQNetwork(2, 3, 8)
    network.first.weight.data *= 0.01  # the observations count to hundreds
    learner = recurrent._Learner(network, settings, first_action=2)
    learner._target.network.values.weight.data.neg_()  # the two networks want different actions
    return learner


def gradients_of(learner: Any, batch: Any) -> tuple[float, list[torch.Tensor]]:
    """Return the loss of an update, and the gradients that it is made of."""
    got: list[torch.Tensor] = []

    def step(loss: torch.Tensor, learning_rate: float) -> None:
        assert learning_rate == 0.5
        got.extend(torch.autograd.grad(loss, list(learner._network.parameters())))

    learner._stepper.step, learner._target.follow = step, lambda: None
    learner.update(batch, 0.5)
    return learner.loss, got


def slow_gradients(
    learner: Any, starts: list[tuple[int, int]], first: dict[int, int]
) -> tuple[float, list[torch.Tensor]]:
    """Do the same with a loop over windows and their steps, from the episodes themselves."""
    settings, network, target = learner._settings, learner._network, learner._target.network

    def values(net: Any, episode: int, t: int, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = torch.as_tensor(observation(episode, t))[None, None]
        got, after = net(seen, state)
        return got[0, 0], after

    losses = []
    for episode, start in starts:
        length, end = EPISODES[episode]
        begin = max(start - settings.burn_in, first[episode])
        state = slow_state = torch.as_tensor(state_before(episode, begin))[None]
        fast: dict[int, torch.Tensor] = {}
        slow: dict[int, torch.Tensor] = {}
        stop = min(start + settings.length + settings.n_step, length)
        for t in range(begin, stop + 1):
            if t == start:
                state = state.detach()  # burn-in only makes the state
            fast[t], state = values(network, episode, t, state)
            slow[t], slow_state = values(target, episode, t, slow_state)
        for t in range(start, min(start + settings.length, length)):
            wanted, m = 0.0, 0
            while m < settings.n_step and t + m < length:
                wanted += settings.gamma**m * 0.1 * (10 * episode + t + m)
                m += 1
            if not (t + m == length and end == "terminated"):
                best = int((fast if settings.double else slow)[t + m].argmax())
                wanted += settings.gamma**m * float(slow[t + m][best].detach())
            error = (fast[t][action(episode, t) - 2] - wanted).abs()
            losses.append(torch.where(error < 1, 0.5 * error**2, error - 0.5))
    loss = torch.stack(losses).mean()
    return loss.item(), list(torch.autograd.grad(loss, list(network.parameters())))


@pytest.mark.parametrize("lost", [0, 6, 18])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"double": False},
        {"n_step": 4},
        {"n_step": 1, "burn_in": 9, "period": 5},
        {"length": 11, "n_step": 3, "period": 2},
    ],
    ids=str,
)
def test_update_is_that_of_a_loop_over_the_steps(changes: dict[str, Any], lost: int) -> None:
    learner = made_learner(**changes)
    settings = learner._settings
    buffer = counting_buffer(lost)
    starts = buffer.valid_starts(settings.length, pad=True, period=settings.period)
    batch = recurrent._sample(buffer, dataclasses.replace(settings, batch_size=len(starts)))
    lengths = set(batch.burn_in_lengths.ravel().tolist())
    assert {0, settings.burn_in} <= lengths
    assert lost == 0 or settings.period == 5 or lengths != {0, settings.burn_in}
    assert batch.lengths.min() == 1
    at = [divmod(int(value), 100) for value in buffer.get(batch.start_ids).observations[:, 0]]
    # Streams were written one after the other: what is lost is the beginning of the first ones.
    first: dict[int, int] = {}
    for episode, (length, _) in enumerate(EPISODES):
        first[episode] = min(max(lost - sum(other for other, _ in EPISODES[:episode]), 0), length)

    loss, gradients = gradients_of(learner, batch)
    learner._settings = dataclasses.replace(settings, double=not settings.double)
    assert slow_gradients(learner, at, first)[0] != pytest.approx(
        loss, rel=1e-3
    )  # or double Q would look like single Q
    learner._settings = settings
    slow_loss, slow = slow_gradients(learner, at, first)
    assert loss == pytest.approx(slow_loss, rel=1e-5)
    for ours, theirs in zip(gradients, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)

    for column in (batch.observations, batch.next_observations, batch.rewards, batch.discounts):
        column[~batch.valid.expand_as(column)] = 0.75  # what is in the padding does not matter
    batch.actions[~batch.valid] = 4
    learner.loss = float("nan")
    again, same = gradients_of(learner, batch)
    assert again == loss
    assert all(torch.equal(one, other) for one, other in zip(gradients, same, strict=True))


def test_update_steps_both_networks() -> None:
    learner = made_learner()
    batch = recurrent._sample(counting_buffer(0), SMALL)
    before = [[value.clone() for value in net.parameters()] for net in (learner._network, learner._target.network)]
    learner.update(batch, 0.01)
    assert learner.loss > 0
    for was, now in zip(before[0], learner._network.parameters(), strict=True):
        assert not torch.equal(was, now)
    for was, fast, now in zip(
        before[1], learner._network.parameters(), learner._target.network.parameters(), strict=True
    ):
        torch.testing.assert_close(now, 0.95 * was + 0.05 * fast)
