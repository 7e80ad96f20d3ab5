"""The task table: the only place with an instruction string. Command line, REST, docs and tests
are generated from it.

The twelve tasks of HunyuanOCR 1.5 carry its instructions to the letter: the vendor asks not to
edit them, because another wording lowers the quality of the answers (issues 22, 72 and 92 of
Tencent-Hunyuan/HunyuanOCR).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Form = Literal[
    "text", "subtitles", "spotting", "spotting_json", "layout", "markdown", "html_table",
    "latex", "chart", "json",
]  # fmt: skip
"""What an answer looks like; `host_pipeline.parse` has one parser for each."""

_V15 = "HunyuanOCR 1.5, inference/utils/tasks.py"
_V10 = "HunyuanOCR 1.0, README"
_KEYS = "{keys}"


class TaskError(ValueError):
    """A task, its keys or its schema is wrong; the text says what would be right."""


class UnknownTask(TaskError):
    """No task has this name; the text lists the nearest ones and all of them."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to ask of a page.

    `instruction` is the Chinese text that the model was trained on, `english` its meaning and
    `source` where both come from. `max_tokens` limits the answer (ours: the vendor's client uses
    4096 for everything; a full page of coordinates needs more, a formula far less). `example` is
    an answer as the model writes it. `needs_fields`: keys or a schema must be given."""

    name: str
    title: str
    instruction: str
    english: str
    source: str
    form: Form
    max_tokens: int
    example: str
    needs_fields: bool = False

    def instruction_for(self, keys: Sequence[str] = ()) -> str:
        """The instruction with `keys` written in, in the form of the vendor's own example.

        Raises TaskError when keys are missing, empty, repeated, or given to a task without."""
        if not self.needs_fields:
            if keys:
                raise TaskError(
                    f"task {self.name} takes no fields, got {list(keys)}; use task fields"
                )
            return self.instruction
        check_keys(keys)
        return self.instruction.replace(_KEYS, "[" + ", ".join(map(repr, keys)) + "]")


def check_keys(keys: Sequence[str]) -> None:
    """Raise TaskError unless `keys` is a non-empty list of different, non-blank names."""
    if isinstance(keys, str) or not keys:
        raise TaskError("task fields needs the names to look for; give --fields a,b or --schema")
    for key in keys:
        if not isinstance(key, str) or not key.strip():
            raise TaskError(f"a field's name must be a non-blank text, got {key!r}")
    repeated = sorted({key for key in keys if list(keys).count(key) > 1})
    if repeated:
        raise TaskError(f"each field may be named once; named more often: {', '.join(repeated)}")


_TABLE = (
    Task(
        "doc_parse", "Document body as Markdown",
        "提取文档图片中正文的所有信息用markdown格式表示，其中页眉、页脚部分忽略，表格用html格式表达，"
        "文档中公式用latex格式表示，按照阅读顺序组织进行解析。",
        "Extract all information from the main body of the document image and represent it in "
        "markdown format, ignoring headers and footers. Tables should be expressed in HTML "
        "format, formulas in the document should be represented using LaTeX format, and the "
        "parsing should be organized according to the reading order.",
        f"{_V15}; English: {_V10}", "markdown", 8192,
        "# 季度报告\n\n总收入 $1.2$ 亿元。\n\n<table><tr><td>月</td><td>收入</td></tr></table>",
    ),
    Task(
        "structured_parse", "All text of a scene or a manuscript",
        "提取图中的文字。", "Extract the text in the image.",
        f"{_V15}; English: {_V10}", "text", 4096, "锦绣中华\n营业时间 9:00-21:00",
    ),
    Task(
        "spotting_json", "Lines and boxes, as JSON",
        "检测并识别图中所有的文字行，请按从上到下、从左到右的阅读顺序进行识别。 "
        '输出格式为 JSON 数组，每个元素必须包含："box": [xmin, ymin, xmax, ymax]'
        '（坐标需归一化到 [0, 1000] 范围内）；"text": "识别出的文字内容"。 '
        "注意：请直接输出 JSON 数组，不要包含任何多余的描述性文字。",
        "Detect and recognize every text line of the image, in reading order from top to bottom "
        'and from left to right. Output a JSON array; each element must hold "box": [xmin, ymin, '
        'xmax, ymax] (normalized to [0, 1000]) and "text": "the recognized text". Output the '
        "array only, without any further words.",
        f"{_V15}; English: ours", "spotting_json", 8192,
        '[{"box": [102, 88, 431, 120], "text": "收据"}]',
    ),
    Task(
        "spotting_hunyuan", "Lines and boxes, in the model's own form",
        "检测并识别图片中的文字，将文本坐标格式化输出。",
        "Detect and recognize text in the image, and output the text coordinates in a formatted "
        "manner.",
        f"{_V15}; English: {_V10}", "spotting", 8192,
        "收据(102,88),(431,120)合计 (元)(102,500),(300,532)",
    ),
    Task(
        "layout", "Regions of the page in reading order",
        "按照阅读顺序解析图中的版式信息。",
        "Parse the layout of the image in reading order.",
        f"{_V15}; English: ours", "layout", 4096,
        '[{"layout_type": "figure", "bbox": "(450,347),(698,347),(698,631),(450,631)"}]',
    ),
    Task(
        "layout_parse", "Regions of the page with their content",
        "提取文档图片中所有内容用markdown格式表示，表格用html格式表达，文档中公式用latex格式表示，"
        "请按照阅读顺序组织进行全文解析，并输出版式分析信息。",
        "Extract all content of the document image in markdown format, tables in HTML and "
        "formulas in LaTeX, parse the full text in reading order, and output the layout analysis.",
        f"{_V15}; English: ours", "layout", 8192,
        "年度报告<hy-meta><layout>title</layout>"
        "<quad>(50,20),(950,20),(950,90),(50,90)</quad></hy-meta>",
    ),
    Task(
        "chart_parse", "Chart as Mermaid or a Markdown table",
        "解析图中的图表，对于流程图使用Mermaid格式表示，其他图表使用Markdown格式表示。",
        "Parse the chart in the image; use Mermaid format for flowcharts and Markdown for other "
        "charts.",
        f"{_V15}; English: {_V10}", "chart", 4096,
        "```mermaid\nflowchart TD\n    A[开始] --> B[结束]\n```",
    ),
    Task(
        "formula", "Formula as LaTeX",
        "识别图片中的公式，用LaTeX格式表示。",
        "Identify the formula in the image and represent it using LaTeX format.",
        f"{_V15}; English: {_V10}", "latex", 2048, "$$ E = m c^{2} $$",
    ),
    Task(
        "table", "Table as HTML",
        "把图中的表格解析为HTML。", "Parse the table in the image into HTML.",
        f"{_V15}; English: {_V10}", "html_table", 8192,
        '<table><tr><th colspan="2">价格</th></tr><tr><td>茶</td><td>12</td></tr></table>',
    ),
    Task(
        "doc_trans_en2zh", "English document into Chinese",
        "先解析文档，再将文档内容翻译为中文，其中页眉、页脚忽略，公式用latex格式表示，表格用html格式表示。",
        "First parse the document, then translate its content into Chinese; ignore headers and "
        "footers, formulas in LaTeX format, tables in HTML format.",
        f"{_V15}; English: ours", "markdown", 8192, "# 引言\n\n本文研究光学字符识别。",
    ),
    Task(
        "trans_other2en", "Any picture into English",
        "按照阅读顺序，提取图中文字，公式用latex格式表示，表格用markdown格式表示，再将文字内容翻译为英文。",
        "Extract the text of the image in reading order, formulas in LaTeX format, tables in "
        "markdown format, then translate the text into English.",
        f"{_V15}; English: ours", "markdown", 4096, "Exit on the left",
    ),
    Task(
        "trans_other2zh", "Any picture into Chinese",
        "按照阅读顺序，提取图中文字，公式用latex格式表示，表格用markdown格式表示，再将文字内容翻译为中文。",
        "Extract the text of the image in reading order, formulas in LaTeX format, tables in "
        "markdown format, then translate the text into Chinese.",
        f"{_V15}; English: ours", "markdown", 4096, "左侧出口",
    ),
    Task(
        "fields", "Values of named fields, as JSON",
        f"提取图片中的: {_KEYS} 的字段内容，并按照 JSON 格式返回。",
        f"Extract the content of the fields: {_KEYS} from the image and return it in JSON format.",
        _V10, "json", 2048, '```json\n{"单价": "2.30", "发票号码": "03287445"}\n```',
        needs_fields=True,
    ),
    Task(
        "subtitles", "Subtitles of a film frame",
        "提取图片中的字幕。", "Extract the subtitles from the image.",
        _V10, "subtitles", 512, "我们明天见",
    ),
    Task(
        "text", "All text in reading order",
        "提取图中的文字。", "Extract the text in the image.",
        f"{_V15} (structured_parse); English: {_V10}", "text", 4096, "出口 EXIT\n请勿吸烟",
    ),
)  # fmt: skip

TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _TABLE})
"""Every task by its name, the official ones first, in the vendor's order."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        # The short form costs half the tokens of the JSON one for the same boxes.
        "spotting": "spotting_hunyuan",
        "markdown": "doc_parse",
        "chart": "chart_parse",
        "latex": "formula",
        "kie": "fields",
    }
)
"""Other names by which people ask for a task -> the task's name."""


def task(name: str) -> Task:
    """The task called `name` (or one of its aliases). Raises UnknownTask with suggestions."""
    found = TASKS.get(ALIASES.get(name, name))
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), [*TASKS, *ALIASES], n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ";"
    raise UnknownTask(f"unknown task {name!r}{hint} the tasks are {', '.join(TASKS)}")
