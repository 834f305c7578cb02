"""Systems that leave something out: that is passed over and said, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from kvspec.config import Level
from kvspec.harness.compare import RULES
from kvspec.harness.difference import Verdict
from kvspec.harness.expectations import EVALUATORS
from kvspec.harness.replay import Named, replay
from kvspec.harness.systems import SystemNotFound, find_system, unobserved_by
from kvspec.harness.unobserved import ASPECTS, not_compared
from kvspec.observation import GroupCounters, Observation, Order, PageView, Phase, RequestView, Stored, TreeBlockView
from kvspec.ops import VERBS
from kvspec.scenario import Expect
from tests.harness.rich import Numbers, script, steps
from tests.harness.scripted import Scripted, scenario

OURS = Numbers()
THEIRS = Numbers(slots=(5, 3, 7, 1, 0, 2, 4, 6), version=7, factor=10, bytes=True)
LAST = len(steps()) - 1


@dataclass
class Partial(Scripted):
    """A scripted system that leaves something out."""

    unobserved: frozenset[str] = frozenset()


def verdict(change: Callable[[Observation], Observation], unobserved: Iterable[str]) -> Verdict:
    """How a replay ends in which the tested system shows something else after the last step."""
    shown = script(THEIRS)
    changed = change(shown[LAST][1])
    assert changed != shown[LAST][1]
    tested = Partial([*shown[:LAST], (shown[LAST][0], changed)], unobserved=frozenset(unobserved))
    return replay(scenario(steps()), Named("tested", tested), Named("reference", Scripted(script(OURS)))).verdict


def first_page(now: Observation, **fields: object) -> Observation:
    """Another value in the first page that has been written and is ready."""
    place = next(n for n, page in enumerate(now.pages) if page.payload is not None and not page.ready.pending)
    page: PageView = replace(now.pages[place], **fields)  # type: ignore[arg-type]
    return replace(now, pages=(*now.pages[:place], page, *now.pages[place + 1 :]))


def first_request(now: Observation, change: Callable[[RequestView], RequestView]) -> Observation:
    name, view = next((name, view) for name, view in now.requests.items() if view.snapshots)
    return replace(now, requests={**now.requests, name: change(view)})


def batches(now: Observation, **fields: object) -> Observation:
    return replace(now, batches={name: replace(view, **fields) for name, view in now.batches.items()})  # type: ignore[arg-type]


def device(now: Observation) -> Observation:
    name, view = next(iter(now.batches.items()))
    group, words = next(iter(view.device.items()))
    odd = replace(words, num_blocks=tuple(n + 1 for n in words.num_blocks))
    return replace(now, batches={**now.batches, name: replace(view, device={**view.device, group: odd})})


CHANGES: dict[str, Callable[[Observation], Observation]] = {
    "phase": lambda now: first_request(now, lambda view: replace(view, phase=next(p for p in Phase if p is not view.phase))),
    "eligible": lambda now: first_request(now, lambda view: snapshots(view, eligible=7)),
    "payloads": lambda now: first_page(now, payload=bytes(64)),
    "order": lambda now: replace(now, streams=dict.fromkeys(now.streams, Order(frozenset({"nobody's"})))),
    "tree": lambda now: replace(now, tree=(*now.tree, TreeBlockView((99,)))),
    "eviction": lambda now: replace(now, pools={key: replace(pool, evictable=(0, 0, 0)) for key, pool in now.pools.items()}),
    "counters": lambda now: replace(
        now, lifetime=replace(now.lifetime, groups={g: GroupCounters(9) for g in now.lifetime.groups})
    ),
    "events": lambda now: replace(now, events=(*now.events, Stored((99,)))),
    "versions": lambda now: first_request(now, lambda view: replace(view, acknowledged=123)),
    "device": device,
    "staging": lambda now: batches(now, staging=77),
    "reserved": lambda now: replace(now, reserved={}),
    "caches": lambda now: replace(now, caches={}),
    "fetches": lambda now: replace(now, fetches={}),
}


@pytest.mark.parametrize("aspect", ASPECTS)
def test_what_is_declared_is_passed_over_and_only_that(aspect: str) -> None:
    assert verdict(CHANGES[aspect], ()) is Verdict.FAILED
    assert verdict(CHANGES[aspect], {aspect}) is Verdict.PASSED
    assert verdict(CHANGES[aspect], set(ASPECTS) - {aspect}) is Verdict.FAILED


def snapshots(view: RequestView, **fields: object) -> RequestView:
    changed = {key: replace(one, **fields) for key, one in view.snapshots.items()}  # type: ignore[arg-type]
    return replace(view, snapshots=changed)


ALWAYS: dict[str, Callable[[Observation], Observation]] = {
    "capacity": lambda now: first_request(now, lambda view: replace(view, capacity=view.capacity + 1)),
    "history": lambda now: first_request(now, lambda view: replace(view, history=view.history + 1)),
    "row": lambda now: first_request(now, lambda view: replace(view, row=7)),
    "level": lambda now: first_page(now, level=Level.DISK),
    "owners": lambda now: first_page(now, owners=frozenset({"nobody"})),
    "free": lambda now: replace(now, pools={key: replace(pool, free=pool.free + 1) for key, pool in now.pools.items()}),
    "dirty rows": lambda now: batches(now, dirty_rows=(0, 1)),
    "page": lambda now: replace(now, pages=tuple(page for page in now.pages if not page.refs)),
    "faults": lambda now: replace(now, faults=("an unordered access",)),
}


@pytest.mark.parametrize("what", ALWAYS)
def test_the_rest_is_compared_even_by_a_system_that_leaves_out_all_it_may(what: str) -> None:
    assert verdict(ALWAYS[what], ASPECTS) is Verdict.FAILED


def test_an_expectation_that_nobody_can_answer_is_passed_over() -> None:
    last = steps()[LAST]
    wrong = replace(last, expect=Expect.model_validate({"copy_calls": {"offload": 99}}))
    for unobserved, ends in ((frozenset(), Verdict.FAILED), (frozenset({"counters"}), Verdict.PASSED)):
        tested = Partial(script(THEIRS), unobserved=unobserved)
        played = replay(scenario([*steps()[:LAST], wrong]), Named("tested", tested), Named("kvref", Scripted(script(OURS))))
        assert played.verdict is ends


def test_aspects_name_what_the_harness_knows() -> None:
    for aspect in ASPECTS.values():
        assert aspect.state <= RULES.keys()
        assert aspect.expectations <= EVALUATORS.keys()


@pytest.mark.parametrize("name", ["kvref", "kvgpu"])
def test_the_systems_of_the_project_leave_nothing_out(name: str) -> None:
    assert unobserved_by(find_system(name)) == frozenset()
    assert set(VERBS) <= find_system(name).capabilities  # type: ignore[attr-defined]


def test_a_name_that_is_no_aspect_is_an_error() -> None:
    with pytest.raises(SystemNotFound, match=r"unobserved has 'event'. Did you mean 'events'\?"):
        find_system("tests.adapter.test_unobserved:Misspelt")


def test_what_was_not_compared_is_named_in_order() -> None:
    assert not_compared(frozenset({"events", "payloads"})) == "contents of pages, tree events"
    assert not_compared(frozenset()) == ""


class Misspelt:
    """A system that declares what there is not."""

    capabilities = frozenset({"create"})
    unobserved = frozenset({"event"})
