"""The piece that tells a module what it did before, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ringback.episodes import SingleAgentEpisode
from ringback.episodes.space_rules import LeafRules, SpaceRules, rules_for
from ringback.episodes.structure import map_structure
from ringback.errors import EpisodeError

from .columns import Columns, Rows
from .connector import Piece
from .own_episodes import single_agent_episodes
from .spaces import bounds_of, space_of
from .steps import refuse_time_axis
from .windows import Windows

__all__ = ["PreviousActionsRewards"]

WHERE = "PreviousActionsRewards"


class PreviousActionsRewards(Piece):
    """Puts the last n actions and rewards, oldest first, into the columns ``"prev_actions"`` and ``"prev_rewards"``.

    A row at time t has what was done and got at t-n .. t-1. What would lie before the episode's first step is 0: with
    one-hot codes no action is like it.

    Parameters
    ----------
    n_prev_actions : int, default 1
        n, at least 0; 0 leaves the column out.
    n_prev_rewards : int, optional
        Likewise for rewards; as many as actions by default.
    one_hot : bool, default True
        Whether Discrete and MultiDiscrete leaves of actions are given as one-hot codes.
    input_observation_space, input_action_space : Space, optional
        What comes in; by name only, as the numbers come first here. Actions are coded by the space of the episodes, or
        else by this one.
    as_learner_connector : bool, default False
        Acting: what went before each episode's newest observation, (E, n, *A) and (E, n). Learning: what went before
        all steps, (sum of T, n, *A) and (sum of T, n).
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    EpisodeError
        If an item was there (t >= 0) but is neither in the chunk nor in its lookback.
    ValueError
        If a number is below 0 or both are 0; if there is no action space to code by, or no action and no space to say
        what one is like; behind `AddTimeDim`.

    Notes
    -----
    O(rows * n). Codes and rewards are float32, other actions have the dtype of their space. The structure of Dict and
    Tuple actions is kept. What lies before t = 0 is never read.

    References
    ----------
    RLlib 2.60, ``PrevActionsPrevRewards``, which flattens both into the observations, and whose arguments begin with
    the spaces. ray issues 4167, 32927.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7], actions=[0, 2], rewards=[0.5, 1.5],
    ...                              action_space=gym.spaces.Discrete(3), len_lookback_buffer=0)
    >>> batch = PreviousActionsRewards(3)(batch={}, episodes=[episode])
    >>> batch["prev_actions"].arrays.tolist()
    [[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]
    >>> batch["prev_rewards"].arrays.tolist()
    [[0.0, 0.5, 1.5]]
    """

    def __init__(
        self,
        n_prev_actions: int = 1,
        n_prev_rewards: int | None = None,
        one_hot: bool = True,
        *,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        n_prev_rewards = n_prev_actions if n_prev_rewards is None else n_prev_rewards
        for name, n in (("n_prev_actions", n_prev_actions), ("n_prev_rewards", n_prev_rewards)):
            if n < 0:
                raise ValueError(f"{WHERE}: {name} must be >= 0, got {n!r}")
        if n_prev_actions == n_prev_rewards == 0:
            raise ValueError(f"{WHERE}: n_prev_actions or n_prev_rewards must be >= 1, got 0 and 0")
        self.n_prev_actions = n_prev_actions
        self.n_prev_rewards = n_prev_rewards
        self.one_hot = one_hot
        self.as_learner_connector = as_learner_connector
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @property
    def lookback(self) -> int:
        """The larger of the two numbers."""
        return max(self.n_prev_actions, self.n_prev_rewards)

    def __repr__(self) -> str:
        return f"{self.name}({self.n_prev_actions}, {self.n_prev_rewards}, one_hot={self.one_hot})"

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
        """Add the columns."""
        singles, keys = single_agent_episodes(episodes, self.as_learner_connector)
        if not singles or (self.as_learner_connector and not any(map(len, singles))):
            return batch
        refuse_time_axis(batch, shared_data, WHERE)
        windows = Windows(singles, self.lookback, False, "steps" if self.as_learner_connector else "newest", WHERE)
        if self.n_prev_actions:
            actions = self._actions(windows, singles)
            taken = map_structure(lambda leaf: windows.take(leaf, self.n_prev_actions, 0), actions)
            batch[Columns.PREV_ACTIONS] = Rows(taken, keys, windows.counts)
        if self.n_prev_rewards:
            rewards = windows.read("rewards", WHERE)
            rewards = np.zeros(1, np.float32) if rewards is None else rewards.astype(np.float32, copy=False)
            batch[Columns.PREV_REWARDS] = Rows(windows.take(rewards, self.n_prev_rewards, 0), keys, windows.counts)
        return batch

    def _actions(self, windows: Windows, episodes: Sequence[SingleAgentEpisode]) -> Any:
        """Read the actions that there are, coded; with none at all, one that stands for what is missing."""
        space = next((episode.action_space for episode in episodes if episode.action_space is not None), None)
        rules = self._rules(space)
        actions = windows.read("actions", WHERE)
        if actions is not None:
            return rules.one_hot(actions, WHERE) if self.one_hot and rules is not None else actions
        if rules is None:
            raise EpisodeError(f"{WHERE}: action_space must be given, as no action says what one is like, got None")
        return rules.fill(0, 1, self.one_hot)

    def _rules(self, space: gym.Space[Any] | None) -> SpaceRules | None:
        space = self.input_action_space if space is None else space
        if space is not None:
            return rules_for(space)
        if self.one_hot:
            raise ValueError(
                f"{WHERE}: input_action_space must be given, or the episodes have one, got None; pass one_hot=False"
            )
        return None

    @property
    def column_spaces(self) -> dict[str, gym.Space[Any]]:
        """The spaces of the two columns, once there is a space of actions."""
        spaces = dict(self.input_column_spaces)
        if self.n_prev_actions and self.input_action_space is not None:
            spaces[Columns.PREV_ACTIONS] = space_of(rules_for(self.input_action_space).struct, self._codes_of)
        if self.n_prev_rewards:
            spaces[Columns.PREV_REWARDS] = gym.spaces.Box(-np.inf, np.inf, (self.n_prev_rewards,), np.float32)
        return spaces

    def _codes_of(self, rule: LeafRules) -> gym.Space[Any]:
        """Return the space of n actions in a row, of which some may be 0."""
        if self.one_hot and isinstance(rule.space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
            return gym.spaces.Box(0.0, 1.0, (self.n_prev_actions, int(np.sum(rule.n))), np.float32)
        return zero_and(rule, self.n_prev_actions)


def zero_and(rule: LeafRules, n: int) -> gym.spaces.Box:
    """Return the space of n items of a leaf, or zeros in their place."""
    low, high = bounds_of(rule, WHERE)
    low, high = (np.repeat(bound[None], n, 0) for bound in (np.minimum(low, 0), np.maximum(high, 0)))
    return gym.spaces.Box(low.astype(rule.dtype), high.astype(rule.dtype), low.shape, rule.dtype.type)  # type: ignore[union-attr]
