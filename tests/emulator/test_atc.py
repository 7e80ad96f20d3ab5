"""The stand-in for `atc`: each rule of the command line, its texts and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests import pyacl_emulator
from tests.emulator.command import FAILED, line, refusal
from tests.emulator.conftest import WIDTH, save
from tests.pyacl_emulator import om
from tests.pyacl_emulator.atc_main import main

ATC = Path(pyacl_emulator.__file__).parent / "atc"
BEGIN = "ATC start working now, please wait for a moment.\n...\n"
SUCCESS = "ATC run success, welcome to the next use.\n"


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HYOCR_EMULATOR_PYTHON": sys.executable}
    return subprocess.run(
        [str(ATC), *arguments], capture_output=True, text=True, env=environment, timeout=120,
        check=False,
    )  # fmt: skip


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


def test_onnx_is_only_read(source: Path) -> None:
    before = onnx.load(source).SerializeToString()
    assert main(line(source, **DIMS)) == 0
    assert onnx.load(source).SerializeToString() == before
