"""A deterministic engine in plain numpy for tests of what stands above the engine seam.

Its "language model" mixes every row of a slot's cache, with its rotary factors, into the logits in
float64 and slot by slot: a row lost, repeated, misplaced or from another sequence changes the
answer, and no answer depends on the batch. It refuses what the protocol forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HIDDEN = 16
VOCABULARY = 64


class ToyArray:
    """Rows of host memory that counts as the engine's."""

    def __init__(self, values: NDArray[Any], owner: ToyEngine | None = None) -> None:
        self.values, self._owner = values, owner
        self.shape, self.dtype = values.shape, values.dtype

    def numpy(self) -> NDArray[Any]:
        return self.values.copy()

    def write(self, row: int, values: NDArray[Any]) -> None:
        assert 0 <= row and row + len(values) <= len(self.values), "rows outside the array"
        self.values[row : row + len(values)] = values

    def copy_rows(self, row: int, source: ToyArray, source_row: int, count: int) -> None:
        assert source_row + count <= len(source.values), "rows outside the source"
        self.write(row, source.values[source_row : source_row + count])

    def rows(self, start: int, count: int) -> ToyArray:
        assert 0 <= start and start + count <= len(self.values), "rows outside the array"
        return ToyArray(self.values[start : start + count])

    def close(self) -> None:
        if self._owner is not None:
            self._owner.open_arrays -= 1
            self._owner = None


class ToyCache:
    def __init__(self, engine: ToyEngine, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.lengths = np.zeros(slots, np.int32)
        self.values = np.zeros((slots, capacity, HIDDEN))
        self._engine: ToyEngine | None = engine

    def truncate(self, slot: int, length: int) -> None:
        assert 0 <= length <= self.lengths[slot], "truncate cannot grow"
        self.lengths[slot] = length

    def close(self) -> None:
        if self._engine is not None:
            self._engine.open_caches -= 1
            self._engine = None


class ToyEngine:
    """`fault(call, logits)` may change or replace the logits of the call-th extend, or raise."""

    name, emulated = "toy", False

    def __init__(
        self,
        seed: int = 0,
        fault: Callable[[int, NDArray[np.float32]], NDArray[np.float32]] | None = None,
    ) -> None:
        random = np.random.default_rng(seed)
        self.settings: Mapping[str, Any] = {}
        self._mix = random.normal(size=(2 * HIDDEN, HIDDEN))
        self._head = random.normal(size=(HIDDEN, VOCABULARY))
        self._vision = random.normal(size=(4 * 768, HIDDEN)) / 50
        self._fault = fault
        self.embedding = random.normal(size=(VOCABULARY, HIDDEN)).astype(np.float32)
        self.calls: list[tuple[int, tuple[int, ...]]] = []
        self.open_arrays = self.open_caches = 0
        self.closed = False

    def gears(self, graph: str) -> None:
        return None

    def run(self, graph: str, inputs: Mapping[str, Any]) -> dict[str, ToyArray]:
        assert graph == "vision"
        patches, pos, mask = (np.asarray(_host(inputs[k])) for k in ("patches", "pos", "mask"))
        count = len(patches)
        assert count % 4 == 0 and mask.shape == (1, count) and len(pos) == count
        seen = (patches + pos.mean(1, keepdims=True)) * (mask[0] == 0)[:, None]
        content = seen.reshape(count // 4, -1) @ self._vision
        return {"content": ToyArray(content.astype(np.float32))}

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> ToyArray:
        self.open_arrays += 1
        return ToyArray(np.full(shape, np.nan, dtype), self)

    def kv_cache(self, slots: int, capacity: int) -> ToyCache:
        self.open_caches += 1
        return ToyCache(self, slots, capacity)

    def extend(
        self,
        cache: ToyCache,
        first_slot: int,
        counts: Sequence[int],
        embeds: Any,
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        batch, width, _ = cos.shape
        rows = np.asarray(_host(embeds)).reshape(batch, width, HIDDEN).astype(np.float64)
        assert sin.shape == cos.shape and len(counts) == len(select) == batch
        assert first_slot + batch <= cache.slots and width >= max(counts)
        assert len({len(wanted) for wanted in select}) == 1, "select is ragged"
        logits = np.full((batch, len(select[0]), VOCABULARY), np.nan, np.float32)
        for b, count in enumerate(counts):
            slot, old = first_slot + b, int(cache.lengths[first_slot + b])
            assert old + count <= cache.capacity, "the slot is full"
            turned = rows[b] * cos[b] + np.roll(rows[b], 1, axis=1) * sin[b]
            cache.values[slot, old : old + count] = turned[:count]
            cache.lengths[slot] = old + count
            for r, index in enumerate(select[b] if count else ()):
                assert 0 <= index < count, "select outside the chunk"
                logits[b, r] = self._logits(cache.values[slot, : old + index + 1])
        self.calls.append((first_slot, tuple(counts)))
        return self._fault(len(self.calls), logits) if self._fault else logits

    def close(self) -> None:
        self.closed = True

    def _logits(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        fading = 0.8 ** np.arange(len(rows))[::-1]
        state = np.concatenate([fading @ rows, rows.sum(0) / 3])
        return 2.0 * np.tanh(state @ self._mix) @ self._head


class ToyInputs:
    """Embedding rows and plain rotary factors for the toy's tokens."""

    def __init__(self, engine: ToyEngine) -> None:
        self._embedding = engine.embedding

    def embed(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        return self._embedding[list(token_ids)]

    def rotary(self, start: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        angles = np.arange(start, start + count)[:, None] * 0.5 ** np.arange(HIDDEN)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _host(value: Any) -> Any:
    return value.values if isinstance(value, ToyArray) else value
