"""The page over time in a real browser: slider, keys, filter, links, a divergence side by side, and nothing in the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvspec.harness.html import write_html
from kvspec.harness.runner import Plan, run_all
from kvspec.harness.timeline.page import write_page
from kvspec.language import load_file
from tests.timeline.browser import Browser, installed
from tests.timeline.scenes import GAP, LEVELS, diverging, long_prompt, seen

WHERE = installed()
pytestmark = pytest.mark.skipif(WHERE is None, reason="no Chromium is installed: the page is not tried in a browser")
TYPE = "(text => { const s = document.querySelector('[type=search]'); s.value = text; s.dispatchEvent(new Event('input')); })"
ROWS = (
    "[...document.querySelectorAll('.grid')]"
    ".map(g => g.dataset.group + ':' + [...g.querySelectorAll('[data-request]')].map(r => r.dataset.request)).join()"
)
CELLS = "[...document.querySelectorAll('.grid[data-group=main] .row[data-request=decoder] .cell')]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert WHERE is not None
    one = Browser(WHERE)
    yield one
    one.close()


@pytest.fixture
def gap(browser: Browser, tmp_path: Path) -> Browser:
    write_page(tmp_path / "page.html", [seen(GAP)])
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(tmp_path / "page.html")
    return browser


def now(browser: Browser) -> str:
    return " ".join(str(browser.js("document.querySelector('.at-now').innerText")).split())


def letters(browser: Browser, row: str, side: int = 0) -> str:
    """The levels of a request's blocks in a group, read off the colours of the cells."""
    request, group = row.split(".")
    return str(
        browser.js(
            f"[...document.querySelectorAll('.side')[{side}].querySelectorAll("
            f"'.grid[data-group={group}] .row[data-request={request}] .cell')]"
            ".map(c => c.matches('.l0') ? 'G' : c.matches('.l1') ? 'H' : c.matches('.l2') ? 'D' : '.').join('')"
        )
    )


def test_keys_go_through_the_steps(gap: Browser) -> None:
    assert now(gap).startswith("step 0 of 12 seed_prefix")
    for _ in range(8):
        gap.press("ArrowRight")
    assert now(gap).startswith("step 8 of 12 enter_decode decoder -> true")
    assert letters(gap, "decoder.main") == "GHG"
    assert gap.js("location.hash") == "#t0-step-8"
    gap.press("ArrowLeft")
    assert now(gap).startswith("step 7 of 12 add")
    assert letters(gap, "decoder.main") == "GGG"
    gap.press("End")
    assert now(gap).startswith("step 12 of 12 publish")
    gap.press("ArrowRight")
    assert now(gap).startswith("step 12 of 12"), "there is no step after the last"
    gap.press("PageUp")
    assert now(gap).startswith("step 2 of 12")
    gap.press("Home")
    assert now(gap).startswith("step 0 of 12")
    assert gap.problems == []


def test_the_slider_a_step_of_the_list_and_an_address_lead_to_a_step(gap: Browser, tmp_path: Path) -> None:
    gap.js("(s => { s.value = 11; s.dispatchEvent(new Event('input')); })(document.querySelector('input[type=range]'))")
    assert now(gap).startswith("step 11 of 12 publish rows -> [0]")
    assert letters(gap, "decoder.main") == "HHG"
    assert gap.js("document.querySelector('.row[data-request=decoder] .eligible').innerText") == "2 eligible"
    gap.js("document.querySelector('.steps li[data-step=\"5\"]').click()")
    assert now(gap).startswith("step 5 of 12 resize")
    assert gap.js("document.querySelector('input[type=range]').value") == "5"
    gap.open(tmp_path / "page.html", "#t0-step-9")
    assert now(gap).startswith("step 9 of 12 publish")
    gap.press(" ")
    assert gap.js("document.querySelector('.play').classList.contains('on')")
    gap.press(" ")
    assert gap.problems == []


