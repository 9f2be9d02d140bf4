"""Pieces of a learner's pipeline that put what the episodes hold into the batch.

Examples
--------
A batch for PPO, from chunks that a runner has just played; the loss leaves out the rows that ``batch["loss_mask"]``
does not have.

>>> import torch
>>> from ringback import EnvRunner
>>> from ringback import connectors as pieces
>>> class ActorCritic(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.policy, self.value = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
...
...     def forward(self, batch):
...         return {"action_dist_inputs": self.policy(batch["obs"])}
...
...     def compute_values(self, batch):
...         return self.value(batch["obs"]).squeeze(-1)
>>> learner = pieces.ConnectorPipeline(
...     [
...         pieces.AddOneStep(),
...         pieces.AddObservations(as_learner_connector=True),
...         pieces.AddColumns(),
...         pieces.BatchItems(),
...         pieces.ToTensor(),
...         pieces.GeneralAdvantageEstimation(gamma=0.99, lambda_=0.95),
...     ]
... )
>>> module = ActorCritic()
>>> with EnvRunner("CartPole-v1", module, num_envs=8, seed=0) as runner:
...     chunks = runner.sample(num_timesteps=1024)
>>> batch = learner(rl_module=module, episodes=chunks)
>>> sorted(batch)  # doctest: +NORMALIZE_WHITESPACE
['action_dist_inputs', 'action_logp', 'actions', 'advantages', 'loss_mask', 'obs', 'rewards', 'terminateds',
 'truncateds', 'value_targets']
>>> batch["obs"].shape == (1024 + len(chunks), 4), int(batch["loss_mask"].sum())
(True, 1024)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from ringback.episodes import SingleAgentEpisode
from ringback.errors import EpisodeError

from .columns import Columns, Key, Rows
from .connector import Piece
from .steps import chunks_of, ends_of, extras_of, next_observations_of, refuse_time_axis, rewards_of, rows_of

__all__ = ["AddColumns", "AddNextObservations"]


class AddColumns(Piece):
    """Puts actions, rewards, ends and extra model outputs of all steps into the batch.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    infos : bool, default False
        Whether to add the infos that came with the observations, too.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    EpisodeError
        If an extra model output is missing from some chunks of a module but not from others.
    ValueError
        Behind `AddTimeDim`.

    Notes
    -----
    Columns, N being all steps of all chunks, chunk after chunk and by time:

    - ``"actions"`` (N, *A), in the dtype of the episodes' action space where they have one;
    - ``"rewards"`` (N,), float32;
    - ``"terminateds"``, ``"truncateds"`` (N,), bool: True at most at the last row of a chunk, and only if the chunk
      holds the end of its episode;
    - each extra model output (N, *D). Not ``"state_out"``: what a learner needs of it is the state *before* each step,
      ``"state_in"``, which `AddStates` adds in the form that fits (a row a step, or one a sequence);
    - ``"infos"``, on request: N dicts.

    All are copies. Chunks of length 0 have no rows. Columns that the batch has already are left as they are. O(N).

    References
    ----------
    RLlib 2.60, ``AddColumnsFromEpisodesToTrainBatch`` (and ``AddInfosFromEpisodesToTrainBatch``).

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode(
    ...     "a", observations=[5, 6, 7], actions=[1, 0], rewards=[0.5, 1.5], terminated=True,
    ...     extra_model_outputs={"action_logp": [-0.25, -0.5]}, len_lookback_buffer=0,
    ... )
    >>> for name, column in AddColumns()(batch={}, episodes=[episode]).items():
    ...     print(name, column.arrays.tolist())
    actions [1, 0]
    rewards [0.5, 1.5]
    terminateds [False, True]
    truncateds [False, False]
    action_logp [-0.25, -0.5]
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        infos: bool = False,
        **kwargs: Any,
    ) -> None:
        self.infos = infos
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
        """Add the columns."""
        where = "AddColumns"
        chunks, keys, counts = chunks_of(episodes)
        if not chunks:
            return batch
        refuse_time_axis(batch, shared_data, where)
        extras = extra_columns(batch, chunks, keys, where)
        found: dict[str, Rows] = {}
        if Columns.ACTIONS not in batch:
            found[Columns.ACTIONS] = Rows(rows_of(chunks, "actions", where), keys, counts)
        if Columns.REWARDS not in batch:
            found[Columns.REWARDS] = Rows(rewards_of(chunks, where), keys, counts)
        if not {Columns.TERMINATEDS, Columns.TRUNCATEDS} <= batch.keys():
            found.update({name: Rows(flags, keys, counts) for name, flags in ends_of(chunks, counts).items()})
        batch.update({name: column for name, column in {**found, **extras}.items() if name not in batch})
        if self.infos and Columns.INFOS not in batch:
            for chunk, count in zip(chunks, counts, strict=True):
                self.add_n_batch_items(batch, Columns.INFOS, chunk.get_infos(slice(count)), count, chunk)
        return batch


class AddNextObservations(Piece):
    """Puts the observation that each step led to into the column ``"new_obs"``.

    Raises
    ------
    ValueError
        Behind `AddTimeDim`, if the column is missing.

    Notes
    -----
    The column is (N, *D), chunk after chunk: observations 1 .. T of each, a copy, as they are in the episodes (what
    other pieces did to the column ``"obs"`` is not done to it). Chunks of length 0 have no rows. A batch that has the
    column already is left as it is.

    References
    ----------
    RLlib 2.60, ``AddNextObservationsFromEpisodesToTrainBatch``.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode(
    ...     "a", observations=[5, 6, 7], actions=[1, 0], rewards=[0.5, 1.5], len_lookback_buffer=0
    ... )
    >>> AddNextObservations()(batch={}, episodes=[episode])["new_obs"].arrays
    array([6, 7])
    """

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
        chunks, keys, counts = chunks_of(episodes)
        if chunks and Columns.NEXT_OBS not in batch:
            refuse_time_axis(batch, shared_data, "AddNextObservations")
            batch[Columns.NEXT_OBS] = Rows(next_observations_of(chunks, "AddNextObservations"), keys, counts)
        return batch


def extra_columns(
    batch: dict[str, Any], chunks: list[SingleAgentEpisode], keys: list[Key], where: str
) -> dict[str, Rows]:
    """Make a column of each extra model output that the batch has not; agents of other modules may have other ones."""
    found: dict[str, Rows] = {}
    theirs = [extras_of(chunk) for chunk in chunks]
    for name in dict.fromkeys(name for extras in theirs for name in extras):
        if name in batch or name in (Columns.STATE_IN, Columns.STATE_OUT):
            continue
        having = {chunk.module_id for chunk, extras in zip(chunks, theirs, strict=True) if name in extras}
        rows = [position for position, chunk in enumerate(chunks) if chunk.module_id in having]
        for position in rows:
            if name not in theirs[position]:
                raise EpisodeError(
                    f"{where}: the extra model outputs of episode {chunks[position].id_!r} must have {name!r}, as "
                    f"those of other episodes do, got {sorted(theirs[position])}"
                )
        some = [chunks[position] for position in rows]
        arrays = rows_of(some, "extra_model_outputs", where, key=name)
        found[name] = Rows(arrays, [keys[position] for position in rows], [len(chunk) for chunk in some])
    return found
