"""The configuration file, and spans for OpenTelemetry."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend.errors import UsageError
from ascend.serve.config import read_config
from ascend.serve.errors import ReadFailed, error_body, info_of
from ascend.serve.tracing import OtelTracer, open_tracer


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


def test_without_a_collector_nothing_is_traced() -> None:
    tracer = open_tracer(None)
    with tracer.request("GET", "/", "r"):
        tracer.page({})
