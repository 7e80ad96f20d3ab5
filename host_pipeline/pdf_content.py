"""What a PDF page is made of, found without drawing it: scans, print, oversized images.

Callers hold the lock of `pdf.py`: everything here calls PDFium.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium_c

from host_pipeline.limits import PageLimits

_SCAN_COVERAGE = 0.85  # part of the page that images must cover for it to be a scan
_SCAN_ASPECT = 1.02
_FORM_DEPTH = 8

Scale = tuple[float, float]
"""Pixels per point, across and down the upright page."""

_Matrix = tuple[float, float, float, float]  # the linear part (a, b, c, d), ISO 32000-1 8.3.3


@dataclass(frozen=True, slots=True)
class PageContent:
    """What a page is made of: the resolution of the images that cover it (pixels per point across
    and down the upright page; None where they do not cover it), and whether visible print or
    drawing lies on it too."""

    scan_scale: Scale | None
    has_print: bool


def survey(page: Any, limits: PageLimits, source: str) -> PageContent:
    """Look through the objects of a pypdfium2 page.

    Raises PageTooLarge for an image over the limits, which drawing would have to decode.
    """
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
                scan_scale = _image_scale(width, height, matrix, rotation_of(page))
    if covered < _SCAN_COVERAGE * page.get_width() * page.get_height():
        scan_scale = None
    return PageContent(scan_scale, has_print)


def _image_scale(width: int, height: int, matrix: _Matrix, rotation: int) -> Scale:
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


def rotation_of(page: Any) -> int:
    """Degrees clockwise; PDFium says -1 where the entry makes no sense, and draws upright."""
    return 90 * max(0, int(pdfium_c.FPDFPage_GetRotation(page)))


def _image_size(item: Any) -> tuple[int, int]:
    width, height = ctypes.c_uint(), ctypes.c_uint()
    pdfium_c.FPDFImageObj_GetImagePixelSize(item, width, height)
    return int(width.value), int(height.value)
