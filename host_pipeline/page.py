"""Pages: any picture or document becomes upright 8-bit RGB pixels, one page at a time.

This file owns the values (`Page`, `PageLimits`), the open `Document` and the choice of a reader.
`source.py` opens files, `raster.py` and `pdf.py` read them, and `pixels.py` makes RGB of every
pixel format. Nothing here knows models, tasks or canvases.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
from PIL import Image

from host_pipeline import pixels as pixel_formats
from host_pipeline.errors import EmptyInput, UnsupportedFormat
from host_pipeline.limits import PageLimits
from host_pipeline.pixels import Decoded
from host_pipeline.raster import RasterReader, decode_image
from host_pipeline.result import Notice
from host_pipeline.signature import kind_of
from host_pipeline.source import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFAULT_LIMITS", "Document", "Page", "PageLimits", "open_document"]

DEFAULT_LIMITS = PageLimits()

_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One upright page.

    pixels (H, W, 3) uint8 RGB, C-contiguous, not writeable. source: the path as given, "-" for
    standard input, or the caller's label. index: 0-based page of `count` in its source. rotation:
    degrees clockwise (0, 90, 180, 270) applied to the stored pixels, after undoing the mirror
    where `mirrored`, to make the page upright. dpi: pixels per inch where the source tells.
    notices: what the reader of a Result should know about these pixels; their codes are
    animation, aspect_corrected, depth_cut, depth_scaled, dpi_lowered, exif_ignored, icc_ignored,
    transparent, truncated and xfa_form.
    """

    pixels: np.ndarray
    source: str
    index: int = 0
    count: int = 1
    rotation: int = 0
    mirrored: bool = False
    dpi: float | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def width(self) -> int:
        """Columns of pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """Rows of pixels."""
        return int(self.pixels.shape[0])

    def turned(self, degrees: int) -> Page:
        """The same page turned clockwise by 90, 180 or 270 degrees more; `rotation` adds up."""
        if degrees not in (90, 180, 270):
            raise ValueError(f"degrees is {degrees!r}; a page turns by 90, 180 or 270")
        return dataclasses.replace(
            self,
            pixels=pixel_formats.turn(self.pixels, degrees),
            rotation=(self.rotation + degrees) % 360,
        )


class PageReader(Protocol):
    """What `Document` needs from a reader of one format; calls come from one thread at a time
    per reader, and each reader guards the library that it uses."""

    def __len__(self) -> int:
        """Pages in the document, at least 1."""

    def load(self, index: int) -> Decoded:
        """Decode one page. Raises InputError; a later call for another page still works."""

    def close(self) -> None:
        """Release the file; idempotent."""


class Document:
    """An open picture or document that gives its pages one at a time; close it, or use `with`.

    Holds the file open and no pixels. Safe to use from several threads: the readers serialise
    their decoding.
    """

    def __init__(self, reader: PageReader, source: str) -> None:
        self.source = source
        self._reader: PageReader | None = reader
        self._count = len(reader)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Page]:
        """The pages in order; stops at the first page that cannot be read (InputError)."""
        return (self.load_page(index) for index in range(self._count))

    def load_page(self, index: int) -> Page:
        """Decode page `index` (0-based).

        Raises InputError when this page cannot be read (the next one may still be loaded),
        IndexError when there is no such page, and ValueError on a closed document.
        """
        if self._reader is None:
            raise ValueError(f"{self.source}: the document is closed")
        if not 0 <= index < self._count:
            raise IndexError(f"{self.source}: page {index} of {self._count} (pages count from 0)")
        decoded = self._reader.load(index)
        return Page(
            pixels=decoded.pixels,
            source=self.source,
            index=index,
            count=self._count,
            rotation=decoded.rotation,
            mirrored=decoded.mirrored,
            dpi=decoded.dpi,
            notices=decoded.notices,
        )

    def close(self) -> None:
        """Release the file; idempotent."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __enter__(self) -> Document:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_document(
    source: str | os.PathLike[str] | bytes | BinaryIO | np.ndarray | Image.Image,
    *,
    label: str | None = None,
    limits: PageLimits = DEFAULT_LIMITS,
    password: str | None = None,
    dpi: float | None = None,
) -> Document:
    """Open anything that holds pages.

    source: a path; "-" for standard input; the bytes of a file; a binary stream (read from its
    start where it can seek; it stays open); a PIL image (its current frame; it stays open); or an
    array, HxW grey, HxWx3 RGB or HxWx4 RGBA (never BGR). label: what `Page.source` says instead
    of the path, or of "bytes", "stream", "image", "array". password: for encrypted documents.
    dpi: resolution for drawing PDF pages; by default each page's own choice (see `pdf.py`);
    pictures ignore it.

    Raises InputError: see `errors.py` for its kinds.
    """
    if dpi is not None and not 1 <= dpi <= 2400:
        raise ValueError(f"dpi is {dpi!r}; give a number from 1 to 2400")
    if isinstance(source, np.ndarray):
        name = label or "array"
        return Document(_SinglePage(_decode_array(source, name, limits)), name)
    if isinstance(source, Image.Image):
        name = label or "image"
        return Document(_SinglePage(decode_image(source, name, limits)), name)
    stream, name = open_stream(source, label, limits)
    try:
        return Document(_reader_for(stream, name, limits, password, dpi), name)
    except BaseException:
        stream.close()
        raise


class _SinglePage:
    """The reader of a page that is decoded already."""

    def __init__(self, decoded: Decoded) -> None:
        self._decoded = decoded

    def __len__(self) -> int:
        return 1

    def load(self, index: int) -> Decoded:
        return self._decoded

    def close(self) -> None:
        pass


def _decode_array(array: np.ndarray, source: str, limits: PageLimits) -> Decoded:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise UnsupportedFormat(
            f"an array of shape {array.shape} is not a page; give HxW, HxWx3 RGB or HxWx4 RGBA",
            source,
        )
    if array.size == 0:
        raise EmptyInput(f"the array of shape {array.shape} has no pixels", source)
    if array.dtype.kind not in "buif":
        raise UnsupportedFormat(
            f"an array of {array.dtype} is not a page; give uint8, uint16 or a float type", source
        )
    limits.check_size(int(array.shape[1]), int(array.shape[0]), source)
    rgb, notices = pixel_formats.rgb_from_array(array, source)
    return Decoded(pixels=pixel_formats.frozen(rgb), notices=tuple(notices))


def _reader_for(
    stream: BinaryIO, source: str, limits: PageLimits, password: str | None, dpi: float | None
) -> PageReader:
    """The reader for the file's content, whatever its name says. It owns `stream` from here."""
    head = stream.read(_HEAD_BYTES)
    stream.seek(0)
    if not head:
        raise EmptyInput("the file is empty (0 bytes)", source)
    kind = kind_of(head)
    if kind.reader == "pdf":
        try:  # the smallest installation has no PDFium
            from host_pipeline.pdf import PdfReader
        except ModuleNotFoundError as error:
            raise UnsupportedFormat(
                f"is a PDF, which needs the package {error.name}: pip install pypdfium2", source
            ) from error
        return PdfReader(stream, source, limits, password, dpi)
    return RasterReader(stream, source, limits, kind)
