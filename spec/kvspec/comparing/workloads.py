"""The workloads that come with the tool: chats over one system prompt, agents that pause, a document asked many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias

from kvspec.comparing.engine import Calls, Engine, Job, Turn
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig
from kvspec.scenario import Scenario

BLOCK = 16
"""Tokens in a block of the workloads that come with the tool."""
FIRST_TOKENS = 1_000_000
"""How far the tokens of two requests lie apart."""
MAY_BE_NONE = ("gpu", "host", "prefix", "own", "arrival", "pause")
"""The parameters that may be 0."""


class WorkloadError(ValueError):
    """A workload that there is not, or a parameter that it does not have; the text says what there is."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Operations on a manager. ``calls`` begins them anew for each policy: the next may depend on what came of the last."""

    name: str
    manager: ManagerConfig
    streams: tuple[str, ...]
    calls: Callable[[], Calls]


@dataclass(frozen=True, slots=True)
class _Levels:
    """``gpu``, ``host``: slots of the levels; 0: room for the pages of all requests at once."""

    gpu: int = 0
    host: int = 0

    @classmethod
    def defaults(cls) -> dict[str, int]:
        """The parameters, and what they are if they are not given."""
        return {field.name: getattr(cls(), field.name) for field in fields(cls)}


@dataclass(frozen=True, slots=True)
class Chats(_Levels):
    """Many chats over one system prompt. Tokens: ``prefix`` shared, ``own`` of each prompt, ``decode`` written by each.

    ``arrival``: iterations between two requests. ``chunk``: prompt tokens read in an iteration.
    """

    title: ClassVar[str] = "many chats over one system prompt"
    requests: int = 16
    prefix: int = 512
    own: int = 64
    decode: int = 64
    arrival: int = 8
    chunk: int = 64

    def jobs(self) -> Iterator[Job]:
        """The requests."""
        for n in range(self.requests):
            turn = Turn(_prompt(n, self.prefix, self.own), self.decode)
            yield Job(f"chat{n}", n * self.arrival, [turn], _first_written(n))


@dataclass(frozen=True, slots=True)
class Agents(_Levels):
    """Agents over one set of instructions that suspend while a tool works. Tokens: ``prefix`` shared, ``own`` of each task; in
    each of ``turns``: ``decode`` written, and ``tool`` read after ``pause`` iterations.
    """

    title: ClassVar[str] = "agent turns that suspend and resume"
    requests: int = 8
    turns: int = 4
    prefix: int = 256
    own: int = 64
    tool: int = 48
    decode: int = 32
    pause: int = 12
    arrival: int = 4
    chunk: int = 64

    def jobs(self) -> Iterator[Job]:
        """The requests."""
        for n in range(self.requests):
            first = Turn(_prompt(n, self.prefix, self.own), self.decode, self.pause)
            later = [
                Turn(_tokens(n, self.tool, self.own + self.tool * turn), self.decode, self.pause)
                for turn in range(self.turns - 1)
            ]
            yield Job(f"agent{n}", n * self.arrival, [first, *later], _first_written(n))


@dataclass(frozen=True, slots=True)
class Document(_Levels):
    """One long document asked many times. Tokens: ``document`` shared, ``question`` of each, ``decode`` written by each."""

    title: ClassVar[str] = "a long document asked many times"
    requests: int = 12
    document: int = 2048
    question: int = 32
    decode: int = 48
    arrival: int = 6
    chunk: int = 256

    def jobs(self) -> Iterator[Job]:
        """The requests."""
        for n in range(self.requests):
            turn = Turn(_prompt(n, self.document, self.question), self.decode)
            yield Job(f"question{n}", n * self.arrival, [turn], _first_written(n))


Parameters: TypeAlias = Chats | Agents | Document
BUILT_IN: dict[str, type[Parameters]] = {"chats": Chats, "agents": Agents, "document": Document}
"""The workloads that come with the tool, by name."""


def _prompt(request: int, shared: int, own: int) -> tuple[int, ...]:
    """Tokens that all requests begin with, then some that only this one has."""
    return (*range(1, shared + 1), *_tokens(request, own))


def _tokens(request: int, count: int, skip: int = 0) -> tuple[int, ...]:
    """Tokens that only this request has."""
    first = (request + 1) * FIRST_TOKENS + skip
    return tuple(range(first, first + count))


def _first_written(request: int) -> int:
    return (request + 1) * FIRST_TOKENS + FIRST_TOKENS // 2


def built_in(name: str, given: dict[str, int]) -> Workload:
    """A workload that comes with the tool, with some of its parameters given; raises `WorkloadError`."""
    kind = BUILT_IN[name]
    known = kind.defaults()
    for key, value in given.items():
        if key not in known:
            raise WorkloadError(f"workload {name} has no parameter {key!r}: it has {', '.join(known)}")
        least = 0 if key in MAY_BE_NONE else 1
        if value < least:
            raise WorkloadError(f"parameter {key} of workload {name} is {value}: expected {least} or more")
    asked = kind(**given)
    jobs = list(asked.jobs())
    everything = sum(-(-job.tokens // BLOCK) for job in jobs)
    said = "".join(f", {key} {value}" for key, value in given.items())
    levels = manager(asked.gpu or everything, asked.host or everything)
    return Workload(name + said, levels, ("exec",), lambda: Engine(jobs, asked.chunk, BLOCK).run())


def manager(gpu: int, host: int) -> ManagerConfig:
    """One sparse group with pages of 64 KiB, on two levels."""
    buffers = tuple(BufferConfig(role=role, bytes=32768, sparse=True) for role in ("key", "value"))
    levels = (LevelConfig(kind=LevelKind.GPU, slots=gpu), LevelConfig(kind=LevelKind.HOST, slots=host))
    return ManagerConfig(tokens_per_block=BLOCK, levels=levels, layers=(LayerConfig(name="main", buffers=buffers),))


def of_scenario(scenario: Scenario) -> Workload:
    """The operations of a scenario, without its expectations."""

    def calls() -> Calls:
        for step in scenario.steps:
            yield step.op

    return Workload(scenario.name, scenario.manager, scenario.streams, calls)
