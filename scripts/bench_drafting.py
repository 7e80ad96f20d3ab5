"""How many tokens one decoding step gives with prompt lookup, on recorded answers.

    python scripts/bench.py drafting [--labels DIR] [--most 7]

Exact: the answers that the demonstration reader gave (tests/data/reader/samples.json), in its own
tokens. Estimates: the labelled pages' right answers in the forms that the model was taught, cut
into words, digits and CJK characters, because the released tokenizer is not part of this project.
Counts only: nothing is timed, and a step of several rows costs more than one of a single row.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascend.families.hunyuanocr_files import open_files
from ascend.generate import Generation, Sampling, Stops, default_drafter
from host_pipeline.tasks import task

LABELS = Path(
    os.environ.get("HYOCR_EVAL_DIR", Path(__file__).parents[2] / "shared/data/eval_shared")
)
READER = Path(__file__).parents[1] / "tests/data/reader"
MOST = 7  # draft tokens of one step: the gear (1, 8, S)
_LEAST = 12  # tokens of an answer that is worth counting
_WORDS = re.compile(r"</?\w+>?|[A-Za-z]{1,4}|\d|\s+|.")


@dataclass(frozen=True, slots=True)
class Drafted:
    """One kind of answer: `answers` of them, of `tokens` tokens, took `steps` executions, in which
    `kept` of `drafted` guesses were right."""

    kind: str
    answers: int = 0
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    kept: int = 0

    @property
    def per_step(self) -> float:
        """Tokens that one execution gives; 1.0 without drafts."""
        return self.tokens / self.steps

    def text(self) -> str:
        return (
            f"{self.per_step:.2f} ({self.tokens} tokens of {self.answers} answers;"
            f" {self.kept} of {self.drafted} guesses kept)"
        )


def main(argv: list[str]) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="bench.py drafting")
    parser.add_argument("--labels", type=Path, default=LABELS, help="folder with labels.jsonl")
    parser.add_argument("--most", type=int, default=MOST, help="guesses of one step")
    args = parser.parse_args(argv)
    print("| answers | tokens per step |\n|---|---|")
    for row in (*reader_rows(args.most), *label_rows(args.labels, args.most)):
        print(f"| {row.kind} | {row.text()} |")
    return 0


def reader_rows(most: int = MOST) -> Iterator[Drafted]:
    """The reader's recorded answers by task, after the instruction that they answer."""
    tokenizer = open_files(READER).tokenizer
    pages = json.loads((READER / "samples.json").read_text("utf-8")).values()
    asked: dict[str, list[tuple[list[int], list[int]]]] = {}
    for answer in (answer for page in pages for answer in page["answers"]):
        pair = tokenizer.encode(answer["instruction"]), tokenizer.encode(answer["given"])
        asked.setdefault(answer["task"], []).append(pair)
    for name, pairs in asked.items():
        yield count(f"reader, {name}", pairs, most)


def label_rows(labels: Path, most: int = MOST) -> Iterator[Drafted]:
    """The labelled pages' right answers by task; nothing where there are no labels."""
    file = labels / "labels.jsonl"
    if not file.is_file():
        return
    pages = [json.loads(line) for line in file.open(encoding="utf-8")]
    kinds = (("spotting_hunyuan", spotting), ("text", plain), ("fields", fields), ("table", table))
    for name, answer_of in kinds:
        pairs = []
        for page in pages:
            ids: dict[str, int] = {}
            answer = _pieces(answer_of(page), ids)
            if len(answer) >= _LEAST:
                keys = tuple(page["fields"]) if name == "fields" else ()
                pairs.append((_pieces(task(name).instruction_for(keys), ids), answer))
        if pairs:
            yield count(f"labelled pages, {name} (estimate)", pairs, most)


def count(kind: str, pairs: Sequence[tuple[list[int], list[int]]], most: int = MOST) -> Drafted:
    """The executions that (prompt, answer) pairs take when a draft is kept as far as it is
    right."""
    total = Drafted(kind)
    for prompt, answer in pairs:
        steps, generation = speak(prompt, answer, most)
        total = Drafted(
            kind,
            total.answers + 1,
            total.tokens + len(answer),
            total.steps + steps,
            total.drafted + generation.drafted,
            total.kept + generation.drafted_kept,
        )
    return total


def speak(prompt: Sequence[int], answer: Sequence[int], most: int) -> tuple[int, Generation]:
    """Executions until a model that says exactly `answer` has said it, the prompt's among them,
    and what the product's own decoding loop noted meanwhile."""
    stop = max((*prompt, *answer)) + 1
    said = np.eye(stop + 1, dtype=np.float32)[[*answer, *[stop] * (most + 1)]]
    drafter = default_drafter() if most else None
    generation = Generation(prompt, stop + 1, Sampling(), Stops(frozenset({stop})), drafter)
    generation.accept(said[:1])
    steps = 1
    while generation.finish_reason is None and len(generation.tokens) < len(answer):
        done = len(generation.tokens)
        fed = generation.inputs(most)
        generation.accept(said[done : done + len(fed)])
        steps += 1
    assert generation.tokens == list(answer), "the loop rule cut an answer"
    return steps, generation


def spotting(page: dict[str, Any]) -> str:
    """Lines with their boxes in thousandths, as the model writes them."""
    parts = []
    for line in page["lines"]:
        poly, box = line.get("poly"), ""
        if line["text"] and poly:
            size = (page["width"], page["height"])
            xs, ys = (np.asarray(poly, float).reshape(-1, 2) / size).T
            corners = [int(1000 * v) for v in (xs.min(), ys.min(), xs.max(), ys.max())]
            box = "({},{}),({},{})".format(*corners)
        parts.append(line["text"] + box)
    return "".join(parts)


def plain(page: dict[str, Any]) -> str:
    """The lines alone."""
    return "\n".join(line["text"] for line in page["lines"])


def fields(page: dict[str, Any]) -> str:
    """The named values as JSON."""
    if not page["fields"]:
        return ""
    return f"```json\n{json.dumps(page['fields'], ensure_ascii=False)}\n```"


def table(page: dict[str, Any]) -> str:
    """The table as HTML."""
    return page["html"] or ""


def _pieces(text: str, ids: dict[str, int]) -> list[int]:
    return [ids.setdefault(word, len(ids)) for word in _WORDS.findall(text)]
