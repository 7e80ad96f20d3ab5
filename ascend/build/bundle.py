"""An exported folder -> a bundle for one chip: compiled graphs, host files, and a manifest last.

Work goes on in `OUT.partial`, which has no manifest and therefore loads nowhere; finished graphs in
it are kept, so that a second run resumes. Only a whole bundle gets the name `OUT`.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend.build import atc, oplint
from ascend.build.digests import file_sha256
from ascend.build.export import Exported, graph_sha256, read_export
from ascend.build.op_table import OpTable, load_op_table
from ascend.build.stage import Progress, locked_stage, publish, stage_of
from ascend.errors import ModelError
from atc_configs.contract import Contract, ContractError, GraphSpec, load_contract
from atc_configs.manifest import GraphFile, Manifest, gears_of
from atc_configs.soc import Soc

log = logging.getLogger(__name__)

Say = Callable[[str], None]
Gears = Mapping[str, Sequence[Any]]
# Symbol -> the chip's budget that caps it.
_BUDGETS = {"N": "patches", "S": "cache_rows", "B": "slots"}
LICENCES = {
    "hunyuanocr": "Weights: Tencent Hunyuan Community License; not licensed for use in the European"
    " Union, the United Kingdom and South Korea. Pass the licence on with the files.",
    "ppocr": "Models: PaddleOCR PP-OCRv6, Apache-2.0, converted by RapidOCR; graphs rewritten.",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One graph to compile. onnx_sha256 is what it is made from, `keep` its float32 nodes."""

    spec: GraphSpec
    onnx: Path
    onnx_sha256: str
    keep: tuple[str, ...]
    parity: Mapping[str, float]


def plan_contract(exported: Exported, soc: Soc, gears: Gears | None = None) -> Contract:
    """The contract of the bundle: `gears` where given, else the export's that the chip's budget
    allows. Raises ContractError if fewer than two are left."""
    base = exported.contract
    chosen: dict[str, Any] = {}
    for name, spec in base.graphs.items():
        if spec.gear_kind == "static":
            continue
        if gears and name in gears:
            chosen[name] = gears[name]
        elif base.family == "hunyuanocr":
            chosen[name] = [gear for gear in spec.gears if _within(gear, soc)]
        else:
            chosen[name] = spec.gears
        if len(chosen[name]) < 2:
            raise ContractError(
                f"{name}: {len(chosen[name])} gears fit the budget of {soc.name} {soc.budgets};"
                " ATC needs 2: name them with --gears"
            )
    return load_contract(base.family, base.dims, chosen, base.precision)


def commands(folder: Path, soc: Soc, out: Path, gears: Gears | None = None) -> list[str]:
    """The ATC calls as text, one a graph, without running or needing ATC."""
    exported = read_export(folder)
    contract = plan_contract(exported, soc, gears)
    stage = stage_of(out)
    return [
        atc.shell_text("atc", _arguments(step, stage, soc))
        for step in _steps(folder, exported, contract)
    ]


def compile_bundle(
    folder: Path,
    soc: Soc,
    out: Path,
    *,
    gears: Gears | None = None,
    table: OpTable | None = None,
    force: bool = False,
    say: Say = log.info,
) -> Manifest:
    """Lints and compiles every graph of an exported folder and makes `out` a bundle.

    force: call ATC even if the lint found what it will refuse. Raises AtcError, ModelError (lint,
    changed or missing files, no room on the disk), ContractError, OSError.
    """
    exported = read_export(folder)
    contract = plan_contract(exported, soc, gears)
    steps = _steps(folder, exported, contract)
    for step in steps:
        _lint(step, soc, table or load_op_table(), force, say)
    compiler = atc.find_atc()
    _check_room(out, steps)
    with locked_stage(out) as stage:
        done = Progress(stage)
        graphs = {step.spec.name: _compile(step, stage, soc, compiler, done, say) for step in steps}
        for name in exported.files.values():
            shutil.copyfile(folder / name, stage / name)
        manifest = _manifest(exported, contract, soc, compiler, graphs, stage)
        publish(stage, out, manifest)
    return manifest


def _within(gear: Mapping[str, int], soc: Soc) -> bool:
    return all(size <= soc.budgets[_BUDGETS[s]] for s, size in gear.items() if s in _BUDGETS)


