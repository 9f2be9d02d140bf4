# ruff: noqa
# fmt: off
# mypy: ignore-errors
"""The calls that the mission's textbook chapter makes on its replay buffer, as one program of ours. It must run unchanged."""
import numpy as np
import torch

from ringback import ReplayBuffer

buffer = ReplayBuffer(50, 3, 2, "cpu")  # capacity, state and action dimensions, device of the tensors that come back
step = 0
for length in (7, 1, 30, 12, 4, 25):  # 79 steps in a ring of 50: wraps
    for t in range(length):
        state, after = np.full(3, step, np.float32), np.full(3, step + 1, np.float32)
        buffer.add(state, np.full(2, -step, np.float32), float(step), after, t == length - 1)
        step += 1
    step += 100  # the next episode starts elsewhere

s, a, r, s_next, d = buffer.sample_transitions(50)  # without replacement: every live step once
assert [tuple(x.shape) for x in (s, a, r, s_next, d)] == [(50, 3), (50, 2), (50, 1), (50, 3), (50, 1)]
assert all(isinstance(x, torch.Tensor) and x.dtype == torch.float32 for x in (s, a, r, s_next, d))
assert len(torch.unique(r)) == 50 and torch.equal(s_next, s + 1) and torch.equal(a[:, :1], -r) and torch.equal(s[:, :1], r)
assert int(d.sum()) == 4  # the ends of the episodes of 30, 12, 4 and 25 steps are among the last 50 steps

s, a, r, d = buffer.sample_sequences(8, 5)
assert [tuple(x.shape) for x in (s, a, r, d)] == [(8, 5, 3), (8, 5, 2), (8, 5, 1), (8, 5, 1)]
assert torch.all(r[:, 1:] == r[:, :-1] + 1) and not d[:, :-1].any()

# 50 live steps: 9 of the 30-step episode, then 12, 4, 25. Windows of 5: 5 + 8 + 0 + 21 starts.
assert len(buffer.valid_starts(5)) == 34
buffer.sample_sequences(34, 5)
for bad in (lambda: buffer.sample_sequences(35, 5), lambda: buffer.sample_sequences(1, 51), lambda: buffer.sample_transitions(51)):
    try:
        bad()
    except ValueError:
        pass
    else:
        raise AssertionError("asked for more than there is")
print("textbook program: all as the chapter says")
