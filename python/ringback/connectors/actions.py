"""Pieces that make actions of what a module returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from ringback.episodes.space_rules import LeafRules, rules_for
from ringback.episodes.structure import map_pair, rebuild

from .batching import without_tensors
from .columns import Columns, replaced, stacked
from .connector import Connector, Piece

__all__ = ["ActionsToSpace", "SampleActions"]

Array: TypeAlias = np.ndarray[Any, Any]

# Draws for all rows: (kind, how many a row) to an array (rows, how many).
Draw: TypeAlias = Callable[[str, int], Array]


class SampleActions(Piece):
    """Samples the actions, unless the module gave some.

    A module gives ``"actions"``, which are taken as they are, or ``"action_dist_inputs"`` (E, n), read by the action
    space: the logits of a Discrete; those of all places of a MultiDiscrete side by side; of each place of a MultiBinary
    the logit of 1; mean and logarithm of the standard deviation of a Box side by side, for a normal distribution with
    independent places. The inputs of the leaves of Dict and Tuple spaces stand side by side.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    seed : int, optional
        Of the piece's own generator. It is only used for rows that have none: under ``"generators"``, ``shared_data``
        may have one NumPy generator for each row, and the actions of an episode then depend on its own alone.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If the batch has neither column; if the inputs have another width than the space asks for, are NaN, or rule out
        all values; if there are not as many generators as rows.
    TypeError
        If actions of the space cannot be sampled.

    Notes
    -----
    Where ``explore`` is not true, the likeliest actions are taken. ``"actions"`` have the dtype of the space;
    ``"action_logp"`` (E,), float32, is the logarithm of their probability (Box: density), summed over all leaves and
    places; 0 if they were not sampled. One that there is stays.

    References
    ----------
    RLlib 2.60, ``GetActions`` and its ``TorchCategorical``, ``TorchMultiCategorical``, ``TorchDiagGaussian``;
    stable-baselines3 2.7, ``BernoulliDistribution``.

    Examples
    --------
    >>> piece = SampleActions(input_action_space=gym.spaces.Discrete(3, start=1))
    >>> piece(batch={"action_dist_inputs": np.array([[0.0, 5.0, 1.0]])}, episodes=[], explore=False)["actions"]
    array([2])
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        self._generator = np.random.default_rng(seed)
        super().__init__(input_observation_space, input_action_space, **kwargs)

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
        """Add the actions."""
        if Columns.ACTIONS in batch:
            return batch
        if Columns.ACTION_DIST_INPUTS not in batch:
            raise ValueError(
                f"SampleActions: batch must have 'actions' or 'action_dist_inputs', got columns {sorted(batch)}"
            )
        column = batch[Columns.ACTION_DIST_INPUTS]
        inputs = np.asarray(stacked(without_tensors(column)), np.float64)
        space = action_space_of(self, episodes, "SampleActions")
        if inputs.ndim != 2 or inputs.shape[1] != width(space):
            raise ValueError(
                f"SampleActions: action_dist_inputs must have shape (E, {width(space)}) for {space}, got {inputs.shape}"
            )
        generators = (shared_data or {}).get("generators")
        if generators is not None and len(generators) != len(inputs):
            raise ValueError(
                f"SampleActions: shared_data['generators'] must have one for each of {len(inputs)} rows, "
                f"got {len(generators)}"
            )
        actions, logp = sampled(space, inputs, self._draw(len(inputs), generators) if explore else None)
        batch[Columns.ACTIONS] = replaced(column, actions)
        if Columns.ACTION_LOGP not in batch:
            batch[Columns.ACTION_LOGP] = replaced(column, logp.astype(np.float32))
        return batch

    def _draw(self, rows: int, generators: Sequence[np.random.Generator] | None) -> Draw:
        def draw(kind: str, count: int) -> Array:
            if generators is None:
                return getattr(self._generator, kind)((rows, count))  # type: ignore[no-any-return]
            return np.array([getattr(generator, kind)(count) for generator in generators])

        return draw

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the state of the piece's own generator."""
        return {"generator": self._generator.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take it over."""
        self._generator.bit_generator.state = state["generator"]


class ActionsToSpace(Piece):
    """Adds ``"actions_for_env"``: the actions, brought into the space of the environment.

    Only Boxes of floats are changed, alone or in Dict and Tuple spaces, place by place: those with both bounds are
    unsquashed, those with one are clipped to it. Column ``"actions"``, which an episode keeps, stays as it is.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in; the environment's action space is taken from here, or else from the episodes.
    normalize_actions : bool, default True
        Whether to map [-1, 1] to [low, high], and clip what lies outside.
    clip_actions : bool, default False
        Whether to clip only; not looked at if `normalize_actions`. With neither, nothing is done.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If there is no action space, or the batch has no actions.

    References
    ----------
    RLlib 2.60, ``NormalizeAndClipActions``.

    Examples
    --------
    >>> piece = ActionsToSpace(input_action_space=gym.spaces.Box(0.0, 4.0, (1,)))
    >>> piece(batch={"actions": np.array([[-1.0], [0.5], [3.0]])}, episodes=[])["actions_for_env"].tolist()
    [[0.0], [3.0], [4.0]]
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        normalize_actions: bool = True,
        clip_actions: bool = False,
        **kwargs: Any,
    ) -> None:
        self.normalize_actions = normalize_actions
        self.clip_actions = clip_actions
        super().__init__(input_observation_space, input_action_space, **kwargs)

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
        """Add the column."""
        if not (self.normalize_actions or self.clip_actions):
            return batch
        if Columns.ACTIONS not in batch:
            raise ValueError(f"ActionsToSpace: batch must have 'actions', got columns {sorted(batch)}")
        rules = rules_for(action_space_of(self, episodes, "ActionsToSpace")).struct
        column = batch[Columns.ACTIONS]
        bring = unsquashed if self.normalize_actions else clipped
        given = stacked(without_tensors(column))
        actions = map_pair(lambda rule, leaf, _: bring(rule, leaf), rules, given, "ActionsToSpace")
        batch[Columns.ACTIONS_FOR_ENV] = replaced(column, actions)
        return batch


