"""Several moves at once, for random lifecycles: situations that single moves rarely come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kvspec import ops
from kvspec.config import LevelKind

Moves = list[ops.Operation]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a story plays. ``names``: of requests to be created; ``levels``: of the manager; ``batches``: those that are open."""

    rng: Random
    names: Sequence[str]
    streams: Sequence[str]
    levels: Sequence[LevelKind]
    batches: Sequence[str]
    tokens_per_block: int

    def resume(self, name: str, decode: bool | None) -> ops.Operation:
        """A resume on any stream."""
        return ops.Resume(request=name, stream=self.rng.choice(self.streams), decode=decode)


def meeting(stage: Stage, text: tuple[int, ...]) -> Moves:
    """Two requests on the same matched pages, each in any phase."""
    one, two = stage.names[:2]
    phases = [stage.rng.choice((None, True)) for _ in range(2)]
    return [
        ops.SeedPrefix(tokens=text, level=stage.rng.choice(stage.levels), groups=None, priority=35),
        *(ops.Create(request=name, tokens=text) for name in (one, two)),
        *(stage.resume(name, phase) for name, phase in zip((one, two), phases, strict=True)),
    ]


def rebase(stage: Stage, text: tuple[int, ...]) -> Moves:
    """Two requests that commit the same tokens."""
    moves: Moves = []
    for name in stage.names[:2]:
        history = len(text) // stage.tokens_per_block * stage.tokens_per_block if stage.rng.random() < 0.5 else 0
        moves += [
            ops.Create(request=name),
            stage.resume(name, stage.rng.choice((None, True))),
            ops.Resize(request=name, capacity=len(text) + stage.tokens_per_block),
            ops.Resize(request=name, history=history),
            ops.Commit(request=name, tokens=text),
        ]
    return moves


def deferred_rows(stage: Stage, texts: Sequence[tuple[int, ...]]) -> Moves:
    """Rows of a batch whose pages a request in prefill keeps on the GPU until shortly before they may move."""
    moves: Moves = []
    keepers, sharers = stage.names[:2], stage.names[2:4]
    for keeper, sharer, text in zip(keepers, sharers, texts, strict=True):
        moves += [
            ops.SeedPrefix(tokens=text, level=LevelKind.GPU, groups=None, priority=stage.rng.choice((35, 10))),
            ops.Create(request=keeper, tokens=text),
            ops.Create(request=sharer, tokens=text),
            stage.resume(keeper, None),
            stage.resume(sharer, True),
        ]
    batch = stage.rng.choice(stage.batches) if stage.batches else "b0"
    if not stage.batches:
        moves.append(ops.MakeBatch(name=batch, rows=3, blocks=8))
    moves += [ops.Add(batch=batch, request=sharer) for sharer in sharers]
    if stage.rng.random() < 0.5:
        moves.append(ops.Publish(batch=batch))
    moves += [stage.rng.choice((ops.Close, ops.Suspend))(request=keeper) for keeper in keepers]
    return [*moves, _retry(stage, batch, sharers)]


def _retry(stage: Stage, batch: str, sharers: Sequence[str]) -> ops.Operation:
    roll = stage.rng.random()
    if roll < 0.35:
        return ops.Publish(batch=batch)
    if roll < 0.6:
        return ops.ResizeBatch(batch=batch)
    scheduled = []
    for name in sharers:
        capacity = stage.rng.choice((None, 2 * stage.tokens_per_block, 4 * stage.tokens_per_block))
        scheduled.append(ops.Scheduled(request=name, capacity=capacity, accept=stage.rng.random() < 0.5))
    return ops.Iterate.model_validate({"batch": batch, "requests": tuple(scheduled)})
