"""The figures of a comparison as a table, as CSV, and as a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from kvspec.comparing.figures import Figures

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS: dict[str, tuple[str, Callable[[Figures], int | float | str]]] = {
    "operations": ("operations", lambda f: f.operations),
    "gpu_peak": ("gpu pages, peak", lambda f: max(f.gpu, default=0)),
    "gpu_mean": ("gpu pages, mean", lambda f: round(mean(f.gpu), 1) if f.gpu else 0),
    "host_peak": ("host pages, peak", lambda f: max(f.host, default=0)),
    "host_mean": ("host pages, mean", lambda f: round(mean(f.host), 1) if f.host else 0),
    "down_pages": ("pages down", lambda f: f.down),
    "down_bytes": ("bytes down", lambda f: f.down_bytes),
    "up_pages": ("pages up", lambda f: f.up),
    "up_bytes": ("bytes up", lambda f: f.up_bytes),
    "copied_pages": ("pages copied on the gpu", lambda f: f.copies),
    "attached_pages": ("pages attached", lambda f: f.attached),
    "waited": ("page-steps that waited", lambda f: f.waited),
    "false": ("operations that were false", lambda f: f.false),
    "eligible_share": ("eligible history", lambda f: round(f.share, 4)),
}
"""Of each figure its name in CSV, what the table calls it, and the figure."""


def table(figures: Sequence[Figures]) -> Table:
    """One table of a workload: a line for each figure, a column for each policy."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    for one in figures:
        shown.add_column(one.ownership.value, justify="right")
    for key, (title, of) in COLUMNS.items():
        shown.add_row(title, *(_text(key, of(one)) for one in figures))
    return shown


def _text(key: str, value: float | str) -> str:
    if key == "eligible_share":
        return f"{value:.1%}"
    if key.endswith("bytes"):
        return _size(float(value))
    return f"{value:,}"


def _size(nbytes: float) -> str:
    """Bytes for the reader: in the largest unit of which there is one."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} GiB"


def as_csv(figures: Sequence[Figures]) -> str:
    """A line for each workload and policy."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["workload", "ownership", *COLUMNS])
    for one in figures:
        lines.writerow([one.workload, one.ownership.value, *(of(one) for _, of in COLUMNS.values())])
    return text.getvalue()
