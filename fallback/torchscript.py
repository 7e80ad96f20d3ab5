"""The two graphs as TorchScript or torch.export files that load without our model classes.

TorchScript keeps the control flow (layers, sequences) by scripting; torch.export traces the
blocked form with free sizes. Each file carries its own description, is compared with the model
that it was made from after it is written, and is removed if it differs.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fallback.checkpoint import Checkpoint
from fallback.chunk import MASKED, causal_mask
from fallback.dims import Dims
from fallback.errors import CheckpointNotFoundError, PackagedModelError
from fallback.hunyuanocr import Llm, Vision, set_export_form

log = logging.getLogger(__name__)

SUFFIXES = {"torchscript": ".pt", "torch-export": ".pt2"}
GRAPHS = ("vision", "llm")
META = "hyocr.json"
BOUND = 1e-4  # max |Δ| against eager, float32; measured 0
_SIZES = ((1, 1, 5, 1), (1, 7, 3, 2), (2, 2, 4, 1))  # B, Q, S, R of the check


@dataclass(frozen=True, slots=True)
class Packaged:
    """Two opened files: callables with the contract's inputs, and the sizes they were made for."""

    vision: Callable[..., Tensor]
    llm: Callable[..., tuple[Tensor, list[Tensor], list[Tensor]]]
    dims: Dims
    meta: Mapping[str, Any]


def export_torch(
    model: str | Path | Checkpoint,
    folder: Path,
    format: str,
    contract_digest: str = "",
    say: Callable[[str], None] = log.info,
) -> dict[str, dict[str, Any]]:
    """Writes vision and llm of a checkpoint in float32; graph -> {"file": name, "max_abs":
    figure}.

    format: "torchscript" or "torch-export". Raises PackagedModelError for a file whose answers
    differ from the model's by more than BOUND (the file is removed) or for an unknown format.
    """
    if format not in SUFFIXES:
        raise PackagedModelError(f"format {format!r}: one of {', '.join(SUFFIXES)}")
    checkpoint = model if isinstance(model, Checkpoint) else Checkpoint(model)
    folder.mkdir(parents=True, exist_ok=True)
    report = {}
    for graph in GRAPHS:
        say(f"{graph}: {format}")
        module = {"vision": Vision, "llm": Llm}[graph](checkpoint.tensor, checkpoint.dims).eval()
        meta = {
            "format": format,
            "graph": graph,
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "contract": contract_digest,
            "precision": "fp32",
            "config": checkpoint.config,
        }
        path = folder / (graph + SUFFIXES[format])
        report[graph] = {
            "file": path.name,
            "max_abs": _write_checked(module, path, meta, checkpoint.dims),
        }
        del module
    return report


def find_packaged(model: str | Path) -> tuple[Path, Path] | None:
    """The vision and llm files that a path means: a folder that holds them, or either file."""
    path = Path(model)
    folder = path.parent if path.suffix in SUFFIXES.values() else path
    suffixes = [path.suffix] if path.suffix in SUFFIXES.values() else list(SUFFIXES.values())
    for suffix in suffixes:
        pair = folder / f"vision{suffix}", folder / f"llm{suffix}"
        if pair[1].is_file():
            return pair
    return None


def open_packaged(vision: Path, llm: Path) -> Packaged:
    """Opens two files that `export_torch` wrote.

    Raises PackagedModelError for another torch version or another format, CheckpointNotFoundError
    for a missing file.
    """
    metas = [_read_meta(path) for path in (vision, llm)]
    if metas[0]["config"] != metas[1]["config"]:
        raise PackagedModelError(f"{vision} and {llm} were made from different models")
    dims = Dims.from_config(metas[1]["config"], str(llm))
    return Packaged(_load(vision), _load(llm), dims, metas[1])


