"""Arithmetic and bytes: hand-counted layers, the formula against files, the files against it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from ascend.build.export import read_export
from ascend.planning.model import model_sizes
from fallback.dims import FULL
from profiling.costs import ModelSizes, OpCost, llm_costs, vision_costs, weight_bytes
from profiling.onnx_costs import CostError, model_costs, onnx_costs
from scripts.make_checkpoint import TINY
from tests.build.conftest import hunyuan_export, tiny  # noqa: F401  (one export for all tests)


def one_node(kind: str, inputs: Mapping[str, Any], weights: Mapping[str, Any], **attrs: Any) -> Any:
    node = helper.make_node(kind, [*inputs, *weights], ["y"], name="node", **attrs)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value(n, TensorProto.FLOAT16, [None] * len(s)) for n, s in inputs.items()],
        [value("y", TensorProto.FLOAT16, None)],
        [helper.make_tensor(n, TensorProto.FLOAT16, s, bytes(2 * _size(s)), raw=True)
         for n, s in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for dim in shape:
        total *= dim
    return total


@pytest.mark.parametrize(
    ("kind", "inputs", "weights", "attrs", "cube"),
    [
        ("MatMul", {"x": (3, 5)}, {"w": (5, 7)}, {}, 2 * 3 * 5 * 7),
        ("MatMul", {"x": (2, 3, 5), "z": (2, 5, 7)}, {}, {}, 2 * 2 * 3 * 5 * 7),
        ("Gemm", {"x": (3, 5)}, {"w": (7, 5)}, {"transB": 1}, 2 * 3 * 5 * 7),
        ("Gemm", {"x": (5, 3)}, {"w": (5, 7)}, {"transA": 1}, 2 * 3 * 5 * 7),
        # 8 x 8 outputs of 4 channels, each from 3 channels of 3 x 3
        ("Conv", {"x": (1, 3, 8, 8)}, {"w": (4, 3, 3, 3)}, {"pads": [1, 1, 1, 1]},
         2 * 4 * 64 * 27),
        # depthwise: each output from one channel of 3 x 3
        ("Conv", {"x": (1, 4, 8, 8)}, {"w": (4, 1, 3, 3)}, {"pads": [1, 1, 1, 1], "group": 4},
         2 * 4 * 64 * 9),
        ("ConvTranspose", {"x": (1, 3, 8, 8)}, {"w": (3, 2, 2, 2)}, {"strides": [2, 2]},
         2 * 3 * 64 * 8),
    ],
)  # fmt: skip
def test_a_product_is_counted_as_by_hand(
    kind: str, inputs: Any, weights: Any, attrs: Any, cube: int
) -> None:
    (cost,) = model_costs(one_node(kind, inputs, weights, **attrs), inputs)
    assert cost.cube == cube
    assert cost.weights == sum(2 * _size(s) for s in weights.values())
    out = cost.must_move - sum(2 * _size(s) for s in inputs.values())
    assert out > 0 and cost.between == 0


def test_what_is_between_two_nodes_is_written_and_read() -> None:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Relu", ["x"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 10])],
        [value("y", TensorProto.FLOAT, ["n", 10])],
    )  # fmt: skip
    first, second = model_costs(helper.make_model(graph), {"x": (6, 10)})
    assert (first.must_move, first.between, first.fused) == (240, 240, True)
    assert (second.must_move, second.between, second.vector) == (240, 240, 720)


def test_a_shape_that_is_missing_is_named() -> None:
    model = one_node("Relu", {"x": (3, 5)}, {})
    with pytest.raises(CostError, match="'x'"):
        model_costs(model, {})
    with pytest.raises(CostError, match="2 axes"):
        model_costs(model, {"x": (3,)})


def test_the_released_model_by_formula() -> None:
    """Figures counted by hand: 27 (4 E² + 2 E I) and the connector; 24 layers and the tied head."""
    m = model_sizes(FULL)
    layer = 4 * 1152 * 1152 + 2 * 1152 * 4304
    vision = 27 * layer + 768 * 1152 + 4608 * 2304 + 2304 * 1024
    assert weight_bytes(vision_costs(m, 1200)) == 2 * vision
    text = 24 * (1024 * (16 + 16) * 128 + 16 * 128 * 1024 + 3 * 1024 * 3584)
    assert weight_bytes(llm_costs(m, 1, 1, 1024, 1)) == 2 * (text + 1024 * 120818)
    macs = sum(c.cube * c.count for c in vision_costs(m, 1200)) / 2
    attention = 27 * 2 * 1200 * 1200 * 1152
    own = 1200 * (27 * layer + 768 * 1152) + 300 * (4608 * 2304 + 2304 * 1024)
    assert macs == own + attention
    assert m.cache_row_bytes == 98_304


def test_the_cache_is_read_once_in_the_blocked_form_and_three_times_when_re_laid() -> None:
    m = model_sizes(FULL)
    cache = 2048 * m.cache_row_bytes

    def moved(form: Any) -> float:
        costs = llm_costs(m, 1, 1, 2048, 1, form)
        names = ("past scores", "past mix", "cache re-laid")
        return sum(c.moved * c.count for c in costs if c.name in names)

    assert moved("blocked") == pytest.approx(cache, rel=0.15)
    assert moved("grouped") == pytest.approx(3 * cache, rel=0.15)


def _sums(costs: list[OpCost]) -> dict[str, float]:
    return {
        "cube": sum(c.cube * c.count for c in costs),
        "weights": sum(c.weights * c.count for c in costs),
        "must_move": sum(c.must_move * c.count for c in costs),
        "between": sum(c.between * c.count for c in costs),
    }


@pytest.mark.parametrize("graph", ["vision", "llm"])
def test_formula_and_exported_file_agree(hunyuan_export: Path, graph: str) -> None:  # noqa: F811
    exported = read_export(hunyuan_export)
    spec = exported.contract.graph(graph)
    m: ModelSizes = model_sizes(TINY)
    for gear in spec.gears:
        path = hunyuan_export / exported.graphs[graph]["file"]
        counted = _sums(onnx_costs(path, spec.input_shapes(gear)))
        if graph == "vision":
            formula = _sums(vision_costs(m, gear["N"]))
        else:
            formula = _sums(llm_costs(m, *(gear[s] for s in "BQSR")))
        # Products are the same to the last one, biases and small inputs are not in the formula,
        # and what a compiler makes of the steps between products is its own affair.
        assert formula["cube"] == counted["cube"]
        assert formula["weights"] == pytest.approx(counted["weights"], rel=0.05)
        assert formula["must_move"] == pytest.approx(counted["must_move"], rel=0.15)
        assert formula["between"] == pytest.approx(counted["between"], rel=0.35)
