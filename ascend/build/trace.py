"""HunyuanOCR's two PyTorch modules -> ONNX files with the contract's names and symbolic sizes.

The only file of the builder that knows torch. Weights go to `NAME.onnx.data`; the graph file is
small and can be read without them.
"""

from __future__ import annotations

import ast
import gc
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend.build import onnx_rewrite as rewrite
from atc_configs.contract import Contract, GraphSpec

if TYPE_CHECKING:
    import onnx
    import torch

    from fallback.checkpoint import Checkpoint

# The PyTorch exporter writes 18 without converting, and ATC takes up to 18 (spec of CANN 8.1).
OPSET = 18
SOURCE_KEY = "hyocr.source"
# Sizes to trace with: none is 1 or equal to another, so that no symbol is taken for a constant.
_TRACE_SIZES = {"N": 24, "B": 2, "Q": 3, "S": 5, "R": 4}


def build_module(checkpoint: Checkpoint, graph: str) -> torch.nn.Module:
    """The fp32 module of a graph, in the form that traces into a static graph."""
    from fallback.hunyuanocr import Llm, Vision, set_export_form

    kind = {"vision": Vision, "llm": Llm}[graph]
    module = kind(checkpoint.tensor, checkpoint.dims).eval()
    set_export_form(module)
    return module


def call_arguments(graph: GraphSpec, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors of a graph's inputs, in their order, as its module's forward takes them."""
    if graph.name != "llm":
        return tuple(tensors)
    layers = sum(spec.name.startswith("past_key.") for spec in graph.inputs)
    first = len(graph.inputs) - 2 * layers
    return (
        *tensors[:first],
        list(tensors[first : first + layers]),
        list(tensors[first + layers :]),
    )


def flat_outputs(outputs: Any) -> list[Any]:
    """A module's result as a flat list, in the order of the graph's outputs."""
    if not isinstance(outputs, (tuple, list)):
        return [outputs]
    return [tensor for part in outputs for tensor in flat_outputs(part)]


def trace(checkpoint: Checkpoint, contract: Contract, graph: str, folder: Path) -> Path:
    """Writes GRAPH.onnx and GRAPH.onnx.data in `folder`, in the contract's precision.

    float16 keeps what the module computes in float32 (norm statistics, rotary products, softmax)
    between explicit Casts. Memory: about twice the module in float32.
    """
    import onnx

    spec = contract.graph(graph)
    path = folder / f"{graph}.onnx"
    program = _export(build_module(checkpoint, graph), spec, contract.precision)
    program.save(str(path), external_data=True)
    del program
    gc.collect()  # the traced program and its module refer to each other
    model = onnx.load(str(path), load_external_data=False)
    _finish(model, spec)
    path.write_bytes(model.SerializeToString())
    return path


def _export(module: torch.nn.Module, spec: GraphSpec, precision: str) -> Any:
    import torch

    if precision == "float16":
        module = module.half()
    tensors = [
        torch.zeros(t.resolve(_TRACE_SIZES), dtype=getattr(torch, t.dtype_in(precision)))
        for t in spec.inputs
    ]
    dynamic = torch.export.Dim.DYNAMIC
    axes = [{i: dynamic for i, d in enumerate(t.shape) if isinstance(d, str)} for t in spec.inputs]
    with torch.no_grad(), _quiet():
        return torch.onnx.export(
            module,
            call_arguments(spec, tensors),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=call_arguments(spec, axes),
            input_names=[t.name for t in spec.inputs],
            output_names=[t.name for t in spec.outputs],
            optimize=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own internals and of packages that nothing here uses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _finish(model: onnx.ModelProto, spec: GraphSpec) -> None:
    """Names and shapes of the contract, node names that say where they are, no Gather."""
    graph = model.graph
    taken: dict[str, int] = {}
    for node in graph.node:
        notes = {note.key: note.value for note in node.metadata_props}
        del node.metadata_props[:]
        rewrite.note(node, SOURCE_KEY, _source(notes))
        node.name = _node_name(node, notes, taken)
    for value in [*graph.input, *graph.output]:
        del value.metadata_props[:]
    for tensor in graph.initializer:
        del tensor.metadata_props[:]
    del graph.metadata_props[:]
    rewrite.selections_to_slices(model)
    rewrite.drop_unused(model)
    rewrite.declare_shapes(model, {t.name: t.shape for t in (*spec.inputs, *spec.outputs)})
    graph.name = spec.name
    model.producer_name = "hyocr"


def _node_name(node: onnx.NodeProto, notes: Mapping[str, str], taken: dict[str, int]) -> str:
    """MODULE/OP, e.g. layers.3.self_attn/Softmax, numbered where a module has several."""
    scopes = ast.literal_eval(notes.get("pkg.torch.onnx.name_scopes", "[]"))
    module = next((scope for scope in reversed(scopes[:-1]) if scope), "")
    stem = f"{module}/{node.op_type}" if module else node.op_type
    number = taken[stem] = taken.get(stem, -1) + 1
    return f"{stem}_{number}" if number else stem


def _source(notes: Mapping[str, str]) -> str:
    """package/file.py:LINE of the innermost frame of ours, without this machine's folders."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', notes.get("pkg.torch.onnx.stack_trace", ""))
    for file, line in reversed(frames):
        parts = Path(file).parts
        if "fallback" in parts:
            return f"{'/'.join(parts[len(parts) - 1 - parts[::-1].index('fallback') :])}:{line}"
    return ""
