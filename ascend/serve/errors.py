"""What the service refuses or loses, and the one shape in which any error is told to a client.

ServiceError
├── BadRequest        400  the request cannot be understood
├── Unauthorized      401  no key, or a wrong one
├── Forbidden         403  the key, or the configuration, does not allow it
├── NotFound          404  no such job, model or page
├── BodyTimeout       408  the body did not come in time
├── Conflict          409  not now: a reload is under way, or a job is not done
├── ReloadRefused     409  the new model did not pass; the old one serves on
├── BodyTooLarge      413  more bytes than allowed
├── QueueFull         429  too many wait already
├── RateLimited       429  this key asks too often
├── WorkerLost        503  the process that read for it died, twice
├── NotReady          503  no model is open
├── ShuttingDown      503  the service ends
└── HttpError              what the web framework itself refuses
"""

from __future__ import annotations

from typing import Any, ClassVar

from ascend.errors import ErrorInfo, describe


class ServiceError(RuntimeError):
    """`retry_after_s`: when another try may be worth it."""

    code: ClassVar[str] = "service"
    http_status: int = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequest(ServiceError):
    code, http_status = "bad_request", 400


class Unauthorized(ServiceError):
    code, http_status = "unauthorized", 401


class Forbidden(ServiceError):
    code, http_status = "forbidden", 403


class NotFound(ServiceError):
    code, http_status = "not_found", 404


class ModelNotFound(NotFound):
    code = "model_not_found"


class BodyTimeout(ServiceError):
    code, http_status, retryable = "body_timeout", 408, True


class Conflict(ServiceError):
    code, http_status, retryable = "conflict", 409, True


class ReloadRefused(ServiceError):
    code, http_status = "reload_refused", 409


class BodyTooLarge(ServiceError):
    code, http_status = "body_too_large", 413


class HttpError(ServiceError):
    """What the web framework refuses: a path that is not there, a form it cannot parse."""

    code = "http"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = status


class QueueFull(ServiceError):
    code, http_status, retryable = "queue_full", 429, True


class RateLimited(ServiceError):
    code, http_status, retryable = "rate_limited", 429, True


class WorkerLost(ServiceError):
    code, http_status, retryable = "worker_lost", 503, True


class NotReady(ServiceError):
    code, http_status, retryable = "not_ready", 503, True


class ShuttingDown(ServiceError):
    code, http_status, retryable = "shutting_down", 503, True


class ReadFailed(RuntimeError):
    """What a worker reported of a request: the row of `ascend.errors` for what it raised there."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


# Faults of the machine or of us: their own texts may name files of this host, so clients get these
# and the log has the rest under the request's id.
_PUBLIC = {
    "model": "the model's files cannot be used",
    "contract": "the model's files cannot be used",
    "engine_unavailable": "the engine cannot be opened at the moment",
    "device_fault": "the device failed; try again",
    "out_of_memory": "out of memory; try again, or give a smaller page",
    "acl": "the device refused a call",
    "numeric_fault": "the model's numbers were broken; try again",
}
_HOST_FILES = {"not_found", "permission", "internal"}
_BUG = "internal error; the log tells more under this request's id"

# The `type` of OpenAI's errors; its Python client raises by status.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def info_of(error: BaseException) -> ErrorInfo:
    """Any error as the row that a client may see: no path, no stack."""
    if isinstance(error, ServiceError):
        return ErrorInfo(error.code, str(error), 70, error.http_status, error.retryable)
    return public_info(error.info if isinstance(error, ReadFailed) else describe(error))


def public_info(info: ErrorInfo) -> ErrorInfo:
    """`info` without what only the host's owner should know."""
    if info.code in _HOST_FILES or info.internal:
        return ErrorInfo("internal", _BUG, 70, 500, False, internal=True)
    if info.code in _PUBLIC:
        message = _PUBLIC[info.code]
        return ErrorInfo(info.code, message, info.exit_code, info.http_status, info.retryable)
    return info


def error_body(error: BaseException, request_id: str) -> dict[str, Any]:
    """The JSON of an error, in the shape of OpenAI's with two fields more."""
    info = info_of(error)
    kind = _TYPES.get(info.http_status)
    if kind is None:
        kind = "invalid_request_error" if info.http_status < 500 else "server_error"
    return {
        "error": {
            "message": info.message,
            "type": kind,
            "param": None,
            "code": info.code,
            "retryable": info.retryable,
            "request_id": request_id,
        }
    }


def retry_after_s(error: BaseException) -> int | None:
    """Whole seconds for the header Retry-After, or None."""
    given = error.retry_after_s if isinstance(error, ServiceError) else None
    if given is None:
        given = 1.0 if info_of(error).http_status == 503 else None
    return None if given is None else max(1, round(given))
