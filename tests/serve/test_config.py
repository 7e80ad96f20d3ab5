"""The configuration file, and spans for OpenTelemetry."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ascend.errors import UsageError
from ascend.serve.app import create_app
from ascend.serve.config import ServeConfig, read_config
from ascend.serve.errors import ReadFailed, error_body, info_of
from ascend.serve.tracing import OtelTracer, open_tracer
from tests.serve.running import running


def test_options_stand_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("serve:\n  port: 9000\n  deadline_s: 5\n  canaries: pages\n  slots: 2\n")
    config = read_config(file, {"port": 9001, "host": None})
    assert (config.port, config.deadline_s, config.host) == (9001, 5, "127.0.0.1")
    assert config.canaries == str(tmp_path / "pages") and config.worker().slots == 2


def test_a_file_with_a_fallback_serves_both(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    file.write_text("ocr_engine:\n  primary: {engine: acl, model: b}\n")
    assert read_config(file, {}).model == str(file)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("serve: 5", "serve"),
        ("serve: {colour: red}", "colour"),
        ("serve: {port: eight}", "port"),
        ("serve: {port: true}", "port"),
        ("serve: {fetch_urls: 1}", "fetch_urls"),
        ("serve: {max_queue: -1}", "max_queue"),
        ("serve: {max_drift: 2}", "max_drift"),
        ("serve: {cors_origins: everywhere}", "cors_origins"),
        ("serve: [", "serve.yaml"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=named):
        read_config(file, {})


def test_errors_of_the_host_tell_clients_nothing_of_it() -> None:
    from ascend.errors import describe

    secret = "/srv/models/secret.om"
    for error in (FileNotFoundError(2, "no file", secret), KeyError(secret)):
        body = error_body(ReadFailed(describe(error)), "id")
        assert secret not in str(body) and body["error"]["code"] == "internal"
    assert info_of(FileNotFoundError(secret)).http_status == 500


def test_stages_of_a_page_become_spans_inside_the_request() -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    tracer = OtelTracer(exporter, batched=False)
    with tracer.request("POST", "/v1/ocr", "r1"):
        timings = {"decode": 2.0, "det": 5.0, "det/h2d": 1.0}
        tracer.page({"timings_ms": timings, "page_index": 0, "task": "text"})
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert spans.keys() == {"POST /v1/ocr", "page", "decode", "det"}
    assert spans["page"].parent.span_id == spans["POST /v1/ocr"].context.span_id
    assert spans["det"].parent.span_id == spans["page"].context.span_id
    assert spans["det"].end_time - spans["det"].start_time == 5_000_000
    tracer.close()


def test_a_served_request_is_a_trace_of_its_stages(picture: bytes) -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    with running(tracer=OtelTracer(exporter, batched=False)) as server:
        answer = server.post("/v1/ocr", content=picture, headers={"x-request-id": "mine"})
        assert answer.status_code == 200
        assert server.read(b"no picture").status_code == 422
    roots = {s.attributes["request.id"]: s for s in exporter.get_finished_spans() if not s.parent}
    trace = roots["mine"].context.trace_id
    names = [s.name for s in exporter.get_finished_spans() if s.context.trace_id == trace]
    assert {"POST /v1/ocr", "page", "det", "rec"} <= set(names)
    stages = {name for name in answer.json()["timings_ms"] if "/" not in name}
    assert set(names) == stages | {"POST /v1/ocr", "page"}


def test_spans_reach_a_collector() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    sent: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            tracer = open_tracer(f"http://127.0.0.1:{collector.server_address[1]}/")
            with tracer.request("POST", "/v1/ocr", "r1"):
                tracer.page({"timings_ms": {"det": 5.0}, "page_index": 0, "task": "text"})
            tracer.close()
        finally:
            collector.shutdown()
            thread.join()
    assert [path for path, _ in sent] == ["/v1/traces"]
    assert all(word in sent[0][1] for word in (b"POST /v1/ocr", b"page", b"det", b"hyocr"))


@pytest.mark.parametrize(
    ("origins", "allowed"), [((), None), (("https://app.example",), "https://app.example")]
)
def test_other_web_pages_may_call_only_where_configured(
    origins: tuple[str, ...], allowed: str | None
) -> None:
    client = TestClient(create_app(ServeConfig(cors_origins=origins)))
    asks = {"origin": "https://app.example", "access-control-request-method": "POST"}
    for answer in (client.options("/v1/ocr", headers=asks), client.get("/livez", headers=asks)):
        assert answer.headers.get("access-control-allow-origin") == allowed
    other = client.get("/livez", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers


def test_without_a_collector_nothing_is_traced() -> None:
    tracer = open_tracer(None)
    with tracer.request("GET", "/", "r"):
        tracer.page({})
