"""The compiler at its true border: a process, its options, its texts and its exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from ascend.build import atc
from atc_configs.contract import GraphSpec, TensorSpec, load_contract
from atc_configs.soc import load_soc

P3 = load_soc("Ascend310P3")
SPEC = GraphSpec(
    "g",
    (TensorSpec("x", "float32", ("B", 4)),),
    (TensorSpec("y", "float32", ("B", 4)),),
    ("B",),
    ({"B": 1}, {"B": 2}),
    "dynamic_dims",
    {"precision_mode_v2": "fp16"},
)


def _onnx(path: Path, op: str = "Relu") -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], f"the/{op}")],
        "g",
        [value("x", TensorProto.FLOAT, ["B", 4])],
        [value("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, str(path))
    return path


def _program(folder: Path, text: str) -> Path:
    """An `atc` that does what `text` says."""
    path = folder / "atc"
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("family", "graph", "options"),
    [
        ("hunyuanocr", "vision", {"--input_format=ND", "--precision_mode_v2=origin"}),
        ("ppocr", "det", {"--input_format=NCHW", "--input_shape=image:1,3,-1,-1"}),
        ("ppocr", "cls", {"--input_format=NCHW", "--dynamic_batch_size=1,4,8"}),
        ("ppocr", "rec", {"--input_format=ND", "--input_shape=image:-1,3,48,-1"}),
    ],
)
def test_the_command_line_follows_the_contract(family, graph, options):
    spec = load_contract(family).graph(graph)
    arguments = atc.atc_arguments(spec, Path("/m.onnx"), Path("/out/m"), P3)
    assert {
        "--model=/m.onnx", "--framework=5", "--output=/out/m", "--soc_version=Ascend310P3",
        f"--{spec.gear_kind}={spec.atc_dynamic_dims()}",
    } | options <= set(arguments)  # fmt: skip


def test_a_static_graph_gets_no_gears():
    spec = GraphSpec("g", (TensorSpec("x", "float32", (1, 4)),), (), (), ({},), "static", {})
    arguments = atc.atc_arguments(spec, Path("/m.onnx"), Path("/out/m"), P3, Path("/keep"))
    assert not [argument for argument in arguments if "dynamic" in argument]
    assert "--keep_dtype=/keep" in arguments


def test_image_input_on_the_device_is_on_only_where_the_contract_says_so():
    text = "aipp_op { aipp_mode: static }"
    spec = GraphSpec(
        "g", SPEC.inputs, (), ("B",), SPEC.gears, "dynamic_batch_size", {atc.AIPP: text}
    )
    arguments = atc.atc_arguments(spec, Path("/m"), Path("/o"), P3, aipp=Path("/o.aipp"))
    assert "--insert_op_conf=/o.aipp" in arguments and not [a for a in arguments if text in a]
    for family in ("hunyuanocr", "ppocr"):
        for graph in load_contract(family).graphs.values():
            assert atc.AIPP not in graph.atc


def test_the_printed_command_survives_a_shell(tmp_path):
    """The ";" between gears would end the command."""
    shown = tmp_path / "shown"
    program = _program(tmp_path, f'for word in "$@"; do echo "$word"; done > {shown}')
    arguments = atc.atc_arguments(SPEC, Path("/m x.onnx"), Path("/out"), P3)
    assert os.system(atc.shell_text(program, arguments)) == 0
    assert shown.read_text().splitlines() == arguments


def test_success_hands_on_every_line(compiler, tmp_path):
    lines: list[str] = []
    arguments = atc.atc_arguments(SPEC, _onnx(tmp_path / "m.onnx"), tmp_path / "m", P3)
    atc.run_atc(compiler, arguments, tmp_path, lines.append)
    assert (tmp_path / "m.om").is_file()
    assert lines[0] == "atc: ATC start working now, please wait for a moment."
    assert lines[-1] == "atc: ATC run success, welcome to the next use."
    information = atc.om_information(compiler, tmp_path / "m.om")
    assert information.soc_version == "Ascend310P3" and information.atc_version
    assert information.command and "--framework=5" in information.command


@pytest.mark.parametrize(
    ("op", "soc", "code", "said"),
    [
        ("MadeUp", "Ascend310P3", "E16002", r"No ONNX parser.*MadeUp.*hyocr lint"),
        ("RMSNormalization", "Ascend310P3", "E16002", "hyocr lint"),
    ],
)
def test_a_refusal_becomes_a_sentence_with_a_remedy(op, soc, code, said, compiler, tmp_path):
    source = _onnx(tmp_path / "m.onnx", op)
    arguments = atc.atc_arguments(SPEC, source, tmp_path / "m", load_soc(soc))
    with pytest.raises(atc.AtcError, match=said) as caught:
        atc.run_atc(compiler, arguments, tmp_path, lambda line: None)
    assert caught.value.code == code
    assert not (tmp_path / "m.om").exists()


def test_a_model_that_is_missing(compiler, tmp_path):
    arguments = atc.atc_arguments(SPEC, tmp_path / "none.onnx", tmp_path / "m", P3)
    with pytest.raises(atc.AtcError, match=r"must lie beside the .onnx") as caught:
        atc.run_atc(compiler, arguments, tmp_path, lambda line: None)
    assert caught.value.code == "E10041"


def test_an_option_that_this_atc_does_not_know(compiler, tmp_path):
    arguments = atc.atc_arguments(SPEC, _onnx(tmp_path / "m.onnx"), tmp_path / "m", P3)
    with pytest.raises(atc.AtcError, match=r"does not know an option.*--made_up"):
        atc.run_atc(compiler, [*arguments, "--made_up=1"], tmp_path, lambda line: None)


@pytest.mark.parametrize(
    ("lines", "status", "said"),
    [
        (["EZ3003: No supported Ops kernel and engine are found for [e], optype [Einsum]."], 255,
         r"EZ3003 \(Unsupported Operator\): No supported.*hyocr lint.*vendor says"),
        (["E10001: Value [Ascend310P4] for parameter [soc_version] is invalid. Reason: x"], 255,
         r"did you mean Ascend310P"),
        (["E99999: something new"], 255, r"atc E99999: something new"),
        (["half a li"], -9, r"by signal 9.*half a li.*too little memory"),
        ([], 1, r"with status 1.*printed nothing.*plog"),
    ],
)  # fmt: skip
def test_every_end_has_an_explanation(lines, status, said):
    with pytest.raises(atc.AtcError, match=said):
        raise atc.explain(lines, status)


def test_exit_0_without_the_success_line_is_no_success(tmp_path):
    program = _program(tmp_path, "echo 'ATC start working now, please wait for a moment.'")
    with pytest.raises(atc.AtcError, match="without an error code"):
        atc.run_atc(program, [], tmp_path, lambda line: None)


def test_an_interrupted_run_ends_the_compiler(tmp_path):
    marker = tmp_path / "pid"
    program = _program(tmp_path, f"echo $$ > {marker}; echo begun; exec sleep 600")

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atc.run_atc(program, [], tmp_path, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


@pytest.mark.parametrize("place", ["bin", "compiler/bin"])
def test_the_toolkit_of_the_environment_comes_before_path(place, tmp_path):
    (tmp_path / place).mkdir(parents=True)
    program = _program(tmp_path / place, "true")
    other = tmp_path / "other"
    other.mkdir()
    _program(other, "true")
    environ = {"ASCEND_TOOLKIT_HOME": str(tmp_path), "PATH": str(other)}
    assert atc.find_atc(environ) == program
    assert atc.find_atc({"PATH": str(other)}) == other / "atc"


def test_without_a_compiler_the_error_says_where_it_looked():
    with pytest.raises(atc.AtcNotFound, match=r"ASCEND_TOOLKIT_HOME is not set.*set_env.sh"):
        atc.find_atc({"PATH": "/nowhere"})
    with pytest.raises(atc.AtcNotFound, match="/opt/cann/bin and PATH"):
        atc.find_atc({"PATH": "/nowhere", "ASCEND_TOOLKIT_HOME": "/opt/cann"})


@pytest.mark.parametrize("text", ["Version=8.1.RC1", "version = [8.1.RC1]"])
def test_the_release_of_the_toolkit_is_read(text, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "version.info").write_text(f"x=1\n{text}\n")
    assert atc.cann_version(_program(tmp_path / "bin", "true")) == "8.1.RC1"
    (tmp_path / "version.info").unlink()
    assert atc.cann_version(tmp_path / "bin" / "atc") is None


def test_information_of_a_model_is_read():
    text = (
        "Original Atc command line: /opt/atc.bin --model=m.onnx --framework=5\n"
        "system   info: atc_version[8.1.RC1], soc_version[Ascend310P3], framework_type[5].\n"
        "resource info: memory_size[1024 B], weight_size[2048], stream_num[1], event_num[0].\n"
    )
    assert atc.parse_information(text) == atc.OmInformation(
        "8.1.RC1", "Ascend310P3", 1024, 2048, "/opt/atc.bin --model=m.onnx --framework=5"
    )
