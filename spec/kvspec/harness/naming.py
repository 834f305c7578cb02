"""Names that both systems share: pages are matched between systems, and slots are named by the pages in them.

Slot numbers are each system's own choice. A page of the tree is known by its tokens, any other by a request's
block that refers to it; a slot is then named by the page that occupies it now. Because every page has its own
slot, the renaming of slots is a bijection per (level, pool group) exactly when no two pages claim one slot.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias, TypeVar

from kvspec.config import Level
from kvspec.harness.twins import twins_of
from kvspec.observation import BAD, Observation, Order, PageRef, PageView
from kvspec.payload import Content

V = TypeVar("V")

LONG = 64
"""Longer prefixes are not compared token by token wherever they are looked up."""


class Prefix:
    """The tokens of a long prefix. Equal prefixes are one object, so that asking for one costs the same however long it is."""

    __slots__ = ("__weakref__", "aliases", "tokens")

    def __init__(self, tokens: tuple[int, ...]) -> None:
        """Only for `prefix_of`."""
        self.tokens = tokens
        self.aliases: list[tuple[int, ...]] = []

    def __repr__(self) -> str:
        """The tokens."""
        return repr(self.tokens)

    def __reduce__(self) -> tuple[object, ...]:
        """As the tokens: in another process it is another object."""
        return prefix_of, (self.tokens,)

    def known_as(self, tokens: tuple[int, ...]) -> None:
        """Be found by the identity of a tuple, which is kept alive for that. Systems show the same tuple again and again."""
        self.aliases.append(tokens)
        _by_identity[id(tokens)] = weakref.ref(self)
        if len(self.aliases) > ALIASES:
            _by_identity.pop(id(self.aliases.pop(0)), None)

    def __del__(self) -> None:
        """Its tuples may go, and others come in their place."""
        for tokens in self.aliases:
            _by_identity.pop(id(tokens), None)


ALIASES = 4
_by_identity: dict[int, weakref.ReferenceType[Prefix]] = {}
_prefixes: weakref.WeakValueDictionary[tuple[int, ...], Prefix] = weakref.WeakValueDictionary()


def prefix_of(tokens: tuple[int, ...]) -> Prefix | tuple[int, ...]:
    """What stands for a prefix where it is looked up: itself if it is short."""
    if len(tokens) < LONG:
        return tokens
    reference = _by_identity.get(id(tokens))
    found = None if reference is None else reference()
    if found is None:
        found = _prefixes.get(tokens)
        if found is None:
            found = _prefixes[tokens] = Prefix(tokens)
        found.known_as(tokens)
    return found


PageKey: TypeAlias = tuple[str, Prefix | tuple[int, ...] | PageRef | int, int]
"""What a page is known by: its group, then the tokens of its tree block or its smallest reference, then its beam.

