"""The piece that brings observations to mean 0 and standard deviation 1, as far as they are known."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from ringback.episodes.lookback_buffer import last_items, set_last_items
from ringback.episodes.space_rules import rules_for
from ringback.episodes.structure import leaves, map_structure, stack, unstack

from .columns import Columns, replaced, stacked
from .connector import Piece
from .observations import note_change
from .own_episodes import single_agent_episodes
from .steps import refuse_time_axis

__all__ = ["MeanStdFilter"]

Array: TypeAlias = np.ndarray[Any, Any]


class MeanStdFilter(Piece):
    """Subtracts the running mean of the observations and divides by their running standard deviation.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in. Only Boxes are changed; without a space all leaves of floats are.
    de_mean_to_zero : bool, default True
        Whether to subtract the mean.
    de_std_to_one : bool, default True
        Whether to divide by the standard deviation.
    clip_by_value : float, optional, default 10.0
        The results are clipped to [-clip_by_value, clip_by_value]; None: not at all.
    update_stats : bool, default True
        Whether what passes is counted; a learner or an evaluation must not count it again. May be set at any time.
    write_to_episodes : bool, default False
        Whether to put each episode's newest observation, changed, in its own place in the episode, as RLlib does: what
        learns from the episodes then sees what acted. The piece goes first in the pipeline then. By default only the
        column ``"obs"`` is changed (and next observations, uncounted), and a learner needs a filter of its own that is
        given this one's state.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If there is no column ``"obs"`` to change; if an observation that is to be counted is not finite. Nothing is
        counted then.

    Notes
    -----
    All rows of a batch are counted, in float64, before any is changed. The result is float32. Leaves that never varied,
    and all as long as fewer than two rows were counted, are only shifted.

    **Several runners.** A state has the counts of each runner apart, under a name that no other has, and merging keeps
    the latest of each name. So each observation counts once however often states are merged, whether a runner's part
    comes back to it with the merged state or not, and also after the filter was copied, pickled or forked.

    `set_state` takes a state over as it is: what was counted since it was made is forgotten, also by those who know of
    it, once they merge what the runner counted from there on; ``merge_states([state])`` keeps it. `reset_state` is the
    same with an empty state.

    References
    ----------
    Chan, Golub, LeVeque 1983, "Algorithms for Computing the Sample Variance", equations 2.1. RLlib 2.60,
    ``MeanStdFilter``.

    Examples
    --------
    >>> piece = MeanStdFilter()
    >>> piece(batch={"obs": np.array([[1.0], [3.0]])}, episodes=[])["obs"].round(3)
    array([[-0.707],
           [ 0.707]], dtype=float32)
    >>> other = MeanStdFilter()
    >>> _ = other(batch={"obs": np.array([[5.0], [7.0]])}, episodes=[])
    >>> _ = piece.merge_states([other.get_state(), other.get_state()])
    >>> piece.count, piece.mean
    (4, array([4.]))
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        de_mean_to_zero: bool = True,
        de_std_to_one: bool = True,
        clip_by_value: float | None = 10.0,
        update_stats: bool = True,
        write_to_episodes: bool = False,
        **kwargs: Any,
    ) -> None:
        if clip_by_value is not None and not clip_by_value > 0:
            raise ValueError(f"MeanStdFilter: clip_by_value must be None or > 0, got {clip_by_value!r}")
        self.de_mean_to_zero = de_mean_to_zero
        self.de_std_to_one = de_std_to_one
        self.clip_by_value = clip_by_value
        self.update_stats = update_stats
        self.write_to_episodes = write_to_episodes
        self._runs: dict[str, Moments] = {}  # what was counted, by whom
        self._own: str | None = None  # which of them this object counts into; None before it counts
        self._process = 0
        self._latest = (0, 0)  # the largest version that its own ever had
        self._rest: Moments | None = None  # those of all others together, once it is known
        self._like: Any = None  # an observation's structure
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space[Any], input_action_space: gym.Space[Any] | None
    ) -> gym.Space[Any] | None:
        """Return the space with Boxes of float32 in the place of Boxes."""
        # Episodes that are written to also take the next observation, as it comes, before it is changed.
        bound = np.inf if self.clip_by_value is None or self.write_to_episodes else self.clip_by_value
        return filtered_space(input_observation_space, float(bound))

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
        """Change the observations."""
        if self.write_to_episodes:
            self._write(batch, episodes)
            return batch
        if Columns.OBS not in batch:
            if not episodes:
                return batch
            raise ValueError(
                f"MeanStdFilter: batch must have 'obs', got columns {sorted(batch)}; put it behind AddObservations()"
            )
        refuse_time_axis(batch, shared_data, "MeanStdFilter")
        observations = stacked(batch[Columns.OBS])
        if self.update_stats:
            self._count(observations)
        batch[Columns.OBS] = replaced(batch[Columns.OBS], self._filtered(observations))
        note_change(shared_data, batch, self.name)
        if Columns.NEXT_OBS in batch:
            following = batch[Columns.NEXT_OBS]
            batch[Columns.NEXT_OBS] = replaced(following, self._filtered(stacked(following)))
        return batch

    def _write(self, batch: dict[str, Any], episodes: Sequence[Any]) -> None:
        singles, _ = single_agent_episodes(episodes, False)
        if not singles:
            return
        if Columns.OBS in batch:
            raise ValueError(
                "MeanStdFilter: batch must have no 'obs' yet to write to episodes, "
                f"got columns {sorted(batch)}; put it first"
            )
        if self.input_observation_space is None:
            self.input_observation_space = singles[0].observation_space
        # Not as their space says, which is that of the changed ones by now.
        observations = stack(last_items([episode.observations for episode in singles]), "MeanStdFilter")
        if self.update_stats:
            self._count(observations)
        space = self.observation_space
        rows = unstack(self._filtered(observations))
        for episode in singles:
            if space is not None and episode.observation_space is not space:
                episode.observation_space = space
        set_last_items([episode.observations for episode in singles], rows, "MeanStdFilter")

    # -- statistics ---------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many observations were counted, here and wherever merged states come from."""
        return self._total().count

    @property
    def mean(self) -> Any:
        """The mean, float64, in the structure of an observation; None for leaves that are not changed."""
        return self._in_structure(self._total().mean)

    @property
    def std(self) -> Any:
        """The standard deviation that is divided by, likewise."""
        return self._in_structure(self._total().std())

    def _in_structure(self, values: list[Any]) -> Any:
        rest = iter(values)
        return map_structure(lambda _: next(rest, None), self._like)

    def _total(self) -> Moments:
        own = self._runs.get(self._own or "")
        if self._rest is None:
            self._rest = Moments()
            for name, moments in self._runs.items():
                if name != self._own:
                    self._rest.merge(moments)
        if own is None or not self._rest.count:
            return self._rest if own is None else own
        total = self._rest.copy()
        total.merge(own)
        return total

    def _count(self, observations: Any) -> None:
        more = Moments.of(observations, self._chosen(observations))
        if self._own is None or self._process != os.getpid():
            self._own, self._process, self._rest = os.urandom(8).hex(), os.getpid(), None
            self._latest = 0, 0
        own = self._runs.setdefault(self._own, Moments())
        if own.version != self._latest:
            own.epoch = self._latest[0] + 1  # it went back: what follows is later than all that others may know of
        own.merge(more)
        self._latest = own.version

    def _chosen(self, observations: Any) -> list[bool]:
        """Tell for each leaf whether it is changed."""
        if self._like is None:
            self._like = map_structure(lambda _: None, observations)
        space = self.input_observation_space
        if space is None:
            return [leaf.dtype.kind == "f" for leaf in leaves(observations)]
        return [isinstance(rule.space, gym.spaces.Box) for rule in leaves(rules_for(space).struct)]

    def _filtered(self, observations: Any) -> Any:
        chosen = self._chosen(observations)
        total = self._total()
        if not total.count:
            total = Moments.of(map_structure(lambda leaf: leaf[:0], observations), chosen)
        parts = iter(zip(chosen, total.mean, total.std(), strict=True))

        def filtered(leaf: Array) -> Array:
            is_chosen, mean, std = next(parts)
            if not is_chosen:
                return leaf
            out = leaf - mean if self.de_mean_to_zero else leaf.astype(np.float64)
            if self.de_std_to_one:
                out /= std
            if self.clip_by_value is not None:
                np.clip(out, -self.clip_by_value, self.clip_by_value, out=out)
            return out.astype(np.float32)

        return map_structure(filtered, observations)

    # -- state --------------------------------------------------------------------------------------------------------

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return what was counted, by whom, and the structure of an observation.

        Returns
        -------
        dict
            ``{"runs": {name: {"epoch": int, "count": int, "mean": [...], "squares": [...]}}, "structure": ...}``.
            Of two parts of one name, that of the larger epoch is the later one, and in an epoch that of the larger
            count.
        """
        runs = {name: moments.state() for name, moments in self._runs.items()}
        return {"runs": runs, "structure": self._like}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`get_state` gave, and forget all else.

        Raises
        ------
        ValueError
            If it is no such state.
        """
        runs = runs_of(state, "set_state")
        self._runs, self._rest = runs, None
        if runs:
            self._like = state["structure"]

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Count in what other filters counted, each observation once, and return the state.

        Parameters
        ----------
        states : list of dict
            From ``get_state``, in any order, with or without those of this filter or of earlier merges.

        Raises
        ------
        ValueError
            If one is no such state; nothing is merged.
        """
        for runs in [runs_of(state, "merge_states") for state in states]:
            for name, moments in runs.items():
                if name not in self._runs or self._runs[name].version < moments.version:
                    self._runs[name] = moments
        for state in states:
            if self._like is None:
                self._like = state["structure"]
        self._rest = None
        return self.get_state()

    def reset_state(self) -> None:
        """Forget what was counted."""
        self._runs, self._rest = {}, None

    def __getstate__(self) -> dict[str, Any]:
        # A copy, pickled or not, counts under a name of its own from here on.
        return {**self.__dict__, "_own": None, "_rest": None}


class Moments:
    """Count, mean and sum of squared deviations of rows, leaf by leaf; None for leaves that are left out."""

    __slots__ = ("count", "epoch", "mean", "squares")

    def __init__(self) -> None:
        self.epoch = 0  # how often who counts went back to fewer rows
        self.count = 0
        self.mean: list[Any] = []
        self.squares: list[Any] = []

    @classmethod
    def of(cls, observations: Any, chosen: list[bool]) -> Moments:
        """Return those of rows (N, *D)."""
        out = cls()
        flat = leaves(observations)
        out.count = len(flat[0])
        for leaf, is_chosen in zip(flat, chosen, strict=True):
            mean = squares = None
            if is_chosen:
                rows = np.asarray(leaf, np.float64)
                with np.errstate(invalid="ignore", over="ignore"):
                    mean = rows.sum(0) / max(out.count, 1)
                    deviations = rows - mean
                    squares = (deviations * deviations).sum(0)
                if not np.isfinite(squares).all():
                    raise ValueError(
                        "MeanStdFilter: observations must be finite to be counted, got NaN or infinite ones"
                    )
            out.mean.append(mean)
            out.squares.append(squares)
        return out

    @property
    def version(self) -> tuple[int, int]:
        """What is larger in the later of two of one runner."""
        return self.epoch, self.count

    def merge(self, other: Moments) -> None:
        """Add other rows."""
        if not self.count or not other.count:
            if other.count:
                self.count, self.mean, self.squares = other.count, list(other.mean), list(other.squares)
            return
        count = self.count + other.count
        for k, mean in enumerate(self.mean):
            if mean is not None:
                delta = other.mean[k] - mean
                self.mean[k] = mean + delta * (other.count / count)
                self.squares[k] = (
                    self.squares[k] + other.squares[k] + delta * delta * (self.count * other.count / count)
                )
        self.count = count

    def std(self) -> list[Any]:
        """Return the standard deviation of each place, N - 1 in the denominator; 1 where there is none."""
        out: list[Any] = []
        for mean, squares in zip(self.mean, self.squares, strict=True):
            if mean is None:
                out.append(None)
                continue
            std = np.sqrt(squares / max(self.count - 1, 1))
            # What is left of a place that never varied is rounding, which must not be blown up.
            out.append(np.where(std > 1e-12 * np.abs(mean), std, 1.0))
        return out

    def copy(self) -> Moments:
        """Return a copy that can be merged into."""
        return Moments.from_state(self.state())

    def state(self) -> dict[str, Any]:
        """Return them as a dict; the arrays are never changed in place."""
        return {"epoch": self.epoch, "count": self.count, "mean": list(self.mean), "squares": list(self.squares)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Moments:
        """Return what :meth:`state` gave."""
        out = cls()
        out.epoch, out.count = state["epoch"], state["count"]
        out.mean, out.squares = list(state["mean"]), list(state["squares"])
        return out


def runs_of(state: Any, method: str) -> dict[str, Moments]:
    """Return what a state says was counted, by whom."""
    if not isinstance(state, dict) or state.keys() != {"runs", "structure"}:
        got = f"keys {sorted(state)}" if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"MeanStdFilter.{method}: state must be one of get_state(), got {got}")
    return {name: Moments.from_state(part) for name, part in state["runs"].items()}


def filtered_space(space: gym.Space[Any], bound: float) -> gym.Space[Any]:
    """Return the space of what comes out."""
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict({key: filtered_space(sub, bound) for key, sub in space.spaces.items()})
    if isinstance(space, gym.spaces.Tuple):
        return gym.spaces.Tuple([filtered_space(sub, bound) for sub in space.spaces])
    return gym.spaces.Box(-bound, bound, space.shape, np.float32) if isinstance(space, gym.spaces.Box) else space
