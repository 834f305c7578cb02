"""The life of a request: create, resume, suspend, close, prefetch, and its stream, row and versions (sections 3 and 6)."""

from __future__ import annotations

from functools import partial

from kvref.all_or_nothing import attempt, because, fits
from kvref.commit import finish
from kvref.copies import copy_private
from kvref.eviction import act, make_room, new_plan, use
from kvref.failure import NoRoom, invalid, logic, out_of_range
from kvref.lookup import any_request, live, need_key, need_level, need_spans, need_stream, need_tokens, only_group
from kvref.maps import Map
from kvref.needs import adopt, bring, cold, needs_of
from kvref.offload import offload, offload_of, plan_offload
from kvref.order import Work
from kvref.pages import behind, follow, let_go, new_page
from kvref.policies.copy_at import by_create
from kvref.policies.match_renews import matched
from kvref.policies.suspend import suspended
from kvref.reserving import give_back, reserve, reserved_pools
from kvref.state import Key, Request, State, batch_of, fresh, mapped, mark_newer, put_request, snapshot
from kvref.tree import Match, match, matched_pages, shorter, usable
from kvref.values import replace
from kvref.why import InUse, NotNewest
from kvspec import ops
from kvspec.config import Level
from kvspec.observation import Phase, RequestStatus
from kvspec.tokens import Token, keyed


def create(state: State, op: ops.Create) -> tuple[State, int]:
    """R3.1: make a request, match its tokens, and hold what was matched. Returns the matched tokens."""
    prompt = op.prompt_length or 0
    if prompt < 0 or prompt % state.layout.tpb:
        raise invalid(
            f"prompt_length {prompt}: expected a multiple of tokens_per_block ({state.layout.tpb}) that is not negative"
        )
    need_tokens(op.tokens or ())
    need_key(op.key)
    need_spans(op.spans, len(op.tokens or ()))
    tokens = keyed(op.tokens or (), op.key, spans=op.spans)  # R2.7
    if op.request in state.requests and state.requests[op.request].status is not RequestStatus.CLOSED:
        raise logic(f"request {op.request!r} exists: close it first, or choose another name")
    for found in usable(state, tokens):
        try:
            made = attempt(state, partial(hold_match, op=op, tokens=tokens, found=found))
        except NoRoom:  # policy copy_at: the copy finds no room, so that the match is a shorter one
            continue
        length = found[1]
        return because(made, op.request, shorter(state, tokens, found)) if length < len(tokens) else made, length
    raise AssertionError("the empty match needs no room")


def hold_match(state: State, op: ops.Create, tokens: tuple[Token, ...], found: Match) -> State:
    """R3.1: a new request that holds what its tokens match. Raises `NoRoom`, `Refused`, where it makes the copies of R3.4."""
    state, uid = fresh(state)
    r = Request(op.request, uid, op.priority, op.prompt_length or 0, op.key, (), (), Map(), 0, 0)
    state = with_match(state, r, tokens, found)
    r = state.requests[r.name]
    held = mapped(state, r)
    copies = [(p, k) for k, p in held.items() if unfinished(state, r, k) and not state.layout.groups[k[0]].ssm]
    if not (copies and by_create(state)):
        return state
    state = make_room(state, [state.layout.pool_group(Level.GPU, k[0]) for _, k in copies], held.values())
    state = copy_private(state, r, copies)
    return put_request(state, replace(state.requests[r.name], copied=True))


