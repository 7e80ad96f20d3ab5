"""Draws a sheet of fresh slips with their truth, on which every engine and precision is scored.

    python -m scripts.train_reader.sheet --fonts FONTS --out tests/data/reader

The slips are the first of their seed, chosen by nobody: `sheet.png` holds them one below the other,
`sheet.json` says for each what is asked and what the right answer is.
"""

import argparse
import json
import random
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from . import world
from .evaluate import draw_tests, split_sample
from .pages import Style

TASKS = ("text", "spotting", "fields")


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
