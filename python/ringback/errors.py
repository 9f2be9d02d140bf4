"""The error classes of ringback; each is also the built-in one that a user would catch."""

from __future__ import annotations

__all__ = ["EpisodeError", "EpisodeKeyError", "MissingExtraError"]


class EpisodeError(AssertionError, ValueError):
    """Something was asked of an episode that does not fit its state or its data.

    It is an ``AssertionError`` too, because code written for RLlib's episodes catches that one.
    """


class EpisodeKeyError(KeyError, EpisodeError):
    """An extra model output was asked for that the episode does not have."""

    def __str__(self) -> str:
        # KeyError shows its argument's repr, which would put the sentence in quotes.
        return str(self.args[0]) if self.args else ""


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
