"""States are values: hashable, comparable, and never changed by an operation; the model needs no array library (architecture)."""

from __future__ import annotations

import subprocess
import sys

from kvref.maps import Map
from kvref.observe import observe
from kvref.order import Work, join, pending
from tests.kvref.driving import apply, reference, run

MANAGER = """
tokens_per_block: 4
levels: [{kind: gpu, slots: 6}, {kind: host, slots: 4}]
layers:
  - {name: main, buffers: [{role: key, bytes: 64, sparse: true}]}
  - {name: near, sliding_window: 4, buffers: [{role: key, bytes: 64}]}
"""
STEPS = """
gate: {stream: side, as: g}
create: {request: a}
resume: {request: a, stream: side}
resize: {request: a, capacity: 12, history: 8}
batch: {name: rows, rows: 1, blocks: 3}
add: {batch: rows, request: a}
publish: rows
commit: {request: a, tokens: [1, 2, 3, 4, 5]}
enter_decode: a
publish: rows
snapshot: {request: a, group: main, as: s}
"""


def test_equal_histories_give_equal_states_and_different_ones_do_not() -> None:
    first, second = reference(MANAGER, "side"), reference(MANAGER, "side")
    seen = set()
    for line in filter(None, STEPS.splitlines()):
        run(first, line)
        run(second, line)
        assert first.state == second.state
        assert hash(first.state) == hash(second.state)
        seen.add(first.state)
    assert len(seen) == len(STEPS.strip().splitlines())


def test_an_error_leaves_the_state_that_it_was_called_in() -> None:
    system = reference(MANAGER, "side")
    run(system, STEPS)
    before = system.state
    kept = hash(before)
    for bad in ("resize: {request: a, history: 4}", "commit: {request: a, tokens: [-1]}", "resume: a", "close: nobody"):
        assert apply(system, bad).error is not None
        assert system.observe().requests == observe(before).requests
        assert system.observe().pages == observe(before).pages
    assert hash(before) == kept


def test_join_is_the_least_order_behind_both() -> None:
    a, b = Work(frozenset({1}), Map({"x": 2, "y": 5})), Work(frozenset({2}), Map({"x": 3}))
    assert join(a, b) == Work(frozenset({1, 2}), Map({"x": 3, "y": 5}))
    assert pending(a, Map({"g": 1})) and not pending(b, Map({"g": 1}))


def test_a_table_lags_behind_a_gate_and_catches_up_when_it_opens() -> None:
    system = reference(MANAGER, "side")
    run(system, STEPS)
    rows = system.observe().batches["rows"]
    assert rows.upload.gates == {"g"}
    assert rows.device["main"].num_blocks == (0,)  # still what was published before decode
    assert rows.published["main"].num_blocks == (2,)
    assert rows.staging == 2
    run(system, "open: g")
    rows = system.observe().batches["rows"]
    assert rows.device == rows.published
    assert not rows.upload.pending


def test_the_reference_imports_no_arrays_and_no_other_system() -> None:
    code = "import sys, kvref.system; print(*{m.split('.')[0] for m in sys.modules})"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kvref" in imported
    assert not {"numpy", "numba", "torch", "kvgpu"}.intersection(imported)
