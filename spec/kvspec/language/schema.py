"""The JSON Schema of a scenario document, generated from the models."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from kvspec.config import LevelKind, Model
from kvspec.errors import ErrorKind
from kvspec.language.document import Document
from kvspec.language.steps import RETURNS
from kvspec.ops import VERBS, Operation
from kvspec.scenario import Expect, ManagerStatsExpect, StatsExpect

_REF = "#/$defs/{model}"
_LEVELS = [kind.value for kind in LevelKind]


def json_schema() -> dict[str, Any]:
    """The schema, JSON Schema 2020-12. It says what is well formed; names and references are checked by the loader."""
    models: list[type[Model]] = [Document, Expect, StatsExpect, ManagerStatsExpect, *VERBS.values()]
    _, generated = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    definitions: dict[str, Any] = _tidy(generated["$defs"])
    document = definitions.pop("Document")
    document["properties"]["steps"]["items"] = {"$ref": "#/$defs/Step"}
    expect = definitions["Expect"]["properties"]
    expect["tree"] = {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["tokens"],
            "properties": {"tokens": {"type": "array", "items": {"type": "integer"}}},
            "additionalProperties": {"enum": [*_LEVELS, "absent"]},
        },
    }
    expect["stats"] = _stats()
    definitions["Step"] = _step()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kvspec scenario",
        **document,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """The schema as it is printed and kept in ``docs/kvspec.schema.json``."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _step() -> dict[str, Any]:
    simple = [verb for verb, model in VERBS.items() if _needs_nothing(model)]
    properties: dict[str, Any] = {verb: _verb(model) for verb, model in VERBS.items()}
    properties["returns"] = {"description": "What the verb returns."}
    kinds = [kind.value for kind in ErrorKind]
    properties["raises"] = {"description": "The kind of error that is meant (rules, section 9).", "enum": kinds}
    properties["expect"] = {"$ref": "#/$defs/Expect"}
    properties["note"] = {"description": "A word to the reader.", "type": "string"}
    mapping = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": [verb], "properties": {"returns": _returns(verb)}} for verb in VERBS],
        "not": {"required": ["returns", "raises"]},
    }
    return {
        "description": "A step: exactly one verb, and what must come of it.",
        "anyOf": [mapping, {"enum": simple}],
    }


def _verb(model: type[Operation]) -> dict[str, Any]:
    forms: list[dict[str, Any]] = [{"$ref": f"#/$defs/{model.__name__}"}]
    if model.bare is not None:
        forms.append({"type": "string"})
    if _needs_nothing(model):
        forms.append({"type": "null"})
    return {"description": " ".join((model.__doc__ or "").split()), "anyOf": forms}


def _needs_nothing(model: type[Operation]) -> bool:
    return not any(field.is_required() for field in model.model_fields.values())


def _returns(verb: str) -> dict[str, Any]:
    if verb not in RETURNS:
        return {"type": "null"}
    if verb == "stats":
        return _stats()
    schema: dict[str, Any] = _tidy(TypeAdapter(RETURNS[verb]).json_schema())
    return schema


def _stats() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"manager": {"$ref": "#/$defs/ManagerStatsExpect"}},
        "additionalProperties": {"$ref": "#/$defs/StatsExpect"},
    }


def _tidy(schema: Any) -> Any:
    """Without what says nothing to an editor: titles made of names, defaults, and the marker of a key left out."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema if part != {"const": "unset", "type": "string"}]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    if tidy.get("default", 0) in (None, "unset", "default"):
        del tidy["default"]
    return tidy
