"""The stand-in for `atc`: each rule of the command line, its texts and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import pyacl_emulator
from tests.emulator.conftest import WIDTH, image_onnx, linear_onnx, save
from tests.emulator.program import download, load, upload
from tests.pyacl_emulator import om
from tests.pyacl_emulator.atc_main import main

ATC = Path(pyacl_emulator.__file__).parent / "atc"
BEGIN = "ATC start working now, please wait for a moment.\n...\n"
FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information\n"
SUCCESS = "ATC run success, welcome to the next use.\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return linear_onnx(tmp_path / "linear.onnx")


def line(source: Path, **changes: str | None) -> list[str]:
    """A command line that succeeds, with options added, changed or (None) left out."""
    options = {
        "model": str(source), "framework": "5", "output": str(source.parent / "out"),
        "soc_version": "Ascend310P3", "input_format": "ND", "input_shape": f"x:4,{WIDTH}",
    }  # fmt: skip
    options.update(changes)  # type: ignore[arg-type]
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HYOCR_EMULATOR_PYTHON": sys.executable}
    return subprocess.run(
        [str(ATC), *arguments], capture_output=True, text=True, env=environment, timeout=120,
        check=False,
    )  # fmt: skip


def refusal(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The error block of a command line that must fail."""
    assert main(arguments) == 255
    printed = capsys.readouterr().out
    assert FAILED in printed
    return printed.split(FAILED)[1]


def test_success_as_a_process(source: Path) -> None:
    done = run(line(source))
    assert (done.returncode, done.stdout) == (0, BEGIN + SUCCESS)
    assert om.read(str(source.parent / "out.om")).description["kind"] == "static"


def test_failure_as_a_process(source: Path) -> None:
    done = run(line(source, soc_version="Ascend310P9"))
    assert done.returncode == 255
    assert done.stdout.startswith(BEGIN + FAILED + "E10001: Value [Ascend310P9] for parameter")
    assert not (source.parent / "out.om").exists()


def test_an_unknown_option_is_refused(source: Path) -> None:
    done = run([*line(source), "--fast=1"])
    assert done.returncode == 255
    assert "unrecognized option '--fast'" in done.stderr


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "usage: atc" in capsys.readouterr().out


def test_an_option_may_be_followed_by_its_value(source: Path) -> None:
    arguments = [part for option in line(source) for part in option.split("=", 1)]
    assert main(arguments) == 0


DIMS = {"input_shape": f"x:-1,{WIDTH}", "dynamic_dims": "1;4"}
MANY = ";".join(str(number) for number in range(1, 102))


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("E10004", {"model": None}),
        ("E10004", {"output": None}),
        ("E10004", {"soc_version": None}),
        ("E10007", {"framework": None}),
        ("E10007", {"framework": "4"}),
        ("E10001", {"soc_version": "310P3"}),
        ("E10022", {"output": "/nowhere/"}),
        ("E10041", {"model": "/nowhere/model.onnx"}),
        ("E10009", {**DIMS, "dynamic_batch_size": "1,2"}),
        ("E10035", {**DIMS, "dynamic_dims": "1"}),
        ("E10036", {**DIMS, "dynamic_dims": MANY}),
        ("E10037", {**DIMS, "dynamic_dims": "1,2;1"}),
        ("E10038", {**DIMS, "dynamic_dims": "0;1"}),
        ("E10039", {**DIMS, "dynamic_dims": "4;4"}),
        ("E10040", {"dynamic_dims": "1;4"}),
        ("E10040", {"input_shape": f"x:1~4,{WIDTH}", "dynamic_dims": "1;4"}),
        ("E10045", {"input_shape": "x:-1,-1", "dynamic_dims": "1;4"}),
        ("E10003", {**DIMS, "dynamic_dims": "1,2;4,5"}),
        ("E10003", {**DIMS, "input_format": "NCHW"}),
        ("E10014", {**DIMS, "dynamic_dims": "1;x"}),
        ("E10031", {"dynamic_batch_size": "1,2"}),
        ("E10018", {"input_shape": "x:-1,-1", "dynamic_batch_size": "1,2"}),
        ("E10019", {"input_shape": "x:-1,3", "dynamic_image_size": "1,2;3,4",
                    "input_format": "NCHW"}),
        ("E10020", {"input_shape": "x:-1,3", "dynamic_image_size": "1;3", "input_format": "NCHW"}),
        ("E10003", {"input_shape": "x:-1,3", "dynamic_image_size": "1,2;3,4"}),
        ("E10002", {"input_shape": "x"}),
        ("E10002", {"input_shape": "x:a,b"}),
        ("E10011", {"input_shape": "x:0,64"}),
        ("E10016", {"input_shape": "y:4,64"}),
        ("E10001", {"input_shape": "x:4,65"}),
        ("E10001", {"input_shape": "x:4,64,1"}),
        ("E10001", {"input_format": "NHWC"}),
        ("E10001", {"precision_mode_v2": "fp32"}),
        ("E10001", {"precision_mode_v2": "mixed_bfloat16"}),
        ("E10047", {"precision_mode_v2": "fp16", "precision_mode": "force_fp16"}),
        ("E10010", {"log": "loud"}),
        ("E10410", {"keep_dtype": "/nowhere/keep.txt"}),
        ("E10001", {"output_type": "FP64"}),
        ("E10001", {"buffer_optimize": "all"}),
        ("E10055", {"input_shape": f"x:-1,{WIDTH}", "soc_version": "Ascend310B4"}),
    ],
)  # fmt: skip
def test_each_rule_has_its_code(
    source: Path, capsys: pytest.CaptureFixture[str], code: str, changes: dict[str, str | None]
) -> None:
    text = refusal(capsys, line(source, **changes))
    assert text.startswith(f"{code}: ")
    assert list(source.parent.glob("*.om*")) == []


