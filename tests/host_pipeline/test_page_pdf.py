"""PDF pages come out upright, cropped and legible, one at a time."""

from __future__ import annotations

import hashlib
import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from host_pipeline.errors import (
    CorruptInput,
    EmptyInput,
    EncryptedDocument,
    PageTooLarge,
    UnsupportedFormat,
)
from host_pipeline.page import Page, PageLimits, open_document

RED_CORNER = b"1 0 0 rg 0 280 20 20 re f 0 0 1 rg 180 0 20 20 re f"  # top left; blue bottom right


def pdf(objects: dict[int, bytes], trailer: bytes = b"") -> bytes:
    """A PDF of numbered objects; object 1 is the catalog."""
    out = io.BytesIO(b"%PDF-1.7\n")
    out.seek(0, io.SEEK_END)
    offsets = {}
    for number, body in sorted(objects.items()):
        offsets[number] = out.tell()
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start, size = out.tell(), max(objects) + 1
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % size)
    for number in range(1, size):
        out.write(b"%010d 00000 n \n" % offsets[number])
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (size, trailer))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def one_page(
    content: bytes = RED_CORNER,
    media: bytes = b"0 0 200 300",
    extra: bytes = b"",
    resources: dict[int, bytes] | None = None,
    catalog: bytes = b"",
    trailer: bytes = b"",
) -> bytes:
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [%s] /Contents 4 0 R %s >>" % (media, extra)
    return pdf(
        {
            1: b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
            2: b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            3: page,
            4: stream(content),
            **(resources or {}),
        },
        trailer,
    )


def many_pages(count: int, padding: bytes = b"") -> bytes:
    """Pages with a grey of their own and an image each, as a scanner makes them.

    The padding makes what PDFium keeps of each page show in the test of memory.
    """
    kids = b" ".join(b"%d 0 R" % (3 + 3 * index) for index in range(count))
    objects = {1: b"<< /Type /Catalog /Pages 2 0 R >>",
               2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count)}  # fmt: skip
    for index in range(count):
        at = 3 + 3 * index
        objects[at] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 300] /Contents %d 0 R "
            b"/Resources << /XObject << /Scan %d 0 R >> >> >>" % (at + 1, at + 2)
        )
        objects[at + 1] = stream(b"200 0 0 300 0 0 cm /Scan Do" + padding)
        objects[at + 2] = image(Image.new("L", (80, 120), index % 251))
    return pdf(objects)


def image(picture: Image.Image) -> bytes:
    jpeg = io.BytesIO()
    picture.save(jpeg, "JPEG", quality=95)
    space = b"/DeviceGray" if picture.mode == "L" else b"/DeviceRGB"
    entries = (
        b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace %s /BitsPerComponent 8 "
        b"/Filter /DCTDecode" % (*picture.size, space)
    )
    return stream(jpeg.getvalue(), entries)


def read(source: object, index: int = 0, **options: object) -> Page:
    with open_document(source, **options) as document:  # type: ignore[arg-type]
        return document.load_page(index)


def codes(page: Page) -> list[str]:
    return [notice.code for notice in page.notices]


def corner(page: Page, where: str) -> list[int]:
    row, column = {"tl": (5, 5), "tr": (5, -6), "br": (-6, -6), "bl": (-6, 5)}[where]
    return page.pixels[row, column].tolist()


def test_a_page_is_drawn_on_white_from_path_bytes_and_stream(tmp_path: Path) -> None:
    path = tmp_path / "发票 é.pdf"
    path.write_bytes(one_page())
    for source in (path, path.read_bytes(), io.BytesIO(path.read_bytes())):
        page = read(source)
        assert page.pixels.dtype == np.uint8 and page.pixels.flags.c_contiguous
        assert not page.pixels.flags.writeable
        assert corner(page, "tl") == [255, 0, 0] and corner(page, "br") == [0, 0, 255]
        assert corner(page, "tr") == [255, 255, 255]
        assert (page.count, page.rotation, codes(page)) == (1, 0, [])


@pytest.mark.parametrize(
    ("turn", "red", "blue"),
    [(0, "tl", "br"), (90, "tr", "bl"), (180, "br", "tl"), (270, "bl", "tr")],
)
def test_the_pages_rotation_is_applied_and_told(turn: int, red: str, blue: str) -> None:
    page = read(one_page(extra=b"/Rotate %d" % turn))
    assert corner(page, red) == [255, 0, 0] and corner(page, blue) == [0, 0, 255]
    assert page.rotation == turn
    assert (page.width > page.height) == (turn in (90, 270))


def test_only_the_crop_box_is_drawn() -> None:
    page = read(one_page(extra=b"/CropBox [0 100 200 300]"), dpi=72)
    assert (page.width, page.height) == (200, 200)
    assert corner(page, "tl") == [255, 0, 0] and corner(page, "br") == [255, 255, 255]
    shifted = read(one_page(media=b"-50 -50 150 250", content=b"1 0 0 rg -50 230 20 20 re f"))
    assert corner(shifted, "tl") == [255, 0, 0]


