"""Every way a picture comes in gives the right page, a notice, or an error that says why."""

from __future__ import annotations

import io
import os
import struct
import sys
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from host_pipeline.errors import (
    CorruptInput,
    EmptyInput,
    InputError,
    PageTooLarge,
    UnsupportedFormat,
)
from host_pipeline.page import Page, PageLimits, open_document

ORIENTATION = 0x0112

Image.init()
AVIF = pytest.param(
    "AVIF", marks=pytest.mark.skipif("AVIF" not in Image.SAVE, reason="this Pillow has no AVIF")
)


def picture(width: int = 48, height: int = 32) -> Image.Image:
    """White, with a red, a green and a blue corner: no turn or mirror image is like another."""
    image = Image.new("RGB", (width, height), "white")
    image.paste((250, 0, 0), (0, 0, 16, 16))
    image.paste((0, 160, 0), (width - 16, 0, width, 16))
    image.paste((0, 0, 250), (0, height - 16, 16, height))
    return image


def noise(width: int = 300, height: int = 400) -> Image.Image:
    rng = np.random.default_rng(7)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def stored(image: Image.Image, name: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, name, **options)
    return stream.getvalue()


def read(source: object, index: int = 0, **options: object) -> Page:
    with open_document(source, **options) as document:  # type: ignore[arg-type]
        return document.load_page(index)


def codes(page: Page) -> list[str]:
    return [notice.code for notice in page.notices]


def assert_is_picture(page: Page, expected: Image.Image, tolerance: int = 12) -> None:
    assert (page.width, page.height) == expected.size
    difference = np.abs(page.pixels.astype(int) - np.asarray(expected.convert("RGB"), int))
    assert difference.mean() <= tolerance


# --- formats and sources --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", AVIF]
)
def test_every_format_is_read_from_bytes(name: str) -> None:
    page = read(stored(picture(), name))
    assert_is_picture(page, picture())
    assert (page.index, page.count, page.rotation, page.notices) == (0, 1, 0, ())


def test_progressive_jpeg_and_interlaced_png() -> None:
    assert_is_picture(read(stored(picture(), "JPEG", progressive=True)), picture())
    assert_is_picture(read(stored(picture(), "PNG", interlace=1)), picture())


@pytest.mark.parametrize(
    "name", ["测试/发票 №1 é.jpg", "no_extension", "wrong.png", "a" * 200 + ".jpg", "-x.jpg"]
)
def test_any_file_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(stored(picture(), "JPEG"))
    for source in (path, str(path)):
        page = read(source)
        assert_is_picture(page, picture())
        assert page.source == str(path)


def test_a_path_of_thousands_of_characters(tmp_path: Path) -> None:
    folder = tmp_path / "/".join(["d" * 200] * 14)
    folder.mkdir(parents=True)
    (folder / "x.png").write_bytes(stored(picture(), "PNG"))
    assert_is_picture(read(folder / "x.png"), picture())


