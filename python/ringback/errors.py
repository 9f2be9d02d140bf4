"""The error classes of ringback; each is also the built-in one that a user would catch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["EnvError", "EpisodeError", "EpisodeKeyError", "MissingExtraError"]


class EpisodeError(AssertionError, ValueError):
    """Something was asked of an episode that does not fit its state or its data.

    It is an ``AssertionError`` too, because code written for RLlib's episodes catches that one.
    """


class EpisodeKeyError(KeyError, EpisodeError):
    """An extra model output was asked for that the episode does not have."""

    def __str__(self) -> str:
        # KeyError shows its argument's repr, which would put the sentence in quotes.
        return str(self.args[0]) if self.args else ""


class EnvError(RuntimeError):
    """An environment raised an error, or returned what cannot be stored.

    What it raised is chained as ``__cause__``.

    Parameters
    ----------
    message : str
        The whole sentence.
    env_index : int, optional
        Which sub-environment; None if nobody can tell.
    step : int, optional
        Which step of its episode, 1 for the first; 0 for its reset.
    episodes : sequence of SingleAgentEpisode
        What was played before and not handed back so far: the finished episodes, then the open chunks.

    Attributes
    ----------
    env_index, step
        As given.
    episodes : list of SingleAgentEpisode
        As given.
    """

    def __init__(
        self, message: str, env_index: int | None = None, step: int | None = None, episodes: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.env_index = env_index
        self.step = step
        self.episodes = list(episodes)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.env_index, self.step, self.episodes)


class MissingExtraError(ImportError):
    """A part of ringback needs a package that is not installed.

    Parameters
    ----------
    where : str
        Who needs it; the whole sentence, if it is the only argument.
    extra : str, optional
        The optional extra of ringback that brings it.
    package : str, optional
        What is missing, for people.
    """

    def __init__(self, where: str, extra: str | None = None, package: str | None = None) -> None:
        text = (
            where
            if extra is None
            else f"{where}: needs the extra {extra!r} ({package}); pip install 'ringback[{extra}]'"
        )
        super().__init__(text)
