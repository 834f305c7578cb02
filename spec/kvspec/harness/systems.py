"""Finding systems by name, and building them for a scenario."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeAlias, cast

from kvspec.errors import ErrorKind
from kvspec.harness.policies import lacking_policies, offer_of
from kvspec.harness.unobserved import NOTHING, AspectError, checked_aspects
from kvspec.nearest import did_you_mean, nearest
from kvspec.ops import VERBS
from kvspec.policies import PolicyError
from kvspec.scenario import Scenario
from kvspec.system import COMMAND, Setup, System

ENTRY_POINTS = "kvspec.systems"
"""The entry-point group in which systems announce themselves."""

command_folder: list[Path | None] = [None]
"""Where commands start; ``None``: where this process is."""

Factory: TypeAlias = Callable[[Setup], System]
"""What builds a system; its ``capabilities`` attribute says what the system can do."""


class SystemNotFound(LookupError):
    """No such system, or its module cannot be imported. ``str()`` of it says what there is and what to do."""


def find_system(name: str) -> Factory:
    """The factory of a system: by the name of an entry point in ``kvspec.systems``, as ``package.module:Class``, or as
    ``cmd:`` and a command that speaks the protocol of docs/protocol.md.

    :raises SystemNotFound: with the names there are, the nearest one, or why the import failed or the command does not start.
    """
    if name.startswith(COMMAND):
        return _command(name, command_folder[0])
    known = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    point = known.get(name)
    if point is None:
        if ":" not in name:
            raise SystemNotFound(_unknown(name, sorted(known)))
        point = EntryPoint(name, name, ENTRY_POINTS)
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # a system of the user's own is mostly in the folder where the user is
    module_name, _, attribute = point.value.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except ImportError as error:
        raise SystemNotFound(f"system {name!r}: cannot import {module_name}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's module does while it is imported, exit included
        raise SystemNotFound(f"system {name!r}: importing {module_name} raised {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SystemNotFound(f"system {name!r}: module {module_name} has no class {attribute!r}")
    if not isinstance(getattr(found, "capabilities", None), frozenset):
        raise SystemNotFound(f"system {name!r}: {point.value} has no class attribute 'capabilities' (a frozenset of text)")
    try:
        checked_aspects(getattr(found, "unobserved", NOTHING))
        offer_of(found)
    except (AspectError, PolicyError) as error:
        raise SystemNotFound(f"system {name!r}: {error}") from None
    return cast(Factory, found)


@lru_cache(maxsize=16)
def _command(name: str, folder: Path | None) -> Factory:
    from kvspec.wire.client import Command, CommandError  # nothing else needs processes

    try:
        return Command(name, folder)
    except CommandError as error:
        raise SystemNotFound(f"system {name!r}: {error}") from None


def capabilities(factory: Factory) -> frozenset[str]:
    """What the systems of a factory can do: verbs and named features."""
    return cast(frozenset[str], getattr(factory, "capabilities", frozenset()))


def unobserved_by(*factories: Factory) -> frozenset[str]:
    """What the systems of one of these factories cannot show: names of ``kvspec.harness.unobserved.ASPECTS``."""
    return checked_aspects(frozenset().union(*(getattr(factory, "unobserved", NOTHING) for factory in factories)))


def lacking(scenario: Scenario, factory: Factory) -> tuple[str, ...]:
    """What a scenario needs and the systems of a factory cannot do.

    Verbs, required capabilities, kinds of errors, policies, and what its ``lacks`` says. Raises whatever that raises,
    and ``TypeError`` if it says anything but texts.
    """
    able = capabilities(factory)
    verbs = sorted(f"verb {verb}" for verb in scenario.verbs - able)
    able_to_raise = getattr(factory, "raises", frozenset(ErrorKind))
    errors = sorted({f"raises {step.raises.value}" for step in scenario.steps if step.raises not in (None, *able_to_raise)})  # type: ignore[union-attr]
    own = getattr(factory, "lacks", None)
    more = () if own is None else tuple(own(scenario))
    for reason in more:
        if not isinstance(reason, str):
            raise TypeError(f"what a system lacks is said in texts, this is {reason!r}")
    wanted = set(scenario.requires)
    if scenario.has_keys and not any(reason.startswith(("key of ", "spans of ")) for reason in more):
        wanted.add("keys")  # of an argument that is not taken it was said already
    named = sorted(_capability(name, able - VERBS.keys()) for name in wanted - able)
    return (*verbs, *named, *errors, *lacking_policies(scenario, factory), *more)


def setup_for(scenario: Scenario, options: Mapping[str, str]) -> Setup:
    """What a system is built with for a scenario: its manager, ``exec`` and its streams, and the run's options."""
    streams = ("exec", *(name for name in scenario.streams if name != "exec"))
    return Setup(scenario.manager, streams, dict(options))


def device_of(system: System) -> str:
    """The device that a built system really works on: its attribute ``device``, or ``unknown``."""
    return str(getattr(system, "device", "unknown"))


def _capability(name: str, able: frozenset[str]) -> str:
    near = nearest(name, sorted(able))
    return f"capability {name}" + (f" (did you mean {near!r}?)" if near else "")


def _unknown(name: str, known: list[str]) -> str:
    there = ", ".join(known) if known else "none are installed"
    hint = did_you_mean(name, known)
    return f"no system is called {name!r}.{hint} There are: {there}; any other is named as package.module:Class, or cmd:COMMAND"
