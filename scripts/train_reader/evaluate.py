"""Draws fresh pages and prints the reader's scores on them in one line of JSON.

    python -m scripts.train_reader.evaluate --fonts FONTS --reader tests/data/reader \
        --seed 777 --pages 500 --task spotting --canvas 480x640
"""

import argparse
import json
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import cv2
import torch

from . import vocabulary, world
from .decoding import Score, read_pages
from .export import load_reader
from .pages import DrawnPage, Layout, Style, draw_page
from .reader_model import Reader
from .samples import Step, whole_grid, word_sample

_LIMITS = {"text": 0, "spotting": 10, "fields": 10}


def layout_for(canvas: tuple[int, int], task: str) -> Layout:
    """The world's layout on a canvas: slips of 1 to 3 lines; on the large canvas the slip lies in
    the corner and the rest is letterbox grey."""
    labelled = 1.0 if task == "fields" else 0.5
    return Layout(canvas, 1, 3, labelled, page=world.CANVASES[0])


def draw_tests(
    rng: random.Random, canvas: tuple[int, int], task: str, pages: int, style: Style
) -> list[tuple[DrawnPage, list[Step]]]:
    """Pages with their wanted samples; for `fields` only pages that have a labelled line."""
    tests: list[tuple[DrawnPage, list[Step]]] = []
    while len(tests) < pages:
        page = draw_page(rng, layout_for(canvas, task), style)
        if task != "fields" or page.fields:
            tests.append((page, word_sample(rng, page, task, whole_grid(page))))
    return tests


def split_sample(steps: list[Step]) -> tuple[list[str], str]:
    """Prompt pieces up to the user token, and the answer's text without its end token."""
    cut = next(index for index, step in enumerate(steps) if step.learned)
    return [step.text for step in steps[:cut]], "".join(step.text for step in steps[cut:-1])


def score_pages(
    reader: Reader,
    tests: list[tuple[DrawnPage, list[Step]]],
    task: str,
    batch: int,
    show: int = 0,
) -> Score:
    """Scores of greedy answers, `batch` pages of one prompt length at a time."""
    table, tokenizer = vocabulary.token_ids(), vocabulary.build_tokenizer()
    by_length: defaultdict[int, list[tuple[DrawnPage, list[str], str]]] = defaultdict(list)
    for page, steps in tests:
        prompt, answer = split_sample(steps)
        by_length[len(prompt)].append((page, prompt, answer))
    score, add = Score(), {"text": "add_text", "spotting": "add_spotting", "fields": "add_fields"}
    for group in by_length.values():
        for start in range(0, len(group), batch):
            part = group[start : start + batch]
            pixels = torch.stack([torch.from_numpy(page.pixels) for page, _, _ in part])
            prompt = torch.tensor([[table[text] for text in words] for _, words, _ in part])
            limit = max(len(answer) for _, _, answer in part) + 24
            for (_, _, wanted), ids in zip(
                part, read_pages(reader, pixels, prompt, limit), strict=True
            ):
                given = tokenizer.decode(ids)
                getattr(score, add[task])(wanted, given)
                if show > 0:
                    show -= 1
                    print(json.dumps({"wanted": wanted, "given": given}, ensure_ascii=False))
    return score


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reader", type=Path, required=True, help="exported folder, or state.pt")
    parser.add_argument("--fonts", type=Path, required=True, help="see install_fonts.sh")
    parser.add_argument("--seed", type=int, default=777)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--task", choices=tuple(_LIMITS), default="text")
    parser.add_argument("--canvas", default="96x320", help="HEIGHTxWIDTH")
    parser.add_argument("--unseen-fonts", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--show", type=int, default=0, help="print this many answers first")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    height, width = (int(side) for side in args.canvas.split("x"))
    style = Style(args.fonts)
    if args.unseen_fonts:
        style = replace(style, latin=world.UNSEEN_LATIN_FONTS, chinese=world.UNSEEN_CHINESE_FONT)
    rng = random.Random(f"held-out/{args.seed}")
    tests = draw_tests(rng, (height, width), args.task, args.pages, style)
    score = score_pages(load_reader(args.reader), tests, args.task, args.batch, args.show)
    facts = {"task": args.task, "canvas": args.canvas, "seed": args.seed, "pages": args.pages}
    print(json.dumps({**facts, "unseen_fonts": args.unseen_fonts, **score.figures()}))


if __name__ == "__main__":
    main()
