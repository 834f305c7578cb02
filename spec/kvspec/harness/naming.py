"""Names that both systems share: pages are matched between systems, and slots are named by the pages in them.

Slot numbers are each system's own choice. A page of the tree is known by its tokens, any other by a request's
block that refers to it; a slot is then named by the page that occupies it now. Because every page has its own
slot, the renaming of slots is a bijection per (level, pool group) exactly when no two pages claim one slot.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias, TypeVar

from kvspec.config import Level
from kvspec.harness.twins import twins_of
from kvspec.observation import BAD, Observation, Order, PageRef, PageView, SnapshotView
from kvspec.payload import Content
from kvspec.tokens import Token

V = TypeVar("V")

LONG = 64
"""Longer prefixes are not compared token by token wherever they are looked up."""


class Prefix:
    """The tokens of a long prefix. Equal prefixes are one object, so that asking for one costs the same however long it is."""

    __slots__ = ("__weakref__", "aliases", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        """Only for `prefix_of`."""
        self.tokens = tokens
        self.aliases: list[tuple[Token, ...]] = []

    def __repr__(self) -> str:
        """The tokens."""
        return repr(self.tokens)

    def __reduce__(self) -> tuple[object, ...]:
        """As the tokens: in another process it is another object."""
        return prefix_of, (self.tokens,)

    def known_as(self, tokens: tuple[Token, ...]) -> None:
        """Be found by the identity of a tuple, which is kept alive for that. Systems show the same tuple again and again."""
        self.aliases.append(tokens)
        _by_identity[id(tokens)] = weakref.ref(self)
        if len(self.aliases) > ALIASES:
            _by_identity.pop(id(self.aliases.pop(0)), None)

    def __del__(self) -> None:
        """Its tuples may go, and others replace them."""
        for tokens in self.aliases:
            _by_identity.pop(id(tokens), None)
        alike = [reference for reference in _by_end.pop(_end(self.tokens), ()) if reference() is not None]
        if alike:
            _by_end[_end(self.tokens)] = alike


ALIASES = 4
_by_identity: dict[int, weakref.ReferenceType[Prefix]] = {}
_by_end: dict[tuple[int, tuple[Token, ...]], list[weakref.ReferenceType[Prefix]]] = {}


def _end(tokens: tuple[Token, ...]) -> tuple[int, tuple[Token, ...]]:
    """What few prefixes have in common: a hash of all tokens takes as long as some comparisons."""
    return len(tokens), tokens[-LONG:]


def prefix_of(tokens: tuple[Token, ...]) -> Prefix | tuple[Token, ...]:
    """What stands for a prefix where it is looked up: itself if it is short."""
    if len(tokens) < LONG:
        return tokens
    reference = _by_identity.get(id(tokens))
    found = None if reference is None else reference()
    if found is None:
        alike = _by_end.setdefault(_end(tokens), [])
        known = (reference() for reference in alike)
        found = next((prefix for prefix in known if prefix is not None and prefix.tokens == tokens), None)
        if found is None:
            found = Prefix(tokens)
            alike.append(weakref.ref(found))
        found.known_as(tokens)
    return found


PageKey: TypeAlias = tuple[str, Prefix | tuple[Token, ...] | tuple[str, str, int, int] | int, int]
"""What a page is known by: its group, then the tokens of its tree block or its smallest reference, then its beam.

