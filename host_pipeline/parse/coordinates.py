"""The model's coordinates (quad_norm, 0..1000 of the canvas) as quads in page pixels.

Mended here, counted and reported: swapped corners, values outside 0..1000, corners that run
counter-clockwise. What is no position at all gives None: nothing ever becomes (0, 0).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from host_pipeline.result import Notice, Quad

ToPage = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""quad_norm points (N, 2) float64 in 0..1000 -> page pixels (N, 2)."""

Point = tuple[float, float]

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
POINT = re.compile(rf"\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")
_ANY_POINT = rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
RUN = re.compile(rf"{_ANY_POINT}(?:\s*,\s*{_ANY_POINT})+")
"""Two or more points joined by commas: `(x1,y1),(x2,y2)` is a box, four points are a quad."""

LIMIT = 1000.0  # HunyuanOCR writes x * 1000 / width (spec of its 1.5 release)

_TEXTS = {
    "box_corners_swapped": "boxes had their corners swapped; they were put in order",
    "box_out_of_range": "boxes had coordinates outside 0..1000; they were clamped to the page",
    "box_reordered": "quads ran counter-clockwise; they were turned round",
}


class BoxMapper:
    """Maps the boxes of one answer and counts what had to be mended (`notices`).

    `to_page` is the canvas' own mapping; with `page_size` (width, height) no corner leaves the
    page, so a box that touches the letterbox bars ends at the page's edge."""

    def __init__(self, to_page: ToPage, page_size: tuple[int, int] | None = None) -> None:
        self._to_page = to_page
        self._page_size = page_size
        self._mended: Counter[str] = Counter()

    def quad(self, points: Sequence[Point]) -> Quad | None:
        """The quad of two opposite corners, of four corners, or around a polygon's points; None
        for fewer than two points or a number that is not finite."""
        if len(points) < 2 or not all(math.isfinite(v) for point in points for v in point):
            return None
        inside = [(min(max(x, 0.0), LIMIT), min(max(y, 0.0), LIMIT)) for x, y in points]
        if inside != [tuple(map(float, point)) for point in points]:
            self._mended["box_out_of_range"] += 1
        if len(inside) == 4:
            corners = self._clockwise(inside)
        else:
            xs, ys = [x for x, _ in inside], [y for _, y in inside]
            if len(inside) == 2 and (xs[0] > xs[1] or ys[0] > ys[1]):
                self._mended["box_corners_swapped"] += 1
            left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
            corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        return self._mapped(corners)

    def notices(self) -> tuple[Notice, ...]:
        """One notice for each kind of mending, with its count."""
        return tuple(Notice(code, f"{n} {_TEXTS[code]}") for code, n in self._mended.items())

    def _clockwise(self, corners: list[Point]) -> list[Point]:
        following = corners[1:] + corners[:1]
        # Shoelace sum; y points down, so a clockwise quad has a positive one.
        pairs = zip(corners, following, strict=True)
        twice_area = sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)
        if twice_area >= 0:
            return corners
        self._mended["box_reordered"] += 1
        return [corners[0], *reversed(corners[1:])]

    def _mapped(self, corners: list[Point]) -> Quad:
        pixels = np.asarray(self._to_page(np.asarray(corners, np.float64)), np.float64)
        if self._page_size is not None:
            pixels = np.clip(pixels, 0.0, np.asarray(self._page_size, np.float64))
        a, b, c, d = ((round(float(x), 2), round(float(y), 2)) for x, y in pixels)
        return (a, b, c, d)


def points_in(text: str) -> list[Point]:
    """Every `(x,y)` of `text`, in order."""
    return [(float(x), float(y)) for x, y in POINT.findall(text)]


def points_of(value: Any) -> list[Point]:
    """The points of a JSON value: "(x,y),(x,y)", [x0, y0, x1, y1], eight numbers, or a list of
    pairs. Empty if it is none of these."""
    if isinstance(value, str):
        found = points_in(value)
        if found:
            return found
        numbers = [float(n) for n in re.findall(_NUMBER, value)]
        return paired(numbers) if len(numbers) in (4, 8) else []
    if not isinstance(value, (list, tuple)):
        return []
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value):
        return paired([float(v) for v in value])
    pairs = [_paired_or_none(v) for v in value]
    return [p for p in pairs if p is not None] if all(p is not None for p in pairs) else []


def paired(numbers: list[float]) -> list[Point]:
    """x, y, x, y, ... as points; empty for an odd count or fewer than two points."""
    if len(numbers) < 4 or len(numbers) % 2:
        return []
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _paired_or_none(value: Any) -> Point | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in value):
        return None
    return float(value[0]), float(value[1])
