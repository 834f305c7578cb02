"""Every small change that a Python source allows, mechanically: what breaks that are drawn at random are drawn from.

Comparisons, constants, arithmetic, conditions, deleted statements, swapped arguments and the like. Left alone is what says
nothing about what a program does: annotations, texts and the errors that carry them, assertions, representations, settings of
dataclasses. A change keeps every other line where it is.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

COMPARISONS: dict[str, tuple[str, ...]] = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
ARITHMETIC: dict[str, str] = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "//", "|": "&", "&": "|", "^": "|", "<<": ">>", ">>": "<<",
}  # fmt: skip
CALLED: dict[str, str] = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum", "reversed": "iter",
    "union": "intersection", "intersection": "union",
}  # fmt: skip
"""Functions and methods, and what replaces each."""
ORDERLESS = frozenset({"min", "max", "minimum", "maximum", "gcd", "cast", "isinstance", "issubclass", "getattr", "setattr"})
"""Functions whose arguments may be swapped, or must not in a way that shows at once."""
SETTINGS = frozenset({"dataclass", "lru_cache", "cache", "TypeVar", "NewType", "Literal"})
"""Calls and subscripts whose arguments are settings of the language, not values of the program."""
TEXTS = frozenset({"__repr__", "__str__", "__format__"})
"""Methods that only make texts."""
STRICT = frozenset({"strict", "repr", "frozen", "slots", "dtype"})
"""Keyword arguments that check or describe."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes ``start`` up to ``end`` of a source become ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one source.

    ``file``: from the folder of the package on, with slashes. ``function``: its qualified name, empty at the level of the module.
    ``line``: where it is. ``text``: that line as it is, stripped. ``what``: the change in words. ``nth``: which of those that
    are equal in all of this, from 0. ``first``, ``last``: the lines of the statement, or of the head of a compound one.
    """

    file: str
    function: str
    line: int
    text: str
    what: str
    edit: Edit
    first: int
    last: int
    nth: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What stays the same when other lines come and go."""
        return (self.file, self.function, self.text, self.what, self.nth)

    @property
    def name(self) -> str:
        """Where it is and the change, for a list."""
        return f"{self.file}:{self.line}: {self.what}"


def changes_of(source: bytes, file: str, left_out: Iterable[str] = ()) -> list[Change]:
    """All changes of a source, in its order.

    :param file: the name that they carry.
    :param left_out: qualified names of functions and classes that are left alone.
    :raises SyntaxError: it is no Python.
    """
    finder = _Finder(source, file, frozenset(left_out))
    finder.body(ast.parse(source).body)
    seen: Counter[tuple[str, str, str, str, int]] = Counter()
    numbered = []
    for change in finder.found:
        numbered.append(replace(change, nth=seen[change.key]))
        seen[change.key] += 1
    return numbered


def changed(source: bytes, change: Change) -> bytes:
    """The source with the change made."""
    return source[: change.edit.start] + change.edit.text.encode() + source[change.edit.end :]


def before_and_after(source: bytes, change: Change) -> tuple[str, str]:
    """The lines that a change touches, as they are and as they become, each in one line."""
    start = source.rfind(b"\n", 0, change.edit.start) + 1
    end = source.find(b"\n", change.edit.end)
    end = len(source) if end < 0 else end
    after = source[start : change.edit.start] + change.edit.text.encode() + source[change.edit.end : end]
    return _short(source[start:end]), _short(after)


def _short(lines: bytes) -> str:
    return " ".join(lines.decode().split())


