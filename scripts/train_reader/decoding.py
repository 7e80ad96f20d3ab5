"""Batched greedy decoding and the scores of its answers."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import vocabulary
from .reader_model import Reader, positions, show_pages

_BOX = re.compile(r"\((\d+),(\d+)\),\((\d+),(\d+)\)")
Box = tuple[int, int, int, int]


@torch.no_grad()
def read_pages(reader: Reader, pixels: Tensor, prompt: Tensor, limit: int) -> list[list[int]]:
    """Answer ids (without the end token) of whole-canvas pages (B, H, W, 3) and one prompt length.

    `prompt` is (B, P): instruction and user token. At most `limit` tokens each.
    """
    batch, end = len(pixels), vocabulary.token_ids()[vocabulary.ASSISTANT]
    shown = show_pages(pixels)
    places = positions(shown, prompt.shape[1] + limit)
    x = reader.embed(reader.see(shown), prompt)
    length = x.shape[1]
    hidden, cache, _ = reader.decode(x, reader.rotary(places[..., :length]))
    open_pages = torch.ones(batch, dtype=torch.bool, device=pixels.device)
    answers: list[Tensor] = []
    table = reader.tensor("model.embed_tokens.weight")
    for step in range(limit):
        token = reader.logits(hidden[:, -1]).argmax(-1)
        token = torch.where(open_pages, token, end)
        answers.append(token)
        open_pages &= token != end
        if not open_pages.any():
            break
        place = reader.rotary(places[..., length + step : length + step + 1])
        hidden, cache, _ = reader.decode(table[token][:, None], place, cache)
    rows = torch.stack(answers, 1).tolist()
    return [row[: row.index(end)] if end in row else row for row in rows]


def edit_distance(a: Sequence[object], b: Sequence[object]) -> int:
    """Levenshtein distance."""
    previous = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        current = [i]
        for j, right in enumerate(b, 1):
            step = previous[j - 1] + (left != right)
            current.append(min(previous[j] + 1, current[-1] + 1, step))
        previous = current
    return previous[-1]


def parse_spotting(text: str) -> list[tuple[str, Box]]:
    """Items of the official coordinate form; an item's text is everything since the last box."""
    items, start = [], 0
    for match in _BOX.finditer(text):
        x0, y0, x1, y1 = (int(group) for group in match.groups())
        items.append((text[start : match.start()].strip(), (x0, y0, x1, y1)))
        start = match.end()
    return items


def overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    width = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    area = max(0, a[2] - a[0]) * max(0, a[3] - a[1]) + max(0, b[2] - b[0]) * max(0, b[3] - b[1])
    return width * height / max(1, area - width * height)


def parse_fields(text: str) -> dict[str, str]:
    """The object of a fenced JSON answer; empty if it is not one."""
    body = text.removeprefix("```json").removesuffix("```").strip()
    try:
        value = json.loads(body)
    except json.JSONDecodeError:
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


@dataclass(slots=True)
class Score:
    """Counts over pages; the figures are properties."""

    edits: int = 0
    characters: int = 0
    exact_pages: int = 0
    pages: int = 0
    boxes_hit: int = 0
    boxes_hit_exact: int = 0
    boxes_wanted: int = 0
    boxes_given: int = 0
    overlaps: list[float] = field(default_factory=list)
    fields_right: int = 0
    fields_asked: int = 0

    def add_text(self, wanted: str, given: str) -> None:
        """Counts one page of plain text."""
        self.edits += edit_distance(wanted, given)
        self.characters += len(wanted)
        self.exact_pages += wanted == given
        self.pages += 1

    def add_spotting(self, wanted: str, given: str) -> None:
        """Counts boxes matched one to one, best overlap first, and the text around them."""
        truth, found = parse_spotting(wanted), parse_spotting(given)
        self.add_text("\n".join(t for t, _ in truth), "\n".join(t for t, _ in found))
        self.boxes_wanted += len(truth)
        self.boxes_given += len(found)
        pairs = sorted(
            ((overlap(t[1], f[1]), i, j) for i, t in enumerate(truth) for j, f in enumerate(found)),
            reverse=True,
        )
        used_truth: set[int] = set()
        used_found: set[int] = set()
        for share, i, j in pairs:
            if i not in used_truth and j not in used_found:
                used_truth.add(i)
                used_found.add(j)
                self.overlaps.append(share)
                self.boxes_hit += share >= 0.5
                self.boxes_hit_exact += share >= 0.5 and truth[i][0] == found[j][0]

    def add_fields(self, wanted: str, given: str) -> None:
        """Counts values that are exactly right."""
        truth, found = parse_fields(wanted), parse_fields(given)
        self.fields_asked += len(truth)
        self.fields_right += sum(found.get(key) == value for key, value in truth.items())

    def figures(self) -> dict[str, float]:
        """The figures that have data, rounded to four places."""
        boxes = self.boxes_wanted + self.boxes_given
        values = {
            "cer": (self.edits, self.characters),
            "exact_pages": (self.exact_pages, self.pages),
            "f1_iou50": (2 * self.boxes_hit, boxes),
            "f1_iou50_text": (2 * self.boxes_hit_exact, boxes),
            "mean_iou": (sum(self.overlaps), len(self.overlaps)),
            "field_accuracy": (self.fields_right, self.fields_asked),
        }
        return {name: round(top / bottom, 4) for name, (top, bottom) in values.items() if bottom}
