"""Walks through a small model, replayed through a system under test beside the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from kvspec.audit.explore.expanding import Path, Plan, Walker
from kvspec.audit.explore.writing import steps_of
from kvspec.audit.lifecycles import Found, Lifecycle, as_yaml, run
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named
from kvspec.harness.systems import find_system


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a walk: how many steps were compared, where the systems differ, or why it was not finished."""

    steps: int
    found: Found | None = None
    unfinished: str = ""


def replay_walk(plan: Plan, walk: Path, system: str, options: Mapping[str, str], seed: int, timeout: float = 0.0) -> Replayed:
    """Replay a walk through a system. ``seed``: its number, by which it is named."""
    model = plan.small()
    life = Lifecycle(seed, model.manager, tuple(op for op, _ in steps_of(plan, walk)))
    result, steps = run(life, _named(system), _named(plan.against), options, timeout)
    if result.verdict is Verdict.FAILED:
        life = replace(life, operations=tuple(step.op for step in steps))
        return Replayed(len(steps), Found(life, result, as_yaml(life, steps)))
    return Replayed(len(steps), unfinished=result.reason)


def replay_first(plan: Plan, walks: Sequence[Path], system: str, options: Mapping[str, str], timeout: float = 0.0) -> Replayed:
    """The first of some walks on which the systems differ; the last where they differ on none."""
    done = Replayed(0)
    for walk in walks:
        done = replay_walk(plan, walk, system, options, 0, timeout)
        if done.found is not None:
            break
    return done


def at_operation(plan: Plan, walk: Path, step: int) -> int:
    """Which move of a walk a step of its replay belongs to, -1 for what comes before the first."""
    walker = Walker(plan)
    left, state = step - len(walker.model.begin), walker.first
    for number, move in enumerate(walk):
        made = walker.take(state, move)
        left -= 1 + (made.fault is not None)
        state = made.after
        if left < 0:
            return number if step >= len(walker.model.begin) else -1
    return len(walk) - 1


@lru_cache(maxsize=4)
def _named(name: str) -> Named:
    return Named(name, find_system(name))
