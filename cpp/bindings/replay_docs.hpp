#pragma once

// Docstrings of the methods that are C++ themselves. The first line is the signature that help() and inspect read.
namespace ringback::bindings::docs {

inline constexpr char kAdd[] =
    R"(add($self, observation, action, reward, next_observation, terminated, truncated=False, stream=0, extras=None)
--

Write one step of one stream.

Parameters
----------
observation, next_observation : array or nested dict/tuple of arrays
    What the action was taken at, and what it led to, in the observation space's structure; leaf shape ``D``. The final
    observation of an episode, not the next episode's reset observation.
action : array, int or nested
    In the action space's structure.
reward : float
terminated, truncated : bool
    Either ends the episode. ``terminated`` alone is what ``dones`` says later: a time limit bootstraps.
stream : int
    Who writes: one number for each sub-environment. Any 64-bit number, no declaration.
extras : dict, optional
    One value for each extra column that was declared.

Returns
-------
int
    The step's id: a handle that names it for ever, and is stale once the step is evicted.

Raises
------
TypeError
    A wrong kind of value: a float where an integer is stored, a stream that is no integer, unknown arguments.
ValueError
    A wrong shape, missing keys, a value that does not fit (NaN where an integer is stored), a flag that is neither true
    nor false; with ``on_mismatch="raise"`` an observation that differs from the successor given one step earlier.

Notes
-----
Copies its input; O(1), about 0.3 microseconds by position and twice that by keyword. A call that raises has changed
nothing. Once ``capacity`` steps are stored, the oldest one of all streams goes.
)";

inline constexpr char kAddBatch[] =
    R"(add_batch($self, observations, actions, rewards, next_observations, terminations, truncations=None, streams=None, extras=None)
--

Write one step of each of E streams.

Parameters
----------
observations, next_observations : arrays, shape (E, *D), nested as the observation space
actions : arrays, shape (E, *A), nested as the action space
rewards : array, shape (E,)
terminations, truncations : array, shape (E,), bool
streams : sequence of int, optional
    E different numbers; default ``0..E-1``.
extras : dict of arrays, shape (E, ...), optional

Returns
-------
ndarray, shape (E,), int64
    The ids of the steps, written in the order of the rows.

Raises
------
TypeError, ValueError
    As ``add``; also streams that repeat. Nothing has changed then.

Notes
-----
The same as E calls of ``add``. For the vector environments of gymnasium mind the autoreset mode: what belongs in
``next_observations`` at an end is the final observation, and a reset row is not a step.
)";

inline constexpr char kSampleTransitions[] =
    R"(sample_transitions($self, batch_size, *, n_step=1, gamma=None, replace=False, out=None, stack=None, stack_fill="first", beta=0.4)
--

Draw steps uniformly from all that are stored.

Parameters
----------
batch_size : int
    B, at least 1.
n_step : int or pair of int
    Sum up to this many rewards, each discounted by one more ``gamma``; ``next_observations`` is the observation after the
    last summed step. Sums stop at both kinds of end and at the newest stored step; an episode of T steps gives T starts for
    any n. A pair ``(low, high)`` draws an n for each row, both ends included.
gamma : float in [0, 1], optional
    Needed for ``n_step > 1``. With it the batch has ``discounts`` and ``n_steps``.
replace : bool
    Whether a step may be drawn more than once.
out : dict or Transitions, optional
    Arrays (or CPU tensors) to fill instead of fresh ones, by field name; an earlier batch will do.
stack : int or dict, optional
    k: observations (both kinds) come with the k - 1 before them, oldest first, as (B, k, *D); frames are stored once. A
    dict names leaves of the observation, such as ``{"camera": 4}``, and leaves the others as they are. Steps whose older
    frames are evicted are not drawn.
stack_fill : "first" or number
    What stands for frames before t = 0: observation 0 again, or a value. Frames that existed are never filled in.
beta : float
    Of a ``PrioritizedReplayBuffer`` only: how much ``weights`` correct for its draws.

Returns
-------
Transitions
    Unpacks into ``(observations, actions, rewards, next_observations, dones)``; by name also ``terminations``,
    ``truncations``, ``discounts`` (gamma**m * (1 - terminated)), ``n_steps`` (m), ``ids``, ``extras``. Copies: fresh,
    writable, 64-byte aligned.

Raises
------
ValueError
    More steps asked for than are stored (unless ``replace``), a number out of range, ``n_step > 1`` without ``gamma``, an
    ``out`` array of the wrong shape or dtype, a buffer that was split (its views sample).
TypeError
    A number that is no integer.

Notes
-----
Exactly uniform, O(B) however much is stored. Small arrays of a batch share memory: keeping one keeps the batch.

References
----------
Sutton and Barto, Reinforcement Learning, 2018, equation 7.1 (n-step returns). Mnih et al., Human-level control through
deep reinforcement learning, 2015 (frame stacks).
)";

inline constexpr char kSampleSequences[] =
    R"(sample_sequences($self, batch_size, length, *, replace=False, out=None, burn_in=0, pad=False, period=1, n_step=1, gamma=None, stack=None, stack_fill="first", cross_episodes=False, layout="step", next_observations=False, time_major=False, start_state=None, beta=0.4)
