"""What the page over time is told, without a browser: every step, what differs, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kvref.system import Reference
from kvspec.harness.timeline.delta import Packer, unpack
from kvspec.harness.timeline.facts import BatchFact, Facts, PageFact, PoolFact, RequestFact
from kvspec.harness.timeline.page import write_page
from kvspec.harness.timeline.timeline import Timeline, see_both, see_one
from kvspec.language import load_file
from kvspec.observation import Observation, TableEntries
from kvspec.rules import load_rules
from tests.timeline.scenes import GAP, LEVELS, ROOT, diverging, long_prompt, seen


class Parts(HTMLParser):
    """The data of a page, its ids, and whatever it would load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.data: list[Any] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self._json = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        self._json = have.get("type") == "application/json"
        self.ids += [have["id"] or ""] if "id" in have else []
        self.loads += [value or "" for key, value in attrs if key == "src" or (tag == "link" and key == "href")]

    def handle_data(self, data: str) -> None:
        if self._json and data.strip():
            self.data.append(json.loads(data))


def page_of(path: Path, *timelines: Timeline) -> Any:
    write_page(path / "page.html", timelines)
    return Parts(path / "page.html").data[0]


def facts_of(data: Any) -> list[Facts]:
    return unpack(data, [step["facts"] for step in data["steps"]])


def page_at(facts: Facts, request: str, group: str, block: int) -> PageFact:
    number = facts["pages", request, group, 0][block]
    assert number is not None
    return PageFact(*facts["page", number])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("levels")
    (folder / "levels.yaml").write_text(LEVELS)
    return page_of(folder, seen(folder / "levels.yaml"))


def test_every_step_has_its_words_and_its_facts(tmp_path: Path) -> None:
    data = page_of(tmp_path, seen(GAP))
    step = data["steps"][8]
    assert (step["verb"], step["arguments"], step["said"]) == ("enter_decode", "decoder", "-> true")
    assert ["decoder.main.0", "stays at gpu", "deferred by prefill, in prefill (R4.2)"] in step["changes"]
    assert ["decoder.main", "GGG -> GHG", ""] in step["changes"]
    assert data["source"][step["lines"][0] - data["first"]].strip() == "- enter_decode: decoder"
    facts = facts_of(data)[8]
    assert facts["levels", "decoder", "main", 0] == (0, 1, 0)
    assert facts["eligible", "decoder", "main", 0] == (0,)
    shared = page_at(facts, "prefill", "main", 0)
    assert shared == page_at(facts, "decoder", "main", 0)
    assert (shared.owners, shared.status, shared.deferred, shared.rule) == ("decoder, prefill", "locked", 1, "R4.2")
    assert facts_of(data)[11]["levels", "decoder", "main", 0] == (1, 1, 0)


def test_tables_rows_and_free_slots(tmp_path: Path) -> None:
    facts = facts_of(page_of(tmp_path, seen(GAP)))
    assert BatchFact(*facts[8]["batch", "rows"]).published == -1  # type: ignore[arg-type]
    assert facts[9]["entries", "rows", "main", 0] == ("decoder.0", "decoder.1", "decoder.2")
    assert facts[9]["at", "rows", "main", 0] == (0, 1, 0)
    assert facts[10]["at", "rows", "main", 0] == (0, 1, 0), "what was published stays until it is published again"
    assert facts[11]["at", "rows", "main", 0] == (1, 1, 0)
    assert facts[11]["count", "rows", "main", 0] == (2,)
    assert [facts[step]["member", "rows", 0] for step in (8, 9)] == [("decoder", 1, 0), ("decoder", 0, 0)]
    assert PoolFact(*facts[11]["pool", "gpu", "main"]) == PoolFact(4, 3, 0)  # type: ignore[arg-type]


def test_gates_held_and_droppable_pages_and_the_tree(levels: Any) -> None:
    facts = facts_of(levels)
    assert facts[13]["gate", "slow"] == (
        7,
        "alice.main [2, 3]",
        "upload of rows",
        "2 free slots of gpu.main",
        "stream exec",
        "stream side",
    )
    assert page_at(facts[13], "alice", "main", 2).gates == "slow"
    assert ("gate", "slow") not in facts[18]
    assert page_at(facts[4], "carol", "main", 1).status == "held"
    assert RequestFact(*facts[4]["request", "carol"]).history == 8  # type: ignore[arg-type]
    tree = {value[2]: value for key, value in facts[1].items() if key[0] == "tree"}
    assert list(tree) == ["[0, 1, 2, 3]", "[0..7]", "[0..9]", "[0..3, 90..93]"]
    number = next(key[1] for key, value in facts[1].items() if value is tree["[0, 1, 2, 3]"])
    assert [tree[one][0] for one in tree] == [None, number, tree["[0..9]"][0], number]
    assert PageFact(*facts[1]["page", tree["[0..3, 90..93]"][3]]).status == "droppable"  # type: ignore[arg-type, index]


def test_a_page_keeps_its_number_while_it_moves_and_another_has_its_own(levels: Any) -> None:
    facts = facts_of(levels)
    numbers = [one["pages", "alice", "main", 0][2] for one in facts[8:]]
    assert len(set(numbers)) == 1
    assert [one["page", numbers[0]][5] for one in facts[11:13]] == [0, 1]
    new = {key[1] for key in facts[14] if key[0] == "page"} - {key[1] for key in facts[13] if key[0] == "page"}
    assert len(new) == 8, "four blocks in each of two groups"


