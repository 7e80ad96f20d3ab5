"""What a file really is, from its first bytes: the name on it is never believed.

Each kind either has a reader or a sentence that names it and says what to do. Sources of the
signatures: the formats' own specifications, as listed in the file(1) magic database.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file. `formats` are Pillow's names for it (reader "raster"); `remedy` says what
    to do where no reader is there."""

    name: str
    reader: Literal["raster", "pdf", "none"] = "raster"
    formats: tuple[str, ...] = ()
    remedy: str = ""


def _raster(name: str, *formats: str, remedy: str = "") -> Kind:
    return Kind(name, "raster", formats or (name,), remedy)


def _refused(name: str, remedy: str) -> Kind:
    return Kind(name, "none", (), remedy)


PDF = Kind("PDF", "pdf")
_EXPORT = "export it as PDF and give that"
_UNPACK = "unpack it and give the pictures or PDFs in it"
_DRAW = "save it as PNG or PDF and give that"
_DEVELOP = "develop it to JPEG, PNG or TIFF and give that"
_FRAMES = "save the frames that are wanted as pictures and give those"
_HEIF = _raster("HEIC", "HEIF", remedy="save it as JPEG or PNG and give that")
_JXL = _raster("JPEG XL", "JXL", remedy="save it as JPEG or PNG and give that")
_AVIF = _raster("AVIF", remedy="save it as JPEG or PNG and give that")

# (offset, bytes, kind); the first match wins, so the more specific ones come first.
_SIGNATURES: tuple[tuple[int, bytes, Kind], ...] = (
    (0, b"\xff\xd8", _raster("JPEG")),
    (0, b"\x89PNG\r\n\x1a\n", _raster("PNG")),
    (0, b"GIF87a", _raster("GIF")),
    (0, b"GIF89a", _raster("GIF")),
    (8, b"CR\x02", _refused("a Canon raw photo (CR2)", _DEVELOP)),
    (0, b"IIRO", _refused("an Olympus raw photo (ORF)", _DEVELOP)),
    (0, b"IIU\x00", _refused("a Panasonic raw photo (RW2)", _DEVELOP)),
    (0, b"FUJIFILMCCD-RAW", _refused("a Fujifilm raw photo (RAF)", _DEVELOP)),
    (0, b"II*\x00", _raster("TIFF")),
    (0, b"MM\x00*", _raster("TIFF")),
    (0, b"II+\x00", _raster("TIFF")),
    (0, b"MM\x00+", _raster("TIFF")),
    (8, b"WEBP", _raster("WebP", "WEBP")),
    (8, b"AVI ", _refused("a video (AVI)", _FRAMES)),
    (8, b"WAVE", _refused("a sound file (WAV)", "give a picture or a PDF")),
    (0, b"BM", _raster("BMP")),
    (0, b"\x00\x00\x00\x0cjP  ", _raster("JPEG 2000", "JPEG2000")),
    (0, b"\xff\x4f\xff\x51", _raster("JPEG 2000", "JPEG2000")),
    (0, b"\x00\x00\x00\x0cJXL ", _JXL),
    (0, b"\xff\x0a", _JXL),
    (0, b"8BPS", _raster("PSD")),
    (0, b"\x00\x00\x01\x00", _raster("ICO")),
    (0, b"qoif", _raster("QOI")),
    (0, b"%!PS", _refused("a PostScript file", "convert it to PDF and give that")),
    (0, b"\xc5\xd0\xd3\xc6", _refused("a PostScript file (EPS)", "convert it to PDF")),
    (0, b"{\\rtf", _refused("a rich-text document (RTF)", _EXPORT)),
    (0, b"\xd0\xcf\x11\xe0", _refused("an old Office document (doc, xls, ppt)", _EXPORT)),
    (0, b"AT&TFORM", _refused("a DjVu document", _EXPORT)),
    (0, b"Rar!", _refused("a RAR archive", _UNPACK)),
    (0, b"7z\xbc\xaf", _refused("a 7-Zip archive", _UNPACK)),
    (0, b"\x1f\x8b", _refused("a gzip file", _UNPACK)),
    (0, b"BZh", _refused("a bzip2 file", _UNPACK)),
    (0, b"\xfd7zXZ", _refused("an xz file", _UNPACK)),
    (0, b"\x28\xb5\x2f\xfd", _refused("a zstd file", _UNPACK)),
    (0, b"\x1aE\xdf\xa3", _refused("a video (Matroska or WebM)", _FRAMES)),
    (128, b"DICM", _refused("a DICOM file", "export the image as PNG and give that")),
)
_OFFICE = {
    b"word/": "a Word document (docx)",
    b"xl/": "an Excel workbook (xlsx)",
    b"ppt/": "a PowerPoint file (pptx)",
    b"opendocument": "an OpenDocument file",
    b"epub": "an e-book (EPUB)",
    b"ofd": "an OFD document",
}
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_MARKUP = re.compile(rb"\s*(<!doctype html|<html|<head|<body|<script|<!--)", re.IGNORECASE)


