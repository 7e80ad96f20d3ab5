"""The layout of a chunk graph's gears in memory, and what a call of it may look like.

Axes: B sequences, Q rows of this chunk, S cache rows, R rows whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acl_runtime.errors import GraphInputError
from acl_runtime.graph import Gear, Graph
from acl_runtime.kv_cache import CacheShape, DeviceCache
from acl_runtime.memory import Arena, piece_bytes
from atc_configs.contract import GraphSpec, TensorSpec

INPUTS = ("embeds", "cos", "sin", "past_mask", "chunk_mask", "select")
HOST_INPUTS = INPUTS[:3]


@dataclass(frozen=True, slots=True)
class Step:
    """How one gear lies in memory: embeds, cos and sin one behind the other, moved by one upload.

    offsets, sizes in bytes, of those three; total: bytes of the upload; views: the three in pinned
    memory, (B, Q, ...); logits: where they arrive in pinned memory, (B, R, V)."""

    gear: Gear
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    total: int
    views: tuple[NDArray[Any], ...]
    logits: NDArray[np.float32]


class Staging:
    """Memory for the inputs and the logits of the largest gear, taken once; `steps` lay every gear
    out in it, in the contract's order. The arena frees it.

    device, pinned, logits: addresses of the inputs on the device and on the host, of the logits on
    the device."""

    def __init__(self, arena: Arena, graph: Graph) -> None:
        spec = graph.spec
        tensors, logits = _host_inputs(spec), _logits(spec)
        layouts = [_lay_out(graph, tensors, gear) for gear in spec.gears]
        most, most_logits = max(total for *_, total in layouts), graph.max_bytes(logits)
        block = arena.take(most)
        pinned, answers = arena.pinned(most), arena.pinned(most_logits)
        # What masked rows hold must be finite, and fresh memory may hold anything.
        arena.device.binding.rt.memset(block.pointer, most, 0, most)
        pinned.bytes[:] = 0
        self.device, self.pinned = block.pointer, pinned.pointer
        self.logits = arena.take(most_logits).pointer
        self.steps: list[Step] = []
        for gear, (offsets, sizes, total) in zip(spec.gears, layouts, strict=True):
            views = tuple(
                pinned.view(offset, tensor.resolve(gear), graph.dtype(tensor))
                for offset, tensor in zip(offsets, tensors, strict=True)
            )
            out = answers.view(0, logits.resolve(gear), np.float32)
            self.steps.append(Step(gear, offsets, sizes, total, views, out))


def cache_shape(graph: Graph, past: TensorSpec, slabs: int) -> CacheShape:
    """What the gears of a graph with the cache input `past` say of its caches."""
    dtype, gears = graph.dtype(past), graph.spec.gears
    row = past.resolve({"B": 1, "Q": 1, "S": 1, "R": 1})
    return CacheShape(
        slabs=slabs,
        row_bytes=row[-1] * dtype.itemsize,
        mask_dtype=dtype,
        single_rows=tuple(sorted({g["S"] for g in gears if g["B"] == 1})),
        batch_rows=tuple(sorted({g["S"] for g in gears if g["B"] > 1})),
        batches=tuple(sorted({g["B"] for g in gears if g["B"] > 1})),
    )


def check_call(
    step: Step,
    cache: DeviceCache,
    first: int,
    counts: Sequence[int],
    rows: tuple[Any, ...],
    select: Sequence[Sequence[int]],
) -> None:
    """Raises GraphInputError or CacheFull for a call that no gear can take, naming what is wrong.

    step: any of the graph's, for its widths; rows: embeds, cos and sin."""
    if not counts or first < 0 or first + len(counts) > cache.slots:
        raise GraphInputError(
            f"slots {first}..{first + len(counts) - 1} of a cache with {cache.slots}"
        )
    for name, array, view in zip(HOST_INPUTS, rows, step.views, strict=True):
        batch, length, width = array.shape if len(array.shape) == 3 else (0, 0, 0)
        if batch != len(counts) or length < max(counts) or width != view.shape[2]:
            raise GraphInputError(
                f"{name}: shape {array.shape}, {len(counts)} sequences of up to {max(counts)} rows"
                f" want ({len(counts)}, {max(counts)}, {view.shape[2]})"
            )
    if len(select) != len(counts) or len({len(wanted) for wanted in select}) != 1:
        raise GraphInputError(
            f"select has rows for {len(select)} sequences of lengths"
            f" {sorted({len(wanted) for wanted in select})}; one equal length for each is wanted"
        )
    for b, count in enumerate(counts):
        cache.require_room(first + b, count)
        if count and any(not 0 <= row < count for row in select[b]):
            raise GraphInputError(f"select {list(select[b])} is not within {count} rows")


def _host_inputs(spec: GraphSpec) -> list[TensorSpec]:
    return [t for name in HOST_INPUTS for t in spec.inputs if t.name == name]


def _logits(spec: GraphSpec) -> TensorSpec:
    return next(t for t in spec.outputs if t.name == "logits")


def _lay_out(
    graph: Graph, tensors: Sequence[TensorSpec], gear: Gear
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(offsets, sizes, total) in bytes of tensors one behind the other."""
    sizes = tuple(prod(t.resolve(gear)) * graph.dtype(t).itemsize for t in tensors)
    offsets = [0]
    for size in sizes[:-1]:
        offsets.append(offsets[-1] + piece_bytes(size))
    return tuple(offsets), sizes, offsets[-1] + sizes[-1]
