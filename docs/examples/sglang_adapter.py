"""SGLang's radix cache under the suite: ``kvspec run --system sglang_adapter:SglangSystem --profile prefix``.

It imports the SGLang that is installed and contains nothing of it. One group of full attention. The tree is given its tokens
a page at a time, so that each of its nodes is a page: a node of several pages leaves as a whole, which no policy describes.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey, TreeNode

from kvspec.adapter import Facts, Page, Request, adapter
from kvspec.config import LayerKind, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.refs import group_shapes
from kvspec.system import Setup, Unsupported

Tokens = tuple[int, ...]


class Unknown(LookupError):
    """A name that the manager was never given."""


class Full(Exception):
    """There are too few free pages."""


class Wrong(Exception):
    """A value that makes no sense: an engine would not ask for it."""


class Untimely(Exception):
    """A call that does not fit the state of its request: an engine would not make it."""


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration this adapter cannot do."""
    if len(group_names(manager)) > 1:
        yield "several layer groups"
    if len(manager.levels) > 1:
        yield "a host level"
    if any(layer.kind is LayerKind.SSM or layer.sliding_window for layer in manager.layers):
        yield "windows or states"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


class Rows:
    """The slots of each request by token, in a row of its own: as much of ``ReqToTokenPool`` as the cache looks at."""

    def __init__(self, width: int) -> None:
        self.req_to_token = torch.zeros((0, width), dtype=torch.int64)

    def more(self) -> int:
        """The number of one row more."""
        self.req_to_token = torch.cat((self.req_to_token, torch.zeros((1, self.req_to_token.shape[1]), dtype=torch.int64)))
        return len(self.req_to_token) - 1

    def write(self, where: tuple[int, slice], slots: torch.Tensor) -> None:
        """Put slots into a part of a row."""
        self.req_to_token[where] = slots


@dataclass(eq=False)
class Known:
    """A request, with what the cache looks at (``engine``), and its tokens so far. ``blocks``: how many pages are in its row."""

    engine: Any
    tokens: Tokens
    blocks: int
    capacity: int
    history: int
    active: bool = False
    caching: bool = True
    closed: bool = False


