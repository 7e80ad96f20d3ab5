"""`hyocr lint`: what ATC would refuse in an ONNX file, or in an exported folder, on one chip."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from atc_configs.soc import load_soc

EXIT_FINDINGS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="an .onnx file, or what `hyocr export` wrote")
    parser.add_argument(
        "--soc", required=True, help='"Ascend" + the Name column of npu-smi info, e.g. Ascend310P3'
    )
    parser.add_argument(
        "--precision-mode",
        default=None,
        help="ATC's --precision_mode_v2 (default: the contract's, or fp16 for a file)",
    )
    parser.add_argument("--op-table", type=Path, metavar="FILE", help="operators of another CANN")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """0: nothing worse than a note; 1: findings."""
    from ascend.build.op_table import load_op_table
    from ascend.build.oplint import is_clean, lint

    soc, table = load_soc(args.soc), load_op_table(args.op_table)
    rows = {
        path: lint(path, soc, table, args.precision_mode or mode)
        for path, mode in _targets(args.path)
    }
    if args.json:
        shown = {str(p): [dataclasses.asdict(f) for f in found] for p, found in rows.items()}
        print(json.dumps({"soc": soc.name, "cann": table.cann, "findings": shown}, indent=1))
    else:
        for path, found in rows.items():
            for finding in found:
                print(f"{path.name}: {finding.text()}")
            state = "clean" if is_clean(found) else f"{len(found)} findings"
            print(f"{path.name}: {state} for {soc.name}, CANN {table.cann}")
    return 0 if all(is_clean(found) for found in rows.values()) else EXIT_FINDINGS


def _targets(path: Path) -> list[tuple[Path, str]]:
    """(file, precision mode)."""
    if not path.is_dir():
        return [(path, "fp16")]
    from ascend.build.export import read_export

    exported = read_export(path)
    return [
        (path / exported.graphs[name]["file"], spec.atc.get("precision_mode_v2", "fp16"))
        for name, spec in exported.contract.graphs.items()
    ]
