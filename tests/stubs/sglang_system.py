"""The example for SGLang, with the SGLang that is installed, or the unpacked wheel in ``KVSPEC_SGLANG``.

``KVSPEC_SGLANG_BUG`` plants one of `BUGS` in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tests.stubs.engines import install, sglang_sources

if where := os.environ.get("KVSPEC_SGLANG"):
    install(sglang_sources(Path(where)))
sys.path.insert(0, str(ROOT / "docs" / "examples"))

from sglang_adapter import SglangSystem

__all__ = ["BUGS", "SglangSystem"]

# By their full names: the packages above them may be stand-ins, in which every name is there.
base, evict_policy, radix_cache, paged = (
    import_module(f"sglang.srt.mem_cache.{name}")
    for name in ("base_prefix_cache", "evict_policy", "radix_cache", "allocator.paged")
)
Cache: Any = radix_cache.RadixCache


def stale_node() -> None:
    """A page that is evicted can still be found."""
    whole = Cache._delete_leaf

    def left(self: Any, node: Any) -> None:
        above, key = node.parent, node.key.child_key(self.page_size)
        whole(self, node)
        above.children[key] = node

    Cache._delete_leaf = left


def no_lock_on_match() -> None:
    """What a request has matched is not locked."""
    Cache.inc_lock_ref = lambda self, node: base.IncLockRefResult(delta=0)
    Cache.dec_lock_ref = lambda self, node, params=None: None


def newest_first() -> None:
    """What was used last leaves first."""
    evict_policy.LRUStrategy.get_priority = evict_policy.MRUStrategy.get_priority


def leak() -> None:
    """The pages that a request has besides those of the tree are never free again."""
    whole = paged.PagedTokenToKVPoolAllocator.free_segment

    def kept(self: Any, slots: Any, *, start_pos: int) -> None:
        if start_pos == 0:
            whole(self, slots, start_pos=start_pos)

    paged.PagedTokenToKVPoolAllocator.free_segment = kept


def counted_twice() -> None:
    """What is locked counts as room, too."""
    Cache.evictable_size = lambda self: self.evictable_size_ + self.protected_size_


def parent_ignored() -> None:
    """A page is found by its own tokens alone, whatever comes before it."""
    whole = Cache._match_prefix_helper

    def anywhere(self: Any, node: Any, key: Any) -> Any:
        values, last = whole(self, node, key)
        rest = key[sum(map(len, values)) :]
        nodes = [self.root_node]
        for one in nodes:
            nodes += one.children.values()
        found = [one for one in nodes[1:] if len(rest) and rest.token_ids[: len(one.key)] == one.key.token_ids]
        return ([*values, found[0].value], found[0]) if found else (values, last)

    Cache._match_prefix_helper = anywhere


def match_renews_nothing() -> None:
    """What is matched stays as old as it was."""
    whole = Cache._match_prefix_helper

    def quiet(self: Any, node: Any, key: Any) -> Any:
        before = {one: one.last_access_time for one in self.evictable_leaves}
        found = whole(self, node, key)
        for one, time in before.items():
            one.last_access_time = time
        return found

    Cache._match_prefix_helper = quiet


def first_token_alone() -> None:
    """Pages with an equal first token are taken for one."""
    key = radix_cache.RadixKey

    def matched(self: Any, other: Any, offset: int, page_size: int = 1) -> int:
        most = min(len(self), len(other) - offset)
        starts = range(0, most // page_size * page_size, page_size)
        equal = [self.token_ids[at] == other.token_ids[offset + at] for at in starts]
        return [*equal, False].index(False) * page_size

    key.child_key_at = lambda self, offset, page_size=1: self.token_ids[offset]
    key.match_at = matched


BUGS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        *(stale_node, no_lock_on_match, newest_first, leak, counted_twice),
        *(parent_ignored, first_token_alone, match_renews_nothing),
    )
}
"""By name, what plants a mistake."""

if bug := os.environ.get("KVSPEC_SGLANG_BUG"):
    BUGS[bug]()
