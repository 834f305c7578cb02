"""`prefix_cache` under the suite: ``kvspec run --profile prefix --system prefix_adapter:PrefixSystem``."""

from __future__ import annotations

from collections.abc import Iterator

from prefix_cache import Block, Full, PrefixCache, Sequence, Tokens

from kvspec.adapter import Facts, Page, Request, adapter
from kvspec.config import ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.system import Setup


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration the cache cannot do."""
    if len(group_names(manager)) > 1:
        yield "several layer groups"
    if any(layer.sliding_window for layer in manager.layers):
        yield "windows"
    if any(layer.kind == "ssm" for layer in manager.layers):
        yield "running states"
    if len(manager.levels) > 1:
        yield "a host level"
    if not manager.levels[0].slots:
        yield "a size in bytes"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


@adapter(
    errors={Full: ErrorKind.OUT_OF_PAGES},
    unobserved={"payloads", "order", "counters", "events", "versions", "device", "staging"},
    policies={
        "match": "block",
        "partial_blocks": "none",
        "dedupe": "keep_both",
        "held": "pinned",
        "recency": "let_go",
        "on_drop": "page_alone",
        "room": "not_counted",
    },
    unfit=unfit,
)
class PrefixSystem:
    """The verbs that the cache can do, each with the arguments that it understands."""

    def __init__(self, setup: Setup) -> None:
        self.cache = PrefixCache(setup.manager.levels[0].slots or 0, setup.manager.tokens_per_block)
        self.sequences: dict[str, Sequence] = {}
        self.status: dict[str, str] = {}
        self.taken: dict[str, list[Block]] = {}

    def create(self, request: str, tokens: Tokens | None) -> int:
        self.sequences[request] = self.cache.match(tokens or ())
        self.status[request] = "suspended"
        return self.sequences[request].computed

    def resume(self, request: str) -> bool:
        self.status[request] = "active"
        return True

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        one = self.sequences[request]
        if capacity is not None and not self.cache.grow(one, capacity):
            return False
        one.computed = one.computed if history is None else history
        return True

    def commit(self, request: str, tokens: Tokens, end: bool) -> None:
        self.cache.append(self.sequences[request], tokens)

    def stop_committing(self, request: str) -> None:
        """Nothing to do: no `commit` of it comes any more."""

    def close(self, request: str) -> None:
        self.cache.free(self.sequences[request])
        self.status[request] = "closed"

    def seed_prefix(self, tokens: Tokens, level: str) -> None:
        self.cache.fill(tokens)

    def evict(self, level: str, group: str | None, pages: int) -> None:
        if pages > len(self.cache.idle):
            raise Full(f"{len(self.cache.idle)} blocks can go")
        for block in list(self.cache.idle)[:pages]:
            self.cache.forget(block)

    def clear_reusable(self) -> None:
        for block in list(self.cache.idle):
            self.cache.forget(block)

    def take_slots(self, level: str, group: str | None, count: int | str, as_: str) -> None:
        blank = len(self.cache.blank)
        number = blank if count == "all" else int(count)
        if number > blank:
            raise Full(f"{blank} blocks hold nothing")
        self.taken[as_] = self.cache.take(number)

    def give_slots(self, as_: str) -> None:
        for block in self.taken.pop(as_):
            self.cache.give(block)

    def observe(self) -> Facts:
        """What the cache shows now."""
        return Facts(
            requests={name: self._request(name, one) for name, one in self.sequences.items()},
            free={"gpu": len(self.cache.blank)},
            tree=list(self.cache.known),
            cached=[self._page(block) for block in self.cache.idle],
            evictable={"gpu": [block.place for block in self.cache.idle]},
        )

    def _request(self, name: str, one: Sequence) -> Request:
        return Request(
            status=self.status[name],
            capacity=one.room,
            history=one.computed,
            committed=len(one.tokens),
            blocks=[self._page(block) for block in one.blocks],
        )

    def _page(self, block: Block) -> Page:
        return Page("gpu", block.place, tokens=block.prefix)
