"""Every pixel format that a picture can have becomes the same upright 8-bit RGB."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms

from host_pipeline.errors import CorruptInput, EmptyInput, UnsupportedFormat
from host_pipeline.page import Page, open_document

COLOURS = [(220, 30, 40), (30, 160, 60), (40, 60, 200), (250, 250, 250), (10, 10, 10)]


Image.init()
AVIF = pytest.param(
    "AVIF", marks=pytest.mark.skipif("AVIF" not in Image.SAVE, reason="this Pillow has no AVIF")
)


def colour_picture() -> Image.Image:
    """Five vertical bars of 8 x 16 pixels."""
    bars = np.repeat(np.array(COLOURS, np.uint8)[None], 16, axis=0)
    return Image.fromarray(np.repeat(bars, 8, axis=1))


def grey_picture() -> Image.Image:
    return colour_picture().convert("L")


def read(source: object) -> Page:
    with open_document(source) as document:  # type: ignore[arg-type]
        return document.load_page(0)


def stored(image: Image.Image, file_format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def bar(page: Page, number: int) -> list[int]:
    return page.pixels[8, number * 8 + 4].tolist()


def assert_same(page: Page, expected: Image.Image, tolerance: int = 0) -> None:
    difference = np.abs(page.pixels.astype(int) - np.asarray(expected.convert("RGB"), dtype=int))
    assert difference.max() <= tolerance


def assert_is_page(page: Page) -> None:
    assert page.pixels.dtype == np.uint8 and page.pixels.ndim == 3 and page.pixels.shape[2] == 3
    assert page.pixels.flags.c_contiguous and not page.pixels.flags.writeable


def lab_picture() -> Image.Image:
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    transform = ImageCms.buildTransform(*profiles, "RGB", "LAB")
    lab = ImageCms.applyTransform(colour_picture(), transform)
    assert lab is not None
    return lab


# mode -> (a picture of that mode, what it shows, tolerance)
MODES: dict[str, tuple[Callable[[], Image.Image], Callable[[], Image.Image], int]] = {
    "1": (lambda: grey_picture().convert("1", dither=0), lambda: grey_picture().point(
        lambda value: 255 * (value >= 128)), 0),
    "L": (grey_picture, grey_picture, 0),
    "LA": (lambda: grey_picture().convert("LA"), grey_picture, 0),
    "La": (lambda: grey_picture().convert("LA").convert("La"), grey_picture, 0),
    "P": (lambda: colour_picture().quantize(5), colour_picture, 3),
    "PA": (lambda: colour_picture().quantize(5).convert("PA"), colour_picture, 3),
    "RGB": (colour_picture, colour_picture, 0),
    "RGBX": (lambda: colour_picture().convert("RGBX"), colour_picture, 0),
    "RGBA": (lambda: colour_picture().convert("RGBA"), colour_picture, 0),
    "RGBa": (lambda: colour_picture().convert("RGBA").convert("RGBa"), colour_picture, 0),
    "CMYK": (lambda: colour_picture().convert("CMYK"), colour_picture, 1),
    "YCbCr": (lambda: colour_picture().convert("YCbCr"), colour_picture, 3),
    "LAB": (lab_picture, colour_picture, 10),
    "HSV": (lambda: colour_picture().convert("HSV"), colour_picture, 4),
    "I": (lambda: Image.fromarray(np.asarray(grey_picture()).astype(np.int32)), grey_picture, 0),
    "I;16": (lambda: Image.fromarray(np.asarray(grey_picture()).astype(np.uint16) * 257),
             grey_picture, 0),
    "F": (lambda: Image.fromarray(np.asarray(grey_picture()).astype(np.float32)), grey_picture, 0),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_every_pil_mode(mode: str) -> None:
    make, expected, tolerance = MODES[mode]
    image = make()
    assert image.mode == mode
    page = read(image)
    assert_is_page(page)
    assert_same(page, expected(), tolerance)


def test_16_bit_of_the_other_byte_order() -> None:
    values = np.asarray(grey_picture()).astype(np.uint16) * 257
    big = Image.frombytes("I;16B", (40, 16), values.astype(">u2").tobytes())
    assert big.mode == "I;16B"
    assert_same(read(big), grey_picture())


@pytest.mark.parametrize("name", ["PNG", "TIFF", "JPEG2000"])
def test_16_bit_grey_files(name: str) -> None:
    values = np.asarray(grey_picture()).astype(np.uint16) * 257
    options = {"irreversible": False} if name == "JPEG2000" else {}
    assert_same(read(stored(Image.fromarray(values), name, **options)), grey_picture())


@pytest.mark.parametrize("order", ["<", ">"])
def test_16_bit_grey_tiff_of_both_byte_orders(order: str) -> None:
    values = (np.asarray(grey_picture()).astype(np.uint16) * 257).astype(order + "u2")
    assert_same(read(tiff_of(values, order)), grey_picture())


def tiff_of(values: np.ndarray, order: str) -> bytes:
    """An uncompressed one-strip grey TIFF, written by hand to choose the byte order."""
    height, width = values.shape
    entries = [(256, 3, width), (257, 3, height), (258, 3, 16), (259, 3, 1), (262, 3, 1),
               (273, 4, 8 + 2 + 8 * 12 + 4), (278, 3, height), (279, 4, values.nbytes)]  # fmt: skip
    out = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    out += struct.pack(order + "H", len(entries))
    for tag, kind, value in entries:
        out += struct.pack(order + "HHI", tag, kind, 1)
        out += struct.pack(order + ("Hxx" if kind == 3 else "I"), value)
    return out + struct.pack(order + "I", 0) + values.tobytes()


@pytest.mark.parametrize("extension", [".png", ".tiff"])
@pytest.mark.parametrize("top", [4095, 65535])
def test_16_bit_colour_is_scaled_by_its_range(extension: str, top: int) -> None:
    # Taking the high byte alone, as Pillow does, leaves a 12-bit scan black.
    deep = (np.asarray(colour_picture()).astype(float) / 255 * top).round().astype(np.uint16)
    deep[0, 0] = top
    _, data = cv2.imencode(extension, deep[..., ::-1])
    page = read(data.tobytes())
    assert_is_page(page)
    difference = page.pixels[1:].astype(int) - np.asarray(colour_picture())[1:]
    assert np.abs(difference).max() <= 1
    assert [notice.code for notice in page.notices] == ([] if top == 65535 else ["depth_scaled"])


def test_16_bit_colour_with_alpha_keeps_its_alpha() -> None:
    deep = np.zeros((16, 40, 4), np.uint16)
    deep[4:12, 8:32] = (65535, 65535, 65535, 65535)  # white on clear
    _, data = cv2.imencode(".png", deep)
    page = read(data.tobytes())
    assert page.pixels[0, 0].tolist() == [0, 0, 0] and page.pixels[8, 16].tolist() == [255] * 3


def test_16_bit_colour_on_the_second_tiff_page(tmp_path: Path) -> None:
    deep = np.asarray(colour_picture()).astype(np.uint16) * 257
    path = tmp_path / "two.tiff"
    assert cv2.imwritemulti(str(path), [deep[::-1, :, ::-1], deep[..., ::-1]])
    with open_document(path) as document:
        assert len(document) == 2
        assert_same(document.load_page(1), colour_picture())


@pytest.mark.parametrize(
    ("low", "high"), [(256, 65535), (0, 4095), (30_000, 34_000), (100, 900), (60_000, 65_535)]
)
def test_16_bit_print_is_readable_whatever_its_range(low: int, high: int) -> None:
    values = np.full((40, 40), high, np.uint16)
    values[10:20, 10:30] = low
    page = read(Image.fromarray(values))
    assert int(page.pixels[0, 0, 0]) - int(page.pixels[15, 15, 0]) >= 120


@pytest.mark.parametrize(
    ("values", "paper", "ink"),
    [
        (np.array([[0.0, 1.0]]), 255, 0),
        (np.array([[0.0, 255.0]]), 255, 0),
        (np.array([[-3.5, 12.25]]), 255, 0),
        (np.array([[1e6, 2e6]]), 255, 0),
        (np.array([[0.0, np.nan, 1.0]]), 255, 0),
        (np.array([[0, 1]], np.uint16), 255, 0),
        (np.array([[-100, 100]], np.int32), 255, 0),
        (np.array([[0, 1 << 24]], np.int32), 255, 0),
        (np.array([[False, True]]), 255, 0),
        (np.array([[0, 1]], np.uint8), 1, 0),
    ],
)
def test_any_number_type_is_scaled_by_range(values: np.ndarray, paper: int, ink: int) -> None:
    page = read(values)
    assert_is_page(page)
    assert page.pixels[0, -1].tolist() == [paper] * 3 and page.pixels[0, 0].tolist() == [ink] * 3


def test_not_a_number_is_paper_not_ink() -> None:
    assert read(np.array([[0.0, np.nan, 1.0]])).pixels[0, 1].tolist() == [255] * 3


def test_an_array_is_copied() -> None:
    array = np.zeros((4, 4, 3), np.uint8)
    page = read(array)
    array[:] = 9
    assert_is_page(page)
    assert (page.pixels == 0).all()


@pytest.mark.parametrize("shape", [(4,), (4, 4, 2), (4, 4, 5), (1, 4, 4, 3)])
def test_an_array_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedFormat, match="HxWx3 RGB"):
        open_document(np.zeros(shape, np.uint8))


def test_odd_arrays_are_refused_with_the_reason() -> None:
    with pytest.raises(EmptyInput, match="no pixels"):
        open_document(np.zeros((0, 4, 3), np.uint8))
    with pytest.raises(UnsupportedFormat, match="complex128"):
        open_document(np.zeros((4, 4), complex))
    with pytest.raises(CorruptInput, match="finite"):
        open_document(np.full((4, 4), np.nan))


def test_a_float_file_without_a_number_names_itself() -> None:
    nothing = stored(Image.fromarray(np.full((4, 4), np.nan, np.float32)), "TIFF")
    with pytest.raises(CorruptInput, match=r"^bytes: .*finite"):
        read(nothing)


def test_truncated_16_bit_colour_says_what_was_lost() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (100, 100, 3), dtype=np.uint16)
    _, data = cv2.imencode(".png", deep)
    page = read(data.tobytes()[: data.size // 2])
    assert [notice.code for notice in page.notices] == ["depth_cut", "truncated"]


# --- CMYK files -----------------------------------------------------------------------------


def test_cmyk_jpeg_as_adobe_stores_it() -> None:
    assert_same(read(stored(colour_picture().convert("CMYK"), "JPEG", quality=100)),
                colour_picture(), 8)  # fmt: skip


def test_cmyk_jpeg_without_the_adobe_marker_is_not_inverted() -> None:
    # Pillow inverts while saving and names Adobe; without that marker ink is stored as ink.
    inverted = Image.fromarray(255 - np.asarray(colour_picture().convert("CMYK")), "CMYK")
    data = stored(inverted, "JPEG", quality=100)
    at = data.index(b"\xff\xee")
    plain = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    assert b"Adobe" not in plain
    assert_same(read(plain), colour_picture(), 8)


def test_cmyk_tiff() -> None:
    assert_same(read(stored(colour_picture().convert("CMYK"), "TIFF")), colour_picture(), 1)


def test_lab_tiff() -> None:
    assert_same(read(stored(lab_picture(), "TIFF")), colour_picture(), 10)


# --- colour profiles ------------------------------------------------------------------------


def icc_profile(space: bytes, tags: dict[bytes, bytes], pcs: bytes = b"XYZ ") -> bytes:
    """A version 2 ICC profile with the given tags (ICC.1:2001-04)."""
    white = b"XYZ \0\0\0\0" + s15(0.9642) + s15(1.0) + s15(0.8249)
    text = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"test\0" + bytes(4 + 4 + 2 + 1 + 67)
    tags = {b"wtpt": white, b"desc": text, b"cprt": b"text\0\0\0\0none\0", **tags}
    table, body, at = b"", b"", 128 + 4 + 12 * len(tags)
    for name, data in tags.items():
        data += bytes(-len(data) % 4)
        table += name + struct.pack(">II", at + len(body), len(data))
        body += data
    size = at + len(body)
    header = struct.pack(">I4sI4s4s4s", size, b"test", 0x02400000, b"mntr", space, pcs)
    header += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + bytes(28)
    header += s15(0.9642) + s15(1.0) + s15(0.8249)
    return header + bytes(128 - len(header)) + struct.pack(">I", len(tags)) + table + body


def s15(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))


def gamma(value: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(value * 256))


def swapped_profile() -> bytes:
    """sRGB's primaries in another order: red is stored where blue usually is."""
    primaries = {b"bXYZ": (0.4361, 0.2225, 0.0139), b"gXYZ": (0.3851, 0.7169, 0.0971),
                 b"rXYZ": (0.1431, 0.0606, 0.7141)}  # fmt: skip
    tags = {name: b"XYZ \0\0\0\0" + b"".join(map(s15, xyz)) for name, xyz in primaries.items()}
    tags |= {name: gamma(2.2) for name in (b"rTRC", b"gTRC", b"bTRC")}
    return icc_profile(b"RGB ", tags)


