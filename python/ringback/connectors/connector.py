"""The base class of pieces: what RLlib's ``ConnectorV2`` promises to those who write their own."""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ringback.episodes import SingleAgentEpisode, unbatch
from ringback.episodes import batch as batched
from ringback.episodes.structure import leaves, map_structure

from .columns import BatchedArray, Key, by_episode, episode_key, is_batched, rows_in

__all__ = ["Connector", "Piece", "refuse_unknown"]

# Options of RLlib's pieces that all of ours take, and that mean nothing where a piece does not name them.
RLLIB_OPTIONS = frozenset({"as_learner_connector", "multi_agent"})


class Connector(abc.ABC):
    """One piece of a pipeline: a callable that reads episodes, and changes a batch or the episodes.

    Override :meth:`__call__`; where the piece changes what observations or actions look like, the two
    ``recompute_output_..._space`` methods; where it reads steps before a chunk, :attr:`lookback`; where it has a state,
    :meth:`get_state`, :meth:`set_state`, :meth:`merge_states` and :meth:`reset_state`.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in. A pipeline sets them.
    **kwargs
        Ignored, so that pieces written for RLlib can pass on what they were given; the pieces that come with ringback
        refuse options that they do not know.

    References
    ----------
    RLlib 2.60, ``rllib.connectors.connector_v2.ConnectorV2``: a piece that uses only what its documentation names runs
    here after a change of the import.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> class Rewards(Connector):
    ...     def __call__(self, *, batch, episodes, **kwargs):
    ...         for episode in self.single_agent_episode_iterator(episodes):
    ...             self.add_batch_item(batch, "last_reward", episode.get_rewards(-1), episode)
    ...         return batch
    >>> episode = SingleAgentEpisode("a", observations=[0, 1, 2], actions=[5, 6], rewards=[0.5, 1.5])
    >>> Rewards()(batch={}, episodes=[episode])
    {'last_reward': {('a',): [1.5]}}
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._observation_space: gym.Space[Any] | None = None
        self._action_space: gym.Space[Any] | None = None
        self._input_observation_space: gym.Space[Any] | None = None
        self._input_action_space: gym.Space[Any] | None = None
        self.input_column_spaces: dict[str, gym.Space[Any]] = {}
        self.input_action_space = input_action_space
        self.input_observation_space = input_observation_space

    @abc.abstractmethod
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
        """Do the piece's work.

        Parameters
        ----------
        rl_module : callable, optional
            The module that acts or learns.
        batch : dict of str to column
            What the pieces before made; it may be changed in place.
        episodes : sequence of SingleAgentEpisode
            Where the data comes from. What is to last must be written into them: the batch is thrown away once the
            module has seen it.
        explore : bool, optional
            Whether actions are sampled, or the best ones taken.
        shared_data : dict, optional
            Whatever pieces tell one another.
        metrics : Any, optional
            Passed on.
        **kwargs
            Room for more.

        Returns
        -------
        dict
            The batch.
        """

    # -- spaces -------------------------------------------------------------------------------------------------------

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space[Any], input_action_space: gym.Space[Any] | None
    ) -> gym.Space[Any] | None:
        """Return the space of observations behind this piece; by default what comes in."""
        return input_observation_space

    def recompute_output_action_space(
        self, input_observation_space: gym.Space[Any] | None, input_action_space: gym.Space[Any]
    ) -> gym.Space[Any] | None:
        """Return the space of actions behind this piece; by default what comes in."""
        return input_action_space

    @property
    def observation_space(self) -> gym.Space[Any] | None:
        """The space of observations behind this piece."""
        return self._observation_space

    @property
    def action_space(self) -> gym.Space[Any] | None:
        """The space of actions behind this piece."""
        return self._action_space

    @property
    def input_observation_space(self) -> gym.Space[Any] | None:
        """The space of observations before this piece; setting it computes the one behind it, None for None."""
        return self._input_observation_space

    @input_observation_space.setter
    def input_observation_space(self, space: gym.Space[Any] | None) -> None:
        before, self._input_observation_space = self._input_observation_space, space
        try:
            behind = None
            if space is not None:
                behind = self.recompute_output_observation_space(space, self.input_action_space)
        except BaseException:
            self._input_observation_space = before
            raise
        self._observation_space = behind

    @property
    def input_action_space(self) -> gym.Space[Any] | None:
        """The space of actions before this piece; setting it computes the one behind it, None for None."""
        return self._input_action_space

    @input_action_space.setter
    def input_action_space(self, space: gym.Space[Any] | None) -> None:
        before, self._input_action_space = self._input_action_space, space
        try:
            behind = None
            if space is not None:
                behind = self.recompute_output_action_space(self.input_observation_space, space)
        except BaseException:
            self._input_action_space = before
            raise
        self._action_space = behind

    @property
    def column_spaces(self) -> dict[str, gym.Space[Any]]:
        """The spaces of other columns of the batch behind this piece, as far as they are known.

        By default :attr:`input_column_spaces`, those before it.
        """
        return self.input_column_spaces

    # -- what it needs, what it is ------------------------------------------------------------------------------------

    @property
    def lookback(self) -> int:
        """How many steps before a chunk the piece reads; 0 by default. A runner keeps as many."""
        return 0

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"{self.name}()"

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return what the piece has learned; ``{}`` by default."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:  # noqa: B027 - most pieces have none
        """Take over what :meth:`get_state` gave."""

    def reset_state(self) -> None:  # noqa: B027 - most pieces have none
        """Forget what was learned."""

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Merge the states of this piece on several runners into its own, and return the result; ``{}`` by default."""
        return {}

    # -- help for those who write pieces ------------------------------------------------------------------------------

    @staticmethod
    def single_agent_episode_iterator(
        episodes: Sequence[Any],
        agents_that_stepped_only: bool = True,
        zip_with_batch_column: list[Any] | Mapping[Key, list[Any]] | None = None,
    ) -> Iterator[Any]:
        """Go through the single-agent episodes.

        Parameters
        ----------
        episodes : sequence of SingleAgentEpisode
            Multi-agent episodes are taken apart into those of their agents.
        agents_that_stepped_only : bool, default True
            Of a multi-agent episode, only the agents that stepped last.
        zip_with_batch_column : list or mapping, optional
            A column of the batch, to be gone through alongside.

        Yields
        ------
        SingleAgentEpisode or tuple
            The episode, or (episode, the column's item).

        Raises
        ------
        ValueError
            If the column does not have one item for each episode.
        """
        where = "Connector.single_agent_episode_iterator"
        singles: list[Any] = []
        for episode in episodes:
            if isinstance(episode, SingleAgentEpisode) or not hasattr(episode, "agent_episodes"):
                singles.append(episode)
            else:
                agents = episode.get_agents_that_stepped() if agents_that_stepped_only else episode.agent_ids
                singles.extend(episode.agent_episodes[agent] for agent in agents)
        if zip_with_batch_column is None:
            yield from singles
            return
        column = zip_with_batch_column
        if isinstance(column, list):
            if len(column) != len(singles):
                raise ValueError(
                    f"{where}: zip_with_batch_column must have one item for each of {len(singles)} episodes, "
                    f"got {len(column)}"
                )
            yield from zip(singles, column, strict=True)
            return
        taken: dict[Key, int] = {}
        for episode in singles:
            key = episode_key(episode)
            position = taken.get(key, 0)
            if key not in column or position >= len(column[key]):
                raise ValueError(f"{where}: zip_with_batch_column must have an item for episode {key}, got none")
            taken[key] = position + 1
            yield episode, column[key][position]

    @staticmethod
    def add_batch_item(batch: dict[str, Any], column: str, item_to_add: Any, single_agent_episode: Any = None) -> None:
        """Add one row to a column, which is made if it is not there.

        Parameters
        ----------
        batch : dict
            Changed in place.
        column : str
            The column's name.
        item_to_add : Any
            A leaf or a structure of leaves, without a batch axis.
        single_agent_episode : SingleAgentEpisode, optional
            Whose row it is: the column is ``{(episode id,): [item, ...]}``. With none it is a list.

        Raises
        ------
        TypeError
            If there is a column of that name in another form.
        """
        if single_agent_episode is None:
            rows = batch.setdefault(column, [])
            if not isinstance(rows, list):
                raise TypeError(
                    f"Connector.add_batch_item: column {column!r} must be a list of items, as no episode is given, "
                    f"got {type(rows).__name__}"
                )
            rows.append(item_to_add)
            return
        rows = batch.setdefault(column, {})
        if not by_episode(rows):
            raise TypeError(
                f"Connector.add_batch_item: column {column!r} must be a mapping from episodes to items, as an episode "
                f"is given, got {type(rows).__name__}"
            )
        key = episode_key(single_agent_episode)
        if key in rows:
            rows[key].append(item_to_add)
        else:
            rows[key] = [item_to_add]

    @staticmethod
    def add_n_batch_items(
        batch: dict[str, Any], column: str, items_to_add: Any, num_items: int, single_agent_episode: Any = None
    ) -> None:
        """Add several rows to a column.

        Parameters
        ----------
        batch, column, single_agent_episode
            As for :meth:`add_batch_item`.
        items_to_add : list, or structure of ndarray, shape (num_items, *D)
            A list is added row by row; arrays are added as they are, as one item of several rows.
        num_items : int
            How many rows there are.

        Raises
        ------
        ValueError
            If there are not `num_items` rows.
        TypeError
            If there is a column of that name in another form.
        """
        if not isinstance(items_to_add, list):
            found = set(map_lengths(items_to_add))
            if found != {num_items}:
                raise ValueError(
                    f"Connector.add_n_batch_items: items_to_add must have {num_items} rows, got {sorted(found)}"
                )
            tagged = map_structure(lambda leaf: np.asarray(leaf).view(BatchedArray), items_to_add)
            Connector.add_batch_item(batch, column, tagged, single_agent_episode)
            return
        if len(items_to_add) != num_items:
            raise ValueError(
                f"Connector.add_n_batch_items: items_to_add must have {num_items} rows, got {len(items_to_add)}"
            )
        for item in items_to_add:
            Connector.add_batch_item(batch, column, item, single_agent_episode)

    @staticmethod
    def foreach_batch_item_change_in_place(
        batch: dict[str, Any], column: str | Sequence[str], func: Callable[..., Any]
    ) -> None:
        """Put something else in the place of each item of one or more columns.

        Parameters
        ----------
        batch : dict
            Changed in place.
        column : str or sequence of str
            One column, or several that are gone through side by side.
        func : callable
            ``func(item, episode_id, agent_id, module_id)`` returns the new item; with several columns the first
            argument is a tuple of items and the result too. What is not known is None.

        Raises
        ------
        ValueError
            If a column is not there, or several rows (a `BatchedArray`) become another number of rows.
        """
        names = [column] if isinstance(column, str) else list(column)
        missing = [name for name in names if name not in batch]
        if missing:
            raise ValueError(
                f"Connector.foreach_batch_item_change_in_place: column must be one of {sorted(batch)}, got {missing}"
            )

        def changed(items: tuple[Any, ...], *whose: Any) -> tuple[Any, ...]:
            return (func(items[0], *whose),) if isinstance(column, str) else tuple(func(items, *whose))

        if by_episode(batch[names[0]]):
            for key in list(batch[names[0]]):
                lists = [batch[name][key] for name in names]
                whose = key if len(key) == 3 else (key[0], None, None)
                for position, items in enumerate(zip(*lists, strict=True)):
                    for rows, new in zip(lists, changed(items, *whose), strict=True):
                        rows[position] = as_many(new, rows[position])
            return
        # Rows without an episode: lists are changed in place, arrays are taken apart and put together again.
        columns = [batch[name] if isinstance(batch[name], list) else unbatch(batch[name]) for name in names]
        for position, items in enumerate(zip(*columns, strict=True)):
            for rows, new in zip(columns, changed(items, None, None, None), strict=True):
                rows[position] = new
        for name, rows in zip(names, columns, strict=True):
            if not isinstance(batch[name], list):
                batch[name] = batched(rows)

    @staticmethod
    def switch_batch_from_column_to_module_ids(batch: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Turn ``{column: {module id: data}}`` into ``{module id: {column: data}}``.

        Examples
        --------
        >>> Connector.switch_batch_from_column_to_module_ids({"obs": {"a": [1], "b": [2]}, "actions": {"a": [3]}})
        {'a': {'obs': [1], 'actions': [3]}, 'b': {'obs': [2]}}
        """
        modules: dict[str, dict[str, Any]] = {}
        for column, by_module in batch.items():
            for module_id, data in by_module.items():
                modules.setdefault(module_id, {})[column] = data
        return modules


class Piece(Connector):
    """The base class of the pieces that come with ringback: it takes no option that the piece does not know.

    A `Connector` ignores them, because who writes a piece may hand on whatever came in. Here a misspelled option would
    be lost without a word.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    **kwargs
        RLlib's ``multi_agent`` and ``as_learner_connector``, which are ignored.

    Raises
    ------
    TypeError
        If there is another option.
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self.name)
        super().__init__(input_observation_space, input_action_space)


