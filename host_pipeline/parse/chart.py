"""Chart answers: Mermaid source for flow charts, a Markdown table for the others."""

from __future__ import annotations

import re

from host_pipeline.parse.answer import Answer
from host_pipeline.parse.coordinates import BoxMapper
from host_pipeline.parse.markdown import parse_markdown, split_fences

# The words that begin a diagram (mermaid.js.org, "Syntax reference").
_MERMAID = re.compile(
    r"\s*(?:flowchart|graph|sequenceDiagram|classDiagram|stateDiagram(?:-v2)?|erDiagram|journey|"
    r"gantt|pie|quadrantChart|requirementDiagram|gitGraph|mindmap|timeline|sankey(?:-beta)?|"
    r"xychart(?:-beta)?|block(?:-beta)?)\b(?=[ \t;\n]|\Z)"
)


def parse_chart(raw: str, mapper: BoxMapper) -> Answer:
    """The chart as Markdown: Mermaid in a closed ```mermaid fence, whether the model wrote the
    fence or not. `text` is the diagram's source, or the table's rows."""
    text = raw.strip()
    if _MERMAID.match(text) and not any(kind == "code" for kind, _ in split_fences(text)):
        text = f"```mermaid\n{text}\n```"
    return parse_markdown(text, mapper)
