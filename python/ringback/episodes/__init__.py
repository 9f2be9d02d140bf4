"""Episodes with a lookback: whole trajectories, read by index, slice and fill.

The classes have the names, arguments and behaviour of those of RLlib's new API stack (Ray 2.60), so that code written
for them works after a change of the import. They differ on purpose in this:

Reading
    - Slices of any step run as Python's do: ``[::-1]`` is the reverse (RLlib: nothing), and a filled slice with a step
      has one item for each place that it names.
    - A fill is put on both sides of a slice that reaches out on both (RLlib: on the left only).
    - An index left of the lookback raises ``IndexError`` in array form too (RLlib: wraps to the end).
    - NumPy integers, integer arrays and tuples of ints are indices. An empty list gives an empty answer.
    - A fill looks like the other items in list form too, without a space as well.
    - ``pop`` returns the item.

Growing
    - Appending to array form is O(1) amortised (RLlib: a copy of all data).
    - Arrays and lists that are given are never written to, and pieces do not write into one another.
    - Extra model outputs may appear late or be missing for a while; there they are zero.
    - Given spaces, array form checks all that is added or set, and ``to_numpy`` and ``validate`` check all there is.

Pieces
    - ``episode[a:b]`` clips, and is done exactly when it holds the last step. Pieces keep ids, spaces and custom data.
    - A piece without steps keeps its form; ``to_numpy`` turns one without steps too.
    - Joining compares nested observations leaf by leaf, NaN being equal to NaN, and names what differs.

Misuse raises :class:`~ringback.errors.EpisodeError`, which is an ``AssertionError`` and a ``ValueError``.
"""

from __future__ import annotations

from .lookback_buffer import InfiniteLookbackBuffer
from .one_hot import one_hot, one_hot_multidiscrete
from .single_agent_episode import SingleAgentEpisode
from .stacking import stack_last
from .structure import batch, unbatch

__all__ = [
    "InfiniteLookbackBuffer",
    "SingleAgentEpisode",
    "batch",
    "one_hot",
    "one_hot_multidiscrete",
    "stack_last",
    "unbatch",
]
