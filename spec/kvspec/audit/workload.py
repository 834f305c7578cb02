"""Random lifecycles: a manager and a stream of operations, chosen with the state in view.

Purely random calls rarely get anywhere interesting: nearly all fail on arguments. So a chooser looks at what
the reference shows and mostly proposes calls that the state allows, aims at the boundaries (full levels, shared
prefixes, block ends), and now and then proposes one that is wrong. Some moves are the beginning of a story, which sets a
situation up that single moves rarely come to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from kvspec import ops
from kvspec.audit import batch_moves, fetch_moves, fetch_stories, manager_moves, prefix_stories, rare_stories, request_moves
from kvspec.audit.able import Able, Scout
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.audit.keys import KeyMaker
from kvspec.audit.manager_moves import Move
from kvspec.audit.managers import Profile
from kvspec.audit.steering import Steering
from kvspec.audit.stories import Stage, deferred_rows, meeting, rebase
from kvspec.config import ManagerConfig
from kvspec.observation import Observation, RequestStatus

TASTES: tuple[dict[str, float], ...] = (
    {},
    {},
    {"story": 4, "resume": 1.6, "enter_decode": 1.5, "suspend": 2},  # many owners of the same pages
    {"commit": 3, "story": 2, "create": 1.5},  # rebases
    {"tree": 3, "evict": 4, "prefetch": 3, "suspend": 2, "slots": 2},  # pages go down and come up
    {"fail_copy": 6, "gate": 1.5},  # refusals, queued behind gates
    {"gate": 2, "resize": 1.5, "evict": 4, "slots": 2},  # slots that wait for gates are all there is
    {"publish": 2, "table_read": 2, "iterate": 4, "tables": 2},  # an executor
    {"capture": 8},
    {"beams": 12, "write": 4},
    {"rare": 4},
)
"""How much more often than by default a lifecycle makes some moves; one of these is drawn for it."""
BEGINS = {
    "suspend": "suspend",
    "prefetch": "prefetch",
    "offload": "offload",
    "write": "write",
    "slots": "take_slots",
    "dense": "dense_offsets",
    "capture": "begin_capture",
    "page_read": "read_page",
    "table_read": "read_table",
    "gate": "gate",
    "fail_copy": "fail_copy",
    "beams": "set_beam_width",
    **dict.fromkeys(("fetch", "fetch_story"), "fetch"),
    **dict.fromkeys(("publish", "published_again", "batch", "membership", "tables", "iterate"), "batch"),
}
"""The verb without which a move is not made: it begins something that others end, or is all that there is to the move."""
PROPOSALS = 300
"""So many moves that cannot be made are proposed one after the other before a lifecycle is over."""


@dataclass(slots=True)
class Chooser:
    """Chooses the next operation. ``able``: of systems that cannot do everything. ``scout``: says what may be done.

    ``steering``: what the lifecycle has come to, if it is steered.
    """

    rng: Random
    manager: ManagerConfig
    profile: Profile = field(default_factory=Profile)
    able: Able | None = None
    scout: Scout | None = None
    steering: Steering | None = None
    draw: Draw = field(init=False)
    keys: KeyMaker = field(init=False)
    taste: dict[str, float] = field(init=False)
    failed: Counter[str] = field(default_factory=Counter)
    """How often a move was proposed that the systems cannot make."""

    def __post_init__(self) -> None:
        """Draw what this lifecycle is about."""
        whole = self.able is not None and not self.able.partial
        self.draw = Draw(self.rng, self.manager, self.profile, whole=whole)
        self.keys = KeyMaker.of(self.rng, self.draw.span)
        self.taste = self.rng.choice(TASTES)
        self.draw.opening = self.rng.choice((0.6, 0.6, 0.25))
        if self.profile.gates and self.draw.opening < 0.5:
            self.draw.queue += [manager_moves.close_gate(self.draw) for _ in range(self.rng.randint(0, 2))]

    def next(self, seen: Observation) -> ops.Operation | None:
        """An operation that makes sense, mostly, in the state that ``seen`` shows; ``None`` if none can be made."""
        for _ in range(PROPOSALS):
            op = self._proposed(seen)
            op = self.possible(op and self.keys.put_on(op, seen))
            if op is not None:
                if self.steering is not None:
                    self.steering.follow(op)
                return op
        return None

    def _proposed(self, seen: Observation) -> ops.Operation | None:
        if self.draw.queue:
            return self.draw.queue.pop(0)
        aimed = None if self.steering is None else self.steering.aimed(self.draw, seen)
        if aimed is not None:
            return aimed
        moves = self._moves()
        names = list(moves)
        weights = [moves[name][0] * self.taste.get(name, 1) / (1 + self.failed[name]) for name in names]
        name = self.rng.choices(names, weights)[0]
        op = moves[name][1](self.draw, seen)
        if op is not None and self.able is not None and self.able.fitted(self.manager, op) is None:
            self.failed[name] += 1
        return op

    def possible(self, op: ops.Operation | None) -> ops.Operation | None:
        """The operation as far as the systems can do it, if it may be done; what comes to the same is put before the queue."""
        if op is None or self.able is None:
            return op
        fitted = self.able.fitted(self.manager, op)
        if fitted is None:
            self.draw.queue[:0] = self.able.instead(self.manager, op)
            return None
        if self.scout is None or self.scout.may(fitted):
            return fitted
        end = ops.StopCommitting(request=fitted.request) if isinstance(fitted, ops.Close) else None
        if end is None or self.able.fitted(self.manager, end) is None or not self.scout.may(end):
            return None
        self.draw.queue.insert(0, fitted)  # what was committed of its last block does not enter the tree then
        return end

    def finish(self, seen: Observation) -> list[ops.Operation]:
        """The operations that let go of everything: gates, slots, requests, batches. They are all that is still to come."""
        draw = self.draw
        last: list[ops.Operation] = [op for op in draw.queue if isinstance(op, ops.RecordRead | ops.EndCapture | ops.GiveSlots)]
        if draw.captured is not None and not any(isinstance(op, ops.EndCapture) for op in last):
            last.append(batch_moves.end_capture(draw))
        last += [ops.OpenGate.model_validate({"as": gate}) for gate in draw.gates]
        last += [ops.GiveSlots.model_validate({"as": label}) for label in draw.taken]
        last += [ops.Close(request=name) for name, view in seen.requests.items() if view.status is not RequestStatus.CLOSED]
        last += [ops.CloseBatch(batch=name) for name in seen.batches]
        last.append(ops.ClearReusable())
        draw.queue = []
        return last

    def _moves(self) -> dict[str, tuple[float, Move]]:
        """The moves of this lifecycle as it is now, each with how often it is made by default."""
        moves: dict[str, tuple[float, Move]] = {
            "create": (6, request_moves.create),
            "story": (4, story),
            "rare": (4, rare_stories.rare),
            "resume": (10, request_moves.resume),
            "resize": (16, request_moves.resize),
            "enter_decode": (7, request_moves.enter_decode),
            "commit": (10, request_moves.commit),
            "suspend": (4, request_moves.suspend),
            "close": (3, request_moves.close),
            "prefetch": (3, request_moves.prefetch),
            "offload": (1, request_moves.offload),
            "write": (2, request_moves.write),
            "publish": (6, batch_moves.publish),
            "batch": (2, batch_moves.batch),
            "membership": (5, batch_moves.membership),
            "tables": (3, batch_moves.tables),
            "tree": (3, manager_moves.tree),
            "evict": (2, manager_moves.evict),
            "slots": (2, manager_moves.slots),
            "request_small": (4, request_moves.request_small),
            "dense": (2, batch_moves.dense),
            "iterate": (2, batch_moves.iterate),
            "capture": (1 if self.draw.captured is None else 12, batch_moves.capture),
            "sync": (0.3, manager_moves.sync),
            "stats": (1, manager_moves.stats),
        }
        if self.draw.captured is None and self.draw.attention():  # no read can be recorded in a capture
            moves |= {"page_read": (3, batch_moves.page_read), "table_read": (3, batch_moves.table_read)}
        if self.draw.fetched:
            moves |= {"fetch": (30, fetch_moves.fetch), "fetch_story": (14, fetch_stories.fetched)}
        if self.profile.gates:
            moves["gate"] = (4, manager_moves.gate)
        if self.profile.faults:
            moves["fail_copy"] = (2, manager_moves.fail_copy)
        if self.able is not None:
            moves["prefix"] = (8, prefix_stories.prefix)
            moves["published_again"] = (8, batch_moves.published_again)
        if self.profile.beams:
            moves["beams"] = (1, request_moves.beams)
        if self.able is None:
            return moves
        return {name: move for name, move in moves.items() if BEGINS.get(name, "create") in self.able.verbs}


def story(draw: Draw, seen: Observation) -> ops.Operation | None:
    """Several moves at once that bring requests together: on the same matched pages, in a rebase, in rows of a batch."""
    names = draw.free_names(seen)
    if len(names) < 4 or draw.captured is not None:
        return None
    levels = [level.kind for level in draw.manager.levels]
    stage = Stage(draw.rng, draw.rng.sample(names, 4), STREAMS[:3], levels, list(seen.batches), draw.manager.tokens_per_block)
    text = draw.script[: draw.rng.randint(1, 4 * draw.span)]
    roll = draw.rng.random()
    if roll < 0.35:
        draw.queue += meeting(stage, text)
    elif roll < 0.7:
        draw.queue += rebase(stage, text)
    else:
        draw.queue += deferred_rows(stage, (draw.script[: draw.span * draw.rng.randint(1, 2)], draw.tokens(draw.span)))
    return draw.queue.pop(0)
