"""The task table: complete, exact, and the one place with an instruction."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import pytest

from ascend.cli import main
from host_pipeline.parse import parse_answer
from host_pipeline.tasks import ALIASES, TASKS, TaskError, UnknownTask, task

OFFICIAL = (
    "doc_parse structured_parse spotting_json spotting_hunyuan layout layout_parse chart_parse "
    "formula table doc_trans_en2zh trans_other2en trans_other2zh"
).split()

# SHA-256 (first 16 digits) of the vendor's strings in UTF-8, taken from its own file.
DIGESTS = {
    "doc_parse": "16f15a15a1eb5181",
    "structured_parse": "ed471d18b8266adb",
    "spotting_json": "5f5f7c04b71aa98f",
    "spotting_hunyuan": "9d5efb395cfbe2ab",
    "layout": "7f0aead1c6dcac74",
    "layout_parse": "915ac071db0a2eec",
    "chart_parse": "0d37a14f1b5a3320",
    "formula": "4e79e42648a4252d",
    "table": "57324c7f31defb97",
    "doc_trans_en2zh": "bc41d6e8a350b7a0",
    "trans_other2en": "7781c97c9640a165",
    "trans_other2zh": "9d4c227aab2dc1b1",
}


def test_the_table_holds_the_twelve_official_tasks_and_our_three():
    assert list(TASKS) == [*OFFICIAL, "fields", "subtitles", "text"]


@pytest.mark.parametrize("name", OFFICIAL)
def test_an_official_instruction_is_not_edited(name):
    assert hashlib.sha256(TASKS[name].instruction.encode()).hexdigest()[:16] == DIGESTS[name]


@pytest.mark.parametrize("one", TASKS.values(), ids=lambda t: t.name)
def test_every_task_says_everything_about_itself(one):
    for field in dataclasses.fields(one):
        assert getattr(one, field.name) not in ("", None), field.name
    assert re.search("[一-龥]", one.instruction)
    assert not re.search("[一-龥]", one.english)
    assert 0 < one.max_tokens <= 32768


@pytest.mark.parametrize("one", TASKS.values(), ids=lambda t: t.name)
def test_the_example_of_each_task_is_parsed_without_any_warning(one):
    keys = ("单价", "发票号码") if one.needs_fields else ()
    answer = parse_answer(one, one.example, to_page=lambda p: p, fields=keys)
    assert answer.warnings == () and answer.unparsed == ()
    assert answer.text or answer.lines


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_the_task_itself(alias):
    assert task(alias) is TASKS[ALIASES[alias]]
    assert alias not in TASKS


def test_spotting_is_the_short_form():
    assert task("spotting").name == "spotting_hunyuan"


def test_an_unknown_task_names_the_near_ones_and_all():
    with pytest.raises(UnknownTask, match="'spoting'; did you mean spotting") as error:
        task("spoting")
    assert all(name in str(error.value) for name in TASKS)
    assert isinstance(error.value, TaskError)


def test_keys_are_written_as_in_the_official_example():
    instruction = task("fields").instruction_for(["单价", "上车时间"])
    assert instruction == "提取图片中的: ['单价', '上车时间'] 的字段内容，并按照 JSON 格式返回。"


def test_a_key_with_a_quote_stays_one_key():
    assert """["it's"]""" in task("fields").instruction_for(["it's"])


@pytest.mark.parametrize("keys", [(), [""], ["a", " "], ["a", "a"], "abc", [1]])
def test_bad_keys_are_refused_before_anything_runs(keys):
    with pytest.raises(TaskError):
        task("fields").instruction_for(keys)


def test_keys_for_a_task_without_fields_are_refused():
    with pytest.raises(TaskError, match="use task fields"):
        task("text").instruction_for(["a"])


def test_no_other_source_file_holds_an_instruction():
    root = Path(__file__).parents[2]
    packages = ("ascend", "acl_runtime", "atc_configs", "fallback", "host_pipeline", "profiling")
    files = [path for name in packages for path in (root / name).rglob("*.py")]
    assert len(files) > 20
    for path in files:
        if path == root / "host_pipeline" / "tasks.py":
            continue
        text = path.read_text("utf-8")
        assert not [t.name for t in TASKS.values() if t.instruction in text], path


def test_the_command_prints_every_task(capsys):
    assert main(["tasks"]) == 0
    out = capsys.readouterr().out
    assert all(one.title in out for one in TASKS.values())


def test_the_command_prints_json_for_programs(capsys):
    assert main(["tasks", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(TASKS)
    assert rows[3]["aliases"] == ["spotting"]
    assert rows[3]["instruction"] == TASKS["spotting_hunyuan"].instruction


def test_the_command_prints_the_table_for_the_readme(capsys):
    assert main(["tasks", "--markdown"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 + len(TASKS) and all(row.count(" | ") == 3 for row in rows)
    assert "`spotting_hunyuan`, `spotting`" in rows[5]


def test_the_command_shows_one_task_in_full(capsys):
    assert main(["tasks", "kie"]) == 0
    assert "--schema FILE" in capsys.readouterr().out


def test_the_command_refuses_an_unknown_task(capsys):
    assert main(["tasks", "nothing"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "unknown task 'nothing'" in captured.err
