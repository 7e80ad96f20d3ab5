"""`hyocr plan`: time and memory before the hardware is there, and the gears that pay."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ascend.planning.model import RELEASED
from ascend.planning.plan import make_plan
from ascend.planning.text import plan_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `hyocr plan`."""
    what = f"`{RELEASED}` (the released sizes), config.json, a checkpoint, an export or a bundle"
    parser.add_argument("model", metavar="MODEL", help=what)
    parser.add_argument("--soc", required=True, metavar="NAME", help="the chip: Ascend310P3, ...")
    sizes = "page sizes: a .csv (width, height, count, print_px), a .jsonl, a folder of pictures"
    parser.add_argument("--pages", type=Path, metavar="FILE", help=sizes)
    parser.add_argument("--tokens", type=_positive, default=800, help="of an answer (default 800)")
    parser.add_argument("--batch", type=_batches, default=(1, 4, 8), metavar="1,4,8")
    parser.add_argument("--compare", action="store_true", help="the design alternatives as well")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """0 when the model fits the chip, 1 when it does not."""
    plan = make_plan(
        args.model,
        args.soc,
        pages=args.pages,
        tokens=args.tokens,
        batches=args.batch,
        compare=args.compare,
    )
    if args.json:
        print(json.dumps(plan, ensure_ascii=False, indent=2))
    else:
        print(plan_text(plan), end="")
    return 0 if plan["memory"]["fits"] else 1


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def _batches(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive(part.strip()) for part in text.split(",")}))
