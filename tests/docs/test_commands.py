"""Every command of the documentation is run, page by page, and prints what the page shows.

With ``KVSPEC_WRITE_DOCS=1`` the pages get what was printed instead, where they show all of it.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from kvspec.cli.main import COMMANDS, app
from tests.docs.pages import PAGES, Command, File, Reader, same, steps
from tests.paths import ROOT

NOT_RUN = {
    "python3 -m venv": "installs the project; tests/test_wheel.py does, and every run of the suite is what follows",
    "pip install": "it is the command that runs these tests",
    "my_package": "it stands for the reader's own",
    "my_manager": "it stands for the reader's own",
    "vllm_adapter": "it needs vLLM; tests/adapter/test_vllm_example.py runs it where there is one",
    "sglang_adapter": "it needs SGLang; tests/adapter/test_sglang_example.py runs it where there is one",
    "./driver": "it needs a compiler; tests/wire/test_cpp.py builds and runs it where there is one",
}
"""Commands that the test does not type, by something that is in them, with the reason."""
WRITE = bool(os.environ.get("KVSPEC_WRITE_DOCS"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def left_out(command: Command) -> bool:
    return any(part in command.text for part in NOT_RUN)


WITH_COMMANDS = [page for page in PAGES if any(isinstance(one, Command) for one in steps(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    for part in ("docs", "scenarios"):
        shutil.copytree(ROOT / part, tmp_path / "kvspec" / part)
    reader = Reader(tmp_path)
    printed: list[tuple[Command, str]] = []
    for one in steps(page):
        if isinstance(one, File):
            reader.write(one)
            continue
        if left_out(one):
            continue
        code, said = reader.run(one)
        where = f"{name_of(page)}:{one.line}: {one.text.strip()}"
        assert code == one.code, f"{where}\nexits with {code}, not {one.code}:\n{said}"
        printed.append((one, said))
        if not WRITE and one.printed is not None:
            assert same(one.printed, said), f"{where}\nprints\n{said}\nnot\n{one.printed}"
    if WRITE:
        text = page.read_text(encoding="utf-8")
        for one, said in reversed(printed):
            if one.printed is not None and not re.search(r"^\.\.\.$", one.printed, re.MULTILINE) and not same(one.printed, said):
                text = text[: one.span[0]] + said + text[one.span[1] :]
        page.write_text(text, encoding="utf-8")


def test_what_is_not_run_is_there() -> None:
    commands = [one for page in PAGES for one in steps(page) if isinstance(one, Command)]
    for part in NOT_RUN:
        assert any(part in one.text for one in commands), part
    assert sum(not left_out(one) for one in commands) > 25


def mentioned(page: Path) -> list[tuple[str, str]]:
    """Each command of ours that a page names, in its text or in a block: the command's name, and what follows."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    spans = [found[1] for found in re.finditer(r"`(kvspec [^`\n]+)`", text)]
    typed = [line for one in steps(page) if isinstance(one, Command) for line in one.text.splitlines()]
    spans += [found[0] for line in typed for found in re.finditer(r"\bkvspec [^&|;]+", line)]
    return [(words[1], " ".join(words[2:])) for words in map(str.split, spans) if len(words) > 1]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_that_a_page_names_is_there(page: Path) -> None:
    import typer

    group = typer.main.get_command(app)
    for name, rest in mentioned(page):
        if name in ("COMMAND", "explain's"):
            continue
        assert name in COMMANDS or name.startswith("-"), f"{name_of(page)}: kvspec {name}"
        if name.startswith("-"):
            continue
        known = {
            option
            for parameter in group.get_command(None, name).params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }  # type: ignore[attr-defined, arg-type]
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", re.sub(r"'[^']*'", "", rest)):  # in quotes it is somebody else's
            assert option in known | {"--help", "-h"}, f"{name_of(page)}: kvspec {name} has no {option}"
    for module in re.findall(r"python -m ((?:kvspec|kvref|kvgpu|bench|tests)[\w.]*)", page.read_text(encoding="utf-8")):
        assert find_spec(module) is not None, f"{name_of(page)}: {module}"


def test_the_readme_names_every_command() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    for command in COMMANDS:
        assert re.search(rf"`(kvspec )?{command}\b", table), command
