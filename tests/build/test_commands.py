"""The builder's commands: arguments, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from ascend.build.progress import parse_gears
from ascend.cli import main
from ascend.errors import UsageError


@pytest.fixture
def bad_model(tmp_path: Path) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MadeUp", ["x"], ["y"], "the/node")],
        "g",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, str(tmp_path / "bad.onnx"))
    return tmp_path / "bad.onnx"


def test_lint_shows_findings_and_exits_1(bad_model, capsys):
    assert main(["lint", str(bad_model), "--soc", "Ascend310P3"]) == 1
    shown = capsys.readouterr().out
    assert "bad.onnx: error: E16002: MadeUp the/node" in shown
    assert "bad.onnx: 1 findings for Ascend310P3, CANN 8.1.RC1" in shown


def test_lint_as_json(bad_model, capsys):
    assert main(["lint", str(bad_model), "--soc", "310P3", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (findings,) = report["findings"].values()
    assert (report["soc"], findings[0]["code"]) == ("Ascend310P3", "E16002")


def test_lint_of_an_export_takes_each_graphs_own_precision(hunyuan_export, capsys):
    assert main(["lint", str(hunyuan_export), "--soc", "Ascend310B1"]) == 0
    assert capsys.readouterr().out.count(": clean for Ascend310B1") == 2


def test_compile_dry_run_prints_a_command_for_each_graph(hunyuan_export, tmp_path, capsys):
    arguments = ["compile", str(hunyuan_export), "--soc", "Ascend310P3", "--dry-run"]
    assert main([*arguments, "-o", str(tmp_path / "b"), "--gears", "vision=16;32"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("atc \\\n") == 2 and "'--dynamic_dims=16,16,16;32,32,32'" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["compile", "DIR", "--soc", "Ascend310P4"], 4, "did you mean Ascend310P"),
        (["compile", "DIR", "--soc", "Ascend910B"], 4, "the old 910"),
        (["compile", "DIR", "--soc", "310P3"], 4, "run hyocr export"),
        (["compile", "DIR", "--soc", "310P3", "--gears", "llm"], 2, "write GRAPH=1,2;3,4"),
        (["lint", "DIR/none.onnx", "--soc", "310P3"], 4, "none.onnx"),
        (["export", "DIR/none", "-o", "DIR/out"], 4, "does not exist"),
        (["export", "ppocr", "-o", "DIR/out", "--format", "torchscript"], 2, "no PyTorch form"),
        (["export", "DIR", "-o", "DIR/out", "--format", "caffe"], 2, "invalid choice"),
        (["parity", "DIR"], 4, "no manifest.json"),
        (["inspect", "DIR"], 4, "has no config.json"),
    ],
)
def test_a_wrong_call_is_one_line_and_a_code(arguments, code, said, tmp_path, capsys):
    placed = [argument.replace("DIR", str(tmp_path)) for argument in arguments]
    assert main(placed) == code
    streams = capsys.readouterr()
    assert said in streams.err and streams.out == ""


@pytest.mark.parametrize("text", ["llm", "llm=1,x", "llm=1;", "=", "llm=1,2=3"])
def test_gears_that_cannot_be_read(text):
    with pytest.raises(UsageError, match="write GRAPH=1,2;3,4"):
        parse_gears([text])


def test_gears_are_read():
    assert parse_gears(["llm=1,2;3,4", "vision=5;6"]) == {
        "llm": [[1, 2], [3, 4]], "vision": [[5], [6]],
    }  # fmt: skip
    assert parse_gears(None) == {}


def test_export_says_where_and_how_near(tmp_path, capsys):
    gears = ["det=32,64;64,32", "rec=1,64;2,64", "cls=1;2"]
    arguments = ["export", "ppocr", "-o", str(tmp_path / "out")]
    for option in gears:
        arguments += ["--gears", option]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["graphs"].keys() == {"det", "rec", "cls"}
    assert all(graph["cosine"] > 0.99999 for graph in report["graphs"].values())
