"""Windows over a page that is too large for one canvas, and boxes put together across them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tile:
    """A window of the page, in page pixels: columns x0..x1 and rows y0..y1."""

    x0: int
    y0: int
    x1: int
    y1: int


def tiles(height: int, width: int, side: int, overlap: int) -> list[Tile]:
    """Windows of at most `side` x `side` page pixels that cover the page, row by row; neighbours
    share at least `overlap` pixels (`overlap` < `side`)."""
    columns, rows = _spans(width, side, overlap), _spans(height, side, overlap)
    return [Tile(x0, y0, x1, y1) for y0, y1 in rows for x0, x1 in columns]


def merge_across(
    quads: Sequence[NDArray[np.float32]], windows: Sequence[Tile], height: int, width: int
) -> list[tuple[int, int]]:
    """Which box of which window to keep, as (window, box), of quads (n, 4, 2) in page pixels.

    A box that a window's inner edge cuts is dropped where a neighbour saw more of it; of two
    sights of one box the larger stays. A text longer than the overlap keeps both its halves.
    """
    sights = []
    for w, (window, found) in enumerate(zip(windows, quads, strict=True)):
        for b, quad in enumerate(found):
            low, high = quad.min(0), quad.max(0)
            sights.append((w, b, low, high, _cut_by(window, low, high, height, width)))
    # Whole boxes first, then the larger ones: what is covered by a kept box adds nothing.
    sights.sort(key=lambda s: (s[4], -float(np.prod(s[3] - s[2]))))
    kept: list[tuple[int, int, NDArray[np.float32], NDArray[np.float32]]] = []
    for w, b, low, high, _ in sights:
        if not any(k[0] != w and _covered(low, high, k[2], k[3]) for k in kept):
            kept.append((w, b, low, high))
    return [(w, b) for w, b, _, _ in kept]


def _spans(length: int, side: int, overlap: int) -> list[tuple[int, int]]:
    if length <= side:
        return [(0, length)]
    count = -(-(length - overlap) // (side - overlap))
    starts = np.linspace(0, length - side, count).round().astype(int)
    return [(int(s), int(s) + side) for s in starts]


def _cut_by(
    window: Tile, low: NDArray[np.float32], high: NDArray[np.float32], height: int, width: int
) -> bool:
    """Does the box touch an edge of the window that is not an edge of the page?"""
    margin = 3.0
    return bool(
        (window.x0 > 0 and low[0] <= window.x0 + margin)
        or (window.y0 > 0 and low[1] <= window.y0 + margin)
        or (window.x1 < width and high[0] >= window.x1 - margin)
        or (window.y1 < height and high[1] >= window.y1 - margin)
    )


def _covered(
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    kept_low: NDArray[np.float32],
    kept_high: NDArray[np.float32],
) -> bool:
    """Is more than 60 % of the box inside the kept one?"""
    inter = np.clip(np.minimum(high, kept_high) - np.maximum(low, kept_low), 0, None).prod()
    return bool(inter > 0.6 * max(float((high - low).prod()), 1e-6))
