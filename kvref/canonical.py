"""When two states are the same: they go on alike, whatever is done to both.

The canonical form of a state has what the next operations hang on, and nothing else. Not in it: numbers that only grow (steps,
identities, versions, counters, logs), what was read or counted, the contents of pages, and what a closed request still answers.
Slots are in it by who is there, requests by what they have, the order of eviction and of free slots as an order. Device work is
in it as the closed gates that hold it up: without those all work is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import groupby, permutations, product
from typing import Any, TypeAlias

from kvref.order import Work
from kvref.state import (
    EMPTY,
    NEVER,
    Batch,
    Key,
    Node,
    Page,
    Request,
    State,
    can_commit,
    kept,
    locked,
    locked_backings,
    pool_group_of,
)
from kvspec.observation import RequestStatus

Form: TypeAlias = tuple[Any, ...]
"""Nested tuples of numbers and texts."""
NOBODY, CLOSED = -1, -2
DIGEST = 16
"""Bytes of a digest: so many that two states among billions do not meet by chance."""


def digest(state: State) -> bytes:
    """A digest of the canonical form, the same in every process."""
    return blake2b(repr(canonical(state)).encode(), digest_size=DIGEST).digest()


def canonical(state: State) -> Form:
    """The canonical form: of all orders of the requests that look alike the one that gives the least."""
    form = _Form(state)
    return min(form.of(names) for names in form.orders())


class _Form:
    """What is the same for every order of the requests, worked out once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.live = [r for r in state.requests.values() if r.status is not RequestStatus.CLOSED]
        self.gates = {number: place for place, (_, number) in enumerate(sorted(state.gates.items()))}
        self.nodes = _in_order(state)
        self.places = _places(state)
        self.shared = {pid: len(by) for pid, by in kept(state).items()}
        self.fetching = any(g.reserve for g in state.layout.groups)

    def orders(self) -> Iterator[list[Request]]:
        """The orders of the requests: by what each has; those that have the same, in every order."""
        alike = groupby(sorted(((self.apart(r), r) for r in self.live), key=lambda one: one[0]), key=lambda one: one[0])
        for order in product(*(permutations([r for _, r in group]) for _, group in alike)):
            yield [r for group in order for r in group]

    def apart(self, r: Request) -> str:
        """What tells a request from others, whatever they are called."""
        pages = [(k, self.page(self.state.pages[pid]), self.places[pid], self.shared[pid]) for k, pid in sorted(r.pages.items())]
        return repr((self.request(r), pages))

    def of(self, requests: list[Request]) -> Form:
        """The form with the requests in this order."""
        state = self.state
        names = {r.name: place for place, r in enumerate(requests)}
        keepers: dict[int, tuple[int, Key]] = {}
        for place, r in enumerate(requests):
            for key, pid in r.pages.items():
                keepers[pid] = min(keepers.get(pid, (place, key)), (place, key))
        pages = sorted(state.pages.values(), key=lambda p: self.rank(p, keepers))
        number = {p.id: place for place, p in enumerate(pages)}
        identities = {p.identity: number[p.id] for p in reversed(pages)}
        return (
            tuple((self.request(r), tuple((k, number[pid]) for k, pid in sorted(r.pages.items()))) for r in requests),
            len(state.requests) - len(requests),
            tuple(
                (self.page(p), identities[p.identity] if p.identity else NOBODY, names.get(p.copy_of or "", NOBODY))
                for p in pages
            ),
            tuple(sorted((self.places[p.id], number[p.id]) for p in pages)),
            tuple(entry for _, entry in sorted(self.nodes.values())),
            tuple(tuple(self.work(slot.fence) for slot in slots) for _, slots in sorted(state.free.items())),
            tuple(
                (label, pool, tuple(self.work(s.fence) for s in slots)) for label, (pool, slots) in sorted(state.taken.items())
            ),
            tuple(self.batch(b, names, number) for b in state.batches.values()),
            tuple((name, self.work(stream.last)) for name, stream in sorted(state.streams.items())),
            tuple(sorted(state.gates)),
            tuple(sorted((f.direction.value, f.call, f.queued) for f in state.faults)),
            self.reserved(names),
            self.kept_for_later(),
        )

    def request(self, r: Request) -> Form:
        """A request without its pages and its name."""
        return (
            r.status.value,
            r.phase.value,
            r.capacity,
            r.history,
            repr(r.tokens),
            tuple(self.nodes[node][0] if node in self.nodes else NOBODY for node in r.path),
            (r.priority, r.prompt, r.key or "", r.stream or "", NOBODY if r.row is None else r.row, r.width),
            (r.beams, r.ended, r.terminal, r.resumed, r.copied, can_commit(self.state, r), r.version == r.acknowledged),
            repr(r.again),
        )

    def page(self, p: Page) -> Form:
        """A page without its slot, its number and who has it."""
        node = self.nodes[p.node][0] if p.node is not None else NOBODY
        works = (self.work(p.ready), self.work(p.reads), self.work(p.fence)) if self.gates else ()
        return p.group, p.block, p.beam, int(p.level), p.priority, p.written, node, works

    def rank(self, p: Page, keepers: dict[int, tuple[int, Key]]) -> tuple[Any, ...]:
        """Where a page stands among all: those of the tree as they entered it, the others by who keeps them."""
        if p.node is not None:
            return 0, self.nodes[p.node][0], p.group, p.entered, not p.backing, p.id
        place, key = keepers.get(p.id, (NOBODY, p.key))
        return 1, place, key, 0, not p.backing, p.id

    def work(self, work: Work) -> tuple[int, ...]:
        """The closed gates that hold a piece of work up."""
        return tuple(sorted(self.gates[gate] for gate in work.gates if gate in self.gates)) if self.gates else ()

    def batch(self, b: Batch, names: dict[str, int], number: dict[int, int]) -> Form:
        """A batch: who is in its rows, and whose newest version each row has published."""
        newest = {r.version: names[r.name] for r in self.live}
        rows = tuple(NOBODY if name is None else names.get(name, CLOSED) for name in b.rows)
        published = tuple(
            ("never" if v == NEVER else "empty") if v in (NEVER, EMPTY) else newest.get(v, "old") for v in b.published
        )
        form: Form = (b.name, b.open, b.blocks, b.levels, b.retry.value, rows, tuple(map(str, published)))
        if self.gates:
            works = [*(u.work for u in b.uploads), *b.refused, b.reads, *(work for _, work in sorted(b.fetches.items()))]
            form = (*form, tuple(map(self.work, works)), self.named(b, number))
        if self.fetching:
            form = (
                *form,
                tuple(NOBODY if name is None else names.get(name, CLOSED) for name in b.members),
                tuple(map(len, b.reserved)),
            )
        return form

    def named(self, b: Batch, number: dict[int, int]) -> Form:
        """R7.7: who is in the slots that the published tables name: what a recorded read holds up."""
        at = {(pool_group_of(self.state, p), p.slot): ("page", number[p.id]) for p in self.state.pages.values()}
        for pool, slots in self.state.free.items():
            at.update({(pool, slot.number): ("free", place) for place, slot in enumerate(slots)})
        found = set()
        for row in b.uploads[-1].rows if b.uploads else ():
            for g, entries in zip(self.state.layout.attention, row, strict=True):
                for index, level in zip(entries.indices, entries.levels, strict=True):
                    if level is not None:
                        found.add(at.get((self.state.layout.pool_group(level, g.index), index), ("other", 0)))
        return tuple(sorted(found))

    def reserved(self, names: dict[str, int]) -> Form:
        """What is reserved, and cached there, the most recent first (R15.5)."""
        found = []
        for one in self.state.reservations.values():
            caches = [
                (layer, self.work(cache.work), tuple(c.number for c in cache.cached))
                for layer, cache in sorted(one.caches.items())
            ]
            fences = tuple(self.work(slot.fence) for slot in one.slots)
            found.append((names.get(one.request, NOBODY), one.group, one.held, fences, tuple(caches)))
        return tuple(sorted(found))

    def kept_for_later(self) -> Form:
        """What is kept under labels, as far as something hangs on it: snapshots, graphs, a capture."""
        state = self.state
        newest = {r.version for r in state.requests.values()}
        batches = {uid: place for place, uid in enumerate(state.batches)}
        labels = [
            (label, s.version in newest, tuple(self.work(work) for work in s.ready if work is not None))
            for label, s in sorted(state.labels.items())
        ]
        if not (state.graphs or state.capture):
            return (tuple(labels),)
        graphs = [(label, _reads(reads, batches)) for label, reads in sorted(state.graphs.items())]
        capture = () if state.capture is None else (state.capture.stream, _reads(state.capture.reads, batches))
        return tuple(labels), tuple(graphs), capture