def unsquashed(rule: LeafRules, actions: Array) -> Array:
    """Map [-1, 1] to the bounds of a leaf where there are two, and clip; only Boxes of floats are changed."""
    space = rule.space
    if not isinstance(space, gym.spaces.Box) or np.dtype(space.dtype).kind != "f":
        return actions
    bounded = space.bounded_below & space.bounded_above
    low, high = (np.where(bounded, bound, 0.0) for bound in (space.low.astype(np.float64), space.high))
    mapped = np.where(bounded, low + (actions + 1.0) * (high - low) / 2.0, actions)
    return clipped(rule, mapped)


def clipped(rule: LeafRules, actions: Array) -> Array:
    """Clip to the bounds of a leaf; only Boxes of floats are changed."""
    space = rule.space
    if not isinstance(space, gym.spaces.Box) or np.dtype(space.dtype).kind != "f":
        return actions
    return np.clip(actions, space.low, space.high).astype(space.dtype)


def action_space_of(piece: Connector, episodes: Sequence[Any], where: str) -> gym.Space[Any]:
    """Return the space of actions that a piece works with."""
    space = piece.input_action_space
    if space is None and episodes:
        space = episodes[0].action_space
    if space is None:
        raise ValueError(f"{where}: input_action_space must be given, or the episodes have one, got None")
    return space


def width(space: gym.Space[Any]) -> int:
    """Count the distribution inputs for actions of a space.

    Raises
    ------
    TypeError
        If there is no distribution for it.
    """
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, gym.spaces.MultiBinary):
        return int(np.prod(space.shape))
    if isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind == "f":
        return 2 * int(np.prod(space.shape))
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        return sum(map(width, subspaces(space)))
    raise TypeError(
        "SampleActions: the action space must be made of Discrete, MultiDiscrete, MultiBinary and Box with floats, "
        f"got {space}; let the module return 'actions'"
    )


