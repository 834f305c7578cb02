"""Expectations of pages, pool groups, the tree, payloads and device work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from kvspec.harness.checks import Check, check
from kvspec.harness.evidence import Evidence, Nothing
from kvspec.harness.naming import page_name
from kvspec.harness.order import order_text
from kvspec.harness.payloads import payload_equal, payload_text
from kvspec.harness.state import event_text
from kvspec.observation import Cleared, LevelChanged, Order, PageView, Removed, Stored, TreeEvent
from kvspec.payload import Content
from kvspec.scenario import TREE_KEYS, BlockExpect, ClearedExpect, LevelExpect, RemovedExpect, StoredExpect
from kvspec.tokens import Token, keyed


def owners(e: Evidence, wanted: Mapping[str, Sequence[str]]) -> Iterator[Check]:
    """``owners``: per page, the set of active requests that have it locked (R2.3)."""
    for key, names in wanted.items():
        for name, page in e.pages(key):
            yield check(("owners", key), f"owners of {name}", frozenset(names), page.owners, page=page_name(page))


def page_status(e: Evidence, wanted: Mapping[str, str]) -> Iterator[Check]:
    """``page_status``: per page (R2.2)."""
    for key, status in wanted.items():
        for name, page in e.pages(key):
            yield check(("page_status", key), f"status of page {name}", status, page.status, page=page_name(page))


def page_level(e: Evidence, wanted: Mapping[str, str]) -> Iterator[Check]:
    """``page_level``: per block, the level of its page even while suspended; ``-`` where it has none."""
    for key, level in wanted.items():
        for ref in e.refs(key):
            e.request(ref.request)
            number = e.index.by_ref.get(ref)
            actual = "-" if number is None else e.index.pages[number].level.label
            yield check(("page_level", key), f"level of page {ref}", level, actual, page=str(ref))


def backing(e: Evidence, wanted: Mapping[str, str]) -> Iterator[Check]:
    """``backing``: per page of the tree, the level of its backing, or ``none`` (R14.1)."""
    for key, level in wanted.items():
        for name, page in e.pages(key):
            shared = (one for one in _locations(e, page) if one.copy_of is None and one.tokens is not None)
            found = next((one.level.label for one in shared), "none")
            yield check(("backing", key), f"backing of {name}", level, found, page=page_name(page))


def copies(e: Evidence, wanted: Mapping[str, Sequence[str]]) -> Iterator[Check]:
    """``copies``: per page, the set of requests that have a copy of it (R14.1)."""
    for key, names in wanted.items():
        for name, page in e.pages(key):
            found = frozenset(one.copy_of for one in _locations(e, page) if one.copy_of is not None)
            yield check(("copies", key), f"copies of {name}", frozenset(names), found, page=page_name(page))


def _locations(e: Evidence, page: PageView) -> list[PageView]:
    """The locations of a page, this one among them."""
    at = {(page.level, page.slot), *page.others}
    return [one for one in e.index.pages if one.group == page.group and (one.level, one.slot) in at]


def same_page(e: Evidence, wanted: Sequence[str]) -> Iterator[Check]:
    """``same_page``: all of these blocks have one page."""
    for column in _columns(e, "same_page", wanted):
        numbers = {e.page_number(e.refs(text)[column]) for text in wanted}
        where = [f"{text} in {_where(e.index.pages[e.page_number(e.refs(text)[column])])}" for text in wanted]
        yield check(("same_page",), f"pages of {', '.join(wanted)}", "one page", "; ".join(where), len(numbers) == 1)


def different_page(e: Evidence, wanted: Sequence[str]) -> Iterator[Check]:
    """``different_page``: no two of these blocks have one page."""
    for column in _columns(e, "different_page", wanted):
        for one, two in combinations(wanted, 2):
            numbers = [e.page_number(e.refs(text)[column]) for text in (one, two)]
            actual = "one page" if numbers[0] == numbers[1] else "two pages"
            yield check(("different_page",), f"pages of {one} and {two}", "two pages", actual)


def _columns(e: Evidence, key: str, wanted: Sequence[str]) -> range:
    if len(wanted) < 2:
        raise Nothing(f"{key} needs two pages or more")
    counts = {len(e.refs(text)) for text in wanted}
    if len(counts) > 1:
        raise Nothing(f"{key}: name the group in all of {', '.join(wanted)} or in none")
    return range(counts.pop())


def free(e: Evidence, wanted: Mapping[str, int]) -> Iterator[Check]:
    """``free``: per pool group, free slots, those behind a fence included."""
    for key, count in wanted.items():
        yield check(("free", key), f"free slots of {key}", count, e.pool(key).free)


def would_evict(e: Evidence, wanted: Mapping[str, Sequence[Any]]) -> Iterator[Check]:
    """``would_evict``: a leading part of the eviction order (R10.2); an empty list: nothing is evictable."""
    for key, entries in wanted.items():
        pool = e.pool(key)
        order = [e.index.pages[n] for n in pool.evictable]
        path = ("would_evict", key)
        if not entries:
            yield check(path, f"eviction order of {key}", [], [page_name(page) for page in order], not order)
            continue
        for number, entry in enumerate(entries):
            page = order[number] if number < len(order) else None
            actual = "none" if page is None else _names(page)
            said = list(_block(entry)) if isinstance(entry, BlockExpect) else entry
            yield check(path, f"eviction order of {key}, number {number}", said, actual, page is not None and _is(e, entry, page))


def _is(e: Evidence, entry: Any, page: PageView) -> bool:
    """Whether a page is the one said; tokens may be those of a page of any group, since the order is that of the pool group."""
    if isinstance(entry, str):
        return any(e.index.pages[e.page_number(ref)] is page for ref in e.refs(entry))
    return page.tokens == (_block(entry) if isinstance(entry, BlockExpect) else tuple(entry))


def _block(entry: BlockExpect) -> tuple[Token, ...]:
    return keyed(entry.tokens, entry.key, spans=entry.spans)


def _names(page: PageView) -> str:
    tokens = "" if page.tokens is None else f", tokens {list(page.tokens)}"
    return f"{page_name(page)}{tokens}"


def tree(e: Evidence, wanted: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """``tree``: for the block that ends ``tokens``, the level of each group's page, or ``absent``."""
    for number, parts in enumerate(wanted):
        about = {key: parts[key] for key in TREE_KEYS if key in parts and key not in e.now.groups}
        tokens = _block(BlockExpect.model_validate({"tokens": parts["tokens"], **about}))
        found = [page for page in e.index.pages if page.tokens == tokens]
        pages = {page.group: page for page in sorted(found, key=lambda page: page.copy_of is None)}  # R14.3: the backing counts
        there = any(block.tokens == tokens for block in e.now.tree)
        path = ("tree", str(number))
        title = f"tree block {list(tokens)}"
        groups = {key: value for key, value in parts.items() if key != "tokens" and key not in about}
        if not groups:
            yield check(path, title, "in the tree", "in the tree" if there else "not in the tree")
        for group, level in groups.items():
            page = pages.get(group)
            actual = "absent" if page is None else page.level.label
            yield check((*path, group), f"{title}, group {group}", level, actual, page=None if page is None else page_name(page))


