"""The Blind Cliffwalk gives what the paper says of it, and what can honestly be said of priorities."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from ringback import ReplayBuffer
from ringback.examples import blind_cliffwalk as cliff


@pytest.mark.parametrize("n", [2, 3, 6])
def test_memory_holds_each_sequence_of_actions_once(n: int) -> None:
    rows = list(cliff.transitions(n))
    assert len(rows) == 2 ** (n + 1) - 2
    assert [row for row in rows if row[2]] == [(n - 1, (n - 1) % 2, 1.0, n - 1, True)]
    episodes: list[list[int]] = [[]]
    expected = 0
    for state, action, _, after, ends in rows:
        assert state == expected
        right = action == state % 2
        assert ends == (not right or state == n - 1)
        assert ends or after == state + 1
        episodes[-1].append(action)
        expected = 0 if ends else after
        if ends:
            episodes.append([])
    lengths = [len(episode) for episode in episodes[:-1]]
    assert len(lengths) == 2**n
    assert [lengths.count(k) for k in range(1, n + 1)] == [2 ** (n - k) for k in range(1, n)] + [2]


def test_replay_is_q_learning_until_the_values_are_right() -> None:
    n, seed = 4, (5, 0, 4)
    buffer = cliff._filled(ReplayBuffer(*cliff._spaces(n), seed=3), n)
    learner = cliff._Learner(n, seed)
    values = np.array(learner.values).reshape(n, 2)
    truth = np.zeros((n, 2))
    for state in range(n):
        truth[state, state % 2] = (1 - 1 / n) ** (n - 1 - state)
    while not learner.is_right:
        batch = buffer.sample_transitions(100, replace=True)
        errors = learner.replay(batch)
        for k, (s, a, r, after, d) in enumerate(zip(*(column[:, 0].tolist() for column in batch), strict=True)):
            if k == len(errors):
                break
            assert np.mean((values - truth) ** 2) >= 1e-3
            td = r + (1 - d) * (1 - 1 / n) * values[after].max() - values[s, a]
            assert errors[k] == pytest.approx(abs(td), abs=1e-12)
            values[s, a] += td / 4
        np.testing.assert_allclose(learner.values, values.ravel(), atol=1e-12)
    assert np.mean((values - truth) ** 2) < 1e-3


def test_same_seed_same_numbers_and_another_seed_others() -> None:
    first, second, other = ([row.updates for row in cliff.run([4, 5], 3, seed)] for seed in (1, 1, 2))
    assert first == second != other
    assert len(set(first[1]["uniform"])) > 1


@pytest.mark.slow
def test_only_the_oracle_escapes_the_doubling_and_priorities_win_a_factor() -> None:
    rows = [
        *cliff.run([9, 10, 11, 12], 5),
        *cliff.run([13, 14], 5, kinds=("uniform", "oracle")),
    ]
    at = {row.states: row for row in rows}
    doubling, _ = cliff.growth(rows, "uniform")
    assert 1.8 < doubling < 2.3
    _, exponent = cliff.growth(rows, "oracle")
    assert exponent < 2.5
    assert at[14].median("uniform") >= 300 * at[14].median("oracle")
    gain = at[12].median("uniform") / at[12].median("prioritised")
    assert 5 <= gain < 30  # a factor, not an order: each transition must be seen before its priority falls
    assert cliff.growth(rows[:4], "prioritised")[0] > 1.6


def test_table_plot_and_file(tmp_path: Path) -> None:
    rows = [
        cliff.Row(n, {kind: (k * 2**n, (k + 2) * 2**n) for k, kind in enumerate(cliff.KINDS, 1)}) for n in (8, 9, 10)
    ]
    assert cliff.header().split() == [
        "states", "transitions", "uniform", "oracle", "prioritised", "uniform/oracle", "uniform/prioritised",
    ]  # fmt: skip
    assert cliff.line(rows[0]).split() == ["8", "510", "512", "768", "1024", "0.7", "0.5"]
    assert cliff.summary(rows[:2]) == []
    assert cliff.summary(rows) == [
        "uniform grows as x2.00 for each further state (n = 9..10)",
        "oracle grows as n^6.6 (n = 9..10)",
        "prioritised grows as x2.00 for each further state (n = 9..10)",
    ]
    cliff.draw(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    cliff.write(rows, tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 3 * 3 * 2
    assert lines[1] == {
        "states": "8", "transitions": "510", "replay": "uniform", "repetition": "1", "updates": "768",
    }  # fmt: skip
