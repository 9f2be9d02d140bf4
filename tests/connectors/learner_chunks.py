"""Episodes of the plays of tests/reference/learner.py, cut everywhere, in both forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import strategies as st

from ringback.connectors import Connector, ConnectorPipeline, Rows
from ringback.episodes import SingleAgentEpisode
from tests.reference.learner import Chunk, Play

Array = np.ndarray[Any, Any]

KINDS: dict[str, Callable[[float], Any]] = {
    "vector": lambda x: np.array([x, -x], np.float32),
    "number": lambda x: x,
    "nested": lambda x: {"p": (np.float32(x),), "q": np.array([x, 2 * x], np.float64)},
}
SPACES: dict[str, gym.Space[Any] | None] = {
    "vector": gym.spaces.Box(-1e6, 1e6, (2,), np.float32),
    "number": None,
    "nested": gym.spaces.Dict(
        {
            "p": gym.spaces.Tuple([gym.spaces.Box(-1e6, 1e6, (), np.float32)]),
            "q": gym.spaces.Box(-1e6, 1e6, (2,), np.float64),
        }
    ),
}


def episode_of(chunk: Chunk, kind: str = "vector", *, numpy: bool = False, **more: Any) -> SingleAgentEpisode:
    """Make the chunk's episode."""
    play, begin = chunk.play, chunk.start - chunk.lookback
    times = range(begin, chunk.stop)
    out = SingleAgentEpisode(
        more.pop("id_", f"e{play.number}"),
        observations=[KINDS[kind](play.observation(t)) for t in range(begin, chunk.stop + 1)],
        observation_space=SPACES[kind],
        infos=[{"t": t} for t in range(begin, chunk.stop + 1)],
        actions=[play.action(t) for t in times],
        action_space=None if kind == "number" else gym.spaces.Discrete(10**6),
        rewards=[play.reward(t) for t in times],
        terminated=chunk.terminated,
        truncated=chunk.truncated,
        extra_model_outputs={
            "action_logp": [np.float32(play.logp(t)) for t in times],
            "state_out": [{"h": np.array([play.state_out(t)], np.float32)} for t in times],
        },
        t_started=chunk.start,
        len_lookback_buffer=chunk.lookback,
        **more,
    )
    return out.to_numpy() if numpy else out


def episodes_of(chunks: Sequence[Chunk], kind: str = "vector", *, numpy: bool = False) -> list[SingleAgentEpisode]:
    return [episode_of(chunk, kind, numpy=numpy) for chunk in chunks]


def observations(kind: str, numbers: Sequence[float]) -> Any:
    """The column of these observations, as it must be."""
    rows = [KINDS[kind](number) for number in numbers]
    if kind == "nested":
        return {"p": (np.array([row["p"][0] for row in rows]),), "q": np.array([row["q"] for row in rows])}
    return np.array(rows)


def leaves_of(data: Any, path: str = "") -> dict[str, Array]:
    """All arrays of a column or a batch, by their path."""
    if isinstance(data, Rows):
        return leaves_of(data.arrays, path)
    if isinstance(data, dict):
        parts = [leaves_of(value, f"{path}/{key}") for key, value in data.items()]
    elif isinstance(data, tuple):
        parts = [leaves_of(value, f"{path}/{k}") for k, value in enumerate(data)]
    else:
        return {path: np.asarray(data)}
    return {name: leaf for part in parts for name, leaf in part.items()}


def assert_same(got: Any, want: Any) -> None:
    """Check that two columns, or batches, are the same bit for bit, dtypes too."""
    ours, theirs = leaves_of(got), leaves_of(want)
    assert ours.keys() == theirs.keys()
    for path, leaf in theirs.items():
        assert ours[path].dtype == leaf.dtype, path
        np.testing.assert_array_equal(ours[path], leaf, err_msg=path)


def run(pieces: Sequence[Connector], episodes: list[SingleAgentEpisode], module: Any = None) -> dict[str, Any]:
    """Make the batch."""
    return ConnectorPipeline(pieces)(batch={}, episodes=episodes, rl_module=module)


@st.composite
def chunks(draw: st.DrawFn, whole: bool = False) -> list[Chunk]:
    """Up to four plays of 0 to 12 steps, each cut anywhere (``whole``: not at all), some of the chunks left out."""
    found: list[Chunk] = []
    for number in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(0, 12))
        end = draw(st.sampled_from(["open", "terminated", "truncated", "both"])) if steps else "open"
        play = Play(number, steps, end in ("terminated", "both"), end in ("truncated", "both"))
        cuts = [] if whole else sorted(draw(st.lists(st.integers(0, steps), max_size=3)))
        for start, stop in zip([0, *cuts], [*cuts, steps], strict=True):
            if start == stop == steps and play.terminated | play.truncated:
                continue  # nothing goes on from an end
            if whole or draw(st.integers(0, 4)):
                found.append(Chunk(play, start, stop, draw(st.integers(0, start))))
    # A pipeline brings the chunks of one episode together, but does not put them in order.
    numbers = draw(st.permutations(range(4)))
    backwards = draw(st.booleans())
    return sorted(found, key=lambda c: (numbers[c.play.number], -c.start if backwards else c.start))