def cmyk_profile() -> bytes:
    """Only K makes dark: an 8-bit table of two grid points a channel (lut8Type)."""
    identity = b"".join(s15(float(row == column)) for row in range(3) for column in range(3))
    ramp = bytes(range(256))
    grid = b"".join(bytes([0 if corner & 1 else 255, 128, 128]) for corner in range(16))
    lut = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + identity + ramp * 4 + grid + ramp * 3
    return icc_profile(b"CMYK", {b"A2B0": lut}, pcs=b"Lab ")


@pytest.mark.parametrize("name", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_a_colour_profile_is_applied(name: str) -> None:
    page = read(stored(Image.new("RGB", (16, 16), (220, 30, 40)), name,
                       icc_profile=swapped_profile()))  # fmt: skip
    red, _, blue = page.pixels[8, 8].tolist()
    assert red < 60 and blue > 190 and page.notices == ()


def test_a_colour_profile_is_applied_under_alpha_and_at_16_bits() -> None:
    with_alpha = stored(Image.new("RGBA", (8, 8), (220, 30, 40, 255)), "PNG",
                        icc_profile=swapped_profile())  # fmt: skip
    assert read(with_alpha).pixels[4, 4, 2] > 190
    _, data = cv2.imencode(".png", np.full((8, 8, 3), (40 * 257, 30 * 257, 220 * 257), np.uint16))
    png = data.tobytes()
    body = b"iCCP" + b"x\0\0" + zlib.compress(swapped_profile())
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    assert read(png[:33] + chunk + png[33:]).pixels[4, 4, 2] > 190


def test_a_grey_profile_is_applied() -> None:
    linear = icc_profile(b"GRAY", {b"kTRC": gamma(1.0)})
    page = read(stored(Image.new("L", (8, 8), 55), "PNG", icc_profile=linear))
    assert page.pixels[4, 4, 0] == pytest.approx(128, abs=4)  # 55 / 255 linear light


def test_a_cmyk_profile_is_applied() -> None:
    cyan = Image.new("CMYK", (8, 8), (255, 0, 0, 0))
    assert read(stored(cyan, "TIFF")).pixels[4, 4, 0] < 50  # red is taken away
    assert read(stored(cyan, "TIFF", icc_profile=cmyk_profile())).pixels[4, 4, 0] > 230


@pytest.mark.parametrize("profile", [b"junk", swapped_profile()[:200], cmyk_profile()])
def test_a_profile_that_cannot_be_used_is_ignored_with_a_notice(profile: bytes) -> None:
    page = read(stored(colour_picture(), "PNG", icc_profile=profile))
    assert_same(page, colour_picture())
    assert [notice.code for notice in page.notices] == ["icc_ignored"]


# --- transparency ---------------------------------------------------------------------------


def marks_on_clear(colour: tuple[int, int, int]) -> Image.Image:
    """Strokes two pixels wide on clear ground whose hidden colour is that of the strokes."""
    image = Image.new("RGBA", (60, 40), (*colour, 0))
    for left in range(5, 55, 6):
        image.paste((*colour, 255), (left, 10, left + 2, 30))
    return image


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (90, 0, 0), (255, 240, 120)])
@pytest.mark.parametrize("form", ["RGBA", "LA", "PA", "P", "PNG", "WEBP", "TIFF", AVIF, "GIF"])
def test_text_on_clear_ground_stays_readable(colour: tuple[int, int, int], form: str) -> None:
    image = marks_on_clear(colour)
    source: Image.Image | bytes
    if form == "PA":
        source = image.convert("RGB").quantize(4)
        source.putalpha(image.getchannel("A"))
        assert source.mode == "PA"
    elif form in ("RGBA", "LA"):
        source = image.convert(form)
    elif form == "P":
        source = image.quantize(4)
    else:
        source = stored(image, form, **({"lossless": True} if form == "WEBP" else {}))
    page = read(source)
    ground, stroke = page.pixels[20, 0].astype(int), page.pixels[20, 5].astype(int)
    assert abs(int(ground.sum() - stroke.sum())) > 380  # summed over R, G and B


