"""Time several ways of doing the same work in one run, in turn, and print medians and ratios.

Wall times on a shared machine drift by tens of per cent from minute to minute. So the contenders take turns, the ratio
is taken within each round, and what is printed is the median of the rounds with their spread. Every contender shows the
rows that it got to a check before the first round and after the last. The clock is the processor time of the whole
process: it stands still while another process has the core, and a second thread would count twice.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


def no_check() -> None:
    """Check nothing: for a contender whose answer another check covers."""


@dataclass(frozen=True)
class Contender:
    """One way of doing the work.

    Parameters
    ----------
    name : str, as printed
    run : makes `calls` calls each time it is called
    check : raises AssertionError where an answer is wrong
    calls : int, number of calls of the work in one call of `run`
    bar : str, how this line is held against the base ("ours"); empty where it is for information only
    met : whether a ratio (this time / base time) meets the bar
    """

    name: str
    run: Callable[[], object]
    check: Callable[[], None] = no_check
    calls: int = 1
    bar: str = ""
    met: Callable[[float], bool] | None = None


def at_least(factor: float) -> tuple[str, Callable[[float], bool]]:
    """The bar of a rival: it must take at least `factor` times as long as ours."""
    return f">= {factor:g}", lambda ratio: ratio >= factor


def at_most(factor: float) -> tuple[str, Callable[[float], bool]]:
    """The bar of a variant of ours: it may take at most `factor` times as long as the base."""
    return f"<= {factor:g}", lambda ratio: ratio <= factor


def _seconds(contender: Contender, rounds: int) -> float:
    run = contender.run
    began = time.process_time()
    for _ in range(rounds):
        run()
    return time.process_time() - began


def _rounds_that_last(contender: Contender, seconds: float) -> int:
    rounds = 1
    while (took := _seconds(contender, rounds)) < seconds / 4:
        rounds *= 4
    return max(1, round(rounds * seconds / took))


@dataclass(frozen=True)
class Timing:
    """CPU microseconds a call of one contender, one figure a repeat."""

    name: str
    microseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the repeats."""
        return statistics.median(self.microseconds)


def spread(values: Sequence[float]) -> str:
    """Return 'median (min..max)' with three significant digits."""

    def short(value: float) -> str:
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

    return f"{short(statistics.median(values))} ({short(min(values))}..{short(max(values))})"


def compare(title: str, contenders: Sequence[Contender], quick: bool = False, base: int = 0) -> dict[str, Timing]:
    """Let the contenders take turns, print their times and the ratios to number `base`, return the times."""
    repeats, seconds = (2, 0.005) if quick else (9, 0.12)
    for contender in contenders:
        contender.check()
    rounds = [_rounds_that_last(contender, seconds) for contender in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for contender, number, figures in zip(contenders, rounds, times, strict=True):
                figures.append(_seconds(contender, number) / (number * contender.calls) * 1e6)
    finally:
        gc.enable()
    for contender in contenders:
        contender.check()
    print(f"\n### {title}\n")
    print("| what | CPU µs a call: median (min..max) | times the first line's | bar |\n|---|---|---|---|")
    for contender, figures in zip(contenders, times, strict=True):
        ratios = [mine / reference for mine, reference in zip(figures, times[base], strict=True)]
        verdict = ""
        if contender.met is not None:
            verdict = f"{contender.bar}: {'met' if contender.met(statistics.median(ratios)) else 'MISSED'}"
        print(f"| {contender.name} | {spread(figures)} | {spread(ratios)} | {verdict} |")
    if quick:
        print("\n(--quick: sizes and repeats too small for the figures to mean anything; the rows were checked)")
    return {
        contender.name: Timing(contender.name, tuple(figures))
        for contender, figures in zip(contenders, times, strict=True)
    }


def arguments(description: str) -> argparse.Namespace:
    """Parse the one option that all benches share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the bench still runs and is right")
    return parser.parse_args()