def two_inputs(path: Path) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"], name="sum")], "two",
        [value("a", TensorProto.FLOAT, ["n", 1]), value("b", TensorProto.FLOAT, ["m", 1])],
        [value("c", TensorProto.FLOAT, None)],
    )  # fmt: skip
    save(graph, path)
    return path


def test_more_holes_than_numbers_is_e10046(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = line(two_inputs(tmp_path / "two.onnx"), input_shape="a:-1,1;b:-1,1",
                     dynamic_dims="1;2")  # fmt: skip
    assert refusal(capsys, arguments).startswith("E10046: The total number of -1 axes")


def test_aipp_excludes_dynamic_dims(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source.parent / "aipp.cfg").write_text("aipp_op { aipp_mode: static }")
    text = refusal(capsys, line(source, **DIMS, insert_op_conf=str(source.parent / "aipp.cfg")))
    assert text.startswith("E10047: [--insert_op_conf] and [--dynamic_dims]")


def test_an_unwritable_folder_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source.parent / "file").write_text("")
    assert main(line(source, output=str(source.parent / "file" / "out"))) == 255
    assert FAILED in capsys.readouterr().out


def test_a_broken_model_is_e10041(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_bytes(b"not a model at all")
    assert refusal(capsys, line(source)).startswith("E10041: Failed to load the model from")


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


def test_mode_6_prints_what_is_in_a_model(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line(source)) == 0
    capsys.readouterr()
    assert main(["--mode=6", f"--om={source.parent / 'out.om'}"]) == 0
    printed = capsys.readouterr().out
    assert "soc_version[Ascend310P3]" in printed
    assert f"weight_size[{WIDTH * WIDTH * 2} B]" in printed
    assert f"--input_shape=x:4,{WIDTH}" in printed
    bad = refusal(capsys, ["--mode=6", f"--om={source}"])
    assert bad.startswith("E10001: Value [")


def test_output_type_changes_the_outputs(source: Path, ready) -> None:
    assert main(line(source, output_type="FP16")) == 0
    model = load(ready, source.parent / "out.om")
    assert ready.mdl.get_output_data_type(model.desc, 0) == 1
    assert ready.mdl.get_output_size_by_index(model.desc, 0) == 4 * WIDTH * 2


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


def test_onnx_is_only_read(source: Path) -> None:
    before = onnx.load(source).SerializeToString()
    assert main(line(source, **DIMS)) == 0
    assert onnx.load(source).SerializeToString() == before