Of pages of the tree with equal tokens those that are not the first have -1, -2 and so on in the place of the beam.
"""


def page_key(page: PageView, number: int, twin: int = 0) -> PageKey:
    """What a page is known by; ``number``, its number in the observation, where it has neither tokens nor references.

    ``twin``: how many pages with the same tokens come before it (``kvspec.harness.twins``).
    """
    if page.copy_of is not None:  # R14.1: each copy is known by the request that has it
        return (page.group, (page.copy_of, page.group, page.block, page.beam), page.beam)
    if page.tokens is not None:
        return (page.group, prefix_of(page.tokens), -twin if twin else page.beam)
    if page.refs:
        ref = min(page.refs) if len(page.refs) > 1 else next(iter(page.refs))
        return (page.group, (ref.request, ref.group, ref.block, ref.beam), page.beam)
    return (page.group, number, page.beam)


def tree_key(page: PageView) -> PageKey:
    """What a page of the tree is known by, or the backing of one that has copies (R14.1)."""
    return (page.group, prefix_of(page.tokens or ()), page.beam)


def page_name(page: PageView) -> str:
    """How the report names a page: its smallest reference, or its group and the tokens of its tree block."""
    if page.copy_of is not None:
        return str(PageRef(page.copy_of, page.group, page.block, page.beam))
    if page.refs:
        return str(min(page.refs))
    if page.tokens is not None:
        return f"{page.group}{list(page.tokens)}"
    return f"{page.group} page at {page.level.label} slot {page.slot}"


FEW = 48
"""So many pages are compared before it pays to tell which have changed."""
FACTS = attrgetter(
    "refs", "owners", "tokens", "payload", "group", "block", "beam", "level", "slot", "status", "copy_of", "others"
)
SHARED = attrgetter("block", "beam", "level", "status", "refs", "owners", "copy_of")
FIXED = [[frozenset, frozenset, tokens, payload] for tokens in (tuple, type(None)) for payload in (bytes, Content, type(None))]
"""Types of the first of these facts that cannot change once they are shown."""
Row = tuple[str, str, int]
"""A snapshot: request, layer group, beam."""


class Index:
    """One observation, looked up by page key, by reference and by occupied slot.

    ``problems``: what is inconsistent in the observation by itself, one text each. ``fresh``: the numbers of the pages of which
    something is not as in the observation before, by value; ``None``: nothing is known of one. ``gone``: the keys by which a
    page was known before, and none is now. ``open``: the pages that can change by themselves. ``digest``: of the others, but for
    what only this system can name. ``twins``: the numbers of pages of the tree that have the tokens of another; ``doubles``: that
    there are some, one text each.
    """

    def __init__(self, observation: Observation, before: Index | None = None) -> None:
        """Index an observation. ``before``: that of the same system a step before."""
        self.observation = observation
        self.pages = observation.pages
        self.pools: dict[tuple[Level, str], str] = {
            (level, group): name for (level, name), pool in observation.pools.items() for group in pool.groups
        }
        self.fresh: set[int] | None = None
        self.gone: set[PageKey] = set()
        self.keys: list[PageKey] = []
        self.by_key: dict[PageKey, int] = {}
        self.by_ref: dict[PageRef, int] = {}
        self.at: dict[tuple[Level, str, int], int] = {}
        self.problems: list[str] = []
        self.twins: dict[int, int] = {}
        self.doubles: list[str] = []
        self.told = len(self.pages) >= FEW  # looking at all of few pages costs less than telling which have changed
        self._before: weakref.ReferenceType[Index] | None = None
        self._orders: dict[int, object] = {}
        self.open: set[int] = set()
        if self.told:
            shown: dict[int, Order | None] = {id(page.ready): page.ready for page in self.pages}
            for request in observation.requests.values():
                for view in request.snapshots.values():
                    shown.update(zip(map(id, view.ready), view.ready, strict=True))
            self._orders = {at: _value(order) for at, order in shown.items()}
        if before is None or not before.told or not self.told or not self._after(before):
            self._alone()
        if self.doubles or (before is not None and before.twins):
            # Their keys hang on what was there before: everything is looked at.
            self.twins = twins_of(
                observation, None if before is None else before.observation, {} if before is None else before.twins
            )
            self.told, doubles = False, self.doubles
            self._alone()
            self.doubles = doubles
        self.digest = self._digest() if self.told else 0

    def follows(self, before: Index) -> bool:
        """Whether ``fresh`` is told from that observation."""
        return self._before is not None and self._before() is before

    def blocks_changed(self, row: Row, before: Index) -> Iterable[int]:
        """The blocks of a snapshot of which something is not as in that of an observation before, by value."""
        view, old = self.observation.requests[row[0]].snapshots[row[1:]], before.observation.requests.get(row[0])
        was = None if old is None else old.snapshots.get(row[1:])
        if was is None or len(was.indices) != len(view.indices):
            return range(len(view.indices))
        changed: set[int] = set()
        for one, two in zip(self._columns(view), before._columns(was), strict=True):
            if one != two:
                changed.update(number for number, (new, old) in enumerate(zip(one, two, strict=True)) if new != old)
        return changed

    def _after(self, before: Index) -> bool:
        """Take over what is known of the pages that are as before. Not if anything is, or was, inconsistent."""
        if before.problems or _sizes(self.observation) != _sizes(before.observation):
            return False
        olds = self._shown_again(before)
        new: dict[int, PageKey] = {}
        for number in [number for number, old in enumerate(olds) if old is None]:
            key = page_key(self.pages[number], number)
            found = before.by_key.get(key)
            if found is not None and self._same(self.pages[number], before, found):
                olds[number] = found
            else:
                new[number] = key
        self.keys = [new[number] if old is None else before.keys[old] for number, old in enumerate(olds)]
        self.by_key = dict(zip(self.keys, range(len(olds)), strict=True))
        if len(self.by_key) < len(olds):
            return False
        left = set(range(len(before.pages))).difference(olds)
        self._before, self.fresh = weakref.ref(before), set(new)
        self.gone = {before.keys[old] for old in left} - self.by_key.keys()
        self.open = {number for number in new if not _unchangeable(self.pages[number])}
        if before.open or any(old is not None and old != number for number, old in enumerate(olds)):
            self.by_ref, self.at = {}, {}
            return not any(self._place(number, page) for number, page in enumerate(self.pages))
        self.by_ref, self.at = before.by_ref.copy(), before.at.copy()
        for page in [before.pages[old] for old in left]:
            for ref in page.refs:
                del self.by_ref[ref]
            del self.at[page.level, before.pools[page.level, page.group], page.slot]
        return not any(self._place(number, self.pages[number]) for number in new)

    def _shown_again(self, before: Index) -> list[int | None]:
        """For each page, the number of the one before that is the same object, if nothing of it can have changed since then."""
        known = dict(zip(map(id, before.pages), range(len(before.pages)), strict=True))
        changed = {at for at, value in self._orders.items() if before._orders.get(at, value) != value}
        for number in before.open:
            known.pop(id(before.pages[number]), None)
        for page in before.pages if changed else ():
            if id(page.ready) in changed:
                known.pop(id(page), None)
        return list(map(known.get, map(id, self.pages)))

    def _same(self, page: PageView, before: Index, number: int) -> bool:
        """Whether a page is as one before was, by value, and cannot be another one by itself."""
        old = before.pages[number]
        if number in before.open or before._orders[id(old.ready)] != self._orders[id(page.ready)]:
            return False
        return page is old or (_unchangeable(page) and FACTS(page) == FACTS(old))

    def _digest(self) -> int:
        """Of every page, also of those that are taken to be as before."""
        facts = zip(self.keys, map(SHARED, self.pages), strict=True)
        return sum(map(hash, (fact for number, fact in enumerate(facts) if number not in self.open) if self.open else facts))

    def _alone(self) -> None:
        """Look at every page; nothing is known of one."""
        self.fresh, self._before, self.gone = None, None, set()
        self.by_ref, self.at, self.by_key, self.keys, self.open = {}, {}, {}, [], set()
        self.problems, self.doubles = [], []
        for number, page in enumerate(self.pages):
            key = page_key(page, number, self.twins.get(number, 0))
            self.keys.append(key)
            if self.told and not _unchangeable(page):
                self.open.add(number)
            if self.by_key.setdefault(key, number) != number:
                (self.problems if page.tokens is None else self.doubles).append(f"two pages are known as {page_name(page)}")
            self.problems += self._place(number, page)

    def _place(self, number: int, page: PageView) -> list[str]:
        """Enter a page by its references and its slot. What is inconsistent comes back."""
        problems = []
        if page.tokens is None and not page.refs:
            problems.append(f"{page_name(page)} is in no tree block and no request refers to it: it should not exist")
        for ref in page.refs:
            if self.by_ref.setdefault(ref, number) != number:
                problems.append(f"{ref} refers to two pages: {page_name(page)} and {page_name(self.pages[self.by_ref[ref]])}")
        pool = self.pools.get((page.level, page.group))
        if pool is None:
            return [*problems, f"{page_name(page)} is at level {page.level.label}, where group {page.group} has no pool group"]
        if not 0 <= page.slot < self.observation.pools[page.level, pool].slots:
            problems.append(f"{page_name(page)} is in slot {page.slot} of {page.level.label}.{pool}, which is out of range")
        other = self.at.setdefault((page.level, pool, page.slot), number)
        if other != number:
            where = f"slot {page.slot} of {page.level.label}.{pool}"
            problems.append(f"{page_name(page)} and {page_name(self.pages[other])} are both in {where}")
        return problems

    def _columns(self, view: SnapshotView) -> tuple[Sequence[object], ...]:
        return tuple(view.indices), tuple(view.levels), list(map(self._orders.__getitem__, map(id, view.ready)))

    @cached_property
    def copied(self) -> dict[PageKey, int]:
        """A copy of each page that has some (R14.1), by what the page is known by."""
        return {tree_key(page): number for number, page in enumerate(self.pages) if page.copy_of is not None and page.tokens}

    def in_tree(self, key: PageKey) -> bool:
        """Whether there is a page of this key, or a copy of it (R14.1)."""
        return key in self.by_key or key in self.copied

    def known_location(self, number: int, before: Index) -> PageKey | None:
        """R14.1: another location of a page, which it had in the step before, too; by its key."""
        page = self.pages[number]
        for level, slot in page.others:
            other = self.occupant(level, page.group, slot)
            if other is not None and self.keys[other] in before.by_key:
                return self.keys[other]
        return None

    def changed(self) -> Iterable[int]:
        """The numbers of the pages that are not as in the observation before, all of them if nothing is known of one."""
        return range(len(self.pages)) if self.fresh is None else sorted(self.fresh)

    def of_the_same(self, remembered: dict[PageKey, V]) -> dict[PageKey, V]:
        """Of what is remembered by page, that of the pages that are as in the observation before."""
        if self.fresh is None or not remembered:
            return {}
        kept = remembered.copy()
        for key in (*self.gone, *(self.keys[number] for number in self.fresh)):
            kept.pop(key, None)
        return kept

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
            if old is not None and before.keys[old] not in self.by_key and not _filled(self.pages[number], before.pages[old]):
                return old
        return None


def _filled(page: PageView, was: PageView) -> bool:
    """R14.4: whether a copy is another page than what its request referred to before: filled, neither adopted nor its own."""
    own = was.tokens is None and was.copy_of in (None, page.copy_of) and len(was.refs) == 1
    return page.copy_of is not None and not own and (page.level, page.slot) != (was.level, was.slot)


def _value(order: Order | None) -> object:
    """An order as a value. A system may change the mapping in one that it has shown."""
    if order is None:
        return None
    return frozenset(order.gates), None if order.after is None else frozenset(order.after.items())


def _unchangeable(page: PageView) -> bool:
    """Whether nothing of a page but the mapping in its order can change once it is shown."""
    return type(page) is PageView and [*map(type, FACTS(page)[:4])] in FIXED


def _sizes(observation: Observation) -> list[object]:
    return [(place, pool.groups, pool.slots) for place, pool in observation.pools.items()]


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
    ones = list(reference.by_key.values())
    twos = list(map(implementation.by_key.get, reference.by_key))
    left = [one for one, two in zip(ones, twos, strict=True) if two is None] if None in twos else []
    pairs = [(one, two) for one, two in zip(ones, twos, strict=True) if two is not None]
    taken = {two for _, two in pairs}
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
    surplus = tuple([n for n in range(len(implementation.pages)) if n not in taken])
    numbers = range(len(pairs))
    return Matching(
        tuple(pairs),
        dict(zip([one for one, _ in pairs], numbers, strict=True)),
        dict(zip([two for _, two in pairs], numbers, strict=True)),
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
