"""The published JSON Schema says the same as the models, and every scenario satisfies it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kvspec.language.schema import json_schema, schema_text
from kvspec.ops import VERBS
from kvspec.scenario import Expect
from kvspec.suite import scenario_files, suite_path

ROOT = Path(__file__).parents[2]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())

BASE = """
kvspec: 1
name: base
manager: {tokens_per_block: 4, levels: [{kind: gpu, slots: 1}], layers: [{name: main, buffers: [{role: key, bytes: 64}]}]}
"""


def valid(steps: str) -> bool:
    return bool(VALIDATOR.is_valid(yaml.safe_load(BASE + "steps:\n" + steps)))


def test_copy_in_docs_is_equal() -> None:
    assert (ROOT / "docs" / "kvspec.schema.json").read_text() == schema_text(), "run: kvspec schema > docs/kvspec.schema.json"


def test_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text()))


def test_says_every_verb_and_expectation() -> None:
    schema = json_schema()
    mapping = schema["$defs"]["Step"]["else"]
    for verb in VERBS:
        assert mapping["properties"][verb]["description"], verb
    assert set(mapping["properties"]) == {*VERBS, "returns", "raises", "expect", "note"}
    assert set(schema["$defs"]["Expect"]["properties"]) == set(Expect.model_fields)


def documents() -> list[Any]:
    files = scenario_files([suite_path(), ROOT / "tests" / "corpora" / "valid_pass", ROOT / "tests" / "corpora" / "valid_fail"])
    assert files
    return files


@pytest.mark.parametrize("path", documents(), ids=str)
def test_scenarios_satisfy_it(path: Path) -> None:
    for document in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        error = next(VALIDATOR.iter_errors(document), None)
        assert error is None, f"{path}: {error.json_path}: {error.message}"


@pytest.mark.parametrize(
    "steps",
    [
        "  - clear_reusable\n",
        "  - sync:\n",
        "  - resume: a\n    returns: true\n",
        "  - resume: {request: a, stream: null}\n    raises: invalid_argument\n",
        "  - resize_batch: {batch: b, capacities: [1, null]}\n    returns: [true, null]\n",
        "  - stats: {reset: false}\n    returns: {main: {drop_pages: 0}, manager: {suspends: 1}}\n",
        "  - sync:\n    expect: {tree: [{tokens: [0], main: absent}], snapshot: {s: {row: null}}}\n",
    ],
)
def test_accepts(steps: str) -> None:
    assert valid(steps)


@pytest.mark.parametrize(
    "steps",
    [
        "  - resume\n",
        "  - resume:\n",
        "  - bind_row: a\n",
        "  - {resume: a, close: a}\n",
        "  - {note: only a note}\n",
        "  - resume: a\n    returns: 1\n",
        "  - close: a\n    returns: true\n",
        "  - resume: a\n    returns: true\n    raises: logic_error\n",
        "  - resume: a\n    raises: bad\n",
        "  - resize: {request: a, capcity: 1}\n",
        "  - sync:\n    expect: {levels: {a: [gpus]}}\n",
        "  - sync:\n    expect: {tree: [{main: gpu}]}\n",
        "  - sync:\n    expect: {stats: {manager: {drop_pages: 1}}}\n",
        "  - sync:\n    expect: {snapshot: {s: {row: unset}}}\n",
    ],
)
def test_refuses(steps: str) -> None:
    assert not valid(steps)
