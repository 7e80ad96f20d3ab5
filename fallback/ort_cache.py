"""The llm graph's cache for ONNX Runtime: slabs bound by address, new rows written where they
belong.

Axes: B sequences, Q new tokens, S cache rows, R wanted rows, K·D one cached row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fallback.chunk import Chunk, causal_mask
from fallback.slots import Slots

if TYPE_CHECKING:
    import onnxruntime

SIDES = ("key", "value")


class OrtKVCache(Slots):
    """Keys and values, token-major: slabs[side] (layers, slots, capacity, K·D), zeroed, never
    moved.
    """

    def __init__(self, layers: int, slots: int, capacity: int, width: int, dtype: np.dtype) -> None:
        super().__init__(slots, capacity)
        self.slabs = {side: np.zeros((layers, slots, capacity, width), dtype) for side in SIDES}

    def close(self) -> None:
        self.slabs = {side: slab[:0] for side, slab in self.slabs.items()}


def step_inputs(
    chunk: Chunk, embeds: np.ndarray, cos: np.ndarray, sin: np.ndarray, rows: int
) -> dict[str, np.ndarray]:
    """The small inputs of one step, contiguous, by contract name (float32)."""
    q, b = chunk.q, len(chunk.counts)
    return {
        "embeds": np.ascontiguousarray(embeds[:, :q]),
        "cos": np.ascontiguousarray(cos[:, :q]),
        "sin": np.ascontiguousarray(sin[:, :q]),
        "past_mask": chunk.past_mask(rows),
        "chunk_mask": np.tile(causal_mask(q), (b, 1, 1)),
        "select": chunk.one_hot(q),
    }


def run_step(
    session: onnxruntime.InferenceSession,
    cache: OrtKVCache,
    chunk: Chunk,
    small: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> None:
    """Runs the llm graph over the cache and appends; `logits` (B, R, V) is written in place.

    One sequence: the past is a prefix of its slab and the outputs are bound to the rows behind
    it, so nothing is copied. Several: a row of the batch is a whole slot, and new rows are copied
    once.
    """
    binding = session.io_binding()
    for name, value in small.items():
        _bind(binding.bind_input, name, value)
    alone = len(chunk.counts) == 1
    slots = slice(chunk.first, chunk.first + len(chunk.counts))
    fresh: list[tuple[np.ndarray, np.ndarray]] = []
    for side, slab in cache.slabs.items():
        for layer in range(len(slab)):
            past = slab[layer, slots]
            seen = past[:, : chunk.rows] if alone else past
            _bind(binding.bind_input, f"past_{side}.{layer}", seen)
            if alone:
                start = int(chunk.lengths[0])
                target = past[:, start : start + chunk.q]
            else:
                target = np.empty((len(chunk.counts), chunk.q, slab.shape[-1]), slab.dtype)
                fresh.append((past, target))
            _bind(binding.bind_output, f"new_{side}.{layer}", target)
    _bind(binding.bind_output, "logits", logits)
    session.run_with_iobinding(binding)
    for past, new in fresh:
        for b, (start, count) in enumerate(zip(chunk.lengths, chunk.counts, strict=True)):
            past[b, start : start + count] = new[b, :count]
    cache.lengths[slots] += chunk.counts.astype(np.int32)


def _bind(bind: object, name: str, values: np.ndarray) -> None:
    """Binds host memory by address; `values` must outlive the run and be contiguous."""
    address = values.ctypes.data
    bind(name, "cpu", 0, values.dtype.type, values.shape, address)  # type: ignore[operator]
