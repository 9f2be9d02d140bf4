"""What was measured, and what is asked of it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from checks import CROSSES


def short(value: float) -> str:
    """Return three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass
class Result:
    """One way of one library at one size: processor microseconds a call, one figure a turn, or why there is none."""

    peer: str
    is_library: bool
    name: str
    gives: str
    size: int
    bytes_a_step: float = 0.0
    error: str = ""
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    rows: int = 0
    wrong: dict[str, int] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The median over the turns."""
        return statistics.median(self.cpu)

    def keep_quietest(self, count: int) -> None:
        """Keep only those turns before and after which the machine was at its quietest."""
        best = sorted(range(len(self.noise)), key=self.noise.__getitem__)[:count]
        self.cpu = [self.cpu[i] for i in best]
        self.wall = [self.wall[i] for i in best]
        self.noise = [self.noise[i] for i in best]

    def saw(self, rows: int, wrong: dict[str, int]) -> None:
        """Add what a check found."""
        self.rows += rows
        self.wrong = dict(Counter(self.wrong) + Counter(wrong))


Results = Sequence[Result]
Pick = Callable[[Results], "Result | None"]


@dataclass(frozen=True)
class Verdict:
    """A bar, what was measured, and whether that meets it; None: it could not be measured."""

    bar: str
    measured: str
    met: bool | None


Bar = Callable[[Results], list[Verdict]]


def large(results: Results) -> int:
    """The size that figures are compared at."""
    return max(result.size for result in results)


def the(peer: str, name: str, gives: str = "numpy") -> Pick:
    """Pick a way by its name, at the large size."""

    def pick(results: Results) -> Result | None:
        for result in results:
            if (result.peer, result.name, result.gives, result.size) == (peer, name, gives, large(results)):
                return result if result.cpu else None
        return None

    return pick


def fastest_library(respects_episodes: bool = False, peer: str = "") -> Pick:
    """Pick the fastest way of all libraries (or of one) at the large size, wrong rows or not.

    With `respects_episodes` those that were seen to cross an episode's end do not count.
    """

    def pick(results: Results) -> Result | None:
        candidates = [
            result
            for result in results
            if result.is_library
            and result.cpu
            and (not peer or result.peer == peer)
            and result.size == large(results)
            and not (respects_episodes and CROSSES in result.wrong)
        ]
        return min(candidates, key=lambda result: result.median, default=None)

    return pick


def _ratio(text: str, over: Result | None, under: Result | None, met: Callable[[float], bool]) -> Verdict:
    if over is None or under is None:
        return Verdict(text, "not yet", None)
    ratio = over.median / under.median
    name = f"{over.peer}, {over.name}: " if over.is_library else ""
    return Verdict(text, f"{ratio:.2f} ({name}{short(over.median)} / {short(under.median)} µs)", met(ratio))


def faster(factor: float, than: str, rival: Pick, ours: Pick) -> Bar:
    """We must be at least so many times as fast as a rival."""
    return lambda results: [
        _ratio(f"at least {factor:g} × as fast as {than}", rival(results), ours(results), lambda ratio: ratio >= factor)
    ]


def within(factor: float, of: str, ours: Pick, base: Pick) -> Bar:
    """A way of ours may take at most so many times as long as another."""
    return lambda results: [
        _ratio(f"at most {factor:g} × {of}", ours(results), base(results), lambda ratio: ratio <= factor)
    ]


def growth(factor: float, only: str = "") -> Bar:
    """Every way of ours may take at most so many times as long at the large size as at the small one."""

    def judge(results: Results) -> list[Verdict]:
        verdicts = []
        for name, gives in dict.fromkeys((r.name, r.gives) for r in results if r.peer == "ringback"):
            if only and name != only:
                continue
            ours = [r for r in results if (r.peer, r.name, r.gives) == ("ringback", name, gives)]
            sizes = sorted(r.size for r in ours)
            text = f"{name} ({gives}): {sizes[-1]:,} steps at most {factor:g} × {sizes[0]:,} steps"
            by_size = {r.size: r for r in ours if r.cpu}
            if len(by_size) < 2:
                verdicts.append(Verdict(text, "not yet", None))
                continue
            ratio = by_size[sizes[-1]].median / by_size[sizes[0]].median
            verdicts.append(Verdict(text, f"{ratio:.2f}", ratio <= factor))
        return verdicts

    return judge


def alternating(factor: float) -> Bar:
    """Every "one add before each" of ours may take at most so many times as long as the same "alone"."""

    def judge(results: Results) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for result in results:
            case, _, kind = result.name.rpartition(": ")
            if result.peer == "ringback" and kind == "one add before each" and result.size == large(results):
                alone, both = the("ringback", f"{case}: alone"), the("ringback", result.name)
                verdicts += within(factor, f"sampling alone: {case}", both, alone)(results)
        return verdicts

    return judge


def bytes_a_step(limit: float, ours: Pick) -> Bar:
    """A step of ours may take at most so many bytes of memory."""

    def judge(results: Results) -> list[Verdict]:
        found, text = ours(results), f"at most {limit:,.0f} bytes a step"
        if found is None:
            return [Verdict(text, "not yet", None)]
        return [Verdict(text, f"{found.bytes_a_step:,.0f}", found.bytes_a_step <= limit)]

    return judge


def right(ours: str = "ringback") -> Bar:
    """No row of ours may be wrong."""

    def judge(results: Results) -> list[Verdict]:
        looked = [result for result in results if result.peer == ours and result.cpu]
        wrong = sum(sum(result.wrong.values()) for result in looked)
        rows = sum(result.rows for result in looked)
        return [Verdict("no wrong rows", f"{wrong:,} of {rows:,}", wrong == 0 if looked else None)]

    return judge
