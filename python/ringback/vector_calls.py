"""Making a vector environment, and how it fails: which sub-environment did it, and how its worker processes end."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import queue
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ringback.vector_rows import misfit

__all__ = [
    "close_envs",
    "failed_index",
    "guard_workers",
    "make_vector_env",
    "original",
    "stop_workers",
    "worker_end",
]

PATIENCE = 5.0  # seconds for a worker process that was told to end


def make_vector_env(env: Any, num_envs: int | None) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment of what the runner was given."""
    if isinstance(env, VectorEnv):
        if num_envs not in (None, env.num_envs):
            raise ValueError(
                f"EnvRunner: num_envs must be that of the vector environment ({env.num_envs}), got {num_envs}"
            )
        return env
    make: Callable[[], gym.Env[Any, Any]]
    if isinstance(env, gym.Env):
        if num_envs not in (None, 1):
            raise ValueError(
                f"EnvRunner: num_envs must be 1 for one environment, got {num_envs}; pass a function that makes one"
            )
        single: gym.Env[Any, Any] = env
        make = lambda: single  # noqa: E731
    elif isinstance(env, str):
        name = env
        make = lambda: gym.make(name)  # noqa: E731
    elif callable(env):
        make = env
    else:
        raise TypeError(
            "EnvRunner: env must be an id, a function that makes an environment, an environment or a vector "
            f"environment, got {type(env).__name__}"
        )
    return SyncVectorEnv([make] * (num_envs or 1), copy=False, autoreset_mode=AutoresetMode.DISABLED)


def failed_index(error: BaseException, envs: VectorEnv[Any, Any, Any]) -> int | None:
    """Find the sub-environment that made ``envs.reset`` or ``envs.step`` raise; None if nobody can tell."""
    base = envs.unwrapped
    if isinstance(base, SyncVectorEnv):
        return failed_here(error, base)
    if isinstance(base, AsyncVectorEnv):
        raised = [local for local in locals_of(error, base, "index") if local is not None]
        return raised[-1] if raised else dead_worker(base)
    return None


def failed_here(error: BaseException, envs: SyncVectorEnv) -> int | None:
    """Find it where all run in this process: it is in the traceback, or its observation does not fit, or its reward."""
    numbers = {id(env): index for index, env in enumerate(envs.envs)}
    for frame in frames(error):
        if id(frame.f_locals.get("self")) in numbers:
            return numbers[id(frame.f_locals["self"])]
    for index, observation in enumerate(getattr(envs, "_env_obs", ())):
        if not fits(envs.single_observation_space, observation):
            return index
    turns = locals_of(error, envs, "i")
    return turns[-1] if turns else None


def fits(space: gym.Space[Any], observation: Any) -> bool:
    """Tell whether a single observation can be a row of its space's batch."""
    from gymnasium.vector.utils import concatenate, create_empty_array

    try:
        empty: Any = create_empty_array(space, n=1)
        return misfit(space, concatenate(space, [observation], empty), 1) is None
    except Exception:
        return False


def dead_worker(envs: AsyncVectorEnv) -> int | None:
    """Find the worker process that has ended; its end may be heard of a little before it is over."""
    sentinels = [process.sentinel for process in envs.processes]
    ended = multiprocessing.connection.wait(sentinels, PATIENCE)
    return sentinels.index(ended[0]) if ended else None  # type: ignore[arg-type]


def original(error: Exception) -> Exception:
    """Return what an environment raised; `AsyncVectorEnv` raises it inside another one of the same class."""
    inner = error.args[0] if len(error.args) == 1 else None
    return inner if type(inner) is type(error) else error


def worker_end(error: BaseException, envs: VectorEnv[Any, Any, Any], index: int | None) -> str | None:
    """Describe how a worker process ended, where the error is no more than that it did."""
    base = envs.unwrapped
    if index is None or not isinstance(base, AsyncVectorEnv) or not isinstance(error, EOFError | OSError):
        return None
    process = base.processes[index]
    process.join(PATIENCE)
    return f"the end of its worker process with exit code {process.exitcode}" if process.exitcode else None


def frames(error: BaseException) -> list[Any]:
    """List the frames of a traceback, the outermost first."""
    found = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def locals_of(error: BaseException, owner: Any, name: str) -> list[int]:
    """List the values of an integer variable in the methods of `owner` that the error came through."""
    values = [frame.f_locals.get(name) for frame in frames(error) if frame.f_locals.get("self") is owner]
    return [value for value in values if isinstance(value, int)]


class ErrorQueue:
    """The queue through which workers send their errors, for a reader that must not wait for ever.

    An error that cannot be pickled never arrives, and `AsyncVectorEnv` would wait for it without end.
    """

    def __init__(self, errors: Any, processes: Sequence[Any]) -> None:
        self._errors = errors
        self._processes = processes

    def get(self) -> tuple[int, type[Exception], str, str]:
        """Return (worker, class, error, traceback); of a worker that ended without a word, that it did."""
        while True:
            over = [index for index, process in enumerate(self._processes) if not process.is_alive()]
            with contextlib.suppress(queue.Empty):
                found: tuple[int, type[Exception], str, str] = self._errors.get(timeout=0.1 if not over else 1.0)
                return found
            if over:
                return over[0], RuntimeError, "the error of the worker process could not be sent", ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._errors, name)


def guard_workers(envs: VectorEnv[Any, Any, Any]) -> None:
    """See to it that nobody waits for the error of a worker for ever."""
    base = envs.unwrapped
    if isinstance(base, AsyncVectorEnv) and not isinstance(base.error_queue, ErrorQueue):
        base.error_queue = ErrorQueue(base.error_queue, base.processes)  # type: ignore[assignment]


def stop_workers(envs: VectorEnv[Any, Any, Any]) -> None:
    """End the worker processes of a vector environment that failed, whatever they are doing."""
    base = envs.unwrapped
    if not isinstance(base, AsyncVectorEnv) or base.closed:
        return
    base.closed = True  # before anything else: nobody is to talk to them any more
    for process in base.processes:
        process.terminate()
    for process in base.processes:
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
    for pipe in base.parent_pipes:
        if pipe is not None:
            pipe.close()


def close_envs(envs: VectorEnv[Any, Any, Any]) -> None:
    """Close a vector environment; its worker processes end even if that fails."""
    base = envs.unwrapped
    if isinstance(base, AsyncVectorEnv):
        state = getattr(base, "_state", None)
        if (state is not None and state.value != "default") or any(
            not process.is_alive() for process in base.processes
        ):
            stop_workers(envs)  # a call is pending, or somebody is dead: gymnasium's own way would wait or fail
    try:
        envs.close()
    except OSError:  # a worker died while it was told to close
        if not isinstance(base, AsyncVectorEnv):
            raise
    finally:
        stop_workers(envs)
