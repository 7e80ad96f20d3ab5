"""Two reports side by side: what got slower or faster, by part, stage and operator type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiling.report_text import PARTS

Report = Mapping[str, Any]


def compare_reports(a: Report, b: Report) -> dict[str, Any]:
    """JSON-ready: rows of {what, a_ms, b_ms, ratio B/A}, and the findings that came or went."""
    codes_a, codes_b = ({f["code"] for f in report["findings"]} for report in (a, b))
    return {
        "a": a["folder"],
        "b": b["folder"],
        "emulated": a["emulated"] or b["emulated"],
        "rows": [*_device(a, b), *_stages(a, b), *_types(a, b)],
        "findings_gone": sorted(codes_a - codes_b),
        "findings_new": sorted(codes_b - codes_a),
    }


def _device(a: Report, b: Report) -> Iterator[dict[str, Any]]:
    for part, label in {"window_us": "device", **PARTS}.items():
        yield _row(label, a["device"][part] / 1e3, b["device"][part] / 1e3)


def _stages(a: Report, b: Report) -> Iterator[dict[str, Any]]:
    """Stages for a page, so that runs of different numbers of pages can be compared."""
    means: list[dict[str, float]] = []
    for report in (a, b):
        stages = report["stages"] or {"rows": [], "pages": 1, "whole_ms": 0.0}
        pages = stages["pages"]
        mean = {"page": stages["whole_ms"] / pages}
        means.append(mean | {f"stage {r['path']}": r["ms"] / pages for r in stages["rows"]})
    if not any(means[0].values()) and not any(means[1].values()):
        return
    for name in dict.fromkeys([*means[0], *means[1]]):
        yield _row(f"{name} (a page)", means[0].get(name, 0.0), means[1].get(name, 0.0))


def _types(a: Report, b: Report) -> Iterator[dict[str, Any]]:
    sums: list[dict[str, float]] = []
    for report in (a, b):
        found: dict[str, float] = {}
        for op in report["by_type"]:
            found[op["type"]] = found.get(op["type"], 0.0) + op["total_us"] / 1e3
        sums.append(found)
    names = sorted(
        {*sums[0], *sums[1]}, key=lambda n: -abs(sums[0].get(n, 0.0) - sums[1].get(n, 0.0))
    )
    for name in names:
        yield _row(f"operator {name}", sums[0].get(name, 0.0), sums[1].get(name, 0.0))


def _row(what: str, a_ms: float, b_ms: float) -> dict[str, Any]:
    ratio = b_ms / a_ms if a_ms else None
    return {"what": what, "a_ms": round(a_ms, 6), "b_ms": round(b_ms, 6), "ratio": ratio}
