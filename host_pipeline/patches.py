"""A canvas to the normalised patches that the vision graph reads.

Axes: H, W pixels of the canvas; N = (H/patch)·(W/patch) patches; P = 3·patch·patch.
Knows no model: sizes, means and limits are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from host_pipeline.errors import InputError

# The values of CLIP, which HunyuanOCR's preprocessor_config.json repeats.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
RESCALE = 1 / 255

# The model's own rule refuses pages with a side more than 200 times the other.
MAX_ASPECT = 200


def smart_resize(
    height: int, width: int, *, multiple: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """The size (height, width) to which HunyuanOCR's own rule brings a page.

    Both sides become multiples of `multiple`, the area lies within min_pixels..max_pixels and the
    aspect ratio is kept as nearly as that allows. The rule is that of the reference processor
    (transformers, models/hunyuan_vl, smart_resize), half-to-even rounding included.

    Raises InputError beyond 1:200."""
    aspect = max(height, width) / min(height, width)
    if aspect > MAX_ASPECT:
        raise InputError(
            f"page of {width}x{height} pixels: one side is {aspect:.0f} times the other, "
            f"the limit is {MAX_ASPECT}; cut it into pieces"
        )
    to_height, to_width = round(height / multiple) * multiple, round(width / multiple) * multiple
    if to_height * to_width > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        to_height = max(multiple, math.floor(height / shrink / multiple) * multiple)
        to_width = max(multiple, math.floor(width / shrink / multiple) * multiple)
    elif to_height * to_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        to_height = math.ceil(height * grow / multiple) * multiple
        to_width = math.ceil(width * grow / multiple) * multiple
    return to_height, to_width


def resize_native(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """`pixels` (H, W, 3) stretched to height x width by Pillow's bicubic filter.

    Bicubic and not the "resample" of preprocessor_config.json: the reference never reads it."""
    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image)


def make_patches(
    canvas: NDArray[np.uint8],
    *,
    patch: int = 16,
    merge: int = 2,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    rescale: float = RESCALE,
) -> NDArray[np.float32]:
    """Patches (N, P) float32 of `canvas` (H, W, 3), normalised.

    Rows are in merge x merge block order (the `merge`² patches of one output row stand together);
    inside a row: channel, y, x. Values equal the reference's Pillow processor bit for bit: it
    scales in float64, rounds to float32, then subtracts and divides in float32.

    Raises ValueError if a side is no multiple of patch·merge."""
    height, width, _ = canvas.shape
    block = patch * merge
    if height % block or width % block:
        raise ValueError(f"canvas {width}x{height}: both sides must be multiples of {block}")
    levels = (np.arange(256, dtype=np.float64) * rescale).astype(np.float32)[:, None]
    table = (levels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)  # (256, 3)
    values = np.empty((3, height, width), np.float32)
    for channel in range(3):
        values[channel] = table[:, channel][canvas[:, :, channel]]
    blocks = values.reshape(3, height // block, merge, patch, width // block, merge, patch)
    # (3, by, my, y, bx, mx, x) -> (by, bx, my, mx, 3, y, x)
    return blocks.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3 * patch * patch)
