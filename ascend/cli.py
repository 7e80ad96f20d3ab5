"""The command line: `hyocr COMMAND ...`. Each command is one module under `ascend/commands`.

stdout carries data, stderr the talk. Exit codes are those of `ascend.errors`.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence

from ascend.errors import describe

COMMANDS = {
    "read": "read pictures and documents, print checked JSON",
    "serve": "a service: REST, OpenAI-compatible, web page",
    "tasks": "the table of tasks",
    "doctor": "what is there, what is missing, and the remedy",
    "export": "checkpoint -> ONNX (or TorchScript, torch.export) files",
    "compile": "ONNX -> .om bundle for one chip, by ATC",
    "lint": "what ATC would refuse in an ONNX file",
    "inspect": "one screen about a .om, .onnx, bundle or checkpoint",
    "parity": "compare a bundle with the CPU in fp32, on pages",
    "profile": "where the time of a page goes: record, report, compare",
    "plan": "time and memory on a chip, forecast, and the gears that pay",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; user errors are one line on stderr."""
    args = list(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(
        level=os.environ.get("HYOCR_LOG", "WARNING").upper(),
        format="%(levelname)s %(name)s: %(message)s",
    )
    parser = _parser(args[0] if args and args[0] in COMMANDS else None)
    try:
        parsed = parser.parse_args(args)
    except SystemExit as stop:  # argparse has printed its help or its message
        return int(stop.code or 0)
    try:
        return int(parsed.run(parsed))
    except BrokenPipeError:  # the reader of our output left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        info = describe(error)
        if info.internal:
            logging.getLogger(__name__).exception("internal error")
        print(f"hyocr: {info.message}", file=sys.stderr)
        return info.exit_code


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The full parser, with only `command`'s own module imported (None: no module)."""
    parser = argparse.ArgumentParser(
        prog="hyocr", description="HunyuanOCR on Ascend NPUs, and on any CPU when there is none."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if name == command:
            module = importlib.import_module(f"ascend.commands.{name}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
