"""From what HunyuanOCR said of a page, or of its tiles, to the parts of a Result."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ascend.confidence import SpokenText, score_fields, score_lines
from ascend.families import ReadRequest
from ascend.generate import FinishReason, Generation
from host_pipeline.join import join_pieces, join_texts
from host_pipeline.page import Page
from host_pipeline.parse import Answer, parse_answer
from host_pipeline.result import Line, Notice, rectangle
from host_pipeline.tasks import Form, Task
from host_pipeline.tile import merge_across
from host_pipeline.views import View

# Forms whose answer can be put together from tiles, and how a page may be cut for them: boxes tell
# where a line is, plain text has only its order.
TILES: Mapping[Form, Literal["bands", "grid"]] = {
    "spotting": "grid",
    "spotting_json": "grid",
    "text": "bands",
    "markdown": "bands",
    "subtitles": "bands",
}
# An answer of these forms that is only boxes says nothing of the text (HunyuanOCR issue 118).
TEXT_FORMS: frozenset[Form] = frozenset({"text", "subtitles", "markdown"})
_ONLY_BOXES = re.compile(r"\s*\(\d+\s*,\s*\d+\)(?:[\s,]*\(\d+\s*,\s*\d+\))*[\s,]*")
_BOXES_SO_FAR = re.compile(r"[\s\d(),]*")

_SEVERITY: tuple[FinishReason, ...] = (
    "stop",
    "repetition",
    "length",
    "cancelled",
    "numeric_fault",
)


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """What the model said of one view."""

    view: View
    generation: Generation
    text: SpokenText

    @property
    def reason(self) -> FinishReason:
        return self.generation.finish_reason or "stop"


def only_boxes(text: str) -> bool:
    """Is `text` nothing but coordinates?"""
    return _ONLY_BOXES.fullmatch(text) is not None


def maybe_only_boxes(text: str) -> bool:
    """May `text`, the start of an answer, still turn out to be nothing but coordinates?"""
    return _BOXES_SO_FAR.fullmatch(text) is not None


def parse_spoken(task: Task, request: ReadRequest, page: Page, spoken: Sequence[Spoken]) -> Answer:
    """The parsed answer of a page: of its one view, or of its tiles put together."""
    fields: Any = request.schema if request.schema is not None else request.keys
    if len(spoken) == 1 or TILES.get(task.form) == "grid":
        answers = [_parse_one(task, fields, page, one) for one in spoken]
        answer = answers[0] if len(answers) == 1 else _merge(answers, spoken, page)
    else:
        joined = join_texts([one.text.text for one in spoken])
        answer = parse_answer(
            task,
            joined,
            to_page=spoken[0].view.to_page,
            page_size=(page.width, page.height),
            finish_reason=worst(one.reason for one in spoken),
        )
        said = SpokenText.chain([one.text for one in spoken])
        answer = dataclasses.replace(answer, lines=score_lines(answer.lines, said))
    return dataclasses.replace(answer, warnings=(*answer.warnings, *_stop_notices(answer, spoken)))


def worst(reasons: Iterable[FinishReason]) -> FinishReason:
    """The reason that says most about what is missing."""
    return max(reasons, key=_SEVERITY.index)


def usage_of(spoken: Sequence[Spoken]) -> dict[str, int]:
    """Token counts of one question: prompts (image rows included), answers (stop tokens included,
    as the serving engines count them), and drafts."""
    generations = [one.generation for one in spoken]
    ended = sum(g.finish_reason == "stop" for g in generations)
    return {
        "prompt_tokens": sum(g.prompt_length for g in generations),
        "completion_tokens": sum(len(g.tokens) for g in generations) + ended,
        "drafted_tokens": sum(g.drafted for g in generations),
        "drafted_kept_tokens": sum(g.drafted_kept for g in generations),
    }


def _parse_one(task: Task, fields: Any, page: Page, one: Spoken) -> Answer:
    answer = parse_answer(
        task,
        one.text.text,
        to_page=one.view.to_page,
        page_size=(page.width, page.height),
        fields=fields,
        finish_reason=one.reason,
    )
    lines, found = score_lines(answer.lines, one.text), score_fields(answer.fields, one.text)
    return dataclasses.replace(answer, lines=lines, fields=found)


def _merge(answers: Sequence[Answer], spoken: Sequence[Spoken], page: Page) -> Answer:
    """Tiles with boxes: a line that two of them saw stands there once."""
    lines = _merge_lines([a.lines for a in answers], [one.view for one in spoken], page)
    return Answer(
        lines=lines,
        text="\n".join(line.text for line in lines),
        tables=tuple(table for a in answers for table in a.tables),
        unparsed=tuple(part for a in answers for part in a.unparsed),
        warnings=tuple(dict.fromkeys(notice for a in answers for notice in a.warnings)),
        finish_reason=worst(a.finish_reason for a in answers),
    )


def _merge_lines(
    found: Sequence[Sequence[Line]], views: Sequence[View], page: Page
) -> tuple[Line, ...]:
    placed = [[line for line in lines if line.quad is not None] for lines in found]
    quads = [np.array([line.quad for line in lines], np.float32) for lines in placed]
    windows = [view.window for view in views]
    groups = sorted(merge_across(quads, windows, page.height, page.width), key=min)
    lines = [_whole([placed[window][box] for window, box in sorted(group)]) for group in groups]
    return (*lines, *(line for lines in found for line in lines if line.quad is None))


def _whole(pieces: Sequence[Line]) -> Line:
    """One line from the pieces that neighbouring tiles saw of it; as sure as the least sure."""
    if len(pieces) == 1:
        return pieces[0]
    corners = np.array([piece.quad for piece in pieces])
    (left, top), (right, bottom) = corners.min((0, 1)), corners.max((0, 1))
    along = 0 if right - left >= bottom - top else 1
    order = np.argsort(corners[:, :, along].min(1), kind="stable")
    scores = [piece.score for piece in pieces if piece.score is not None]
    return dataclasses.replace(
        pieces[0],
        text=join_pieces([pieces[i].text for i in order]),
        quad=rectangle(float(left), float(top), float(right), float(bottom)),
        score=min(scores, default=None),
    )


def _stop_notices(answer: Answer, spoken: Sequence[Spoken]) -> tuple[Notice, ...]:
    """Notices of how the answer ended that its text cannot show the parser."""
    notices = []
    said = {notice.code for notice in answer.warnings}
    looped = [one for one in spoken if one.reason == "repetition"]
    if looped and "repetition_trimmed" not in said:
        tokens = len(looped[0].generation.tokens)
        notices.append(
            Notice("repetition_stopped", f"stopped after {tokens} tokens: the answer ran in a loop")
        )
    full = [g for g in (one.generation for one in spoken) if g.limit < g.sampling.max_tokens]
    if any(g.finish_reason == "length" for g in full):
        text = f"the context had room for {full[0].limit} tokens of {full[0].sampling.max_tokens}"
        notices.append(Notice("context_full", text))
    return tuple(notices)
