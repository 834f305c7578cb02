"""A prefix cache as somebody might have written it: blocks with reference counts, found by their tokens, and a line of idle."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

Tokens = tuple[int, ...]


class Full(Exception):
    """Fewer blocks can be had than are wanted."""


@dataclass(eq=False)
class Block:
    """A place in the cache. ``prefix``: the tokens up to its end, once it is full and can be found."""

    place: int
    users: int = 0
    prefix: Tokens | None = None


@dataclass(eq=False)
class Sequence:
    """A request: its blocks, its final tokens, for how many tokens it has room, and how many are computed."""

    blocks: list[Block]
    tokens: Tokens
    room: int
    computed: int


class PrefixCache:
    """The cache. ``blank`` blocks hold nothing, ``idle`` ones what nobody uses now: who became idle first goes first."""

    def __init__(self, places: int, size: int) -> None:
        """A cache of so many blocks, each of ``size`` tokens."""
        self.size = size
        self.blank = [Block(place) for place in range(places)]
        self.idle: dict[Block, None] = {}
        self.known: dict[Tokens, list[Block]] = {}

    def match(self, tokens: Tokens) -> Sequence:
        """A new sequence, with the blocks that are there of its beginning."""
        blocks: list[Block] = []
        for end in range(self.size, len(tokens) + 1, self.size):
            if tokens[:end] not in self.known:
                break
            blocks.append(self._use(self.known[tokens[:end]][0]))
        length = len(blocks) * self.size
        return Sequence(blocks, tokens[:length], length, length)

    def grow(self, one: Sequence, room: int) -> bool:
        """Give a sequence the blocks for so many tokens, or take back those behind them. False if there are too few."""
        count = -(-room // self.size)
        try:
            one.blocks += self.take(count - len(one.blocks))
        except Full:
            return False
        for block in reversed(one.blocks[count:]):
            self.give(block)
        del one.blocks[count:]
        one.room = room
        return True

    def append(self, one: Sequence, tokens: Tokens) -> None:
        """Tokens have become final: the blocks that they fill can be found from now on."""
        first = len(one.tokens) // self.size
        one.tokens += tokens
        one.computed = max(one.computed, len(one.tokens))
        for number in range(first, len(one.tokens) // self.size):
            self._remember(one.blocks[number], one.tokens[: (number + 1) * self.size])

    def free(self, one: Sequence) -> None:
        """A sequence has ended. Its last block becomes idle first."""
        for block in reversed(one.blocks):
            self.give(block)
        one.blocks = []

    def fill(self, tokens: Tokens) -> None:
        """Make full blocks of some tokens known, as if a sequence had come and gone."""
        prefixes = [tokens[:end] for end in range(self.size, len(tokens) + 1, self.size)]
        there = {block for prefix in prefixes for block in self.known.get(prefix, ())}
        missing = [prefix for prefix in prefixes if prefix not in self.known]
        for block, prefix in zip(self.take(len(missing), there), reversed(missing), strict=True):
            self._remember(block, prefix)
            self.give(block)

    def take(self, count: int, kept: Container[Block] = ()) -> list[Block]:
        """So many blocks that hold nothing, idle ones if need be; none of some."""
        old = [block for block in self.idle if block not in kept][: max(0, count - len(self.blank))]
        if count > len(self.blank) + len(old):
            raise Full(f"{count} blocks, where there are {len(self.blank)} and {len(old)} more can go")
        for block in old:
            self.forget(block)
        return [self._use(self.blank.pop()) for _ in range(count)]

    def give(self, block: Block) -> None:
        """A user of a block has gone."""
        block.users -= 1
        if not block.users and block.prefix is None:
            self.blank.append(block)
        elif not block.users:
            self.idle[block] = None

    def forget(self, block: Block) -> None:
        """An idle block holds nothing any more."""
        del self.idle[block]
        self.known[block.prefix].remove(block)
        if not self.known[block.prefix]:
            del self.known[block.prefix]
        block.prefix = None
        self.blank.append(block)

    def _use(self, block: Block) -> Block:
        self.idle.pop(block, None)
        block.users += 1
        return block

    def _remember(self, block: Block, prefix: Tokens) -> None:
        block.prefix = prefix
        self.known.setdefault(prefix, []).append(block)
