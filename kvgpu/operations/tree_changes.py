"""Changes of the prefix tree within an operation: inserting, dropping, removing with all below (R3.9, R10.3)."""

from __future__ import annotations

import numpy as np

from kvgpu.operations import places
from kvgpu.operations.journal import Journal, released_work
from kvgpu.operations.state import TreeEvent
from kvgpu.requests.request import Request
from kvgpu.storage.pages import NO_NODE, NO_PAGE
from kvgpu.storage.prefix_tree import Node
from kvgpu.storage.texts import Text


def insert_node(journal: Journal, parent: Node, text: Text, prefix: Text) -> Node:
    """A new block, still without pages; its event. ``prefix``: all tokens from the beginning to its end."""
    tree = journal.core.tree
    node = tree.insert(parent, text)

    def take_out() -> None:
        tree.detach(node)
        tree.forget(node)

    journal.on_undo(take_out)
    journal.events.append(TreeEvent("stored", prefix))
    return node


def give_page(journal: Journal, page: int, node: Node) -> None:
    """A page becomes a page of a block of the tree, where it is."""
    core, group = journal.core, int(journal.core.pages.group[page])
    journal.set_page(node, group, page)
    journal.put("node", np.array([page], dtype=np.int32), node.number)
    if core.backings is not None and core.layout.groups[group].sparse:
        places.begin(journal, page)


def set_tail(journal: Journal, request: Request, node: Node) -> None:
    """The committed path of a request ends at a block."""
    old = request.tail
    old.tails.discard(request.uid)
    node.tails.add(request.uid)
    request.tail = node

    def back() -> None:
        node.tails.discard(request.uid)
        old.tails.add(request.uid)
        request.tail = old

    journal.on_undo(back)


def drop(journal: Journal, page: int, events: list[TreeEvent]) -> None:
    """Take a droppable page out of the tree and free it; a block left without pages goes with all below it (R10.3)."""
    node = journal.core.tree.node(int(journal.core.pages.node[page]))
    _drop_page(journal, node, int(journal.core.pages.group[page]))
    if all(other == NO_PAGE for other in node.pages):
        _remove(journal, node, events)


def _drop_page(journal: Journal, node: Node, group: int) -> None:
    page = node.pages[group]
    one = np.array([page], dtype=np.int32)
    journal.set_page(node, group, NO_PAGE)
    backings = journal.core.backings
    if backings is not None and backings.has_places(one).any():
        if places.drop_places(journal, page):
            journal.dropped.append(group)
        return
    journal.put("node", one, NO_NODE)
    if journal.core.pages.users[page]:  # it stays with its users, private
        journal.left_tree.add(page)
    else:
        journal.dropped.append(group)
        journal.free(one)


def _remove(journal: Journal, node: Node, events: list[TreeEvent]) -> None:
    journal.removals += 1
    below = list(node.below())
    events.extend(TreeEvent("removed", each.prefix()) for each in below)
    parent = node.parent
    assert parent is not None
    siblings = dict(parent.children)
    journal.core.tree.detach(node)
    journal.on_undo(lambda: setattr(parent, "children", siblings))
    journal.forgotten += below
    for each in below:
        for group, page in enumerate(each.pages):
            if page != NO_PAGE:
                _drop_page(journal, each, group)
    for uid in sorted(uid for each in below for uid in each.tails):
        stop_committing(journal, journal.core.by_uid[uid])


def stop_committing(journal: Journal, request: Request) -> None:
    """A request commits no more (R3.9)."""
    journal.put_attribute(request, "committing", False)
    release_kept(journal, request)


def release_kept(journal: Journal, request: Request) -> None:
    """Release the stale pages that a request kept for a commit, as none can come any more (R3.7)."""
    for blocks in request.groups:
        where = np.nonzero(blocks.kept)
        if where[0].size:
            numbers = blocks.page[where]
            journal.put_blocks(blocks, "kept", where, False)
            journal.put_blocks(blocks, "page", where, NO_PAGE)
            journal.fence_slots(numbers, released_work(journal.core, request))
            journal.release(numbers, request)
