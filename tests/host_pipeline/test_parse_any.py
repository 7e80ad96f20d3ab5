"""Whatever a model answers to whatever task: no exception, no quad off the page, no lost letter."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from host_pipeline.parse import parse_answer
from host_pipeline.result import Model, Result, result_schema
from host_pipeline.tasks import TASKS

WIDTH, HEIGHT = 1237, 2011
KEYS = ("a", "总金额")
VALIDATOR = Draft202012Validator(result_schema())
ONE_OF_EACH_FORM = {task.form: task.name for task in TASKS.values()}.values()

# Pieces of every wire form, so that random answers are nearly right more often than not.
WORDS = r"""(1,2),(3,4) (10,20),(900,950) (5, (-3,2000),(7,8) [ ] { } , : "box" "bbox" "text"
"layout_type" "a" "总金额" [1,2,3,4] 12.50 null <ref> </ref> <quad> </quad> <pos_12> <hy-meta>
</hy-meta> <layout> </layout> <poly> </poly> <table> </table> <tr> <td> </td> <script> ``` $$ $ \[
\] \frac{ \left( \right \begin{array} \end{array} # ** \ 文字 Total(USD) NaN ' " 😀""".split()
PIECES = st.sampled_from(
    [
        *WORDS,
        "```json\n",
        "```mermaid\n",
        "| a | b |\n|---|---|\n",
        "flowchart TD",
        "\n",
        " ",
        "\x00",
    ]
)
ANSWERS = st.lists(PIECES | st.text(max_size=6), max_size=25).map("".join)
FINISH = st.sampled_from(["stop", "length", "repetition", "cancelled", "numeric_fault"])


def read(name, raw, finish):
    task = TASKS[name]
    return parse_answer(
        task,
        raw,
        to_page=lambda p: p * np.array([WIDTH, HEIGHT]) / 990,  # the canvas has bars
        page_size=(WIDTH, HEIGHT),
        fields=KEYS if task.needs_fields else (),
        finish_reason=finish,
    )


@pytest.mark.parametrize("name", ONE_OF_EACH_FORM)
@settings(max_examples=80)
@given(raw=ANSWERS, finish=FINISH)
def test_any_answer_to_any_task_becomes_a_valid_result(name, raw, finish):
    answer = read(name, raw, finish)
    for line in answer.lines:
        for x, y in line.quad or ():
            assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT and math.isfinite(x + y)
    assert [field.name for field in answer.fields] == (list(KEYS) if name == "fields" else [])
    result = Result(
        source="p", page_index=0, page_count=1, page_width=WIDTH, page_height=HEIGHT, rotation=0,
        task=name, model=Model("m"), engine="torch", lines=answer.lines, text=answer.text,
        fields=answer.fields, tables=answer.tables, markdown=answer.markdown, raw=raw,
        unparsed=answer.unparsed, warnings=answer.warnings, finish_reason=answer.finish_reason,
    )  # fmt: skip
    VALIDATOR.validate(result.to_dict())


@pytest.mark.parametrize("name", ONE_OF_EACH_FORM)
@settings(max_examples=80)
@given(raw=ANSWERS)
def test_every_letter_of_the_answer_is_somewhere(name, raw):
    """Counted on signs that are no part of any markup: 文, 字, 😀, T, U, S, D."""
    answer = read(name, raw, "stop")
    if any(n.code in ("no_text", "repetition_trimmed") for n in answer.warnings):
        return
    kept = [answer.text, answer.markdown or "", *answer.unparsed]
    kept += [line.text + line.kind for line in answer.lines]
    kept += [str(field.raw) for field in answer.fields] + [t.html for t in answer.tables]
    everything = "".join(kept)
    for sign in "文😀USD":
        assert everything.count(sign) >= raw.count(sign) or sign not in raw, (sign, answer)


@pytest.mark.parametrize("name", ONE_OF_EACH_FORM)
@pytest.mark.parametrize(
    "unit",
    ["(", "[", "{", '{"a":', "<table><tr><td>", "<td>", "$", "`", "```\n", "\\left(", "(1,2),",
     '"', "\\", "<hy-meta>", "{}", '{"box":[1,2,3,4],"text":"a"b"},', "<ref>a", "|-", "a(1,2)"],
)  # fmt: skip
def test_a_long_answer_of_one_piece_takes_no_time(name, unit):
    """20,000 characters that a wrong pattern would need minutes for (the suite's own timeout)."""
    read(name, unit * (20_000 // len(unit)) + "x", "stop")
