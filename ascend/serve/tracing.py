"""OpenTelemetry spans of requests and of the stages of their pages, where there is a collector.

The stages were measured in the worker and arrive as durations; they are laid out one after another
so as to end when their page arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from ascend.errors import UsageError


class Tracer(Protocol):
    """What the service tells of its work."""

    def request(self, method: str, path: str, request_id: str) -> Any:
        """A context manager around one HTTP request."""

    def page(self, outcome: Mapping[str, Any]) -> None:
        """A page has been read (its JSON) within the request of this context."""

    def close(self) -> None:
        """Send what is left; idempotent."""


class NoTracer:
    """Nobody listens."""

    @contextmanager
    def request(self, method: str, path: str, request_id: str) -> Iterator[None]:
        yield

    def page(self, outcome: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class OtelTracer:
    """Spans to one exporter, in batches on a thread of the SDK."""

    def __init__(self, exporter: Any, *, batched: bool = True) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        resource = Resource.create({"service.name": "hyocr"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        processor = BatchSpanProcessor if batched else SimpleSpanProcessor
        self._provider.add_span_processor(processor(exporter))
        self._tracer = self._provider.get_tracer("ascend.serve")

    @contextmanager
    def request(self, method: str, path: str, request_id: str) -> Iterator[None]:
        with self._tracer.start_as_current_span(
            f"{method} {path}", attributes={"http.request.method": method, "request.id": request_id}
        ):
            yield

    def page(self, outcome: Mapping[str, Any]) -> None:
        stages = outcome.get("timings_ms", {})
        top = {name: int(ms * 1e6) for name, ms in stages.items() if "/" not in name}
        end = time.time_ns()
        start = end - sum(top.values())
        about = {"page.index": outcome.get("page_index") or 0, "task": outcome.get("task", "")}
        page = self._tracer.start_span("page", start_time=start, attributes=about)
        from opentelemetry.trace import set_span_in_context

        inside = set_span_in_context(page)
        for name, ns in top.items():
            self._tracer.start_span(name, inside, start_time=start).end(start + ns)
            start += ns
        page.end(end)

    def close(self) -> None:
        self._provider.shutdown()


def open_tracer(endpoint: str | None) -> Tracer:
    """Spans to the OTLP collector at `endpoint` (http://host:4318), or nowhere. Raises UsageError
    when OpenTelemetry is not installed."""
    if endpoint is None:
        return NoTracer()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        raise UsageError(
            f"otel_endpoint needs the package {error.name}: pip install 'hunyuanocr-ascend[otel]'"
        ) from error
    return OtelTracer(OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces"))
