"""The graphs of a contract as values: tensors with symbolic shapes, and their sizes (gears).

Knows no file format, no engine and no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from atc_configs.expressions import Dim, ExpressionError, evaluate

GearKind = Literal["static", "dynamic_dims", "dynamic_image_size", "dynamic_batch_size"]

# Bytes of one element, by numpy's name of the dtype.
ITEM_BYTES = {"float16": 2, "float32": 4, "int32": 4, "int64": 8, "uint8": 1}


class ContractError(ValueError):
    """A contract, chip or gear that cannot be used; names file and key, or value and limit."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A named input or output. dtype "compute" is the contract's precision; `shape` keeps the
    gear symbols."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    def resolve(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with `values` for its symbols.

        Raises ContractError for a missing value or an inexact division.
        """
        try:
            return tuple(evaluate(dim, values) for dim in self.shape)
        except ExpressionError as error:
            raise ContractError(f"{self.name}: {error}") from error

    def dtype_in(self, precision: str) -> str:
        """The numpy name of the dtype."""
        return precision if self.dtype == "compute" else self.dtype

    def nbytes(self, values: Mapping[str, int], precision: str = "float16") -> int:
        """Unpadded bytes of one tensor."""
        return prod(self.resolve(values)) * ITEM_BYTES[self.dtype_in(precision)]


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One graph: its tensors and the sizes that it is compiled for, cheapest first."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[str, ...]
    gears: tuple[Mapping[str, int], ...]
    gear_kind: GearKind
    atc: Mapping[str, str]

    def gear_for(self, **wanted: int) -> Mapping[str, int]:
        """The cheapest gear in which every wanted size fits; a symbol not named may be anything.

        Raises ContractError naming the value, the largest gear and what to do.
        """
        unknown = wanted.keys() - set(self.symbols)
        if unknown:
            raise ContractError(
                f"{self.name}: no gear symbol {sorted(unknown)[0]!r}, it has {self.symbols}"
            )
        for gear in self.gears:
            if all(gear[symbol] >= size for symbol, size in wanted.items()):
                return gear
        raise ContractError(self._no_gear(wanted))

    def input_shapes(self, gear: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Shape of every input at `gear`, by name."""
        return {spec.name: spec.resolve(gear) for spec in self.inputs}

    def output_shapes(self, gear: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Shape of every output at `gear`, by name."""
        return {spec.name: spec.resolve(gear) for spec in self.outputs}

    def dynamic_dims(self, gear: Mapping[str, int]) -> list[int]:
        """Every dimension of every input in turn: what `acl.mdl.set_input_dynamic_dims` takes."""
        return [size for spec in self.inputs for size in spec.resolve(gear)]

    def atc_input_shape(self) -> str:
        """ATC's --input_shape: "name:1,-1;name:..." with -1 where the gears differ."""
        return ";".join(
            f"{spec.name}:"
            + ",".join(str(dim) if isinstance(dim, int) else "-1" for dim in spec.shape)
            for spec in self.inputs
        )

    def atc_dynamic_dims(self) -> str:
        """The value of ATC's option `gear_kind`; "" for a static graph.

        For dynamic_dims: one number for each -1 of `atc_input_shape`, gears parted by ";".
        """
        if self.gear_kind == "dynamic_batch_size":
            return ",".join(str(gear[self.symbols[0]]) for gear in self.gears)
        if self.gear_kind == "dynamic_image_size":
            return ";".join(",".join(str(gear[s]) for s in self.symbols) for gear in self.gears)
        return ";".join(",".join(map(str, self._unknowns(gear))) for gear in self.gears)

    def onnx_axes(self) -> dict[str, dict[int, str]]:
        """Tensor name -> {axis: expression}; only axes that differ between gears."""
        axes = {
            spec.name: {i: dim for i, dim in enumerate(spec.shape) if isinstance(dim, str)}
            for spec in (*self.inputs, *self.outputs)
        }
        return {name: dims for name, dims in axes.items() if dims}

    def _unknowns(self, gear: Mapping[str, int]) -> list[int]:
        dims = (dim for spec in self.inputs for dim in spec.shape)
        return [evaluate(dim, gear) for dim in dims if isinstance(dim, str)]

    def _no_gear(self, wanted: Mapping[str, int]) -> str:
        for symbol, size in wanted.items():
            largest = max((gear[symbol] for gear in self.gears), default=0)
            if size > largest:
                return (
                    f"{self.name}: {symbol}={size} exceeds the largest gear {symbol}={largest};"
                    " give less, or compile with a larger gear"
                )
        asked = ", ".join(f"{symbol}={size}" for symbol, size in wanted.items())
        have = "; ".join(",".join(str(gear[s]) for s in self.symbols) for gear in self.gears)
        return (
            f"{self.name}: no gear has {asked} together (gears {','.join(self.symbols)}: {have});"
            " give less, or compile with such a gear"
        )
