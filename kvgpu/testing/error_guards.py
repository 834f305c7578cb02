"""The named breaks of the order of errors (section 9): something is looked at before its turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kvgpu.adapter import apply
from kvgpu.errors import LogicError
from kvgpu.manager import Manager
from kvgpu.operations import bare_offload
from kvgpu.testing.patches import Break, Patch, on, replaced
from kvspec import ops


def _first(verb: type[ops.Operation], look: Callable[[Any, Any], object]) -> Patch:
    """Before a verb is carried out, something is looked at that has its turn later."""

    def handlers(old: Any) -> Any:
        def handle(run: Any, op: Any) -> Any:
            look(run, op)
            return old[verb](run, op)

        return {**old, verb: handle}

    return partial(replaced, apply, "HANDLERS", handlers)


def _groups_of_no_block(old: Any) -> Any:
    def offload(core: Any, request: Any, blocks: Any, groups: Any) -> None:
        old(core, request, blocks, groups)
        if not all(request.sparse[group] for group in groups or ()):
            raise LogicError("a group is dense")

    return offload


def _something_is_written(old: Any) -> Any:
    def writable(self: Any, request: Any, blocks: Any, groups: Any = None) -> Any:
        found = old(self, request, blocks, groups)
        if blocks and not found:
            raise LogicError("no page is mapped there")
        return found

    return writable


ERROR_GUARDS: tuple[Break, ...] = (
    (
        "R11.3 the requests of dense offsets are looked up before their batch",
        "R11.3",
        _first(ops.DenseOffsets, lambda run, op: [run.names.request(name) for name in op.requests]),
    ),
    (
        "R11.3 of the requests of dense offsets all are known before one is found closed",
        "R11.3",
        _first(ops.DenseOffsets, lambda run, op: run.names.batch(op.batch) and [run.names.request(one) for one in op.requests]),
    ),
    (
        "R8.2 a request is looked up before the batch that it is added to",
        "R8.2",
        _first(ops.Add, lambda run, op: run.names.request(op.request)),
    ),
    (
        "R8.2 a request is looked up before the batch that it leaves",
        "R8.2",
        _first(ops.Remove, lambda run, op: run.names.request(op.request)),
    ),
    (
        "R8.7 a table's group is looked up before the stream",
        "R8.7",
        _first(ops.ReadTable, lambda run, op: run.names.batch(op.batch) and run.names.group(op.group)),
    ),
    (
        "R3.13 a page's group is looked up before the stream",
        "R3.13",
        _first(ops.ReadPage, lambda run, op: run.names.live(op.request) and run.names.group(op.group)),
    ),
    (
        "R4.9 an offload of no block asks whether its groups are sparse",
        "R4.9",
        on(bare_offload.offload_blocks, _groups_of_no_block),
    ),
    (
        "R2.1 a write that finds no page to write is an error",
        "R2.1",
        on(Manager.writable, _something_is_written),
    ),
)
