"""Emulated operator times: the roofline of the chip's table. Never a measurement of any NPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .atc_messages import TABLE
from .chips import Chip
from .description import Gear
from .model import Model

LAUNCH_US = 1.5
_GE_TYPES = {
    "MatMul": "BatchMatMulV2", "Gemm": "MatMulV2", "Conv": "Conv2D", "Softmax": "SoftmaxV2",
    "Gather": "GatherV2", "Concat": "ConcatD", "Transpose": "TransposeD", "Div": "RealDiv",
    "ReduceMean": "ReduceMeanD", "ReduceSum": "ReduceSumD", "Split": "SplitVD",
    "Slice": "StridedSliceD", "Where": "SelectV2", "TopK": "TopKV2",
}  # fmt: skip
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Constant", "Shape"})


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a run: shapes with type names, and its time in microseconds."""

    name: str
    kind: str
    core: str
    inputs: list[tuple[tuple[int, ...], str]]
    outputs: list[tuple[tuple[int, ...], str]]
    us: float
    cube_share: float


def _flops(kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> float:
    if kind in ("MatMul", "Gemm") and inputs and inputs[0]:
        return 2.0 * math.prod(output) * inputs[0][-1]
    if kind == "Conv" and len(inputs) > 1:
        return 2.0 * math.prod(output) * math.prod(inputs[1][1:])
    return 0.0


def _core(kind: str, chip: Chip) -> str:
    entry = TABLE["operators"].get(kind)
    if entry is None or entry[1] == "all" or chip.short in entry[1]:
        return "AI_CORE"
    return "AI_CPU"


def operators_of(model: Model, gear: Gear | None, chip: Chip) -> list[Operator]:
    """The operators of one run under a gear, in order; nodes that only round are left out."""
    import onnx

    from .onnx_file import inputs_of, set_shape
    from .rounding import ROUNDING

    graph = onnx.load_from_string(bytes(model.file.graph))
    shapes = gear.inputs if gear else [t.shape for t in model.description.inputs]
    for value, shape in zip(inputs_of(graph.graph), shapes, strict=True):
        set_shape(value, shape)
    known: dict[str, tuple[tuple[int, ...], str]] = {}
    short = "FLOAT16" if model.description.precision == "fp16" else "FLOAT"
    inferred = onnx.shape_inference.infer_shapes(graph, data_prop=True).graph
    for value in [*inferred.value_info, *inferred.output, *inferred.input]:
        kind = value.type.tensor_type
        dims = tuple(max(dim.dim_value, 0) for dim in kind.shape.dim)
        label = onnx.TensorProto.DataType.Name(kind.elem_type)
        known[value.name] = (dims, short if label == "FLOAT" else label)
    for tensor in inferred.initializer:
        label = onnx.TensorProto.DataType.Name(tensor.data_type)
        known[tensor.name] = (tuple(tensor.dims), short if label == "FLOAT" else label)
    return [
        _operator(node, known, chip)
        for node in inferred.node
        if node.op_type not in _VIEWS and not node.name.startswith(ROUNDING)
    ]


def _operator(node: object, known: dict[str, tuple[tuple[int, ...], str]], chip: Chip) -> Operator:
    names = [name for name in node.input if name in known]  # type: ignore[attr-defined]
    inputs = [known[name] for name in names]
    outputs = [known.get(name, ((), "FLOAT")) for name in node.output]  # type: ignore[attr-defined]
    kind: str = node.op_type  # type: ignore[attr-defined]
    item = {"FLOAT": 4, "INT64": 8, "INT32": 4, "BOOL": 1, "UINT8": 1}
    moved = sum(math.prod(shape) * item.get(label, 2) for shape, label in inputs + outputs)
    flops = _flops(kind, [shape for shape, _ in inputs], outputs[0][0] if outputs else ())
    compute, traffic = flops / chip.cube_flops * 1e6, moved / chip.bandwidth * 1e6
    core = _core(kind, chip)
    us = LAUNCH_US + max(compute, traffic) * (50.0 if core == "AI_CPU" else 1.0)
    share = compute / us if us else 0.0
    return Operator(node.name or kind, _GE_TYPES.get(kind, kind), core, inputs, outputs, us, share)  # type: ignore[attr-defined]
