"""One side of a buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ringback import _core
from ringback.replay.batches import Batches

if TYPE_CHECKING:
    from ringback.replay.buffer import ReplayBuffer


class BufferView(_core.ReplayView):
    """One side of a buffer that was split: it samples as the buffer does, but from its side only.

    Made by ``ReplayBuffer.split``; all methods have the buffer's names and arguments. ``len(view)`` is the number of
    stored steps on its side; ``view.buffer`` is the whole. It holds no steps of its own.
    """

    def __init__(
        self, buffer: ReplayBuffer, side: Literal["train", "validation", "any"], own_generator: bool = False
    ) -> None:
        super().__init__(buffer, side, own_generator)
        self._side = side

    @property
    def side(self) -> str:
        """Which side this is: ``"train"`` or ``"validation"``."""
        return self._side

    def batches(
        self,
        batch_size: int,
        epochs: int | None = None,
        prefetch: int = 2,
        *,
        length: int | None = None,
        **options: Any,
    ) -> Batches:
        """Iterate over batches of this side; see ``ReplayBuffer.batches``."""
        return Batches(self, batch_size, epochs, prefetch, length=length, options=options)

    def _sampling_view(self) -> BufferView:
        return BufferView(self.buffer, self._side, own_generator=True)

    def __repr__(self) -> str:
        return f"<BufferView of {len(self)} steps, the {self._side} side of {self.buffer!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return BufferView, (self.buffer, self._side)
