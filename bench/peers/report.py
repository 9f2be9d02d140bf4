"""The tables, in Markdown."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from results import Result, Verdict, large, short
from workloads import WORKLOADS, Workload


@dataclass
class Table:
    """All that one run found about one workload; kept as JSON between runs."""

    workload: str
    measured: str
    results: list[Result]
    unsupported: dict[str, str]
    versions: dict[str, dict[str, str]]
    machine: str
    quick: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Table:
        """Take plain data back."""
        data = dict(data)
        return cls(results=[Result(**result) for result in data.pop("results")], **data)

    def verdicts(self, workload: Workload) -> list[Verdict]:
        """Hold the bars against the results."""
        return [verdict for bar in workload.bars for verdict in bar(self.results)] if self.results else []


def machine() -> str:
    """Describe this machine in one line."""
    processor = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    memory = int(re.findall(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())[0]) / 2**20
    pages = re.findall(r"\[(\w+)\]", Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text())
    parts = [
        processor.group(1) if processor else platform.machine(),
        f"{os.cpu_count()} CPUs",
        f"{memory:.0f} GiB",
        f"huge pages {pages[0] if pages else 'unknown'}",
        f"Linux {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
    ]
    return ", ".join(parts)


def moment() -> str:
    """Return the date and the commit, and whether the sources differ from it."""
    root = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "cpp", "python")
    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    return f"{date.today()}, commit {commit}{' with changes' if changed else ''}"


def spread(values: Sequence[float]) -> str:
    """Return 'median (min..max)'."""
    return f"{short(statistics.median(values))} ({short(min(values))}..{short(max(values))})"


def faults(results: Iterable[Result]) -> str:
    """Say how many rows were wrong, and how."""
    results = list(results)
    rows = sum(result.rows for result in results)
    kinds = dict.fromkeys(kind for result in results for kind in result.wrong)
    counts = {kind: sum(result.wrong.get(kind, 0) for result in results) for kind in kinds}
    return ", ".join(f"{100 * count / rows:.2g} % {kind}" for kind, count in counts.items()) or "none"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _rows(workload: Workload, table: Table) -> list[str]:
    results, size = table.results, large(table.results)
    sizes = sorted({result.size for result in results}, reverse=True)
    several = len(sizes) > 1
    base = next((r for r in results if (r.peer, r.name, r.size) == ("ringback", workload.base, size) and r.cpu), None)
    heading = ["library", "how", "gives", f"µs a call: median (min..max){f', {size:,} steps' if several else ''}"]
    heading += ["× ringback"] if workload.base else []
    heading += [f"µs, {sizes[-1]:,} steps", "growth"] if several else []
    heading += ["bytes a step"] if workload.shows_bytes else []
    heading += ["wrong rows"]
    lines = [_line(*heading), "|" + "---|" * len(heading)]
    ways: dict[tuple[str, str, str], dict[int, Result]] = {}
    for result in results:
        ways.setdefault((result.peer, result.name, result.gives), {})[result.size] = result
    ordered = sorted(ways.items(), key=lambda item: _median(item[1].get(size)))
    for (peer, name, gives), found in ordered:
        first = found.get(size) or next(iter(found.values()))
        if not first.cpu:
            reason = f"not yet: {first.error}" if peer == "ringback" else first.error
            lines.append(_line(peer, name, gives, reason, *[""] * (len(heading) - 4)))
            continue
        cells = [peer, name, gives, spread(first.cpu)]
        cells += [f"{first.median / base.median:.2f}" if base else ""] if workload.base else []
        if several:
            small = found.get(sizes[-1])
            told = small is not None and bool(small.cpu)
            cells += [spread(small.cpu) if small and told else small.error if small else ""]
            cells += [f"{first.median / small.median:.2f}" if small and told else ""]
        # a way that reads another's buffer takes none of its own
        cells += [f"{first.bytes_a_step:,.0f}" if first.bytes_a_step >= 1 else ""] if workload.shows_bytes else []
        lines.append(_line(*cells, faults(found.values())))
    for peer, reason in table.unsupported.items():
        lines.append(_line(peer, "", "", reason, *[""] * (len(heading) - 4)))
    return lines


def _median(result: Result | None) -> float:
    return result.median if result is not None and result.cpu else float("inf")


def _workload(table: Table) -> Workload:
    return next(workload for workload in WORKLOADS if workload.key == table.workload)


MET = {None: "not yet", True: "met", False: "**missed**"}


def section(table: Table) -> str:
    """Return one workload's tables."""
    workload = _workload(table)
    timed = [result for result in table.results if result.cpu]
    waited = sum(sum(r.wall) for r in timed) / max(sum(sum(r.cpu) for r in timed), 1e-9)
    noise = [value for result in timed for value in result.noise]
    quiet = f"{statistics.median(noise) / min(noise):.2f}" if noise else "-"
    lines = [
        f"## {workload.key}: {workload.title}",
        "",
        f"{table.measured}; {max((len(result.cpu) for result in timed), default=0)} turns count; the wall clock showed "
        f"{waited:.2f} × the processor's time, the fixed piece of work took {quiet} × its least time in the median.",
        "",
        *(_rows(workload, table) if table.results else ["No library has a way to do it."]),
        "",
        "| bar | measured | |",
        "|---|---|---|",
        *(_line(verdict.bar, verdict.measured, MET[verdict.met]) for verdict in table.verdicts(workload)),
        "",
    ]
    if table.quick:
        lines += ["(--quick: sizes and repeats too small for the figures to mean anything; the rows were checked)", ""]
    return "\n".join(lines)


HEAD = """# The same work on other libraries

Written by `bench/peers/run.py`; `--help` says how. All libraries of a table were measured in one run: a process each,
one thread each, taking turns. The machine is shared. So a turn's figure is the median of its ten parts, and of each
one's turns only that half counts around which a fixed piece of work took least. Times are processor time. The ratios of
medians count, not the times.

What a library gives as numpy, torch or jax is what its call hands out; nothing is converted. ringback's uniform draws
are without replacement, those of the others with it, but for torchrl's SamplerWithoutReplacement. "fresh" makes new
arrays in every call, "out=" writes into the same ones again. Wrong rows were counted in answers drawn before and after
the timing, at all sizes. "The fastest library" is held to no account for its wrong rows, except in W5v.

"""


def summary(tables: Iterable[Table]) -> str:
    """Count the bars, and name the workloads that miss some."""
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for table in tables:
        for verdict in table.verdicts(_workload(table)):
            found[verdict.met].append(table.workload)

    def told(keys: list[str]) -> str:
        return f" ({', '.join(f'{key}: {keys.count(key)}' for key in dict.fromkeys(keys))})" if keys else ""

    missed, unknown = found[False], found[None]
    return (
        f"Bars: {len(found[True])} met, {len(missed)} missed{told(missed)}, "
        f"{len(unknown)} not yet measurable{told(unknown)}."
    )


def page(tables: Iterable[Table]) -> str:
    """Return the whole page."""
    tables = list(tables)
    machines = dict.fromkeys(table.machine for table in tables)
    versions: dict[str, dict[str, str]] = {}
    for table in tables:
        versions.update(table.versions)
    lines = [f"Machine: {'; '.join(machines)}.", "", summary(tables), "", "| library | versions |", "|---|---|"]
    lines += [
        _line(peer, ", ".join(f"{name} {number}" for name, number in found.items()) or "not installed")
        for peer, found in versions.items()
    ]
    return HEAD + "\n".join(lines) + "\n\n" + "\n".join(map(section, tables))
