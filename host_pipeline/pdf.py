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
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.internal as pdfium_i
import pypdfium2.raw as pdfium_c

from host_pipeline.errors import CorruptInput, EmptyInput, EncryptedDocument, InputError
from host_pipeline.limits import PageLimits
from host_pipeline.pixels import Decoded, frozen
from host_pipeline.result import Notice

_PDFIUM_LOCK = threading.RLock()
_POINTS_PER_INCH = 72.0
_DEFAULT_DPI = 200.0  # 6-point print has an x-height of about 8 pixels
_SMALL_PAGE_DPI = 400.0
_SMALL_PAGE_SIDE = 1600.0  # pixels that the longer side gets on a label or receipt, if it can
_LARGE_PAGE_PIXELS = 40_000_000  # what a page gets without being asked for: A0 at 130 dpi
_LEGIBLE_DPI = 150.0
_SCAN_COVERAGE = 0.85  # part of the page that images must cover for it to be a scan
_SCAN_ASPECT = 1.02
_FORM_DEPTH = 8
_TAIL_BYTES = 4096

_Scale = tuple[float, float]
_Matrix = tuple[float, float, float, float]  # the linear part (a, b, c, d), ISO 32000-1 8.3.3


@dataclass(frozen=True, slots=True)
class _Content:
    """What a page is made of: the resolution of the images that cover it (pixels per point across
    and down the upright page; None where they do not cover it), and whether visible print or
    drawing lies on it too."""

    scan_scale: _Scale | None
    has_print: bool


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
        self._dpi = dpi
        self._notices: list[Notice] = []
        if not _has_end(stream):
            text = "the end of the PDF is missing; pages or parts of them may be missing too"
            self._notices.append(Notice("truncated", text))
        with _pdfium(source):
            self._document, self._held = _open_pdf(stream, source, password)
            try:
                self._count = len(self._document)
                limits.check_pages(self._count, source)
                self._document.init_forms()  # without it, filled-in fields are not drawn
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
            page = self._document[index]
            try:
                content = _survey(page, self._limits, self._source)
                scale, notices = self._choose_scale(page.get_width(), page.get_height(), content)
                pixels = _draw(page, self._document.formenv, scale)
                rotation = _rotation(page)
            finally:
                page.close()
        dpi = max(scale) * _POINTS_PER_INCH
        return Decoded(pixels, rotation, False, dpi, tuple(self._notices + notices))

    def close(self) -> None:
        """Close the document and the file; idempotent."""
        with _PDFIUM_LOCK:
            self._document.close()
        self._stream.close()

    def _choose_scale(
        self, width_pt: float, height_pt: float, content: _Content
    ) -> tuple[_Scale, list[Notice]]:
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


def _survey(page: Any, limits: PageLimits, source: str) -> _Content:
    """Look through the page's objects without drawing them; refuses oversized images."""
    covered, largest, scan_scale, has_print = 0.0, 0.0, None, False
    for item, matrix in _objects(page):
        kind = pdfium_c.FPDFPageObj_GetType(item)
        if kind == pdfium_c.FPDF_PAGEOBJ_TEXT:
            mode = pdfium_c.FPDFTextObj_GetTextRenderMode(item)
            has_print |= mode != pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE
        elif kind != pdfium_c.FPDF_PAGEOBJ_IMAGE:
            has_print = True
        else:
            width, height = _image_size(item)
            limits.check_size(width, height, source, "in an image of the page")
            area = math.hypot(*matrix[:2]) * math.hypot(*matrix[2:])  # square points
            covered += area
            if area > largest and width and height:
                largest = area
                scan_scale = _image_scale(width, height, matrix, _rotation(page))
    if covered < _SCAN_COVERAGE * page.get_width() * page.get_height():
        scan_scale = None
    return _Content(scan_scale, has_print)


def _image_scale(width: int, height: int, matrix: _Matrix, rotation: int) -> _Scale:
    """Pixels per point of an image across and down the upright page.

    The two are kept apart only while they nearly agree: then the drawing has the scan's very
    pixels, where a common scale would resample them by one row in a thousand.
    """
    across, down = width / math.hypot(*matrix[:2]), height / math.hypot(*matrix[2:])
    if not 1 / _SCAN_ASPECT < across / down < _SCAN_ASPECT:
        across = down = max(across, down)
    lies_on_its_side = abs(matrix[1]) > abs(matrix[0])
    return (down, across) if lies_on_its_side != (rotation in (90, 270)) else (across, down)


def _objects(page: Any) -> Iterator[tuple[Any, _Matrix]]:
    """Every drawn object with its matrix to the page, those inside form objects included.

    On the C interface: pypdfium2's own walk makes a Python object of each, 100,000 on a map.
    """
    for at in range(pdfium_c.FPDFPage_CountObjects(page)):
        yield from _walk(pdfium_c.FPDFPage_GetObject(page, at), (1.0, 0.0, 0.0, 1.0), 0)


def _walk(item: Any, outer: _Matrix, depth: int) -> Iterator[tuple[Any, _Matrix]]:
    raw = pdfium_c.FS_MATRIX()
    pdfium_c.FPDFPageObj_GetMatrix(item, raw)
    a, b, c, d = outer
    matrix = (
        raw.a * a + raw.b * c,
        raw.a * b + raw.b * d,
        raw.c * a + raw.d * c,
        raw.c * b + raw.d * d,
    )
    if pdfium_c.FPDFPageObj_GetType(item) != pdfium_c.FPDF_PAGEOBJ_FORM:
        yield item, matrix
    elif depth < _FORM_DEPTH:
        for at in range(pdfium_c.FPDFFormObj_CountObjects(item)):
            yield from _walk(pdfium_c.FPDFFormObj_GetObject(item, at), matrix, depth + 1)


def _rotation(page: Any) -> int:
    """Degrees clockwise; PDFium says -1 where the entry makes no sense, and draws upright."""
    return 90 * max(0, int(pdfium_c.FPDFPage_GetRotation(page)))


def _image_size(item: Any) -> tuple[int, int]:
    width, height = ctypes.c_uint(), ctypes.c_uint()
    pdfium_c.FPDFImageObj_GetImagePixelSize(item, width, height)
    return int(width.value), int(height.value)


def _pixel_size(width_pt: float, height_pt: float, scale: _Scale) -> tuple[int, int]:
    # A hair less, so that a scan of 1654 pixels is not drawn on 1655 by a rounding error.
    return max(1, math.ceil(width_pt * scale[0] - 1e-3)), max(
        1, math.ceil(height_pt * scale[1] - 1e-3)
    )


def _draw(page: Any, form: Any, scale: _Scale) -> np.ndarray:
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
