"""vLLM's manager of KV blocks under the suite: ``kvspec run --system vllm_adapter:VllmSystem --profile prefix``.

It imports the vLLM that is installed and contains nothing of it. Full attention and sliding windows, one group or several.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id, get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.request import Request as EngineRequest

from kvspec.adapter import Facts, Page, Request, adapter
from kvspec.config import LayerKind, Level, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.refs import group_shapes, pool_groups
from kvspec.system import Setup, Unsupported

Tokens = tuple[int, ...]
LONGEST = 1 << 20
"""The longest request, in tokens."""


class Unknown(LookupError):
    """A name that the manager was never given."""


class Full(Exception):
    """There are too few free blocks."""


class Wrong(Exception):
    """A value that makes no sense: an engine would not ask for it."""


class Untimely(Exception):
    """A call that does not fit the state of its request: an engine would not make it."""


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration this adapter cannot do."""
    if len(pool_groups(manager)[Level.GPU]) > 1:
        yield "groups whose pages differ in size"
    if len(manager.levels) > 1:
        yield "a host level"
    if any(layer.kind is LayerKind.SSM for layer in manager.layers):
        yield "states"
    if any(layer.sink_tokens for layer in manager.layers):
        yield "sink tokens"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


@dataclass
class Known:
    """A request, and what an engine knows of it besides."""

    engine: EngineRequest
    capacity: int
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
        "dedupe": "keep_both",
        "held": "pinned",
        "recency": "let_go",
        "release_order": "by_group",
        "on_drop": "page_alone",
        "on_drop_windowed": "page_alone",
        "room": "not_counted",
    },
    unfit=unfit,
)
class VllmSystem:
    """The verbs that the manager can do, each with the arguments that it understands."""

    def __init__(self, setup: Setup) -> None:
        self.groups = group_names(setup.manager)
        shapes = group_shapes(setup.manager)
        (gpu,) = setup.manager.levels
        slots = gpu.slots or (gpu.bytes or 0) // shapes[self.groups[0]].page_bytes
        self.size = setup.manager.tokens_per_block
        self.windows = [layer.sliding_window for layer in setup.manager.layers if layer.name in self.groups]
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(self.size, sha256)
        config = KVCacheConfig(
            num_blocks=slots + 1,  # one is the null block
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec([name], self._spec(window)) for name, window in zip(self.groups, self.windows, strict=True)
            ],
        )
        self.manager = KVCacheManager(config, LONGEST, scheduler_block_size=self.size, hash_block_size=self.size)
        self.kinds = self.manager.coordinator.single_type_managers
        self.pool = self.manager.block_pool
        self.requests: dict[str, Known] = {}
        self.prefixes: dict[bytes, Tokens] = {}
        self.taken: dict[str, list] = {}
        self.numbers = itertools.count()

    def _spec(self, window: int | None):
        about = {"block_size": self.size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float16}
        return FullAttentionSpec(**about) if window is None else SlidingWindowSpec(sliding_window=window, **about)

    def create(self, request: str, tokens: Tokens | None) -> int:
        if request in self.requests and not self.requests[request].closed:
            raise Untimely(f"there is a request {request}")
        self._check(tokens or ())
        # The last prompt token is always computed, so that one more has to be asked for.
        blocks, length, *_ = self.manager.get_computed_blocks(self._engine((*(tokens or ()), 0)))
        engine = self._engine((tokens or ())[:length])
        if length:
            self.manager.allocate_slots(engine, 0, length, blocks)
        engine.num_computed_tokens = length
        self.requests[request] = Known(engine, length)
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
        done = one.engine.num_computed_tokens if history is None else history
        if not one.engine.num_computed_tokens <= done <= room:
            raise Wrong(f"{done} of {room} tokens, {one.engine.num_computed_tokens} before")
        self._running(one, request)
        there, wanted = len(self._blocks(one)[0]), -(-room // self.size)
        if wanted < there:
            raise Unsupported("giving back blocks of a request that runs")
        if wanted > there:
            if any(self._stale(window, done) > there for window in self.windows):
                raise Unsupported("growth without the blocks that are behind the window at once")
            more = room - one.engine.num_computed_tokens
            if self.manager.allocate_slots(one.engine, more, delay_cache_blocks=True) is None:
                return False
        one.capacity, one.engine.num_computed_tokens = room, done
        self._let_go(one)
        return True

    def commit(self, request: str, tokens: Tokens, end: bool) -> None:
        one = self._live(request)
        self._check(tokens)
        total = one.engine.num_tokens + len(tokens)
        if total > one.capacity:
            raise Wrong(f"{total} tokens where there is room for {one.capacity}")
        self._running(one, request)
        if tokens and not one.caching:
            raise Untimely(f"request {request} caches nothing more")
        if 1 in self.windows and total // self.size > one.engine.num_tokens // self.size:
            raise Unsupported("caching blocks of a window of one token")
        one.engine.append_output_token_ids(list(tokens))
        one.engine.num_computed_tokens = max(one.engine.num_computed_tokens, total)
        self._remember(one.engine)
        self.manager.cache_blocks(one.engine, total)
        one.caching &= not end
        self._let_go(one)

    def stop_committing(self, request: str) -> None:
        one = self._live(request)
        one.caching = False
        self._let_go(one)

    def close(self, request: str) -> None:
        one = self._found(request)
        if not one.closed:
            self.manager.free(one.engine)
            one.active, one.closed = False, True

    def seed_prefix(self, tokens: Tokens, level: str, groups: Tokens | None) -> None:
        self._there(level)
        for group in groups or ():
            self._there(level, group)
        self._check(tokens)
        full = len(tokens) // self.size
        engine = self._engine(tokens[: full * self.size])
        named = [n for n, group in enumerate(self.groups) if groups is None or group in groups]
        if full and any(self.windows[n] == 1 for n in named):
            raise Unsupported("caching blocks of a window of one token")
        found = [[self.pool.get_cached_block(key, [n]) for key in engine.block_hashes] for n in range(len(self.groups))]
        way = [block for block in self._hashed() if get_block_hash(block.block_hash) in engine.block_hashes]
        missing = {n: [number for number, block in enumerate(found[n]) if block is None] for n in named}
        count = sum(map(len, missing.values()))
        if count > self.pool.get_num_free_blocks() - sum(not block.ref_cnt for block in way):
            raise Full(f"{self.pool.get_num_free_blocks()} blocks are free")
        new = self._apart(way, count)
        self._remember(engine)
        for n, numbers in missing.items():
            mine = [self.pool.null_block] * full  # which is passed over
            for number in numbers:
                mine[number] = new.pop()
            self.pool.cache_full_blocks(engine, mine, 0, full, self.size, n)
            self.pool.free_blocks(mine[number] for number in reversed(numbers))

    def _apart(self, blocks: list, count: int) -> list:
        """So many free blocks, but for some that stay where they are in the line."""
        line = self.pool.free_block_queue.get_all_free_blocks()
        for block in (apart := [block for block in line if block in blocks]):
            self.pool.free_block_queue.remove(block)
        new = self.pool.get_new_blocks(count)
        rest = self.pool.free_block_queue.popleft_n(self.pool.get_num_free_blocks())
        self.pool.free_block_queue.append_n([block for block in line if block in apart or block in rest])
        return new

    def evict(self, level: str, group: str | None, pages: int) -> None:
        self._there(level, group)
        if pages < 1:
            raise Wrong(f"{pages} pages")
        if pages > len(self._idle()):
            raise Full(f"{len(self._idle())} blocks can go")
        self._turn_over(self._unused() + pages)

    def clear_reusable(self) -> None:
        self._turn_over(self.pool.get_num_free_blocks())

    def take_slots(self, level: str, group: str | None, count: int | str, as_: str) -> None:
        self._there(level, group)
        number = self._unused() if count == "all" else int(count)
        if count != "all" and number < 1:
            raise Wrong(f"{number} slots")
        if as_ in self.taken:
            raise Untimely(f"slots {as_} are taken already")
        if number > self._unused():
            raise Full(f"{self._unused()} of {number} blocks are unused")
        self.taken[as_] = self.pool.get_new_blocks(number)

    def give_slots(self, as_: str) -> None:
        if as_ not in self.taken:
            raise Unknown(f"there are no slots {as_}")
        self.pool.free_blocks(self.taken.pop(as_))

    def observe(self) -> Facts:
        """What the manager shows now."""
        hashed = self._hashed()
        cached: dict[str, list[Page]] = {group: [] for group in self.groups}
        for block in hashed:
            if not block.ref_cnt:
                cached[self.groups[get_group_id(block.block_hash)]].append(self._page(block))
        return Facts(
            requests={name: self._request(one) for name, one in self.requests.items()},
            free={"gpu": self._unused()},
            tree=list(dict.fromkeys(self._prefix(block) for block in hashed)),
            cached=cached,
            evictable={"gpu": [block.block_id - 1 for block in self._idle()]},
        )

    def _request(self, one: Known) -> Request:
        history = one.engine.num_computed_tokens
        blocks, kept = {}, {}
        for group, window, mine in zip(self.groups, self.windows, self._blocks(one), strict=True):
            stale = self._stale(window, history)
            pages = [None if block.is_null else self._page(block) for block in mine]
            kept[group] = {number: page for number, page in enumerate(pages[:stale]) if page is not None}
            blocks[group] = [None if number in kept[group] else page for number, page in enumerate(pages)]
        return Request(
            status="closed" if one.closed else "active" if one.active else "suspended",
            capacity=one.capacity,
            history=history,
            committed=one.engine.num_tokens,
            blocks=blocks,
            kept=kept,
        )

    def _stale(self, window: int | None, history: int) -> int:
        """How many leading blocks are behind a window."""
        return 0 if window is None else max(0, history + 1 - window) // self.size

    def _let_go(self, one: Known) -> None:
        """Give back what is behind a window. What may still be hashed is not processed yet: it stays."""
        history, whole = one.engine.num_computed_tokens, one.engine.num_tokens // self.size * self.size
        processed = [history]
        for kind, window in zip(self.kinds, self.windows, strict=True):
            if window is not None:
                processed.append(min(history, whole + window - 1) if one.caching else history)
                kind.remove_skipped_blocks(one.engine.request_id, processed[-1])
        one.engine.num_in_flight_tokens = history - min(processed)  # what the next growth gives back by itself

    def _page(self, block) -> Page:
        return Page("gpu", block.block_id - 1, tokens=self._prefix(block))

    def _prefix(self, block) -> Tokens | None:
        return None if block.block_hash is None else self.prefixes[get_block_hash(block.block_hash)]

    def _remember(self, engine: EngineRequest) -> None:
        for number, key in enumerate(engine.block_hashes, start=1):
            self.prefixes[key] = tuple(engine.all_token_ids[: number * self.size])

    def _blocks(self, one: Known) -> list[list]:
        """Its blocks by group."""
        if one.closed:
            return [[] for _ in self.groups]
        return [list(blocks) for blocks in self.manager.get_blocks(one.engine.request_id).blocks]

    def _hashed(self) -> list:
        return [block for block in self.pool.blocks if block.block_hash is not None]

    def _idle(self) -> list:
        return [block for block in self.pool.free_block_queue.get_all_free_blocks() if block.block_hash is not None]

    def _unused(self) -> int:
        return self.pool.get_num_free_blocks() - len(self._idle())

    def _turn_over(self, count: int) -> None:
        """Take so many free blocks, as a request would, and give them back."""
        self.pool.free_blocks(self.pool.get_new_blocks(count))

    def _engine(self, tokens: Tokens) -> EngineRequest:
        name = f"request {next(self.numbers)}"
        return EngineRequest(name, list(tokens), SamplingParams(max_tokens=LONGEST), None, block_hasher=self.hasher)

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
        if group is not None and group not in self.groups:
            raise Unknown(f"there is no group {group}")
        if level != "gpu":
            raise Wrong(f"there is no {level}")
