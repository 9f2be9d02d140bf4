"""Batches as JAX arrays. These need ``jax`` (the extra of that name), all but the first two."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from ringback.errors import MissingExtraError
from ringback.integrations.jax import to_jax
from tests.replay.twin import SEQUENCES, TRANSITIONS, assert_same, fields_of
from tests.replay.worlds import counted, nested


def filled(device: Any = None) -> ReplayBuffer:
    buffer = ReplayBuffer(50, nested(), 2, device, seed=3, extras={"logp": ()})
    for t in range(70):
        buffer.add(counted(nested(), t), [t, -t], t, counted(nested(), t + 1), t % 20 == 19, extras={"logp": t})
    return buffer


def as_arrays(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: as_arrays(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(as_arrays(value) for value in part)
    return part if part is None else np.asarray(part)


def narrow(part: Any) -> Any:
    """Do to 64-bit numbers what JAX does to them."""
    if isinstance(part, dict):
        return {name: narrow(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(narrow(value) for value in part)
    if part is None or part.dtype.name not in ("float64", "int64"):
        return part
    return part.astype("float32" if part.dtype.kind == "f" else "int32")


def test_without_jax_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax.dlpack", None)
    with pytest.raises(
        MissingExtraError, match=r"^to_jax: needs the extra 'jax' \(jax\); pip install 'ringback\[jax\]'$"
    ):
        to_jax(filled().sample_transitions(3))


def test_only_batches_are_taken() -> None:
    wrong: Any = (1, 2)
    with pytest.raises(TypeError, match=r"^to_jax: batch must be Transitions or Sequences, got tuple$"):
        to_jax(wrong)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_arrays_hold_what_the_batch_holds(device: Any) -> None:
    jax = pytest.importorskip("jax")
    plain, buffer = filled(), filled(device)
    pairs: list[Any] = [
        (TRANSITIONS, *(b.sample_transitions(20, n_step=3, gamma=0.9) for b in (plain, buffer))),
        (SEQUENCES, *(b.sample_sequences(9, 4) for b in (plain, buffer))),
    ]
    for names, want, drawn in pairs:
        got = to_jax(drawn)
        assert type(got) is type(want)
        kept = {"ids", "start_ids"} & set(names)
        for name in kept:
            assert_same(as_arrays(getattr(got, name)), getattr(want, name))
        rest = set(names) - kept
        assert_same(as_arrays(fields_of(got, rest)), narrow(fields_of(want, rest)))
        assert isinstance(got.rewards, jax.Array)
        assert isinstance(got.observations["body"][0], jax.Array)


def test_memory_is_shared_where_it_can_be() -> None:
    pytest.importorskip("jax")
    batch = filled().sample_transitions(20)
    got = to_jax(batch)
    for ours, theirs in (
        (batch.rewards, got.rewards),
        (batch.actions, got.actions),
        (batch.observations["camera"], got.observations["camera"]),
        (batch.terminations, got.terminations),
    ):
        assert theirs.unsafe_buffer_pointer() == ours.ctypes.data


def test_batches_are_trees() -> None:
    jax = pytest.importorskip("jax")
    batch = to_jax(filled().sample_transitions(20))

    @jax.jit  # type: ignore[untyped-decorator]
    def doubled(batch: Any) -> Any:
        return jax.tree_util.tree_map(lambda leaf: leaf * 2, batch)

    out = doubled(batch)
    assert type(out) is type(batch)
    np.testing.assert_array_equal(out.rewards, 2 * batch.rewards)
    np.testing.assert_array_equal(out.observations["camera"], 2 * batch.observations["camera"])
    assert out.discounts is None
