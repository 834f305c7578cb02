"""One run of a scenario: the manager and everything around it that operations need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kvgpu.adapter.fetches import Fetcher
from kvgpu.adapter.names import Names
from kvgpu.adapter.order import Gates, StepMarks
from kvgpu.adapter.payloads import Payloads
from kvgpu.adapter.reads import Reader
from kvgpu.device.api import Device
from kvgpu.manager import Manager
from kvgpu.operations.inspection import PageInfo, SeenInfos
from kvspec.observation import Order, PageView
from kvspec.ops import Operation
from kvspec.system import Value

SeenPage: TypeAlias = tuple[tuple[PageInfo, bytes | None, Order], PageView]
"""A page as it was seen last, all that is read of it, and its view: the same one as long as it reads the same."""

OrderValue: TypeAlias = tuple[frozenset[str], frozenset[tuple[str, int]] | None]


@dataclass(frozen=True, slots=True)
class Run:
    """What a handler of operations gets. ``infos``, ``seen``: what was seen last of every page, without its bytes and with them,
    by its number. ``orders``: the orders that were shown last, each the same object as long as it is the same order.
    """

    manager: Manager
    device: Device
    names: Names
    gates: Gates
    marks: StepMarks
    payloads: Payloads
    reader: Reader
    fetcher: Fetcher
    infos: SeenInfos = field(default_factory=dict)
    seen: dict[int, SeenPage] = field(default_factory=dict)
    orders: dict[OrderValue, Order] = field(default_factory=dict)


Handler: TypeAlias = Callable[[Run, Any], Value]
"""Carries out one operation of the class that it is registered for. Raises the errors of ``kvgpu.errors`` as they come."""
Handlers: TypeAlias = Mapping[type[Operation], Handler]
