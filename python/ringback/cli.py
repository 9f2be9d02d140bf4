"""The command line: ``ringback train``, ``ringback example`` and ``ringback bench``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import ringback
from ringback.errors import MissingExtraError

__all__ = ["main"]

TRAIN = """\
Train an agent on a gymnasium environment with a Box observation. What it learns by is chosen by the actions:

  Discrete       deep Q-learning: double, 3-step returns (ringback.examples.dqn)
                 with --recurrent a network with an LSTM, from replayed sequences: R2D2 (ringback.examples.recurrent)
  Box, bounded   soft actor-critic (ringback.examples.sac)

A progress bar goes to stderr; the last line on stdout is "mean return X over 20 episodes": the saved model's, played
greedily, in episodes that were used neither in training nor to choose the model. Training ends early once every episode
of three validations in a row reaches the reward threshold that the environment declares. Ctrl-C ends it with what there
is: the model is saved and played all the same.
"""

TRAIN_FILES = """\
the run folder holds
  config.json         all settings, versions and, at the end, the result
  metrics.csv         a line each 500 env steps and at each validation
  learning_curve.png  returns over env steps
  model.pt            the network of the best validation; the load function of the program named above reads it

examples
  ringback train CartPole-v1
  ringback train CartPole-v1 --seed 1 --out run
  ringback train Acrobot-v1 --n-step 3 --prioritized
  ringback train Acrobot-v1 --steps 60000 --num-envs 4
  ringback train Pendulum-v1
  ringback train CartPole-v1 --mask-velocity --recurrent
"""

MASKED = """\
Show that replayed sequences teach a network to remember. CartPole is played without its velocities, so that a single
observation does not tell where the pole is falling to. A network without memory learns by deep Q-learning, as ringback
train CartPole-v1 --mask-velocity does, and one with an LSTM from replayed sequences with burn-in and stored states, as
with --recurrent. What to see: the first one never gets far above 40, the second one reaches several hundred.

A progress bar goes to stderr; on stdout is a line for each run, with the mean return of 20 greedy episodes that were
used neither in training nor to choose the model. A seed takes three to five minutes. Ctrl-C ends it with the runs that
are done.
"""

MASKED_FILES = """\
the folder holds
  masked_cartpole.png   returns over env steps, of both
  masked_cartpole.csv   the validations of every run, and its final mean return

examples
  ringback example masked-cartpole
  ringback example masked-cartpole --seeds 4 --out masked
"""

CLIFFWALK = """\
Repeat the Blind Cliffwalk of the prioritised-replay paper (Schaul et al. 2016, Figure 1). A cliff has n states in a
row; one of two actions leads on, the other one ends the episode, and only the end is rewarded. The memory holds the
transitions of all 2^n sequences of actions, of which one has the reward. A tabular Q-learner replays one at a time
until its values are right. How many updates does that take, if a transition is drawn

  uniform       with equal chances
  oracle        because its update brings the values closest to the truth (which no learner can know)
  prioritised   in proportion to the last error that was seen of it (alpha 0.5, beta 0)

A progress bar goes to stderr, a table of medians to stdout, a line as soon as a cliff is done. With the defaults it
takes a minute or two. What to see: uniform replay needs twice as many updates for each further state; only the oracle
escapes that; priorities win a factor that grows slowly, because each transition must be seen once before its priority
can fall. Ctrl-C ends it with the cliffs that are done.
"""

CLIFFWALK_FILES = """\
the folder holds
  blind_cliffwalk.png   medians and ranges over the size of the memory, both axes logarithmic
  blind_cliffwalk.csv   the updates of every learner

examples
  ringback example blind-cliffwalk
  ringback example blind-cliffwalk --max-states 12 --seeds 5 --out cliff
