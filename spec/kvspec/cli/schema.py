"""``kvspec schema``: the JSON Schema of the language."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    from kvspec.language.schema import schema_text

    typer.echo(schema_text(), nl=False)
