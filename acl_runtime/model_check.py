"""Is a loaded model the one that its contract describes? Names, dtypes, shapes and gears, one by
one.

A model that only nearly fits computes nonsense without an error, so nothing is let through.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acl_runtime.binding import Binding
from acl_runtime.device import let_go
from acl_runtime.errors import BundleRefused
from atc_configs.contract import GraphSpec, TensorSpec

# The hidden last input of a model with gears; ACL writes the chosen gear into its device buffer
# (ATC user guide, --dynamic_dims).
GEAR_INPUT = "ascend_mbatch_shape_data"

# aclDataType -> numpy, those that contracts use (aclDataType of the ACL headers).
DTYPES = {0: "float32", 1: "float16", 3: "int32", 4: "uint8", 9: "int64"}


def check_model(binding: Binding, model: int, spec: GraphSpec, precision: str, path: Path) -> int:
    """Bytes of the gear input of a model that fits its contract (0: the model has no gears).

    Raises BundleRefused naming the first thing that does not fit, and the remedy.
    """
    desc = int(binding.mdl.create_desc())
    try:
        binding.mdl.get_desc(desc, model)
        found = _Model(binding.mdl, desc)
        problem = _first_problem(found, spec, precision)
        if problem:
            raise BundleRefused(
                f"{path}: {problem}; it was compiled from another contract: compile it again"
                " with `hyocr compile`"
            )
        return found.gear_bytes if spec.symbols else 0
    finally:
        let_go(binding.mdl.destroy_desc, desc)


class _Model:
    """What a model says about itself."""

    def __init__(self, mdl: Any, desc: int) -> None:
        self._mdl, self._desc = mdl, desc
        self.num_inputs = int(mdl.get_num_inputs(desc))
        self.num_outputs = int(mdl.get_num_outputs(desc))

        last = self.num_inputs - 1
        self.gear_bytes = int(mdl.get_input_size_by_index(desc, last)) if last >= 0 else 0

    def input(self, index: int) -> tuple[str, str, list[int]]:
        """(name, dtype, dims with -1 where gears differ)."""
        dims = self._mdl.get_input_dims(self._desc, index)
        code = self._mdl.get_input_data_type(self._desc, index)
        return dims["name"], DTYPES.get(code, f"aclDataType {code}"), list(dims["dims"])

    def output(self, index: int) -> tuple[str, str]:
        """(name without the "node:index:" before it, dtype)."""
        name = str(self._mdl.get_output_name_by_index(self._desc, index))
        code = self._mdl.get_output_data_type(self._desc, index)
        return name.split(":")[-1], DTYPES.get(code, f"aclDataType {code}")

    def gears(self, spec: GraphSpec) -> list[list[int]]:
        """The compiled gears in the numbers that the setting call takes."""
        if spec.gear_kind == "dynamic_batch_size":
            return [[size] for size in self._mdl.get_dynamic_batch(self._desc)["batch"]]
        if spec.gear_kind == "dynamic_image_size":
            return [list(hw) for hw in self._mdl.get_dynamic_hw(self._desc, -1)["hw"]]
        count = self._mdl.get_input_dynamic_gear_count(self._desc, -1)
        rows = self._mdl.get_input_dynamic_dims(self._desc, -1, count)
        return [list(row["dims"]) for row in rows]


def _first_problem(model: _Model, spec: GraphSpec, precision: str) -> str | None:
    wanted = len(spec.inputs) + bool(spec.symbols)
    if (model.num_inputs, model.num_outputs) != (wanted, len(spec.outputs)):
        return (
            f"{model.num_inputs} inputs and {model.num_outputs} outputs, the contract of"
            f" {spec.name} has {wanted} (with the gear's) and {len(spec.outputs)}"
        )
    for index, tensor in enumerate(spec.inputs):
        expected = (tensor.name, tensor.dtype_in(precision), _dims(tensor))
        if model.input(index) != expected:
            return f"input {index} is {model.input(index)}, the contract says {expected}"
    for index, tensor in enumerate(spec.outputs):
        name, dtype = model.output(index)
        # Older ATC names outputs output_<i>_<node>_<i>; only the others can be compared.
        if dtype != tensor.dtype_in(precision) or not (
            name == tensor.name or name.startswith("output_")
        ):
            return f"output {index} is {name} {dtype}, the contract says {tensor.name}"
    return _gear_problem(model, spec)


def _gear_problem(model: _Model, spec: GraphSpec) -> str | None:
    if not spec.symbols:
        return None
    name = model.input(len(spec.inputs))[0]
    if name != GEAR_INPUT or not model.gear_bytes:
        return f"the last input is {name}, not {GEAR_INPUT}: it was compiled without gears"
    if spec.gear_kind == "dynamic_dims":
        wanted = [spec.dynamic_dims(gear) for gear in spec.gears]
    else:
        wanted = [[gear[symbol] for symbol in spec.symbols] for gear in spec.gears]
    have = model.gears(spec)
    if sorted(have) != sorted(wanted):
        lacking = [gear for gear in wanted if gear not in have][:1] or "none"
        return f"{len(have)} gears instead of {len(wanted)} (lacking, for one: {lacking})"
    return None


def _dims(tensor: TensorSpec) -> list[int]:
    return [dim if isinstance(dim, int) else -1 for dim in tensor.shape]
