"""Stories in which two common things meet (`kvspec.audit.states.combined`); see `kvspec.audit.rare_stories`."""

from __future__ import annotations

from kvspec import ops
from kvspec.audit.drawing import Draw
from kvspec.audit.story_parts import Moves, begun, has, in_batch, layers_of, names, text
from kvspec.config import LevelKind, Ownership
from kvspec.observation import Observation

_OWN = 1000
"""Texts that begin with tokens from here on are nobody else's."""


def through_three_levels(draw: Draw, seen: Observation) -> Moves | None:
    """A deferred page that may move, where the host and the disk are full of pages that only the tree keeps, is published."""
    if not layers_of(draw, sparse=True) or not has(draw, LevelKind.DISK) or not has(draw, LevelKind.HOST):
        return None
    keeper, decoder = names(draw, seen, 2)
    shared = text(draw, 1)
    moves: Moves = []
    for level in (LevelKind.DISK, LevelKind.HOST):
        slots = max(one.slots or 0 for one in draw.manager.levels if one.kind is level)
        for number in range(slots):
            first = _OWN + number + 100 * (level is LevelKind.HOST)
            moves.append(ops.SeedPrefix(tokens=(first, *shared[1:]), level=level))
    moves.append(ops.SeedPrefix(tokens=shared, level=LevelKind.GPU))
    batch, joining = in_batch(draw, seen, decoder)
    return [
        *moves,
        ops.Create(request=keeper, tokens=shared),
        *begun(draw, decoder, shared, None),
        ops.Resume(request=keeper, stream=draw.stream()),
        ops.EnterDecode(request=decoder),
        *joining,
        ops.Close(request=keeper),
        ops.Publish(batch=batch, stream=draw.stream()),
    ]


def beams_of_a_shared_prompt(draw: Draw, seen: Observation) -> Moves | None:
    """A request of several beams lets go of their rows, and of a prompt that another has, too."""
    if not draw.profile.beams:
        return None
    search, other = names(draw, seen, 2)
    prompt = text(draw, 1)
    return [
        ops.SeedPrefix(tokens=prompt, level=LevelKind.GPU),
        ops.Create(request=search, tokens=prompt, prompt_length=len(prompt)),
        *begun(draw, other, prompt, draw.rng.choice((None, True))),
        ops.Resume(request=search, stream=draw.stream()),
        ops.SetBeamWidth(request=search, width=2),
        ops.Resize(request=search, capacity=len(prompt) + draw.span),
        draw.rng.choice((ops.Close, ops.Close, ops.Suspend))(request=search),
    ]


def offload_over_disk(draw: Draw, seen: Observation) -> Moves | None:
    """With private ownership, a request has a copy of a page whose backing is on the disk, and enters decode."""
    if draw.manager.ownership is not Ownership.PRIVATE or not has(draw, LevelKind.DISK) or not has(draw, LevelKind.HOST):
        return None
    (name,) = names(draw, seen)
    tokens = text(draw, draw.rng.randint(1, 2))
    return [
        ops.SeedPrefix(tokens=tokens, level=LevelKind.DISK),
        *begun(draw, name, tokens, None),
        ops.EnterDecode(request=name),
    ]
