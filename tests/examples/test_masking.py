"""Masked environments show positions and nothing else."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from ringback.examples.masking import MaskVelocity, make_masked
from tests.examples.corridor import CORRIDOR, Corridor, register

register()


@pytest.mark.parametrize(
    ("env", "kept", "factors"),
    [
        ("CartPole-v0", [0, 2], [1, 5]),
        ("CartPole-v1", [0, 2], [1, 5]),
        ("Acrobot-v1", [0, 1, 2, 3], [1, 1, 1, 1]),
        ("Pendulum-v1", [0, 1], [1, 1]),
        ("MountainCar-v0", [0], [1]),
        ("MountainCarContinuous-v0", [0], [1]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_shows_positions_only(env: str, kept: list[int], factors: list[float]) -> None:
    masked, whole = make_masked(env), gym.make(env)
    masked.action_space.seed(1)
    pairs = [(masked.reset(seed=3)[0], whole.reset(seed=3)[0])]
    for _ in range(15):
        action = masked.action_space.sample()
        one, other = masked.step(action), whole.step(action)
        assert one[1:4] == other[1:4]
        pairs.append((one[0], other[0]))
        if one[2]:
            break
    for shown, observation in pairs:
        np.testing.assert_allclose(shown, observation[kept] * factors, rtol=1e-6)
        assert masked.observation_space.contains(shown)
    assert np.ptp([observation[kept] for _, observation in pairs], axis=0).min() > 0


def test_other_environments_are_refused() -> None:
    message = (
        "MaskVelocity: ENV must be one whose velocities are known (Acrobot, CartPole, MountainCar, "
        f"MountainCarContinuous, Pendulum), got {CORRIDOR!r}"
    )
    with pytest.raises(ValueError) as raised:
        make_masked(CORRIDOR)
    assert str(raised.value) == message
    gym.register("ringback-tests/CartPole-v7", f"{Corridor.__module__}:Corridor")
    try:
        with pytest.raises(ValueError, match=r"got 'ringback-tests/CartPole-v7'$"):
            make_masked("ringback-tests/CartPole-v7")
    finally:
        del gym.registry["ringback-tests/CartPole-v7"]
    env = gym.make("CartPole-v1").unwrapped
    env.spec = None
    with pytest.raises(ValueError, match=r"got 'no id'$"):
        MaskVelocity(env)
