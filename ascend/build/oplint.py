"""What ATC would refuse or do badly in an ONNX file, said before ATC is called.

Weights are not read: shapes, dtypes and small constants are enough, but for the largest magnitudes,
which are read tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ascend.build.onnx_facts import (
    all_nodes,
    dtypes_of,
    known_before_run,
    op_key,
    opset_of,
    source_of,
)
from ascend.build.op_table import OpEntry, OpTable
from ascend.errors import ModelError
from atc_configs.soc import Soc

if TYPE_CHECKING:
    import onnx

Severity = Literal["error", "slow", "warning", "note"]
FP16_MAX = 65504.0
# Their output's shape depends on values, which no gear can fix.
_BY_VALUE = {"NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit"}
# Input that says how large the output is.
_SIZED_BY = {"Reshape": 1, "Expand": 1, "Tile": 1, "ConstantOfShape": 0, "Range": 0, "TopK": 1}
_SIZED_BY |= {"OneHot": 1, "Pad": 1, "Slice": 1, "Resize": 2}
_CONTROL = {"If", "Loop", "Scan"}
_REMEDY = {
    "Loop": "unroll it on export", "Scan": "unroll it on export", "If": "export one branch",
    "Einsum": "write it as MatMul, Transpose and Reshape",
    "Gelu": "export with opset 18, which writes it as Erf",
    "RMSNormalization": "export with opset 18, or write Mul, ReduceMean, Sqrt, Div",
    "Attention": "export with opset 18, or write MatMul and Softmax",
    "RotaryEmbedding": "export with opset 18, or write Mul, Concat, Add",
    "GroupNormalization": "write it with ReduceMean, Sub, Mul, Sqrt, Div",
    "NonZero": "compute the positions on the host and give them as an input",
    "ScatterND": "write the rows on the host, or give the whole tensor as an output",
    "ScatterElements": "write the values on the host, or use a mask and Add",
    "GridSample": "sample on the host", "CumSum": "use a triangular MatMul",
    "Expand": "rely on broadcasting, or Cast to int32", "TopK": "take it on the host",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one node ("" for the whole model). `source`: the line that made the node."""

    severity: Severity
    code: str
    node: str
    op: str
    message: str
    remedy: str
    source: str = ""

    def text(self) -> str:
        """The finding as one line: how bad, what, where, and the remedy."""
        where = " ".join(filter(None, [self.op, self.node, self.source and f"({self.source})"]))
        return f"{self.severity}: {self.code}: {where}: {self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Graph:
    """What the rules read. dtypes: tensor -> numpy name; constant: tensors known before a run;
    shaped: tensors that follow from shapes alone. mode: ATC's --precision_mode_v2."""

    model: onnx.ModelProto
    soc: Soc
    table: OpTable
    mode: str
    folder: Path
    dtypes: Mapping[str, str] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()
    shaped: frozenset[str] = frozenset()


