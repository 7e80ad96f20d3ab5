"""Draws PDF pages with PDFium, one at a time.

The resolution: what the caller asked for; else, on a page that is nothing but one scan, the
scan's own pixels; else 200 dpi, raised for small pages and lowered for very large ones.
PDFium must not be called from two threads, not even on two documents: one lock guards all calls.
"""

from __future__ import annotations

import ctypes
import io
import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.internal as pdfium_i
import pypdfium2.raw as pdfium_c

from host_pipeline.errors import CorruptInput, EmptyInput, EncryptedDocument, InputError
from host_pipeline.limits import PageLimits
from host_pipeline.pdf_content import PageContent, Scale, rotation_of, survey
from host_pipeline.pixels import Decoded, frozen
from host_pipeline.result import Notice

_PDFIUM_LOCK = threading.RLock()
_POINTS_PER_INCH = 72.0
_DEFAULT_DPI = 200.0  # 6-point print has an x-height of about 8 pixels
_SMALL_PAGE_DPI = 400.0
_SMALL_PAGE_SIDE = 1600.0  # pixels that the longer side gets on a label or receipt, if it can
_LARGE_PAGE_PIXELS = 40_000_000  # what a page gets without being asked for: A0 at 160 dpi
_LEGIBLE_DPI = 150.0
_PAGES_PER_OPENING = 64  # opening again costs some milliseconds
_TAIL_BYTES = 4096


class PdfReader:
    """The pages of a PDF file. Owns `stream`; keeps no page between calls."""

    def __init__(
        self,
        stream: BinaryIO,
        source: str,
        limits: PageLimits,
        password: str | None,
        dpi: float | None,
    ) -> None:
        self._stream = stream
        self._source = source
        self._limits = limits
        self._password = password
        self._dpi = dpi
        self._drawn = 0
        self._notices: list[Notice] = []
        if not _has_end(stream):
            text = "the end of the PDF is missing; pages or parts of them may be missing too"
            self._notices.append(Notice("truncated", text))
        with _pdfium(source):
            self._document, self._held = _open_pdf(stream, source, password)
            try:
                self._count = len(self._document)
                limits.check_pages(self._count, source)
                if self._document.get_formtype() == pdfium_c.FORMTYPE_XFA_FULL:
                    text = "an XFA form; only the fixed page behind the form can be drawn"
                    self._notices.append(Notice("xfa_form", text))
            except BaseException:
                self._document.close()
                raise

    def __len__(self) -> int:
        return self._count

    def load(self, index: int) -> Decoded:
        """Draw one page upright. Raises CorruptInput or PageTooLarge."""
        with _pdfium(self._source):
            if self._drawn == _PAGES_PER_OPENING:
                self._reopen()
            self._drawn += 1
            page = self._document[index]
            try:
                content = survey(page, self._limits, self._source)
                scale, notices = self._choose_scale(page.get_width(), page.get_height(), content)
                pixels = _draw(page, self._document.formenv, scale)
                rotation = rotation_of(page)
            finally:
                page.close()
        dpi = max(scale) * _POINTS_PER_INCH
        return Decoded(pixels, rotation, False, dpi, tuple(self._notices + notices))

    def close(self) -> None:
        """Close the document and the file; idempotent."""
        with _PDFIUM_LOCK:
            self._document.close()
        self._stream.close()

    def _reopen(self) -> None:
        """Start afresh: PDFium keeps the streams of every page that it has ever drawn."""
        document, held = _open_pdf(self._stream, self._source, self._password)
        self._document.close()
        self._document, self._held, self._drawn = document, held, 0

    def _choose_scale(
        self, width_pt: float, height_pt: float, content: PageContent
    ) -> tuple[Scale, list[Notice]]:
        """Pixels per point across and down."""
        width, height = width_pt / _POINTS_PER_INCH, height_pt / _POINTS_PER_INCH  # inches
        if self._dpi is not None:
            scale = self._dpi / _POINTS_PER_INCH
            size = _pixel_size(width_pt, height_pt, (scale, scale))
            self._limits.check_size(*size, self._source, f"at {self._dpi:g} dpi")
            return (scale, scale), []
        wanted = min(max(_DEFAULT_DPI, _SMALL_PAGE_SIDE / max(width, height)), _SMALL_PAGE_DPI)
        scan = content.scan_scale
        scan_dpi = max(scan) * _POINTS_PER_INCH if scan else 0.0
        if scan:
            wanted = max(wanted, scan_dpi) if content.has_print else scan_dpi
        room = min(self._limits.max_pixels, _LARGE_PAGE_PIXELS)
        # The larger root of (width * dpi + 1) * (height * dpi + 1) = room, as sides round up.
        both, area = width + height, width * height
        most = (math.sqrt(both * both + 4 * area * (room - 1)) - both) / (2 * area)
        dpi = min(wanted, most, (self._limits.max_side - 1) / max(width, height))
        if scan and dpi == scan_dpi:
            return scan, []
        scale = dpi / _POINTS_PER_INCH
        if dpi >= min(wanted, _LEGIBLE_DPI):
            return (scale, scale), []
        text = (
            f"the page measures {width:.1f} x {height:.1f} inches and is drawn at {dpi:.0f} dpi; "
            "small print may be lost. Set the dpi to draw it larger"
        )
        return (scale, scale), [Notice("dpi_lowered", text)]