@pytest.mark.parametrize(("mode", "key"), [("L", 0), ("RGB", (0, 0, 0)), ("1", 0)])
def test_a_transparent_colour_without_alpha_channel(mode: str, key: object) -> None:
    image = Image.new("L", (30, 20), 0)
    image.paste(255, (10, 5, 12, 15))  # white strokes; black is declared clear
    page = read(stored(image.convert(mode), "PNG", transparency=key))
    assert page.pixels[10, 10].tolist() == [255] * 3 and page.pixels[0, 0].tolist() == [0] * 3


def test_dark_labels_on_clear_ground_win_over_a_light_panel() -> None:
    chart = Image.new("RGBA", (200, 120), (0, 0, 0, 0))
    chart.paste((250, 250, 240, 255), (60, 20, 190, 100))
    for top in range(4, 116, 4):
        chart.paste((20, 20, 20, 255), (5, top, 50, top + 2))
    page = read(chart)
    assert page.pixels[0, 0].tolist() == [255] * 3
    assert page.pixels[5, 10].tolist() == [20] * 3


def test_a_fully_transparent_picture_shows_its_hidden_colours_and_says_so() -> None:
    image = colour_picture().convert("RGBA")
    image.putalpha(0)
    page = read(image)
    assert_same(page, colour_picture())
    assert [notice.code for notice in page.notices] == ["transparent"]


def test_half_transparent_pixels_are_blended() -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 128))
    assert read(image).pixels[2, 2].tolist() == [127] * 3
