"""Text recognition around a CTC graph: crops in, strings with scores out.

Axes: B crops, W canvas pixels (48 high), T = W / 8 time steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

REC_HEIGHT = 48
CLS_WIDTH = 192
BLANK = 0  # the CTC blank is the first class


@dataclass(frozen=True, slots=True)
class Reading:
    """One recognised crop: its text, the probability of each character (0..1) and their mean."""

    text: str
    score: float
    char_scores: tuple[float, ...]


def cut(pixels: NDArray[np.uint8], quad: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The picture (h, w, 3) under `quad` (4, 2), made level by a perspective transform."""
    width = max(1, round(float(max(_side(quad, 0, 1), _side(quad, 3, 2)))))
    height = max(1, round(float(max(_side(quad, 0, 3), _side(quad, 1, 2)))))
    (x0, y0), (x1, y1) = quad.min(0), quad.max(0)
    level = abs(quad[0] - (x0, y0)).max() < 1 and abs(quad[2] - (x1, y1)).max() < 1
    inside = x0 >= 0 and y0 >= 0 and x1 <= pixels.shape[1] and y1 <= pixels.shape[0]
    if level and inside:
        left, top = round(float(x0)), round(float(y0))
        return pixels[top : max(round(float(y1)), top + 1), left : max(round(float(x1)), left + 1)]
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    matrix = cv2.getPerspectiveTransform(quad.astype(np.float32), target)
    out = cv2.warpPerspective(
        pixels, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(out, np.uint8)


def rec_width(crop: NDArray[np.uint8]) -> int:
    """The width in canvas pixels of `crop` at the graph's height, without any padding."""
    return max(1, int(np.ceil(REC_HEIGHT * crop.shape[1] / crop.shape[0])))


def rec_input(crops: Sequence[NDArray[np.uint8]], width: int) -> NDArray[np.float32]:
    """RGB crops -> (B, 3, 48, width) float32 in -1..1, blue-green-red, zero (grey) at the right.
    A crop wider than `width` is squeezed; split it first."""
    batch = np.zeros((len(crops), 3, REC_HEIGHT, width), np.float32)
    for row, crop in zip(batch, crops, strict=True):
        wide = min(width, rec_width(crop))
        small = cv2.resize(crop, (wide, REC_HEIGHT), interpolation=cv2.INTER_LINEAR)
        row[:, :, :wide] = small[..., ::-1].transpose(2, 0, 1) * np.float32(1 / 127.5) - 1
    return batch


def ctc_decode(
    ids: NDArray[np.integer], scores: NDArray[np.float32], characters: Sequence[str]
) -> Reading:
    """Best path of one crop: `ids` (T,) classes and `scores` (T,) their probabilities; repeats
    are merged, blanks dropped."""
    keep = np.flatnonzero((ids != BLANK) & np.append(True, ids[1:] != ids[:-1]))
    text = "".join(characters[i] for i in ids[keep])
    chars = scores[keep]
    return Reading(text, float(chars.mean()) if len(chars) else 0.0, tuple(chars.tolist()))


def split_at_gaps(crop: NDArray[np.uint8], max_ratio: float) -> list[tuple[int, int]]:
    """Column ranges that cover `crop`, none wider than `max_ratio` times its height, cut in the
    quietest column near the even split, so that no letter is torn where a gap exists."""
    height, width = crop.shape[:2]
    pieces = int(np.ceil(width / (height * max_ratio)))
    if pieces <= 1:
        return [(0, width)]
    grey = cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY).astype(np.float32)
    ink = np.convolve(grey.std(0), np.ones(max(1, height // 4)) / max(1, height // 4), "same")
    limit = int(height * max_ratio)
    cuts, start = [0], 0
    for left in range(pieces - 1, 0, -1):
        ideal = start + (width - start) // (left + 1)
        low = max(start + 1, width - left * limit, ideal - 3 * height)
        high = max(low + 1, min(start + limit, ideal + 3 * height))
        start = low + int(ink[low:high].argmin())
        cuts.append(start)
    return list(zip(cuts, [*cuts[1:], width], strict=True))


def _side(quad: NDArray[np.float32], a: int, b: int) -> np.floating:
    return np.linalg.norm(quad[a] - quad[b])