def refuse_unknown(kwargs: Mapping[str, Any], where: str) -> None:
    """Check the options that a piece does not name itself; those of `Piece` are checked by its constructor.

    Raises
    ------
    TypeError
        If RLlib's pieces do not have them either.
    """
    unknown = sorted(kwargs.keys() - RLLIB_OPTIONS)
    if unknown:
        raise TypeError(
            f"{where}: options must be those of its documentation or RLlib's {' and '.join(sorted(RLLIB_OPTIONS))}, "
            f"got {', '.join(map(repr, unknown))}"
        )


def as_many(new: Any, old: Any) -> Any:
    """Return the new item in the place of an old one; in that of several rows it must be as many."""
    if not is_batched(old):
        return new
    lengths = {len(leaf) if np.ndim(leaf) else None for leaf in leaves(new)}
    if lengths != {rows_in(old)}:
        raise ValueError(
            f"Connector.foreach_batch_item_change_in_place: func must return {rows_in(old)} rows for as many, got "
            f"{'no rows' if None in lengths else sorted(map(str, lengths))}"
        )
    return map_structure(lambda leaf: np.asarray(leaf).view(BatchedArray), new)


def map_lengths(structure: Any) -> Iterator[int]:
    """Yield the leading length of each leaf."""
    if isinstance(structure, dict):
        for value in structure.values():
            yield from map_lengths(value)
    elif isinstance(structure, tuple):
        for value in structure:
            yield from map_lengths(value)
    else:
        yield len(structure)
