"""Turns the table of signatures into functions that behave like those of the C extension.

Every function is METH_VARARGS: positional only, arity and types checked by the parser, plain Python
results. The table `api.json` decides names, argument order and return order; an implementation that
the table does not name cannot be registered, and a name without implementation does not exist.
"""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from .faults import NAN_CALLS, TASK_CALLS, Fault
from .machine import FRESH, MACHINE, READY
from .violation import EmulatorViolation

TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "api.json").read_text())
SIGNATURES: dict[str, dict[str, Any]] = TABLE["functions"]
CODES: dict[str, int] = TABLE["codes"]
SUBMODULES = ("rt", "mdl", "op", "media", "himpi", "blas", "fv", "util", "prof")
F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: dict[str, Callable[..., Any]] = {}

_INTS = frozenset({int})
_EXACT = {"int": int, "str": str, "float": float, "list": list, "dict": dict}
_EMPTY: dict[str, Any] = {"int": 0, "float": 0.0, "str": "", "dict": {}, "list": [], "None": None}
# Functions that work before acl.init (Ray and clients call them so) or that touch no runtime.
_ALWAYS = (
    "acl.init", "acl.finalize", "acl.finalize_reference", "acl.get_version", "acl.get_soc_name",
    "acl.get_recent_err_msg", "acl.app_log", "acl.data_type_size", "acl.float", "acl.rt.get_device",
    "acl.rt.get_run_mode", "acl.util.",
)  # fmt: skip


def code(name: str) -> int:
    """The number of an error code, by its symbol without the prefix ACL_ERROR_."""
    return CODES["ACL_ERROR_" + name]


def _parse(value: object, kind: str, name: str) -> object:
    """One argument as the C parser would take it. Raises TypeError or ValueError."""
    exact = _EXACT.get(kind)
    if exact is not None and isinstance(value, exact):
        return value
    if kind == "int" and not isinstance(value, (str, float)):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    accepted = (
        kind == "object"
        or (kind == "callable" and callable(value))
        or (kind == "callable|None" and (value is None or callable(value)))
        or (kind == "int|str" and isinstance(value, (int, str)))
        or (kind == "float" and isinstance(value, int))
    )
    if accepted:
        return value
    if kind == "bytes":
        if isinstance(value, bytes):
            return value
        raise ValueError(f"{name} needs an byte as argument")
    if kind == "ndarray":
        if isinstance(value, np.ndarray):
            return value
        raise ValueError(f"{name} needs an ndarray as argument")
    if kind == "tuple":
        if isinstance(value, tuple):
            return value
        raise ValueError(f"{name} needs a tuple as shape")
    raise TypeError(f"{name} args parse failed")


def _parse_all(args: tuple[Any, ...], kinds: list[str], optional: int, name: str) -> list[Any]:
    if not len(kinds) - optional <= len(args) <= len(kinds):
        raise TypeError(f"{name} args parse failed")
    return [_parse(value, kind, name) for value, kind in zip(args, kinds, strict=False)]


def failure(name: str, error: int) -> Any:
    """What a function returns when it fails: zeros and empties in its order, then the code."""
    values = [error if kind == "ret" else _EMPTY.get(kind) for kind in SIGNATURES[name]["returns"]]
    return values[0] if len(values) == 1 else tuple(values)


def _hang(name: str, args: tuple[Any, ...]) -> int:
    """Waits as long as the caller allows, or until the device's watchdog; returns the code."""
    if (
        name.endswith("_with_timeout")
        and args
        and 0 < args[-1] / 1000 < MACHINE.settings.hang_limit_s
    ):
        MACHINE.wait(args[-1] / 1000)
        event = name == "acl.rt.synchronize_event_with_timeout"
        return code("RT_EVENT_SYNC_TIMEOUT" if event else "RT_STREAM_SYNC_TIMEOUT")
    MACHINE.wait(MACHINE.settings.hang_limit_s)
    return code("RT_AICORE_TIMEOUT")


