"""`prefix_cache` under the suite: ``kvspec run --system prefix_adapter:PrefixSystem --profile prefix``."""

from __future__ import annotations

from collections.abc import Iterator

from prefix_cache import Block, Cache, NoRoom, Sequence, Untimely, Wrong

from kvspec.adapter import Facts, Page, Request, adapter
from kvspec.config import LayerKind, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.refs import group_shapes
from kvspec.system import Setup

Tokens = tuple[int, ...]


class Unknown(LookupError):
    """A name that the cache was never given."""


def unfit(manager: ManagerConfig) -> Iterator[str]:
    """What about a configuration the cache cannot do."""
    if len(group_names(manager)) > 1:
        yield "several layer groups"
    if len(manager.levels) > 1:
        yield "a host level"
    if any(layer.kind is LayerKind.SSM or layer.sliding_window for layer in manager.layers):
        yield "windows or states"
    if manager.max_util_for_resume < 1:
        yield "max_util_for_resume"


@adapter(
    errors={
        Unknown: ErrorKind.OUT_OF_RANGE,
        Wrong: ErrorKind.INVALID_ARGUMENT,
        Untimely: ErrorKind.LOGIC_ERROR,
        NoRoom: ErrorKind.OUT_OF_PAGES,
    },
    unobserved={"payloads", "order", "counters", "events", "versions", "device", "staging"},
    policies={"match": "block", "partial_blocks": "none"},
    unfit=unfit,
)
class PrefixSystem:
    """The verbs that the cache can do, each with the arguments that it understands."""

    def __init__(self, setup: Setup) -> None:
        (self.group,) = group_names(setup.manager)
        (shape,) = group_shapes(setup.manager).values()
        (gpu,) = setup.manager.levels
        slots = gpu.slots or (gpu.bytes or 0) // shape.page_bytes
        self.cache = Cache(setup.manager.tokens_per_block, [Block(place) for place in range(slots)])
        self.sequences: dict[str, Sequence] = {}
        self.taken: dict[str, list[Block]] = {}

    def create(self, request: str, tokens: Tokens | None) -> int:
        if request in self.sequences and not self.sequences[request].gone:
            raise Untimely(f"there is a sequence {request}")
        self.sequences[request] = self.cache.match(tokens or ())
        return self.sequences[request].done

    def resume(self, request: str) -> bool:
        self.cache.run(self._live(request))
        return True

    def resize(self, request: str, capacity: int | None, history: int | None) -> bool:
        one = self._live(request)
        return self.cache.grow(one, one.room if capacity is None else capacity, one.done if history is None else history)

    def commit(self, request: str, tokens: Tokens) -> None:
        self.cache.append(self._live(request), tokens)

    def stop_committing(self, request: str) -> None:
        self._live(request).hashing = False

    def close(self, request: str) -> None:
        one = self._found(request)
        if not one.gone:
            self.cache.free(one)

    def seed_prefix(self, tokens: Tokens, level: str) -> None:
        self._there(level)
        self.cache.fill(tokens)

    def evict(self, level: str, group: str | None, pages: int) -> None:
        self._there(level, group)
        if pages < 1:
            raise Wrong(f"{pages} pages")
        self.cache.evict(pages)

    def clear_reusable(self) -> None:
        self.cache.evict(sum(not block.waiting for block in self.cache.idle()))

    def take_slots(self, level: str, group: str | None, count: int | str, as_: str) -> None:
        self._there(level, group)
        unused = self.cache.unused
        number = len(unused) if count == "all" else int(count)
        if count != "all" and number < 1:
            raise Wrong(f"{number} slots")
        if as_ in self.taken:
            raise Untimely(f"slots {as_} are taken already")
        if number > len(unused):
            raise NoRoom(f"{len(unused)} of {number} blocks are unused")
        self.taken[as_] = [unused.pop() for _ in range(number)]

    def give_slots(self, as_: str) -> None:
        if as_ not in self.taken:
            raise Unknown(f"there are no slots {as_}")
        self.cache.unused += self.taken.pop(as_)

    def observe(self) -> Facts:
        """What the cache shows now."""
        used = {id(block) for one in self.sequences.values() for block in one.blocks}
        known = self.cache.known
        return Facts(
            requests={name: self._request(one) for name, one in self.sequences.items()},
            free={"gpu": len(self.cache.unused)},
            tree=list(known),
            cached={self.group: [self._page(block) for block in known.values() if id(block) not in used]},
            evictable={"gpu": [block.place for block in self.cache.idle()]},
        )

    def _request(self, one: Sequence) -> Request:
        return Request(
            status="closed" if one.gone else "active" if one.runs else "suspended",
            phase="prefill",
            capacity=one.room,
            history=one.done,
            committed=len(one.tokens),
            blocks={self.group: [self._page(block) for block in one.blocks]},
            eligible={self.group: 0},
        )

    def _page(self, block: Block) -> Page:
        return Page("gpu", block.place, tokens=block.key)

    def _found(self, name: str) -> Sequence:
        if name not in self.sequences:
            raise Unknown(f"there is no sequence {name}")
        return self.sequences[name]

    def _live(self, name: str) -> Sequence:
        one = self._found(name)
        if one.gone:
            raise Untimely(f"sequence {name} has gone")
        return one

    def _there(self, level: str, group: str | None = None) -> None:
        if group not in (None, self.group):
            raise Unknown(f"there is no group {group}")
        if level != "gpu":
            raise Wrong(f"there is no {level}")
