"""One process owns a buffer: a forked child's first use raises."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, pickle, sys
import numpy as np
from ringback import ReplayBuffer

buffer = ReplayBuffer(50, 1, 1, seed=1)
for t in range(20):
    buffer.add([t], [0.0], t, [t + 1], False)
state = buffer.get_state()
uses = {
    "add": lambda: buffer.add([0.0], [0.0], 0.0, [1.0], False),
    "add_batch": lambda: buffer.add_batch([[0.0]], [[0.0]], [0.0], [[1.0]], [False]),
    "end_episode": lambda: buffer.end_episode(),
    "sample_transitions": lambda: buffer.sample_transitions(3),
    "sample_sequences": lambda: buffer.sample_sequences(3, 2),
    "valid_starts": lambda: buffer.valid_starts(2),
    "get": lambda: buffer.get([1]),
    "set": lambda: buffer.set([1], "reward", [0.0]),
    "get_state": lambda: buffer.get_state(),
    "iter_state": lambda: list(buffer.iter_state()),
    "set_state": lambda: buffer.set_state(state),
    "pickle": lambda: pickle.dumps(buffer),
}
child = os.fork()
if child == 0:
    wrong = []
    for name, use in uses.items():
        try:
            use()
            wrong.append(name + " did not raise")
        except RuntimeError as refusal:
            if "fork" not in str(refusal):
                wrong.append(f"{name}: {refusal}")
        except BaseException as other:
            wrong.append(f"{name}: {other!r}")
    fresh = ReplayBuffer(5, 1, 1)  # a buffer of the child's own is fine
    fresh.add([0.0], [0.0], 0.0, [1.0], False)
    fresh.sample_transitions(1)
    print("; ".join(wrong), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
buffer.add([20.0], [0.0], 0.0, [21.0], False)
assert len(buffer) == 21 and buffer.sample_transitions(21).ids.size == 21
print("the parent goes on")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["", "the parent goes on"]
