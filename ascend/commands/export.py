"""`hyocr export`: a checkpoint -> ONNX files that passed the parity gate, or torch formats."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ascend.build.progress import parse_gears, speaker
from ascend.errors import UsageError

_FORMATS = ("onnx", "torchscript", "torch-export")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help='a HunyuanOCR folder (config.json, *.safetensors), or "ppocr"'
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--format", choices=_FORMATS, default="onnx")
    parser.add_argument(
        "--precision",
        choices=("float16", "float32"),
        help="float16 (default) for an NPU, float32 for ONNX Runtime on a CPU",
    )
    parser.add_argument(
        "--gears",
        action="append",
        metavar="GRAPH=1,2;3,4",
        help="other sizes than the contract's, cheapest first",
    )
    parser.add_argument(
        "--parity-gears",
        action="append",
        metavar="GRAPH=1,2;3,4",
        help="compare at these sizes only (all by default)",
    )
    parser.add_argument(
        "--keep-fp32",
        type=Path,
        metavar="FILE",
        help="nodes to compute in float32, one a line (what `--audit` writes)",
    )
    parser.add_argument(
        "--audit",
        nargs="*",
        type=Path,
        metavar="PAGE",
        help="afterwards, read pages (two drawn ones by default), look for magnitudes that float16"
        " does not have, and write DIR/keep_fp32.txt",
    )


def run(args: argparse.Namespace) -> int:
    if args.format != "onnx":
        return _export_torch(args)
    from ascend.build.export import export_model

    keep = args.keep_fp32.read_text("utf-8").splitlines() if args.keep_fp32 else []
    exported = export_model(
        args.model,
        args.output,
        precision=args.precision,
        gears=parse_gears(args.gears),
        parity_gears=parse_gears(args.parity_gears),
        keep=keep,
        say=speaker(),
    )
    report: dict[str, Any] = {
        "output": str(args.output),
        "digest": exported.contract.digest,
        "graphs": {},
    }
    for name, graph in exported.graphs.items():
        report["graphs"][name] = {"file": graph["file"], **graph["parity"]}
    if args.audit is not None:
        report["audit"] = _audit(args.output, args.model, args.audit)
    print(json.dumps(report, indent=1))
    return 0


def _audit(folder: Path, model: str, files: Sequence[Path]) -> dict[str, object]:
    from ascend.build.fp16_audit import audit_export
    from ascend.build.readers import load_pages

    checkpoint = None if model == "ppocr" else model
    audits = audit_export(folder, checkpoint, load_pages(files) if files else None, speaker())
    nodes = [node for audit in audits.values() for node in audit.keep]
    (folder / "keep_fp32.txt").write_text("".join(f"{node}\n" for node in nodes), "utf-8")
    return {name: audit.to_dict() for name, audit in audits.items()}


def _export_torch(args: argparse.Namespace) -> int:
    if args.model == "ppocr":
        raise UsageError("ppocr has no PyTorch form; use --format onnx")
    from ascend.build.host_files import write_host_files
    from atc_configs.contract import dims_of_config, load_contract
    from fallback.checkpoint import Checkpoint
    from fallback.torchscript import export_torch

    checkpoint = Checkpoint(args.model)
    dims = dims_of_config("hunyuanocr", checkpoint.config)
    digest = load_contract("hunyuanocr", dims, precision="float32").digest
    graphs = export_torch(checkpoint, args.output, args.format, digest, speaker())
    files = write_host_files(checkpoint, args.output)
    print(json.dumps({"output": str(args.output), "graphs": graphs, "files": files}, indent=1))
    return 0
