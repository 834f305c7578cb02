"""Changes of a source: which there are, what is left alone, and that a draw is the same everywhere."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from kvspec.audit.changes import before_and_after, changed, changes_of
from kvspec.audit.mutant_drawing import KNOWN, KnownError, Source, draw, fingerprint, load_known, sources_of, stale

ROOT = KNOWN.parents[3]
PACKAGES = ("kvgpu", "kvref", "kvspec.harness")


def _after(line: str) -> dict[str, str]:
    """By change, the line as it becomes, in a function's body."""
    source = f"def f(a, b, c):\n    {line}\n".encode()
    return {change.what: before_and_after(source, change)[1] for change in changes_of(source, "x.py")}


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("return a < b", {"return deleted": "pass", "<: <=": "return a <= b", "<: >=": "return a >= b"}),
        ("return a  is  not b", {"return deleted": "pass", "is  not: is": "return a is b"}),
        ("return (a) in (b)", {"return deleted": "pass", "in: not in": "return (a) not in (b)"}),
        ("a += b", {"statement deleted": "pass", "+=: -=": "a -= b"}),
        ("a = b * c + 1", {
            "statement deleted": "pass",
            "*: +": "a = (b + c) + 1",
            "+: -": "a = b * c - 1",
            "1: 2": "a = b * c + 2",
            "1: 0": "a = b * c + 0",
        }),
        ("a[-1] = b", {"statement deleted": "pass", "-1: 0": "a[0] = b", "-1: -2": "a[(-2)] = b"}),
        ("a = -b, True", {"statement deleted": "pass", "- dropped": "a = (b), True", "True: False": "a = -b, False"}),
        ("if a and b or c: b()", {
            "condition negated": "if (not (a and b or c)): b()",
            "or: and": "if (a and b and c): b()",
            "and: or": "if (a or b) or c: b()",
            "statement deleted": "if a and b or c: pass",
        }),
        ("while not a: break", {"not dropped": "while (a): break", "break: continue": "while not a: continue"}),
        ("for a in b: continue", {"continue deleted": "for a in b: pass", "continue: break": "for a in b: break"}),
        ("return b if a else c", {"return deleted": "pass", "condition negated": "return b if (not (a)) else c"}),
        ("return [a for a in b if c]", {"return deleted": "pass", "condition negated": "return [a for a in b if (not (c))]"}),
        ("min(a, b)", {"statement deleted": "pass", "min: max": "max(a, b)"}),
        ("a.any(b, c)", {"statement deleted": "pass", "any: all": "a.all(b, c)", "arguments swapped: b, c": "a.any(c, b)"}),
        ("sorted(a)", {"statement deleted": "pass", "sorted: list": "list(a)"}),
        ("sorted(a, key=b)", {"statement deleted": "pass"}),
        ("a(b, b, *c)", {"statement deleted": "pass"}),
        ("raise ValueError(1 + a)", {"raise deleted": "pass"}),
        ("raise NotImplementedError", {}),
        ("assert a < 1, a + 1", {}),
        ('"""Text."""', {}),
        ('a = f"{b + 1}"', {"statement deleted": "pass"}),
        ('a = "x" + b', {"statement deleted": "pass"}),
        ("a: Literal[1] = b", {"statement deleted": "pass"}),
        ("a = zip(b, strict=True)", {"statement deleted": "pass"}),
        ("return a**2", {"return deleted": "pass", "2: 3": "return a**3", "2: 1": "return a**1"}),
        ("return a < b < c", {
            "return deleted": "pass",
            "<: <=": "return a < b <= c",
            "<: >=": "return a < b >= c",
        }),
        ("match a:\n        case 1 if b: c()", {
            "1: 2": "case 2 if b: c()",
            "1: 0": "case 0 if b: c()",
            "condition negated": "case 1 if (not (b)): c()",
            "statement deleted": "case 1 if b: pass",
        }),
    ],
)  # fmt: skip
def test_the_changes_of_a_line(line: str, made: dict[str, str]) -> None:
    assert _after(line) == made


def test_equal_changes_of_a_line_are_counted() -> None:
    changes = [change for change in changes_of(b"def f(a):\n    return a < 1 < a\n", "x.py") if change.what == "<: <="]
    assert [change.nth for change in changes] == [0, 1]
    assert len({change.key for change in changes}) == 2


LEFT_ALONE = b'''
"""Text."""

from typing import TYPE_CHECKING
import numpy

if TYPE_CHECKING:
    import os

@dataclass(frozen=True)
class One:
    value: Annotated[int, 3]

    def __repr__(self):
        return "x" if self.value < 1 else "y"

    def kept(self, other: Literal[1]) -> Literal[2]:
        return other < 1

@lru_cache(maxsize=3)
def left(a):
    return a + 1
'''


def test_what_says_nothing_about_a_program_is_left_alone() -> None:
    assert changes_of(LEFT_ALONE, "x.py", ["One.kept", "left"]) == []
    assert {change.function for change in changes_of(LEFT_ALONE, "x.py")} == {"One.kept", "left"}


