"""The arithmetic of a build: fp16 storage with fp32 sums, kept operators, poison, weights."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulator.conftest import WIDTH, save, weights
from tests.emulator.program import GEARS, download, load, reference, rows, upload
from tests.pyacl_emulator import control
from tests.pyacl_emulator.compile import Request, compile_model


def test_a_static_model_computes_in_fp16(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    x = rows(4)
    upload(ready, model.inputs.pointers[0], x)
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert np.abs(seen - reference(x)).max() < 2e-3
    assert (seen == seen.astype(np.float16)).all()
    assert np.abs(seen - (x @ weights() + 1)).max() > 1e-5
    model.release()


def test_an_origin_build_computes_in_fp32(ready: ModuleType, linear) -> None:
    model = load(ready, linear(precision="origin"))
    x = rows(4)
    upload(ready, model.inputs.pointers[0], x)
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert np.abs(seen - (x @ weights() + 1)).max() < 1e-5
    model.release()


def chain_onnx(path: Path, dtype: int = TensorProto.FLOAT) -> None:
    """z = sqrt(x * x): overflows fp16 in the middle for x > 255."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Sqrt", ["square"], ["z"], name="root"),
    ]
    graph = helper.make_graph(nodes, "chain", [value("x", dtype, [4])], [value("z", dtype, [4])])
    save(graph, path)


@pytest.mark.parametrize(
    ("soc", "keep", "expected"),
    [("Ascend310P3", (), np.sqrt(np.float32(65504))), ("Ascend910B4", (), np.inf),
     ("Ascend310P3", ("square",), np.sqrt(np.float32(65504))),
     ("Ascend310P3", ("square", "root"), 300.0)],
)  # fmt: skip
def test_fp16_overflows_inside_the_graph_as_the_chip_does(
    acl: ModuleType, tmp_path: Path, soc: str, keep: tuple[str, ...], expected: float
) -> None:
    control.reset(soc=soc)
    acl.init()
    acl.rt.set_device(0)
    source, target = tmp_path / "chain.onnx", tmp_path / "chain.om"
    chain_onnx(source)
    compile_model(Request(source, target, soc, {"x": (4,)}, keep=frozenset(keep)))
    model = load(acl, target)
    upload(acl, model.inputs.pointers[0], np.array([300, 3, 0, 1], np.float32))
    assert model.execute() == 0
    seen = download(acl, model.outputs.pointers[0], (4,), np.float32)
    assert seen[1:].tolist() == [3, 0, 1]
    assert seen[0] == np.float32(expected) or abs(seen[0] - expected) < 0.2


def test_an_fp16_graph_rounds_between_its_operators(ready: ModuleType, tmp_path: Path) -> None:
    source, target = tmp_path / "chain.onnx", tmp_path / "chain.om"
    chain_onnx(source, TensorProto.FLOAT16)
    compile_model(Request(source, target, "Ascend310P3", {"x": (4,)}, precision="origin"))
    model = load(ready, target)
    assert ready.mdl.get_input_data_type(model.desc, 0) == 1
    upload(ready, model.inputs.pointers[0], np.array([300, 3, 0, 1], np.float16))
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4,), np.float16)
    assert abs(float(seen[0]) - 255.94) < 0.2
    assert seen[1:].tolist() == [3, 0, 1]


def test_poison_in_an_input_reaches_the_output(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    assert model.execute() == 0
    assert np.isnan(download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)).all()


def test_external_weights_are_packed_once(ready: ModuleType, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["z"], name="mm")], "external",
        [value("x", TensorProto.FLOAT, ["n", WIDTH])],
        [value("z", TensorProto.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(weights(), "W")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    source, target = tmp_path / "external.onnx", tmp_path / "external.om"
    onnx.save(model, source, save_as_external_data=True, location="external.bin", size_threshold=0)
    compile_model(Request(source, target, "Ascend310P3", {"x": (-1, WIDTH)}, "dims", GEARS))
    (tmp_path / "external.bin").unlink()
    assert target.stat().st_size < WIDTH * WIDTH * 2 + 4096
    loaded = load(ready, target)
    x = rows(4)
    upload(ready, loaded.inputs.pointers[0], x)
    loaded.set_dims([4, WIDTH])
    assert loaded.execute() == 0
    seen = download(ready, loaded.outputs.pointers[0], x.shape, np.float32)
    assert np.abs(seen - (reference(x) - 1)).max() < 2e-3


def test_a_model_is_compiled_once_however_often_it_runs_or_is_loaded(
    ready: ModuleType, linear, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.pyacl_emulator import session

    made: list[int] = []
    original = session.Program.__init__

    def counted(self: session.Program, *arguments: object) -> None:
        made.append(1)
        original(self, *arguments)

    monkeypatch.setattr(session.Program, "__init__", counted)
    monkeypatch.setattr(session, "_KEEP_BYTES", 0)
    path = linear(name="once.om")
    models = [load(ready, path) for _ in range(2)]
    for model in models * 2:
        upload(ready, model.inputs.pointers[0], rows(4))
        assert model.execute() == 0
    assert len(made) == 1
    for model in models:
        model.release()
    again = load(ready, path)
    upload(ready, again.inputs.pointers[0], rows(4))
    assert again.execute() == 0
    assert len(made) == 2


def test_a_bf16_build_rounds_to_bf16(acl: ModuleType, linear) -> None:
    control.reset(soc="Ascend910B4")
    acl.init()
    acl.rt.set_device(0)
    path = linear(soc="Ascend910B4", precision="mixed_bfloat16")
    assert acl.mdl.query_size(str(path))[1] == WIDTH * WIDTH * 2
    model = load(acl, path)
    x = rows(4)
    upload(acl, model.inputs.pointers[0], x)
    assert model.execute() == 0
    seen = download(acl, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert not (seen.view(np.uint32) & 0xFFFF).any()
    error = np.abs(seen - (x @ weights() + 1)).max()
    assert 1e-3 < error < 5e-2
