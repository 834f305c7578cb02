"""What a scenario asks for and does without: with less, everything that it expects still holds.

That is a question to its author, and no verdict: with less it may no longer show what it was written for. Whether it still
notices the breaks that it noticed (`kvspec mutants`) says that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvspec.audit.shrinking import NOTHING_SAID, saying
from kvspec.config import ManagerConfig
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named, replay
from kvspec.scenario import Scenario


def asks_more(scenario: Scenario, reference: Named) -> list[str]:
    """What a scenario could do without, a short text each.

    :param reference: the system whose behaviour counts; the scenario holds for it as it is.
    """
    return [what for what, less in lesser(scenario) if replay(less, reference, reference).verdict is Verdict.PASSED]


def lesser(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """The scenario with one thing less, and what that is: sparse layers, levels, a layer, a stream."""
    manager = scenario.manager
    sparse = any(layer.sparse for layer in manager.layers)
    if scenario.fetches:
        layers = tuple(saying(layer, NOTHING_SAID) for layer in manager.layers)
        yield "slots reserved for fetches", replace(scenario, manager=manager.model_copy(update={"layers": layers}))
    if sparse:
        yield "sparse layers", replace(scenario, manager=_dense(manager))
    if sparse and len(manager.levels) > 1:
        yield "sparse layers and all levels below the GPU", replace(scenario, manager=_cut(_dense(manager), 1))
    if not sparse and len(manager.levels) > 1:
        yield "all levels below the GPU", replace(scenario, manager=_cut(manager, 1))
    if len(manager.levels) > 2:
        yield "the disk", replace(scenario, manager=_cut(manager, 2))
    for number, layer in enumerate(manager.layers if len(manager.layers) > 1 else ()):
        layers = (*manager.layers[:number], *manager.layers[number + 1 :])
        yield f"layer {layer.name}", replace(scenario, manager=manager.model_copy(update={"layers": layers}))
    for name in scenario.streams:
        if name != "exec" and name not in _streams_used(scenario):
            yield f"stream {name}", replace(scenario, streams=tuple(one for one in scenario.streams if one != name))


def _streams_used(scenario: Scenario) -> set[object]:
    return {getattr(step.op, "stream", None) for step in scenario.steps}


def _dense(manager: ManagerConfig) -> ManagerConfig:
    return manager.model_copy(
        update={"layers": tuple(saying(layer, {"sparse": False, **NOTHING_SAID}) for layer in manager.layers)}
    )


def _cut(manager: ManagerConfig, levels: int) -> ManagerConfig:
    return manager.model_copy(update={"levels": manager.levels[:levels]})
