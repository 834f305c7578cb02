"""Graph capture (R8.8): which stream is in capture, and where the work of requests that have that stream goes meanwhile."""

from __future__ import annotations

import itertools

from kvgpu.device.api import Graph, Stream
from kvgpu.errors import LogicError
from kvgpu.operations.state import Core

_captures = itertools.count(1)
"""Captures ever begun: managers may share a device, where streams have names of their own."""


class Capture:
    """The capture of a manager, of which there is one at a time. ``stream``: the stream in capture."""

    def __init__(self, core: Core) -> None:
        """None runs."""
        self._core = core
        self._beside: Stream | None = None
        self.stream: Stream | None = None

    def begin(self, stream: Stream) -> None:
        """Begin to capture a stream: what is done for its requests goes to a stream beside it. ``LogicError`` while one runs."""
        if self.stream is not None:
            raise LogicError(f"begin_capture on {stream.name}: a capture runs on stream {self.stream.name}; end it first")
        device = self._core.device
        beside = device.stream(f"kv beside capture {next(_captures)}")
        self._core.fences.begin_capture(stream, beside)
        device.begin_capture(stream)
        self.stream, self._beside = stream, beside

    def end(self, stream: Stream) -> Graph:
        """End the capture. ``LogicError`` without one on that stream."""
        if self.stream is not stream:
            where = "none runs" if self.stream is None else f"it runs on stream {self.stream.name}"
            raise LogicError(f"end_capture on {stream.name}: no capture runs there, {where}")
        assert self._beside is not None
        beside, self.stream, self._beside = self._beside, None, None
        graph = self._core.device.end_capture(stream)
        self._core.fences.end_capture(stream)
        self._core.device.give_back(beside)
        return graph

    def refuse(self, what: str, *streams: Stream) -> None:
        """``LogicError`` for ``what`` while a capture of the manager runs, or somebody else's on one of ``streams``."""
        if self.stream is not None:
            raise LogicError(f"{what}: a capture runs on stream {self.stream.name!r}: end it first (R8.8)")
        for stream in streams:
            self._core.fences.refuse_capture(stream, what)
