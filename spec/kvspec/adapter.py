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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from kvspec.config import Level, ManagerConfig, group_names
from kvspec.errors import ErrorKind
from kvspec.harness.unobserved import checked_aspects
from kvspec.nearest import did_you_mean
from kvspec.observation import (
    BAD,
    BatchView,
    Counters,
    Observation,
    Order,
    PageRef,
    PageStatus,
    PageView,
    Phase,
    PoolView,
    ReadView,
    RequestStatus,
    RequestView,
    SnapshotView,
    TableEntries,
    TreeBlockView,
    TreeEvent,
)
from kvspec.ops import VERBS, Operation
from kvspec.payload import Content
from kvspec.policies import USUAL, Offer, checked_offer
from kvspec.refs import group_shapes, level_group, pool_groups
from kvspec.scenario import Scenario
from kvspec.system import Outcome, Setup, System, Value
from kvspec.tokens import Token


class AdapterError(ValueError):
    """An adapter that cannot work, or facts that cannot be: ``str()`` of it says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where a block's page is. Two blocks of one group that are in one place share the page.

    ``level``: ``gpu``, ``host`` or ``disk``. ``owners``: the active requests that have it locked, ``None``: those that show
    it. ``payload``: its contents as bytes, pool by pool, largest first (R1.6). ``tokens``: the prefix that its tree block ends.
    ``ready``: the device work after which it is valid; left out with ``order`` unobserved.
    """

    level: str
    slot: int
    owners: frozenset[str] | None = None
    payload: Content | bytes | None = None
    tokens: tuple[Token, ...] | None = None
    ready: Order | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request, closed ones included.

    ``status``: ``suspended``, ``active`` or ``closed``. ``phase``: ``prefill`` or ``decode``. Lengths in tokens.
    ``blocks``: by layer group, per block its page, ``None`` for a block that has none; a suspended request lists the
    pages that it keeps. ``kept``: by layer group and block, the stale pages that it keeps until they may be committed (R3.7);
    ``blocks`` has ``None`` there. ``eligible``: by layer group, how many leading blocks may be fetched from the host (R6.3),
    as the manager itself counts them. ``version``, ``acknowledged``, ``dirty``: leave them out with ``versions`` unobserved.
    """

    status: str
    phase: str
    capacity: int
    history: int
    blocks: Mapping[str, Sequence[Page | None]] = field(default_factory=dict)
    eligible: Mapping[str, int] = field(default_factory=dict)
    committed: int = 0
    row: int | None = None
    batch: str | None = None
    version: int | None = None
    acknowledged: int | None = None
    dirty: bool | None = None
    kept: Mapping[str, Mapping[int, Page]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one layer group, of any kind that numpy can read: ``[rows, blocks]``, ``[rows]``, ``[rows, blocks]``.

    Numpy arrays given as device tables are the manager's own and no copies: their addresses must not change (R8.1).
    """

    page_table: Any
    num_blocks: Any
    page_level: Any = None


@dataclass(frozen=True, slots=True)
class Batch:
    """An open batch (section 8).

    ``rows``: the member of each row. ``dirty``: the rows that the next publication would write. ``published``: by layer group
    what was published last. ``device``: the same read back from the device, left out with ``device`` unobserved. ``upload``:
    what the last publication runs behind, left out with ``order`` unobserved.
    """

    rows: Sequence[str | None]
    blocks: int
    dirty: Iterable[int]
    published: Mapping[str, Tables]
    device: Mapping[str, Tables] | None = None
    staging: int | None = None
    upload: Order | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a manager shows after an operation.

    ``free``: free slots by ``level`` (one pool group) or ``level.group``, as scenarios write it. What is ``None`` has to
    be declared unobserved: ``counters`` and ``copy_calls``, ``events``, ``tree``, ``evictable`` (by ``level`` or
    ``level.group``, the slots in eviction order), and for ``order`` the ``streams`` and the ``fences`` of the free slots (keys
    as for ``free``). ``cached``: by layer group, the pages that only the prefix tree keeps, each with its ``tokens``; with
    ``tree`` unobserved they may be left out. ``labels`` and ``reads``: what `snapshot`, `read_page` and `read_table` keep.
    """

    requests: Mapping[str, Request]
    free: Mapping[str, int]
    batches: Mapping[str, Batch] = field(default_factory=dict)
    counters: Counters | None = None
    since_reset: Counters | None = None
    copy_calls: Mapping[str, int] | None = None
    events: Sequence[TreeEvent] | None = None
    tree: Sequence[tuple[Token, ...]] | None = None
    evictable: Mapping[str, Sequence[int]] | None = None
    cached: Mapping[str, Sequence[Page]] = field(default_factory=dict)
    labels: Mapping[str, SnapshotView] = field(default_factory=dict)
    reads: Mapping[str, ReadView] = field(default_factory=dict)
    streams: Mapping[str, Order] | None = None
    fences: Mapping[str, Sequence[Order]] | None = None
    faults: Sequence[str] = ()


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
        reported as one that the system let out.
    :param unobserved: what the manager cannot show; the rest is compared, and summaries say what was not.
    :param features: capabilities besides the verbs, such as ``async``.
    :param unfit: for a configuration, what about it the manager cannot do, a short text each; such scenarios are skipped.
    :param policies: where the manager does otherwise than this project's rules, and is not wrong (`kvspec.policies`): by name its
        value, such as ``{"match": "block"}``, or several if the ``Setup`` may choose. The reference then does the same.
    :raises PolicyError: a policy or a value that there is not.
    :raises AdapterError: a method takes an argument that its verb does not have, or lacks one that it needs.
    """

    def decorate(build: Callable[[Setup], Adapted]) -> Adapter:
        arguments = {verb: _arguments(build, verb) for verb in VERBS if callable(getattr(build, verb, None))}
        keys = {"keys"} if any("key" in taken for taken in arguments.values()) else ()
        able = frozenset(arguments).union(features, keys)
        name = getattr(build, "__name__", "system")
        return Adapter(build, name, arguments, dict(errors), able, checked_aspects(unobserved), unfit, checked_offer(policies))

    return decorate


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


