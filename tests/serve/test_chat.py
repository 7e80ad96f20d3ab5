"""Chat completions, asked for by OpenAI's own client as one asks vLLM's HunyuanOCR server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

openai = pytest.importorskip("openai")

from ascend.serve.chat_request import task_of  # noqa: E402
from ascend.serve.errors import BadRequest  # noqa: E402
from host_pipeline.tasks import TASKS  # noqa: E402
from tests.serve.running import Running, document_of  # noqa: E402

# What the vendor's client sends beside OpenAI's own parameters.
VENDOR = {"top_k": -1, "repetition_penalty": 1.08, "skip_special_tokens": True}


def client_of(server: Running) -> Any:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="EMPTY", max_retries=0, timeout=120)


def messages(picture: bytes, text: str) -> list[dict[str, Any]]:
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    return [{"role": "system", "content": ""}, {"role": "user", "content": parts}]


@pytest.fixture
def hunyuan_client(hunyuan: Running) -> Iterator[Any]:
    with client_of(hunyuan) as client:
        yield client


@pytest.fixture
def ppocr_client(ppocr: Running) -> Iterator[Any]:
    with client_of(ppocr) as client:
        yield client


def test_a_client_of_vllm_s_server_works_unchanged(hunyuan_client: Any, picture: bytes) -> None:
    answer = hunyuan_client.chat.completions.create(
        model="tencent/HunyuanOCR",
        messages=messages(picture, TASKS["spotting_hunyuan"].instruction),
        max_tokens=12,
        temperature=0,
        top_p=1.0,
        extra_body=VENDOR,
    )
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.finish_reason == "length" and answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    settings = answer.model_extra["hyocr"]["settings"]
    assert settings["repetition_penalty"] == 1.08 and settings["temperature"] == 0


def test_a_stream_gives_the_same_text_in_pieces(hunyuan_client: Any, picture: bytes) -> None:
    call: dict[str, Any] = {
        "model": "tencent/HunyuanOCR",
        "messages": messages(picture, "spotting"),
        "max_tokens": 24,
        "temperature": 0,
    }
    whole = hunyuan_client.chat.completions.create(**call).choices[0].message.content
    chunks = list(
        hunyuan_client.chat.completions.create(
            **call, stream=True, stream_options={"include_usage": True}
        )
    )
    pieces = [
        c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content
    ]
    assert "".join(pieces) == whole and len(pieces) > 1
    assert chunks[-1].usage.completion_tokens == 24 and not chunks[-1].choices
    assert [c.choices[0].finish_reason for c in chunks[-2:-1]] == ["length"]


def test_models_are_listed_with_vllm_s_name(hunyuan_client: Any) -> None:
    names = [model.id for model in hunyuan_client.models.list()]
    assert "tencent/HunyuanOCR" in names
    assert hunyuan_client.models.retrieve("tencent/HunyuanOCR").id == "tencent/HunyuanOCR"


def test_the_embedded_reader_speaks_as_the_tasks_do(ppocr_client: Any, picture: bytes) -> None:
    def ask(text: str, **more: Any) -> str:
        answer = ppocr_client.chat.completions.create(
            model="ppocr", messages=messages(picture, text), **more
        )
        return str(answer.choices[0].message.content)

    assert ask(TASKS["structured_parse"].instruction) == "Invoice 2048\nTotal 73.50"
    spotted = json.loads(ask(TASKS["spotting_json"].instruction))
    assert [one["text"] for one in spotted] == ["Invoice 2048", "Total 73.50"]
    assert all(0 <= n <= 1000 for one in spotted for n in one["box"])
    assert ask(TASKS["spotting_hunyuan"].instruction).startswith("Invoice 2048(")
    assert json.loads(ask(TASKS["fields"].instruction_for(["Total"]))) == {"Total": "73.50"}
    schema = {"type": "object", "properties": {"Total": {"type": "number"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "bill", "schema": schema}}
    assert json.loads(ask("fields", response_format=wanted)) == {"Total": 73.5}


def test_all_pages_of_a_document_are_one_answer(ppocr_client: Any) -> None:
    pages = document_of("Alpha page", "Beta page")
    call = {"model": "ppocr", "messages": messages(pages, "text")}
    whole = ppocr_client.chat.completions.create(**call).choices[0].message.content
    assert whole == "Alpha page\n\nBeta page"
    chunks = ppocr_client.chat.completions.create(**call, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole


def test_errors_arrive_as_the_client_s_own_exceptions(ppocr_client: Any, picture: bytes) -> None:
    create = ppocr_client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="gpt-4o", messages=messages(picture, "text"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="none of the model's"):
        create(model="ppocr", messages=messages(picture, "What is the weather like?"))
    with pytest.raises(openai.UnprocessableEntityError, match="cannot do the task"):
        create(model="ppocr", messages=messages(picture, "formula"))
    with pytest.raises(openai.UnprocessableEntityError):
        create(model="ppocr", messages=messages(b"no picture", "text"), stream=True)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"messages": []}, 400),
        ({"messages": [{"role": "user", "content": "text"}]}, 400),
        ({"messages": [{"role": "system", "content": "You are a poet."}]}, 400),
        ({"n": 2}, 400),
        ({"tools": [{"type": "function"}]}, 400),
        ({"stream": "yes"}, 400),
        ({"temperature": {"a": 1}}, 400),
        ({"model": None}, 404),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused(
    ppocr: Running, picture: bytes, change: dict[str, Any], status: int
) -> None:
    body = {"model": "ppocr", "messages": messages(picture, "text"), **change}
    assert ppocr.post("/v1/chat/completions", json=body).status_code == status


def test_addresses_are_not_fetched_unless_allowed(ppocr: Running) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": ppocr.url + "/livez"}},
        {"type": "text", "text": "text"},
    ]
    body = {"model": "ppocr", "messages": [{"role": "user", "content": parts}]}
    answer = ppocr.post("/v1/chat/completions", json=body)
    assert answer.status_code == 403 and "fetch_urls" in answer.json()["error"]["message"]


@pytest.mark.parametrize("task", [task for task in TASKS.values() if not task.needs_fields])
def test_every_official_instruction_is_understood_in_both_languages(task: Any) -> None:
    for text in (task.instruction, task.english, task.name, f"  {task.instruction}\n"):
        found, keys = task_of(text)
        assert TASKS[found].instruction == task.instruction and keys == ()


def test_fields_are_taken_from_the_instruction() -> None:
    assert task_of(TASKS["fields"].instruction_for(["单价", "发票号码"])) == (
        "fields",
        ("单价", "发票号码"),
    )
    assert task_of("fields: total, date") == ("fields", ("total", "date"))
    with pytest.raises(BadRequest, match="list of names"):
        task_of(TASKS["fields"].instruction.replace("{keys}", "[__import__('os')]"))
