"""How what is observed stands in JSON, where pydantic's own way is none: sets in order, and mappings whose keys are pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kvspec.config import Level

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Sorted:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = handler.generate_schema(list.__class_getitem__(get_args(source)[0]))
        serialization = core_schema.plain_serializer_function_ser_schema(sorted, return_schema=written)
        return {**handler(source), "serialization": serialization}


InOrder: TypeAlias = Annotated[frozenset[T], _Sorted()]
"""A set, written as a list in ascending order."""


def named(name: str) -> Any:
    """For a field that has another name in JSON than in Python."""
    return Field(alias=name)


@dataclass(frozen=True, slots=True)
class ByGroupAndBeam:
    """Of a mapping by (group, beam): written as ``{group: [beam 0, beam 1]}``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the written form, and the way to and from it."""
        beams = tuple.__class_getitem__((get_args(source)[1], ...))
        return _converted(handler.generate_schema(dict.__class_getitem__((str, beams))), _beams_apart, _beams_together)


@dataclass(frozen=True, slots=True)
class ByLevelAndGroup:
    """Of a mapping by (level, group): written as ``{level: {group: value}}``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the written form, and the way to and from it."""
        groups = dict.__class_getitem__((str, get_args(source)[1]))
        return _converted(handler.generate_schema(dict.__class_getitem__((Level, groups))), _groups_apart, _groups_together)


def _converted(written: CoreSchema, read: Any, write: Any) -> CoreSchema:
    serialization = core_schema.plain_serializer_function_ser_schema(write, return_schema=written)
    return core_schema.no_info_after_validator_function(read, written, serialization=serialization)


def _beams_apart(written: Mapping[str, tuple[T, ...]]) -> dict[tuple[str, int], T]:
    return {(group, beam): value for group, beams in written.items() for beam, value in enumerate(beams)}


def _beams_together(values: Mapping[tuple[str, int], T]) -> dict[str, tuple[T, ...]]:
    written: dict[str, list[T]] = {}
    for (group, beam), value in values.items():
        beams = written.setdefault(group, [])
        if beam != len(beams):
            raise ValueError(f"group {group}: beam {beam} stands where beam {len(beams)} was expected")
        beams.append(value)
    return {group: tuple(beams) for group, beams in written.items()}


def _groups_apart(written: Mapping[Level, Mapping[str, T]]) -> dict[tuple[Level, str], T]:
    return {(level, group): value for level, groups in written.items() for group, value in groups.items()}


def _groups_together(values: Mapping[tuple[Level, str], T]) -> dict[Level, dict[str, T]]:
    written: dict[Level, dict[str, T]] = {}
    for (level, group), value in values.items():
        written.setdefault(level, {})[group] = value
    return written
