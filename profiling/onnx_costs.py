"""What an ONNX graph does at given input shapes, counted node by node. Reads no weights: their
sizes stand in the file."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiling.costs import OpCost

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]

# Operators that a compiler turns into nothing: the same bytes under another shape.
VIEWS = frozenset(
    "Constant ConstantOfShape Dropout Flatten Identity Reshape Shape Squeeze Unsqueeze".split()
)
# One pass over their inputs, so that a compiler can append them to the operator before.
_POINTWISE = frozenset(
    "Abs Add Cast Clip Div Equal Erf Exp Greater HardSigmoid HardSwish LeakyRelu Less Log Max Min"
    " Mul Neg Pow PRelu Reciprocal Relu Sigmoid Sqrt Sub Tanh Where".split()
)
# Operations of the vector unit for one element of the output, about: polynomials for what is no
# plain arithmetic; 1 where nothing is said.
_VECTOR_OPS = {"Erf": 12, "Exp": 8, "Sigmoid": 10, "Softmax": 12, "Tanh": 10, "Pow": 8}
_MOVES = frozenset("Concat Expand Gather Pad Slice Split Tile Transpose".split())
# Bits of an element by TensorProto's number of its type.
_BITS = {2: 8, 3: 8, 4: 16, 5: 16, 7: 64, 9: 8, 10: 16, 11: 64, 13: 64, 16: 16, 17: 8, 18: 8}
_BITS |= {19: 8, 20: 8, 21: 4, 22: 4, 1: 32, 6: 32, 12: 32}


class CostError(ValueError):
    """A graph that cannot be counted; names the tensor and what is missing."""


def onnx_costs(path: str | Path, shapes: Mapping[str, Shape]) -> list[OpCost]:
    """One OpCost for each node that does something, in the graph's order.

    shapes: of every input. Raises CostError for an input without a shape, or a tensor whose shape
    does not follow from them."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return model_costs(model, shapes)


def model_costs(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> list[OpCost]:
    """As `onnx_costs`, of a loaded model, whose input shapes are set to the given ones."""
    import onnx

    _set_shapes(model, shapes)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = _tensors(inferred)
    constants = {tensor.name for tensor in inferred.initializer}
    constants |= {o for node in inferred.node if node.op_type == "Constant" for o in node.output}
    edges = {v.name for v in inferred.input} - constants
    views = _views(inferred)
    graph = _Graph(known, constants, edges | {v.name for v in inferred.output}, views)
    return [graph.cost(node) for node in inferred.node if node.output[0] not in views]


class _Graph:
    """Tensors by name: (shape, bits of an element); the constants; inputs and outputs of it all;
    tensors that are others under another shape."""

    def __init__(
        self,
        known: dict[str, tuple[Shape, int]],
        constants: set[str],
        edges: set[str],
        views: dict[str, str],
    ) -> None:
        self._known, self._views = known, views
        self._constants, self._edges = constants, edges

    def cost(self, node: Any) -> OpCost:
        names = [name for name in node.input if name]
        outputs = [name for name in node.output if name]
        kind, out = node.op_type, self._of(node, outputs[0])[0]
        touched = [*names, *outputs]
        sizes = {name: self._bytes(node, name) for name in touched}
        roots = {name: self._views.get(name, name) for name in touched}
        weights = sum(sizes[n] for n in names if roots[n] in self._constants)
        edges = sum(sizes[n] for n in touched if roots[n] in self._edges)
        inner = [n for n in touched if roots[n] not in self._constants | self._edges]
        elements = prod(out)
        if kind.startswith("Reduce") or kind in ("MaxPool", "AveragePool", "LayerNormalization"):
            elements = max(elements, prod(self._of(node, names[0])[0]))
        cube = self._cube(node, names, out)
        return OpCost(
            name=node.name or kind,
            kind=kind,
            cube=cube,
            vector=0.0 if cube or kind in _MOVES else float(_VECTOR_OPS.get(kind, 1) * elements),
            weights=weights,
            must_move=edges,
            between=sum(sizes[n] for n in inner),
            largest=max((sizes[n] for n in inner), default=0.0),
            fused=kind in _POINTWISE,
        )

    def _cube(self, node: Any, names: list[str], out: Shape) -> float:
        """Two for each multiplication and addition of a product."""
        if node.op_type == "MatMul":
            return 2.0 * prod(out) * self._of(node, names[0])[0][-1]
        if node.op_type == "Gemm":
            turned = any(a.name == "transA" and a.i for a in node.attribute)
            return 2.0 * prod(out) * self._of(node, names[0])[0][0 if turned else -1]
        if node.op_type == "Conv":
            return 2.0 * prod(out) * prod(self._of(node, names[1])[0][1:])
        if node.op_type == "ConvTranspose":
            shape, weight = self._of(node, names[0])[0], self._of(node, names[1])[0]
            return 2.0 * prod(shape) * prod(weight[1:])
        return 0.0

    def _bytes(self, node: Any, name: str) -> float:
        shape, bits = self._of(node, name)
        return prod(shape) * bits / 8

    def _of(self, node: Any, name: str) -> tuple[Shape, int]:
        if name not in self._known:
            raise CostError(
                f"{node.op_type} {node.name!r}: the shape of {name!r} does not follow from those of"
                " the inputs; simplify the graph, or export it with constant shapes"
            )
        return self._known[name]


def _views(graph: Any) -> dict[str, str]:
    """Tensor -> the one whose bytes it has: outputs of views, and of transposes that the product
    behind them reads in place (every matrix unit takes either order)."""
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    views: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in VIEWS or (node.op_type == "Transpose" and _read_turned(node, readers)):
            source = node.input[0] if node.input else node.output[0]
            for name in node.output:
                views[name] = views.get(source, source)
    return views


def _read_turned(node: Any, readers: Mapping[str, list[str]]) -> bool:
    perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
    last = perm[-2:] == [len(perm) - 1, len(perm) - 2] and perm[:-2] == list(range(len(perm) - 2))
    return last and set(readers.get(node.output[0], ())) == {"MatMul"}


def _set_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> None:
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in constants:
            continue
        if value.name not in shapes:
            raise CostError(f"no shape given for the input {value.name!r}")
        dims = value.type.tensor_type.shape.dim
        if len(dims) != len(shapes[value.name]):
            raise CostError(
                f"input {value.name!r} has {len(dims)} axes, {shapes[value.name]} was given"
            )
        for dim, size in zip(dims, shapes[value.name], strict=True):
            dim.Clear()
            dim.dim_value = size
    # What the exporter noted for other sizes would contradict the inference.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def _tensors(graph: Any) -> dict[str, tuple[Shape, int]]:
    known: dict[str, tuple[Shape, int]] = {}
    for value in [*graph.value_info, *graph.output, *graph.input]:
        kind = value.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
        if kind.HasField("shape") and all(dim >= 0 for dim in dims):
            known[value.name] = (tuple(dims), _BITS.get(kind.elem_type, 32))
    for tensor in graph.initializer:
        known[tensor.name] = (tuple(tensor.dims), _BITS.get(tensor.data_type, 32))
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensor = attribute.t
                    shape = tuple(tensor.dims)
                    known[node.output[0]] = (shape, _BITS.get(tensor.data_type, 32))
    return known
