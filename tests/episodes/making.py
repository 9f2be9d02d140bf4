"""Episodes of counting data: observation = step number, reward = 1000 + step, action = step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from ringback.episodes import SingleAgentEpisode

VECTOR = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
NESTED = gym.spaces.Dict({"x": gym.spaces.Box(-1e6, 1e6, (2,), np.float32), "n": gym.spaces.Discrete(1000)})


def vector(k: int) -> Any:
    return np.array([k, -k], np.float32)


def nested(k: int) -> Any:
    return {"x": vector(k), "n": np.int64(k)}


def episode(
    steps: int, lookback: int = 0, *, numpy: bool = False, observation: Any = vector, space: Any = VECTOR, **more: Any
) -> SingleAgentEpisode:
    """Make an episode of that many steps in all, the first ``lookback`` of them lookback."""
    out = SingleAgentEpisode(
        observations=[observation(k) for k in range(steps + 1)],
        observation_space=space,
        infos=[{"step": k} for k in range(steps + 1)],
        actions=list(range(steps)),
        action_space=gym.spaces.Discrete(1000),
        rewards=[1000.0 + k for k in range(steps)],
        extra_model_outputs={"logp": [-0.5 * k for k in range(steps)]},
        len_lookback_buffer=lookback,
        **more,
    )
    return out.to_numpy() if numpy else out


def columns(e: SingleAgentEpisode) -> dict[str, list[Any]]:
    """All that an episode holds, the lookback too, as lists."""
    buffers = {
        "observations": e.observations,
        "infos": e.infos,
        "actions": e.actions,
        "rewards": e.rewards,
        **e.extra_model_outputs,
    }
    first = {name: slice(-b.lookback, None) if b.lookback else slice(0, None) for name, b in buffers.items()}
    return {name: list(unrolled(b.get(first[name], neg_index_as_lookback=True))) for name, b in buffers.items()}


def unrolled(data: Any) -> Any:
    if isinstance(data, dict):
        return [dict(zip(data, row, strict=True)) for row in zip(*(unrolled(v) for v in data.values()), strict=True)]
    return data


def assert_same_episode(got: SingleAgentEpisode, want: SingleAgentEpisode) -> None:
    """Check all that two episodes hold; the form may differ."""
    for name in ("id_", "agent_id", "module_id", "multi_agent_episode_id", "t", "t_started", "is_terminated"):
        assert getattr(got, name) == getattr(want, name), name
    assert got.is_truncated == want.is_truncated
    assert got.custom_data == want.custom_data
    assert got.rewards.lookback == want.rewards.lookback
    ours, theirs = columns(got), columns(want)
    assert ours.keys() == theirs.keys()
    for name, column in theirs.items():
        np.testing.assert_equal(ours[name], column, err_msg=name)