def test_bytes_before_the_header_do_no_harm() -> None:
    assert corner(read(b"\r\njunk\r\n" + one_page()), "tl") == [255, 0, 0]


@pytest.mark.parametrize(
    ("inches", "dpi", "notices"),
    [
        ((8.27, 11.69), 200, []),  # A4
        ((4, 6), 1600 / 6, []),  # a label
        ((1, 2), 400, []),  # a ticket
        ((33.1, 46.8), 160.5, []),  # A0
        ((100, 100), 63, ["dpi_lowered"]),
        ((0.5, 200), 163.8, []),
    ],
)
def test_the_resolution_follows_the_page(
    inches: tuple[float, float], dpi: float, notices: list[str]
) -> None:
    width, height = (72 * side for side in inches)
    data = one_page(media=b"0 0 %f %f" % (width, height))
    page = read(data)
    assert page.dpi == pytest.approx(dpi, rel=0.01)
    assert (page.width, page.height) == pytest.approx((inches[0] * dpi, inches[1] * dpi), rel=0.02)
    assert codes(page) == notices
    assert page.width * page.height <= 40_000_000 and page.height <= 32_767


def test_a_resolution_can_be_asked_for_within_the_limits() -> None:
    assert read(one_page(), dpi=144).pixels.shape == (600, 400, 3)
    with pytest.raises(PageTooLarge, match=r"at 2400 dpi.*max_pixels"):
        read(one_page(), dpi=2400, limits=PageLimits(max_pixels=1_000_000))
    for bad in (0, -1, 1e9, float("nan")):
        with pytest.raises(ValueError, match="dpi"):
            open_document(one_page(), dpi=bad)
    small = read(one_page(), limits=PageLimits(max_pixels=10_000))
    assert small.width * small.height <= 10_000 and codes(small) == ["dpi_lowered"]


@pytest.mark.parametrize("turn", [0, 90])
def test_a_scan_is_drawn_at_its_own_pixels(turn: int) -> None:
    rng = np.random.default_rng(3)
    scan = Image.fromarray(rng.integers(0, 256, (90, 61, 3), dtype=np.uint8)).resize((827, 1169))
    content = b"595.32 0 0 841.92 0 0 cm /Scan Do"
    page = read(
        one_page(
            content,
            media=b"0 0 595.32 841.92",
            extra=b"/Rotate %d /Resources << /XObject << /Scan 5 0 R >> >>" % turn,
            resources={5: image(scan)},
        )
    )
    expected = np.rot90(np.asarray(scan), -turn // 90)
    assert page.pixels.shape == expected.shape
    assert np.abs(page.pixels.astype(int) - expected.astype(int)).mean() < 6


def test_a_scan_with_invisible_text_is_still_a_scan_and_one_with_print_is_not() -> None:
    def layered(text: bytes) -> Page:
        content = b"q 200 0 0 300 0 0 cm /Scan Do Q " + text
        resources = b"/XObject << /Scan 5 0 R >> /Font << /F 6 0 R >>"
        return read(
            one_page(
                content,
                extra=b"/Resources << %s >>" % resources,
                resources={5: image(Image.new("L", (300, 450), 200)),
                           6: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"},
            )
        )  # fmt: skip

    assert layered(b"BT 3 Tr /F 12 Tf 20 20 Td (hidden) Tj ET").width == 300
    assert layered(b"BT 0 Tr /F 12 Tf 20 20 Td (seen) Tj ET").width > 1000


def test_an_oversized_image_inside_a_page_is_refused_before_decoding() -> None:
    bomb = stream(b"\0", b"/Type /XObject /Subtype /Image /Width 30000 /Height 30000 "
                  b"/ColorSpace /DeviceGray /BitsPerComponent 8")  # fmt: skip
    data = one_page(
        b"q 100 0 0 100 0 0 cm /Bomb Do Q",
        extra=b"/Resources << /XObject << /Bomb 5 0 R >> >>",
        resources={5: bomb},
    )
    with pytest.raises(PageTooLarge, match=r"30000 x 30000 .*in an image of the page"):
        read(data)


def test_filled_form_fields_are_drawn() -> None:
    widget = (
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (total) /V (5) /Rect [50 100 150 200] /F 4 "
        b"/P 3 0 R /AP << /N 6 0 R >> >>"
    )
    look = stream(
        b"0 0.6 0 rg 0 0 100 100 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 100 100]"
    )
    page = read(
        one_page(
            extra=b"/Annots [5 0 R]",
            resources={5: widget, 6: look},
            catalog=b"/AcroForm << /Fields [5 0 R] >>",
        ),
        dpi=72,
    )
    red, green, blue = page.pixels[150, 100].tolist()
    assert green > red + 40 and green > blue + 40


def test_an_xfa_form_says_that_only_its_placeholder_is_drawn() -> None:
    form = b"/NeedsRendering true /AcroForm << /Fields [] /XFA 5 0 R >>"
    page = read(one_page(catalog=form, resources={5: stream(b"<xdp/>")}))
    assert codes(page) == ["xfa_form"]


def test_without_pdfium_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "host_pipeline.pdf", raising=False)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(UnsupportedFormat, match="pip install pypdfium2"):
        open_document(one_page())


# --- encrypted, damaged, empty --------------------------------------------------------------


def rc4(key: bytes, data: bytes) -> bytes:
    state, j, out = list(range(256)), 0, bytearray()
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def encrypted(password: bytes) -> bytes:
    """One page locked with 40-bit RC4 (ISO 32000-1, 7.6.3, algorithms 1 to 4)."""
    padding = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
    padded, identity = (password + padding)[:32], b"0123456789abcdef"
    owner = rc4(hashlib.md5(padded).digest()[:5], padded)
    permissions = (-4 & 0xFFFFFFFF).to_bytes(4, "little")
    key = hashlib.md5(padded + owner + permissions + identity).digest()[:5]
    of_object = hashlib.md5(key + (4).to_bytes(3, "little") + bytes(2)).digest()[:10]
    lock = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >> /ID [<%s> <%s>]" % (
        owner.hex().encode(),
        rc4(key, padding).hex().encode(),
        identity.hex().encode(),
        identity.hex().encode(),
    )
    return one_page(rc4(of_object, RED_CORNER), trailer=lock)


