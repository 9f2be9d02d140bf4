"""The command line: what it writes and says, and how it refuses."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ringback
from ringback import _bench, cli
from ringback.examples import blind_cliffwalk, dqn, masked_cartpole, recurrent, sac, training
from tests.examples import puzzles
from tests.examples.corridor import CORRIDOR, register

register()
puzzles.register()

LAST_LINE = re.compile(r"mean return (-?\d+\.\d) over 20 episodes")


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class TestTrain:
    def test_run_folder_and_last_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "deep" / "run"
        assert cli.main(["train", CORRIDOR, "--steps", "1100", "--seed", "3", "--out", str(folder)]) == 0
        out, err = capsys.readouterr()
        last = LAST_LINE.fullmatch(out.splitlines()[-1])
        assert last

        assert sorted(path.name for path in folder.iterdir()) == [
            "config.json",
            "learning_curve.png",
            "metrics.csv",
            "model.pt",
        ]
        config = json.loads((folder / "config.json").read_text())
        network, settings = dqn.load(folder / "model.pt")
        assert config["settings"] == dataclasses.asdict(settings)
        assert (settings.env, settings.seed, settings.steps) == (CORRIDOR, 3, 1100)
        assert config["versions"]["ringback"] == ringback.__version__
        returns = dqn.evaluate(network, CORRIDOR, 20, seed=(3, training.TEST))
        assert config["result"] == {
            "ended": "steps",
            "steps": 1100,
            "mean_return": sum(returns) / 20,
            "returns": returns,
        }
        assert float(last[1]) == round(sum(returns) / 20, 1)

        metrics = rows(folder)
        assert [int(row["step"]) for row in metrics] == [500, 1000, 1100]
        assert int(metrics[-1]["episodes"]) > 0
        assert metrics[0]["loss"] == metrics[0]["validation_return"] == ""  # the warm-up: nothing is learnt yet
        assert float(metrics[-1]["loss"]) > 0
        assert -20 <= float(metrics[-1]["validation_return"]) <= -3
        assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")

        assert re.search(rf"{CORRIDOR}: 100%.*1100/1100.*step/s, episodes=\d+, return=-\d+\.\d\]", err)

    def test_same_seed_same_lines(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def lines() -> tuple[str, list[Any]]:
            arguments = ["train", CORRIDOR, "--steps", "300", "--num-envs", "2", "--seed", "4", "--out", str(tmp_path)]
            assert cli.main(arguments) == 0
            timeless = [{key: row[key] for key in row if "second" not in key} for row in rows(tmp_path)]
            return capsys.readouterr().out.splitlines()[-1], timeless

        assert lines() == lines()

    @pytest.mark.parametrize(
        ("options", "changed"),
        [
            ([], {}),
            (["--mask-velocity"], {"mask_velocity": True}),
            (["--prioritized"], {"prioritized": True}),
            (["--n-step", "5", "--no-double"], {"n_step": 5, "double": False}),
        ],
        ids=" ".join,
    )
    def test_recipe_is_what_was_asked_for(self, tmp_path: Path, options: list[str], changed: dict[str, Any]) -> None:
        assert cli.main(["train", "CartPole-v1", "--steps", "1100", "--out", str(tmp_path), *options]) == 0
        settings = dqn.load(tmp_path / "model.pt")[1]
        usual = {"prioritized": False, "n_step": 3, "double": True, "mask_velocity": False}
        assert {name: getattr(settings, name) for name in usual} == {**usual, **changed}

    @pytest.mark.parametrize(
        ("env", "options", "program", "steps", "name"),
        [
            (CORRIDOR, [], dqn, 40_000, "ringback-tests-Corridor-v0-seed8"),
            (puzzles.AIM, [], sac, 15_000, "ringback-tests-Aim-v0-seed8"),
            (puzzles.RECALL, ["--recurrent"], recurrent, 40_000, "ringback-tests-Recall-v0-recurrent-seed8"),
            ("CartPole-v1", ["--mask-velocity"], dqn, 40_000, "CartPole-v1-masked-seed8"),
            (
                "CartPole-v1",
                ["--mask-velocity", "--recurrent", "--no-double", "--n-step", "2"],
                recurrent,
                40_000,
                "CartPole-v1-masked-recurrent-seed8",
            ),
        ],
        ids=lambda value: str(value) if isinstance(value, list) else None,
    )
    def test_program_is_chosen_by_the_actions(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        env: str,
        options: list[str],
        program: Any,
        steps: int,
        name: str,
    ) -> None:
        """And the run folder is named after what was asked for."""
        monkeypatch.chdir(tmp_path)
        usual = cli._settings(cli._parser().parse_args(["train", env, *options]), program)
        assert (type(usual), usual.steps, usual.num_envs) == (program.Settings, steps, 4 if program is recurrent else 1)
        assert cli.main(["train", env, "--steps", "30", "--seed", "8", *options]) == 0
        folder = tmp_path / "runs" / name
        network, settings = program.load(folder / "model.pt")
        assert settings == dataclasses.replace(usual, steps=30, seed=8)
        config = json.loads((folder / "config.json").read_text())
        assert config["program"] == program.__name__
        returns = program.evaluate(network, training.environment(settings), 20, seed=(8, training.TEST))
        assert config["result"]["returns"] == returns
        assert capsys.readouterr().out.splitlines()[-1] == f"mean return {sum(returns) / 20:.1f} over 20 episodes"
        assert [*rows(folder)[-1]][6:] == list(program.FIGURES)

    def test_interrupt_saves_and_plays_what_there_is(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The environment interrupts itself at step 300 and, in the final evaluation, much later than it ends."""
        assert cli.main(["train", "ringback-tests/Interrupted-v0", "--out", str(tmp_path)]) == 0
        out, err = capsys.readouterr()
        assert LAST_LINE.fullmatch(out.splitlines()[-1])
        assert "ringback train: interrupted after 299 steps" in err
        assert [row["step"] for row in rows(tmp_path)] == ["299"]
        assert json.loads((tmp_path / "config.json").read_text())["result"]["ended"] == "interrupted"
        assert (tmp_path / "learning_curve.png").exists()

    def test_interrupt_of_the_evaluation_keeps_the_model(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played: Callable[..., list[float]] = dqn.evaluate

        def evaluate(network: dqn.QNetwork, env: str, episodes: int, *, seed: tuple[int, ...]) -> list[float]:
            if seed == (0, training.TEST):
                raise KeyboardInterrupt
            return played(network, env, episodes, seed=seed)

        monkeypatch.setattr(dqn, "evaluate", evaluate)
        assert cli.main(["train", CORRIDOR, "--steps", "10", "--out", str(tmp_path)]) == 130
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines()[-1] == f"ringback train: interrupted; the model is in {tmp_path / 'model.pt'}"
        assert dqn.load(tmp_path / "model.pt")


@pytest.mark.parametrize("ignored", [False, True])
def test_signal_ends_a_run_cleanly(tmp_path: Path, ignored: bool) -> None:
    """Ctrl-C in a terminal; and ``kill -INT`` of a run that a shell started in the background, signal ignored."""
    run = subprocess.Popen(
        [sys.executable, "-m", "ringback", "train", "CartPole-v1", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )
    while run.poll() is None and not (tmp_path / "metrics.csv").exists():
        time.sleep(0.05)
    while run.poll() is None and len(rows(tmp_path)) < 2:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert LAST_LINE.fullmatch(out.splitlines()[-1])
    assert "Traceback" not in err
    assert json.loads((tmp_path / "config.json").read_text())["result"]["ended"] == "interrupted"
    assert (tmp_path / "model.pt").exists()
    assert (tmp_path / "learning_curve.png").exists()


def environment() -> dict[str, str]:
    """Where the package under test is found, also when it is not installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}


class TestRefusals:
    @staticmethod
    def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        assert cli.main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = err.splitlines()
        assert isinstance(line, str)
        return line

    @pytest.mark.parametrize(
        ("env", "reason"),
        [
            ("CartPol-v1", "Environment `CartPol` doesn't exist; Did you mean: `CartPole`?"),
            ("CartPole-v99", "Environment version `v99` for environment `CartPole` doesn't exist;"),
            ("no spaces", "Malformed environment ID: no spaces"),
            ("no_such_module:CartPole-v1", "No module named 'no_such_module'"),
        ],
    )
    def test_unknown_environment(self, capsys: pytest.CaptureFixture[str], env: str, reason: str) -> None:
        line = self.refusal(capsys, "train", env)
        start = f"ringback train: ENV must be an environment that gymnasium can make, got {env!r}; "
        assert line.startswith(start)
        assert reason.split(";")[0] in line

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["Pendulum-v1", "--recurrent"],
                "Pendulum-v1 must have a Discrete action space, got Box(-2.0, 2.0, (1,), float32)",
            ),
            (
                ["ringback-tests/Unbounded-v0"],
                "ringback-tests/Unbounded-v0 must have a bounded Box action space, got Box(-inf, inf, (2,), float32)",
            ),
            (["Pendulum-v1", "--n-step", "3"], "--n-step must be left out for the actions of Pendulum-v1"),
            (["Pendulum-v1", "--prioritized"], "--prioritized must be left out for the actions of Pendulum-v1"),
            (["Pendulum-v1", "--no-double"], "--no-double must be left out for the actions of Pendulum-v1"),
            (["CartPole-v1", "--recurrent", "--prioritized"], "--prioritized must be left out with --recurrent"),
            (["CartPole-v1", "--recurrent", "--n-step", "21"], "n_step must be <= length (20), got 21"),
            (
                [CORRIDOR, "--mask-velocity"],
                "--mask-velocity: ENV must be one whose velocities are known (Acrobot, CartPole, MountainCar, "
                f"MountainCarContinuous, Pendulum), got {CORRIDOR!r}",
            ),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_what_does_not_fit_together(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        assert self.refusal(capsys, "train", *arguments) == f"ringback train: {message}"

    def test_observations_without_features(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.refusal(capsys, "train", "ringback-tests/Numbered-v0") == (
            "ringback train: ringback-tests/Numbered-v0 must have a Box observation space, got Discrete(6)"
        )

    @pytest.mark.parametrize("package", ["torch", "matplotlib", "tqdm"])
    def test_missing_extra(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
    ) -> None:
        monkeypatch.setitem(sys.modules, package, None)
        assert self.refusal(capsys, "train", "CartPole-v1") == (
            f"ringback train: needs the extra 'train' ({package}); pip install 'ringback[train]'"
        )

    @pytest.mark.parametrize("device", ["abacus", "cuda:77"])
    def test_device_that_is_not_there(self, capsys: pytest.CaptureFixture[str], device: str) -> None:
        line = self.refusal(capsys, "train", "CartPole-v1", "--device", device)
        assert line.startswith(f"ringback train: --device must be one that torch can use, got {device!r}; ")

    def test_folder_that_is_a_file(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("keep me")
        line = self.refusal(capsys, "train", CORRIDOR, "--out", str(tmp_path / "file"))
        assert line.startswith("ringback train: --out must be a folder to write to, got ")
        assert (tmp_path / "file").read_text() == "keep me"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["train"], "the following arguments are required: ENV"),
            (["train", "CartPole-v1", "--steps", "0"], "argument --steps: must be >= 1, got 0"),
            (["train", "CartPole-v1", "--seed", "-1"], "argument --seed: must be >= 0, got -1"),
            (["train", "CartPole-v1", "--num-envs", "x"], "argument --num-envs: invalid integer value: 'x'"),
            (["bench", "--capacity", "10"], "argument --capacity: must be in [2000, 10000000], got 10"),
        ],
    )
    def test_arguments(self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        assert exit_.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"ringback {arguments[0]}: error: {message}"


class TestHelp:
    @pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["bench", "--help"], ["--version"]])
    def test_goes_to_stdout(self, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        assert exit_.value.code == 0
        out, err = capsys.readouterr()
        assert "ringback" in out
        assert err == ""

    def test_names_each_option_and_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            cli.main(["train", "--help"])
        out = capsys.readouterr().out
        for word in ("--seed", "--steps", "--out", "--num-envs", "--device", "config.json", "metrics.csv"):
            assert word in out
        for word in ("--n-step", "--prioritized", "--no-double", "--recurrent", "--mask-velocity"):
            assert word in out
        for word in ("learning_curve.png", "model.pt", "mean return X over 20 episodes", "Ctrl-C"):
            assert word in out

    def test_no_command_shows_the_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main([]) == 2
        assert "train" in capsys.readouterr().err

    def test_module_runs_without_loading_what_it_does_not_need(self) -> None:
        program = (
            "import sys; from ringback import cli\n"
            "try: cli.main(['train', '--help'])\n"
            "except SystemExit: print([name for name in ('torch', 'matplotlib', 'tqdm') if name in sys.modules])"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
        assert run.stdout.splitlines()[-1] == "[]", run.stderr
        command = [sys.executable, "-m", "ringback", "--version"]
        run = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
        assert run.stdout == f"ringback {ringback.__version__}\n"


class TestExample:
    def test_table_and_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "deep" / "cliff"
        arguments = ["example", "blind-cliffwalk", "--max-states", "4", "--seeds", "2", "--out", str(folder)]
        assert cli.main(arguments) == 0
        out, err = capsys.readouterr()
        header, *table, last = out.splitlines()
        assert header.split()[0] == "states"
        assert [line.split()[:2] for line in table] == [["2", "6"], ["3", "14"], ["4", "30"]]
        assert last == f"folder {folder}"
        assert sorted(path.name for path in folder.iterdir()) == ["blind_cliffwalk.csv", "blind_cliffwalk.png"]
        assert re.search(r"blind-cliffwalk: 100%.*n=4, prioritised", err)
        assert cli.main([*arguments, "--seed", "1"]) == 0
        assert capsys.readouterr().out.splitlines()[1:4] != table
        assert cli.main(arguments) == 0
        assert capsys.readouterr().out == out

    def test_interrupt_keeps_what_is_done(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = list(blind_cliffwalk.run([2, 3], 1))

        def interrupted(*_: Any) -> Iterator[blind_cliffwalk.Row]:
            yield from done
            raise KeyboardInterrupt

        monkeypatch.setattr(blind_cliffwalk, "run", interrupted)
        assert cli.main(["example", "blind-cliffwalk", "--out", str(tmp_path)]) == 0
        out, err = capsys.readouterr()
        assert len(out.splitlines()) == 4
        assert err.splitlines()[-1] == "ringback example blind-cliffwalk: interrupted after 3 states"
        assert (tmp_path / "blind_cliffwalk.png").exists()
        done.clear()
        assert cli.main(["example", "blind-cliffwalk", "--out", str(tmp_path)]) == 130

    def test_help_says_what_it_does(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            cli.main(["example", "blind-cliffwalk", "--help"])
        out = capsys.readouterr().out
        for word in ("--max-states", "--seeds", "--out", "blind_cliffwalk.png", "uniform", "oracle", "prioritised"):
            assert word in out
        assert cli.main(["example"]) == 2
        assert "blind-cliffwalk" in capsys.readouterr().err

    def test_what_cannot_be_done(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("keep me")
        assert cli.main(["example", "blind-cliffwalk", "--out", str(tmp_path / "file")]) == 2
        line = capsys.readouterr().err
        assert line.startswith("ringback example blind-cliffwalk: --out must be a folder to write to, got ")
        monkeypatch.setitem(sys.modules, "tqdm", None)
        assert cli.main(["example", "blind-cliffwalk"]) == 2
        sentence = "ringback example blind-cliffwalk: needs the extra 'train' (tqdm); pip install 'ringback[train]'\n"
        assert capsys.readouterr().err == sentence


class TestMaskedCartPole:
    def test_lines_and_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "deep" / "masked"
        arguments = ["example", "masked-cartpole", "--steps", "40", "--seeds", "2", "--seed", "3", "--out", str(folder)]
        assert cli.main(arguments) == 0
        out, err = capsys.readouterr()
        line = r"{} +seed {}: mean return +\d+\.\d over 20 episodes, 40 env steps, \d+ s"
        patterns = [line.format(kind, seed) for seed in (3, 4) for kind in masked_cartpole.KINDS]
        patterns += [rf"{kind}: mean return \d+\.\d over 2 seeds, .*" for kind in masked_cartpole.KINDS]
        *lines, last = out.splitlines()
        assert len(lines) == len(patterns)
        for got, pattern in zip(lines, patterns, strict=True):
            assert re.fullmatch(pattern, got), got
        assert last == f"folder {folder}"
        assert sorted(path.name for path in folder.iterdir()) == ["masked_cartpole.csv", "masked_cartpole.png"]
        assert len((folder / "masked_cartpole.csv").read_text().splitlines()) == 1 + 4 * 2
        assert re.search(r"masked-cartpole: 100%.*160/160.*no memory, seed=4", err)

    def test_interrupt_keeps_what_is_done(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = [masked_cartpole.Outcome("LSTM", 0, ((10, 9.0),), (9.0,), 10, 0.1)]

        def interrupted(*_: Any, **__: Any) -> Iterator[masked_cartpole.Outcome]:
            yield from done
            raise KeyboardInterrupt

        monkeypatch.setattr(masked_cartpole, "run", interrupted)
        assert cli.main(["example", "masked-cartpole", "--out", str(tmp_path)]) == 0
        out, err = capsys.readouterr()
        assert out.splitlines()[1] == "LSTM: mean return 9.0 over 1 seeds, 9.0 to 9.0"
        assert err.splitlines()[-1] == "ringback example masked-cartpole: interrupted after 1 runs"
        assert (tmp_path / "masked_cartpole.png").exists()
        done.clear()
        assert cli.main(["example", "masked-cartpole", "--out", str(tmp_path)]) == 130

    def test_what_cannot_be_done(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("keep me")
        assert cli.main(["example", "masked-cartpole", "--out", str(tmp_path / "file")]) == 2
        line = capsys.readouterr().err
        assert line.startswith("ringback example masked-cartpole: --out must be a folder to write to, got ")
        monkeypatch.setitem(sys.modules, "torch", None)
        assert cli.main(["example", "masked-cartpole"]) == 2
        sentence = "ringback example masked-cartpole: needs the extra 'train' (torch); pip install 'ringback[train]'\n"
        assert capsys.readouterr().err == sentence


class TestBench:
    def test_table_has_a_line_for_each_call(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["bench", "--capacity", "3000", "--repeats", "1"]) == 0
        title, header, *lines = capsys.readouterr().out.splitlines()
        assert title.startswith(f"ringback {ringback.__version__}: 3000 steps of 17 + 6 float32, ")
        assert header.split() == ["call", "µs/call", "rows/s", "GB/s"]
        figures = [re.fullmatch(r"(.+?) +(\d+\.\d\d) +(\d+\.\d\d) M +(\d+\.\d\d)", line) for line in lines]
        assert [match and match[1] for match in figures] == [
            "add, one step",
            "add_batch, 16 streams",
            "sample_transitions(256)",
            "… n_step=3, gamma=0.99",
            "sample_sequences(32, 50)",
        ]

    @pytest.mark.parametrize("field", ["observations", "actions", "rewards", "next_observations"])
    def test_wrong_row_is_noticed(self, field: str) -> None:
        buffer = ringback.ReplayBuffer(100, _bench.OBSERVATION, _bench.ACTION, seed=0)
        for row in zip(*_bench._rows(7, 50), strict=True):
            buffer.add(*row, False)
        batch = buffer.sample_transitions(20)
        _bench._check_transitions(batch, 1)
        getattr(batch, field)[13, -1] += 1
        with pytest.raises(RuntimeError, match="every row must say its own step"):
            _bench._check_transitions(batch, 1)


def test_torch_keeps_to_one_thread(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    cli.main(["train", CORRIDOR, "--steps", "1", "--out", str(tmp_path)])
    assert torch.get_num_threads() == 1