def _pixel_size(width_pt: float, height_pt: float, scale: Scale) -> tuple[int, int]:
    # A hair less, so that a scan of 1654 pixels is not drawn on 1655 by a rounding error.
    return max(1, math.ceil(width_pt * scale[0] - 1e-3)), max(
        1, math.ceil(height_pt * scale[1] - 1e-3)
    )


def _draw(page: Any, form: Any, scale: Scale) -> np.ndarray:
    """The page on white, (H, W, 3) uint8 RGB, drawn by PDFium straight into our memory."""
    width, height = _pixel_size(page.get_width(), page.get_height(), scale)
    pixels = np.full((height, width, 3), 255, np.uint8)
    memory = pixels.ctypes.data_as(ctypes.c_void_p)
    bitmap = pdfium_c.FPDFBitmap_CreateEx(width, height, pdfium_c.FPDFBitmap_BGR, memory, 3 * width)
    if not bitmap:
        raise MemoryError(f"PDFium has no memory for {width} x {height} pixels")
    try:
        flags = (
            pdfium_c.FPDF_ANNOT
            | pdfium_c.FPDF_REVERSE_BYTE_ORDER
            | pdfium_c.FPDF_RENDER_LIMITEDIMAGECACHE
        )
        where = (bitmap, page, 0, 0, width, height, 0, flags)
        pdfium_c.FPDF_RenderPageBitmap(*where)
        if form:
            pdfium_c.FPDF_FFLDraw(form, *where)
    finally:
        pdfium_c.FPDFBitmap_Destroy(bitmap)
    return frozen(pixels)


def _open_pdf(stream: BinaryIO, source: str, password: str | None) -> tuple[Any, Any]:
    """The open document, and what must live as long as it does."""
    secret = None if password is None else password.encode() + b"\0"
    raw, held = _load(stream, secret)
    if not raw and pdfium_c.FPDF_GetLastError() == pdfium_c.FPDF_ERR_FORMAT:
        repaired = _with_trailer(stream)
        raw, held = _load(io.BytesIO(repaired), secret) if repaired else (raw, held)
    if not raw:
        raise _open_error(pdfium_c.FPDF_GetLastError(), source, password)
    document = pdfium.PdfDocument(raw)
    if len(document) == 0:
        document.close()
        raise EmptyInput("the PDF has no pages", source)
    document.init_forms()  # without it, filled-in fields are not drawn
    return document, held


def _load(stream: BinaryIO, secret: bytes | None) -> tuple[Any, Any]:
    if isinstance(stream, io.BytesIO):
        data = stream.getvalue()
        return pdfium_c.FPDF_LoadMemDocument64(data, len(data), secret), data
    access, held = pdfium_i.get_bufreader(stream)
    return pdfium_c.FPDF_LoadCustomDocument(access, secret), held


def _open_error(code: int, source: str, password: str | None) -> InputError:
    if code == pdfium_c.FPDF_ERR_PASSWORD:
        if password:
            return EncryptedDocument("the password does not open this PDF", source)
        return EncryptedDocument("the PDF is encrypted; give its password", source)
    if code == pdfium_c.FPDF_ERR_SECURITY:
        remedy = "save it without encryption and give that"
        return EncryptedDocument(
            f"the PDF is encrypted in a way that is not read; {remedy}", source
        )
    return CorruptInput("damaged PDF: its page tree cannot be found", source)


def _with_trailer(stream: BinaryIO) -> bytes | None:
    """The bytes of a cut PDF with the trailer that it lost, from which PDFium can rebuild it."""
    stream.seek(0)
    data = stream.read()
    root = re.search(rb"(\d+)\s+(\d+)\s+obj\b(?:(?!endobj).){0,500}?/Type\s*/Catalog\b", data, re.S)
    if root is None:
        return None
    return data + b"\nendobj\ntrailer << /Root %s %s R >>\n" % root.groups()


def _has_end(stream: BinaryIO) -> bool:
    """Whether the last kilobytes hold the end mark (ISO 32000-1, 7.5.5)."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size - _TAIL_BYTES))
    tail = stream.read()
    stream.seek(0)
    return b"%%EOF" in tail


@contextmanager
def _pdfium(source: str) -> Iterator[None]:
    """The lock around PDFium, and its failures as InputError."""
    with _PDFIUM_LOCK:
        try:
            yield
        except (InputError, MemoryError):
            raise
        except (pdfium.PdfiumError, OSError, ValueError) as error:
            raise CorruptInput(f"damaged PDF: {error}", source) from error
