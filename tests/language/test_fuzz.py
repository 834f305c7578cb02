"""Files that went wrong in every way: refused or accepted, never a traceback, never a hang."""

from __future__ import annotations

import copy
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kvspec.cli.main import app
from kvspec.harness.difference import Kind, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import find_system
from kvspec.language.loader import read_bytes
from kvspec.suite import scenario_files, suite_path

ROOT = Path(__file__).parents[2]
CHUNKS = 20
CHUNK = 50
SLOW = 5.0
"""Seconds that no file of this size may take, also on a busy machine."""

_PLAIN_WORDS = """
~ null true no - '' " ' [] {} [ ] { } : , # | > % @ ` &a *a !!int !!python/name:os.system !x ? --- ... 0x1F 1e999 .nan -1 1.0
99999999999999999999 2026-01-01 12:30 a.b.c.d gpu expect: returns: create
"""
WORDS = [*_PLAIN_WORDS.split(), "<<: *a", "? x", "\t", "\u00e9", "\u2028", "\0", "\x1b"]


def sources() -> list[str]:
    """Documents to start from: those of the suite, and the example of the language page."""
    page = (ROOT / "docs" / "scenario-language.md").read_text()
    found = [page.split("```yaml\n")[1].split("```")[0]]
    for path in scenario_files([suite_path()]):
        found.extend(part for part in path.read_text().split("\n---\n") if "kvspec:" in part)
    return found


def flip_bytes(text: str, rng: random.Random) -> bytes:
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def insert_words(text: str, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        where = rng.randrange(len(text))
        text = text[:where] + rng.choice(WORDS) + text[where + rng.randint(0, 5) :]
    return text.encode()


def move_lines(text: str, rng: random.Random) -> bytes:
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        line = lines.pop(rng.randrange(len(lines)))
        if rng.random() < 0.5:
            lines.insert(rng.randrange(len(lines) + 1), line)
    return "\n".join(lines).encode()


def change_values(text: str, rng: random.Random) -> bytes:
    document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for _ in range(rng.randint(1, 3)):
        spots = list(containers(document))
        container = rng.choice(spots)
        if not container:
            continue
        key = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1:
                container[key] = copy.deepcopy(rng.choice(spots))
            case 2:
                container[key] = rng.choice([None, True, -1, 1.5, "", "a.b", [], {}, 10**30, "gpu", [[]], 2**62])
            case _:
                if isinstance(container, dict):
                    container[f"{key}"[:-1]] = container.pop(key)
                else:
                    container.insert(key, copy.deepcopy(container[key]))
    return yaml.safe_dump(document).encode()


def containers(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for child in value.values() if isinstance(value, dict) else value:
            yield from containers(child)


MUTATIONS = [flip_bytes, insert_words, move_lines, change_values]
SOURCES = sources()


def mutants(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.choice(MUTATIONS)(source, rng) for source in rng.sample(SOURCES, CHUNK)]  # names of scenarios differ


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_mutated_files(seed: int, tmp_path: Path) -> None:
    refused = 0
    files = []
    for number, data in enumerate(mutants(seed)):
        begun = time.monotonic()
        path = tmp_path / f"{number}.yaml"
        loaded = read_bytes(path, data)
        assert time.monotonic() - begun < SLOW, data
        refused += bool(loaded.problems)
        for problem in loaded.problems:
            text = str(problem)
            assert "\n" not in text, "a problem is one line"
            assert "should be" not in text and "pydantic" not in text and "validation error" not in text, text
            lines = data.count(b"\n") + data.count(b"\r") + 2
            assert 1 <= problem.position.line <= lines + data.count("\u2028".encode()) + data.count("\x85".encode()), text
            assert problem.position.column >= 1
        path.write_bytes(data)
        files.append(str(path))
    assert 5 < refused <= CHUNK, "the mutations break many files"
    result = CliRunner().invoke(app, ["check", *files])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.output.splitlines()[-1].endswith(f"in {refused} of {CHUNK} files")


@pytest.mark.parametrize("half", range(2))
def test_mutated_files_that_are_right_run(half: int) -> None:
    """They pass or fail, and say why; no system lets an exception out, and no two systems differ."""
    reference, implementation = (Named(name, find_system(name)) for name in ("kvref", "kvgpu"))
    seeds = range(half, CHUNKS, 2)
    accepted = [data for seed in seeds for data in mutants(seed) if not read_bytes(Path("x"), data).problems]
    assert len(accepted) > CHUNKS / 2, "the mutations are not all gross"
    verdicts = set()
    for data in accepted:
        for scenario in read_bytes(Path("x"), data).scenarios:
            result = replay(scenario, implementation, reference)
            verdicts.add(result.verdict)
            if result.failure is not None:
                kinds = {difference.kind for difference in result.failure.differences}
                assert kinds <= {Kind.OUTCOME, Kind.EXPECTATION, Kind.FAULT}, (data.decode(), result.failure.differences)
    assert verdicts >= {Verdict.PASSED, Verdict.FAILED}
