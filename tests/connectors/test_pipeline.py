"""Pipelines: order, names, spaces, state, lookback, and no silent fills."""

from __future__ import annotations

import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import SingleAgentEpisode
from ringback.connectors import (
    AddObservations,
    AddStates,
    BatchItems,
    Connector,
    ConnectorPipeline,
    Flatten,
    FrameStack,
    MeanStdFilter,
    PreviousActionsRewards,
    SampleActions,
    ToTensor,
    stacked,
)
from ringback.errors import EpisodeError
from tests.connectors.making import episode, story
from tests.reference.connectors import Cut


class Noting(Connector):
    """Notes down in which order pieces were called, and with what."""

    def __init__(self, mark: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mark = mark
        self.called_with: dict[str, Any] = {}

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        batch.setdefault("marks", []).append(self.mark)
        self.called_with = kwargs
        return batch

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        return gym.spaces.Discrete(input_observation_space.n * 10)

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"mark": self.mark}

    def set_state(self, state: dict[str, Any]) -> None:
        self.mark = state["mark"]

    def reset_state(self) -> None:
        self.mark = ""

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        return {"mark": "".join(state["mark"] for state in states)}


class Other(Noting):
    pass


def marks(pipeline: ConnectorPipeline) -> str:
    return "".join(pipeline(episodes=[]).get("marks", []))


def test_pieces_are_called_in_order_wherever_they_were_put() -> None:
    pipeline = ConnectorPipeline([Noting("b")])
    pipeline.append(Other("d"))
    pipeline.prepend(Noting("a"))
    assert pipeline.insert_before(Other, Noting("c")) is pipeline[-1]
    assert pipeline.insert_after("Noting", Noting("x")) is pipeline[0]
    assert marks(pipeline) == "axbcd"
    pipeline.remove(Other)
    pipeline.remove("Noting")
    assert marks(pipeline) == "xbc"
    assert len(pipeline) == 3
    assert [getattr(piece, "mark", None) for piece in pipeline] == list("xbc")
    assert pipeline[Other] == []
    assert pipeline["Noting"] == list(pipeline)
    del pipeline.connectors[1]  # it is a plain list
    assert marks(pipeline) == "xc"


def test_pipelines_are_pieces() -> None:
    inner = ConnectorPipeline([Noting("b"), FrameStack(3)])
    pipeline = ConnectorPipeline([Noting("a"), inner, Noting("c")])
    made = SingleAgentEpisode(observations=[5])
    assert pipeline(episodes=[made])["marks"] == ["a", "b", "c"]
    assert pipeline.lookback == 2


def test_the_second_piece_of_a_name_is_found_by_the_name_that_its_state_has() -> None:
    pipeline = ConnectorPipeline([Noting("a"), Other("b"), Noting("c")])
    pipeline.insert_before("Noting_2", Other("x"))
    pipeline.insert_after("Other_2", Noting("y"))
    assert marks(pipeline) == "abxyc"
    pipeline.remove("Noting_3")
    pipeline.remove("Other_2")
    assert marks(pipeline) == "aby"


@pytest.mark.parametrize("method", ["insert_before", "insert_after", "remove"])
@pytest.mark.parametrize("which", ["Nobody", Other])
def test_a_piece_that_is_not_there_is_said_and_nothing_changes(method: str, which: Any) -> None:
    pipeline = ConnectorPipeline([Noting("a")])
    arguments = (which,) if method == "remove" else (which, Noting("b"))
    name = which if isinstance(which, str) else "Other"
    text = f"ConnectorPipeline.{method}: name_or_class must be one of ['Noting'], got {name!r}"
    with pytest.raises(ValueError, match=re.escape(text)):
        getattr(pipeline, method)(*arguments)
    assert marks(pipeline) == "a"


def test_what_is_no_piece_is_refused() -> None:
    wrong: Any = len
    with pytest.raises(
        TypeError, match="ConnectorPipeline: a piece must be a Connector, got builtin_function_or_method"
    ):
        ConnectorPipeline([wrong])
    with pytest.raises(TypeError, match=r"ConnectorPipeline.append: a piece must be a Connector, got builtin_function"):
        ConnectorPipeline().append(wrong)

    class Silent(Noting):
        def __call__(self, **kwargs: Any) -> Any:
            return None

    with pytest.raises(TypeError, match="ConnectorPipeline: Silent must return the batch, a dict, got NoneType"):
        ConnectorPipeline([Silent()])(episodes=[])