Of pages of the tree with equal tokens those that are not the first have -1, -2 and so on in the place of the beam.
"""


def page_key(page: PageView, number: int, twin: int = 0) -> PageKey:
    """What a page is known by; ``number``, its place in the observation, where it has neither tokens nor references.

    ``twin``: how many pages with the same tokens come before it (``kvspec.harness.twins``).
    """
    if page.tokens is not None:
        return (page.group, prefix_of(page.tokens), -twin if twin else page.beam)
    if page.refs:
        return (page.group, min(page.refs) if len(page.refs) > 1 else next(iter(page.refs)), page.beam)
    return (page.group, number, page.beam)


def page_name(page: PageView) -> str:
    """How the report names a page: its smallest reference, or its group and the tokens of its tree block."""
    if page.refs:
        return str(min(page.refs))
    if page.tokens is not None:
        return f"{page.group}{list(page.tokens)}"
    return f"{page.group} page at {page.level.label} slot {page.slot}"


FEW = 48
"""So many pages are compared before it pays to tell which have changed."""
FACTS = attrgetter("refs", "owners", "tokens", "payload", "group", "block", "beam", "level", "slot", "status")
FIXED = [[frozenset, frozenset, tokens, payload] for tokens in (tuple, type(None)) for payload in (bytes, Content, type(None))]
"""Types of the first of these facts that cannot change once they are shown."""


class Index:
    """One observation, looked up by page key, by reference and by occupied slot.

    ``problems``: what is inconsistent in the observation by itself, one text each. ``fresh``: the numbers of the pages of which
    something is not as in the observation before, by value; ``None``: nothing is known of one. ``entries``: by snapshot, index,
    level and readiness of each block, as values. ``digest``: of all pages, but for what only this system can name. ``twins``: the
    numbers of pages of the tree that have the tokens of another; ``doubles``: that there are some, one text each.
    """

    def __init__(self, observation: Observation, before: Index | None = None) -> None:
        """Index an observation. ``before``: that of the same system a step before."""
        self.observation = observation
        last = before
        self.told = len(observation.pages) >= FEW
        if before is not None and not (self.told and before.told):
            before = None  # looking at all of few pages costs less than telling which have changed
        self.fresh: set[int] | None = None if before is None else set()
        self._before = None if before is None else weakref.ref(before)
        self._orders: dict[int, object] = {}
        self.prints = [self._print(page) for page in observation.pages] if self.told else []
        self.entries = {
            (name, group, beam): list(zip(view.indices, view.levels, map(self._order, view.ready), strict=False))
            for name, request in observation.requests.items()
            for (group, beam), view in request.snapshots.items()
            if self.told
        }
        self._digests: list[int] = []
        self.pages = observation.pages
        self.pools: dict[tuple[Level, str], str] = {
            (level, group): name for (level, name), pool in observation.pools.items() for group in pool.groups
        }
        self.twins: dict[int, int] = {}
        self.doubles: list[str] = []
        self.problems = self._built(before)
        if self.doubles or (last is not None and last.twins):
            # Their keys hang on what was there before: everything is looked at.
            self.twins = twins_of(observation, None if last is None else last.observation, {} if last is None else last.twins)
            self.told, self.fresh, self._before, self.entries = False, None, None, {}
            doubles = self.doubles
            self.problems = self._built(None)
            self.doubles = doubles
        self.digest = sum(self._digests)

    def _built(self, before: Index | None) -> list[str]:
        """Index the pages; what is inconsistent comes back."""
        self.keys: list[PageKey] = []
        self.by_key: dict[PageKey, int] = {}
        self.by_ref: dict[PageRef, int] = {}
        self.at: dict[tuple[Level, str, int], int] = {}
        self._digests.clear()
        return list(self._build(before))

    def follows(self, before: Index) -> bool:
        """Whether ``fresh`` is told from that observation."""
        return self._before is not None and self._before() is before

    def _order(self, order: Order | None) -> object:
        """An order as a value. A system may change the mapping in one that it has shown."""
        if order is None:
            return None
        known = self._orders.get(id(order))
        if known is None:
            after = None if order.after is None else frozenset(order.after.items())
            known = self._orders[id(order)] = frozenset(order.gates), after
        return known

    def _print(self, page: PageView) -> object:
        """All of a page as a value, to be compared with an earlier one; what could change by itself is equal to nothing."""
        facts = FACTS(page)
        if [*map(type, facts[:4])] in FIXED and type(page) is PageView:
            return (*facts, self._order(page.ready))
        return object()

    def _known(self, number: int, page: PageView, before: Index | None) -> PageKey:
        """The key of a page; notes whether the page is as before, and its digest."""
        if before is not None:
            if number < len(before.prints) and before.prints[number] == self.prints[number]:
                self._digests.append(before._digests[number])
                return before.keys[number]
            key = page_key(page, number)
            old = before.by_key.get(key)
            if old is not None and before.prints[old] == self.prints[number]:
                self._digests.append(before._digests[old])
                return key
            assert self.fresh is not None
            self.fresh.add(number)
        else:
            key = page_key(page, number, self.twins.get(number, 0))
            if not self.told:
                return key
        fixed = type(self.prints[number]) is tuple
        shared = (key, page.block, page.beam, page.level, page.status, page.refs, page.owners)
        self._digests.append(hash(shared) if fixed else 0)
        return key

    def _build(self, before: Index | None) -> Iterator[str]:
        for number, page in enumerate(self.pages):
            key = self._known(number, page, before)
            self.keys.append(key)
            if page.tokens is None and not page.refs:
                yield f"{page_name(page)} is in no tree block and no request refers to it: it should not exist"
            if self.by_key.setdefault(key, number) != number:
                text = f"two pages are known as {page_name(page)}"
                if page.tokens is None:
                    yield text
                else:
                    self.doubles.append(text)
            for ref in page.refs:
                if self.by_ref.setdefault(ref, number) != number:
                    yield f"{ref} refers to two pages: {page_name(page)} and {page_name(self.pages[self.by_ref[ref]])}"
            pool = self.pools.get((page.level, page.group))
            if pool is None:
                yield f"{page_name(page)} is at level {page.level.label}, where group {page.group} has no pool group"
                continue
            if not 0 <= page.slot < self.observation.pools[page.level, pool].slots:
                yield f"{page_name(page)} is in slot {page.slot} of {page.level.label}.{pool}, which is out of range"
            other = self.at.setdefault((page.level, pool, page.slot), number)
            if other != number:
                where = f"slot {page.slot} of {page.level.label}.{pool}"
                yield f"{page_name(page)} and {page_name(self.pages[other])} are both in {where}"

    def changed(self) -> Iterable[int]:
        """The numbers of the pages that are not as in the observation before, all of them if nothing is known of one."""
        return range(len(self.pages)) if self.fresh is None else sorted(self.fresh)

    def of_the_same(self, remembered: dict[PageKey, V]) -> dict[PageKey, V]:
        """Of what is remembered by page, that of the pages that are as in the observation before."""
        if self.fresh is None or not remembered:
            return {}
        return {
            key: value
            for key, value in remembered.items()
            if (number := self.by_key.get(key)) is not None and number not in self.fresh
        }

    def occupant(self, level: Level, group: str, slot: int) -> int | None:
        """The number of the page in a slot of the pool group that serves ``group`` at a level."""
        return self.at.get((level, self.pools.get((level, group), ""), slot))

    def successor_of(self, number: int, before: Index) -> int | None:
        """Which page of the step before is this one: the number in ``before``, or ``None`` for a new page.

        A page keeps its key, except where it enters or leaves the tree, which its references survive. A page of the step before
        that is still known by its own key is not taken twice (a private copy is another page, R3.4).
        """
        key = self.keys[number]
        same = before.by_key.get(key)
        if same is not None:
            return same
        for ref in self.pages[number].refs:
            old = before.by_ref.get(ref)
            if old is not None and before.keys[old] not in self.by_key:
                return old
        return None


@dataclass(frozen=True, slots=True)
class Matching:
    """Which page of the one system is which of the other.

    ``pairs``: numbers of matched pages, in order; ``of_reference``, ``of_implementation``: the pair of a page; ``missing``:
    pages of the reference alone; ``surplus``: pages of the implementation alone. ``loose``: whether some were matched otherwise
    than by their key.
    """

    pairs: tuple[tuple[int, int], ...]
    of_reference: dict[int, int]
    of_implementation: dict[int, int]
    missing: tuple[int, ...]
    surplus: tuple[int, ...]
    loose: bool


def match(reference: Index, implementation: Index) -> Matching:
    """Match the pages of two systems: by key, and what is left over by any reference that both have."""
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    left: list[int] = []
    for key, number in reference.by_key.items():
        other = implementation.by_key.get(key)
        if other is None:
            left.append(number)
        else:
            pairs.append((number, other))
            taken.add(other)
    missing = []
    by_key = len(pairs)
    for number in left:
        shared = (implementation.by_ref.get(ref) for ref in sorted(reference.pages[number].refs))
        found = next((other for other in shared if other is not None and other not in taken), None)
        if found is None:
            missing.append(number)
        else:
            pairs.append((number, found))
            taken.add(found)
    surplus = tuple(n for n in range(len(implementation.pages)) if n not in taken)
    return Matching(
        tuple(pairs),
        {one: n for n, (one, _) in enumerate(pairs)},
        {two: n for n, (_, two) in enumerate(pairs)},
        tuple(missing),
        surplus,
        len(pairs) > by_key,
    )


def slot_name(index: Index, level: Level | None, group: str, slot: int) -> str:
    """How the report names a slot: ``-``, or the raw number and the page that is in it now."""
    if slot == BAD:
        return "-"
    if level is None:
        return f"slot {slot}, no level"
    page = index.occupant(level, group, slot)
    where = f"{level.label} slot {slot}"
    return f"{where} (empty)" if page is None else f"{where} ({page_name(index.pages[page])})"
