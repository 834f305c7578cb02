"""Gate orders: in whatever order the gates of a scenario open, it ends in the same tables and payloads.

Gates stand for kernels and copies that take their time. What waits for what is fixed when work is submitted (section 7), so
the order in which gates open may decide when something happens, never what comes out. Every legal order is replayed
through both systems, compared after every step as always, and its end is compared with that of the scenario as written.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kvspec.audit.ending import Ending, Endings, ending_differences
from kvspec.harness.difference import Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.ops import CloseGate, OpenGate, Sync
from kvspec.scenario import UNSET, Expect, Scenario, Step

MOST = math.factorial(5)
"""So many orders of one scenario are tried: all of up to 5 gates, a sample of more."""
OF_THE_MOMENT = ("pending", "done", "sees", "payload", "staging", "fetched", "resident")
"""Expectations that depend on which gates are open."""

GateSteps = tuple[Step, ...]
"""The ``open`` steps of a scenario, in an order."""


@dataclass(frozen=True, slots=True)
class GateOrder:
    """One order of opening gates: ``gates`` by label; ``held``: all of them are closed up to the next `sync`, or the end."""

    gates: tuple[str, ...]
    held: bool
    scenario: Scenario

    def __str__(self) -> str:
        """For the reader."""
        return f"{', '.join(self.gates)}{' (held to the end)' if self.held else ''}"


@dataclass(frozen=True, slots=True)
class Permuted:
    """What came of a scenario. ``orders``: replayed, the one as written included.

    ``order``: the first that went wrong; ``result``: its replay, if that failed or was skipped; ``differences``: how the end
    differs from that of the scenario as it is written, one text each.
    """

    scenario: Scenario
    gates: int
    orders: int
    verdict: Verdict
    order: GateOrder | None = None
    result: Result | None = None
    differences: tuple[str, ...] = ()


def has_gates(scenario: Scenario) -> bool:
    """Whether a scenario closes a gate."""
    return any(_closes(step) for step in scenario.steps)


def permute(scenario: Scenario, implementation: Named, reference: Named, options: Mapping[str, str] | None = None) -> Permuted:
    """Replay a scenario in every order of opening its gates, up to the first order that goes wrong.

    :param options: handed to both systems in their ``Setup``.
    """
    whole = completed(scenario)
    gates = sum(_opens(step) for step in whole.steps)
    as_written = GateOrder(tuple(_label(step) for step in whole.steps if _opens(step)), held=False, scenario=whole)
    first: Ending | None = None
    done = 0
    for order in itertools.chain((as_written,), orders(whole)):
        endings = Endings(order.scenario)
        result = replay(order.scenario, implementation, reference, options, endings.look)
        done += 1
        if result.verdict is not Verdict.PASSED:
            return Permuted(scenario, gates, done, result.verdict, order, result)
        ending = endings.ending()
        first = first or ending
        if differences := tuple(ending_differences(first, ending, (reference.name, implementation.name))):
            return Permuted(scenario, gates, done, Verdict.FAILED, order, None, differences)
    return Permuted(scenario, gates, done, Verdict.PASSED)


def completed(scenario: Scenario) -> Scenario:
    """The scenario with a label of its own for every gate, and with all gates open in the end."""
    closed: dict[str, str] = {}
    times: dict[str, int] = {}
    steps: list[Step] = []
    for step in scenario.steps:
        op = step.op
        if _closes(step) and isinstance(op, CloseGate):
            times[op.as_] = times.get(op.as_, 0) + 1
            closed[op.as_] = op.as_ if times[op.as_] == 1 else f"{op.as_} again {times[op.as_] - 1}"
            op = op.model_copy(update={"as_": closed[op.as_]})
        elif _opens(step) and isinstance(op, OpenGate):
            op = op.model_copy(update={"as_": closed.pop(op.as_, op.as_)})
        steps.append(replace(step, op=op))
    for label in closed.values():
        op = OpenGate.model_validate({"as": label})
        steps.append(replace(_silent(steps[-1]), op=op))
    return _with_steps(scenario, steps)


def orders(scenario: Scenario) -> Iterator[GateOrder]:
    """Every other order: which gate opens at each `open`, where that is legal, and with all gates held to the end.

    Gates are held, and permuted, up to the next `sync` alone, which waits for them on the CPU. What the scenario says of
    the moment (``OF_THE_MOMENT``), and refusals that depend on which gates are closed, are left out.
    """
    parts = _parts(scenario)
    opens = [tuple(step for step in part if _opens(step)) for part in parts]
    for number, chosen in enumerate(_permutations(opens)):
        labels = tuple(_label(step) for part in chosen for step in part)
        held = [_held(part, last) for part, last in zip(parts, chosen, strict=True)]
        yield GateOrder(labels, True, _with_steps(scenario, _flat(held)))
        if number == 0:
            continue
        steps = _flat([_in_place(part, order) for part, order in zip(parts, chosen, strict=True)])
        if _legal(steps):
            yield GateOrder(labels, False, _with_steps(scenario, steps))


def _permutations(opens: Sequence[GateSteps]) -> Iterator[tuple[GateSteps, ...]]:
    """Orders of the gates of each part, the one as written first, at most ``MOST``."""
    if math.prod(math.factorial(len(part)) for part in opens) <= MOST:
        yield from itertools.product(*(itertools.permutations(part) for part in opens))
        return
    yield tuple(opens)
    chance = random.Random(0)  # the same sample in every run
    for _ in range(MOST - 1):
        yield tuple(tuple(chance.sample(part, len(part))) for part in opens)


def _parts(scenario: Scenario) -> list[list[Step]]:
    """The steps, without what refuses by the gates of the moment, cut before every `sync`."""
    parts: list[list[Step]] = [[]]
    for step in scenario.steps:
        if isinstance(step.op, CloseGate | OpenGate | Sync) and step.raises is not None:
            continue
        if isinstance(step.op, Sync):
            parts.append([])
        expect = step.expect.model_copy(update=dict.fromkeys(OF_THE_MOMENT))
        parts[-1].append(replace(step, expect=expect))
    return parts


def _held(part: Sequence[Step], last: GateSteps) -> list[Step]:
    return [*(step for step in part if not _opens(step)), *map(_silent, last)]


def _in_place(part: Sequence[Step], order: GateSteps) -> list[Step]:
    """The part with other gates opened by its `open` steps; what a step expects stays with the step."""
    given = iter(order)
    return [replace(step, op=next(given).op) if _opens(step) else step for step in part]


def _legal(steps: Sequence[Step]) -> bool:
    closed: set[str] = set()
    for step in steps:
        if _closes(step):
            closed.add(_label(step))
        elif _opens(step):
            if _label(step) not in closed:
                return False
            closed.remove(_label(step))
    return True


def _silent(step: Step) -> Step:
    """The step without anything that it says of its outcome or of the state."""
    return replace(step, returns=UNSET, raises=None, expect=Expect())


def _with_steps(scenario: Scenario, steps: Sequence[Step]) -> Scenario:
    return replace(scenario, steps=tuple(replace(step, number=number) for number, step in enumerate(steps)))


def _flat(parts: Sequence[Sequence[Step]]) -> list[Step]:
    return [step for part in parts for step in part]


def _closes(step: Step) -> bool:
    return isinstance(step.op, CloseGate) and step.raises is None


def _opens(step: Step) -> bool:
    return isinstance(step.op, OpenGate) and step.raises is None


def _label(step: Step) -> str:
    assert isinstance(step.op, CloseGate | OpenGate)
    return step.op.as_
