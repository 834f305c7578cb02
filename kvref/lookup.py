"""Names to things, with the errors of section 9 (R3.13)."""

from __future__ import annotations

from collections.abc import Iterable

from kvref.failure import invalid, logic, out_of_range
from kvref.layout import PoolGroup
from kvref.state import Batch, Request, State
from kvspec import ops
from kvspec.config import Level
from kvspec.observation import RequestStatus


def any_request(state: State, name: str) -> Request:
    """The request of this name, closed or not (R3.13)."""
    if name not in state.requests:
        raise out_of_range(f"no request {name!r}: create it first")
    return state.requests[name]


def live(state: State, name: str) -> Request:
    """The request of this name, not closed (R3.13)."""
    r = any_request(state, name)
    if r.status is RequestStatus.CLOSED:
        raise logic(f"request {name!r} is closed: create it anew")
    return r


def need_active(r: Request) -> None:
    """R3.13: a call that only an active request allows."""
    if not r.active:
        raise logic(f"request {r.name!r} is suspended: resume it first")


def need_stream(state: State, name: str) -> None:
    """An unknown stream is out of range (section 9)."""
    if name not in state.streams:
        raise out_of_range(f"no stream {name!r}: the streams are {', '.join(state.streams)}")


def need_no_capture(state: State, stream: str) -> None:
    """R8.8: a stream in capture takes captured reads alone."""
    if state.capture is not None and state.capture.stream == stream:
        raise logic(f"stream {stream!r} is in capture: end the capture first")


def open_batch(state: State, name: str) -> Batch:
    """The open batch of this name (R8.2)."""
    b = any_batch(state, name)
    if not b.open:
        raise logic(f"batch {name!r} is closed: make a new one")
    return b


def any_batch(state: State, name: str) -> Batch:
    """The newest batch of this name, open or closed."""
    found = [b for b in state.batches.values() if b.name == name]
    if not found:
        raise out_of_range(f"no batch {name!r}: make it first")
    return found[-1]


def group_index(state: State, name: str) -> int:
    """The layer group of this name."""
    names = [g.name for g in state.layout.groups]
    if name not in names:
        raise out_of_range(f"no layer group {name!r}: the groups are {', '.join(names)}")
    return names.index(name)


def group_indices(state: State, names: Iterable[str] | None) -> tuple[int, ...]:
    """The layer groups of these names, each once; all if none are given."""
    if names is None:
        return tuple(range(len(state.layout.groups)))
    return tuple(dict.fromkeys(group_index(state, name) for name in names))


def only_group(state: State, name: str | None, among: Iterable[int]) -> int:
    """The layer group of this name; without a name, the one there is among ``among``."""
    if name is not None:
        return group_index(state, name)
    indices = tuple(among)
    if len(indices) != 1:
        raise invalid(f"name the group: there are {len(indices)} to choose from")
    return indices[0]


def need_level(state: State, level: Level) -> None:
    """A level that the manager does not have can never be right (R3.11, R10.5)."""
    if level not in state.layout.levels:
        raise invalid(f"the manager has no level {level.label}: it has {', '.join(known.label for known in state.layout.levels)}")


def pool_group(state: State, level: Level, name: str | None) -> PoolGroup:
    """The pool group of a level that serves a layer group; without a name, the one there is (R10.5)."""
    group = None if name is None else group_index(state, name)
    need_level(state, level)
    if group is not None:
        return state.layout.pool_group(level, group)
    if len(state.layout.slots[level]) > 1:
        raise invalid(
            f"level {level.label} has {len(state.layout.slots[level])} pool groups: name a group that the wanted one serves"
        )
    return level, 0


def need_tokens(tokens: Iterable[int]) -> None:
    """R3.9: tokens are integers >= 0."""
    for token in tokens:
        if token < 0:
            raise invalid(f"token {token} is negative: tokens are integers >= 0")


def need_key(key: str | None) -> None:
    """R2.7: a key is a text with something in it."""
    if key is not None and not (isinstance(key, str) and key):
        raise invalid(f"key {key!r}: expected a text that is not empty")


def need_spans(spans: Iterable[ops.Span], tokens: int) -> None:
    """R2.7: spans follow one another, none is empty or beyond the tokens, and each has a key."""
    behind = 0
    for span in spans:
        if not behind <= span.start < span.end <= tokens:
            raise invalid(
                f"span from {span.start} to {span.end}: expected one of at least a token, from {behind} on, up to {tokens} tokens"
            )
        need_key(span.key)
        behind = span.end


def need_blocks(blocks: Iterable[int]) -> None:
    """R2.1, R4.9: a negative block can never be right."""
    for block in blocks:
        if block < 0:
            raise invalid(f"block {block} is negative: blocks count from 0")
