"""Where tokens and patches are: position rows, rotary factors and the vision position table, in
numpy.

The public implementations disagree on two pieces (sections of the rotary embedding, interpolation
of the table), so both are computed here, on the host, and enter the graphs as inputs: no choice
forces a recompile. Axes: T tokens, D head size, E vision hidden; the four position rows are p
(order), w (column), h (row), t (image).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Literal

import numpy as np

RopeLayout = Literal["train", "hf5", "rope1d"]
TableMode = Literal["scale", "size"]

ROPE_LAYOUTS: tuple[RopeLayout, ...] = ("train", "hf5", "rope1d")
TABLE_MODES: tuple[TableMode, ...] = ("scale", "size")


def block_order(grid_h: int, grid_w: int, merge: int = 2) -> np.ndarray:
    """Row-major patch indices in merge×merge-block order, (grid_h·grid_w,) int64.

    In this order each merged token's patches are neighbours, so the merging convolution is one
    matrix product and the vision graph needs no grid. Raises ValueError if a side is not a
    multiple of merge.
    """
    if grid_h % merge or grid_w % merge:
        raise ValueError(f"grid {grid_h}×{grid_w} is not a multiple of {merge} on both sides")
    index = np.arange(grid_h * grid_w).reshape(grid_h // merge, merge, grid_w // merge, merge)
    return index.transpose(0, 2, 1, 3).reshape(-1)


def image_tokens(grid_h: int, grid_w: int, merge: int = 2) -> int:
    """Tokens of one image in the prompt: begin, a newline after each row of merged patches, end."""
    return (grid_h // merge) * (grid_w // merge + 1) + 2


def interpolate_positions(
    table: np.ndarray, grid_h: int, grid_w: int, mode: TableMode = "scale"
) -> np.ndarray:
    """The learned table stretched over a page's grid, (grid_h·grid_w, E) float32, row-major.

    table (edge² + 1, E): row 0 belongs to no patch and is dropped. Bilinear, pixel centres
    (align_corners off). mode "scale": sampled with the ratio (n + 0.1) / edge, as the model was
    trained; "size": with n / edge, as transformers ≥ 5.13 does. Both are what torch's interpolate
    computes, in float32 like it.
    """
    edge = _table_edge(table)
    grid = np.asarray(table[1:], np.float32).reshape(edge, edge, -1)
    if (grid_h, grid_w) != (edge, edge):  # torch copies when nothing changes, whatever the ratio
        low, high, weight = _neighbours(grid_h, edge, mode)
        grid = _mix(grid[low], grid[high], weight[:, None, None])
        low, high, weight = _neighbours(grid_w, edge, mode)
        grid = _mix(grid[:, low], grid[:, high], weight[None, :, None])
    return grid.reshape(grid_h * grid_w, -1)


def position_ids(
    length: int, images: Sequence[tuple[int, int, int]] = (), merge: int = 2, start: int = 0
) -> np.ndarray:
    """The four position rows p, w, h, t of `length` tokens, (4, length) int64.

    images: (first, grid_h, grid_w) each, in order; `first` is the index of the image's begin
    slot. Text, begin and end slots carry their own index on every row; the slots between carry
    column, row and the image's ordinal. start: index of the first token, so that decoded tokens
    simply continue (rope delta 0).
    """
    rows = np.tile(np.arange(start, start + length, dtype=np.int64), (4, 1))
    for ordinal, (first, grid_h, grid_w) in enumerate(images):
        height, width = grid_h // merge, grid_w // merge + 1  # a newline closes each row
        slots = slice(first + 1 - start, first + 1 - start + height * width)
        if slots.start < 0 or slots.stop > length:
            raise ValueError(
                f"image {ordinal} takes tokens {first}..{first + height * width + 1},"
                f" outside {length} tokens"
            )
        rows[1, slots] = np.tile(np.arange(width), height)
        rows[2, slots] = np.repeat(np.arange(height), width)
        rows[3, slots] = ordinal
    return rows


def inv_freq(theta: float, alpha: float, head_dim: int) -> np.ndarray:
    """The rotary frequencies, (head_dim/2,) float32: a fixed NTK stretch of the base by alpha."""
    base = theta * alpha ** (head_dim / (head_dim - 2))
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    return np.asarray(1.0 / base**exponents, np.float32)


def rotary(
    position_rows: np.ndarray,
    frequencies: np.ndarray,
    sections: Sequence[int],
    layout: RopeLayout = "train",
) -> tuple[np.ndarray, np.ndarray]:
    """Rotary factors cos, sin, (T, D) float32 each.

    position_rows (4, T); frequencies (D/2,) float32; sections: frequencies per row, summing to
    D/2. layout "train": frequency j follows the row whose section holds j, both halves alike (the
    training code); "hf5": the doubled sections run over the D duplicated frequencies
    (transformers 5.13 to 5.24), not a rotation on image tokens; "rope1d": every frequency follows
    p.
    """
    half = len(frequencies)
    if len(sections) != len(position_rows) or sum(sections) != half:
        raise ValueError(f"sections {tuple(sections)} do not cut {half} frequencies into 4 rows")
    duplicated = np.concatenate([frequencies, frequencies])
    axes = np.arange(len(sections))
    if layout == "train":
        axis = np.tile(np.repeat(axes, sections), 2)
    elif layout == "hf5":
        axis = np.repeat(axes, np.multiply(sections, 2))
    elif layout == "rope1d":
        axis = np.zeros(2 * half, np.int64)
    else:
        raise ValueError(f"rope layout {layout!r}: one of {', '.join(ROPE_LAYOUTS)}")
    # The product is rounded to float32 first, as the reference does: at position 10,000 it shows.
    angles = position_rows[axis].T.astype(np.float32) * duplicated
    exact = angles.astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)


def _table_edge(table: np.ndarray) -> int:
    edge = isqrt(max(len(table) - 1, 0))
    if edge * edge + 1 != len(table):
        raise ValueError(f"a position table has edge² + 1 rows, this one has {len(table)}")
    return edge


def _neighbours(n: int, edge: int, mode: TableMode) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper table index and the upper one's weight, (n,) each."""
    if mode not in TABLE_MODES:
        raise ValueError(f"table mode {mode!r}: one of {', '.join(TABLE_MODES)}")
    step = np.float32(1.0 / ((n + 0.1) / edge)) if mode == "scale" else np.float32(edge / n)
    half = np.float32(0.5)
    source = np.maximum(step * (np.arange(n, dtype=np.float32) + half) - half, np.float32(0))
    low = np.minimum(source.astype(np.int64), edge - 1)
    return low, np.minimum(low + 1, edge - 1), source - low.astype(np.float32)


def _mix(low: np.ndarray, high: np.ndarray, weight: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = low * (1 - weight) + high * weight
    return mixed
