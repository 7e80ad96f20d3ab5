"""Which operators the compiler takes for a chip: a parser for the opset, and a kernel."""

from __future__ import annotations

import onnx

from .atc_messages import TABLE, AtcError
from .chips import CHIPS

_LATEST_OPSET = 18
# Handled by the parser itself.
_BUILT_IN = frozenset({"Constant"})


def _versions(text: str) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def check_operators(model: onnx.ModelProto, soc: str) -> None:
    """Raises AtcError: E16002 without a parser, EZ3003 without a kernel for the chip."""
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    family = CHIPS[soc].short
    kernels_missing: AtcError | None = None
    for node in model.graph.node:
        domain = node.domain or "ai.onnx"
        version = opsets.get(domain, 1)
        key = node.op_type if domain == "ai.onnx" else f"{domain}::{node.op_type}"
        optype = f"{domain}::{version}::{node.op_type}"
        if node.op_type in _BUILT_IN and version <= _LATEST_OPSET:
            continue
        entry = TABLE["operators"].get(key)
        if entry is None or version not in _versions(entry[0]):
            raise AtcError("E16002", optype, trace=f"parse node {node.name or node.op_type} failed")
        kernels = entry[1]
        if kernels != "all" and family not in kernels and "AICPU" not in kernels:
            name = node.name or node.op_type
            kernels_missing = kernels_missing or AtcError("EZ3003", name, node.op_type)
    if kernels_missing is not None:
        raise kernels_missing
