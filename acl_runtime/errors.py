"""Every error of the NPU runtime; a failed vendor call says its code's symbol, cause and next step.

AclError
├── AclUnavailable     no pyACL module, no driver, no such device
├── BundleRefused      the compiled files do not belong to this chip, this release or this contract
├── GraphInputError    an input has the wrong name, shape or dtype, or fits no gear
├── CacheFull          a sequence would outgrow its key/value cache
├── EngineClosed       used after close, or an array of an engine that was closed
├── EngineDegraded     used after a device fault, before it was reopened
├── NumericFault       NaN or infinity came out of a graph
└── AclCallError       a vendor call returned a code (`code`, `symbol`, `cause`, `remedy`)
    ├── UsageFault     1xxxxx: a wrong argument, or a call out of order
    ├── ModelFault     a model that cannot be loaded or called as it is
    ├── DeviceMemory   out of device memory, streams, events
    ├── Unsupported    the chip or this CANN lacks the feature
    ├── DeviceUnavailable  (also an AclUnavailable) no device that this process may use
    └── DeviceFault    5xxxxx: the device failed; the engine is degraded from now on
        └── DeviceTimeout  ... because it did not answer within the deadline
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files


class AclError(Exception):
    """Base of everything this package raises on purpose."""


class AclUnavailable(AclError):
    """There is no NPU to be had here; the text says what is missing and the remedy."""


class BundleRefused(AclError):
    """A bundle that must not run here: another chip, another contract, damaged, or below its parity
    bound."""


class GraphInputError(AclError, ValueError):
    """A graph was called with something that its contract does not allow."""


class CacheFull(AclError):
    """More rows than the key/value cache has room for."""


class EngineClosed(AclError):
    """The engine, or the owner of this memory, has been closed."""


class EngineDegraded(AclError):
    """The device failed before; the text says how. Close the engine and open it again."""


class NumericFault(AclError):
    """An output holds NaN or infinity."""


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the code table; `remedy` is the next step for a person."""

    code: int
    symbol: str
    kind: str
    cause: str
    remedy: str


class AclCallError(AclError):
    """`call` (a pyACL name) returned `code`; `detail` is ACL's own last message, or empty."""

    def __init__(self, call: str, code: Code, detail: str = "") -> None:
        self.call = call
        self.code = code.code
        self.symbol = code.symbol
        self.cause = code.cause
        self.remedy = code.remedy
        self.detail = detail
        super().__init__(call, code, detail)

    def add_context(self, text: str) -> None:
        """Adds what the caller knows, e.g. sizes, to the message."""
        self.detail = f"{self.detail}; {text}" if self.detail else text

    def __str__(self) -> str:
        said = f" ({self.detail})" if self.detail else ""
        return f"{self.call} returned {self.code} {self.symbol}: {self.cause}{said}; {self.remedy}"


class UsageFault(AclCallError):
    """A wrong argument, or a call out of order."""


class ModelFault(AclCallError):
    """The model file or its buffers do not fit."""


class DeviceMemory(AclCallError):
    """No memory, or another finite resource of the device, is left."""


class Unsupported(AclCallError):
    """The chip, or this CANN version, does not have the feature."""


class DeviceFault(AclCallError):
    """The device failed. The engine refuses further work until it is reopened."""


class DeviceTimeout(DeviceFault):
    """The device did not finish within the deadline."""


class DeviceUnavailable(AclCallError, AclUnavailable):
    """ACL is here, but no device that this process may use."""


# kind in codes.tsv -> what is raised, and the next step of codes that have none of their own.
_KINDS: dict[str, tuple[type[AclCallError], str]] = {
    "usage": (UsageFault, "report it with the log of HYOCR_LOG=DEBUG"),
    "model": (ModelFault, "rebuild the bundle with `hyocr compile` for this chip and release"),
    "memory": (DeviceMemory, "close other programs on the NPU (`npu-smi info`)"),
    "unsupported": (Unsupported, "compare chip and CANN version with `hyocr doctor`"),
    "fault": (
        DeviceFault,
        "reopen the engine; if it comes back, run `hyocr doctor` and read the device log (plog)",
    ),
    "timeout": (DeviceTimeout, "raise timeout_ms, or check the device with `npu-smi info`"),
    "unavailable": (DeviceUnavailable, "run `hyocr doctor`"),
}

HOST_DEADLINE = 107020  # ACL_ERROR_RT_TASK_TIMEOUT: the code for a call that never came back
STREAM_SYNC_TIMEOUT = 507046
NO_HANDLE = 200000  # ACL_ERROR_BAD_ALLOC: for a constructor that gave nothing and no code


def describe_code(code: int) -> Code:
    """The table's row for any code; codes that the table lacks are described by their band."""
    row = _table().get(code)
    if row is None:
        band = {1: "usage", 2: "unsupported", 5: "fault"}.get(code // 100_000, "fault")
        row = (f"ACL_ERROR_{code}", band, "a code that this release does not know", "")
    symbol, kind, cause, remedy = row
    return Code(code, symbol, kind, cause, remedy or _KINDS[kind][1])


def call_error(call: str, code: int, detail: str = "") -> AclCallError:
    """The typed error for a call that returned `code`."""
    row = describe_code(code)
    return _KINDS[row.kind][0](call, row, " ".join(detail.split()))


@functools.cache
def _table() -> dict[int, tuple[str, str, str, str]]:
    """codes.tsv: symbols of the ACL headers 1.17.0 (aclError), kinds, causes and next steps."""
    text = files("acl_runtime").joinpath("codes.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return {int(code): (symbol, kind, cause, nxt) for code, symbol, kind, cause, nxt in rows}
