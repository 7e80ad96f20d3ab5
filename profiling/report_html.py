"""A report as one HTML file: no script, no font, no picture from anywhere else; charts are SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from profiling.report_text import EMULATED, PARTS

# Distinguishable without red and green (Okabe and Ito, 2008); gaps and waiting are greys.
_COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7", "#b0b0b0", "#dddddd", "#009e73")
_WIDTH = 880

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .note { border-left: 4px solid #d55e00; padding-left: .8rem; }
.finding { border: 1px solid #8886; border-radius: 6px; padding: .6rem 1rem; margin: .6rem 0; }
.finding b { font-size: 1.02em; } small { opacity: .75; } svg { max-width: 100%; height: auto; }
svg text { fill: currentColor; font: 13px system-ui, sans-serif; }
"""


def report_html(report: Mapping[str, Any]) -> str:
    """The whole page as text."""
    title = f"profile {escape(report['folder'])}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        + "\n".join(_body(report))
        + "\n</body></html>\n"
    )


def _body(report: Mapping[str, Any]) -> Iterator[str]:
    if report["emulated"]:
        yield f'<p class="note"><b>{escape(EMULATED)}</b></p>'
    about = {k: v for k, v in report["about"].items() if isinstance(v, (str, int, float))}
    if about:
        facts = " · ".join(f"{escape(str(k))}: {escape(str(v))}" for k, v in about.items())
        yield f"<p>{facts}</p>"
    yield from _findings(report["findings"])
    device = report["device"]
    if device["rows"]:
        yield "<h2>Where the device's time went</h2>"
        yield _stack([(label, device[part] / 1e3) for part, label in PARTS.items()])
    if report["stages"] is not None:
        yield from _stages(report["stages"])
    if report["by_type"]:
        yield "<h2>Operators by type</h2>"
        yield _bars([(op["type"], op["total_us"] / 1e3, op["core"]) for op in report["by_type"]])
        yield "<h2>Operators by time</h2>"
        yield _op_table(report["top_ops"])
    if report["apis"]:
        yield "<h2>Calls of the host</h2>"
        rows = [
            [f"{a['level']}: {a['name']}", f"{a['total_us'] / 1e3:.3f}", str(a["count"])]
            for a in report["apis"]
        ]
        yield _table(["call", "ms", "count"], rows)


def _findings(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h2>Findings</h2>"
    if not findings:
        yield "<p>Nothing to change was found.</p>"
    for finding in findings:
        lines = "<br>".join(escape(line) for line in finding["evidence"])
        yield (
            f'<div class="finding"><b>{escape(finding["text"])}</b>'
            f" <small>{escape(finding['code'])}</small><br><small>{lines}</small>"
            f"<p>{escape(finding['remedy'])}</p></div>"
        )


def _stages(stages: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Stages of a page</h2>"
    rest = max(stages["whole_ms"] * (1 - stages["explained"]), 0.0)
    top = [(row["path"], row["ms"]) for row in stages["rows"] if "/" not in row["path"]]
    yield _stack([*top, ("in no stage", rest)])
    rows = []
    for row in stages["rows"]:
        mean = row["ms"] / max(row["count"], 1)
        rows.append(
            [row["path"], f"{row['ms']:.3f}", f"{row['share']:.1%}", str(row["count"]),
             f"{mean:.3f}"]
        )  # fmt: skip
    yield _table(["stage", "ms", "of the page", "count", "mean ms"], rows)
    if stages["token"]:
        yield f"<h2>One token of {stages['tokens']}</h2>"
        yield _bars([(path, ms, "") for path, ms in stages["token"].items()])


def _op_table(ops: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{op['name']} {op['shapes']}", op["type"], op["core"], f"{op['total_us'] / 1e3:.3f}",
            f"{op['share']:.1%}", str(op["count"]), f"{op['mean_us']:.1f}",
            f"{op['matrix_use']:.0%}", f"{op['memory_bound_share']:.0%}",
        ]
        for op in ops
    ]  # fmt: skip
    head = ["name and shapes", "type", "core", "ms", "share", "count", "mean us", "matrix unit",
            "memory-bound"]  # fmt: skip
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ["<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows]
    body = "\n".join(lines)
    return f'<div class="wide"><table><tr>{cells}</tr>\n{body}\n</table></div>'


def _stack(parts: Sequence[tuple[str, float]]) -> str:
    """One bar cut into parts, with a legend; parts of nothing are left out."""
    shown = [(label, ms, i) for i, (label, ms) in enumerate(parts) if ms > 0]
    whole = sum(ms for _, ms, _ in shown) or 1.0
    out, x = [], 0.0
    for row, (label, ms, i) in enumerate(shown):
        width, colour = ms / whole * _WIDTH, _COLOURS[i % len(_COLOURS)]
        text = escape(f"{label}: {ms:.3f} ms, {ms / whole:.1%}")
        out.append(
            f'<rect x="{x:.2f}" y="0" width="{width:.2f}" height="28" fill="{colour}">'
            f"<title>{text}</title></rect>"
        )
        y = 46 + 20 * row
        out.append(f'<rect x="0" y="{y - 11}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="20" y="{y}">{text}</text>')
        x += width
    return _svg(46 + 20 * len(shown), out)


def _bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """One bar for each row, the longest as wide as there is room."""
    longest = max((value for _, value, _ in rows), default=0.0) or 1.0
    out = []
    for row, (label, value, group) in enumerate(rows):
        y, width = 22 * row, value / longest * (_WIDTH - 420)
        colour = _COLOURS[2] if group == "AI_CPU" else _COLOURS[0]
        out.append(f'<text x="0" y="{y + 15}">{escape(label[:34])}</text>')
        out.append(f'<rect x="250" y="{y + 3}" width="{width:.2f}" height="15" fill="{colour}"/>')
        text = escape(f"{value:.3f} ms {group}")
        out.append(f'<text x="{256 + width:.2f}" y="{y + 15}">{text}</text>')
    return _svg(22 * len(rows), out)


def _svg(height: float, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">\n{inside}\n</svg>'
