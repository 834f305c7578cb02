"""Several moves at once that bring fetches to a rare state (`kvspec.audit.states.fetches`); what comes after is random again."""

from __future__ import annotations

from kvspec import ops
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.audit.fetch_moves import captured, fetching, numbers, replayed
from kvspec.audit.rare_stories import Story, told
from kvspec.audit.story_parts import Moves, all_taken, begun, gated, has, in_batch, names, taken, text
from kvspec.config import LevelKind
from kvspec.observation import Observation


def fetched(draw: Draw, seen: Observation) -> ops.Operation | None:
    """The first move of a story with fetches; the others wait in the queue."""
    return told(draw, seen, STORIES)


# -- what stories are made of ---------------------------------------------------------------------------------


def decoding(draw: Draw, seen: Observation, name: str, blocks: int) -> tuple[str, Moves]:
    """A request that decodes with some blocks of history is in a batch that is published: the batch, and the moves."""
    length = blocks * draw.span
    batch, joined = in_batch(draw, seen, name)
    moves = [*begun(draw, name, None, True), ops.Resize(request=name, capacity=length + draw.rng.randint(0, draw.span))]
    return batch, [*moves, ops.Resize(request=name, history=length), *joined, ops.Publish(batch=batch, stream=draw.stream())]


def some(draw: Draw, layer: str, blocks: int, *members: str) -> dict[str, tuple[int, ...]]:
    """What is selected for some requests that all have so many blocks."""
    count = blocks * draw.profile.scale * draw.fetched[layer].units
    return {name: numbers(draw, name, layer, count) for name in members}


def all_of(draw: Draw, layer: str, blocks: int) -> tuple[int, ...]:
    """As many numbers as a row selects, of so many blocks, none of them twice."""
    count, of = blocks * draw.profile.scale * draw.fetched[layer].units, draw.fetched[layer]
    return tuple(draw.rng.sample(range(count), min(count, of.selects)))


def a_layer(draw: Draw) -> str:
    """One of the layers that can be fetched."""
    return draw.rng.choice(list(draw.fetched))


# -- hits and misses ------------------------------------------------------------------------------------------


def drift(draw: Draw, seen: Observation) -> Moves | None:
    """A selection drifts over more blocks than are reserved; layers of one group go their own ways."""
    (name,), blocks = names(draw, seen), draw.rng.randint(2, 5)
    batch, moves = decoding(draw, seen, name, blocks)
    for _ in range(draw.rng.randint(3, 6)):
        layer = a_layer(draw)
        select = some(draw, layer, blocks, name) if draw.rng.random() < 0.5 else {name: all_of(draw, layer, blocks)}
        moves.append(fetching(draw, batch, layer, select, draw.stream()))
    return moves


def promotion(draw: Draw, seen: Observation) -> Moves | None:
    """What is cached leaves the host for a request in prefill, is asked for meanwhile, and comes back."""
    if not has(draw, LevelKind.HOST):
        return None
    one, two = names(draw, seen, 2)
    blocks, layer = draw.rng.randint(1, 3), a_layer(draw)
    tokens = text(draw, blocks)
    batch, joined = in_batch(draw, seen, one)

    def again() -> Moves:
        publish = ops.Publish(batch=batch, stream=draw.stream())
        return [publish, fetching(draw, batch, layer, {one: all_of(draw, layer, blocks)}, draw.stream())]

    return [
        ops.SeedPrefix(tokens=tokens, level=LevelKind.HOST),
        *begun(draw, one, tokens, True),
        ops.Create(request=two, tokens=tokens),
        *joined,
        *again(),
        ops.Resume(request=two, stream=draw.stream(), decode=None),
        *again(),
        draw.rng.choice((ops.EnterDecode(request=two), ops.Suspend(request=two))),
        *again(),
    ]


# -- reservations ---------------------------------------------------------------------------------------------


def no_room(draw: Draw, seen: Observation) -> Moves | None:
    """A request enters decode, resumes in it, grows or commits where the slots to reserve are not to be had."""
    (name,), layer = names(draw, seen), a_layer(draw)
    blocks = draw.rng.randint(1, 2)
    length, full = blocks * draw.span, all_taken(draw, seen, LevelKind.GPU)
    way = draw.rng.randrange(3)
    if way == 0:  # at decode entry: what it has goes to the host, but frees its slots too late
        moves = [*begun(draw, name, None, None), ops.Resize(request=name, capacity=length, history=length), *full]
        return [*moves, draw.rng.choice((ops.EnterDecode, ops.AdmitGeneration))(request=name)]
    moves = [*begun(draw, name, None, True), ops.Resize(request=name, capacity=length + draw.span)]
    if way == 1:
        growth = ops.Resize(request=name, history=length)
        commit = ops.Commit(request=name, tokens=text(draw, blocks))
        return [*moves, *full, draw.rng.choice((growth, commit))]
    moves += [ops.Resize(request=name, history=length), ops.Suspend(request=name)]
    short = taken(draw, LevelKind.GPU, draw.fetched[layer].group)
    given = ops.GiveSlots.model_validate({"as": draw.taken.pop()})
    resume = ops.Resume(request=name)
    return [*moves, short, resume, given, resume]


