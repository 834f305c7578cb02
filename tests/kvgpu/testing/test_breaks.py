"""The named breaks of kvgpu: none is forgotten, and the scenario that docs/mutants.md names for each notices it."""

from __future__ import annotations

import ast
import re
from functools import cache, partial
from pathlib import Path
from unittest import mock

import pytest

from kvgpu.adapter.options import make_device
from kvgpu.device.api import Site
from kvgpu.device.sim import SimDevice
from kvgpu.testing.mutants import SITES, UNREACHED, mutants
from kvgpu.testing.patches import PACKAGE, wait_dropped
from kvgpu.testing.waits import WAITS
from kvspec.audit.mutants import Mutant, check_alone, compare_broken, find_mutants
from kvspec.cli.mutants import OPTIONS
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system, setup_for
from kvspec.language import load_file, load_paths
from kvspec.scenario import Scenario
from kvspec.suite import scenario_files, suite_path

TABLE = Path(__file__).parents[3] / "docs" / "mutants.md"
GUARDS = 25
"""So many breaks that are no fences there are at least."""
KNOWN = {mutant.name: mutant for mutant in mutants()}


@cache
def _table() -> dict[str, tuple[str, str]]:
    """By break, the file and the scenario."""
    found = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 7 and cells[0] not in ("break", "---"):
            found[cells[0]] = (cells[3], cells[4])
    return found


@cache
def _named(name: str) -> Named:
    return Named(name, find_system(name))


@cache
def _load(path: str) -> dict[str, Scenario]:
    return {scenario.name: scenario for scenario in load_file(TABLE.parents[1] / path)}


@cache
def _sites() -> frozenset[Site]:
    """Every site that a run of the suite sees, without looking at anything between the steps."""
    from kvgpu.device import sites

    scenarios, problems = load_paths(scenario_files([suite_path()]))
    assert not problems
    # Other tests of this process have devices and sites of their own.
    with mock.patch.object(sites, "_seen", set()):
        for scenario in scenarios:
            system = _named("kvgpu").factory(setup_for(scenario, OPTIONS))
            for step in scenario.steps:
                system.apply(step.op)
            system.close()
        return sites.seen_sites()


def _noticed(mutant: Mutant, scenario: Scenario, **more: str) -> bool:
    options = {**OPTIONS, **mutant.options, **more}
    kvgpu, kvref = _named("kvgpu"), _named("kvref")
    alone = check_alone(mutant, scenario, kvgpu.factory, options) if mutant.kind == "fence" else None
    kill = alone or compare_broken(mutant, scenario, kvgpu, kvref, options)
    return kill is not None and kill.enough(mutant)


def test_the_breaks_are_announced_and_their_names_differ() -> None:
    assert [mutant.name for mutant in find_mutants("kvgpu")] == list(KNOWN)
    assert len(KNOWN) == len(mutants())
    assert sum(mutant.kind == "guard" for mutant in KNOWN.values()) >= GUARDS
    assert all(re.fullmatch(r"R\d+\.\d+", mutant.rule) for mutant in KNOWN.values())


def test_every_site_that_waits_or_records_is_a_break_and_every_such_break_is_seen() -> None:
    seen = {site.name for site in _sites() if site.kind in ("wait", "record")}
    assert sorted(seen) == sorted(SITES)


def test_every_site_in_the_source_is_seen_or_has_a_reason() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "testing" and "device" not in path.parts:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            found |= {text for text in texts if re.match(r"R\d+\.\d+ ", text)}
    seen = {site.name for site in _sites()}
    poisons = {text for text in found if "poison" in text}
    assert found - seen - poisons - _told_apart() == set(UNREACHED) - poisons
    assert not seen & set(UNREACHED)


def _told_apart() -> set[str]:
    """What tells waits apart that take the sites of what they wait for: texts, or constants of the package."""
    found: set[str] = set()
    constants: dict[str, str] = {}
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "testing":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                        constants[name] = text
                    case ast.keyword(arg="where", value=ast.Constant(value=str(text))):
                        found.add(text)
                    case ast.keyword(arg="where", value=ast.Name(id=name)):
                        names.add(name)
    return found | {constants[name] for name in names if name in constants}


def test_every_wait_without_a_name_of_its_own_is_a_break() -> None:
    broken = {patch.args[0] for _, _, patch in WAITS if isinstance(patch, partial) and patch.func is wait_dropped}
    assert _told_apart() == broken


def test_the_table_has_every_break() -> None:
    assert list(_table()) == list(KNOWN), "kvspec mutants --write docs/mutants.md"


@pytest.mark.parametrize("name", KNOWN)
def test_the_scenario_of_the_table_notices_the_break(name: str) -> None:
    path, scenario = _table()[name]
    assert scenario in _load(path), "renamed or gone: kvspec mutants --write docs/mutants.md"
    assert _noticed(KNOWN[name], _load(path)[scenario]), f"nothing notices {name!r}: kvspec mutants --only {name!r}"


def test_nothing_stays_broken() -> None:
    for name, (path, scenario) in _table().items():
        with KNOWN[name].broken():
            pass
        assert scenario in _load(path)
    seen = set(_table().values())
    for path, scenario in sorted(seen)[:20]:
        result = replay(_load(path)[scenario], _named("kvgpu"), _named("kvref"), OPTIONS)
        assert result.verdict is Verdict.PASSED, scenario


EARLY = "R7.6 staging buffer: its upload has run"


GATED = """
kvspec: 1
name: an upload is held up
rules: [R7.6]
manager:
  tokens_per_block: 2
  levels: [{kind: gpu, slots: 2}]
  layers: [{name: kv, buffers: [{role: key, bytes: 16}]}]
steps:
  - create: a
  - resume: a
  - resize: {request: a, capacity: 2}
  - batch: {name: rows, rows: 1, blocks: 1}
  - add: {batch: rows, request: a}
  - gate: {stream: exec, as: shut}
  - publish: rows
  - open: shut
"""


@pytest.mark.parametrize("poison", ["on", "off"])
def test_poison_alone_shows_a_staging_buffer_that_is_free_too_early(tmp_path: Path, poison: str) -> None:
    """The ordering check is off, and nothing uses the buffer again: only with poison are the entries on the device wrong."""
    path = tmp_path / "gated.yaml"
    path.write_text(GATED)
    options = {"device": "sim", "check": "off", "poison": poison, "mutant": EARLY}
    result = replay(load_file(path)[0], _named("kvgpu"), _named("kvref"), options)
    found = {one.identity for one in (result.failure.differences if result.failure else ())}
    assert "device entries" in found if poison == "on" else not found


def test_poison_is_on_unless_it_is_switched_off() -> None:
    assert "poison" not in OPTIONS
    for options, poison in (({}, True), ({"poison": "off"}, False)):
        device = make_device({"device": "sim", **options})
        assert isinstance(device, SimDevice) and device.options.poison is poison
        device.close()
