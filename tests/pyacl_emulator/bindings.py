"""What one run of a model reads and writes: checked once, remembered while nothing changes.

A decode loop executes the same datasets thousands of times and rebinds a few outputs in between;
only tensors whose buffer changed are checked again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .allocation import device_block
from .binding import code
from .dataset import DataBuffer, Dataset, TensorDesc
from .description import DTYPES, MBATCH, Gear, Shape, Tensor
from .machine import MACHINE
from .memory import Block
from .model import Model
from .session import Bound
from .stream import Range
from .violation import EmulatorViolation

INVALID = code("INVALID_PARAM")
MISMATCH = code("GE_PARAM_INVALID")
_KEPT_PLANS = 64
_SLACK = 64  # GE: an input may be up to 64 bytes short of the declared size


@dataclass(slots=True, eq=False)
class Slot:
    """One tensor and the memory that it was last found bound to."""

    side: str
    tensor: Tensor
    shape: Shape
    buffer: DataBuffer
    need: int
    device: int
    address: int = -1
    size: int = -1
    block: Block | None = None
    bound: Bound | None = None

    def refresh(self) -> int:
        """Looks again at a buffer that was rebound; 0 or a code, raises on a broken rule.

        A buffer that moved inside the block where it was (a row of a cache) needs no search.
        """
        buffer, block, need = self.buffer, self.block, self.need
        address, size = buffer.address, buffer.size
        if not (
            block is not None and block.live and buffer.live and size >= need
            and block.address <= address and address + need <= block.address + block.size
        ):  # fmt: skip
            slack = _SLACK if self.side == "input" else 0
            name = f"{self.side} {self.tensor.name}"
            if size + slack < need:
                return MACHINE.report(
                    MISMATCH, f"E13025: {name}: the buffer has {size} bytes, {need} are needed"
                )
            block = span(buffer, need, name, self.device)
        self.address, self.size, self.block = address, size, block
        host = block.host + (address - block.address)
        tensor = self.tensor
        self.bound = Bound(tensor.source, DTYPES[tensor.dtype][0], self.shape, host, need)
        return 0


@dataclass(slots=True, eq=False)
class Plan:
    """The slots of one pair of datasets under one gear."""

    source: Dataset
    target: Dataset
    gear: Gear | None
    inputs: list[Slot]
    outputs: list[Slot]
    hidden: Bound | None = None
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Bindings:
    """A snapshot for one run; `hidden` is where the device finds the gear."""

    gear: Gear | None
    hidden: Bound | None
    inputs: list[Bound]
    outputs: list[Bound]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


def span(buffer: DataBuffer, need: int, what: str, device: int) -> Block:
    """The live block of a device behind a buffer that is really as large as it says."""
    if not buffer.live:
        raise EmulatorViolation(
            f"{what}: its data buffer was destroyed", "aclDestroyDataBuffer.md: not while in use"
        )
    block = MACHINE.memory.span(buffer.address, need, what)
    if block.device != device and not block.pinned:
        raise EmulatorViolation(
            f"{what} is on device {block.device}, the model on device {device}",
            "aclmdlExecute.md: memory of the device that the model was loaded on",
        )
    if block.pinned:
        raise EmulatorViolation(
            f"{what} is host memory", "aclmdlExecute.md: input and output buffers are device memory"
        )
    return block


def chosen_gear(model: Model, dataset: Dataset) -> Gear | None:
    """The gear set for this dataset; None for a model without gears."""
    description = model.description
    if not description.has_gears:
        return None
    if dataset.gear is not None and dataset.gear[0] == model.id:
        return dataset.gear[1]
    if MACHINE.settings.unset_gear == "largest":
        return description.largest_gear
    raise EmulatorViolation(
        f"model {model.id} ({model.name}) is executed with no gear set for this dataset",
        "aclmdlSetInputDynamicDims.md: set the gear first; hardware silently takes the largest",
    )


def _range_shapes(model: Model, dataset: Dataset) -> list[Shape] | int:
    """Shapes of the inputs of a range-dynamic model, or the code."""
    shapes: list[Shape] = []
    for index, tensor in enumerate(model.description.inputs):
        handle = dataset.descs.get(index)
        if handle is None:
            return MACHINE.report(
                MISMATCH, f"E19999: input {tensor.name} has no tensor description"
            )
        dims = tuple(MACHINE.handles.get(handle, TensorDesc).dims)
        if len(dims) != len(tensor.shape) or any(
            fixed not in (-1, dim) for fixed, dim in zip(tensor.shape, dims, strict=True)
        ):
            return MACHINE.report(MISMATCH, f"E19999: {tensor.name}: {dims} against {tensor.shape}")
        shapes.append(dims)
    return shapes


def _slots(side: str, tensors: tuple[Tensor, ...], shapes: list[Shape],
           buffers: list[DataBuffer], device: int) -> list[Slot]:  # fmt: skip
    return [
        Slot(side, tensor, shape, buffer, math.prod(shape) * DTYPES[tensor.dtype][1], device)
        for tensor, shape, buffer in zip(tensors, shapes, buffers, strict=False)
    ]


def _counts(model: Model, source: Dataset, target: Dataset) -> int:
    description = model.description
    counts = (len(source.buffers), len(target.buffers))
    if counts == (description.num_inputs, len(description.outputs)):
        return 0
    return MACHINE.report(
        MISMATCH,
        f"E13025: {counts[0]} inputs and {counts[1]} outputs, the model has "
        f"{description.num_inputs} and {len(description.outputs)}",
    )


def _plan(model: Model, source: Dataset, target: Dataset, gear: Gear | None) -> Plan | int:
    """The remembered plan of this pair under this gear, or a new one, or the code."""
    key = (id(source), id(target), gear.key if gear else ())
    plan = model.plans.get(key)
    if (
        isinstance(plan, Plan) and plan.source is source and plan.target is target
        and len(plan.inputs) == len(source.buffers) - (gear is not None)
        and len(plan.outputs) == len(target.buffers)
    ):  # fmt: skip
        return plan
    problem = _counts(model, source, target)
    if problem:
        return problem
    description = model.description
    shapes = list(gear.inputs) if gear else [tensor.shape for tensor in description.inputs]
    results = list(gear.outputs) if gear else [tensor.largest for tensor in description.outputs]
    device = model.device.index
    plan = Plan(
        source, target, gear,
        _slots("input", description.inputs, shapes, source.buffers, device),
        _slots("output", description.outputs, results, target.buffers, device),
    )  # fmt: skip
    if len(model.plans) >= _KEPT_PLANS:  # a program that makes datasets per call must not pile up
        model.plans.clear()
    model.plans[key] = plan
    return plan


def _refresh(slots: list[Slot]) -> tuple[bool, int]:
    """(whether anything changed, code) after looking at what was rebound or freed."""
    changed = False
    for slot in slots:
        buffer, block = slot.buffer, slot.block
        if (
            block is not None and slot.address == buffer.address and slot.size == buffer.size
            and block.live and buffer.live
        ):  # fmt: skip
            continue
        problem = slot.refresh()
        if problem:
            return True, problem
        changed = True
    return changed, 0


def _ranges(slots: list[Slot]) -> tuple[Range, ...]:
    return tuple([(slot.address, slot.address + slot.need) for slot in slots])


def _hidden(plan: Plan, device: int) -> Bound:
    """The gear's input, as wide as set_dynamic_* wrote it."""
    assert plan.gear is not None
    buffer, numbers = plan.source.buffers[-1], len(plan.gear.key)
    kind, item = ("uint64", 8) if buffer.size >= 8 * numbers else ("uint32", 4)
    need = item * numbers
    block = span(buffer, need, "the gear's input", device)
    host = block.host + (buffer.address - block.address)
    return Bound(MBATCH, kind, (numbers,), host, need)