def _steps(folder: Path, exported: Exported, contract: Contract) -> list[Step]:
    """Raises ModelError for a file that is not the one that was checked."""
    steps = []
    for name, spec in contract.graphs.items():
        report = exported.graphs[name]
        path = folder / report["file"]
        if not path.is_file():
            raise ModelError(f"{path} is missing; export the model again")
        found = graph_sha256(path)
        if found != report["sha256"]:
            raise ModelError(
                f"{path} is not the file that passed the parity gate (SHA-256 {found[:12]}...,"
                f" wanted {report['sha256'][:12]}...); export the model again"
            )
        figures = {f"onnx_{key}": value for key, value in report["parity"].items()}
        steps.append(Step(spec, path, found, tuple(report["kept"]), figures))
    return steps


def _lint(step: Step, soc: Soc, table: OpTable, force: bool, say: Say) -> None:
    mode = step.spec.atc.get("precision_mode_v2", "fp16")
    findings = oplint.lint(step.onnx, soc, table, mode)
    for finding in findings:
        if finding.severity != "note":
            say(f"{step.spec.name}: {finding.text()}")
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and not force:
        raise ModelError(
            f"{step.onnx.name}: ATC would refuse {len(errors)} nodes on {soc.name}, first"
            f" {errors[0].text()} (--force calls ATC all the same)"
        )


def _arguments(step: Step, stage: Path, soc: Soc) -> list[str]:
    """Paths of the source are absolute; what is written lies in the stage."""
    name = step.spec.name
    keep = stage / f"{name}.keep_dtype" if step.keep and _keeps_by_list(step.spec) else None
    aipp = stage / f"{name}.aipp" if atc.AIPP in step.spec.atc else None
    return atc.atc_arguments(step.spec, step.onnx.resolve(), stage / name, soc, keep, aipp)


def _keeps_by_list(spec: GraphSpec) -> bool:
    """With origin the graph itself says what is float32; every other mode needs the list."""
    return spec.atc.get("precision_mode_v2") != "origin"


def _compile(
    step: Step, stage: Path, soc: Soc, compiler: Path, done: Progress, say: Say
) -> GraphFile:
    name = step.spec.name
    arguments = _arguments(step, stage, soc)
    key = hashlib.sha256(repr((arguments, step.onnx_sha256, step.keep)).encode()).hexdigest()
    finished = done.get(name, key)
    if finished is not None:
        say(f"{name}: already compiled")
        return finished
    if step.keep:
        keep = "".join(f"{node}\n" for node in step.keep)
        (stage / f"{name}.keep_dtype").write_text(keep, "utf-8")
    if atc.AIPP in step.spec.atc:
        (stage / f"{name}.aipp").write_text(step.spec.atc[atc.AIPP], "utf-8")
    for stale in stage.glob(f"{name}*.om"):
        stale.unlink()
    say(f"{name}: compiling {len(step.spec.gears)} gears for {soc.name}")
    atc.run_atc(compiler, arguments, stage, say)
    # Some releases append the host's system: NAME_linux_aarch64.om.
    made = sorted(stage.glob(f"{name}*.om"))
    if len(made) != 1:
        raise ModelError(f"{name}: atc reported success and wrote {len(made)} .om files, not one")
    file = GraphFile(
        file=made[0].name,
        sha256=file_sha256(made[0]),
        size=made[0].stat().st_size,
        onnx_sha256=step.onnx_sha256,
        command=tuple(["atc", *arguments]),
        kept=step.keep,
        parity=step.parity,
    )
    done.add(name, key, file)
    return file


def _manifest(
    exported: Exported,
    contract: Contract,
    soc: Soc,
    compiler: Path,
    graphs: Mapping[str, GraphFile],
    stage: Path,
) -> Manifest:
    first = next(iter(graphs.values()))
    information = atc.om_information(compiler, stage / first.file)
    return Manifest(
        family=contract.family,
        digest=contract.digest,
        precision=contract.precision,
        dims=contract.dims,
        gears=gears_of(contract),
        soc=soc.name,
        graphs=graphs,
        cann=atc.cann_version(compiler),
        atc=information.atc_version,
        model=exported.model,
        model_digest=exported.model_digest,
        files=exported.files,
        licence=LICENCES[contract.family],
    )


def _check_room(out: Path, steps: Sequence[Step]) -> None:
    """An .om is about as large as its weights; 64 MiB more for kernels and the rest."""
    needed = 1 << 26
    for step in steps:
        parts = (step.onnx, step.onnx.with_name(f"{step.onnx.name}.data"))
        needed += sum(path.stat().st_size for path in parts if path.exists())
    out.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out.parent).free
    if free < needed:
        raise ModelError(
            f"{out.parent}: {free >> 20} MiB are free, the bundle needs about {needed >> 20} MiB"
        )
