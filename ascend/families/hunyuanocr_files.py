"""What HunyuanOCR needs on the host, opened from a checkpoint folder or from a compiled bundle.

Needs neither torch nor an engine: this is all that an edge box reads besides the graphs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend.build.host_files import COMPANIONS, TABLES_NAME, open_host_tables
from ascend.errors import ModelError
from ascend.generate import PROFILES, Sampling
from atc_configs.manifest import MANIFEST_NAME, read_manifest
from fallback.checkpoint import Checkpoint, HostTables
from fallback.dims import FULL, Dims
from host_pipeline.patches import MEAN, RESCALE, STD
from host_pipeline.prompt import SpecialIds, find_special_ids
from host_pipeline.result import Model
from host_pipeline.tokenizer import Tokenizer, TokenizerError

# Weights are sampled for the digest: hashing 2 GB would cost more than opening the model.
_SAMPLE_BYTES, _SAMPLE_STEP = 1 << 16, 1 << 24


@dataclass(frozen=True, slots=True)
class PatchRule:
    """preprocessor_config.json: how pixels become numbers, and the model's own pixel limits."""

    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    rescale: float = RESCALE
    min_pixels: int = 512 * 512
    max_pixels: int = 4096 * 4096


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One opened model. `profiles`: generation settings by name, the vendor's and, as "checkpoint",
    those of generation_config.json; `profile` is the one to use unless another is asked for."""

    model: Model
    dims: Dims
    tokenizer: Tokenizer
    special: SpecialIds
    patches: PatchRule
    tables: HostTables
    profiles: Mapping[str, Sampling]
    profile: str


def open_files(folder: Path) -> ModelFiles:
    """Open a checkpoint folder, an exported folder or a bundle. Raises ModelError, or the errors of
    `fallback` and `atc_configs`, naming the file and the remedy."""
    paths = {role: folder / name for role, name in COMPANIONS.items()}
    if (folder / MANIFEST_NAME).is_file():
        manifest = read_manifest(folder)
        if manifest.family != "hunyuanocr":
            raise ModelError(f"{folder} is a bundle of {manifest.family}, not of hunyuanocr")
        paths |= {role: folder / name for role, name in manifest.files.items()}
        model = Model(manifest.model or folder.resolve().name, manifest.model_digest)
    elif (folder / TABLES_NAME).is_file():
        model = Model(folder.resolve().name, digest_of(folder))
    else:
        checkpoint = Checkpoint(folder)
        model = Model(folder.resolve().name, digest_of(folder))
        return _open(model, checkpoint.config, paths, checkpoint.tables())
    return _open(model, _read_json(paths["config"]), paths, open_host_tables(folder))


def digest_of(folder: Path) -> str:
    """16 hex digits that change with the files: SHA-256 over names, sizes and content, of weights
    their first bytes (the header) and 64 KiB of every 16 MiB."""
    digest = hashlib.sha256()
    names = {"config.json", "tokenizer.json"}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors":
            size = path.stat().st_size
            digest.update(f"{path.name} {size}".encode())
            with path.open("rb") as file:
                for at in range(0, size, _SAMPLE_STEP):
                    file.seek(at)
                    digest.update(file.read(_SAMPLE_BYTES))
        elif path.name in names:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _open(
    model: Model,
    config: Mapping[str, Any],
    paths: Mapping[str, Path],
    tables: HostTables,
) -> ModelFiles:
    dims = Dims.from_config(config, str(paths["config"]))
    generation = _read_json(paths["generation"], {})
    try:
        tokenizer = Tokenizer(paths["tokenizer"])
        special = find_special_ids(tokenizer, config, generation)
    except TokenizerError as error:
        raise ModelError(str(error)) from error
    used = (special.begin, special.image, special.user_end, *special.stop)
    if max(used) >= dims.text.vocab:
        raise ModelError(
            f"{paths['tokenizer']}: id {max(used)} is beyond the vocabulary of {dims.text.vocab}; "
            "tokenizer and weights belong to different models"
        )
    release = "1.5" if "text_config" in config else "1.0"  # 1.0 has the text keys at the top
    official = f"official-{release}"
    profiles = {**PROFILES, "checkpoint": _own_sampling(generation, PROFILES[official])}
    return ModelFiles(
        model,
        dims,
        tokenizer,
        special,
        _patch_rule(_read_json(paths["preprocessor"], {}), release),
        tables,
        profiles,
        official if is_released(dims) else "checkpoint",
    )


def is_released(dims: Dims) -> bool:
    """Has the model the released sizes (fine-tunes have)? The vendor's settings are for these."""
    sizes = [(d.text.vocab, d.text.hidden, d.text.layers, d.vision.layers) for d in (dims, FULL)]
    return sizes[0] == sizes[1]


def _own_sampling(found: Mapping[str, Any], official: Sampling) -> Sampling:
    """generation_config.json; a missing key has the official value."""
    drawn = bool(found.get("do_sample"))
    return Sampling(
        temperature=float(found.get("temperature") or 1.0) if drawn else 0.0,
        top_k=int(found.get("top_k") or 0) if drawn else official.top_k,
        top_p=float(found.get("top_p") or 1.0) if drawn else official.top_p,
        repetition_penalty=float(found.get("repetition_penalty") or official.repetition_penalty),
        max_tokens=int(found.get("max_new_tokens") or official.max_tokens),
    )


def _patch_rule(found: Mapping[str, Any], release: str) -> PatchRule:
    """A missing key has the released value; 1.0 reads 2048² pixels at most, 1.5 4096²."""
    default = PatchRule(max_pixels=(2048 if release == "1.0" else 4096) ** 2)
    size: Mapping[str, Any] = found.get("size") or {}
    return PatchRule(
        _three(found.get("image_mean"), default.mean),
        _three(found.get("image_std"), default.std),
        float(found.get("rescale_factor") or default.rescale),
        int(found.get("min_pixels") or size.get("shortest_edge") or default.min_pixels),
        int(found.get("max_pixels") or size.get("longest_edge") or default.max_pixels),
    )


def _three(values: Iterable[Any] | None, default: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(float, values)) if values else default


def _read_json(path: Path, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The object in `path`; `default` where the file may be missing and is."""
    if default is not None and not path.is_file():
        return default
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; copy the whole folder again") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: an object is wanted, not {type(found).__name__}")
    return found
