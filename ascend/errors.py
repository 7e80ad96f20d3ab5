"""One table: exception -> exit code, HTTP status, worth a retry. Every border uses it.

Exit codes: 0 done, 1 some pages failed, 2 wrong use, 3 input cannot be read, 4 model files cannot
be used, 5 no such engine here, 6 the device failed, 7 out of time, 8 the model's numbers are
broken, 70 a bug of ours, 130 interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from acl_runtime.errors import (
    AclError,
    AclUnavailable,
    BundleRefused,
    DeviceFault,
    DeviceMemory,
    EngineDegraded,
)
from acl_runtime.errors import NumericFault as AclNumericFault
from atc_configs.contract import ContractError
from atc_configs.expressions import ExpressionError
from fallback.errors import EngineUnavailableError, FallbackError
from host_pipeline.errors import InputError
from host_pipeline.tasks import TaskError
from host_pipeline.tokenizer import TokenizerError
from profiling.acl_prof import ProfilerError
from profiling.msprof import ProfileError
from profiling.onnx_costs import CostError


class UsageError(ValueError):
    """The call itself is wrong: the text says what would be right."""


class TaskNotSupported(ValueError):
    """The model cannot do this task; the text lists those it can and how to get the others."""


class EngineUnavailable(RuntimeError):
    """The wanted engine cannot be opened here; the text says what is missing and the remedy."""


class ModelError(RuntimeError):
    """Model files are missing, damaged or of another kind."""


class DeadlineExceeded(TimeoutError):
    """The page was not done within its deadline."""


class Cancelled(RuntimeError):
    """The caller does not want the answer any more."""


class NumericFault(RuntimeError):
    """The model gave NaN, or one constant token from its start."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """How one exception is shown. `code` is stable for programs; `message` is one line."""

    code: str
    message: str
    exit_code: int
    http_status: int
    retryable: bool
    internal: bool = False


# The first row whose class matches wins, so a subclass stands before its base.
ERRORS: tuple[tuple[type[BaseException], str, int, int, bool], ...] = (
    (UsageError, "usage", 2, 400, False),
    (TaskNotSupported, "task_not_supported", 2, 422, False),
    (TaskError, "task", 2, 400, False),
    (InputError, "input", 3, 422, False),
    (ContractError, "contract", 4, 500, False),
    (ExpressionError, "contract", 4, 500, False),
    (TokenizerError, "model", 4, 500, False),
    (EngineUnavailableError, "engine_unavailable", 5, 503, False),
    (FallbackError, "model", 4, 500, False),
    (ModelError, "model", 4, 500, False),
    (EngineUnavailable, "engine_unavailable", 5, 503, True),
    (AclNumericFault, "numeric_fault", 8, 500, True),
    (DeviceFault, "device_fault", 6, 503, True),
    (EngineDegraded, "device_fault", 6, 503, True),
    (DeviceMemory, "out_of_memory", 6, 503, True),
    (AclUnavailable, "engine_unavailable", 5, 503, True),
    (BundleRefused, "model", 4, 500, False),
    (AclError, "acl", 6, 500, False),
    (ProfileError, "profile", 3, 422, False),
    (ProfilerError, "profiler", 6, 503, True),
    (CostError, "model", 4, 500, False),
    (NumericFault, "numeric_fault", 8, 500, True),
    (DeadlineExceeded, "deadline", 7, 504, True),
    (Cancelled, "cancelled", 130, 499, True),
    (KeyboardInterrupt, "interrupted", 130, 499, True),
    (MemoryError, "out_of_memory", 6, 503, True),
    (FileNotFoundError, "not_found", 3, 404, False),
    (PermissionError, "permission", 3, 403, False),
)


def describe(error: BaseException) -> ErrorInfo:
    """The table's row for `error`; anything unlisted is a bug of ours (exit code 70)."""
    text = " ".join(str(error).split()) or type(error).__name__
    for cls, code, exit_code, status, retryable in ERRORS:
        if isinstance(error, cls):
            return ErrorInfo(code, text, exit_code, status, retryable)
    message = f"internal error: {type(error).__name__}: {text}; please report it"
    return ErrorInfo("internal", message, 70, 500, False, internal=True)
