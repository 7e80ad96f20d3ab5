"""Magnitudes that fp16 does not have: found on a planted overflow, and cured by the list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ascend.build import parity
from ascend.build.export import read_export
from ascend.build.fp16_audit import audit, audit_export
from ascend.build.half import keep_float32, widen
from ascend.build.sample_inputs import sample_inputs
from ascend.errors import ModelError

LAYER = "layers.1"


def _run(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """ONNX's own evaluator: each float16 node rounds, which ONNX Runtime's CPU does not."""
    with np.errstate(all="ignore"):
        outputs = ReferenceEvaluator(model).run(None, feed)
    return {v.name: values for v, values in zip(model.graph.output, outputs, strict=True)}


def _scale(model: onnx.ModelProto, node: str, columns: slice, power: int) -> None:
    """Multiplies some columns of a MatMul's weight by 2**power, which fp16 does exactly."""
    name = next(n.input[1] for n in model.graph.node if n.name == node)
    tensor = next(t for t in model.graph.initializer if t.name == name)
    values = numpy_helper.to_array(tensor).copy()
    values[:, columns] *= np.float16(2.0**power)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


@pytest.fixture
def planted(hunyuan_export: Path, tmp_path: Path) -> Path:
    """The llm graph with an MLP whose inner product passes 65504 in one layer; what follows
    brings it back, as in real checkpoints, so that float32 shows nothing unusual."""
    model = onnx.load(str(hunyuan_export / "llm.onnx"))
    inner = 160  # the tiny checkpoint's intermediate size
    _scale(model, f"{LAYER}.gate_up_proj/MatMul", slice(0, inner), 5)
    _scale(model, f"{LAYER}.gate_up_proj/MatMul", slice(inner, None), 10)
    _scale(model, f"{LAYER}.down_proj/MatMul", slice(None), -10)
    onnx.save(model, str(tmp_path / "llm.onnx"))
    return tmp_path / "llm.onnx"


@pytest.fixture
def feed(hunyuan_export: Path) -> dict[str, NDArray[Any]]:
    spec = read_export(hunyuan_export).contract.graph("llm")
    return sample_inputs(spec, {"B": 1, "Q": 4, "S": 64, "R": 4}, "float16")


def _float32_outputs(path: Path, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    model = onnx.load(str(path))
    widen(model)
    return _run(model, {name: values.astype(np.float32) for name, values in feed.items()})


def test_the_audit_finds_the_layer_and_its_list_cures_it(planted, feed):
    wanted = _float32_outputs(planted, feed)
    bound = parity.BOUNDS["float16"]
    assert bound.refusal(parity.compare(_run(onnx.load(str(planted)), feed), wanted))

    found = audit(planted, [feed])
    assert found.keep and all(name.startswith(LAYER) for name in found.keep)
    assert found.ranges[0].overflows and found.ranges[0].source.startswith("fallback/hunyuanocr")

    cured = onnx.load(str(planted))
    keep_float32(cured, found.keep)
    assert bound.refusal(parity.compare(_run(cured, feed), wanted)) is None


def test_a_sound_graph_needs_no_list(hunyuan_export, feed):
    found = audit(hunyuan_export / "llm.onnx", [feed])
    assert found.keep == ()
    assert found.ranges[0].largest == 1e4  # the mask


def _chain(tmp_path: Path, kind: int, factor: float) -> Path:
    """x -> Mul -> big -> Mul -> y: the product in between is x · factor."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants = [
        numpy_helper.from_array(np.array(value, dtype), name)
        for name, value in (("up", factor), ("down", 1 / factor))
    ]
    nodes = [
        helper.make_node("Mul", ["x", "up"], ["big"], "grow"),
        helper.make_node("Mul", ["big", "down"], ["y"], "shrink"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", kind, [4])], [value("y", kind, [4])], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    onnx.save(model, str(tmp_path / "g.onnx"))
    return tmp_path / "g.onnx"


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_readers_of_what_overflows_are_kept_with_it(kind, tmp_path):
    path = _chain(tmp_path, kind, 1024.0)
    found = audit(path, [{"x": np.array([1, -2, 100, 0], np.float32)}])
    assert found.keep == ("grow", "shrink")
    assert [r.largest for r in found.ranges] == [102400.0, 100.0]


def test_a_margin_is_left_for_pages_that_were_not_seen(tmp_path):
    path = _chain(tmp_path, TensorProto.FLOAT, 1024.0)
    assert audit(path, [{"x": np.array([0, 0, 0, 40], np.float32)}]).keep == ("grow", "shrink")
    assert audit(path, [{"x": np.array([0, 0, 0, 20], np.float32)}]).keep == ()


def test_values_that_become_zero_are_counted(tmp_path):
    path = _chain(tmp_path, TensorProto.FLOAT, 2.0**-30)
    found = audit(path, [{"x": np.array([1, 1, 2.0**20, 0], np.float32)}])
    lost = {r.node: r.lost for r in found.ranges}
    assert lost == {"grow": pytest.approx(2 / 3), "shrink": 0.0}


def test_nan_is_an_overflow(tmp_path):
    path = _chain(tmp_path, TensorProto.FLOAT, 2.0)
    assert audit(path, [{"x": np.array([np.nan, 0, 0, 0], np.float32)}]).keep == ("grow", "shrink")


def test_between_kept_nodes_nothing_is_rounded(tmp_path):
    model = onnx.load(str(_chain(tmp_path, TensorProto.FLOAT16, 1024.0)))
    x = np.array([1, -2, 100, 0], np.float16)
    assert np.isinf(_run(model, {"x": x})["y"]).any()
    keep_float32(model, ["grow", "shrink"])
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(_run(model, {"x": x})["y"], x)


def test_a_cast_to_float32_behind_a_kept_node_reads_the_wide_value(tmp_path):
    model = onnx.load(str(_chain(tmp_path, TensorProto.FLOAT16, 1024.0)))
    model.graph.node[1].CopyFrom(
        helper.make_node("Cast", ["big"], ["y"], "cast", to=TensorProto.FLOAT)
    )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    keep_float32(model, ["grow"])
    y = _run(model, {"x": np.array([100, 0, 0, 0], np.float16)})["y"]
    assert y[0] == 102400.0


def test_a_cast_cannot_be_kept(tmp_path):
    model = onnx.load(str(_chain(tmp_path, TensorProto.FLOAT16, 2.0)))
    model.graph.node[1].CopyFrom(
        helper.make_node("Cast", ["big"], ["y"], "cast", to=TensorProto.FLOAT16)
    )
    with pytest.raises(ModelError, match="cast: a Cast cannot be kept"):
        keep_float32(model, ["cast"])


def test_pages_are_read_to_feed_the_graphs(hunyuan_export, tiny):
    said: list[str] = []
    found = audit_export(hunyuan_export, tiny, say=said.append)
    assert found.keys() == {"vision", "llm"}
    assert all(not result.keep for result in found.values())
    assert found["vision"].ranges[0].largest > 1
    assert found["llm"].to_dict()["nodes"]
    assert len(said) == 3
