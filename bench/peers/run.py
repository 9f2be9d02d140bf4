"""How long does the same work take on other replay buffers, and are their rows right?

    python bench/peers/run.py [--workloads W3,W6] [--peers ringback,cpprb] [--quick]

Needs ringback, numpy, torch and tqdm in the environment that it runs in. The libraries (cpprb, tianshou,
stable-baselines3, torchrl, flashbax) are installed on the first run, each into an environment of its own in a cache
folder (about 4 GB). Workloads: W1 add one step, W2 add 16 streams, W3 uniform transitions, W4 Atari stacks, W5v and W5i
sequences of vectors and of images, W6 priorities, W7 3-step, W8a and W8b growth and adds between the samples.

Each library is a process that waits for its turn: all take short turns, one thread each, so that they see the same
machine. The figures are processor time; a turn's figure is the median of its ten parts, and of each one's turns only
that half counts around which a fixed piece of work took least. So a busy machine matters less; a quiet one is better
still. Every one's rows are compared with what was written.

The tables go to standard output. A run of all libraries without --quick also keeps its tables in the cache and writes
the page from all that are kept, so that workloads may be run one by one; --out says where to, and always writes it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conversation import Conversation, WorkerError
from environments import PEERS, Peer, interpreter
from report import Table, machine, moment, page, section
from results import Result
from tqdm import tqdm
from workloads import WORKLOADS, Workload, chosen

TURNS_FOR_ONE = 2  # turns taken for each that counts
ROOT = Path(__file__).resolve().parents[2]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="", metavar="W,W", help="which tables; W5 means both W5v and W5i [all]")
    names = ", ".join(peer.key for peer in PEERS)
    parser.add_argument("--peers", default="", metavar="A,B", help=f"which libraries, of {names} [all]")
    parser.add_argument("--repeats", type=int, default=None, metavar="N", help="turns that count [9; --quick: 1]")
    parser.add_argument(
        "--seconds",
        type=float,
        default=None,
        metavar="S",
        help="about how long a turn takes at the large size [0.1]",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that everything still runs and is right"
    )
    parser.add_argument("--out", type=Path, default=None, help="the page [bench/peers/RESULTS.md; --quick: none]")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "build" / "peers", help="environments, logs and kept tables [build/peers]"
    )
    parsed = parser.parse_args()
    parsed.repeats = parsed.repeats or (1 if parsed.quick else 9)
    parsed.seconds = parsed.seconds or (0.005 if parsed.quick else 0.1)
    try:
        parsed.workloads = chosen(parsed.workloads)
        parsed.peers = peers(parsed.peers)
    except ValueError as error:
        parser.error(str(error))
    return parsed


def peers(names: str) -> list[Peer]:
    """Return the libraries with these names; all for an empty string."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = set(wanted) - {peer.key for peer in PEERS}
    if unknown:
        raise ValueError(f"--peers must be among {', '.join(peer.key for peer in PEERS)}, got {', '.join(unknown)}")
    return [peer for peer in PEERS if not wanted or peer.key in wanted]


def say(text: str) -> None:
    """Tell the person who waits."""
    tqdm.write(text, file=sys.stderr)


class Group:
    """The worker processes; a library that fails drops out with a reason, and the rest goes on."""

    def __init__(self, wanted: list[Peer], cache: Path) -> None:
        self.workers: list[Conversation] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.reasons: dict[str, str] = {}
        (cache / "logs").mkdir(parents=True, exist_ok=True)
        for peer in tqdm(wanted, desc="environments", unit="library", file=sys.stderr):
            try:
                worker = Conversation(peer, interpreter(peer, cache), cache / "logs" / f"{peer.key}.txt")
                self.workers.append(worker)
            except RuntimeError as error:
                self.reasons[peer.key] = f"not installed: {error}"
                say(f"{peer.key}: {self.reasons[peer.key]}")
        for worker in list(self.workers):
            try:
                self.versions[worker.peer.key] = worker.call("versions")
            except WorkerError as error:
                self.drop(worker, error)

    def drop(self, worker: Conversation, error: WorkerError) -> None:
        """Go on without this library."""
        self.reasons[worker.peer.key] = str(error)
        say(f"{worker.peer.key}: {error}")
        worker.close()
        if worker in self.workers:
            self.workers.remove(worker)

    def close(self) -> None:
        """Let all end."""
        for worker in self.workers:
            worker.close()


