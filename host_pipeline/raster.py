"""Reads pictures with Pillow: frames of a file, what is left of a truncated one, EXIF turns.

Pillow keeps its size limit, its leniency and Python its warning filters in process-wide switches;
`_pillow` sets them under one lock for the time of opening and decoding, and puts them back.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import cv2
import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from host_pipeline.errors import CorruptInput, InputError, PageTooLarge, UnsupportedFormat
from host_pipeline.limits import PageLimits
from host_pipeline.picture_tags import TURNS, dpi_of, orientation_of
from host_pipeline.pixels import Decoded, frozen, rgb_from_array, rgb_from_image, turn
from host_pipeline.result import Notice
from host_pipeline.signature import Kind

_PILLOW_LOCK = threading.RLock()
_ANIMATIONS = frozenset({"GIF", "PNG", "WEBP", "AVIF"})
_FAX_ASPECT = (1.3, 4.0)  # ITU-T T.4 scans 204 x 98 dpi at standard resolution

# TIFF 6.0, section 8, NewSubfileType: bit 0 = a smaller copy of a page, bit 2 = a mask of one.
_TIFF_SUBFILE_TYPE, _TIFF_NO_PAGE = 254, 0b101
_TIFF_DNG_VERSION = 50706


class RasterReader:
    """The frames of one picture file as pages. Owns `stream`; keeps no pixels between pages.

    TIFF pages are its full-size frames; of an animation only the first frame is a page.
    """

    def __init__(self, stream: BinaryIO, source: str, limits: PageLimits, kind: Kind) -> None:
        Image.init()
        if kind.reader != "raster" or not set(kind.formats) & set(Image.OPEN):
            raise UnsupportedFormat(f"is {kind.name}: {kind.remedy}", source)
        self._stream = stream
        self._source = source
        self._limits = limits
        self._kind = kind
        with _pillow(limits, source, kind.name):
            image = self._open()
            self._frames = self._tiff_frames(image) if image.format == "TIFF" else [0]

    def __len__(self) -> int:
        return len(self._frames)

    def load(self, index: int) -> Decoded:
        """Decode one frame. Raises CorruptInput or PageTooLarge."""
        frame = self._frames[index]
        notices: list[Notice] = []
        with _pillow(self._limits, self._source, self._kind.name):
            if self._kind.formats[0] in _ANIMATIONS and _is_animated(self._open()):
                text = f"a {self._kind.name} animation; only its first frame is read"
                notices.append(Notice("animation", text))
            image = self._open(frame)
            # Pillow turns TIFF frames while loading and then forgets how.
            orientation = orientation_of(image, []) if image.format == "TIFF" else None
            deep = self._decode_deep_colour(frame) if _is_deep_colour(image) else None
            if deep is None:
                if _is_deep_colour(image):
                    text = "16-bit colours were cut to their upper 8 bits; dark scans may be black"
                    notices.append(Notice("depth_cut", text))
                image, truncated = self._load_pixels(image, frame)
                notices += truncated
            after = orientation_of(image, notices)
        if deep is None:
            rgb, more = rgb_from_image(image, self._source)
        else:
            rgb, more = _rgb_from_deep(deep, image, self._source)
        if any(notice.code == "truncated" for notice in notices):
            rgb = _blank_missing_rows(rgb, from_top=image.format == "BMP")
        return _finish(rgb, image, notices + more, orientation or after, upright=after == 1)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._stream.close()

    def _open(self, frame: int = 0) -> Image.Image:
        self._stream.seek(0)
        image = Image.open(self._stream, formats=self._kind.formats)
        if frame:
            image.seek(frame)
        self._limits.check_size(image.width, image.height, self._source)
        return image

    def _tiff_frames(self, image: Image.Image) -> list[int]:
        """Frame numbers of the pages: reduced copies and masks are no pages."""
        pages: list[int] = []
        count = 0
        while True:
            try:
                image.seek(count)
            except EOFError:
                break
            tags = image.tag_v2  # type: ignore[attr-defined]
            if _TIFF_DNG_VERSION in tags:
                remedy = "develop it to JPEG, PNG or TIFF and give that"
                raise UnsupportedFormat(f"is a raw photo (DNG): {remedy}", self._source)
            if not int(tags.get(_TIFF_SUBFILE_TYPE, 0)) & _TIFF_NO_PAGE:
                pages.append(count)
            count += 1
            self._limits.check_pages(count, self._source)
        return pages or list(range(count))

    def _load_pixels(self, image: Image.Image, frame: int) -> tuple[Image.Image, list[Notice]]:
        """The decoded frame; of a damaged one what can be had, with the notice `truncated`."""
        try:
            image.load()
            return image, []
        except Image.DecompressionBombError:
            raise
        except Exception as error:  # decoders raise anything; it is retried below
            reason = error
        ImageFile.LOAD_TRUNCATED_IMAGES = True  # `_pillow` puts it back
        image = self._open(frame)
        try:
            image.load()
        except OSError:
            if getattr(image, "tile", None):  # libtiff empties the list once it has decoded
                raise
        if _is_uniform(image):
            raise CorruptInput(
                f"damaged {self._kind.name}: no pixels can be decoded ({reason})", self._source
            )
        text = f"the {self._kind.name} data is cut off or damaged ({reason}); the rest was read"
        return image, [Notice("truncated", text)]

    def _decode_deep_colour(self, frame: int) -> np.ndarray | None:
        """(H, W, 3 or 4) RGB(A) at full depth; None for a variant that OpenCV does not read."""
        self._stream.seek(0)
        data = np.frombuffer(self._stream.read(), np.uint8)
        try:
            if frame:
                where = range(frame, frame + 1)
                _, decoded = cv2.imdecodemulti(data, cv2.IMREAD_UNCHANGED, range=where)
                deep = decoded[0] if decoded else None
            else:
                deep = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
        except cv2.error:
            return None
        if deep is None or deep.ndim != 3 or deep.shape[2] not in (3, 4):
            return None
        return np.asarray(deep[..., (2, 1, 0, 3)[: deep.shape[2]]])


def decode_image(image: Image.Image, source: str, limits: PageLimits) -> Decoded:
    """The current frame of a caller's PIL image; it stays open and as it was."""
    limits.check_size(image.width, image.height, source)
    notices: list[Notice] = []
    with _pillow(limits, source, image.format or "image"):
        orientation = orientation_of(image, []) if image.format == "TIFF" else None
        image.load()
        after = orientation_of(image, notices)
    rgb, more = rgb_from_image(image, source)
    return _finish(rgb, image, notices + more, orientation or after, upright=after == 1)