def test_all_arguments_are_handed_on_and_shared_data_is_one_for_all() -> None:
    first, second = Noting(), Noting()
    batch: dict[str, Any] = {}
    given: dict[str, Any] = {"rl_module": object(), "explore": True, "metrics": object(), "more": 5}
    assert ConnectorPipeline([first, second])(batch=batch, episodes=[], **given) is batch
    for name, value in given.items():
        assert first.called_with[name] is second.called_with[name] is value
    assert first.called_with["shared_data"] is second.called_with["shared_data"] == {}


def test_spaces_go_from_piece_to_piece_whenever_one_changes() -> None:
    pipeline = ConnectorPipeline([Noting()], input_observation_space=gym.spaces.Discrete(2))
    assert pipeline.observation_space == gym.spaces.Discrete(20)
    pipeline.append(Noting())
    assert pipeline[1].input_observation_space == gym.spaces.Discrete(20)
    assert pipeline.observation_space == gym.spaces.Discrete(200)
    pipeline.input_observation_space = gym.spaces.Discrete(3)
    assert pipeline.observation_space == gym.spaces.Discrete(300)
    pipeline.remove(Noting)
    assert pipeline.observation_space == gym.spaces.Discrete(30)
    pipeline.input_action_space = gym.spaces.Discrete(7)
    assert pipeline.action_space == pipeline[0].action_space == gym.spaces.Discrete(7)
    assert ConnectorPipeline(input_observation_space=gym.spaces.Discrete(2)).observation_space == gym.spaces.Discrete(2)


def test_a_piece_keeps_the_spaces_that_it_was_given_where_the_pipeline_has_none() -> None:
    three, five = gym.spaces.Discrete(3), gym.spaces.Discrete(5)
    sampling, other = SampleActions(input_action_space=three), Noting()
    inner = ConnectorPipeline([sampling])
    pipeline = ConnectorPipeline([other, inner], input_observation_space=five)
    assert sampling.input_action_space == inner.action_space == pipeline.action_space == three
    assert sampling.input_observation_space == gym.spaces.Discrete(50)
    batch = pipeline(batch={"action_dist_inputs": np.array([[0.0, 5.0, 1.0]])}, episodes=[], explore=False)
    assert batch["actions"].tolist() == [1]
    later = Noting()
    pipeline.append(later)
    assert later.input_action_space == three
    pipeline.input_action_space = five
    assert sampling.input_action_space == pipeline.action_space == five


def test_a_space_that_goes_goes_from_all_that_had_it_from_the_pipeline() -> None:
    mine = gym.spaces.Discrete(3)
    given, inner = Noting(input_observation_space=mine), ConnectorPipeline([Noting()])
    pipeline = ConnectorPipeline([Noting(), inner], input_observation_space=gym.spaces.Discrete(2))
    assert (inner[0].input_observation_space, pipeline.observation_space) == (
        gym.spaces.Discrete(20),
        gym.spaces.Discrete(200),
    )
    pipeline.input_observation_space = None
    pipeline.append(given)
    assert [pipeline[0].input_observation_space, inner.input_observation_space] == [None, None]
    assert [pipeline[0].observation_space, inner[0].input_observation_space, inner.observation_space] == [None] * 3
    assert (given.input_observation_space, pipeline.observation_space) == (mine, gym.spaces.Discrete(30))


class Refusing(Noting):
    """Goes with no space of more than 20."""

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        if input_observation_space.n > 20:
            raise ValueError("Refusing: too large")
        return input_observation_space


