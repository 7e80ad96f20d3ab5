"""Any pixel format becomes (H, W, 3) uint8 RGB: modes, depths, colour profiles, transparency.

Nothing here opens files. Orders of work: depth to 8 bits, colour space to sRGB, then alpha.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import Image, ImageChops, ImageCms

from host_pipeline.errors import CorruptInput
from host_pipeline.result import Notice

_DEEP_MODES = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
_PROFILE_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK", "LAB": "Lab"}
_DEPTHS = (8, 10, 12, 14, 16)
_ROWS_AT_ONCE = 256  # bounds the float copies of a large page
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A page as its reader gives it; the fields mean what they mean in `page.Page`."""

    pixels: np.ndarray
    rotation: int = 0
    mirrored: bool = False
    dpi: float | None = None
    notices: tuple[Notice, ...] = ()


def turn(pixels: np.ndarray, degrees: int) -> np.ndarray:
    """`pixels` (H, W, 3) turned clockwise by a multiple of 90 degrees, frozen."""
    return frozen(np.rot90(pixels, -(degrees // 90)))


def frozen(pixels: np.ndarray) -> np.ndarray:
    """`pixels` as a C-contiguous array that cannot be written; copies only where it must."""
    own = np.ascontiguousarray(pixels)
    if own.flags.writeable:
        own = own.copy() if own is pixels or own.base is not None else own
        own.setflags(write=False)
    return own


def rgb_from_array(array: np.ndarray, source: str) -> tuple[np.ndarray, list[Notice]]:
    """RGB from HxW or HxWx1 grey, HxWx3 RGB or HxWx4 RGBA of any bool, integer or float type.

    8-bit values are taken as they are, deeper ones by their range (see `_to_uint8`).
    Raises CorruptInput, naming `source`, when no value is finite.
    """
    if array.dtype.kind == "f" and not np.isfinite(array).any():
        raise CorruptInput("the page has no pixel with a finite value", source)
    planes = array[..., None] if array.ndim == 2 else array
    if planes.shape[2] == 4:
        colour, notices = _to_uint8(planes[..., :3])
        alpha, _ = _to_uint8(planes[..., 3:], stretch=False)
        flat, more = _flatten(np.ascontiguousarray(colour), np.ascontiguousarray(alpha[..., 0]))
        return flat, notices + more
    values, notices = _to_uint8(planes)
    if values.shape[2] == 1:
        values = np.asarray(cv2.cvtColor(np.ascontiguousarray(values), cv2.COLOR_GRAY2RGB))
    return values, notices


def rgb_from_image(image: Image.Image, source: str) -> tuple[np.ndarray, list[Notice]]:
    """RGB from a loaded PIL image of any mode, with its ICC profile applied."""
    if image.mode in _DEEP_MODES:
        return rgb_from_array(np.asarray(image), source)
    notices: list[Notice] = []
    if image.has_transparency_data:
        rgba = _to_rgba(image)
        colour = _to_srgb(rgba.convert("RGB"), image.info.get("icc_profile"), notices)
        flat, more = _flatten(np.asarray(colour), np.asarray(rgba.getchannel("A")))
        return flat, notices + more
    if image.format == "JPEG" and image.mode == "CMYK" and "adobe" not in image.info:
        # Pillow inverts every CMYK JPEG; only Adobe's are stored inverted.
        image = ImageChops.invert(image)
    # Bilevel pages are not smoothed: on eleven binarised pages Gaussian blurs of 0.5, 0.8 and 1.0
    # pixels moved PP-OCRv6's character F1 from 0.963 to 0.960, 0.957 and 0.965.
    if image.mode not in _PROFILE_SPACES:
        image = image.convert("L" if image.mode == "1" else "RGB")
    colour = _to_srgb(image, image.info.get("icc_profile"), notices)
    if colour.mode == "L":
        return np.asarray(cv2.cvtColor(np.asarray(colour), cv2.COLOR_GRAY2RGB)), notices
    return np.asarray(colour), notices


def _to_rgba(image: Image.Image) -> Image.Image:
    if image.mode == "La":  # premultiplied grey has no direct way to RGBA
        image = image.convert("LA")
    return image if image.mode == "RGBA" else image.convert("RGBA")


def _to_srgb(image: Image.Image, icc: bytes | None, notices: list[Notice]) -> Image.Image:
    """`image` (L, RGB, CMYK or LAB) in sRGB; a grey image without a profile stays L."""
    srgb = ImageCms.createProfile("sRGB")
    if image.mode == "LAB":
        # Whatever profile came along, Lab is an absolute space of its own.
        lab = ImageCms.createProfile("LAB")
        return ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB") or image
    if icc:
        try:
            profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
            space = profile.profile.xcolor_space.strip()
            if space != _PROFILE_SPACES[image.mode]:
                raise ImageCms.PyCMSError(f"it is for {space}, the page is {image.mode}")
            if "sRGB" not in ImageCms.getProfileDescription(profile):
                return ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB") or image
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError) as error:
            text = f"the colour profile cannot be used ({error}); colours are taken as sRGB"
            notices.append(Notice("icc_ignored", text))
    return image if image.mode in ("L", "RGB") else image.convert("RGB")


def _to_uint8(values: np.ndarray, stretch: bool = True) -> tuple[np.ndarray, list[Notice]]:
    """Scale (H, W, C) values of any real type to 0..255 by their range.

    Integers above 255 are read as 10, 12, 14 or 16 bits, whichever the largest fits (a 12-bit
    scan in a 16-bit file would be black by the file's depth); floats within 0..1 as fractions.
    Values outside all of these, negative ones, and those that use less than a quarter of their
    range (if `stretch`) are stretched from smallest to largest, with a notice.
    """
    if values.dtype == np.uint8:
        return values, []
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255), []
    low, high = _finite_range(values)
    if low >= 0 and high <= 1 and (values.dtype.kind == "f" or low < high):
        top = 1.0
    else:
        top = next((float((1 << bits) - 1) for bits in _DEPTHS if high < 1 << bits), high)
    bottom, span = 0.0, high - low
    # A span under 1/128 of the range is two steps of 8 bits: an empty page, not faint print.
    narrow = stretch and top / 128 <= span < top / 4
    if low < 0 or narrow or high > 65535:
        bottom, top = low, high
    notices = []
    if (bottom, top) != (0.0, 255.0) and (top, bottom) not in ((65535.0, 0.0), (1.0, 0.0)):
        text = f"{values.dtype} values from {bottom:g} to {top:g} are scaled to 8 bits"
        notices.append(Notice("depth_scaled", text))
    return _scaled(values, bottom, top, low, high), notices


def _finite_range(values: np.ndarray) -> tuple[float, float]:
    if values.dtype.kind != "f":
        return float(values.min()), float(values.max())
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _scaled(values: np.ndarray, bottom: float, top: float, low: float, high: float) -> np.ndarray:
    """(values - bottom) / (top - bottom) * 255, rounded; not-a-number becomes the brightest."""
    out = np.empty(values.shape, np.uint8)
    factor = 255.0 / (top - bottom) if top > bottom else 0.0
    for start in range(0, len(values), _ROWS_AT_ONCE):
        rows = values[start : start + _ROWS_AT_ONCE].astype(np.float64)
        if values.dtype.kind == "f":
            np.nan_to_num(rows, copy=False, nan=high, posinf=high, neginf=low)
        np.clip(np.rint((rows - bottom) * factor), 0, 255, out=rows)
        out[start : start + _ROWS_AT_ONCE] = rows
    return out


def _flatten(colour: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, list[Notice]]:
    """Lay (H, W, 3) uint8 over white or black by (H, W) uint8 alpha, whichever shows it best."""
    darkest, lightest = int(alpha.min()), int(alpha.max())
    if darkest == 255:
        return colour, []
    if lightest == 0:
        text = "the page is fully transparent; its hidden colours are read as if they were opaque"
        return colour, [Notice("transparent", text)]
    ground = 0 if _edge_luma(colour, alpha) >= 128 else 255
    flat = Image.new("RGB", (alpha.shape[1], alpha.shape[0]), (ground,) * 3)
    flat.paste(Image.fromarray(colour), mask=Image.fromarray(alpha))
    return np.asarray(flat), []


def _edge_luma(colour: np.ndarray, alpha: np.ndarray) -> float:
    """Mean luma (0..255) of what touches the transparent part.

    Strokes of text are almost all edge and panels hardly any, so labels on clear ground decide
    against a large light panel beside them. Without an edge, the alpha-weighted mean of all.
    """
    opaque = alpha >= 128
    clear = cv2.dilate((~opaque).astype(np.uint8), np.ones((3, 3), np.uint8))
    edge = opaque & (clear > 0)
    if edge.any():
        return float((colour[edge] @ _LUMA).mean())
    seen = alpha > 0
    weights = alpha[seen].astype(np.float32)
    return float(np.average(colour[seen] @ _LUMA, weights=weights))
