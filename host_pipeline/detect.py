"""Text detection around a DB (differentiable binarisation) graph: picture in, quads out.

Axes: H, W canvas pixels (multiples of 32). The method is Liao et al., "Real-time Scene Text
Detection with Differentiable Binarization", AAAI 2020; thresholds are those of PP-OCRv6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

MULTIPLE = 32  # the det graph halves its input five times


@dataclass(frozen=True, slots=True)
class DetSettings:
    """How a probability map becomes quads. `unclip` widens the shrunk kernels that DB predicts
    (distance = area * unclip / perimeter); `crop_unclip` is the same for what is recognised,
    which may be roomier than what is reported."""

    threshold: float = 0.3
    box_threshold: float = 0.5
    unclip: float = 1.3
    crop_unclip: float = 1.6
    min_side: float = 3.0
    max_boxes: int = 3000


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Quads (n, 4, 2) float32 in page pixels, clockwise from the corner nearest the top-left;
    `crops` the same, widened for recognition; `scores` (n,) float32 in 0..1."""

    quads: NDArray[np.float32]
    crops: NDArray[np.float32]
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def sides(self) -> NDArray[np.float32]:
        """Width and height of each quad (n, 2), page pixels."""
        sides = self.quads[:, [1, 3]] - self.quads[:, :1]
        return np.asarray(np.linalg.norm(sides, axis=2), np.float32)

    def take(self, index: NDArray[np.intp] | list[int]) -> Detection:
        """The detections at `index`, in that order."""
        return Detection(self.quads[index], self.crops[index], self.scores[index])


def det_input(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """RGB (H, W, 3) uint8 -> (1, 3, H, W) float32 in -1..1, channels in the order blue, green,
    red that the graph was trained on."""
    planes = pixels[..., ::-1].transpose(2, 0, 1)[None]
    return np.ascontiguousarray(planes, dtype=np.float32) * np.float32(1 / 127.5) - np.float32(1)


def quads_from_map(
    probability: NDArray[np.float32], settings: DetSettings, scale: tuple[float, float]
) -> Detection:
    """Probability map (H, W) -> quads in page pixels, where one page pixel is `scale` (x, y)
    canvas pixels. Unordered; not clipped to the page."""
    mask = (probability > settings.threshold).astype(np.uint8)
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    kept: list[tuple[NDArray[np.float32], NDArray[np.float32], float]] = []
    for contour in contours[: settings.max_boxes]:
        center, (w, h), angle = cv2.minAreaRect(contour)
        if min(w, h) < settings.min_side:
            continue
        score = _mean_inside(probability, _corners(center, w, h, angle))
        if score < settings.box_threshold:
            continue
        # Offsetting a rectangle by d and taking the tightest rectangle again adds 2 d a side.
        grow = 2 * w * h / (2 * (w + h))
        quad, crop = (
            _corners(center, w + grow * ratio, h + grow * ratio, angle)
            for ratio in (settings.unclip, settings.crop_unclip)
        )
        kept.append((quad, crop, score))
    if not kept:
        empty = np.zeros((0, 4, 2), np.float32)
        return Detection(empty, empty, np.zeros(0, np.float32))
    divisor = np.asarray(scale, np.float32)
    return Detection(
        np.stack([clockwise(k[0]) for k in kept]) / divisor,
        np.stack([clockwise(k[1]) for k in kept]) / divisor,
        np.asarray([k[2] for k in kept], np.float32),
    )


def clockwise(quad: NDArray[np.float32]) -> NDArray[np.float32]:
    """The four corners (4, 2) clockwise (y down), starting at the one nearest the top-left."""
    order = np.argsort(np.arctan2(*(quad - quad.mean(0)).T[::-1]))
    ordered = quad[order]
    return np.roll(ordered, -int(ordered.sum(1).argmin()), axis=0).astype(np.float32)


def _corners(
    center: Sequence[float], width: float, height: float, angle: float
) -> NDArray[np.float32]:
    return np.asarray(cv2.boxPoints((center, (width, height), angle)), np.float32)


def _mean_inside(probability: NDArray[np.float32], quad: NDArray[np.float32]) -> float:
    """Mean probability inside `quad` (4, 2), canvas pixels."""
    height, width = probability.shape
    x0, y0 = np.clip(np.floor(quad.min(0)), 0, (width - 1, height - 1)).astype(int)
    x1, y1 = np.clip(np.ceil(quad.max(0)), 0, (width - 1, height - 1)).astype(int)
    mask = np.zeros((y1 - y0 + 1, x1 - x0 + 1), np.uint8)
    cv2.fillPoly(mask, [(quad - (x0, y0)).astype(np.int32)], (1,))
    return float(cv2.mean(probability[y0 : y1 + 1, x0 : x1 + 1], mask)[0])
