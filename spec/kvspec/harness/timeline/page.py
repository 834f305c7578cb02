"""Timelines as one page for a browser that loads nothing: data, style and script are inside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kvspec.config import LayerConfig, LayerKind
from kvspec.harness.difference import Result
from kvspec.harness.replay import Named, replay
from kvspec.harness.report import path_text, plain, source_lines
from kvspec.harness.timeline.reasons import first_layers
from kvspec.harness.timeline.timeline import Timeline, finish, recorder_of
from kvspec.rules import load_rules
from kvspec.scenario import Scenario

SCRIPTS = ("facts.js", "grid.js", "panels.js", "timeline.js")
"""The parts of the script, in order."""
MAX_VALUE = 300
"""How many characters of one value of a difference the page shows."""


def write_page(path: Path, timelines: Sequence[Timeline]) -> int:
    """Write the page.

    :returns: its size in bytes.
    :raises OSError: it cannot be written.
    """
    title = timelines[0].scenario.name if len(timelines) == 1 else f"{len(timelines)} scenarios"
    page = (
        environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            timelines=[embedded(data(timeline)) for timeline in timelines],
            sections=rule_sections(),
            version=metadata.version("kvspec"),
            **assets(),
        )
    )
    return path.write_bytes(page.encode())


def replay_seen(
    scenario: Scenario, implementation: Named, reference: Named, options: Mapping[str, str], timeout: float = 0.0
) -> Result:
    """Replay a scenario, and keep what was seen of it if it fails. ``timeout``: as of ``replay``."""
    timeline = Timeline(scenario, (reference.name, implementation.name))
    recorder = recorder_of(timeline, None)
    result = replay(scenario, implementation, reference, options, watch=recorder.watch, timeout=timeout)
    if result.failure is None:
        return result
    finish(timeline, recorder, result, options)
    return replace(result, timeline=embedded(data(timeline)))


def environment() -> Environment:
    """The templates in this folder."""
    loader = PackageLoader("kvspec.harness.timeline", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def assets() -> dict[str, str]:
    """The style and the script of every page with timelines in it, by the names that templates use."""
    here = resources.files("kvspec.harness.timeline")
    return {
        "timeline_css": (here / "timeline.css").read_text(encoding="utf-8"),
        "timeline_js": "\n".join((here / name).read_text(encoding="utf-8") for name in SCRIPTS),
    }


def rule_sections() -> dict[str, list[Any]]:
    """All rules by their section."""
    sections: dict[str, list[Any]] = {}
    for rule in load_rules():
        sections.setdefault(rule.section, []).append(rule)
    return sections


def embedded(value: dict[str, Any]) -> str:
    """Data as it may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def data(timeline: Timeline) -> dict[str, Any]:
    """What the page is told of a timeline (the form of ``facts``: ``kvspec.harness.timeline.delta``)."""
    scenario = timeline.scenario
    position = scenario.position
    last = max((step.last_line for step in scenario.steps), default=position.line)
    return {
        "name": scenario.name,
        "file": path_text(position.path),
        "line": position.line,
        "rules": list(scenario.rules),
        "systems": list(timeline.systems),
        "tokens_per_block": scenario.manager.tokens_per_block,
        "groups": [{"name": name, "kind": _kind(layer)} for name, layer in first_layers(scenario.manager).items()],
        "first": position.line,
        "source": [text for _, text in source_lines(position.path, position.line, last)],
        **timeline.packer.head(),
        "steps": [step | {"facts": facts} for step, facts in zip(timeline.steps, timeline.packed, strict=True)],
        "divergence": timeline.divergence,
        "failure": _failure(timeline),
        "stopped": timeline.stopped,
    }


def _kind(layer: LayerConfig) -> str:
    if layer.kind is LayerKind.SSM:
        return "state"
    window = f", window of {layer.sliding_window}" if layer.sliding_window is not None else ""
    sinks = f", {layer.sink_tokens} sink tokens" if layer.sink_tokens else ""
    return ("sparse" if layer.sparse else "dense") + window + sinks


def _failure(timeline: Timeline) -> dict[str, Any] | None:
    failure = timeline.failure
    if failure is None or timeline.report is None:
        return None
    return {
        "step": failure.step,
        "verb": failure.verb,
        "lines": [failure.position.line, failure.last_line],
        "marked": sorted({one.position.line for one in failure.differences if one.position is not None}),
        "differences": [
            {
                "kind": one.kind.value,
                "subject": one.subject,
                "expected": None if one.expected is None else _short(one.expected),
                "values": [_short(one.reference), _short(one.implementation)],
                "rules": list(one.rules),
                "detail": [_short(text) for text in one.detail],
                "line": one.position.line if one.position is not None else None,
            }
            for one in failure.differences
        ],
        "report": plain(timeline.report),
    }


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 4]} ..."
