"""Faults that a test plants: which call fails, when, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

# Calls that queue work on a stream: what may fail later, hang on the device, or give NaN.
TASK_CALLS = frozenset({"acl.mdl.execute", "acl.mdl.execute_async", "acl.mdl.execute_v2",
                        "acl.rt.memcpy_async"})  # fmt: skip
NAN_CALLS = TASK_CALLS - {"acl.rt.memcpy_async"}
# kind -> default code. "task" surfaces where asynchronous errors do, at the synchronise.
KINDS = {
    "error": 507899,
    "task": 507011,
    "delay": 0,
    "hang": 507014,
    "device_lost": 507010,
    "nan": 0,
    "oom": 207001,
}


@dataclass(slots=True)
class Fault:
    """One planted fault: the `nth` matching call from now and the `count - 1` after it.

    call: full name (`acl.rt.memcpy`), `*` for any call, or `device.execute` for the run of a model
    on the stream. kinds: error (the call returns `code`), task (an asynchronous error at
    synchronise), delay (`seconds`), hang (until the deadline of whoever waits), device_lost, nan
    (float outputs), oom.
    """

    call: str
    nth: int = 1
    kind: str = "error"
    code: int = 0
    seconds: float = 0.0
    count: int = 1
    seen: int = 0
    hits: int = 0


@dataclass(slots=True)
class Faults:
    """The planted faults of one machine; `armed` lets the common case skip the search."""

    planted: list[Fault] = field(default_factory=list)
    armed: bool = False

    def inject(
        self,
        call: str,
        nth: int = 1,
        kind: str = "error",
        *,
        code: int | None = None,
        seconds: float = 0.0,
        count: int = 1,
    ) -> Fault:
        """Plants a fault and returns it (its `hits` says whether it struck).

        Raises ValueError on an unknown kind, a kind that the call cannot have, or a `nth` below 1.
        """
        if kind not in KINDS:
            raise ValueError(f"fault kind {kind!r}: must be one of {', '.join(KINDS)}")
        anywhere = call in ("*", "device.execute")
        if kind == "task" and call not in TASK_CALLS and not anywhere:
            raise ValueError(f"{call} queues no work: use kind 'error'")
        if kind == "nan" and call not in NAN_CALLS and not anywhere:
            raise ValueError(
                f"{call} computes nothing: nan needs one of {', '.join(sorted(NAN_CALLS))}"
            )
        if nth < 1 or count < 1:
            raise ValueError(f"nth {nth} and count {count} must be at least 1")
        fault = Fault(call, nth, kind, KINDS[kind] if code is None else code, seconds, count)
        self.planted.append(fault)
        self.armed = True
        return fault

    def clear(self) -> None:
        """Removes every planted fault."""
        self.planted.clear()
        self.armed = False

    def strike(self, call: str) -> Fault | None:
        """The fault that strikes this call, if any; counts the call for every matching fault."""
        struck = None
        for fault in self.planted:
            if fault.call != call and not (fault.call == "*" and call.startswith("acl.")):
                continue
            fault.seen += 1
            if fault.nth <= fault.seen < fault.nth + fault.count and struck is None:
                fault.hits += 1
                struck = fault
        return struck
