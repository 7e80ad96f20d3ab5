"""Which nodes of a float16 graph compute in float32: islands between explicit Casts.

Works on graph files without their weights loaded: a weight that a kept node needs in float32 gets
a Cast, which every compiler folds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ascend.errors import ModelError

if TYPE_CHECKING:
    import onnx


def keep_float32(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Makes the named nodes compute in float32; between two of them nothing is rounded.

    Raises ModelError for a node whose op has no float32 form here (a Cast to float16).
    """
    import onnx

    wanted = set(names)
    half = _half_values(model)
    nodes: list[onnx.NodeProto] = []
    wide: dict[str, str] = {}  # float16 value -> the same in float32
    for node in model.graph.node:
        kept = node.name in wanted
        if kept and node.op_type == "Cast":
            raise ModelError(f"{node.name}: a Cast cannot be kept in float32; keep its neighbours")
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if kept:
            nodes += _widen_inputs(copy, half, wide)
            narrow = _widen_outputs(copy, half, wide)
            nodes += [copy, *narrow]
        else:
            if node.op_type == "Cast" and node.input[0] in wide and _casts_to_float32(node):
                copy.input[0] = wide[node.input[0]]
            nodes.append(copy)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def widen(model: onnx.ModelProto) -> None:
    """Turns a float16 graph with its weights loaded into float32 throughout; names stay."""
    import numpy as np
    import onnx

    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    for tensor in model.graph.initializer:
        if tensor.data_type == half:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = single
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == half:
                attribute.i = single


def _casts_to_float32(node: onnx.NodeProto) -> bool:
    import onnx

    return any(a.name == "to" and a.i == onnx.TensorProto.FLOAT for a in node.attribute)


def _half_values(model: onnx.ModelProto) -> set[str]:
    """Names of the float16 values: weights, inputs and everything that shape inference finds."""
    import onnx

    half = onnx.TensorProto.FLOAT16
    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    names = {v.name for v in values if v.type.tensor_type.elem_type == half}
    return names | {t.name for t in model.graph.initializer if t.data_type == half}


def _widen_inputs(
    node: onnx.NodeProto, half: set[str], wide: dict[str, str]
) -> list[onnx.NodeProto]:
    import onnx

    casts = []
    for index, name in enumerate(node.input):
        if name not in half:
            continue
        if name not in wide:
            wide[name] = f"{name}_float32"
            casts.append(
                onnx.helper.make_node(
                    "Cast",
                    [name],
                    [wide[name]],
                    f"{node.name}/widen_{index}",
                    to=onnx.TensorProto.FLOAT,
                )
            )
        node.input[index] = wide[name]
    return casts


def _widen_outputs(
    node: onnx.NodeProto, half: set[str], wide: dict[str, str]
) -> list[onnx.NodeProto]:
    import onnx

    casts = []
    for index, name in enumerate(node.output):
        if name in half:
            wide[name] = f"{name}_float32"
            node.output[index] = wide[name]
            casts.append(
                onnx.helper.make_node(
                    "Cast",
                    [wide[name]],
                    [name],
                    f"{node.name}/narrow_{index}",
                    to=onnx.TensorProto.FLOAT16,
                )
            )
    return casts
