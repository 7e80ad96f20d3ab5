"""A bundle is whole or it is not there: interrupted, full, read-only, changed and wrong inputs."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
from contextlib import redirect_stdout
from pathlib import Path

import onnx
import pytest

from ascend.build import bundle as bundles
from ascend.build.atc import AtcError, AtcNotFound, OmInformation
from ascend.build.bundle import commands, compile_bundle, plan_contract
from ascend.build.digests import file_sha256
from ascend.build.export import export_model, graph_sha256, read_export
from ascend.build.stage import locked_stage, stage_of
from ascend.errors import ModelError
from atc_configs.contract import ContractError
from atc_configs.manifest import ManifestError, read_manifest
from atc_configs.soc import load_soc
from tests.pyacl_emulator.atc_main import main as stand_in

P3 = load_soc("Ascend310P3")
SMALL = {"det": [[32, 64], [64, 32]], "rec": [[1, 64], [2, 64]], "cls": [[1], [2]]}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of PP-OCR whose graphs are a few nodes with the contract's inputs and outputs."""
    folder = tmp_path_factory.mktemp("export") / "ppocr"
    export_model("ppocr", folder, gears=SMALL)
    for graph, nodes in _few_nodes().items():
        _rewrite(folder, graph, lambda model, nodes=nodes: _replace(model, nodes))
    return folder


