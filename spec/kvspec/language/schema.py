"""The JSON Schema of a scenario document, generated from the models, with the texts of ``kvspec.words``."""

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
from kvspec.words.document import KEYS, STEP
from kvspec.words.expectations import EXPECTATIONS
from kvspec.words.lookup import expectation_text, key_text, verb_text
from kvspec.words.verbs import SCHEDULED, SPAN, argument

_REF = "#/$defs/{model}"
_LEVELS = [kind.value for kind in LevelKind]
_PARTS = {
    "MovedPages": "moved",
    "CopyCalls": "copy_calls",
    "SnapshotExpect": "snapshot",
    "StatsExpect": "stats",
    "ManagerStatsExpect": "stats",
    "StoredExpect": "events",
    "RemovedExpect": "events",
    "LevelExpect": "events",
    "ClearedExpect": "events",
    "BlockExpect": "would_evict",
}
"""The expectation that each mapping belongs to which stands inside one."""


def json_schema() -> dict[str, Any]:
    """The schema, JSON Schema 2020-12. It says what is well formed; names and references are checked by the loader."""
    models: list[type[Model]] = [Document, Expect, StatsExpect, ManagerStatsExpect, *VERBS.values()]
    _, generated = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    definitions: dict[str, Any] = _tidy(generated["$defs"])
    _describe(definitions)
    document = definitions.pop("Document")
    document["properties"]["steps"]["items"] = {"$ref": "#/$defs/Step"}
    expect = definitions["Expect"]["properties"]
    parts = EXPECTATIONS["tree"].parts
    expect["tree"] |= {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["tokens"],
            "properties": {
                "tokens": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "All tokens from the root to the end of the block.",
                },
                "key": {"type": "string", "description": parts["key"]},
                "spans": {"type": "array", "items": {"$ref": "#/$defs/Span"}, "description": parts["spans"]},
            },
            "additionalProperties": {"enum": [*_LEVELS, "absent"]},
        },
    }
    expect["stats"] |= _stats()
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


def _describe(definitions: dict[str, Any]) -> None:
    """Give every property its text, and every mapping that of its model in plain words."""
    verbs = {model.__name__: verb for verb, model in VERBS.items()}
    for name, definition in definitions.items():
        properties = definition.get("properties", {})
        if name in verbs:
            definition["description"] = verb_text(verbs[name])
            definition["title"] = f"{verbs[name]} with what it needs"  # an editor offers it so
        elif "description" in definition:
            definition["description"] = definition["description"].replace("``", "`").replace("\n", " ")
        for key, schema in properties.items():
            if name in KEYS:
                text = key_text(KEYS[name][key])
            elif name in verbs:
                text = argument(verbs[name], key)
            elif name == "Scheduled":
                text = SCHEDULED[key]
            elif name == "Span":
                text = SPAN[key]
            elif name == "Expect":
                text = expectation_text(key)
            else:
                text = EXPECTATIONS[_PARTS[name]].parts[key]
            schema["description"] = text
        for key, schema in properties.items():
            if "$ref" in schema:  # a description beside a reference is not everywhere shown
                properties[key] = {"description": schema.pop("description"), "allOf": [schema]}


def _step() -> dict[str, Any]:
    simple = [verb for verb, model in VERBS.items() if _needs_nothing(model)]
    properties: dict[str, Any] = {verb: _verb(verb, model) for verb, model in VERBS.items()}
    for key, word in STEP.items():
        properties[key] = {"description": key_text(word)}
    properties["raises"]["enum"] = [kind.value for kind in ErrorKind]
    properties["expect"]["allOf"] = [{"$ref": "#/$defs/Expect"}]
    properties["note"]["type"] = "string"
    mapping = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": [verb]} for verb in VERBS],
        # What a verb returns hangs on the verb alone, so that a wrong value is a problem of `returns` and of nothing else.
        "allOf": [{"if": {"required": [verb]}, "then": {"properties": {"returns": _returns(verb)}}} for verb in VERBS],
        "not": {"required": ["returns", "raises"]},
    }
    return {
        "description": "A step: exactly one verb, and what must come of it.",
        "if": {"type": "string"},
        "then": {"enum": simple},
        "else": mapping,
    }


def _verb(verb: str, model: type[Operation]) -> dict[str, Any]:
    forms: list[dict[str, Any]] = [{"$ref": f"#/$defs/{model.__name__}"}]
    if model.bare is not None:
        forms.append({"type": "string"})
    if _needs_nothing(model):
        forms.append({"type": "null"})
    return {"description": verb_text(verb), "anyOf": forms}


def _needs_nothing(model: type[Operation]) -> bool:
    return not any(field.is_required() for field in model.model_fields.values())


def _returns(verb: str) -> dict[str, Any]:
    if verb not in RETURNS:
        return {"type": "null", "description": f"{verb} returns nothing."}
    schema: dict[str, Any] = _stats() if verb == "stats" else _tidy(TypeAdapter(RETURNS[verb]).json_schema())
    return {**schema, "description": key_text(STEP["returns"])}


def _stats() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"manager": {"allOf": [{"$ref": "#/$defs/ManagerStatsExpect"}], "description": "Counters of the manager."}},
        "additionalProperties": {"$ref": "#/$defs/StatsExpect"},
    }


def _tidy(schema: Any) -> Any:
    """Without what says nothing to an editor: titles made of names, defaults, and the marker of a key left out."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema if part != {"const": "unset", "type": "string"}]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    if tidy.get("default", 0) in (None, "unset", "default", ""):
        del tidy["default"]
    return tidy