def test_a_divergence_marks_what_differs_and_nothing_else(tmp_path: Path) -> None:
    timeline = diverging()
    data = page_of(tmp_path, timeline)
    assert (timeline.failed, timeline.last, data["failure"]["step"]) == (True, 8, 8)
    keys = [tuple(key) for key in data["keys"]]
    assert {keys[key]: places for key, places in data["divergence"]["marks"]} == {("eligible", "decoder", "main", 0): [0]}
    ours = facts_of(data)[-1]
    theirs = unpack(data, [*(step["facts"] for step in data["steps"]), data["divergence"]["facts"]])[-1]
    key = ("eligible", "decoder", "main", 0)
    assert (ours[key], theirs[key]) == ((0,), (1,))
    assert ours["levels", "decoder", "main", 0] == theirs["levels", "decoder", "main", 0]
    (expected, found) = data["failure"]["differences"]
    assert (expected["subject"], expected["expected"], expected["values"]) == ("eligible count of decoder.main", "0", ["0", "1"])
    assert found["rules"] == ["R6.3"]
    line = data["failure"]["marked"][0]
    assert "eligible: {decoder.main: 0" in data["source"][line - data["first"]]
    assert "FAILED a deferred gap" in data["failure"]["report"]


def test_a_divergence_of_levels_marks_the_blocks(tmp_path: Path) -> None:
    data = page_of(tmp_path, diverging(mutant="R4.3 a publication retries nothing"))
    keys = [tuple(key) for key in data["keys"]]
    marks = {keys[key]: places for key, places in data["divergence"]["marks"]}
    assert data["failure"]["step"] == 11
    assert marks["levels", "decoder", "main", 0] == [0]
    assert ("levels", "decoder", "index", 0) not in marks
    assert marks["pool", "gpu", "main"] == [1]


def test_the_page_needs_nothing_else_and_says_all_rules(tmp_path: Path) -> None:
    odd = GAP.read_text().replace("name: a deferred gap closes when the prefill owner closes", "name: '</script><b>odd & co'")
    (tmp_path / "odd.yaml").write_text(odd)
    write_page(tmp_path / "page.html", [seen(tmp_path / "odd.yaml"), seen(GAP)])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    parts = Parts(tmp_path / "page.html")
    assert [one["name"] for one in parts.data] == ["</script><b>odd & co", "a deferred gap closes when the prefill owner closes"]
    assert parts.loads == ["data:,"]
    assert not re.search(r"https?:|@import|url\(", text)
    assert {rule.id for rule in load_rules()} <= set(parts.ids)
    assert len(parts.ids) == len(set(parts.ids))


class ShortTables(Reference):
    """A system whose published tables lack their last row."""

    def observe(self) -> Observation:
        now = super().observe()
        batches = {
            name: replace(batch, published={g: TableEntries((), ()) for g in batch.published})
            for name, batch in now.batches.items()
        }
        return replace(now, batches=batches)


def test_what_cannot_be_drawn_is_no_traceback(tmp_path: Path) -> None:
    timeline = see_both(load_file(GAP)[0], "tests.timeline.test_page:ShortTables", "kvref", {})
    data = page_of(tmp_path, timeline)
    assert timeline.failed
    assert len(data["steps"]) == data["failure"]["step"] == 6
    assert data["stopped"].startswith("from step 6 on it cannot be drawn: ")
    assert data["divergence"] is None


def test_every_failing_scenario_of_the_corpus_can_be_drawn(tmp_path: Path) -> None:
    paths = sorted((ROOT / "tests" / "corpora" / "valid_fail").glob("*.yaml"))
    timelines = [see_both(scenario, "kvref", "kvref", {}) for path in paths for scenario in load_file(path)]
    assert len(timelines) >= len(paths) > 50
    write_page(tmp_path / "page.html", timelines)
    drawn = Parts(tmp_path / "page.html").data
    assert all(one["failure"] and not one["stopped"] for one in drawn)
    assert sum(bool(one["failure"]["marked"]) for one in drawn) > 50


def test_200_steps_of_a_long_prompt_stay_small_and_whole(tmp_path: Path) -> None:
    long_prompt(tmp_path / "long.yaml")
    kept: list[Facts] = []
    timeline = see_one(load_file(tmp_path / "long.yaml")[0], "kvref", {}, lambda seen: kept.append(seen.facts))
    assert write_page(tmp_path / "page.html", [timeline]) < 2_000_000
    assert len(kept) == 200
    assert facts_of(Parts(tmp_path / "page.html").data[0]) == kept


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({("a", 1): (1, 2, "x")}, {("a", 1): (1, 3, "x")}),
        ({("a", 1): (1, 2, 3)}, {("a", 1): (1,)}),
        ({("a", 1): (1,)}, {("a", 1): (1, None, "y", None)}),
        ({("a", 1): (1,), ("b", 1): (1,)}, {("c", 1): ("y",)}),
        ({("a", n): (0, 1, n) for n in range(9)}, {("a", n): (0, 2, n) for n in range(2, 9)}),
        ({("a", 1): ()}, {("a", 1): (None,)}),
    ],
)
def test_packing_and_unpacking_gives_the_same(old: Facts, new: Facts) -> None:
    packer = Packer()
    steps = [packer.pack(old), packer.pack(new), packer.pack(old)]
    head, steps = json.loads(json.dumps([packer.head(), steps]))
    assert unpack(head, steps) == [old, new, old]
