"""``python -m bench``: the measurements, as tables in Markdown on standard output (and in a file, if one is named)."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

from kvgpu.device.api import DeviceError
from kvgpu.device.open import open_device


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="*", choices=["migration", "publication", "control"], help="all, if none is named")
    parser.add_argument("--output", type=Path, help="a Markdown file to write as well")
    parser.add_argument("--rows", type=int, default=256, help="rows of the control plane's batch")
    chosen = parser.parse_args()
    what = set(chosen.what) or {"migration", "publication", "control"}
    try:
        device = open_device("cuda")
    except DeviceError as error:
        sys.exit(f"the benchmark needs a GPU: {error}")
    from bench import tables
    from bench.peers import build

    parts = [f"# Measured on {tables.card()}, {date.today().isoformat()}\n"]
    if "migration" in what:
        from bench import migration

        parts.append(tables.migration(migration.measure(device, build())))
    if "publication" in what:
        from bench import publication

        parts.append(tables.publication(publication.measure(device, build(), 256, 4, 2048, (256, 1))))
    if "control" in what:
        from bench import control

        parts.append(tables.control(control.measure(device, chosen.rows)))
    device.close()
    text = "\n".join(parts)
    print(text)
    if chosen.output is not None:
        chosen.output.write_text(text)


if __name__ == "__main__":
    main()
