"""Batches as a mapping of fields, and back."""

from __future__ import annotations

import pytest

from ringback import ReplayBuffer
from ringback._core import BATCH_FIELDS
from ringback.replay.batch_fields import batch_of, fields_of
from tests.replay.playing import play


def test_a_batch_is_its_fields() -> None:
    buffer = ReplayBuffer(30, 1, 1)
    play(buffer, 0, 20)
    for batch in (buffer.sample_transitions(4, n_step=2, gamma=0.9), buffer.sample_sequences(4, 3)):
        kind = type(batch)
        fields = fields_of(batch)
        assert tuple(fields) == BATCH_FIELDS[kind.__name__]
        again = batch_of(kind, fields)
        assert type(again) is kind
        assert all(getattr(again, name) is value for name, value in fields.items())
        assert all(a is b for a, b in zip(again, batch, strict=True))
        few = batch_of(kind, {name: fields[name] for name in list(fields)[: kind.n_sequence_fields]})
        assert tuple(few) == tuple(again)
        assert few.ids is None
        with pytest.raises(KeyError):
            batch_of(kind, {})