def test_an_encrypted_document_asks_for_its_password() -> None:
    data = encrypted(b"geheim")
    with pytest.raises(EncryptedDocument, match="give its password"):
        open_document(data)
    with pytest.raises(EncryptedDocument, match="does not open"):
        open_document(data, password="wrong")
    assert corner(read(data, password="geheim"), "tl") == [255, 0, 0]
    assert corner(read(encrypted(b"")), "tl") == [255, 0, 0]  # only an owner's password


def test_a_damaged_document_is_an_error_and_a_cut_one_a_notice() -> None:
    with pytest.raises(CorruptInput, match="damaged PDF"):
        open_document(b"%PDF-1.7\n" + b"garbage " * 50)
    whole = one_page()
    cut = read(whole[: whole.index(b"xref")])
    assert corner(cut, "tl") == [255, 0, 0] and codes(cut) == ["truncated"]


def test_a_document_without_pages_is_empty() -> None:
    data = pdf({1: b"<< /Type /Catalog /Pages 2 0 R >>",
                2: b"<< /Type /Pages /Kids [] /Count 0 >>"})  # fmt: skip
    with pytest.raises(EmptyInput, match="no pages"):
        open_document(data)


def test_a_page_that_is_not_there_does_not_stop_the_next() -> None:
    data = many_pages(3).replace(b"/Kids [3 0 R 6 0 R", b"/Kids [3 0 R 99 0 R")
    with open_document(data) as document:
        assert len(document) == 3
        with pytest.raises(CorruptInput, match="damaged PDF"):
            document.load_page(1)
        assert document.load_page(2).pixels[60, 40, 0] == pytest.approx(2, abs=2)


def test_a_claim_of_a_billion_pages_is_not_believed() -> None:
    data = many_pages(2).replace(b"/Count 2 ", b"/Count 999999999 ")
    with open_document(data) as document:
        assert len(document) == 2


def test_the_limit_on_pages_is_kept() -> None:
    with pytest.raises(PageTooLarge, match=r"5 pages .*max_pages"):
        open_document(many_pages(5), limits=PageLimits(max_pages=4))


# --- many pages -----------------------------------------------------------------------------


def resident_kib() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4


def test_two_thousand_pages_need_no_more_memory_than_ten(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc/self/statm")
    path = tmp_path / "many.pdf"
    path.write_bytes(many_pages(2000, b"\n%" + b"x" * 20_000))
    with open_document(path) as document:
        assert len(document) == 2000
        for index in range(10):
            document.load_page(index)
        after_ten = resident_kib()
        for index in range(10, 2000):
            page = document.load_page(index)
            assert page.index == index
        assert abs(int(page.pixels[60, 40, 0]) - 1999 % 251) <= 2
        grown = resident_kib() - after_ten
    assert grown < 20_000  # KiB; the content of all pages is 40,000, their pixels 56,000


def test_documents_are_drawn_from_several_threads() -> None:
    data, failures = many_pages(8), []

    def work() -> None:
        with open_document(data) as document:
            for page in document:
                if abs(int(page.pixels[9, 9, 0]) - page.index) > 2:
                    failures.append(page.index)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
