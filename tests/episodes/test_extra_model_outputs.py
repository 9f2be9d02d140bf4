"""Extra model outputs that appear late, or are missing for a while."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringback.episodes import SingleAgentEpisode

FORMS = pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])


def stepped(extras: list[dict[str, Any] | None], numpy: bool) -> SingleAgentEpisode:
    e = SingleAgentEpisode("me")
    e.add_env_reset(0.0)
    for k, more in enumerate(extras):
        if numpy and k == 1:
            e.to_numpy()
        e.add_env_step(float(k + 1), k, 1000.0 + k, extra_model_outputs=more)
    return e


@FORMS
def test_a_key_first_seen_in_the_middle_is_zero_before(numpy: bool) -> None:
    e = stepped(
        [None, {}, {"v": 2.5, "h": np.array([1, 2], np.float32)}, {"v": 3.5, "h": np.array([3, 4], np.float32)}], numpy
    )
    e.validate()
    assert list(e.get_extra_model_outputs("v")) == [0.0, 0.0, 2.5, 3.5]
    h = np.stack(list(e.get_extra_model_outputs("h")))
    assert h.dtype == np.float32
    assert h.tolist() == [[0, 0], [0, 0], [1, 2], [3, 4]]


@FORMS
def test_a_key_missing_at_a_step_is_zero_there(numpy: bool) -> None:
    e = stepped([{"v": 1.5, "w": {"a": 1}}, {"w": {"a": 2}}, None, {"v": 4.5, "w": {"a": 4}}], numpy)
    e.validate()
    assert list(e.get_extra_model_outputs("v")) == [1.5, 0.0, 0.0, 4.5]
    w = [e.get_extra_model_outputs("w", k) for k in range(4)]
    assert [int(item["a"]) for item in w] == [1, 2, 0, 4]


@FORMS
def test_what_is_no_number_is_none_where_it_is_missing(numpy: bool) -> None:
    e = stepped([None, {"name": "left"}, None], numpy)
    assert list(e.get_extra_model_outputs("name")) == [None, "left", None]


@FORMS
def test_a_late_key_has_a_lookback_too(numpy: bool) -> None:
    e = stepped([None, None, None], numpy).cut(len_lookback_buffer=2)
    e.add_env_step(4.0, 3, 1003.0, extra_model_outputs={"v": 9.5})
    assert e.extra_model_outputs["v"].lookback == 2
    assert e.get_extra_model_outputs("v", 0) == 9.5
    assert list(e.get_extra_model_outputs("v", slice(-2, 1), neg_index_as_lookback=True)) == [0.0, 0.0, 9.5]
    e.validate()


@FORMS
@pytest.mark.parametrize(
    ("first", "second", "want"), [("v", None, [1.5, 2.5, 0.0, 0.0]), (None, "v", [0.0, 0.0, 1.5, 2.5])]
)
def test_a_key_that_one_chunk_lacks_is_zero_there(
    numpy: bool, first: str | None, second: str | None, want: list[float]
) -> None:
    def chunk(e: SingleAgentEpisode, key: str | None) -> SingleAgentEpisode:
        for k in range(2):
            e.add_env_step(float(e.t + 1), e.t, 1.0, extra_model_outputs={key: k + 1.5} if key else None)
        return e.to_numpy() if numpy else e

    start = SingleAgentEpisode("me")
    start.add_env_reset(0.0)
    head = chunk(start, first)
    tail = chunk(head.cut(), second)
    head.concat_episode(tail)
    assert list(head.get_extra_model_outputs("v")) == want
    head.validate()
