"""Several moves at once for random lifecycles of a prefix cache: what requests alone can do, without seeds or taken slots.

Each story is a few whole lives of requests that meet: on the same prompt, in the order of eviction, where room runs out.
"""

from __future__ import annotations

from collections.abc import Callable

from kvspec import ops
from kvspec.audit.drawing import Draw
from kvspec.config import Level
from kvspec.observation import Observation

Moves = list[ops.Operation]
Story = Callable[[Draw, Observation], Moves]


def prefix(draw: Draw, seen: Observation) -> ops.Operation | None:
    """The first move of a story; the others wait in the queue."""
    if draw.captured is not None or len(draw.free_names(seen)) < 4:
        return None
    draw.queue += draw.rng.choice(STORIES)(draw, seen)
    return draw.queue.pop(0)


# -- what stories are made of ---------------------------------------------------------------------------------


def names(draw: Draw, seen: Observation, count: int) -> list[str]:
    """Names for requests to be created."""
    return draw.rng.sample(draw.free_names(seen), count)


def room(draw: Draw, seen: Observation) -> int:
    """How many blocks could be had in the fullest pool group of the GPU, by eviction too."""
    pools = [pool for (level, _), pool in seen.pools.items() if level is Level.GPU]
    return min(pool.free + len(pool.evictable) for pool in pools)


def text(draw: Draw, most: int = 3) -> tuple[int, ...]:
    """Some blocks of the text that most requests follow, or now and then of another."""
    count = draw.rng.randint(1, most) * draw.span
    return draw.script[:count] if draw.rng.random() < 0.7 else draw.tokens(count)


def begun(draw: Draw, name: str, tokens: tuple[int, ...] | None, priority: int | None = None) -> Moves:
    """A request is created and resumed."""
    drawn = draw.rng.choice((35, 35, 35, 10, 60)) if priority is None else priority
    return [ops.Create(request=name, tokens=tokens, priority=drawn), ops.Resume(request=name)]


def computed(draw: Draw, name: str, tokens: tuple[int, ...]) -> Moves:
    """A request that matched nothing grows to a text and commits it: at once, history first, or a block at a time."""
    size, count = draw.span, len(tokens)
    grown = ops.Resize(request=name, capacity=count)
    way = draw.rng.randrange(3)
    if way == 0:
        return [grown, ops.Commit(request=name, tokens=tokens)]
    if way == 1:
        return [ops.Resize(request=name, capacity=count, history=count), ops.Commit(request=name, tokens=tokens)]
    parts = [tokens[start : start + size] for start in range(0, count, size)]
    moves: Moves = []
    for number, part in enumerate(parts, 1):
        length = min(number * size, count)
        moves += [ops.Resize(request=name, capacity=length, history=draw.rng.choice((None, length)))]
        moves += [ops.Commit(request=name, tokens=part)]
    return moves


def pressed(draw: Draw, seen: Observation, name: str) -> Moves:
    """A request grows to about what there is room for, and gives it back now and then."""
    blocks = max(1, room(draw, seen) + draw.rng.randint(-2, 1))
    moves = [*begun(draw, name, None), ops.Resize(request=name, capacity=blocks * draw.manager.tokens_per_block)]
    return [*moves, ops.Close(request=name)] if draw.rng.random() < 0.6 else moves


# -- stories --------------------------------------------------------------------------------------------------


def turns(draw: Draw, seen: Observation) -> Moves:
    """A conversation: the next turn begins with all of the last one."""
    one, two = names(draw, seen, 2)
    first = text(draw)
    second = first + draw.tokens(draw.span * draw.rng.randint(0, 2))
    priority = draw.rng.choice((35, 35, 10, 60))
    moves = [*begun(draw, one, None, priority), *computed(draw, one, first), ops.Close(request=one)]
    return [*moves, *begun(draw, two, second, priority), ops.Resize(request=two, capacity=len(second) + draw.span)]


def duplicates(draw: Draw, seen: Observation) -> Moves:
    """A prompt that several requests compute at the same time: whoever commits it later takes what is there."""
    crowd = names(draw, seen, draw.rng.choice((2, 2, 3)))
    tokens = text(draw)
    moves: Moves = []
    for name in crowd:
        moves += begun(draw, name, None)
    for name in crowd:
        moves += computed(draw, name, tokens if draw.rng.random() < 0.8 else tokens[: draw.span] + draw.tokens(draw.span))
    last = draw.rng.sample(crowd, draw.rng.randint(0, len(crowd)))
    return [*moves, *(ops.Close(request=name) for name in last)]