def test_a_name_that_is_no_text_can_still_be_printed(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.png"
    try:
        with open(path, "wb") as file:
            file.write(stored(picture(), "PNG"))
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    assert read(os.fsdecode(path)).source.encode("utf-8").endswith(b"\\xff.png")


def test_streams_are_read_from_their_start_and_stay_open() -> None:
    stream = io.BytesIO()
    picture().save(stream, "PNG")  # leaves the position at the end
    page = read(stream, label="upload 1")
    assert_is_picture(page, picture())
    assert page.source == "upload 1" and not stream.closed


def test_a_pipe_and_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(stored(picture(), "PNG"))
    with os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        page = read("-")
    assert_is_picture(page, picture())
    assert page.source == "-"


def test_a_temporary_file_object() -> None:
    with tempfile.SpooledTemporaryFile() as file:
        file.write(stored(picture(), "TIFF", compression="tiff_lzw"))
        assert_is_picture(read(file), picture())


def test_a_callers_image_stays_usable() -> None:
    image = Image.open(io.BytesIO(stored(picture(), "PNG")))
    assert_is_picture(read(image), picture())
    assert image.getpixel((0, 0)) == (250, 0, 0)


def test_what_is_no_file_is_said_so(tmp_path: Path) -> None:
    for source, reason in (
        (tmp_path / "absent.png", "no such file"),
        (tmp_path, "is a folder"),
        ("bad\0name.png", "null"),
        ("x" * 5000, "too long"),
        ("https://example.org/a.png", "not fetched"),
    ):
        with pytest.raises(InputError, match=reason):
            open_document(source)
    with pytest.raises(InputError, match="binary mode"):
        open_document(io.StringIO("text"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int"):
        open_document(5)  # type: ignore[arg-type]


def test_a_document_counts_its_pages_and_can_be_closed_twice() -> None:
    document = open_document(stored(picture(), "PNG"))
    assert len(document) == 1 and [page.index for page in document] == [0]
    for index in (1, -1):
        with pytest.raises(IndexError, match="of 1"):
            document.load_page(index)
    document.close()
    document.close()
    with pytest.raises(ValueError, match="closed"):
        document.load_page(0)


# --- upright --------------------------------------------------------------------------------


def stored_turned(orientation: int, name: str) -> bytes:
    """`picture()` as a camera stores it that was held so that the tag is `orientation`."""
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    image = picture()
    for step in undo.get(orientation, []):
        image = image.transpose(step)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    options = {"tiffinfo": {ORIENTATION: orientation}} if name == "TIFF" else {"exif": exif}
    return stored(image, name, **options)


EXIF_TURNS = {1: (0, False), 2: (0, True), 3: (180, False), 4: (180, True), 5: (270, True),
              6: (90, False), 7: (90, True), 8: (270, False)}  # fmt: skip


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF", AVIF])
def test_exif_orientation_for_every_source(orientation: int, name: str, tmp_path: Path) -> None:
    data = stored_turned(orientation, name)
    path = tmp_path / "photo"
    path.write_bytes(data)
    for source in (path, data, io.BytesIO(data), Image.open(io.BytesIO(data))):
        page = read(source)
        assert_is_picture(page, picture())
        assert (page.rotation, page.mirrored) == EXIF_TURNS[orientation]


@pytest.mark.parametrize("value", [0, 9, 4711])
def test_an_orientation_that_means_nothing_is_upright(value: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = value
    page = read(stored(picture(), "JPEG", exif=exif))
    assert_is_picture(page, picture())
    assert page.rotation == 0


def test_damaged_exif_does_not_stop_or_warn() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    broken = exif.tobytes()[:14] + b"\xff" * 40
    page = read(stored(picture(), "JPEG", exif=b"Exif\0\0" + broken))
    assert_is_picture(page, picture())


def test_a_page_turns_and_adds_up_its_rotation() -> None:
    page = read(stored_turned(6, "JPEG"))
    turned = page.turned(90)
    assert (turned.rotation, page.rotation) == (180, 90)
    assert turned.pixels[0, -1].tolist() == page.pixels[0, 0].tolist()
    assert (turned.turned(270).pixels == page.pixels).all()
    assert not turned.pixels.flags.writeable and turned.pixels.flags.c_contiguous
    with pytest.raises(ValueError, match="45"):
        page.turned(45)


# --- frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["GIF", "PNG", "WEBP", AVIF])
def test_an_animation_is_its_first_frame_with_a_notice(name: str) -> None:
    frames = [Image.new("RGB", (48, 32), (value, 0, 0)) for value in range(0, 250, 2)]
    data = stored(picture(), name, save_all=True, append_images=frames)
    with open_document(data) as document:
        assert len(document) == 1
        page = document.load_page(0)
    assert_is_picture(page, picture())
    assert codes(page) == ["animation"]


@pytest.mark.parametrize("name", ["GIF", "PNG", "WEBP"])
def test_a_still_picture_has_no_animation_notice(name: str) -> None:
    assert codes(read(stored(picture(), name))) == []


@pytest.mark.parametrize(
    ("compression", "mode"),
    [(None, "RGB"), ("tiff_lzw", "RGB"), ("jpeg", "RGB"), ("group4", "1"), ("group3", "1"),
     ("tiff_deflate", "L"), ("packbits", "P")],
)  # fmt: skip
def test_every_page_of_a_tiff(compression: str | None, mode: str, tmp_path: Path) -> None:
    pages = [picture().rotate(turn, expand=True).convert(mode) for turn in (0, 90, 180)]
    path = tmp_path / "scan.tif"
    pages[0].save(path, save_all=True, append_images=pages[1:], compression=compression)
    for source in (path, path.read_bytes()):
        with open_document(source) as document:
            assert len(document) == 3
            for index in (2, 0, 1):
                page = document.load_page(index)
                assert_is_picture(page, pages[index])
                assert (page.index, page.count, codes(page)) == (index, 3, [])


def test_thumbnails_in_a_tiff_are_no_pages() -> None:
    frames = [picture(), picture().resize((24, 16)), picture()]
    data = stored(frames[0], "TIFF", save_all=True, append_images=frames[1:], tiffinfo={254: 0})
    whole, thumbnail = (struct.pack("<HHII", 254, 4, 1, value) for value in (0, 1))
    start = data.index(whole, data.index(whole) + 1)
    data = data[:start] + thumbnail + data[start + len(thumbnail) :]
    with open_document(data) as document:
        assert [document.load_page(index).width for index in range(len(document))] == [48, 48]


def test_a_tiff_whose_pages_form_a_ring_ends() -> None:
    data = bytearray(stored(picture(), "TIFF"))
    start = int.from_bytes(data[4:8], "little")
    entries = int.from_bytes(data[start : start + 2], "little")
    data[start + 2 + 12 * entries : start + 6 + 12 * entries] = start.to_bytes(4, "little")
    with open_document(bytes(data), limits=PageLimits(max_pages=3)) as document:
        assert len(document) == 1


def test_one_broken_tiff_page_does_not_stop_the_next() -> None:
    data = bytearray(stored(noise(64, 64), "TIFF", save_all=True, compression="tiff_lzw",
                            append_images=[picture(), picture()]))  # fmt: skip
    start = data.index(b"\x80", 8)
    data[start : start + 600] = b"\xff" * 600
    with open_document(bytes(data)) as document:
        with pytest.raises(CorruptInput, match="TIFF"):
            document.load_page(0)
        assert_is_picture(document.load_page(1), picture())


def test_flat_fax_pixels_are_made_square() -> None:
    fax = picture(204, 98).convert("1")
    page = read(stored(fax, "TIFF", dpi=(204, 98), compression="group3"))
    assert (page.width, page.height) == (204, 204)
    assert codes(page) == ["aspect_corrected"] and page.dpi == pytest.approx(204)


def test_dpi_is_told_where_the_file_tells_it() -> None:
    assert read(stored(picture(), "PNG", dpi=(300, 300))).dpi == pytest.approx(300, abs=0.1)
    assert read(stored(picture(), "PNG")).dpi is None
    assert read(stored(picture(), "TIFF", dpi=(1, 1))).dpi is None


# --- damaged, truncated, something else -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {"interlace": 0}),
     ("BMP", {}), ("PPM", {}), ("TIFF", {})],
)  # fmt: skip
def test_of_a_truncated_file_what_is_there_is_read(name: str, options: dict[str, bool]) -> None:
    whole = stored(noise(), name, **options)
    before = read(whole)
    page = read(whole[: int(len(whole) * 0.6)])
    assert (page.width, page.height) == (300, 400)
    assert codes(page) == ["truncated"]
    rows = slice(240, 380) if name == "BMP" else slice(20, 160)  # BMP starts at the bottom
    difference = np.abs(page.pixels[rows].astype(int) - before.pixels[rows].astype(int))
    assert difference.mean() < (40 if "progressive" in options else 1)
    missing = page.pixels[5] if name == "BMP" else page.pixels[-5]
    if not options:
        assert (missing == 255).all()  # paper, not a black band


def test_leniency_does_not_leak_into_the_process() -> None:
    data = stored(noise(), "PNG")
    read(data[: len(data) // 2])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    with pytest.raises(OSError, match="truncated"):
        Image.open(io.BytesIO(data[: len(data) // 2])).load()


@pytest.mark.parametrize("name", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "JPEG2000", AVIF])
@pytest.mark.parametrize("size", [12, 40])
def test_a_header_alone_is_an_error_not_an_empty_page(name: str, size: int) -> None:
    with pytest.raises(InputError) as caught:
        read(stored(noise(), name)[:size])
    assert caught.value.source == "bytes"
    assert "0x" not in str(caught.value)  # no addresses of objects


def test_an_empty_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(EmptyInput, match=r"empty\.jpg: .*empty \(0 bytes\)"):
        open_document(tmp_path / "empty.jpg")
    with pytest.raises(EmptyInput):
        open_document(b"")


SOMETHING_ELSE = [
    (b"<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
    (b"\xef\xbb\xbf\n <HTML>", "HTML page"),
    (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    (b"<svg/>", "SVG"),
    (b"<?xml version='1.0'?><a/>", "XML"),
    (b'{"error": "no"}', "JSON"),
    (b"just some words", "text file"),
    ("纯文本".encode() * 600, "text file"),
    ("utf-16".encode("utf-16"), "UTF-16"),
    (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
    (b"iVBORw0KGgoAAAANSUhEUg==", "base64"),
    (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64), "HEIC"),
    (b"\0\0\0\x18ftypisom\0\0\0\0mp41" + bytes(64), "video"),
    (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom" + bytes(64), "CR3"),
    (b"II*\0\x10\0\0\0CR\x02\0", "CR2"),
    (b"PK\x03\x04" + bytes(26) + b"word/document.xml", "docx"),
    (b"PK\x03\x04" + bytes(26) + b"a.txt", "ZIP"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office"),
    (b"%!PS-Adobe-3.0", "PostScript"),
    (b"{\\rtf1}", "rich-text"),
    (b"AT&TFORM\0\0\0\0DJVM", "DjVu"),
    (b"\x1f\x8b\x08\0", "gzip"),
    (b"RIFF\0\0\0\0AVI LIST", "AVI"),
    (bytes(128) + b"DICM", "DICOM"),
    (bytes(5000), "zero bytes"),
    (b"\xff\x0a" + bytes(20), "JPEG XL"),
    (b"\x7fELF\x02\x01\x01\0", "7f 45 4c 46"),
]


@pytest.mark.parametrize(("data", "named"), SOMETHING_ELSE, ids=lambda value: str(value)[:20])
def test_something_else_is_refused_by_its_name(data: bytes, named: str, tmp_path: Path) -> None:
    path = tmp_path / "scan.jpg"
    path.write_bytes(data)
    with pytest.raises(UnsupportedFormat, match=named) as caught:
        open_document(path)
    assert caught.value.source == str(path) and "; " not in str(caught.value)[-2:]


def test_a_raw_photo_is_not_read_as_its_thumbnail() -> None:
    data = stored(picture(), "TIFF", tiffinfo={50706: b"\1\4\0\0"})
    with pytest.raises(UnsupportedFormat, match="DNG"):
        open_document(data)


# --- sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 20_000), (20_000, 1), (20_000, 300), (27, 257), (511, 6), (16, 16)]
)
def test_every_size_is_read(size: tuple[int, int]) -> None:
    page = read(stored(Image.new("RGB", size, (9, 9, 9)), "PNG"))
    assert (page.width, page.height) == size and (page.pixels == 9).all()


def test_ten_megapixels_pass_the_default_limit() -> None:
    page = read(stored(Image.new("L", (3_200, 3_250), 77), "PNG"))
    assert page.pixels.shape == (3_250, 3_200, 3)


def png_header(width: int, height: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = b"IDAT" + zlib.compress(bytes(100))
    chunks = (head, body, b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


def g4_scan(width: int, height: int) -> bytes:
    """A bilevel fax TIFF that claims its size without holding it."""
    data = bytearray(stored(Image.new("1", (64, 64), 1), "TIFF", compression="group4"))
    start = int.from_bytes(data[4:8], "little")
    for at in range(start + 2, start + 2 + 12 * data[start], 12):
        tag = int.from_bytes(data[at : at + 2], "little")
        if tag in (256, 257, 278):
            value = width if tag == 256 else height
            data[at + 2 : at + 12] = struct.pack("<HII", 4, 1, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "megapixels"),
    [(png_header(30_000, 30_000), "900.0"), (png_header(14_000, 14_000), "196.0"),
     (g4_scan(16_000, 23_500), "376.0"), (g4_scan(12_500, 12_500), "156.2")],
)  # fmt: skip
def test_a_bomb_is_refused_before_decoding_in_our_words(data: bytes, megapixels: str) -> None:
    with pytest.raises(PageTooLarge) as caught:
        read(data)
    text = str(caught.value)
    assert f"{megapixels} Mpx" in text and "150 Mpx (max_pixels)" in text
    assert "raise the limit" in text and "bomb" not in text and "DOS" not in text


def test_pillows_own_limit_does_not_stand_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for name in ("PNG", "WEBP", "GIF", "TIFF"):
        assert_is_picture(read(stored(picture(), name)), picture())
    assert Image.MAX_IMAGE_PIXELS == 100


def test_the_limits_can_be_set() -> None:
    data = stored(picture(), "PNG")
    for limits, name in (
        (PageLimits(max_pixels=48 * 32 - 1), "max_pixels"),
        (PageLimits(max_pixels=100), "max_pixels"),
        (PageLimits(max_side=47), "max_side"),
        (PageLimits(max_bytes=50), "max_bytes"),
    ):
        for source in (data, io.BytesIO(data)):
            with pytest.raises(PageTooLarge, match=name):
                read(source, limits=limits)
    read(data, limits=PageLimits(max_pixels=48 * 32, max_side=48, max_pages=1))
    for source in (picture(), np.zeros((32, 48, 3), np.uint8)):
        with pytest.raises(PageTooLarge, match="max_side"):
            read(source, limits=PageLimits(max_side=47))
    many = stored(picture(), "TIFF", save_all=True, append_images=[picture()] * 4)
    with pytest.raises(PageTooLarge, match="max_pages"):
        open_document(many, limits=PageLimits(max_pages=4))


@pytest.mark.parametrize("name", ["max_pixels", "max_side", "max_pages", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_a_limit_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        PageLimits(**{name: value})  # type: ignore[arg-type]


# --- threads --------------------------------------------------------------------------------


def test_documents_can_be_read_from_several_threads() -> None:
    whole, cut = stored(noise(), "PNG"), stored(noise(), "PNG")[:-3000]
    seen: list[list[str]] = []

    def work(data: bytes) -> None:
        for _ in range(5):
            seen.append(codes(read(data)))

    threads = [threading.Thread(target=work, args=(data,)) for data in (whole, cut) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [[]] * 10 + [["truncated"]] * 10
