"""Pieces of a learner's pipeline that sum up rewards."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np

from ringback.episodes.structure import map_structure

from .batching import batched
from .columns import Columns, by_episode, stacked
from .connector import Piece
from .return_sums import check_fraction, check_n_step, gae, n_step_returns, returns_to_go
from .steps import MASK_WAS_ADDED, Array, OneStepLonger, Steps, extras_of, next_observations_of, refuse_time_axis

__all__ = ["ComputeReturnsToGo", "GeneralAdvantageEstimation", "NStepReturns"]


class GeneralAdvantageEstimation(Piece):
    """Adds the columns ``"advantages"`` and ``"value_targets"``.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    gamma : float
        Discount factor, in [0, 1].
    lambda_ : float
        0 trusts the values (one-step differences), 1 the rewards (they count up to each chunk's end).
    normalize : bool, default True
        Whether to shift and scale the advantages of the batch to mean 0 and standard deviation 1.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If there are no values, or none behind the last step of a chunk that is not terminated.

    Notes
    -----
    **Values** are what ``rl_module.compute_values(batch)`` gives for the batch as it is: one number a row, an array or
    a tensor (no gradient is taken), so a torch module wants the piece behind `ToTensor`. A module without that method
    needs the column ``"vf_preds"``.

    **Ends.** Behind a terminated step nothing counts. Behind a truncated one, and behind the last step of a chunk that
    is not at its episode's end, the value of the chunk's last observation counts: that of the row which `AddOneStep`
    put there. A step with both flags is terminated. Values that were stored when acting (the extra model output
    ``"vf_preds"``) have none for that row, so they do for terminated episodes only.

    **Rows.** Both columns are float32, in the form in which the batch is: (N,), with `AddTimeDim` (B, T). Padding is 0,
    as are the advantages of rows that `AddOneStep` added. Mean and standard deviation (at least 1e-4) are those of the
    rows in ``"loss_mask"``; a step that another piece masks is still a step of its episode, whose reward counts.

    A piece that lengthens the chunks itself, in the place of `AddOneStep`, says so as RLlib's does: by
    ``"_added_loss_mask_for_valid_episode_ts"`` in `shared_data`, and False in the mask at the rows that it added.

    References
    ----------
    Schulman et al. 2016, equations 11 and 16: :func:`ringback.connectors.return_sums.gae`. RLlib 2.60,
    ``GeneralAdvantageEstimation``, whose mean and deviation count the added rows.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> from ringback.connectors import AddColumns, AddObservations, AddOneStep, BatchItems, ConnectorPipeline
    >>> class Module:
    ...     def compute_values(self, batch):
    ...         return batch["obs"] / 2
    >>> episode = SingleAgentEpisode("a", observations=[4, 6, 8], actions=[1, 0], rewards=[1.0, 1.0],
    ...                              truncated=True, len_lookback_buffer=0)
    >>> pipeline = ConnectorPipeline([
    ...     AddOneStep(), AddObservations(as_learner_connector=True), AddColumns(), BatchItems(),
    ...     GeneralAdvantageEstimation(gamma=0.5, lambda_=1.0, normalize=False),
    ... ])
    >>> batch = pipeline(rl_module=Module(), batch={}, episodes=[episode])
    >>> batch["advantages"].tolist(), batch["value_targets"].tolist()
    ([0.5, 0.0, 0.0], [2.5, 3.0, 4.0])
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        gamma: float,
        lambda_: float,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        check_fraction(gamma, "GeneralAdvantageEstimation", "gamma")
        check_fraction(lambda_, "GeneralAdvantageEstimation", "lambda_")
        self.gamma = gamma
        self.lambda_ = lambda_
        self.normalize = normalize
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
        """Add the two columns."""
        where = "GeneralAdvantageEstimation"
        steps = Steps(batch, episodes, where)
        if not steps.chunks:
            return batch
        given = values_of(rl_module, batch, where)
        values = steps.flat(Columns.VF_PREDS, given).astype(np.float64)
        mask = np.ones(steps.total, bool)
        if Columns.LOSS_MASK in batch:
            mask = steps.flat(Columns.LOSS_MASK).astype(bool)  # a copy
        terminateds = steps.flat(Columns.TERMINATEDS).astype(bool, copy=False)
        truncateds = steps.flat(Columns.TRUNCATEDS).astype(bool, copy=False)
        last = steps.last
        added = added_rows(steps, mask, shared_data)
        mask[last[added]] = False
        self._check_ends(steps, added, terminateds[last - added], given is batch.get(Columns.VF_PREDS))
        advantages, targets = gae(
            steps.flat(Columns.REWARDS),
            values,
            # A row that was added is a chunk of its own, behind the one that goes on with its value.
            np.stack([values[last], np.zeros(len(last))], axis=1).reshape(-1),
            np.stack([steps.counts - added, added], axis=1).reshape(-1),
            terminateds,
            truncateds,
            gamma=self.gamma,
            lambda_=self.lambda_,
        )
        advantages[last[added]], targets[last[added]] = 0.0, values[last[added]]
        if self.normalize and mask.any():
            counted = advantages[mask]
            mean = counted.mean()
            counted -= mean
            advantages = (advantages - mean) / max(1e-4, np.sqrt(counted.dot(counted) / len(counted)))
            advantages[last[added]] = 0.0
        like = given if hasattr(given, "detach") else batch.get(Columns.REWARDS, given)
        batch[Columns.ADVANTAGES] = steps.given_back(advantages.astype(np.float32), like)
        batch[Columns.VALUE_TARGETS] = steps.given_back(targets.astype(np.float32), like)
        return batch

    def _check_ends(self, steps: Steps, added: Array, ended: Array, as_acting: bool) -> None:
        """Raise unless there is a value behind each chunk that is not terminated."""
        for position in np.flatnonzero(~ended).tolist():
            chunk = steps.chunks[position]
            if not added[position]:
                raise ValueError(
                    f"{steps.where}: episodes must have one more step where they do not terminate, got none for "
                    f"episode {chunk.id_!r}; put AddOneStep() first in the pipeline"
                )
            if as_acting and Columns.VF_PREDS in extras_of(chunk):
                raise ValueError(
                    f"{steps.where}: rl_module must have compute_values() where episodes do not terminate, got only "
                    f"the values of episode {chunk.id_!r} stored when acting, none for its last observation"
                )


class ComputeReturnsToGo(Piece):
    """Adds the column ``"returns_to_go"``: the discounted rewards from each step to the end of its chunk.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    gamma : float
        Discount factor, in [0, 1].
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Notes
    -----
    float32, in the form in which the batch is: (N,), with `AddTimeDim` (B, T). The rewards are those of the column
    ``"rewards"``, or of the episodes if there is none. What comes behind a chunk does not count, even if the next
    chunk of its episode is in the batch: join chunks first (``concat_episode``), or use `GeneralAdvantageEstimation`
    with ``lambda_=1``, which puts a value there.

    References
    ----------
    RLlib 2.60, ``ComputeReturnsToGo``.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7], actions=[1, 0], rewards=[1.0, 2.0],
    ...                              terminated=True, len_lookback_buffer=0)
    >>> ComputeReturnsToGo(gamma=0.5)(batch={}, episodes=[episode])["returns_to_go"].arrays.tolist()
    [2.0, 2.0]
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        gamma: float,
        **kwargs: Any,
    ) -> None:
        check_fraction(gamma, "ComputeReturnsToGo", "gamma")
        self.gamma = gamma
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
        steps = Steps(batch, episodes, "ComputeReturnsToGo")
        if not steps.chunks:
            return batch
        returns = returns_to_go(steps.flat(Columns.REWARDS), steps.counts, self.gamma).astype(np.float32)
        rewards = batch.get(Columns.REWARDS)
        batch[Columns.RETURNS_TO_GO] = steps.rows(returns) if rewards is None else steps.given_back(returns, rewards)
        return batch


class NStepReturns(Piece):
    """Puts sums of n rewards in the place of rewards, and what lies n steps ahead in the place of what lies one ahead.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    n_step : int
        Rewards in a sum, at most.
    gamma : float
        Discount factor, in [0, 1].
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If the batch has a time axis: the piece goes before `AddTimeDim`.

    Notes
    -----
    Columns, as ``ReplayBuffer.sample_transitions(n_step=..., gamma=...)`` defines them, but (N,) instead of (B, 1):

    - ``"rewards"`` (N,), float32: the sum of m <= n rewards, the k-th discounted by ``gamma**k``;
    - ``"new_obs"`` (N, *D): the observation behind the last summed step;
    - ``"terminateds"``, ``"truncateds"`` (N,), bool: the ends of the last summed step;
    - ``"discounts"`` (N,), float32: ``gamma**m * (1 - terminated)``, the weight of the value of ``"new_obs"``;
    - ``"n_steps"`` (N,), int64: m. It is below n where the episode ended, or the chunk did.

    Columns that the batch has are read from it, others from the episodes. No sum goes on into another chunk: its own
    last observation is there to go on from.

    References
    ----------
    Sutton and Barto 2018, equation 7.1: :func:`ringback.connectors.return_sums.n_step_returns`.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7, 8], actions=[1, 0, 1], rewards=[1.0, 2.0, 4.0],
    ...                              terminated=True, len_lookback_buffer=0)
    >>> batch = NStepReturns(n_step=2, gamma=0.5)(batch={}, episodes=[episode])
    >>> {name: column.arrays.tolist() for name, column in batch.items() if name in ("rewards", "new_obs", "discounts")}
    {'new_obs': [7, 8, 8], 'rewards': [2.0, 4.0, 4.0], 'discounts': [0.25, 0.0, 0.0]}
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        n_step: int,
        gamma: float,
        **kwargs: Any,
    ) -> None:
        check_n_step(n_step, "NStepReturns")
        check_fraction(gamma, "NStepReturns", "gamma")
        self.n_step = n_step
        self.gamma = gamma
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
        """Change the columns."""
        where = "NStepReturns"
        steps = Steps(batch, episodes, where)
        if not steps.chunks:
            return batch
        refuse_time_axis(batch, shared_data, where)
        ends = {name: steps.flat(name).astype(bool) for name in (Columns.TERMINATEDS, Columns.TRUNCATEDS)}
        sums = n_step_returns(
            steps.flat(Columns.REWARDS),
            steps.counts,
            ends[Columns.TERMINATEDS],
            ends[Columns.TRUNCATEDS],
            n_step=self.n_step,
            gamma=self.gamma,
        )
        following = batch.get(Columns.NEXT_OBS)
        if following is None:
            following = steps.rows(next_observations_of(steps.chunks, where))
        arrays = map_structure(lambda leaf: leaf[sums.last], stacked(following))
        batch[Columns.NEXT_OBS] = steps.rows(arrays) if by_episode(following) else arrays
        found = {
            Columns.REWARDS: sums.rewards.astype(np.float32),
            **{name: flags[sums.last] for name, flags in ends.items()},
            Columns.DISCOUNTS: sums.discounts.astype(np.float32),
            Columns.N_STEPS: sums.n_steps,
        }
        like = batch.get(Columns.REWARDS, following)
        batch.update({name: steps.given_back(flat, like) for name, flat in found.items()})
        return batch


def values_of(rl_module: Any, batch: dict[str, Any], where: str) -> Any:
    """Return the value of each row, as the module or the batch has it."""
    compute_values = getattr(rl_module, "compute_values", None)
    if compute_values is None:
        if Columns.VF_PREDS not in batch:
            raise ValueError(
                f"{where}: rl_module must have compute_values(), or the batch {Columns.VF_PREDS!r}, "
                f"got {type(rl_module).__name__} and {sorted(batch)}"
            )
        return batch[Columns.VF_PREDS]
    torch = sys.modules.get("torch")
    with nullcontext() if torch is None else torch.no_grad():
        return compute_values({name: batched(name, column) for name, column in batch.items()})


def added_rows(steps: Steps, mask: Array, shared_data: dict[str, Any] | None) -> Array:
    """Tell of each chunk whether its last row is one for its value alone, (E,)."""
    added = np.array([isinstance(chunk, OneStepLonger) for chunk in steps.chunks])
    # Who lengthened the chunks otherwise says so; else a mask may well leave out a step.
    return added | ~mask[steps.last] if (shared_data or {}).get(MASK_WAS_ADDED) else added