def never_ran(draw: Draw, seen: Observation) -> Moves:
    """Requests that matched a prompt and leave, or wait, without having run, while another grows."""
    one, two, three, four = names(draw, seen, 4)
    tokens = text(draw)
    moves = [*begun(draw, one, None), *computed(draw, one, tokens), ops.Close(request=one)]
    moves += [ops.Create(request=name, tokens=tokens + draw.tokens(draw.span)) for name in (two, three)]
    if draw.rng.random() < 0.5:
        moves += pressed(draw, seen, four)
    return [*moves, ops.Close(request=two), *([ops.Close(request=three)] if draw.rng.random() < 0.5 else [])]


def of_priorities(draw: Draw, seen: Observation) -> Moves:
    """Prompts of several priorities stay behind; a request that grows pushes some out; then they are asked for again."""
    crowd = names(draw, seen, draw.rng.choice((2, 3)))
    moves: Moves = []
    prompts = [draw.tokens(draw.span * draw.rng.randint(1, 2)) for _ in crowd]
    for name, tokens in zip(crowd, prompts, strict=True):
        priority = draw.rng.choice((10, 35, 60))
        moves += [*begun(draw, name, None, priority), *computed(draw, name, tokens), ops.Close(request=name)]
    moves += pressed(draw, seen, crowd[0])
    return [*moves, ops.Create(request=crowd[1], tokens=draw.rng.choice(prompts))]


def too_large(draw: Draw, seen: Observation) -> Moves:
    """A request asks for more than there is, then for less; a second asks for what is left."""
    one, two = names(draw, seen, 2)
    size, most = draw.manager.tokens_per_block, room(draw, seen)
    tokens = text(draw) if draw.rng.random() < 0.6 else None
    moves = [*begun(draw, one, tokens), ops.Resize(request=one, capacity=(most + draw.rng.randint(1, 3)) * size)]
    moves.append(ops.Resize(request=one, capacity=max(1, most - draw.rng.randint(0, 2)) * size))
    return [*moves, *begun(draw, two, None), ops.Resize(request=two, capacity=draw.rng.randint(1, 3) * size)]


def past_windows(draw: Draw, seen: Observation) -> Moves:
    """A request goes on block by block, past any window; what it lets go of is asked for, or pushed out, at its end."""
    one, two = names(draw, seen, 2)
    tokens = draw.script[: draw.span * draw.rng.randint(2, 5)]
    moves = [*begun(draw, one, None), *computed(draw, one, tokens)]
    if draw.rng.random() < 0.6:
        moves.append(ops.Close(request=one))
    if draw.rng.random() < 0.4:
        moves += pressed(draw, seen, two)
        moves.append(ops.Close(request=two))
    return [*moves, *begun(draw, two, tokens[: draw.span * draw.rng.randint(1, 5)])]


def branches(draw: Draw, seen: Observation) -> Moves:
    """Two continuations of one prompt; of the three parts one is pushed out, and a third request asks for the whole."""
    one, two, three, four = names(draw, seen, 4)
    trunk = text(draw, 2)
    left, right = (trunk + draw.tokens(draw.span) for _ in range(2))
    moves = [*begun(draw, one, None), *computed(draw, one, left)]
    moves += [
        *begun(draw, two, trunk),
        ops.Resize(request=two, capacity=len(right)),
        ops.Commit(request=two, tokens=right[-draw.span :]),
    ]
    moves += [ops.Close(request=name) for name in draw.rng.sample((one, two), draw.rng.choice((1, 2)))]
    if draw.rng.random() < 0.6:
        moves += pressed(draw, seen, three)
    return [*moves, *begun(draw, four, draw.rng.choice((left, right)))]


def taken_up_again(draw: Draw, seen: Observation) -> Moves:
    """What only the tree keeps is matched and run; others push out what is left; then it ends, and they push again."""
    one, two, three = names(draw, seen, 3)
    tokens = text(draw)
    moves = [*begun(draw, one, None), *computed(draw, one, tokens), ops.Close(request=one)]
    moves += begun(draw, two, tokens)
    moves += pressed(draw, seen, three)
    return [*moves, ops.Close(request=two), ops.Close(request=three), *pressed(draw, seen, one)]


STORIES: tuple[Story, ...] = (
    *(turns, duplicates, never_ran, of_priorities, of_priorities, too_large),
    *(past_windows, branches, branches, taken_up_again, taken_up_again),
)
"""Each as often as it stands here."""
