"""Fences, slots, eviction order, users of pages, the prefix tree: the tables by themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kvgpu.config import build_layout
from kvgpu.device.sim import SimDevice
from kvgpu.storage.eviction import EvictionQueue
from kvgpu.storage.fences import EMPTY, FenceTable, Point
from kvgpu.storage.pages import PageTable
from kvgpu.storage.pools import SlotPool
from kvgpu.storage.prefix_tree import PrefixTree
from kvgpu.storage.texts import Text
from tests.kvgpu.build import configuration, layer


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def test_a_fence_keeps_the_latest_point_of_each_stream() -> None:
    device = SimDevice()
    fences, a, b = FenceTable(device), device.stream("a"), device.stream("b")
    old, other, new = fences.record(a, "one"), fences.record(b, "two"), fences.record(a, "three")
    assert set(fences[fences.add([new, old, other])].points) == {new, other}


def test_merging_touches_each_different_fence_once_and_leaves_the_others() -> None:
    device = SimDevice()
    fences, a, b = FenceTable(device), device.stream("a"), device.stream("b")
    one, two = fences.record(a, "one"), fences.record(b, "two")
    first = fences.add([one])
    merged = fences.merged(numbers(EMPTY, first, EMPTY, first), [two])
    assert merged[0] == merged[2] and merged[1] == merged[3]
    assert set(fences[int(merged[1])].points) == {one, two}
    assert fences[first].points == (one,)
    assert fences.united(numbers(EMPTY, first), numbers(first, EMPTY)).tolist() == [first, first]


def test_a_number_is_used_again_only_when_no_table_names_it() -> None:
    device = SimDevice()
    fences, stream = FenceTable(device), device.stream("a")
    kept = fences.register(np.zeros(2, dtype=np.int32))
    point = fences.record(stream, "kept")
    kept[0] = fences.add([point])
    for _ in range(3000):
        fences.add([fences.record(stream, "forgotten")])
    fences.collect()
    later = {fences.add([fences.record(stream, "new")]) for _ in range(2000)}
    assert int(kept[0]) not in later and fences[int(kept[0])].points == (point,)
    assert max(later) < 3010


def test_a_table_that_was_grown_is_looked_at_in_place_of_the_old_one() -> None:
    device = SimDevice()
    fences, stream = FenceTable(device), device.stream("a")
    beside, old = fences.register(np.zeros(1, dtype=np.int32)), fences.register(np.zeros(1, dtype=np.int32))
    grown = fences.replace(old, np.zeros(2, dtype=np.int32))
    points = fences.record(stream, "beside"), fences.record(stream, "grown")
    beside[0], grown[1] = (fences.add([point]) for point in points)
    for _ in range(3000):
        fences.add([fences.record(stream, "forgotten")])
    fences.collect()
    assert [fences[int(number)].points for number in (beside[0], grown[1])] == [(point,) for point in points]


@pytest.fixture
def slots(tmp_path: Path) -> tuple[SimDevice, FenceTable, SlotPool]:
    device = SimDevice()
    fences = FenceTable(device)
    layout = build_layout(configuration(layer("a", 16), slots=(6,)))
    return device, fences, SlotPool(layout.levels[0][0], device, fences, tmp_path)


def test_free_slots_whose_fence_has_passed_come_first_then_those_freed_first(
    slots: tuple[SimDevice, FenceTable, SlotPool],
) -> None:
    device, fences, pool = slots
    held = device.stream("held")
    gate = device.gate(held, "gate")
    pending = fences.add([fences.record(held, "work")])
    taken = pool.take(6)
    pool.fence[taken[[4, 1]]] = pending
    pool.give(taken[[4, 1, 3]])
    pool.give(taken[[0]])
    assert pool.take(3).tolist() == [taken[3], taken[0], taken[4]]
    pool.give(taken[[4]])
    gate.open()
    assert pool.take(2).tolist() == [taken[1], taken[4]]
    assert pool.free == 0


def test_a_reader_recorded_on_a_free_slot_puts_it_behind_the_others(slots: tuple[SimDevice, FenceTable, SlotPool]) -> None:
    device, fences, pool = slots
    held = device.stream("held")
    device.gate(held, "gate")
    pool.set_readers(np.array([0], dtype=np.int32), fences.add([fences.record(held, "reads")]))
    assert pool.take(6).tolist() == [1, 2, 3, 4, 5, 0]


def test_a_mark_undoes_takes_and_gives(slots: tuple[SimDevice, FenceTable, SlotPool]) -> None:
    _, _, pool = slots
    first = pool.take(2)
    mark = pool.mark()
    pool.take(2)
    pool.give(first)
    pool.restore(mark)
    assert pool.free == 4 and sorted(pool.free_slots().tolist()) == [2, 3, 4, 5]
    assert pool.take(4).tolist() == [2, 3, 4, 5]


def test_eviction_order_and_entries_that_went_stale() -> None:
    device = SimDevice()
    layout = build_layout(configuration(layer("a", 16), layer("b", 16, sliding_window=4)))
    pages = PageTable(FenceTable(device))
    queue = EvictionQueue(0, 0, layout, pages)
    made = pages.allocate(8)
    pages.priority[made] = [35, 35, 35, 35, 10, 35, 35, 35]
    pages.stamp[made] = [2, 2, 2, 1, 3, 2, 2, 2]
    pages.block[made] = [0, 1, 1, 0, 0, 1, 2, 0]
    pages.group[made] = [0, 1, 0, 0, 0, 0, 0, 0]
    queue.push(made)
    queue.push(made[:3])
    pages.locks[made[6]] = 1
    pages.alive[made[7]] = False
    assert queue.ordered().tolist() == made[[4, 3, 2, 5, 1, 0]].tolist()
    pages.locks[made[6]] = 0
    pages.stamp[made[6]] = 4
    queue.push(made[[6]])
    assert queue.ordered().tolist() == made[[4, 3, 2, 5, 1, 0, 6]].tolist()


def test_users_of_a_page_one_by_one_and_in_crowds() -> None:
    pages = PageTable(FenceTable(SimDevice()))
    made = pages.allocate(3)
    for uid in (7, 8, 9):
        pages.add_user(made[: 4 - (uid - 6)], uid)
    assert [sorted(pages.users_of(int(page))) for page in made] == [[7, 8, 9], [7, 8], [7]]
    pages.drop_user(made[:2], 8)
    pages.drop_user(made[:1], 7)
    assert [sorted(pages.users_of(int(page))) for page in made] == [[9], [7], [7]]
    assert pages.user[made].tolist() == [9, 7, 7] and not pages.shared


def test_page_numbers_are_used_again_and_serials_are_not() -> None:
    pages = PageTable(FenceTable(SimDevice()), size=2)
    first = pages.allocate(2)
    pages.recycle(first)
    again = pages.allocate(5)
    assert set(first.tolist()) < set(again.tolist()) and pages.serial[again].tolist() == [2, 3, 4, 5, 6]
    assert pages.living().tolist() == again.tolist()


def test_a_match_takes_whole_blocks_then_the_child_with_the_longest_common_beginning() -> None:
    tree = PrefixTree(2, 1)
    root = tree.insert(tree.root, Text((0, 1)))
    short, full, other = tree.insert(root, Text((2,))), tree.insert(root, Text((2, 3))), tree.insert(root, Text((2, 4)))
    match = tree.match(Text((0, 1, 2, 5)))
    assert (match.whole, match.partial, match.common) == ([root], full, 1)
    assert tree.match(Text((0, 1, 2, 4, 9))).whole == [root, other]
    assert tree.match(Text((0, 1, 5))).common == 0
    tree.detach(full)
    tree.detach(other)
    assert tree.match(Text((0, 1, 2, 5))).partial is short
    assert [node.prefix() for node in tree.walk()] == [Text((0, 1)), Text((0, 1, 2))]


def test_a_stream_is_asked_once_where_its_work_is_held_up() -> None:
    fences = FenceTable(SimDevice())
    asked: list[tuple[str, int]] = []
    run = {"free": 9, "held": 2}

    class Asked:
        def __init__(self, key: str, number: int) -> None:
            self.of = key, number

        def done(self) -> bool:
            asked.append(self.of)
            return self.of[1] <= run[self.of[0]]

    def fence(*points: tuple[str, int]) -> int:
        return fences.add([Point(key, number, Asked(key, number), "a point") for key, number in points])

    made = [
        fence(("held", 3)),
        fence(("held", 5)),
        fence(("free", 4)),
        fence(("free", 1)),
        fence(("held", 1)),
        fence(("held", 4)),
    ]
    made += [fence(("free", 6), ("held", 7)), fence(("free", 6), ("held", 2))]
    fences.refresh()
    assert fences.passed(np.array(made)).tolist() == [False, False, True, True, True, False, False, True]
    assert sorted(asked) == [("free", 4), ("free", 6), ("held", 1), ("held", 2), ("held", 3)]
    run["held"] = 9
    fences.refresh()
    assert fences.passed(np.array(made)).all()
