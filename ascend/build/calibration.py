"""Inputs of graphs as real pages make them: an engine that records what a family feeds it.

Pages go through the family on a CPU engine, but in the sizes (gears) of the contract that is to be
judged, so that the same inputs can be given to the compiled graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from ascend.build.sample_inputs import MASKED
from ascend.engines import Array, Engine, KVCache
from atc_configs.contract import Contract, GraphSpec

Feed = dict[str, NDArray[Any]]

# Of one page: the first chunk and these decode steps; neighbours differ little.
_STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
_PER_GRAPH = 12


class CalibrationEngine:
    """A CPU engine (float32, one sequence at a time) with the gears of `contract`.

    feeds: graph -> recorded inputs, each exactly one gear, at most 12 a graph. Closing it closes
    the inner engine.
    """

    emulated = False
    parallel = 1

    def __init__(self, engine: Engine, contract: Contract) -> None:
        self.name = engine.name
        self.settings: Mapping[str, Any] = engine.settings
        self.feeds: dict[str, list[Feed]] = {name: [] for name in contract.graphs}
        self._engine, self._contract = engine, contract
        self._step = 0

    def gears(self, graph: str) -> tuple[Mapping[str, int], ...]:
        return self._contract.graph(graph).gears

    def run(self, graph: str, inputs: Mapping[str, NDArray[Any] | Array]) -> dict[str, Array]:
        self._keep(graph, {name: _host(value) for name, value in inputs.items()})
        return self._engine.run(graph, inputs)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return self._engine.empty(shape, dtype)

    def kv_cache(self, slots: int, capacity: int) -> KVCache:
        return self._engine.kv_cache(slots, capacity)

    def extend(
        self,
        cache: Any,
        first_slot: int,
        counts: Sequence[int],
        embeds: NDArray[Any] | Array,
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        """As the inner engine; records first chunks and some later steps of single sequences."""
        fresh = len(counts) == 1 and cache.lengths[first_slot] == 0
        self._step = 0 if fresh else self._step + 1
        if len(counts) == 1 and self._step in _STEPS:
            rows = _host(embeds).reshape(-1, embeds.shape[-1])[: counts[0]]
            past = _past(cache, first_slot)
            chunk = [rows, _rows(cos, counts[0]), _rows(sin, counts[0])]
            self._keep("llm", llm_feed(self._contract.graph("llm"), chunk, past, select[0]))
        return self._engine.extend(cache, first_slot, counts, embeds, cos, sin, select)

    def close(self) -> None:
        self._engine.close()

    def _keep(self, graph: str, feed: Feed) -> None:
        if len(self.feeds[graph]) < _PER_GRAPH:
            self.feeds[graph].append(feed)


def llm_feed(
    spec: GraphSpec,
    chunk: Sequence[NDArray[np.float32]],
    past: Mapping[str, NDArray[np.float32]],
    select: Sequence[int],
) -> Feed:
    """The llm graph's inputs at the smallest gear. chunk: embeds (q, C), cos and sin (q, D);
    past: input name -> (length, K·D); select: rows of the chunk whose logits are wanted."""
    count, length = len(chunk[0]), len(next(iter(past.values())))
    wanted = list(select) or [0]
    gear = spec.gear_for(B=1, Q=count, S=length, R=len(wanted))
    rows, cached = gear["Q"], gear["S"]
    feed: Feed = {
        name: _padded(values, rows)[None]
        for name, values in zip(("embeds", "cos", "sin"), chunk, strict=True)
    }
    feed["past_mask"] = np.where(np.arange(cached) < length, 0, MASKED)[None, None]
    feed["chunk_mask"] = np.triu(np.full((rows, rows), MASKED), 1)[None]
    picked = np.zeros((1, gear["R"], rows))
    picked[0, np.arange(len(wanted)), wanted] = 1
    feed["select"] = picked
    feed |= {name: _padded(values, cached)[None] for name, values in past.items()}
    return {name: np.ascontiguousarray(values, np.float32) for name, values in feed.items()}


def draw_pages() -> list[NDArray[np.uint8]]:
    """Two pages of print (480×640 and 640×480, RGB) for when the user gives none."""
    lines = ["INVOICE 2026-0417", "Item      Qty    Price", "Paper       3     12.50",
             "Toner       1     89.00", "Total           101.50", "Thank you!"]  # fmt: skip
    pages = []
    for width, height, size in ((640, 480, 30), (480, 640, 24)):
        page = Image.new("RGB", (width, height), "white")
        draw, font = ImageDraw.Draw(page), ImageFont.load_default(size)
        for number, line in enumerate(lines):
            draw.text((30, 30 + number * 2 * size), line, fill="black", font=font)
        pages.append(np.asarray(page))
    return pages


def _past(cache: Any, slot: int) -> dict[str, NDArray[np.float32]]:
    """Input name -> rows in use of one sequence of the PyTorch engine's cache."""
    length = int(cache.lengths[slot])
    return {
        f"past_{side}.{layer}": np.asarray(slab[slot, :length]).copy()
        for side, slabs in (("key", cache.keys), ("value", cache.values))
        for layer, slab in enumerate(slabs)
    }


def _rows(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """(1, Q, D) or (Q, D) -> (count, D)."""
    return values.reshape(-1, values.shape[-1])[:count]


def _padded(values: NDArray[np.float32], rows: int) -> NDArray[np.float32]:
    padded = np.zeros((rows, values.shape[1]), np.float32)
    padded[: len(values)] = values
    return padded


def _host(value: NDArray[Any] | Array) -> NDArray[Any]:
    return value.copy() if isinstance(value, np.ndarray) else value.numpy()
