"""How long things are shortened: tokens and blocks folded, a step's arguments, its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from kvspec.harness.compare import text
from kvspec.observation import PageView
from kvspec.ops import Operation
from kvspec.system import Outcome
from kvspec.tokens import Token

MAX_RUNS = 6
"""Up to so many runs of numbers are written; of more, the first and the last."""
SHORT = 4
"""Up to so many tokens are written as they are."""


def base_name(page: PageView) -> str:
    """The name of a page without its block: that of a request's group, or its group alone where no request refers to it."""
    if not page.refs:
        return page.group
    ref = min(page.refs)
    return f"{ref.request}.{ref.group}" + (f" beam {ref.beam}" if ref.beam else "")


def shown_names(pages: Iterable[PageView]) -> list[str]:
    """The names of pages, those of one request and group as one: ``chat.main [0..31]``."""
    by_base: dict[str, list[PageView]] = {}
    for page in pages:
        by_base.setdefault(base_name(page), []).append(page)
    return [
        shown_name(found[0]) if len(found) == 1 else f"{base} {folded(tuple(sorted(page.block for page in found)), 'blocks')}"
        for base, found in by_base.items()
    ]


@lru_cache(maxsize=1 << 14)
def folded(numbers: tuple[Token, ...], what: str = "tokens") -> str:
    """Numbers as ``[0..511]``, ``[0..3, 9]``; what does not fold is cut in the middle, with how many there are of ``what``."""
    parts = list(map(str, numbers)) if len(numbers) <= SHORT and what == "tokens" else list(_runs(numbers))
    if len(parts) > MAX_RUNS:
        return f"[{', '.join(parts[: MAX_RUNS - 2])} ... {parts[-1]}: {len(numbers)} {what}]"
    return f"[{', '.join(parts)}]"


def _runs(numbers: Sequence[Token]) -> Iterator[str]:
    start = 0
    for index in range(1, len(numbers) + 1):
        if index < len(numbers) and numbers[index] == numbers[index - 1] + 1:
            continue
        run = numbers[start:index]
        yield from [f"{run[0]}..{run[-1]}"] if len(run) > 2 else map(str, run)
        start = index


def shown_name(page: PageView) -> str:
    """The name of a page: its smallest reference, or its group and the tokens of its tree block."""
    if page.refs:
        return str(min(page.refs))
    if page.tokens is not None:
        return f"{page.group}{folded(page.tokens)}"
    return f"{page.group} page at {page.level.label} slot {page.slot}"


def arguments(op: Operation) -> str:
    """The arguments that a step gives, as in the file but folded."""
    given = op.model_dump(exclude_defaults=True, by_alias=True, mode="json")
    if len(given) == 1 and op.bare is not None:
        return _plain(next(iter(given.values())))
    return ", ".join(f"{key} {_plain(value)}" for key, value in given.items())


def _plain(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) > SHORT and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            return folded(tuple(value))
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_plain(one)}' for key, one in value.items())}}}"
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def said(outcome: Outcome) -> str:
    """What a step returned or raised; nothing if it returned nothing."""
    if outcome.error is not None:
        return f"raises {outcome.error.value}"
    return "" if outcome.value is None else f"-> {_value(outcome.value)}"


def _value(value: object) -> str:
    from kvspec.harness.outcomes import counters
    from kvspec.observation import Counters
    from kvspec.system import OffsetTable

    if isinstance(value, Counters):
        return _plain(counters(value))
    if isinstance(value, OffsetTable):
        return _plain(value.offsets)
    return _plain(value) if isinstance(value, Mapping) else text(value)


def listed(names: Iterable[str]) -> str:
    """Names as they stand in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    names = sorted(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
