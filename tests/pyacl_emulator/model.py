"""Loading and unloading: a model belongs to the context that loaded it and takes device memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

from . import om
from .allocation import device_block
from .binding import api, code
from .context import Context, Device, current
from .description import Description, Gear, parse_description
from .machine import MACHINE
from .memory import Block
from .session import Program, program_for
from .violation import EmulatorViolation

BAD_PATH = code("GE_EXEC_MODEL_PATH_INVALID")
BAD_DATA = code("GE_EXEC_MODEL_DATA_SIZE_INVALID")
BAD_ID = code("GE_EXEC_MODEL_ID_INVALID")
INVALID = code("INVALID_PARAM")


@dataclass(slots=True, eq=False)
class Model:
    """A loaded model. `gear` is the one set last; `pending` its queued runs by stream."""

    id: int
    file: om.OmFile
    description: Description
    context: Context
    blocks: list[Block] = field(default_factory=list)
    gear: Gear | None = None
    live: bool = True
    pending: dict[object, int] = field(default_factory=dict)
    running: int = 0
    bundle: int = 0
    zeroed: dict[str, tuple[int, int]] = field(default_factory=dict)
    plans: dict[tuple[object, ...], object] = field(default_factory=dict)
    held: Program | None = None

    def program(self, threads: int) -> Program:
        """What computes it, made at the first run and kept until the model is unloaded."""
        if self.held is None or self.held.threads != threads:
            self.held = program_for(self.file, threads)
        return self.held

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def device(self) -> Device:
        return self.context.device


def forget(model: Model) -> None:
    """Drops a model and its device memory."""
    model.live = False
    model.held = None
    MACHINE.models.pop(model.id, None)
    for block in model.blocks:
        if block.live:
            MACHINE.memory.free(block)


def find(model_id: int) -> Model | int:
    """A model by id, or 145003."""
    model = MACHINE.models.get(model_id)
    if model is None:
        return MACHINE.report(BAD_ID, f"E19999: model id {model_id} is not loaded")
    return model


def in_own_context(model: Model, what: str) -> int:
    """0, or the code of a thread without context; another context is a violation."""
    context = current()
    if isinstance(context, int):
        return context
    if context is not model.context:
        raise EmulatorViolation(
            f"{what} of model {model.id} in another context than it was loaded in",
            "aclmdlExecute.md: load, execute and unload in the same context",
        )
    return 0


def read_file(path: str) -> om.OmFile | int:
    """A container from disk, or the code."""
    try:
        return om.read(path)
    except OSError as error:
        return MACHINE.report(BAD_PATH, f"E13000: Path[{path}] is invalid: {error.strerror}")
    except om.OmError as error:
        return MACHINE.report(BAD_DATA, f"E10001: [{path}] Invalid om file. {error}")


def read_memory(address: int, size: int, what: str) -> om.OmFile | int:
    """A container from host memory (EP) or from device or host memory (RC); copies it."""
    if address == 0 or size == 0:
        return MACHINE.report(INVALID, f"EH0002: {what}: null model pointer or size 0")
    memory = MACHINE.memory
    if not memory.rc and memory.is_device_address(address):
        raise EmulatorViolation(
            f"{what} with a device pointer in EP form",
            "aclmdlLoadFromMem.md: EP form wants host memory, RC form device memory",
        )
    source = memory.host_address(address, size, what)
    try:
        return om.parse(ctypes.string_at(source, size), (address, size, hash(source), -1))
    except om.OmError as error:
        return MACHINE.report(BAD_DATA, f"E10001: Invalid om file. {error}")


def _supported(description: Description) -> bool:
    return description.soc == MACHINE.settings.soc


def _take(model: Model, work: tuple[int, int] | None, weight: tuple[int, int] | None) -> int:
    """Allocates or checks the work and weight memory of a model."""
    wanted = (
        ("work", model.description.work_size, work),
        ("weights", model.description.weight_size, weight),
    )
    for purpose, size, given in wanted:
        if given is not None and given[0]:
            if given[1] < size:
                return MACHINE.report(
                    code("GE_PARAM_INVALID"), f"E19999: {purpose} needs {size}, got {given[1]}"
                )
            MACHINE.memory.span(given[0], size, f"load: {purpose} memory")
            continue
        if size == 0:
            continue
        address, problem = device_block(size, purpose=purpose)
        if problem:
            return (
                code("GE_MEMORY_ALLOCATION") if problem == code("RT_MEMORY_ALLOCATION") else problem
            )
        model.blocks.append(MACHINE.memory.blocks[address])
    return 0


def load(
    file: om.OmFile | int,
    work: tuple[int, int] | None = None,
    weight: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """(model id, 0) for a container, or (0, code) with nothing kept."""
    context = current()
    if isinstance(context, int):
        return 0, context
    if isinstance(file, int):
        return 0, file
    description = parse_description(file.description)
    if not _supported(description):
        return 0, MACHINE.report(
            code("GE_FAILURE"),
            f"E10001: Value [{description.soc}] for parameter [soc_version] is invalid. Reason: "
            f"Model soc version is not support in this device. (device: {MACHINE.settings.soc})",
        )
    model = Model(MACHINE.next_model_id, file, description, context)
    problem = _take(model, work, weight)
    if problem:
        forget(model)
        return 0, problem
    MACHINE.next_model_id += 1
    MACHINE.models[model.id] = model
    return model.id, 0


@api("acl.mdl.load_from_file")
def load_from_file(path: str) -> tuple[int, int]:
    """Loads an .om; the library takes its own memory."""
    return load(read_file(path))


@api("acl.mdl.load_from_mem")
def load_from_mem(address: int, size: int) -> tuple[int, int]:
    """Loads from memory, which may be freed afterwards."""
    return load(read_memory(address, size, "load_from_mem"))


@api("acl.mdl.load_from_file_with_mem")
def load_from_file_with_mem(
    path: str, work: int, work_size: int, weight: int, weight_size: int
) -> tuple[int, int]:
    """Loads with work and weight memory of the caller (0: of the library)."""
    return load(read_file(path), (work, work_size), (weight, weight_size))


@api("acl.mdl.load_from_mem_with_mem")
def load_from_mem_with_mem(
    address: int, size: int, work: int, work_size: int, weight: int, weight_size: int
) -> tuple[int, int]:
    """Both together."""
    file = read_memory(address, size, "load_from_mem_with_mem")
    return load(file, (work, work_size), (weight, weight_size))


@api("acl.mdl.unload")
def unload(model_id: int) -> int:
    """Unloads; nothing of the model may still be queued."""
    model = find(model_id)
    if isinstance(model, int):
        return model
    if model.bundle:
        return MACHINE.report(INVALID, "E19999: the model belongs to a bundle")
    if any(model.pending.values()):
        raise EmulatorViolation(
            f"model {model_id} is unloaded while its execute is unfinished: synchronise first",
            "aclmdlUnload.md: all tasks of the model must be finished",
        )
    context = MACHINE.context()
    if context is None:
        return MACHINE.report(code("RT_CONTEXT_NULL"), "EE1001: no context")
    if not model.device.lost:
        in_own_context(model, "unload")
    forget(model)
    return 0


def _sizes(file: om.OmFile | int) -> tuple[int, int, int]:
    if isinstance(file, int):
        return 0, 0, file
    description = parse_description(file.description)
    return description.work_size, description.weight_size, 0


@api("acl.mdl.query_size")
def query_size(path: str) -> tuple[int, int, int]:
    """(work bytes, weight bytes, code)."""
    return _sizes(read_file(path))


@api("acl.mdl.query_size_from_mem")
def query_size_from_mem(address: int, size: int) -> tuple[int, int, int]:
    """(work bytes, weight bytes, code)."""
    return _sizes(read_memory(address, size, "query_size_from_mem"))


@dataclass(slots=True, eq=False)
class ConfigHandle:
    """Attributes for load_with_config."""

    values: dict[int, int | str] = field(default_factory=dict)


@api("acl.mdl.create_config_handle")
def create_config_handle() -> int:
    """An empty set of load attributes."""
    return MACHINE.handles.add(ConfigHandle())


@api("acl.mdl.set_config_opt")
def set_config_opt(handle: int, attr: int, value: int | str) -> int:
    """attr 2 (path) takes a str, every other an int."""
    if handle == 0 or not 0 <= attr <= 22:
        return INVALID
    if isinstance(value, str) != (attr == 2):
        raise TypeError("acl.mdl.set_config_opt args parse failed")
    MACHINE.handles.get(handle, ConfigHandle).values[attr] = value
    return 0


@api("acl.mdl.destroy_config_handle")
def destroy_config_handle(handle: int) -> int:
    """Destroys the set."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, ConfigHandle)
    return 0


_LOAD_NEEDS = {1: (2,), 2: (2,), 3: (3, 4), 4: (3, 4)}


@api("acl.mdl.load_with_config")
def load_with_config(handle: int) -> tuple[int, int]:
    """Loads as the attributes say: type 1 file, 3 memory; 2 and 4 the same with user memory."""
    if handle == 0:
        return 0, INVALID
    values = MACHINE.handles.get(handle, ConfigHandle).values
    kind = values.get(1)
    if kind not in _LOAD_NEEDS or any(attr not in values for attr in _LOAD_NEEDS[kind]):
        return 0, MACHINE.report(
            INVALID, "EH0001: load type or an attribute that it needs is missing"
        )
    if kind in (1, 2):
        file = read_file(str(values[2]))
    else:
        file = read_memory(int(values[3]), int(values[4]), "load_with_config")
    work = (int(values.get(7, 0)), int(values.get(8, 0)))
    weight = (int(values.get(5, 0)), int(values.get(6, 0)))
    return load(file, work, weight) if kind in (2, 4) else load(file)
