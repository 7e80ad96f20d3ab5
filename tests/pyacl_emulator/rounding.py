"""fp16 arithmetic made explicit: each operator in fp32, its result rounded to fp16.

That is what a cube unit with fp32 accumulation and fp16 storage does, and what the chip's precision
modes mean. Written into the graph as Cast pairs because ONNX Runtime drops the roundings between
fp16 operators on a CPU. On chips that saturate (310P, 310B, 910A) overflow clamps to 65504.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .onnx_file import FLOAT, FLOAT16, inputs_of
from .shapes import skeleton

FP16_MAX = 65504.0
ROUNDING = "fp16/"  # first letters of the names of added nodes
# Results are values of the inputs: rounding them again changes nothing.
MOVES = frozenset({
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Concat", "Split", "Gather",
    "GatherND", "GatherElements", "Expand", "Tile", "Identity", "Flatten", "Max", "Min", "Relu",
    "Neg", "Abs", "Where", "MaxPool", "DepthToSpace", "SpaceToDepth", "ReduceMax", "ReduceMin",
    "Trilu",
})  # fmt: skip
CUBE = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})
# Kept in fp32 by the mixed modes (the black list of the mixed-precision rules, in short).
DELICATE = frozenset({
    "Softmax", "LogSoftmax", "Exp", "Log", "Pow", "Sqrt", "Reciprocal", "Div", "ReduceMean",
    "ReduceSum", "ReduceL2", "LayerNormalization", "InstanceNormalization", "BatchNormalization",
    "Erf", "Sigmoid", "Tanh", "Softplus",
})  # fmt: skip
KEEP_ALL = ("origin", "must_keep_origin_dtype", "force_fp32", "allow_fp32_to_fp16")
CUBE_MODES = ("cube_fp16in_fp32out",)
MIXED = ("mixed_float16", "mixed_bfloat16", "allow_mix_precision", "allow_mix_precision_fp16",
         "allow_mix_precision_bf16")  # fmt: skip


@dataclass(slots=True)
class Rounding:
    """What a precision mode rounds. keep: node names; keep_types: operator types."""

    mode: str = "fp16"
    keep: frozenset[str] = frozenset()
    keep_types: frozenset[str] = frozenset()
    saturate: bool = True
    bf16: bool = False
    halves: set[str] = field(default_factory=set)  # initialisers that are stored as fp16

    @property
    def storage(self) -> int:
        """ONNX type that a rounding goes through."""
        return onnx.TensorProto.BFLOAT16 if self.bf16 else FLOAT16

    def kept(self, node: onnx.NodeProto) -> bool:
        """True when the node computes in its original type."""
        if self.mode in KEEP_ALL or node.name in self.keep or node.op_type in self.keep_types:
            return True
        if self.mode in CUBE_MODES:
            return node.op_type not in CUBE
        return self.mode in MIXED and node.op_type in DELICATE

    def rounds_output(self, node: onnx.NodeProto) -> bool:
        """True when the node's own results are fp16."""
        return not self.kept(node) and self.mode not in CUBE_MODES


