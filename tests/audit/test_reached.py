"""Named states are recognised where they are reached and nowhere else, and random lifecycles reach every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from kvspec.audit import rare_stories as stories
from kvspec.audit.drawing import STREAMS, Draw
from kvspec.audit.managers import Fetches, Profile, fetching, owned, random_manager
from kvspec.audit.reached import Reached, reached_by, watched
from kvspec.audit.states import STATES, state
from kvspec.audit.workload import Chooser
from kvspec.cli.main import app
from kvspec.config import Ownership
from kvspec.harness.difference import Verdict
from kvspec.harness.replay import Named, replay_chosen
from kvspec.harness.systems import find_system, setup_for
from kvspec.language.loader import read_bytes
from kvspec.scenario import Position, Scenario, Step
from kvspec.system import Setup

REFERENCE = Named("kvref", find_system("kvref"))

PRIVATE_STATES = (
    "copy, no backing",
    "adopted",
    "backing left behind",
    "attach",
    "attach, gates",
    "backing of a copy that stays",
    "offload over disk",
    "held copy freed",
    "held copy moved",
    "rebase, copy",
    "rebase, backing",
    "prefetch, copy",
)

HEAD = "kvspec: 1\nname: one\nmanager:\n"
SPARSE = "  layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]\n"
DENSE = "  layers: [{name: main, buffers: [{role: key, bytes: 64}]}]\n"
NEAR = "  layers: [{name: near, sliding_window: 1, buffers: [{role: key, bytes: 64}]}]\n"
STATE = "  layers: [{name: kv, buffers: [{role: key, bytes: 64}]}, {name: ssm, kind: ssm, buffers: [{role: state, bytes: 48}]}]\n"


def manager(layers: str, tpb: int, *slots: int) -> str:
    """A manager with so many slots on the GPU, the host and the disk."""
    levels = ", ".join(f"{{kind: {kind}, slots: {n}}}" for kind, n in zip(("gpu", "host", "disk"), slots, strict=False))
    return f"{HEAD}  tokens_per_block: {tpb}\n  levels: [{levels}]\n{layers}streams: [exec, side]\nsteps:\n"


def steps(*lines: str) -> str:
    return "".join(f"  - {line}\n" for line in lines)


GROWN = ("create: r", "resume: r", "resize: {request: r, capacity: 2, history: 2}")
ON_HOST = ("seed_prefix: {tokens: [1], level: host}", "take_slots: {level: host, count: all, as: full}")
STALE = ("create: r", "resume: r", "resize: {request: r, capacity: 3}", "resize: {request: r, history: 3}")
MATCHED = ("seed_prefix: {tokens: [1], level: disk}", "create: {request: r, tokens: [1]}")

CASES: dict[str, str] = {
    "offload evicts": manager(SPARSE, 1, 3, 2)
    + steps(*GROWN, "seed_prefix: {tokens: [1, 2], level: host}", "offload: {request: r, blocks: [0]}"),
    "cascade, drop above": manager(DENSE, 1, 2, 1)
    + steps(*ON_HOST, "seed_prefix: {tokens: [1, 2], level: gpu}", "evict: {level: gpu, pages: 1}"),
    "commit stops, refused": manager(DENSE, 1, 4, 4)
    + steps(
        "seed_prefix: {tokens: [1, 2], level: host}",
        *GROWN,
        "fail_copy: {direction: onboard, call: 2}",
        "commit: {request: r, tokens: [1, 2]}",
    ),
    "prefetch, disk to GPU": manager(DENSE, 1, 2, 1, 1) + steps(*MATCHED, "prefetch: {request: r, level: gpu}"),
    "prefetch, disk to host": manager(DENSE, 1, 2, 1, 1) + steps(*MATCHED, "prefetch: {request: r, level: host}"),
    "prefetch refused": manager(DENSE, 1, 2, 1, 1)
    + steps(*MATCHED, "fail_copy: {direction: onboard}", "prefetch: {request: r, level: gpu}"),
    "kept stale evicted": manager(NEAR, 1, 4, 2) + steps(*STALE, "evict: {level: gpu, pages: 1}"),
    "rebase, droppable dense": manager(DENSE, 1, 4, 1)
    + steps(
        "seed_prefix: {tokens: [1], level: gpu}",
        "create: r",
        "resume: {request: r, decode: true}",
        "resize: {request: r, capacity: 1}",
        "commit: {request: r, tokens: [1]}",
    ),
    "close, reads to come": manager(DENSE, 1, 4, 1)
    + steps(*GROWN, "gate: {stream: side, as: g}", "record_read: {request: r, stream: side}", "close: r"),
    "running state back": manager(STATE, 1, 4, 1)
    + steps(*GROWN, "suspend: r", "evict: {level: gpu, group: ssm, pages: 1}", "resume: r"),
}

OWN = SPARSE.replace("layers:", "ownership: private\n  layers:")
IN_PREFILL = ("create: a", "resume: a", "resize: {request: a, capacity: 2, history: 2}", "commit: {request: a, tokens: [1, 2]}")
SECOND = ("create: {request: b, tokens: [1]}", "resume: b")
CASES |= {
    "copy, no backing": manager(OWN, 1, 6, 4) + steps(*IN_PREFILL, *SECOND),
    "adopted": manager(OWN, 1, 6, 4) + steps("seed_prefix: {tokens: [1], level: gpu}", *SECOND),
    "backing left behind": manager(OWN, 1, 6, 4) + steps(*IN_PREFILL, "close: a"),
    "attach": manager(OWN, 1, 6, 4) + steps(*IN_PREFILL, *SECOND, "enter_decode: a", "enter_decode: b"),
    "attach, gates": manager(OWN, 1, 6, 4)
    + steps(*IN_PREFILL, *SECOND, "gate: {stream: exec, as: g}", "enter_decode: a", "enter_decode: b"),
    "backing of a copy that stays": manager(OWN, 1, 6, 4)
    + steps(*IN_PREFILL, "create: {request: b, tokens: [1]}", "resume: {request: b, decode: true}"),
    "held copy freed": manager(OWN, 1, 6, 4)
    + steps(*IN_PREFILL, *SECOND, "enter_decode: a", "suspend: b", "evict: {level: gpu, pages: 1}"),
    "held copy moved": manager(OWN, 1, 6, 4) + steps(*IN_PREFILL, "suspend: a", "evict: {level: gpu, pages: 1}"),
}

FETCHED = SPARSE.replace("sparse: true", "sparse: true, selected: 2, reserve: 2")
TWO_LAYERS = (
    "  layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true, selected: 1, reserve: 1}]}, "
    "{name: other, buffers: [{role: key, bytes: 64, sparse: true, selected: 1, reserve: 1}]}]\n"
)
PUBLISHED = (
    *("seed_prefix: {tokens: [1, 2, 3], level: host}", "create: {request: a, tokens: [1, 2, 3]}"),
    *("resume: {request: a, decode: true}", "batch: {name: b, rows: 1, blocks: 4}", "add: {batch: b, request: a}", "publish: b"),
)


def fetched(*numbers: int, layer: str = "main", stream: str = "exec") -> str:
    return f"fetch: {{batch: b, layer: {layer}, select: {{a: {list(numbers)}}}, stream: {stream}, as: f}}"


CAPTURED = (
    "begin_capture: side",
    "fetch: {batch: b, layer: main, select: {}, stream: side, as: g}",
    "end_capture: {stream: side, as: again}",
)
REPLAY = "replay: {graph: again, select: {a: [0]}}"
CASES |= {
    "fetch, hit and miss": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, fetched(0), fetched(0, 1)),
    "fetch evicts": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, fetched(0, 1), fetched(2)),
    "fetch evicts all": manager(FETCHED.replace("reserve: 2", "reserve: 2"), 1, 6, 6)
    + steps(*PUBLISHED, fetched(0), "suspend: a", "resume: a", "publish: b", fetched(1), fetched(0, 2)),
    "fetch, twice": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, fetched(1, 1)),
    "fetch, at the count": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, fetched(2, 3)),
    "fetch, cached and bad": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, fetched(0), "create: {request: c, tokens: [1]}", "resume: c", "publish: b", fetched(0)),
    "two blocks in a slot": manager(TWO_LAYERS, 1, 6, 6) + steps(*PUBLISHED, fetched(0), fetched(1, layer="other")),
    "cached leaves the host": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, fetched(0), "create: {request: c, tokens: [1]}", "resume: c"),
    "fetch refused": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, "suspend: a", fetched(0)),
    "reservation grows": manager(FETCHED, 1, 6, 6)
    + steps(
        *("create: a", "resume: {request: a, decode: true}", "resize: {request: a, capacity: 3}"),
        *(
            "resize: {request: a, history: 1}",
            "batch: {name: b, rows: 1, blocks: 4}",
            "add: {batch: b, request: a}",
            "publish: b",
        ),
        *(fetched(0), "resize: {request: a, history: 2}"),
    ),
    "no room to reserve": manager(FETCHED, 1, 6, 6) + steps(*GROWN, "take_slots: {level: gpu, count: all}", "enter_decode: r"),
    "given back, gates": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, "gate: {stream: side, as: g}", fetched(0, stream="side"), "close: a"),
    "given back, reads to come": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, fetched(0), "gate: {stream: side, as: g}", "record_read: {batch: b, stream: side}", "suspend: a"),
    "given back, taken": manager(FETCHED, 1, 2, 6)
    + steps(
        *(*PUBLISHED, "gate: {stream: side, as: g}", fetched(0, stream="side"), "close: a"),
        *("create: c", "resume: c", "resize: {request: c, capacity: 1}"),
    ),
    "fetch, gates": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, "gate: {stream: side, as: g}", fetched(0, stream="side")),
    "fetch behind a fetch": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, "gate: {stream: side, as: g}", fetched(0, stream="side"), fetched(1)),
    "fetch behind reads": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, fetched(0), "gate: {stream: exec, as: g}", "record_read: {batch: b}", fetched(1, stream="side")),
    "replay fetches": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, *CAPTURED, REPLAY),
    "replay, two fetches": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, CAPTURED[0], *(CAPTURED[1].replace("as: g", f"as: g{n}") for n in (1, 2)), CAPTURED[2], REPLAY),
    "replay, row removed": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, *CAPTURED, "remove: {batch: b, request: a}", REPLAY),
    "replay, row suspended": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, *CAPTURED, "suspend: a", REPLAY),
    "replay, row closed": manager(FETCHED, 1, 6, 6) + steps(*PUBLISHED, *CAPTURED, "close: a", REPLAY),
    "replay, row of another": manager(FETCHED, 1, 6, 6)
    + steps(*PUBLISHED, *CAPTURED, "create: c", "remove: {batch: b, request: a}", "add: {batch: b, request: c}", REPLAY),
}
DEFERRED = (
    *("seed_prefix: {tokens: [1], level: gpu}", "create: {request: d, tokens: [1]}", "create: {request: p, tokens: [1]}"),
    *("resume: p", "resume: {request: d, decode: true}"),
)
CASES |= {
    "promotion, gates": manager(SPARSE, 1, 4, 4)
    + steps(
        *("seed_prefix: {tokens: [1], level: host}", "create: {request: d, tokens: [1]}", "resume: {request: d, decode: true}"),
        *("create: {request: p, tokens: [1]}", "gate: {stream: exec, as: g}", "resume: {request: p, stream: side}"),
    ),
    "gap closes from behind": manager(SPARSE, 1, 4, 4)
    + steps(
        *DEFERRED,
        *("resize: {request: d, capacity: 2}", "resize: {request: d, history: 2}", "close: p", "enter_decode: d"),
    ),
    "rebase, disk": manager(DENSE, 1, 4, 1, 1)
    + steps("seed_prefix: {tokens: [1], level: disk}", *GROWN, "commit: {request: r, tokens: [1]}"),
    "commit stops, middle": manager(DENSE, 1, 4, 4)
    + steps(
        *("seed_prefix: {tokens: [1, 2, 3], level: host}", "create: r", "resume: r"),
        *("resize: {request: r, capacity: 3, history: 3}", "fail_copy: {direction: onboard, call: 2}"),
        "commit: {request: r, tokens: [1, 2, 3]}",
    ),
    "publication, three levels": manager(SPARSE, 1, 4, 1, 1)
    + steps(
        *("seed_prefix: {tokens: [9], level: disk}", "seed_prefix: {tokens: [8], level: host}", *DEFERRED),
        *("batch: {name: b, rows: 1, blocks: 2}", "add: {batch: b, request: d}", "close: p", "publish: b"),
    ),
    "beam rows let go": manager(DENSE, 1, 8, 1)
    + steps(
        *("seed_prefix: {tokens: [1], level: gpu}", "create: {request: d, tokens: [1], prompt_length: 1}"),
        *("create: {request: p, tokens: [1]}", "resume: d", "set_beam_width: {request: d, width: 2}"),
        *("resize: {request: d, capacity: 2}", "close: d"),
    ),
}
FETCH_STATES = tuple(name for name, one in STATES.items() if one.recognise.__module__.endswith("fetches"))


def test_a_block_at_the_end_of_a_commit_is_not_in_its_middle() -> None:
    text = CASES["commit stops, middle"].replace("tokens: [1, 2, 3]}\n", "tokens: [1, 2]}\n")
    assert reached_in(text).of("commit stops, middle") == 0


def reached_in(text: str) -> Reached:
    loaded = read_bytes(Path("one.yaml"), text.encode())
    assert not loaded.problems, loaded.problems
    return reached_by([(setup_for(one, {}), [step.op for step in one.steps]) for one in loaded.scenarios], REFERENCE)


@pytest.mark.parametrize("name", CASES)
def test_a_state_is_recognised_at_the_last_step_and_not_before(name: str) -> None:
    text = CASES[name]
    assert reached_in(text).of(name) == 1
    without = text[: text.rindex("  - ")]
    assert reached_in(without).of(name) == 0


def test_lifecycles_of_private_ownership_come_to_all_that_it_has() -> None:
    reached = Reached()
    for seed in range(60):
        chosen(seed, watched(REFERENCE, reached), Ownership.PRIVATE)
        if all(reached.of(name) for name in PRIVATE_STATES):
            return
    assert not [name for name in PRIVATE_STATES if not reached.of(name)]


def test_lifecycles_with_fetches_come_to_all_that_they_have() -> None:
    reached = Reached()
    for seed in range(200):
        chosen(seed, watched(REFERENCE, reached), fetches=Fetches.ALL)
        if all(reached.of(name) for name in FETCH_STATES):
            return
    assert not [name for name in FETCH_STATES if not reached.of(name)]


def test_every_state_of_fetches_has_a_case() -> None:
    assert set(FETCH_STATES) <= CASES.keys()


def test_a_read_that_has_run_is_not_to_come() -> None:
    text = CASES["close, reads to come"].replace("  - close: r\n", "  - open: g\n  - close: r\n")
    assert reached_in(text).of("close, reads to come") == 0


def test_a_count_is_kept_by_verb_and_result() -> None:
    reached = reached_in(CASES["commit stops, refused"])
    assert reached.counts["commit stops, refused", "commit", "copy_failed"] == 1
    assert reached.verbs("commit stops, refused") == {"commit": 1}
    assert "offload evicts" in reached.never and "commit stops, refused" not in reached.never


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="two states"):
        state("promotion", "again")(lambda moment: True)


def chosen(
    seed: int, reference: Named, ownership: Ownership = Ownership.SHARED, fetches: Fetches = Fetches.NONE
) -> tuple[Step, ...]:
    """Forty steps that are chosen with what a reference shows in view."""
    rng = Random(seed)
    manager = fetching(owned(random_manager(rng, Profile()), seed, ownership), seed, fetches)
    chooser = Chooser(rng, manager, Profile())
    left = iter(range(40))
    head = Scenario("one", (), (), (), manager, STREAMS, (), Position(Path("one.yaml"), 1, 1), 0)
    result, steps = replay_chosen(
        head, lambda seen: None if next(left, None) is None else chooser.next(seen), Named("again", REFERENCE.factory), reference
    )
    assert result.verdict is Verdict.PASSED
    return steps


def test_watching_changes_no_lifecycle() -> None:
    reached = Reached()
    for seed in range(6):
        assert chosen(seed, watched(REFERENCE, reached)) == chosen(seed, REFERENCE)
    assert reached.steps == 6 * 40


@pytest.mark.parametrize("verb", ["fuzz", "reached"])
def test_the_table_names_every_state_and_those_that_were_never_reached(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(CASES["prefetch, disk to host"])
    args = ["--seeds", "1", "--steps", "1", "--jobs", "1"] if verb == "fuzz" else [str(path)]
    result = CliRunner().invoke(app, [verb, *args])
    assert result.exit_code == 0
    for name in STATES:
        assert f" {name} " in result.output
    assert "never reached: offload evicts: a bare offload that makes room on the host" in result.output
    assert ("never reached: prefetch, disk to host" in result.output) == (verb == "fuzz")


def test_big_lifecycles_are_big() -> None:
    chooser = Chooser(Random(3), random_manager(Random(3), Profile(big=True)), Profile(big=True))
    assert max(level.slots or 0 for level in chooser.manager.levels) > 100
    assert len({token % 2**16 for token in chooser.draw.words}) == 1
    assert len(set(chooser.draw.words)) == 3


AIMS: dict[stories.Story, Sequence[str]] = {
    stories.offload_evicts: ["offload evicts"],
    stories.commit_stops: ["commit stops, full", "commit stops, refused"],
    stories.drop_above: ["cascade, drop above"],
    stories.given_up: ["given up, evicted", "completed, kept, evicted"],
    stories.kept_stale: ["kept stale evicted", "prefetch, kept stale"],
    stories.path_leaves: ["path removed"],
    stories.prefetch_from_disk: ["prefetch, disk to GPU", "prefetch, disk to host", "prefetch refused", "prefetch evicts"],
    stories.refused_growth: ["growth refused", "commit's growth refused"],
    stories.rebase_dense: ["rebase, droppable dense"],
    stories.commit_past_window: ["stale written, commit"],
    stories.seed_under_gates: ["seed evicts, gates"],
    stories.stale_by_two: ["stale by two, gates"],
    stories.reads_to_come: ["close, reads to come", "suspend, reads to come", "read after close"],
    stories.offload_over_disk: ["offload over disk"],
    stories.through_three_levels: ["publication, three levels"],
    stories.beams_of_a_shared_prompt: ["beam rows let go"],
    stories.running_state: ["running state written", "running state evicted", "running state back"],
}


@pytest.mark.parametrize("story", AIMS, ids=lambda story: story.__name__)
def test_a_story_comes_to_what_it_aims_at(story: stories.Story) -> None:
    reached = Reached()
    for seed in range(400):
        rng = Random(seed)
        private = story is stories.offload_over_disk
        manager = owned(random_manager(rng, Profile()), seed, Ownership.PRIVATE if private else Ownership.SHARED)
        system = watched(REFERENCE, reached).factory(Setup(manager, STREAMS))
        for op in story(Draw(rng, manager), system.observe()) or ():
            system.apply(op)
            system.observe()
        if all(reached.of(name) for name in AIMS[story]):
            return
    assert not [name for name in AIMS[story] if not reached.of(name)]


def test_every_story_aims_at_something_or_goes_by_the_state() -> None:
    assert set(stories.STORIES) - set(AIMS) == {stories.bring_up}
