"""`hyocr parity`: a bundle on the NPU against the CPU in float32; writes the figures into it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ascend.build.progress import speaker

EXIT_BELOW = 8  # as for a model whose numbers are broken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="what `hyocr compile` wrote")
    parser.add_argument(
        "--against", metavar="MODEL", help="the checkpoint it was exported from (not for ppocr)"
    )
    parser.add_argument(
        "--pages", type=Path, nargs="+", metavar="FILE", help="pages to read (two drawn ones)"
    )
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="leave the manifest as it is")


def run(args: argparse.Namespace) -> int:
    """0: within the bound; 8: below it, and the runtime will refuse the bundle unless forced."""
    from ascend.build.bundle_parity import check_bundle
    from ascend.build.readers import load_pages

    pages = load_pages(args.pages) if args.pages else None
    verdict = check_bundle(
        args.bundle,
        args.against,
        pages,
        device=args.device,
        write=not args.dry_run,
        say=speaker(),
    )
    print(json.dumps(verdict.to_dict(), indent=1, ensure_ascii=False))
    return 0 if verdict.passed else EXIT_BELOW
