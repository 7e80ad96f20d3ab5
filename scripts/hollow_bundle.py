"""A bundle with the released model's inputs, outputs and gears and nothing inside: for measuring
what happens around a graph, where the graph itself does not matter."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from atc_configs.contract import Contract, GraphSpec, load_contract
from atc_configs.manifest import GraphFile, Manifest, gears_of
from tests.pyacl_emulator.compile import Request, compile_model


def hollow_bundle(folder: Path, soc: str = "Ascend310P3") -> Path:
    """Writes the bundle into `folder` and returns it."""
    contract = load_contract("hunyuanocr")
    graphs = {
        name: _compile(folder, contract, contract.graph(name), nodes(contract), soc)
        for name, nodes in (("vision", _vision), ("llm", _llm))
    }
    Manifest(
        family=contract.family,
        digest=contract.digest,
        precision=contract.precision,
        dims=contract.dims,
        gears=gears_of(contract),
        soc=soc,
        graphs=graphs,
        parity_passed=True,
        model="hollow",
    ).write(folder)
    return folder


def _compile(
    folder: Path, contract: Contract, spec: GraphSpec, parts: tuple[list[Any], list[Any]], soc: str
) -> GraphFile:
    kinds = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT}
    inputs, outputs = (
        [
            helper.make_tensor_value_info(
                t.name, kinds[t.dtype_in(contract.precision)], list(t.shape)
            )
            for t in side
        ]
        for side in (spec.inputs, spec.outputs)
    )
    graph = helper.make_graph(parts[0], spec.name, inputs, outputs, parts[1])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    source, target = folder / f"{spec.name}.onnx", folder / f"{spec.name}.om"
    source.write_bytes(model.SerializeToString())
    shapes = {t.name: tuple(d if isinstance(d, int) else -1 for d in t.shape) for t in spec.inputs}
    gears = tuple(tuple(map(int, g.split(","))) for g in spec.atc_dynamic_dims().split(";"))
    compile_model(Request(source, target, soc, shapes, "dims", gears, precision="origin"))
    source.unlink()
    data = target.read_bytes()
    return GraphFile(target.name, hashlib.sha256(data).hexdigest(), len(data))


def _vision(contract: Contract) -> tuple[list[Any], list[Any]]:
    """content = the first C columns of four patches side by side."""
    ends = {"start": [0], "end": [contract.dims["C"]], "axis": [1]}
    shape = numpy_helper.from_array(np.array([-1, 4 * contract.dims["P"]], np.int64), "four")
    constants = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in ends.items()]
    nodes = [
        helper.make_node("Reshape", ["patches", "four"], ["wide"]),
        helper.make_node("Slice", ["wide", "start", "end", "axis"], ["content"]),
    ]
    return nodes, [shape, *constants]


def _llm(contract: Contract) -> tuple[list[Any], list[Any]]:
    """New rows are the embeds (C = K·D in the released model), logits the chosen rows' means."""
    dims = contract.dims
    assert dims["C"] == dims["K"] * dims["D"]
    nodes = [
        helper.make_node("Identity", ["embeds"], [f"new_{side}.{layer}"])
        for side in ("key", "value")
        for layer in range(dims["L"])
    ]
    nodes += [
        helper.make_node("MatMul", ["select", "embeds"], ["chosen"]),
        helper.make_node("ReduceMean", ["chosen"], ["mean"], axes=[2], keepdims=1),
        helper.make_node("Tile", ["mean", "times"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["logits"], to=TensorProto.FLOAT),
    ]
    times = numpy_helper.from_array(np.array([1, 1, dims["V"]], np.int64), "times")
    return nodes, [times]
