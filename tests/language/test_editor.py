"""The schema in an editor: what ``yaml-language-server`` completes, shows and complains of, spoken to over stdio."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvspec.language.schema import json_schema, schema_text
from kvspec.ops import VERBS
from kvspec.words.expectations import EXPECTATIONS

SERVER = os.environ.get("YAML_LANGUAGE_SERVER") or shutil.which("yaml-language-server")
needs_server = pytest.mark.skipif(
    SERVER is None, reason="yaml-language-server is not there: npm install --global yaml-language-server"
)
TEXT = """\
# yaml-language-server: $schema={schema}
kvspec: 1
name: in an editor
manager:
  tokens_per_block: 4
  levels: [{{kind: gpu, slots: 4}}]
  layers: [{{name: main, buffers: [{{role: key, bytes: 64}}]}}]
steps:
  - create: chat
{rest}"""


class Editor:
    """One document open in an editor that has started the server."""

    def __init__(self, path: Path) -> None:
        assert SERVER is not None
        self.process = subprocess.Popen(
            [SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.uri = path.as_uri()
        self.number = 0
        self.notes: list[dict[str, Any]] = []
        self.ask("initialize", processId=os.getpid(), rootUri=path.parent.as_uri(), capabilities={"textDocument": {"hover": {}}})
        self.tell("initialized")
        settings = {"yaml": {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}}
        self.tell("workspace/didChangeConfiguration", settings=settings)

    def open(self, text: str) -> None:
        self.tell("textDocument/didOpen", textDocument={"uri": self.uri, "languageId": "yaml", "version": 1, "text": text})

    def tell(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            message = self.receive()
            if message.get("id") == self.number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def at(self, line: int, column: int) -> dict[str, Any]:
        return {"textDocument": {"uri": self.uri}, "position": {"line": line, "character": column}}

    def problems(self) -> list[tuple[int, int, str]]:
        """Line and column, from 0, and text of what is wrong."""
        while True:
            for note in self.notes:
                if note["params"]["uri"] == self.uri:
                    found = [(one["range"]["start"], one["message"]) for one in note["params"]["diagnostics"]]
                    return [(start["line"], start["character"], text) for start, text in found]
            self.receive()

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length, "the server has ended"
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        if "id" in message and "method" in message:  # it asks: for settings, or to register something
            items = message.get("params", {}).get("items", [])
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": [None for _ in items] if items else None})
        elif message.get("method") == "textDocument/publishDiagnostics":
            self.notes.append(message)
        return message

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    one = Editor(tmp_path / "scenario.yaml")
    yield one
    one.close()


def document(tmp_path: Path, rest: str) -> str:
    (tmp_path / "kvspec.schema.json").write_text(schema_text())
    return TEXT.format(schema=tmp_path / "kvspec.schema.json", rest=rest)


def completed(editor: Editor, line: int, column: int) -> dict[str, Any]:
    result = editor.ask("textDocument/completion", **editor.at(line, column))
    return {item["label"]: item for item in (result["items"] if isinstance(result, dict) else result)}


@needs_server
@pytest.mark.parametrize(
    ("rest", "line", "column"),
    [("  - resize: {request: chat, c}\n", 9, 29), ("  - resize:\n      request: chat\n      \n", 11, 6)],
)
def test_arguments_are_completed_with_their_meaning(editor: Editor, tmp_path: Path, rest: str, line: int, column: int) -> None:
    editor.open(document(tmp_path, rest))
    found = completed(editor, line, column)
    assert set(found) == {"capacity", "history"}
    assert "How many tokens its blocks must hold" in json.dumps(found["capacity"])


@needs_server
def test_verbs_are_completed(editor: Editor, tmp_path: Path) -> None:
    editor.open(document(tmp_path, "  - \n"))
    assert {"resume", "resize", "enter_decode", "publish"} <= set(completed(editor, 9, 4))


@needs_server
def test_expectations_are_completed(editor: Editor, tmp_path: Path) -> None:
    editor.open(document(tmp_path, "  - resume: chat\n    expect:\n      \n"))
    found = completed(editor, 11, 6)
    assert set(EXPECTATIONS) <= set(found)
    assert "Example: eligible: {chat.main: 2}" in json.dumps(found["eligible"])


@needs_server
def test_only_what_the_verb_returns_is_completed(editor: Editor, tmp_path: Path) -> None:
    editor.open(document(tmp_path, "  - resume: chat\n    returns: \n"))
    assert set(completed(editor, 10, len("    returns: "))) == {"true", "false"}


@needs_server
def test_hover_says_what_a_verb_takes_returns_and_raises(editor: Editor, tmp_path: Path) -> None:
    editor.open(document(tmp_path, "  - resume: chat\n    expect: {eligible: {chat.main: 0}}\n"))
    said = json.dumps(editor.ask("textDocument/hover", **editor.at(9, 6)))
    for text in (
        "Make a suspended request active",
        "Returns: true; false",
        "Raises",
        "no stream ever",
        "Example: resume: chat",
    ):
        assert text in said
    said = json.dumps(editor.ask("textDocument/hover", **editor.at(10, 15)))
    assert "How many leading blocks of history are on the host" in said


@needs_server
@pytest.mark.parametrize(
    ("rest", "line", "column", "says"),
    [
        ("  - resume: chat\n    returns: 3\n", 10, 13, "boolean"),
        ("  - close: chat\n    returns: true\n", 10, 13, "null"),
        ("  - resize: {request: chat, capcity: 8}\n", 9, 28, "capcity"),
        ("  - resume: chat\n    raises: bad\n", 10, 12, "out_of_pages"),
        ("  - resume: chat\n    expect: {levels: {chat: [gpus]}}\n", 10, 29, "gpu"),
    ],
)
def test_one_problem_at_its_place(editor: Editor, tmp_path: Path, rest: str, line: int, column: int, says: str) -> None:
    editor.open(document(tmp_path, rest))
    (problem,) = editor.problems()
    assert problem[:2] == (line, column), problem
    assert says in problem[2]


@needs_server
def test_nothing_is_wrong_with_the_readme_s_kind_of_scenario(editor: Editor, tmp_path: Path) -> None:
    editor.open(
        document(
            tmp_path, "  - resume: chat\n    returns: true\n  - sync\n  - close: chat\n    expect: {status: {chat: closed}}\n"
        )
    )
    assert editor.problems() == []


def test_every_property_has_a_text() -> None:
    found: list[str] = []

    def walk(schema: Any, path: str) -> None:
        if isinstance(schema, list):
            for part in schema:
                walk(part, path)
        elif isinstance(schema, dict):
            for key, value in schema.get("properties", {}).items():
                # What follows an `if` says more of a property that has a text already.
                if not (isinstance(value, dict) and value.get("description")):
                    found.append(f"{path}.{key}")
            for key, value in schema.items():
                walk(value, f"{path}/{key}")

    walk(json_schema(), "")
    assert found == []


def test_the_texts_are_plain() -> None:
    texts = json.dumps(json_schema())
    assert "``" not in texts
    for verb in VERBS:
        assert f"Example: {verb}" in texts
