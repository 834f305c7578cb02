"""Systems that play back what a test wrote down, and steps to play it to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.harness.difference import Result
from kvspec.harness.replay import Named, replay
from kvspec.observation import Observation
from kvspec.ops import VERBS, Operation
from kvspec.scenario import UNSET, Expect, Position, Scenario, Step
from kvspec.system import Outcome, Setup

HERE = Position(Path("scripted.yaml"), 1, 1)


@dataclass
class Scripted:
    """A system that plays back outcomes and observations; one of each a step."""

    script: Sequence[tuple[Outcome, Observation]]
    capabilities: frozenset[str] = frozenset({*VERBS, "async", "keys"})
    at: int = -1
    closed: int = 0

    def __call__(self, setup: Setup) -> Scripted:
        """Stand for its own factory."""
        return self

    def apply(self, op: Operation) -> Outcome:
        self.at += 1
        return self.script[self.at][0]

    def observe(self) -> Observation:
        return self.script[self.at][1]

    def close(self) -> None:
        self.closed += 1


def manager(*, layers: Sequence[LayerConfig] | None = None) -> ManagerConfig:
    """Two groups, sparse ``main`` of 64 bytes, which can be fetched, and dense ``index`` of 32, on GPU and host, 8 slots each."""
    own = (
        LayerConfig(name="main", buffers=(BufferConfig(role="key", bytes=64, sparse=True, selected=2, reserve=2),)),
        LayerConfig(name="index", buffers=(BufferConfig(role="key", bytes=32),)),
    )
    return ManagerConfig(
        tokens_per_block=4,
        levels=(LevelConfig(kind=LevelKind.GPU, slots=8), LevelConfig(kind=LevelKind.HOST, slots=8)),
        layers=tuple(layers or own),
    )


def step(
    number: int, op: Operation, expect: Expect | None = None, returns: object = UNSET, raises: ErrorKind | None = None
) -> Step:
    """A step that is in no file."""
    return Step(number, op, returns, raises, expect or Expect(), None, HERE, 1, {})


def scenario(steps: Sequence[Step], config: ManagerConfig | None = None) -> Scenario:
    """A scenario that is in no file."""
    return Scenario("scripted", ("R1.1",), (), (), config or manager(), ("side",), tuple(steps), HERE, 0)


def play(
    steps: Sequence[Step],
    reference: Sequence[tuple[Outcome, Observation]],
    implementation: Sequence[tuple[Outcome, Observation]],
) -> Result:
    """Replay steps with two scripts."""
    return replay(scenario(steps), Named("tested", Scripted(implementation)), Named("reference", Scripted(reference)))
