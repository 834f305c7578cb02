"""Lifecycles are gone through by whoever answers questions; failures are made shorter while others run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from kvspec.cli.fuzzing.plan import Plan, Tally

if TYPE_CHECKING:
    from kvspec.audit.lifecycles import Found, LifecycleResult
    from kvspec.cluster.cluster import Cluster
    from kvspec.harness.difference import Failure
    from kvspec.harness.replay import Named
    from kvspec.harness.workers import Ended, Workers

SHRINK_SECONDS = 30.0
"""How long a failure is made shorter."""
Tell: TypeAlias = "Callable[[int, LifecycleResult | Ended], None]"
"""Called with the first answer for each lifecycle, by its seed."""


def go_through(
    plan: Plan,
    seeds: Iterable[int],
    workers: Workers | Cluster,
    seconds: float | None,
    keep_going: bool,
    tally: Tally,
    tell: Tell,
) -> None:
    """Fill ``tally``, and ``tell`` of each change. Failures are made shorter while others run."""
    end = None if seconds is None else time.monotonic() + seconds
    queue = iter(seeds)

    def more() -> None:
        late = end is not None and time.monotonic() > end
        if not late and (keep_going or not tally.failed):
            for seed in itertools.islice(queue, max(0, workers.ahead - workers.unanswered)):
                # It is gone through, and both systems are closed: each of the two interrupts itself.
                workers.ask(seed, _one, seed, plan, seconds=2 * plan.timeout)

    try:
        more()
        for seed, answer in workers.answers():
            assert isinstance(seed, int)
            _take(seed, answer, plan, workers, tally, tell)
            more()
    except KeyboardInterrupt:
        tally.under_way = {seed: _where(answer) for seed, answer in workers.interrupt() if isinstance(seed, int)}
        raise


def _take(seed: int, answer: LifecycleResult | Ended, plan: Plan, workers: Workers | Cluster, tally: Tally, tell: Tell) -> None:
    from kvspec.harness.workers import Ended

    again = seed in tally.found  # it was being made shorter
    tally.done += not again
    if isinstance(answer, Ended):
        if not again:  # else what it was before stays
            tally.lost[seed] = answer
            tell(seed, answer)
        return
    if again:
        if answer.found is not None:
            tally.found[seed] = answer.found
        return
    tally.reached.add(answer.reached)
    tally.passed_over.update(answer.passed_over)
    if answer.unfinished:
        tally.unfinished[answer.unfinished] += 1
    if answer.found is not None:
        tally.found[seed] = answer.found
        workers.ask(seed, _shorter, answer.found, plan)
    tell(seed, answer)


def _where(answer: LifecycleResult | Ended) -> Failure | Ended | None:
    from kvspec.harness.workers import Ended

    if isinstance(answer, Ended):
        return answer
    return None if answer.found is None else answer.found.result.failure


def _one(seed: int, plan: Plan) -> LifecycleResult:
    from kvspec.audit.lifecycles import try_lifecycle

    return try_lifecycle(seed, plan.steps, *_systems(plan), plan.options, plan.contents(), plan.timeout)


def _shorter(found: Found, plan: Plan) -> LifecycleResult:
    from kvspec.audit.lifecycles import LifecycleResult
    from kvspec.audit.shrinking import shrink

    return LifecycleResult(shrink(found, *_systems(plan), plan.options, SHRINK_SECONDS, plan.timeout))


def _systems(plan: Plan) -> tuple[Named, Named]:
    from kvspec.harness.replay import Named
    from kvspec.harness.systems import find_system

    return Named(plan.system, find_system(plan.system)), Named(plan.against, find_system(plan.against))
