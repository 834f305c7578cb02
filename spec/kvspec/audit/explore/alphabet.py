"""What is tried in a state: every operation of a small model, with the few arguments that make a difference there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kvspec import ops
from kvspec.audit.explore.models import BATCH, GATE, OTHER, TEXT, SmallModel
from kvspec.exploring import Facts, RequestFacts
from kvspec.observation import Phase, RequestStatus


@cache
def _made(verb: str, *arguments: tuple[str, Any]) -> ops.Operation:
    return ops.VERBS[verb].model_validate(dict(arguments))


def _op(verb: str, **arguments: Any) -> ops.Operation:
    return _made(verb, *arguments.items())


def operations(model: SmallModel, facts: Facts) -> list[ops.Operation]:
    """The operations that are tried in a state, always in the same order.

    Of requests that are not there the first is created, as they are alike; what is of no use to a request is tried all the same.
    """
    found = list(_creations(model, facts))
    for name, r in facts.requests.items():
        found += _of_request(model, name, r)
    found += _of_manager(model, facts)
    return [op for op in found if op.verb in model.verbs or (op.verb in _WITH_BATCH and "batch" in model.verbs)]


_WITH_BATCH = frozenset({"add", "remove"})


def _creations(model: SmallModel, facts: Facts) -> Iterator[ops.Operation]:
    live = [name for name, r in facts.requests.items() if r.status is not RequestStatus.CLOSED]
    name = next((name for name in model.requests if name not in live), None)
    if name is None:
        yield _op("create", request=model.requests[0])  # it exists
        return
    yield _op("create", request=name)
    yield _op("create", request=name, tokens=TEXT[:4])
    yield _op("create", request=name, tokens=(*TEXT[:3], OTHER))  # ends inside a block


def _of_request(model: SmallModel, name: str, r: RequestFacts) -> Iterator[ops.Operation]:
    yield _op("resume", request=name)
    yield _op("resume", request=name, decode=True)
    yield from _resizes(model, name, r)
    yield _op("enter_decode", request=name)
    yield _op("admit_generation", request=name)
    yield from _commits(model, name, r)
    yield _op("stop_committing", request=name)
    yield _op("suspend", request=name)
    yield _op("prefetch", request=name, level="gpu")
    yield _op("prefetch", request=name, level="host")
    yield _op("offload", request=name, blocks=(0,))
    yield _op("remove", batch=BATCH, request=name) if r.member else _op("add", batch=BATCH, request=name)
    yield _op("acknowledge", request=name, version="latest")
    yield _op("bind_row", request=name, row=None if r.member else 0)
    yield _op("close", request=name)


def _resizes(model: SmallModel, name: str, r: RequestFacts) -> Iterator[ops.Operation]:
    tpb = model.manager.tokens_per_block
    most = model.blocks * tpb
    yield _op("resize", request=name)  # retries
    if r.capacity < most:
        grown = min(most, (r.capacity // tpb + 1) * tpb)
        yield _op("resize", request=name, capacity=grown)
        yield _op(
            "resize",
            request=name,
            capacity=grown,
            history=(min(r.capacity, r.history + tpb) if r.phase is Phase.DECODE else grown),
        )
    if r.history // tpb < r.capacity // tpb:
        yield _op("resize", request=name, history=(r.history // tpb + 1) * tpb)
    if r.history < r.capacity and (r.history + 1) % tpb:
        yield _op("resize", request=name, history=r.history + 1)
    if -(-r.history // tpb) < -(-r.capacity // tpb):
        yield _op("resize", request=name, capacity=r.history)


def _commits(model: SmallModel, name: str, r: RequestFacts) -> Iterator[ops.Operation]:
    tpb = model.manager.tokens_per_block
    end = (r.committed // tpb + 1) * tpb
    if end > r.capacity:
        yield _op("commit", request=name, tokens=(TEXT * 2)[r.committed : r.capacity + 1])  # too many
        return
    yield _op("commit", request=name, tokens=TEXT[r.committed : end])
    if r.committed % tpb == 0 and end < model.blocks * tpb:
        yield _op("commit", request=name, tokens=(OTHER, *TEXT[r.committed + 1 : end]))
    yield _op("commit", request=name, tokens=TEXT[r.committed : r.committed + 1], end=True)


def _of_manager(model: SmallModel, facts: Facts) -> Iterator[ops.Operation]:
    yield _op("seed_prefix", tokens=TEXT[:2], level="host")
    for level in model.manager.levels:
        yield _op("evict", level=level.kind.value, group="main", pages=1)
    yield _op("clear_reusable")
    for level in model.manager.levels[:2]:
        label = f"{level.kind.value}-slots"
        yield _give(label) if label in facts.taken else _take(level.kind.value, label)
    yield from _of_batch(facts)
    if facts.gates:
        yield _made("open", ("as", GATE))
    else:
        yield _made("gate", ("stream", "exec"), ("as", GATE))


def _take(level: str, label: str) -> ops.Operation:
    return _made("take_slots", ("level", level), ("group", "main"), ("count", 1), ("as", label))


def _give(label: str) -> ops.Operation:
    return _made("give_slots", ("as", label))


def _of_batch(facts: Facts) -> Iterator[ops.Operation]:
    yield _op("publish", batch=BATCH)
    yield _op("resize_batch", batch=BATCH)
    yield _op("record_read", batch=BATCH)
    members = [name for name, r in facts.requests.items() if r.member]
    for name in members:
        yield _op("iterate", batch=BATCH, requests=(ops.Scheduled(request=name),))
        yield _op("iterate", batch=BATCH, requests=(ops.Scheduled(request=name, decode=True),))
        capacity = facts.requests[name].capacity + 2
        yield _op("iterate", batch=BATCH, requests=(ops.Scheduled(request=name, capacity=capacity, accept=False),))
        for block in (0, 1):
            yield _fetch(name, block)


@cache
def _fetch(name: str, block: int) -> ops.Operation:
    return ops.Fetch.model_validate({"batch": BATCH, "layer": "main", "select": {name: (block,)}, "as": "fetched"})
