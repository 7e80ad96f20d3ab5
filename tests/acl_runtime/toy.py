"""A two-layer attention model with the contract of `hunyuanocr`, small enough to check by hand, as
numpy (the whole sequence at once, no cache) and as a compiled bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from atc_configs.contract import Contract, GraphSpec, load_contract
from atc_configs.manifest import GraphFile, Manifest, gears_of

DIMS = {"C": 24, "H": 2, "K": 2, "D": 16, "L": 2, "V": 19, "E": 12, "P": 768}
GEARS = {
    "vision": [[16], [32]],
    "llm": [
        [1, 1, 32, 1],
        [1, 1, 64, 1],
        [4, 1, 32, 1],
        [4, 1, 64, 1],
        [1, 4, 64, 4],
        [1, 8, 16, 1],
        [1, 8, 64, 1],
    ],
}


def contract(precision: str = "float32", gears: Mapping[str, Any] | None = None) -> Contract:
    return load_contract("hunyuanocr", DIMS, gears or GEARS, precision)


def weights() -> dict[str, np.ndarray]:
    """All weights of both graphs, by name, the same in every process."""
    random = np.random.default_rng(7)
    c, kd, v = DIMS["C"], DIMS["K"] * DIMS["D"], DIMS["V"]
    shapes = {"out": (c, v), "patch": (DIMS["P"], c), "pos": (DIMS["E"], c)}
    for layer in range(DIMS["L"]):
        shapes |= {f"{n}.{layer}": (c, kd) for n in "qkv"} | {f"o.{layer}": (kd, c)}
    return {
        name: random.normal(0, 1 / np.sqrt(shape[0]), shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def reference(embeds: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Logits (T, V) of every row of one sequence: embeds (T, C), cos and sin (T, D)."""
    w, x, heads = weights(), embeds.astype(np.float64), DIMS["K"]
    mask = np.triu(np.full((len(x), len(x)), -1e4), 1)
    for layer in range(DIMS["L"]):
        q, k, v = (x @ w[f"{name}.{layer}"] for name in "qkv")
        k = k * np.tile(cos, heads) + np.tile(sin, heads)
        scores = q @ k.T + mask
        p = np.exp(scores - scores.max(-1, keepdims=True))
        x = x + (p / p.sum(-1, keepdims=True)) @ v @ w[f"o.{layer}"]
    return (x @ w["out"]).astype(np.float32)


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random embeds (1, T, C), cos and sin (1, T, D)."""
    random = np.random.default_rng(seed)
    size = [(1, count, DIMS["C"]), (1, count, DIMS["D"]), (1, count, DIMS["D"])]
    return tuple(random.normal(0, 1, s).astype(np.float32) for s in size)  # type: ignore[return-value]


def bundle(
    folder: Path, soc: str = "Ascend310P3", precision: str = "float32", **changes: Any
) -> Path:
    """Writes a bundle of both graphs for the emulated chip and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = contract(precision, changes.pop("gears", None))
    files = {
        name: _compile(folder, made.graph(name), graph, soc)
        for name, graph in (("vision", vision_graph(precision)), ("llm", llm_graph(precision)))
    }
    values: dict[str, Any] = {
        "family": "hunyuanocr",
        "digest": made.digest,
        "precision": precision,
        "dims": made.dims,
        "gears": gears_of(made),
        "soc": soc,
        "graphs": files,
        "parity_passed": True,
    }
    Manifest(**(values | changes)).write(folder)
    return folder


def _compile(folder: Path, spec: GraphSpec, graph: Any, soc: str) -> GraphFile:
    from tests.pyacl_emulator.compile import Request, compile_model

    source, target = folder / f"{spec.name}.onnx", folder / f"{spec.name}.om"
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    source.write_bytes(model.SerializeToString())
    shapes = {t.name: tuple(d if isinstance(d, int) else -1 for d in t.shape) for t in spec.inputs}
    gears = tuple(tuple(map(int, gear.split(","))) for gear in spec.atc_dynamic_dims().split(";"))
    compile_model(Request(source, target, soc, shapes, "dims", gears, precision="origin"))
    source.unlink()
    data = target.read_bytes()
    return GraphFile(target.name, hashlib.sha256(data).hexdigest(), len(data))


