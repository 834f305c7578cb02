"""Outcomes: what a step returns or raises, compared between systems and with the scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from kvspec.config import Level, ManagerConfig, group_names
from kvspec.harness.compare import Comparison, text
from kvspec.harness.difference import Difference, Kind
from kvspec.harness.newer import same_but_newer
from kvspec.harness.side import Side
from kvspec.observation import BAD, Counters, GroupCounters
from kvspec.refs import RefError, entry
from kvspec.scenario import UNSET, Step
from kvspec.system import OffsetTable, Outcome


def layer_groups(config: ManagerConfig) -> dict[str, str]:
    """The layer group of each layer (R1.5)."""
    keys = {layer.name: (layer.kind, layer.sliding_window, layer.sink_tokens, layer.sparse) for layer in config.layers}
    first = {keys[name]: name for name in group_names(config)}
    return {name: first[key] for name, key in keys.items()}


def compare_outcomes(c: Comparison) -> Iterator[Difference]:
    """The outcomes of a step: what the scenario says of them, for both systems, and whether the two agree."""
    sides = c.reference, c.implementation
    step = _fitting(c)
    said = [outcome_text(side.outcome, c, side) for side in sides]
    messages = tuple(f"{side.name}: {side.outcome.message}" for side in sides if side.outcome.message)
    errors = [side.outcome.error for side in sides]
    position = step.positions.get(("raises",)) or step.positions.get(("returns",))
    if step.raises is not None and any(error is not step.raises for error in errors):
        wanted = f"raises {step.raises.value}"
        yield _difference("raises", f"outcome of {step.op.verb}", said, wanted, messages, position or step.position)
        return
    if step.raises is None and any(error is not None for error in errors):
        wanted = "no error" if step.returns is UNSET else f"returns {_yaml(step.returns)}"
        yield _difference("error", f"outcome of {step.op.verb}", said, wanted, messages, position or step.position)
        return
    if step.returns is not UNSET:
        again = same_but_newer(c, step.op, *(side.outcome.value for side in sides))
        oks = [returned(step.returns, side.outcome, c, side) for side in (sides[:1] if again else sides)]
        if not all(oks):
            wanted = f"returns {_yaml(step.returns)}"
            yield _difference("returns", f"value of {step.op.verb}", said, wanted, messages, position or step.position)
            return
    values = [_shared(side.outcome.value, c, side) for side in sides]
    if same_but_newer(c, step.op, values[0], values[1]):
        return
    if values[0] != values[1] or type(values[0]) is not type(values[1]) or repr(values[0]) != repr(values[1]):
        yield Difference(
            Kind.OUTCOME,
            f"outcome of {step.op.verb}",
            said[0],
            said[1],
            identity="outcome",
            rules=("R3.13",) if any(errors) else (),
            detail=messages,
        )


def _fitting(c: Comparison) -> Step:
    """The step; without what it says of the outcome if the reference, following other policies than it asks for, differs."""
    step, outcome = c.step, c.reference.outcome
    fits = outcome.error is step.raises
    if fits and outcome.error is None and step.returns is not UNSET:
        fits = returned(step.returns, outcome, c, c.reference)
    if fits or not c.shared.loose:
        return step
    c.shared.passed_over += 1
    return replace(step, raises=outcome.error, returns=UNSET)


def _difference(
    identity: str, subject: str, said: list[str], wanted: str, messages: tuple[str, ...], position: Any
) -> Difference:
    return Difference(
        Kind.OUTCOME, subject, said[0], said[1], expected=wanted, identity=identity, detail=messages, position=position
    )


def outcome_text(outcome: Outcome, c: Comparison, side: Side) -> str:
    """An outcome for the reader."""
    if outcome.error is not None:
        return f"raises {outcome.error.value}"
    value = outcome.value
    if isinstance(value, OffsetTable):
        return f"returns {_yaml(symbolic(value, c, side))}"
    if isinstance(value, Counters):
        return f"returns {_yaml(counters(value))}"
    return f"returns {text(value)}"


def counters(value: Counters) -> dict[str, dict[str, int]]:
    """Counters as scenarios write them."""
    found = {
        group: {field.name: getattr(view, field.name) for field in fields(GroupCounters)} for group, view in value.groups.items()
    }
    found["manager"] = {"suspends": value.suspends, "resumes": value.resumes}
    return found


def symbolic(table: OffsetTable, c: Comparison, side: Side) -> dict[str, dict[str, list[str]]]:
    """Dense offsets by layer and request with ``request.block`` for the slots of the request's own blocks (R11.3)."""
    return {
        layer: {
            request: [_own(table, layer, request, block, offset, c, side) for block, offset in enumerate(offsets)]
            for request, offsets in by_request.items()
        }
        for layer, by_request in table.offsets.items()
    }


