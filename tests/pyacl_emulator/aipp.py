"""AIPP: image pre-processing in front of a model. Static: compiled in. Dynamic: only its handles.

Static AIPP becomes ONNX nodes that turn the image bytes into the model's float input: format,
channel swap, crop, colour conversion, then (x - mean - min) * var_reci (AIPP chapter of the ATC
guide).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .atc_messages import AtcError

Shape = tuple[int, ...]
_FORMATS = ("RGB888_U8", "YUV420SP_U8", "YUV400_U8", "XRGB8888_U8")
_CHANNELS = {"RGB888_U8": 3, "YUV400_U8": 1, "XRGB8888_U8": 4}


@dataclass(frozen=True, slots=True)
class Aipp:
    """One static configuration; numbers by key of the prototxt."""

    input_format: str
    numbers: dict[str, float] = field(default_factory=dict)

    def number(self, key: str, default: float) -> float:
        """A number of the configuration."""
        return self.numbers.get(key, default)

    @property
    def csc(self) -> bool:
        return bool(self.number("csc_switch", 0))

    def image_dims(self, shape: Shape) -> Shape:
        """The image's (n, h, w, c) for a model input (n, c, h, w)."""
        n, _, h, w = shape
        height = int(self.number("src_image_size_h", h))
        width = int(self.number("src_image_size_w", w))
        return (n, height, width, _CHANNELS.get(self.input_format, 3))

    def storage(self, shape: Shape) -> Shape:
        """How the bytes lie: YUV420SP is (n, 1.5 h, w, 1)."""
        n, h, w, c = self.image_dims(shape)
        return (n, h * 3 // 2, w, 1) if self.input_format == "YUV420SP_U8" else (n, h, w, c)

    @property
    def format_number(self) -> int:
        """aclAippInputFormat."""
        return {"YUV420SP_U8": 1, "XRGB8888_U8": 2, "RGB888_U8": 3, "YUV400_U8": 4}[
            self.input_format
        ]


def parse_aipp(text: str) -> Aipp:
    """Reads the prototxt. Raises AtcError E10052."""
    if not re.search(r"aipp_op\s*\{", text):
        raise AtcError("E10052", "aipp_op is missing")
    pairs: list[tuple[str, str]] = re.findall(r"(\w+)\s*:\s*\"?([\w.+-]+)\"?", text)
    values = dict(pairs)
    if values.get("aipp_mode") == "dynamic":
        raise AtcError("E10052", "aipp_mode dynamic is not covered by the stand-in")
    if values.get("aipp_mode") != "static":
        raise AtcError("E10052", "aipp_mode must be static or dynamic")
    layout = values.get("input_format", "")
    if layout not in _FORMATS:
        raise AtcError("E10052", f"input_format [{layout}] must be one of [{', '.join(_FORMATS)}]")
    words = {"true": 1.0, "false": 0.0}
    numbers = {}
    for key, value in values.items():
        if key in ("aipp_mode", "input_format"):
            continue
        try:
            numbers[key] = words[value] if value in words else float(value)
        except ValueError:
            raise AtcError("E10052", f"{key} [{value}] is not a number") from None
    return Aipp(layout, numbers)


def prepend(model: Any, aipp: Aipp, shapes: dict[str, Shape]) -> dict[str, list[int]]:
    """Replaces the model's image input by the image bytes and the nodes that convert them.

    model: onnx.ModelProto; `shapes` is updated with the storage dims. Returns the image dims by
    input name. Raises AtcError E10052 when the model has no single 4-axis input.
    """
    from .aipp_graph import convert

    images = [v for v in model.graph.input if v.name in shapes and len(shapes[v.name]) == 4]
    if len(images) != 1:
        raise AtcError("E10052", f"{len(images)} inputs have four axes, one is wanted")
    dims = aipp.image_dims(shapes[images[0].name])
    convert(model, aipp, images[0], shapes)
    return {images[0].name: list(dims)}
