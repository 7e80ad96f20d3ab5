"""What a compiled model says about itself: tensors, gears, sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MBATCH = "ascend_mbatch_shape_data"
# aclDataType -> (NumPy type name, item size); bf16 has no NumPy type.
DTYPES: dict[int, tuple[str, int]] = {
    0: ("float32", 4), 1: ("float16", 2), 2: ("int8", 1), 3: ("int32", 4), 4: ("uint8", 1),
    6: ("int16", 2), 7: ("uint16", 2), 8: ("uint32", 4), 9: ("int64", 8), 10: ("uint64", 8),
    11: ("float64", 8), 12: ("bool", 1), 27: ("bfloat16", 2),
}  # fmt: skip
FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NCDHW": 30}
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output; `shape` has -1 on dynamic axes of inputs, `largest` has none."""

    name: str
    source: str  # the name in the ONNX graph
    dtype: int
    format: int
    shape: Shape
    largest: Shape

    @property
    def nbytes(self) -> int:
        """Bytes at the largest gear; 0 where a range leaves it open."""
        return self.bytes_of(self.largest) if all(d >= 0 for d in self.largest) else 0

    def bytes_of(self, shape: Shape) -> int:
        """Unpadded bytes of a shape."""
        return math.prod(shape) * DTYPES[self.dtype][1]


@dataclass(frozen=True, slots=True)
class Gear:
    """One compiled gear: the option's numbers, and every tensor's shape under it."""

    key: Shape
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """A model. kind: static, batch, image, dims (gears) or range. Sizes in bytes."""

    name: str
    soc: str
    kind: str
    precision: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gears: tuple[Gear, ...]
    work_size: int
    weight_size: int
    raw: dict[str, Any]
    by_key: dict[Shape, Gear]
    flat: Shape  # the dims of every input, one after another

    @property
    def has_gears(self) -> bool:
        """True when a gear must be set before execution."""
        return self.kind in ("batch", "image", "dims")

    @property
    def num_inputs(self) -> int:
        """User inputs plus the hidden one that carries the gear."""
        return len(self.inputs) + self.has_gears

    @property
    def largest_gear(self) -> Gear:
        """The gear with the most input elements."""
        return max(self.gears, key=lambda gear: sum(math.prod(shape) for shape in gear.inputs))


def _tensor(data: dict[str, Any]) -> Tensor:
    return Tensor(data["name"], data["source"], data["dtype"], data["format"],
                  tuple(data["shape"]), tuple(data["largest"]))  # fmt: skip


def parse_description(raw: dict[str, Any]) -> Description:
    """From the JSON of the model definition."""
    gears = tuple(
        Gear(tuple(g["key"]), tuple(map(tuple, g["inputs"])), tuple(map(tuple, g["outputs"])))
        for g in raw["gears"]
    )
    inputs = tuple(map(_tensor, raw["inputs"]))
    return Description(
        raw["name"], raw["soc"], raw["kind"], raw["precision"], inputs,
        tuple(map(_tensor, raw["outputs"])), gears, raw["work_size"], raw["weight_size"], raw,
        {gear.key: gear for gear in gears}, tuple(dim for t in inputs for dim in t.shape),
    )  # fmt: skip
