"""Moves of batches, their tables, reads and captures, for random lifecycles."""

from __future__ import annotations

from kvspec import ops
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.observation import Observation, Phase, RequestStatus, RequestView


def batch(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A batch is made, or closed."""
    if len(seen.batches) >= 2:
        return ops.CloseBatch(batch=draw.rng.choice(list(seen.batches))) if draw.rng.random() < 0.2 else None
    name = draw.rng.choice([n for n in ("b0", "b1", "b2") if n not in seen.batches])
    return ops.MakeBatch(
        name=name,
        rows=draw.rows(),
        blocks=draw.rng.randint(2, 8) * draw.profile.scale,
        levels=draw.rng.random() < 0.5,
        retry=draw.rng.choice(tuple(ops.Retry)),
    )


def membership(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A request joins or leaves a batch."""
    some = draw.request(seen)
    if some is None or not seen.batches:
        return None
    batch = draw.rng.choice(list(seen.batches))
    if some[1].batch == batch and draw.rng.random() < 0.5:
        return ops.Remove(batch=batch, request=some[0])
    return ops.Add(batch=batch, request=some[0], row=draw.rng.choice((None, None, 0, 1, 2)))


def publish(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A batch is published."""
    if not seen.batches:
        return None
    return ops.Publish(batch=draw.rng.choice(list(seen.batches)), stream=draw.rng.choice(("exec", "exec", "side")))


def published_again(draw: Draw, seen: Observation) -> ops.Operation | None:
    """The first move of a story: a member is published before and after its complete history leaves the GPU, and as it grows."""
    names = draw.free_names(seen)
    free = [name for name in ("b0", "b1", "b2") if name not in seen.batches]
    if not names or not free or draw.captured is not None:
        return None
    name, batch, tokens = draw.rng.choice(names), free[0], draw.rng.randint(2, 4) * draw.span
    before = tokens - draw.rng.randint(0, 2 * draw.span - 1)
    draw.queue += [
        ops.Resume(request=name),
        ops.Resize(request=name, capacity=tokens, history=before),
        ops.MakeBatch(name=batch, rows=draw.rng.randint(1, 3), blocks=tokens // draw.manager.tokens_per_block + 1),
        ops.Add(batch=batch, request=name),
        ops.Publish(batch=batch),
        ops.EnterDecode(request=name),
        ops.Publish(batch=batch),
        ops.Resize(request=name, history=draw.rng.randint(before, tokens)),
        ops.Publish(batch=batch),
        *([ops.Remove(batch=batch, request=name), ops.CloseBatch(batch=batch)] if draw.rng.random() < 0.7 else []),
    ]
    return ops.Create(request=name)


def tables(draw: Draw, seen: Observation) -> ops.Operation | None:
    """The order behind tables, or the lengths of all members."""
    if not seen.batches:
        return None
    batch = draw.rng.choice(list(seen.batches))
    roll = draw.rng.randrange(4)
    if roll == 0:
        return ops.WaitReady(batch=batch, stream=draw.stream())
    if roll == 1:
        return ops.RecordRead(batch=batch, stream=draw.stream())
    view = seen.batches[batch]
    span, tpb = draw.span, draw.manager.tokens_per_block
    capacities: list[int | None] = []
    histories: list[int | None] = []
    for name in view.rows:
        member = seen.requests.get(name) if name is not None else None
        if member is None or member.status is not RequestStatus.ACTIVE or draw.rng.random() < 0.3:
            capacities.append(None)
            histories.append(None)
            continue
        history = member.history + draw.rng.randint(0, span)
        if member.phase is Phase.DECODE:
            history = min(history, member.capacity)
        capacities.append(min(max(member.capacity, history) + draw.rng.choice((0, span)), view.blocks * tpb))
        histories.append(min(history, capacities[-1] or 0) if history >= member.history else member.history)
    return ops.ResizeBatch(batch=batch, capacities=tuple(capacities), histories=tuple(histories))


def table_read(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A publication, a read of it in order, and the fence behind the read; by a replayed graph now and then."""
    if not seen.batches:
        return None
    batch, stream, group = draw.rng.choice(list(seen.batches)), draw.stream(), draw.rng.choice(draw.attention())
    read = ops.ReadTable.model_validate({"batch": batch, "group": group, "stream": stream, "as": draw.label("read")})
    fence = ops.RecordRead(batch=batch, stream=stream)
    draw.queue = [read, fence]
    if draw.rng.random() < 0.3:
        graph, where = draw.label("graph"), draw.stream(STREAMS)
        draw.queue = [
            ops.BeginCapture(stream=where),
            read.model_copy(update={"stream": where}),
            ops.EndCapture.model_validate({"stream": where, "as": graph}),
            ops.Replay.model_validate({"graph": graph, "stream": stream, "as": draw.label("read")}),
            fence,
        ]
    draw.queue.insert(0, ops.WaitReady(batch=batch, stream=stream))
    return ops.Publish(batch=batch, stream=draw.stream())


def page_read(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A snapshot, a read of a page of it in order, and the fence behind the read."""
    some = draw.request(seen, RequestStatus.ACTIVE)
    if some is None or some[1].batch is not None:
        return None
    name, view = some
    group, stream, label = draw.rng.choice(draw.attention()), draw.stream(), draw.label("snap")
    snapshot = view.snapshots.get((group, 0))
    committed = view.committed // draw.manager.tokens_per_block  # a snapshot's readiness has the writes of these alone (R6.4)
    blocks = [b for b, level in enumerate(snapshot.levels[:committed]) if level is not None] if snapshot is not None else []
    if not blocks:
        return None
    block = draw.rng.choice(blocks)
    draw.snapshots.append(label)
    read = {"request": name, "group": group, "block": block, "stream": stream, "as": draw.label("read")}
    draw.queue = [
        ops.WaitSnapshot(snapshot=label, stream=stream),
        ops.ReadPage.model_validate(read),
        ops.RecordRead(request=name, stream=stream),
    ]
    return ops.TakeSnapshot.model_validate({"request": name, "group": group, "as": label})


def dense(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Dense offsets of all members."""
    if not seen.batches:
        return None
    batch = draw.rng.choice(list(seen.batches))
    members = [name for name in seen.batches[batch].rows if name is not None]
    return ops.DenseOffsets(batch=batch, requests=tuple(members)) if members else None


def iterate(draw: Draw, seen: Observation) -> ops.Operation | None:
    """An iteration of some members, with a request that is no member now and then."""
    if not seen.batches:
        return None
    batch = draw.rng.choice(list(seen.batches))
    members = [name for name in seen.batches[batch].rows if name is not None and draw.rng.random() < 0.8]
    if draw.rng.random() < draw.profile.wild:
        members += list(seen.requests)[:1]
    return ops.Iterate.model_validate(
        {
            "batch": batch,
            "requests": tuple(scheduled(draw, name, seen.requests[name]) for name in members if name in seen.requests),
            "layers": tuple(layer.name for layer in draw.manager.layers) if draw.rng.random() < 0.2 else (),
            "stream": draw.stream(),
            "group": draw.rng.choice((None, *draw.attention())),
            "as": draw.label("read"),
        }
    )


def scheduled(draw: Draw, name: str, view: RequestView) -> ops.Scheduled:
    """One request of an iteration."""
    span = draw.span
    capacity = history = None
    if draw.rng.random() < 0.7:
        history = min(view.history + draw.rng.randint(0, span), view.capacity)
        capacity = view.capacity + draw.rng.choice((0, 1, span))
    decode = view.phase is Phase.DECODE or draw.rng.random() < 0.4
    return ops.Scheduled(request=name, capacity=capacity, history=history, decode=decode, accept=draw.rng.random() < 0.8)


def capture(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A capture on any stream, and what is captured there; other moves come between."""
    if draw.captured is None:
        draw.captured = draw.stream(STREAMS)
        return ops.BeginCapture(stream=draw.captured)
    if seen.batches and draw.attention() and draw.rng.random() < 0.3:
        batch, group = draw.rng.choice(list(seen.batches)), draw.rng.choice(draw.attention())
        label = draw.label("read")
        return ops.ReadTable.model_validate({"batch": batch, "group": group, "stream": draw.captured, "as": label})
    return end_capture(draw)


def end_capture(draw: Draw) -> ops.Operation:
    """The capture ends."""
    stream, draw.captured = draw.captured, None
    graph, fetches, draw.capturing = draw.label("graph"), draw.capturing, ()
    if fetches:
        draw.graphs[graph] = fetches
    return ops.EndCapture.model_validate({"stream": stream, "as": graph})
