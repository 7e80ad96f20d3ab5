"""The gate after compilation: every graph of a bundle, and whole pages, against the CPU in float32.

Compilers drop accuracy without a word (public reports: a vision transformer at a 5-8 % hit rate
after mixed precision), so a bundle that was not measured says so, and one below its bound does not
run unless forced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acl_runtime.engine import AclEngine
from ascend.build import parity
from ascend.build.calibration import Feed
from ascend.build.readers import Reader, open_family, open_reader, record
from ascend.build.sample_inputs import sample_inputs
from ascend.engines import Engine
from ascend.errors import UsageError
from atc_configs.contract import Contract, GraphSpec
from atc_configs.manifest import Manifest, read_manifest

Say = Callable[[str], None]
# Share of characters in common that the texts of all pages must reach together. One fp16 rounding
# may flip one character; an answer that went astray shares little.
TEXT_BOUND = 0.98


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was measured. graphs: name -> worst figures over gears and pages; refusals: what is out
    of bounds; texts: (CPU, NPU) answer of each page."""

    graphs: Mapping[str, parity.Figures]
    texts: tuple[tuple[str, str], ...]
    refusals: tuple[str, ...]
    emulated: bool

    @property
    def passed(self) -> bool:
        return not self.refusals

    @property
    def equal_pages(self) -> int:
        return sum(cpu == npu for cpu, npu in self.texts)

    @property
    def text_score(self) -> float:
        """2 · common / (characters of both), over all pages; 1.0 without text."""
        common = total = 0.0
        for cpu, npu in self.texts:
            size = len(cpu) + len(npu)
            common += SequenceMatcher(None, cpu, npu, autojunk=False).ratio() * size
            total += size
        return common / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "passed": self.passed,
            "emulated": self.emulated,
            "refusals": list(self.refusals),
            "pages": len(self.texts),
            "equal_pages": self.equal_pages,
            "text_score": self.text_score,
            "graphs": {name: figures.to_dict() for name, figures in self.graphs.items()},
        }


def check_bundle(
    bundle: str | Path,
    checkpoint: str | Path | None,
    pages: Sequence[NDArray[np.uint8]] | None = None,
    *,
    device: int = 0,
    max_tokens: int = 64,
    write: bool = True,
    say: Say = lambda text: None,
) -> Verdict:
    """Measures a bundle on its device and, unless `write` is False, notes the result in it.

    checkpoint: the folder that HunyuanOCR was exported from; None for PP-OCR. pages: RGB; two
    drawn ones by default; an empty sequence measures the graphs on drawn inputs alone. max_tokens:
    length of each answer.
    Raises UsageError without the checkpoint, AclUnavailable without a device, and their kin.
    """
    folder = Path(bundle)
    manifest = read_manifest(folder)
    contract = manifest.contract()
    if contract.family == "hunyuanocr" and checkpoint is None:
        raise UsageError("name the checkpoint that the bundle was made from: --against MODEL")
    with open_reader(checkpoint, contract, max_tokens) as reader:
        say("reading the pages on the CPU")
        feeds = record(reader, pages)
        with AclEngine.open(folder, device, force=True) as engine:
            rows = {
                name: _measure(spec, contract.precision, engine, reader.engine, feeds[name], say)
                for name, spec in contract.graphs.items()
            }
        texts = _read_pages(folder, contract, reader, pages, device, say)
        emulated = engine.emulated
    verdict = _judge(contract, rows, texts, emulated)
    if write:
        _note(folder, manifest, verdict)
    return verdict


def _measure(
    spec: GraphSpec,
    precision: str,
    device: Engine,
    cpu: Engine,
    feeds: Sequence[Feed],
    say: Say,
) -> parity.Figures:
    """The worst figures over every gear (drawn inputs) and every recorded input."""
    drawn = [sample_inputs(spec, gear, "float32", seed) for seed, gear in enumerate(spec.gears)]
    figures = []
    for inputs in [*drawn, *feeds]:
        # Both get what the device can hold, so that the inputs' own rounding is nobody's fault.
        held = {t.name: inputs[t.name].astype(t.dtype_in(precision)) for t in spec.inputs}
        wide = {name: _float32(values) for name, values in held.items()}
        got = {name: array.numpy() for name, array in device.run(spec.name, held).items()}
        wanted = {name: array.numpy() for name, array in cpu.run(spec.name, wide).items()}
        figures.append(parity.compare(got, wanted))
    worst = parity.worst(figures)
    say(f"{spec.name}: cosine {worst.cosine:.6f} max|Δ| {worst.max_abs:.2e} on {len(figures)} runs")
    return worst


def _read_pages(
    folder: Path,
    contract: Contract,
    reader: Reader,
    pages: Sequence[NDArray[np.uint8]] | None,
    device: int,
    say: Say,
) -> tuple[tuple[str, str], ...]:
    """Each page's answer on the CPU and on the device."""
    from ascend.build.calibration import draw_pages

    chosen = draw_pages() if pages is None else pages
    if not chosen:
        return ()
    say(f"reading {len(chosen)} pages on the device")
    engine = AclEngine.open(folder, device, force=True)
    try:
        family = open_family(contract, folder, engine)
    except BaseException:
        engine.close()
        raise
    try:
        compiled = Reader(family, engine, reader.max_tokens)
        return tuple((reader.read(page), compiled.read(page)) for page in chosen)
    finally:
        family.close()


def _judge(
    contract: Contract,
    rows: Mapping[str, parity.Figures],
    texts: tuple[tuple[str, str], ...],
    emulated: bool,
) -> Verdict:
    bound = parity.BOUNDS[contract.precision]
    refusals = [
        f"{name}: {refusal}"
        for name, figures in rows.items()
        if (refusal := bound.refusal(figures)) is not None
    ]
    verdict = Verdict(rows, texts, tuple(refusals), emulated)
    if verdict.text_score < TEXT_BOUND:
        refusals.append(f"texts agree to {verdict.text_score:.4f}, below {TEXT_BOUND}")
    return dataclasses.replace(verdict, refusals=tuple(refusals))


def _note(folder: Path, manifest: Manifest, verdict: Verdict) -> None:
    """Adds the figures to the manifest; those of the export stay."""
    graphs = {
        name: dataclasses.replace(
            file,
            parity={
                **{key: value for key, value in file.parity.items() if key.startswith("onnx_")},
                **verdict.graphs[name].to_dict(),
                "text_score": verdict.text_score,
            },
        )
        for name, file in manifest.graphs.items()
    }
    dataclasses.replace(manifest, graphs=graphs, parity_passed=verdict.passed).write(folder)


def _float32(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float32) if values.dtype == np.float16 else values