def growth(draw: Draw, seen: Observation) -> Moves | None:
    """A reservation grows with the history, a block at a time, between fetches."""
    (name,), layer, tpb = names(draw, seen), a_layer(draw), draw.manager.tokens_per_block
    batch, joined = in_batch(draw, seen, name)
    blocks = draw.rng.randint(2, 4)
    moves: Moves = [*begun(draw, name, None, True), ops.Resize(request=name, capacity=blocks * tpb + 1), *joined]
    for block in range(1, blocks + 1):
        moves += [ops.Resize(request=name, history=block * tpb), ops.Publish(batch=batch)]
        count = block * draw.fetched[layer].units
        moves.append(fetching(draw, batch, layer, {name: numbers(draw, name, layer, count)}, draw.stream()))
    return moves


def behind_reads(draw: Draw, seen: Observation) -> Moves | None:
    """Reserved slots are given back while fetches into them, or reads of them, are behind a gate; others want them."""
    if not draw.profile.gates:
        return None
    (one, two), layer = names(draw, seen, 2), a_layer(draw)
    blocks, stream = draw.rng.randint(1, 3), draw.stream()
    batch, moves = decoding(draw, seen, one, blocks)
    gate, fetch = gated(draw, stream), fetching(draw, batch, layer, {one: all_of(draw, layer, blocks)}, stream)
    read = ops.RecordRead(batch=batch, stream=stream)
    moves += draw.rng.choice(([gate, fetch], [gate, fetch, read], [fetch, gate, read]))
    moves += [draw.rng.choice((ops.Suspend, ops.Close))(request=one)]
    if draw.rng.random() < 0.5:  # read only now, as last published
        moves.append(read)
    room = draw.rng.randint(1, 3) * draw.span
    moves += [*begun(draw, two, None, draw.rng.choice((None, True))), ops.Resize(request=two, capacity=room)]
    return [*moves, ops.Resize(request=two, history=room)]


def reads_between(draw: Draw, seen: Observation) -> Moves | None:
    """A fetch, a read of what it put out that is recorded behind a gate of another stream, and the next fetch of the same."""
    if not draw.profile.gates:
        return None
    (name,), layer = names(draw, seen), a_layer(draw)
    blocks = draw.rng.randint(1, 3)
    batch, moves = decoding(draw, seen, name, blocks)
    mine, other = draw.rng.sample(STREAMS[:3], 2)

    def again() -> ops.Operation:
        return fetching(draw, batch, layer, {name: all_of(draw, layer, blocks)}, mine)

    return [*moves, again(), gated(draw, other), ops.RecordRead(batch=batch, stream=other), again()]


# -- replays --------------------------------------------------------------------------------------------------


def changes_hands(draw: Draw, seen: Observation) -> Moves | None:
    """A row of a captured fetch is removed, suspended, closed, or another's, before the next replay; then it is published."""
    one, two = names(draw, seen, 2)
    blocks, layer = draw.rng.randint(1, 3), a_layer(draw)
    batch, moves = decoding(draw, seen, one, blocks)
    graph, capture = captured(draw, draw.rng.choice(STREAMS), [(batch, layer)])

    def again(*members: str) -> ops.Operation:
        return replayed(draw, graph, draw.stream(), {name: all_of(draw, layer, blocks) for name in members} or None)

    moves += [*capture, again(one)]
    leave: Moves = [
        draw.rng.choice((ops.Remove(batch=batch, request=one), ops.Suspend(request=one), *(2 * [ops.Close(request=one)])))
    ]
    if draw.rng.random() < 0.4:
        leave = [ops.Remove(batch=batch, request=one)]
        leave += [*begun(draw, two, None, True), ops.Resize(request=two, capacity=blocks * draw.span)]
        leave += [ops.Resize(request=two, history=blocks * draw.span), ops.Add(batch=batch, request=two)]
    moves += [*leave, again(one)]
    if draw.rng.random() < 0.3:
        moves += [ops.Resume(request=one), again(one)]
    return [*moves, ops.Publish(batch=batch, stream=draw.stream()), again(*draw.rng.choice(((), (one,), (two,))))]


STORIES: tuple[Story, ...] = (
    drift,
    drift,
    promotion,
    promotion,
    no_room,
    growth,
    behind_reads,
    reads_between,
    changes_hands,
    changes_hands,
)
"""Each as often as it stands here."""
