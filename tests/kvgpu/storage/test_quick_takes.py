"""Which slots are taken, also where no event is asked about: those that have passed, then as they became free (R7.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.device.sim import SimDevice, SimOptions
from kvgpu.manager import Manager
from kvgpu.runs import Int32
from kvgpu.storage.fences import Point
from kvgpu.storage.pools import SlotPool
from tests.kvgpu.operations.calls import CONFIG


class Reads:
    """Reads of a table that names one slot, not noted there yet."""

    def __init__(self, slot: int, point: Point) -> None:
        self._slot, self._point, self._noted = slot, point, False

    def not_noted(self, pool: SlotPool, slots: Int32) -> Sequence[tuple[npt.NDArray[np.intp], Sequence[Point]]]:
        found = np.flatnonzero(slots == self._slot)
        return [(found, [self._point])] if found.size and not self._noted else []

    def points_of(self, pool: SlotPool, slots: Int32) -> Sequence[Point]:
        return [point for _, points in self.not_noted(pool, slots) for point in points]

    def settle(self, pool: SlotPool, slots: Int32) -> bool:
        for where, points in self.not_noted(pool, slots):
            pool.note_reads(slots[where], points)
            self._noted = True
        return self._noted

    def noted(self, pool: SlotPool, slots: Int32) -> None:
        self._noted = self._noted or self._slot in slots


class Scene:
    """The host slots of a manager, and a stream that a gate holds up."""

    def __init__(self) -> None:
        self.device = SimDevice(SimOptions())
        self.manager = Manager(CONFIG, self.device)
        self.pool = self.manager._core.pools[1][0]
        stream = self.device.stream("held")
        self.gate = self.device.gate(stream, "shut")
        self.held = self.manager.fences.record(stream, "behind the gate")

    def take(self, count: int) -> list[int]:
        taken: list[int] = self.pool.take(count).tolist()
        return taken

    def give(self, *slots: int) -> None:
        self.pool.give(np.array(slots, dtype=np.int32))


@pytest.mark.parametrize("of_tables", [False, True])
def test_a_slot_that_a_reader_came_to_is_not_taken_first(of_tables: bool) -> None:
    scene = Scene()
    if of_tables:
        scene.pool.table_reads.append(Reads(0, scene.held))
    else:
        scene.pool.note_reads(np.array([0], dtype=np.int32), [scene.held])
    assert scene.take(1) == [1]
    every = scene.pool.free
    assert scene.take(every)[-1] == 0


def test_of_slots_that_have_passed_the_one_that_became_free_first_is_taken() -> None:
    scene = Scene()
    scene.take(scene.pool.free)
    scene.pool.fence[0] = scene.manager.fences.add([scene.held])
    scene.give(0)
    scene.give(1, 2)
    assert scene.take(1) == [1]
    scene.gate.open()
    assert scene.take(1) == [0]
    assert scene.take(1) == [2]


def test_a_slot_that_was_just_given_back_comes_after_those_before_it() -> None:
    scene = Scene()
    first = scene.take(2)
    scene.give(*first)
    assert scene.take(scene.pool.free)[-2:] == first
