"""What one system shows after a step, as plain facts by key: the source of the picture and of what a step has changed.

A fact's key is a tuple that begins with its kind; its value is a tuple of numbers, texts and ``None``. A page has a number that
it keeps as long as it lives, so that moving it changes one fact, whoever shares it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kvspec.config import Level, ManagerConfig
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index
from kvspec.harness.timeline.reasons import why_here
from kvspec.harness.timeline.wording import base_name, folded, shown_name, shown_names
from kvspec.observation import BatchView, FetchView, Observation, PageRef, PageView, RequestView, SnapshotView
from kvspec.tokens import Token

Plain: TypeAlias = int | str | None
Key: TypeAlias = tuple[str | int, ...]
Facts: TypeAlias = dict[Key, tuple[Plain, ...]]
"""
==============================  ================================================================================================
key                             value
==============================  ================================================================================================
``request, name``               `RequestFact`
``pages, request, group, beam`` by block: the number of the page that the request refers to, or ``None``
``levels, request, group, beam`` by block: the level that the snapshot shows (R6.2), or ``None``
``eligible, request, group, beam`` the eligible count (R6.3)
``page, number``                `PageFact`
``tree, number``                a block of the tree: its parent's number or ``None``, its own tokens, all tokens up to its end,
                                then by group the number of its page or ``None``
