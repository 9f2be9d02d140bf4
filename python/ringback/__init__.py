"""Episodes with a lookback, and replay buffers that are right at every boundary."""

from __future__ import annotations

__version__ = "0.1.0"
