"""The weights of a model: out of the graph, rounded, and packed one after another.

The file holds what the device holds, fp16 or bf16 where the build says so; the graph declares
fp32, into which `session` widens them once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from . import om
from .onnx_file import FLOAT, INLINE_BYTES, Source
from .rounding import FP16_MAX, Rounding
from .session import widen

CHUNK = 8 << 20  # elements converted at a time


@dataclass(frozen=True, slots=True)
class Packed:
    """One initialiser in the weights partition."""

    source: Source
    form: str  # float16, bfloat16, or the NumPy name of its own type
    offset: int
    nbytes: int

    def entry(self) -> dict[str, Any]:
        """Its line in the description."""
        return {"name": self.source.proto.name, "dtype": self.form,
                "shape": list(self.source.shape), "offset": self.offset,
                "nbytes": self.nbytes}  # fmt: skip


def _encode(values: np.ndarray[Any, Any], form: str, limit: float) -> np.ndarray[Any, Any]:
    """Values in their stored form; bf16 as its 16 bits, rounded to nearest even."""
    if form == "float16":
        clamped = np.clip(values, -limit, limit) if math.isfinite(limit) else values
        with np.errstate(over="ignore"):
            return clamped.astype(np.float16)
    if form == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values


def chunks(source: Source, form: str, limit: float) -> Iterator[bytes]:
    """The stored bytes, a piece at a time."""
    flat = source.flat()
    for start in range(0, flat.size, CHUNK):
        yield _encode(np.asarray(flat[start : start + CHUNK]), form, limit).tobytes()


def _declare(source: Source, half: bool, place: dict[str, int] | None) -> onnx.TensorProto:
    """The initialiser that the graph keeps: a place in the weights, to be filled in inline else."""
    declared = onnx.TensorProto(name=source.proto.name, dims=source.shape)
    declared.data_type = FLOAT if half else source.proto.data_type
    if place is not None:
        declared.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": "weights", **place}.items():
            entry = declared.external_data.add()
            entry.key, entry.value = key, str(value)
    return declared


def _inline(source: Source, half: bool, form: str, limit: float) -> onnx.TensorProto:
    """A small initialiser that stays in the graph, with the values of its stored form."""
    declared = _declare(source, half, None)
    stored = _encode(source.flat(), form, limit)
    values = widen(stored, form)
    declared.raw_data = np.ascontiguousarray(values).tobytes()
    return declared


def pack(model: onnx.ModelProto, rules: Rounding, folder: Path) -> tuple[list[Packed], int]:
    """Takes the large initialisers out of the graph; (where they go, bytes of the partition)."""
    limit = FP16_MAX if rules.saturate else math.inf
    packed: list[Packed] = []
    declared, offset = [], 0
    for tensor in model.graph.initializer:
        source = Source(tensor, folder)
        half = tensor.name in rules.halves
        form = ("bfloat16" if rules.bf16 else "float16") if half else source.dtype.name
        if source.count * source.dtype.itemsize <= INLINE_BYTES:
            declared.append(_inline(source, half, form, limit))
            continue
        nbytes = source.count * (2 if half else source.dtype.itemsize)
        width = 4 if half else source.dtype.itemsize
        place = {"offset": 0, "length": source.count * width}
        declared.append(_declare(source, half, place))
        packed.append(Packed(source, form, offset, nbytes))
        offset += -(-nbytes // om.ALIGN) * om.ALIGN
    del model.graph.initializer[:]  # the sources keep their own hold on the old ones
    model.graph.initializer.extend(declared)
    return packed, offset


def partition(packed: list[Packed], size: int, limit: float) -> Iterator[bytes]:
    """The bytes of the weights partition, a piece at a time."""
    at = 0
    for item in packed:
        yield b"\0" * (item.offset - at)
        yield from chunks(item.source, item.form, limit)
        at = item.offset + item.nbytes
    yield b"\0" * (size - at)
