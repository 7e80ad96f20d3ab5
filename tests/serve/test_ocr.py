"""Our own API on the embedded reader: forms of a request, of an answer and of an error."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonschema
import pytest

from ascend import OCR
from tests.serve.running import Running, picture_of


def test_raw_bytes_give_the_result_that_the_command_line_gives(
    ppocr: Running, picture: bytes
) -> None:
    answer = ppocr.read(picture)
    assert answer.status_code == 200, answer.text
    with OCR(threads=1) as ocr:
        direct = ocr.read(picture, label="upload").to_dict()
    served = answer.json()
    for one in (direct, served):
        del one["timings_ms"]
    assert served == json.loads(json.dumps(direct))
    jsonschema.validate(answer.json(), ppocr.get("/v1/schema").json())


def test_multipart_and_json_say_the_same_as_raw_bytes(ppocr: Running, picture: bytes) -> None:
    raw = ppocr.read(picture, task="text").json()
    form = ppocr.post(
        "/v1/ocr", files={"file": ("page.png", picture)}, data={"task": "text"}
    ).json()
    body = {"data": base64.b64encode(picture).decode(), "task": "text", "filename": "page.png"}
    from_json = ppocr.post("/v1/ocr", json=body).json()
    assert raw["text"] == form["text"] == from_json["text"] == "Invoice 2048\nTotal 73.50"
    assert form["source"] == from_json["source"] == "page.png"


def test_fields_by_name_and_by_schema(ppocr: Running, picture: bytes) -> None:
    named = ppocr.read(picture, fields="Total").json()
    assert [(f["name"], f["value"]) for f in named["fields"]] == [("Total", "73.50")]
    schema = {"type": "object", "properties": {"Total": {"type": "number"}}}
    typed = ppocr.read(picture, schema=json.dumps(schema)).json()
    assert [(f["name"], f["value"]) for f in typed["fields"]] == [("Total", 73.5)]


def test_a_document_gives_a_list_and_chosen_pages(ppocr: Running, document: bytes) -> None:
    pages = ppocr.read(document, task="text").json()
    assert [page["text"] for page in pages] == ["First page", "Second page", "Third page"]
    chosen = ppocr.read(document, task="text", pages="3").json()
    assert [page["page_index"] for page in chosen] == [2]


def test_pages_are_streamed_as_json_lines(ppocr: Running, document: bytes) -> None:
    url, query = ppocr.url + "/v1/ocr", {"stream": "true", "task": "text"}
    with ppocr.http.stream("POST", url, content=document, params=query) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [line["page_index"] for line in lines] == [0, 1, 2]


def test_an_error_before_the_first_page_of_a_stream_has_its_status(ppocr: Running) -> None:
    answer = ppocr.read(b"no picture", stream="true")
    assert answer.status_code == 422


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_readable_formats(ppocr: Running, picture: bytes, form: str) -> None:
    answer = ppocr.read(picture, format=form)
    assert form in answer.headers["content-type"] or form == "text"
    assert "Invoice 2048" in answer.text


def test_html_of_a_page_is_shown_and_never_run(ppocr: Running) -> None:
    answer = ppocr.read(picture_of("<script>alert(1)</script>", size=(560, 70)), format="html")
    assert "<script" not in answer.text
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_tasks_say_what_the_model_can_do(ppocr: Running) -> None:
    tasks = {t["name"]: t for t in ppocr.get("/v1/tasks").json()["tasks"]}
    assert tasks["text"]["supported"] and not tasks["formula"]["supported"]
    assert tasks["formula"]["instruction"] == "识别图片中的公式，用LaTeX格式表示。"


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"params": {"task": "poem"}}, 400, "task"),
    ({"params": {"task": "formula"}}, 422, "task_not_supported"),
    ({"params": {"pages": "0"}}, 400, "bad_request"),
    ({"params": {"pages": "1-99999999999"}}, 400, "bad_request"),
    ({"params": {"colour": "red"}}, 400, "bad_request"),
    ({"params": {"format": "docx"}}, 400, "bad_request"),
    ({"params": {"timeout_s": "nan"}}, 400, "bad_request"),
    ({"params": {"options": '{"beams": 5}'}}, 400, "bad_request"),
    ({"params": {"options": '{"seed": NaN}'}}, 400, "bad_request"),
    ({"params": {"task": "fields"}}, 400, "task"),
    ({"params": {"pages": "2"}}, 422, "input"),
    ({"content": b""}, 400, "bad_request"),
    ({"content": b"nothing that is a picture"}, 422, "input"),
    ({"json": {"data": "%%%"}}, 400, "bad_request"),
    ({"json": [1]}, 400, "bad_request"),
    ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 400, "bad_re"),
    ({"data": {"a": "b"}}, 400, "bad_request"),
]


@pytest.mark.parametrize(("call", "status", "code"), WRONG, ids=[str(w[0])[:40] for w in WRONG])
def test_what_is_wrong_is_said_in_one_shape(
    ppocr: Running, picture: bytes, call: dict[str, Any], status: int, code: str
) -> None:
    if not call.keys() & {"content", "json", "data"}:
        call = {**call, "content": picture}
    answer = ppocr.post("/v1/ocr", **call)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code", "retryable", "request_id"}
    assert error["code"].startswith(code)
    assert error["request_id"] == answer.headers["x-request-id"]
    assert (
        "/" not in error["message"].replace("/v1/", "").replace("t/f", "")
        and "Traceback" not in answer.text
    )


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/ocr", 405), ("GET", "/x", 404)]
)
def test_the_router_s_own_refusals_have_that_shape_too(
    ppocr: Running, method: str, path: str, status: int
) -> None:
    answer = ppocr.http.request(method, ppocr.url + path)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == "http"


def test_the_api_page_needs_no_network(ppocr: Running) -> None:
    page = ppocr.get("/docs").text
    assert "/v1/ocr" in page and "<script" not in page and "http://" not in page
    assert "/v1/chat/completions" in ppocr.get("/openapi.json").json()["paths"]
