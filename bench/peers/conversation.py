"""The driver's end of a worker process."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

from environments import Peer

ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "TORCH_NUM_THREADS",
    )
} | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "TQDM_DISABLE": "1",
}


class WorkerError(RuntimeError):
    """A worker answered that it could not, or did not answer at all."""


class Conversation:
    """A worker process of one library; what it prints goes to `log`."""

    def __init__(self, peer: Peer, python: Path, log: Path) -> None:
        self.peer, self.log = peer, log
        environment = os.environ | ONE_THREAD
        if peer.requirements:  # an environment of its own: nothing of ours must leak into it
            environment.pop("PYTHONPATH", None)
        worker = Path(__file__).with_name("worker.py")
        with log.open("w") as lines:
            self.process = subprocess.Popen(
                [str(python), str(worker), peer.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=lines,
                text=True,
                env=environment,
            )

    def ask(self, do: str, **arguments: Any) -> None:
        """Send a request; the worker begins at once."""
        assert self.process.stdin is not None
        try:
            print(json.dumps({"do": do} | arguments), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None

    def answer(self, timeout: float = 900) -> dict[str, Any]:
        """Wait for the answer to the last request."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            self.process.kill()
            raise WorkerError(f"no answer within {timeout:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        self.ask(do, **arguments)
        return self.answer()

    def close(self) -> None:
        """Let the worker end."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def _last_words(self) -> str:
        self.process.wait(timeout=20)
        lines = self.log.read_text().strip().splitlines()
        return f"the process ended ({self.process.returncode}): {lines[-1] if lines else 'without a word'}"
