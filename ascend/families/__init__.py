"""A family is one kind of model: it turns a page and a task into a Result on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from host_pipeline.page import Page
from host_pipeline.result import Model, Result


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is wanted of a page. `keys` or `schema` (JSON Schema) for the task `fields`;
    `deadline` on `time.monotonic`; `cancelled` is asked at least once a token."""

    task: str
    keys: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    cancelled: Callable[[], bool] | None = None
    deadline: float | None = None


class Family(Protocol):
    """One loaded model on one engine."""

    @property
    def name(self) -> str:
        """The family's name, as in --model or a manifest."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that it can do."""

    @property
    def model(self) -> Model:
        """Which weights answer."""

    def read(self, page: Page, request: ReadRequest) -> Result:
        """The Result of one page. Raises TaskNotSupported and the engine's errors."""

    def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
        """Pieces of the answer's text as they are made, then the Result."""

    def close(self) -> None:
        """Release the engine; idempotent."""