def test_the_filter_chooses_rows_and_the_steps_that_the_keys_stop_at(gap: Browser) -> None:
    gap.press("End")
    gap.press("/")
    assert gap.js("document.activeElement.type") == "search"
    gap.js(f"{TYPE}('publish')")
    assert (
        gap.js("[...document.querySelectorAll('.steps li')].filter(one => !one.hidden).map(one => one.dataset.step).join()")
        == "9,11,12"
    )
    assert gap.js("document.querySelectorAll('.grid').length") == 2, "a word that names neither request nor group hides none"
    gap.js("document.activeElement.blur()")
    gap.press("ArrowLeft")
    gap.press("ArrowLeft")
    assert now(gap).startswith("step 9 of 12")
    gap.js(f"{TYPE}('prefill index')")
    assert gap.js(ROWS) == "index:prefill"
    gap.press("/")
    gap.press("Escape")
    assert gap.js(ROWS) == "main:decoder,prefill,index:decoder,prefill"
    assert gap.problems == []


def test_what_changed_stands_out_and_a_page_can_be_followed(gap: Browser) -> None:
    for _ in range(8):
        gap.press("ArrowRight")
    changed = f"{CELLS}.map(c => c.matches('.changed')).join()"
    assert gap.js(changed) == "true,true,false", "block 0 is deferred now, block 1 has moved"
    deferred = "[...document.querySelectorAll('.row[data-request=decoder] .cell.deferred')].length"
    assert gap.js(deferred) == 1
    gap.js("document.querySelector('.grid[data-group=main] .row[data-request=decoder] .cell').click()")
    assert gap.js("document.querySelectorAll('.cell.followed').length") == 3, "both owners have it, and the tree"
    said = str(gap.js("document.querySelector('.at-page').innerText"))
    assert "decoder.main.0" in said
    assert "deferred by prefill, in prefill (R4.2)" in said
    gap.press("End")
    assert "step 11 gpu → host publish" in " ".join(str(gap.js("document.querySelector('.at-page').innerText")).split())
    gap.js("document.querySelector('.at-page [data-step=\"8\"]').click()")
    assert now(gap).startswith("step 8 of 12")
    assert gap.problems == []


def test_a_rule_is_read_where_it_is_named(gap: Browser) -> None:
    links = gap.js("[...document.querySelectorAll('a')].map(a => a.getAttribute('href')).filter(h => /^#R/.test(h))")
    assert links
    assert gap.js("[...document.querySelectorAll('a')].every(a => /^#(R[\\d.]+)?$/.test(a.getAttribute('href')))")
    assert gap.js("[...document.querySelectorAll('a[href^=\"#R\"]')].every(a => document.getElementById(a.hash.slice(1)))")
    gap.js("document.querySelector('header a[href=\"#R4.2\"]').click()")
    assert gap.js("document.getElementById('rule').open")
    assert "Owner check" in str(gap.js("document.getElementById('rule').innerText"))
    gap.press("ArrowRight")
    assert now(gap).startswith("step 0 of 12"), "keys are the rule's while it is open"
    gap.press("Escape")
    assert not gap.js("document.getElementById('rule').open")
    assert gap.problems == []


def test_a_divergence_stands_side_by_side(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [diverging()])
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(tmp_path / "page.html")
    assert now(browser).startswith("step 8 of 8 enter_decode")
    assert (
        browser.js("[...document.querySelectorAll('.side h2')].map(h => h.innerText).join()")
        == "kvref reference,kvgpu under test"
    )
    left, right = (
        browser.js(f"document.querySelectorAll('.side')[{side}].querySelector('.eligible.differs').innerText") for side in (0, 1)
    )
    assert (left, right) == ("0 eligible", "1 eligible")
    assert letters(browser, "decoder.main", 0) == letters(browser, "decoder.main", 1) == "GHG"
    assert "eligible: {decoder.main: 0" in str(browser.js("document.querySelector('.failure .marked').innerText"))
    boxes = browser.js("[...document.querySelectorAll('.side')].map(s => s.getBoundingClientRect()).map(b => [b.left, b.top])")
    assert boxes[0][1] == boxes[1][1]
    assert boxes[0][0] < boxes[1][0]
    browser.press("ArrowLeft")
    assert browser.js("document.querySelectorAll('.side').length") == 1
    assert browser.js("document.querySelector('.failure').hidden")
    assert browser.problems == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [420, 760, 1280, 1920])
