"""A serving loop in small: requests arrive, run while there is room, wait where there is none, and are preempted at last."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from kvspec import ops
from kvspec.ops import Operation
from kvspec.system import Outcome

Calls = Generator[Operation, Outcome, None]
"""Operations of a workload, one after the other; it is sent the outcome of each."""
Asked = Generator[Operation, Outcome, bool]
"""Some of these; whether the request got what it wanted."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation: tokens that are read, then a number of tokens that are written one by one, then a pause.

    ``pause``: iterations for which the request is suspended before its next turn.
    """

    read: tuple[int, ...]
    written: int
    pause: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A request of a workload. ``arrival``: the iteration in which it comes. ``first_token``: of those that it writes."""

    name: str
    arrival: int
    turns: Sequence[Turn]
    first_token: int

    @property
    def tokens(self) -> int:
        """All tokens that it reads and writes."""
        return sum(len(turn.read) + turn.written for turn in self.turns)


@dataclass(slots=True)
class _Running:
    """A job under way: its tokens so far, those of its history, and where it is."""

    job: Job
    tokens: list[int] = field(default_factory=list)
    turn: int = 0
    history: int = 0
    capacity: int = 0
    committed: int = 0
    created: bool = False
    active: bool = False
    decoding: bool = False
    written: int = 0
    until: int = 0
    preempted: bool = False


class Engine:
    """The loop. ``chunk``: tokens of a prompt that are read in one iteration; ``block``: tokens in a block."""

    def __init__(self, jobs: Sequence[Job], chunk: int, block: int) -> None:
        """An engine for ``jobs``, which are served in this order."""
        self.chunk, self.block = chunk, block
        self.jobs = [_Running(job, list(job.turns[0].read)) for job in jobs]

    def run(self) -> Calls:
        """All operations until every request has closed. Raises ``RuntimeError`` if one can never run, for want of room."""
        time = 0
        while self.jobs:
            went = False
            for one in tuple(self.jobs):
                if one.job.arrival <= time and one.until <= time and not one.preempted:
                    went |= yield from self._iteration(one, time)
            if went:
                for one in self.jobs:
                    one.preempted = False
            waits = any(one.job.arrival > time or one.until > time for one in self.jobs)
            if self.jobs and not went and not waits and not (yield from self._preempt()):
                raise RuntimeError(f"request {self.jobs[0].job.name} does not fit alone: give the levels more slots")
            time += 1

    def _iteration(self, one: _Running, time: int) -> Asked:
        """A request's part of an iteration; whether it came further."""
        name = one.job.name
        if not one.created:
            matched = yield ops.Create(request=name, tokens=tuple(one.tokens[:-1]))  # the last token has to be computed
            assert isinstance(matched.value, int)
            one.created, one.history = True, matched.value
            one.committed = one.capacity = one.history
        if not one.active:
            if not (yield from self._asked(ops.Resume(request=name, decode=True if one.decoding else None))):
                return False
            one.active = True
        return (yield from (self._write(one, time) if one.history >= len(one.tokens) else self._read(one)))

    def _read(self, one: _Running) -> Asked:
        """Read the next tokens of a prompt; at its end, go on to decode."""
        to = min(len(one.tokens), one.history + self.chunk)
        if not (yield from self._grow(one, to)):
            return False
        yield from self._commit(one)
        if to == len(one.tokens) and not one.decoding:
            one.decoding = yield from self._asked(ops.EnterDecode(request=one.job.name))
        return True

    def _write(self, one: _Running, time: int) -> Asked:
        """Write one token; at the end of the turn pause, or close."""
        turn = one.job.turns[one.turn]
        if not one.decoding:
            one.decoding = yield from self._asked(ops.EnterDecode(request=one.job.name))
            if not one.decoding:
                return False
        if one.written < turn.written:
            one.tokens.append(one.job.first_token + len(one.tokens))
            if not (yield from self._grow(one, len(one.tokens))):
                one.tokens.pop()
                return False
            one.written += 1
            yield from self._commit(one)
        if one.written < turn.written:
            return True
        if one.turn + 1 == len(one.job.turns):
            yield ops.Close(request=one.job.name)
            self.jobs.remove(one)
            return True
        one.turn, one.written, one.active, one.until = one.turn + 1, 0, False, time + 1 + turn.pause
        yield ops.Suspend(request=one.job.name)
        one.tokens += one.job.turns[one.turn].read
        return True

    def _grow(self, one: _Running, to: int) -> Asked:
        """Have history up to a token; R3.6: in decode the room for it is taken before."""
        if one.capacity < to:
            if not (yield from self._asked(ops.Resize(request=one.job.name, capacity=to))):
                return False
            one.capacity = to
        if not (yield from self._asked(ops.Resize(request=one.job.name, history=to))):
            return False
        one.history = to
        return True

    def _commit(self, one: _Running) -> Calls:
        """Commit the blocks that are whole."""
        whole = one.history // self.block * self.block
        if whole <= one.committed:
            return
        outcome = yield ops.Commit(request=one.job.name, tokens=tuple(one.tokens[one.committed : whole]))
        if outcome.error is None:
            one.committed = whole

    def _preempt(self) -> Asked:
        """Suspend the youngest of several requests that run and hold each other up."""
        running = [one for one in self.jobs if one.active]
        if len(running) < 2:
            return False
        running[-1].active, running[-1].preempted = False, True  # until another one has come further
        yield ops.Suspend(request=running[-1].job.name)
        return True

    def _asked(self, operation: Operation) -> Asked:
        """Carry out an operation that is true or false."""
        return (yield operation).value is True
