"""The conversation of docs/protocol.md is what is said, and the page names every message and key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import jsonschema
import pytest

from kvspec.wire.messages import ANSWERS, INSTEAD, MESSAGES
from kvspec.wire.schema import protocol_schema, protocol_text, vectors_text
from tests.paths import PATHS, ROOT

PAGE = (ROOT / "docs" / "protocol.md").read_text()
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"


def test_the_conversation_is_what_is_said() -> None:
    found = re.search(r"<!-- conversation -->\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    lines = found[1].splitlines()
    asked = [line.removeprefix("> ") for line in lines[::2]]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    command = [sys.executable, "-c", RUN, "serve", "--system", "tiny_adapter:TinySystem"]
    text, folder = "".join(f"{line}\n" for line in asked), ROOT / "docs" / "examples"
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=True, cwd=folder, env=environment
    )
    said = done.stdout.splitlines()
    assert len(said) == len(asked) == 8
    for shown, real in zip(lines[1::2], said, strict=True):
        head, cut, _ = shown.partition(" ...")
        assert real.startswith(head) if cut else real == shown


@pytest.mark.parametrize("name", ["protocol", "vectors"])
def test_the_schemas_in_docs_are_those_of_the_models(name: str) -> None:
    text = {"protocol": protocol_text, "vectors": vectors_text}[name]()
    assert (ROOT / "docs" / f"{name}.schema.json").read_text() == text, f"run: kvspec schema --{name} > docs/{name}.schema.json"


def test_the_facts_satisfy_the_schema() -> None:
    found = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    jsonschema.Draft202012Validator(protocol_schema()).validate(json.loads(found[1]))


def test_every_message_and_every_key_of_an_answer_is_named() -> None:
    names = set(MESSAGES) | {key for model in (*ANSWERS.values(), *INSTEAD.values()) for key in model.model_fields}
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []
