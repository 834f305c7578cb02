"""One operation: from a state to the next, and its outcome. What holds for every operation is here, and only here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kvref.batch as batch
import kvref.commit as commit
import kvref.device as device
import kvref.executor as executor
import kvref.fetch as fetch
import kvref.growth as growth
import kvref.pools as pools
import kvref.publication as publication
import kvref.queries as queries
import kvref.reads as reads
import kvref.requests as requests
from kvref.cached import Slot
from kvref.failure import Failure
from kvref.layout import layout
from kvref.maps import Map
from kvref.order import NOTHING, Stream
from kvref.pages import renew
from kvref.state import State, Trace
from kvref.values import replace
from kvref.versions import settle
from kvref.why import message
from kvspec import ops
from kvspec.observation import Counters, GroupCounters
from kvspec.system import Outcome, Setup, Value

OPERATIONS: dict[type[ops.Operation], Callable[[State, Any], tuple[State, Value]]] = {
    ops.Create: requests.create,
    ops.Resume: requests.resume,
    ops.Resize: growth.resize,
    ops.EnterDecode: growth.enter_decode,
    ops.AdmitGeneration: executor.admit_generation,
    ops.Commit: commit.commit,
    ops.StopCommitting: commit.stop_committing,
    ops.Suspend: requests.suspend,
    ops.Close: requests.close,
    ops.Prefetch: requests.prefetch,
    ops.Offload: growth.bare_offload,
    ops.SetBeamWidth: growth.set_beam_width,
    ops.SetStream: requests.set_stream,
    ops.Write: growth.write,
    ops.Acknowledge: requests.acknowledge,
    ops.TakeSnapshot: requests.take_snapshot,
    ops.WaitSnapshot: requests.wait_snapshot,
    ops.BindRow: requests.bind_row,
    ops.IsSparse: queries.is_sparse,
    ops.PageIndexScale: queries.page_index_scale,
    ops.SeedPrefix: pools.seed_prefix,
    ops.Evict: pools.evict_pages,
    ops.ClearReusable: pools.clear_reusable,
    ops.TakeSlots: pools.take_slots,
    ops.GiveSlots: pools.give_slots,
    ops.MakeBatch: batch.make_batch,
    ops.Add: batch.add,
    ops.Remove: batch.remove,
    ops.Publish: publication.publish,
    ops.WaitReady: publication.wait_ready,
    ops.RecordRead: reads.record_read,
    ops.ResizeBatch: publication.resize_batch,
    ops.CloseBatch: batch.close_batch,
    ops.ReadPage: reads.read_page,
    ops.ReadTable: reads.read_table,
    ops.Fetch: fetch.fetch,
    ops.CloseGate: device.close_gate,
    ops.OpenGate: device.open_gate,
    ops.FailCopy: device.fail_copy,
    ops.BeginCapture: device.begin_capture,
    ops.EndCapture: device.end_capture,
    ops.Replay: device.replay,
    ops.DenseOffsets: queries.dense_offsets,
    ops.Iterate: executor.iterate,
    ops.Stats: queries.stats,
    ops.Sync: device.sync,
}
"""The function of each operation."""


def initial(setup: Setup) -> State:
    """The state of a new manager: every slot free. Raises ``ValueError`` for a configuration that cannot be (R1.2)."""
    made = layout(setup.manager)
    zero = Counters(Map({g.name: GroupCounters() for g in made.groups}))
    free = {(level, pool): tuple(Slot(i, NOTHING) for i in range(made.slots[level][pool])) for level, pool in made.pool_groups()}
    return State(made, zero, zero, Map(free), Map({name: Stream() for name in setup.streams}))


def step(state: State, op: ops.Operation) -> tuple[State, Outcome]:
    """Carry out an operation.

    After an error the state is as before, but for what the failure says stays (section 9). Then versions are made newer (R6.4)
    and pages that left LOCKED renewed in the eviction order (R10.2), by comparing the start with the end. The message of an
    outcome that is false, or a match that is not longer, says why; ``trace.why`` of the state has the same as values.
    """
    before = replace(state, trace=Trace())
    try:
        after, value = OPERATIONS[type(op)](before, op)
        outcome = Outcome(value, message=message(op, after.trace.why))
    except Failure as failure:
        after = failure.state or before
        outcome = Outcome.failed(failure.kind, failure.message)
    after = fetch.counted(settle(renew(before, after)))
    return replace(after, step=state.step + 1, trace=Trace(after.trace.events, why=after.trace.why)), outcome
