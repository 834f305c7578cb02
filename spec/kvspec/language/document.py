"""The head of a scenario document: everything but its steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from kvspec.config import ManagerConfig, Model
from kvspec.scenario import Texts


class Document(Model):
    """A scenario: what to build, what to do step by step, and what must hold after each step."""

    kvspec: Annotated[Literal[1], Field(description="Version of the language.")]
    name: Annotated[str, Field(min_length=1, description="What the scenario shows.")]
    rules: Annotated[Texts, Field(description="The rules that it covers, such as R4.2.")] = ()
    tags: Annotated[Texts, Field(description="Words to select it by.")] = ()
    requires: Annotated[Texts, Field(description="Capabilities without which a system skips it.")] = ()
    manager: Annotated[ManagerConfig, Field(description="The manager to build.")]
    streams: Annotated[Texts, Field(description="Streams by name; `exec` always exists.")] = ()
    steps: Annotated[tuple[Any, ...], Field(strict=False, min_length=1, description="What to do, in order.")]
