"""The workloads: what is done, on which sizes, and which bars hold."""

from __future__ import annotations

from dataclasses import dataclass

from results import Bar, alternating, bytes_a_step, faster, fastest_library, growth, right, the, within


@dataclass(frozen=True)
class Workload:
    """One table.

    Parameters
    ----------
    key, title : str
    sizes, quick : capacities in steps, the one that is compared first
    bars : what is asked of ringback
    base : the way of ringback's that the other times are divided by; "" where that means nothing
    memory : gigabytes that all libraries need together
    """

    key: str
    title: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    bars: tuple[Bar, ...]
    base: str = ""
    memory: float = 4
    shows_bytes: bool = False


LIBRARY = "the fastest library"
MILLION, SMALL = (1_000_000, 10_000), (3_000, 1_000)
UNIFORM, WINDOWS = the("ringback", "sample_transitions"), the("ringback", "sample_sequences")
UNIFORM_OUT = the("ringback", "sample_transitions, out=")
CLIPS_OUT = the("ringback", "sample_sequences, out=")

WORKLOADS = (
    Workload(
        "W1",
        "add one step: 4 float32, Discrete",
        (100_000,),
        (4_000,),
        (faster(2.5, LIBRARY, fastest_library(), the("ringback", "add, positional", "")), right()),
        "add, positional",
    ),
    Workload(
        "W2",
        "add one step of each of 16 streams: 17 + 6 float32",
        (200_000,),
        (32_000,),
        (faster(2.5, LIBRARY, fastest_library(), the("ringback", "add_batch, positional", "")), right()),
        "add_batch, positional",
    ),
    Workload(
        "W3",
        "sample 256 transitions uniformly: 17 + 6 float32",
        MILLION,
        SMALL,
        (
            faster(9, LIBRARY, fastest_library(), UNIFORM),
            faster(3.5, "tuned NumPy columns, both fresh", the("numpy_tuned", "columns"), UNIFORM),
            faster(3.5, "tuned NumPy columns, both out=", the("numpy_tuned", "columns, out="), UNIFORM_OUT),
            faster(1.6, "one packed NumPy table, both fresh", the("numpy_tuned", "one packed table"), UNIFORM),
            faster(1.6, "one packed NumPy table, both out=", the("numpy_tuned", "one packed table, out="), UNIFORM_OUT),
            faster(
                1.8,
                "one packed NumPy table, torch out",
                the("numpy_tuned", "one packed table", "torch"),
                the("ringback", "sample_transitions", "torch"),
            ),
            growth(2),
            right(),
        ),
        "sample_transitions",
    ),
    Workload(
        "W4",
        "sample 32 stacks of 4 × 84 × 84 bytes and their successors",
        (100_000,),
        (600,),
        (
            faster(1.8, LIBRARY, fastest_library(), the("ringback", "stack=4")),
            bytes_a_step(7_200, the("ringback", "stack=4")),
            right(),
        ),
        "stack=4",
        memory=13,
        shows_bytes=True,
    ),
    Workload(
        "W5v",
        "sample 32 sequences of 50 steps inside episodes of 50..1000: 17 + 6 float32",
        MILLION,
        SMALL,
        (
            faster(15, "the fastest library that respects episodes", fastest_library(True), WINDOWS),
            faster(3, "NumPy's rejection sampler, both fresh", the("numpy_tuned", "rejection, columns"), WINDOWS),
            faster(
                3,
                "NumPy's rejection sampler, both out=",
                the("numpy_tuned", "rejection, columns, out="),
                the("ringback", "sample_sequences, out="),
            ),
            growth(2),
            right(),
        ),
        "sample_sequences",
    ),
    Workload(
        "W5i",
        "sample 16 sequences of 64 pictures of 64 × 64 × 3 bytes inside episodes",
        (20_000,),
        (1_500,),
        (
            faster(10, "torchrl, both fresh", fastest_library(peer="torchrl"), WINDOWS),
            faster(10, "torchrl, ours out=", fastest_library(peer="torchrl"), CLIPS_OUT),
            faster(1, "a bare NumPy take, both out=", the("numpy_tuned", "bare take of the pictures, out="), CLIPS_OUT),
            right(),
        ),
        "sample_sequences, out=",
    ),
    Workload(
        "W6",
        "sample 256 transitions by priority (α .6, β .4) and update them: 17 + 6 float32",
        MILLION,
        SMALL,
        (
            faster(5, LIBRARY, fastest_library(), the("ringback", "sample, update_priorities")),
            growth(1.8),
            right(),
        ),
        "sample, update_priorities",
    ),
    Workload(
        "W7",
        "sample 256 transitions of 3 steps (γ .99): 17 + 6 float32",
        MILLION,
        SMALL,
        (
            faster(6, LIBRARY, fastest_library(), the("ringback", "3-step")),
            within(1.6, "our own 1-step", the("ringback", "3-step"), the("ringback", "1-step")),
            growth(2),
            right(),
        ),
        "3-step",
    ),
    Workload(
        "W8a",
        "growth of every sampler, alone and with an add before each call",
        MILLION,
        SMALL,
        (growth(2), alternating(1.3), right()),
        memory=7,
    ),
    Workload(
        "W8b",
        "growth where few starts are valid, alone and with an add before each call",
        MILLION,
        SMALL,
        (growth(2), alternating(1.3), right()),
        memory=7,
    ),
)


def chosen(names: str) -> list[Workload]:
    """Return the workloads whose key is, or begins with, one of these names; all for an empty string."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    found = [w for w in WORKLOADS if not wanted or any(w.key == name or w.key[:2] == name for name in wanted)]
    for name in wanted:
        if not any(w.key == name or w.key[:2] == name for w in WORKLOADS):
            raise ValueError(f"--workloads must be among {', '.join(w.key for w in WORKLOADS)}, got {name!r}")
    return found
