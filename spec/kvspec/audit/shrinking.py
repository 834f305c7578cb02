"""Making a failure short: operations are left out, then whatever of the manager and the arguments it does not need."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from kvspec import ops
from kvspec.audit.lifecycles import Found, Lifecycle, as_yaml, run
from kvspec.config import LayerConfig, LayerKind, ManagerConfig, alike
from kvspec.harness.difference import Failure
from kvspec.harness.replay import Named

PLAINER = ("select", "stream", "priority", "decode", "groups", "prompt_length", "levels", "layers", "queued", "end")
"""Arguments that are left out if they can be."""


def shrink(
    found: Found,
    implementation: Named,
    reference: Named,
    options: Mapping[str, str],
    seconds: float = math.inf,
    timeout: float = 0.0,
) -> Found:
    """The shortest scenario found in the time in which the same failure stays.

    Halves of the operations are left out first, then ever smaller pieces; then layers, levels, windows, buffers, and arguments.

    :param seconds: after so long the shortest scenario so far is good enough.
    :param timeout: of each replay, in seconds; 0 for no limit.
    """
    if found.result.failure is None or found.at_the_end:
        return found
    best = _Best(found, implementation, reference, options, time.monotonic() + seconds, timeout)
    best.fewer(len(best.operations) // 2)
    while best.plainer():
        best.fewer(1)
    return best.found


class _Best:
    """The best so far. ``operations``: those up to the failure."""

    def __init__(
        self,
        found: Found,
        implementation: Named,
        reference: Named,
        options: Mapping[str, str],
        end: float,
        timeout: float,
    ) -> None:
        failure = found.result.failure
        assert failure is not None
        self.found, self.wanted = found, failure
        self.systems, self.options, self.end, self.timeout = (implementation, reference), options, end, timeout
        self.manager = found.life.manager
        self.operations: Sequence[ops.Operation] = found.life.operations[: failure.step + 1]

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.end

    def take(self, manager: ManagerConfig, operations: Sequence[ops.Operation]) -> bool:
        """Take a scenario if it fails in the same way."""
        life = Lifecycle(self.found.seed, manager, tuple(operations))
        result, steps = run(life, *self.systems, self.options, self.timeout)
        if result.failure is None or not self._same(result.failure):
            return False
        self.manager, self.operations = manager, operations[: result.failure.step + 1]
        self.found = Found(replace(self.found.life, manager=manager), result, as_yaml(life, steps))
        return True

    def _same(self, failure: Failure) -> bool:
        """Whether it begins with the same difference and has no other kind of one."""
        first, wanted = (one.differences[0] for one in (failure, self.wanted))
        same = (first.kind, first.identity or first.subject) == (wanted.kind, wanted.identity or wanted.subject)
        return same and set(failure.identity) <= set(self.wanted.identity)

    def fewer(self, size: int) -> None:
        """Leave out pieces of so many operations, then of half as many, and so on."""
        size = max(1, size)
        while not self.late:
            start, progress = 0, False
            while start < len(self.operations) and not self.late:
                shorter = [*self.operations[:start], *self.operations[start + size :]]
                if shorter and self.take(self.manager, shorter):  # a scenario has at least one step
                    progress = True
                else:
                    start += size
            if size == 1 and not progress:
                return
            size = max(1, size // 2)

    def plainer(self) -> bool:
        """Leave out what the manager and the arguments have beyond the plainest; whether anything went."""
        progress, again = False, True
        while again and not self.late:
            again = False
            for manager, operations in self._plainer():
                if self.late:
                    break
                if self.take(manager, operations):
                    progress = again = True
                    break
        return progress

    def _plainer(self) -> Iterator[tuple[ManagerConfig, Sequence[ops.Operation]]]:
        yield from ((manager, self.operations) for manager in plainer_managers(self.manager))
        yield from ((self.manager, operations) for operations in plainer_operations(self.operations))


def plainer_managers(manager: ManagerConfig) -> Iterator[ManagerConfig]:
    """Managers with one thing less, each valid: a layer, a level, a window, a buffer, what is reserved for fetches, ..."""
    for less in _less(manager):
        with suppress(ValueError):  # layers of one group agree on what they say of fetches (R15.1)
            yield ManagerConfig.model_validate(less.model_dump())


def _less(manager: ManagerConfig) -> Iterator[ManagerConfig]:
    def with_layers(layers: Sequence[LayerConfig]) -> ManagerConfig:
        return manager.model_copy(update={"layers": tuple(layers)})

    layers, levels = manager.layers, manager.levels
    if len(layers) > 1:
        yield from (with_layers([*layers[:n], *layers[n + 1 :]]) for n in range(len(layers)))
    for group in dict.fromkeys(map(alike, layers)):
        yield from (
            with_layers([saying(layer, said) if alike(layer) == group else layer for layer in layers])
            for said in _less_said(next(layer for layer in layers if alike(layer) == group))
        )
    for number, layer in enumerate(layers):
        yield from (with_layers([*layers[:number], less, *layers[number + 1 :]]) for less in _plainer_layers(layer))
    if len(levels) > 2 or (len(levels) > 1 and not any(layer.sparse for layer in layers)):  # R1.4
        yield manager.model_copy(update={"levels": levels[:-1]})
    if manager.max_util_for_resume != 1:
        yield manager.model_copy(update={"max_util_for_resume": 1.0})


Said: TypeAlias = dict[str, int | None]
"""What the buffers of a group say of fetches (R15.1)."""
NOTHING_SAID: Said = {"selected": None, "reserve": None, "unit": None}


def saying(layer: LayerConfig, said: Mapping[str, object]) -> LayerConfig:
    """The layer with other values for some keys of all its buffers."""
    return layer.model_copy(update={"buffers": tuple(buffer.model_copy(update=said) for buffer in layer.buffers)})


def _less_said(layer: LayerConfig) -> Iterator[Said]:
    """What a group could say of fetches instead, which is less: nothing, no units, fewer slots or numbers."""
    selected, reserve, unit = layer.buffers[0].fetching
    if selected is None or reserve is None:
        return
    yield NOTHING_SAID
    if unit is not None:
        yield {"unit": None, "selected": min(selected, reserve)}
    if reserve > 1:
        yield {"reserve": reserve - 1}
    if selected > 1:
        yield {"selected": selected - 1}


def _plainer_layers(layer: LayerConfig) -> Iterator[LayerConfig]:
    if layer.sparse:
        yield saying(layer, {"sparse": False, **NOTHING_SAID})
    if layer.kind is LayerKind.SSM:
        yield layer.model_copy(update={"kind": LayerKind.ATTENTION})
    if layer.sliding_window is not None:
        yield layer.model_copy(update={"sliding_window": None, "sink_tokens": None})
    if layer.sink_tokens is not None:
        yield layer.model_copy(update={"sink_tokens": None})
    if len(layer.buffers) > 1:
        yield layer.model_copy(update={"buffers": layer.buffers[:1]})


def plainer_operations(operations: Sequence[ops.Operation]) -> Iterator[Sequence[ops.Operation]]:
    """Operations with one argument less: of all that have it, or of one."""
    for name in PLAINER:
        have = [number for number, op in enumerate(operations) if _has(op, name)]
        if len(have) > 1:
            yield [_without(op, name) if number in have else op for number, op in enumerate(operations)]
        yield from ([*operations[:n], _without(operations[n], name), *operations[n + 1 :]] for n in have)
    for number, op in enumerate(operations):
        for less in fewer_selected(op):
            yield [*operations[:number], less, *operations[number + 1 :]]


def fewer_selected(op: ops.Operation) -> Iterator[ops.Operation]:
    """A fetch or a replay that selects less: nothing for one of the requests, or one of its numbers less."""
    select = op.select if isinstance(op, ops.Fetch | ops.Replay) else None
    for name, numbers in (select or {}).items():
        others = {other: mine for other, mine in (select or {}).items() if other != name}
        yield op.model_copy(update={"select": others})
        for at in range(len(numbers) if len(numbers) > 1 else 0):
            yield op.model_copy(update={"select": {**others, name: (*numbers[:at], *numbers[at + 1 :])}})


def _has(op: ops.Operation, name: str) -> bool:
    model = type(op).model_fields.get(name)
    return model is not None and not model.is_required() and getattr(op, name) != model.default


def _without(op: ops.Operation, name: str) -> ops.Operation:
    return op.model_copy(update={name: type(op).model_fields[name].default})
