"""Figures as Markdown tables, with the targets beside them."""

from __future__ import annotations

from collections.abc import Sequence

from bench import fetch as fetching
from bench import migration as moving
from bench.control import BLOCKS, Figures
from bench.migration import FASTER, TARGETS
from bench.publication import Row as Published
from kvgpu.device.cuda.driver import checked, driver


def card() -> str:
    """The name of the GPU."""
    name = checked(driver.cuDeviceGetName(100, 0))
    return name.split(b"\0")[0].decode() if isinstance(name, bytes) else str(name)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) + "\n"


def _met(value: float, target: float, unit: str = "%") -> str:
    return f"{value:.1f}{unit} (at least {target:g}{unit}: {'met' if value >= target else 'MISSED'})"


def migration(rows: Sequence[moving.Row]) -> str:
    """GB/s of each way to move 2048 scattered pages, and ratios."""
    head = ["direction", "page", "ceiling GB/s", "kvgpu GB/s", "of the ceiling", "call per page", "batched call", "C++ kernel"]
    head += ["kvgpu / call per page", "CPU us to submit", "GPU blocks"]
    body = []
    for row in rows:
        share = 100 * row.ceiling / row.ours
        faster = row.per_page / row.ours
        target = FASTER[row.page_bytes] if row.direction == "offload" else None
        body.append(
            [
                row.direction,
                f"{row.page_bytes >> 10} KiB",
                f"{row.rate(row.ceiling):.1f}",
                f"{row.rate(row.ours):.1f}",
                _met(share, TARGETS[row.direction, row.page_bytes]),
                f"{row.rate(row.per_page):.1f}",
                f"{row.rate(row.batched):.1f}",
                f"{row.rate(row.kernel):.1f}",
                f"{faster:.1f}x" if target is None else _met(faster, target, "x"),
                f"{row.submit:.0f}",
                row.blocks,
            ]
        )
    return f"## Moving {moving.PAGES} scattered pages, device time\n\n" + _table(head, body)


def publication(rows: Sequence[Published]) -> str:
    """Microseconds of each way to publish."""
    head = [
        "dirty rows",
        "new in each",
        "shape",
        "kvgpu submit / end",
        "two copies per row and group",
        "whole tables",
        "end to end",
        "CPU to submit",
    ]
    head += ["assembly", "publish() CPU / end"]
    body = []
    for row in rows:
        end, cpu = row.per_row_end / row.ours_end, row.per_row_cpu / row.ours_cpu
        all_dirty = row.dirty == row.rows and row.whole
        body.append(
            [
                row.dirty,
                ("all blocks, anywhere" if row.scattered else "all blocks, side by side") if row.whole else "one block",
                f"{row.rows} x {row.groups} x {row.blocks}",
                f"{row.ours_cpu:.1f} / {row.ours_end:.1f}",
                f"{row.per_row_cpu:.1f} / {row.per_row_end:.1f}",
                f"{row.whole_cpu:.1f} / {row.whole_end:.1f}",
                _met(end, 50 if all_dirty else 1, "x") if row.whole else f"{end:.1f}x",
                _met(cpu, 40, "x") if all_dirty else f"{cpu:.1f}x",
                "" if row.assemble is None else f"{row.assemble:.0f}",
                f"{row.publish_cpu:.0f} / {row.publish_end:.0f}",
            ]
        )
    return (
        "## Publication, microseconds\n\nSubmit / end: CPU time of the call / until the device is done, rows assembled "
        "beforehand on all sides; the peers always write whole rows. `publish()` is the whole call, retries, assembly and "
        "acknowledgement included. Slots are side by side where a request got them at once.\n\n" + _table(head, body)
    )


