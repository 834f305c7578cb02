"""``kvspec new``: a scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvspec.audit.emit import inline
from kvspec.cli.refusing import must_be_writable, refuse

STARTER = """\
kvspec: 1
# What the scenario shows, in a sentence; no other scenario has this name.
name: {name}
# The rules that it covers: `kvspec rules` lists them, `kvspec explain R3.8` prints one.
rules: [R3.8, R4.1, R6.3]

manager:
  tokens_per_block: 4
  # Hottest first; slots are pages per pool group.
  levels: [{{kind: gpu, slots: 4}}, {{kind: host, slots: 4}}]
  # Layers alike form a group, named after the first of them. History of a sparse one may go to the host.
  layers:
    - {{name: main, buffers: [{{role: key, bytes: 4096, sparse: true}}]}}

# Each step is one verb; `kvspec explain words` lists all, `kvspec explain resize` says what one takes.
steps:
  - create: chat
  - resume: chat
    returns: true
  # Room for three blocks of four tokens; the first two are complete history.
  - resize: {{request: chat, capacity: 12, history: 8}}
    returns: true
  - enter_decode: chat
    returns: true
    note: complete history moves to the host, the block that is still written to stays
    # What must hold now, of both systems. Everything else is compared anyway.
    expect:
      levels: {{chat.main: [host, host, gpu]}}
      eligible: {{chat.main: 2}}
"""


def new(file: Annotated[Path, typer.Argument(help="The file to write. It must not exist yet.")]) -> None:
    """Write a small scenario with comments to start from. It passes as it is; change it to what you want to test."""
    if file.exists():
        refuse(f"{file} exists already: name another file")
    must_be_writable("new", file)
    name = " ".join(file.stem.replace("_", " ").replace("-", " ").split()) or "a first scenario"
    file.write_text(STARTER.format(name=inline(name)), encoding="utf-8")
    typer.echo(f"{file}: written. Try: kvspec run {file}")