@pytest.fixture
def quick(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in inside this process: what is tested lies on our side of the border."""

    def run(program: Path, arguments: list[str], folder: Path, say) -> None:
        lines = io.StringIO()
        with redirect_stdout(lines):
            status = stand_in(arguments)
        if status:
            raise bundles.atc.explain(lines.getvalue().splitlines(), status)

    def information(program: Path, om: Path) -> OmInformation:
        return OmInformation("8.1.RC1", None, None, None, None)

    monkeypatch.setattr(bundles.atc, "run_atc", run)
    monkeypatch.setattr(bundles.atc, "om_information", information)


@pytest.fixture
def changed(export: Path, tmp_path: Path) -> Path:
    """A copy of the export to spoil."""
    return Path(shutil.copytree(export, tmp_path / "changed"))


def _few_nodes() -> dict[str, list[onnx.NodeProto]]:
    node = onnx.helper.make_node
    pooled = node("MaxPool", ["image"], ["a"], "pool", kernel_shape=[48, 8], strides=[48, 8])
    best = node("ReduceMax", ["a"], ["scores"], "scores", axes=[1, 2], keepdims=0)
    return {
        "det": [node("ReduceMean", ["image"], ["map"], "mean", axes=[1], keepdims=1)],
        "rec": [pooled, best, node("Cast", ["scores"], ["ids"], "ids", to=onnx.TensorProto.INT32)],
        "cls": [
            node("ReduceMean", ["image"], ["a"], "mean", axes=[2, 3], keepdims=0),
            node("Split", ["a"], ["probs", "rest"], "split", axis=1, split=[2, 1]),
        ],
    }


def _replace(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)


def _rewrite(folder: Path, graph: str, change) -> None:
    """Changes a graph and makes the report vouch for it, as a bad exporter would."""
    path = folder / f"{graph}.onnx"
    model = onnx.load(str(path))
    change(model)
    onnx.save(model, str(path))
    report = json.loads((folder / "export.json").read_text("utf-8"))
    report["graphs"][graph]["sha256"] = graph_sha256(path)
    (folder / "export.json").write_text(json.dumps(report), "utf-8")


def test_a_bundle_says_what_it_is_made_of(export, tmp_path, compiler):
    out = tmp_path / "bundle"
    manifest = compile_bundle(export, P3, out)
    assert read_manifest(out) == manifest
    assert (manifest.family, manifest.soc, manifest.atc) == ("ppocr", "Ascend310P3", "8.1.RC1")
    assert manifest.parity_passed is None and "Apache-2.0" in (manifest.licence or "")
    assert manifest.contract().digest == manifest.digest
    for name, file in manifest.graphs.items():
        assert file_sha256(out / file.file) == file.sha256
        assert (out / file.file).stat().st_size == file.size
        assert file.onnx_sha256 == graph_sha256(export / f"{name}.onnx")
        assert file.command[0] == "atc" and "--soc_version=Ascend310P3" in file.command
        assert file.parity["onnx_cosine"] > 0.9999
    held = {graph.file for graph in manifest.graphs.values()} | set(manifest.files.values())
    assert {p.name for p in out.iterdir()} == held | {"manifest.json"}
    assert not stage_of(out).exists()


def test_dry_run_prints_the_commands_and_needs_no_compiler(export, tmp_path):
    printed = commands(export, P3, tmp_path / "bundle")
    assert len(printed) == 3 and all(text.startswith("atc ") for text in printed)
    assert "'--dynamic_image_size=32,64;64,32'" in printed[0]
    assert not list(tmp_path.iterdir())


def test_a_killed_run_leaves_nothing_that_loads_and_is_resumed(
    export, tmp_path, quick, monkeypatch
):
    out = tmp_path / "bundle"
    calls: list[str] = []
    real = bundles.atc.run_atc

    def killed_at_the_second(program, arguments, folder, say):
        calls.append(next(a for a in arguments if a.startswith("--output")))
        if len(calls) == 2:
            (folder / "rec.om").write_bytes(b"half a fi")
            raise KeyboardInterrupt
        real(program, arguments, folder, say)

    monkeypatch.setattr(bundles.atc, "run_atc", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        compile_bundle(export, P3, out)
    assert not out.exists()
    with pytest.raises(ManifestError, match="not finished"):
        read_manifest(stage_of(out))
    said: list[str] = []
    compile_bundle(export, P3, out, say=said.append)
    assert [Path(call).name for call in calls] == ["det", "rec", "rec", "cls"]
    assert "det: already compiled" in said
    assert read_manifest(out).graphs.keys() == {"det", "rec", "cls"}


def test_what_is_not_what_it_was_is_compiled_again(export, tmp_path, quick, monkeypatch):
    out = tmp_path / "bundle"
    monkeypatch.setattr(bundles, "publish", _stop)
    with pytest.raises(KeyboardInterrupt):
        compile_bundle(export, P3, out)
    (stage_of(out) / "cls.om").write_bytes(b"damaged")
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        compile_bundle(export, P3, out, say=said.append)
    assert "det: already compiled" in said and "cls: already compiled" not in said
    said.clear()
    with pytest.raises(KeyboardInterrupt):
        compile_bundle(export, load_soc("Ascend910B4"), out, say=said.append)
    assert not [line for line in said if "already" in line]


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_new_bundle_replaces_the_old_one_at_once(export, tmp_path, quick):
    out = tmp_path / "bundle"
    compile_bundle(export, P3, out)
    (out / "stray").write_text("from before")
    compile_bundle(export, load_soc("Ascend310B1"), out)
    assert read_manifest(out).soc == "Ascend310B1"
    assert [p.name for p in tmp_path.iterdir()] == ["bundle"]
    assert not (out / "stray").exists()


def test_two_at_once_do_not_mix(export, tmp_path, compiler):
    out = tmp_path / "bundle"
    with locked_stage(out), pytest.raises(ModelError, match="another process is compiling"):
        compile_bundle(export, P3, out)


def test_an_operator_that_atc_would_refuse_is_told_before_it_is_called(changed, tmp_path):
    def spoil(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type = "MadeUp"

    _rewrite(changed, "cls", spoil)
    with pytest.raises(ModelError, match=r"would refuse 1 nodes on Ascend310P3.*E16002.*MadeUp"):
        compile_bundle(changed, P3, tmp_path / "bundle")


def test_forced_the_compiler_itself_refuses(changed, tmp_path, compiler):
    def spoil(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type = "MadeUp"

    _rewrite(changed, "det", spoil)
    with pytest.raises(AtcError) as caught:
        compile_bundle(changed, P3, tmp_path / "bundle", force=True)
    assert caught.value.code == "E16002"
    assert not (tmp_path / "bundle").exists()


def test_a_shape_computed_at_run_time_is_told(changed, tmp_path):
    def spoil(model: onnx.ModelProto) -> None:
        helper = onnx.helper
        output = model.graph.output[0].name
        last = next(n for n in model.graph.node if output in n.output)
        last.output[0] = "before"
        model.graph.node.extend(
            [
                helper.make_node("Cast", ["before"], ["size"], "cast", to=onnx.TensorProto.INT64),
                helper.make_node("Reshape", ["before", "size"], [output], "reshape"),
            ]
        )

    _rewrite(changed, "cls", spoil)
    with pytest.raises(ModelError, match=r"dynamic.*Reshape.*computed at run time"):
        compile_bundle(changed, P3, tmp_path / "bundle")


def test_a_graph_that_was_changed_after_the_gate_is_refused(changed, tmp_path):
    with (changed / "det.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ModelError, match="not the file that passed the parity gate"):
        compile_bundle(changed, P3, tmp_path / "bundle")


def test_a_missing_graph_is_named(changed, tmp_path):
    (changed / "rec.onnx").unlink()
    with pytest.raises(ModelError, match=r"rec.onnx is missing; export"):
        compile_bundle(changed, P3, tmp_path / "bundle")


def test_a_folder_that_is_no_export(tmp_path):
    with pytest.raises(ModelError, match="run hyocr export"):
        compile_bundle(tmp_path, P3, tmp_path / "bundle")


def test_without_a_compiler_nothing_is_written(export, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    with pytest.raises(AtcNotFound):
        compile_bundle(export, P3, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def test_too_little_room_is_told_before_work_begins(export, tmp_path, compiler, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    with pytest.raises(ModelError, match="1 MiB are free, the bundle needs about"):
        compile_bundle(export, P3, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_leaves_no_bundle(export, tmp_path, quick, monkeypatch):
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    out = tmp_path / "bundle"
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            compile_bundle(export, P3, out)
    assert not out.exists()
    said: list[str] = []
    compile_bundle(export, P3, out, say=said.append)
    assert said.count("det: already compiled") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into closed folders, too")
def test_a_folder_that_cannot_be_written_is_an_error_with_its_path(export, tmp_path, compiler):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PermissionError, match="closed"):
        compile_bundle(export, P3, closed / "bundle")


def test_the_place_of_the_bundle_may_not_be_a_file(export, tmp_path, compiler):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="file"):
        compile_bundle(export, P3, tmp_path / "file" / "bundle")


def test_gears_beyond_the_chips_budget_are_left_out(hunyuan_export):
    exported = read_export(hunyuan_export)
    small = plan_contract(exported, load_soc("Ascend310B1"))
    assert [gear["B"] for gear in small.graph("llm").gears] == [1, 1, 1, 1]
    assert 2 in [gear["B"] for gear in plan_contract(exported, P3).graph("llm").gears]


def test_gears_of_the_user_come_before_the_budget(hunyuan_export):
    exported = read_export(hunyuan_export)
    gears = {"vision": [[16], [32]]}
    planned = plan_contract(exported, load_soc("Ascend310B4"), gears)
    assert [gear["N"] for gear in planned.graph("vision").gears] == [16, 32]


def test_too_few_gears_for_the_chip_are_told(hunyuan_export):
    exported = read_export(hunyuan_export)
    tight = bundles.Soc(**{n: getattr(P3, n) for n in P3.__slots__} | {
        "budgets": {"patches": 1200, "cache_rows": 8192, "slots": 4}})  # fmt: skip
    with pytest.raises(ContractError, match=r"vision: 1 gears fit.*--gears"):
        plan_contract(exported, tight)
