"""What the service counts, in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ascend.serve.service import Service

# A cascade reads a page in a fraction of a second, a CPU speaks one of 4096 tokens in minutes.
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counters of one service; gauges are read from it when somebody asks."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter(
            "hyocr_requests", "Requests by route and status", ["route", "status"], **made
        )
        self._seconds = Histogram(
            "hyocr_request_seconds", "Wall time of requests", ["route"], buckets=_SECONDS, **made
        )
        self._waits = Histogram(
            "hyocr_queue_seconds", "Time in the queue", buckets=_SECONDS, **made
        )
        self._stages = Histogram(
            "hyocr_stage_seconds", "Time of a page by stage", ["stage"], buckets=_SECONDS, **made
        )
        self._pages = Counter(
            "hyocr_pages", "Pages read", ["task", "engine", "finish_reason"], **made
        )
        self._tokens = Counter("hyocr_tokens", "Tokens by kind", ["kind"], **made)
        self._fallbacks = Counter("hyocr_fallbacks", "Pages that the fallback read", **made)
        self._restarts = Counter(
            "hyocr_worker_restarts", "Workers replaced, by reason", ["reason"], **made
        )
        self._reloads = Counter("hyocr_reloads", "Changes of the model", ["outcome"], **made)

    def watch(self, service: Service) -> None:
        """Read the gauges from `service`."""
        self.registry.register(_Gauges(service))

    def text(self) -> bytes:
        """The exposition that Prometheus scrapes."""
        return generate_latest(self.registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request by route and status, `seconds` long."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def waited(self, seconds: float) -> None:
        """A page waited `seconds` in the queue."""
        self._waits.observe(seconds)

    def page(self, result: Mapping[str, Any]) -> None:
        """Count a page by its Result's JSON."""
        labels = (result["task"], result["engine"], result["finish_reason"])
        self._pages.labels(*labels).inc()
        for stage, ms in result["timings_ms"].items():
            if "/" not in stage:  # a part of another stage
                self._stages.labels(stage).observe(ms / 1000)
        for kind, count in result["usage"].items():
            self._tokens.labels(kind.removesuffix("_tokens")).inc(count)
        if result["fallback_reason"] is not None:
            self._fallbacks.inc()

    def restarted(self, reason: str) -> None:
        """The worker was started anew, for `reason`."""
        self._restarts.labels(reason).inc()

    def reloaded(self, outcome: str) -> None:
        """A change of the model ended with `outcome`."""
        self._reloads.labels(outcome).inc()


class _Gauges(Collector):
    """What is true now: asked at every scrape, stored nowhere."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        stable = self._service.stable
        beat = stable.worker.beat if stable.worker is not None else None
        yield _gauge("hyocr_ready", "Whether the model reads", stable.not_ready() is None)
        yield _gauge("hyocr_queue_depth", "Requests that wait", stable.waiting)
        yield _gauge("hyocr_running", "Requests that are being read", stable.running)
        yield _gauge("hyocr_answer_age_seconds", "Since the engine gave", stable.answer_age_s())
        if beat is None:
            return
        yield _gauge("hyocr_batch_slots", "Sequences that fit at once", beat.slots)
        yield _gauge("hyocr_batch_active", "Sequences that run", beat.active)
        yield _gauge("hyocr_worker_rss_bytes", "Memory of the worker", beat.rss_bytes)
        if beat.device_total is not None and beat.device_free is not None:
            used = beat.device_total - beat.device_free
            yield _gauge("hyocr_device_used_bytes", "Device memory in use", used)
            yield _gauge("hyocr_device_total_bytes", "Device memory", beat.device_total)
        serving = GaugeMetricFamily(
            "hyocr_engine_serving", "Whether an engine answers", labels=["role", "engine"]
        )
        for state in beat.engines:
            serving.add_metric([state.role, state.engine], float(state.serving))
        yield serving


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
