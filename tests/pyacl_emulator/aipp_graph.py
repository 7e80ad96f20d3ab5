"""The ONNX nodes of static AIPP."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .aipp import Aipp
from .onnx_file import FLOAT, set_shape

Shape = tuple[int, ...]
_IDENTITY = ((256, 0, 0), (0, 256, 0), (0, 0, 256))


class _Builder:
    """Collects nodes and constants under one prefix."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.count = 0

    def constant(self, value: object, dtype: str) -> str:
        name = f"aipp/c{self.count}"
        self.count += 1
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"aipp/t{self.count}"
        self.count += 1
        node = helper.make_node(kind, list(inputs), [name], name=f"{name}/{kind}")
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        self.nodes.append(node)
        return name

    def cut(self, source: str, axis: int, start: int, end: int, step: int = 1) -> str:
        bounds = [self.constant([v], "int64") for v in (start, end, axis, step)]
        return self.node("Slice", source, *bounds)


def _planes(build: _Builder, aipp: Aipp, source: str, image: Shape) -> str:
    """float (n, h, w, c) from the raw bytes."""
    n, h, w, _ = image
    wide = build.node("Cast", source, to=FLOAT)
    if aipp.input_format == "YUV420SP_U8":
        luma = build.cut(wide, 1, 0, h)
        chroma = build.cut(wide, 1, h, h * 3 // 2)
        pairs = build.node("Reshape", chroma, build.constant([n, h // 2, 1, w // 2, 1, 2], "int64"))
        tall = build.node("Expand", pairs, build.constant([1, h // 2, 2, w // 2, 2, 2], "int64"))
        full = build.node("Reshape", tall, build.constant([n, h, w, 2], "int64"))
        if aipp.number("rbuv_swap_switch", 0):
            full = _reversed(build, full, 2)
        return build.node("Concat", luma, full, axis=3)
    if aipp.input_format == "XRGB8888_U8":
        wide = build.cut(wide, 3, 1, 4)
    if aipp.number("rbuv_swap_switch", 0) and aipp.input_format != "YUV400_U8":
        wide = _reversed(build, wide, 3)
    return wide


def _reversed(build: _Builder, source: str, channels: int) -> str:
    order = build.constant(list(range(channels))[::-1], "int64")
    return build.node("Gather", source, order, axis=3)


def _crop(build: _Builder, aipp: Aipp, source: str, target: Shape) -> str:
    if not aipp.number("crop", 0):
        return source
    top, left = int(aipp.number("load_start_pos_h", 0)), int(aipp.number("load_start_pos_w", 0))
    height = int(aipp.number("crop_size_h", target[2]))
    width = int(aipp.number("crop_size_w", target[3]))
    return build.cut(build.cut(source, 1, top, top + height), 2, left, left + width)


def _colour(build: _Builder, aipp: Aipp, source: str) -> str:
    """out = matrix @ (in - input_bias) / 256 + output_bias, clamped to a byte."""
    if not aipp.csc:
        return source
    matrix = [
        [aipp.number(f"matrix_r{r}c{c}", _IDENTITY[r][c]) for c in range(3)] for r in range(3)
    ]
    bias_in = [aipp.number(f"input_bias_{i}", 0) for i in range(3)]
    bias_out = [aipp.number(f"output_bias_{i}", 0) for i in range(3)]
    shifted = build.node("Sub", source, build.constant(bias_in, "float32"))
    turned = np.asarray(matrix, "float32").T / 256
    product = build.node("MatMul", shifted, build.constant(turned, "float32"))
    moved = build.node("Add", product, build.constant(bias_out, "float32"))
    low, high = build.constant(0.0, "float32"), build.constant(255.0, "float32")
    return build.node("Clip", moved, low, high)


def _normalise(build: _Builder, aipp: Aipp, source: str, channels: int) -> str:
    means = [
        aipp.number(f"mean_chn_{i}", 0) + aipp.number(f"min_chn_{i}", 0) for i in range(channels)
    ]
    scales = [aipp.number(f"var_reci_chn_{i}", 1) for i in range(channels)]
    centred = build.node("Sub", source, build.constant(means, "float32"))
    return build.node("Mul", centred, build.constant(scales, "float32"))


def convert(
    model: onnx.ModelProto, aipp: Aipp, value: onnx.ValueInfoProto, shapes: dict[str, Shape]
) -> None:
    """Rewrites the graph and the shapes in place."""
    graph, name, target = model.graph, value.name, shapes[value.name]
    build = _Builder(graph)
    image = aipp.image_dims(target)
    pixels = _planes(build, aipp, name, image)
    pixels = _colour(build, aipp, _crop(build, aipp, pixels, target))
    channels = 1 if aipp.input_format == "YUV400_U8" else 3
    ready = build.node("Transpose", _normalise(build, aipp, pixels, channels), perm=[0, 3, 1, 2])
    for node in graph.node:
        for index, source in enumerate(node.input):
            if source == name:
                node.input[index] = ready
    old = list(graph.node)
    del graph.node[:]
    graph.node.extend([*build.nodes, *old])
    value.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    shapes[name] = aipp.storage(target)
    set_shape(value, shapes[name])
