"""One more row for each chunk, so that a module gives the value behind its last step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringback.episodes import SingleAgentEpisode

from .columns import Columns, Rows, by_episode, episode_key
from .connector import Piece
from .steps import MASK_WAS_ADDED, OneStepLonger, chunks_of, ends_of

__all__ = ["AddOneStep"]


class AddOneStep(Piece):
    """Lengthens each chunk by one step at its last observation, for the value that a sum of rewards goes on with.

    The first piece of a learner's pipeline. The pieces behind it see T + 1 steps where there were T: the row that is
    added has the chunk's last observation, the state behind its last step, and reward 0; its action and extra model
    outputs repeat those of the last step. The columns ``"loss_mask"``, ``"terminateds"`` and ``"truncateds"`` are added
    here.

    Raises
    ------
    TypeError
        If `episodes` is no list.
    ValueError
        If the batch has rows already: they would not be as many as those of the pieces behind.

    Notes
    -----
    - ``"loss_mask"`` (rows,), bool, is False at the rows that were added: they are no data, only input of the value
      function. A loss must leave them out.
    - The ends belong to the last real step: its ``"terminateds"`` is that of the chunk; its ``"truncateds"`` too, but
      is True as well where the chunk is not done and goes on elsewhere. The row that is added has neither.
    - The user's episodes stay as they are: the items of the list `episodes` are replaced by lengthened copies, which
      last as long as the call of the pipeline. O(T) in array form.
    - Each chunk gets its own row, even where the batch has the chunk that goes on from it: the two have different
      rows, perhaps out of order, and an estimate for one must not depend on whether the other happens to be there. So
      that no piece which puts the rows of one id together takes the added row for a step in the middle of an episode,
      chunks get names of their own (``id_0``, ``id_1``, ...) where several of one id are there.
    - Chunks of length 0 have no rows.

    References
    ----------
    RLlib 2.60, ``AddOneTsToEpisodesAndTruncate``, which lengthens the episodes themselves.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> from ringback.connectors import AddObservations, ConnectorPipeline
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7], actions=[1, 0], rewards=[0.5, 1.5],
    ...                              len_lookback_buffer=0)
    >>> pipeline = ConnectorPipeline([AddOneStep(), AddObservations(as_learner_connector=True)])
    >>> batch = pipeline(batch={}, episodes=[episode])
    >>> batch["obs"].arrays.tolist(), batch["loss_mask"].arrays.tolist(), batch["truncateds"].arrays.tolist()
    ([5, 6, 7], [True, True, False], [False, True, False])
    >>> len(episode), episode.is_truncated
    (2, False)
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
        """Put lengthened copies into the list, and add the mask and the ends."""
        where = "AddOneStep"
        if not isinstance(episodes, list):
            raise TypeError(
                f"{where}: episodes must be a list, whose items are replaced, got {type(episodes).__name__}"
            )
        rows = sorted(name for name, column in batch.items() if by_episode(column))
        if rows:
            raise ValueError(f"{where}: batch must have no rows yet, got {rows}; put it first in the pipeline")
        singles = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        several = max(Counter(map(episode_key, singles)).values(), default=0) > 1
        episodes[:] = lengthened(singles, several)
        chunks, keys, counts = chunks_of(episodes)
        if not chunks:
            return batch
        last = np.cumsum(counts) - 1
        mask = np.ones(int(last[-1]) + 1, bool)
        mask[last] = False
        # Shifted by one: the row that was added has none of them.
        ends = {name: np.append(flags[1:], False) for name, flags in ends_of(chunks, counts).items()}
        for name, flags in {Columns.LOSS_MASK: mask, **ends}.items():
            batch[name] = Rows(flags, keys, counts)
        if shared_data is not None:
            shared_data[MASK_WAS_ADDED] = True
        return batch


def lengthened(chunks: Sequence[SingleAgentEpisode], several: bool) -> list[SingleAgentEpisode]:
    """Copy chunks with one more step each; with several of one id, name them by their positions."""
    out: list[SingleAgentEpisode] = [OneStepLonger(chunk) if len(chunk) else chunk for chunk in chunks]
    for position, chunk in enumerate(out) if several else ():
        # The position makes a name that no other chunk can have.
        if not isinstance(chunk, OneStepLonger):
            continue
        if chunk.agent_id is None:
            chunk.id_ = f"{chunk.id_}_{position}"
        else:
            chunk.multi_agent_episode_id = f"{chunk.multi_agent_episode_id}_{position}"
    return out
