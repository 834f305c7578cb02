"""The example for vLLM, with the vLLM that is installed, or the unpacked source distribution in ``KVSPEC_VLLM``.

``KVSPEC_VLLM_BUG`` plants one of `BUGS` in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tests.stubs.engines import install, vllm_sources

if where := os.environ.get("KVSPEC_VLLM"):
    install(vllm_sources(Path(where)))
sys.path.insert(0, str(ROOT / "docs" / "examples"))

from vllm.v1.core import block_pool, kv_cache_utils, single_type_kv_cache_manager
from vllm_adapter import VllmSystem

__all__ = ["BUGS", "VllmSystem"]


def stale_hash() -> None:
    """A block that is used anew stays in the table of hashes."""
    block_pool.BlockPool._maybe_evict_cached_block = lambda self, block: bool(block.reset_hash())


def touch() -> None:
    """A block that is matched stays in the line of free ones."""

    def touched(self: Any, blocks: Any) -> None:
        for block in blocks:
            block.ref_cnt += 1

    block_pool.BlockPool.touch = touched


def newest_first() -> None:
    """What was let go last is used anew first."""
    queue = kv_cache_utils.FreeKVCacheBlockQueue
    queue.append_n = queue.prepend_n


def leak() -> None:
    """Blocks without a hash are never free again."""
    whole = block_pool.BlockPool.free_blocks
    block_pool.BlockPool.free_blocks = lambda self, blocks: whole(self, [block for block in blocks if block.block_hash])


def head_first() -> None:
    """Of blocks let go together the first is used anew first."""
    whole = block_pool.BlockPool.free_blocks
    block_pool.BlockPool.free_blocks = lambda self, blocks: whole(self, list(blocks)[::-1])


def hash_without_parent() -> None:
    """A block is found by its own tokens alone."""
    whole = kv_cache_utils.hash_block_tokens
    kv_cache_utils.hash_block_tokens = lambda hashed, parent, *rest: whole(hashed, None, *rest)


def window_off_by_one() -> None:
    """A window lets go of a token that the next one still sees."""
    manager = single_type_kv_cache_manager.SlidingWindowManager
    whole = manager.get_num_skipped_tokens

    def skipped(self: Any, computed: int) -> int:
        return int(whole(self, computed + 1))

    manager.get_num_skipped_tokens = skipped


def counted_twice() -> None:
    """A block that is matched still counts as room."""
    queue = kv_cache_utils.FreeKVCacheBlockQueue
    whole = queue.remove

    def removed(self: Any, block: Any) -> None:
        count = self.num_free_blocks
        whole(self, block)
        self.num_free_blocks = count

    queue.remove = removed


BUGS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        *(stale_hash, touch, newest_first, window_off_by_one),
        *(leak, head_first, counted_twice, hash_without_parent),
    )
}
"""By name, what plants a mistake."""

if bug := os.environ.get("KVSPEC_VLLM_BUG"):
    BUGS[bug]()