class Rewriter:
    """Rewrites one graph in place; see `apply`."""

    def __init__(self, model: onnx.ModelProto, rules: Rounding) -> None:
        self.graph = model.graph
        self.rules = rules
        self.types = _types(model)
        self.exact: set[str] = set()  # fp32 tensors whose values are fp16 numbers
        self.rounded: dict[str, str] = {}
        self.nodes: list[onnx.NodeProto] = []

    def half(self, name: str) -> bool:
        """True for tensors that the ONNX graph itself declares as fp16."""
        return self.types.get(name) == FLOAT16

    def floating(self, name: str) -> bool:
        return self.types.get(name) in (FLOAT, FLOAT16)

    def emit(self, kind: str, inputs: list[str], output: str, **attributes: int) -> None:
        """Adds a node that belongs to the rounding and not to the model."""
        name = f"{ROUNDING}{output}/{kind}"
        node = helper.make_node(kind, inputs, [output], name=name)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        self.nodes.append(node)

    def emit_round(self, source: str, target: str) -> None:
        """target = fp16(source) as fp32."""
        clamped = source
        if self.rules.saturate and not self.rules.bf16:
            clamped = f"{target}/clamped"
            bounds = [source, "fp16/min", "fp16/max"]
            self.emit("Clip", bounds, clamped)
        self.emit("Cast", [clamped], f"{target}/h", to=self.rules.storage)
        self.emit("Cast", [f"{target}/h"], target, to=FLOAT)
        self.exact.add(target)

    def read(self, name: str) -> str:
        """The name under which a rounding node reads a tensor."""
        if not self.floating(name) or name in self.exact:
            return name
        if name not in self.rounded:
            self.rounded[name] = f"{name}/fp16"
            self.emit_round(name, f"{name}/fp16")
        return self.rounded[name]

    def visit(self, node: onnx.NodeProto) -> None:
        """Copies one node with its roundings."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _float_attributes(copy)
        kept = self.rules.kept(node)
        if not kept:
            for index, name in enumerate(copy.input):
                copy.input[index] = self.read(name)
        outputs = [name for name in node.output if self.floating(name)]
        moves = node.op_type in MOVES and all(
            name in self.exact or not self.floating(name) for name in copy.input if name
        )
        if moves:
            self.exact.update(outputs)
            self.nodes.append(copy)
            return
        rounding = [n for n in outputs if self.half(n) or self.rules.rounds_output(node)]
        for name in rounding:
            copy.output[list(copy.output).index(name)] = f"{name}/wide"
        self.nodes.append(copy)
        for name in rounding:
            self.emit_round(f"{name}/wide", name)

    def constants(self) -> None:
        """Chooses the initialisers that become fp16: all but those that a kept node reads."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        for tensor in self.graph.initializer:
            if not self.floating(tensor.name):
                continue
            users = readers.get(tensor.name, [])
            if not self.half(tensor.name) and (not users or any(map(self.rules.kept, users))):
                continue
            self.rules.halves.add(tensor.name)
            self.exact.add(tensor.name)

    def apply(self) -> None:
        """The whole rewriting; graph inputs and outputs keep their declared types."""
        self.constants()
        for value in inputs_of(self.graph):
            if self.half(value.name):
                self.exact.add(value.name)
        for node in self.graph.node:
            self.visit(node)
        prologue, epilogue = self._borders()
        del self.graph.node[:]
        self.graph.node.extend([*prologue, *self.nodes, *epilogue])
        del self.graph.value_info[:]
        if any("fp16/min" in node.input for node in self.graph.node):
            for name, bound in (("fp16/min", -FP16_MAX), ("fp16/max", FP16_MAX)):
                self.graph.initializer.append(
                    numpy_helper.from_array(np.asarray(bound, np.float32), name)
                )

    def _borders(self) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
        """Casts between declared fp16 inputs/outputs and the fp32 inside."""
        prologue, epilogue, renames = [], [], {}
        for value in inputs_of(self.graph):
            if self.half(value.name):
                inner = f"{value.name}/inner"
                renames[value.name] = inner
                label = f"{ROUNDING}{inner}"
                cast = helper.make_node("Cast", [value.name], [inner], name=label, to=FLOAT)
                prologue.append(cast)
        for value in self.graph.output:
            if self.half(value.name):
                inner = f"{value.name}/inner"
                renames[value.name] = inner
                label = f"{ROUNDING}{inner}"
                cast = helper.make_node("Cast", [inner], [value.name], name=label, to=FLOAT16)
                epilogue.append(cast)
        for node in self.nodes:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name in renames:
                        names[index] = renames[name]
        return prologue, epilogue


def _float_attributes(node: onnx.NodeProto) -> None:
    """fp16 attributes of the original graph become fp32: Cast targets and constants."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i == FLOAT16:
            attribute.i = FLOAT
        if attribute.HasField("t") and attribute.t.data_type == FLOAT16:
            wide = numpy_helper.to_array(attribute.t).astype(np.float32)
            attribute.t.CopyFrom(numpy_helper.from_array(wide, attribute.t.name))


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of every tensor."""
    inferred = onnx.shape_inference.infer_shapes(skeleton(model), data_prop=False)
    graph = inferred.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        types[value.name] = value.type.tensor_type.elem_type
    return types


def round_graph(model: onnx.ModelProto, rules: Rounding) -> None:
    """Rewrites the model's graph in place for the rules and fills `rules.halves`."""
    Rewriter(model, rules).apply()
