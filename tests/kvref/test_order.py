"""The order of device work: which edges there are, and that there are no others (section 7)."""

from __future__ import annotations

from kvref.system import Reference
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.observation import Order, PageView, SnapshotView
from tests.kvref.driving import apply, reference, run

MANAGER = """
tokens_per_block: 4
levels: [{kind: gpu, slots: 2}, {kind: host, slots: 2}]
layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]
"""


def system_with_a_decoder() -> Reference:
    system = reference(MANAGER, "side", "other")
    run(system, "create: {request: a}\nresume: {request: a, stream: side}\nresize: {request: a, capacity: 8, history: 4}")
    return system


def page(system: Reference, request: str, block: int) -> PageView:
    return next(p for p in system.observe().pages if (request, block) in {(ref.request, ref.block) for ref in p.refs})


def snapshot(system: Reference, request: str) -> SnapshotView:
    return system.observe().requests[request].snapshots["main", 0]


def gates(system: Reference, stream: str) -> frozenset[str]:
    return system.observe().streams[stream].gates


def test_an_offload_follows_the_owners_streams_and_the_slot_that_it_leaves_follows_the_offload() -> None:
    system = system_with_a_decoder()
    run(system, "gate: {stream: side, as: g}\nwrite: {request: a, blocks: [1]}\nenter_decode: a")
    moved = page(system, "a", 0)
    assert (moved.level, moved.ready) == (Level.HOST, Order(frozenset("g"), {"side": 4}))
    assert [fence.gates for fence in system.observe().pools[Level.GPU, "main"].fences] == [{"g"}]
    assert page(system, "a", 1).ready.gates == frozenset()  # a write changes no readiness
    run(system, "create: {request: b}\nresume: {request: b, stream: other}\nresize: {request: b, capacity: 4}")
    assert gates(system, "other") == {"g"}  # it took that slot
    assert page(system, "b", 0).ready.gates == frozenset()
    assert gates(system, "exec") == frozenset()
    run(system, "open: g")
    assert gates(system, "other") == frozenset()


def test_a_slot_whose_fence_has_passed_is_taken_before_one_that_became_free_earlier() -> None:
    system = system_with_a_decoder()
    run(system, "gate: {stream: side, as: g}\nresize: {request: a, capacity: 4}\ncreate: {request: b}\nresume: b\nclose: a")
    assert [fence.gates for fence in system.observe().pools[Level.GPU, "main"].fences] == [{"g"}, {"g"}]
    run(system, "open: g\ngate: {stream: exec, as: h}\nresize: {request: b, capacity: 4}")
    run(system, "create: {request: c}\nresume: {request: c, stream: other}\nresize: {request: c, capacity: 4}\nclose: b")
    run(system, "suspend: c\nclose: c")
    fences = [fence.gates for fence in system.observe().pools[Level.GPU, "main"].fences]
    assert fences == [{"h"}, frozenset()]
    run(system, "create: {request: d}\nresume: {request: d, stream: other}\nresize: {request: d, capacity: 4}")
    assert gates(system, "other") == frozenset()
    run(system, "resize: {request: d, capacity: 8}")
    assert gates(system, "other") == {"h"}


def test_recorded_reads_hold_up_the_tables_the_members_and_the_slots_they_name() -> None:
    system = system_with_a_decoder()
    run(system, "batch: {name: rows, rows: 1, blocks: 2}\nadd: {batch: rows, request: a}\npublish: rows")
    run(system, "gate: {stream: other, as: g}\nread_table: {batch: rows, stream: other, as: seen}")
    assert system.observe().reads["seen"].entries is None
    run(system, "record_read: {batch: rows, stream: other}")
    assert gates(system, "side") == {"g"}
    run(system, "enter_decode: a")
    assert page(system, "a", 0).ready.gates == {"g"}
    run(system, "publish: rows")
    rows = system.observe().batches["rows"]
    assert (rows.upload.gates, rows.device["main"].num_blocks, rows.published["main"].num_blocks) == (frozenset("g"), (0,), (1,))
    run(system, "open: g")
    seen = system.observe()
    assert seen.reads["seen"].entries == ((0, 1),)  # what was published before the read
    assert seen.batches["rows"].device == seen.batches["rows"].published


def test_copies_of_one_step_do_not_claim_to_follow_what_the_step_submits_later() -> None:
    system = system_with_a_decoder()
    run(system, "enter_decode: a\nbatch: {name: rows, rows: 1, blocks: 2}\nadd: {batch: rows, request: a}")
    run(system, "resize_batch: {batch: rows, histories: [8], stream: side}")  # step 6: a write, an offload, the upload
    assert page(system, "a", 1).ready.after == {"side": 5}
    assert system.observe().batches["rows"].upload.after == {"side": 6}


def test_a_stream_follows_the_one_before_it_and_a_waiting_stream_the_snapshot() -> None:
    system = system_with_a_decoder()
    run(system, "gate: {stream: side, as: g}\nenter_decode: a\nsnapshot: {request: a, group: main, as: s}")
    run(system, "wait_snapshot: {snapshot: s, stream: exec}\nset_stream: {request: a, stream: other}")
    assert (gates(system, "exec"), gates(system, "other")) == (frozenset("g"), frozenset("g"))
    assert apply(system, "sync: exec").error is ErrorKind.LOGIC_ERROR
    run(system, "open: g\nsync")


def test_staging_buffers_are_added_only_while_uploads_are_in_flight() -> None:
    system = system_with_a_decoder()
    run(system, "batch: {name: rows, rows: 1, blocks: 2}\nadd: {batch: rows, request: a}\ngate: {stream: exec, as: g}")
    for wanted in (2, 2, 3):
        run(system, "suspend: a\nresume: a\npublish: rows")
        assert system.observe().batches["rows"].staging == wanted
    run(system, "open: g\nsuspend: a\npublish: rows")
    assert system.observe().batches["rows"].staging == 3


def test_a_replay_sees_what_was_last_published() -> None:
    system = system_with_a_decoder()
    run(system, "batch: {name: rows, rows: 1, blocks: 2}\nadd: {batch: rows, request: a}\npublish: rows\nbegin_capture: exec")
    assert apply(system, "publish: rows").error is ErrorKind.LOGIC_ERROR
    run(system, "read_table: {batch: rows, as: none}\nend_capture: {stream: exec, as: graph}\nreplay: {graph: graph, as: first}")
    run(system, "suspend: a\npublish: rows\nreplay: {graph: graph, as: second}")
    reads = system.observe().reads
    assert ("none" in reads, reads["first"].entries, reads["second"].entries) == (False, ((0, 1),), ((-1, -1),))


def test_a_level_change_back_to_the_same_slot_is_a_new_readiness() -> None:
    system = system_with_a_decoder()
    run(system, "resize: {request: a, capacity: 4}\noffload: {request: a, blocks: [0]}")
    run(system, "take_slots: {level: host, count: 1, as: t}\nacknowledge: {request: a, version: latest}")
    before = snapshot(system, "a")
    run(system, "suspend: a\nprefetch: {request: a, level: gpu}\nresume: {request: a, decode: true}")
    after = snapshot(system, "a")
    assert (before.levels, before.indices) == (after.levels, after.indices)
    assert system.observe().requests["a"].dirty
