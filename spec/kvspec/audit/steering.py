"""A random lifecycle is steered towards what it has not come to yet: kinds of state, operations and outcomes together.

Now and then an operation is aimed instead of drawn: one of which much has not happened, on the request or batch, and with the
fault before it (a gate, a copy that is refused, a level without free slots), that come to the most that is new
(`kvspec.audit.coverage`). All is drawn by the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvspec import ops
from kvspec.audit import batch_moves, manager_moves, request_moves
from kvspec.audit.coverage.asked import outcomes
from kvspec.audit.coverage.cells import Cell, Counts, cells, cells_of
from kvspec.audit.coverage.kinds import kinds_before
from kvspec.audit.coverage.reasons import reasons
from kvspec.audit.drawing import Draw
from kvspec.audit.manager_moves import Move, close_gate
from kvspec.audit.moment import Moment
from kvspec.audit.reached import Watched
from kvspec.audit.story_parts import refusal
from kvspec.observation import Observation, RequestStatus
from kvspec.system import Outcome

SHARE = 0.35
"""Of the moves that begin nothing else, so many are aimed."""


def _admit(draw: Draw, seen: Observation) -> ops.Operation | None:
    some = draw.request(seen)
    return None if some is None else ops.AdmitGeneration(request=some[0])


def _resize_batch(draw: Draw, seen: Observation) -> ops.Operation | None:
    op = batch_moves.tables(draw, seen)
    return op if isinstance(op, ops.ResizeBatch) else None


def _take(draw: Draw, seen: Observation) -> ops.Operation | None:
    level, group = draw.rng.choice(list(seen.pools))
    count = draw.rng.choice((1, "all", seen.pools[level, group].free + 1))
    return ops.TakeSlots.model_validate({"level": level.label, "group": group, "count": count, "as": draw.label("taken")})


MOVES: dict[str, Move] = {
    "resume": request_moves.resume,
    "resize": request_moves.resize,
    "enter_decode": lambda draw, seen: None if (some := draw.request(seen)) is None else ops.EnterDecode(request=some[0]),
    "admit_generation": _admit,
    "commit": request_moves.commit,
    "suspend": request_moves.suspend,
    "close": request_moves.close,
    "prefetch": request_moves.prefetch,
    "offload": request_moves.offload,
    "set_beam_width": request_moves.beams,
    "write": request_moves.write,
    "publish": batch_moves.publish,
    "resize_batch": _resize_batch,
    "iterate": batch_moves.iterate,
    "seed_prefix": manager_moves.tree,
    "evict": manager_moves.evict,
    "take_slots": _take,
}
"""What can be aimed, and what makes such an operation of a request or batch that is given."""
SUBMISSIONS: dict[str, tuple[ops.Direction, ...]] = {
    "resume": (ops.Direction.ONBOARD, ops.Direction.COPY, ops.Direction.OFFLOAD),
    "resize": (ops.Direction.OFFLOAD,),
    "enter_decode": (ops.Direction.OFFLOAD,),
    "admit_generation": (ops.Direction.OFFLOAD, ops.Direction.ONBOARD, ops.Direction.COPY),
    "commit": (ops.Direction.OFFLOAD, ops.Direction.ONBOARD),
    "prefetch": (ops.Direction.ONBOARD, ops.Direction.OFFLOAD),
    "offload": (ops.Direction.OFFLOAD,),
    "set_beam_width": (ops.Direction.OFFLOAD,),
    "publish": (ops.Direction.UPLOAD, ops.Direction.OFFLOAD),
    "resize_batch": (ops.Direction.UPLOAD, ops.Direction.OFFLOAD),
    "iterate": (ops.Direction.UPLOAD, ops.Direction.OFFLOAD, ops.Direction.ONBOARD),
    "seed_prefix": (ops.Direction.OFFLOAD,),
    "evict": (ops.Direction.OFFLOAD,),
}
"""The copies that a verb may submit."""
Moves = list[ops.Operation]
NOBODY = "nobody"
"""The name of no request, batch and stream."""
NOT_AGAIN = (ops.CloseGate, ops.OpenGate, ops.GiveSlots, ops.BeginCapture, ops.EndCapture, ops.Sync, ops.Create, ops.MakeBatch)
"""What is not made again under other names: a lifecycle keeps count of it."""
MUST_BE = frozenset({"unknown", "closed", "new", "suspended", "suspended, decode", "prefill", "decode", "captured"})
"""The kinds of state that decide how a call can end."""


@dataclass(slots=True)
class Steering:
    """What a lifecycle has come to. ``reached``: its cells so far; ``watched``: the reference that goes through it.

    ``tried``: what was aimed at already, whatever came of it. ``made``: the last operation of each verb. ``batches``: all that
    there have been.
    """

    reached: Counts
    watched: Watched | None = None
    tried: set[Cell] = field(default_factory=set)
    made: dict[str, ops.Operation] = field(default_factory=dict)
    batches: set[str] = field(default_factory=set)

    def aimed(self, draw: Draw, seen: Observation) -> ops.Operation | None:
        """Now and then the beginning of something that is new; what follows it is put into the queue."""
        if draw.captured is not None or draw.rng.random() >= SHARE:
            return None
        verbs = [*MOVES, *(verb for verb in self.made if verb not in MOVES)]
        verb = draw.rng.choices(verbs, [1 + sum(self._is_new(cell) for cell in cells_of(verb)) for verb in verbs])[0]
        best: tuple[int, ops.Operation, str] | None = None
        for op in self._proposed(draw, seen, verb):
            for outcome, new in self._new(op).items():
                if new and (best is None or len(new) > best[0]) and _may(draw, verb, outcome):
                    best = len(new), op, outcome
        if best is None:
            return None
        _, op, outcome = best
        self.tried.update(self._new(op)[outcome])
        if isinstance(op, ops.TakeSlots):  # also if it should fail: what was not taken is not given back
            draw.taken.append(op.as_)
        moves = _with_fault(draw, seen, op, outcome)
        draw.queue += moves[1:]
        return moves[0]

    def follow(self, op: ops.Operation) -> None:
        """Remember an operation that is made: on another request, or with a name that there is not, it is another one."""
        if not isinstance(op, NOT_AGAIN):
            self.made[op.verb] = op

    def _proposed(self, draw: Draw, seen: Observation, verb: str) -> Iterator[ops.Operation]:
        """Operations of a verb: one on each request that lives, or some, and those that name what is not there or closed."""
        fields = ops.VERBS[verb].model_fields
        found: list[ops.Operation] = [self.made[verb]] if verb in self.made else []
        if verb in MOVES:
            names: list[str | None] = [name for name, _ in draw.live(seen)] if "request" in fields else [None] * 2
            for name in names:
                draw.only = name
                op = MOVES[verb](draw, seen)
                draw.only = None
                if op is not None and op.verb == verb:
                    found.append(op)
                    yield op
        if not found:
            return
        op = draw.rng.choice(found)
        if "as_" in fields:
            op = op.model_copy(update={"as_": draw.label("again")})
        wrong = [name for name, view in seen.requests.items() if view.status is not RequestStatus.ACTIVE]
        for name, others in (("request", [*wrong, NOBODY]), ("batch", [*(self.batches - seen.batches.keys()), NOBODY])):
            if getattr(op, name, None) is not None:
                yield from (op.model_copy(update={name: one}) for one in sorted(others))
        if getattr(op, "stream", None) is not None:
            yield op.model_copy(update={"stream": NOBODY})

    def _new(self, op: ops.Operation) -> dict[str, list[Cell]]:
        """By outcome, what an operation would come to for the first time if it ended so."""
        watched = self.watched
        if watched is None or watched.seen is None:
            return {}
        self.batches.update(watched.seen.observation.batches)
        moment = Moment(0, watched.setup.manager, op, Outcome(), watched.seen, watched.seen, watched.trail)
        kinds = [(subject.value, kind) for subject, kind in kinds_before(moment, watched.covering.past)]
        found: dict[str, list[Cell]] = {}
        for outcome in ("out_of_range",) if getattr(op, "stream", None) == NOBODY else outcomes(op.verb):
            would = [Cell(op.verb, subject, kind, outcome) for subject, kind in kinds]
            possible = not any(one in reasons() for one in would if one.kind in MUST_BE)
            found[outcome] = [one for one in would if possible and one in cells() and self._is_new(one)]
        return found

    def _is_new(self, cell: Cell) -> bool:
        return cell not in self.reached and cell not in self.tried and cell not in reasons()


def _may(draw: Draw, verb: str, outcome: str) -> bool:
    """Whether a lifecycle may have the fault of an outcome."""
    if outcome.endswith("gate") and (not draw.profile.gates or len(draw.gates) >= 3):
        return False
    return not outcome.startswith("copy_failed") or (draw.profile.faults and verb in SUBMISSIONS)


def _with_fault(draw: Draw, seen: Observation, op: ops.Operation, outcome: str) -> Moves:
    """An operation with what comes before it, so that it may end so, and the slots that it was without come back."""
    first: Moves = [close_gate(draw)] if outcome.endswith("gate") else []
    if outcome.startswith("copy_failed"):
        one = refusal(draw, draw.rng.choice(SUBMISSIONS[op.verb]))
        first.append(one.model_copy(update={"queued": outcome.endswith("queued")}))
    taken: Moves = []
    if outcome in ("false", "out_of_pages") and not isinstance(op, ops.TakeSlots):
        level = draw.rng.choice(draw.manager.levels).kind
        for (at, group), pool in seen.pools.items():
            if at is level.level and pool.free:
                values = {"level": level, "group": group, "count": "all", "as": draw.label("taken")}
                taken.append(ops.TakeSlots.model_validate(values))
    given = [ops.GiveSlots.model_validate({"as": one.as_}) for one in taken if isinstance(one, ops.TakeSlots)]
    return [*first, *taken, op, *given]
