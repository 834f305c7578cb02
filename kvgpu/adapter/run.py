"""One run of a scenario: the manager and everything around it that operations need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kvgpu.adapter.names import Names
from kvgpu.adapter.order import Gates, StepMarks
from kvgpu.adapter.payloads import Payloads
from kvgpu.adapter.reads import Reader
from kvgpu.device.api import Device
from kvgpu.manager import Manager
from kvspec.ops import Operation
from kvspec.system import Value


@dataclass(frozen=True, slots=True)
class Run:
    """What a handler of operations gets."""

    manager: Manager
    device: Device
    names: Names
    gates: Gates
    marks: StepMarks
    payloads: Payloads
    reader: Reader


Handler: TypeAlias = Callable[[Run, Any], Value]
"""Carries out one operation of the class that it is registered for. Raises the errors of ``kvgpu.errors`` as they come."""
Handlers: TypeAlias = Mapping[type[Operation], Handler]