def observation(setup: Setup, facts: Facts, unobserved: frozenset[str] = frozenset()) -> Observation:
    """An observation from facts.

    :raises AdapterError: something is missing that is not declared unobserved, or two requests contradict each other.
    """
    manager = setup.manager
    groups = group_names(manager)

    def given(value: Any, what: str, aspect: str, default: Any) -> Any:
        if value is None and aspect not in unobserved:
            raise AdapterError(f"{what}: missing; give it, or declare {aspect!r} unobserved")
        return default if value is None else value

    nothing = Counters({})
    counters = given(facts.counters, "counters", "counters", nothing)
    pages = _pages(facts, manager.tokens_per_block, given)
    streams = given(facts.streams, "streams", "order", dict.fromkeys(setup.streams, Order()))
    return Observation(
        groups=groups,
        requests={name: _request(name, view, groups, given) for name, view in facts.requests.items()},
        pages=tuple(pages.values()),
        tree=tuple(TreeBlockView(tuple(tokens)) for tokens in given(facts.tree, "tree", "tree", ())),
        pools=_pools(manager, facts, list(pages), given),
        batches={name: _batch(name, view, given) for name, view in facts.batches.items()},
        lifetime=counters,
        since_reset=facts.since_reset if facts.since_reset is not None else counters,
        copy_calls=given(facts.copy_calls, "copy_calls", "counters", {}),
        events=tuple(given(facts.events, "events", "events", ())),
        labels=dict(facts.labels),
        reads=dict(facts.reads),
        streams=streams,
        faults=tuple(facts.faults),
    )


_Place = tuple[str, Level, int]


_Given = Callable[[Any, str, str, Any], Any]


def _pages(facts: Facts, size: int, given: _Given) -> dict[_Place, PageView]:
    """One page for each place that some request, or the prefix tree alone, shows, by group, level and slot."""
    shown: dict[_Place, list[tuple[PageRef, Page, bool]]] = {}
    for name, request in facts.requests.items():
        for group in {*request.blocks, *request.kept}:
            mapped = [(block, page) for block, page in enumerate(request.blocks.get(group, ())) if page is not None]
            for block, page, active in (
                *((block, page, request.status == "active") for block, page in mapped),
                *((block, page, False) for block, page in request.kept.get(group, {}).items()),
            ):
                place = (group, Level.of(page.level), page.slot)
                shown.setdefault(place, []).append((PageRef(name, group, block), page, active))
    views: dict[_Place, PageView] = {}
    for (group, level, slot), uses in shown.items():
        first = uses[0][1]
        if any(page != first for _, page, _ in uses):
            refs = ", ".join(str(ref) for ref, _, _ in uses)
            raise AdapterError(f"{refs} are all at {level.label} slot {slot} but their pages differ in owners, payload or tokens")
        owners = first.owners if first.owners is not None else frozenset(ref.request for ref, _, active in uses if active)
        refs_ = frozenset(ref for ref, _, _ in uses)
        status = PageStatus.LOCKED if owners else PageStatus.HELD
        views[group, level, slot] = _page(group, first, uses[0][0].block, refs_, owners, status, str(uses[0][0]), given)
    for group, pages in facts.cached.items():
        for page in pages:
            where = f"cached page of {group} at {page.level} slot {page.slot}"
            if not page.tokens:
                raise AdapterError(f"{where}: it has no tokens; expected the prefix that its tree block ends")
            place = (group, Level.of(page.level), page.slot)
            if place in views:
                refs = ", ".join(str(ref) for ref in sorted(views[place].refs)) or "another"
                raise AdapterError(f"{where}: {refs} is there; expected pages that only the prefix tree keeps")
            block = (len(page.tokens) - 1) // size
            views[place] = _page(group, page, block, frozenset(), frozenset(), PageStatus.DROPPABLE, where, given)
    return views


