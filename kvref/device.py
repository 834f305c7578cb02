"""Gates, captures and faults (R4.8, R8.8)."""

from __future__ import annotations

from kvref.cached import Captured, CapturedFetch
from kvref.failure import logic, out_of_range
from kvref.fetch import before_fetch, check_numbers, check_rows, replay_fetch
from kvref.lookup import any_request, need_no_capture, need_stream
from kvref.order import Work, pending
from kvref.pages import follow, submit_visible
from kvref.reads import read_of
from kvref.state import Capture, Fault, Read, State, fresh
from kvref.values import replace
from kvspec import ops


def close_gate(state: State, op: ops.CloseGate) -> tuple[State, None]:
    """Hold a stream: what is submitted to it from now on is behind the gate."""
    need_stream(state, op.stream)
    if op.as_ in state.gates:
        raise logic(f"gate {op.as_!r} is closed already: open it first, or choose another label")
    need_no_capture(state, op.stream)
    state, gate = fresh(state)
    state, _ = submit_visible(state, op.stream, Work(frozenset({gate})))
    return replace(state, gates=state.gates.set(op.as_, gate)), None


def open_gate(state: State, op: ops.OpenGate) -> tuple[State, None]:
    """Open a gate: nothing is behind it any more."""
    if op.as_ not in state.gates:
        raise out_of_range(f"no closed gate {op.as_!r}: the closed ones are {', '.join(state.gates) or 'none'}")
    return replace(state, gates=state.gates.without(op.as_)), None


def begin_capture(state: State, op: ops.BeginCapture) -> tuple[State, None]:
    """R8.8: begin a graph capture."""
    need_stream(state, op.stream)
    if state.capture is not None:
        raise logic(f"a capture runs on stream {state.capture.stream!r} already: end it first")
    return replace(state, capture=Capture(op.stream)), None


def end_capture(state: State, op: ops.EndCapture) -> tuple[State, None]:
    """R8.8: end the capture and keep the graph."""
    need_stream(state, op.stream)
    if state.capture is None:
        raise logic("no capture runs: begin one first")
    if state.capture.stream != op.stream:
        raise logic(f"the capture runs on stream {state.capture.stream!r}, not on {op.stream!r}")
    return replace(state, capture=None, graphs=state.graphs.set(op.as_, state.capture.reads)), None


def replay(state: State, op: ops.Replay) -> tuple[State, None]:
    """R8.8: replay a graph: each captured read sees what was last published; the last one is kept under the label."""
    if op.graph not in state.graphs:
        raise out_of_range(f"no graph {op.graph!r}: capture it first")
    for name in op.select or ():
        any_request(state, name)
    need_stream(state, op.stream)
    parts = state.graphs[op.graph]
    check_numbers(state, parts, op.select)
    need_no_capture(state, op.stream)
    check_rows(state, parts, op.select)
    state = before_graph(state, parts, op.stream)
    read = Read(state.streams[op.stream].last)
    for part in parts:
        if isinstance(part, CapturedFetch):
            state = replay_fetch(state, part, op.select or {}, op.stream)
        else:
            state, read = read_of(state, state.batches[part[0]], part[1], op.stream)
    return replace(state, reads=state.reads.set(op.as_, read)), None


def before_graph(state: State, parts: tuple[Captured, ...], stream: str) -> State:
    """R15.8: a graph with a fetch runs, as a whole, after all that its fetches and table reads run after."""
    fetches = [part for part in parts if isinstance(part, CapturedFetch)]
    if not fetches:
        return state
    reads = [part for part in parts if not isinstance(part, CapturedFetch)]
    before = [before_fetch(state, state.batches[part.batch], part.layer) for part in fetches]
    return follow(state, stream, *before, *(state.batches[uid].uploads[-1].work for uid, _ in reads))


def sync(state: State, op: ops.Sync) -> tuple[State, None]:
    """Wait on the CPU for streams. Behind a closed gate that would never end."""
    if op.stream is not None:
        need_stream(state, op.stream)
    for name in state.streams if op.stream is None else (op.stream,):
        need_no_capture(state, name)
        if pending(state.streams[name].last, state.gates):
            raise logic(f"stream {name!r} is behind a closed gate: open it before sync")
    return state, None


def fail_copy(state: State, op: ops.FailCopy) -> tuple[State, None]:
    """R4.8: have a later submission of a direction refused."""
    return replace(state, faults=(*state.faults, Fault(op.direction, op.call, op.queued))), None
