"""Small ONNX models, compiled for the emulated chip, and a fresh emulated process per test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import pyacl_emulator
from tests.pyacl_emulator.compile import Request, compile_model

WIDTH = 64
Build = Callable[..., Path]


@pytest.fixture
def acl() -> Iterator[ModuleType]:
    """A process on 310P3 that has called nothing; no violation may go unnoticed."""
    pyacl_emulator.control.reset(soc="Ascend310P3")
    yield pyacl_emulator
    pyacl_emulator.control.reset(soc="Ascend310P3")


@pytest.fixture
def rc() -> Iterator[ModuleType]:
    """The same on 310B4, where host and device memory are one."""
    pyacl_emulator.control.reset(soc="Ascend310B4")
    yield pyacl_emulator
    pyacl_emulator.control.reset(soc="Ascend310P3")


@pytest.fixture
def ready(acl: ModuleType) -> ModuleType:
    """Initialised, device 0 set."""
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    return acl


def weights() -> np.ndarray:
    """The matrix of `linear_onnx`."""
    return np.random.default_rng(7).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8


def linear_onnx(path: Path) -> Path:
    """z = x @ W + 1 for x (n, WIDTH) float32."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["y"], name="mm"),
        helper.make_node("Add", ["y", "one"], ["z"], name="add"),
    ]
    initial = [
        numpy_helper.from_array(weights(), "W"),
        numpy_helper.from_array(np.ones(1, np.float32), "one"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "linear", [value("x", TensorProto.FLOAT, ["n", WIDTH])],
        [value("z", TensorProto.FLOAT, ["n", WIDTH])], initial,
    )  # fmt: skip
    save(graph, path)
    return path


def image_onnx(path: Path) -> Path:
    """y = 2 x for an image x (n, 3, h, w) float32."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], name="twice")], "image",
        [value("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [value("y", TensorProto.FLOAT, ["n", 3, "h", "w"])],
    )  # fmt: skip
    save(graph, path)
    return path


def save(graph: onnx.GraphProto, path: Path, opset: int = 17) -> None:
    """Writes a graph as a model of an opset."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)


@pytest.fixture
def linear(tmp_path: Path) -> Build:
    """Compiles the linear model: linear(kind, gears, soc=..., precision=...) -> .om"""
    source = linear_onnx(tmp_path / "linear.onnx")

    def build(kind: str = "static", gears: tuple = (), rows: int = 4, **options: object) -> Path:
        soc = str(options.pop("soc", "Ascend310P3"))
        output = tmp_path / str(options.pop("name", f"linear_{kind}_{soc}.om"))
        shape = (rows if kind == "static" else -1, WIDTH)
        compile_model(Request(source, output, soc, {"x": shape}, kind, gears, **options))
        return output

    return build


@pytest.fixture
def image(tmp_path: Path) -> Build:
    """Compiles the image model with gears of a kind."""
    source = image_onnx(tmp_path / "image.onnx")

    def build(kind: str, gears: tuple, shape: tuple[int, ...]) -> Path:
        output = tmp_path / f"image_{kind}.om"
        compile_model(
            Request(source, output, "Ascend310P3", {"x": shape}, kind, gears, layout="NCHW")
        )
        return output

    return build


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The linear model as ONNX."""
    return linear_onnx(tmp_path / "linear.onnx")