def control(figures: Figures) -> str:
    """CPU time at scale."""
    met = "met" if figures.entry_per_page <= 0.3 else "MISSED"
    published = "met" if figures.publish <= 4000 else "MISSED"
    body = [
        ["decode entry, per page", f"{figures.entry_per_page:.3f} us", f"0.3 us: {met}"],
        ["a history step of one token", f"{figures.token:.0f} us", ""],
        ["a history step that completes a block", f"{figures.step:.0f} us", ""],
        ["publication, all rows dirty by such a step", f"{figures.publish_step / 1e3:.2f} ms", ""],
        ["publication, all rows dirty in every block", f"{figures.publish / 1e3:.2f} ms", f"4 ms: {published}"],
        ["publication, one row dirty in every block", f"{figures.publish_one:.0f} us", ""],
    ]
    title = f"## Control plane, CPU time: {figures.rows} rows x {figures.groups} groups x {BLOCKS} blocks\n\n"
    return title + _table(["what", "median", "at most"], body)


def fetch(rows: Sequence[fetching.Row], few: Sequence[fetching.Row]) -> str:
    """Microseconds and shares of fetches. ``few``: of fewer rows."""
    head = [
        "page",
        "ceiling GB/s",
        "all misses GB/s",
        "of the ceiling",
        "decided by the host, C++ us",
        "ours us",
        "that is",
        "in Python us",
    ]
    body = []
    for row in rows:
        faster = row.by_host / row.misses_run[1]
        target = fetching.FASTER.get(row.page_bytes)
        body.append(
            [
                f"{row.page_bytes >> 10} KiB",
                f"{row.rate(row.ceiling):.1f}",
                f"{row.rate(row.misses):.1f}",
                _met(100 * row.ceiling / row.misses, fetching.TARGETS[row.page_bytes]),
                f"{row.by_host:.0f}" if row.by_host else "no compiler",
                f"{row.misses_run[1]:.0f}",
                "" if not row.by_host else f"{faster:.1f}x" if target is None else _met(faster, target, "x"),
                f"{row.by_host_python:.0f}",
            ]
        )
    text = (
        f"## Fetching: {rows[0].rows} rows x {fetching.SELECTS} blocks, {fetching.TIMES * fetching.SELECTS} reserved\n\n"
        "All misses: device time against one contiguous copy of as many bytes; and from the call to the end, against one copy "
        "call a miss that the host decides on after the selection has come down.\n\n" + _table(head, body)
    )
    head = ["page", "device", "launch alone", "Fetch.run", "after record_read", "a graph alone", "in Batch.replaying"]
    body = []
    for row in rows:
        calls = (row.launch, row.run, row.first, row.graph, row.replay)
        shown = [f"{cpu:.1f} / {end:.1f}" for cpu, end in calls]
        shown[1] += f" (at most {fetching.END}: {'met' if row.run[1] <= fetching.END else 'MISSED'})"
        body.append([f"{row.page_bytes >> 10} KiB", f"{row.hits:.1f}", *shown])
    text += "\nAll hits, microseconds: of the device; CPU time of the call / until the device is done:\n\n" + _table(head, body)
    head = ["page", "misses", "device us", "their bytes at the ceiling", "less a launch, that is"]
    body = []
    for row in rows:
        least = row.ceiling * row.share
        ratio = (row.partly - row.hits) / least
        met = f"{ratio:.2f}x (at most {fetching.PARTLY}x: {'met' if ratio <= fetching.PARTLY else 'MISSED'})"
        body.append([f"{row.page_bytes >> 10} KiB", f"{row.share:.1%}", f"{row.partly:.0f}", f"{least:.0f}", met])
    text += "\nSome misses:\n\n" + _table(head, body)
    head = ["page", "rows", "all misses GB/s", "of the ceiling", "all hits, device us"]
    body = [
        [
            f"{row.page_bytes >> 10} KiB",
            row.rows,
            f"{row.rate(row.misses):.1f}",
            f"{100 * row.ceiling / row.misses:.0f}%",
            f"{row.hits:.1f}",
        ]
        for row in few
    ]
    return text + "\nFewer rows:\n\n" + _table(head, body)