@contextmanager
def group(wanted: list[Peer], cache: Path) -> Iterator[Group]:
    """Start the workers, and let them end in any case."""
    started = Group(wanted, cache)
    try:
        yield started
    finally:
        started.close()


Turn = tuple[Conversation, int, Result]


def set_up(workload: Workload, workers: Group, sizes: tuple[int, ...], seconds: float, table: Table) -> list[Turn]:
    """Let all libraries build and check what they have, side by side; return what can be timed."""
    turns: list[Turn] = []
    asked = []
    for worker in list(workers.workers):
        try:
            worker.ask("set_up", workload=workload.key, sizes=sizes, seconds=seconds)
            asked.append(worker)
        except WorkerError as error:
            workers.drop(worker, error)
    for worker in tqdm(asked, desc=f"{workload.key} set up", unit="library", leave=False, file=sys.stderr):
        try:
            answer = worker.answer()
        except WorkerError as error:
            workers.drop(worker, error)
            continue
        peer = worker.peer
        if not answer["ways"] and answer["unsupported"]:
            table.unsupported[peer.key] = answer["unsupported"]
        for way in answer["ways"]:
            result = Result(peer.key, peer.is_library, way["name"], way["gives"], way["size"], way.get("bytes", 0.0))
            result.error = way.get("error", "")
            result.saw(way.get("rows", 0), way.get("wrong", {}))
            table.results.append(result)
            if "way" in way:
                turns.append((worker, way["way"], result))
    table.unsupported |= workers.reasons
    return turns


def measure(workload: Workload, workers: Group, options: argparse.Namespace) -> Table:
    """Measure one workload on all libraries."""
    table = Table(workload.key, moment(), [], {}, workers.versions, machine(), options.quick)
    sizes = workload.quick if options.quick else workload.sizes
    free = int(re.findall(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text())[0]) / 2**20
    if not options.quick and free < workload.memory:
        say(f"{workload.key}: may need {workload.memory:g} GiB of memory, {free:.0f} are free")
    turns = set_up(workload, workers, sizes, options.seconds, table)
    rounds = TURNS_FOR_ONE * options.repeats
    with tqdm(total=rounds * len(turns), desc=workload.key, unit="turn", leave=False, file=sys.stderr) as bar:
        for _ in range(rounds):
            for worker, way, result in turns:
                bar.update()
                if worker not in workers.workers:
                    continue
                try:
                    took = worker.call("repeat", way=way)
                    result.cpu.append(took["cpu"])
                    result.wall.append(took["wall"])
                    result.noise.append(took["noise"])
                except WorkerError as error:
                    workers.drop(worker, error)
                    result.error, result.cpu = str(error), []
    for worker, way, result in turns:
        result.keep_quietest(options.repeats)
        if worker in workers.workers:
            try:
                seen = worker.call("check", way=way)
                result.saw(seen["rows"], seen["wrong"])
            except WorkerError as error:
                workers.drop(worker, error)
    for worker in list(workers.workers):
        try:
            worker.call("tear_down")
        except WorkerError as error:
            workers.drop(worker, error)
    return table


def kept(cache: Path) -> list[Table]:
    """Return the tables of earlier runs, in order."""
    files = [cache / "tables" / f"{workload.key}.json" for workload in WORKLOADS]
    return [Table.from_dict(json.loads(file.read_text())) for file in files if file.exists()]


def main() -> None:
    """Measure, print, keep and write."""
    options = arguments()
    whole = not options.quick and len(options.peers) == len(PEERS)
    tables = []
    with group(options.peers, options.cache) as workers:
        for workload in options.workloads:
            table = measure(workload, workers, options)
            tables.append(table)
            print(section(table), flush=True)
            if whole:
                file = options.cache / "tables" / f"{workload.key}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(table.as_dict()))
    if whole:
        (options.out or Path(__file__).with_name("RESULTS.md")).write_text(page(kept(options.cache)))
    elif options.out:
        options.out.write_text(page(tables))


if __name__ == "__main__":
    main()
