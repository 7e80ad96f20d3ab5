"""Any ONNX graph behind the engine protocol."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fallback.errors import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    EngineUnavailableError,
    GraphInputError,
)
from fallback.host_array import HostArray
from fallback.ort_engine import OrtEngine


def scale_graph() -> bytes:
    """y (N, 2) = 3 · x (N, 2)."""
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    three = helper.make_tensor("three", TensorProto.FLOAT, [], [3.0])
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "three"], ["y"])], "scale", [x], [y], [three]
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.fixture
def engine():
    with OrtEngine({"scale": scale_graph()}, threads=1) as opened:
        yield opened


@pytest.mark.parametrize("rows", [1, 5])
def test_a_symbolic_axis_takes_any_length(engine: OrtEngine, rows: int) -> None:
    x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    y = engine.run("scale", {"x": x})["y"]
    np.testing.assert_array_equal(y.numpy(), 3 * x)
    assert engine.gears("scale") is None


def test_an_output_can_be_the_next_input(engine: OrtEngine) -> None:
    once = engine.run("scale", {"x": np.ones((2, 2), np.float32)})["y"]
    twice = engine.run("scale", {"x": once})["y"]
    assert twice.numpy().tolist() == [[9.0, 9.0], [9.0, 9.0]]


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ({}, "missing inputs \\['x'\\]"),
        ({"x": np.ones((1, 2), np.float32), "z": np.ones(1)}, "unknown inputs \\['z'\\]"),
        ({"x": np.ones((1, 2))}, "dtype float64, the graph wants float32"),
        ({"x": np.ones((1, 3), np.float32)}, r"shape \(1, 3\), the graph wants \('N', 2\)"),
    ],
)
def test_a_wrong_call_says_what_the_graph_wants(engine: OrtEngine, feeds: dict, said: str) -> None:
    with pytest.raises(GraphInputError, match=said):
        engine.run("scale", feeds)


def test_unknown_and_closed_graphs_are_named(engine: OrtEngine) -> None:
    with pytest.raises(GraphInputError, match=r"no graph 'shear' is open \(open: scale\)"):
        engine.gears("shear")
    engine.close()
    engine.close()
    with pytest.raises(GraphInputError, match="engine is closed"):
        engine.run("scale", {})


def test_a_provider_that_is_not_here_is_never_replaced_by_another() -> None:
    with pytest.raises(EngineUnavailableError, match="CANNExecutionProvider is not in this build"):
        OrtEngine({"scale": scale_graph()}, providers=("CANNExecutionProvider",))


def test_files_that_are_missing_or_not_onnx(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="graph det: no file"):
        OrtEngine({"det": tmp_path / "det.onnx"})
    (tmp_path / "det.onnx").write_bytes(b"GGUF not a graph")
    with pytest.raises(CheckpointFormatError, match="graph det: ONNX Runtime refuses"):
        OrtEngine({"det": tmp_path / "det.onnx"})


def test_rows_of_a_host_array_are_views_and_numpy_is_a_copy() -> None:
    array = HostArray(np.zeros((4, 2), np.float32))
    array.rows(1, 2).write(1, np.ones((1, 2)))
    copy = array.numpy()
    copy[:] = 7
    assert array.values[:, 0].tolist() == [0, 0, 1, 0]
    array.copy_rows(0, array, 2, 1)
    assert array.values[:, 0].tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match=r"rows 3\.\.4 are outside an array of 4 rows"):
        array.write(3, np.ones((2, 2)))
