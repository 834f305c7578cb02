"""Putting a cache manager of one's own under the suite: what makes an adapter short.

Write a class with one method per verb that the manager can do, named like the verb and taking those of the verb's
arguments that it understands, and ``observe``, which returns `Facts`; decorate it with `adapter`:

>>> from kvspec.adapter import Facts, adapter
>>> from kvspec.errors import ErrorKind
>>> from kvspec.system import Setup
>>> @adapter(errors={KeyError: ErrorKind.OUT_OF_RANGE}, unobserved={"versions"})
... class Mine:
...     def __init__(self, setup: Setup) -> None:
...         self.open = set()
...     def create(self, request: str) -> int:
...         self.open.add(request)
...         return 0
...     def observe(self) -> Facts:
...         return Facts(requests={}, free={"gpu": 4})
>>> sorted(Mine.capabilities)
['create']

What the result is, is a `kvspec.system.System` like any other; a manager that this does not fit implements that protocol
by hand. `docs/adapter.md` walks through an example.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from kvspec.config import ManagerConfig
from kvspec.errors import ErrorKind
from kvspec.facts import AdapterError as AdapterError
from kvspec.facts import Batch as Batch
from kvspec.facts import Facts as Facts
from kvspec.facts import Page as Page
from kvspec.facts import Request as Request
from kvspec.facts import Tables as Tables
from kvspec.facts import observation as observation
from kvspec.harness.unobserved import checked_aspects
from kvspec.nearest import did_you_mean, nearest
from kvspec.observation import Observation
from kvspec.ops import VERBS, Operation
from kvspec.policies import USUAL, Offer, checked_offer
from kvspec.scenario import Scenario
from kvspec.system import DeviceLimit, Outcome, Setup, System, Unsupported, Value


class Adapted(Protocol):
    """What `adapter` decorates: a class with methods named like verbs, and this one; ``tear_down()`` is optional."""

    def observe(self) -> Facts:
        """What the manager shows now; changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Adapter:
    """A factory of systems around a class with a method per verb."""

    build: Callable[[Setup], Adapted]
    name: str
    arguments: Mapping[str, frozenset[str]]
    errors: Mapping[type[Exception], ErrorKind]
    capabilities: frozenset[str]
    unobserved: frozenset[str]
    unfit: Callable[[ManagerConfig], Iterable[str]] | None = None
    policies: Offer = field(default_factory=lambda: USUAL)

    @property
    def raises(self) -> frozenset[ErrorKind]:
        """The kinds of errors that it can tell: those that its exceptions stand for."""
        return frozenset(self.errors.values())

    def __call__(self, setup: Setup) -> System:
        """Build a system of the class for one scenario."""
        return _Driven(self, self.build(setup), setup)

    def lacks(self, scenario: Scenario) -> tuple[str, ...]:
        """What a scenario needs beyond verbs: arguments that no method takes, and managers that do not fit."""
        return (*not_taken(scenario, self.arguments), *(self.unfit(scenario.manager) if self.unfit is not None else ()))


