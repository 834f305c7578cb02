"""What stories are made of (`kvspec.audit.rare_stories`): names, texts, requests that have begun, slots that are taken, gates."""

from __future__ import annotations

from collections.abc import Sequence

from kvspec import ops
from kvspec.audit.drawing import Draw
from kvspec.config import LayerConfig, LevelKind
from kvspec.observation import Observation

Moves = list[ops.Operation]


def text(draw: Draw, blocks: int) -> tuple[int, ...]:
    """The beginning of the text that most requests follow, or now and then another."""
    count = blocks * draw.span
    return draw.script[:count] if draw.rng.random() < 0.7 else draw.tokens(count)


def names(draw: Draw, seen: Observation, count: int = 1) -> list[str]:
    """Names for requests to be created."""
    return draw.rng.sample(draw.free_names(seen), count)


def begun(draw: Draw, name: str, tokens: Sequence[int] | None, decode: bool | None, stream: str | None = None) -> Moves:
    """A request is created and resumed."""
    return [
        ops.Create(request=name, tokens=None if tokens is None else tuple(tokens)),
        ops.Resume(request=name, stream=stream or draw.stream(), decode=decode),
    ]


def taken(draw: Draw, level: LevelKind, group: str, count: int | str = "all") -> ops.Operation:
    """Free slots of a pool group are taken."""
    label = draw.label("taken")
    draw.taken.append(label)
    return ops.TakeSlots.model_validate({"level": level, "group": group, "count": count, "as": label})


def all_taken(draw: Draw, seen: Observation, *levels: LevelKind) -> Moves:
    """All free slots of some levels are taken."""
    wanted = [level.level for level in levels]
    return [taken(draw, LevelKind(level.label), group) for level, group in seen.pools if level in wanted]


def gated(draw: Draw, stream: str) -> ops.Operation:
    """A gate is closed on a stream."""
    label = draw.label("gate")
    draw.gates[label] = stream
    return ops.CloseGate.model_validate({"stream": stream, "as": label})


def refusal(draw: Draw, direction: ops.Direction, last: int = 1) -> ops.Operation:
    """One of the next copies of a direction is refused."""
    return ops.FailCopy(direction=direction, call=draw.rng.randint(1, last), queued=draw.rng.random() < 0.5)


def layers_of(draw: Draw, *, sparse: bool | None = None, window: bool | None = None) -> list[LayerConfig]:
    """The first layers of the attention groups that are sparse or not, and have a window that drops blocks or not."""
    groups = set(draw.attention())
    found = [layer for layer in draw.manager.layers if layer.name in groups]
    if sparse is not None:
        found = [layer for layer in found if layer.sparse == sparse]
    if window is not None:
        found = [layer for layer in found if (layer.sliding_window is not None and not layer.sparse) == window]
    return found


def stale_at(draw: Draw, layer: LayerConfig) -> int:
    """The least number of blocks of complete history at which a block of a layer is stale (R1.8)."""
    tpb = draw.manager.tokens_per_block
    first = -(-(layer.sink_tokens or 0) // tpb)
    return -(-((first + 1) * tpb + (layer.sliding_window or 1) - 1) // tpb)


def nearest(draw: Draw, layers: Sequence[LayerConfig]) -> LayerConfig:
    """Mostly the layer whose blocks are stale first: a request that gets there fits."""
    return min(layers, key=lambda layer: stale_at(draw, layer)) if draw.rng.random() < 0.8 else draw.rng.choice(layers)


def has(draw: Draw, level: LevelKind) -> bool:
    """Whether the manager has slots at a level."""
    return any(one.kind is level and one.slots for one in draw.manager.levels)


def in_batch(draw: Draw, seen: Observation, name: str) -> tuple[str, Moves]:
    """A request joins a batch, which is made if there is none."""
    if seen.batches:
        batch = draw.rng.choice(list(seen.batches))
        return batch, [ops.Add(batch=batch, request=name)]
    made = ops.MakeBatch(name="b0", rows=draw.rows(), blocks=8 * draw.profile.scale)
    return "b0", [made, ops.Add(batch="b0", request=name)]


def lengthened(draw: Draw, seen: Observation, name: str, capacity: int | None, history: int | None) -> Moves:
    """The lengths of a request change: by its own resize, that of its batch, or an iteration."""
    way = draw.rng.choice(("resize", "resize", "resize_batch", "iterate"))
    if way == "resize":
        return [ops.Resize(request=name, capacity=capacity, history=history)]
    if way == "resize_batch":
        rows, empty = ops.MakeBatch(name="b3", rows=1, blocks=40 * draw.profile.scale), "b3"
        values = {"capacities": (capacity,), "histories": (history,)}
        return [
            *([rows] if empty not in seen.batches else []),
            ops.Add(batch=empty, request=name, row=0),
            ops.ResizeBatch.model_validate({"batch": empty, **values, "stream": draw.stream()}),
            ops.Remove(batch=empty, request=name),
        ]
    batch, moves = in_batch(draw, seen, name)
    entry = ops.Scheduled(request=name, capacity=capacity, history=history)
    return [*moves, ops.Iterate.model_validate({"batch": batch, "requests": (entry,), "stream": draw.stream()})]
