"""``python -m bench.plot FIGURES.json OUT.svg [WHAT]``: the measurements as pictures. Needs matplotlib.

``WHAT``: ``migration``, the ways to move scattered pages, or ``hit_rates``, those of fetches beside the best possible.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

WAYS = {"per_page": "one call per page", "batched": "one batched call", "kernel": "C++ kernel, 16 blocks", "ours": "kvgpu"}


def migration(pyplot: Any, rows: list[dict[str, Any]]) -> Any:
    """GB/s of each way, for each page size."""
    chart, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, direction in zip(axes, ("offload", "onboard"), strict=True):
        chosen = [row for row in rows if row["direction"] == direction]
        for place, (way, name) in enumerate(WAYS.items()):
            heights = [row["bytes"] / row[way] / 1e3 for row in chosen]
            bars = axis.bar([n + (place - 1.5) * 0.2 for n in range(len(chosen))], heights, 0.19, label=name)
            axis.bar_label(bars, fmt="%.0f", fontsize=7)
        for number, row in enumerate(chosen):
            ceiling = row["bytes"] / row["ceiling"] / 1e3
            axis.hlines(ceiling, number - 0.45, number + 0.45, colors="black", linestyles="dashed", linewidth=1)
        axis.set_xticks(range(len(chosen)), [f"{row['page_bytes'] >> 10} KiB" for row in chosen])
        axis.set_title(f"{direction}: scattered pages (dashed: contiguous copy)", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("GB/s")
    chart.legend(*axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=len(WAYS), frameon=False)
    return chart


def hit_rates(pyplot: Any, rates: list[dict[str, Any]]) -> Any:
    """By the reserved slots, what was there, and what a cache that knows the future would have had; a panel for each drift."""
    drifts = list(dict.fromkeys(rate["drift"] for rate in rates))
    chart, axes = pyplot.subplots(1, len(drifts), figsize=(9, 3.4), sharey=True, layout="constrained")
    for axis, drift in zip(axes, drifts, strict=True):
        chosen = [rate for rate in rates if rate["drift"] == drift]
        sizes = [rate["times"] for rate in chosen]
        lines = (("best", "best possible", "black", "o--", 7), ("hits", "kvgpu: least recently used", "C3", "o-", -12))
        for key, name, color, style, above in lines:
            heights = [100 * rate[key] for rate in chosen]
            axis.plot(sizes, heights, style, color=color, label=name, markersize=4, linewidth=1.3)
            for size, height in zip(sizes[1:], heights[1:], strict=True):
                axis.annotate(
                    f"{height:.1f}", (size, height), (0, above), textcoords="offset points", ha="center", fontsize=7, color=color
                )
        axis.annotate(
            f"{heights[0]:.1f}", (1, heights[0]), (8, -3), textcoords="offset points", ha="left", fontsize=7, color="black"
        )
        axis.set_xticks(sizes, ["k" if size == 1 else f"{size}k" for size in sizes])
        axis.set_title(f"{drift} drift: {chosen[0]['repeated']:.0%} as in the step before", fontsize=9)
        axis.set_xlabel("reserved slots, n", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(60, 102.5)
        axis.set_xlim(0.8, 4.3)
    axes[0].set_ylabel("hits, % of what is selected")
    chart.legend(*axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=2, frameon=False)
    return chart


PICTURES = {"migration": migration, "hit_rates": hit_rates}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("what", nargs="?", choices=PICTURES, default="migration")
    chosen = parser.parse_args()
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    PICTURES[chosen.what](pyplot, json.loads(chosen.figures.read_text())[chosen.what]).savefig(chosen.out)


if __name__ == "__main__":
    main()