``pool, level, group``          `PoolFact`
``evictable, level, group``     the numbers of the evictable pages, the first to leave first (R10.2)
``batch, name``                 `BatchFact`
``member, batch, row``          the member of a row, whether it is dirty, whether the device shows something older
``slots, batch, group, row``    as published: the slot of each block
``entries, batch, group, row``  as published: the name of what was in that slot then
``at, batch, group, row``       as published: the level at which that was then, ``None`` where nothing is known
``count, batch, group, row``    as published: the eligible count
``gate, label``                 the step that closed it, then what it holds up
``read, label``                 ``pending`` or ``done``
``reserved, request, group``    how many slots are reserved (R15.2)
``cached, request, layer``      the numbers that are cached, the most recent first (R15.3), or ``pending`` alone
``fetch, label``                what came of its numbers, by row, or ``pending``; the last step that it runs after
==============================  ================================================================================================
"""


class RequestFact(NamedTuple):
    """A request. ``version``: the step after which its version was first seen (R6.4)."""

    status: str
    phase: str
    capacity: int
    history: int
    committed: int
    row: int | None
    batch: str | None
    version: int | None
    dirty: int


class PageFact(NamedTuple):
    """A page. ``base``: its name without its block; ``why``: why it was not moved; ``deferred``: whether it is (R4.2)."""

    group: str
    block: int
    beam: int
    base: str
    name: str
    level: int
    slot: int
    status: str
    owners: str
    keepers: str
    tokens: str | None
    gates: str
    why: str
    rule: str
    deferred: int


class PoolFact(NamedTuple):
    """A pool group: its slots, how many are free, and how many of those a closed gate holds back (R7.2)."""

    slots: int
    free: int
    fenced: int


class BatchFact(NamedTuple):
    """A batch. ``upload``: the gates that hold up its last publication; ``published``: the step of that, -1 before any."""

    rows: int
    blocks: int
    upload: str
    published: int
    staging: int


class Numbers:
    """The numbers of pages, each of which keeps its own from step to step, and of tree blocks, by their tokens."""

    def __init__(self) -> None:
        """No page yet."""
        self.last = 0
        self.of: dict[int, int] = {}
        self.blocks: dict[tuple[Token, ...], int] = {}

    def update(self, before: Index | None, now: Index) -> dict[int, int]:
        """The number of each page of ``now``, by its index there."""
        old = self.of
        self.of = {}
        taken: set[int] = set()
        for index in range(len(now.pages)):
            found = now.successor_of(index, before) if before is not None else None
            number = old.get(found) if found is not None else None
            if number is None or number in taken:
                self.last += 1
                number = self.last
            taken.add(number)
            self.of[index] = number
        return self.of


def facts(manager: ManagerConfig, now: Index, memory: Memory, known: Numbers, step: int, before: Facts) -> Facts:
    """Everything that the picture shows of one system after a step.

    :param known: the numbers of pages, up to date.
    :param before: the facts of the step before, from which it is known where a page was when it was published.
    """
    numbers = known.of
    found: Facts = {}
    view = now.observation
    for name, request in view.requests.items():
        found["request", name] = _request(name, request, memory)
        for (group, beam), snapshot in request.snapshots.items():
            found.update(_row(now, numbers, PageRef(name, group, 0, beam), snapshot))
    for index, page in enumerate(now.pages):
        found["page", numbers[index]] = _page(manager, view, page)
    found.update(_tree(manager.tokens_per_block, now, known))
    for (level, group), pool in view.pools.items():
        fenced = sum(fence.pending for fence in pool.fences)
        found["pool", level.label, group] = PoolFact(pool.slots, pool.free, fenced)
        found["evictable", level.label, group] = tuple(numbers.get(index) for index in pool.evictable)
    for name, batch in view.batches.items():
        found.update(_batch(now, memory, name, batch, step, before))
    found.update(_gates(view, memory))
    for label, read in view.reads.items():
        found["read", label] = ("pending" if read.order.pending else "done",)
    found.update(_fetched(view))
    return found


def _request(name: str, view: RequestView, memory: Memory) -> RequestFact:
    return RequestFact(
        view.status.value,
        view.phase.value,
        view.capacity,
        view.history,
        view.committed,
        view.row,
        view.batch,
        memory.versions.step_of(name, view.version),
        int(view.dirty),
    )


def _row(now: Index, numbers: Mapping[int, int], row: PageRef, view: SnapshotView) -> Iterator[tuple[Key, tuple[Plain, ...]]]:
    name, group, beam = row.request, row.group, row.beam
    indexes = [now.by_ref.get(PageRef(name, group, block, beam)) for block in range(len(view.levels))]
    yield ("pages", name, group, beam), tuple(None if index is None else numbers[index] for index in indexes)
    yield ("levels", name, group, beam), tuple(None if level is None else int(level) for level in view.levels)
    yield ("eligible", name, group, beam), (view.eligible,)


def _page(manager: ManagerConfig, view: Observation, page: PageView) -> PageFact:
    why = why_here(manager, view, page)
    name = shown_name(page)
    return PageFact(
        page.group,
        page.block,
        page.beam,
        base_name(page),
        name,
        int(page.level),
        page.slot,
        page.status.value,
        ", ".join(sorted(page.owners)),
        ", ".join(sorted({ref.request for ref in page.refs})),
        None if page.tokens is None else folded(page.tokens),
        ", ".join(sorted(page.ready.gates)),
        why.text if why else "",
        why.rule if why else "",
        int(why is not None and why.deferred),
    )


def _tree(tpb: int, now: Index, known: Numbers) -> Iterator[tuple[Key, tuple[Plain, ...]]]:
    """Each block of the tree: parents first, those on one way after one another."""
    view = now.observation
    for tokens in sorted(block.tokens for block in view.tree):
        above = tokens[: (len(tokens) - 1) // tpb * tpb]
        number = known.blocks.setdefault(tokens, len(known.blocks) + 1)
        indexes = [now.by_key.get((group, tokens, 0)) for group in view.groups]
        pages = [None if index is None else known.of[index] for index in indexes]
        yield ("tree", number), (known.blocks.get(above), folded(tokens[len(above) :]), folded(tokens), *pages)


def _batch(
    now: Index, memory: Memory, name: str, view: BatchView, step: int, before: Facts
) -> Iterator[tuple[Key, tuple[Plain, ...]]]:
    last = memory.batches[name].last
    upload = ", ".join(sorted(view.upload.gates))
    yield ("batch", name), BatchFact(len(view.rows), view.blocks, upload, last.step, view.staging)
    for row, member in enumerate(view.rows):
        older = any(
            view.device[group].page_table[row] != entries.page_table[row]
            or view.device[group].num_blocks[row] != entries.num_blocks[row]
            for group, entries in view.published.items()
            if group in view.device
        )
        yield ("member", name, row), (member, int(row in view.dirty_rows), int(older))
    for group, entries in view.published.items():
        for row, names in enumerate(last.names(group)):
            record = last.rows[row]
            at = before.get(("at", name, group, row), (None,) * len(names))
            if record is not None and record.step == step:
                at = tuple(_level(now, group, entry, slot) for entry, slot in zip(names, entries.page_table[row], strict=True))
            yield ("slots", name, group, row), tuple(entries.page_table[row])
            yield ("entries", name, group, row), tuple(names)
            yield ("at", name, group, row), at
            yield ("count", name, group, row), (entries.num_blocks[row],)


def _level(now: Index, group: str, entry: str, slot: int) -> int | None:
    """At which level the page is that has just been published as ``entry``; ``None`` where that cannot be known."""
    request, _, number = entry.rpartition(".")
    if not request or not number.isdigit():
        return None
    index = now.by_ref.get(PageRef(request, group, int(number)))
    return int(now.pages[index].level) if index is not None and now.pages[index].slot == slot else None


def _fetched(view: Observation) -> Iterator[tuple[Key, tuple[Plain, ...]]]:
    """What is reserved, cached and fetched of selected history (section 15)."""
    for name, groups in view.reserved.items():
        for group, slots in groups.items():
            yield ("reserved", name, group), (len(slots),)
    for name, layers in view.caches.items():
        for layer, cache in layers.items():
            known = ("pending",) if cache.cached is None else tuple(one.number for one in cache.cached)
            yield ("cached", name, layer), known
    for label, fetch in view.fetches.items():
        yield ("fetch", label), (fetch_text(fetch), max((fetch.order.after or {}).values(), default=-1))


def fetch_text(view: FetchView) -> str:
    """What came of the numbers of a fetch, by the requests for which something was selected: ``a: hit miss, b: miss``."""
    if view.found is None:
        return "pending"
    rows = [(name, " ".join(row).rstrip("- ")) for name, row in zip(view.requests, view.found, strict=True)]
    return ", ".join(f"{name}: {said}" for name, said in rows if name is not None and said) or "nothing was fetched"


def _gates(view: Observation, memory: Memory) -> Iterator[tuple[Key, tuple[Plain, ...]]]:
    """Each closed gate and the device work that it holds up."""
    for label, step in memory.gates.items():
        waits = shown_names(page for page in view.pages if label in page.ready.gates)
        waits += [f"upload of {name}" for name, batch in view.batches.items() if label in batch.upload.gates]
        waits += [f"fetch {name}" for name, fetch in view.fetches.items() if label in fetch.order.gates]
        waits += [f"read {name}" for name, read in view.reads.items() if label in read.order.gates]
        for (level, group), pool in view.pools.items():
            held = sum(label in fence.gates for fence in pool.fences)
            waits += [f"{held} free slot{'s' if held > 1 else ''} of {Level(level).label}.{group}"] if held else []
        waits += [f"stream {name}" for name, order in view.streams.items() if label in order.gates]
        yield ("gate", label), (step, *waits)
