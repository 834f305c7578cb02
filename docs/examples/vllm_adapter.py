"""vLLM's manager of KV blocks under the suite: ``kvspec run --system vllm_adapter:VllmSystem --profile prefix``.

It imports the vLLM that is installed and contains nothing of it. One group of full attention.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_block_hash, get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request as EngineRequest

from kvspec.adapter import Facts, Page, Request, adapter
from kvspec.config import LayerKind, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.refs import group_shapes
from kvspec.system import DeviceLimit, Setup

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
    if len(group_names(manager)) > 1:
        yield "several layer groups"
    if len(manager.levels) > 1:
        yield "a host level"
    if any(layer.kind is LayerKind.SSM or layer.sliding_window for layer in manager.layers):
        yield "windows or states"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


@dataclass
class Known:
    """A request, and what an engine knows of it besides. ``turn``: when it was matched, 0 once it has run."""

    engine: EngineRequest
    capacity: int
    active: bool = False
    turn: int = 0
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
        "match_renews": True,
        "on_drop": "page_alone",
        "room": "not_counted",
    },
    unfit=unfit,
)
class VllmSystem:
    """The verbs that the manager can do, each with the arguments that it understands."""

    def __init__(self, setup: Setup) -> None:
        (self.group,) = group_names(setup.manager)
        (shape,) = group_shapes(setup.manager).values()
        (gpu,) = setup.manager.levels
        slots = gpu.slots or (gpu.bytes or 0) // shape.page_bytes
        self.size = setup.manager.tokens_per_block
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(self.size, sha256)
        spec = FullAttentionSpec(block_size=self.size, num_kv_heads=1, head_size=1, dtype=torch.float16)
        config = KVCacheConfig(
            num_blocks=slots + 1,  # one is the null block
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([self.group], spec)],
        )
        self.manager = KVCacheManager(config, LONGEST, scheduler_block_size=self.size, hash_block_size=self.size)
        self.pool = self.manager.block_pool
        self.requests: dict[str, Known] = {}
        self.prefixes: dict[bytes, Tokens] = {}
        self.taken: dict[str, list] = {}
        self.numbers = itertools.count()
        self.turn = 0  # counts what changes the line of free blocks

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
        self.turn += 1
        self.requests[request] = Known(engine, length, turn=self.turn)
        return length

    def resume(self, request: str) -> bool:
        one = self._live(request)
        if one.active:
            raise Untimely(f"request {request} is active")
        one.active, one.turn = True, 0
        return True

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        one = self._live(request)
        room = one.capacity if capacity is None else capacity
        done = one.engine.num_computed_tokens if history is None else history
        if not one.engine.num_computed_tokens <= done <= room:
            raise Wrong(f"{done} of {room} tokens, {one.engine.num_computed_tokens} before")
        self._running(one, request)
        if -(-room // self.size) < len(self._blocks(one)):
            raise DeviceLimit("vLLM gives back no block of a request that runs")
        if -(-room // self.size) > len(self._blocks(one)):
            more = room - one.engine.num_computed_tokens
            if self.manager.allocate_slots(one.engine, more, delay_cache_blocks=True) is None:
                return False
        one.capacity, one.engine.num_computed_tokens = room, done
        return True

    def commit(self, request: str, tokens: Tokens) -> None:
        one = self._live(request)
        self._check(tokens)
        total = one.engine.num_tokens + len(tokens)
        if total > one.capacity:
            raise Wrong(f"{total} tokens where there is room for {one.capacity}")
        self._running(one, request)
        if tokens and not one.caching:
            raise Untimely(f"request {request} caches nothing more")
        one.engine.append_output_token_ids(list(tokens))
        one.engine.num_computed_tokens = max(one.engine.num_computed_tokens, total)
        self._remember(one.engine)
        self.manager.cache_blocks(one.engine, total)

    def stop_committing(self, request: str) -> None:
        self._live(request).caching = False

    def close(self, request: str) -> None:
        one = self._found(request)
        if not one.closed:
            if one.turn and one.turn != self.turn and any(block.ref_cnt == 1 for block in self._blocks(one)):
                raise DeviceLimit(
                    "vLLM matches what it schedules: what a request that never ran has matched is young when it leaves"
                )
            self.turn += 1
            self.manager.free(one.engine)
            one.active, one.closed = False, True

    def seed_prefix(self, tokens: Tokens, level: str) -> None:
        self._there(level)
        self._check(tokens)
        full = len(tokens) // self.size
        engine = self._engine(tokens[: full * self.size])
        blocks = self.manager.get_computed_blocks(self._engine((*tokens[: full * self.size], 0)))[0]
        there = list(blocks.blocks[0])
        missing = full - len(there)
        queue = self.pool.free_block_queue.get_all_free_blocks()
        way = {block.block_hash for block in there}
        if missing > sum(block.block_hash not in way for block in queue):
            raise Full(f"{len(queue)} blocks are free")
        if any(block.block_hash in way for block in queue[:missing]):
            raise DeviceLimit("a block that the longer prefix begins with would be evicted for it")
        self.turn += bool(missing)
        new = self.pool.get_new_blocks(missing)
        self._remember(engine)
        self.pool.cache_full_blocks(engine, there + new, len(there), full, self.size, 0)
        self.pool.free_blocks(reversed(new))

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
        hashed = [block for block in self.pool.blocks if block.block_hash is not None]
        return Facts(
            requests={name: self._request(one) for name, one in self.requests.items()},
            free={"gpu": self._unused()},
            tree=list(dict.fromkeys(self._prefix(block) for block in hashed)),
            cached={self.group: [self._page(block) for block in hashed if not block.ref_cnt]},
            evictable={"gpu": [block.block_id - 1 for block in self._idle()]},
        )

    def _request(self, one: Known) -> Request:
        return Request(
            status="closed" if one.closed else "active" if one.active else "suspended",
            phase="prefill",
            capacity=one.capacity,
            history=one.engine.num_computed_tokens,
            committed=one.engine.num_tokens,
            blocks={self.group: [self._page(block) for block in self._blocks(one)]},
            eligible={self.group: 0},
        )

    def _page(self, block) -> Page | None:
        return None if block.is_null else Page("gpu", block.block_id - 1, tokens=self._prefix(block))

    def _prefix(self, block) -> Tokens | None:
        return None if block.block_hash is None else self.prefixes[get_block_hash(block.block_hash)]

    def _remember(self, engine: EngineRequest) -> None:
        for number, key in enumerate(engine.block_hashes, start=1):
            self.prefixes[key] = tuple(engine.all_token_ids[: number * self.size])

    def _blocks(self, one: Known) -> list:
        return [] if one.closed else list(self.manager.get_blocks(one.engine.request_id).blocks[0])

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
        if group not in (None, self.group):
            raise Unknown(f"there is no group {group}")
        if level != "gpu":
            raise Wrong(f"there is no {level}")
