"""Changes of the places of a page, with private ownership: what becomes a copy or the backing, what is freed (section 14).

Requests that have no copy refer to the backing, or else to the oldest copy (R14.2). Every change here keeps that in their blocks
and in the tree: who refers to a place that ceases to be it is pointed to the other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kvgpu.operations.journal import Journal, released_work
from kvgpu.requests.request import Request
from kvgpu.runs import Int32, distinct
from kvgpu.storage.backings import Backings
from kvgpu.storage.pages import NO_NODE, NO_PAGE, NOBODY
from kvspec.config import Level


def _one(page: int) -> Int32:
    return np.array([page], dtype=np.int32)


def _backings(journal: Journal) -> Backings:
    assert journal.core.backings is not None
    return journal.core.backings


# ---- places come and go ----------------------------------------------------------------------------------------------


def begin(journal: Journal, page: int) -> None:
    """A page is committed where it is: on the GPU that is the copy of its request, elsewhere the backing (R14.7)."""
    pages = journal.core.pages
    journal.put("next_place", _one(page), page)
    if pages.users[page] and pages.level[page] == Level.GPU:
        journal.put("copy_of", _one(page), pages.user[page])
    else:
        journal.put("backing", _one(page), page)


def join(journal: Journal, page: int, other: int, copy_of: int) -> None:
    """A row becomes another place of the page of ``other``: the copy of a request, or, with ``NOBODY``, not yet anything."""
    pages, shown = journal.core.pages, _backings(journal).shown(other)
    following = int(pages.next_place[other])
    journal.put("next_place", _one(other), page)
    journal.put("next_place", _one(page), following)
    journal.put("backing", _one(page), pages.backing[other])
    journal.put("copy_of", _one(page), copy_of)
    if pages.node[page] != pages.node[other]:
        journal.put("node", _one(page), pages.node[other])
    if pages.backing[page] == NO_PAGE and pages.serial[page] < pages.serial[shown] and copy_of != NOBODY:
        _point(journal, shown, page)  # a request's own page was made before the copies that there are (R14.2, R14.7)


def join_copies(journal: Journal, numbers: Int32, others: Int32, uid: int) -> None:
    """New rows become the copies of a request, one each of the pages of ``others``, which are of different pages."""
    pages = journal.core.pages
    pages.next_place[numbers] = pages.next_place[others]
    pages.backing[numbers], pages.node[numbers] = pages.backing[others], pages.node[others]
    pages.copy_of[numbers] = uid
    journal.put("next_place", others, numbers)


def free_place(journal: Journal, page: int) -> None:
    """A place that nobody refers to any more is none: its slot is free."""
    if journal.core.pages.locks[page]:
        journal.pool(journal.core.key_of(page)).evictable += 1
        journal.put("locks", _one(page), 0)
    _free_places(journal, _one(page))


def _free_places(journal: Journal, numbers: Int32) -> None:
    """The same of several, of different pages, which nobody has locked."""
    pages, backings = journal.core.pages, _backings(journal)
    before = np.array([backings.before(page) for page in numbers.tolist()], dtype=np.int32)
    beside = before != numbers
    journal.put("next_place", before[beside], pages.next_place[numbers[beside]])
    for name, value in (("next_place", NO_PAGE), ("backing", NO_PAGE), ("copy_of", NOBODY), ("node", NO_NODE)):
        journal.put(name, numbers, value)
    journal.free(numbers)


def _point(journal: Journal, old: int, new: int) -> None:
    """Who refers to a place, and the tree, refer to another from now on; but not the request whose copy it is."""
    core = journal.core
    pages = core.pages
    group, block = int(pages.group[old]), int(pages.block[old])
    for uid in sorted(pages.users_of(old)):
        if uid != pages.copy_of[old]:
            replace(journal, core.by_uid[uid], group, block, new)
    if pages.node[old] != NO_NODE:
        node = core.tree.node(int(pages.node[old]))
        if node.pages[group] == old:
            journal.set_page(node, group, new)


def replace(journal: Journal, request: Request, group: int, block: int, new: int) -> None:
    """A block of a request refers to another place from now on."""
    replace_all(journal, request, group, _one(block), _one(new))


def replace_all(journal: Journal, request: Request, group: int, blocks: Int32, new: Int32) -> None:
    """Blocks of a request refer to other places from now on."""
    own = request.groups[group]
    journal.drop_user(own.page[0, blocks], request)
    journal.put_blocks(own, "page", (0, blocks), new)
    journal.add_user(new, request)


# ---- backings --------------------------------------------------------------------------------------------------------


def become_backings(journal: Journal, numbers: Int32) -> None:
    """Places are the backings from now on, as in ``become_backing``. Of most there is no other place."""
    pages = journal.core.pages
    alone = (pages.next_place[numbers] == numbers) & (pages.backing[numbers] == NO_PAGE)
    journal.put("copy_of", numbers[alone], NOBODY)
    journal.put("backing", numbers[alone], numbers[alone])
    for page in numbers[~alone].tolist():
        become_backing(journal, page)


def become_backing(journal: Journal, page: int) -> None:
    """A place is the backing from now on, instead of the one that there is: all who have no copy refer to it (R14.6, R14.7).

    It is locked by whoever is active and refers to the page.
    """
    pages, backings = journal.core.pages, _backings(journal)
    old, shown = int(pages.backing[page]), backings.shown(page)
    mapped = 0 if pages.copy_of[page] != NOBODY else int(pages.locks[page])
    locks = mapped + backings.active(page)
    journal.put("copy_of", _one(page), NOBODY)
    journal.put("backing", np.array(backings.places(page), dtype=np.int32), page)
    if locks and not pages.locks[page]:
        journal.pool(journal.core.key_of(page)).evictable -= 1
        journal.unsettle(_one(page))
    journal.put("locks", _one(page), locks)
    for before in {old, shown} - {page, NO_PAGE}:
        _point(journal, before, page)
    if old not in (page, NO_PAGE):
        free_place(journal, old)


def new_backing(journal: Journal, page: int) -> None:
    """A new place, which nobody has and no queue, is the backing of a page that had only copies (R14.5)."""
    pages, backings = journal.core.pages, _backings(journal)
    oldest = backings.copies(page)[0]
    journal.put("backing", np.array(backings.places(page), dtype=np.int32), page)
    journal.put("locks", _one(page), backings.active(page))
    _point(journal, oldest, page)
    if not pages.locks[page]:
        journal.make_evictable(_one(page))


def free_backing(journal: Journal, backing: int, copy: int) -> None:
    """A backing on the GPU, which nobody active uses, gives way to a copy that has come (R14.7)."""
    journal.put("backing", np.array(_backings(journal).places(backing), dtype=np.int32), NO_PAGE)
    _point(journal, backing, copy)
    free_place(journal, backing)


def adopt(journal: Journal, numbers: Iterable[int], request: Request) -> None:
    """Backings on the GPU, which nobody active uses, become the copies of a request, without a transfer (R14.4)."""
    for page in numbers:
        journal.put("backing", _one(page), NO_PAGE)
        journal.put("copy_of", _one(page), request.uid)


# ---- letting go ------------------------------------------------------------------------------------------------------


def let_go(journal: Journal, numbers: Int32, request: Request) -> None:
    """A request refers to pages no more, and has not locked them. Its copies are released (R14.8), in order."""
    pages = journal.core.pages
    journal.drop_user(numbers, request)
    own = pages.copy_of[numbers] == request.uid
    unused = (pages.backing[numbers] == numbers) & (pages.node[numbers] == NO_NODE)
    for page in numbers[own | unused].tolist():
        if pages.copy_of[page] == request.uid:
            _release_copy(journal, page)
        else:
            _free_unused(journal, page)


def _release_copy(journal: Journal, page: int) -> None:
    """A copy is freed, unless it is the last place of its page: then that is the backing, where it is (R14.8)."""
    backings = _backings(journal)
    if next(backings.others(page), None) is None:
        journal.put("copy_of", _one(page), NOBODY)
        journal.put("backing", _one(page), page)
        _free_unused(journal, page)
        return
    backing = int(journal.core.pages.backing[page])
    _free_copy(journal, page)
    if backing != NO_PAGE:
        _free_unused(journal, backing)


def _free_copy(journal: Journal, page: int) -> None:
    """A copy that is not the last place goes; who would have got theirs from it turns to the next."""
    backings = _backings(journal)
    journal.put("copy_of", _one(page), NOBODY)
    if journal.core.pages.backing[page] == NO_PAGE:
        _point(journal, page, backings.copies(page)[0])
    free_place(journal, page)


def _free_unused(journal: Journal, backing: int) -> None:
    """A backing that neither a request nor the tree has is freed."""
    if journal.core.pages.node[backing] == NO_NODE and not _backings(journal).kept(backing):
        free_place(journal, backing)


def release_all(journal: Journal, request: Request) -> None:
    """A request that is closing releases all its pages, by group, then beam row, then block (R7.2)."""
    for group in range(request.group_count):
        numbers = request.pages(group)
        placed = _backings(journal).has_places(numbers)
        let_go(journal, numbers[placed], request)
        journal.release(numbers[~placed], request)


def evict_copy(journal: Journal, page: int) -> None:
    """A HELD copy of a page with a backing leaves: its slot is free, and its request refers to the backing (R14.8)."""
    pages = journal.core.pages
    request = journal.core.by_uid[int(pages.copy_of[page])]
    replace(journal, request, int(pages.group[page]), int(pages.block[page]), int(pages.backing[page]))
    _free_copy(journal, page)


def attach(journal: Journal, numbers: Int32, request: Request, prefill: bool) -> None:
    """An active request gives up its copies, and maps the backings that the host has (R14.6). ``prefill``: it is in prefill."""
    if not numbers.size:
        return
    pages = journal.core.pages
    backings, groups = pages.backing[numbers], pages.group[numbers]
    journal.fence_slots(numbers, released_work(journal.core, request))
    journal.unlock(numbers, prefill)
    for group in distinct(groups):
        mine = groups == group
        replace_all(journal, request, group, pages.block[numbers[mine]], backings[mine])
    if prefill:
        journal.put("needs", backings, pages.needs[backings] + 1)
    _free_places(journal, numbers)
    journal.attached += groups.tolist()
    journal.touch(request)


def drop_places(journal: Journal, page: int) -> bool:
    """The tree has a page no more: its places stay with the requests that refer to it (R10.3). Whether it was freed."""
    backings = _backings(journal)
    places = backings.places(page)
    journal.put("node", np.array(places, dtype=np.int32), NO_NODE)
    if any(backings.kept(place) for place in places):
        journal.left_tree.update(places)
        return False
    free_place(journal, page)
    return True
