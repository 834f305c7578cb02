"""``kvspec schema``: the JSON Schema of the language, and of what goes over the wire."""

from __future__ import annotations

from typing import Annotated

import typer

from kvspec.cli.refusing import refuse


def schema(
    protocol: Annotated[bool, typer.Option("--protocol", help="That of the lines of docs/protocol.md.")] = False,
    vectors: Annotated[bool, typer.Option("--vectors", help="That of the files of docs/vectors.md.")] = False,
) -> None:
    """Print the JSON Schema of a scenario, for editors."""
    if protocol and vectors:
        refuse("--protocol and --vectors are two schemas: ask for one")
    if protocol:
        from kvspec.wire.schema import protocol_text

        typer.echo(protocol_text(), nl=False)
        return
    if vectors:
        from kvspec.wire.schema import vectors_text

        typer.echo(vectors_text(), nl=False)
        return
    from kvspec.language.schema import schema_text

    typer.echo(schema_text(), nl=False)
