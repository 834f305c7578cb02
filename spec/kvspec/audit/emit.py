"""Operations and managers back to YAML, so that a failure found by chance can be committed as a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from kvspec.config import ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.ops import Operation
from kvspec.scenario import LANGUAGE_VERSION


def step_mapping(op: Operation, raises: ErrorKind | None = None) -> dict[str, Any]:
    """One step as a YAML mapping, with ``raises`` where the outcome was an error."""
    arguments = op.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    bare = type(op).bare
    key = {"as_": "as"}.get(bare or "", bare)
    value: Any = arguments
    if key is not None and set(arguments) == {key}:
        value = arguments[key]
    elif not arguments:
        value = None if bare is not None else {}
    step: dict[str, Any] = {op.verb: value}
    if raises is not None:
        step["raises"] = raises.value
    return step


class _Dumper(yaml.SafeDumper):
    """Block style outside, flow style for whatever holds only scalars or short lists."""

    def ignore_aliases(self, data: Any) -> bool:
        """No anchors: a scenario is read by people."""
        return True


def document(
    name: str, manager: ManagerConfig, streams: Sequence[str], steps: Sequence[dict[str, Any]], rules: Sequence[str] = ()
) -> str:
    """A whole scenario as YAML text."""
    lines = [f"kvspec: {LANGUAGE_VERSION}\n", f"name: {inline(name)}\n"]
    if rules:
        lines.append(f"rules: {inline(list(rules))}\n")
    lines.append("manager:\n")
    body = manager.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key, value in body.items():
        if isinstance(value, list):
            lines.append(f"  {key}:\n" + "".join(f"    - {inline(item)}\n" for item in value))
        else:
            lines.append(f"  {key}: {inline(value)}\n")
    if tuple(streams) != ("exec",):
        lines.append(f"streams: {inline(list(streams))}\n")
    lines.append("steps:\n")
    for step in steps:
        for place, (key, value) in enumerate(step.items()):
            lines.append(f"  {'-' if place == 0 else ' '} {key}: {inline(value)}\n")
    return "".join(lines)


def inline(value: Any) -> str:
    """A value in one line of YAML, in braces and brackets."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...").strip()
