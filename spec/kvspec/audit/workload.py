"""Random lifecycles: a manager and a stream of operations, chosen with the state in view.

Purely random calls rarely get anywhere interesting: nearly all fail on arguments. So a chooser looks at what
the reference shows and mostly proposes calls that the state allows, aims at the boundaries (full levels, shared
prefixes, block ends), and now and then proposes one that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from kvspec import ops
from kvspec.audit.managers import Profile
from kvspec.audit.stories import Stage, deferred_rows, meeting, rebase
from kvspec.config import LayerKind, LevelKind, ManagerConfig, group_names
from kvspec.observation import Observation, Phase, RequestStatus, RequestView

STREAMS = ("exec", "side", "copy", "graph")
"""``graph``: no request works on it, so that some captures have a stream to themselves."""
_TOKENS = 3
"""Few different tokens, so that prefixes meet."""
_SCRIPT = 40
"""Length of the text that most requests of a lifecycle begin with, so that they share pages and rebase."""

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
)
"""How much more often than by default a lifecycle makes some moves; one of these is drawn for it."""


@dataclass(slots=True)
class Chooser:
    """Chooses the next operation. Keeps only the labels that it has handed out."""

    rng: Random
    manager: ManagerConfig
    profile: Profile = field(default_factory=Profile)
    labels: int = 0
    gates: dict[str, str] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    queue: list[ops.Operation] = field(default_factory=list)
    """Operations that belong together, such as a read and its fence, and are still to come."""
    captured: str | None = None
    """The stream in capture."""
    script: tuple[int, ...] = ()
    taste: dict[str, float] = field(default_factory=dict)
    opening: float = 0.6
    """Share of the moves with gates that open one, if there is one."""

    def __post_init__(self) -> None:
        """Draw what this lifecycle is about."""
        self.script = self._some_tokens(_SCRIPT)
        self.taste = self.rng.choice(TASTES)
        self.opening = self.rng.choice((0.6, 0.6, 0.25))
        if self.profile.gates and self.opening < 0.5:
            self.queue += [self._close_gate() for _ in range(self.rng.randint(0, 2))]

    def next(self, seen: Observation) -> ops.Operation:
        """An operation that makes sense, mostly, in the state that ``seen`` shows."""
        if self.queue:
            return self.queue.pop(0)
        makers = self._makers(seen)
        names = list(makers)
        weights = [makers[n][0] * self.taste.get(n, 1) for n in names]
        while True:
            name = self.rng.choices(names, weights)[0]
            op = makers[name][1](seen)
            if op is not None:
                return op

    def finish(self, seen: Observation) -> list[ops.Operation]:
        """The operations that let go of everything: gates, slots, requests, batches."""
        last: list[ops.Operation] = [op for op in self.queue if isinstance(op, ops.RecordRead | ops.EndCapture)]
        if self.captured is not None and not any(isinstance(op, ops.EndCapture) for op in last):
            last.append(self._end_capture())
        last += [ops.OpenGate.model_validate({"as": gate}) for gate in self.gates]
        last += [ops.GiveSlots.model_validate({"as": label}) for label in self.taken]
        last += [ops.Close(request=name) for name, view in seen.requests.items() if view.status is not RequestStatus.CLOSED]
        last += [ops.CloseBatch(batch=name) for name in seen.batches]
        last.append(ops.ClearReusable())
        return last

    # -- choice ---------------------------------------------------------------------------------------------

    def _makers(self, seen: Observation) -> dict[str, tuple[float, Callable[[Observation], ops.Operation | None]]]:
        makers: dict[str, tuple[float, Callable[[Observation], ops.Operation | None]]] = {
            "create": (6, self._create),
            "story": (4, self._story),
            "resume": (10, self._resume),
            "resize": (16, self._resize),
            "enter_decode": (7, self._enter_decode),
            "commit": (10, self._commit),
            "suspend": (4, self._suspend),
            "close": (3, self._close),
            "prefetch": (3, self._prefetch),
            "offload": (1, self._offload),
            "write": (2, self._write),
            "publish": (6, self._publish),
            "batch": (2, self._batch),
            "membership": (5, self._membership),
            "tables": (3, self._tables),
            "tree": (3, self._tree),
            "evict": (2, self._evict),
            "slots": (2, self._slots),
            "request_small": (4, self._request_small),
            "dense": (2, self._dense),
            "iterate": (2, self._iterate),
            "capture": (1 if self.captured is None else 12, self._capture),
            "sync": (0.3, lambda _: ops.Sync(stream=self.rng.choice((None, self._stream())))),
            "stats": (1, lambda _: ops.Stats(reset=self.rng.random() < 0.5)),
        }
        if self.captured is None and self._attention():  # no read can be recorded in a capture
            makers |= {"page_read": (3, self._page_read), "table_read": (3, self._table_read)}
        if self.profile.gates:
            makers["gate"] = (4, self._gate)
        if self.profile.faults:
            makers["fail_copy"] = (2, self._fail_copy)
        if self.profile.beams:
            makers["beams"] = (1, self._beams)
        return makers

    def _label(self, kind: str) -> str:
        self.labels += 1
        return f"{kind}{self.labels}"

    def _live(self, seen: Observation, *status: RequestStatus) -> list[tuple[str, RequestView]]:
        wanted = status or (RequestStatus.ACTIVE, RequestStatus.SUSPENDED)
        return [(name, view) for name, view in seen.requests.items() if view.status in wanted]

    def _some(self, seen: Observation, *status: RequestStatus) -> tuple[str, RequestView] | None:
        if self.rng.random() < self.profile.wild and seen.requests:
            name = self.rng.choice(list(seen.requests))
            return name, seen.requests[name]
        live = self._live(seen, *status)
        return self.rng.choice(live) if live else None

    def _stream(self, among: Sequence[str] = STREAMS[:3]) -> str:
        return self.rng.choice(among)

    def _level(self) -> LevelKind:
        return self.rng.choice(self.manager.levels).kind

    def _some_tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self.rng.choice((0, 0, 1, 2)) % _TOKENS for _ in range(count))

    def _prefix(self, seen: Observation) -> tuple[int, ...]:
        """Tokens that match something of the tree, often with a tail of their own."""
        base: tuple[int, ...] = ()
        if seen.tree and self.rng.random() < 0.8:
            base = self.rng.choice(seen.tree).tokens
            base = base[: self.rng.randint(0, len(base))] if self.rng.random() < 0.4 else base
        if self.rng.random() < 0.6:
            return self.script[: self.rng.randint(1, 6 * self.manager.tokens_per_block)]
        return base + self._some_tokens(self.rng.randint(0, 2 * self.manager.tokens_per_block))

    # -- requests -------------------------------------------------------------------------------------------

    def _create(self, seen: Observation) -> ops.Operation | None:
        if len(self._live(seen)) >= 5:
            return None
        tpb = self.manager.tokens_per_block
        prompt = self.rng.choice((None, None, tpb, 2 * tpb)) if self.profile.beams else None
        priority = self.rng.choice((35, 35, 35, 10, 60))
        tokens = self._prefix(seen) if self.rng.random() < 0.8 else None
        free = self._free_names(seen)
        name = f"r{self.rng.randint(0, 7)}" if self.rng.random() < self.profile.wild else self.rng.choice(free)
        return ops.Create(request=name, tokens=tokens, prompt_length=prompt, priority=priority)

    def _free_names(self, seen: Observation) -> list[str]:
        """Names of no request that lives; there are always three."""
        taken = {name for name, _ in self._live(seen)}
        return [name for name in (f"r{number}" for number in range(8)) if name not in taken]

    def _story(self, seen: Observation) -> ops.Operation | None:
        """Several moves at once that bring requests together: on the same matched pages, in a rebase, in rows of a batch."""
        names = self._free_names(seen)
        if len(names) < 4 or self.captured is not None:
            return None
        tpb = self.manager.tokens_per_block
        levels = [level.kind for level in self.manager.levels]
        stage = Stage(self.rng, self.rng.sample(names, 4), STREAMS[:3], levels, list(seen.batches), tpb)
        text = self.script[: self.rng.randint(1, 4 * tpb)]
        roll = self.rng.random()
        if roll < 0.35:
            self.queue += meeting(stage, text)
        elif roll < 0.7:
            self.queue += rebase(stage, text)
        else:
            self.queue += deferred_rows(stage, (self.script[: tpb * self.rng.randint(1, 2)], self._some_tokens(tpb)))
        return self.queue.pop(0)

    def _resume(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.SUSPENDED)
        if some is None:
            return None
        stream: str | None = self.rng.choice(("default", "default", "exec", "side", None))
        return ops.Resume(request=some[0], stream=stream, decode=self.rng.choice((None, None, None, True, True, False)))

    def _resize(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        if some is None:
            return None
        name, view = some
        tpb = self.manager.tokens_per_block
        roll = self.rng.random()
        if roll < 0.12:
            return ops.Resize(request=name)
        if roll < 0.2:
            return ops.Resize(request=name, capacity=max(view.history, view.capacity - self.rng.randint(1, 2 * tpb)))
        if view.phase is Phase.DECODE:
            history = min(view.capacity, view.history + self.rng.randint(0, tpb + 1))
        else:
            history = view.history + self.rng.randint(0, 2 * tpb + 1)
        capacity = max(view.capacity, history) + self.rng.choice((0, 0, 1, tpb, 2 * tpb))
        if self.rng.random() < self.profile.wild:
            history, capacity = self.rng.randint(-1, 12), self.rng.randint(-1, 12)
        return ops.Resize(request=name, capacity=capacity, history=history)

    def _enter_decode(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        if some is None:
            return None
        return ops.AdmitGeneration(request=some[0]) if self.rng.random() < 0.2 else ops.EnterDecode(request=some[0])

    def _commit(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        if some is None:
            return None
        name, view = some
        tpb = self.manager.tokens_per_block
        room = view.capacity - view.committed
        count = (
            self.rng.randint(0, min(max(room, 0), 2 * tpb))
            if self.rng.random() > self.profile.wild
            else self.rng.randint(0, 3 * tpb)
        )
        known = [block.tokens for block in seen.tree if len(block.tokens) > view.committed]
        tokens = self._some_tokens(count)
        if self.rng.random() < 0.6:  # the same text as others, if it has followed it so far
            tokens = self.script[view.committed : view.committed + count]
        elif known and self.rng.random() < 0.5:
            tokens = self.rng.choice(known)[view.committed : view.committed + count]
        return ops.Commit(request=name, tokens=tokens, end=self.rng.random() < 0.1)

    def _suspend(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        return None if some is None else ops.Suspend(request=some[0])

    def _close(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen)
        return None if some is None else ops.Close(request=some[0])

    def _prefetch(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.SUSPENDED)
        return None if some is None else ops.Prefetch(request=some[0], level=self._level())

    def _offload(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        if some is None or some[1].history < self.manager.tokens_per_block:
            return None
        complete = some[1].history // self.manager.tokens_per_block
        return ops.Offload(request=some[0], blocks=tuple(self.rng.randrange(complete) for _ in range(self.rng.randint(1, 2))))

    def _write(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        if some is None:
            return None
        tpb = self.manager.tokens_per_block
        first, last = some[1].history // tpb, -(-some[1].capacity // tpb)
        if first >= last:
            return None
        return ops.Write(request=some[0], blocks=(self.rng.randrange(first, last),))

    def _beams(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen, RequestStatus.ACTIVE)
        return None if some is None else ops.SetBeamWidth(request=some[0], width=self.rng.choice((1, 2, 2, 3)))

    def _request_small(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen)
        if some is None:
            return None
        name = some[0]
        roll = self.rng.randrange(6)
        if roll == 0:
            return ops.SetStream(request=name, stream=self._stream())
        if roll == 1 and self.snapshots:
            return ops.Acknowledge(request=name, version=self.rng.choice(["latest", *self.snapshots]))
        if roll == 2:
            return ops.BindRow(request=name, row=self.rng.randint(-1, 3))
        if roll == 3:
            label = self._label("snap")
            self.snapshots.append(label)
            return ops.TakeSnapshot.model_validate(
                {"request": name, "group": self.rng.choice(group_names(self.manager)), "as": label}
            )
        if roll == 4:
            return ops.RecordRead(request=name, stream=self._stream())
        return ops.StopCommitting(request=name) if self.rng.random() < 0.3 else None

    # -- batches --------------------------------------------------------------------------------------------

    def _batch(self, seen: Observation) -> ops.Operation | None:
        if len(seen.batches) >= 2:
            return ops.CloseBatch(batch=self.rng.choice(list(seen.batches))) if self.rng.random() < 0.2 else None
        name = self.rng.choice([n for n in ("b0", "b1", "b2") if n not in seen.batches])
        return ops.MakeBatch(
            name=name, rows=self.rng.randint(1, 3), blocks=self.rng.randint(2, 8), levels=self.rng.random() < 0.5
        )

    def _membership(self, seen: Observation) -> ops.Operation | None:
        some = self._some(seen)
        if some is None or not seen.batches:
            return None
        batch = self.rng.choice(list(seen.batches))
        if some[1].batch == batch and self.rng.random() < 0.5:
            return ops.Remove(batch=batch, request=some[0])
        return ops.Add(batch=batch, request=some[0], row=self.rng.choice((None, None, 0, 1, 2)))

    def _publish(self, seen: Observation) -> ops.Operation | None:
        if not seen.batches:
            return None
        return ops.Publish(batch=self.rng.choice(list(seen.batches)), stream=self.rng.choice(("exec", "exec", "side")))

    def _tables(self, seen: Observation) -> ops.Operation | None:
        if not seen.batches:
            return None
        batch = self.rng.choice(list(seen.batches))
        roll = self.rng.randrange(4)
        if roll == 0:
            return ops.WaitReady(batch=batch, stream=self._stream())
        if roll == 1:
            return ops.RecordRead(batch=batch, stream=self._stream())
        view = seen.batches[batch]
        tpb = self.manager.tokens_per_block
        capacities: list[int | None] = []
        histories: list[int | None] = []
        for name in view.rows:
            member = seen.requests.get(name) if name is not None else None
            if member is None or member.status is not RequestStatus.ACTIVE or self.rng.random() < 0.3:
                capacities.append(None)
                histories.append(None)
                continue
            history = member.history + self.rng.randint(0, tpb)
            if member.phase is Phase.DECODE:
                history = min(history, member.capacity)
            capacities.append(min(max(member.capacity, history) + self.rng.choice((0, tpb)), view.blocks * tpb))
            histories.append(min(history, capacities[-1] or 0) if history >= member.history else member.history)
        return ops.ResizeBatch(batch=batch, capacities=tuple(capacities), histories=tuple(histories))

    def _table_read(self, seen: Observation) -> ops.Operation | None:
        """A publication, a read of it in order, and the fence behind the read; by a replayed graph now and then."""
        if not seen.batches:
            return None
        batch, stream, group = self.rng.choice(list(seen.batches)), self._stream(), self.rng.choice(self._attention())
        read = ops.ReadTable.model_validate({"batch": batch, "group": group, "stream": stream, "as": self._label("read")})
        fence = ops.RecordRead(batch=batch, stream=stream)
        self.queue = [read, fence]
        if self.rng.random() < 0.3:
            graph, where = self._label("graph"), self._stream(STREAMS)
            self.queue = [
                ops.BeginCapture(stream=where),
                read.model_copy(update={"stream": where}),
                ops.EndCapture.model_validate({"stream": where, "as": graph}),
                ops.Replay.model_validate({"graph": graph, "stream": stream, "as": self._label("read")}),
                fence,
            ]
        self.queue.insert(0, ops.WaitReady(batch=batch, stream=stream))
        return ops.Publish(batch=batch, stream=self._stream())

    def _page_read(self, seen: Observation) -> ops.Operation | None:
        """A snapshot, a read of a page of it in order, and the fence behind the read."""
        some = self._some(seen, RequestStatus.ACTIVE)
        if some is None or some[1].batch is not None:
            return None
        name, view = some
        group, stream, label = self.rng.choice(self._attention()), self._stream(), self._label("snap")
        snapshot = view.snapshots.get((group, 0))
        committed = view.committed // self.manager.tokens_per_block  # a snapshot's readiness has the writes of these alone (R6.4)
        blocks = [b for b, level in enumerate(snapshot.levels[:committed]) if level is not None] if snapshot is not None else []
        if not blocks:
            return None
        block = self.rng.choice(blocks)
        self.snapshots.append(label)
        read = {"request": name, "group": group, "block": block, "stream": stream, "as": self._label("read")}
        self.queue = [
            ops.WaitSnapshot(snapshot=label, stream=stream),
            ops.ReadPage.model_validate(read),
            ops.RecordRead(request=name, stream=stream),
        ]
        return ops.TakeSnapshot.model_validate({"request": name, "group": group, "as": label})

    def _dense(self, seen: Observation) -> ops.Operation | None:
        if not seen.batches:
            return None
        batch = self.rng.choice(list(seen.batches))
        members = [name for name in seen.batches[batch].rows if name is not None]
        return ops.DenseOffsets(batch=batch, requests=tuple(members)) if members else None

    def _iterate(self, seen: Observation) -> ops.Operation | None:
        """An iteration of some members, with a request that is no member now and then."""
        if not seen.batches:
            return None
        batch = self.rng.choice(list(seen.batches))
        members = [name for name in seen.batches[batch].rows if name is not None and self.rng.random() < 0.8]
        if self.rng.random() < self.profile.wild:
            members += list(seen.requests)[:1]
        return ops.Iterate.model_validate(
            {
                "batch": batch,
                "requests": tuple(self._scheduled(name, seen.requests[name]) for name in members if name in seen.requests),
                "layers": tuple(layer.name for layer in self.manager.layers) if self.rng.random() < 0.2 else (),
                "stream": self._stream(),
                "group": self.rng.choice((None, *self._attention())),
                "as": self._label("read"),
            }
        )

    def _scheduled(self, name: str, view: RequestView) -> ops.Scheduled:
        tpb = self.manager.tokens_per_block
        capacity = history = None
        if self.rng.random() < 0.7:
            history = min(view.history + self.rng.randint(0, tpb), view.capacity)
            capacity = view.capacity + self.rng.choice((0, 1, tpb))
        decode = view.phase is Phase.DECODE or self.rng.random() < 0.4
        return ops.Scheduled(request=name, capacity=capacity, history=history, decode=decode, accept=self.rng.random() < 0.8)

    def _capture(self, seen: Observation) -> ops.Operation | None:
        """A capture on any stream, and what is captured there; other moves come between."""
        if self.captured is None:
            self.captured = self._stream(STREAMS)
            return ops.BeginCapture(stream=self.captured)
        if seen.batches and self._attention() and self.rng.random() < 0.3:
            batch, group = self.rng.choice(list(seen.batches)), self.rng.choice(self._attention())
            label = self._label("read")
            return ops.ReadTable.model_validate({"batch": batch, "group": group, "stream": self.captured, "as": label})
        return self._end_capture()

    def _end_capture(self) -> ops.Operation:
        stream, self.captured = self.captured, None
        return ops.EndCapture.model_validate({"stream": stream, "as": self._label("graph")})

    def _attention(self) -> list[str]:
        state = {layer.name for layer in self.manager.layers if layer.kind is LayerKind.SSM}
        return [group for group in group_names(self.manager) if group not in state]

    # -- tree, slots, device --------------------------------------------------------------------------------

    def _tree(self, seen: Observation) -> ops.Operation | None:
        roll = self.rng.random()
        if roll < 0.45:
            groups = group_names(self.manager)
            some = None if self.rng.random() < 0.7 else tuple(sorted(self.rng.sample(groups, self.rng.randint(1, len(groups)))))
            return ops.SeedPrefix(
                tokens=self._prefix(seen), level=self._level(), groups=some, priority=self.rng.choice((35, 35, 10, 60))
            )
        if roll < 0.55:
            return ops.ClearReusable()
        return self._evict(seen)

    def _evict(self, seen: Observation) -> ops.Operation | None:
        some = [place for place, pool in seen.pools.items() if pool.evictable]
        if not some:
            return None
        level, group = self.rng.choice(some)
        count = len(seen.pools[level, group].evictable)
        return ops.Evict(level=LevelKind(level.label), group=self._named(group), pages=self.rng.randint(1, count))

    def _named(self, group: str) -> str | None:
        """A group, left out now and then."""
        return None if self.rng.random() < self.profile.wild else group

    def _slots(self, seen: Observation) -> ops.Operation | None:
        if self.taken and self.rng.random() < 0.6:
            label = self.taken.pop(self.rng.randrange(len(self.taken)))
            return ops.GiveSlots.model_validate({"as": label})
        level, group = self.rng.choice(list(seen.pools))
        free = seen.pools[level, group].free
        if not free:
            return None
        label = self._label("taken")
        self.taken.append(label)
        count: int | str = "all" if self.rng.random() < 0.3 else self.rng.randint(1, free)
        return ops.TakeSlots.model_validate({"level": level.label, "group": self._named(group), "count": count, "as": label})

    def _gate(self, seen: Observation) -> ops.Operation | None:
        if self.gates and (len(self.gates) >= 3 or self.rng.random() < self.opening):
            label = self.rng.choice(list(self.gates))
            del self.gates[label]
            return ops.OpenGate.model_validate({"as": label})
        return self._close_gate()

    def _close_gate(self) -> ops.Operation:
        label = self._label("gate")
        stream = self._stream([name for name in STREAMS[:3] if name != self.captured])
        self.gates[label] = stream
        return ops.CloseGate.model_validate({"stream": stream, "as": label})

    def _fail_copy(self, seen: Observation) -> ops.Operation | None:
        """A refusal, mostly with a move behind it that is likely to copy in that direction."""
        direction = self.rng.choice(list(ops.Direction))
        moves: dict[ops.Direction, tuple[Callable[[Observation], ops.Operation | None], ...]] = {
            ops.Direction.OFFLOAD: (self._enter_decode, self._resize, self._commit, self._evict, self._offload, self._resume),
            ops.Direction.ONBOARD: (self._resume, self._resume, self._prefetch, self._commit),
            ops.Direction.COPY: (self._resume,),
            ops.Direction.UPLOAD: (self._publish, self._tables, self._iterate),
        }
        move = self.rng.choice(moves[direction])(seen) if self.rng.random() < 0.7 else None
        self.queue += [] if move is None else [move]
        return ops.FailCopy(direction=direction, call=self.rng.choice((1, 1, 1, 2)), queued=self.rng.random() < 0.5)
