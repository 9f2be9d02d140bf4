"""The libraries, and a virtual environment for each, made once and kept in a folder.

torch comes first and is pinned everywhere: its CPU build is small, and a later release would bring gigabytes of CUDA.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    """A library: what it is called, its module here, and what to install; nothing means the running environment."""

    key: str
    module: str
    requirements: tuple[str, ...] = ()
    is_library: bool = True


PEERS = (
    Peer("ringback", "with_ringback", is_library=False),
    Peer("numpy_tuned", "with_numpy", is_library=False),
    Peer("cpprb", "with_cpprb", ("cpprb==11.0.0", "numpy==2.4.6")),
    Peer("tianshou", "with_tianshou", (TORCH, "tianshou==2.0.1", "numpy==2.4.6")),
    Peer("stable-baselines3", "with_sb3", (TORCH, "stable-baselines3==2.9.2", "numpy==2.4.6")),
    Peer("torchrl", "with_torchrl", (TORCH, "torchrl==0.14.1", "tensordict==0.14.3", "numpy==2.4.6")),
    Peer("flashbax", "with_flashbax", ("flashbax==0.1.3", "jax==0.10.2", "numpy==2.4.6")),
)


def _call(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise RuntimeError(f"{command[-1]}: {lines[-1]}")


def interpreter(peer: Peer, cache: Path) -> Path:
    """Return the Python that has this library, installing what is missing.

    Raises
    ------
    RuntimeError
        The library could not be installed; the message has pip's last line.
    """
    if not peer.requirements:
        return Path(sys.executable)
    folder = cache / "environments" / peer.key
    stamp, wanted = folder / "ringback-bench.txt", "\n".join((sys.version, *peer.requirements))
    python = folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    _call(sys.executable, "-m", "venv", "--clear", folder)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join((TORCH, *peer.requirements)) + "\n")
    for requirements in ([TORCH] if TORCH in peer.requirements else [], peer.requirements):
        if requirements:
            _call(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, *requirements)
    stamp.write_text(wanted)
    return python