def bind(model: Model, inputs: int, outputs: int, *, blocking: bool) -> Bindings | int:
    """Checks two datasets against a model and captures their memory, or returns the code."""
    if inputs == 0 or outputs == 0:
        return MACHINE.report(INVALID, "EH0002: a dataset is NULL")
    source, target = MACHINE.handles.get(inputs, Dataset), MACHINE.handles.get(outputs, Dataset)
    plan = _plan(model, source, target, chosen_gear(model, source))
    if isinstance(plan, int):
        return plan
    if any(slot.buffer.address == 0 for slot in plan.outputs):
        problem = _allocate(plan.outputs, blocking=blocking)
        if problem:
            return problem
    read, problem = _refresh(plan.inputs)
    if problem:
        return problem
    written, problem = _refresh(plan.outputs)
    if problem:
        return problem
    hidden = None if plan.gear is None else _hidden(plan, model.device.index)
    if read or not plan.reads or hidden != plan.hidden:
        plan.hidden = hidden
        plan.reads = _ranges(plan.inputs)
        if hidden is not None:
            start = source.buffers[-1].address
            plan.reads += ((start, start + hidden.nbytes),)
    if written or not plan.writes:
        plan.writes = _ranges(plan.outputs)
    if MACHINE.settings.alias != "allow":
        _check_alias(plan.reads, plan.writes)
    sources = [slot.bound for slot in plan.inputs if slot.bound]
    results = [slot.bound for slot in plan.outputs if slot.bound]
    return Bindings(plan.gear, hidden, sources, results, plan.reads, plan.writes)


def bind_range(model: Model, inputs: int, outputs: int) -> tuple[Bindings, Dataset] | int:
    """As `bind` for a range-dynamic model: inputs only, outputs come with their shapes."""
    if inputs == 0 or outputs == 0:
        return MACHINE.report(INVALID, "EH0002: a dataset is NULL")
    source, target = MACHINE.handles.get(inputs, Dataset), MACHINE.handles.get(outputs, Dataset)
    shapes = _counts(model, source, target) or _range_shapes(model, source)
    if isinstance(shapes, int):
        return shapes
    tensors, device = model.description.inputs, model.device.index
    slots = _slots("input", tensors, shapes, source.buffers, device)
    _, problem = _refresh(slots)
    if problem:
        return problem
    bound = [slot.bound for slot in slots if slot.bound]
    return Bindings(None, None, bound, [], _ranges(slots), ()), target


def _allocate(slots: list[Slot], *, blocking: bool) -> int:
    """Outputs given as (0, 0) get memory that the program must free; only in a blocking execute."""
    if not blocking:
        return MACHINE.report(INVALID, "E19999: execute_async needs output memory")
    for slot in slots:
        if slot.buffer.address:
            continue
        address, problem = device_block(slot.need)
        if problem:
            return problem
        slot.buffer.address, slot.buffer.size = address, slot.need
    return 0


def _check_alias(reads: tuple[Range, ...], writes: tuple[Range, ...]) -> None:
    for low, high in writes:
        if any(low < end and start < high for start, end in reads):
            raise EmulatorViolation(
                f"an output at {low:#x} lies inside an input's buffer",
                "not documented as allowed; the switch alias=violation asks for this check",
            )
