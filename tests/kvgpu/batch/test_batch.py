"""Batches against the manager: membership, dirty rows, publication, staging, reads, lengths (section 8)."""

from collections.abc import Iterator

import numpy as np
import pytest

from kvgpu.batch.batch import Batch
from kvgpu.device.sim import SimOptions
from kvgpu.errors import CopyFailed, InvalidArgument, LogicError, OutOfRange

from .scene import INDEX, MAIN, Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_tables_read_empty_until_published(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=2, blocks=3)
    tables, counts = scene.device_tables(batch)
    assert tables == [[[-1] * 3] * 2] * 2
    assert counts == [[0, 0]] * 2
    assert batch.dirty_rows() == (0, 1)
    assert batch.tables.staging_buffers == 2


def test_a_member_is_published_in_its_row(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=3, blocks=3)
    request = scene.request("a", capacity=12, history=6)
    assert batch.add(request, 2) == 2
    assert batch.publish(scene.exec) == (0, 1, 2)
    assert batch.publish(scene.exec) == ()
    assert scene.manager.enter_decode(request)
    assert batch.dirty_rows() == (2,)
    with pytest.raises(LogicError, match=r"rows \[2\]"):
        batch.wait_ready(scene.exec)
    assert batch.publish(scene.exec) == (2,)
    batch.wait_ready(scene.exec)
    tables, counts = scene.device_tables(batch)
    assert counts == [[0, 0, 1], [0, 0, 0]]
    assert tables[MAIN][2] == request.indices(MAIN).tolist()
    assert tables[INDEX][2] == request.indices(INDEX).tolist()
    assert tables[MAIN][:2] == [[-1] * 3] * 2
    assert not request.dirty


def test_membership_is_checked_in_order(scene: Scene) -> None:
    batch, other = Batch(scene.manager, "rows", 2, 3), Batch(scene.manager, "others", 1, 3)
    one, two, three = (scene.request(name, capacity=4) for name in "abc")
    assert batch.add(one) == 0
    assert batch.add(one) == batch.add(one, 0) == 0
    with pytest.raises(LogicError, match="remove it before"):
        batch.add(one, 1)
    with pytest.raises(LogicError, match="in batch 'rows'"):
        other.add(one)
    with pytest.raises(InvalidArgument, match="taken by 'a'"):
        batch.add(two, 0)
    with pytest.raises(InvalidArgument, match="rows 0 to 1"):
        batch.add(two, 2)
    assert batch.add(two) == 1
    with pytest.raises(InvalidArgument, match="no free row"):
        batch.add(three)
    other.remove(three)
    with pytest.raises(LogicError, match="not in 'others'"):
        other.remove(one)
    batch.remove(one)
    assert (one.row, one.batch, batch.members) == (None, None, (None, two))
    scene.manager.close(two)
    assert batch.members == (None, None)
    with pytest.raises(LogicError, match="closed"):
        batch.add(two)
    batch.add(three)
    batch.close()
    batch.close()
    assert three.active
    assert three.row is None
    with pytest.raises(LogicError, match="is closed"):
        batch.add(three)


def test_staging_grows_only_while_all_buffers_are_in_flight(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=1, blocks=3)
    request = scene.request("a", capacity=4)
    batch.add(request)
    assert batch.publish(scene.exec) == (0,)
    gate = scene.device.gate(scene.side, "g")
    for capacity in (8, 12):
        assert scene.manager.resize(request, capacity)
        assert batch.publish(scene.side) == (0,)
    assert batch.tables.staging_buffers == 2
    assert scene.manager.resize(request, 8)
    assert batch.publish(scene.side) == (0,)
    assert batch.tables.staging_buffers == 3
    gate.open()
    assert scene.manager.resize(request, 4)
    assert batch.publish(scene.side) == (0,)
    assert batch.tables.staging_buffers == 3
    assert scene.device_tables(batch)[0][MAIN] == [[*request.indices(MAIN).tolist(), -1, -1]]


def test_a_held_publication_shows_the_words_it_was_made_with(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=1, blocks=2)
    request = scene.request("a", capacity=4)
    batch.add(request)
    batch.publish(scene.exec)
    before = scene.device_tables(batch)
    gate = scene.device.gate(scene.side, "g")
    assert scene.manager.resize(request, 8)
    batch.publish(scene.side)
    assert scene.device_tables(batch) == before
    gate.open()
    assert scene.device_tables(batch)[0][MAIN] == [request.indices(MAIN).tolist()]


