"""Environments without their velocities: what an observation does not show must be remembered."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

__all__ = ["MaskVelocity", "check_maskable", "make_masked"]

# Of each environment, whatever its version: which numbers of an observation are positions, and what they are times.
POSITIONS: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "Acrobot": ((0, 1, 2, 3), (1.0, 1.0, 1.0, 1.0)),  # sines and cosines of both angles
    "CartPole": ((0, 2), (1.0, 5.0)),  # of the cart and, in a range ten times as small, of the pole
    "MountainCar": ((0,), (1.0,)),
    "MountainCarContinuous": ((0,), (1.0,)),
    "Pendulum": ((0, 1), (1.0, 1.0)),
}


class MaskVelocity(gym.ObservationWrapper[Any, Any, Any]):
    """Shows positions only.

    Parameters
    ----------
    env : gymnasium.Env
        One of those whose velocities are known: CartPole, Acrobot, Pendulum, MountainCar, MountainCarContinuous.

    Raises
    ------
    ValueError
        If it is another one.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        check_maskable("MaskVelocity", "" if env.spec is None else env.spec.id)
        assert env.spec is not None
        kept, factors = POSITIONS[env.spec.name]
        self._kept, self._factors = list(kept), np.array(factors, np.float32)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        low, high = (np.float32(edge[self._kept]) * self._factors for edge in (space.low, space.high))
        self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the positions, scaled to ranges of about one."""
        return observation[self._kept] * self._factors


def check_maskable(where: str, env: str) -> None:
    """Raise a ValueError for an environment whose velocities are not known.

    Parameters
    ----------
    where : str
        What the message begins with.
    env : str
        Id for ``gym.make``.
    """
    spec = gym.registry.get(env)
    if spec is None or spec.namespace is not None or spec.name not in POSITIONS:
        known = ", ".join(sorted(POSITIONS))
        raise ValueError(f"{where}: ENV must be one whose velocities are known ({known}), got {env or 'no id'!r}")


def make_masked(env: str) -> gym.Env[Any, Any]:
    """Make an environment that shows positions only.

    Parameters
    ----------
    env : str
        Id for ``gym.make``.

    Returns
    -------
    gymnasium.Env

    Raises
    ------
    ValueError
        If its velocities are not known.
    """
    return MaskVelocity(gym.make(env))