def test_a_deleted_statement_leaves_the_lines_behind_it_where_they_are() -> None:
    source = b"def f(a):\n    a(\n        1,\n    )\n    return a\n"
    (whole,) = [change for change in changes_of(source, "x.py") if change.what == "statement deleted"]
    assert changed(source, whole) == b"def f(a):\n    pass\n\n\n    return a\n"
    assert (whole.line, whole.first, whole.last) == (2, 2, 4)


def test_a_change_in_the_head_of_a_statement_is_not_executed_by_its_body() -> None:
    source = b"def f(a):\n    if (\n        a\n        < 1\n    ):\n        a()\n    return a\n"
    spans = {change.what: (change.first, change.last) for change in changes_of(source, "x.py")}
    assert spans["<: <="] == (2, 5)
    assert spans["statement deleted"] == (6, 6)


def test_characters_of_several_bytes_are_no_obstacle() -> None:
    source = 'def f(a):\n    return "é€", a < 1, "ü"\n'.encode()
    (whole,) = [change for change in changes_of(source, "x.py") if change.what == "<: <="]
    assert changed(source, whole).decode() == 'def f(a):\n    return "é€", a <= 1, "ü"\n'


@pytest.mark.parametrize("file", ["kvref/eviction.py", "kvgpu/operations/room.py", "spec/kvspec/harness/order.py"])
def test_every_change_of_a_module_is_python_and_another_program_and_no_two_are_the_same(file: str) -> None:
    source = (ROOT / file).read_bytes()
    original = ast.dump(ast.parse(source))
    seen = set()
    changes = changes_of(source, file)
    assert len(changes) > 50
    for change in changes:
        text = changed(source, change)
        assert text.count(b"\n") == source.count(b"\n")
        dumped = ast.dump(ast.parse(text))
        assert dumped != original, change
        assert text not in seen, change
        seen.add(text)
    assert len({change.key for change in changes}) == len(changes)


def _sources(text: str) -> dict[str, Source]:
    return {"x.py": Source("x.py", text.encode(), tuple(changes_of(text.encode(), "x.py")))}


TEXT = "def f(a):\n    if a < 1 and a:\n        return min(a, 4)\n    a += 1\n    return f(a, 2)\n"


def test_the_same_is_drawn_everywhere() -> None:
    drawn = [(one.index, one.change.line, one.change.what) for one in draw(_sources(TEXT), 3, 5)]
    assert drawn == [(0, 2, "and: or"), (1, 4, "1: 0"), (2, 3, "4: 5"), (3, 2, "<: >="), (4, 3, "min: max")]
    assert [one.change for one in draw(_sources(TEXT), 3, 3)] == [one.change for one in draw(_sources(TEXT), 3, 5)][:3]
    assert [one.change for one in draw(_sources(TEXT), 4, 5)] != [one.change for one in draw(_sources(TEXT), 3, 5)]
    everything = draw(_sources(TEXT), 3, 1000)
    assert {one.change for one in everything} == set(changes_of(TEXT.encode(), "x.py"))


def test_an_edit_leaves_the_order_of_other_breaks() -> None:
    more = "def g(b):\n    return b > 7\n\n\n" + TEXT
    keys = [one.change.key for one in draw(_sources(TEXT), 1, 1000)]
    with_more = [one.change.key for one in draw(_sources(more), 1, 1000)]
    assert [key for key in with_more if key in set(keys)] == keys
    assert fingerprint(_sources(more)) != fingerprint(_sources(TEXT))


def test_what_is_known_is_there() -> None:
    known = load_known()
    for package in PACKAGES:
        assert stale(known, sources_of(package, known), package) == []
    for entry in known.left_out:
        for pattern in entry.files:
            paths = sorted(ROOT.glob(pattern))
            assert paths, pattern
            for path in paths:
                functions = {change.function for change in changes_of(path.read_bytes(), path.name)}
                for name in entry.functions:
                    assert any(function == name or function.startswith(f"{name}.") for function in functions), name
    keys = [entry.key for entry in known.equivalent]
    assert len(set(keys)) == len(keys)


def test_an_equivalent_change_is_found_wherever_its_line_is(tmp_path: Path) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(
        "equivalent:\n  - {file: x/y.py, function: f, line: 'a += 1', change: '1: 2', reason: nobody looks}\n"
        "  - {file: x/y.py, function: f, line: 'a += 2', change: '1: 2', reason: it is gone}\n"
    )
    known = load_known(path)
    text = b"\n\n" + TEXT.encode()
    changes = changes_of(text, "x/y.py")
    (change,) = [one for one in changes if one.text == "a += 1" and one.what == "1: 2"]
    assert change.line == 6
    assert known.reason(change) == "nobody looks"
    assert known.reason(replace(change, what="1: 0")) is None
    assert [entry.line for entry in stale(known, {"x/y.py": Source("x/y.py", text, tuple(changes))}, "x")] == ["a += 2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("equivalent: 3", "equivalent: "),
        ("equivalent: [{file: x.py}]", "equivalent.0.function: field required"),
        ("more: []", "more: extra inputs are not permitted"),
        ("[", "no YAML"),
    ],
)
def test_a_wrong_file_of_known_changes_says_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(text)
    with pytest.raises(KnownError) as raised:
        load_known(path)
    assert str(raised.value).startswith(f"{path}: {says}")
