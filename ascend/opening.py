"""From what a user names (a model, an engine) to an opened family. Nothing is chosen silently:
the Result names the engine, and a wish that cannot be met is an error."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

from ascend.errors import EngineUnavailable, ModelError, UsageError
from ascend.families import Family
from atc_configs.manifest import MANIFEST_NAME, read_manifest

EngineName = Literal["auto", "acl", "torch", "ort"]
ENGINES: tuple[EngineName, ...] = ("auto", "acl", "torch", "ort")

EMBEDDED = "ppocr"
DEMONSTRATION = "reader"


def open_family(
    model: str = EMBEDDED,
    engine: EngineName = "auto",
    *,
    device: int = 0,
    threads: int | None = None,
    precision: str = "auto",
    timeout_ms: int = 1500,
    gears_of: str | Path | None = None,
    **settings: Any,
) -> Family:
    """Open `model` on `engine`; the caller closes the family.

    model: "ppocr" (the embedded reader), "reader" (the demonstration checkpoint of a source
    checkout), or a folder: a compiled bundle (engine acl), a HunyuanOCR checkpoint (torch) or
    exported ONNX graphs (ort); a TorchScript or torch.export file lies in such a folder too;
    or a .yaml file that names a primary and a fallback (ascend.failover_config).
    timeout_ms: deadline of one step on an NPU. gears_of: a bundle whose canvases and batches a CPU
    engine shall take too. engine "auto" takes the one that the model's files
    are made for. `settings` go to the family.
    Raises UsageError, ModelError, EngineUnavailable and the engine's own errors.
    """
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; the engines are {', '.join(ENGINES)}")
    if model == EMBEDDED:
        return _open_embedded(engine, threads, gears_of)
    if model.endswith((".yaml", ".yml")):
        from ascend.failover_config import open_configured

        return open_configured(model, open_family, **settings)
    folder = _demonstration() if model == DEMONSTRATION else Path(model)
    if folder.suffix in (".pt", ".pt2") and folder.is_file():
        folder = folder.parent  # a packaged graph; its tables and tokenizer lie beside it
    if not folder.exists():
        raise ModelError(
            f"no model {model!r}: neither `{EMBEDDED}`, `{DEMONSTRATION}` nor a folder that exists"
        )
    if (folder / MANIFEST_NAME).is_file():
        return _open_bundle(folder, engine, device, timeout_ms, settings)
    if (folder / "det.onnx").is_file():
        _refuse(engine, "ort", f"{folder} holds exported PP-OCR graphs")
        return _open_ppocr_onnx(folder, threads, gears_of)
    if (folder / "llm.onnx").is_file():
        _refuse(engine, "ort", f"{folder} holds exported HunyuanOCR graphs")
        return _open_hunyuan_onnx(folder, threads, gears_of, settings)
    _refuse(engine, "torch", f"{folder} is a checkpoint")
    return _open_checkpoint(folder, threads, precision, gears_of, settings)


def _refuse(engine: EngineName, fits: EngineName, what: str) -> None:
    if engine not in ("auto", fits):
        raise UsageError(
            f"{what}, which the engine {fits} runs, not {engine}; `hyocr export` and `hyocr "
            "compile` make the files for the others"
        )


def _open_embedded(engine: EngineName, threads: int | None, gears_of: str | Path | None) -> Family:
    if engine == "acl":
        raise UsageError(
            "the engine acl runs compiled bundles: hyocr export ppocr -o DIR, hyocr compile DIR "
            "--soc NAME, then --model BUNDLE"
        )
    if engine == "torch":
        raise UsageError("the embedded ppocr runs on the engine ort; leave --engine away")
    return _open_ppocr_onnx(None, threads, gears_of)


def _open_ppocr_onnx(
    folder: Path | None, threads: int | None, gears_of: str | Path | None
) -> Family:
    from ascend.build.ppocr import ppocr_characters, ppocr_graphs
    from ascend.families.ppocr import PpOcr
    from fallback.ort_engine import OrtEngine, available_cpus
    from host_pipeline.result import Model

    graphs = ppocr_graphs(folder)
    threads = threads or available_cpus()
    # Lines are many and small: one thread each and several at once beats several threads a line.
    by_graph = {"det": threads, "cls": 1, "rec": 1}
    digest = hashlib.sha256(b"".join(graphs[name] for name in sorted(graphs))).hexdigest()[:16]
    model = Model("PP-OCRv6-small", digest)
    engine = _with_gears(OrtEngine(graphs, threads=by_graph, parallel=threads), gears_of)
    return PpOcr(engine, ppocr_characters(folder), model)


def _open_bundle(
    folder: Path, engine: EngineName, device: int, timeout_ms: int, settings: dict[str, Any]
) -> Family:
    from acl_runtime.engine import AclEngine

    _refuse(engine, "acl", f"{folder} is a compiled bundle")
    manifest = read_manifest(folder)
    opened = AclEngine.open(folder, device, timeout_ms=timeout_ms)
    try:
        if manifest.family == "ppocr":
            from ascend.build.ppocr import ppocr_characters
            from ascend.families.ppocr import PpOcr
            from host_pipeline.result import Model

            model = Model(manifest.model or "PP-OCRv6-small", manifest.model_digest)
            return PpOcr(opened, ppocr_characters(folder), model)
        from ascend.families.hunyuanocr import HunyuanOCR

        return HunyuanOCR.open(folder, opened, **settings)
    except BaseException:
        opened.close()
        raise


def _open_hunyuan_onnx(
    folder: Path, threads: int | None, gears_of: str | Path | None, settings: dict[str, Any]
) -> Family:
    from ascend.families.hunyuanocr import HunyuanOCR
    from fallback.ort_engine import OrtEngine

    graphs = {"vision": folder / "vision.onnx", "llm": folder / "llm.onnx"}
    engine = _with_gears(OrtEngine(graphs, threads=threads), gears_of)
    return HunyuanOCR.open(folder, engine, **settings)


def _open_checkpoint(
    folder: Path,
    threads: int | None,
    precision: str,
    gears_of: str | Path | None,
    settings: dict[str, Any],
) -> Family:
    from ascend.families.hunyuanocr import HunyuanOCR

    try:
        from fallback.torch_engine import TorchEngine
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise EngineUnavailable(
            "the engine torch needs PyTorch: pip install 'hunyuanocr-ascend[cpu]'"
        ) from error
    opened = TorchEngine.open(folder, precision, threads)
    try:
        return HunyuanOCR.open(folder, _with_gears(opened, gears_of), **settings)
    except BaseException:
        opened.close()
        raise


def _with_gears(engine: Any, bundle: str | Path | None) -> Any:
    from ascend.same_gears import SameGears

    return engine if bundle is None else SameGears(engine, read_manifest(bundle).contract())


def _demonstration() -> Path:
    folder = Path(__file__).parent.parent / "tests" / "data" / "reader"
    if not folder.is_dir():
        raise ModelError(
            "the demonstration checkpoint `reader` is part of the source checkout, not of the "
            "installed package; run from a clone, or give --model FOLDER"
        )
    return folder
