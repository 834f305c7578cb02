"""Where code cites the rules: ``python -m kvspec.audit.citations kvref kvgpu`` writes the table of docs/rules-in-code.md.

Read from the sources, nothing is imported: a function, class or constant cites a rule if its docstring, or a comment or string
in it, names the rule. A range (``R3.2-R3.5``) is all rules of it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvspec.rules import load_rules, rule_ids

HEAD = """# Where the rules are in the code

Written by `python -m kvspec.audit.citations kvref kvgpu > docs/rules-in-code.md`, and checked by a test: each rule, and what
cites it in either system. A module stands for itself where only its
first line cites the rule.
"""
_CITED = re.compile(r"R(\d+)\.(\d+)(?:\s*(?:-|to)\s*R?(?:(\d+)\.)?(\d+))?")


def cited(text: str) -> set[str]:
    """The rules that a text names."""
    found = set()
    for section, first, last_section, last in _CITED.findall(text):
        end = int(last) if last and last_section in ("", section) else int(first)
        found |= {f"R{section}.{number}" for number in range(int(first), max(end, int(first)) + 1)}
    return found & set(rule_ids())


def citations(package: str) -> dict[str, list[str]]:
    """By rule, what cites it: ``module.function`` and ``module.Class.method``, dotted from below the package, in order.

    Raises ``ModuleNotFoundError``.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no package {package!r}")
    root = Path(spec.origin).parent
    found: dict[str, list[str]] = {rule: [] for rule in rule_ids()}
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        if not module.startswith(("testing.", "adapter.")):
            for name, text in _pieces(path.read_text(encoding="utf-8")):
                for rule in cited(text):
                    where = f"{module}.{name}" if name else module
                    if where not in found[rule]:
                        found[rule].append(where)
    return {rule: [where for where in found_in if not _has_parts(where, found_in)] for rule, found_in in found.items()}


def _has_parts(module: str, found_in: Sequence[str]) -> bool:
    """Whether a module, which cites a rule, has functions that do, too: then these say more."""
    return any(where.startswith(f"{module}.") for where in found_in)


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each part of a module; the module's own first line has no name."""
    tree, lines = ast.parse(source), source.splitlines()
    yield "", (ast.get_docstring(tree) or "").partition("\n\n")[0]
    yield from _parts(tree, lines, "")


def _parts(parent: ast.AST, lines: Sequence[str], prefix: str) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, "\n".join(lines[node.lineno - 1 : node.end_lineno])
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name, ast.get_docstring(node) or ""
            yield from _parts(node, lines, f"{prefix}{node.name}.")


def table(packages: Sequence[str]) -> str:
    """The table, in markdown: a row a rule, a column a package."""
    columns = [citations(package) for package in packages]
    rows = [
        f"| {rule.id} | " + " | ".join(", ".join(f"`{where}`" for where in column[rule.id]) or "-" for column in columns) + " |"
        for rule in load_rules()
    ]
    head = f"| rule | {' | '.join(f'`{package}`' for package in packages)} |\n| --- |{' --- |' * len(packages)}"
    return "\n".join([HEAD, head, *rows, ""])


if __name__ == "__main__":
    print(table(sys.argv[1:]), end="")
