"""Streams, events and gates of the GPU, with a light record, on the host, of the closed gates before each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from kvgpu.device.cuda.context import Context, Word

PAUSE = 10e-6
"""Seconds between two looks at an event."""


@dataclass(slots=True, eq=False)
class CudaGate:
    """A stream that waits for a word of host memory."""

    label: str
    word: Word
    closed: bool = True

    def open(self) -> None:
        """Let the stream go on. Idempotent."""
        if self.closed:
            self.closed = False
            self.word.set()


Gates = frozenset[CudaGate]


def still_closed(gates: Gates) -> Gates:
    """Those that have not opened."""
    return frozenset(gate for gate in gates if gate.closed) if gates else gates


class CudaEvent:
    """A point in a stream. ``raw`` is ``None`` for the empty position, which is always done."""

    __slots__ = ("_context", "_passed", "_patience", "gates", "raw", "stream")

    def __init__(self, context: Context, stream: CudaStream | None, gates: Gates, patience: float = 0.0) -> None:
        """Record it now, behind ``gates``; without a stream, the empty position.

        ``patience``: the seconds for which ``done`` waits for work that no closed gate holds up, before it says no.
        """
        self._context, self.stream, self.gates, self._patience = context, stream, gates, patience
        self.raw: int | None = None
        self._passed = stream is None
        if stream is not None:
            self.raw = context.take_event()
            context.direct.record(self.raw, stream.handle)

    def done(self) -> bool:
        """See ``api.Event.done``. Raises ``DeviceError`` if the device has failed."""
        if self._passed:
            return True
        self.gates = still_closed(self.gates)
        self._context.use()
        # The driver is asked behind a closed gate, too: the record of gates would not know of a wait that it was never told of.
        passed, raw = self._context.direct.passed, self.raw
        assert raw is not None
        self._passed = passed(raw)
        if not self._passed and self._patience and not self.gates:
            end = time.monotonic() + self._patience
            while not self._passed and time.monotonic() < end:
                time.sleep(PAUSE)
                self._passed = passed(raw)
        return self._passed

    def known_done(self) -> bool:
        """Whether it was seen to be done before; asks nobody."""
        return self._passed

    def __del__(self) -> None:
        """Let the driver's event be used again."""
        if self.raw is not None:
            self._context.give_event(self.raw)


@dataclass(slots=True, eq=False)
class CudaStream:
    """A stream of the driver. ``gates``: every gate upstream of the next submission (some may have opened).

    ``points``: events, each recorded just before the gates upstream grew: the work before it is held up by the gates of the
    event alone. ``touched``: whether anything was submitted since it was last seen idle. ``own``: whether the device made it.
    ``given_back``: whether its user needs it no more.
    """

    name: str
    handle: int
    raw: Any
    own: bool
    submitted: int = 0
    touched: bool = False
    gates: Gates = frozenset()
    points: list[CudaEvent] = field(default_factory=list)
    given_back: bool = False

    def closed_gates(self) -> Gates:
        """The closed gates upstream of the next submission."""
        self.gates = still_closed(self.gates)
        return self.gates

    def add_gates(self, context: Context, gates: Gates) -> None:
        """Put more gates upstream, and keep a point before them."""
        if not gates <= self.closed_gates():
            self.keep_point(context)
            self.gates |= gates

    def keep_point(self, context: Context) -> None:
        """Record a point that can be waited for when the stream itself cannot."""
        if self.touched or self.points:
            self.points.append(CudaEvent(context, self, self.closed_gates()))

    def last_free_point(self, context: Context, may_record: bool) -> CudaEvent | None:
        """The latest point that no closed gate holds up: the end of the stream, if there may be events recorded (not in capture).

        ``None`` where there is nothing to wait for.
        """
        if not self.touched and not self.points:
            return None
        if not self.closed_gates() and may_record:
            self.points = []
            return CudaEvent(context, self, frozenset())
        free = [number for number, point in enumerate(self.points) if not still_closed(point.gates)]
        if not free:
            return None
        self.points = self.points[free[-1] :]
        return self.points[0]
