"""Rewrites of ONNX graphs that keep their numbers and leave less for ATC to stumble over.

Each function changes the model that it is given. Knows no family. `onnx` is imported where it is
used: the edge box reads finished files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

Shape = Sequence[int | str]


def drop_identities(model: onnx.ModelProto) -> None:
    """Removes Identity nodes; the names of the graph's outputs stay."""
    graph = model.graph
    outputs = {output.name for output in graph.output}
    producers = {name: node for node in graph.node for name in node.output}
    aliases: dict[str, str] = {}
    kept = []
    for node in graph.node:
        source, target = node.input[0] if node.input else "", node.output[0]
        if node.op_type != "Identity":
            kept.append(node)
        elif target not in outputs:
            aliases[target] = source
        elif source in producers and source not in outputs:
            _rename_output(producers[source], source, target)
            aliases[source] = target
        else:
            kept.append(node)
    for node in kept:
        node.input[:] = [_resolve(aliases, name) for name in node.input]
    _replace_nodes(model, kept)


def constants_to_initializers(model: onnx.ModelProto) -> None:
    """Turns Constant nodes with a tensor into initializers."""
    kept = []
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
        else:
            kept.append(node)
    _replace_nodes(model, kept)


def explicit_padding(model: onnx.ModelProto) -> None:
    """Writes auto_pad=SAME_UPPER as pads; exact for stride 1, and no other stride is taken.

    Raises ValueError naming the node for another stride.
    """
    import onnx

    for node in model.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("auto_pad") != b"SAME_UPPER":
            continue
        kernel, strides = attributes["kernel_shape"], attributes.get("strides", [])
        if any(stride != 1 for stride in strides):
            raise ValueError(f"{node.name}: SAME_UPPER with strides {strides} depends on the size")
        dilations = attributes.get("dilations") or [1] * len(kernel)
        total = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
        # SAME_UPPER puts the odd row and column at the end.
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])


def constant_reshapes(model: onnx.ModelProto, targets: Mapping[str, Sequence[int]]) -> None:
    """Gives the Reshape nodes that make `targets`' tensors a constant shape (0: as the input's).

    Raises ValueError for a tensor that no Reshape makes.
    """
    import onnx

    left = dict(targets)
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.output[0] in left:
            shape = np.array(left.pop(node.output[0]), np.int64)
            name = f"{node.output[0]}_shape"
            model.graph.initializer.append(onnx.numpy_helper.from_array(shape, name))
            node.input[1] = name
    if left:
        raise ValueError(f"no Reshape makes {', '.join(left)}")


def fold_constant_reshapes(model: onnx.ModelProto) -> None:
    """Reshapes initializers now instead of at run time."""
    import onnx

    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type == "Reshape" and all(name in tensors for name in node.input):
            values, shape = (onnx.numpy_helper.to_array(tensors[n]) for n in node.input)
            folded = onnx.numpy_helper.from_array(values.reshape(shape), node.output[0])
            model.graph.initializer.append(folded)
        else:
            kept.append(node)
    _replace_nodes(model, kept)


def drop_unused(model: onnx.ModelProto) -> None:
    """Removes nodes, initializers and shape notes that no output needs."""
    graph = model.graph
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    weights = [tensor for tensor in graph.initializer if tensor.name in needed]
    _replace_nodes(model, kept[::-1])
    del graph.initializer[:]
    graph.initializer.extend(weights)
    del graph.value_info[:]


def selections_to_slices(model: onnx.ModelProto) -> None:
    """Writes each Gather of one constant position as Slice and Squeeze (opset 13 and later)."""
    import onnx

    constants = {t.name: t for t in model.graph.initializer if t.data_location == t.DEFAULT}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        index = constants.get(node.input[1]) if node.op_type == "Gather" else None
        if index is None or index.dims:
            nodes.append(node)
            continue
        position = int(onnx.numpy_helper.to_array(index))
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        stop = position + 1 if position != -1 else np.iinfo(np.int64).max
        bounds = [_integer(model, value) for value in (position, stop, axis)]
        part = f"{node.output[0]}_part"
        nodes.append(onnx.helper.make_node("Slice", [node.input[0], *bounds], [part], node.name))
        squeezed = [part, bounds[2]]
        nodes.append(
            onnx.helper.make_node("Squeeze", squeezed, node.output, f"{node.name}_squeeze")
        )
        for new in nodes[-2:]:
            new.metadata_props.extend(node.metadata_props)
    _replace_nodes(model, nodes)


def note(node: onnx.NodeProto, key: str, value: str) -> None:
    """Adds a remark to a node; readers that do not know it skip it."""
    entry = node.metadata_props.add()
    entry.key, entry.value = key, value


def declare_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> None:
    """Declares the shapes of the graph's inputs and outputs.

    Raises ValueError if their names are not those of `shapes`.
    """
    values = {value.name: value for value in [*model.graph.input, *model.graph.output]}
    if values.keys() != shapes.keys():
        raise ValueError(f"the graph has {sorted(values)}, wanted {sorted(shapes)}")
    for name, shape in shapes.items():
        _declare_shape(values[name], shape)


def declare_input(model: onnx.ModelProto, name: str, shape: Shape) -> None:
    """Names the graph's only input and declares its shape."""
    (declared,) = model.graph.input
    for node in model.graph.node:
        node.input[:] = [name if used == declared.name else used for used in node.input]
    declared.name = name
    _declare_shape(declared, shape)


def declare_output(model: onnx.ModelProto, tensor: str, name: str, shape: Shape) -> None:
    """Gives the output `tensor` the name `name` and declares its shape."""
    (output,) = [o for o in model.graph.output if o.name == tensor]
    for node in model.graph.node:
        _rename_output(node, tensor, name)
        node.input[:] = [name if used == tensor else used for used in node.input]
    output.name = name
    _declare_shape(output, shape)


def _declare_shape(value: onnx.ValueInfoProto, shape: Shape) -> None:
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        dims.add(**({"dim_value": size} if isinstance(size, int) else {"dim_param": size}))


def _integer(model: onnx.ModelProto, value: int) -> str:
    """The name of an initializer [value], int64, made if it is not there."""
    import onnx

    name = f"integer_{value}"
    if all(tensor.name != name for tensor in model.graph.initializer):
        tensor = onnx.numpy_helper.from_array(np.array([value], np.int64), name)
        model.graph.initializer.append(tensor)
    return name


def _rename_output(node: onnx.NodeProto, old: str, new: str) -> None:
    node.output[:] = [new if name == old else name for name in node.output]


def _replace_nodes(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """`nodes` may be nodes of the model itself, so they are copied before it is emptied."""
    import onnx

    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _resolve(aliases: Mapping[str, str], name: str) -> str:
    while name in aliases:
        name = aliases[name]
    return name
