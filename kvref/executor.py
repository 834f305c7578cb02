"""The executor's side: one iteration, and the admission of a request to generation (R11.1, R11.2, R11.5)."""

from __future__ import annotations

from kvref.all_or_nothing import part
from kvref.batch import no_capture
from kvref.failure import invalid, logic
from kvref.growth import enter_decode, resize
from kvref.lookup import any_request, live, need_stream, open_batch
from kvref.pages import let_go
from kvref.publication import publication
from kvref.queries import buffer, dense_offsets
from kvref.reads import read_of, record_table_read, table_group
from kvref.requests import resume
from kvref.state import Batch, State, batch_of, put_request
from kvref.values import replace
from kvspec import ops


def admit_generation(state: State, op: ops.AdmitGeneration) -> tuple[State, bool]:
    """R11.2: an active request enters decode, a suspended one resumes with decode; false means not now."""
    if live(state, op.request).active:
        return enter_decode(state, ops.EnterDecode(request=op.request))
    return resume(state, ops.Resume(request=op.request, decode=True))


def iterate(state: State, op: ops.Iterate) -> tuple[State, dict[str, str]]:
    """R11.1: prepare every scheduled request, ask the connector, publish once, build offsets, read, and record the read.

    R11.4: the dense offsets come after the publication, which may have moved pages.

    Returns by request whether it ran, waits (it does not fit), or was refused by the connector. An error in preparing is raised
    at once; what was prepared before stays.
    """
    batch = check(state, op)
    outcomes: dict[str, str] = {}
    before = {s.request: state.requests[s.request].capacity for s in op.requests}
    for scheduled in op.requests:
        state, fitted = prepare(state, scheduled)
        outcomes[scheduled.request] = "ran" if fitted and scheduled.accept else "refused" if fitted else "waiting"
    for name, what in outcomes.items():
        if what != "ran":
            state = give_back(state, name, before[name])
    state, _ = part(state, lambda s: publication(s, batch, op.stream))
    if op.layers:
        running = tuple(name for name, what in outcomes.items() if what == "ran")
        offsets = ops.DenseOffsets(batch=op.batch, requests=running, layers=op.layers)
        state, _ = part(state, lambda s: dense_offsets(s, offsets))
    batch = state.batches[batch.uid]
    if state.layout.attention:
        table = 0 if op.group is None else table_group(state, op.group)
        state, read = read_of(state, batch, table, op.stream)
        if op.as_ is not None:
            state = replace(state, reads=state.reads.set(op.as_, read))
    return record_table_read(state, batch, op.stream), outcomes


def check(state: State, op: ops.Iterate) -> Batch:
    """R11.1: what needs no action, over all scheduled requests."""
    batch = open_batch(state, op.batch)
    requests = [any_request(state, s.request) for s in op.requests]
    for r in requests:
        live(state, r.name)
    need_stream(state, op.stream)
    if op.group is not None:
        table_group(state, op.group)
    for layer in op.layers:
        buffer(state, layer)
    names = [r.name for r in requests]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"request {name!r} is scheduled twice: name it once")
    for r in requests:
        member = batch_of(state, r)
        if member is None or member.uid != batch.uid:
            raise logic(f"request {r.name!r} is not a member of batch {batch.name!r}: add it first")
    no_capture(state, "iterate")
    return batch


def prepare(state: State, scheduled: ops.Scheduled) -> tuple[State, bool]:
    """R11.1: resume, resize, enter decode, as far as each is needed; false where one is. R3.14 holds for each by itself."""
    name = scheduled.request
    if not state.requests[name].active:
        state, fitted = part(state, lambda s: resume(s, ops.Resume(request=name, decode=scheduled.decode or None)))
        if not fitted:
            return state, False
    if (scheduled.capacity, scheduled.history) != (None, None):
        wanted = ops.Resize(request=name, capacity=scheduled.capacity, history=scheduled.history)
        state, fitted = part(state, lambda s: resize(s, wanted))
        if not fitted:
            return state, False
    if scheduled.decode and not state.requests[name].decoding:
        return part(state, lambda s: enter_decode(s, ops.EnterDecode(request=name)))
    return state, True


def give_back(state: State, name: str, capacity: int) -> State:
    """R11.5: give back what was grown for a request that does not run: not below its history."""
    r = state.requests[name]
    kept = max(capacity, r.history)
    if kept >= r.capacity:
        return state
    tail = [k for k in r.pages if not state.layout.groups[k[0]].ssm and k[1] >= state.layout.blocks(kept)]
    state = let_go(state, r, tail)
    return put_request(state, replace(state.requests[name], capacity=kept))