--

Draw windows of consecutive steps, each inside one episode, uniformly from all valid starts.

Parameters
----------
batch_size : int
    B, at least 1.
length : int
    L, at least 1: rows a window to train on.
replace : bool
    Whether a start may be drawn more than once. Windows of different starts may overlap.
out : dict or Sequences, optional
    Arrays (or CPU tensors) to fill instead of fresh ones, by field name; an earlier batch will do.
burn_in : int
    b: up to b real rows before the start come first, as many as there are (``burn_in_lengths``), then the L rows, then
    padding up to W = b + L rows. Row 0 is always real.
pad : bool
    Whether windows may be shorter than L (``lengths``), at the end of what there is of an episode.
period : int
    Windows start at steps 0, period, 2 period, ... of an episode.
n_step, gamma
    Sums of rewards as in ``sample_transitions``, over stored steps beyond the window too; ``next_observations`` and the
    flags are then those of the last summed step.
stack, stack_fill
    Frame stacks as in ``sample_transitions``.
cross_episodes : bool
    Windows run on over the ends of episodes along one numbered stream; ``is_first`` marks where a new episode begins.
    Needs ``period=1``.
layout : {"step", "arrival"}
    ``"step"``: row t has observation t, action t and what came of it. ``"arrival"`` is what world models read: row t has
    observation t, the reward and flags that came with it (0 at t = 0) and action t; an episode of T steps has T + 1 rows
    once it is closed, the last with a zero action and id -1. ``is_terminal`` says that the observation is a terminal one.
next_observations : bool
    Whether the batch has the successor of each row.
time_major : bool
    (W, B, ...) instead of (B, W, ...).
start_state : str, optional
    An extra of which only row 0 of each window is wanted: ``start_state``, (B, *shape), instead of among the extras.
beta : float
    Of a ``PrioritizedReplayBuffer`` only: how much ``weights`` correct for its draws.

Returns
-------
Sequences
    Unpacks into ``(observations, actions, rewards, dones)``, each (B, W, ...); by name also ``terminations``,
    ``truncations``, ``is_first``, ``is_last``, ``ids`` (-1 at padding), ``start_ids``, ``extras``; with ``pad`` or
    ``burn_in`` also ``valid`` (the row is there), ``mask`` (it is to be trained on) and ``lengths``. What was not asked
    for is None. Copies, as in ``sample_transitions``.

Raises
------
ValueError
    Fewer steps stored than ``length``, fewer valid starts than ``batch_size`` (unless ``replace``), options that
    contradict each other, a buffer that was split (its views sample).
TypeError
    A number that is no integer.

Notes
-----
Exactly uniform over starts. O(B (W + log episodes)); the first call with a kind of windows, or with one that is not among
the last eight, counts starts once in O(episodes).

References
----------
Kapturowski et al., Recurrent experience replay in distributed reinforcement learning, 2019 (burn-in, stored states).
Hafner et al., Mastering diverse domains through world models, 2023 (windows across episodes, by arrivals).
)";

inline constexpr char kSampleEpisodes[] =
    R"(sample_episodes($self, batch_size, max_length=None, *, replace=False, out=None, n_step=1, gamma=None, stack=None, stack_fill="first", layout="step", next_observations=False, time_major=False)
--

Draw whole episodes: finished ones of which every step is stored, uniformly.

Parameters
----------
batch_size : int
    B, at least 1.
max_length : int, optional
    Longer episodes are not drawn, and rows are padded to this many; by default to the longest one drawn.
replace, out, n_step, gamma, stack, stack_fill, layout, next_observations, time_major
    As in ``sample_sequences``.

Returns
-------
Sequences
    As ``sample_sequences`` gives them with ``pad``: see ``lengths``, ``valid`` and ``mask``.

Raises
------
ValueError
    Fewer such episodes than ``batch_size`` (unless ``replace``).

Notes
-----
O(rows + B log episodes).
)";

inline constexpr char kGet[] =
    R"(get($self, ids, n_step=1, gamma=None, *, stack=None, stack_fill="first", out=None)
--

Return the steps with these ids.

Parameters
----------
ids : int array, shape (K,)
n_step, gamma, stack, stack_fill, out
    As in ``sample_transitions``; n_step is a number.

Returns
-------
Transitions
    Copies, row i for id i; see ``sample_transitions``.

Raises
------
IndexError
    An id that is stale or was never given.
ValueError
    A step whose older frames are evicted, or that is on another side of a split.

Notes
-----
O(K).
)";

inline constexpr char kValidStarts[] =
    R"(valid_starts($self, length=1, *, pad=False, period=1, stack=None)
--

List the ids of all steps at which a window of ``length`` steps may start, oldest first.

Parameters
----------
length : int
    At least 1.
pad, period, stack
    As in ``sample_sequences``.

Returns
-------
ndarray, shape (M,), int64
    O(N) to make; sampling does not need it.
)";

inline constexpr char kUpdatePriorities[] =
    R"(update_priorities($self, ids, abs_td)
--

Give drawn starts new priorities; see ``PrioritizedReplayBuffer.update_priorities``. The validation side of a split has none
and refuses.
)";

}  // namespace ringback::bindings::docs
