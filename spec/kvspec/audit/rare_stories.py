"""Several moves at once that set a rare state up (`kvspec.audit.reached`); what comes after them is random again.

Each story looks at what is seen, and is ``None`` where the manager cannot come to its state. Sizes and choices in it are
drawn: it aims at a state, and reaches it now and then only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvspec import ops
from kvspec.audit.combined_stories import beams_of_a_shared_prompt, offload_over_disk, through_three_levels
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.audit.story_parts import (
    Moves,
    all_taken,
    begun,
    gated,
    has,
    in_batch,
    layers_of,
    lengthened,
    names,
    nearest,
    refusal,
    stale_at,
    taken,
    text,
)
from kvspec.config import Level, LevelKind
from kvspec.observation import Observation, RequestStatus

Story = Callable[[Draw, Observation], Moves | None]


def rare(draw: Draw, seen: Observation) -> ops.Operation | None:
    """The first move of a story that the manager can play; the others wait in the queue."""
    return told(draw, seen, STORIES)


def told(draw: Draw, seen: Observation, stories: Sequence[Story]) -> ops.Operation | None:
    """The first move of one of some stories, behind those that give back what is in the way."""
    if draw.captured is not None or len(draw.free_names(seen)) < 4:
        return None
    before = emptied(draw, seen)
    for story in draw.rng.sample(stories, min(3, len(stories))):
        moves = story(draw, seen)
        if moves:
            draw.queue += [*before, *moves]
            return draw.queue.pop(0)
    draw.queue += before
    return draw.queue.pop(0) if draw.queue else None


def emptied(draw: Draw, seen: Observation) -> Moves:
    """Mostly, the moves that give back what is in the way: taken slots, the oldest requests or all, what only the tree keeps."""
    if draw.rng.random() < 0.3:
        return []
    live = [name for name, _ in draw.live(seen)]
    gone = live if draw.rng.random() < 0.6 else live[: len(live) // 2]
    moves: Moves = [ops.GiveSlots.model_validate({"as": label}) for label in draw.taken]
    draw.taken = []
    return [*moves, *(ops.Close(request=name) for name in gone), ops.ClearReusable()]


# -- room -----------------------------------------------------------------------------------------------------


def offload_evicts(draw: Draw, seen: Observation) -> Moves | None:
    """A bare offload to a host that is full of pages that only the tree keeps."""
    sparse = layers_of(draw, sparse=True)
    if not sparse or not has(draw, LevelKind.HOST):
        return None
    (name,) = names(draw, seen)
    blocks = draw.rng.randint(1, 3)
    slots = max(level.slots or 0 for level in draw.manager.levels if level.kind is LevelKind.HOST)
    filling = ops.SeedPrefix(tokens=draw.tokens(slots * draw.manager.tokens_per_block), level=LevelKind.HOST)
    rest = all_taken(draw, seen, LevelKind.HOST) if draw.rng.random() < 0.7 else []
    tail = draw.rng.randint(0, 1)
    seed = filling if draw.rng.random() < 0.4 else ops.SeedPrefix(tokens=text(draw, 1), level=LevelKind.HOST)
    length = blocks * draw.span
    return [
        *begun(draw, name, None, None),
        ops.Resize(request=name, capacity=length + tail, history=length),
        seed,
        *rest,
        ops.Offload(request=name, blocks=tuple(range(draw.rng.randint(1, blocks) * draw.profile.scale))),
    ]


def commit_stops(draw: Draw, seen: Observation) -> Moves | None:
    """A commit of which a later block cannot be rebased: its page of the tree has to come up, or is refused."""
    if not has(draw, LevelKind.HOST):
        return None
    (name,) = names(draw, seen)
    blocks = draw.rng.randint(2, 3)
    length = blocks * draw.span
    tokens = text(draw, blocks)
    moves: Moves = [
        ops.SeedPrefix(tokens=tokens, level=LevelKind.HOST),
        *begun(draw, name, None, None),
    ]
    if draw.rng.random() < 0.5:
        moves.append(ops.Resize(request=name, capacity=length, history=draw.rng.choice((0, length))))
        moves.append(refusal(draw, ops.Direction.ONBOARD, blocks + 1))
    else:
        later = draw.rng.randint(1, blocks - 1) * draw.profile.scale
        moves.append(ops.Resize(request=name, capacity=length, history=length))
        moves.append(ops.Offload(request=name, blocks=(later,)))
        moves += all_taken(draw, seen, LevelKind.GPU, *draw.rng.choice(((), (LevelKind.HOST, LevelKind.DISK))))
    return [*moves, ops.Commit(request=name, tokens=tokens)]


def drop_above(draw: Draw, seen: Observation) -> Moves | None:
    """A tree block on a full host with its child on the GPU, which has to leave."""
    if not has(draw, LevelKind.HOST):
        return None
    group = draw.rng.choice(seen.groups)
    tokens = draw.tokens(2 * draw.span)
    moves: Moves = [
        ops.SeedPrefix(tokens=tokens[: draw.span], level=LevelKind.HOST, groups=(group,)),
        ops.SeedPrefix(tokens=tokens, level=LevelKind.GPU, groups=(group,)),
        *all_taken(draw, seen, LevelKind.HOST, LevelKind.DISK),
    ]
    if draw.rng.random() < 0.5:
        return [*moves, ops.Evict(level=LevelKind.GPU, group=group, pages=1)]
    (name,) = names(draw, seen)
    growth = ops.Resize(request=name, capacity=draw.rng.randint(1, 3) * draw.span)
    return [*moves, *all_taken(draw, seen, LevelKind.GPU), *begun(draw, name, None, None), growth]


def given_up(draw: Draw, seen: Observation) -> Moves | None:
    """A request in a full GPU grows, and what it needs is what has become stale in the same call."""
    windowed = layers_of(draw, window=True)
    if not windowed or not has(draw, LevelKind.HOST):
        return None
    layer = nearest(draw, windowed)
    (name,) = names(draw, seen)
    blocks = stale_at(draw, layer) + draw.rng.randint(0, 2)
    tpb = draw.manager.tokens_per_block
    start = draw.rng.choice((0, 0, tpb))
    moves: Moves = [*begun(draw, name, None, draw.rng.choice((None, True)))]
    moves.append(ops.Resize(request=name, capacity=blocks * tpb, history=start))
    if draw.rng.random() < 0.4 and start:
        moves.append(ops.Commit(request=name, tokens=text(draw, 1)[:start]))
    if draw.rng.random() < 0.8:
        moves.append(taken(draw, LevelKind.GPU, layer.name))  # other groups grow, too
    more = draw.rng.choice((0, 1, 1, 1, 2)) * tpb
    return [*moves, *lengthened(draw, seen, name, blocks * tpb + more, blocks * tpb)]


def kept_stale(draw: Draw, seen: Observation) -> Moves | None:
    """A request with kept stale pages, which are evicted; then it is suspended, and what else it has goes and comes."""
    windowed = layers_of(draw, window=True)
    if not windowed or not has(draw, LevelKind.HOST):
        return None
    layer = nearest(draw, windowed)
    (name,) = names(draw, seen)
    blocks = stale_at(draw, layer) + draw.rng.randint(0, 1)
    length = blocks * draw.manager.tokens_per_block
    moves: Moves = [
        *begun(draw, name, None, draw.rng.choice((None, None, True))),
        ops.Resize(request=name, capacity=length),
        *lengthened(draw, seen, name, None, length),
    ]
    evict = ops.Evict(level=LevelKind.GPU, group=layer.name, pages=1)
    if draw.rng.random() < 0.3:
        return [*moves, evict]
    groups = [group for level, group in seen.pools if level.label == "gpu"]
    moves += [
        ops.Suspend(request=name),
        *(ops.Evict(level=LevelKind.GPU, group=group, pages=1) for group in groups),
        evict,
        evict,
    ]
    if draw.rng.random() < 0.2:
        moves.append(refusal(draw, ops.Direction.ONBOARD))
    return [*moves, ops.Prefetch(request=name, level=draw.level())]


def path_leaves(draw: Draw, seen: Observation) -> Moves | None:
    """A request commits past its windows; what only the tree keeps of its beginning is dropped, and its path with that."""
    layers = layers_of(draw)
    if not layers or len(layers_of(draw, window=True)) < len(layers):
        return None
    (name,) = names(draw, seen)
    blocks = max(stale_at(draw, layer) for layer in layers) + draw.rng.randint(0, 1)
    tokens = draw.tokens(blocks * draw.manager.tokens_per_block)
    if draw.rng.random() < 0.5:
        drop: Moves = [ops.ClearReusable()]
    else:
        drop = [*all_taken(draw, seen, LevelKind.HOST), ops.Evict(level=LevelKind.GPU, group=layers[0].name, pages=1)]
    steps = [ops.Commit(request=name, tokens=(token,)) for token in tokens] if len(tokens) < 6 else []
    return [
        *begun(draw, name, None, None),
        ops.Resize(request=name, capacity=len(tokens)),
        *(steps or [ops.Commit(request=name, tokens=tokens)]),
        *drop,
    ]


# -- coming up ------------------------------------------------------------------------------------------------


def prefetch_from_disk(draw: Draw, seen: Observation) -> Moves | None:
    """A suspended request whose pages are on disk, or on the host, is prefetched."""
    cold = [level for level in (LevelKind.HOST, LevelKind.DISK, LevelKind.DISK) if has(draw, level)]
    if not cold:
        return None
    (name,) = names(draw, seen)
    tokens = text(draw, draw.rng.randint(1, 2))
    moves: Moves = [
        ops.SeedPrefix(tokens=tokens, level=draw.rng.choice(cold)),
        ops.Create(request=name, tokens=tokens),
    ]
    if draw.rng.random() < 0.4:
        moves.append(ops.SeedPrefix(tokens=draw.tokens(draw.rng.randint(1, 3) * draw.span), level=LevelKind.GPU))
        moves += all_taken(draw, seen, LevelKind.GPU)
    if draw.rng.random() < 0.3:
        moves.append(refusal(draw, draw.rng.choice((ops.Direction.ONBOARD, ops.Direction.ONBOARD, ops.Direction.OFFLOAD))))
    return [*moves, ops.Prefetch(request=name, level=draw.rng.choice((LevelKind.GPU, LevelKind.GPU, draw.level())))]


# -- refusals -------------------------------------------------------------------------------------------------


def refused_growth(draw: Draw, seen: Observation) -> Moves | None:
    """A copy is refused with which a request that grows makes room, or takes its history to the host."""
    if not has(draw, LevelKind.HOST):
        return None
    (name,) = names(draw, seen)
    length = draw.rng.randint(1, 2) * draw.span
    if draw.rng.random() < 0.5:
        return [
            *begun(draw, name, None, None),
            ops.SeedPrefix(tokens=draw.tokens(draw.rng.randint(1, 3) * draw.span), level=LevelKind.GPU),
            *all_taken(draw, seen, LevelKind.GPU),
            refusal(draw, ops.Direction.OFFLOAD),
            *lengthened(draw, seen, name, length, draw.rng.choice((None, length))),
        ]
    return [
        *begun(draw, name, None, True),
        ops.Resize(request=name, capacity=length),
        refusal(draw, ops.Direction.OFFLOAD),
        ops.Commit(request=name, tokens=text(draw, 2)[:length]),
    ]


# -- commit ---------------------------------------------------------------------------------------------------


def rebase_dense(draw: Draw, seen: Observation) -> Moves | None:
    """A decoding request commits what a tree on the GPU has."""
    if not layers_of(draw, sparse=False):
        return None
    (name,) = names(draw, seen)
    blocks = draw.rng.randint(1, 2)
    tokens = text(draw, blocks)
    length = len(tokens)
    return [
        ops.SeedPrefix(tokens=tokens, level=LevelKind.GPU),
        *begun(draw, name, None, True),
        ops.Resize(request=name, capacity=length + draw.rng.randint(0, 1)),
        ops.Resize(request=name, history=draw.rng.choice((0, length))),
        ops.Commit(request=name, tokens=tokens),
    ]


def commit_past_window(draw: Draw, seen: Observation) -> Moves | None:
    """A commit completes blocks that it makes stale at once; now and then a later block of it is refused."""
    windowed = layers_of(draw, window=True)
    if not windowed:
        return None
    (name,) = names(draw, seen)
    length = (stale_at(draw, nearest(draw, windowed)) + draw.rng.randint(0, 1)) * draw.manager.tokens_per_block
    tokens = text(draw, -(-length // draw.span))[:length]
    moves: Moves = [*begun(draw, name, None, draw.rng.choice((None, True))), ops.Resize(request=name, capacity=length)]
    if draw.rng.random() < 0.4 and has(draw, LevelKind.HOST):
        moves.insert(0, ops.SeedPrefix(tokens=tokens, level=LevelKind.HOST))
        moves.append(refusal(draw, ops.Direction.ONBOARD, 3))
    return [*moves, ops.Commit(request=name, tokens=tokens)]


# -- order ----------------------------------------------------------------------------------------------------


def seed_under_gates(draw: Draw, seen: Observation) -> Moves | None:
    """Pages whose readiness is behind a gate are pushed out by a seed."""
    if not draw.profile.gates:
        return None
    (name,) = names(draw, seen)
    stream, tokens = draw.stream(), text(draw, draw.rng.randint(1, 3))
    gpu = max(level.slots or 0 for level in draw.manager.levels if level.kind is LevelKind.GPU)
    wanted = draw.rng.randint(max(1, gpu // 2), gpu) * draw.manager.tokens_per_block
    return [
        gated(draw, stream),
        *begun(draw, name, None, None, stream),
        ops.Resize(request=name, capacity=len(tokens), history=0),
        ops.Commit(request=name, tokens=tokens),
        draw.rng.choice((ops.Close, ops.Suspend))(request=name),
        ops.SeedPrefix(tokens=draw.tokens(wanted), level=LevelKind.GPU, priority=draw.rng.choice((35, 50))),
    ]


def stale_by_two(draw: Draw, seen: Observation) -> Moves | None:
    """Two requests on streams behind gates let go of the same block as stale, and its slot is wanted."""
    windowed = layers_of(draw, window=True)
    if not windowed or not draw.profile.gates:
        return None
    tpb = draw.manager.tokens_per_block
    first, second = names(draw, seen, 2)
    streams = draw.rng.sample(STREAMS[:3], 2)
    matched = draw.rng.randint(1, 2) * tpb
    length = (stale_at(draw, nearest(draw, windowed)) + draw.rng.randint(0, 1)) * tpb
    tokens = text(draw, 2)[:matched]
    decode = draw.rng.choice((None, True))
    moves: Moves = [ops.SeedPrefix(tokens=tokens, level=draw.level())]
    for name, stream in zip((first, second), streams, strict=True):
        moves += begun(draw, name, tokens, decode, stream)
    moves += [gated(draw, stream) for stream in streams]
    for name in (first, second):
        moves += [ops.Resize(request=name, capacity=length), ops.Resize(request=name, history=length)]
    wanted = draw.tokens(draw.rng.randint(1, 4) * draw.span)
    evict = ops.Evict(level=LevelKind.GPU, group=draw.rng.choice(windowed).name, pages=1)
    return [*moves, draw.rng.choice((ops.SeedPrefix(tokens=wanted, level=LevelKind.GPU), evict))]


def reads_to_come(draw: Draw, seen: Observation) -> Moves | None:
    """A read of a request, or of a batch, is recorded behind a gate before or after the request leaves."""
    if not draw.profile.gates:
        return None
    (name,) = names(draw, seen)
    stream, length = draw.stream(), draw.rng.randint(1, 2) * draw.span
    moves: Moves = [*begun(draw, name, None, draw.rng.choice((None, True))), ops.Resize(request=name, capacity=length, history=0)]
    leave = draw.rng.choice((ops.Close, ops.Close, ops.Suspend))(request=name)
    if draw.rng.random() < 0.4:
        return [*moves, gated(draw, stream), ops.RecordRead(request=name, stream=stream), leave]
    batch, joined = in_batch(draw, seen, name)
    read: Moves = [gated(draw, stream), ops.RecordRead(batch=batch, stream=stream)]
    last = [*read, leave] if draw.rng.random() < 0.4 else [read[0], leave, read[1]]
    return [*moves, *joined, ops.Publish(batch=batch), *last]


# -- states ---------------------------------------------------------------------------------------------------


def running_state(draw: Draw, seen: Observation) -> Moves | None:
    """The state of a request goes on, is written again, and goes and comes."""
    states = draw.states()
    if not states:
        return None
    (name,) = names(draw, seen)
    group, length = draw.rng.choice(states), draw.rng.randint(1, 2) * draw.span
    write = ops.Write(request=name, blocks=(0,), groups=(group,))
    away = ops.Evict(level=LevelKind.GPU, group=group, pages=1)
    return [
        *begun(draw, name, None, draw.rng.choice((None, True))),
        ops.Resize(request=name, capacity=length),
        ops.Resize(request=name, history=length),
        write,
        ops.Suspend(request=name),
        away,
        draw.rng.choice((ops.Resume(request=name), ops.Prefetch(request=name, level=LevelKind.GPU))),
        *([write] if draw.rng.random() < 0.5 else []),
    ]


# -- as the state is ------------------------------------------------------------------------------------------


def bring_up(draw: Draw, seen: Observation) -> Moves | None:
    """A suspended request that has pages below the GPU is prefetched, now and then with a refusal."""
    cold = {ref.request for page in seen.pages if page.level is not Level.GPU for ref in page.refs}
    low = [name for name, _ in draw.live(seen, RequestStatus.SUSPENDED) if name in cold]
    if not low:
        return None
    prefetch = ops.Prefetch(request=draw.rng.choice(low), level=draw.level())
    return [prefetch] if draw.rng.random() < 0.6 else [refusal(draw, ops.Direction.ONBOARD), prefetch]


STORIES: tuple[Story, ...] = (
    *(offload_evicts, commit_stops, commit_stops, drop_above, given_up, given_up, kept_stale, kept_stale, path_leaves),
    *(prefetch_from_disk, prefetch_from_disk, prefetch_from_disk),
    *(refused_growth, rebase_dense, commit_past_window, seed_under_gates, stale_by_two, stale_by_two, stale_by_two),
    *(reads_to_come, running_state, bring_up, through_three_levels, beams_of_a_shared_prompt),
    *(offload_over_disk, offload_over_disk),
)
"""Each as often as it stands here."""