@contextmanager
def _pillow(limits: PageLimits, source: str, name: str) -> Iterator[None]:
    """Pillow with our pixel limit, without warnings, and with every failure as InputError."""
    with _PILLOW_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
        # Pillow refuses at twice its limit.
        Image.MAX_IMAGE_PIXELS = (limits.max_pixels + 1) // 2
        try:
            yield
        except (InputError, MemoryError):
            raise
        except Image.DecompressionBombError as error:
            found = re.search(r"\((\d+) pixels\)", str(error))
            count = int(found[1]) if found else limits.max_pixels + 1
            limits.check_pixels(count, f"{count} pixels", source)
            raise PageTooLarge(str(error), source) from error
        except UnidentifiedImageError:
            raise CorruptInput(
                f"starts like {name}, but its header is damaged, cut off or of a variant that is "
                "not read",
                source,
            ) from None
        except Exception as error:  # on hostile data decoders raise anything
            reason = str(error) or type(error).__name__
            raise CorruptInput(f"damaged {name}: {reason}", source) from error
        finally:
            Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = before


def _finish(
    rgb: np.ndarray, image: Image.Image, notices: list[Notice], orientation: int, *, upright: bool
) -> Decoded:
    """Square pixels and upright: what is common to all pictures once they are RGB."""
    mirrored, rotation = TURNS[orientation]
    across, down = dpi_of(image)
    if image.format == "TIFF" and across and down:
        rgb, stretched = _square_pixels(rgb, across, down)
        notices = notices + stretched
    if not upright:
        rgb = rgb[:, ::-1] if mirrored else rgb
        rgb = turn(rgb, rotation)
    dpi = max(across, down) if across and down else None
    return Decoded(frozen(rgb), rotation, mirrored, dpi, tuple(notices))


def _square_pixels(rgb: np.ndarray, across: float, down: float) -> tuple[np.ndarray, list[Notice]]:
    """Undo the flat pixels of fax resolutions, which squash print to half its height."""
    ratio = max(across, down) / min(across, down)
    if not _FAX_ASPECT[0] <= ratio <= _FAX_ASPECT[1]:
        return rgb, []
    height, width = rgb.shape[:2]
    if across > down:
        height = round(height * ratio)
    else:
        width = round(width * ratio)
    text = (
        f"stored at {across:g} x {down:g} dpi; stretched from {rgb.shape[1]} x {rgb.shape[0]} to "
        f"{width} x {height} square pixels, which is the size that coordinates refer to"
    )
    square = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_LINEAR)
    return square, [Notice("aspect_corrected", text)]


def _is_deep_colour(image: Image.Image) -> bool:
    """Whether the frame is 16-bit colour, of which Pillow would drop the low bytes."""
    tiles = getattr(image, "tile", None)
    rawmode = tiles[0][3] if tiles else ()
    parts = rawmode if isinstance(rawmode, tuple) else (rawmode,)
    return image.mode in ("RGB", "RGBA") and any(";16" in str(part) for part in parts)


def _rgb_from_deep(
    deep: np.ndarray, image: Image.Image, source: str
) -> tuple[np.ndarray, list[Notice]]:
    rgb, notices = rgb_from_array(deep, source)
    if "icc_profile" not in image.info:
        return rgb, notices
    shallow = Image.fromarray(rgb)
    shallow.info["icc_profile"] = image.info["icc_profile"]
    rgb, more = rgb_from_image(shallow, source)
    return rgb, notices + more


def _blank_missing_rows(rgb: np.ndarray, from_top: bool) -> np.ndarray:
    """Turn the even band that a decoder leaves where data is missing into white paper."""
    rows = rgb if from_top else rgb[::-1]
    written = np.flatnonzero((rows != rows[0, 0]).any(axis=(1, 2)))
    missing = int(written[0]) if written.size else 0
    out = rgb.copy()
    (out if from_top else out[::-1])[:missing] = 255
    return out


def _is_uniform(image: Image.Image) -> bool:
    """Whether every pixel is the same, as in a frame of which nothing was decoded."""
    extrema = image.getextrema()
    bands = extrema if isinstance(extrema[0], tuple) else (extrema,)
    return all(low == high for low, high in bands)


def _is_animated(image: Image.Image) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # a broken second frame is not needed
        return False
