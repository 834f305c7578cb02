"""Comparing everything observable of two systems after one step, up to the renaming of slots and versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvspec.config import ManagerConfig
from kvspec.harness.closely import Closely, closely
from kvspec.harness.difference import Difference, Kind
from kvspec.harness.naming import Matching, PageKey, match, page_name
from kvspec.harness.side import Side
from kvspec.observation import Order
from kvspec.payload import Content
from kvspec.refs import Pools, fetching_layers, group_shapes, pool_groups
from kvspec.scenario import Step

RULES: dict[str, tuple[str, ...]] = {
    "status": ("R3.2", "R3.10"),
    "phase": ("R3.8",),
    "capacity": ("R3.6",),
    "history": ("R3.6",),
    "committed": ("R3.9",),
    "row": ("R6.6", "R8.2"),
    "batch": ("R8.2",),
    "beam width": ("R3.12",),
    "version": ("R6.4",),
    "acknowledged": ("R6.5", "R8.4"),
    "dirty": ("R6.5",),
    "snapshot": ("R6.1",),
    "index": ("R6.2",),
    "level": ("R6.2", "R2.4"),
    "eligible": ("R6.3",),
    "ready": ("R7.1", "R7.3"),
    "page": ("R2.1",),
    "references": ("R2.2",),
    "tokens": ("R2.1", "R2.6"),
    "slot": ("R2.4",),
    "page status": ("R2.2",),
    "owners": ("R2.3",),
    "copies": ("R14.1", "R14.2"),
    "payload": ("R2.4", "R7.1"),
    "tree": ("R2.6", "R10.3"),
    "pool": ("R1.6",),
    "slots": ("R1.2",),
    "free": ("R3.14", "R4.6"),
    "fences": ("R7.2", "R7.4"),
    "evictable": ("R10.2",),
    "batches": ("R8.1",),
    "blocks": ("R8.1",),
    "address": ("R8.1",),
    "rows": ("R8.2",),
    "dirty rows": ("R8.3",),
    "published": ("R8.4", "R8.5"),
    "device entries": ("R8.4",),
    "upload": ("R7.5",),
    "staging": ("R7.6",),
    "counters": ("R13.1",),
    "copy calls": ("R4.5", "R13.2"),
    "events": ("R13.3",),
    "label": ("R6.1",),
    "read": ("R7.2", "R7.7", "R8.8"),
    "read order": ("R7.2", "R7.7"),
    "stream": ("R7.7", "R7.8", "R7.9"),
    "reserved": ("R15.2",),
    "cache": ("R15.3", "R15.5"),
    "cached payload": ("R15.4", "R15.7"),
    "fetch": ("R15.4",),
    "fetch order": ("R15.7",),
    "groups": ("R1.5",),
    "outcome": ("R9",),
}
"""The rules that speak of each thing compared."""


@dataclass(slots=True)
class Shared:
    """What the harness remembers of both systems together.

    ``allowed``: by page of the implementation, the gates that may hold up its readiness as its last move shared a submission.
    ``writes``: by page of the reference, the closed gates that hold up the last write of its payload, which changes no readiness.
    ``gates``: all gates of ``allowed`` so far. ``contents``: every content that the reference has shown, with no value: by them
    a report says what wrong bytes are, however long ago they were written, so they are as many as the scenario wrote.
    ``unobserved``: what one of the systems cannot show (see ``kvspec.harness.unobserved``). ``clean``: whether the last
    comparison found nothing. ``loose``: whether the systems follow policies that the scenario does not ask for: what it expects
    and the reference does not show then is not held against either. ``passed_over``: how often that was so. ``fetching``: by
    layer that can be fetched, its group and the units of a page (R15.1, R15.11).
    """

    manager: ManagerConfig
    page_bytes: dict[str, int]
    pools: Pools
    allowed: dict[PageKey, frozenset[str]] = field(default_factory=dict)
    label_allowed: dict[str, dict[int, frozenset[str]]] = field(default_factory=dict)
    writes: dict[PageKey, frozenset[str]] = field(default_factory=dict)
    gates: frozenset[str] = frozenset()
    contents: dict[Content, None] = field(default_factory=dict)
    touched_pages: dict[PageKey, int] = field(default_factory=dict)
    touched_rows: dict[tuple[str, int], int] = field(default_factory=dict)
    unobserved: frozenset[str] = frozenset()
    clean: bool = False
    loose: bool = False
    passed_over: int = 0
    fetching: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, manager: ManagerConfig, unobserved: frozenset[str] = frozenset()) -> Shared:
        """For a replay of a manager."""
        page_bytes = {name: shape.page_bytes for name, shape in group_shapes(manager).items()}
        fetching = {layer: (group, units) for layer, group, units in fetching_layers(manager)}
        return cls(manager, page_bytes, pool_groups(manager), unobserved=unobserved, fetching=fetching)


@dataclass(slots=True)
class Comparison:
    """Both systems after one step, matched. ``closely``: what of pages and snapshots is looked at; ``None``: everything."""

    step: Step
    reference: Side
    implementation: Side
    shared: Shared
    matching: Matching
    closely: Closely | None = None

    @classmethod
    def of(cls, step: Step, reference: Side, implementation: Side, shared: Shared) -> Comparison:
        """Match the pages of two sides, and carry what is remembered of both over to this step."""
        found = cls(step, reference, implementation, shared, match(reference.now, implementation.now))
        before = [*shared.allowed, *shared.writes]
        found._carry()
        remembered = [*before, *shared.allowed, *shared.writes]
        found.closely = closely((reference, implementation), found.matching, shared.clean, remembered)
        shared.clean = False
        return found

    def pair_in(self, side: Side, page: int | None) -> int | None:
        """The pair that a page of a side belongs to; a page that has no partner gets a number of its own."""
        if page is None:
            return None
        pairs = self.matching.of_reference if side is self.reference else self.matching.of_implementation
        own = -2 * page - (1 if side is self.reference else 2)
        return pairs.get(page, own)

    def allowed(self, page: int) -> frozenset[str]:
        """The gates that may hold up the readiness of a page of the implementation besides those that must."""
        return self.shared.allowed.get(self.implementation.now.keys[page], frozenset())

    def unwritten(self, page: int) -> frozenset[str]:
        """The closed gates that hold up the last write of the payload of a page of the reference (R6.4)."""
        return self.shared.writes.get(self.reference.now.keys[page], frozenset())

    def differ(
        self,
        identity: str,
        subject: str,
        *values: object,
        detail: tuple[str, ...] = (),
        page: str | None = None,
        row: tuple[str, int] | None = None,
    ) -> Difference:
        """A difference of state; ``values``: the reference's, then the implementation's. Its rules are those of ``identity``."""
        reference, implementation = values
        return Difference(
            Kind.STATE,
            subject,
            text(reference),
            text(implementation),
            identity=identity,
            rules=RULES[identity],
            detail=detail,
            page=page,
            row=row,
        )

    def _carry(self) -> None:
        ref, impl = self.reference, self.implementation
        for number in ref.now.changed():
            content = ref.now.pages[number].payload
            if isinstance(content, Content):
                self.shared.contents.setdefault(content)
        self._carry_touches()
        self._carry_writes()
        moved: list[int] = []
        allowed = impl.now.of_the_same(self.shared.allowed)
        for number in impl.now.changed():
            key = impl.now.keys[number]
            old = impl.now.successor_of(number, impl.before) if impl.before is not None else None
            page = impl.now.pages[number]
            if old is None or impl.before is None:
                if page.ready.gates:
                    moved.append(number)
                continue
            was = impl.before.pages[old]
            if (was.level, was.slot) != (page.level, page.slot):
                moved.append(number)
            elif impl.before.keys[old] in self.shared.allowed:
                allowed[key] = self.shared.allowed[impl.before.keys[old]]
        if len(moved) > 1:
            # R7.1: pages moved in one step may have shared a submission, and then all wait for what each of them waits for.
            gates: frozenset[str] = frozenset()
            for number in moved:
                pair = self.matching.of_implementation.get(number)
                if pair is not None:
                    gates |= ref.now.pages[self.matching.pairs[pair][0]].ready.gates
            if gates:
                allowed.update((impl.now.keys[number], gates) for number in moved)
            self.shared.gates |= gates
        self.shared.allowed = allowed

    def _carry_writes(self) -> None:
        side = self.reference
        closed = frozenset(side.memory.gates)
        kept = side.now.of_the_same(self.shared.writes)
        writes = {key: held & closed for key, held in kept.items() if held & closed}
        for number in side.now.changed():
            content = side.now.pages[number].payload
            if not isinstance(content, Content):
                continue
            old = side.now.successor_of(number, side.before) if side.before is not None else None
            if old is not None and side.before is not None and side.before.pages[old].payload == content:
                held = self.shared.writes.get(side.before.keys[old], frozenset()) & closed
            elif side.before is not None and (other := side.now.known_location(number, side.before)) is not None:
                held = self.shared.writes.get(other, frozenset()) & closed  # R14.4: filled with what was written there
            else:
                order = side.now.observation.streams.get(side.memory.streams.get(content.source, ""))
                held = order.gates if order is not None else frozenset()
            if held:
                writes[side.now.keys[number]] = held
        self.shared.writes = writes

    def _carry_touches(self) -> None:
        side = self.reference
        touched = side.now.of_the_same(self.shared.touched_pages)
        for number in side.now.changed():
            key = side.now.keys[number]
            old = side.now.successor_of(number, side.before) if side.before is not None else None
            if old is None or side.before is None:
                touched[key] = self.step.number
                continue
            was, page = side.before.pages[old], side.now.pages[number]
            same = (was.level, was.slot, was.status, was.refs, was.owners, was.tokens) == (
                page.level,
                page.slot,
                page.status,
                page.refs,
                page.owners,
                page.tokens,
            )
            last = self.shared.touched_pages.get(side.before.keys[old], self.step.number)
            touched[key] = last if same else self.step.number
        self.shared.touched_pages = touched
        before = side.before.observation.batches if side.before is not None else {}
        for name, view in side.now.observation.batches.items():
            was_batch = before.get(name)
            for row, member in enumerate(view.rows):
                dirty = row in view.dirty_rows
                unchanged = (
                    was_batch is not None
                    and row < len(was_batch.rows)
                    and was_batch.rows[row] == member
                    and (row in was_batch.dirty_rows) == dirty
                    and all(
                        name_ in was_batch.published and was_batch.published[name_].page_table[row] == entries.page_table[row]
                        for name_, entries in view.published.items()
                    )
                )
                if not unchanged:
                    self.shared.touched_rows[name, row] = self.step.number


def text(value: object) -> str:
    """A value for the reader."""
    if value is None:
        return "-"
    if isinstance(value, Order):
        return "pending" if value.pending else "done"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(text(one) for one in value) + "]"
    return str(value)


def inconsistencies(side: Side, comparison: Comparison) -> Iterator[Difference]:
    """What one system shows that cannot be, whatever the other shows."""
    doubles = side.now.doubles if comparison.shared.manager.policy.dedupe == "rebase" else []
    for problem in (*side.now.problems, *doubles):
        is_reference = side is comparison.reference
        yield comparison.differ("page", problem, "inconsistent" if is_reference else "-", "-" if is_reference else "inconsistent")


def named(side: Side, page: int | None) -> str:
    """A page of a side for the reader."""
    return "no page" if page is None else page_name(side.now.pages[page])