def kind_of(head: bytes) -> Kind:
    """The kind of a file that starts with `head` (some kilobytes; at least one byte)."""
    for offset, magic, kind in _SIGNATURES:
        if head.startswith(magic, offset):
            return kind
    if re.match(rb"P([1-6][\s#]|f\s)", head):
        return _raster("PPM")
    if head[4:8] == b"ftyp":
        return _iso_media_kind(head)
    if head.startswith(b"PK\x03\x04"):
        name = next((name for mark, name in _OFFICE.items() if mark in head), "a ZIP archive")
        return _refused(name, _UNPACK if name == "a ZIP archive" else _EXPORT)
    if b"%PDF-" in head[:1024]:  # viewers accept bytes before it: ISO 32000-1, Annex H, note 13
        return PDF
    if not head.strip(b"\x00"):
        return _refused("filled with zero bytes", "copy or download it again")
    return _text_kind(head) or _refused(
        f"not a picture or document of a known kind (it starts with {head[:8].hex(' ')})",
        "give JPEG, PNG, TIFF, WebP, GIF, BMP, JPEG 2000, AVIF, PPM or PDF",
    )


def _iso_media_kind(head: bytes) -> Kind:
    size = int.from_bytes(head[:4], "big")
    brands = {head[at : at + 4] for at in range(8, min(size, len(head), 256), 4)}
    if brands & {b"avif", b"avis"}:
        return _AVIF
    if brands & _HEIF_BRANDS:
        return _HEIF
    if b"crx " in brands:
        return _refused("a Canon raw photo (CR3)", _DEVELOP)
    return _refused("a video (MP4 or MOV)", _FRAMES)


def _text_kind(head: bytes) -> Kind | None:
    """The kind of a text file by what it says; None for binary data."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _refused("a text file (UTF-16)", "give a picture or a PDF")
    if b"<svg" in head:
        return _refused("an SVG drawing", _DRAW)
    if _MARKUP.match(start):
        return _refused(
            "an HTML page, not a picture (often the error page of a failed download)",
            "open it to see what it says, then download the picture again",
        )
    if start.startswith(b"version https://git-lfs"):
        return _refused("a Git LFS pointer, not the file itself", "run `git lfs pull`")
    if start.startswith((b"data:", b"/9j/", b"iVBORw0KGgo", b"JVBERi0")):
        return _refused("a picture or PDF as base64 text", "decode it and give the bytes")
    if _is_text(head):
        name = {b"<": "an XML file", b"{": "a JSON file", b"[": "a JSON file"}
        return _refused(name.get(start[:1], "a text file"), "give a picture or a PDF")
    return None


def _is_text(head: bytes) -> bool:
    if any(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head):
        return False
    try:
        head[:-4].decode("utf-8")  # the last character may be cut
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 8
    return True