def _page(
    group: str,
    page: Page,
    block: int,
    refs: frozenset[PageRef],
    owners: frozenset[str],
    status: PageStatus,
    title: str,
    given: _Given,
) -> PageView:
    ready = given(page.ready, f"ready of {title}", "order", Order())
    level = Level.of(page.level)
    return PageView(group, block, 0, refs, page.tokens, level, page.slot, status, owners, ready, page.payload)


def _request(name: str, view: Request, groups: Sequence[str], given: _Given) -> RequestView:
    version = given(view.version, f"version of {name}", "versions", 0)
    snapshots: dict[tuple[str, int], SnapshotView] = {}
    for group in groups if view.status != "closed" else ():
        blocks = view.blocks.get(group, ())
        # A request that is not active shows no places (R6.2).
        seen = [page if view.status == "active" else None for page in blocks]
        snapshots[group, 0] = SnapshotView(
            indices=tuple(BAD if page is None else int(page.slot) for page in seen),
            levels=tuple(None if page is None else Level.of(page.level) for page in seen),
            eligible=int(view.eligible.get(group, 0)),
            ready=tuple(None if page is None else page.ready or Order() for page in seen),
            row=view.row,
            version=version,
        )
    return RequestView(
        status=RequestStatus(view.status),
        phase=Phase(view.phase),
        capacity=int(view.capacity),
        history=int(view.history),
        committed=int(view.committed),
        row=view.row,
        batch=view.batch,
        beam_width=1,
        version=version,
        acknowledged=view.acknowledged,
        dirty=given(view.dirty, f"dirty of {name}", "versions", False),
        snapshots=snapshots,
    )


def _pools(manager: ManagerConfig, facts: Facts, places: Sequence[_Place], given: _Given) -> dict[tuple[Level, str], PoolView]:
    pools = pool_groups(manager)
    shapes = group_shapes(manager)
    free = {level_group(key, pools): int(count) for key, count in facts.free.items()}
    orders = given(facts.evictable, "evictable", "eviction", {})
    evictable = {level_group(key, pools): slots for key, slots in orders.items()}
    known = given(facts.fences, "fences", "order", None)
    fences = None if known is None else {level_group(key, pools): tuple(orders) for key, orders in known.items()}
    views: dict[tuple[Level, str], PoolView] = {}
    for config in manager.levels:
        level = config.kind.level
        per_slot = sum(shapes[served[0]].page_bytes for served in pools[level])
        slots = config.slots if config.slots is not None else (config.bytes or 0) // per_slot  # R1.2
        for served in pools[level]:
            key = level, served[0]
            if key not in free:
                raise AdapterError(f"free: no count for {level.label}.{served[0]}: there are {', '.join(facts.free) or 'none'}")
            numbers = {slot: n for n, (group, at, slot) in enumerate(places) if at is level and group in served}
            order = tuple(numbers.get(slot, -1) for slot in evictable.get(key, ()))
            behind = (Order(),) * free[key] if fences is None else fences.get(key, ())
            views[key] = PoolView(served, slots, free[key], behind, order)
    return views


def _batch(name: str, view: Batch, given: _Given) -> BatchView:
    device = given(view.device, f"device tables of batch {name}", "device", view.published)
    return BatchView(
        rows=tuple(view.rows),
        blocks=view.blocks,
        dirty_rows=tuple(sorted(view.dirty)),
        published={group: _words(tables) for group, tables in view.published.items()},
        device={group: _words(tables) for group, tables in device.items()},
        upload=given(view.upload, f"upload of batch {name}", "order", Order()),
        staging=given(view.staging, f"staging of batch {name}", "staging", 0),
        address={group: found for group, tables in (view.device or {}).items() if (found := _address(tables))},
    )


def _words(tables: Tables) -> TableEntries:
    def rows(array: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(row) for row in np.asarray(array).tolist())

    levels = None if tables.page_level is None else rows(tables.page_level)
    return TableEntries(rows(tables.page_table), tuple(np.asarray(tables.num_blocks).tolist()), levels)


def _address(tables: Tables) -> tuple[int, ...]:
    """Where the arrays are, so that it can be seen that they stay (R8.1); nothing for lists and the like."""
    arrays = [one for one in (tables.page_table, tables.num_blocks, tables.page_level) if one is not None]
    if not all(isinstance(one, np.ndarray) for one in arrays):
        return ()
    return tuple(int(one.ctypes.data) for one in arrays)
