"""The instructions that get a token of their own, in id order; the texts are the task table's."""

from host_pipeline.tasks import TASKS

STRUCTURED_PARSE = TASKS["structured_parse"].instruction
SPOTTING_HUNYUAN = TASKS["spotting_hunyuan"].instruction
_NAMES = (
    "doc_parse", "structured_parse", "spotting_json", "spotting_hunyuan", "layout",
    "layout_parse", "chart_parse", "formula", "table", "doc_trans_en2zh", "trans_other2en",
    "trans_other2zh", "subtitles",
)  # fmt: skip
INSTRUCTIONS: tuple[str, ...] = tuple(TASKS[name].instruction for name in _NAMES)
# The list of keys stands between these two: `['key1', 'key2']`.
_BEFORE, _AFTER = TASKS["fields"].instruction.split("{keys}")
FIELDS_HEAD, FIELDS_TAIL = f"{_BEFORE}[", f"]{_AFTER}"
