"""``python -m bench.plot FIGURES.json OUT.svg``: the ways to move scattered pages, side by side. Needs matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WAYS = {"per_page": "one call per page", "batched": "one batched call", "kernel": "C++ kernel, 16 blocks", "ours": "kvgpu"}


def main(figures: Path, out: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = json.loads(figures.read_text())["migration"]
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
    chart.savefig(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
