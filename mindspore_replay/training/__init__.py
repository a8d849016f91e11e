"""Tools around a buffer during training: rate limits, prefetching, monitoring, rows of vector environments."""

from .sinks import JSONLinesSink, TensorBoardSink, TerminalSink

__all__ = ["JSONLinesSink", "TensorBoardSink", "TerminalSink"]
