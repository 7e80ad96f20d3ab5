"""Charts: Mermaid always in a closed fence, other charts as tables."""

import pytest

from host_pipeline.parse import parse_answer
from host_pipeline.tasks import task

TICKS = "`" * 3
FLOW = "flowchart TD\n    A[开始] --> B{是否}\n    B -->|是| C[结束]"


def read(raw):
    return parse_answer(task("chart"), raw, to_page=lambda p: p)


@pytest.mark.parametrize(
    "raw",
    [FLOW, f"{TICKS}mermaid\n{FLOW}\n{TICKS}", f"{TICKS}mermaid\n{FLOW}", f"\n{FLOW}\n"],
    ids=["bare", "fenced", "fence cut", "blank lines"],
)
def test_mermaid_ends_up_in_one_closed_fence(raw):
    answer = read(raw)
    assert answer.markdown == f"{TICKS}mermaid\n{FLOW}\n{TICKS}"
    assert answer.text == FLOW and answer.tables == ()


@pytest.mark.parametrize("word", ["graph LR", "sequenceDiagram", "pie", "stateDiagram-v2"])
def test_each_kind_of_diagram_is_known(word):
    assert read(f"{word}\n a-->b").markdown.startswith(f"{TICKS}mermaid\n{word}")


def test_prose_that_begins_with_such_a_word_is_no_diagram():
    assert read("pies are sold here").markdown == "pies are sold here"


def test_a_table_of_values_is_a_table():
    answer = read("| 年 | 收入 |\n|---|---|\n| 2023 | 12.5 |")
    assert "<td>12.5</td>" in answer.tables[0].html