def _apply_fault(name: str, fault: Fault, args: tuple[Any, ...]) -> Any:
    """Acts on a struck fault before the call; returns NotImplemented when the call goes on."""
    text = f"EE9999: planted fault {fault.kind} at {name}"
    if fault.kind == "delay":
        MACHINE.wait(fault.seconds)
        return NotImplemented
    if fault.kind == "nan" and name not in NAN_CALLS:
        return NotImplemented
    if fault.kind in ("nan", "task", "hang") and name in TASK_CALLS:
        MACHINE.local.next_task_fault = fault
        return NotImplemented
    if fault.kind == "hang":
        return failure(name, MACHINE.report(_hang(name, args), text))
    if fault.kind == "device_lost":
        context = MACHINE.context()
        for device in [context.device] if context else MACHINE.devices.values():
            device.lost = True
    return failure(name, MACHINE.report(fault.code, text))


def _check_phase(name: str) -> None:
    raise EmulatorViolation(
        f"{name} called {MACHINE.phase}",
        "function-init.md: acl.init comes first; after acl.finalize no acl call is legal",
    )


def _guarded(name: str, implementation: F, locked: bool) -> Callable[[tuple[Any, ...]], Any]:
    """The implementation behind the lifecycle check, the planted faults and the lock."""
    always = name.startswith(_ALWAYS)

    def run(args: tuple[Any, ...]) -> Any:
        try:
            if not always and MACHINE.phase is not READY:
                _check_phase(name)
            if MACHINE.faults.armed:
                MACHINE.local.next_task_fault = None
                fault = MACHINE.faults.strike(name)
                result = NotImplemented if fault is None else _apply_fault(name, fault, args)
                if result is not NotImplemented:
                    return result
            if not locked:
                return implementation(*args)
            with MACHINE.lock:
                return implementation(*args)
        except EmulatorViolation as violation:
            MACHINE.violations.append(violation)
            raise

    return run


def _callable(name: str, run: Callable[[tuple[Any, ...]], Any]) -> Callable[..., Any]:
    """The function that programs see: it parses arguments, counts, and times."""
    signature = SIGNATURES[name]
    kinds: list[str] = signature["args"]
    optional: int = signature["optional"]
    simple = all(kind == "int" for kind in kinds) and not optional
    arity = len(kinds)

    def call(*args: Any, **keywords: Any) -> Any:
        if keywords:
            raise TypeError(f"{name}() takes no keyword arguments")
        start = perf_counter_ns()
        if not arity:
            args = ()
        elif not simple or len(args) != arity or not _INTS.issuperset(map(type, args)):
            args = tuple(_parse_all(args, kinds, optional, name))
        counters = MACHINE.counters
        counters.calls[name] += 1
        try:
            if MACHINE.recorder is not None:
                return MACHINE.recorder.timed(name, run, args)
            return run(args)
        finally:
            counters.inside_ns += perf_counter_ns() - start

    call.__name__ = name.rsplit(".", 1)[1]
    call.__qualname__ = name
    return call


def api(name: str, *, locked: bool = True) -> Callable[[F], F]:
    """Registers the implementation of one documented function.

    locked: hold the machine's lock, as the real function holds the interpreter lock.
    """
    locked = locked and not SIGNATURES[name].get("releases_gil", False)

    def register(implementation: F) -> F:
        FUNCTIONS[name] = _callable(name, _guarded(name, implementation, locked))
        FUNCTIONS[name].__doc__ = implementation.__doc__
        return implementation

    return register


def publish(root: ModuleType) -> dict[str, ModuleType]:
    """Puts the registered functions on `acl` and its sub-modules; returns the sub-modules."""
    modules = {part: ModuleType(f"acl.{part}") for part in SUBMODULES}
    for name, function in FUNCTIONS.items():
        path = name.split(".")
        setattr(root if len(path) == 2 else modules[path[1]], path[-1], function)
    for part, module in modules.items():
        setattr(root, part, module)
    return modules


def thread_id() -> int:
    """The pthread id of the caller, as acl.util.start_thread returns it."""
    return threading.get_ident()


__all__ = ["CODES", "FRESH", "FUNCTIONS", "SIGNATURES", "SUBMODULES", "api", "code", "failure",
           "publish", "thread_id"]  # fmt: skip