def _write_checked(module: nn.Module, path: Path, meta: Mapping[str, Any], dims: Dims) -> float:
    samples = list(_samples(str(meta["graph"]), dims))
    with torch.inference_mode():
        expected = [_flat(module(*sample)) for sample in samples]
    extra = {META: json.dumps(meta)}
    try:
        with _quiet():
            if meta["format"] == "torchscript":
                torch.jit.save(torch.jit.script(module), str(path), _extra_files=extra)
            else:
                program = _export(module, samples[-1])
                torch.export.save(program, str(path), extra_files=extra)
        worst = _difference(_load(path), samples, expected)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if not worst <= BOUND:  # also refuses NaN
        path.unlink()
        raise PackagedModelError(
            f"{path.name} differs from the model by {worst:.2e}, more than {BOUND:.0e}; not written"
        )
    return worst


def _export(module: nn.Module, sample: tuple[Any, ...]) -> torch.export.ExportedProgram:
    set_export_form(module, query_blocks=0)
    free = torch.export.Dim.DYNAMIC
    if isinstance(module, Vision):
        fourth = 4 * torch.export.Dim("blocks", min=2)  # N: whole merge blocks; one would be fixed
        shapes: Any = ({0: fourth}, {0: fourth}, {1: fourth})
    else:
        past = [{0: free, 1: free}] * len(sample[-1])
        row, square = {0: free, 1: free}, {0: free, 1: free, 2: free}
        shapes = (row, row, row, {0: free, 2: free}, square, square, past, past)
    return torch.export.export(
        module, sample, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
    )


def _load(path: Path) -> Callable[..., Any]:
    with _quiet():
        if path.suffix == SUFFIXES["torchscript"]:
            loaded: Callable[..., Any] = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        else:
            loaded = torch.export.load(str(path)).module()
        return loaded


def _read_meta(path: Path) -> dict[str, Any]:
    """The description inside a file, read before torch tries to run what may be of another
    version.
    """
    if not path.is_file():
        raise CheckpointNotFoundError(f"{path} is missing; write both files with hyocr export")
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("extra/" + META))
            meta: dict[str, Any] = json.loads(archive.read(name))
    except (zipfile.BadZipFile, StopIteration, ValueError):
        raise PackagedModelError(f"{path} was not written by hyocr export --format ...") from None
    made, here = _release(meta["torch"]), _release(torch.__version__)
    if made != here:
        raise PackagedModelError(
            f"{path} was written by torch {meta['torch']}, this is torch {torch.__version__};"
            f" install torch {made}, or export the model again"
        )
    return meta


def _release(version: str) -> str:
    """2.13.0+cpu -> 2.13: files are read by the release that wrote them."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _samples(graph: str, dims: Dims) -> Iterator[tuple[Any, ...]]:
    """Seeded inputs of a few sizes; the last has no axis of one, which an export would fix."""
    rng = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng)

    if graph == "vision":
        for n in (8, 16, 48):
            yield noise(n, dims.vision.patch_width), noise(n, dims.vision.hidden), torch.zeros(1, n)
        return
    t = dims.text
    for b, q, s, r in (*_SIZES, (2, 3, 5, 2)):
        mask = torch.zeros(b, 1, s)
        mask[..., -1] = float(MASKED)
        pasts = [[noise(b, s, t.kv_width) for _ in range(t.layers)] for _ in range(2)]
        angles = noise(b, q, t.head_dim)
        causal = torch.from_numpy(causal_mask(q)).repeat(b, 1, 1)
        select = torch.eye(q)[:r].repeat(b, 1, 1)
        yield noise(b, q, t.hidden), angles.cos(), angles.sin(), mask, causal, select, *pasts


def _difference(
    run: Callable[..., Any], samples: Sequence[tuple[Any, ...]], expected: Sequence[list[Tensor]]
) -> float:
    worst = 0.0
    with torch.inference_mode():
        for sample, want in zip(samples, expected, strict=True):
            for got, reference in zip(_flat(run(*sample)), want, strict=True):
                gap = float((got - reference).abs().max())
                worst = gap if math.isnan(gap) else max(worst, gap)
    return worst


def _flat(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return [tensor for part in outputs for tensor in _flat(part)]


@contextmanager
def _quiet() -> Iterator[None]:
    """TorchScript is announced as deprecated on every call; torch is pinned because of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=r".*LeafSpec", category=FutureWarning)
        yield