def not_taken(scenario: Scenario, arguments: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The arguments that a scenario gives and a system does not take: ``arguments``, by verb; one that is left out takes all."""
    found: dict[str, None] = {}
    for step in scenario.steps:
        taken = arguments.get(step.op.verb)
        for name, model in type(step.op).model_fields.items():
            if taken is not None and name not in taken and getattr(step.op, name) != model.default:
                found[f"{name.rstrip('_')} of {step.op.verb}"] = None
    return tuple(found)


def adapter(
    *,
    errors: Mapping[type[Exception], ErrorKind],
    unobserved: Iterable[str] = (),
    features: Iterable[str] = (),
    unfit: Callable[[ManagerConfig], Iterable[str]] | None = None,
    policies: Mapping[str, Any] = USUAL,
) -> Callable[[Callable[[Setup], Adapted]], Adapter]:
    """Make a class with a method per verb a system.

    :param errors: what the manager raises, and which kind of error each is; the first that fits. Any other exception is
        reported as one that the system let out. A scenario that means an error of a kind which is not here is skipped.
    :param unobserved: what the manager cannot show; the rest is compared, and summaries say what was not.
    :param features: capabilities besides the verbs, such as ``async``.
    :param unfit: for a configuration, what about it the manager cannot do, a short text each; such scenarios are skipped.
    :param policies: where the manager does otherwise than this project's rules, and is not wrong (`kvspec.policies`): by name its
        value, such as ``{"match": "block"}``, or several if the ``Setup`` may choose. The reference then does the same.
    :raises PolicyError: a policy or a value that there is not.
    :raises AdapterError: there is no ``observe``; a method is named almost like a verb; a method takes an argument that its verb
        does not have, or lacks one that it needs.
    """

    def decorate(build: Callable[[Setup], Adapted]) -> Adapter:
        _check_names(build)
        arguments = {verb: _arguments(build, verb) for verb in VERBS if callable(getattr(build, verb, None))}
        keys = {"keys"} if any("key" in taken for taken in arguments.values()) else ()
        able = frozenset(arguments).union(features, keys)
        name = getattr(build, "__name__", "system")
        return Adapter(build, name, arguments, dict(errors), able, checked_aspects(unobserved), unfit, checked_offer(policies))

    return decorate


OTHERS = ("observe", "tear_down")
"""What an adapter's methods are called that are no verbs."""


def _check_names(build: object) -> None:
    """Raise `AdapterError` for a class without `observe`, or with a method whose name is almost that of a verb."""
    if not inspect.isclass(build):
        return  # a function that builds one: what that is, is not known yet
    title = build.__name__
    public = [name for name in dir(build) if not name.startswith("_") and callable(getattr(build, name, None))]
    for name in public:
        near = nearest(name, [*VERBS, *OTHERS], cutoff=0.8)
        if near and name not in (*VERBS, *OTHERS):
            raise AdapterError(
                f"{title}.{name}: there is no verb {name!r}. Did you mean {near!r}? A helper's name begins with an underscore"
            )
    if "observe" not in public:
        raise AdapterError(f"{title} has no method observe: expected one that takes nothing and returns Facts")


def _arguments(build: object, verb: str) -> frozenset[str]:
    """The arguments of a verb that a method takes."""
    fields = VERBS[verb].model_fields
    title = f"{getattr(build, '__name__', 'system')}.{verb}"
    taken = [name for name in inspect.signature(getattr(build, verb)).parameters if name != "self"]
    for name in taken:
        if name not in fields:
            there = ", ".join(fields) or "none"
            hint = did_you_mean(name, fields)
            raise AdapterError(f"{title} takes {name!r}, which the verb does not have.{hint} It has: {there}")
    missing = [name for name, model in fields.items() if model.is_required() and name not in taken]
    if missing:
        raise AdapterError(f"{title} must take {', '.join(missing)}, which every use of the verb gives")
    return frozenset(taken)


class _Driven:
    """The `System` around an adapted class."""

    def __init__(self, adapter: Adapter, inner: Adapted, setup: Setup) -> None:
        self.capabilities = adapter.capabilities
        self.device = str(getattr(inner, "device", "unknown"))
        self._adapter = adapter
        self._inner = inner
        self._setup = setup

    def apply(self, op: Operation) -> Outcome:
        """Call the method of the verb; exceptions of known kinds are outcomes."""
        taken = self._adapter.arguments.get(op.verb)
        if taken is None:
            raise AdapterError(f"{self._adapter.name} has no method {op.verb}: a scenario that needs it should have been skipped")
        try:
            value = getattr(self._inner, op.verb)(**{name: getattr(op, name) for name in taken})
        except (DeviceLimit, Unsupported):
            raise
        except Exception as error:
            for kind, meant in self._adapter.errors.items():
                if isinstance(error, kind):
                    return Outcome.failed(meant, " ".join(map(str, error.args)) or type(error).__name__)
            raise
        return Outcome(plain(value))

    def observe(self) -> Observation:
        """The facts as an observation."""
        return observation(self._setup, self._inner.observe(), self._adapter.unobserved)

    def close(self) -> None:
        """Tear down, if the class wants to."""
        tear_down = getattr(self._inner, "tear_down", None)
        if tear_down is not None:
            tear_down()


def plain(value: Any) -> Value:
    """What a method returned as a plain value: numpy scalars and arrays as Python's own, lists as tuples."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return cast(Value, tuple(plain(one) for one in value))
    return cast(Value, value)
