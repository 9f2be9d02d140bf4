"""The comparison trains both networks on masked observations and writes down what they gave."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from ringback.examples import dqn, masked_cartpole, recurrent, training

torch.set_num_threads(1)


def made(kind: str, seed: int, mean: float) -> masked_cartpole.Outcome:
    return masked_cartpole.Outcome(kind, seed, ((100, 9.0), (200, mean)), (mean - 1, mean + 1), 200, 1.4)


EACH = {"LSTM": 4, "no memory": 1}  # steps in a round
RUNS = [made("LSTM", 3, 400.0), made("no memory", 3, 40.0), made("LSTM", 4, 500.0), made("no memory", 4, 42.0)]


def test_both_programs_run_masked_with_their_own_recipes() -> None:
    reports: list[tuple[str, int, int]] = []
    runs = list(
        masked_cartpole.run(
            [3, 4],
            lambda kind, seed, progress: reports.append((kind, seed, progress.step)),
            steps=60,
            warmup=40,
            batch_size=4,
            validate_every=20,
        )
    )
    assert [(done.kind, done.seed, done.step) for done in runs] == [
        (kind, seed, 60) for seed in (3, 4) for kind in ("LSTM", "no memory")
    ]
    assert reports == [
        (kind, seed, step)
        for seed in (3, 4)
        for kind in ("LSTM", "no memory")
        for step in range(EACH[kind], 61, EACH[kind])
    ]
    for done in runs:
        assert [step for step, _ in done.curve] == [20, 40, 60]
        assert len(done.returns) == 20
        assert min(done.returns) >= 8
    chosen = masked_cartpole.settings("LSTM", 3, steps=60, warmup=40, batch_size=4, validate_every=20)
    assert chosen == recurrent.Settings(
        "CartPole-v1", seed=3, mask_velocity=True, steps=60, warmup=40, batch_size=4, validate_every=20
    )
    network = recurrent.train(chosen).network
    assert network.first.in_features == 2
    returns = recurrent.evaluate(network, training.environment(chosen), 20, seed=(3, training.TEST))
    assert tuple(returns) == runs[0].returns
    assert masked_cartpole.settings("no memory", 0) == dqn.Settings("CartPole-v1", mask_velocity=True)


def test_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(kind: str, seed: int, progress: training.Progress) -> None:
        if (kind, progress.step) == ("no memory", 30):
            raise KeyboardInterrupt

    runs = masked_cartpole.run([0], interrupted, steps=60)
    assert next(runs).kind == "LSTM"
    with pytest.raises(KeyboardInterrupt):
        next(runs)


def test_words_and_files(tmp_path: Path) -> None:
    assert masked_cartpole.line(RUNS[1]) == (
        "no memory  seed 3: mean return   40.0 over 2 episodes, 200 env steps, 1 s"
    )
    assert masked_cartpole.summary(RUNS) == [
        "LSTM: mean return 450.0 over 2 seeds, 400.0 to 500.0",
        "no memory: mean return 41.0 over 2 seeds, 40.0 to 42.0",
    ]
    assert masked_cartpole.summary(RUNS[:1]) == ["LSTM: mean return 400.0 over 1 seeds, 400.0 to 400.0"]
    masked_cartpole.write(RUNS, tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert rows[4] == {"network": "no memory", "seed": "3", "of": "validation", "step": "200", "mean_return": "40.0"}
    assert [float(row["mean_return"]) for row in rows if row["of"] == "test"] == [400.0, 40.0, 500.0, 42.0]
    for runs in (RUNS, RUNS[:1]):
        masked_cartpole.draw(runs, tmp_path / "runs.png")
        assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")
    assert np.mean(RUNS[0].returns) == RUNS[0].mean_return
