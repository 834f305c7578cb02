"""`prefix_cache` as a system, correct and with each of its bugs."""

from __future__ import annotations

from collections.abc import Iterator

from kvspec.adapter import Adapter, Facts, Page, Request, adapter
from kvspec.config import LayerKind, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.observation import Removed, Stored
from kvspec.refs import pool_groups
from kvspec.system import Setup, Unsupported
from tests.toys.prefix_cache import BUGS, Block, Full, Group, PrefixCache, Sequence, Untimely, Wrong


class Unknown(LookupError):
    """A name that the cache was never given."""


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration the cache cannot do."""
    if len(manager.levels) > 1:
        yield "a host level"
    if any(layer.kind is LayerKind.SSM for layer in manager.layers):
        yield "running states"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


def page(block: Block) -> Page:
    """Where a block is."""
    return Page("gpu", block.slot, frozenset(block.users), tokens=block.prefix)


UNOBSERVED = frozenset({"payloads", "order", "counters", "versions", "device", "staging"})
UNSEEN = frozenset({"tree", "eviction", "events"})
"""What of the cache need not be seen for a bug in it to be found, only later."""


class Requests:
    """What requests do, and clearing."""

    bug = ""
    seen = True

    def __init__(self, setup: Setup) -> None:
        manager = setup.manager
        self.names = group_names(manager)
        ((_, pools),) = pool_groups(manager).items()
        layers = {layer.name: layer for layer in manager.layers}
        groups = [
            Group(
                next(n for n, served in enumerate(pools) if name in served),
                layers[name].sliding_window,
                layers[name].sink_tokens or 0,
            )
            for name in self.names
        ]
        self.taken: dict[str, tuple[int, list[int]]] = {}
        self.pools = [served[0] for served in pools]
        self.cache = PrefixCache(manager.tokens_per_block, groups, [manager.levels[0].slots or 0] * len(pools), self.bug)

    def create(self, request: str, tokens: tuple[int, ...] | None, priority: int) -> int:
        return self.cache.open(request, tokens or (), priority)

    def resume(self, request: str) -> bool:
        return self.cache.start(self._known(request))

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        return self.cache.grow(self._known(request), capacity, history)

    def commit(self, request: str, tokens: tuple[int, ...], end: bool) -> None:
        self.cache.publish(self._known(request), tokens, end)

    def suspend(self, request: str) -> None:
        self.cache.preempt(self._known(request))

    def stop_committing(self, request: str) -> None:
        self.cache.finish(self._known(request))

    def close(self, request: str) -> None:
        self.cache.close(self._known(request))

    def clear_reusable(self) -> None:
        self.cache.clear()

    def observe(self) -> Facts:
        requests = {name: self._request(one) for name, one in self.cache.sequences.items()}
        free = {f"gpu.{name}": len(free) for name, free in zip(self.pools, self.cache.free, strict=True)}
        if not self.seen:
            return Facts(requests, free)
        blocks = self.cache.unused(None)
        return Facts(
            requests,
            free,
            tree=list(self.cache.table),
            cached={
                name: [page(block) for block in blocks if block.group == number and not block.waiting and not block.users]
                for number, name in enumerate(self.names)
            },
            evictable={
                f"gpu.{name}": [block.slot for block in blocks if self.cache.groups[block.group].pool == number]
                for number, name in enumerate(self.pools)
            },
            events=[Stored(key) if what == "stored" else Removed(key) for what, key in self.cache.log],
        )

    def _request(self, one: Sequence) -> Request:
        """One sequence as a request."""
        rows = zip(self.names, one.blocks, strict=False)
        kept: dict[str, dict[int, Page]] = {}
        for (number, place), block in one.behind.items():
            kept.setdefault(self.names[number], {})[place] = page(block)
        return Request(
            status="closed" if one.closed else "active" if one.running else "suspended",
            phase="prefill",
            capacity=one.capacity,
            history=one.history,
            committed=len(one.known),
            blocks={name: [None if block is None else page(block) for block in row] for name, row in rows},
            kept=kept,
        )

    def _known(self, name: str) -> str:
        self.cache.log = []
        if name not in self.cache.sequences:
            raise Unknown(f"there is no {name}")
        return name


class Whole(Requests):
    """The same, with what scenarios do by hand: seeds, evictions, taken slots."""

    def seed_prefix(self, tokens: tuple[int, ...], level: str, priority: int, groups: tuple[str, ...] | None) -> None:
        self._level(level)
        if any(name not in self.names for name in groups or ()):
            raise Unknown(f"groups {groups}: there are {self.names}")
        numbers = [number for number, name in enumerate(self.names) if groups is None or name in groups]
        self.cache.put(tokens, priority, numbers)

    def evict(self, level: str, group: str | None, pages: int) -> None:
        self._level(level)
        self.cache.evict(self._pool(group), pages)

    def take_slots(self, level: str, group: str | None, count: int | str, as_: str) -> None:
        self._level(level)
        pool = self._pool(group)
        self.taken[as_] = pool, self.cache.take(pool, None if count == "all" else int(count))

    def give_slots(self, as_: str) -> None:
        self.cache.log = []
        if as_ not in self.taken:
            raise Unknown(f"no slots were taken as {as_}")
        self.cache.give(*self.taken.pop(as_))

    def _level(self, level: str) -> None:
        self.cache.log = []  # whatever comes of the call, its events are its own
        if level != "gpu":
            raise Wrong(f"there is no level {level}")

    def _pool(self, group: str | None) -> int:
        if group is None and len(self.pools) > 1:
            raise Wrong(f"there are several pools: {self.pools}")
        if group is not None and group not in self.names:
            raise Unknown(f"there is no group {group}")
        return 0 if group is None else self.cache.groups[self.names.index(group)].pool


class Stubborn(Requests):
    """The same, which gives back no block before its request is closed, and finds out only then that it cannot close ``r0``."""

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        one = self.cache.sequences.get(request)
        if one is not None and capacity is not None and capacity < one.capacity:
            raise Unsupported("giving blocks back")
        return super().resize(request, capacity, history)

    def close(self, request: str) -> None:
        if request == "r0":
            raise Unsupported("closing r0")
        super().close(request)


def with_bug(bug: str = "", unobserved: frozenset[str] = UNOBSERVED, base: type[Requests] = Requests) -> Adapter:
    """The system with a bug."""
    made = type("Toy", (base,), {"bug": bug, "seen": not unobserved >= UNSEEN})
    decorate = adapter(
        errors={
            Unknown: ErrorKind.OUT_OF_RANGE,
            Wrong: ErrorKind.INVALID_ARGUMENT,
            Untimely: ErrorKind.LOGIC_ERROR,
            Full: ErrorKind.OUT_OF_PAGES,
        },
        unobserved=unobserved,
        unfit=unfit,
        policies={"match": "block", "partial_blocks": "none", "held": "pinned", "suspend": "recompute"},
    )
    return decorate(made)


Toy, WholeToy, StubbornToy = with_bug(), with_bug(base=Whole), with_bug(base=Stubborn)
(
    StaleHash,
    TouchedButFree,
    NewestFirst,
    ShortWindow,
    LongWindow,
    Leak,
    HeadFirst,
    DoubleRoom,
    HashWithoutParent,
    PriorityIgnored,
    NeverRan,
    Wanders,
    NoDedupe,
) = map(with_bug, BUGS)


@adapter(errors={}, unfit=lambda manager: ["more than one block size"])
class Homeless:
    """A system that no manager fits, for one reason."""

    def create(self, request: str) -> int:
        """Nothing."""
        return 0

    def resume(self, request: str) -> bool:
        """Nothing."""
        return True

    def resize(self, request: str, capacity: int | None) -> bool:
        """Nothing."""
        return True

    def observe(self) -> Facts:
        """Nothing."""
        return Facts({}, {})


@adapter(errors={})
class Mute:
    """A system without the verbs that every lifecycle begins with."""

    def observe(self) -> Facts:
        """Nothing."""
        return Facts({}, {})


@adapter(errors={}, unfit=lambda manager: [f"{1 // (manager.tokens_per_block - 2)}"])
class Touchy:
    """A system that raises when it is asked about some managers."""

    def create(self, request: str) -> int:
        """Nothing."""
        return 0

    def observe(self) -> Facts:
        """Nothing."""
        return Facts({}, {})
