"""Vectors: of every step of a scenario what must come of it, as JSON, for those who cannot drive a process (`kvspec vectors`).

They are deterministic: the same scenarios give the same bytes. Keys stand in the order of the models, sets in ascending order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvspec.config import ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.harness.policies import settled
from kvspec.harness.systems import Factory, lacking, setup_for
from kvspec.observation import Observation
from kvspec.scenario import Scenario
from kvspec.wire.client import operation
from kvspec.wire.messages import Part

VERSION = 1
"""The version of the format; it rises when an old reader could not follow any more."""


class Vector(Part):
    """One step: the operation, and what must come of it."""

    step: int
    """Its number, from 0."""
    verb: str
    arguments: Mapping[str, Any]
    """All arguments of the verb, those with a default too."""
    value: Any
    """What it returns, null with an error."""
    error: ErrorKind | None
    """The kind of error that it ends in."""
    observation: Observation
    """Everything that is seen after it."""


class VectorScenario(Part):
    """A scenario."""

    name: str
    rules: tuple[str, ...]
    """The rules of docs/rules.md that it covers."""
    tags: tuple[str, ...]
    requires: tuple[str, ...]
    """Capabilities that it asks for by name."""
    manager: ManagerConfig
    groups: tuple[str, ...]
    """The names of the layer groups, in order (R1.5)."""
    streams: tuple[str, ...]
    """The streams that are named, `exec` first."""
    before: Observation
    """Everything that is seen before the first step."""
    steps: tuple[Vector, ...]


class VectorFile(Part):
    """The scenarios of one file."""

    vectors: int
    """The version of the format."""
    file: str
    """The scenario file, below the folder that was asked for."""
    scenarios: tuple[VectorScenario, ...]


class NoVectors(ValueError):
    """There is nothing to write of a scenario; ``str()`` of it says why."""


def vectors(scenario: Scenario, factory: Factory) -> VectorScenario:
    """What a system does with a scenario.

    :raises NoVectors: it lacks something, or an exception comes out of it.
    """
    if lack := lacking(scenario, factory):
        raise NoVectors(f"{scenario.position}: the system lacks {', '.join(lack)}")
    setup = setup_for(settled(scenario, factory), {})
    system = factory(setup)
    try:
        before = system.observe()
        steps = []
        for step in scenario.steps:
            outcome = system.apply(step.op)
            one = operation(step.op)
            steps.append(
                Vector.model_construct(
                    step=step.number,
                    verb=one.verb,
                    arguments=one.arguments,
                    value=outcome.value,
                    error=outcome.error,
                    observation=system.observe(),
                )
            )
    except Exception as error:
        raise NoVectors(f"{scenario.position}: the system raised {type(error).__name__}: {error}") from error
    finally:
        system.close()
    return VectorScenario.model_construct(
        name=scenario.name,
        rules=scenario.rules,
        tags=scenario.tags,
        requires=scenario.requires,
        manager=setup.manager,
        groups=group_names(setup.manager),
        streams=tuple(setup.streams),
        before=before,
        steps=tuple(steps),
    )


def places(scenarios: Sequence[Scenario]) -> dict[Path, str]:
    """Where the vectors of each file go: its path below the folder that all files have in common, without what it ends in.

    :raises NoVectors: two would go to the same place.
    """
    files = list(dict.fromkeys(one.position.path.resolve() for one in scenarios))
    common = os.path.commonpath([file.parent for file in files])
    found = {file: file.relative_to(common).with_suffix("").as_posix() for file in files}
    for file, name in found.items():
        twin = next((one for one, other in found.items() if other == name and one != file), None)
        if twin is not None:
            raise NoVectors(f"{file} and {twin} would be written to one file, {name}.json: rename one")
    return found


def written(file: str, scenarios: Sequence[VectorScenario]) -> Iterator[str]:
    """The lines of a file of vectors: a step is one, so that two of them can be compared line by line."""
    yield f'{{"vectors":{VERSION},"file":{json.dumps(file)},"scenarios":['
    for number, scenario in enumerate(scenarios):
        head = scenario.model_dump_json(by_alias=True, exclude={"steps"}, warnings=False, fallback=dict)
        yield f'{head[:-1]},"steps":['
        for place, step in enumerate(scenario.steps):
            text = step.model_dump_json(by_alias=True, warnings=False, fallback=dict)
            yield text + ("," if place + 1 < len(scenario.steps) else "")
        yield "]}" + ("," if number + 1 < len(scenarios) else "")
    yield "]}"
