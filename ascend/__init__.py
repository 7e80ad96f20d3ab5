"""HunyuanOCR on Ascend NPUs, and on any CPU when there is none.

from ascend import OCR
with OCR() as ocr:
    print(ocr.read("page.png").text)
"""

from __future__ import annotations

from ascend.api import OCR, PageFailure
from ascend.errors import (
    Cancelled,
    DeadlineExceeded,
    EngineUnavailable,
    ModelError,
    NumericFault,
    TaskNotSupported,
    UsageError,
)
from host_pipeline.errors import InputError
from host_pipeline.page import Page
from host_pipeline.result import Result
from host_pipeline.tasks import TASKS, TaskError

__all__ = [
    "OCR",
    "TASKS",
    "Cancelled",
    "DeadlineExceeded",
    "EngineUnavailable",
    "InputError",
    "ModelError",
    "NumericFault",
    "Page",
    "PageFailure",
    "Result",
    "TaskError",
    "TaskNotSupported",
    "UsageError",
]
