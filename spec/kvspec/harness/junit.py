"""Results as JUnit XML, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from kvspec.harness.difference import Result, Verdict
from kvspec.harness.report import REFERENCE_ONLY, told

_FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def write_junit(path: Path, results: Sequence[Result], reports: Mapping[int, str], policies: str = "") -> None:
    """Write a JUnit XML file. It knows passed, failed and skipped alone: what the reference alone went through is skipped, with a
    type that says so, and counted in a property.

    :param reports: by the number of a failed result in ``results``, its report as plain text.
    :param policies: those of the system under test that are not the defaults, for the reader.
    :raises OSError: the file cannot be written.
    """
    counts = {verdict: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    suite = ET.Element(
        "testsuite",
        name="kvspec",
        tests=str(len(results)),
        failures=str(counts[Verdict.FAILED]),
        errors="0",
        skipped=str(counts[Verdict.SKIPPED]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    alone = sum(told(result) == REFERENCE_ONLY for result in results)
    properties = {"policies": _clean(policies), REFERENCE_ONLY: str(alone or "")}
    if any(properties.values()):
        listed = ET.SubElement(suite, "properties")
        for name, value in properties.items():
            if value:
                ET.SubElement(listed, "property", name=name, value=value)
    for number, result in enumerate(results):
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_clean(result.position.path.with_suffix("").as_posix().strip("/").replace("/", ".")),
            name=_clean(result.name),
            file=_clean(str(result.position.path)),
            line=str(result.position.line),
            time=f"{result.seconds:.3f}",
        )
        if result.verdict is Verdict.SKIPPED:
            ET.SubElement(case, "skipped", type=told(result), message=_clean(result.reason))
        elif result.failure is not None:
            first = result.failure.differences[0]
            message = f"step {result.failure.step}: {first.subject}"
            ET.SubElement(case, "failure", message=_clean(message), type=first.kind.value).text = _clean(
                reports.get(number, message)
            )
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
