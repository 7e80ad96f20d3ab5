"""Compiles an ONNX model into the emulator's `.om`: gears, precision, image input, weights once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from . import om, onnx_file
from .aipp import Aipp, prepend
from .chips import CHIPS
from .description import FORMATS
from .onnx_file import FLOAT, FLOAT16, acl_dtype, inputs_of
from .packing import Packed, pack, partition
from .rounding import FP16_MAX, KEEP_ALL, Rounding, round_graph
from .shapes import Shape, plan, skeleton


@dataclass(frozen=True, slots=True)
class Request:
    """What to build. shapes: by input, -1 on dynamic axes; gears: numbers for the -1s in order.

    kind: static, batch, image, dims or range. layout: NCHW, NHWC, NCDHW or ND.
    """

    model: Path
    output: Path
    soc: str
    shapes: dict[str, Shape]
    kind: str = "static"
    gears: tuple[Shape, ...] = ()
    layout: str = "ND"
    precision: str = "fp16"
    keep: frozenset[str] = frozenset()
    keep_types: frozenset[str] = frozenset()
    output_type: str = ""
    ranges: dict[str, list[list[int]]] = field(default_factory=dict)
    aipp: Aipp | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled graph before it is written: description, graph bytes, and the weights' sources."""

    description: dict[str, Any]
    graph: bytes
    weights: list[Packed]
    weights_size: int
    limit: float


def gear_shapes(request: Request, names: list[str], key: Shape) -> list[Shape]:
    """The input shapes under one gear.

    A batch number fills every -1, an image pair the two -1s of the image, dims the -1s in order.
    """
    numbers = iter(key)
    shapes = []
    for name in names:
        shape = request.shapes[name]
        if request.kind == "batch":
            shapes.append(tuple(key[0] if dim == -1 else dim for dim in shape))
        elif request.kind == "image" and -1 in shape:
            pair = iter(key)
            shapes.append(tuple(next(pair) if dim == -1 else dim for dim in shape))
        else:
            shapes.append(tuple(next(numbers) if dim == -1 else dim for dim in shape))
    return shapes


def _gears(
    request: Request, model: onnx.ModelProto, names: list[str]
) -> tuple[list[Any], list[Shape], int]:
    """(gears, output shapes at the largest, workspace)."""
    item = 4 if request.precision in KEEP_ALL else 2
    bare = skeleton(model)
    if request.kind == "range":
        return [], [], 0
    if request.kind == "static":
        planned = plan(bare, [request.shapes[name] for name in names], item)
        return [], list(planned.outputs), planned.work_bytes
    gears: list[dict[str, Any]] = []
    work = 0
    for key in request.gears:
        shapes = gear_shapes(request, names, key)
        planned = plan(bare, shapes, item)
        work = max(work, planned.work_bytes)
        gears.append({"key": list(key), "inputs": shapes, "outputs": list(planned.outputs)})
    largest = [
        max((gear["outputs"][index] for gear in gears), key=math.prod)
        for index in range(len(gears[0]["outputs"]))
    ]
    return gears, largest, work


def _output_names(graph: onnx.GraphProto) -> list[str]:
    """`<node>:<index>:<tensor>` as davinci_model.cc makes them for ONNX."""
    producers = {
        name: (node.name or node.op_type, index)
        for node in graph.node
        for index, name in enumerate(node.output)
    }
    names = []
    for value in graph.output:
        node, index = producers.get(value.name, (value.name, 0))
        names.append(f"{node}:{index}:{value.name}")
    return names


def _set_output_type(graph: onnx.GraphProto, output_type: str) -> None:
    """--output_type: casts float outputs to the wanted type."""
    wanted = {"FP16": FLOAT16, "FP32": FLOAT}.get(output_type)
    if wanted is None:
        return
    for value in graph.output:
        if value.type.tensor_type.elem_type not in (FLOAT, FLOAT16, wanted):
            continue
        if value.type.tensor_type.elem_type == wanted:
            continue
        inner = f"{value.name}/typed"
        for node in graph.node:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name == value.name:
                        names[index] = inner
        graph.node.append(helper.make_node("Cast", [inner], [value.name], to=wanted))
        value.type.tensor_type.elem_type = wanted


def _tensor(name: str, source: str, value: onnx.ValueInfoProto, layout: int, shape: Shape,
            largest: Shape) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "source": source, "dtype": acl_dtype(value.type.tensor_type.elem_type),
            "format": layout, "shape": list(shape), "largest": list(largest)}  # fmt: skip


def _inputs(request: Request, graph: onnx.GraphProto, gears: list[Any]) -> list[dict[str, Any]]:
    """The description of every user input; its largest shape is that of any gear."""
    layout = FORMATS[request.layout]
    found = []
    for index, value in enumerate(inputs_of(graph)):
        shape = request.shapes[value.name]
        shapes = [tuple(gear["inputs"][index]) for gear in gears] or [shape]
        form = layout if len(shape) == 4 else FORMATS["ND"]
        found.append(
            _tensor(value.name, value.name, value, form, shape, max(shapes, key=math.prod))
        )
    return found


def _outputs(graph: onnx.GraphProto, largest: list[Shape]) -> list[dict[str, Any]]:
    """The description of every output; -1 where a range leaves an axis open."""
    found = []
    for index, (name, value) in enumerate(zip(_output_names(graph), graph.output, strict=True)):
        dims = onnx_file.shape_of(value) or []
        open_shape = tuple(dim if isinstance(dim, int) else -1 for dim in dims)
        shape = tuple(largest[index]) if largest else open_shape
        found.append(_tensor(name, value.name, value, FORMATS["ND"], shape, shape))
    return found


def build(request: Request) -> Built:
    """Everything but the writing. Raises DynamicShapeError, ValueError."""
    model = onnx_file.load(request.model)
    images: dict[str, list[int]] = {}
    if request.aipp is not None:
        if request.kind not in ("static", "batch"):
            raise ValueError("static AIPP is covered for fixed images and batch gears")
        request = replace(request, shapes=dict(request.shapes))
        images = prepend(model, request.aipp, request.shapes) if request.aipp else {}
    graph = model.graph
    _set_output_type(graph, request.output_type)
    gears, largest, work = _gears(request, model, [value.name for value in inputs_of(graph)])
    inputs, outputs = _inputs(request, graph, gears), _outputs(graph, largest)
    chip = CHIPS[request.soc]
    rules = Rounding(request.precision, request.keep, request.keep_types, chip.saturates,
                     "bf" in request.precision)  # fmt: skip
    round_graph(model, rules)
    weights, size = pack(model, rules, request.model.parent)
    description = {
        "format": om.FORMAT, "name": request.output.stem, "soc": request.soc, "kind": request.kind,
        "precision": request.precision, "inputs": inputs, "outputs": outputs, "gears": gears,
        "work_size": work, "weight_size": size, "weights": [item.entry() for item in weights],
        "ranges": request.ranges,
        "image_dims": images, "image_format": request.aipp.format_number if request.aipp else 0,
        "command": request.command, "atc_version": "8.1.RC1", "keep": sorted(request.keep),
        "keep_types": sorted(request.keep_types),
    }  # fmt: skip
    limit = FP16_MAX if chip.saturates else math.inf
    return Built(description, model.SerializeToString(), weights, size, limit)


def compile_model(request: Request) -> None:
    """Builds and writes `request.output`."""
    built = build(request)
    om.write(request.output, built.description, built.graph,
             partition(built.weights, built.weights_size, built.limit),
             built.weights_size)  # fmt: skip
