"""Moves of what no request has alone, for random lifecycles: the tree, slots, gates, refusals."""

from __future__ import annotations

from collections.abc import Callable

from kvspec import ops
from kvspec.audit.batch_moves import iterate, publish, tables
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.audit.request_moves import commit, enter_decode, offload, prefetch, resize, resume
from kvspec.config import LevelKind, group_names
from kvspec.observation import Observation

Move = Callable[[Draw, Observation], ops.Operation | None]
"""A move: an operation, or ``None`` where there is none to make."""


def tree(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Blocks are put into the tree, or leave it."""
    roll = draw.rng.random()
    if roll < 0.45:
        groups = group_names(draw.manager)
        some = None if draw.rng.random() < 0.7 else tuple(sorted(draw.rng.sample(groups, draw.rng.randint(1, len(groups)))))
        return ops.SeedPrefix(
            tokens=draw.prefix(seen), level=draw.level(), groups=some, priority=draw.rng.choice((35, 35, 10, 60))
        )
    if roll < 0.55:
        return ops.ClearReusable()
    return evict(draw, seen)


def evict(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Some pages leave a pool group."""
    some = [key for key, pool in seen.pools.items() if pool.evictable]
    if not some:
        return None
    level, group = draw.rng.choice(some)
    count = len(seen.pools[level, group].evictable)
    return ops.Evict(level=LevelKind(level.label), group=draw.named(group), pages=draw.rng.randint(1, count))


def slots(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Free slots are taken, or given back."""
    if draw.taken and draw.rng.random() < 0.6:
        label = draw.taken.pop(draw.rng.randrange(len(draw.taken)))
        return ops.GiveSlots.model_validate({"as": label})
    level, group = draw.rng.choice(list(seen.pools))
    free = seen.pools[level, group].free
    if not free:
        return None
    label = draw.label("taken")
    draw.taken.append(label)
    count: int | str = "all" if draw.rng.random() < 0.3 else draw.rng.randint(1, free)
    return ops.TakeSlots.model_validate({"level": level.label, "group": draw.named(group), "count": count, "as": label})


def gate(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A gate is closed, or opened."""
    if draw.gates and (len(draw.gates) >= 3 or draw.rng.random() < draw.opening):
        label = draw.rng.choice(list(draw.gates))
        del draw.gates[label]
        return ops.OpenGate.model_validate({"as": label})
    return close_gate(draw)


def close_gate(draw: Draw) -> ops.Operation:
    """A gate is closed on a stream that is not in capture."""
    label = draw.label("gate")
    stream = draw.stream([name for name in STREAMS[:3] if name != draw.captured])
    draw.gates[label] = stream
    return ops.CloseGate.model_validate({"stream": stream, "as": label})


def fail_copy(draw: Draw, seen: Observation) -> ops.Operation | None:
    """A refusal, mostly with a move after it that is likely to copy in that direction."""
    direction = draw.rng.choice(list(ops.Direction))
    moves: dict[ops.Direction, tuple[Move, ...]] = {
        ops.Direction.OFFLOAD: (enter_decode, resize, commit, evict, offload, resume),
        ops.Direction.ONBOARD: (resume, resume, prefetch, commit),
        ops.Direction.COPY: (resume,),
        ops.Direction.UPLOAD: (publish, tables, iterate),
    }
    move = draw.rng.choice(moves[direction])(draw, seen) if draw.rng.random() < 0.7 else None
    draw.queue += [] if move is None else [move]
    return ops.FailCopy(direction=direction, call=draw.rng.choice((1, 1, 1, 2)), queued=draw.rng.random() < 0.5)


def sync(draw: Draw, seen: Observation) -> ops.Operation:
    """The CPU waits for a stream, or for all."""
    return ops.Sync(stream=draw.rng.choice((None, draw.stream())))


def stats(draw: Draw, seen: Observation) -> ops.Operation:
    """The counters are read, and perhaps reset."""
    return ops.Stats(reset=draw.rng.random() < 0.5)
