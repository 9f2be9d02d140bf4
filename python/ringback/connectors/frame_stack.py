"""The piece that stacks the last k observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from ringback.episodes.space_rules import LeafRules, rules_for
from ringback.episodes.stacking import check_fill, depths_of, filler
from ringback.episodes.structure import leaves, map_pair

from .columns import Columns, Rows, stacked
from .connector import Piece
from .observations import changed_by
from .own_episodes import single_agent_episodes
from .spaces import bounds_of, space_of
from .steps import refuse_time_axis
from .windows import Windows

__all__ = ["FrameStack"]


class FrameStack(Piece):
    """Puts the last k observations, oldest first, in the place of the observations.

    Parameters
    ----------
    num_frames : int or mapping of str to int
        k, at least 1: of every leaf, or of those leaves that the mapping names by their path, such as
        ``{"camera": 4}``; the others are not stacked.
    fill : {"first"} or float, default "first"
        What stands for times before the episode's first step: its first observation, or this number in all places.
    input_observation_space, input_action_space : Space, optional
        What comes in; by name only, as the depth comes first here.
    as_learner_connector : bool, default False
        Acting: the stack of each episode's newest observation, (E, k, *D). Learning: those of all steps, (sum of T, k,
        *D). Observations that are numbers are stacked as (rows, k, 1).
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    EpisodeError
        If an observation was there (t >= 0) but is neither in the chunk nor in its lookback.
    ValueError
        If `num_frames` is below 1 or names no leaf; if the dtype cannot hold the fill; if a piece before this one
        changed the column: stacks are read from the episodes, and would lack the change; if `AddTimeDim` did.

    Notes
    -----
    O(rows * k). The stacks are those of :func:`ringback.stack_last` and of ``ReplayBuffer.sample_transitions(stack=k)``
    for the same step, what lies before t = 0 is never read. Where the batch has next observations, learning stacks them
    too: those behind the step, or, where it has ``"n_steps"``, so many steps later.

    References
    ----------
    Mnih et al. 2015, "Preprocessing" (the last 4 frames). RLlib 2.60, ``FrameStackingEnvToModule`` and
    ``FrameStackingLearner``, which fill with zeros and put k last, and whose arguments begin with the spaces.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7], actions=[0, 1], rewards=[0.0, 0.0],
    ...                              len_lookback_buffer=0)
    >>> FrameStack(4)(batch={}, episodes=[episode])["obs"].arrays[..., 0]
    array([[5, 5, 6, 7]])
    >>> FrameStack(2, fill=0, as_learner_connector=True)(batch={}, episodes=[episode])["obs"].arrays[..., 0]
    array([[0, 5],
           [5, 6]])
    """

    def __init__(
        self,
        num_frames: int | Mapping[str, int],
        fill: Literal["first"] | float = "first",
        *,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        self._depths = depths_of(num_frames, "FrameStack", "num_frames")
        self._by_leaf = isinstance(num_frames, Mapping)
        check_fill(fill, "FrameStack")
        self.num_frames = num_frames
        self.fill = fill
        self.as_learner_connector = as_learner_connector
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @property
    def lookback(self) -> int:
        """The deepest stack, less its newest frame."""
        return max(self._depths.values()) - 1

    def __repr__(self) -> str:
        return f"{self.name}({self.num_frames!r}, fill={self.fill!r})"

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space[Any], input_action_space: gym.Space[Any] | None
    ) -> gym.Space[Any] | None:
        """Return the space of stacks: a Box with a leading axis k for each leaf."""
        self._check_paths(rules_for(input_observation_space).struct)

        def stacks_of(rule: LeafRules) -> gym.Space[Any]:
            low, high = bounds_of(rule, "FrameStack")
            if low.ndim == 0:
                low, high = low[None], high[None]
            depth = self._depth_of(rule.path)
            if depth is not None:
                low, high = np.repeat(low[None], depth, 0), np.repeat(high[None], depth, 0)
            return gym.spaces.Box(low, high, low.shape, low.dtype.type)

        return space_of(rules_for(input_observation_space).struct, stacks_of)

    def __call__(
        self,
        *,
        rl_module: Any = None,
        batch: dict[str, Any],
        episodes: Sequence[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Put the stacks into the column."""
        where = "FrameStack"
        changed = changed_by(shared_data, batch)
        if changed is not None:
            raise ValueError(f"{where}: the piece must come before one that changes 'obs', got it behind {changed}")
        singles, keys = single_agent_episodes(episodes, self.as_learner_connector)
        if not singles or (self.as_learner_connector and not any(map(len, singles))):
            return batch
        refuse_time_axis(batch, shared_data, where)
        following = self.as_learner_connector and Columns.NEXT_OBS in batch
        times = "newest" if not self.as_learner_connector else "all" if following else "steps"
        windows = Windows(singles, self.lookback + 1, True, times, where)
        rows = windows.read("observations", where)
        self._check_paths(rows)

        def stack_of(leaf: Any, _: Any, path: str) -> Any:
            depth = self._depth_of(path)
            leaf = leaf[:, None] if leaf.ndim == 1 else leaf
            fill = None if self.fill == "first" else filler(self.fill, leaf.dtype, where)
            stacks = windows.take(leaf, depth or 1, fill)
            return stacks if depth else stacks[:, 0]

        stacks = map_pair(stack_of, rows, rows, where)
        if not following:
            batch[Columns.OBS] = Rows(stacks, keys, windows.counts)
            return batch
        counts = [len(episode) for episode in singles]
        own = np.arange(sum(counts)) + np.repeat(np.arange(len(counts)), counts)
        later = stacked(batch[Columns.N_STEPS]) if Columns.N_STEPS in batch else 1
        batch[Columns.OBS] = Rows(map_pair(lambda leaf, _, __: leaf[own], stacks, stacks, where), keys, counts)
        after = own + later
        batch[Columns.NEXT_OBS] = Rows(map_pair(lambda leaf, _, __: leaf[after], stacks, stacks, where), keys, counts)
        return batch

    def _depth_of(self, path: str) -> int | None:
        return self._depths.get(path if self._by_leaf else "")

    def _check_paths(self, structure: Any) -> None:
        if not self._by_leaf:
            return
        paths = set(leaves(map_pair(lambda leaf, _, path: path, structure, structure, "FrameStack")))
        unknown = self._depths.keys() - paths
        if unknown:
            raise ValueError(f"FrameStack: num_frames must name leaves among {sorted(paths)}, got {sorted(unknown)}")
