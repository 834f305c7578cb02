"""``kvspec run --html``: one page that needs nothing else, and says what the terminal says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.paths import PATHS, ROOT

EXAMPLES = ROOT / "docs" / "examples"
RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"
ODD = '<script>alert("odd")</script> & co'


class Page(HTMLParser):
    """The text of a page by the classes that it stands in, its links, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.verdicts: list[str] = []
        self.rules: dict[str, str] = {}
        self.loads: list[str] = []
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.scripts = 0
        self.timelines: list[str] = []
        self._json = False
        self._rule = ""
        self._row = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        self._json = have.get("type") == "application/json"
        self.scripts += tag == "script" and not self._json
        self.loads += [value or "" for key, value in attrs if key == "src" or (tag == "link" and key == "href")]
        self.ids |= {have["id"] or ""} if "id" in have else set()
        self.links |= {have["href"] or ""} if tag == "a" else set()
        if tag == "tr":
            self.rows.append("")
            self._row = True
            self.verdicts.append(have.get("data-verdict") or "")
        kinds = (have.get("class") or "").split()
        self._rule = kinds[-1] if "rule" in kinds else ""

    def handle_endtag(self, tag: str) -> None:
        self._row = self._row and tag != "tr"

    def handle_data(self, data: str) -> None:
        if self._json and data.strip():
            self.timelines.append(data)
        if self._row:
            self.rows[-1] += data
        if self._rule and re.fullmatch(r"\s*R[\d.]+\s*", data):
            self.rules[data.strip()] = self._rule
            self._rule = ""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("html")
    odd = (
        (EXAMPLES / "tiny.yaml")
        .read_text()
        .split("---\n")[1]
        .replace("lines that nobody else has are given to the next sequence", ODD)
    )
    (folder / "odd.yaml").write_text(odd.replace(f"name: {ODD}", f"name: '{ODD}'"))
    path = folder / "page.html"
    environment = {**os.environ, "PYTHONPATH": PATHS, "TINY_BUG": "stale_version"}
    args = ["tiny.yaml", "../../scenarios/snapshots", str(folder / "odd.yaml"), "--system", "tiny_adapter:TinySystem"]
    command = [sys.executable, "-c", RUN, "run", *args, "--html", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    return path.read_text(encoding="utf-8")


def test_every_scenario_has_a_row_with_its_verdict(written: str) -> None:
    page = Page(written)
    assert {verdict: page.verdicts.count(verdict) for verdict in ("passed", "failed")} == {"passed": 2, "failed": 1}
    assert page.verdicts.count("skipped") == len(page.rows) - 3 > 0
    assert any(ODD in row for row in page.rows), "names are text, whatever is in them"
    assert any("lacks verb" in row for row in page.rows)


def test_a_failure_is_as_on_the_terminal_and_its_row_leads_to_it(written: str) -> None:
    page = Page(written)
    assert "FAILED a sequence generates, and its table follows its lines into the store" in written
    assert "differs version of chat  [R6.4]" in written
    assert {link for link in page.links if not link.startswith("#R")} == {"#f0"}
    assert {"f0", "t0"} <= page.ids
    assert {link.removeprefix("#") for link in page.links} <= page.ids, "what is linked to is there"


def test_a_failure_is_shown_over_time(written: str) -> None:
    (timeline,) = map(json.loads, Page(written).timelines)
    assert timeline["name"] == "a sequence generates, and its table follows its lines into the store"
    assert timeline["systems"] == ["kvref", "tiny_adapter:TinySystem"]
    assert len(timeline["steps"]) == timeline["failure"]["step"] + 1
    assert ["R6.4"] in [difference["rules"] for difference in timeline["failure"]["differences"]]
    assert timeline["divergence"]["marks"]


def test_rules_are_those_of_the_run(written: str) -> None:
    rules = Page(written).rules
    assert rules["R6.4"] == "failed"
    assert rules["R8.2"] == "passed"
    assert rules["R1.1"] == "none"


def test_nothing_is_loaded_and_nothing_is_left_unsaid(written: str) -> None:
    page = Page(written)
    assert page.loads == ["data:,"]
    assert page.scripts == 1
    assert "http" not in written
    assert "Not compared, as the system does not show it: contents of pages, order of device work" in written


def test_a_page_that_cannot_be_written_exits_2(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, "run", "tiny.yaml", "--html", str(tmp_path / "no" / "page.html")]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    command += ["--system", "tiny_adapter:TinySystem"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES, env=environment, timeout=120, check=False)
    assert done.returncode == 2
    assert re.search(r"--html .*page.html: cannot be written: there is no folder", done.stderr)
