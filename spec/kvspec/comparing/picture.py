"""Pages on the GPU over the operations of a workload, one line a policy, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvspec.comparing.figures import Figures

WIDTH, PANEL, LEFT, RIGHT = 860, 250, 60, 20
TOP, BOTTOM = 32, 210
"""Of the plot in a panel, in pixels."""
TICKS = 4
POINTS = 800
"""So many points of a line can be told apart."""


def picture(workloads: Sequence[Sequence[Figures]]) -> str:
    """A panel for each workload; the figures of each are those of the policies that were compared."""
    from jinja2 import Environment, FileSystemLoader

    page = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    panels = [_panel(number, figures) for number, figures in enumerate(workloads)]
    return page.get_template("picture.svg.j2").render(
        width=WIDTH, height=PANEL * len(panels), left=LEFT, right=RIGHT, panels=panels
    )


def _panel(number: int, figures: Sequence[Figures]) -> dict[str, object]:
    most = max(1, *(max(one.gpu, default=0) for one in figures))
    last = max(2, *(one.operations for one in figures))
    ticks = [{"y": _y(most * n / TICKS, most), "text": round(most * n / TICKS)} for n in range(TICKS + 1)]
    lines = [
        {"name": one.ownership.value, "points": _points(one.gpu, last, most), "key": WIDTH - RIGHT - 110 * (len(figures) - n)}
        for n, one in enumerate(figures)
    ]
    return {
        "top": PANEL * number,
        "title": figures[0].workload,
        "ticks": ticks,
        "lines": lines,
        "foot": BOTTOM + 20,
        "last": last,
    }


def _points(pages: Sequence[int], last: int, most: int) -> str:
    """The points of a line; of many operations the most pages of each stretch, so that no peak is lost."""
    stretch = max(1, -(-len(pages) // POINTS))
    highest = [(at, max(pages[at : at + stretch])) for at in range(0, len(pages), stretch)]
    return " ".join(f"{LEFT + at / (last - 1) * (WIDTH - LEFT - RIGHT):.1f},{_y(count, most):.1f}" for at, count in highest)


def _y(pages: float, most: int) -> float:
    return BOTTOM - pages / most * (BOTTOM - TOP)
