"""What a picture's tags say about how to show it: which way is up, and how many pixels an inch."""

from __future__ import annotations

from PIL import ExifTags, Image

from host_pipeline.result import Notice

_DPI_RANGE = (10.0, 5000.0)  # outside of it the tag is a placeholder

# EXIF 2.32, tag 0x0112: value -> (mirror left-right first, then turn clockwise by degrees).
TURNS = {
    1: (False, 0),
    2: (True, 0),
    3: (False, 180),
    4: (True, 180),
    5: (True, 270),
    6: (False, 90),
    7: (True, 90),
    8: (False, 270),
}


def orientation_of(image: Image.Image, notices: list[Notice]) -> int:
    """The EXIF (or XMP) orientation, 1..8; 1 when there is none that makes sense."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception as error:  # the EXIF block can hold anything
        text = f"the EXIF data is damaged ({error}); the picture is taken to be upright"
        notices.append(Notice("exif_ignored", text))
        return 1
    return int(value) if isinstance(value, int) and value in TURNS else 1


def dpi_of(image: Image.Image) -> tuple[float, float] | tuple[None, None]:
    """Pixels per inch across and down, or None twice where the file does not tell."""
    try:
        across, down = (float(value) for value in image.info["dpi"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None, None
    if not all(_DPI_RANGE[0] <= value <= _DPI_RANGE[1] for value in (across, down)):
        return None, None
    return across, down