@dataclass(slots=True)
class _Finder:
    source: bytes
    file: str
    left_out: frozenset[str]
    found: list[Change] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    scope: tuple[str, ...] = ()
    inside: bool = False
    """In a function, where statements may be deleted."""
    span: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        self.lines = self.source.splitlines(keepends=True)
        start = 0
        for line in self.lines:
            self.starts.append(start)
            start += len(line)

    # ---- spans --------------------------------------------------------------------------------------------------------

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def segment(self, node: ast.expr | ast.stmt) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def add(self, what: str, start: int, end: int, text: str) -> None:
        line = self.source.count(b"\n", 0, start) + 1
        here = self.lines[line - 1].decode().strip()
        self.found.append(Change(self.file, ".".join(self.scope), line, here, what, Edit(start, end, text), *self.span))

    def instead(self, node: ast.expr | ast.stmt, what: str, text: str) -> None:
        self.add(what, self.start(node), self.end(node), text)

    # ---- statements --------------------------------------------------------------------------------------------------

    def body(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self.span = (node.lineno, _head_end(node))
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definition(node)
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Global() | ast.Nonlocal():
                pass
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                self.body(node.orelse)
            case ast.Expr(ast.Constant()):
                pass  # a docstring, or an ellipsis
            case ast.Raise():
                self.delete(node)
            case _:
                self.plain(node)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        scope, inside = self.scope, self.inside
        name = ".".join((*scope, node.name))
        if node.name in TEXTS or name in self.left_out:
            return
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.span = (default.lineno, default.end_lineno or default.lineno)
                    self.expression(default)
        self.scope, self.inside = (*scope, node.name), not isinstance(node, ast.ClassDef)
        self.body(node.body)
        self.scope, self.inside = scope, inside

    def plain(self, node: ast.stmt) -> None:
        if self.inside:
            self.delete(node)
        match node:
            case ast.Break():
                self.instead(node, "break: continue", "continue")
            case ast.Continue():
                self.instead(node, "continue: break", "break")
            case ast.AugAssign():
                self.operator_between(node.target, node.value)
            case ast.If() | ast.While():
                self.negate(node.test)
        span = self.span
        for name, value in ast.iter_fields(node):
            if name == "annotation":
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.stmt):
                    self.statement(one)
                elif isinstance(one, ast.ExceptHandler):
                    self.body(one.body)
                elif isinstance(one, ast.match_case):
                    self.case(one)
                elif isinstance(one, ast.AST):
                    self.span = span
                    self.anything(one)

    def case(self, case: ast.match_case) -> None:
        self.span = (case.pattern.lineno, case.pattern.end_lineno)
        self.anything(case.pattern)
        if case.guard is not None:
            self.span = (case.guard.lineno, case.guard.end_lineno or case.guard.lineno)
            self.negate(case.guard)
            self.expression(case.guard)
        self.body(case.body)

    def delete(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Return() | ast.Raise() | ast.Delete() | ast.Continue():
                pass
            case ast.AnnAssign() if node.value is not None:
                pass
            case _:
                return
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in self.segment(node.exc):
            return
        kind = type(node).__name__.lower() if isinstance(node, ast.Return | ast.Raise | ast.Continue) else "statement"
        self.instead(node, f"{kind} deleted", "pass" + "\n" * self.segment(node).count("\n"))

    # ---- expressions -------------------------------------------------------------------------------------------------

    def anything(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self.expression(node)
            return
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                self.negate(test)
        if isinstance(node, ast.keyword) and node.arg in STRICT:
            return
        for child in ast.iter_child_nodes(node):
            self.anything(child)

    def expression(self, node: ast.expr) -> None:
        match node:
            case ast.JoinedStr():
                return  # a text, and Python 3.11 does not say where its parts are
            case ast.Call(func) | ast.Subscript(func) if _last_name(func) in SETTINGS:
                return
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as number)):
                self.number(node, -number)
                return
            case ast.Constant(bool() as truth):
                self.instead(node, f"{truth}: {not truth}", str(not truth))
            case ast.Constant(int() as number):
                self.number(node, number)
            case ast.Compare():
                self.comparison(node)
            case ast.BoolOp():
                self.boolean(node)
            case ast.BinOp():
                if not (_is_text(node.left) or _is_text(node.right)):
                    self.operator_between(node.left, node.right, node)
            case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
                sign = self.source[self.start(node) : self.start(operand)].decode().strip(" (")
                self.instead(node, f"{sign} dropped", f"({self.segment(operand)})")
            case ast.IfExp():
                self.negate(node.test)
            case ast.Call():
                self.call(node)
        for child in ast.iter_child_nodes(node):
            self.anything(child)

    def number(self, node: ast.expr, number: int) -> None:
        text = self.segment(node)
        for other in (number + 1, number - 1):
            self.instead(node, f"{text}: {other}", str(other) if other >= 0 else f"({other})")

    def negate(self, test: ast.expr) -> None:
        """A condition is turned round, unless a change of its one comparison or of its ``not`` does that."""
        match test:
            case ast.Compare(ops=[_]) | ast.UnaryOp(ast.Not()) | ast.Constant():
                return
        self.instead(test, "condition negated", f"(not ({self.segment(test)}))")

    def comparison(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, right in pairwise(sides):
            span = self.gap(left, right, r"not\s+in|is\s+not|in|is|<=|>=|==|!=|<|>")
            if span is not None:
                start, end, operator = span
                for other in COMPARISONS[" ".join(operator.split())]:
                    self.add(f"{operator}: {other}", start, end, other)

    def boolean(self, node: ast.BoolOp) -> None:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        spans = [self.gap(left, right, word) for left, right in pairwise(node.values)]
        if all(span is not None for span in spans):
            edits = [(span[0], span[1], other) for span in spans if span is not None]
            self.instead(node, f"{word}: {other}", f"({self.with_edits(node, edits)})")

    def operator_between(self, left: ast.expr, right: ast.expr, whole: ast.BinOp | None = None) -> None:
        span = self.gap(left, right, r"//|<<|>>|[-+*/%|&^]")
        if span is None or span[2] not in ARITHMETIC or self.source[span[0] : span[0] + 2] == b"**":
            return
        start, end, operator = span
        other = ARITHMETIC[operator]
        if whole is None:
            self.add(f"{operator}=: {other}=", start, end, other)
        elif operator in "+-":
            self.add(f"{operator}: {other}", start, end, other)
        else:  # it binds in another way
            self.instead(whole, f"{operator}: {other}", f"({self.with_edits(whole, [(start, end, other)])})")

    def with_edits(self, node: ast.expr, edits: Iterable[tuple[int, int, str]]) -> str:
        text, place = b"", self.start(node)
        for start, end, new in edits:
            text += self.source[place:start] + new.encode()
            place = end
        return (text + self.source[place : self.end(node)]).decode()

    def gap(self, left: ast.expr, right: ast.expr, pattern: str) -> tuple[int, int, str] | None:
        """Where the one operator between two operands is; ``None`` if comments make that hard to say."""
        start, end = self.end(left), self.start(right)
        between = self.source[start:end].decode()
        found = list(re.finditer(pattern, between))
        if len(found) != 1 or "#" in between:
            return None
        first, last = found[0].span()
        return start + len(between[:first].encode()), start + len(between[:last].encode()), found[0].group()

    def call(self, node: ast.Call) -> None:
        name = _last_name(node.func)
        if name in CALLED:
            end = self.end(node.func)
            self.add(f"{name}: {CALLED[name]}", end - len(name), end, CALLED[name])
        if name == "sorted" and not node.keywords:
            self.instead(node.func, "sorted: list", "list")
        if name in ORDERLESS or any(isinstance(one, ast.Starred) for one in node.args):
            return
        for one, two in pairwise(node.args):
            texts = self.segment(one), self.segment(two)
            if texts[0] != texts[1]:
                between = self.source[self.end(one) : self.start(two)].decode()
                text = texts[1] + between + texts[0]
                self.add(f"arguments swapped: {', '.join(map(_line, texts))}", self.start(one), self.end(two), text)


def _line(text: str) -> str:
    return " ".join(text.split())


def _head_end(node: ast.stmt) -> int:
    """The last line of a statement, of a compound one that of its head."""
    inner = next((one.lineno for one in _inner(node)), None)
    end = node.end_lineno or node.lineno
    return end if inner is None else max(node.lineno, inner - 1)


def _inner(node: ast.stmt) -> Iterator[ast.stmt]:
    body = getattr(node, "body", None)
    if isinstance(body, list):
        yield from (one for one in body if isinstance(one, ast.stmt))
    if isinstance(node, ast.Match):
        yield from node.cases[0].body


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