class Shrinking(Noting):
    """Leaves a fiftieth."""

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        return gym.spaces.Discrete(input_observation_space.n // 50)


def deep() -> ConnectorPipeline:
    return ConnectorPipeline([Noting(input_observation_space=gym.spaces.Discrete(1)), Noting()])


def made_of(pieces: list[Connector]) -> ConnectorPipeline:
    one, nine = gym.spaces.Discrete(1), gym.spaces.Discrete(9)
    return ConnectorPipeline(pieces, input_observation_space=one, input_action_space=nine)


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (lambda pipeline, new: pipeline.append(new), FrameStack({"camera": 4})),
        (lambda pipeline, new: pipeline.prepend(new), Noting()),
        (lambda pipeline, new: pipeline.insert_after("Noting", new), FrameStack({"camera": 4})),
        (lambda pipeline, new: pipeline.insert_before(Refusing, new), Noting()),
        (lambda pipeline, new: pipeline.insert_before(Refusing, new), deep()),
        (lambda pipeline, new: pipeline.remove(Shrinking), Noting()),
        (lambda pipeline, new: setattr(pipeline, "input_observation_space", gym.spaces.Discrete(7)), Noting()),
        (
            lambda pipeline, new: made_of([new, *pipeline]),
            Noting(),
        ),
    ],
    ids=["append", "prepend", "insert_after", "insert_before", "insert a pipeline", "remove", "set", "make"],
)
def test_what_does_not_go_with_the_spaces_changes_nothing(change: Any, new: Connector) -> None:
    pieces = [Noting(), Noting(), Shrinking(), Noting(), Refusing(), ConnectorPipeline([Noting()])]
    pipeline = ConnectorPipeline(pieces, input_observation_space=gym.spaces.Discrete(1))
    before, theirs = spaces_of(pipeline), spaces_of(new)
    with pytest.raises(ValueError, match=r"FrameStack|Refusing: too large"):
        change(pipeline, new)
    assert list(pipeline) == pieces
    assert (spaces_of(pipeline), spaces_of(new)) == (before, theirs)
    pipeline.append(Noting())
    assert pipeline.observation_space == gym.spaces.Discrete(2000)


def spaces_of(piece: Any) -> list[Any]:
    """All spaces of a piece and of the pieces in it."""
    own = [piece.input_observation_space, piece.input_action_space, piece.observation_space, piece.action_space]
    inner = [spaces_of(one) for one in piece] if isinstance(piece, ConnectorPipeline) else []
    return [*own, *inner]


def test_spaces_of_other_columns_go_along_too() -> None:
    inner = ConnectorPipeline([PreviousActionsRewards(2)])
    flat = Flatten(("obs", "prev_actions", "prev_rewards"))
    pipeline = ConnectorPipeline([AddObservations(), inner, flat])
    pipeline.input_action_space = gym.spaces.Discrete(5)
    pipeline.input_observation_space = gym.spaces.Box(-1, 1, (3,))
    assert pipeline.observation_space is not None
    assert pipeline.observation_space.shape == (3 + 2 * 5 + 2,)
    assert set(pipeline.column_spaces) == {"prev_actions", "prev_rewards"}


def test_the_lookback_is_the_largest() -> None:
    assert ConnectorPipeline().lookback == 0
    assert ConnectorPipeline([AddStates(), FrameStack(4), PreviousActionsRewards(2)]).lookback == 3


def test_states_go_by_name() -> None:
    pipeline = ConnectorPipeline([Noting("a"), AddObservations(), Other("b"), Noting("c")])
    state = {"Noting": {"mark": "a"}, "Other": {"mark": "b"}, "Noting_2": {"mark": "c"}}
    assert pipeline.get_state() == state
    assert pipeline.get_state(components="Other") == {"Other": {"mark": "b"}}
    assert set(pipeline.get_state(not_components=["Other", "Noting"])) == {"Noting_2"}
    pipeline.set_state({"Noting_2": {"mark": "z"}})
    assert marks(pipeline) == "abz"
    assert pipeline.merge_states([state, {"Other": {"mark": "x"}}]) == {
        "Noting": {"mark": "a"},
        "Other": {"mark": "bx"},
        "Noting_2": {"mark": "c"},
    }
    pipeline.reset_state()
    assert marks(pipeline) == ""
    known = ["AddObservations", "Noting", "Noting_2", "Other"]
    text = f"ConnectorPipeline.set_state: state must be of pieces among {known}, got ['Nobody']"
    with pytest.raises(ValueError, match=re.escape(text)):
        pipeline.set_state({"Nobody": {}, "Other": {"mark": "y"}})
    assert marks(pipeline) == ""