@adapter(
    errors={
        Unknown: ErrorKind.OUT_OF_RANGE,
        Wrong: ErrorKind.INVALID_ARGUMENT,
        Untimely: ErrorKind.LOGIC_ERROR,
        Full: ErrorKind.OUT_OF_PAGES,
    },
    unobserved={"payloads", "order", "counters", "events", "versions", "device", "staging"},
    policies={
        "match": "block",
        "partial_blocks": "none",
        "held": "pinned",
        "match_renews": True,
        "failed_operation": "may_have_evicted",
    },
    unfit=unfit,
)
class SglangSystem:
    """The verbs that the cache can do, each with the arguments that it understands."""

    def __init__(self, setup: Setup) -> None:
        (self.group,) = group_names(setup.manager)
        (shape,) = group_shapes(setup.manager).values()
        (gpu,) = setup.manager.levels
        slots = gpu.slots or (gpu.bytes or 0) // shape.page_bytes
        self.size = setup.manager.tokens_per_block
        # Slot 0 of the allocator is for padding: pages count from 1.
        self.pool = PagedTokenToKVPoolAllocator(slots * self.size, self.size, torch.float16, "cpu", None, need_sort=False)
        self.rows = Rows(slots * self.size)
        self.cache = RadixCache(CacheInitParams(False, self.rows, self.pool, self.size))
        self.requests: dict[str, Known] = {}
        self.taken: dict[str, torch.Tensor] = {}

    def create(self, request: str, tokens: Tokens | None) -> int:
        if request in self.requests and not self.requests[request].closed:
            raise Untimely(f"there is a request {request}")
        self._check(tokens or ())
        node = self._match(tokens or ())
        slots = self.cache.path_device_indices(node)
        length = len(slots)
        row = self.rows.more()
        self.rows.write((row, slice(0, length)), slots)
        held = SimpleNamespace(req_pool_idx=row, cache_protected_len=length, cache_inserted_len=length, swa_evict_floor=0)
        engine = SimpleNamespace(kv=held, extra_key=None, cache_salt=None, priority=0, origin_input_ids=(), last_node=node)
        engine.lock = self.cache.lock(node)
        self.requests[request] = Known(engine, (tokens or ())[:length], length // self.size, length, length)
        return length

    def resume(self, request: str) -> bool:
        one = self._live(request)
        if one.active:
            raise Untimely(f"request {request} is active")
        one.active = True
        return True

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        one = self._live(request)
        room = one.capacity if capacity is None else capacity
        done = one.history if history is None else history
        if not one.history <= done <= room:
            raise Wrong(f"{done} of {room} tokens, {one.history} before")
        self._running(one, request)
        blocks = -(-room // self.size)
        if blocks > one.blocks:
            slots = self._allocate(blocks - one.blocks)
            if slots is None:
                return False
            self.rows.write((one.engine.kv.req_pool_idx, slice(one.blocks * self.size, blocks * self.size)), slots)
        self._free(one, blocks)
        one.blocks, one.capacity, one.history = blocks, room, done
        return True

    def commit(self, request: str, tokens: Tokens) -> None:
        one = self._live(request)
        self._check(tokens)
        total = len(one.tokens) + len(tokens)
        if total > one.capacity:
            raise Wrong(f"{total} tokens where there is room for {one.capacity}")
        self._running(one, request)
        if tokens and not one.caching:
            raise Untimely(f"request {request} caches nothing more")
        full = len(one.tokens) // self.size
        one.tokens += tokens
        one.history = max(one.history, total)
        for number in range(full, total // self.size):
            self._checkpoint(one, (number + 1) * self.size)

    def stop_committing(self, request: str) -> None:
        self._live(request).caching = False

    def close(self, request: str) -> None:
        one = self._found(request)
        if one.closed:
            return
        if one.active:
            self._checkpoint(one, len(one.tokens))
        self._free(one, one.engine.kv.cache_protected_len // self.size)
        self.cache.unlock(one.engine.lock)
        one.blocks, one.active, one.closed = 0, False, True

    def seed_prefix(self, tokens: Tokens, level: str) -> None:
        self._there(level)
        self._check(tokens)
        node = self._at(tokens)
        there = self.cache.path_device_indices(node)
        full = len(tokens) // self.size
        missing = full - len(there) // self.size
        if missing <= 0:
            return
        if any(way.lock_ref == 0 for way in self._way(node)):
            raise Unsupported("a longer prefix of which the beginning stays old: an insertion renews all of it")
        slots = self._allocate(missing)
        if slots is None:
            raise Full(f"{missing} pages cannot be had")
        slots = torch.cat((there, slots))
        for end in range(len(there) + self.size, full * self.size + 1, self.size):
            self.cache.insert(InsertParams(key=self._key(tokens[:end]), value=slots[:end]))

    def evict(self, level: str, group: str | None, pages: int) -> None:
        self._there(level, group)
        if pages < 1:
            raise Wrong(f"{pages} pages")
        if pages * self.size > self.cache.evictable_size():
            raise Full(f"{self.cache.evictable_size() // self.size} pages can go")
        self.cache.evict(EvictParams(num_tokens=pages * self.size))

    def clear_reusable(self) -> None:
        self.cache.evict(EvictParams(num_tokens=self.cache.evictable_size()))

    def take_slots(self, level: str, group: str | None, count: int | str, as_: str) -> None:
        self._there(level, group)
        unused = self.pool.available_size() // self.size
        number = unused if count == "all" else int(count)
        if count != "all" and number < 1:
            raise Wrong(f"{number} slots")
        if as_ in self.taken:
            raise Untimely(f"slots {as_} are taken already")
        if number > unused:
            raise Full(f"{unused} of {number} pages are unused")
        self.taken[as_] = self.pool.alloc(number * self.size)

    def give_slots(self, as_: str) -> None:
        if as_ not in self.taken:
            raise Unknown(f"there are no slots {as_}")
        self.pool.free(self.taken.pop(as_))

    def observe(self) -> Facts:
        """What the cache shows now."""
        nodes = dict(self._nodes(self.cache.root_node, ()))
        used = {slot for one in self.requests.values() for slot in self._slots(one)}
        idle = [(prefix, slot) for prefix, slot in nodes.items() if slot not in used]
        return Facts(
            requests={name: self._request(one) for name, one in self.requests.items()},
            free={"gpu": self.pool.available_size() // self.size},
            tree=list(nodes),
            cached={self.group: [Page("gpu", slot, tokens=prefix) for prefix, slot in idle]},
            evictable={"gpu": list(self._order())},
        )

    def _request(self, one: Known) -> Request:
        shared = one.engine.kv.cache_protected_len // self.size
        ends = [(number + 1) * self.size for number in range(one.blocks)]
        pages = zip(self._slots(one), ends, strict=True)
        return Request(
            status="closed" if one.closed else "active" if one.active else "suspended",
            phase="prefill",
            capacity=one.capacity,
            history=one.history,
            committed=len(one.tokens),
            blocks={
                self.group: [
                    Page("gpu", slot, tokens=one.tokens[:end] if end <= shared * self.size else None) for slot, end in pages
                ]
            },
            eligible={self.group: 0},
        )

    def _order(self) -> Iterator[int]:
        """The pages that can go, in the order in which the cache's strategy has them: leaves first."""
        rank = self.cache.eviction_strategy.get_priority
        line = [(rank(node), node) for node in self.cache.evictable_leaves]
        heapq.heapify(line)
        gone: set[TreeNode] = set()
        while line:
            _, node = heapq.heappop(line)
            gone.add(node)
            yield self._slot(node)
            above = node.parent
            if above is not self.cache.root_node and above.lock_ref == 0 and gone.issuperset(above.children.values()):
                heapq.heappush(line, (rank(above), above))

    def _nodes(self, node: TreeNode, before: Tokens) -> Iterator[tuple[Tokens, int]]:
        for child in node.children.values():
            prefix = (*before, *child.key.token_ids)
            yield prefix, self._slot(child)
            yield from self._nodes(child, prefix)

    def _way(self, node: TreeNode) -> Iterator[TreeNode]:
        while node is not self.cache.root_node:
            yield node
            node = node.parent

    def _slot(self, node: TreeNode) -> int:
        return int(node.value[0]) // self.size - 1

    def _slots(self, one: Known) -> list[int]:
        row = self.rows.req_to_token[one.engine.kv.req_pool_idx, : one.blocks * self.size : self.size]
        return [slot // self.size - 1 for slot in row.tolist()]

    def _key(self, tokens: Tokens) -> RadixKey:
        return RadixKey(array("q", tokens))

    def _match(self, tokens: Tokens) -> TreeNode:
        return self.cache.match_prefix(MatchPrefixParams(key=self._key(tokens))).last_device_node

    def _at(self, tokens: Tokens) -> TreeNode:
        """The node where a match would end, without one: a match makes what it finds young."""
        node, end = self.cache.root_node, 0
        while end + self.size <= len(tokens):
            child = node.children.get(self._key(tokens[end:]).child_key(self.size))
            if child is None:
                break
            node, end = child, end + self.size
        return node

    def _checkpoint(self, one: Known, end: int) -> None:
        one.engine.full_untruncated_fill_ids = array("q", one.tokens)
        self.cache.checkpoint(one.engine, up_to=end)

    def _allocate(self, pages: int) -> torch.Tensor | None:
        """Slots for so many pages, by eviction if need be, as a scheduler asks for them."""
        short = pages * self.size - self.pool.available_size()
        if short > 0:
            self.cache.evict(EvictParams(num_tokens=short))
        return self.pool.alloc(pages * self.size)

    def _free(self, one: Known, blocks: int) -> None:
        """Free the pages of a request from a block on."""
        start = blocks * self.size
        row = self.rows.req_to_token[one.engine.kv.req_pool_idx, start : one.blocks * self.size]
        self.pool.free_segment(row, start_pos=start)

    def _found(self, name: str) -> Known:
        if name not in self.requests:
            raise Unknown(f"there is no request {name}")
        return self.requests[name]

    def _live(self, name: str) -> Known:
        one = self._found(name)
        if one.closed:
            raise Untimely(f"request {name} is closed")
        return one

    def _running(self, one: Known, name: str) -> None:
        if not one.active:
            raise Untimely(f"request {name} is suspended")

    def _check(self, tokens: Tokens) -> None:
        if any(token < 0 for token in tokens):
            raise Wrong("a token is negative")

    def _there(self, level: str, group: str | None = None) -> None:
        if group not in (None, self.group):
            raise Unknown(f"there is no group {group}")
        if level != "gpu":
            raise Wrong(f"there is no {level}")
