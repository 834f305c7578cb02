"""A prefix cache of whole blocks, as somebody else might have written it: reference counts, hashes, and a line of idle blocks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

BUG = os.environ.get("PREFIX_BUG", "")
"""A mistake to plant: ``stale_hash``, ``head_first``, ``forgets_parent``, ``touch`` or ``leak``."""

Tokens = tuple[int, ...]


class NoRoom(Exception):
    """Fewer blocks can be had than are wanted."""


class Wrong(Exception):
    """A value that makes no sense."""


class Untimely(Exception):
    """A call that does not fit the state of its sequence."""


@dataclass(eq=False)
class Block:
    """A place in the cache. ``key``: the prefix that it ends, once it is full and hashed; ``left``: its turn among idle ones."""

    place: int
    number: int = 0
    key: Tokens | None = None
    running: int = 0
    waiting: int = 0
    left: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class Sequence:
    """A request: its tokens so far, and its blocks. ``hashing``: whether its blocks are hashed as they become full."""

    blocks: list[Block]
    tokens: Tokens
    hashed: int
    room: int
    done: int
    runs: bool = False
    hashing: bool = True
    gone: bool = False


@dataclass
class Cache:
    """The cache. ``unused`` blocks hold nothing; ``known`` has by its prefix each block that can be shared."""

    size: int
    unused: list[Block]
    known: dict[Tokens, Block] = field(default_factory=dict)
    clock: int = 0

    def match(self, tokens: Tokens) -> Sequence:
        """A new sequence, with the blocks that the cache has of its beginning. It waits until it runs."""
        _check(all(token >= 0 for token in tokens), Wrong, "a token is negative")
        found: list[Block] = []
        while len(found) < len(tokens) // self.size:
            block = self.known.get(self._key(tokens, len(found)))
            if block is None:
                break
            block.waiting += 1
            found.append(block)
        length = len(found) * self.size
        return Sequence(found, tokens[:length], len(found), length, length)

    def run(self, one: Sequence) -> None:
        """Let a sequence run: its blocks are in use."""
        _check(not one.runs, Untimely, "it runs already")
        one.runs = True
        for block in one.blocks:
            block.waiting -= 1
            block.running += 1

    def grow(self, one: Sequence, room: int, done: int) -> bool:
        """Give a running sequence blocks for ``room`` tokens, ``done`` of which are computed, or take those behind them.

        False, and nothing is done, if there are too few.
        """
        _check(one.done <= done <= room, Wrong, f"{done} of {room} tokens, {one.done} before")
        _check(one.runs, Untimely, "it does not run")
        self.clock += 1
        count = -(-room // self.size)
        try:
            more = self._take(count - len(one.blocks))
        except NoRoom:
            return False
        for block in one.blocks[count:]:
            self._leave(block, True)
        del one.blocks[count:]
        for block in more:
            block.number, block.running = len(one.blocks), 1
            one.blocks.append(block)
        one.room, one.done = room, done
        return True

    def append(self, one: Sequence, tokens: Tokens) -> None:
        """Tokens of a running sequence become final: each block that they fill is hashed, or given up for one that is known."""
        _check(all(token >= 0 for token in tokens), Wrong, "a token is negative")
        _check(len(one.tokens) + len(tokens) <= one.room, Wrong, "more tokens than there is room for")
        _check(one.runs, Untimely, "it does not run")
        _check(one.hashing or not tokens, Untimely, "nothing of it is hashed any more")
        self.clock += 1
        one.tokens += tokens
        one.done = max(one.done, len(one.tokens))
        while one.hashing and (one.hashed + 1) * self.size <= len(one.tokens):
            key, own = self._key(one.tokens, one.hashed), one.blocks[one.hashed]
            there = self.known.setdefault(key, own)
            if there is own:
                own.key = key
            else:
                there.running += 1
                one.blocks[one.hashed] = there
                self._leave(own, True)
            one.hashed += 1

    def free(self, one: Sequence) -> None:
        """End a sequence. Its hashed blocks are idle, the last first, and the rest unused."""
        self.clock += 1
        for block in one.blocks:
            self._leave(block, one.runs)
        one.blocks, one.runs, one.gone = [], False, True

    def fill(self, tokens: Tokens) -> None:
        """Make the full blocks of some tokens known, as if a sequence had come and gone."""
        self.clock += 1
        there = self.match(tokens)
        try:
            more = self._take(len(tokens) // self.size - len(there.blocks))
        finally:
            for block in there.blocks:
                block.waiting -= 1
        for number, block in enumerate(more, start=len(there.blocks)):
            block.number, block.key, block.left = number, self._key(tokens, number), (self.clock, -number)
            self.known[block.key] = block

    def idle(self) -> list[Block]:
        """The hashed blocks that no running sequence has, in the order in which they go."""
        return sorted((block for block in self.known.values() if not block.running), key=lambda block: block.left)

    def evict(self, count: int) -> list[Block]:
        """Forget at least so many idle blocks that nobody waits for, with what follows them, or none: `NoRoom`."""
        free = [block for block in self.idle() if not block.waiting]
        if len(free) < count:
            raise NoRoom(f"{len(free)} of {count} blocks can go")
        gone: list[Block] = []
        for block in free:
            if len(gone) < count and block.key is not None:
                gone += self._forget(block.key)
        return gone

    def _take(self, count: int) -> list[Block]:
        if count > len(self.unused):
            try:
                self.evict(count - len(self.unused))
            except NoRoom:
                if BUG == "leak" and self.unused:
                    self.unused.pop()
                raise
        return [self.unused.pop() for _ in range(count)]

    def _forget(self, key: Tokens) -> list[Block]:
        after = [one for one in self.known if one[: len(key)] == key]
        gone = [self.known[one] if BUG == "stale_hash" else self.known.pop(one) for one in sorted(after)]
        for block in gone:
            block.key = None
        self.unused += gone
        return gone

    def _leave(self, block: Block, runs: bool) -> None:
        if runs:
            block.running -= 1
            if not block.running:
                block.left = (self.clock, block.number if BUG == "head_first" else -block.number)
        else:
            block.waiting -= 1
            if BUG == "touch":
                block.left = (self.clock, -block.number)
        if not block.running and not block.waiting and block.key is None:
            self.unused.append(block)

    def _key(self, tokens: Tokens, number: int) -> Tokens:
        end = (number + 1) * self.size
        return tokens[end - self.size : end] if BUG == "forgets_parent" else tokens[:end]


def _check(holds: bool, error: type[Exception], text: str) -> None:
    if not holds:
        raise error(text)
