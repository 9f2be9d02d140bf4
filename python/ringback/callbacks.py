"""The functions of the user that a runner calls when something happens to an episode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Callbacks"]

EVENTS = ("on_episode_start", "on_episode_step", "on_episode_end")


class Callbacks:
    """The user's functions, event by event.

    Parameters
    ----------
    given : object, mapping, sequence of these, or None
        What has the functions, under the names of the events.

    Raises
    ------
    TypeError
        If one of them has none.
    """

    def __init__(self, given: Any) -> None:
        self._functions: dict[str, list[Callable[..., Any]]] = {event: [] for event in EVENTS}
        for one in given if isinstance(given, list | tuple) else [] if given is None else [given]:
            found = {
                event: one.get(event) if isinstance(one, Mapping) else getattr(one, event, None) for event in EVENTS
            }
            if not any(map(callable, found.values())):
                raise TypeError(f"EnvRunner: callbacks must have one of the functions {', '.join(EVENTS)}, got {one!r}")
            for event, function in found.items():
                if function is not None:
                    self._functions[event].append(taking_its_own(function))

    def __bool__(self) -> bool:
        return any(self._functions.values())

    def has(self, event: str) -> bool:
        """Tell whether anybody wants to know."""
        return bool(self._functions[event])

    def __call__(self, event: str, **values: Any) -> None:
        """Call all functions of an event."""
        for function in self._functions[event]:
            function(**values)


def taking_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function so that keyword arguments that it does not take are left out."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function
    return lambda **values: function(**{name: value for name, value in values.items() if name in parameters})
