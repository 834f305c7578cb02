"""Running queued work: what the dependencies allow, in the order that a policy chooses."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from kvgpu.device.sim.options import Choice, fifo
from kvgpu.device.sim.streams import SimStream


def advance(stream: SimStream, woken: list[SimStream]) -> bool:
    """Retire waits and gates at the head that are over. True if work is at the head now.

    A stream that stops at a wait is put on the waiters of the stream that it waits for; waiters of this one go to ``woken`` if
    anything was retired here.
    """
    before = stream.retired
    queue = stream.queue
    ready = False
    while queue:
        head = queue[0]
        if head.work is not None:
            ready = True
            break
        if head.gate is not None and head.gate.closed:
            break
        if head.event is not None and not head.event.passed():
            assert head.event.stream is not None
            head.event.stream.waiters[stream] = None
            break
        queue.popleft()
        stream.retired += 1
    if stream.retired != before:
        wake(stream, woken)
    return ready


def wake(stream: SimStream, woken: list[SimStream]) -> None:
    """Have the streams that wait for ``stream`` looked at again."""
    if stream.waiters:
        woken.extend(stream.waiters)
        stream.waiters = {}


def run_head(stream: SimStream) -> None:
    """Run the work at the head of a stream."""
    item = stream.queue.popleft()
    assert item.work is not None
    item.work()
    stream.retired += 1


def run_all(streams: Iterable[SimStream], choose: Choice) -> None:
    """Run everything that no closed gate holds up."""
    looked_at = list(streams)
    if choose is fifo:
        run_oldest(looked_at)
        return
    ready: dict[SimStream, None] = {}
    while True:
        while looked_at:
            stream = looked_at.pop()
            if advance(stream, looked_at):
                ready[stream] = None
        if not ready:
            return
        stream = choose(tuple(ready))
        run_head(stream)
        del ready[stream]
        looked_at.append(stream)
        wake(stream, looked_at)


def run_oldest(looked_at: list[SimStream]) -> None:
    """The same by the schedule ``fifo``, for any number of streams: what is at the head of one stays there until it is run."""
    ready: list[tuple[int, SimStream]] = []
    known: set[SimStream] = set()
    while True:
        while looked_at:
            stream = looked_at.pop()
            if stream not in known and advance(stream, looked_at):
                heappush(ready, (stream.queue[0].order, stream))
                known.add(stream)
        if not ready:
            return
        stream = heappop(ready)[1]
        known.discard(stream)
        run_head(stream)
        looked_at.append(stream)
        wake(stream, looked_at)


def run_until(stream: SimStream, position: int) -> None:
    """Run what stands before a position of a stream, and nothing else. No closed gate may be upstream."""
    needed = [(stream, position)]
    while needed:
        stream, position = needed[-1]
        if stream.retired >= position:
            needed.pop()
            continue
        head = stream.queue[0]
        if head.work is not None:
            run_head(stream)
        elif head.event is not None and not head.event.passed():
            assert head.event.stream is not None
            needed.append((head.event.stream, head.event.position))
        else:
            assert head.gate is None or not head.gate.closed
            stream.queue.popleft()
            stream.retired += 1