def test_a_refused_upload_leaves_everything_dirty(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=1, blocks=2)
    request = scene.request("a", capacity=4)
    batch.add(request)
    for queued in (False, True):
        scene.manager.faults.arm("upload", queued=queued)
        with pytest.raises(CopyFailed):
            batch.publish(scene.exec)
        assert batch.dirty_rows() == (0,)
        assert scene.device_tables(batch)[0] == [[[-1, -1]]] * 2
    assert request.dirty
    assert batch.publish(scene.exec) == (0,)


def test_a_member_larger_than_the_batch_cannot_be_published(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=1, blocks=2)
    request = scene.request("a", capacity=8)
    batch.add(request)
    assert scene.manager.resize(request, 12)
    with pytest.raises(InvalidArgument, match="3 blocks"):
        batch.publish(scene.exec)
    assert scene.manager.resize(request, 8)
    assert batch.publish(scene.exec) == (0,)


def test_lengths_are_checked_over_all_rows_before_any_is_resized(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=3, blocks=3)
    one, two = scene.request("a", capacity=4), scene.request("b", capacity=8, history=4)
    batch.add(one)
    batch.add(two)
    for capacities, histories, message in (
        ((8, 8), None, "3 rows"),
        ((8, -1, None), None, "capacity -1"),
        ((8, 13, None), None, "12 tokens"),
        ((8, None, None), (None, 3, None), "never shrinks"),
        ((8, 8, 4), None, "is empty"),
        ((8, 2, None), None, "less than its history"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            batch.resize(capacities, histories, scene.exec)
    scene.manager.suspend(two)
    with pytest.raises(LogicError, match="suspended"):
        batch.resize((8, 12, None), None, scene.exec)
    assert (one.capacity, two.capacity) == (4, 8)
    assert batch.resize((8, None, None), None, scene.exec) == (True, None, None)
    assert one.capacity == 8
    assert batch.dirty_rows() == ()


def test_exports_follow_the_batch(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=1, blocks=2, levels=True)
    request = scene.request("a", capacity=8, history=4)
    batch.add(request)
    table = batch.page_table(MAIN)
    with pytest.raises(LogicError, match="not published"):
        np.from_dlpack(table)
    assert scene.manager.enter_decode(request)
    batch.publish(scene.exec)
    seen = [np.from_dlpack(each) for each in (table, batch.num_blocks(MAIN), batch.page_level(MAIN))]
    assert [each.tolist() for each in seen] == [[request.indices(MAIN).tolist()], [1], [[1, 0]]]
    batch.close()
    with pytest.raises(LogicError, match="is closed"):
        np.from_dlpack(table)
    assert seen[1].tolist() == [1]
    with pytest.raises(LogicError, match="is closed"):
        batch.page_table(MAIN)


def test_tables_are_of_known_groups(scene: Scene) -> None:
    batch = Batch(scene.manager, "rows", rows=1, blocks=2)
    with pytest.raises(OutOfRange):
        batch.page_table(2)
    with pytest.raises(LogicError, match="no page_level"):
        batch.page_level(MAIN)


@pytest.mark.parametrize(
    "site",
    [
        "R7.5 publication: recorded reads of the tables",
        "R7.5 publication: the previous publication",
        "R7.5 publication: the tables are written",
        "R7.6 staging buffer: its upload has run",
        "R7.7 record_read: the reads of the tables so far",
        "R8.1 first publication: the tables have their first values",
        "R8.1 the tables have their first values",
        "R8.7 exported array: the consumer's stream",
    ],
)
def test_each_fence_is_missed_if_it_is_not_there(site: str) -> None:
    for dropped in (frozenset[str](), frozenset({site})):
        scene = Scene(SimOptions(drop_sites=dropped))
        batch = Batch(scene.manager, "rows", rows=1, blocks=3)
        request = scene.request("a", capacity=4)
        batch.add(request)
        streams = [scene.exec, *(scene.device.stream(f"publisher {number}") for number in range(4))]
        for number, stream in enumerate(streams):
            assert scene.manager.resize(request, 4 + 4 * (number % 2))
            batch.publish(stream)
            if number == len(streams) - 2:
                continue  # two publications in a row: no read orders them
            batch.page_table(MAIN).order(scene.side)
            scene.device.host_task(scene.side, lambda: None, batch.tables.read_accesses, "a user's read of the table")
            batch.record_read(scene.side)
        scene.device.settle()
        faults = scene.device.faults()
        assert bool(faults) == bool(dropped), faults
