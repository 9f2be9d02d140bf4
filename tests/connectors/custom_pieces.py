"""Pieces as a user of RLlib writes them: over the documented helpers of ``ConnectorV2`` only, and on any base class.

`make_pieces` derives them from the base it is given; the programs put them to work in pipelines of that base's own
library and return plain data. So the same programs show what RLlib makes of a piece and that we make the same of it.
"""
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

PLANE = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
CHOICE = gym.spaces.Discrete(3)


@dataclass(frozen=True)
class Library:
    """What a program needs of a library; the classes are those of its own names."""

    connector: type[Any]
    pipeline: Callable[..., Any]
    episode: type[Any]
    add_observations: type[Any]
    add_columns: type[Any]
    batch_items: type[Any]
    list_items: type[Any]


def make_pieces(base: type[Any]) -> Any:
    """Derive all pieces from a library's ``ConnectorV2``."""

    class RewardInObservation(base):
        """Append the latest reward to the newest observation, for good: it is written into the episode."""

        def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
            return gym.spaces.Box(-1e6, 1e6, (input_observation_space.shape[0] + 1,), np.float32)

        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for episode in self.single_agent_episode_iterator(episodes):
                wide = np.append(episode.get_observations(-1), episode.get_rewards(-1, fill=-1.0)).astype(np.float32)
                episode.set_observations(at_indices=-1, new_data=wide)
                episode.observation_space = self.observation_space
            return batch

    class AgeColumn(base):
        """Add one item for each episode, and one that belongs to none."""

        def __init__(
            self, input_observation_space: Any = None, input_action_space: Any = None, *, unit: int, **kwargs: Any
        ) -> None:
            super().__init__(input_observation_space, input_action_space, **kwargs)
            self.unit = unit

        def __call__(
            self, *, rl_module: Any, batch: Any, episodes: Any, explore: Any = None, shared_data: Any = None, **kw: Any
        ) -> Any:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=True):
                age = {"steps": np.int64(episode.t * self.unit), "kept": np.array([len(episode)] * 2, np.float32)}
                self.add_batch_item(batch, "age", item_to_add=age, single_agent_episode=episode)
                self.add_batch_item(batch, "exploring", float(bool(explore)))
            shared_data["oldest"] = max(episode.t for episode in episodes)
            return batch

    class StepsColumns(base):
        """Add a row for each step of each episode: as arrays, as structures of arrays, and as a list."""

        def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
                steps = len(episode)
                times = np.arange(episode.t_started, episode.t)
                self.add_n_batch_items(batch, "times", times, steps, episode)
                both = {"now": times.astype(np.float32), "pair": np.stack([times, -times], axis=1)}
                self.add_n_batch_items(batch, "both", both, num_items=steps, single_agent_episode=episode)
                self.add_n_batch_items(batch, "listed", [np.float32(t) / 2 for t in times], steps, episode)
            return batch

    class ObservationsAgain(base):
        """Add a column that is as the learner's observations, by the helper for several rows."""

        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
                again = episode.get_observations(slice(0, len(episode)))
                self.add_n_batch_items(batch, "again", again, len(episode), episode)
            return batch

    class Change(base):
        """Change each item of one column, then of two side by side; the function is told whose item it is."""

        def __init__(self, *, columns: tuple[str, str], **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.columns = columns
            self.seen: list[Any] = []

        def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            ids = [episode.id_ for episode in episodes]
            first, second = self.columns

            def halve(item: Any, episode_id: Any, agent_id: Any, module_id: Any) -> Any:
                self.seen.append((ids.index(episode_id), agent_id, module_id))
                return item / 2 + 1000 * ids.index(episode_id)

            self.foreach_batch_item_change_in_place(batch, first, halve)
            self.foreach_batch_item_change_in_place(
                batch=batch,
                column=[first, second],
                func=lambda items, *whose: (items[0] + items[1][..., :1], items[1] * -1),
            )
            return batch

    class LargestSeen(base):
        """Scale observations by a power of two that covers all places so far: a state that runners can merge."""

        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.largest = 1.0

        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for episode in self.single_agent_episode_iterator(episodes):
                place = episode.get_observations(indices=-1)
                while self.largest < np.abs(place).max():
                    self.largest *= 2
                self.add_batch_item(batch, "obs", (place / self.largest).astype(np.float32), episode)
            return batch

        def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> Any:
            return {"largest": self.largest}

        def set_state(self, state: Any) -> None:
            self.largest = state["largest"]

        def merge_states(self, states: Any) -> Any:
            return {"largest": max(state["largest"] for state in states)}

        def reset_state(self) -> None:
            self.largest = 1.0

    class CountBonus(base):
        """Pay for places by how seldom they were seen: rewards of a whole episode, read and written by the getters."""

        def __init__(self, input_observation_space: Any = None, input_action_space: Any = None, **kwargs: Any) -> None:
            super().__init__(input_observation_space, input_action_space, **kwargs)
            self.counts: dict[int, int] = {}

        def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
                bonuses = []
                for place in episode.get_observations(slice(1, None)):
                    cell = int(place[1]) % 3
                    self.counts[cell] = self.counts.get(cell, 0) + 1
                    bonuses.append(16.0 * 0.5 ** self.counts[cell])
                paid = episode.get_rewards() + np.array(bonuses)
                episode.set_rewards(new_data=paid, at_indices=slice(0, len(episode)))
                previous = range(-1, len(episode) - 1)
                before = [episode.get_rewards(t, neg_index_as_lookback=True, fill=-1.0) for t in previous]
                self.add_n_batch_items(batch, "paid_before", before, len(episode), episode)
            return batch

    class WriteBack(base):
        """Write what stands in the batch into the episodes, walking through both side by side."""

        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for episode, place in self.single_agent_episode_iterator(episodes, zip_with_batch_column=batch["obs"]):
                episode.set_observations(at_indices=-1, new_data=place + 0.5)
            return batch

    class OtherChoice(base):
        """Behind the module, which has one choice fewer than the environment: shift its choices."""

        def recompute_output_action_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
            return gym.spaces.Discrete(int(input_action_space.n) - 1)

        def __call__(self, *, batch: Any, episodes: Any, shared_data: Any = None, **kwargs: Any) -> Any:
            self.foreach_batch_item_change_in_place(
                batch, column="actions", func=lambda action, *whose: (action + shared_data["oldest"]) % 3
            )
            return batch

    return SimpleNamespace(
        RewardInObservation=RewardInObservation,
        AgeColumn=AgeColumn,
        StepsColumns=StepsColumns,
        ObservationsAgain=ObservationsAgain,
        Change=Change,
        LargestSeen=LargestSeen,
        CountBonus=CountBonus,
        WriteBack=WriteBack,
        OtherChoice=OtherChoice,
    )


# Data: observation [100 * episode + t, t], action t % 3, reward 10 * episode + t + 1.


def observation(k: int, t: int) -> np.ndarray[Any, Any]:
    return np.array([100 * k + t, t], np.float32)


def step(episode: Any, k: int, **ends: bool) -> None:
    t = episode.t
    episode.add_env_step(observation(k, t + 1), np.int64(t % 3), 10.0 * k + t + 1, {}, **ends)


def open_episodes(library: Library, lengths: Sequence[int]) -> list[Any]:
    out = []
    for k, length in enumerate(lengths):
        episode = library.episode(observation_space=PLANE, action_space=CHOICE)
        episode.add_env_reset(observation(k, 0), {})
        for _ in range(length):
            step(episode, k)
        out.append(episode)
    return out


def chunks(library: Library) -> list[Any]:
    """In array form: steps 0..2 of one episode that ended, and steps 2..5 of another one, with one step of lookback."""
    short, long = open_episodes(library, [2, 2])
    step(short, 0, terminated=True)
    rest = long.cut(len_lookback_buffer=1)
    for _ in range(4):
        step(rest, 1)
    return [short.to_numpy(), rest.to_numpy()]


def plain(value: Any) -> Any:
    """Turn arrays, structures and scalars into lists, dicts and numbers."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else np.asarray(value).tolist()


def act(pipeline: Any, episodes: Any, shared_data: dict[str, Any] | None = None) -> Any:
    shared_data = {} if shared_data is None else shared_data
    return pipeline(rl_module=None, batch={}, episodes=episodes, explore=True, shared_data=shared_data)


# Programs --------------------------------------------------------------------------------------------------------


def writes_observations(library: Library) -> Any:
    """Twice the same piece in front of a pipeline, over a reset and two steps; then its space without one of them."""
    make = make_pieces(library.connector).RewardInObservation
    pipeline = library.pipeline([make(), library.add_observations(), library.batch_items()], PLANE, CHOICE)
    pipeline.prepend(make())
    episodes, seen = open_episodes(library, [0, 1]), []
    for _ in range(2):
        seen.append(act(pipeline, episodes)["obs"])
        for k, episode in enumerate(episodes):
            step(episode, k)
    seen.append(act(pipeline, episodes)["obs"])
    shapes = [pipeline.observation_space.shape]
    pipeline.remove(make)
    shapes.append(pipeline.observation_space.shape)
    return {"seen": plain(seen), "kept": plain(episodes[1].get_observations(slice(1, 3))), "shapes": shapes}


def adds_items(library: Library) -> Any:
    piece = make_pieces(library.connector).AgeColumn(unit=7)
    pipeline = library.pipeline([library.add_observations(), library.batch_items()], PLANE, CHOICE)
    pipeline.insert_after(library.add_observations, piece)
    shared_data: dict[str, Any] = {}
    batch = act(pipeline, open_episodes(library, [0, 3]), shared_data)
    return {**plain(batch), "oldest": shared_data["oldest"]}


def adds_many_items(library: Library) -> Any:
    pieces = [make_pieces(library.connector).StepsColumns(), library.batch_items()]
    return plain(act(library.pipeline(pieces, PLANE, CHOICE), chunks(library)))


def changes_items(library: Library) -> Any:
    piece = make_pieces(library.connector).Change(columns=("obs", "also"))
    pipeline = library.pipeline([library.add_observations(), piece, library.batch_items()], PLANE, CHOICE)
    episodes = open_episodes(library, [2, 3])
    batch: dict[str, Any] = {}
    for k, episode in enumerate(episodes):
        library.connector.add_batch_item(batch, "also", np.array([k, k + 1], np.float32), episode)
    batch = pipeline(rl_module=None, batch=batch, episodes=episodes, explore=False, shared_data={})
    return {**plain(batch), "seen": piece.seen}


def changes_lists_without_episodes(library: Library) -> Any:
    """The columns are plain lists, as the documentation of the helper has them."""
    batch = {"one": [0, 1, 2], "two": [5, 6, 7]}
    change = library.connector.foreach_batch_item_change_in_place
    change(batch, "one", lambda item, *whose: item + len(whose))
    change(batch, ["one", "two"], lambda items, *whose: (items[0] * 10, items[1] + items[0]))
    return batch


def changes_steps(library: Library) -> Any:
    """Behind all columns of the learner; an item may be one step or the steps of a chunk."""
    make = make_pieces(library.connector)
    added = [library.add_observations(as_learner_connector=True), make.ObservationsAgain()]
    pieces = [*added, make.Change(columns=("obs", "again")), library.batch_items()]
    return plain(act(library.pipeline(pieces, PLANE, CHOICE), chunks(library)))


def has_a_state(library: Library) -> Any:
    make = make_pieces(library.connector).LargestSeen
    pipeline = library.pipeline([make(), library.add_observations(), library.batch_items()], PLANE, CHOICE)
    seen = [act(pipeline, open_episodes(library, [4, 2]))["obs"]]
    state = pipeline.get_state()
    other = library.pipeline([make(), library.add_observations(), library.batch_items()], PLANE, CHOICE)
    other.set_state(state)
    seen.append(act(other, open_episodes(library, [1]))["obs"])
    merged = make().merge_states([{"largest": 3.0}, {"largest": 40.0}])
    other.reset_state()
    return {"seen": plain(seen), "state": state, "merged": merged, "reset": other.get_state()}


def pays_for_new_places(library: Library) -> Any:
    piece = make_pieces(library.connector).CountBonus()
    pieces = [piece, library.add_observations(as_learner_connector=True), library.add_columns(), library.batch_items()]
    episodes = chunks(library)
    batch = act(library.pipeline(pieces, PLANE, CHOICE), episodes)
    again = act(library.pipeline(pieces, PLANE, CHOICE), chunks(library))
    columns = ("rewards", "paid_before", "obs", "actions", "terminateds", "truncateds")
    return {
        **{name: plain(batch[name]) for name in columns},
        "again": plain(again["rewards"]),
        "kept": plain(episodes[1].get_rewards()),
        "counts": piece.counts,
    }


def writes_back(library: Library) -> Any:
    piece = make_pieces(library.connector).WriteBack()
    pipeline = library.pipeline([library.add_observations(), piece, library.batch_items()], PLANE, CHOICE)
    episodes = open_episodes(library, [1, 2])
    obs = act(pipeline, episodes)["obs"]
    return plain({"obs": obs, "kept": [episode.get_observations(-1) for episode in episodes]})


def changes_actions(library: Library) -> Any:
    pieces = make_pieces(library.connector)
    to_module = library.pipeline([pieces.AgeColumn(unit=1)], PLANE, CHOICE)
    to_env = library.pipeline([pieces.OtherChoice(), library.list_items()], PLANE, CHOICE)
    episodes, shared_data = open_episodes(library, [2, 1]), {}  # type: tuple[list[Any], dict[str, Any]]
    act(to_module, episodes, shared_data)
    actions: dict[str, Any] = {}
    for k, episode in enumerate(episodes):
        library.connector.add_batch_item(actions, "actions", np.int64(k), episode)
        library.connector.add_batch_item(actions, "action_logp", np.float32(-k), episode)
    out = to_env(rl_module=None, batch=actions, episodes=episodes, explore=True, shared_data=shared_data)
    return {"actions": plain(out["actions"]), "logp": plain(out["action_logp"]), "choices": int(to_env.action_space.n)}


def switches_levels(library: Library) -> Any:
    batch = {"obs": {"left": [1, 2], "right": [3]}, "actions": {"left": [4]}}
    return library.connector.switch_batch_from_column_to_module_ids(batch)


PROGRAMS: dict[str, Callable[[Library], Any]] = {
    program.__name__: program
    for program in (
        writes_observations, adds_items, adds_many_items, changes_items, changes_lists_without_episodes, changes_steps,
        has_a_state, pays_for_new_places, writes_back, changes_actions, switches_levels,
    )
}  # fmt: skip
