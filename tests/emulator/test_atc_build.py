"""What the stand-in for `atc` takes and makes: operators by chip, kept types, AIPP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulator.command import line, refusal
from tests.emulator.conftest import WIDTH, image_onnx, save
from tests.emulator.program import download, load, upload
from tests.pyacl_emulator import om
from tests.pyacl_emulator.atc_main import main

AIPP = """aipp_op {
    aipp_mode: static
    input_format: RGB888_U8
    rbuv_swap_switch: true
    mean_chn_0: 10
    mean_chn_1: 20
    mean_chn_2: 30
    var_reci_chn_0: 0.5
    var_reci_chn_1: 0.25
    var_reci_chn_2: 0.125
}
"""


def one_node(path: Path, kind: str, inputs: int, opset: int = 17, **attributes: object) -> Path:
    """A model of one operator."""
    value = helper.make_tensor_value_info
    names = [f"x{index}" for index in range(inputs)]
    node = helper.make_node(kind, names, ["y"], name=f"/model/{kind}", **attributes)
    graph = helper.make_graph(
        [node], kind, [value(name, TensorProto.FLOAT, [2, 2]) for name in names],
        [value("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    save(graph, path, opset)
    return path


def test_an_operator_without_parser_is_e16002(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = one_node(tmp_path / "loop.onnx", "STFT", 2)
    text = refusal(capsys, line(path, input_shape=None))
    assert text.startswith("E16002: No ONNX parser is registered for optype [ai.onnx::17::STFT].\n")
    assert "        Solution: Check the version of the installation package" in text
    assert "        TraceBack (most recent call last):\n" in text


def test_opset_19_has_no_parser(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = one_node(tmp_path / "add.onnx", "Add", 2, opset=19)
    text = refusal(capsys, line(path, input_shape=None))
    assert "[ai.onnx::19::Add]" in text


def test_an_operator_without_kernel_is_ez3003(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = one_node(tmp_path / "einsum.onnx", "Einsum", 2, equation="ij,jk->ik")
    text = refusal(capsys, line(path, input_shape=None))
    assert text == (
        "EZ3003: No supported Ops kernel and engine are found for [/model/Einsum], optype "
        "[Einsum].\n"
        "        Possible Cause: The operator is not supported by the system. Therefore, no hit is "
        "found in any operator information library.\n"
        "        Solution: 1. Check that the OPP component is installed properly. 2. Submit an "
        "issue to request for the support of this operator type.\n"
        "\n"
    )


@pytest.mark.parametrize(("soc", "code"), [("Ascend310P3", "EZ3003"), ("Ascend310B4", "")])
def test_kernels_depend_on_the_chip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], soc: str, code: str
) -> None:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("IsNaN", ["x"], ["m"], name="nan"),
        helper.make_node("Cast", ["m"], ["y"], name="cast", to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(nodes, "nan", [value("x", TensorProto.FLOAT, [2])],
                              [value("y", TensorProto.FLOAT, [2])])  # fmt: skip
    save(graph, tmp_path / "nan.onnx")
    arguments = line(tmp_path / "nan.onnx", input_shape=None, soc_version=soc)
    if code:
        assert refusal(capsys, arguments).startswith(f"{code}: ")
    else:
        assert main(arguments) == 0


def test_gears_need_static_shapes_inside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"], name="nz")], "nz",
        [value("x", TensorProto.FLOAT, ["n"])], [value("y", TensorProto.INT64, None)],
    )  # fmt: skip
    save(graph, tmp_path / "nz.onnx")
    arguments = line(tmp_path / "nz.onnx", input_shape="x:-1", dynamic_dims="2;4")
    assert "depends on data" in refusal(capsys, arguments)


def test_keep_dtype_names_must_exist(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = source.parent / "keep.txt"
    keep.write_text("add\nOpType::MatMul\n")
    assert main(line(source, keep_dtype=str(keep))) == 0
    description = om.read(str(source.parent / "out.om")).description
    assert (description["keep"], description["keep_types"]) == (["add"], ["MatMul"])
    keep.write_text("nothing\n")
    capsys.readouterr()
    assert refusal(capsys, line(source, keep_dtype=str(keep))).startswith(
        "E10016: Opname [nothing]"
    )


def test_output_type_changes_the_outputs(source: Path, ready) -> None:
    assert main(line(source, output_type="FP16")) == 0
    model = load(ready, source.parent / "out.om")
    assert ready.mdl.get_output_data_type(model.desc, 0) == 1
    assert ready.mdl.get_output_size_by_index(model.desc, 0) == 4 * WIDTH * 2


def test_static_aipp_feeds_images(tmp_path: Path, ready) -> None:
    source = image_onnx(tmp_path / "image.onnx")
    (tmp_path / "aipp.cfg").write_text(AIPP)
    arguments = line(source, input_shape="x:1,3,4,6", input_format="NCHW",
                     insert_op_conf=str(tmp_path / "aipp.cfg"))  # fmt: skip
    assert main(arguments) == 0
    model = load(ready, tmp_path / "out.om")
    assert ready.mdl.get_input_dims(model.desc, 0)[0]["dims"] == [1, 4, 6, 3]
    assert ready.mdl.get_input_data_type(model.desc, 0) == 4
    assert ready.mdl.get_input_size_by_index(model.desc, 0) == 4 * 6 * 3
    assert ready.mdl.get_aipp_type(model.id, 0)[0] == 1
    image = np.random.default_rng(0).integers(0, 255, (1, 4, 6, 3)).astype(np.uint8)
    upload(ready, model.inputs.pointers[0], image)
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (1, 3, 4, 6), np.float32)
    channels = image[..., ::-1].astype(np.float32)
    wanted = 2 * (channels - [10, 20, 30]) * [0.5, 0.25, 0.125]
    assert np.abs(seen - wanted.transpose(0, 3, 1, 2)).max() < 0.1


def test_static_aipp_converts_yuv(tmp_path: Path, ready) -> None:
    source = image_onnx(tmp_path / "image.onnx")
    (tmp_path / "aipp.cfg").write_text(
        "aipp_op { aipp_mode: static input_format: YUV420SP_U8 csc_switch: true "
        "matrix_r0c0: 256 matrix_r0c1: 0 matrix_r0c2: 359 matrix_r1c0: 256 matrix_r1c1: -88 "
        "matrix_r1c2: -183 matrix_r2c0: 256 matrix_r2c1: 454 matrix_r2c2: 0 "
        "input_bias_0: 0 input_bias_1: 128 input_bias_2: 128 }"
    )
    arguments = line(source, input_shape="x:1,3,4,6", input_format="NCHW",
                     insert_op_conf=str(tmp_path / "aipp.cfg"))  # fmt: skip
    assert main(arguments) == 0
    model = load(ready, tmp_path / "out.om")
    assert ready.mdl.get_input_dims(model.desc, 0)[0]["dims"] == [1, 4, 6, 3]
    assert ready.mdl.get_input_dims_v2(model.desc, 0)[0]["dims"] == [1, 6, 6, 1]
    grey = np.full((6, 6), 128, np.uint8)
    grey[:4] = np.arange(24).reshape(4, 6) * 10
    upload(ready, model.inputs.pointers[0], grey)
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (1, 3, 4, 6), np.float32)
    assert np.abs(seen - 2 * grey[:4].astype(np.float32)).max() < 1


@pytest.mark.parametrize(
    "text", ["nothing", "aipp_op { aipp_mode: dynamic }", "aipp_op { aipp_mode: static }",
             "aipp_op { aipp_mode: static input_format: RGB888_U8 mean_chn_0: much }"],
)  # fmt: skip
def test_a_bad_aipp_file_is_e10052(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    source = image_onnx(tmp_path / "image.onnx")
    (tmp_path / "aipp.cfg").write_text(text)
    arguments = line(source, input_shape="x:1,3,4,6", input_format="NCHW",
                     insert_op_conf=str(tmp_path / "aipp.cfg"))  # fmt: skip
    assert refusal(capsys, arguments).startswith("E10052: ")


def test_weights_beyond_fp16_are_clamped_on_chips_that_saturate(tmp_path: Path, ready) -> None:
    value = helper.make_tensor_value_info
    mask = np.full(WIDTH * 8, -np.inf, np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "mask"], ["y"], name="add")], "mask",
        [value("x", TensorProto.FLOAT, [mask.size])], [value("y", TensorProto.FLOAT, [mask.size])],
        [numpy_helper.from_array(mask, "mask")],
    )  # fmt: skip
    save(graph, tmp_path / "mask.onnx")
    assert main(line(tmp_path / "mask.onnx", input_shape=None)) == 0
    model = load(ready, tmp_path / "out.om")
    upload(ready, model.inputs.pointers[0], np.zeros(mask.size, np.float32))
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], mask.shape, np.float32)
    assert (seen == -65504).all()