def lint(path: str | Path, soc: Soc, table: OpTable, mode: str = "fp16") -> list[Finding]:
    """The findings for one file on one chip, worst first. Raises ModelError if it is no ONNX."""
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception as error:  # protobuf and onnx raise several types of their own
        raise ModelError(f"{path}: not an ONNX file: {error}") from error
    if not model.graph.node:
        raise ModelError(f"{path}: not an ONNX file, or one without nodes")
    constant, shaped = known_before_run(model)
    graph = Graph(model, soc, table, mode, Path(path).parent, dtypes_of(inferred), constant, shaped)
    findings = [*_opset(graph), *_inputs(graph), *_constants(graph)]
    for node in all_nodes(model.graph):
        for rule in _NODE_RULES:
            findings += rule(graph, node)
    order = ("error", "slow", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def is_clean(findings: list[Finding]) -> bool:
    """True if nothing is worse than a note."""
    return all(finding.severity == "note" for finding in findings)


def _opset(graph: Graph) -> Iterator[Finding]:
    for entry in graph.model.opset_import:
        if entry.domain in ("", "ai.onnx") and not 8 <= entry.version <= graph.table.latest_opset:
            yield Finding(
                "error", "E16002", "", "",
                f"opset {entry.version}: CANN {graph.table.cann} has parsers for 8 to"
                f" {graph.table.latest_opset}",
                f"export with opset {graph.table.latest_opset}",
            )  # fmt: skip


def _inputs(graph: Graph) -> Iterator[Finding]:
    weights = {tensor.name for tensor in graph.model.graph.initializer}
    for value in graph.model.graph.input:
        if value.name not in weights and graph.dtypes.get(value.name) == "int64":
            yield Finding(
                "warning", "int64-input", "", "", f"input {value.name} is int64",
                "give int32: twice the bytes go to the device, and many kernels lack int64",
            )  # fmt: skip


def _constants(graph: Graph) -> Iterator[Finding]:
    """Infinities, and numbers that fp16 does not have."""
    users = {name: node for node in reversed(graph.model.graph.node) for name in node.input}
    for name, values in _float_constants(graph):
        node = users.get(name)
        if node is None:
            continue
        if np.isinf(values).any():
            yield _finding(
                "warning", "infinity", node, f"constant {name} holds an infinity",
                "use -1e4: with saturation -inf is another number, without it rows become NaN",
            )  # fmt: skip
        elif (top := float(np.nanmax(np.abs(values), initial=0))) > FP16_MAX:
            yield _finding(
                "warning", "beyond-fp16", node, f"constant {name} reaches {top:.3g}, above 65504",
                "scale it, or keep the node in float32",
            )  # fmt: skip


def _float_constants(graph: Graph) -> Iterator[tuple[str, np.ndarray]]:
    import onnx

    for tensor in graph.model.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            try:
                yield tensor.name, onnx.numpy_helper.to_array(tensor, str(graph.folder))
            except (OSError, ValueError, onnx.checker.ValidationError) as error:
                raise ModelError(f"weights of {tensor.name} cannot be read: {error}") from error
    for node in all_nodes(graph.model.graph):
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            values = onnx.numpy_helper.to_array(node.attribute[0].t)
            if values.dtype.kind == "f":
                yield node.output[0], values


def _parser(graph: Graph, node: onnx.NodeProto) -> Iterator[Finding]:
    if node.op_type == "Constant":
        return
    name, version = op_key(node), opset_of(graph.model, node.domain)
    entry = graph.table.ops.get(name)
    if entry is None:
        remedy = _REMEDY.get(node.op_type, "replace it by operators that ATC knows")
        yield _finding("error", "E16002", node, f"no ONNX parser for {name}", remedy)
    elif version not in entry.opsets and version <= graph.table.latest_opset:
        known = f"{min(entry.opsets)} to {max(entry.opsets)}"
        yield _finding(
            "error", "E16002", node, f"the parser knows opsets {known}, not {version}",
            "export with such an opset",
        )  # fmt: skip


def _kernel(graph: Graph, node: onnx.NodeProto) -> Iterator[Finding]:
    entry = graph.table.ops.get(op_key(node))
    if entry is None or not entry.known:
        return
    remedy = _REMEDY.get(node.op_type, "replace it by operators with an AI Core kernel")
    if graph.soc.column not in entry.kernels:
        if "AICPU" not in entry.kernels:
            text = f"no kernel on {graph.soc.name} nor on its AI CPU"
            yield _finding("error", "EZ3003", node, text, remedy)
        else:
            yield _finding("slow", "aicpu", node, f"only the AI CPU of {graph.soc.name}", remedy)
        return
    yield from _dtype(graph, node, entry, remedy)


def _dtype(graph: Graph, node: onnx.NodeProto, entry: OpEntry, remedy: str) -> Iterator[Finding]:
    data = 1 if node.op_type == "Where" else 0
    dtype = graph.dtypes.get(node.input[data]) if len(node.input) > data else None
    kernels = entry.kernels[graph.soc.column]
    # What follows from shapes alone is folded for each gear, on the host.
    if dtype is None or kernels is None or set(node.output) <= graph.shaped:
        return
    used = "float16" if graph.mode != "origin" and dtype == "float32" else dtype
    if dtype == "bfloat16" and "bf16" in graph.soc.lacks:
        yield _finding(
            "error", "dtype", node, f"{graph.soc.name} has no bfloat16", "export in float16"
        )
    elif dtype in kernels or used in kernels:
        if dtype not in kernels:
            yield _finding(
                "note", "fp16-kernel", node, "the kernel is float16 only", "measure the parity"
            )
    elif dtype in (entry.kernels.get("AICPU") or ()):
        text = f"{dtype} runs on the AI CPU of {graph.soc.name} only"
        yield _finding("slow", "aicpu", node, text, f"Cast to {_nearest(dtype, kernels)}")
    else:
        text = f"no {dtype} kernel on {graph.soc.name} (it has {', '.join(sorted(kernels))})"
        yield _finding("error", "EZ3003", node, text, f"Cast to {_nearest(dtype, kernels)}")


def _shape(graph: Graph, node: onnx.NodeProto) -> Iterator[Finding]:
    remedy = _REMEDY.get(node.op_type, "make the sizes constant, or an input")
    if node.op_type in _CONTROL:
        yield _finding("error", "control-flow", node, "control flow needs dynamic shapes", remedy)
    elif node.op_type in _BY_VALUE:
        yield _finding("error", "dynamic", node, "the output's shape depends on values", remedy)
    elif node.op_type in _SIZED_BY:
        for name in node.input[_SIZED_BY[node.op_type] :]:
            if name and name not in graph.constant and name not in graph.shaped:
                text = f"its size comes from {name}, which is computed at run time"
                yield _finding("error", "dynamic", node, text, remedy)
                break


def _attributes(graph: Graph, node: onnx.NodeProto) -> Iterator[Finding]:
    import onnx

    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in ("ArgMax", "ArgMin") and values.get("select_last_index"):
        yield _finding("error", "attribute", node, "select_last_index must be 0", "drop it")
    if node.op_type == "GatherND" and values.get("batch_dims"):
        yield _finding("error", "attribute", node, "batch_dims must be 0", "gather on the host")
    if node.op_type == "Resize" and len(node.input) < 3:
        yield _finding("error", "attribute", node, "needs scales or sizes", "give scales")
    if node.op_type == "Resize" and (values.get("antialias") or values.get("axes")):
        yield _finding("warning", "attribute", node, "antialias and axes are ignored", "drop them")
    if node.op_type == "Clip" and not any(node.input[1:]) and not {"min", "max"} & values.keys():
        yield _finding("error", "attribute", node, "needs min or max", "remove the node")
    if values.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER"):
        yield _finding("warning", "attribute", node, "auto_pad depends on the size", "write pads")
    if op_key(node) == "Cast" and values.get("to") == onnx.TensorProto.DOUBLE:
        yield _finding("warning", "float64", node, "float64 becomes float32", "Cast to float32")


_NODE_RULES: tuple[Callable[[Graph, onnx.NodeProto], Iterator[Finding]], ...] = (
    _parser,
    _kernel,
    _shape,
    _attributes,
)


def _finding(
    severity: Severity, code: str, node: onnx.NodeProto, message: str, remedy: str
) -> Finding:
    name = node.name or next(iter(node.output), "")
    return Finding(severity, code, name, op_key(node), message, remedy, source_of(node))


def _nearest(dtype: str, kernels: frozenset[str]) -> str:
    order = ("int32", "int8") if dtype.startswith(("int", "uint")) else ("float32", "float16")
    return next((name for name in order if name in kernels), sorted(kernels)[0])
