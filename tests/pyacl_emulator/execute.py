"""Running a model: bindings are checked and captured at the call, bytes are read when it runs."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import numpy as np

from .allocation import device_block
from .binding import api, code
from .context import current
from .dataset import DataBuffer, Dataset, TensorDesc
from .description import DTYPES, Gear, Shape, Tensor
from .machine import MACHINE
from .model import Model, find, in_own_context
from .profiler import publish
from .session import Bound, Program, program_for
from .stream import Range, Stream, Task, enqueue, require_idle, resolve, run
from .transfer import planted
from .violation import EmulatorViolation

INVALID = code("INVALID_PARAM")
MISMATCH = code("GE_PARAM_INVALID")
_SLACK = 64  # GE: an input may be up to 64 bytes short of the declared size
_ONE_AT_A_TIME = "aclmdlExecuteAsync.md: one model_id must not be executed concurrently"


@dataclass(frozen=True, slots=True)
class Bindings:
    """What one run uses: (tensor, shape, device address) of each side, and the address ranges."""

    gear: Gear | None
    inputs: list[tuple[Tensor, Shape, int]]
    outputs: list[tuple[Tensor, Shape, int]]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


def _chosen(model: Model, dataset: Dataset) -> Gear | None:
    """The gear set for this dataset; None for a model without gears."""
    description = model.description
    if not description.has_gears:
        return None
    if dataset.gear is not None and dataset.gear[0] == model.id:
        gear = dataset.gear[1]
        assert isinstance(gear, Gear)
        return gear
    if MACHINE.settings.unset_gear == "largest":
        return description.largest_gear
    raise EmulatorViolation(
        f"model {model.id} ({model.name}) is executed with no gear set for this dataset",
        "aclmdlSetInputDynamicDims.md: set the gear before execute; hardware silently takes the largest",
    )


def _input_shapes(model: Model, dataset: Dataset, gear: Gear | None) -> list[Shape] | int:
    """Shapes of the user inputs for this run, or the code."""
    description = model.description
    if gear is not None:
        return list(gear.inputs)
    if description.kind != "range":
        return [tensor.shape for tensor in description.inputs]
    shapes: list[Shape] = []
    for index, tensor in enumerate(description.inputs):
        handle = dataset.descs.get(index)
        if handle is None:
            return MACHINE.report(MISMATCH, f"E19999: input {tensor.name} has no tensor description")
        dims = tuple(MACHINE.handles.get(handle, TensorDesc).dims)
        if len(dims) != len(tensor.shape) or any(
            fixed not in (-1, dim) for fixed, dim in zip(tensor.shape, dims, strict=True)
        ):
            return MACHINE.report(MISMATCH, f"E19999: {tensor.name}: {dims} against {tensor.shape}")
        shapes.append(dims)
    return shapes


def _span(buffer: DataBuffer, need: int, what: str) -> None:
    """Checks that a buffer is alive, in device memory and really as large as it says."""
    if not buffer.live:
        raise EmulatorViolation(
            f"{what}: its data buffer was destroyed", "aclDestroyDataBuffer.md: not while in use"
        )
    block = MACHINE.memory.span(buffer.address, max(need, 0), what)
    if block.pinned:
        raise EmulatorViolation(
            f"{what} is host memory", "aclmdlExecute.md: input and output buffers are device memory"
        )


def _collect(
    side: str, tensors: tuple[Tensor, ...], shapes: list[Shape], buffers: list[DataBuffer]
) -> list[tuple[Tensor, Shape, int]] | int:
    """Pairs tensors with checked memory, or returns the code."""
    found = []
    for tensor, shape, buffer in zip(tensors, shapes, buffers, strict=False):
        need = math.prod(shape) * DTYPES[tensor.dtype][1]
        slack = _SLACK if side == "input" else 0
        if buffer.size + slack < need:
            return MACHINE.report(
                MISMATCH,
                f"E13025: {side} {tensor.name}: the buffer has {buffer.size} bytes, {need} are needed",
            )
        _span(buffer, need, f"{side} {tensor.name}")
        found.append((tensor, shape, buffer.address))
    return found


def _ranges(bound: list[tuple[Tensor, Shape, int]]) -> tuple[Range, ...]:
    return tuple((a, a + t.bytes_of(s)) for t, s, a in bound)


def bind(model: Model, inputs: int, outputs: int, *, blocking: bool) -> Bindings | int:
    """Checks two datasets against a model and captures their addresses, or returns the code."""
    if inputs == 0 or outputs == 0:
        return MACHINE.report(INVALID, "EH0002: a dataset is NULL")
    source, target = MACHINE.handles.get(inputs, Dataset), MACHINE.handles.get(outputs, Dataset)
    description = model.description
    counts = (len(source.buffers), len(target.buffers))
    if counts != (description.num_inputs, len(description.outputs)):
        return MACHINE.report(
            MISMATCH,
            f"E13025: {counts[0]} inputs and {counts[1]} outputs, the model has "
            f"{description.num_inputs} and {len(description.outputs)}",
        )
    gear = _chosen(model, source)
    shapes = _input_shapes(model, source, gear)
    if isinstance(shapes, int):
        return shapes
    bound = _collect("input", description.inputs, shapes, source.buffers)
    if isinstance(bound, int):
        return bound
    reads = _ranges(bound)
    if gear is not None:
        hidden = source.buffers[-1]
        _span(hidden, 4 * len(gear.key), "the gear's input")
        reads += ((hidden.address, hidden.address + 4 * len(gear.key)),)
    if description.kind == "range":
        return Bindings(None, bound, [], reads, ())
    fixed = list(gear.outputs) if gear else [tensor.largest for tensor in description.outputs]
    if any(buffer.address == 0 for buffer in target.buffers):
        problem = _allocate(description.outputs, fixed, target, blocking=blocking)
        if problem:
            return problem
    results = _collect("output", description.outputs, fixed, target.buffers)
    if isinstance(results, int):
        return results
    writes = _ranges(results)
    _check_alias(reads, writes)
    return Bindings(gear, bound, results, reads, writes)


def _allocate(tensors: tuple[Tensor, ...], shapes: list[Shape], target: Dataset, *,
              blocking: bool) -> int:  # fmt: skip
    """Outputs given as (0, 0) get memory that the program must free; only in a blocking execute."""
    if not blocking:
        return MACHINE.report(INVALID, "E19999: execute_async needs output memory")
    for tensor, shape, buffer in zip(tensors, shapes, target.buffers, strict=True):
        if buffer.address:
            continue
        size = tensor.bytes_of(shape)
        address, problem = device_block(size)
        if problem:
            return problem
        buffer.address, buffer.size = address, size
    return 0


def _check_alias(reads: tuple[Range, ...], writes: tuple[Range, ...]) -> None:
    if MACHINE.settings.alias == "allow":
        return
    for low, high in writes:
        if any(low < end and start < high for start, end in reads):
            raise EmulatorViolation(
                f"an output at {low:#x} lies inside an input's buffer",
                "not documented as allowed; the switch alias=violation asks for this check",
            )


def _bound(items: list[tuple[Tensor, Shape, int]], what: str) -> list[Bound]:
    memory = MACHINE.memory
    return [
        Bound(tensor.source, DTYPES[tensor.dtype][0], shape,
              memory.host_address(address, tensor.bytes_of(shape), f"{what} {tensor.name}"))
        for tensor, shape, address in items
    ]  # fmt: skip


def compute(model: Model, bindings: Bindings, nan: bool) -> int:
    """Does the arithmetic of one run on the device's bytes."""
    settings = MACHINE.settings
    key = bindings.gear.key if bindings.gear else None
    MACHINE.counters.executes[(model.name, key)] += 1
    outputs = _bound(bindings.outputs, "output")
    if settings.null_compute:
        for bound, (tensor, shape, _) in zip(outputs, bindings.outputs, strict=True):
            ctypes.memset(bound.pointer, 0, tensor.bytes_of(shape))
        return 0
    program = program_for(model.file, settings.threads)
    started = MACHINE.now()
    program.run(_bound(bindings.inputs, "input"), outputs)
    if MACHINE.recorder is not None:
        MACHINE.recorder.executed(model, bindings.gear, started, MACHINE.now())
    if MACHINE.profiling.subscribers:
        publish(model, bindings.gear, started)
    if nan:
        for bound, (tensor, shape, _) in zip(outputs, bindings.outputs, strict=True):
            if tensor.dtype in (0, 1):
                ctypes.memset(bound.pointer, 0xFF, tensor.bytes_of(shape))
    return 0


