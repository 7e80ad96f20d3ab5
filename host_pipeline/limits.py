"""How large an input may be: checked before anything is decoded, in our words."""

from __future__ import annotations

from dataclasses import dataclass

from host_pipeline.errors import PageTooLarge


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Limits on one input; every refusal names the limit, its value and the remedy.

    max_pixels: width x height of a page as stored. The default takes an A0 sheet at 300 dpi
    (139 Mpx), costs at most about 1.5 GB while decoding, and stops decompression bombs.
    max_side: OpenCV's warps address pixels with 16-bit signed numbers, hence 32,767.
    max_pages: pages (PDF) or frames (TIFF) in one document. max_bytes: size of the file.
    """

    max_pixels: int = 150_000_000
    max_side: int = 32_767
    max_pages: int = 10_000
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_side", "max_pages", "max_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")

    def check_size(self, width: int, height: int, source: str, at: str = "") -> None:
        """Raises PageTooLarge for a page of `width` x `height` pixels over a limit.

        at: how that size came about, for the text ("at 600 dpi")."""
        described = f"{width} x {height} pixels {at}".rstrip()
        self.check_pixels(width * height, described, source)
        if max(width, height) > self.max_side:
            raise PageTooLarge(
                f"the page is {described}; the limit is {self.max_side} a side (max_side). Cut it "
                "into parts, or scale it down",
                source,
            )

    def check_pixels(self, count: int, described: str, source: str) -> None:
        """Raises PageTooLarge for a page of `count` pixels over the limit."""
        if count > self.max_pixels:
            raise PageTooLarge(
                f"the page is {described} ({count / 1e6:.1f} Mpx); the limit is "
                f"{self.max_pixels / 1e6:g} Mpx (max_pixels). Scale it down, or raise the limit "
                "if you trust the file and have the memory (about 10 bytes a pixel)",
                source,
            )

    def check_pages(self, count: int, source: str) -> None:
        """Raises PageTooLarge for a document of `count` pages over the limit."""
        if count > self.max_pages:
            raise PageTooLarge(
                f"the document has {count} pages or more; the limit is {self.max_pages} "
                "(max_pages). Split it, or raise the limit",
                source,
            )

    def check_bytes(self, count: int, source: str) -> None:
        """Raises PageTooLarge for a file of `count` bytes over the limit."""
        if count > self.max_bytes:
            raise PageTooLarge(
                f"the file has {count} bytes or more; the limit is {self.max_bytes} (max_bytes). "
                "Split it, or raise the limit",
                source,
            )
