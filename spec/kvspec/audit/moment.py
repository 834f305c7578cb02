"""One step of the reference as facts: what a system showed before and after an operation, and what happened in between.

The definitions of reached states (`kvspec.audit.reached`) ask these facts, never a system. What no single step shows (whose
stream is held up, whose reads are still to come) is kept in a `Trail`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kvspec import ops
from kvspec.config import LayerConfig, LayerKind, Level, ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index, PageKey
from kvspec.observation import Observation, PageRef, PageView, Phase, RequestView
from kvspec.refs import fetching_layers, group_shapes
from kvspec.system import Outcome


@dataclass(frozen=True, slots=True)
class Moved:
    """A page that is at another level after the step."""

    before: PageView
    after: PageView

    @property
    def down(self) -> bool:
        """Whether it went to a colder level."""
        return self.after.level > self.before.level


@dataclass(slots=True)
class Trail:
    """What is remembered between steps.

    ``reads``: by request, the closed gates behind which reads of it were recorded. ``stale``: by page, who let go of it as a
    stale block, and the closed gates that held up that request's stream then. ``closed``: by batch, how many members were closed
    since its last publication, which still names their pages. ``given``: by pool group of the GPU and slot, the closed gates
    behind which a reserved slot was given back.
    """

    memory: Memory
    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    stale: dict[PageKey, dict[str, frozenset[str]]] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    given: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, manager: ManagerConfig) -> Trail:
        """The trail of a lifecycle that begins now."""
        return cls(Memory(tuple(group_shapes(manager))))

    def held_up(self, request: str, seen: Observation) -> frozenset[str]:
        """The closed gates that hold up the stream of a request."""
        stream = seen.streams.get(self.memory.streams.get(request, ""))
        return frozenset() if stream is None else stream.gates


@dataclass(frozen=True)
class Moment:
    """A step: the operation, its outcome, and what was shown before and after. ``trail``: as it was before the step."""

    number: int
    manager: ManagerConfig
    op: ops.Operation
    outcome: Outcome
    before: Index
    after: Index
    trail: Trail

    # -- the call -------------------------------------------------------------------------------------------

    @property
    def verb(self) -> str:
        """The verb of the operation."""
        return self.op.verb

    @property
    def succeeded(self) -> bool:
        """Neither an error nor false."""
        return self.outcome.error is None and self.outcome.value is not False

    @property
    def result(self) -> str:
        """How the call ended, in a word: ``done``, ``false``, or the kind of its error."""
        if self.outcome.error is not None:
            return self.outcome.error.value
        return "false" if self.outcome.value is False else "done"

    @property
    def refused(self) -> bool:
        """Whether a copy was refused."""
        return self.outcome.error is ErrorKind.COPY_FAILED

    @cached_property
    def actors(self) -> tuple[str, ...]:
        """The requests that the operation is a call on: one, the members of a batch, or those that an iteration schedules."""
        if isinstance(self.op, ops.Iterate):
            return tuple(entry.request for entry in self.op.requests)
        if isinstance(self.op, ops.ResizeBatch | ops.Publish):
            batch = self.before.observation.batches.get(self.op.batch)
            return tuple(name for name in batch.rows if name is not None) if batch is not None else ()
        name = getattr(self.op, "request", None)
        return (name,) if isinstance(name, str) else ()

    def was(self, request: str) -> RequestView | None:
        """A request before the step."""
        return self.before.observation.requests.get(request)

    def now(self, request: str) -> RequestView | None:
        """A request after the step."""
        return self.after.observation.requests.get(request)

    @cached_property
    def fetching(self) -> dict[str, tuple[str, int]]:
        """The layers that can be fetched, each with its group and the units of a page (R15.1, R15.11)."""
        return {layer: (group, units) for layer, group, units in fetching_layers(self.manager)}

    @cached_property
    def reserving(self) -> dict[str, int]:
        """The groups that reserve slots, each with how many (R15.2)."""
        return {group: self.layer(group).buffers[0].reserve or 0 for group, _ in self.fetching.values()}

    # -- the pages ------------------------------------------------------------------------------------------

    @cached_property
    def same(self) -> dict[int, int]:
        """By the number of a page now, its number before; new ones are not in it."""
        numbers = range(len(self.after.pages))
        return {n: old for n in numbers if (old := self._before(n)) is not None}

    def _before(self, number: int) -> int | None:
        old = self.after.successor_of(number, self.before)
        if old is not None:
            return old
        page = self.after.pages[number]
        there = self.before.occupant(page.level, page.group, page.slot)
        if there is None or page.tokens is None or page.refs or self.before.keys[there] in self.after.by_key:
            return None
        was = self.before.pages[there]  # it entered the tree where it is, and its request let go of it (R3.9)
        return there if (was.group, was.block, was.tokens) == (page.group, page.block, None) else None

    @cached_property
    def pairs(self) -> tuple[tuple[PageView, PageView], ...]:
        """Every page that is there before and after."""
        return tuple((self.before.pages[old], self.after.pages[new]) for new, old in self.same.items())

    @cached_property
    def moved(self) -> tuple[Moved, ...]:
        """Every page that changed its level."""
        return tuple(Moved(old, new) for old, new in self.pairs if old.level is not new.level)

    @cached_property
    def evicted(self) -> tuple[Moved, ...]:
        """Every page that went down and is nobody's now: an offloaded one stays locked (R4.6)."""
        return tuple(move for move in self.moved if move.down and not move.after.owners)

    @cached_property
    def offloaded(self) -> tuple[Moved, ...]:
        """Every page that went down with its owners."""
        return tuple(move for move in self.moved if move.down and move.after.owners)

    @cached_property
    def new(self) -> tuple[PageView, ...]:
        """Every page that was not there before."""
        return tuple(page for n, page in enumerate(self.after.pages) if n not in self.same)

    @cached_property
    def gone(self) -> tuple[PageView, ...]:
        """Every page that is not there any more."""
        left = set(self.same.values())
        return tuple(page for n, page in enumerate(self.before.pages) if n not in left)

    @cached_property
    def dropped(self) -> tuple[PageView, ...]:
        """Every page of the tree that is not there any more (R10.3)."""
        return tuple(page for page in self.gone if page.tokens is not None)

    @cached_property
    def made_room(self) -> bool:
        """Whether a page was evicted or dropped."""
        return bool(self.evicted or self.dropped)

    @cached_property
    def arrived(self) -> frozenset[tuple[Level, str]]:
        """The pool groups in which a page took a slot: each as its level and the name that the observation gives it."""
        pages = [*self.new, *(move.after for move in self.moved)]
        return frozenset((page.level, self.after.pools[page.level, page.group]) for page in pages)

    def pool(self, page: PageView) -> tuple[Level, str]:
        """The pool group of a page, as in ``arrived``."""
        return page.level, self.before.pools[page.level, page.group]

    # -- blocks ---------------------------------------------------------------------------------------------

    def layer(self, group: str) -> LayerConfig:
        """The first layer of a layer group, which says what all of them are (R1.5)."""
        return next(layer for layer in self.manager.layers if layer.name == group)

    def is_state(self, group: str) -> bool:
        """Whether a group is of SSM states."""
        return self.layer(group).kind is LayerKind.SSM

    def is_dense(self, group: str) -> bool:
        """Whether a group is of dense attention pages."""
        return not self.layer(group).sparse and not self.is_state(group)

    def complete(self, block: int, history: int) -> bool:
        """Whether a block is wholly history."""
        return (block + 1) * self.manager.tokens_per_block <= history

    def is_stale(self, group: str, block: int, history: int) -> bool:
        """R1.8: whether a block of a group is stale at a history."""
        layer, tpb = self.layer(group), self.manager.tokens_per_block
        if layer.sliding_window is None or layer.sparse:
            return False
        first = min(-(-history // tpb), -(-(layer.sink_tokens or 0) // tpb))
        return first <= block < (history + 1 - layer.sliding_window) // tpb

    def keepers_of_stale(self, page: PageView, seen: Index) -> Iterator[PageRef]:
        """R3.7: as what a page outside the tree is kept for committing: the references for which its block is stale."""
        if page.tokens is None:
            for ref in page.refs:
                view = seen.observation.requests[ref.request]
                if self.is_stale(ref.group, ref.block, view.history):
                    yield ref

    def decoded(self, request: str) -> bool:
        """Whether a request decoded before the step already."""
        view = self.was(request)
        return view is not None and view.phase is Phase.DECODE

    # -- what is remembered ---------------------------------------------------------------------------------

    @cached_property
    def let_go(self) -> dict[PageKey, dict[str, frozenset[str]]]:
        """By page of the tree, the requests that let go of it as a stale block behind closed gates, and these gates."""
        old, new = self.before.observation, self.after.observation
        found: dict[PageKey, dict[str, frozenset[str]]] = {}
        for before, after in self.pairs:
            if before.tokens is None:
                continue
            key: PageKey = (before.group, before.tokens, before.beam)
            for ref in before.refs - after.refs:
                gates, history = self.trail.held_up(ref.request, old), new.requests[ref.request].history
                if gates and ref.request in self.actors and self.is_stale(ref.group, ref.block, history):
                    found.setdefault(key, {})[ref.request] = gates
        return found

    def follow(self) -> None:
        """Take this step into the trail."""
        trail = self.trail
        for key, names in self.let_go.items():
            trail.stale.setdefault(key, {}).update(names)
        self._given_back()
        if self.outcome.error is None:
            self._reads()
        open_gates = {label for label in trail.memory.gates if isinstance(self.op, ops.OpenGate) and label == self.op.as_}
        for gates in (trail.reads, *trail.stale.values()):
            for name in [name for name, labels in gates.items() if not labels - open_gates]:
                del gates[name]
        trail.given = {slot: labels for slot, labels in trail.given.items() if labels - open_gates}
        trail.memory.update(self.number, self.op, self.outcome, self.before, self.after)

    def _given_back(self) -> None:
        """R15.2: the reserved slots that the step has given back, behind gates."""
        old, new = self.before.observation, self.after.observation
        for name, groups in old.reserved.items():
            for group, slots in groups.items() if name not in new.reserved else ():
                caches = old.caches.get(name, {})
                gates = [caches[layer].order.gates for layer, (of, _) in self.fetching.items() if of == group and layer in caches]
                behind = frozenset[str]().union(*gates, self.trail.reads.get(name, frozenset()))
                if behind:
                    self.trail.given |= {(self.before.pools[Level.GPU, group], slot): behind for slot in slots}

    def _reads(self) -> None:
        trail, old = self.trail, self.before.observation
        match self.op:
            case ops.RecordRead() | ops.Iterate() if self.op.stream in old.streams and old.streams[self.op.stream].gates:
                request = getattr(self.op, "request", None)
                batch = old.batches.get(self.op.batch) if self.op.batch is not None else None
                names = [request] if request is not None else [n for n in batch.rows if n is not None] if batch else []
                for name in names:
                    trail.reads[name] = trail.reads.get(name, frozenset()) | old.streams[self.op.stream].gates
            case ops.Close():
                trail.reads.pop(self.op.request, None)
                view = old.requests.get(self.op.request)
                if view is not None and view.batch is not None and view.row not in old.batches[view.batch].dirty_rows:
                    trail.closed[view.batch] = trail.closed.get(view.batch, 0) + 1
            case ops.Publish() | ops.MakeBatch() | ops.ResizeBatch():
                trail.closed.pop(getattr(self.op, "batch", getattr(self.op, "name", "")), None)
        if isinstance(self.op, ops.Iterate):
            trail.closed.pop(self.op.batch, None)
