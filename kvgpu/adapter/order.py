"""Positions of device work as ``Order`` values: closed gates by label, and steps instead of submission counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from kvgpu.device.api import Device, Event, Gate, Position, Stream
from kvspec.observation import Order


class Gates:
    """The gates of a scenario, by label. A label may be used anew once its gate has opened."""

    def __init__(self, device: Device) -> None:
        """No gates yet."""
        self._device = device
        self._closed: dict[str, tuple[str, Gate]] = {}
        self._known: set[str] = set()
        self._made = 0

    @property
    def known(self) -> frozenset[str]:
        """Every label that was ever used."""
        return frozenset(self._known)

    def close(self, label: str, stream: Stream) -> None:
        """Close a gate on a stream."""
        # The device is told a label of its own, so that old work is not taken for work behind a new gate.
        own = f"{label} ({self._made})"
        self._made += 1
        self._known.add(label)
        self._closed[label] = (own, self._device.gate(stream, own))

    def is_closed(self, label: str) -> bool:
        """Whether there is a closed gate of that label."""
        return label in self._closed

    def open(self, label: str) -> None:
        """Open a gate. Nothing happens if it is open already."""
        if label in self._closed:
            self._closed.pop(label)[1].open()

    def open_all(self) -> None:
        """Open every gate that is closed, so that the device can come to an end."""
        for label in tuple(self._closed):
            self.open(label)

    def labels(self, gates: Iterable[str]) -> frozenset[str]:
        """The scenario's labels of those device gates that are still closed."""
        held = frozenset(gates)
        if not held:
            return held
        return frozenset(label for label, (own, _) in self._closed.items() if own in held)


class StepMarks:
    """For each user stream, how many submissions it had after the last user-visible work of each step.

    It is as long as the scenario, as any order that is shown may name any of its steps: a manager by itself keeps none of it.
    """

    def __init__(self, device: Device, streams: Mapping[str, Stream]) -> None:
        """``streams``: the user streams by the scenario's names, which the device knows them by, too."""
        self._device = device
        self._streams = streams
        self._counts: dict[str, list[int]] = {name: [] for name in streams}
        self._steps: dict[str, list[int]] = {name: [] for name in streams}
        self.step = -1

    def begin(self, step: int) -> None:
        """Work from now on belongs to ``step``, counting from 0."""
        self.step = step

    def user_work(self, stream: Stream) -> None:
        """User-visible work was just submitted to ``stream``; streams that are not the user's are ignored."""
        if self._streams.get(stream.name) is not stream:
            return
        counts, steps = self._counts[stream.name], self._steps[stream.name]
        submitted = self._device.submitted(stream)
        if steps and steps[-1] == self.step:
            counts[-1] = submitted
        else:
            counts.append(submitted)
            steps.append(self.step)

    def after(self, clock: Mapping[str, int]) -> dict[str, int]:
        """By user stream, a step all of whose user-visible work, and of all steps before it, is in ``clock``.

        The last such step with any, so that it stays the same when more is submitted; or, if something submitted since then is in
        it, the one before the next with any, of whose work that may be a part.
        """
        covered = {}
        for name, counts in self._counts.items():
            known = clock.get(name, 0)
            included = bisect_right(counts, known)  # a publication of no tables is work of no submission
            if not included and not known:
                continue
            steps = self._steps[name]
            more = included < len(counts) and (not included or known > counts[included - 1])
            last = steps[included] - 1 if more else steps[included - 1] if included else -1
            if last >= 0:
                covered[name] = last
        return covered


class Orders:
    """Translates positions of the device into ``Order`` values, as things stand now."""

    def __init__(self, device: Device, gates: Gates, marks: StepMarks) -> None:
        """``gates`` and ``marks`` are those of the same run on ``device``."""
        self._device = device
        self._gates = gates
        self._marks = marks

    def of(self, work: Stream | Event) -> Order:
        """The order of an event, or of the next submission to a stream."""
        return self.at(self._device.position(work))

    def at(self, position: Position) -> Order:
        """The order of work that was submitted at ``position``; gates that have opened since do not count."""
        after = None if position.clock is None else self._marks.after(position.clock)
        return Order(self._gates.labels(position.gates), after)

    def all_of(self, events: Sequence[Event]) -> Order:
        """The order of work that comes after all of ``events``; none: of work that waits for nothing."""
        gates: set[str] = set()
        clock: dict[str, int] | None = {}
        for event in events:
            position = self._device.position(event)
            gates |= position.gates
            if position.clock is None or clock is None:
                clock = None
            else:
                for name, count in position.clock.items():
                    clock[name] = max(clock.get(name, 0), count)
        return self.at(Position(frozenset(gates), clock))