"""

BENCH = """\
Measure the replay buffer on this machine: adding steps, transitions, 3-step returns, sequences. Steps have an
observation of 17 float32 and an action of 6. Every answer is checked. Times are of whole calls from Python, one thread,
median of several repeats; bytes are those of the rows handed over.
"""


class _UsageError(Exception):
    """What the user asked for cannot be done; the text is the one sentence to say so."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; default ``sys.argv[1:]``.

    Returns
    -------
    int
        Exit status: 0, or 2 if what was asked for cannot be done, or 130 if it was interrupted before it had a result.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        with _interruptible():
            status: int = arguments.run(arguments)
            return status
    except (_UsageError, MissingExtraError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"ringback {arguments.command}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ringback", description=ringback.__doc__)
    parser.add_argument("--version", action="version", version=f"ringback {ringback.__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")

    train = commands.add_parser(
        "train",
        help="train an agent on a gymnasium environment",
        description=TRAIN,
        epilog=TRAIN_FILES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.set_defaults(run=_train)
    train.add_argument("env", metavar="ENV", help="id for gymnasium.make, such as CartPole-v1")
    train.add_argument("--seed", type=_integer(0), default=0, help="decides every random draw (default: 0)")
    train.add_argument(
        "--steps",
        type=_integer(1),
        help="env steps at most (default: 40000; with Box actions 15000)",
    )
    train.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="run folder, replaced if it exists (default: runs/ENV-seedSEED, with -masked and -recurrent in between)",
    )
    train.add_argument(
        "--num-envs",
        type=_integer(1),
        metavar="E",
        help="environments played side by side (default: 1; with --recurrent 4)",
    )
    train.add_argument(
        "--recurrent",
        action="store_true",
        help="learn to remember: for Discrete actions, where observations do not show all there is to know",
    )
    train.add_argument(
        "--mask-velocity",
        action="store_true",
        help="take velocities out of the observations; of CartPole, Acrobot, Pendulum and MountainCar, which have them",
    )
    train.add_argument(
        "--n-step", type=_integer(1), metavar="N", help="rewards summed in a return (default: 3); not with Box actions"
    )
    train.add_argument(
        "--prioritized",
        action="store_true",
        default=None,
        help="replay by the last error seen, alpha 0.6, beta 0.4 rising to 1 (default: uniformly, which is as good on "
        "CartPole-v1 and Acrobot-v1, and faster); for Discrete actions, without --recurrent",
    )
    train.add_argument(
        "--no-double",
        dest="double",
        action="store_false",
        default=None,
        help="let the target network choose the action that it values (default: double Q-learning); not with Box "
        "actions",
    )
    train.add_argument("--device", default="cpu", help="where the network lives: cpu, cuda, cuda:1 … (default: cpu)")

    example = commands.add_parser(
        "example", help="run a published experiment", description="Run a published experiment."
    )
    example.set_defaults(run=_no_example, parser=example)
    examples = example.add_subparsers(title="examples", metavar="NAME", dest="name")
    cliffwalk = examples.add_parser(
        "blind-cliffwalk",
        help="how many updates uniform, oracle and prioritised replay need",
        description=CLIFFWALK,
        epilog=CLIFFWALK_FILES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cliffwalk.set_defaults(run=_cliffwalk)
    cliffwalk.add_argument(
        "--max-states", type=_integer(2, 20), default=16, metavar="N", help="length of the longest cliff (default: 16)"
    )
    cliffwalk.add_argument("--seeds", type=_integer(1), default=10, help="repetitions of each cliff (default: 10)")
    cliffwalk.add_argument("--seed", type=_integer(0), default=0, help="decides every random draw (default: 0)")
    cliffwalk.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=Path("runs") / "blind-cliffwalk",
        help="where the files go, made if missing (default: runs/blind-cliffwalk)",
    )

    masked = examples.add_parser(
        "masked-cartpole",
        help="learn CartPole without its velocities, with a memory and without",
        description=MASKED,
        epilog=MASKED_FILES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    masked.set_defaults(run=_masked_cartpole)
    masked.add_argument("--seeds", type=_integer(1), default=1, help="runs of each (default: 1)")
    masked.add_argument("--seed", type=_integer(0), default=0, help="of the first run (default: 0)")
    masked.add_argument("--steps", type=_integer(1), help="env steps of each run at most (default: 40000)")
    masked.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=Path("runs") / "masked-cartpole",
        help="where the files go, made if missing (default: runs/masked-cartpole)",
    )

    bench = commands.add_parser(
        "bench",
        help="measure the replay buffer on this machine",
        description=BENCH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.set_defaults(run=_bench)
    bench.add_argument(
        "--capacity", type=_integer(2_000, 10_000_000), default=1_000_000, help="steps in the buffer (default: 1000000)"
    )
    bench.add_argument("--repeats", type=_integer(1), default=15, help="timings of each line (default: 15)")
    return parser


def _integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    rule = f">= {minimum}" if maximum is None else f"in [{minimum}, {maximum}]"

    def integer(text: str) -> int:
        value = int(text)
        if value < minimum or (maximum is not None and value > maximum):
            raise argparse.ArgumentTypeError(f"must be {rule}, got {value}")
        return value

    return integer


@contextmanager
def _interruptible() -> Iterator[None]:
    """Honour SIGINT also where a shell started us in the background with the signal ignored."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(arguments: argparse.Namespace) -> int:
    observation_space, action_space, threshold = _describe(arguments.env)
    for package in ("torch", "matplotlib", "tqdm"):
        _need(package, "ringback train")
    import torch
    from tqdm import tqdm

    from ringback._run_folder import RunFolder
    from ringback.examples import training

    program = _program(action_space, arguments.recurrent)
    try:
        program.check_spaces(arguments.env, observation_space, action_space)
    except TypeError as error:
        raise _UsageError(f"ringback {error}") from None
    settings = _settings(arguments, program)
    _check_device(arguments.device)
    torch.set_num_threads(1)  # more are slower with a network this small
    path = arguments.out or Path("runs") / _folder_name(arguments)
    try:
        folder = RunFolder(path, program.FIGURES)
    except OSError as error:
        raise _UsageError(f"ringback train: --out must be a folder to write to, got {str(path)!r}; {error}") from None

    with folder, tqdm(total=settings.steps, unit="step", desc=arguments.env, mininterval=0.25) as bar:
        config: dict[str, Any] = {
            "program": program.__name__,
            "settings": dataclasses.asdict(settings),
            "reward_threshold": threshold,
            "versions": _versions(),
            "result": None,
        }
        folder.write_config(config)

        def report(progress: training.Progress) -> None:
            folder.report(progress)
            bar.set_postfix_str(f"episodes={progress.episodes}, return={progress.recent_return:.1f}", refresh=False)
            bar.update(progress.step - bar.n)

        result = program.train(settings, report)

    training.save(result.network, settings, folder.model)
    folder.draw(f"{settings.env}, seed {settings.seed}", threshold)
    if result.reason == "interrupted":
        print(
            f"ringback train: interrupted after {result.step} steps, playing the model as it is; "
            "interrupt again to leave that out",
            file=sys.stderr,
        )
    try:
        network = program.load(folder.model)[0]
        env = training.environment(settings)
        returns = program.evaluate(network, env, training.TEST_EPISODES, seed=(settings.seed, training.TEST))
    except KeyboardInterrupt:
        print(f"ringback train: interrupted; the model is in {folder.model}", file=sys.stderr)
        return 130
    mean = float(np.mean(returns))
    config["result"] = {"ended": result.reason, "steps": result.step, "mean_return": mean, "returns": returns}
    folder.write_config(config)
    print(f"run folder {folder.path}")
    print(f"mean return {mean:.1f} over {len(returns)} episodes", flush=True)
    return 0


def _program(action_space: gym.Space[Any], recurrent: bool) -> Any:
    """Return the module of `ringback.examples` that learns such actions."""
    name = "recurrent" if recurrent else "sac" if isinstance(action_space, gym.spaces.Box) else "dqn"
    return importlib.import_module(f"ringback.examples.{name}")


def _folder_name(arguments: argparse.Namespace) -> str:
    words = [arguments.env.replace("/", "-").replace(":", "-")]
    words += ["masked"] * arguments.mask_velocity + ["recurrent"] * arguments.recurrent
    return "-".join([*words, f"seed{arguments.seed}"])


def _settings(arguments: argparse.Namespace, program: Any) -> Any:
    """Return the program's settings as they were asked for; refuse what it does not know."""
    from ringback.examples.masking import check_maskable

    flags = {"n_step": "--n-step", "prioritized": "--prioritized", "double": "--no-double"}
    known = {field.name for field in dataclasses.fields(program.Settings)}
    given = {
        name: getattr(arguments, name) for name in ("steps", "num_envs", *flags) if getattr(arguments, name) is not None
    }
    for name, flag in flags.items():
        if name in given and name not in known:
            learning = "with --recurrent" if arguments.recurrent else f"for the actions of {arguments.env}"
            raise _UsageError(f"ringback train: {flag} must be left out {learning}")
    try:
        if arguments.mask_velocity:
            check_maskable("train: --mask-velocity", arguments.env)
        return program.Settings(
            arguments.env,
            seed=arguments.seed,
            device=arguments.device,
            mask_velocity=arguments.mask_velocity,
            **given,
        )
    except ValueError as error:
        raise _UsageError(f"ringback {error}") from None


def _no_example(arguments: argparse.Namespace) -> int:
    arguments.parser.print_help(sys.stderr)
    return 2


def _folder(path: Path, where: str, begin: Callable[[Path], None]) -> Path:
    """Make a folder, and begin what goes into it: that it cannot be written should be known before the work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        begin(path)
    except OSError as error:
        raise _UsageError(f"{where}: --out must be a folder to write to, got {str(path)!r}; {error}") from None
    return path


def _cliffwalk(arguments: argparse.Namespace) -> int:
    where = "ringback example blind-cliffwalk"
    for package in ("matplotlib", "tqdm"):
        _need(package, where)
    from tqdm import tqdm

    from ringback.examples import blind_cliffwalk as cliff

    folder = _folder(arguments.out, where, lambda path: cliff.write([], path / "blind_cliffwalk.csv"))
    sizes = range(2, arguments.max_states + 1)
    rows: list[cliff.Row] = []
    total = len(cliff.KINDS) * arguments.seeds * sum(2**n for n in sizes)
    interrupted = False
    with tqdm(
        total=total, desc="blind-cliffwalk", mininterval=0.25, bar_format="{l_bar}{bar}| {elapsed}{postfix}"
    ) as bar:

        def report(n: int, kind: str) -> None:
            bar.set_postfix_str(f"n={n}, {kind}", refresh=False)
            bar.update(2**n)

        with bar.external_write_mode():
            print(cliff.header(), flush=True)
        try:
            for row in cliff.run(sizes, arguments.seeds, arguments.seed, report):
                rows.append(row)
                with bar.external_write_mode():
                    print(cliff.line(row), flush=True)
        except KeyboardInterrupt:
            interrupted = True
    if not rows:
        raise KeyboardInterrupt
    cliff.write(rows, folder / "blind_cliffwalk.csv")
    cliff.draw(rows, folder / "blind_cliffwalk.png")
    for text in cliff.summary(rows):
        print(text)
    print(f"folder {folder}", flush=True)
    if interrupted:
        print(f"{where}: interrupted after {rows[-1].states} states", file=sys.stderr)
    return 0


def _masked_cartpole(arguments: argparse.Namespace) -> int:
    where = "ringback example masked-cartpole"
    for package in ("torch", "matplotlib", "tqdm"):
        _need(package, where)
    import torch
    from tqdm import tqdm

    from ringback.examples import masked_cartpole as masked
    from ringback.examples.training import Progress

    torch.set_num_threads(1)  # more are slower with a network this small
    folder = _folder(arguments.out, where, lambda path: masked.write([], path / "masked_cartpole.csv"))
    changes = {} if arguments.steps is None else {"steps": arguments.steps}
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    runs: list[masked.Outcome] = []
    total = len(seeds) * sum(masked.settings(kind, 0, **changes).steps for kind in masked.KINDS)
    interrupted = False
    with tqdm(total=total, unit="step", desc="masked-cartpole", mininterval=0.25) as bar:
        before = 0

        def report(kind: str, seed: int, progress: Progress) -> None:
            bar.set_postfix_str(f"{kind}, seed={seed}, return={progress.recent_return:.1f}", refresh=False)
            bar.update(before + progress.step - bar.n)

        try:
            for done in masked.run(seeds, report, **changes):
                runs.append(done)
                before += masked.settings(done.kind, done.seed, **changes).steps  # also where it was solved earlier
                with bar.external_write_mode():
                    print(masked.line(done), flush=True)
        except KeyboardInterrupt:
            interrupted = True
    if not runs:
        raise KeyboardInterrupt
    masked.write(runs, folder / "masked_cartpole.csv")
    masked.draw(runs, folder / "masked_cartpole.png")
    for text in masked.summary(runs):
        print(text)
    print(f"folder {folder}", flush=True)
    if interrupted:
        print(f"{where}: interrupted after {len(runs)} runs", file=sys.stderr)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from ringback import _bench

    for line in _bench.table(arguments.capacity, arguments.repeats):
        print(line, flush=True)
    return 0


def _describe(name: str) -> tuple[gym.Space[Any], gym.Space[Any], float | None]:
    """Return both spaces of an environment and its reward threshold."""
    try:
        env = gym.make(name)
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        reason = "; ".join(part.strip() for part in str(error).rstrip(".").replace("\n", " ").split(". "))
        raise _UsageError(
            f"ringback train: ENV must be an environment that gymnasium can make, got {name!r}; {reason}"
        ) from None
    threshold = None if env.spec is None else env.spec.reward_threshold
    spaces = env.observation_space, env.action_space
    env.close()
    return (*spaces, threshold)


def _need(package: str, where: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(where, "train", package) from error


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise _UsageError(
            f"ringback train: --device must be one that torch can use, got {device!r}; {reason}"
        ) from None


def _versions() -> dict[str, str]:
    import torch

    return {
        "ringback": ringback.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gym.__version__,
        "torch": torch.__version__,
    }
