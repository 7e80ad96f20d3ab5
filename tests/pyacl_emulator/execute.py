"""Running a model: bindings are checked and captured at the call, bytes are read when it runs."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from .allocation import device_block
from .binding import api, code
from .bindings import MISMATCH, Bindings, bind, bind_range, span
from .context import current
from .dataset import Dataset, TensorDesc
from .machine import MACHINE
from .model import Model, find, in_own_context
from .prof_subscribe import publish
from .stream import Stream, Task, enqueue, require_idle, resolve, run
from .transfer import planted
from .violation import EmulatorViolation

_ONE_AT_A_TIME = "aclmdlExecuteAsync.md: one model_id must not be executed concurrently"
_LARGE = 64 << 10  # null_compute zeroes an output of this size once, not at every run
_FLOATS = ("float32", "float16")


def compute(model: Model, bindings: Bindings, nan: bool) -> int:
    """Does the arithmetic of one run on the device's bytes."""
    settings = MACHINE.settings
    key = bindings.gear.key if bindings.gear else None
    MACHINE.counters.executes[(model.name, key)] += 1
    _check_gear(bindings)
    if settings.null_compute:
        for bound in bindings.outputs:
            place = (bound.pointer, bound.nbytes)
            if bound.nbytes < _LARGE or model.zeroed.get(bound.name) != place:
                ctypes.memset(bound.pointer, 0, bound.nbytes)
                model.zeroed[bound.name] = place
        return 0
    program = model.program(settings.threads)
    started = MACHINE.now()
    program.run(bindings.inputs, bindings.outputs)
    if MACHINE.recorder is not None:
        MACHINE.recorder.executed(model, bindings.gear, started, MACHINE.now())
    if MACHINE.profiling.subscribers:
        publish(model, bindings.gear, started)
    if nan:
        for bound in bindings.outputs:
            if bound.dtype in _FLOATS:
                ctypes.memset(bound.pointer, 0xFF, bound.nbytes)
    return 0


def _check_gear(bindings: Bindings) -> None:
    """The gear is what lies in the device's buffer when the run starts."""
    hidden, gear = bindings.hidden, bindings.gear
    if hidden is None or gear is None:
        return
    letter = "Q" if hidden.dtype == "uint64" else "I"
    data = ctypes.string_at(hidden.pointer, hidden.nbytes)
    found = struct.unpack(f"<{len(gear.key)}{letter}", data)
    if found != gear.key and MACHINE.settings.unset_gear == "violation":
        raise EmulatorViolation(
            f"the gear's buffer holds {found}, the gear set for this dataset is {gear.key}",
            "aclmdlSetInputDynamicDims.md: the gear is transported in the input's device buffer",
        )


def _compute_range(model: Model, bindings: Bindings, target: Dataset) -> int:
    """A run whose output shapes are known only afterwards."""
    MACHINE.counters.executes[(model.name, None)] += 1
    program = model.program(MACHINE.settings.threads)
    names = [tensor.source for tensor in model.description.outputs]
    arrays = program.run_free(bindings.inputs, names)
    for index, (tensor, array) in enumerate(zip(model.description.outputs, arrays, strict=True)):
        buffer = target.buffers[index]
        if buffer.address == 0:
            address, problem = device_block(max(array.nbytes, 1))
            if problem:
                return problem
            buffer.address, buffer.size = address, array.nbytes
        if buffer.size < array.nbytes:
            return MACHINE.report(MISMATCH, f"E13025: output {tensor.name} needs {array.nbytes}")
        block = span(buffer, array.nbytes, f"output {tensor.name}", model.device.index)
        array = np.ascontiguousarray(array)
        host = block.host + (buffer.address - block.address)
        ctypes.memmove(host, array.ctypes.data, array.nbytes)
        desc = TensorDesc(tensor.dtype, tensor.format, list(array.shape), tensor.name, owned=True)
        old = target.descs.get(index)
        if old is not None and type(MACHINE.handles.live.get(old)) is TensorDesc:
            if MACHINE.handles.live[old].owned:
                del MACHINE.handles.live[old]
        target.descs[index] = MACHINE.handles.add(desc)
    return 0


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
        error, lost = fault.code, fault.kind == "device_lost"

        def fail() -> int:
            model.device.lost = model.device.lost or lost
            return MACHINE.report(error, "EZ9999: Inner Error! planted device fault")

        task.run = fail
    return False


def _task(model: Model, bindings: Bindings, stream: Stream) -> Task:
    """The queued form of one run, with whatever fault was planted for it."""
    nan = planted_nan()
    poisoned = [nan]

    def work() -> int:
        return compute(model, bindings, poisoned[0])

    task = Task(f"execute of {model.name}", work, bindings.reads, bindings.writes)
    planted(task)
    poisoned[0] = _device_fault(task, model) or nan
    inner = task.run

    def done() -> None:
        model.pending[stream] -= 1

    def finish() -> int:
        try:
            return inner()
        finally:
            done()

    task.run, task.dropped = finish, done
    return task


def planted_nan() -> bool:
    """True when the call that runs now drew a NaN fault."""
    fault = getattr(MACHINE.local, "next_task_fault", None)
    if fault is not None and fault.kind == "nan":
        MACHINE.local.next_task_fault = None
        return True
    return False


def _require_alone(model: Model, stream: Stream | None) -> None:
    others = any(count and other is not stream for other, count in model.pending.items())
    if others or model.running:
        raise EmulatorViolation(
            f"model {model.id} ({model.name}): another execute of it is unfinished",
            _ONE_AT_A_TIME,
        )


def submit(model: Model, inputs: int, outputs: int, stream: Stream) -> int:
    """Checks and queues one run, or returns the code."""
    _require_alone(model, stream)
    if model.description.kind == "range":
        return MACHINE.report(
            code("API_NOT_SUPPORT"), "E19999: dynamic shapes run synchronously here"
        )
    bindings = bind(model, inputs, outputs, blocking=False)
    if isinstance(bindings, int):
        return bindings
    enqueue(stream, _task(model, bindings, stream))
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
    context = current()
    if isinstance(context, int):
        return context
    model = find(model_id)
    if isinstance(model, int):
        return model
    problem = in_own_context(model, "execute")
    if problem:
        return problem
    if model.description.kind == "range":
        found = bind_range(model, inputs, outputs)
        return found if isinstance(found, int) else _compute_range(model, *found)
    with MACHINE.lock:
        _require_alone(model, None)
        bindings = bind(model, inputs, outputs, blocking=True)
        if isinstance(bindings, int):
            return bindings
        require_idle(bindings.reads, bindings.writes, f"execute of {model.name}")
        model.running += 1
    try:
        return _run_now(model, bindings)
    finally:
        model.running -= 1


def _run_now(model: Model, bindings: Bindings) -> int:
    private = Stream(model.context, explicit=False)
    model.pending[private] = 1
    enqueue(private, _task(model, bindings, private))
    try:
        return run(private)
    finally:
        del model.pending[private]
        MACHINE.busy.discard(private)
