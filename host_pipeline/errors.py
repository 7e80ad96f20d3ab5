"""What a user's input can do wrong: one small tree, so that a caller needs one `except`.

InputError(ValueError)       also: the file is missing or cannot be opened
├── EmptyInput               nothing in it
├── UnsupportedFormat        something else than a picture or a document that we read
├── CorruptInput             the right format, but no pixels could be had from it
├── EncryptedDocument        a password is needed, or the one given is wrong
└── PageTooLarge             a limit of PageLimits is exceeded
"""

from __future__ import annotations


class InputError(ValueError):
    """The input cannot be read; the text says why and what to do, `source` names the input."""

    def __init__(self, reason: str, source: str | None = None) -> None:
        super().__init__(reason if source is None else f"{source}: {reason}")
        self.reason = reason
        self.source = source


class EmptyInput(InputError):
    """There is nothing to read: no bytes, no pages or no pixels."""


class UnsupportedFormat(InputError):
    """The input is not a picture or document of a kind that is read; the text names its kind."""


class CorruptInput(InputError):
    """The format is known, but the data is damaged beyond what can be decoded."""


class EncryptedDocument(InputError):
    """The document is locked by a password that was not given or is wrong."""


class PageTooLarge(InputError):
    """A limit of `PageLimits` (bytes, pages, side or pixels) is exceeded; the text names it."""
