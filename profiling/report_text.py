"""A report, or two compared, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Where the device's time goes, in the order in which it is shown.
PARTS = {
    "cube_us": "AI Core, matrix unit",
    "vector_us": "AI Vector",
    "ai_cpu_us": "AI CPU",
    "copies_us": "copies",
    "other_us": "other tasks",
    "gaps_us": "gaps between kernels",
    "waiting_us": "waiting for the host",
}
EMULATED = "EMULATED device times: no measurement of an NPU"


def report_text(report: Mapping[str, Any]) -> str:
    """The whole report, readable at 100 columns."""
    return "\n".join(_lines(report)) + "\n"


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """Two runs side by side; the ratio is the second over the first."""
    rows: list[Sequence[str]] = [["what", "A", "B", "B / A"]]
    for row in comparison["rows"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        rows.append([row["what"], f"{row['a_ms']:.3f} ms", f"{row['b_ms']:.3f} ms", ratio])
    head = [f"A: {comparison['a']}", f"B: {comparison['b']}"]
    if comparison["emulated"]:
        head.append(EMULATED)
    gone = [f"only in A: {code}" for code in comparison["findings_gone"]]
    new = [f"only in B: {code}" for code in comparison["findings_new"]]
    return "\n".join([*head, "", *_table(rows), *gone, *new]).rstrip() + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"profile {report['folder']}"
    if report["emulated"]:
        yield EMULATED
    for key, value in report["about"].items():
        if isinstance(value, (str, int, float)) and value not in ("", None):
            yield f"  {key}: {value}"
    yield ""
    yield from _device(report["device"])
    yield from _stages(report["stages"])
    yield from _ops("Operators by type", report["by_type"], False)
    yield from _ops("Operators by time", report["top_ops"], True)
    yield from _findings(report["findings"])


def _device(device: Mapping[str, Any]) -> Iterator[str]:
    if not device["rows"]:
        yield "No device tasks: only the host was seen."
        yield ""
        return
    window = device["window_us"]
    rows: list[Sequence[str]] = [["device", "ms", "share"]]
    for part, label in PARTS.items():
        rows.append([label, f"{device[part] / 1e3:.3f}", f"{device[part] / window:.1%}"])
    rows.append(["in all", f"{window / 1e3:.3f}", ""])
    yield from _table(rows)
    use = device["matrix_use"]
    facts = [f"{device['rows']} tasks", f"memory-bound {device['memory_bound_share']:.0%}"]
    facts += [] if use is None else [f"matrix unit busy {use:.0%} of its products' time"]
    yield "  " + ", ".join(facts)
    yield ""


def _stages(stages: Mapping[str, Any] | None) -> Iterator[str]:
    if stages is None:
        return
    rows: list[Sequence[str]] = [["stage", "ms", "of the page", "count", "mean ms"]]
    for row in stages["rows"]:
        depth = row["path"].count("/")
        name = "  " * depth + row["path"].rpartition("/")[2]
        mean = row["ms"] / max(row["count"], 1)
        rows.append(
            [name, f"{row['ms']:.3f}", f"{row['share']:.1%}", str(row["count"]), f"{mean:.3f}"]
        )
    rows.append(["page", f"{stages['whole_ms']:.3f}", "", str(stages["pages"]), ""])
    yield from _table(rows)
    yield f"  the stages are {stages['explained']:.1%} of the page time"
    if stages["token"]:
        parts = ", ".join(f"{path} {ms:.3f}" for path, ms in stages["token"].items())
        yield f"  ms of one of {stages['tokens']} tokens: {parts}"
    yield ""


def _ops(title: str, ops: Sequence[Mapping[str, Any]], shapes: bool) -> Iterator[str]:
    if not ops:
        return
    yield title
    head = ["ms", "share", "count", "mean us", "memory-bound", "core", "type"]
    rows: list[Sequence[str]] = [[*head, "name and shapes"] if shapes else head]
    for op in ops:
        row = [
            f"{op['total_us'] / 1e3:.3f}", f"{op['share']:.1%}", str(op["count"]),
            f"{op['mean_us']:.1f}", f"{op['memory_bound_share']:.0%}", op["core"], op["type"],
        ]  # fmt: skip
        rows.append([*row, f"{op['name']} {op['shapes']}".strip()] if shapes else row)
    yield from _table(rows)


def _findings(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "Findings" if findings else "Nothing to change was found."
    for number, finding in enumerate(findings, 1):
        yield f"  {number}. {finding['text']} ({finding['code']})"
        for line in finding["evidence"]:
            yield f"       {line}"
        yield f"     remedy: {finding['remedy']}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()
    yield ""