def test_no_width_makes_the_page_wider_than_itself(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "levels.yaml"
    path.write_text(LEVELS)
    write_page(tmp_path / "page.html", [seen(path)])
    browser.problems.clear()
    browser.size(width, 1000, dark)
    browser.open(tmp_path / "page.html", "#t0-step-17")
    assert browser.js("document.documentElement.scrollWidth") <= width
    colour = browser.js("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in str(colour).removeprefix("rgb(").removesuffix(")").split(",")) > 384
    assert light is not dark
    assert browser.js("[...document.querySelectorAll('.cell.pending')].length") > 0
    assert browser.problems == []


@pytest.mark.parametrize("width", [420, 980, 1280])
def test_what_stands_side_by_side_keeps_to_its_side(divergence: Browser, width: int) -> None:
    divergence.size(width, 1000)
    boxes = (
        "[...document.querySelectorAll('.side, .failure, .body')].flatMap(outer => [...outer.children].map(inner =>"
        " inner.getBoundingClientRect().right - outer.getBoundingClientRect().right))"
    )
    assert max(divergence.js(boxes)) <= 0.5
    assert divergence.js("document.documentElement.scrollWidth") <= width


def test_a_long_prompt_and_200_steps_can_be_gone_through(browser: Browser, tmp_path: Path) -> None:
    long_prompt(tmp_path / "long.yaml")
    size = write_page(tmp_path / "page.html", [seen(tmp_path / "long.yaml")])
    assert size < 2_000_000
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(tmp_path / "page.html", "#t0-step-199")
    assert now(browser).startswith("step 199 of 199")
    assert len(letters(browser, "chat0.main")) >= 128
    assert browser.js("document.querySelectorAll('.track i').length") == 200
    browser.press("ArrowLeft")
    assert now(browser).startswith("step 198 of 199")
    assert browser.problems == []


def test_the_cells_that_differ_are_marked_on_both_sides(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [diverging(mutant="R4.3 a publication retries nothing")])
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(tmp_path / "page.html")
    for side, shown in ((0, "HHG"), (1, "GHG")):
        assert letters(browser, "decoder.main", side) == shown
        cells = f"document.querySelectorAll('.side')[{side}].querySelectorAll('.grid .row[data-request=decoder] .cell')"
        marked = browser.js(f"[...{cells}].map(c => c.matches('.differs')).join()")
        assert marked == "true,false,false,false,false,false", "block 0 of main, and none of index"
    assert browser.problems == []


MARKED = """(() => [...document.querySelectorAll('.side')].map(side => [...side.querySelectorAll('.differs')].map(one => {
  const place = box => [...box.parentElement.children].indexOf(box);
  if (one.matches('.pool')) return `pool ${one.querySelector('b').textContent} ${one.querySelector('span').textContent}`;
  if (one.matches('td')) return `request ${one.parentElement.dataset.request} column ${place(one)}`;
  const table = one.closest('.table'), row = one.closest('.row');
  const what = one.matches('.cell') || one.matches('.cells i') ? `block ${place(one)}` : one.className.split(' ')[0];
  const group = box => box.closest('.of-group').querySelector('.group-name').textContent.split(',')[0];
  if (table) return `table ${group(row)} row ${place(row)} ${what}`;
  return `${one.closest('.grid').dataset.group} ${row.dataset.request || 'tree'} ${what}`;
}).join('; ')))()"""
"""What is marked on each side, by where it stands."""


@pytest.mark.parametrize(
    ("key", "place", "marked"),
    [
        ("levels decoder main 0", 1, "main decoder block 1"),
        ("pages decoder main 0", 2, "main decoder block 2"),
        ("pages decoder index 0", 0, "index decoder block 0"),
        ("eligible decoder main 0", 0, "main decoder eligible"),
        ("page decoder.main.0", 4, "main decoder block 0; main tree block 0"),
        ("page decoder.index.2", 4, "index decoder block 2"),
        ("tree 1", 3, "main tree block 0"),
        ("tree 1", 4, "index tree block 0"),
        ("entries rows main 0", 1, "table main row 0 block 1"),
        ("at rows index 0", 2, "table index row 0 block 2"),
        ("count rows main 0", 0, "table main row 0 count"),
        ("member rows 0", 1, "table main row 0 dirt; table index row 0 dirt"),
        ("pool gpu index", 1, "pool gpu index"),
        ("evictable host main", 0, "pool host main"),
        ("request decoder", 0, "request decoder column 1"),
        ("request decoder", 1, "request decoder column 2"),
        ("request decoder", 2, "request decoder column 3"),
        ("request decoder", 3, "request decoder column 3"),
        ("request decoder", 4, "request decoder column 3"),
        ("request decoder", 5, "request decoder column 4"),
        ("request decoder", 6, "request decoder column 4"),
        ("request decoder", 7, "request decoder column 5"),
        ("request decoder", 8, "request decoder column 5"),
    ],
)
def test_each_thing_that_differs_is_marked_and_nothing_else(divergence: Browser, key: str, place: int, marked: str) -> None:
    """Of a divergence, all marks but one are taken away."""
    kind, *rest = key.split()
    same = "one.join(' ') === key"
    if kind == "page":
        same = f"one[0] === 'page' && it.steps.at(11).page(one[1]).name === '{rest[0]}'"
    found = divergence.js(
        f"((it, key) => {{ const at = it.data.keys.findIndex(one => {same});"
        f" it.data.divergence.marks = [[at, [{place}]]]; it.draw(); return at; }})(timelines[0], '{key}')"
    )
    assert found >= 0
    assert divergence.js(MARKED) == [marked, marked]
    versions = divergence.js("[...document.querySelectorAll('.requests')].map(one => /version of step/.test(one.innerText))")
    assert versions == [(kind, place) == ("request", 7)] * 2
    assert divergence.problems == []


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("divergence") / "page.html"
    write_page(path, [diverging(mutant="R4.3 a publication retries nothing")])
    return path


@pytest.fixture
def divergence(browser: Browser, diverged: Path) -> Browser:
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(diverged)
    return browser


def test_of_several_scenarios_one_is_chosen_and_drawn(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text(LEVELS)
    write_page(tmp_path / "page.html", [seen(GAP), seen(tmp_path / "levels.yaml")])
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(tmp_path / "page.html")
    assert browser.js("[...document.querySelectorAll('section.timeline')].map(one => one.hidden).join()") == "false,true"
    browser.js("(s => { s.value = 1; s.dispatchEvent(new Event('change')); })(document.getElementById('which'))")
    assert browser.js("[...document.querySelectorAll('section.timeline')].map(one => one.hidden).join()") == "true,false"
    assert "three levels" in str(browser.js("document.querySelector('#t1 h1').innerText"))
    browser.press("End")
    assert "step 19 of 19" in str(browser.js("document.querySelector('#t1 .at-now').innerText"))
    assert browser.js("document.querySelectorAll('#t1 .cell').length") > 20
    assert browser.problems == []


def test_the_page_of_a_run_shows_its_failures_over_time(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(GAP.read_text().replace("eligible: {decoder.main: 2", "eligible: {decoder.main: 3"))
    plan = Plan("kvref", "tests.timeline.scenes:Other", timelines=True)
    scenarios = load_file(tmp_path / "wrong.yaml")
    results = [result for _, result in run_all(plan, [*scenarios, *scenarios], 1)]
    assert [result.verdict.value for result in results] == ["failed", "failed"]
    write_html(tmp_path / "run.html", plan, results, {0: "FAILED one", 1: "FAILED two"})
    browser.problems.clear()
    browser.size(1280, 900)
    browser.open(tmp_path / "run.html")
    assert browser.js("[...document.querySelectorAll('details.picture')].map(one => one.open).join()") == "true,false"
    assert browser.js("document.querySelectorAll('#t0 .side').length") == 2
    assert browser.js("document.querySelectorAll('#t1 .side').length") == 0
    browser.js("document.querySelectorAll('details.picture')[1].open = true")
    browser.js("new Promise(done => setTimeout(done, 200))")
    assert browser.js("document.querySelectorAll('#t1 .side').length") == 2
    assert browser.js("document.documentElement.scrollWidth") <= 1280
    browser.js("document.querySelector('a.rule[href=\"#R1.1\"]').click()")
    assert browser.js("document.getElementById('rule').open")
    assert browser.problems == []