def _compute_range(model: Model, bindings: Bindings, target: Dataset) -> int:
    """A run whose output shapes are known only afterwards."""
    MACHINE.counters.executes[(model.name, None)] += 1
    program: Program = program_for(model.file, MACHINE.settings.threads)
    names = [tensor.source for tensor in model.description.outputs]
    arrays = program.run_free(_bound(bindings.inputs, "input"), names)
    for index, (tensor, array) in enumerate(zip(model.description.outputs, arrays, strict=True)):
        buffer = target.buffers[index]
        if buffer.address == 0:
            address, problem = device_block(max(array.nbytes, 1))
            if problem:
                return problem
            buffer.address, buffer.size = address, array.nbytes
        if buffer.size < array.nbytes:
            return MACHINE.report(MISMATCH, f"E13025: output {tensor.name} needs {array.nbytes}")
        _span(buffer, array.nbytes, f"output {tensor.name}")
        host = MACHINE.memory.host_address(buffer.address, array.nbytes, "output")
        array = np.ascontiguousarray(array)
        ctypes.memmove(host, array.ctypes.data, array.nbytes)
        desc = TensorDesc(tensor.dtype, tensor.format, list(array.shape), tensor.name, owned=True)
        target.descs[index] = MACHINE.handles.add(desc)
    return 0


