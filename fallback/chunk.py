"""The llm graph's small inputs for one step, from lengths and counts: masks and one-hot rows.

Shared by the CPU engines; numpy only. Axes: B sequences, Q new tokens, S cache rows, R wanted rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fallback.errors import GraphInputError

MASKED = np.float32(-1e4)  # finite in fp16; scores are bounded, so a masked weight is exactly 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One `extend`, checked: what to run (first..first+B of the slots, Q rows each) on S rows."""

    first: int
    counts: np.ndarray  # (B,) int64
    lengths: np.ndarray  # (B,) int64, before this step
    select: np.ndarray  # (B, R) int64, rows of the chunk

    @property
    def q(self) -> int:
        return int(self.counts.max())

    @property
    def rows(self) -> int:
        """S: cache rows that some sequence sees; at least one, so that no axis is empty."""
        return max(1, int(self.lengths.max()))

    def past_mask(self, rows: int) -> np.ndarray:
        """(B, 1, rows): 0 for rows in use, -1e4 behind them."""
        used = np.arange(rows)[None] < self.lengths[:, None]
        return np.asarray(np.where(used, np.float32(0), MASKED)[:, None])

    def one_hot(self, q: int) -> np.ndarray:
        """(B, R, q): a one at each wanted row."""
        return np.asarray(self.select[:, :, None] == np.arange(q), np.float32)


def causal_mask(q: int) -> np.ndarray:
    """(q, q): a row sees itself and what came before."""
    return np.triu(np.full((q, q), MASKED), 1)


def plan_chunk(
    lengths: np.ndarray,
    capacity: int,
    first: int,
    counts: Sequence[int],
    shape: tuple[int, ...],
    select: Sequence[Sequence[int]],
) -> Chunk:
    """Checks the arguments of `extend` against the cache; `shape` is that of embeds (B, Q, C).

    Raises GraphInputError naming the value and the limit.
    """
    slots, b = len(lengths), len(counts)
    if b == 0 or first < 0 or first + b > slots:
        raise GraphInputError(f"slots {first}..{first + b - 1}: the cache has {slots}")
    taken, used = np.asarray(counts, np.int64), lengths[first : first + b].astype(np.int64)
    if len(shape) != 3 or shape[0] != b or taken.min() < 0 or not 0 < taken.max() <= shape[1]:
        raise GraphInputError(f"counts {list(counts)} do not fit embeds of shape {shape}")
    if (used + taken).max() > capacity:
        worst = int((used + taken).argmax())
        raise GraphInputError(
            f"slot {first + worst}: {used[worst]} + {taken[worst]} rows exceed the cache's"
            f" {capacity}; open a larger cache or stop earlier"
        )
    if len(select) != b or len({len(rows) for rows in select}) != 1:
        raise GraphInputError(f"select must name equally many rows for each of {b} sequences")
    wanted = np.asarray(select, np.int64).reshape(b, -1)
    if wanted.size and (wanted.min() < 0 or wanted.max() >= taken.max()):
        raise GraphInputError(f"select {wanted.tolist()}: the chunk has {taken.max()} rows")
    return Chunk(first, taken, used, wanted)
