"""Draws one page per canvas beside a checkpoint, with its truth and the reader's own answers.

    python -m scripts.train_reader.sample --reader tests/data/reader --fonts FONTS --seed 5

Of the pages that follow the seed, the first is taken that the reader reads without a fault in all
tasks (the card says so); after `--tries` pages the one with the fewest faults.
"""

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import torch
from PIL import Image

from . import vocabulary, world
from .decoding import edit_distance, overlap, parse_spotting, read_pages
from .evaluate import layout_for, split_sample
from .export import load_reader
from .pages import DrawnPage, Style, draw_page
from .reader_model import Reader
from .samples import whole_grid, word_sample

TASKS = ("text", "spotting", "fields")


@dataclass(frozen=True, slots=True)
class Answer:
    """One task on one page: the whole instruction, the truth and what the reader answers."""

    task: str
    instruction: str
    wanted: str
    given: str


def ask(reader: Reader, page: DrawnPage, task: str, seed: int) -> Answer:
    """The reader's greedy answer to one task."""
    steps = word_sample(random.Random(seed), page, task, whole_grid(page))
    prompt, wanted = split_sample(steps)
    ids = torch.tensor([[vocabulary.token_ids()[text] for text in prompt]])
    pixels = torch.from_numpy(page.pixels)[None]
    tokens = read_pages(reader, pixels, ids, len(wanted) + 24)[0]
    given = vocabulary.build_tokenizer().decode(tokens)
    return Answer(task, "".join(prompt[:-1]), wanted, given)


def count_faults(answer: Answer) -> int:
    """Wrong characters, and boxes that overlap their truth by less than half."""
    if answer.task != "spotting":
        return edit_distance(answer.wanted, answer.given)
    wanted, given = parse_spotting(answer.wanted), parse_spotting(answer.given)
    texts = ("\n".join(text for text, _ in items) for items in (wanted, given))
    missed = sum(overlap(w[1], g[1]) < 0.5 for w, g in zip(wanted, given, strict=False))
    return edit_distance(*texts) + missed


def pick_page(
    reader: Reader, canvas: tuple[int, int], style: Style, seed: int, tries: int
) -> tuple[DrawnPage, list[Answer]]:
    """The first page read without a fault, or the best of `tries`."""
    rng = random.Random(f"sample/{seed}/{canvas}")
    best: tuple[int, DrawnPage, list[Answer]] | None = None
    for _ in range(tries):
        page = draw_page(rng, layout_for(canvas, "text"), style)
        if len(page.fields) < 2:
            continue
        answers = [ask(reader, page, task, seed) for task in TASKS]
        faults = sum(count_faults(answer) for answer in answers)
        if best is None or faults < best[0]:
            best = (faults, page, answers)
        if faults == 0:
            break
    if best is None:
        raise SystemExit(f"no page with two labelled lines among {tries}; raise --tries")
    return best[1], best[2]


def describe(page: DrawnPage, answers: list[Answer]) -> dict[str, Any]:
    """What samples.json holds of one page; boxes in page pixels."""
    return {
        "lines": [{"text": line.text, "box": list(line.box)} for line in page.lines],
        "answers": [
            {"task": a.task, "instruction": a.instruction, "wanted": a.wanted, "given": a.given}
            for a in answers
        ],
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reader", type=Path, required=True, help="exported folder")
    parser.add_argument("--fonts", type=Path, required=True, help="see install_fonts.sh")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--tries", type=int, default=40)
    args = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    reader, pages = load_reader(args.reader), {}
    for canvas in world.CANVASES:
        name = f"sample_{canvas[0]}x{canvas[1]}.png"
        page, answers = pick_page(reader, canvas, Style(args.fonts), args.seed, args.tries)
        Image.fromarray(page.pixels).save(args.reader / name)
        pages[name] = describe(page, answers)
    text = json.dumps(pages, ensure_ascii=False, indent=1)
    (args.reader / "samples.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
