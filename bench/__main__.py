"""``python -m bench``: the measurements, as tables in Markdown on standard output (and in a file, if one is named)."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path

from kvgpu.device.api import DeviceError
from kvgpu.device.open import open_device


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="*", choices=["migration", "publication", "control"], help="all, if none is named")
    parser.add_argument("--output", type=Path, help="a Markdown file to write as well")
    parser.add_argument("--json", type=Path, help="a file for the raw figures, which `python -m bench.plot` draws")
    parser.add_argument("--rows", type=int, default=256, help="rows of the control plane's batch")
    chosen = parser.parse_args()
    what = set(chosen.what) or {"migration", "publication", "control"}
    try:
        device = open_device("cuda")
    except DeviceError as error:
        sys.exit(f"the benchmark needs a GPU: {error}")
    from bench import tables
    from bench.peers import build

    raw: dict[str, object] = {}
    parts = [f"# Measured on {tables.card()}, {date.today().isoformat()}\n"]
    if "migration" in what:
        from bench import migration

        moved = migration.measure(device, build())
        raw["migration"] = [asdict(row) | {"bytes": migration.PAGES * row.page_bytes} for row in moved]
        parts.append(tables.migration(moved))
    if "publication" in what:
        from bench import publication

        published = publication.measure(device, build(), 256, 4, 2048, ((256, True),), scattered=True)
        published += publication.measure(device, build(), 256, 4, 2048, ((256, True), (256, False), (1, True), (1, False)))
        raw["publication"] = [asdict(row) for row in published]
        parts.append(tables.publication(published))
    if "control" in what:
        from bench import control

        figures = control.measure(device, chosen.rows)
        raw["control"] = asdict(figures)
        parts.append(tables.control(figures))
    device.close()
    text = "\n".join(parts)
    print(text)
    if chosen.output is not None:
        chosen.output.write_text(text)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
