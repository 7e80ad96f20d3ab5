"""Each rule of the lint on the smallest graph that breaks it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ascend.build.op_table import compile_table, load_op_table
from ascend.build.oplint import is_clean, lint
from ascend.errors import ModelError
from atc_configs.soc import load_soc

TABLE = load_op_table()
F32, F16, I64, BF16 = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BFLOAT16,
)  # fmt: skip


def _save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    kind: int = F32,
    opset: int = 17,
    constants: Sequence[onnx.TensorProto] = (),
    domains: Sequence[str] = (),
    out: int | None = None,
) -> Path:
    """A graph from x (2, 4) to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 4])],
        [helper.make_tensor_value_info("y", kind if out is None else out, None)],
        constants,
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=imports), str(path))
    return path


def _node(op: str, inputs: Sequence[str] = ("x",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), ["y"], f"the/{op}", **attributes)


def _find(path: Path, soc: str = "Ascend310P3", mode: str = "fp16", **wanted: str) -> str:
    """The text of the one finding with these fields."""
    findings = lint(path, load_soc(soc), TABLE, mode)
    found = [f for f in findings if all(getattr(f, k) == v for k, v in wanted.items())]
    assert len(found) == 1, [f.text() for f in findings]
    return found[0].text()


def test_a_plain_graph_is_clean(tmp_path):
    findings = lint(_save(tmp_path / "m.onnx", [_node("Relu")]), load_soc("310P3"), TABLE)
    assert findings == [] and is_clean(findings)


@pytest.mark.parametrize(
    ("op", "remedy"),
    [("RMSNormalization", "ReduceMean"), ("Gelu", "opset 18"), ("MadeUp", "operators that ATC")],
)
def test_an_operator_without_a_parser(op, remedy, tmp_path):
    text = _find(_save(tmp_path / "m.onnx", [_node(op)]), code="E16002")
    assert f"the/{op}" in text and "no ONNX parser" in text and remedy in text


def test_an_operator_of_a_foreign_domain(tmp_path):
    node = _node("FastGelu", domain="com.microsoft")
    path = _save(tmp_path / "m.onnx", [node], domains=["com.microsoft"])
    assert "com.microsoft::FastGelu" in _find(path, code="E16002")


def test_the_vendors_own_domain_is_known(tmp_path):
    path = _save(tmp_path / "m.onnx", [_node("NPUFastGelu", domain="npu")], domains=["npu"])
    assert not [f for f in lint(path, load_soc("310P3"), TABLE) if f.code == "E16002"]


@pytest.mark.parametrize("opset", [7, 19])
def test_an_opset_without_parsers(opset, tmp_path):
    path = _save(tmp_path / "m.onnx", [_node("Relu")], opset=opset)
    assert f"opset {opset}" in _find(path, code="E16002", node="")


def test_an_operator_newer_than_its_parser(tmp_path):
    """LayerNormalization came to ATC with opset 17."""
    path = _save(tmp_path / "m.onnx", [_node("LayerNormalization", ["x", "x"])], opset=16)
    assert "knows opsets 17 to 18, not 16" in _find(path, code="E16002")


def test_an_operator_without_a_kernel(tmp_path):
    path = _save(tmp_path / "m.onnx", [_node("Einsum", ["x", "x"], equation="ij,ij->ij")])
    text = _find(path, code="EZ3003")
    assert "no kernel on Ascend310P3" in text and "MatMul" in text


@pytest.mark.parametrize(("soc", "slow"), [("310P3", True), ("910B4", False)])
def test_an_operator_that_only_the_ai_cpu_has(soc, slow, tmp_path):
    index = numpy_helper.from_array(np.zeros((2, 4), np.int64), "i")
    node = _node("ScatterElements", ["x", "i", "x"])
    path = _save(tmp_path / "m.onnx", [node], constants=[index])
    found = [f.code for f in lint(path, load_soc(soc), TABLE) if f.severity == "slow"]
    assert found == (["aicpu"] if slow else [])


def test_int64_arithmetic_falls_to_the_ai_cpu(tmp_path):
    path = _save(tmp_path / "m.onnx", [_node("CumSum", ["x", "axis"])], I64, constants=[
        numpy_helper.from_array(np.array(0, np.int64), "axis")])  # fmt: skip
    text = _find(path, severity="slow")
    assert "int64 runs on the AI CPU" in text and "Cast to int32" in text


def test_int64_inputs_are_told(tmp_path):
    path = _save(tmp_path / "m.onnx", [_node("Abs")], I64)
    assert "give int32" in _find(path, code="int64-input")


def test_bfloat16_on_a_chip_without_it(tmp_path):
    path = _save(tmp_path / "m.onnx", [_node("Relu")], BF16)
    assert "no bfloat16" in _find(path, soc="Ascend310P3", code="dtype")
    assert lint(path, load_soc("910B4"), TABLE) == []


def test_float32_where_the_kernel_is_float16_only(tmp_path):
    node = _node("MaxPool", kernel_shape=[1], strides=[1])
    path = _save(tmp_path / "m.onnx", [node])
    assert "float16 only" in _find(path, mode="fp16", severity="note")
    assert "no float32 kernel" in _find(path, mode="origin", code="EZ3003")


@pytest.mark.parametrize("op", ["NonZero", "Unique", "Compress"])
def test_a_shape_that_depends_on_values(op, tmp_path):
    inputs = ["x", "x"] if op == "Compress" else ["x"]
    path = _save(tmp_path / "m.onnx", [_node(op, inputs)], out=I64)
    assert "depends on values" in _find(path, code="dynamic", op=op)


