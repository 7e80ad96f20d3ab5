"""Which nodes of a graph leave the range of fp16, found by running pages in float32.

The graph keeps its node names and is widened to float32; small statistics are computed inside it,
so that nothing but numbers leaves it, at any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ascend.build.half import widen
from ascend.build.onnx_facts import dtypes_of, source_of
from ascend.build.sessions import open_session

if TYPE_CHECKING:
    import onnx

FP16_MAX = 65504.0
# Pages that were not looked at go a little further than those that were.
MARGIN = 2.0
# Half of the smallest fp16 number: what is nearer to zero becomes zero.
FP16_LOST = 2.0**-25


@dataclass(frozen=True, slots=True)
class NodeRange:
    """One node's output. largest: over all pages; lost: share of non-zero values that fp16 turns
    into zero; `source`: the line of ours that made the node."""

    node: str
    op: str
    source: str
    largest: float
    lost: float

    @property
    def overflows(self) -> bool:
        return not self.largest * MARGIN <= FP16_MAX  # NaN overflows, too


@dataclass(frozen=True, slots=True)
class Audit:
    """The ranges of one graph, largest first, and the nodes to keep in float32."""

    graph: str
    ranges: tuple[NodeRange, ...]
    keep: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the list, every node that overflows, and the largest others."""
        shown = [r for r in self.ranges if r.overflows] + self.ranges_below()[:5]
        return {"keep": list(self.keep), "nodes": [asdict(r) for r in shown]}

    def ranges_below(self) -> list[NodeRange]:
        """The nodes whose magnitudes float16 has."""
        return [r for r in self.ranges if not r.overflows]


def audit(path: Path, feeds: Iterable[Mapping[str, NDArray[Any]]]) -> Audit:
    """Runs a graph file in float32 on `feeds` (inputs by name, any float dtype)."""
    import onnx

    model = onnx.load(str(path))
    graph = model.graph
    dtypes = dtypes_of(onnx.shape_inference.infer_shapes(model))
    names = {name for node in graph.node for name in node.output}
    # A float16 graph's float32 values are islands already; a float32 graph will be all float16.
    rounded = "float16" if "float16" in {dtypes.get(name) for name in names} else "float32"
    watched = [n for n in graph.node if dtypes.get(n.output[0]) == rounded]
    widen(model)
    largest, lost = _run(model, [node.output[0] for node in watched], feeds)
    ranges = [
        NodeRange(node.name, node.op_type, source_of(node), float(top), float(share))
        for node, top, share in zip(watched, largest, lost, strict=True)
    ]
    keep = _keep(model, [r.node for r in ranges if r.overflows])
    ranges.sort(key=lambda r: -np.nan_to_num(r.largest, nan=np.inf))
    return Audit(graph.name, tuple(ranges), tuple(keep))


def audit_export(
    folder: str | Path,
    checkpoint: str | Path | None,
    pages: Sequence[NDArray[np.uint8]] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Audit]:
    """Audits every graph of an exported folder on pages (RGB; two drawn ones by default).

    checkpoint: the folder that HunyuanOCR was exported from; None for PP-OCR.
    """
    from ascend.build.export import read_export
    from ascend.build.readers import open_reader, record

    exported = read_export(folder)
    say("recording what the pages feed to the graphs")
    with open_reader(checkpoint, exported.contract) as reader:
        feeds = record(reader, pages)
    audits = {}
    for name, graph in exported.graphs.items():
        audits[name] = audit(Path(folder) / graph["file"], feeds[name])
        top = audits[name].ranges[0]
        say(f"{name}: largest {top.largest:.3g} at {top.node}, {len(audits[name].keep)} to keep")
    return audits


def _run(
    model: onnx.ModelProto, names: Sequence[str], feeds: Iterable[Mapping[str, NDArray[Any]]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per tensor: the largest magnitude over all feeds, and the highest share of lost values."""
    _add_statistics(model, names)
    session = open_session(model.SerializeToString())
    largest, lost = np.zeros(len(names)), np.zeros(len(names))
    for feed in feeds:
        inputs = {
            name: values.astype(np.float32) if values.dtype.kind == "f" else values
            for name, values in feed.items()
        }
        tops, lows, zeros = session.run(["audit_top", "audit_low", "audit_zero"], inputs)
        largest = np.maximum(largest, tops)  # NaN stays
        lost = np.maximum(lost, (lows - zeros) / np.maximum(1 - zeros, 1e-9))
    return largest, lost


def _add_statistics(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Adds three outputs, one number for each tensor: largest magnitude, share below fp16, share
    of zeros."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    del graph.output[:]
    for name, value in (("audit_tiny", FP16_LOST), ("audit_null", 0.0)):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    one = numpy_helper.from_array(np.array([1], np.int64), "audit_one")
    graph.initializer.append(one)
    outputs: dict[str, list[str]] = {"audit_top": [], "audit_low": [], "audit_zero": []}
    for number, name in enumerate(names):
        at = f"audit_{number}"
        nodes = [("Abs", [name], f"{at}_abs"), ("ReduceMax", [f"{at}_abs"], f"{at}_top")]
        for kind, limit in (("low", "audit_tiny"), ("zero", "audit_null")):
            nodes += [
                ("LessOrEqual", [f"{at}_abs", limit], f"{at}_{kind}_is"),
                ("Cast", [f"{at}_{kind}_is"], f"{at}_{kind}_one"),
                ("ReduceMean", [f"{at}_{kind}_one"], f"{at}_{kind}"),
            ]
        for op, inputs, output in nodes:
            extra: dict[str, Any] = {"keepdims": 0} if op.startswith("Reduce") else {}
            extra |= {"to": TensorProto.FLOAT} if op == "Cast" else {}
            graph.node.append(helper.make_node(op, inputs, [output], output, **extra))
        for kind in ("top", "low", "zero"):
            line = f"{at}_{kind}_line"
            graph.node.append(helper.make_node("Reshape", [f"{at}_{kind}", "audit_one"], [line]))
            outputs[f"audit_{kind}"].append(line)
    for output, lines in outputs.items():
        graph.node.append(helper.make_node("Concat", lines, [output], axis=0))
        graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    _raise_opset(model)


def _raise_opset(model: onnx.ModelProto) -> None:
    """LessOrEqual came with opset 12; from 11 to 12 no operator used here changed its meaning."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = max(entry.version, 12)


def _keep(model: onnx.ModelProto, overflowing: Sequence[str]) -> list[str]:
    """The overflowing nodes and those that read them: the value itself must never be fp16."""
    kept = set(overflowing)
    large = {name for node in model.graph.node if node.name in kept for name in node.output}
    readers = {
        node.name
        for node in model.graph.node
        if large.intersection(node.input) and node.op_type != "Cast" and node.name
        and not node.name.startswith("audit_")
    }  # fmt: skip
    return [node.name for node in model.graph.node if node.name in kept | readers]
