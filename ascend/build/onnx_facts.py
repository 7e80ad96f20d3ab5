"""What can be told of an ONNX graph without running it: dtypes, constants, sources of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ascend.build.trace import SOURCE_KEY

if TYPE_CHECKING:
    import onnx


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those of branches and loop bodies too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from all_nodes(inner)


def op_key(node: onnx.NodeProto) -> str:
    """The operator's name, with its domain unless it is the standard one."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def opset_of(model: onnx.ModelProto, domain: str) -> int:
    """The imported version of a domain; 1 if it is not imported."""
    names = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((entry.version for entry in model.opset_import if entry.domain in names), 1)


def source_of(node: onnx.NodeProto) -> str:
    """The line of ours, or the innermost frame that the PyTorch exporter noted."""
    notes = {entry.key: entry.value for entry in node.metadata_props}
    if SOURCE_KEY in notes:
        return str(notes[SOURCE_KEY])
    frames = re.findall(r'File "([^"]+)", line (\d+)', notes.get("pkg.torch.onnx.stack_trace", ""))
    return ":".join(frames[-1]) if frames else ""


def known_before_run(model: onnx.ModelProto) -> tuple[frozenset[str], frozenset[str]]:
    """Tensors that are constant, and those that follow from constants and shapes."""
    constant = {tensor.name for tensor in model.graph.initializer} | {""}
    shaped: set[str] = set()
    for node in model.graph.node:
        known = constant | shaped
        if node.op_type == "Constant" or all(name in constant for name in node.input):
            constant.update(node.output)
        elif node.op_type in ("Shape", "Size") or all(name in known for name in node.input):
            shaped.update(node.output)
    return frozenset(constant), frozenset(shaped)


def dtypes_of(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor -> numpy's name of its dtype; of values inside the graph after shape inference."""
    import onnx

    graph = model.graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.output]}
    kinds |= {v.name: v.type.tensor_type.elem_type for v in graph.value_info}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    spelled = {"float": "float32", "double": "float64"}
    names = {name: onnx.TensorProto.DataType.Name(kind).lower() for name, kind in kinds.items()}
    return {name: spelled.get(kind, kind) for name, kind in names.items() if kind != "undefined"}