def subspaces(space: gym.Space[Any]) -> Sequence[gym.Space[Any]]:
    """List the spaces in a Dict or Tuple, in order."""
    return list(space.spaces.values()) if isinstance(space, gym.spaces.Dict) else list(space.spaces)  # type: ignore[attr-defined]


def sampled(space: gym.Space[Any], inputs: Array, draw: Draw | None) -> tuple[Any, Array]:
    """Sample an action for each row of inputs, or take the likeliest without a draw.

    Returns
    -------
    structure of ndarray (E, *A), and ndarray (E,)
        The actions and the logarithms of their probabilities.
    """
    if isinstance(space, gym.spaces.Discrete):
        chosen, logp = chosen_values(inputs, draw and draw("random", 1)[:, 0])
        return (chosen + space.start).astype(space.dtype), logp
    if isinstance(space, gym.spaces.MultiDiscrete):
        values, logp = chosen_places(np.split(inputs, np.cumsum(space.nvec)[:-1], 1), draw)
        return (values.reshape(-1, *space.shape) + getattr(space, "start", 0)).astype(space.dtype), logp
    if isinstance(space, gym.spaces.MultiBinary):
        values, logp = chosen_places([np.stack([np.zeros_like(ones), ones], 1) for ones in inputs.T], draw)
        return values.reshape(-1, *space.shape).astype(space.dtype), logp
    if isinstance(space, gym.spaces.Box):
        return normal_values(space, inputs, draw)
    parts, logp, begin = [], np.zeros(len(inputs)), 0
    for sub in subspaces(space):
        end = begin + width(sub)
        values, more = sampled(sub, inputs[:, begin:end], draw)
        parts.append(values)
        logp += more
        begin = end
    return rebuild(space.spaces if isinstance(space, gym.spaces.Dict) else (), parts), logp


def chosen_values(logits: Array, uniform: Array | None) -> tuple[Array, Array]:
    """Choose one of n values in each row of logits: the likeliest, or by the inverse of the distribution function."""
    best = logits.max(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.exp(logits - best)
    sums = np.cumsum(weights, 1)
    total = sums[:, -1]
    if not np.isfinite(total).all():
        row = int(np.argmin(np.isfinite(total)))
        raise ValueError(
            "SampleActions: action_dist_inputs must be logits with a finite maximum and without NaN, "
            f"got {logits[row].tolist()} in row {row}"
        )
    if uniform is None:
        return logits.argmax(1), np.zeros(len(logits))
    # The first sum above the draw: never one of a value with probability 0, whose sum is that of the value before.
    chosen = (sums > (uniform * total)[:, None]).argmax(1)
    rows = np.arange(len(logits))
    return chosen, (logits - best)[rows, chosen] - np.log(total)


def chosen_places(logits: Sequence[Array], draw: Draw | None) -> tuple[Array, Array]:
    """Choose a value for each of several places, (E, places), by the logits (E, n) of each."""
    uniform = draw and draw("random", len(logits))
    chosen = [chosen_values(each, None if uniform is None else uniform[:, k]) for k, each in enumerate(logits)]
    return np.stack([values for values, _ in chosen], 1), sum((logp for _, logp in chosen), np.zeros(len(logits[0])))


def normal_values(space: gym.spaces.Box, inputs: Array, draw: Draw | None) -> tuple[Array, Array]:
    """Draw from normal distributions with independent places, or take their means."""
    places = inputs.shape[1] // 2
    mean, log_std = inputs[:, :places], inputs[:, places:]
    if np.isnan(inputs).any():
        row = int(np.isnan(inputs).any(1).argmax())
        raise ValueError(
            "SampleActions: action_dist_inputs must be means and logarithms of standard deviations, "
            f"got {inputs[row].tolist()} in row {row}"
        )
    shape = (len(inputs), *space.shape)
    if draw is None:
        return mean.reshape(shape).astype(space.dtype), np.zeros(len(inputs))
    std = np.exp(log_std)
    actions = (mean + std * draw("standard_normal", places)).astype(space.dtype)
    logp = -0.5 * ((actions - mean) / std) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return actions.reshape(shape), logp.sum(1)
