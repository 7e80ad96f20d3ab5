"""execute_v2 and its options: a blocking run with a limit on how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, field

from .binding import api, code
from .execute import submit
from .machine import MACHINE
from .model import find, in_own_context
from .stream import FOREVER, resolve, run

INVALID = code("INVALID_PARAM")
STREAM_TIMEOUT, EVENT_TIMEOUT = 0, 1


@dataclass(slots=True, eq=False)
class ExecConfig:
    """Attributes of execute_v2, timeouts in ms."""

    values: dict[int, int] = field(default_factory=dict)


@api("acl.mdl.create_exec_config_handle")
def create_exec_config_handle() -> int:
    """An empty set of options."""
    return MACHINE.handles.add(ExecConfig())


@api("acl.mdl.set_exec_config_opt")
def set_exec_config_opt(handle: int, attr: int, value: int) -> int:
    """attr 0: stream timeout, 1: event timeout, in ms (-1: none)."""
    if handle == 0 or not 0 <= attr <= 7:
        return INVALID
    if attr in (STREAM_TIMEOUT, EVENT_TIMEOUT) and value < -1:
        return INVALID
    MACHINE.handles.get(handle, ExecConfig).values[attr] = value
    return 0


@api("acl.mdl.destroy_exec_config_handle")
def destroy_exec_config_handle(handle: int) -> int:
    """Destroys the options."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, ExecConfig)
    return 0


@api("acl.mdl.execute_v2", locked=False)
def execute_v2(model_id: int, inputs: int, outputs: int, stream: int, handle: int) -> int:
    """Queues on the stream and waits within the limit of the options."""
    if handle == 0:
        return INVALID
    limit = MACHINE.handles.get(handle, ExecConfig).values.get(STREAM_TIMEOUT, -1)
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    model = find(model_id)
    if isinstance(model, int):
        return model
    with MACHINE.lock:
        problem = in_own_context(model, "execute_v2") or submit(model, inputs, outputs, queue)
    if problem:
        return problem
    return run(queue, seconds=FOREVER if limit == -1 else limit / 1000)
