"""On a device that overwrites the slots of new pages: which slots, and after what (R7.2)."""

from __future__ import annotations

import numpy as np
import pytest

from kvgpu.device.api import POISON, Gate
from kvgpu.runs import Int32
from kvgpu.storage.fences import EMPTY
from tests.kvgpu.build import Bench, bench, configuration, layer

SLOT: Int32 = np.array([0], dtype=np.int32)


@pytest.fixture
def made() -> Bench:
    return bench(configuration(layer("a", 64)), poison=True)


def behind(made: Bench, *streams: str) -> list[Gate]:
    """The slot is used again after work of these streams, each held up by a gate."""
    points, gates = [], []
    for name in streams:
        stream = made.device.stream(name)
        gates.append(made.device.gate(stream, name))
        points.append(made.manager.fences.record(stream, "R7.2 freed slot: the copy out of it"))
    made.manager._core.pools[0][0].fence[SLOT] = made.manager.fences.add(points)
    return [*gates]


def contents(made: Bench) -> bytes:
    made.device.settle()
    return made.manager._core.pools[0][0].bytes_now(0)


def test_a_slot_behind_one_point_is_overwritten_after_it(made: Bench) -> None:
    pool = made.manager._core.pools[0][0]
    (gate,) = behind(made, "one")
    ((slots, done),) = made.manager._core.poison_new(pool, SLOT)
    assert slots.tolist() == [0]
    assert contents(made) == bytes(64) and made.device.position(done.event).gates == {"one"}
    gate.open()
    assert contents(made) == bytes([POISON]) * 64


def test_a_slot_behind_several_points_is_left_alone(made: Bench) -> None:
    behind(made, "one", "two")
    assert made.manager._core.poison_new(made.manager._core.pools[0][0], SLOT) == []


def test_a_slot_in_which_nothing_was_is_left_alone(made: Bench) -> None:
    assert made.manager._core.poison_new(made.manager._core.pools[0][0], SLOT) == []
    assert contents(made) == bytes(64)


def test_a_slot_that_somebody_may_still_read_is_left_alone(made: Bench) -> None:
    pool = made.manager._core.pools[0][0]
    behind(made, "one")
    pool.set_readers(SLOT, pool.fence[SLOT])
    released = made.manager.fences.record(made.stream, "R7.4 freed slot: work before its release")
    pool.fence[SLOT] = made.manager.fences.add([released])
    assert made.manager._core.poison_new(pool, SLOT) == []
    assert pool.readers(SLOT) != EMPTY
    assert contents(made) == bytes(64)


def test_a_device_that_overwrites_nothing_is_not_asked_to(made: Bench) -> None:
    plain = bench(configuration(layer("a", 64)))
    behind(plain, "one")
    assert plain.manager._core.poison_new(plain.manager._core.pools[0][0], SLOT) == []
