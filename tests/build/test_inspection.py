"""What `hyocr inspect` says of each kind of file, and of broken ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ascend.build.bundle import compile_bundle
from ascend.build.inspection import inspect
from ascend.build.om_file import BAD_FILE, BAD_PATH, OmFileError, read_om
from ascend.cli import main
from ascend.errors import ModelError
from atc_configs.soc import load_soc
from tests.pyacl_emulator.om import pack_header, pack_table

COMMAND = (
    "/opt/cann/bin/atc.bin --model=m.onnx --framework=5 --output=m --soc_version=Ascend310P3"
    " --input_shape=x:-1,4;m:1,-1 --dynamic_dims=1,1;2,2 --precision_mode_v2=fp16"
)
# A protobuf message looks like this to a reader of text: keys and values between control bytes.
DEFINITION = (
    b"\x0a\x05model\x12\x0batc_version\x1a\x0a\x12\x088.1.RC1\x00"
    b"\x12\x0batc_cmdline\x1a\xff\x01" + COMMAND.encode() + b"\x00\x12\x0bsoc_version\x12"
    b"\x0bAscend310P3\x00"
)


def _om(path: Path, platform: str = "", tail: bytes = b"", **changes: int) -> Path:
    """A container with a definition, 64 bytes of weights and kernels."""
    parts = [(0, DEFINITION), (1, b"w" * 64), (3, b"kernel")]
    body = pack_table([(kind, len(data)) for kind, data in parts])
    body += b"".join(data for _, data in parts) + tail
    length = changes.get("length", len(body))
    path.write_bytes(pack_header("m", platform, length, dynamic=False) + body)
    return path


def test_a_container_is_read_without_a_toolkit(tmp_path):
    om = read_om(_om(tmp_path / "m.om"))
    (parts,) = om.models
    assert [(p.kind, p.size) for p in parts] == [
        ("model definition", len(DEFINITION)), ("weights", 64), ("AI Core kernels", 6),
    ]  # fmt: skip
    assert (om.soc_version, om.atc_version, om.command) == ("Ascend310P3", "8.1.RC1", COMMAND)
    assert not om.dynamic and not om.encrypted and om.model_type == "standard"


def test_the_old_small_table_is_read(tmp_path):
    header = bytearray(pack_header("m", "", 0, dynamic=True))
    payload = b"definition" + b"w" * 8
    table = struct.pack("<I", 2) + struct.pack("<IIIIII", 0, 0, 10, 1, 10, 8)
    struct.pack_into("<I", header, 76, len(table) + len(payload))
    (tmp_path / "m.om").write_bytes(bytes(header) + table + payload)
    om = read_om(tmp_path / "m.om")
    assert om.partition_bytes("weights") == 8 and om.dynamic
    assert (om.soc_version, om.command) == (None, None)


def test_what_the_command_says_is_shown(tmp_path):
    facts = inspect(_om(tmp_path / "m.om"))
    assert facts["gear_kind"] == "dynamic_dims" and facts["gears"] == ["1,1", "2,2"]
    assert facts["inputs"][0] == {"name": "x", "shape": ["-1", "4"]}
    assert facts["precision_mode"] == "fp16"
    assert facts["weight_bytes"] == 64


def _shorter(data: bytes) -> bytes:
    return data[:-10]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: b"", "ends inside its header"),
        (lambda data: data[:100], "ends inside its header"),
        (lambda data: b"ELF!" + data[4:], "magic number is not IMOD"),
        (lambda data: data[:4] + b"\0\0\0\0" + data[8:], "magic number is not IMOD"),
        (_shorter, "copy it again"),
        (lambda data: data + b"x", "copy it again"),
        (lambda data: data[:256] + b"\xff" * 4 + data[260:], "partition table is damaged"),
        (lambda data: data[:280] + b"\xff" * 4 + data[284:], "cut short"),
    ],
)
def test_a_bad_file_is_an_error_with_acls_code(spoil: Callable[[bytes], bytes], said, tmp_path):
    path = _om(tmp_path / "m.om")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(OmFileError, match=said) as caught:
        inspect(path)
    assert caught.value.code == BAD_FILE and str(BAD_FILE) in str(caught.value)


def test_bytes_behind_the_last_partition(tmp_path):
    with pytest.raises(OmFileError, match="4 bytes follow"):
        read_om(_om(tmp_path / "m.om", tail=b"more"))


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(OmFileError) as caught:
        read_om(tmp_path / "none.om")
    assert caught.value.code == BAD_PATH
    with pytest.raises(ModelError, match="no such file or folder"):
        inspect(tmp_path / "none.om")


def test_a_bundle_shows_chip_gears_memory_and_parity(hunyuan_export, tmp_path, compiler):
    compile_bundle(hunyuan_export, load_soc("Ascend310P3"), tmp_path / "bundle")
    facts = inspect(tmp_path / "bundle")
    assert (facts["kind"], facts["soc"], facts["family"]) == ("bundle", "Ascend310P3", "hunyuanocr")
    assert facts["this_device"] == "no NPU runtime here"
    llm = facts["graphs"]["llm"]
    assert llm["whole"] and llm["gears"][0] == {"B": 1, "Q": 1, "S": 1024, "R": 1}
    assert llm["work_bytes"] is not None and llm["weight_bytes"] > 100_000
    assert {"name": "cos", "dtype": "float32", "shape": ["B", "Q", 16],
            "largest_bytes": 512 * 16 * 4} in llm["inputs"]  # fmt: skip
    assert llm["parity"]["onnx_cosine"] > 0.999
    json.dumps(facts)


def test_the_chip_of_the_machine_is_compared(machine, tmp_path):
    for soc, said in (("Ascend310P3", "matches"), ("Ascend910B4", "does not match")):
        machine.reset(soc=soc)
        assert said in inspect(_om(tmp_path / "m.om"))["this_device"]


def test_an_unfinished_bundle_says_how_to_finish_it(tmp_path):
    (tmp_path / "b.partial").mkdir()
    with pytest.raises(ModelError, match="unfinished bundle; run the same hyocr compile"):
        inspect(tmp_path / "b.partial")


def test_an_onnx_file(ppocr_export):
    facts = inspect(ppocr_export / "rec.onnx")
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["B", 3, 48, "W"]}]
    assert facts["outputs"][0] == {"name": "ids", "dtype": "int32", "shape": ["B", "W/8"]}
    assert facts["opset"] == {"ai.onnx": 11} and 5e6 < facts["parameters"] < 6e6
    assert facts["operators"]["ArgMax"] == 1


def test_what_is_no_onnx_file(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"text")
    with pytest.raises(ModelError, match="not an ONNX file"):
        inspect(tmp_path / "m.onnx")


def test_a_checkpoint_and_an_export(tiny, hunyuan_export):
    facts = inspect(tiny)
    assert (facts["kind"], facts["release"], facts["missing_companions"]) == (
        "checkpoint", "1.5", [],
    )  # fmt: skip
    assert facts["text"]["layers"] == 2
    facts = inspect(hunyuan_export)
    assert facts["kind"] == "export" and facts["graphs"]["vision"]["parity"]["cosine"] > 0.999


def test_the_screen_is_short_and_json_is_whole(hunyuan_export, capsys):
    assert main(["inspect", str(hunyuan_export)]) == 0
    screen = capsys.readouterr().out
    assert len(screen.splitlines()) < 60 and max(map(len, screen.splitlines())) < 300
    assert main(["inspect", str(hunyuan_export), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(inspect(hunyuan_export)))


def test_a_bad_file_is_exit_code_4(tmp_path, capsys):
    (tmp_path / "m.om").write_bytes(b"nothing")
    assert main(["inspect", str(tmp_path / "m.om")]) == 4
    assert str(BAD_FILE) in capsys.readouterr().err