def test_a_state_that_a_piece_refuses_changes_no_piece() -> None:
    pipeline = ConnectorPipeline([Noting("a"), SampleActions(seed=1), MeanStdFilter(), Noting("c")])
    before = pipeline.get_state()
    with pytest.raises(KeyError, match="mark"):
        pipeline.set_state({**ConnectorPipeline([Noting("z"), SampleActions(seed=2)]).get_state(), "Noting_2": {}})
    assert pipeline.get_state() == before
    assert pipeline["Noting"][0].mark == "a"


def test_what_is_merged_can_be_given_to_all() -> None:
    made = [ConnectorPipeline([AddObservations(), MeanStdFilter(), SampleActions(seed=k)]) for k in range(2)]
    batch = {"actions": np.array([0])}
    for k, pipeline in enumerate(made):
        pipeline(batch=dict(batch), episodes=[SingleAgentEpisode(observations=[np.array([2.0 * k])])])
    assert set(made[0].get_state()) == {"MeanStdFilter", "SampleActions"}
    merged = made[0].merge_states([pipeline.get_state() for pipeline in made])
    assert set(merged) == {"MeanStdFilter"}
    for pipeline in made:
        pipeline.set_state(merged)
        assert (pipeline[1].count, pipeline[1].mean.tolist()) == (2, [1])
    assert made[0].get_state()["SampleActions"] != made[1].get_state()["SampleActions"]


def test_timings_count_calls_and_seconds_on_request() -> None:
    pipeline = ConnectorPipeline([Noting(), Noting()], timing=True)
    for _ in range(3):
        pipeline(episodes=[])
    timings = pipeline.timings()
    assert {name: calls for name, (calls, _) in timings.items()} == {"Noting": 3, "Noting_2": 3}
    assert all(seconds > 0 for _, seconds in timings.values())
    text = "ConnectorPipeline.timings: the pipeline must be made with timing=True, got timing=False"
    with pytest.raises(RuntimeError, match=re.escape(text)):
        ConnectorPipeline().timings()


def test_chunks_of_an_episode_are_taken_together() -> None:
    whole = story(1, 6)
    first = episode(Cut(whole, 0, 2, 0), id_="a")
    between = episode(Cut(story(2, 3), 0, 3, 0), id_="b")
    second = episode(Cut(whole, 2, 5, 2), id_="a")
    given = [first, between, second]
    for learner, want in ((False, [102, 105, 203]), (True, [100, 101, 102, 103, 104, 200, 201, 202])):
        pieces = [
            AddObservations(as_learner_connector=learner),
            PreviousActionsRewards(as_learner_connector=learner),
            BatchItems(),
        ]
        pipeline = ConnectorPipeline(pieces)
        for _ in range(2):
            batch = pipeline(episodes=given)
            assert batch["obs"][:, 0].tolist() == want
            assert batch["prev_rewards"][:, 0].tolist() == [0 if n % 100 == 0 else n - 1 + 0.5 for n in want]
            assert given == [first, between, second]


class Swapping(Connector):
    """Puts another episode in the place of the first."""

    def __init__(self, other: SingleAgentEpisode) -> None:
        super().__init__()
        self.other = other

    def __call__(self, *, batch: dict[str, Any], episodes: Any, **kwargs: Any) -> dict[str, Any]:
        batch["before"] = AddObservations()(batch={}, episodes=episodes)["obs"]
        episodes[0] = self.other
        return batch


def test_rows_are_those_of_the_episodes_of_the_moment() -> None:
    made = [SingleAgentEpisode(name, observations=[k]) for k, name in enumerate("abcd")]
    agents = [
        SingleAgentEpisode(agent, agent_id=agent, module_id="m", multi_agent_episode_id="world", observations=[k])
        for k, agent in enumerate(("left", "right"))
    ]
    pipeline = ConnectorPipeline([ConnectorPipeline([Swapping(made[3])]), AddObservations()])
    left, right = ("world", "left", "m"), ("world", "right", "m")
    for given, before in (
        (made[:2], [("a",), ("b",)]),
        (made[:2], [("a",), ("b",)]),
        (made[1:3], [("b",), ("c",)]),
        (agents, [left, right]),
        (agents, [left, right]),
    ):
        batch = pipeline(episodes=given)
        assert batch["before"].keys_of_rows == before
        assert batch["obs"].keys_of_rows == [("d",), before[1]]
        assert stacked(batch["obs"]).tolist()[0] == 3


