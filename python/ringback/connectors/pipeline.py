"""A pipeline: pieces one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import gymnasium as gym

from ringback.episodes.filling import READER

from .connector import Connector
from .own_episodes import Known, together

__all__ = ["ConnectorPipeline"]


class ConnectorPipeline(Connector):
    """Pieces one after the other; itself a piece.

    Each piece gets the spaces that the one before leaves behind; where none are known it keeps those that it was given
    by others. While a pipeline runs, filling a step of an episode that existed but is not kept (neither in the chunk
    nor in its lookback) is an error, whichever piece asks.

    Parameters
    ----------
    connectors : iterable of Connector, optional
        The pieces, in order.
    input_observation_space, input_action_space : Space, optional
        What comes in; an :class:`~ringback.EnvRunner` sets those of its environment. Where a piece does not go with a
        space, its error is raised and all spaces stay what they were.
    timing : bool, default False
        Whether to measure each piece: see :meth:`timings`.

    Raises
    ------
    TypeError
        If a piece is no `Connector`.

    References
    ----------
    RLlib 2.60, ``rllib.connectors.connector_pipeline_v2.ConnectorPipelineV2``, whose arguments begin with the spaces.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> from ringback.connectors import AddObservations, BatchItems
    >>> pipeline = ConnectorPipeline([AddObservations()])
    >>> pipeline.append(BatchItems())
    >>> episode = SingleAgentEpisode(observations=[3, 4], actions=[0], rewards=[1.0])
    >>> pipeline(batch={}, episodes=[episode])
    {'obs': array([4])}
    """

    def __init__(
        self,
        connectors: Iterable[Connector] = (),
        *,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        timing: bool = False,
    ) -> None:
        self.connectors: list[Connector] = [checked(piece, "ConnectorPipeline") for piece in connectors]
        self._timings: dict[str, tuple[int, float]] | None = {} if timing else None
        self._names: list[tuple[str, Connector]] = []
        self._are_named: list[Connector] = []  # the pieces that the names are of
        self._known: Known = (), []
        self._passed_on: list[tuple[Connector, Any, Any]] = []  # the spaces that pieces have from here
        with unchanged_on_failure(self.connectors):
            super().__init__(input_observation_space, input_action_space)

    def __call__(
        self,
        *,
        rl_module: Any = None,
        batch: dict[str, Any] | None = None,
        episodes: Sequence[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Run all pieces.

        Parameters
        ----------
        rl_module, explore, metrics, **kwargs
            Handed to each piece.
        batch : dict, optional
            Where to begin; empty by default.
        episodes : sequence of SingleAgentEpisode
            Several chunks of one episode are taken one after the other, at the place of the first. The pieces share a
            list of the pipeline's own.
        shared_data : dict, optional
            Handed to each piece; one for this call by default.

        Returns
        -------
        dict
            The batch that the last piece returns.

        Raises
        ------
        TypeError
            If a piece returns no dict.
        EpisodeError
            If a piece fills a step that existed.
        """
        batch = {} if batch is None else batch
        shared_data = {} if shared_data is None else shared_data
        episodes, self._known = together(episodes, self._known)
        timings = self._timings
        reading = [""]
        token = READER.set(reading)
        try:
            for name, piece in self._named():
                reading[0] = name
                started = perf_counter() if timings is not None else 0.0
                batch = piece(
                    rl_module=rl_module,
                    batch=batch,
                    episodes=episodes,
                    explore=explore,
                    shared_data=shared_data,
                    metrics=metrics,
                    **kwargs,
                )
                if not isinstance(batch, dict):
                    raise TypeError(
                        f"ConnectorPipeline: {name} must return the batch, a dict, got {type(batch).__name__}"
                    )
                if timings is not None:
                    calls, seconds = timings.get(name, (0, 0.0))
                    timings[name] = calls + 1, seconds + perf_counter() - started
        finally:
            READER.reset(token)
        return batch

    @property
    def lookback(self) -> int:
        """The largest that a piece declares."""
        return max((piece.lookback for piece in self.connectors), default=0)

    def timings(self) -> dict[str, tuple[int, float]]:
        """Return the calls of each piece so far and the seconds they took together.

        Raises
        ------
        RuntimeError
            If the pipeline was made without ``timing=True``.
        """
        if self._timings is None:
            raise RuntimeError(
                "ConnectorPipeline.timings: the pipeline must be made with timing=True, got timing=False"
            )
        return dict(self._timings)

    # -- its pieces ---------------------------------------------------------------------------------------------------

    def append(self, connector: Connector) -> None:
        """Put a piece behind the last one.

        Like all methods that change the pieces it raises what a piece says to its new spaces; nothing is changed then.
        """
        self._insert(len(self.connectors), connector, "append")

    def prepend(self, connector: Connector) -> None:
        """Put a piece before the first one."""
        self._insert(0, connector, "prepend")

    def insert_before(self, name_or_class: str | type[Connector], connector: Connector) -> Connector:
        """Put a piece before the first one of that name or class, and return the latter.

        Raises
        ------
        ValueError
            If there is none; nothing is changed.
        """
        position = self._position(name_or_class, "insert_before")
        self._insert(position, connector, "insert_before")
        return self.connectors[position + 1]

    def insert_after(self, name_or_class: str | type[Connector], connector: Connector) -> Connector:
        """Put a piece behind the first one of that name or class, and return the latter.

        Raises
        ------
        ValueError
            If there is none; nothing is changed.
        """
        position = self._position(name_or_class, "insert_after")
        self._insert(position + 1, connector, "insert_after")
        return self.connectors[position]

    def remove(self, name_or_class: str | type[Connector]) -> None:
        """Take out the first piece of that name or class; ``Name_2`` is the second of its name, as in the state.

        Raises
        ------
        ValueError
            If there is none; nothing is changed.
        """
        position = self._position(name_or_class, "remove")
        self._replace([*self.connectors[:position], *self.connectors[position + 1 :]])

    def __len__(self) -> int:
        return len(self.connectors)

    def __iter__(self) -> Iterator[Connector]:
        return iter(self.connectors)

    def __getitem__(self, key: int | str | type[Connector]) -> Any:
        """Return the piece at a position, or the list of all pieces of a name or of a class."""
        if isinstance(key, str):
            return [piece for piece in self.connectors if piece.name == key]
        if isinstance(key, type):
            return [piece for piece in self.connectors if isinstance(piece, key)]
        return self.connectors[key]

    def __repr__(self) -> str:
        return f"ConnectorPipeline([{', '.join(map(repr, self.connectors))}])"

    def _insert(self, position: int, connector: Connector, method: str) -> None:
        checked(connector, f"ConnectorPipeline.{method}")
        if connector is self:
            raise ValueError(f"ConnectorPipeline.{method}: connector must be another piece, got the pipeline itself")
        self._replace([*self.connectors[:position], connector, *self.connectors[position:]])

    def _replace(self, connectors: list[Connector]) -> None:
        with unchanged_on_failure([self, *connectors]):
            self.connectors = connectors
            self._pass_spaces_on()

    def _position(self, name_or_class: str | type[Connector], method: str) -> int:
        named = self._named()
        for position, (name, piece) in enumerate(named):
            if type(piece) is name_or_class or name == name_or_class:
                return position
        asked = name_or_class if isinstance(name_or_class, str) else getattr(name_or_class, "__name__", name_or_class)
        raise ValueError(
            f"ConnectorPipeline.{method}: name_or_class must be one of {[name for name, _ in named]}, got {asked!r}"
        )

    def _named(self) -> list[tuple[str, Connector]]:
        """List the pieces with their names, which are made different: the second of a class is ``Name_2``."""
        if self._are_named != self.connectors:
            seen: dict[str, int] = {}
            self._names = []
            for piece in self.connectors:
                seen[piece.name] = count = seen.get(piece.name, 0) + 1
                self._names.append((piece.name if count == 1 else f"{piece.name}_{count}", piece))
            self._are_named = list(self.connectors)
        return self._names

    # -- spaces -------------------------------------------------------------------------------------------------------

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space[Any], input_action_space: gym.Space[Any] | None
    ) -> gym.Space[Any] | None:
        """Return what the last piece leaves behind."""
        return self.observation_space

    def recompute_output_action_space(
        self, input_observation_space: gym.Space[Any] | None, input_action_space: gym.Space[Any]
    ) -> gym.Space[Any] | None:
        """Return what the last piece leaves behind."""
        return self.action_space

    @property
    def input_observation_space(self) -> gym.Space[Any] | None:
        """The space of observations before the first piece; setting it sets those of all pieces."""
        return self._input_observation_space

    @input_observation_space.setter
    def input_observation_space(self, space: gym.Space[Any] | None) -> None:
        with unchanged_on_failure([self]):
            self._input_observation_space = space
            self._pass_spaces_on()

    @property
    def input_action_space(self) -> gym.Space[Any] | None:
        """The space of actions before the first piece; setting it sets those of all pieces."""
        return self._input_action_space

    @input_action_space.setter
    def input_action_space(self, space: gym.Space[Any] | None) -> None:
        with unchanged_on_failure([self]):
            self._input_action_space = space
            self._pass_spaces_on()

    @property
    def observation_space(self) -> gym.Space[Any] | None:
        """The space of observations behind the last piece."""
        return self.connectors[-1].observation_space if self.connectors else self.input_observation_space

    @property
    def action_space(self) -> gym.Space[Any] | None:
        """The space of actions behind the last piece."""
        return self.connectors[-1].action_space if self.connectors else self.input_action_space

    @property
    def column_spaces(self) -> dict[str, gym.Space[Any]]:
        """The spaces of other columns behind the last piece."""
        return self.connectors[-1].column_spaces if self.connectors else self.input_column_spaces

    def _pass_spaces_on(self) -> None:
        observation_space, action_space = self.input_observation_space, self.input_action_space
        column_spaces = self.input_column_spaces
        before, self._passed_on = self._passed_on, []
        for piece in self.connectors:
            had = next((spaces for one, *spaces in before if one is piece), [None, None])
            self._passed_on.append((piece, observation_space, action_space))
            for_actions = known(action_space, piece.input_action_space, had[1])
            piece.input_column_spaces = column_spaces
            piece.input_action_space = for_actions
            piece.input_observation_space = known(observation_space, piece.input_observation_space, had[0])
            # Once more: a space of actions may depend on that of observations, and was computed before it.
            piece.input_action_space = for_actions
            observation_space, action_space = piece.observation_space, piece.action_space
            column_spaces = piece.column_spaces

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the states of the pieces that have one, by name.

        Parameters
        ----------
        components, not_components : str or collection of str, optional
            Only these pieces, or all but these.
        """
        wanted = None if components is None else names(components)
        unwanted = names(not_components or ())
        states = {}
        for name, piece in self._named():
            if name not in unwanted and (wanted is None or name in wanted):
                state = piece.get_state(**kwargs)
                if state:
                    states[name] = state
        return states

    def set_state(self, state: dict[str, Any]) -> None:
        """Hand the states to the pieces of these names.

        Raises
        ------
        ValueError
            If there is no piece of a name.

        Notes
        -----
        If a piece refuses its state, its error is raised and those before it get back the states that they had.
        """
        pieces = dict(self._named())
        unknown = state.keys() - pieces.keys()
        if unknown:
            raise ValueError(
                f"ConnectorPipeline.set_state: state must be of pieces among {sorted(pieces)}, got {sorted(unknown)}"
            )
        before = {name: pieces[name].get_state() for name in state}
        tried = []
        try:
            for name, value in state.items():
                tried.append(name)
                pieces[name].set_state(value)
        except BaseException:
            for name in tried:
                if before[name]:
                    pieces[name].set_state(before[name])
            raise

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Merge the states of such a pipeline on several runners, piece by piece; pieces are matched by name.

        Pieces that do not merge are left out, so that the result may be given to all runners.
        """
        pieces = dict(self._named())
        merged = {}
        for name, piece in pieces.items():
            given = [state[name] for state in states if name in state]
            result = piece.merge_states(given) if given else {}
            if result:
                merged[name] = result
        return merged

    def reset_state(self) -> None:
        """Let all pieces forget."""
        for piece in self.connectors:
            piece.reset_state()


@contextmanager
def unchanged_on_failure(pieces: Iterable[Connector]) -> Iterator[None]:
    """Give pieces, and the pieces in them, their attributes back if what is done to them fails."""
    before = [(piece, dict(vars(piece))) for piece in with_inner(pieces)]
    try:
        yield
    except BaseException:
        for piece, attributes in before:
            vars(piece).clear()
            vars(piece).update(attributes)
        raise


def with_inner(pieces: Iterable[Connector]) -> Iterator[Connector]:
    """Go through pieces and, behind a pipeline, the pieces in it."""
    for piece in pieces:
        yield piece
        if isinstance(piece, ConnectorPipeline):
            yield from with_inner(piece.connectors)


def known(space: Any, own: Any, passed_on: Any) -> Any:
    """Return the space that a piece is to have: its own if there is no other, unless it came from here."""
    return own if space is None and own is not passed_on else space


def checked(piece: Any, where: str) -> Connector:
    """Return the piece if it is one."""
    if not isinstance(piece, Connector):
        raise TypeError(f"{where}: a piece must be a Connector, got {type(piece).__name__}")
    return piece


def names(given: str | Collection[str]) -> set[str]:
    """Return the set of one name or several."""
    return {given} if isinstance(given, str) else set(given)
