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
    R"(sample_transitions($self, batch_size, *, n_step=1, gamma=None, replace=False, out=None)
--

Draw steps uniformly from all that are stored.

Parameters
----------
batch_size : int
    B, at least 1.
n_step : int
    Sum up to this many rewards, each discounted by one more ``gamma``; ``next_observations`` is the observation after the
    last summed step. Sums stop at both kinds of end and at the newest stored step; an episode of T steps gives T starts for
    any n.
gamma : float in [0, 1], optional
    Needed for ``n_step > 1``. With it the batch has ``discounts`` and ``n_steps``.
replace : bool
    Whether a step may be drawn more than once.
out : dict or Transitions, optional
    Arrays (or CPU tensors) to fill instead of fresh ones, by field name; an earlier batch will do.

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
    ``out`` array of the wrong shape or dtype.
TypeError
    A number that is no integer.

Notes
-----
Exactly uniform, O(B) however much is stored. Small arrays of a batch share memory: keeping one keeps the batch.

References
----------
Sutton and Barto, Reinforcement Learning, 2018, equation 7.1 (n-step returns).
)";

inline constexpr char kSampleSequences[] = R"(sample_sequences($self, batch_size, length, *, replace=False, out=None)
--

Draw windows of consecutive steps, each inside one episode, uniformly from all valid starts.

Parameters
----------
batch_size : int
    B, at least 1.
length : int
    L, at least 1: steps a window. The last one may end its episode, no other does.
replace : bool
    Whether a start may be drawn more than once. Windows of different starts may overlap.
out : dict or Sequences, optional
    Arrays (or CPU tensors) to fill instead of fresh ones, by field name; an earlier batch will do.

Returns
-------
Sequences
    Unpacks into ``(observations, actions, rewards, dones)``, each (B, L, ...); by name also ``terminations``,
    ``truncations``, ``is_first``, ``is_last``, ``ids``, ``start_ids``, ``extras``. Copies, as in ``sample_transitions``.

Raises
------
ValueError
    Fewer steps stored than ``length``, fewer valid starts than ``batch_size`` (unless ``replace``).
TypeError
    A number that is no integer.

Notes
-----
Exactly uniform over starts. O(B (L + log episodes)); the first call with a length, or with one that is not among the last four, counts starts once in O(episodes).
)";

}  // namespace ringback::bindings::docs