def _reads(reads: Iterable[Any], batches: dict[int, int]) -> str:
    return repr(
        [(batches[one[0]], one[1]) if isinstance(one, tuple) else (batches[one.batch], one.layer, one.label) for one in reads]
    )


def _in_order(state: State) -> dict[int, tuple[int, Form]]:
    """By number, the place of each tree block, parents before children, and what it is; siblings in order of their tokens."""
    by_prefix = sorted(state.nodes.values(), key=lambda n: (len(n.prefix), repr(n.prefix)))
    place = {node.id: number for number, node in enumerate(by_prefix)}
    return {node.id: (place[node.id], _block(node, state, place)) for node in by_prefix}


def _block(node: Node, state: State, place: dict[int, int]) -> Form:
    older = sum(other.parent == node.parent and other.id < node.id for other in state.nodes.values())  # R3.1: then the older
    return NOBODY if node.parent is None else place[node.parent], repr(node.tokens), node.gone, older


def _places(state: State) -> dict[int, int]:
    """R10.2: the place of each page in the order of eviction, whether or not it may leave now; all pool groups together, as
    pages move from one into another.

    Where letting go is what makes a page young, the place of a locked one is nowhere: it is the last when it is let go of.
    """
    owned = locked(state).keys() | locked_backings(state) if state.layout.policies.recency == "release" else frozenset()
    waiting = sorted(
        (p for p in state.pages.values() if p.id not in owned), key=lambda p: (p.priority, p.since, -p.block, p.group, p.id)
    )
    return {**dict.fromkeys(owned, NOBODY), **{p.id: place for place, p in enumerate(waiting)}}
