"""The JSON Schemas of the protocol and of vectors, generated from their models (`kvspec schema --protocol`, `--vectors`)."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kvspec.ops import VERBS
from kvspec.wire.messages import ANSWERS, INSTEAD, MESSAGES, VERSION

_REF = "#/$defs/{model}"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def protocol_schema() -> dict[str, Any]:
    """The schema of a line: a message, or an answer. ``$defs`` has each by its name, and the arguments of each verb."""
    messages, answers = list(MESSAGES.values()), [*ANSWERS.values(), *INSTEAD.values()]
    definitions = definitions_of([*messages, *answers, *VERBS.values()])
    for model in messages:
        definition = definitions[model.__name__]
        definition["required"] = list(definition["properties"])  # every key is always sent
        del definition["additionalProperties"]
    for name in ("ApplyMessage", "WrittenOperation"):
        with_arguments(definitions[name])
    return {
        "$schema": DRAFT,
        "title": f"a line of the kvspec protocol, version {VERSION}",
        "anyOf": [{"$ref": "#/$defs/Message"}, {"$ref": "#/$defs/Answer"}],
        "$defs": {
            "Message": {
                "description": "A line to a system. It passes over keys that it does not know.",
                "oneOf": [_ref(one) for one in messages],
            },
            "Answer": {"description": "A line of a system.", "anyOf": [_ref(one) for one in answers]},
            **definitions,
        },
    }


def protocol_text() -> str:
    """The schema as it is printed and kept in ``docs/protocol.schema.json``."""
    return json.dumps(protocol_schema(), indent=2) + "\n"


def vectors_schema() -> dict[str, Any]:
    """The schema of a file of vectors."""
    from kvspec.wire.vectors import VectorFile

    definitions = definitions_of([VectorFile, *VERBS.values()])
    for name in ("VectorFile", "VectorScenario", "Vector"):
        definitions[name]["required"] = list(definitions[name]["properties"])  # nothing is left out
    with_arguments(definitions["Vector"])
    file = definitions.pop("VectorFile")
    return {"$schema": DRAFT, "title": "kvspec vectors", **file, "$defs": definitions}


def vectors_text() -> str:
    """The schema as it is printed and kept in ``docs/vectors.schema.json``."""
    return json.dumps(vectors_schema(), indent=2) + "\n"


def definitions_of(models: list[type[BaseModel]]) -> dict[str, Any]:
    """The definitions of models and of whatever is in them, in the order of their names."""
    _, generated = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    found: dict[str, Any] = _tidy(generated["$defs"])
    return dict(sorted(found.items()))


def with_arguments(definition: dict[str, Any]) -> None:
    """Say of something with ``verb`` and ``arguments`` which arguments each verb has."""
    definition["properties"]["verb"]["enum"] = list(VERBS)
    definition["allOf"] = [
        {"if": {"properties": {"verb": {"const": verb}}}, "then": {"properties": {"arguments": _ref(model)}}}
        for verb, model in VERBS.items()
    ]


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _tidy(schema: Any) -> Any:
    """Without titles that are made of names, and in one kind of quotes."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    if isinstance(text := tidy.get("description"), str):
        tidy["description"] = text.replace("``", "`")
    return tidy
