"""Owners, deferral, promotion and failure, driven through `Reference.apply` (sections 2 to 5, R3.14, R4.8)."""

from __future__ import annotations

from kvref.system import Reference
from kvspec.config import Level
from kvspec.errors import ErrorKind
from tests.kvref.driving import apply, levels, reference, run

ONE_GROUP = """
tokens_per_block: 4
levels: [{{kind: gpu, slots: {gpu}}}, {{kind: host, slots: {host}}}]
layers: [{{name: main, buffers: [{{role: key, bytes: 64, sparse: true}}]}}]
"""


def shared(names: str, *, gpu: int = 4, host: int = 4) -> Reference:
    system = reference(ONE_GROUP.format(gpu=gpu, host=host), "side")
    run(system, "seed_prefix: {tokens: [0, 1, 2, 3], level: gpu}")
    for name in names:
        run(system, f"create: {{request: {name}, tokens: [0, 1, 2, 3]}}")
    return system


def eligible(system: Reference, *names: str) -> list[int]:
    return [system.observe().requests[name].snapshots["main", 0].eligible for name in names]


def offloads(system: Reference) -> int:
    return system.observe().copy_calls["offload"]


def test_three_requests_on_a_page_move_it_when_the_last_enters_decode() -> None:
    system = shared("abc")
    run(system, "resume: a\nresume: b\nresume: c\nenter_decode: a\nenter_decode: b")
    assert (levels(system, "a.main"), offloads(system), eligible(system, *"abc")) == (["gpu"], 0, [0, 0, 0])
    assert system.observe().pages[0].owners == {"a", "b", "c"}
    run(system, "enter_decode: c")
    assert (levels(system, "a.main"), offloads(system), eligible(system, *"abc")) == (["host"], 1, [1, 1, 1])


def test_a_prefill_request_promotes_a_host_page_once_for_all_and_it_goes_back() -> None:
    system = shared("abp")
    run(system, "resume: {request: a, decode: true}\nresume: {request: b, decode: true}")
    run(
        system,
        "batch: {name: rows, rows: 2, blocks: 1}\nadd: {batch: rows, request: a}\nadd: {batch: rows, request: b}\npublish: rows",
    )
    assert eligible(system, "a", "b") == [1, 1]
    run(system, "resume: p")
    seen = system.observe()
    assert seen.copy_calls["onboard"] == 1
    assert {r.snapshots["main", 0].indices for r in seen.requests.values()} == {(seen.pages[0].slot,)}
    assert [r.snapshots["main", 0].levels for r in seen.requests.values()] == [(Level.GPU,)] * 3
    assert (eligible(system, "a", "b"), seen.pools[Level.HOST, "main"].free) == ([0, 0], 4)
    assert seen.batches["rows"].dirty_rows == (0, 1)
    run(system, "close: p")
    assert levels(system, "a.main") == ["gpu"]  # an owner that leaves moves nothing itself
    assert run(system, "publish: rows").value == (0, 1)
    assert (eligible(system, "a", "b"), offloads(system)) == ([1, 1], 2)


def test_a_promotion_without_a_gpu_slot_is_false_and_leaves_the_decoder_alone() -> None:
    system = shared("ap")
    run(system, "resume: {request: a, decode: true}\ntake_slots: {level: gpu, count: all, as: t}")
    before = system.observe()
    assert run(system, "resume: p").value is False
    after = system.observe()
    assert after.requests["a"] == before.requests["a"]
    assert (after.pages, after.pools) == (before.pages, before.pools)
    run(system, "give_slots: t")
    assert run(system, "resume: p").value is True


def test_a_partial_match_copies_from_the_host_and_leaves_the_page_there() -> None:
    system = shared("a")
    run(system, "resume: {request: a, decode: true}\nresize: {request: a, capacity: 8}")
    assert run(system, "create: {request: p, tokens: [0, 1]}").value == 2
    before = system.observe().requests["a"]
    run(system, "resume: p")
    seen = system.observe()
    assert seen.requests["a"] == before
    assert (levels(system, "p.main"), seen.copy_calls["onboard"]) == (["gpu"], 1)
    source, private = (next(p for p in seen.pages if {ref.request for ref in p.refs} == {name}) for name in "ap")
    assert (source.payload, source.level) == (private.payload, Level.HOST)


def test_a_refused_copy_leaves_no_trace_unless_work_was_queued() -> None:
    for queued in (False, True):
        system = shared("a")
        run(system, "resume: a\nacknowledge: {request: a, version: latest}\ngate: {stream: exec, as: g}")
        run(system, f"fail_copy: {{direction: offload, queued: {str(queued).lower()}}}")
        before = system.observe()
        assert apply(system, "enter_decode: a").error is ErrorKind.COPY_FAILED
        after = system.observe()
        assert after.requests["a"].phase == before.requests["a"].phase
        assert after.requests["a"].dirty is queued
        assert after.pages[0].ready.pending is queued
        assert any(fence.pending for fence in after.pools[Level.HOST, "main"].fences) is queued
        assert (after.lifetime, after.copy_calls) == (before.lifetime, before.copy_calls)
        assert run(system, "enter_decode: a").value is True  # a fault strikes once


def test_a_commit_that_fails_keeps_the_blocks_before() -> None:
    system = shared("", gpu=3, host=2)
    run(system, "seed_prefix: {tokens: [9, 9, 9, 9, 8, 8, 8, 8], level: host}\nclear_reusable")
    run(system, "seed_prefix: {tokens: [1, 1, 1, 1], level: gpu}\nseed_prefix: {tokens: [1, 1, 1, 1, 2, 2, 2, 2], level: host}")
    run(system, "create: {request: a}\nresume: a\nresize: {request: a, capacity: 8, history: 8}")
    run(system, "fail_copy: {direction: onboard}")
    outcome = apply(system, "commit: {request: a, tokens: [1, 1, 1, 1, 2, 2, 2, 2]}")
    seen = system.observe().requests["a"]
    assert (outcome.error, seen.committed, seen.history) == (ErrorKind.COPY_FAILED, 4, 8)
    run(system, "commit: {request: a, tokens: [2, 2, 2, 2]}")
    assert system.observe().requests["a"].committed == 8
