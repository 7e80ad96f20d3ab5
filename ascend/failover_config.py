"""The configuration file of a reader with a fallback, and opening what it describes.

    ocr_engine:
      primary: {engine: acl, model: bundles/310P3, device: 0}
      fallback: {engine: torch, model: checkpoint}
      timeout_ms: 1500      # one decoding step; a chunk of the prompt may take twice, vision 4
      times

`primary: acl` alone stands for that engine with the model that `model: ` beside it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image, ImageDraw, ImageFont

from ascend.errors import UsageError
from ascend.failover import Canary, FailoverFamily, FailoverPolicy
from ascend.families import Family, ReadRequest
from atc_configs.manifest import MANIFEST_NAME
from host_pipeline.page import Page

_KEYS = {"primary", "fallback", "timeout_ms", "model", "canary", "failures", "cool_down_s"}
_SIDE_KEYS = {"engine", "model", "device", "threads", "precision"}

DEFAULT_TIMEOUT_MS = 1500

OpenFamily = Callable[..., Family]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two readers: the arguments of `open_family`."""

    engine: str
    model: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FailoverConfig:
    """The file's content. Relative model folders are relative to the file's own folder."""

    primary: Side
    fallback: Side
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    policy: FailoverPolicy = field(default_factory=FailoverPolicy)
    canary: bool = True


def read_config(path: str | Path) -> FailoverConfig:
    """Raises UsageError naming file, key and what is allowed."""
    file = Path(path)
    try:
        raw = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{file}: {error}") from error
    section = raw.get("ocr_engine") if isinstance(raw, dict) else None
    if not isinstance(section, dict):
        raise UsageError(f"{file}: no section ocr_engine with primary and fallback")
    _refuse_unknown(file, "ocr_engine", section, _KEYS)
    timeout_ms = section.get("timeout_ms", DEFAULT_TIMEOUT_MS)
    if type(timeout_ms) is not int or timeout_ms < 1:
        raise UsageError(f"{file}: timeout_ms {timeout_ms!r}: whole milliseconds, 1 or more")
    given = {k: section[k] for k in ("failures", "cool_down_s") if k in section}
    return FailoverConfig(
        primary=_side(file, "primary", section),
        fallback=_side(file, "fallback", section),
        timeout_ms=timeout_ms,
        policy=FailoverPolicy(**given),
        canary=bool(section.get("canary", True)),
    )


def open_configured(path: str | Path, open_family: OpenFamily, **settings: Any) -> FailoverFamily:
    """Opens both readers of a configuration file; `settings` go to both families."""
    config = read_config(path)

    def open_side(side: Side, **more: Any) -> Family:
        return open_family(side.model, side.engine, **{**settings, **side.options, **more})

    # The fallback takes the bundle's canvases: its answers must not differ by a page's size.
    bundle = Path(config.primary.model)
    like = {"gears_of": bundle} if (bundle / MANIFEST_NAME).is_file() else {}
    fallback = open_side(config.fallback, **like)
    # Only the engine of an NPU has deadlines for its steps; a CPU has no device that can hang.
    more = {"timeout_ms": config.timeout_ms} if config.primary.engine == "acl" else {}
    try:
        return FailoverFamily(
            lambda: open_side(config.primary, **more),
            fallback,
            canary=Canary(canary_page(), ReadRequest("spotting")) if config.canary else None,
            policy=config.policy,
        )
    except BaseException:
        fallback.close()
        raise


def canary_page() -> Page:
    """A small page with two printed lines: what a primary must read as the fallback does."""
    image = Image.new("RGB", (320, 96), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(28)
    draw.text((12, 10), "Canary 2048", "black", font)
    draw.text((12, 52), "Total 73.50", "black", font)
    pixels = np.array(image)
    pixels.setflags(write=False)
    return Page(pixels, "canary")


def _side(file: Path, key: str, section: Mapping[str, Any]) -> Side:
    raw = section.get(key)
    if isinstance(raw, str):
        raw = {"engine": raw}
    if not isinstance(raw, dict) or "engine" not in raw:
        raise UsageError(f"{file}: ocr_engine.{key}: an engine, or a mapping with engine and model")
    _refuse_unknown(file, f"ocr_engine.{key}", raw, _SIDE_KEYS)
    model = raw.get("model", section.get("model"))
    if not isinstance(model, str):
        raise UsageError(f"{file}: ocr_engine.{key}: no model for the engine {raw['engine']}")
    beside = file.parent / model
    options = {k: v for k, v in raw.items() if k not in ("engine", "model")}
    return Side(str(raw["engine"]), str(beside) if beside.exists() else model, options)


def _refuse_unknown(file: Path, where: str, raw: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(raw.keys() - known)
    if unknown:
        raise UsageError(f"{file}: {where}: unknown key {unknown[0]!r}; {', '.join(sorted(known))}")