class _Builder:
    """Nodes of an ONNX graph in the order in which they are called."""

    def __init__(self, precision: str) -> None:
        self.compute = TensorProto.FLOAT16 if precision == "float16" else TensorProto.FLOAT
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._dtype = np.float16 if precision == "float16" else np.float32

    def op(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        out = out or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    def weight(self, name: str, values: np.ndarray) -> str:
        if values.dtype == np.float32:
            values = values.astype(self._dtype)
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def cast(self, name: str) -> str:
        return self.op("Cast", name, to=self.compute)


def llm_graph(precision: str) -> Any:
    b, w, layers = _Builder(precision), weights(), DIMS["L"]
    kd, repeat = DIMS["K"] * DIMS["D"], np.array([1, 1, DIMS["K"]], np.int64)
    times = b.weight("times", repeat)
    cos = b.cast(b.op("Tile", "cos", times))
    sin = b.cast(b.op("Tile", "sin", times))
    x, outputs = "embeds", []
    for i in range(layers):
        q, k, v = (b.op("MatMul", x, b.weight(f"{n}.{i}", w[f"{n}.{i}"])) for n in "qkv")
        k = b.op("Add", b.op("Mul", k, cos), sin, out=f"new_key.{i}")
        v = b.op("Identity", v, out=f"new_value.{i}")
        past = b.op("MatMul", q, b.op("Transpose", f"past_key.{i}", perm=[0, 2, 1]))
        own = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 2, 1]))
        scores = b.op(
            "Concat", b.op("Add", past, "past_mask"), b.op("Add", own, "chunk_mask"), axis=2
        )
        values = b.op("Concat", f"past_value.{i}", v, axis=1)
        mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), values)
        x = b.op("Add", x, b.op("MatMul", mixed, b.weight(f"o.{i}", w[f"o.{i}"])))
        outputs += [(f"new_key.{i}", ["B", "Q", kd]), (f"new_value.{i}", ["B", "Q", kd])]
    wanted = b.op("MatMul", "select", x)
    b.op("Cast", b.op("MatMul", wanted, b.weight("out", w["out"])), out="logits", to=1)
    spec = contract(precision).graph("llm")
    return _graph("llm", b, spec, precision)


def vision_graph(precision: str) -> Any:
    b, w = _Builder(precision), weights()
    sums = b.op(
        "Add",
        b.op("MatMul", "patches", b.weight("patch", w["patch"])),
        b.op("MatMul", "pos", b.weight("pos_w", w["pos"])),
    )
    # The mask is used so that it stays an input: (1, N) -> (N, 1) zero for rows in use.
    column = b.op("Transpose", "mask", perm=[1, 0])
    masked = b.op("Add", sums, column)
    four = b.weight("four", np.array([-1, 4, DIMS["C"]], np.int64))
    b.op("ReduceMean", b.op("Reshape", masked, four), out="content", axes=[1], keepdims=0)
    return _graph("vision", b, contract(precision).graph("vision"), precision)


def _graph(name: str, b: _Builder, spec: GraphSpec, precision: str) -> Any:
    kinds = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT}

    def info(tensor: Any) -> Any:
        return helper.make_tensor_value_info(
            tensor.name, kinds[tensor.dtype_in(precision)], list(tensor.shape)
        )

    inputs, outputs = map(info, spec.inputs), map(info, spec.outputs)
    return helper.make_graph(b.nodes, name, list(inputs), list(outputs), b.constants)


def greedy(engine: Any, cache: Any, slot: int, count: int, seed: int = 0) -> list[int]:
    """Greedy 'tokens' whose embeddings are rows of a fixed table; a decode loop as families do."""
    table = np.random.default_rng(3).normal(0, 1, (DIMS["V"], DIMS["C"])).astype(np.float32)
    embeds, cos, sin = rows(5, seed)
    logits = engine.extend(cache, slot, [5], embeds, cos, sin, [[4]])
    tokens = [int(logits[0, 0].argmax())]
    for step in range(count - 1):
        _, cos, sin = rows(1, 100 + step)
        logits = engine.extend(cache, slot, [1], table[tokens[-1:]][None], cos, sin, [[0]])
        tokens.append(int(logits[0, 0].argmax()))
    return tokens


def greedy_reference(count: int, seed: int = 0) -> list[int]:
    """The same without a cache."""
    table = np.random.default_rng(3).normal(0, 1, (DIMS["V"], DIMS["C"])).astype(np.float32)
    embeds, cos, sin = (part[0] for part in rows(5, seed))
    tokens: list[int] = []
    for step in range(count):
        tokens.append(int(reference(embeds, cos, sin)[-1].argmax()))
        _, c, s = rows(1, 100 + step)
        embeds = np.concatenate([embeds, table[tokens[-1:]]])
        cos, sin = np.concatenate([cos, c[0]]), np.concatenate([sin, s[0]])
    return tokens


def select_last(counts: Sequence[int]) -> list[list[int]]:
    return [[max(count - 1, 0)] for count in counts]
