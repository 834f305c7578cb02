"""A small prefix cache, as somebody might write one who has never seen this project: whole blocks, on the GPU alone.

Sequences share full blocks of tokens by a table of prefixes. What nobody uses any more stays until its place is wanted. A group
is a kind of attention layer; where it has a window, blocks behind the window are let go. ``bug`` plants one of `BUGS`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

BUGS = {
    "stale_hash": "an evicted block stays in the table of hashes",
    "touched_but_free": "a block that is matched stays in the list of those that may be evicted",
    "newest_first": "what was let go last is evicted first",
    "short_window": "a window keeps a token too few",
    "long_window": "a window keeps a token too many",
    "leak": "a growth that fails keeps a block",
    "head_first": "of blocks let go together the first is evicted first",
    "double_room": "blocks that a waiting sequence has matched count as room",
    "hash_without_parent": "a block is found by its own tokens alone",
    "priority_ignored": "what is cheap is evicted in its turn",
    "never_ran": "a sequence that never ran keeps what it had matched",
    "wanders": "a block that can be shared gets another slot, without its contents",
    "no_dedupe": "a block that is there already is not taken, and its own one is forgotten",
}

Tokens = tuple[int, ...]


class Full(Exception):
    """There is no room."""


class Wrong(Exception):
    """A value that makes no sense."""


class Untimely(Exception):
    """A call that does not fit the state of its sequence."""


@dataclass(frozen=True)
class Group:
    """Layers that are paged alike. ``pool``: where their blocks are."""

    pool: int
    window: int | None = None
    sinks: int = 0


@dataclass(eq=False)
class Block:
    """A block of one group. ``users`` run with it, ``waiting`` will; ``left``: when the last user left."""

    group: int
    slot: int
    place: int
    priority: int
    born: int
    left: int
    prefix: Tokens | None = None
    users: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Sequence:
    """A sequence: ``known`` tokens are final, ``behind`` are its blocks behind a window that are not.

    ``again``: what was final when it was preempted, until it starts again. ``lost``: what it was built on is there no more.
    """

    name: str
    priority: int
    known: Tokens
    blocks: list[list[Block | None]]
    capacity: int
    history: int
    running: bool = False
    closed: bool = False
    stopped: bool = False
    lost: bool = False
    ended: bool = False
    again: Tokens | None = None
    behind: dict[tuple[int, int], Block] = field(default_factory=dict)

    @property
    def publishes(self) -> bool:
        """Whether blocks of it may still be shared that are not yet."""
        return not self.stopped and not self.lost


class PrefixCache:
    """The cache: ``size`` tokens a block, ``slots`` of each pool."""

    def __init__(self, size: int, groups: list[Group], slots: list[int], bug: str = "") -> None:
        self.size, self.groups, self.bug = size, groups, bug
        self.free = [list(range(count)) for count in slots]
        self.table: dict[Tokens, list[Block | None]] = {}
        self.sequences: dict[str, Sequence] = {}
        self.now = self.births = 0
        self.log: list[tuple[str, Tokens]] = []

    # -- what sequences do --------------------------------------------------------------------------------

    def open(self, name: str, tokens: Tokens, priority: int) -> int:
        """Begin a sequence with what is there of its tokens."""
        self._tick()
        if name in self.sequences and not self.sequences[name].closed:
            raise Untimely(f"{name} is there")
        length, found = self._found(tokens)
        for block in _there(found):
            block.waiting.add(name)
        self.sequences[name] = Sequence(name, priority, tokens[:length], found, length, length)
        return length

    def start(self, name: str) -> bool:
        """The sequence runs."""
        self._tick()
        one = self._live(name)
        if one.running:
            raise Untimely(f"{name} runs")
        one.running = True
        if one.again is not None:
            length, one.blocks = self._found(one.again)
            one.known, one.again, one.capacity, one.history = one.again[:length], None, length, length
        for block in _there(one.blocks):
            block.waiting.discard(name)
            block.users.add(name)
        return True

    def preempt(self, name: str) -> None:
        """The sequence gives up all its blocks; when it starts again, it begins with what is there of its tokens then."""
        self._tick()
        one = self._live(name)
        if not one.running:
            raise Untimely(f"{name} does not run")
        self._forget_behind(one)
        for block in _there(one.blocks):
            self._leave(one, block)
        one.again, one.known, one.blocks = one.known, (), [[] for _ in self.groups]
        one.capacity = one.history = 0
        one.running = one.lost = False

    def grow(self, name: str, capacity: int | None, history: int | None) -> bool:
        """Change the lengths of a sequence; false, and nothing has changed, if there is no room."""
        self._tick()
        one = self._live(name)
        wanted = one.capacity if capacity is None else capacity, one.history if history is None else history
        self._check(one, *wanted)
        try:
            self._all_or_nothing(lambda: self._lengths(self.sequences[name], *wanted))
        except Full:
            if self.bug == "leak" and self.free[0]:
                self.free[0].pop()
            return False
        return True

    def publish(self, name: str, tokens: Tokens, last: bool = False) -> None:
        """Tokens are final: blocks that are full now can be shared."""
        self._tick()
        one = self._live(name)
        if any(token < 0 for token in tokens):
            raise Wrong("a token is negative")
        known = one.known + tokens
        history = max(one.history, len(known))
        self._check(one, one.capacity, history, growing=False)
        if tokens and not one.publishes:
            raise Untimely(f"{name} publishes nothing")
        if tokens:
            spared = [block for n in range(len(known) // self.size) for block in self._row(known, n + 0) if block is not None]
            self._all_or_nothing(lambda: self._lengths(self.sequences[name], one.capacity, history, spared))
            one = self.sequences[name]
            first = len(one.known) // self.size
            one.known = known
            for place in range(first, len(known) // self.size):
                self._enter(one, place)
        if last:
            one.ended = True
            self._finish(one)

    def finish(self, name: str) -> None:
        """The sequence publishes nothing more."""
        self._tick()
        self._finish(self._live(name))

    def _finish(self, one: Sequence) -> None:
        one.stopped = True
        self._forget_behind(one)

    def _forget_behind(self, one: Sequence) -> None:
        for block in one.behind.values():
            block.waiting.discard(one.name)
            self._give_back(block)
        one.behind.clear()

    def close(self, name: str) -> None:
        """The sequence is over; its blocks stay for others."""
        self._tick()
        one = self.sequences[name]
        if one.closed:
            return
        self._finish(one)
        if one.running or self.bug != "never_ran":
            for block in _there(one.blocks):
                self._leave(one, block)
        one.closed, one.running, one.blocks = True, False, []

    def clear(self) -> None:
        """Drop what nobody uses."""
        self._tick()
        for block in self.unused(None):
            if block.prefix is not None:
                self._drop(block)

    def put(self, tokens: Tokens, priority: int, groups: Iterable[int]) -> None:
        """Put whole blocks into the table, for some groups, as if a sequence had left them there."""
        self._tick()
        if any(token < 0 for token in tokens):
            raise Wrong("a token is negative")
        places = range(len(tokens) // self.size)
        spared = [block for place in places for block in self._row(tokens, place) if block is not None]
        self._all_or_nothing(lambda: self._put(tokens, priority, list(groups), places, spared))

    def evict(self, pool: int, count: int) -> None:
        """Drop the first blocks of a pool that nobody uses."""
        self._tick()
        if count < 1:
            raise Wrong("how many?")
        if count > len(self.unused(pool)):
            raise Full
        wanted = len(self.free[pool]) + count
        while len(self.free[pool]) < wanted:
            self._drop(self.unused(pool)[0])

    def take(self, pool: int, count: int | None) -> list[int]:
        """Take free slots, all if no number is given."""
        self._tick()
        number = len(self.free[pool]) if count is None else count
        if number > len(self.free[pool]):
            raise Full
        return [self.free[pool].pop() for _ in range(number)]

    def give(self, pool: int, slots: list[int]) -> None:
        """Give slots back."""
        self._tick()
        self.free[pool] += slots

    # -- room ---------------------------------------------------------------------------------------------

    def _lengths(self, one: Sequence, capacity: int, history: int, spared: Iterable[Block] = ()) -> None:
        for number, row in enumerate(one.blocks):
            for block in row[-(-capacity // self.size) :]:
                if block is not None:
                    self._leave(one, block)
            del row[-(-capacity // self.size) :]
            for place in self._behind(number, history):
                if place < len(row) and (block := row[place]) is not None:
                    row[place] = None
                    if block.prefix is None and one.publishes:
                        one.behind[number, place] = block
                        block.waiting.add(one.name)
                    self._leave(one, block, keep=one.name in block.waiting)
        for number, row in enumerate(one.blocks):
            for place in range(len(row), -(-capacity // self.size)):
                behind = place in self._behind(number, history)
                row.append(None if behind else self._new(one, number, place, spared))
        one.capacity, one.history = capacity, history

    def _put(self, tokens: Tokens, priority: int, groups: list[int], places: range, spared: list[Block]) -> None:
        for pool in range(len(self.free)):
            missing = [
                (number, place)
                for place in places
                for number in groups
                if self.groups[number].pool == pool and self._row(tokens, place)[number] is None
            ]
            self._make_room(pool, len(missing), spared)
        for place in places:
            key = self._key(tokens, place)
            if key not in self.table:
                self.log.append(("stored", key))
            row = self.table.setdefault(key, [None] * len(self.groups))
            for number in groups:
                if row[number] is None:
                    self.births += 1
                    slot = self.free[self.groups[number].pool].pop()
                    row[number] = Block(number, slot, place, priority, self.births, self.now, prefix=key)

    def _new(self, one: Sequence, number: int, place: int, spared: Iterable[Block]) -> Block:
        pool = self.groups[number].pool
        self._make_room(pool, 1, spared)
        self.births += 1
        return Block(number, self.free[pool].pop(), place, one.priority, self.births, self.now, users={one.name})

    def _make_room(self, pool: int, count: int, spared: Iterable[Block]) -> None:
        while len(self.free[pool]) < count:
            victim = next((block for block in self.unused(pool) if block not in spared), None)
            if victim is None:
                raise Full
            self._drop(victim)

    def unused(self, pool: int | None) -> list[Block]:
        """What may be evicted, in the order in which it is."""
        blocks = [
            block
            for row in self.table.values()
            for block in row
            if block is not None
            and (not block.users or (self.bug == "touched_but_free" and block.left < self.now - 3 and not block.waiting))
            and (not block.waiting or self.bug == "double_room")
            and pool in (None, self.groups[block.group].pool)
        ]
        newest, head = self.bug == "newest_first", self.bug == "head_first"
        return sorted(
            blocks,
            key=lambda block: (
                0 if self.bug == "priority_ignored" else block.priority,
                -block.left if newest else block.left,
                block.place if head else -block.place,
                block.group,
                block.born,
            ),
        )

    def _leave(self, one: Sequence, block: Block, keep: bool = False) -> None:
        if one.name in block.users:
            block.users.discard(one.name)
            if not block.users:
                block.left = self.now
        if not keep:
            block.waiting.discard(one.name)
            self._give_back(block)

    def _give_back(self, block: Block) -> None:
        if block.prefix is None and not block.users and not block.waiting:
            self.free[self.groups[block.group].pool].append(block.slot)

    def _drop(self, block: Block) -> None:
        assert block.prefix is not None
        row = self.table.get(block.prefix)
        if row is None or block not in row:  # it went with another
            return
        row[block.group] = None
        prefix, block.prefix = block.prefix, None
        self._give_back(block)
        if self.bug == "stale_hash":
            row[block.group] = block
            block.prefix = prefix
        elif not any(row):
            self._forget(prefix)

    def _forget(self, prefix: Tokens) -> None:
        """A block of which nothing is left goes, with all that follows it."""
        for key in list(self._below(prefix)):
            row = self.table.pop(key)
            self.log.append(("removed", key))
            for block in row:
                if block is not None:
                    block.prefix = None
                    self._give_back(block)
        for one in self.sequences.values():
            if not one.closed and one.publishes and one.known[: len(prefix)] == prefix:
                one.lost = True
                self._forget_behind(one)

    def _below(self, prefix: Tokens) -> Iterator[Tokens]:
        """A block and all that follow it, each with what follows it before the next."""
        yield prefix
        length = len(prefix) + self.size
        for key in [key for key in self.table if len(key) == length and key[: len(prefix)] == prefix]:
            yield from self._below(key)

    # -- what is shared -----------------------------------------------------------------------------------

    def _enter(self, one: Sequence, place: int) -> None:
        key = self._key(one.known, place)
        fresh = key not in self.table
        row = self.table.setdefault(key, [None] * len(self.groups))
        if fresh:
            self.log.append(("stored", key))
        for number in range(len(self.groups)):
            late = one.behind.pop((number, place), None)
            mine = late or one.blocks[number][place]
            there = row[number]
            if mine is None:
                continue
            if there is None:
                row[number], mine.prefix = mine, key
                free = self.free[self.groups[number].pool]
                if self.bug == "wanders" and free:
                    free.append(mine.slot)
                    mine.slot = free.pop(0)
                mine.waiting.discard(one.name)
            elif self.bug != "no_dedupe":
                self._leave(one, mine)
                if late is None:
                    one.blocks[number][place] = there
                    there.users.add(one.name)

    def _found(self, tokens: Tokens) -> tuple[int, list[list[Block | None]]]:
        """The longest beginning of some tokens that a sequence can begin with, and its blocks by group."""
        count = next(n for n in range(len(tokens) // self.size, -1, -1) if self._has(tokens, n))
        length = count * self.size
        return length, [
            [None if place in self._behind(number, length) else self._row(tokens, place)[number] for place in range(count)]
            for number in range(len(self.groups))
        ]

    def _has(self, tokens: Tokens, count: int) -> bool:
        """Whether a sequence can begin with so many blocks."""
        if any(self._key(tokens, place) not in self.table for place in range(count)):
            return False
        return all(
            place in self._behind(number, count * self.size) or self._row(tokens, place)[number] is not None
            for number in range(len(self.groups))
            for place in range(count)
        )

    def _row(self, tokens: Tokens, place: int) -> list[Block | None]:
        return self.table.get(self._key(tokens, place)) or [None] * len(self.groups)

    def _key(self, tokens: Tokens, place: int) -> Tokens:
        start = place * self.size if self.bug == "hash_without_parent" else 0
        return tokens[start : (place + 1) * self.size]

    def _behind(self, number: int, history: int) -> range:
        """The blocks of a group that no token from here on looks at."""
        group = self.groups[number]
        if group.window is None:
            return range(0)
        window = group.window + {"short_window": -1, "long_window": 1}.get(self.bug, 0)
        first = min(-(-history // self.size), -(-group.sinks // self.size))
        return range(first, max(first, (history + 1 - window) // self.size))

    # -- the rest -----------------------------------------------------------------------------------------

    def _check(self, one: Sequence, capacity: int, history: int, growing: bool = True) -> None:
        if capacity < 0 or history < one.history or history > capacity:
            raise Wrong(f"capacity {capacity}, history {history} after {one.history}")
        if not one.running or (growing and one.ended and (capacity > one.capacity or history > one.history)):
            raise Untimely(f"{one.name} does not run, or has come to its end")

    def _all_or_nothing(self, change) -> None:  # type: ignore[no-untyped-def]
        before = copy.deepcopy((self.free, self.table, self.sequences))
        events = list(self.log)
        try:
            change()
        except Full:
            (self.free, self.table, self.sequences), self.log = before, events
            raise

    def _live(self, name: str) -> Sequence:
        one = self.sequences[name]
        if one.closed:
            raise Untimely(f"{name} is over")
        return one

    def _tick(self) -> None:
        self.now += 1
        self.log = []


def _there(rows: Iterable[Iterable[Block | None]]) -> Iterator[Block]:
    return (block for row in rows for block in row if block is not None)
