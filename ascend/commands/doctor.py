"""`hyocr doctor`: what is there, what is missing, and the remedy."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from ascend.doctor import Finding, examine

_MARKS = {"ok": "ok  ", "warning": "--  ", "missing": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `hyocr doctor`."""
    parser.add_argument("--model", metavar="FOLDER", help="look at these model files as well")
    parser.add_argument("--json", action="store_true", help="for programs")
    support = parser.add_argument_group("for a support request")
    what = "versions, chips, manifests, configuration without secrets; no page content"
    support.add_argument("--bundle", type=Path, metavar="FILE.zip", help=what)
    support.add_argument("--config", type=Path, metavar="FILE", help="a configuration to add")
    support.add_argument("--profile", type=Path, metavar="DIR", help="a profile to add")


def run(args: argparse.Namespace) -> int:
    """0 when everything that is needed is there, 1 otherwise."""
    findings = examine(args.model)
    if args.bundle is not None:
        from ascend.support_bundle import write_support_bundle

        added = {"model": args.model, "config": args.config, "profile": args.profile}
        names = write_support_bundle(args.bundle, findings, **added)
        print(f"{args.bundle}: {', '.join(names)}", file=sys.stderr)
    if args.json:
        print(json.dumps([dataclasses.asdict(f) for f in findings], ensure_ascii=False, indent=2))
    else:
        print("\n".join(_lines(findings)))
    return 1 if any(f.status == "missing" for f in findings) else 0


def _lines(findings: list[Finding]) -> list[str]:
    lines, area = [], ""
    for f in findings:
        if f.area != area:
            lines.append(f.area)
            area = f.area
        lines.append(f"  {_MARKS[f.status]}  {f.text}")
        if f.remedy:
            lines.append(f"          remedy: {f.remedy}")
    return lines
