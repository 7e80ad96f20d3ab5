"""How sure the model was of what it wrote: scores of lines and fields from token probabilities.

A score is the geometric mean of the probabilities that the model itself gave (before penalty, ban
and temperature) to the tokens that wrote the text: 1.0 means it saw no alternative. It ranks lines
of one model; it is no probability of being right and is not comparable between models.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from host_pipeline.result import Field, Line


@dataclass(frozen=True, slots=True, eq=False)
class SpokenText:
    """An answer's text and who wrote it: token i wrote `text[ends[i-1]:ends[i]]` (nothing while a
    character was incomplete) with log-probability `logprobs[i]`."""

    text: str
    ends: Sequence[int]
    logprobs: Sequence[float]

    @classmethod
    def chain(cls, parts: Sequence[SpokenText]) -> SpokenText:
        """Several answers one below the other; the line breaks between them belong to nobody."""
        text = ""
        ends: list[int] = []
        logprobs: list[float] = []
        for part in parts:
            text += "\n" if ends else ""
            ends += [len(text) + end for end in part.ends]
            logprobs += part.logprobs
            text += part.text
        return cls(text, ends, logprobs)

    def score(self, start: int, end: int) -> float | None:
        """The score of `text[start:end]`; None when no token wrote it."""
        ends = self._completing()
        first = int(np.searchsorted(ends, start, "right"))
        last = int(np.searchsorted(ends, end, "left")) + 1
        used = self.logprobs[first:last]
        return round(math.exp(sum(used) / len(used)), 4) if used and end > start else None

    def _completing(self) -> NDArray[np.int64]:
        """Where the character that each token belongs to ends."""
        ends = np.asarray(self.ends, np.int64)
        if not len(ends):
            return ends
        wrote = np.diff(ends, prepend=0) > 0
        following = np.where(wrote, np.arange(len(ends)), len(ends) - 1)[::-1]
        return ends[np.minimum.accumulate(following)[::-1]]


def score_lines(lines: Sequence[Line], spoken: SpokenText) -> tuple[Line, ...]:
    """`lines` with scores, in the order in which the model wrote them; one whose text is not found
    as it stands (the parser rewrote it) keeps its score."""
    at = 0
    scored = []
    for line in lines:
        found = _find(line.text, spoken.text, at)
        if found is not None:
            at = found[1]
            line = dataclasses.replace(line, score=spoken.score(*found))
        scored.append(line)
    return tuple(scored)


def score_fields(fields: Sequence[Field], spoken: SpokenText) -> tuple[Field, ...]:
    """`fields` with the score of their values; a field without a value has none."""
    scored = []
    for field in fields:
        written = field.raw if field.raw is not None else _written(field.value)
        if written is not None and field.value is not None:
            after = max(spoken.text.find(json.dumps(field.name, ensure_ascii=False)), 0)
            after += len(field.name) if after else 0
            found = _find(written, spoken.text, after)
            if found is not None:
                field = dataclasses.replace(field, score=spoken.score(*found))
        scored.append(field)
    return tuple(scored)


def _find(text: str, within: str, start: int) -> tuple[int, int] | None:
    """Where `text` stands, as it is or as JSON writes it."""
    for form in (text, json.dumps(text, ensure_ascii=False)[1:-1]):
        at = within.find(form, start) if form else -1
        if at >= 0:
            return at, at + len(form)
    return None


def _written(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
