"""Named breaks of private ownership (section 14): of what becomes a copy or the backing, who locks it, what waits for what."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgpu.operations import bare_offload, commit, create, growth, lifecycle, offload, places, private_copies, private_rebase
from kvgpu.operations.copies import Copies
from kvgpu.operations.offload import NONE
from kvgpu.operations.room import Room
from kvgpu.operations.state import TreeEvent
from kvgpu.operations.transaction import Transaction
from kvgpu.storage.backings import Backings
from kvgpu.storage.counters import Counters
from kvgpu.storage.pages import NO_NODE, NO_PAGE, NOBODY
from kvgpu.testing.patches import Break, during, everywhere, instead, on, within
from kvspec.config import DEFAULT_PRIORITY, Level


def _youngest(old: Any) -> Any:
    return lambda self, page: old(self, page)[::-1]


def _backings_alone_match(old: Any) -> Any:
    def match(core: Any, text: Any) -> Any:
        length, path = old(core, text)
        if core.backings is None:
            return length, path
        with_copies = [any(page != NO_PAGE and core.pages.copy_of[page] != NOBODY for page in node.pages) for node in path]
        whole = with_copies.index(True) if any(with_copies) else len(path)
        return (length, path) if whole == len(path) else (whole * core.layout.tokens_per_block, path[:whole])

    return match


def _usual_priority(old: Any) -> Any:
    return lambda self, group, blocks, beams, key, slots, _: old(self, group, blocks, beams, key, slots, DEFAULT_PRIORITY)


def _told_of(old: Any) -> Any:
    def give_copies(tx: Any, request: Any, pairs: Any) -> None:
        old(tx, request, pairs)
        pages, tree = tx.core.pages, tx.core.tree
        for source, target in pairs:
            if pages.node[target] != NO_NODE and pages.copy_of[target] == request.uid:
                text = tree.node(int(pages.node[target])).prefix()
                tx.events.append(TreeEvent("level", text, int(pages.group[target]), int(pages.level[source]), Level.GPU))

    return give_copies


def _as_old_as_the_source(old: Any) -> Any:
    def give_copies(tx: Any, request: Any, pairs: Any) -> None:
        old(tx, request, pairs)
        for source, target in pairs:
            tx.put("stamp", np.array([target]), tx.core.pages.stamp[source])

    return give_copies


def _no_event(old: Any) -> Any:
    def new_backings(tx: Any, sources: Any, slots: Any) -> None:
        told = len(tx.events)
        old(tx, sources, slots)
        del tx.events[told:]

    return new_backings


def _usual_page(old: Any) -> Any:
    return lambda self, numbers: self._pages.backing[numbers] != NO_PAGE


def _whoever_refers(old: Any) -> Any:
    def tell_owners(self: Any, numbers: Any, was: Any, ready: int) -> None:
        old(self, numbers, was, ready)
        core = self._journal.core
        for page in numbers.tolist() if core.backings is not None else ():
            for copy in core.backings.copies(page):
                self._journal.touch(core.by_uid[int(core.pages.copy_of[copy])])

    return tell_owners


def _all_with_copies(old: Any) -> Any:
    def move(self: Any, numbers: Any, target_key: Any, slots: Any, more_owners: Any = ()) -> None:
        core = self._journal.core
        copies = [copy for page in numbers.tolist() for copy in core.backings.copies(page)] if core.backings is not None else []
        owners = core.owners(np.array(copies, dtype=np.int32)) if copies else []
        old(self, numbers, target_key, slots, [*more_owners, *owners])

    return move


def _always_a_copy(old: Any) -> Any:
    def begin(journal: Any, page: int) -> None:
        old(journal, page)
        pages = journal.core.pages
        if pages.users[page] and pages.copy_of[page] == NOBODY:
            journal.put("copy_of", np.array([page]), pages.user[page])
            journal.put("backing", np.array([page]), NO_PAGE)

    return begin


def _counted_as_dropped(old: Any) -> Any:
    def evict_copy(journal: Any, page: int) -> None:
        journal.dropped.append(int(journal.core.pages.group[page]))
        old(journal, page)

    return evict_copy


def _room_below(old: Any) -> Any:
    def leave(self: Any, page: int, key: Any) -> bool:
        core, below = self._journal.core, self._journal.core.pool(key).spec.below
        is_copy = core.backings is not None and core.pages.copy_of[page] != NOBODY
        full = below is None or self.left((key[0] + 1, below)) < 1
        return False if is_copy and full else bool(old(self, page, key))

    return leave


def _tree_pages_alone(old: Any) -> Any:
    def pin_blocks(self: Any, nodes: Any) -> None:
        self.pin(np.array([page for node in nodes for page in node.pages if page != NO_PAGE], dtype=np.int32))

    return pin_blocks


def _in_all_places(old: Any) -> Any:
    return lambda self, node: self.pin_blocks([node])


def _of_all_owners(old: Any) -> Any:
    return lambda self, numbers, copies, private=False: old(self, numbers, copies)


def _never_to_the_gpu(old: Any) -> Any:
    return lambda core, request, level: old(core, request, level if core.backings is None else max(level, Level.HOST))


def _whatever_is_there(old: Any) -> Any:
    return lambda core, numbers: numbers


NOTHING = instead(NONE)

PRIVATE: tuple[Break, ...] = (
    ("R14.1 who resumes in decode maps the copy of another", "R14.1", everywhere(private_copies.new_backings, instead(None))),
    ("R14.1 a backing on the GPU stays beside the copy of a rebase", "R14.1", on(places.free_backing, instead(None))),
    ("R14.2 the youngest copy is the one to refer to", "R14.2", on(Backings.copies, _youngest)),
    ("R14.2 who refers to a place that goes is not told", "R14.2", on(places._point, instead(None))),
    ("R14.3 a page with copies alone is not matched", "R14.3", everywhere(create.match, _backings_alone_match)),
    ("R14.4 a backing on the GPU is copied, not adopted", "R14.4", on(places.adopt, instead(None))),
    ("R14.4 a copy has the usual priority", "R14.4", during(private_copies.new_copies, Transaction.new_pages, _usual_priority)),
    (
        "R14.4 a rebase in prefill leaves the page on the host",
        "R14.4",
        on(private_rebase.fill, lambda old: lambda tx, request, mapped, slots: mapped),
    ),
    ("R14.4 a rebase spares the copies of others", "R14.4", on(Room.pin_shown, _in_all_places)),
    ("R14.4 a prefetch may evict the backings behind its copies", "R14.4", during(lifecycle.prefetch, Backings.behind, NOTHING)),
    (
        "R14.4 a resume may evict the backings behind its copies",
        "R14.4",
        during(lifecycle._resume_private, Room.pin_used, lambda old: lambda self, numbers: self.pin(numbers)),
    ),
    (
        "R14.5 a backing that is made has the usual priority",
        "R14.5",
        during(private_copies.new_backings, Transaction.new_pages, _usual_priority),
    ),
    (
        "R14.6 no copy attaches",
        "R14.6",
        on(Backings.on_host, lambda old: lambda self, numbers: np.zeros(len(numbers), dtype=bool)),
    ),
    ("R14.6 a copy attaches to a backing on the disk", "R14.6", on(Backings.on_host, _usual_page)),
    ("R14.6 a step that attaches asks for a host slot", "R14.6", within(growth, offload.without_backing, _whatever_is_there)),
    (
        "R14.6 a resume that attaches asks for a host slot",
        "R14.6",
        within(lifecycle, offload.without_backing, _whatever_is_there),
    ),
    (
        "R14.6 a bare offload that attaches asks for a host slot",
        "R14.6",
        within(bare_offload, offload.without_backing, _whatever_is_there),
    ),
    (
        "R14.6 a copy that was moved is no backing",
        "R14.6",
        during(offload.offload_or_attach, places.become_backing, instead(None)),
    ),
    (
        "R14.6 a backing on the disk stays beside that on the host",
        "R14.6",
        during(places.become_backing, places.free_place, instead(None)),
    ),
    ("R14.6 who has a copy is newer when another's is moved", "R14.6", on(Copies._tell_owners, _whoever_refers)),
    ("R14.7 a page that is committed on the host is a copy", "R14.7", on(places.begin, _always_a_copy)),
    (
        "R14.7 a rebase joins no work to the readiness of its page",
        "R14.7",
        during(private_rebase.keep_own, Transaction.join_readiness, instead(None)),
    ),
    ("R14.8 who has a copy does not lock the backing", "R14.8", on(Backings.behind, NOTHING)),
    ("R14.8 a suspend leaves the backing locked", "R14.8", during(lifecycle.suspend, Backings.behind, NOTHING)),
    (
        "R14.8 a resume with a copy leaves the backing as it is",
        "R14.8",
        during(lifecycle._resume_private, Backings.behind, NOTHING),
    ),
    (
        "R14.8 a backing that nobody maps is droppable",
        "R14.8",
        on(Backings.kept, lambda old: lambda self, page: bool(self._pages.users[page])),
    ),
    ("R14.8 a copy that is freed counts as dropped", "R14.8", on(places.evict_copy, _counted_as_dropped)),
    ("R14.8 a copy needs room below though it is freed", "R14.8", on(Room._leave, _room_below)),
    ("R14.9 a prefetch gives no copies", "R14.9", everywhere(lifecycle.prefetch, _never_to_the_gpu)),
    (
        "R14.10 a copy is as old as what it was filled from",
        "R14.10",
        everywhere(private_copies.give_copies, _as_old_as_the_source),
    ),
    ("R14.10 a commit evicts copies of the pages of its path", "R14.10", on(Room.pin_blocks, _tree_pages_alone)),
    ("R14.11 a resume whose offload is refused is active", "R14.11", on(lifecycle._put_back_on_undo, instead(None))),
    ("R14.12 a fill waits for the owners of its source", "R14.12", on(Copies.copy, _of_all_owners)),
    ("R14.12 an offload waits for all who have a copy", "R14.12", on(Copies.move, _all_with_copies)),
    ("R14.12 a copy that is given up waits for no work", "R14.12", during(places.attach, Transaction.fence_slots, instead(None))),
    (
        "R14.12 a close waits in the slot of another's copy",
        "R14.12",
        on(commit._own_places, lambda old: lambda core, request, numbers: numbers),
    ),
    ("R14.13 what attaches is not counted", "R14.13", on(Counters.attached, instead(None))),
    ("R14.13 a copy causes an event", "R14.13", everywhere(private_copies.give_copies, _told_of)),
    ("R14.13 a backing that is made causes no event", "R14.13", everywhere(private_copies.new_backings, _no_event)),
)
"""Name, rule, patch."""
