"""How a page is shown to a model: one canvas, or several overlapping ones where print is small.

Frames: page pixels; canvas pixels; quad_norm (0..1000 of the canvas, as HunyuanOCR writes it).
Knows no model: patch sizes, budgets and limits are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from host_pipeline.letterbox import FIXED_480X640, Letterboxed, canvas_for, letterbox
from host_pipeline.patches import resize_native, smart_resize
from host_pipeline.result import Notice
from host_pipeline.tile import Tile

# Heights of a printed character (the median: a small letter) on the canvas, in pixels. Ours: 10 is
# print of 10 points at 150 dpi; at 6 strokes are under a pixel wide and letters merge.
COMFORTABLE_PX = 10.0
LEGIBLE_PX = 6.0
# A gear a little below comfort beats one of twice the patches, most of them padding.
_TOLERANCE = 0.85
# Without print to measure (a photograph, a drawing): half size, if that is smaller.
_UNMEASURED = 0.5
# A small page is enlarged to the fewest pixels that a model was trained on, by no more than this.
_MAX_ENLARGE = 4.0
# Tiles overlap by this many character heights, so that a line is whole in one of two neighbours.
_OVERLAP_GLYPHS = 6.0
# A band is at least this many character heights: below, a tile would hold no paragraph.
_BAND_GLYPHS = 24.0
MAX_TILES = 16

_NORM = 1000.0
_SAMPLE_SIDE = 3000
_GLYPH_PX = (4, 200)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A part of a page on its canvas: `boxed` holds the canvas; `left`, `top` is the part's corner
    in page pixels."""

    boxed: Letterboxed
    left: int = 0
    top: int = 0

    @property
    def canvas(self) -> NDArray[np.uint8]:
        return self.boxed.pixels

    @property
    def window(self) -> Tile:
        """The part of the page that is shown, in page pixels."""
        width, height = self.boxed.page_size
        return Tile(self.left, self.top, self.left + width, self.top + height)

    def to_page(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """quad_norm points (N, 2) as page pixels (N, 2)."""
        height, width = self.canvas.shape[:2]
        on_canvas = np.asarray(points, np.float64) * (width / _NORM, height / _NORM)
        page: NDArray[np.float64] = self.boxed.to_page(on_canvas)
        return page + np.array((self.left, self.top), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """What the model is shown of one page, in reading order, and what was lost on the way."""

    parts: tuple[View, ...]
    notices: tuple[Notice, ...] = ()


def native_view(
    pixels: NDArray[np.uint8], *, multiple: int, min_pixels: int, max_pixels: int
) -> Views:
    """The model's own rule: stretched to multiples within its pixel limits, no bars."""
    height, width = pixels.shape[:2]
    to = smart_resize(
        height, width, multiple=multiple, min_pixels=min_pixels, max_pixels=max_pixels
    )
    scale = (to[1] / width, to[0] / height)
    return Views((View(Letterboxed(resize_native(pixels, *to), scale, (0, 0), (width, height))),))


def fixed_view(pixels: NDArray[np.uint8]) -> Views:
    """The one 480x640 canvas of the published articles, the page scaled to fit."""
    boxed = letterbox(pixels, FIXED_480X640.height, FIXED_480X640.width)
    return Views((View(boxed),), _small_print(pixels, min(boxed.scale)))


def hugging_views(
    pixels: NDArray[np.uint8],
    budgets: Sequence[int],
    *,
    tile: Literal["bands", "grid"] | None,
    min_pixels: int = 0,
    patch: int = 16,
    merge: int = 2,
) -> Views:
    """Canvases that hug the page, with as many patches as its print needs to be comfortable to
    read, at most the largest of `budgets` (ascending: the sizes that a graph was compiled for).
    A page of fewer than `min_pixels` is enlarged, as the model's own rule does.

    Where even that leaves it illegible: "grid" cuts it into overlapping tiles, "bands" only
    across (a line is never cut), None shrinks it; what is lost is said in a notice."""
    height, width = pixels.shape[:2]
    enlarged = _enlarged(pixels, min_pixels, budgets[-1], patch, merge)
    if enlarged is not None:
        return Views((View(enlarged),))
    glyph = glyph_height(pixels)
    wanted = _UNMEASURED if glyph is None else min(1.0, COMFORTABLE_PX / glyph)
    boxed = _hug(pixels, _budget_for(height, width, wanted, budgets, patch, merge), patch, merge)
    needed = 0.0 if glyph is None else min(1.0, LEGIBLE_PX / glyph)
    if glyph is None or min(boxed.scale) >= needed * 0.999:
        return Views((View(boxed),))
    budget_px = budgets[-1] * patch * patch / needed**2  # page pixels of a tile, bars not counted
    tiles = _tiles(height, width, glyph, budget_px * 0.9, tile == "grid") if tile else []
    if not 1 < len(tiles) <= MAX_TILES:
        return Views((View(boxed),), _small_print(pixels, min(boxed.scale), glyph))
    parts = []
    for left, top, across, down in tiles:
        part = np.ascontiguousarray(pixels[top : top + down, left : left + across])
        parts.append(View(_hug(part, budgets[-1], patch, merge), left, top))
    text = (
        f"read in {len(tiles)} overlapping tiles: on one canvas of {budgets[-1]} patches its print "
        f"of {glyph:.0f} px would be {glyph * min(boxed.scale):.1f} px high"
    )
    return Views(tuple(parts), (Notice("tiled", text),))


def glyph_height(pixels: NDArray[np.uint8]) -> float | None:
    """The median height in pixels of what looks like printed characters; None if nothing does.

    Connected components of the locally thresholded page, of the size and shape of characters."""
    height, width = pixels.shape[:2]
    shrink: float = min(1.0, _SAMPLE_SIDE / max(height, width))
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    if shrink < 1:
        size = (max(1, round(width * shrink)), max(1, round(height * shrink)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    inked = cv2.adaptiveThreshold(
        grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 31, 15
    )
    _, _, stats, _ = cv2.connectedComponentsWithStats(inked, connectivity=8)
    across, down, area = stats[1:, cv2.CC_STAT_WIDTH], stats[1:, cv2.CC_STAT_HEIGHT], stats[1:, 4]
    low, high = _GLYPH_PX
    glyphs = (down >= low) & (down <= high) & (across <= 3 * down) & (across * 8 >= down)
    glyphs &= area >= 0.1 * across * down
    if int(glyphs.sum()) < 4:
        return None
    median = float(np.median(down[glyphs]))
    return median / shrink


def _enlarged(
    pixels: NDArray[np.uint8], min_pixels: int, budget: int, patch: int, merge: int
) -> Letterboxed | None:
    """A page of fewer than `min_pixels` enlarged to them; None if it has enough, or where the
    patch budget has no room for it."""
    height, width = pixels.shape[:2]
    factor = min(_MAX_ENLARGE, math.sqrt(min_pixels / (height * width)))
    if factor <= 1:
        return None
    cell = patch * merge
    down, across = (math.ceil(round(side * factor) / cell) for side in (height, width))
    if down * across * merge * merge > budget:
        return None
    return letterbox(pixels, down * cell, across * cell, max_scale=factor)


def _budget_for(
    height: int, width: int, wanted: float, budgets: Sequence[int], patch: int, merge: int
) -> int:
    """The patches that a page takes at the scale `wanted`, but at least the smallest of `budgets`
    (nothing is gained below), cut to the first of them that comes near it, else to the largest."""
    cell = patch * merge
    down, across = (math.ceil(max(1.0, side * wanted) / cell) for side in (height, width))
    exact = max(budgets[0], down * across * merge * merge)
    near = (b for b in budgets if b >= exact * _TOLERANCE**2)
    return min(exact, next(near, budgets[-1]))


def _hug(pixels: NDArray[np.uint8], budget: int, patch: int, merge: int) -> Letterboxed:
    height, width = pixels.shape[:2]
    size = canvas_for(height, width, budget, patch, merge)
    return letterbox(pixels, size.height, size.width)


def _tiles(
    height: int, width: int, glyph: float, budget_px: float, grid: bool
) -> list[tuple[int, int, int, int]]:
    """(left, top, width, height) of overlapping tiles, rows first, each within budget_px pixels."""
    overlap = _OVERLAP_GLYPHS * glyph
    columns = 1
    while True:
        across = (width + (columns - 1) * overlap) / columns
        band = budget_px / across
        if band >= min(height, _BAND_GLYPHS * glyph):
            break
        if not grid or columns >= MAX_TILES:
            return []
        columns += 1
    rows = max(1, math.ceil((height - overlap) / max(1.0, band - overlap)))
    down = min(height, (height + (rows - 1) * overlap) / rows)
    tops, lefts = _starts(height, down, rows), _starts(width, across, columns)
    size = (math.ceil(across), math.ceil(down))
    return [
        (left, top, min(size[0], width - left), min(size[1], height - top))
        for top in tops
        for left in lefts
    ]


def _starts(length: int, part: float, count: int) -> list[int]:
    if count == 1:
        return [0]
    return [round(i * (length - part) / (count - 1)) for i in range(count)]


def _small_print(
    pixels: NDArray[np.uint8], scale: float, glyph: float | None = None
) -> tuple[Notice, ...]:
    glyph = glyph if glyph is not None else glyph_height(pixels)
    if glyph is None or glyph * scale >= min(LEGIBLE_PX, glyph):
        return ()
    text = (
        f"the page was shrunk to {scale:.0%}: its print of {glyph:.0f} px is "
        f"{glyph * scale:.1f} px high on the canvas, {LEGIBLE_PX:.0f} px or more are legible"
    )
    return (Notice("small_print", text),)
