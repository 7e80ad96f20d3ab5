"""`hyocr profile`: where the time of a page goes. SRC..., `report DIR`, or `compare A B`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ascend.api import OCR
from ascend.commands.read import expand
from ascend.errors import UsageError
from ascend.opening import EMBEDDED, ENGINES
from ascend.profile_run import TRACE_NAME, profile_pages
from profiling.acl_prof import DEFAULT_FLAGS, FLAGS, METRICS
from profiling.compare import compare_reports
from profiling.report import make_report
from profiling.report_html import report_html
from profiling.report_text import comparison_text, report_text

HTML_NAME, JSON_NAME = "report.html", "report.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `hyocr profile`."""
    usage = "SRC... to read and profile; report DIR to look at it; compare A B for two"
    parser.add_argument("what", nargs="+", metavar="SRC | report DIR | compare A B", help=usage)
    parser.add_argument("--task", default="spotting")
    parser.add_argument("--model", default=EMBEDDED, help="as of hyocr read")
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--device", type=int, default=0, help="NPU number")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    parser.add_argument("--metrics", default="PipeUtilization", choices=list(METRICS))
    parser.add_argument(
        "--flags", default=",".join(DEFAULT_FLAGS), metavar="A,B",
        help=f"what else is recorded: {', '.join(FLAGS)}",
    )  # fmt: skip
    parser.add_argument("--max-tokens", type=int, help="limit of the answer")
    parser.add_argument(
        "--cold", action="store_true", help="no page read before the one that counts"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="a new folder")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """0; what goes wrong is raised."""
    subject, *folders = args.what
    if subject == "compare":
        return _compare([Path(folder) for folder in folders], args.json)
    if subject == "report":
        if len(folders) != 1:
            raise UsageError("hyocr profile report DIR wants one folder")
        return _report(Path(folders[0]), args.json)
    if args.output is None:
        raise UsageError("say with -o DIR where the profile goes")
    opening = {k: v for k, v in vars(args).items() if k in ("device", "threads") and v}
    request: dict[str, Any] = {"task": args.task}
    if args.max_tokens is not None:
        request["max_tokens"] = args.max_tokens
    sources = list(expand(args.what))
    flags = tuple(flag.strip() for flag in args.flags.split(",") if flag.strip())
    with OCR(args.model, args.engine, **opening) as ocr:
        profile_pages(
            ocr,
            args.model,
            sources,
            args.output,
            metrics=args.metrics,
            flags=flags,
            request=request,
            warm=not args.cold,
        )
    print(f"trace: {args.output / TRACE_NAME} (open it at ui.perfetto.dev)", file=sys.stderr)
    return _report(args.output, args.json)


def _report(folder: Path, as_json: bool) -> int:
    report = make_report(folder)
    (folder / JSON_NAME).write_text(json.dumps(report, ensure_ascii=False, indent=1), "utf-8")
    (folder / HTML_NAME).write_text(report_html(report), "utf-8")
    print(json.dumps(report, ensure_ascii=False, indent=1) if as_json else report_text(report))
    print(f"page: {folder / HTML_NAME}", file=sys.stderr)
    return 0


def _compare(folders: list[Path], as_json: bool) -> int:
    if len(folders) != 2:
        raise UsageError("hyocr profile compare A B wants two folders")
    found = compare_reports(*map(make_report, folders))
    print(json.dumps(found, ensure_ascii=False, indent=1) if as_json else comparison_text(found))
    return 0
