"""What lies between episodes and a module: pieces, called one after the other by a pipeline."""

from __future__ import annotations

from .columns import BatchedArray, Columns, Rows, stacked
from .connector import Connector
from .pipeline import ConnectorPipeline

__all__ = ["BatchedArray", "Columns", "Connector", "ConnectorPipeline", "Rows", "stacked"]