def with_match(state: State, r: Request, tokens: tuple[Token, ...], found: Match) -> State:
    """The state in which a request that has nothing holds what its tokens match (R3.1)."""
    nodes, length = found
    pages = matched_pages(state, found)
    r = replace(r, tokens=tokens[:length], path=nodes[: length // state.layout.tpb], pages=Map(pages))
    return matched(put_request(state, replace(r, capacity=length, history=length)), pages.values())


def match_again(state: State, r: Request) -> State:
    """R3.10, policy ``suspend``: a request that let go of everything matches its tokens anew, as one never resumed."""
    if r.again is None:
        return state
    anew = replace(r, again=None, resumed=False, copied=False)
    return with_match(state, anew, r.again, match(state, r.again))


def unfinished(state: State, r: Request, key: Key) -> bool:
    """R3.4, R1.3: whether a held page is one that the first resume copies: the partly matched block, a matched SSM snapshot."""
    last = len(r.tokens) % state.layout.tpb != 0 and key[1] == len(r.path)
    return not r.resumed and ((last and not r.copied) or state.layout.groups[key[0]].ssm)


def change_stream(state: State, r: Request, stream: str | None) -> State:
    """R7.8: give a request a stream, ordered after the old one."""
    if stream is None or stream == r.stream:
        return state
    if r.stream is not None:
        state = follow(state, stream, state.streams[r.stream].last)
    return put_request(state, replace(r, stream=stream))


def resume(state: State, op: ops.Resume) -> tuple[State, bool]:
    """R3.2: suspended to active; false when it does not fit (R3.5). A stream given stays set."""
    r = live(state, op.request)
    stream = op.stream
    if stream == "default":
        stream = "exec" if r.stream is None else None
    if stream is not None:
        need_stream(state, stream)
    if stream is None and r.stream is None:
        raise invalid(f"request {r.name!r} has no stream yet: give one at its first resume")
    if op.decode is False and r.decoding:
        raise invalid(f"request {r.name!r} is decoding, which is for good: resume it with decode: true, or without")
    if r.active:
        raise logic(f"request {r.name!r} is active already")
    base = change_stream(state, r, stream)

    def acting(s: State) -> State:
        s = match_again(s, s.requests[r.name])
        return activate(s, s.requests[r.name], r.decoding or bool(op.decode), again=r.resumed)

    return fits(base, r.name, acting)


def activate(state: State, r: Request, decode: bool, *, again: bool) -> State:
    """R3.2-R3.5: lock every block that is not stale where it has to be, then offload (R4.3, R4.7). Raises `NoRoom`, `Refused`.

    ``again``: it was resumed before.
    """
    for used, slots in use(state, r):
        if used / slots > state.layout.max_util:
            raise NoRoom(InUse(used, slots, state.layout.max_util))  # R3.5
    state = adopt(state, r, {k: p for k, p in mapped(state, r).items() if not unfinished(state, r, k)})
    held = mapped(state, r)
    matched = [k for k in held if unfinished(state, r, k)]
    states = [(g.index, 0, 0) for g in state.layout.groups if g.ssm and (g.index, 0, 0) not in held]  # R1.3: fresh
    needs = needs_of(state, r, held, decode, matched=matched)
    # R4.2: the request that is entering decode counts as decoding.
    locked = replace(r, status=RequestStatus.ACTIVE, phase=Phase.DECODE if decode else r.phase, resumed=True)
    work = offload_of(put_request(state, locked), locked, () if r.decoding else None)
    pools = [*(state.layout.pool_group(Level.GPU, key[0]) for key in states), *needs.pools(state)]
    pools += reserved_pools(state, locked)
    plan, chosen = plan_offload(state, new_plan(state, needs.pinned), work, pools)

    state = reserve(act(state, plan), locked)
    after: list[Work] = []
    for key in states:
        state, page, fence = new_page(state, key, Level.GPU, r.priority)
        r = state.requests[r.name]
        state = put_request(state, replace(r, pages=r.pages.set(key, page.id)))
        after.append(fence)
    state = bring(state, r, needs)
    if again:  # R13.1: only of a request resumed before
        state = replace(state, counters=replace(state.counters, resumes=state.counters.resumes + 1))
    r = state.requests[r.name]
    r = replace(r, status=locked.status, phase=locked.phase, resumed=True)
    state = put_request(state, r)
    after.append(behind(mapped(state, r).values()))
    return follow(offload(state, chosen), r.stream, *after)  # R7.9: neither waits for the other


def suspend(state: State, op: ops.Suspend) -> tuple[State, None]:
    """R3.10: locks become holds; the row stays."""
    r = live(state, op.request)
    if not r.active:
        raise logic(f"request {r.name!r} is suspended already")
    state = replace(state, counters=replace(state.counters, suspends=state.counters.suspends + 1))
    return give_back(suspended(state, r), r.name), None


def close(state: State, op: ops.Close) -> tuple[State, None]:
    """R3.10: stop committing, with a partial block of committed tokens into the tree; release everything; leave the row."""
    r = any_request(state, op.request)
    if r.status is RequestStatus.CLOSED:
        return state, None
    state = finish(state, r, enter_rest=True)
    r = state.requests[r.name]
    state = give_back(let_go(state, r, r.pages), r.name)
    batch = batch_of(state, r)
    if batch is not None:
        rows = tuple(None if name == r.name else name for name in batch.rows)
        state = replace(state, batches=state.batches.set(batch.uid, replace(batch, rows=rows)))
    return put_request(state, closed(state.requests[r.name])), None


NO_PAGES: Map[Key, int] = Map()


def closed(r: Request) -> Request:
    """R3.10: a request that has let go of everything, with what it still answers."""
    r = replace(r, status=RequestStatus.CLOSED, closed_with=r.committed)
    return replace(r, key=None, tokens=(), path=(), pages=NO_PAGES, stream=None, row=None)


def prefetch(state: State, op: ops.Prefetch) -> tuple[State, bool]:
    """R3.11: bring a suspended request's pages up to the colder of a level and where R3.2 would lock them."""
    r = live(state, op.request)
    level = op.level.level
    need_level(state, level)
    if r.active:
        raise logic(f"request {r.name!r} is active: only a suspended one is prefetched")
    held = {k: p for k, p in mapped(state, r).items() if not unfinished(state, r, k)}

    def acting(s: State) -> State:
        if level is Level.GPU:
            s = adopt(s, r, {k: p for k, p in held.items() if not cold(s, r, p, r.decoding)})
        needs = needs_of(s, r, {k: s.pages[p.id] for k, p in held.items()}, r.decoding, level)
        return bring(make_room(s, needs.pools(s), (*mapped(s, r).values(), *needs.pinned)), r, needs)

    return fits(state, r.name, acting)


def set_stream(state: State, op: ops.SetStream) -> tuple[State, None]:
    """R7.8: change the request's stream."""
    r = live(state, op.request)
    need_stream(state, op.stream)
    return change_stream(state, r, op.stream), None


def acknowledge(state: State, op: ops.Acknowledge) -> tuple[State, bool]:
    """R6.5: counts only if it is the newest version, and says whether it did."""
    r = live(state, op.request)
    if op.version != "latest" and op.version not in state.labels:
        raise out_of_range(f"no snapshot {op.version!r}: take it first, or acknowledge 'latest'")
    if op.version != "latest" and state.labels[op.version].version != r.version:
        return because(state, r.name, NotNewest(op.version)), False
    return put_request(state, replace(r, acknowledged=r.version)), True


def take_snapshot(state: State, op: ops.TakeSnapshot) -> tuple[State, None]:
    """R6.1: keep a snapshot under a label. Also of a closed request."""
    r = any_request(state, op.request)
    group = only_group(state, op.group, range(len(state.layout.groups)))
    need_beam(r, op.beam)
    return replace(state, labels=state.labels.set(op.as_, snapshot(state, r, group, op.beam))), None


def need_beam(r: Request, beam: int) -> None:
    """R3.12: a beam that the request does not have can never be right."""
    if not 0 <= beam < r.width:
        raise invalid(f"beam {beam}: request {r.name!r} has beams 0 to {r.width - 1}")


def wait_snapshot(state: State, op: ops.WaitSnapshot) -> tuple[State, None]:
    """R6.1: order a stream after the readiness in a snapshot."""
    if op.snapshot not in state.labels:
        raise out_of_range(f"no snapshot {op.snapshot!r}: take it first")
    need_stream(state, op.stream)
    return follow(state, op.stream, *(w for w in state.labels[op.snapshot].ready if w)), None


def bind_row(state: State, op: ops.BindRow) -> tuple[State, None]:
    """R6.6: give a row to a request in no batch, or none. The version is newer even if the row is the same (R6.4)."""
    r = live(state, op.request)
    if op.row is not None and op.row < 0:
        raise logic(f"row {op.row} is negative")
    if batch_of(state, r) is not None:
        raise logic(f"request {r.name!r} is a member of a batch, which gives it its row: remove it first")
    return mark_newer(put_request(state, replace(r, row=op.row)), [r.name]), None
