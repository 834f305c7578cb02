"""Moves of one request, for random lifecycles: each an operation that makes sense in what is seen, or ``None``."""

from __future__ import annotations

from kvspec import ops
from kvspec.audit.drawing import Draw
from kvspec.config import group_names
from kvspec.observation import Observation, Phase, RequestStatus
from kvspec.tokens import numbers


def create(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A request, mostly with tokens that match something."""
    if len(draw.live(seen)) >= 5:
        return None
    prompt = draw.rng.choice((None, None, draw.span, 2 * draw.span)) if draw.profile.beams else None
    priority = draw.rng.choice((35, 35, 35, 10, 60))
    tokens = draw.prefix(seen) if draw.rng.random() < 0.8 else None
    free = draw.free_names(seen)
    name = f"r{draw.rng.randint(0, 7)}" if draw.rng.random() < draw.profile.wild else draw.rng.choice(free)
    return ops.Create(request=name, tokens=tokens, prompt_length=prompt, priority=priority)


def resume(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A suspended request becomes active."""
    some = draw.request(seen, RequestStatus.SUSPENDED)
    if some is None:
        return None
    stream: str | None = draw.rng.choice(("default", "default", "exec", "side", None))
    return ops.Resume(request=some[0], stream=stream, decode=draw.rng.choice((None, None, None, True, True, False)))


def resize(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Lengths that grow a little, shrink a little, or stay."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    if some is None:
        return None
    name, view = some
    span = draw.span
    roll = draw.rng.random()
    if roll < 0.12:
        return ops.Resize(request=name)
    if roll < 0.2:
        return ops.Resize(request=name, capacity=max(view.history, view.capacity - draw.rng.randint(1, 2 * span)))
    if view.phase is Phase.DECODE:
        history = min(view.capacity, view.history + draw.rng.randint(0, span + 1))
    else:
        history = view.history + draw.rng.randint(0, 2 * span + 1)
    capacity = max(view.capacity, history) + draw.rng.choice((0, 0, 1, span, 2 * span))
    if draw.rng.random() < draw.profile.wild:
        history, capacity = draw.rng.randint(-1, 12), draw.rng.randint(-1, 12)
    return ops.Resize(request=name, capacity=capacity, history=history)


def enter_decode(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A request enters decode, or tries deferred pages again."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    if some is None:
        return None
    return ops.AdmitGeneration(request=some[0]) if draw.rng.random() < 0.2 else ops.EnterDecode(request=some[0])


def commit(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Tokens of the text that most requests follow, of the tree, or of its own."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    if some is None:
        return None
    name, view = some
    span = draw.span
    left = view.capacity - view.committed
    count = (
        draw.rng.randint(0, min(max(left, 0), 2 * span))
        if draw.rng.random() > draw.profile.wild
        else draw.rng.randint(0, 3 * span)
    )
    if draw.whole:
        count -= (view.committed + count) % draw.manager.tokens_per_block
        count = max(count, 0)
    known = [block.tokens for block in seen.tree if len(block.tokens) > view.committed]
    tokens = draw.tokens(count)
    if draw.rng.random() < 0.6:  # the same text as others, if it has followed it so far
        tokens = draw.script[view.committed : view.committed + count]
    elif known and draw.rng.random() < 0.5:
        tokens = numbers(draw.rng.choice(known))[view.committed : view.committed + count]
    return ops.Commit(request=name, tokens=tokens[:count], end=draw.rng.random() < 0.1)


def suspend(draw: Draw, seen: Observation) -> ops.Operation | None:
    """An active request is suspended."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    return None if some is None else ops.Suspend(request=some[0])


def close(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Any request is closed, whatever its status."""
    some = draw.request(seen)
    return None if some is None else ops.Close(request=some[0])


def prefetch(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Pages of a suspended request come up."""
    some = draw.request(seen, RequestStatus.SUSPENDED)
    return None if some is None else ops.Prefetch(request=some[0], level=draw.level())


def offload(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Some complete blocks go to the host."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    if some is None or some[1].history < draw.manager.tokens_per_block:
        return None
    complete = some[1].history // draw.manager.tokens_per_block
    return ops.Offload(
        request=some[0], blocks=tuple(draw.rng.randrange(complete) for _ in range(draw.rng.randint(1, 2 * draw.profile.scale)))
    )


def write(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A block that is not wholly history is written, or the state of a request."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    if some is None:
        return None
    states = draw.states()
    if states and draw.rng.random() < 0.5:
        return ops.Write(request=some[0], blocks=(0,), groups=(draw.rng.choice(states),))
    tpb = draw.manager.tokens_per_block
    first, last = some[1].history // tpb, -(-some[1].capacity // tpb)
    if first >= last:
        return None
    return ops.Write(request=some[0], blocks=(draw.rng.randrange(first, last),))


def beams(draw: Draw, seen: Observation) -> ops.Operation | None:
    """An active request gets beams, whether it still may or not (R3.12)."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    return None if some is None else ops.SetBeamWidth(request=some[0], width=draw.rng.choice((1, 2, 2, 3)))


def request_small(draw: Draw, seen: Observation) -> ops.Operation | None:
    """What changes little: streams, versions, rows, snapshots, recorded reads, the end of committing."""
    some = draw.request(seen)
    if some is None:
        return None
    name = some[0]
    roll = draw.rng.randrange(6)
    if roll == 0:
        return ops.SetStream(request=name, stream=draw.stream())
    if roll == 1 and draw.snapshots:
        return ops.Acknowledge(request=name, version=draw.rng.choice(["latest", *draw.snapshots]))
    if roll == 2:
        return ops.BindRow(request=name, row=draw.rng.choice((None, -1, 0, 1, 2, 3)))
    if roll == 3:
        label = draw.label("snap")
        draw.snapshots.append(label)
        return ops.TakeSnapshot.model_validate(
            {"request": name, "group": draw.rng.choice(group_names(draw.manager)), "as": label}
        )
    if roll == 4:
        return ops.RecordRead(request=name, stream=draw.stream())
    return ops.StopCommitting(request=name) if draw.rng.random() < 0.3 else None
