"""`hyocr compile`: an exported folder -> a bundle of .om files for one chip, by ATC."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ascend.build.progress import parse_gears, speaker
from atc_configs.soc import load_soc


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="what `hyocr export` wrote")
    parser.add_argument(
        "--soc", required=True, help='"Ascend" + the Name column of npu-smi info, e.g. Ascend310P3'
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="BUNDLE", help="default: DIR-CHIP beside DIR"
    )
    parser.add_argument(
        "--gears",
        action="append",
        metavar="GRAPH=1,2;3,4",
        help="other sizes than the contract's within the chip's budget, cheapest first",
    )
    parser.add_argument("--op-table", type=Path, metavar="FILE", help="operators of another CANN")
    parser.add_argument("--dry-run", action="store_true", help="only print the ATC commands")
    parser.add_argument(
        "--force", action="store_true", help="call ATC even if the lint says that it will refuse"
    )


def run(args: argparse.Namespace) -> int:
    from ascend.build.bundle import commands, compile_bundle
    from ascend.build.op_table import load_op_table

    soc = load_soc(args.soc)
    name = f"{args.folder.resolve().name}-{soc.name}"
    out = args.output or args.folder.resolve().with_name(name)
    gears = parse_gears(args.gears)
    if args.dry_run:
        print("\n".join(commands(args.folder, soc, out, gears)))
        return 0
    manifest = compile_bundle(
        args.folder,
        soc,
        out,
        gears=gears,
        table=load_op_table(args.op_table),
        force=args.force,
        say=speaker(),
    )
    sizes = {name: graph.size for name, graph in manifest.graphs.items()}
    print(json.dumps({"bundle": str(out), "soc": manifest.soc, "om_bytes": sizes}, indent=1))
    return 0
