"""One library's process: `python worker.py MODULE`. It answers JSON lines with JSON lines, until its input ends.

| asked | answered |
|---|---|
| `{"do": "versions"}` | package -> version |
| `{"do": "set_up", "workload": w, "sizes": [...], "seconds": s}` | the ways that it has, with their first findings |
| `{"do": "repeat", "way": i}` | microseconds a call: of the processor, and by the wall clock; how noisy it was |
| `{"do": "check", "way": i}` | findings |
| `{"do": "tear_down"}` | nothing |

An answer `{"error": text}` says that it could not be done. Whatever the libraries print goes to standard error.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import statistics
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import rows
from checks import Findings
from work import WAYS, Job

SLICES = 10  # of a turn; the median of them is the turn's figure


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def version(package: str) -> str:
    """Return a package's version, also where it is imported from a checkout."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{importlib.import_module(package).__version__} (a checkout)"


def clocks(job: Job, rounds: int) -> tuple[float, float]:
    """Return the processor's and the wall clock's seconds of so many rounds."""
    run = job.run
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        run()
    return time.process_time() - cpu, time.perf_counter() - wall


def rounds_that_last(job: Job, seconds: float) -> int:
    """Return how many rounds take about so many seconds; this warms up as well."""
    rounds = 1
    while (took := clocks(job, rounds)[1]) < seconds / 4:
        rounds *= 4
    return max(1, round(rounds * seconds / took))


class Noise:
    """A fixed piece of work: it takes longer when somebody else uses the core's other half, its cache or the memory."""

    def __init__(self) -> None:
        self.table = np.zeros(2**24, np.float32)
        self.at = np.random.default_rng(4).integers(0, len(self.table), 10_000)

    def __call__(self) -> float:
        """Return the milliseconds that it takes now."""
        began = time.process_time()
        sum(range(10_000))
        self.table.take(self.at).sum()
        return (time.process_time() - began) * 1e3


def describe(findings: Findings) -> dict[str, Any]:
    """Return findings as JSON has them."""
    return {"rows": findings.rows, "wrong": dict(findings.wrong)}


class Worker:
    """The jobs of one library on one workload at a time."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.jobs: list[tuple[Job, int]] = []
        self.noise = Noise()

    def versions(self) -> dict[str, str]:
        """Return the versions of what the module names."""
        return {name: version(name) for name in self.module.PACKAGES}

    def set_up(self, workload: str, sizes: list[int], seconds: float) -> dict[str, Any]:
        """Build every way of the workload in every size."""
        ways = []
        gc.disable()
        for way in WAYS:
            if way.workload != workload:
                continue
            for size in sizes:
                entry: dict[str, Any] = {"name": way.name, "gives": way.gives, "size": size}
                before = resident()
                try:
                    job = way.build(size)
                    entry["bytes"] = (resident() - before) / (job.holds or size)
                    entry |= describe(job.check())
                    rounds = rounds_that_last(job, seconds if size == sizes[0] else seconds / 3)
                except Exception as error:
                    traceback.print_exc()
                    entry["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
                else:
                    entry["way"] = len(self.jobs)
                    self.jobs.append((job, rounds))
                ways.append(entry)
                gc.freeze()  # millions of arguments need not be searched for garbage again
        reason = getattr(self.module, "UNSUPPORTED", {}).get(workload, "")
        return {"ways": ways, "unsupported": reason}

    def repeat(self, way: int) -> dict[str, float]:
        """Time one repeat of a way."""
        job, rounds = self.jobs[way]
        before = self.noise()
        clocks(job, 1 + rounds // 3)  # other processes have had the caches
        slices = min(rounds, SLICES)
        calls = rounds // slices * job.calls
        taken = [clocks(job, rounds // slices) for _ in range(slices)]
        cpu, wall = (statistics.median(seconds) / calls * 1e6 for seconds in zip(*taken, strict=True))
        return {"cpu": cpu, "wall": wall, "noise": max(before, self.noise())}

    def check(self, way: int) -> dict[str, Any]:
        """Look at answers once more."""
        return describe(self.jobs[way][0].check())

    def tear_down(self) -> dict[str, Any]:
        """Free everything, also towards the operating system."""
        self.jobs.clear()
        rows.forget()
        getattr(self.module, "forget", lambda: None)()
        gc.unfreeze()
        gc.enable()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return {}


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(importlib.import_module(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
