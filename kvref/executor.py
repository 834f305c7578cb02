"""The executor's side: one iteration, and the admission of a request to generation (R11.1, R11.2, R11.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvref.batch import no_capture
from kvref.failure import Failure, invalid, logic
from kvref.growth import enter_decode, resize
from kvref.lookup import any_request, live, need_stream, open_batch
from kvref.pages import let_go, next_part, renew
from kvref.publication import publication
from kvref.queries import buffer, dense_offsets
from kvref.reads import read_of, record_table_read, table_group
from kvref.requests import resume
from kvref.state import Batch, State, batch_of, put_request
from kvref.values import replace
from kvspec import ops

Step = Callable[[State, Any], tuple[State, bool]]


def admit_generation(state: State, op: ops.AdmitGeneration) -> tuple[State, bool]:
    """R11.2: an active request enters decode, a suspended one resumes with decode; false means not now."""
    if live(state, op.request).active:
        return enter_decode(state, ops.EnterDecode(request=op.request))
    return resume(state, ops.Resume(request=op.request, decode=True))


def iterate(state: State, op: ops.Iterate) -> tuple[State, dict[str, str]]:
    """R11.1: prepare every scheduled request, ask the connector, publish once, build offsets, read, and record the read.

    Returns by request whether it ran, waits (it does not fit), or was refused by the connector. An error in preparing is raised
    at once; what was prepared before stays.
    """
    batch = check(state, op)
    fared: dict[str, str] = {}
    before = {s.request: state.requests[s.request].capacity for s in op.requests}
    for scheduled in op.requests:
        state, fits = prepare(state, scheduled)
        fared[scheduled.request] = "ran" if fits and scheduled.accept else "refused" if fits else "waiting"
    for name, what in fared.items():
        if what != "ran":
            state = give_back(state, name, before[name])
    state, _ = after(next_part(state), lambda s: publication(s, batch, op.stream))
    if op.layers:
        running = tuple(name for name, what in fared.items() if what == "ran")
        offsets = ops.DenseOffsets(batch=op.batch, requests=running, layers=op.layers)
        state, _ = after(state, lambda s: dense_offsets(s, offsets))
    batch = state.batches[batch.uid]
    if state.layout.attention:
        table = 0 if op.group is None else table_group(state, op.group)
        state, read = read_of(state, batch, table, op.stream)
        if op.as_ is not None:
            state = replace(state, reads=state.reads.set(op.as_, read))
    return record_table_read(state, batch, op.stream), fared


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
        state, fits = alone(state, resume, ops.Resume(request=name, decode=scheduled.decode or None))
        if not fits:
            return state, False
    if (scheduled.capacity, scheduled.history) != (None, None):
        wanted = ops.Resize(request=name, capacity=scheduled.capacity, history=scheduled.history)
        state, fits = alone(state, resize, wanted)
        if not fits:
            return state, False
    if scheduled.decode and not state.requests[name].decoding:
        return alone(state, enter_decode, ops.EnterDecode(request=name))
    return state, True


def alone(state: State, operation: Step, op: ops.Operation) -> tuple[State, bool]:
    """An operation inside an iteration, by itself: what has left LOCKED has left it before the next (R10.2)."""
    state = next_part(state)
    done, value = after(state, lambda s: operation(s, op))
    return renew(state, done), value


def after(state: State, operation: Callable[[State], tuple[State, Any]]) -> tuple[State, Any]:
    """A part of an iteration; if it fails, what was done before it stays."""
    try:
        return operation(state)
    except Failure as failure:
        raise Failure(failure.kind, failure.message, failure.state or state) from None


def give_back(state: State, name: str, capacity: int) -> State:
    """R11.5: give back what was grown for a request that does not run: not below its history."""
    r = state.requests[name]
    kept = max(capacity, r.history)
    if kept >= r.capacity:
        return state
    tail = [k for k in r.pages if not state.layout.groups[k[0]].ssm and k[1] >= state.layout.blocks(kept)]
    state = let_go(state, r, tail)
    return put_request(state, replace(state.requests[name], capacity=kept))
