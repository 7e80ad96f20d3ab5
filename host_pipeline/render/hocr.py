"""Results -> hOCR 1.2 (kba.github.io/hocr-spec/1.2): what PDF tools take to lay text on a scan."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator

from host_pipeline.result import Line, Quad, Result

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>OCR result</title>
<meta http-equiv="Content-Type" content="text/html; charset=utf-8" />
<meta name="ocr-system" content="hunyuanocr-ascend" />
<meta name="ocr-capabilities" content="ocr_page ocr_line" />
</head><body>
"""


def render_hocr(results: Iterable[Result]) -> Iterator[str]:
    """The document in pieces: its head, one `ocr_page` for each Result, its end.

    Lines without a position cannot stand in hOCR; a comment says how many were left out."""
    yield _HEAD
    for number, result in enumerate(results, 1):
        yield _page(result, number)
    yield "</body></html>\n"


def _page(result: Result, number: int) -> str:
    placed = [line for line in result.lines if line.quad is not None and line.text]
    source = result.source.replace('"', "'")  # hOCR has no escape inside its quotes
    title = (
        f'image "{source}"; bbox 0 0 {result.page_width} {result.page_height}; '
        f"ppageno {result.page_index}"
    )
    out = [f'<div class="ocr_page" id="page_{number}" title="{_escaped(title)}">']
    missing = sum(1 for line in result.lines if line.quad is None)
    if missing:
        out.append(f"<!-- {missing} lines without a position are left out -->")
    for index, line in enumerate(placed, 1):
        out.append(
            f'<span class="ocr_line" id="line_{number}_{index}" title="{_line_title(line)}">'
            f"{_escaped(line.text)}</span>"
        )
    return "\n".join([*out, "</div>\n"])


def _line_title(line: Line) -> str:
    assert line.quad is not None
    xs, ys = [x for x, _ in line.quad], [y for _, y in line.quad]
    box = f"{math.floor(min(xs))} {math.floor(min(ys))} {math.ceil(max(xs))} {math.ceil(max(ys))}"
    angle = -_angle(line.quad)  # hOCR counts counter-clockwise
    parts = [f"bbox {box}"]
    if abs(angle) >= 0.5:
        parts.append(f"textangle {angle:.1f}")
    if line.score is not None:
        parts.append(f"x_wconf {round(100 * line.score)}")
    return "; ".join(parts)


def _angle(quad: Quad) -> float:
    """The direction of the text in degrees clockwise from the x axis."""
    (x0, y0), (x1, y1) = quad[0], quad[1]
    return math.degrees(math.atan2(y1 - y0, x1 - x0))


def _escaped(text: str) -> str:
    """XML text: escaped, without the control characters that XML 1.0 forbids."""
    return html.escape("".join(c for c in text if c >= " " or c in "\t\n"))