# ------------------------------------------------------------------ no silent fills


class Filling(Connector):
    """A piece of a user: the last three rewards, 0 where there are none."""

    def __call__(self, *, batch: dict[str, Any], episodes: Any, **kwargs: Any) -> dict[str, Any]:
        for one in self.single_agent_episode_iterator(episodes):
            self.add_batch_item(batch, "last", one.get_rewards(slice(-3, None), fill=0.0), one)
        return batch


def test_a_fill_for_a_step_that_existed_is_refused_with_the_name_of_the_piece() -> None:
    whole = story(1, 6)
    pipeline = ConnectorPipeline([AddObservations(), Filling()])
    for start, stop, lookback in ((0, 0, 0), (0, 2, 0), (1, 1, 1), (4, 4, 3), (4, 7 - 1, 1)):
        batch = pipeline(episodes=[episode(Cut(whole, start, stop, lookback))])
        (rows,) = next(iter(batch["last"].values()))
        assert rows == [100 + t + 0.5 if t >= 0 else 0.0 for t in range(stop - 3, stop)]
    text = r"SingleAgentEpisode.get_rewards: the lookback must hold \d steps? for Filling, got \d; a fill may only st"
    for start, stop, lookback in ((1, 1, 0), (4, 4, 2), (4, 5, 1)):
        with pytest.raises(EpisodeError, match=text):
            pipeline(episodes=[episode(Cut(whole, start, stop, lookback))])
    # Outside of a pipeline a fill is what its reader makes of it.
    assert episode(Cut(whole, 4, 4, 2)).get_rewards(slice(-3, None), fill=0.0) == [0, 102.5, 103.5]


def test_after_an_error_reads_outside_are_free_again() -> None:
    made = episode(Cut(story(1, 6), 4, 4, 0))
    inner = ConnectorPipeline([Filling()])
    with pytest.raises(EpisodeError):
        ConnectorPipeline([inner])(episodes=[made])
    assert made.get_rewards(slice(-1, None), fill=-1.0) == [-1.0]


# ------------------------------------------------------------------ as a whole


def test_an_acting_pipeline_as_in_the_tour() -> None:
    pipeline = ConnectorPipeline([AddObservations(), FrameStack(4), PreviousActionsRewards(2), ToTensor()])
    made = [episode(Cut(story(k, 9), 3 * k, 3 * k + 1, min(3 * k, 3))) for k in range(3)]
    batch = pipeline(episodes=made)
    assert tuple(batch["obs"].shape) == (3, 4, 3)
    assert batch["obs"][2, :, 0].tolist() == [204, 205, 206, 207]
    assert tuple(batch["prev_actions"].shape) == (3, 2, 7)
    assert batch["prev_rewards"].tolist() == [[0, 0.5], [102.5, 103.5], [205.5, 206.5]]


def test_a_pipeline_can_be_copied_to_other_processes() -> None:
    pipeline = ConnectorPipeline(
        [AddObservations(), MeanStdFilter(), PreviousActionsRewards(2), ToTensor(device="cpu"), SampleActions(seed=3)],
        input_observation_space=gym.spaces.Box(-1e6, 1e6, (3,)),
        input_action_space=gym.spaces.Discrete(7, start=-3),
    )
    made = [episode(Cut(story(k, 4), 0, 2, 0)) for k in range(2)]
    pipeline.remove(SampleActions)
    pipeline(episodes=made)
    copied = pickle.loads(pickle.dumps(pipeline))
    for one, other in zip(pipeline(episodes=made).values(), copied(episodes=made).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_pipeline_is_no_piece_of_itself() -> None:
    pipeline = ConnectorPipeline([])
    with pytest.raises(ValueError, match="connector must be another piece, got the pipeline itself"):
        pipeline.append(pipeline)
    assert len(pipeline) == 0
