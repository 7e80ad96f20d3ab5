"""What `hyocr export` writes, and what it refuses to leave behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from ascend.build import parity
from ascend.build.export import export_model, read_export
from ascend.build.host_files import open_host_tables
from ascend.errors import ModelError
from fallback.checkpoint import Checkpoint
from fallback.errors import CheckpointNotFoundError

REFUSED = {"Gather", "ScatterND", "Where", "If", "Loop", "Resize", "Shape", "NonZero", "Range"}
TEMPLATE = {"det": [[64, 96]], "rec": [[1, 64]], "cls": [[1]]}


def _model(folder: Path, graph: str) -> onnx.ModelProto:
    return onnx.load(str(folder / f"{graph}.onnx"), load_external_data=False)


@pytest.mark.parametrize("graph", ["vision", "llm"])
def test_names_and_shapes_are_the_contracts(graph, hunyuan_export):
    contract = read_export(hunyuan_export).contract
    spec = contract.graph(graph)
    values = _model(hunyuan_export, graph).graph
    for tensors, declared in ((spec.inputs, values.input), (spec.outputs, values.output)):
        shown = {
            v.name: tuple(d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim)
            for v in declared
        }
        assert shown == {t.name: t.shape for t in tensors}


@pytest.mark.parametrize("graph", ["vision", "llm"])
def test_no_operator_is_used_whose_shape_or_place_depends_on_values(graph, hunyuan_export):
    model = _model(hunyuan_export, graph)
    assert not {node.op_type for node in model.graph.node} & REFUSED
    assert [entry.version for entry in model.opset_import] == [18]


@pytest.mark.parametrize("graph", ["vision", "llm"])
def test_a_static_gear_leaves_no_shape_open(graph, hunyuan_export):
    """What ATC does for each gear: every intermediate shape must follow from the inputs'."""
    model = _model(hunyuan_export, graph)
    spec = read_export(hunyuan_export).contract.graph(graph)
    for value in model.graph.input:
        for dim, size in zip(
            value.type.tensor_type.shape.dim,
            spec.input_shapes(spec.gears[-1])[value.name],
            strict=True,
        ):
            dim.dim_value = size
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {v.name: v.type.tensor_type.shape for v in [*inferred.value_info, *inferred.output]}
    for node in model.graph.node:
        for name in node.output:
            assert all(d.HasField("dim_value") for d in shapes[name].dim), (node.name, name)


def test_norms_rotation_and_softmax_stay_in_float32(hunyuan_export):
    model = onnx.shape_inference.infer_shapes(_model(hunyuan_export, "llm"))
    kinds = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    wide = {"ReduceMean", "Sqrt", "Exp", "ReduceMax", "Reciprocal"}
    for node in model.graph.node:
        if node.op_type in wide:
            assert kinds[node.output[0]] == onnx.TensorProto.FLOAT, node.name
    products = [n for n in model.graph.node if n.op_type == "MatMul" and "proj" in n.name]
    assert products
    assert all(
        kinds[n.output[0]] == onnx.TensorProto.FLOAT16 for n in products if n.output[0] in kinds
    )


def test_every_node_names_the_line_of_the_model_that_made_it(hunyuan_export):
    for graph in ("vision", "llm"):
        for node in _model(hunyuan_export, graph).graph.node:
            notes = {entry.key: entry.value for entry in node.metadata_props}
            assert notes["hyocr.source"].startswith("fallback/hunyuanocr.py:"), node.name


def test_node_names_are_unique_and_say_the_module(hunyuan_export):
    names = [node.name for node in _model(hunyuan_export, "llm").graph.node]
    assert len(names) == len(set(names))
    assert "layers.1.self_attn/Exp" in names


def test_files_carry_no_path_of_the_machine(hunyuan_export, tiny):
    for path in hunyuan_export.iterdir():
        data = path.read_bytes()
        assert str(tiny.parent).encode() not in data, path.name
        assert str(Path(__file__).parents[2]).encode() not in data, path.name


def test_the_report_has_figures_for_every_gear(hunyuan_export):
    exported = read_export(hunyuan_export)
    for name, spec in exported.contract.graphs.items():
        rows = exported.graphs[name]["gears"]
        assert [row["gear"] for row in rows] == [dict(gear) for gear in spec.gears]
        assert all(row["cosine"] > 0.9999 for row in rows)


def test_host_tables_are_those_of_the_checkpoint(hunyuan_export, tiny):
    wanted, found = Checkpoint(tiny).tables(), open_host_tables(hunyuan_export)
    for name in ("position_table", "patch_bias", "begin", "newline", "end"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    np.testing.assert_array_equal(found.embed_rows([0, 7]), wanted.embed_rows([0, 7]))


def test_tables_whose_header_length_looks_like_a_pickle_are_read(hunyuan_export, tmp_path):
    """A header of 128 + 256·n bytes begins with a pickle's first byte."""
    copy = tmp_path / "export"
    shutil.copytree(hunyuan_export, copy)
    path = copy / "host_tables.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    padded = length + (128 - length) % 256
    header = data[8 : 8 + length] + b" " * (padded - length)
    path.write_bytes(padded.to_bytes(8, "little") + header + data[8 + length :])
    assert path.read_bytes()[:1] == b"\x80"
    open_host_tables(copy)


def test_a_graph_outside_its_bound_is_refused_and_removed(tmp_path, monkeypatch):
    monkeypatch.setitem(parity.BOUNDS, "float32", parity.Bound(1.5, 1.0, 0.0))
    with pytest.raises(parity.ParityError, match=r"det at gear H=64,W=96: cosine .* is below 1.5"):
        export_model("ppocr", tmp_path / "out", parity_gears=TEMPLATE)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failed_export_does_not_vouch_for_an_earlier_one(ppocr_export, tmp_path, monkeypatch):
    copy = tmp_path / "out"
    shutil.copytree(ppocr_export, copy)
    monkeypatch.setitem(parity.BOUNDS, "float32", parity.Bound(1.5, 1.0, 0.0))
    with pytest.raises(parity.ParityError):
        export_model("ppocr", copy, parity_gears=TEMPLATE)
    with pytest.raises(ModelError, match="no finished export"):
        read_export(copy)


def test_a_missing_checkpoint_is_told(tmp_path):
    with pytest.raises(CheckpointNotFoundError, match="does not exist"):
        export_model(tmp_path / "nothing", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.update(digest="0" * 64), "exported for contract 000000000000"),
        (lambda raw: raw.pop("graphs"), "not an export of this release"),
    ],
)
def test_an_export_of_another_release_is_refused(change, said, ppocr_export, tmp_path):
    raw = json.loads((ppocr_export / "export.json").read_text("utf-8"))
    change(raw)
    (tmp_path / "export.json").write_text(json.dumps(raw), "utf-8")
    with pytest.raises(ModelError, match=said):
        read_export(tmp_path)
