"""Which ONNX operators ATC takes: opsets that have a parser, and kernels by chip family and dtype.

The table in the package is of one CANN release. `python -m ascend.build.op_table SOURCE -o TABLE`
compiles another from a JSON file with `ops` (GE op -> chip family -> inputs with dtypes) and
`onnx_registered` (op, opsets, GE ops), as CANN's op-info files and ONNX plug-ins give them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import mode
from typing import Any

from ascend.errors import ModelError

COLUMNS = ("310P", "310B", "910A", "910B", "AICPU")
_PACKAGED = "atc_ops_8.1.RC1.json"
# GE ops behind the plug-ins that build a small graph instead of one op; alternatives by "|".
_BEHIND = {
    "ArgMax": "ArgMaxV2", "ArgMin": "ArgMin", "AveragePool": "AvgPoolV2|AvgPool",
    "Clip": "ClipByValue", "Concat": "ConcatD|ConcatV2D", "ConstantOfShape": "Fill",
    "Conv": "Conv2D", "ConvTranspose": "Conv2DTransposeD", "EyeLike": "Eye", "Gather": "GatherV2",
    "Gemm": "MatMulV2", "LayerNormalization": "LayerNorm", "Max": "Maximum", "Min": "Minimum",
    "MaxPool": "MaxPoolV3|MaxPool", "NonZero": "NonZero", "OneHot": "OneHot", "Pad": "PadV3|PadD",
    "ReduceMax": "ReduceMax", "ReduceMean": "ReduceMean", "ReduceMin": "ReduceMin",
    "ReduceProd": "ReduceProd", "ReduceSum": "ReduceSum", "Resize": "Resize",
    "RoiAlign": "ROIAlign",
    "ScatterND": "ScatterNdUpdate|TensorScatterUpdate", "Slice": "StridedSlice",
    "Split": "SplitV|SplitD", "TopK": "TopKV2", "Transpose": "Transpose|TransposeD",
    "Unique": "Unique",
}  # fmt: skip
# Registered under a GE op that is rewritten before kernels are looked for.
_REWRITTEN = {"GlobalAveragePool", "Dropout", "LSTM", "GRU", "If", "Size", "CastLike", "Hardmax"}
# They change no value, so they need no kernel.
_VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}
_DTYPES = {"float": "float32", "double": "float64", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class OpEntry:
    """One ONNX operator. kernels: family or "AICPU" -> dtypes, None where the kernel decides by
    itself; an empty mapping with `known` False means that the table says nothing of kernels."""

    opsets: frozenset[int]
    kernels: Mapping[str, frozenset[str] | None]
    known: bool


@dataclass(frozen=True, slots=True)
class OpTable:
    """The operators of one CANN release, by ONNX name ("npu::X" outside the standard domain)."""

    cann: str
    source: str
    ops: Mapping[str, OpEntry]

    @property
    def latest_opset(self) -> int:
        """The opset up to which most parsers go; a few of them know later ones."""
        return mode(max(entry.opsets) for entry in self.ops.values())


def load_op_table(path: str | Path | None = None) -> OpTable:
    """The packaged table, or the one in `path`. Raises ModelError naming the file."""
    try:
        if path is None:
            text = resources.files("ascend.build").joinpath(_PACKAGED).read_text("utf-8")
        else:
            text = Path(path).read_text("utf-8")
        raw = json.loads(text)
        ops = {name: _entry(row) for name, row in raw["ops"].items()}
        return OpTable(raw["cann"], raw["source"], ops)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path or _PACKAGED}: not an operator table: {error}") from error


def compile_table(source: Mapping[str, Any], cann: str) -> dict[str, Any]:
    """The small table of a release from its large one."""
    ops = {}
    for row in source["onnx_registered"]:
        name = row["op"] if row["domain"] == "ai.onnx" else f"{row['domain']}::{row['op']}"
        kernels = _kernels(row["op"], row["ir"], source["ops"])
        ops[name] = [row["opsets"], *([] if kernels is None else [kernels])]
    origin = source["_meta"]["source"].split(" ")[0]
    return {"cann": cann, "source": origin, "ops": ops}


def _kernels(op: str, ir: str, ge: Mapping[str, Any]) -> dict[str, list[str] | None] | None:
    """Column -> dtypes; None where nothing is known."""
    if op in _VIEWS:
        return {column: None for column in COLUMNS[:-1]}
    if op in _REWRITTEN or (op not in _BEHIND and "PartitionedCall" in ir):
        return None
    names = _BEHIND[op].split("|") if op in _BEHIND else ir.split("/")
    found: dict[str, list[str] | None] = {}
    for column in COLUMNS:
        rows = [ge[name][column] for name in names if column in ge.get(name, {})]
        if rows:
            found[column] = _dtypes(rows, slice(1, None) if op == "Where" else slice(0, 1))
    return found


def _dtypes(rows: Sequence[Mapping[str, Any]], data: slice) -> list[str] | None:
    """Dtypes of the data inputs; the others are sizes, axes and conditions."""
    listed = [entry.get("dtypes") for row in rows for entry in row.get("in", ())[data]]
    if not listed or any(dtypes is None for dtypes in listed):
        return None
    names = {name.lower() for dtypes in listed for name in dtypes}
    return sorted(_DTYPES.get(name, name) for name in names)


def _entry(row: Sequence[Any]) -> OpEntry:
    opsets: set[int] = set()
    for part in row[0].split(","):
        low, _, high = part.partition("-")
        opsets.update(range(int(low), int(high or low) + 1))
    kernels = row[1] if len(row) > 1 else {}
    return OpEntry(
        frozenset(opsets),
        {k: None if v is None else frozenset(v) for k, v in kernels.items()},
        len(row) > 1,
    )


def main() -> None:
    """Compile the table that the package ships from a release's operator list."""
    parser = argparse.ArgumentParser(description="Compile an operator table of a CANN release.")
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--cann", default="8.1.RC1")
    args = parser.parse_args()
    table = compile_table(json.loads(args.source.read_text("utf-8")), args.cann)
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table["ops"].items())
    head = f'"cann": {json.dumps(table["cann"])},\n"source": {json.dumps(table["source"])}'
    args.output.write_text(f'{{{head},\n"ops": {{\n{rows}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main()
