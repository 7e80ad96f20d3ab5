"""Random and mutated files give pages or an InputError, never anything else."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from host_pipeline.errors import InputError
from host_pipeline.page import PageLimits, open_document

LIMITS = PageLimits(max_pixels=1_000_000, max_side=4_000, max_pages=20)
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck))
Image.init()
FORMATS: dict[str, dict[str, object]] = {
    "PNG": {},
    "PNG16": {},
    "APNG": {"save_all": True},
    "JPEG": {"quality": 60},
    "CMYK": {},
    "GIF": {"save_all": True},
    "BMP": {},
    "WEBP": {},
    "PPM": {},
    "JPEG2000": {},
    **({"AVIF": {}} if "AVIF" in Image.SAVE else {}),
    "ICO": {},
    "TIFF": {"save_all": True},
    "LZW": {"compression": "tiff_lzw", "save_all": True},
    "G4": {"compression": "group4"},
    "PDF": {"save_all": True},
}


@cache
def sample(kind: str) -> bytes:
    """A small valid file with EXIF, a colour profile and a second frame where it can be."""
    noise = np.random.default_rng(1).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((80, 48))
    mode = {"G4": "1", "CMYK": "CMYK", "GIF": "P", "PNG16": "I;16"}.get(kind)
    if kind == "PNG16":
        image = Image.fromarray(np.asarray(image)[..., 0].astype(np.uint16) * 257)
    elif mode:
        image = image.convert(mode)
    options = dict(FORMATS[kind])
    name = {"PNG16": "PNG", "APNG": "PNG", "CMYK": "JPEG", "LZW": "TIFF", "G4": "TIFF"}
    if options.get("save_all"):
        options["append_images"] = [image.transpose(Image.Transpose.ROTATE_180)]
    if kind in ("PNG", "JPEG", "WEBP"):
        exif = Image.Exif()
        exif[0x0112] = 6
        options["exif"] = exif
    stream = io.BytesIO()
    image.save(stream, name.get(kind, kind), **options)
    return stream.getvalue()


def read_all(data: bytes) -> int:
    """Pages that could be read; an InputError is an answer too, anything else a failure."""
    read = 0
    try:
        with open_document(data, limits=LIMITS) as document:
            for index in range(min(len(document), 4)):
                try:
                    page = document.load_page(index)
                except InputError as error:
                    assert error.source == "bytes"
                else:
                    assert page.pixels.dtype == np.uint8 and page.pixels.shape[2] == 3
                    read += 1
    except InputError as error:
        assert error.source == "bytes" and len(str(error)) > 20
    return read


@pytest.mark.parametrize("kind", FORMATS)
def test_the_samples_themselves_are_readable(kind: str) -> None:
    assert read_all(sample(kind)) >= 1


@settings(QUICK, max_examples=100)
@given(st.sampled_from([b"", *(sample(kind)[:12] for kind in FORMATS)]), st.binary(max_size=300))
def test_random_bytes(head: bytes, tail: bytes) -> None:
    read_all(head + tail)


@pytest.mark.parametrize("kind", FORMATS)
@settings(QUICK, max_examples=12)
@given(data=st.data())
def test_mutated_files(kind: str, data: st.DataObject) -> None:
    whole = bytearray(sample(kind))
    where = st.integers(0, len(whole) - 1) | st.integers(0, min(len(whole) - 1, 120))
    for at in data.draw(st.lists(where, max_size=12)):
        whole[at] = data.draw(st.integers(0, 255))
    start = data.draw(where)
    how = data.draw(st.sampled_from(["keep", "cut", "drop", "repeat"]))
    if how == "cut":
        del whole[start:]
    elif how == "drop":
        del whole[start : start + 9]
    elif how == "repeat":
        whole[start:start] = whole[start : start + 40]
    read_all(bytes(whole))
