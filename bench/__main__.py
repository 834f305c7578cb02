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

WHAT = ["migration", "publication", "control", "fetch"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="*", choices=WHAT, help="all, if none is named")
    parser.add_argument("--output", type=Path, help="a Markdown file to write as well")
    parser.add_argument("--json", type=Path, help="a file for the raw figures, which `python -m bench.plot` draws")
    parser.add_argument("--rows", type=int, default=256, help="rows of the control plane's batch")
    chosen = parser.parse_args()
    what = set(chosen.what) or set(WHAT)
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
    if "fetch" in what:
        from bench import fetch, hit_rates

        try:
            compiled = build()
        except RuntimeError as error:
            print(f"without the peer in C++: {error}", file=sys.stderr)
            compiled = None
        fetched, few = fetch.measure(device, compiled), [row for rows in (1, 8, 32) for row in fetch.measure(device, None, rows)]
        rates = hit_rates.measure()
        raw["fetch"], raw["fetch_few"] = [asdict(row) for row in fetched], [asdict(row) for row in few]
        raw["hit_rates"] = [asdict(rate) for rate in rates]
        parts.append(tables.fetch(fetched, few) + "\n" + hit_rates.table(rates))
    device.close()
    text = "\n".join(parts)
    print(text)
    if chosen.output is not None:
        chosen.output.write_text(text)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
