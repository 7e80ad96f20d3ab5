"""Draws a sheet of fresh slips with their truth, on which every engine and precision is scored.

    python -m scripts.train_reader.sheet --fonts FONTS --out tests/data/reader

The slips are the first of their seed, chosen by nobody: `sheet.png` holds them one below the other,
`sheet.json` says for each what is asked and what the right answer is.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from . import world
from .decoding import Score, parse_fields
from .evaluate import draw_tests, split_sample
from .pages import Style

TASKS = ("text", "spotting", "fields")


class Sheet:
    """The slips (H, W, 3) of a checkpoint's sheet, and what is asked of each."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[dict[str, str]] = json.loads((folder / "sheet.json").read_text("utf-8"))
        pixels = np.asarray(Image.open(folder / "sheet.png").convert("RGB"))
        self.slips: list[NDArray[np.uint8]] = list(
            pixels.reshape(len(self.asked), -1, *pixels.shape[1:])
        )

    def read(self, ocr: Any, index: int, **options: Any) -> str:
        """The untouched answer of an `ascend.api.OCR` to one slip."""
        task, wanted = self.asked[index]["task"], self.asked[index]["wanted"]
        keys = tuple(parse_fields(wanted)) if task == "fields" else ()
        result = ocr.read(self.slips[index], task, keys=keys, resize="hug", **options)
        return str(result.raw)

    def score(self, answers: Sequence[str]) -> dict[str, float]:
        """Error rate and boxes over the slips that ask for them, and the fields."""
        score = Score()
        add = {"text": score.add_text, "spotting": score.add_spotting, "fields": score.add_fields}
        for asked, given in zip(self.asked, answers, strict=True):
            add[asked["task"]](asked["wanted"], given)
        return score.figures()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fonts", type=Path, required=True, help="see install_fonts.sh")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--pages", type=int, default=16, help="slips of each task")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    slips, asked = [], []
    for task in TASKS:
        rng = random.Random(f"sheet/{args.seed}/{task}")
        for page, steps in draw_tests(rng, world.CANVASES[0], task, args.pages, Style(args.fonts)):
            slips.append(page.pixels)
            asked.append({"task": task, "wanted": split_sample(steps)[1]})
    Image.fromarray(np.concatenate(slips)).save(args.out / "sheet.png", optimize=True)
    text = json.dumps(asked, ensure_ascii=False, indent=1)
    (args.out / "sheet.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
