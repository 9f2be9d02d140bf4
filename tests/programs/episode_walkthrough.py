# ruff: noqa
# fmt: off
# mypy: ignore-errors
"""The calls that the mission's guide to episodes shows, as one program of ours. It must run unchanged (`python episode_walkthrough.py`)."""
import gymnasium as gym
import numpy as np

from ringback import SingleAgentEpisode, batch


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


# 1. Grow an episode by hand: the reset does not count, each step does.
ep = SingleAgentEpisode()
assert len(ep) == 0 and isinstance(ep.id_, str) and ep.id_
ep.add_env_reset(observation="o0", infos={"i": 0})
assert len(ep) == 0
for t in range(5):
    ep.add_env_step(observation=f"o{t + 1}", action=f"a{t}", reward=float(t), terminated=False, truncated=False, infos={"i": t + 1})
assert len(ep) == 5 and not ep.is_done

# 2. One index, several, a slice; properties; the episode's own slice.
assert ep.get_observations(0) == "o0" == ep.observations[0]
assert ep.get_observations([1, 2]) == ["o1", "o2"] == ep.get_observations(slice(1, 3))
assert ep.get_rewards(-1) == 4.0 == ep.rewards[-1]
assert ep.get_actions(0) == "a0" == ep.actions[0]
assert ep.get_infos(-1) == {"i": 5}
piece = ep[3:4]
assert list(piece.observations) == ["o3", "o4"] and list(piece.actions) == ["a3"] and list(piece.rewards) == [3.0]

# 3. Cut in mid-episode: a continuation chunk of the same episode that still knows the last observation.
chunk = ep.cut()
assert len(ep) == 5 and len(chunk) == 0 and chunk.id_ == ep.id_ and chunk.t_started == 5
assert chunk.get_observations(-1) == "o5"
chunk = ep.cut(len_lookback_buffer=1)
assert chunk.get_actions(-1) == "a4" and chunk.get_rewards(-1) == 4.0
assert chunk.get_observations([-2, -1]) == ["o4", "o5"]

# 4. Lists or arrays: independent of being done.
numeric = SingleAgentEpisode(observations=[{"x": np.float32(k), "y": np.array([k, -k])} for k in range(3)], actions=[0, 1], rewards=[0.5, 1.5], len_lookback_buffer=0)
assert numeric.is_numpy is False
numeric.to_numpy()
assert numeric.is_numpy is True and not numeric.is_done
assert numeric.get_observations()["y"].shape == (3, 2)

# 5. Everything in the lookback: length 0, reads from the end still work, fill pads what lies beyond.
ep = SingleAgentEpisode(observations=["o0", "o1", "o2", "o3"], actions=["a0", "a1", "a2"], rewards=[5.0, 6.0, 7.0], len_lookback_buffer=3)
assert len(ep) == 0
try:
    ep.get_rewards(0)
except IndexError:
    pass
else:
    raise AssertionError("index 0 is not in a chunk of length 0")
same(ep.get_rewards(slice(-3, None)), [5.0, 6.0, 7.0])
same(ep.get_rewards(slice(-5, None), fill=0.0), [0.0, 0.0, 5.0, 6.0, 7.0])

# 6. Negative indices as "back into the lookback": a window that slides over global time.
ep = SingleAgentEpisode(
    observations=[f"o{k}" for k in range(-3, 4)], actions=[f"a{k}" for k in range(-3, 3)], rewards=[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0], len_lookback_buffer=3
)
assert len(ep) == 3
for t, want in enumerate([[-2.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]):
    same(ep.get_rewards(slice(t - 2, t + 1), neg_index_as_lookback=True), want)

# 7. Both together, one step after the episode's start (a chunk whose lookback holds the very first reward).
first = SingleAgentEpisode(observations=["o0", "o1"], actions=["a0"], rewards=[9.0], len_lookback_buffer=1)
same(first.get_rewards(slice(-4, 0), neg_index_as_lookback=True, fill=0.0), [0.0, 0.0, 0.0, 9.0])

# 8. Nested, partly discrete actions, ready for a network, stacked over a batch.
space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.MultiDiscrete([2, 3]), "c": gym.spaces.Box(-1.0, 1.0, (2,))})
ep = SingleAgentEpisode(action_space=space)
ep.add_env_reset(observation=0)
ep.add_env_step(observation=1, action={"a": 2, "b": np.array([1, 2]), "c": np.array([0.5, -0.5], np.float32)}, reward=1.0)
ep.add_env_step(observation=2, action={"a": 0, "b": np.array([0, 1]), "c": np.array([0.25, 0.75], np.float32)}, reward=2.0)
windows = [ep.get_actions(slice(t - 4, t), neg_index_as_lookback=True, fill=0.0, one_hot_discrete=True) for t in range(len(ep))]
stacked = batch([batch(w) if isinstance(w, list) else w for w in windows])
assert stacked["a"].shape == (2, 4, 3) and stacked["b"].shape == (2, 4, 5) and stacked["c"].shape == (2, 4, 2)
assert not stacked["a"][0].any()
same(stacked["a"][1], [[0, 0, 0]] * 3 + [[0, 0, 1]])
same(stacked["b"][1][-1], [0, 1, 0, 0, 1])
print("episode walkthrough: all as the guide says")