def test_a_size_computed_at_run_time(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], "cast", to=I64),
        helper.make_node("Reshape", ["x", "s"], ["y"], "reshape"),
    ]
    text = _find(_save(tmp_path / "m.onnx", nodes), code="dynamic")
    assert "size comes from s" in text


def test_a_size_that_follows_from_shapes_is_folded_for_each_gear(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("Reshape", ["x", "s"], ["y"], "reshape"),
    ]
    assert lint(_save(tmp_path / "m.onnx", nodes), load_soc("310P3"), TABLE) == []


def test_control_flow_and_what_is_in_its_branches(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("MadeUp", ["x"], ["b"], "inner")],
        "branch", [], [helper.make_tensor_value_info("b", F32, None)],
    )  # fmt: skip
    node = _node("If", ["c"], then_branch=branch, else_branch=branch)
    true = numpy_helper.from_array(np.array(True), "c")
    path = _save(tmp_path / "m.onnx", [node], constants=[true])
    codes = [(f.code, f.node) for f in lint(path, load_soc("310P3"), TABLE)]
    assert ("control-flow", "the/If") in codes and ("E16002", "inner") in codes


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [(-np.inf, "infinity", "use -1e4"), (1e6, "beyond-fp16", "above 65504")],
)
@pytest.mark.parametrize("how", ["initializer", "constant", "external"])
def test_constants_that_fp16_does_not_have(value, code, said, how, tmp_path):
    tensor = numpy_helper.from_array(np.full((2, 4), value, np.float32), "m")
    add = _node("Add", ["x", "m"])
    if how == "constant":
        constant = helper.make_node("Constant", [], ["m"], "c", value=tensor)
        path = _save(tmp_path / "m.onnx", [constant, add])
    else:
        path = _save(tmp_path / "m.onnx", [add], constants=[tensor])
    if how == "external":
        model = onnx.load(str(path))
        onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert said in _find(path, code=code)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (_node("ArgMax", select_last_index=1), "select_last_index"),
        (_node("Resize"), "needs scales or sizes"),
        (_node("Clip"), "needs min or max"),
        (_node("MaxPool", kernel_shape=[1], auto_pad="SAME_UPPER"), "auto_pad"),
        (_node("Cast", to=TensorProto.DOUBLE), "float64 becomes float32"),
    ],
)
def test_attributes_that_atc_does_not_take(node, said, tmp_path):
    out = {"ArgMax": I64, "Cast": TensorProto.DOUBLE}.get(node.op_type)
    findings = lint(_save(tmp_path / "m.onnx", [node], out=out), load_soc("310P3"), TABLE)
    assert [f for f in findings if said in f.text()]


def test_a_finding_names_the_line_of_the_source(tmp_path):
    ours, theirs = _node("MadeUp"), _node("MadeUp")
    entry = ours.metadata_props.add()
    entry.key, entry.value = "hyocr.source", "fallback/hunyuanocr.py:12"
    entry = theirs.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.stack_trace", 'File "model.py", line 7, in forward'
    for node, source in ((ours, "fallback/hunyuanocr.py:12"), (theirs, "model.py:7")):
        assert f"({source})" in _find(_save(tmp_path / "m.onnx", [node]), code="E16002")


def test_findings_come_worst_first(tmp_path):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[1], auto_pad="SAME_UPPER"),
        helper.make_node("MadeUp", ["a"], ["y"]),
    ]
    findings = lint(_save(tmp_path / "m.onnx", nodes), load_soc("310P3"), TABLE)
    order = ["error", "slow", "warning", "note"]
    assert [f.severity for f in findings] == sorted((f.severity for f in findings), key=order.index)


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x00" * 100])
def test_what_is_no_onnx_file(data, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match="not an ONNX file"):
        lint(path, load_soc("310P3"), TABLE)


def test_weights_that_are_missing_are_named(tmp_path):
    tensor = numpy_helper.from_array(np.ones((2, 4), np.float32), "weight")
    path = _save(tmp_path / "m.onnx", [_node("Add", ["x", "weight"])], constants=[tensor])
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match="weights of weight cannot be read"):
        lint(path, load_soc("310P3"), TABLE)


def test_the_table_of_another_release_is_compiled_and_used(tmp_path):
    large = {
        "_meta": {"source": "somewhere (files)"},
        "ops": {"Relu": {"310P": {"in": [{"dtypes": ["float16"]}]}}},
        "onnx_registered": [
            {"domain": "ai.onnx", "op": "Relu", "opsets": "8-20", "ir": "Relu"},
            {"domain": "ai.onnx", "op": "Reshape", "opsets": "8-20", "ir": "Reshape"},
        ],
    }
    path = tmp_path / "table.json"
    path.write_text(json.dumps(compile_table(large, "9.0")), "utf-8")
    table = load_op_table(path)
    assert (table.cann, table.latest_opset) == ("9.0", 20)
    model = _save(tmp_path / "m.onnx", [_node("Relu")], opset=20)
    assert lint(model, load_soc("310P3"), table, "fp16")[0].code == "fp16-kernel"
    assert lint(model, load_soc("310B1"), table)[0].code == "EZ3003"


def test_a_file_that_is_no_table_is_named(tmp_path):
    path = tmp_path / "table.json"
    path.write_text("{}", "utf-8")
    with pytest.raises(ModelError, match=r"table.json: not an operator table"):
        load_op_table(path)
