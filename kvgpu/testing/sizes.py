"""Named breaks that small numbers hide: keys that are shorter than what they stand for, and what goes wrong beyond a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.operations import state as core_module
from kvgpu.operations.copies import Copies
from kvgpu.operations.room import Room
from kvgpu.requests.group_blocks import GroupBlocks
from kvgpu.storage.copier import Copier
from kvgpu.storage.pages import PageTable
from kvgpu.storage.prefix_tree import Match, PrefixTree
from kvgpu.storage.texts import Text
from kvgpu.testing.lookup import looked_up
from kvgpu.testing.patches import Patch, during, first, on

# ---- keys ----------------------------------------------------------------------------------------------------------------


def _block(make: Callable[[Sequence[int]], object]) -> Callable[[Any], Any]:
    """Children are found by what ``make`` makes of the tokens of their block."""
    return looked_up(
        lambda node: make(node.tokens), lambda tree, text, start: make(text.tokens[start : start + tree._tokens_per_block])
    )


def _bits(count: int) -> Callable[[Any], Any]:
    return _block(lambda tokens: tuple(token & ((1 << count) - 1) for token in tokens))


def _ten_bits(tokens: Sequence[int]) -> int:
    return crc32(",".join(map(str, tokens)).encode()) & 0x3FF


def _without_parent(old: Any) -> Any:
    def wanted(tree: PrefixTree, text: Text, start: int) -> object:
        size = tree._tokens_per_block
        return text.tokens[start : start + size], start // size

    return looked_up(lambda node: (node.tokens, node.depth), wanted, anywhere=True)(old)


def _hashed_prefix(old: Any) -> Any:
    def wanted(tree: PrefixTree, text: Text, start: int) -> object:
        return _ten_bits(text.tokens[: start + tree._tokens_per_block])

    return looked_up(lambda node: _ten_bits(node.prefix().tokens), wanted, anywhere=True)(old)


def _at_most(blocks: int) -> Callable[[Any], Any]:
    def make(old: Any) -> Any:
        def match(self: Any, text: Any) -> Match:
            found: Match = old(self, text)
            return found if len(found.whole) <= blocks else Match(found.whole[:blocks], None, 0)

        return match

    return make


# ---- sizes ---------------------------------------------------------------------------------------------------------------


def _grown_without_priority(old: Any) -> Any:
    def grow(self: Any, at_least: int) -> None:
        before = self._size
        old(self, at_least)
        self.priority[:before] = 0

    return grow


def _first_pages_pinned(old: Any) -> Any:
    return lambda self, page: page < 1024 and old(self, page)


def _first_pages_copied(old: Any) -> Any:
    def on_lane(self: Any, source: Any, target: Any, *args: Any) -> Any:
        return old(self, replace(source, slots=source.slots[:256]), replace(target, slots=target.slots[:256]), *args)

    return on_lane


def _first_rows(old: Any) -> Any:
    return lambda self, stream, rows: old(self, stream, [row for row in rows if row < 128])


def _first_dirty_rows(old: Any) -> Any:
    return lambda self, stream, rows: old(self, stream, rows[:128])


def _cut_slots(count: int) -> Callable[[Any], Any]:
    """The table names the slots modulo ``count``."""

    def make(old: Any) -> Any:
        def entries(self: Any, pages: Any, beam: int) -> Any:
            indices, levels = old(self, pages, beam)
            return np.where(indices >= count, indices % count, indices).astype(np.int32), levels

        return entries

    return make


SIZES: tuple[tuple[str, str, Patch], ...] = (
    ("R3.1 a block is found without its parent", "R3.1", on(PrefixTree.match, _without_parent)),
    ("R3.1 the order of the tokens of a block is ignored", "R3.1", on(PrefixTree.match, _block(lambda one: sorted(one)))),
    ("R3.1 tokens are cut to 16 bits", "R3.1", on(PrefixTree.match, _bits(16))),
    ("R3.1 tokens are cut to 31 bits", "R3.1", on(PrefixTree.match, _bits(31))),
    ("R3.1 tokens are cut to 40 bits", "R3.1", on(PrefixTree.match, _bits(40))),
    ("R3.1 a prefix is found by a hash of 10 bits", "R3.1", on(PrefixTree.match, _hashed_prefix)),
    ("R3.1 a match ends after 8 blocks", "R3.1", on(PrefixTree.match, _at_most(8))),
    ("R3.1 a match ends after 16 blocks", "R3.1", on(PrefixTree.match, _at_most(16))),
    ("R10.2 beyond 1,024 pages the priority of those before is lost", "R10.2", on(PageTable._grow, _grown_without_priority)),
    ("R3.14 beyond 1,024 pages those in use are evicted", "R3.14", on(Room._is_pinned, _first_pages_pinned)),
    ("R4.5 a copy has 256 pages at most", "R4.5", on(Copier.on_lane, _first_pages_copied)),
    ("R6.4 the fifth owner is not told", "R6.4", during(Copies._tell_owners, core_module.Core.owners, first(4))),
    ("R6.4 the ninth owner is not told", "R6.4", during(Copies._tell_owners, core_module.Core.owners, first(8))),
    ("R8.4 rows beyond 128 are not published", "R8.4", on(Batch._upload, _first_rows)),
    ("R8.4 128 rows at most are published", "R8.4", on(Batch._upload, _first_dirty_rows)),
    ("R1.9 slots are cut to 256", "R1.9", on(GroupBlocks.entries, _cut_slots(256))),
    ("R1.9 slots are cut to 4,096", "R1.9", on(GroupBlocks.entries, _cut_slots(4096))),
)