def events(e: Evidence, wanted: Sequence[StoredExpect | RemovedExpect | LevelExpect | ClearedExpect]) -> Iterator[Check]:
    """``events``: the tree events of this step, all of them, in order (R13.3)."""
    said = [event_text(_event(event)) for event in wanted]
    actual = [event_text(event) for event in e.now.events]
    yield check(("events",), "tree events of this step", said, actual)


def _event(event: StoredExpect | RemovedExpect | LevelExpect | ClearedExpect) -> TreeEvent:
    match event:
        case StoredExpect():
            return Stored(keyed(event.stored, event.key, spans=event.spans))
        case RemovedExpect():
            return Removed(keyed(event.removed, event.key, spans=event.spans))
        case LevelExpect():
            return LevelChanged(keyed(event.level, event.key, spans=event.spans), event.group, event.from_.level, event.to.level)
        case ClearedExpect():
            return Cleared()


def payload(e: Evidence, wanted: Mapping[str, str]) -> Iterator[Check]:
    """``payload``: ``ok``: written, ready, and what was written; ``undefined``: never written, so anything may be there."""
    c = e.comparison
    for key, value in wanted.items():
        for ref in e.refs(key):
            number = e.page_number(ref)
            page = e.index.pages[number]
            pair = c.pair_in(e.side, number)
            original = c.matching.pairs[pair][0] if pair is not None and pair >= 0 else None
            written = c.reference.now.pages[original].payload if original is not None else None
            held = c.unwritten(original) if original is not None else frozenset()
            path, title = ("payload", key), f"payload of {ref}"
            if value == "undefined":
                # Only a reference that names contents knows what was written; bytes are there in any case.
                yield check(path, title, "undefined", "written" if isinstance(written, Content) else "undefined", page=str(ref))
            elif held:
                yield check(path, title, "ok", f"its write is {order_text(Order(held))}", page=str(ref))
            elif page.ready.pending:
                yield check(path, title, "ok", order_text(page.ready), page=str(ref))
            elif written is None or page.payload is None:
                yield check(path, title, "ok", "never written", page=str(ref))
            else:
                ok = payload_equal(written, page.payload, c.shared.page_bytes.get(page.group, 0))
                yield check(path, title, "ok", "ok" if ok else payload_text(page.payload, c.shared.contents), page=str(ref))


def pending(e: Evidence, wanted: Sequence[str]) -> Iterator[Check]:
    """``pending``: device work that a closed gate holds up."""
    for label in wanted:
        for order in e.work(label):
            yield check(("pending", label), label, "pending", order_text(order), order.pending)


def done(e: Evidence, wanted: Sequence[str]) -> Iterator[Check]:
    """``done``: device work that nothing holds up."""
    for label in wanted:
        for order in e.work(label):
            yield check(("done", label), label, "done", order_text(order), not order.pending)


def _where(page: PageView) -> str:
    return f"{page.level.label} slot {page.slot}"
