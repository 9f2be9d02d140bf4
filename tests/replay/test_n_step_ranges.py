"""n drawn for each row, and n-step sums inside sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.answers import FullTwin, numbers
from tests.replay.twin import assert_batch


def filled() -> FullTwin:
    """Return an episode of six steps that ended at a time limit, and one of two that is open."""
    twin = FullTwin(20)
    twin.play(1, 6, "truncated")
    twin.play(2, 2, None)
    return twin


def test_every_n_of_the_range_is_drawn_and_each_row_holds_its_own_sum() -> None:
    twin = filled()
    real: Any = twin.real
    batch = real.sample_transitions(600, n_step=(2, 4), gamma=0.5, replace=True)
    oracle = twin.oracle(gamma=0.5)
    ids, n_steps = batch.ids.tolist(), batch.n_steps.ravel().tolist()
    assert_batch(batch, oracle.transitions(ids, n_steps))
    drawn = {(number, n) for number, n in zip(ids, n_steps, strict=True)}
    reach = {number: oracle.reach(number) for number in twin.slow.live()}
    assert [reach[number] for number in range(8)] == [6, 5, 4, 3, 2, 1, 2, 1]
    assert drawn == {(number, min(n, reach[number])) for number in range(8) for n in (2, 3, 4)}


def test_the_two_ends_are_as_likely_as_the_middle() -> None:
    buffer: Any = ReplayBuffer(300, 1, 1, seed=4)
    for t in range(300):
        buffer.add([t], [0], t, [t + 1], False)
    batch = buffer.sample_transitions(9000, n_step=(3, 5), gamma=1.0, replace=True)
    far = batch.ids < 290
    values, found = np.unique(batch.n_steps[far, 0], return_counts=True)
    assert values.tolist() == [3, 4, 5]
    expected = far.sum() / 3
    assert (np.abs(found - expected) < 4.5 * np.sqrt(expected)).all()


def test_n_does_not_depend_on_the_place_in_the_batch() -> None:
    buffer: Any = ReplayBuffer(300, 1, 1, seed=4)
    for t in range(300):
        buffer.add([t], [0], t, [t + 1], False)
    batches = [buffer.sample_transitions(8, n_step=(1, 2), gamma=1.0) for _ in range(400)]
    means = np.stack([batch.n_steps[:, 0] for batch in batches]).mean(axis=0)
    assert (np.abs(means - 1.5) < 4.5 * 0.5 / np.sqrt(400)).all()


def test_a_range_of_one_number_is_that_number() -> None:
    one, two = (filled().real for _ in range(2))
    a: Any = one.sample_transitions(8, n_step=(3, 3), gamma=0.5)
    b: Any = two.sample_transitions(8, n_step=3, gamma=0.5)
    order_a, order_b = np.argsort(a.ids), np.argsort(b.ids)
    for name in ("rewards", "next_observations", "discounts", "n_steps"):
        np.testing.assert_array_equal(getattr(a, name)[order_a], getattr(b, name)[order_b])


def test_ranges_are_repeatable() -> None:
    one, two = (filled().real for _ in range(2))
    for _ in range(5):
        a: Any = one.sample_transitions(5, n_step=(1, 4), gamma=0.9)
        b: Any = two.sample_transitions(5, n_step=(1, 4), gamma=0.9)
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.n_steps, b.n_steps)


def test_get_sums_over_n_steps() -> None:
    twin = filled()
    real: Any = twin.real
    batch = real.get([0, 4, 5, 7, 0], n_step=3, gamma=0.5)
    assert batch.rewards.ravel().tolist() == [1000 + 500.5 + 250.5, 1004 + 502.5, 1005, 2001, 1751]
    assert batch.n_steps.ravel().tolist() == [3, 2, 1, 1, 3]
    assert batch.next_observations.ravel().tolist() == [1003, 1006, 1006, 2002, 1003]
    assert_batch(batch, twin.oracle(n_step=3, gamma=0.5).transitions([0, 4, 5, 7, 0]))


# ------------------------------------------------------------------ inside sequences


def test_sums_in_a_sequence_read_beyond_the_window() -> None:
    batch = filled().windows(length=3, n_step=3, gamma=1.0)
    assert numbers(batch.observations)[0] == [1000, 1001, 1002]
    assert numbers(batch.rewards)[0] == [3003, 3006, 3009]  # rewards 1003 and 1004 lie behind the window
    assert numbers(batch.next_observations)[0] == [1003, 1004, 1005]
    assert numbers(batch.n_steps)[3] == [3, 2, 1]
    assert numbers(batch.rewards)[3] == [3012, 2009, 1005]
    assert numbers(batch.next_observations)[3] == [1006, 1006, 1006]


def test_the_discount_in_a_sequence_is_that_of_the_summed_steps() -> None:
    twin = FullTwin(20)
    twin.play(1, 4)
    batch = twin.windows(length=4, n_step=2, gamma=0.5)
    assert batch.discounts[0, :, 0].tolist() == [0.25, 0.25, 0, 0]
    assert numbers(batch.n_steps) == [[2, 2, 2, 1]]


def test_a_sequence_at_the_newest_step_sums_what_there_is() -> None:
    twin = FullTwin(6)
    twin.play(0, 9, None)
    batch = twin.windows(length=2, n_step=3, gamma=0.5)
    assert numbers(batch.n_steps)[-1] == [2, 1]
    assert batch.discounts[-1, :, 0].tolist() == [0.25, 0.5]
    assert numbers(batch.next_observations)[-1] == [9, 9]


def test_burn_in_rows_and_padding_under_n_step() -> None:
    twin = FullTwin(20)
    twin.play(1, 3, "truncated")
    batch = twin.windows(length=2, burn_in=1, pad=True, n_step=2, gamma=1.0)
    assert numbers(batch.rewards) == [[2001, 2003, 0], [2001, 2003, 1002], [2003, 1002, 0]]
    assert numbers(batch.n_steps) == [[2, 2, 0], [2, 2, 1], [2, 1, 0]]
    assert numbers(batch.next_observations) == [[1002, 1003, 0], [1002, 1003, 1003], [1003, 1003, 0]]


def test_every_row_of_a_sequence_has_an_n_of_its_own() -> None:
    twin = filled()
    real: Any = twin.real
    oracle = twin.oracle(length=3, gamma=0.5)
    places = {oracle.id_at(*place.here): place for place in oracle.places()}
    batch = real.sample_sequences(3000, 3, n_step=(1, 3), gamma=0.5, replace=True)
    assert_batch(batch, oracle.sequences([places[i] for i in batch.start_ids.tolist()], batch.n_steps[..., 0]))
    reach = {number: oracle.reach(number) for number in range(6)}
    drawn = set(zip(batch.ids.ravel().tolist(), batch.n_steps.ravel().tolist(), strict=True))
    assert drawn == {(number, min(n, reach[number])) for number in range(6) for n in (1, 2, 3)}
    assert len({tuple(row) for row in batch.n_steps[batch.start_ids == 0][:, :, 0].tolist()}) == 27


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("n_step", "kind"),
    [
        ((0, 2), ValueError),
        ((3, 2), ValueError),
        ((-1, -1), ValueError),
        ((1, 2, 3), ValueError),
        ((1,), ValueError),
        ((1.0, 2.0), TypeError),
        ((True, 2), TypeError),
        ("12", TypeError),
    ],
)
def test_a_wrong_range_is_refused(n_step: Any, kind: type[Exception]) -> None:
    real: Any = filled().real
    with pytest.raises(kind, match=r"^ReplayBuffer\.sample_transitions: n_step.* must .*, got "):
        real.sample_transitions(3, n_step=n_step, gamma=0.9)


def test_a_range_needs_gamma() -> None:
    real: Any = filled().real
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_transitions: gamma must .*"):
        real.sample_transitions(3, n_step=(1, 2))
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_sequences: gamma must .*"):
        real.sample_sequences(1, 2, n_step=2)
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.get: gamma must .*"):
        real.get([1], n_step=2)


def test_given_ids_have_one_n() -> None:
    real: Any = filled().real
    with pytest.raises((TypeError, ValueError), match=r"^ReplayBuffer\.get: n_step must .*got \(1, 2\)"):
        real.get([1], n_step=(1, 2), gamma=0.9)