def _take_nan() -> bool:
    fault = getattr(MACHINE.local, "next_task_fault", None)
    if fault is not None and fault.kind == "nan":
        MACHINE.local.next_task_fault = None
        return True
    return False


def _device_fault(task: Task, model: Model) -> bool:
    """Applies faults planted on `device.execute`; returns whether outputs become NaN."""
    if not MACHINE.faults.armed:
        return False
    fault = MACHINE.faults.strike("device.execute")
    if fault is None:
        return False
    if fault.kind == "nan":
        return True
    if fault.kind == "delay":
        task.delay = fault.seconds
    elif fault.kind == "hang":
        task.hang = True
    else:
        error = fault.code
        if fault.kind == "device_lost":
            model.device.lost = True
        task.run = lambda: MACHINE.report(error, "EZ9999: Inner Error! planted device fault")
    return False


def _task(model: Model, bindings: Bindings, stream: Stream) -> Task:
    nan = _take_nan()
    box = [nan]

    def work() -> int:
        return compute(model, bindings, box[0])

    task = Task(f"execute of {model.name}", work, bindings.reads, bindings.writes, owner=model)
    planted(task)
    box[0] = _device_fault(task, model) or nan
    inner = task.run

    def finish() -> int:
        try:
            return inner()
        finally:
            model.pending[stream] -= 1

    task.run = finish
    return task


def submit(model: Model, inputs: int, outputs: int, stream: Stream) -> int:
    """Checks and queues one run, or returns the code."""
    others = [s for s, count in model.pending.items() if count and s is not stream]
    if others or model.running:
        raise EmulatorViolation(
            f"model {model.id} ({model.name}) is executed while another execute of it is unfinished",
            _ONE_AT_A_TIME,
        )
    bindings = bind(model, inputs, outputs, blocking=False)
    if isinstance(bindings, int):
        return bindings
    if model.description.kind == "range":
        return MACHINE.report(code("API_NOT_SUPPORT"), "E19999: dynamic shapes run synchronously here")
    task = _task(model, bindings, stream)
    enqueue(stream, task)
    model.pending[stream] = model.pending.get(stream, 0) + 1
    return 0


@api("acl.mdl.execute_async")
def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> int:
    """Queues one run of a model."""
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    model = find(model_id)
    if isinstance(model, int):
        return model
    return in_own_context(model, "execute_async") or submit(model, inputs, outputs, queue)


@api("acl.mdl.execute", locked=False)
def execute(model_id: int, inputs: int, outputs: int) -> int:
    """One blocking run."""
    model = find(model_id)
    if isinstance(model, int):
        context = current()
        return context if isinstance(context, int) else model
    problem = in_own_context(model, "execute")
    if problem:
        return problem
    with MACHINE.lock:
        if model.running or any(model.pending.values()):
            raise EmulatorViolation(
                f"model {model.id} ({model.name}) is executed while another execute of it is "
                "unfinished", _ONE_AT_A_TIME,
            )  # fmt: skip
        bindings = bind(model, inputs, outputs, blocking=True)
        if isinstance(bindings, int):
            return bindings
        require_idle(bindings.reads, bindings.writes, f"execute of {model.name}")
        model.running += 1
    try:
        return _run_now(model, bindings, outputs)
    finally:
        model.running -= 1


def _run_now(model: Model, bindings: Bindings, outputs: int) -> int:
    if model.description.kind == "range":
        return _compute_range(model, bindings, MACHINE.handles.get(outputs, Dataset))
    private = Stream(model.context, explicit=False)
    model.pending[private] = 1
    enqueue(private, _task(model, bindings, private))
    try:
        return run(private)
    finally:
        del model.pending[private]
        MACHINE.busy.discard(private)
