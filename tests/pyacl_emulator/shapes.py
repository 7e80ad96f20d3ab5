"""Shapes of a graph under one gear, and the memory that its intermediate results take."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .onnx_file import inputs_of, set_shape

_ROUND = 512  # bytes to which a workspace tensor is rounded
_ALIASES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
Shape = tuple[int, ...]


class DynamicShapeError(ValueError):
    """A shape that depends on data: gears cannot be compiled for it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Shapes of the outputs under one set of input shapes, and the workspace in bytes."""

    outputs: tuple[Shape, ...]
    work_bytes: int


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large initialisers are only declarations, so that inference is cheap."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if len(tensor.raw_data) > 4096:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key, entry.value = "location", "elsewhere"
    return copy


def plan(model: onnx.ModelProto, shapes: list[Shape], item_bytes: int) -> Planned:
    """Infers every shape. Raises DynamicShapeError when an output stays open.

    item_bytes: bytes of a float in the workspace (2 in an fp16 build).
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for value, shape in zip(inputs_of(copy.graph), shapes, strict=True):
        set_shape(value, shape)
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(copy, data_prop=True).graph
    known: dict[str, tuple[Shape, int]] = {}
    for value in [*graph.value_info, *graph.output, *graph.input]:
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            dims = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)
            known[value.name] = (dims, kind.elem_type)
    outputs = []
    for value in graph.output:
        dims = known.get(value.name, ((-1,), 0))[0]
        if any(dim < 0 for dim in dims):
            raise DynamicShapeError(f"the shape of output {value.name} depends on data")
        outputs.append(dims)
    return Planned(tuple(outputs), _workspace(graph, known, item_bytes))


def _bytes(entry: tuple[Shape, int] | None, item_bytes: int) -> int:
    if entry is None or any(dim < 0 for dim in entry[0]):
        return 0
    kind = entry[1]
    floating = kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    item = item_bytes if floating else np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).itemsize
    return -(-math.prod(entry[0]) * item // _ROUND) * _ROUND


def _workspace(graph: onnx.GraphProto, known: dict[str, tuple[Shape, int]], item_bytes: int) -> int:
    """Peak bytes of results that live at once, in the order of the graph; views cost nothing."""
    root: dict[str, str] = {}
    outside = {v.name for v in graph.output} | {v.name for v in graph.input}
    outside |= {tensor.name for tensor in graph.initializer}
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in node.input:
            last[root.get(name, name)] = index
        if node.op_type in _ALIASES:
            root[node.output[0]] = root.get(node.input[0], node.input[0])
    live = peak = 0
    held: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        if node.op_type not in _ALIASES and node.op_type != "Constant":
            for name in node.output:
                if name and name not in outside:
                    held[name] = _bytes(known.get(name), item_bytes)
                    live += held[name]
        peak = max(peak, live)
        for name in {root.get(n, n) for n in node.input}:
            if last.get(name) == index:
                live -= held.pop(name, 0)
    return peak
