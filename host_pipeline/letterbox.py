"""Lays a page on the canvas of a graph, top-left, and maps points between the two exactly.

Frames: page pixels and canvas pixels, both continuous (pixel i covers i to i + 1), x right and
y down from the top-left corner. Knows numbers only: no model, no graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from PIL import Image

Resample = Literal["pil-bicubic", "cv2-area", "cv2-linear"]
"""How pixels are resampled: PIL's antialiased bicubic is what vision models were trained with;
OpenCV's area (linear where it enlarges) and linear are faster and enough for text detection."""


@dataclass(frozen=True, slots=True, eq=False)
class Letterboxed:
    """A page on its canvas.

    pixels (H, W, 3) uint8 RGB: the page in the top-left corner, bars of the fill value right and
    below. scale (x, y): canvas pixels per page pixel; the two differ by the rounding of the sides
    to whole pixels. pad (right, bottom): widths of the bars, canvas pixels. page_size (width,
    height): page pixels.
    """

    pixels: np.ndarray
    scale: tuple[float, float]
    pad: tuple[int, int]
    page_size: tuple[int, int]

    def to_page(self, points: np.ndarray) -> np.ndarray:
        """Canvas points (..., 2) as page points (..., 2) float64, clipped to the page."""
        return np.clip(np.asarray(points, np.float64) / self.scale, 0.0, self.page_size)

    def to_canvas(self, points: np.ndarray) -> np.ndarray:
        """Page points (..., 2), clipped to the page, as canvas points (..., 2) float64."""
        return np.clip(np.asarray(points, np.float64), 0.0, self.page_size) * self.scale


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size of a canvas in pixels, and the patch grid on it."""

    height: int
    width: int
    patch: int = 16

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across: (gh, gw)."""
        return self.height // self.patch, self.width // self.patch

    @property
    def patches(self) -> int:
        """gh * gw."""
        return self.grid[0] * self.grid[1]


FIXED_480X640 = Canvas(height=480, width=640)
"""The profile `fixed 480x640`: the one canvas of the published Ascend articles, 1200 patches."""


def letterbox(
    pixels: np.ndarray,
    height: int,
    width: int,
    fill: int = 114,
    max_scale: float = 1.0,
    resample: Resample = "pil-bicubic",
) -> Letterboxed:
    """Scale `pixels` (h, w, 3) uint8 to fit a canvas of `height` x `width` and put it top-left.

    fill: grey value of the bars (114, as YOLO's letterbox). max_scale: the page is enlarged at
    most by this; 1.0 only ever shrinks. A page that is far longer than wide keeps at least one
    pixel across. Raises ValueError for sizes below 1.
    """
    page_height, page_width = pixels.shape[:2]
    if min(height, width, page_height, page_width) < 1 or not max_scale > 0:
        raise ValueError(
            f"cannot lay {page_width} x {page_height} on {width} x {height} at up to {max_scale}: "
            "every size must be positive"
        )
    factor = min(height / page_height, width / page_width, max_scale)
    inner_height = min(height, _scaled_side(page_height, factor))
    inner_width = min(width, _scaled_side(page_width, factor))
    canvas = np.full((height, width, 3), fill, np.uint8)
    canvas[:inner_height, :inner_width] = _resized(pixels, inner_height, inner_width, resample)
    return Letterboxed(
        pixels=canvas,
        scale=(inner_width / page_width, inner_height / page_height),
        pad=(width - inner_width, height - inner_height),
        page_size=(page_width, page_height),
    )


def canvas_for(
    height: int, width: int, budget_patches: int, patch: int = 16, merge: int = 2
) -> Canvas:
    """The canvas that hugs a page of `height` x `width` pixels within a patch budget.

    Its sides are multiples of patch * merge, so bars are narrower than that; a page is never
    enlarged; one beyond the budget is shrunk by the largest factor that fits, which puts one of
    its sides exactly on a multiple. Raises ValueError when the budget is below merge * merge.
    """
    if min(height, width) < 1:
        raise ValueError(f"a page of {width} x {height} pixels has no canvas")
    if budget_patches < merge * merge:
        raise ValueError(
            f"a budget of {budget_patches} patches holds no cell of {merge} x {merge}; "
            f"give at least {merge * merge}"
        )
    cell = patch * merge
    budget_cells = budget_patches // (merge * merge)
    down, across = -(-height // cell), -(-width // cell)
    if down * across > budget_cells:
        down, across = _largest_fit(height, width, budget_cells)
    return Canvas(down * cell, across * cell, patch)


def _largest_fit(height: int, width: int, budget_cells: int) -> tuple[int, int]:
    """Cells (down, across) within the budget that let the page keep the largest scale.

    At the best scale one side is a whole number of cells; for each such number the other side
    follows by rounding up, in integers. No side needs more cells than the budget.
    """
    counts = np.arange(1, budget_cells + 1, dtype=np.int64)
    down = np.concatenate([-(-height * counts // width), counts])
    across = np.concatenate([counts, -(-width * counts // height)])
    scale = np.concatenate([counts / width, counts / height])
    best = np.argmax(np.where(down * across <= budget_cells, scale, 0.0))
    return int(down[best]), int(across[best])


def _scaled_side(side: int, factor: float) -> int:
    """Whole pixels of a scaled side, rounded up; 1e-6 absorbs the error of the product."""
    return max(1, math.ceil(side * factor - 1e-6))


def _resized(pixels: np.ndarray, height: int, width: int, resample: Resample) -> np.ndarray:
    if pixels.shape[:2] == (height, width):
        return pixels
    if resample == "pil-bicubic":
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
        return np.asarray(image)
    shrinks = height * width < pixels.shape[0] * pixels.shape[1]
    area = resample == "cv2-area" and shrinks
    method = cv2.INTER_AREA if area else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=method))