def _slot(table: OffsetTable, layer: str, offset: int) -> int | None:
    scale, base = table.scale.get(layer, 0), table.base.get(layer, 0)
    if scale <= 0 or (offset - base) % scale:
        return None
    return (offset - base) // scale


def _own(table: OffsetTable, layer: str, request: str, block: int, offset: int, c: Comparison, side: Side) -> str:
    if offset == BAD:
        return "-"
    slot = _slot(table, layer, offset)
    group = layer_groups(c.shared.manager).get(layer, "")
    for candidate in (block, *_blocks(side, request, group)):
        if slot is not None and _mapped(side, request, group, candidate) == slot:
            return f"{request}.{candidate}"
    return f"offset {offset}"


def _blocks(side: Side, request: str, group: str) -> range:
    view = side.now.observation.requests.get(request)
    snapshot = view.snapshots.get((group, 0)) if view is not None else None
    return range(len(snapshot.indices) if snapshot is not None else 0)


def _mapped(side: Side, request: str, group: str, block: int) -> int | None:
    """The GPU slot of a request's block now."""
    view = side.now.observation.requests.get(request)
    snapshot = view.snapshots.get((group, 0)) if view is not None else None
    if snapshot is None or not 0 <= block < len(snapshot.indices) or snapshot.levels[block] is not Level.GPU:
        return None
    return snapshot.indices[block]


def _shared(value: Any, c: Comparison, side: Side) -> Any:
    if isinstance(value, OffsetTable):
        return symbolic(value, c, side), dict(value.scale), dict(value.base)
    return counters(value) if isinstance(value, Counters) else value


def returned(wanted: Any, outcome: Outcome, c: Comparison, side: Side) -> bool:
    """Whether the value of an outcome is the one that a scenario writes after ``returns``."""
    value = outcome.value
    if isinstance(value, Counters):
        return isinstance(wanted, Mapping) and bool(wanted) and counters_match(wanted, value)
    if isinstance(value, OffsetTable):
        return _offsets_match(wanted, value, c, side)
    if isinstance(value, tuple):
        return (
            isinstance(wanted, Sequence)
            and not isinstance(wanted, str)
            and len(wanted) == len(value)
            and all(_same(one, two) for one, two in zip(wanted, value, strict=True))
        )
    return _same(wanted, value)


def counters_match(wanted: Mapping[str, Any], value: Counters) -> bool:
    """Whether counters have what a scenario says of them; what it leaves out may be anything."""
    have = counters(value)
    return all(
        isinstance(parts, Mapping) and bool(parts) and all(_same(n, have.get(group, {}).get(key)) for key, n in parts.items())
        for group, parts in wanted.items()
    )


def _same(wanted: Any, value: Any) -> bool:
    return type(wanted) is type(value) and bool(wanted == value)


def _offsets_match(wanted: Any, table: OffsetTable, c: Comparison, side: Side) -> bool:
    if not isinstance(wanted, Mapping) or wanted.keys() != table.offsets.keys():
        return False
    groups = layer_groups(c.shared.manager)
    for layer, by_request in wanted.items():
        have = table.offsets[layer]
        if not isinstance(by_request, Mapping) or by_request.keys() != have.keys():
            return False
        for request, entries in by_request.items():
            if not isinstance(entries, Sequence) or len(entries) != len(have[request]):
                return False
            for wanted_entry, offset in zip(entries, have[request], strict=True):
                try:
                    named = entry(str(wanted_entry))
                except RefError:
                    return False
                if named is None:
                    if offset != BAD:
                        return False
                    continue
                slot = _slot(table, layer, offset)
                if offset == BAD or slot is None or slot != _mapped(side, named[0], groups.get(layer, ""), named[1]):
                    return False
    return True


def _yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(one)}" for key, one in value.items()) + "}"
    return "null" if value is None else text(value)
