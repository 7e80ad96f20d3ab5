"""Opens what a caller gives as a source of bytes; knows nothing of what the bytes mean."""

from __future__ import annotations

import io
import os
import sys
from typing import BinaryIO

from host_pipeline.errors import InputError
from host_pipeline.limits import PageLimits

_READ_BLOCK = 1 << 20


def open_stream(
    source: str | os.PathLike[str] | bytes | BinaryIO, label: str | None, limits: PageLimits
) -> tuple[BinaryIO, str]:
    """A seekable stream that we own, positioned at 0, and the name of the source."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        name = label or "bytes"
        limits.check_bytes(len(source), name)
        return io.BytesIO(source), name
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if path == "-":
            return _copy_stream(sys.stdin.buffer, label or "-", limits), label or "-"
        return _open_path(path, label, limits)
    if not hasattr(source, "read"):
        raise TypeError(f"cannot open a {type(source).__name__}; see open_document for what can be")
    name = label or "stream"
    return _copy_stream(source, name, limits), name


def _open_path(path: str | bytes, label: str | None, limits: PageLimits) -> tuple[BinaryIO, str]:
    # A path that is not valid text (lone surrogates) would break every later print or JSON.
    name = label or os.fsencode(path).decode("utf-8", "backslashreplace")
    if name.lower().startswith(("http://", "https://")):
        raise InputError("addresses are not fetched; download the file first", name)
    try:
        stream = open(path, "rb")  # the Document closes it
    except IsADirectoryError:
        raise InputError("is a folder; give the files in it", name) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise InputError(f"cannot be opened: {_reason(error)}", name) from None
    try:
        if not stream.seekable():  # a pipe or a device
            with stream:
                return _copy_stream(stream, name, limits), name
        limits.check_bytes(os.fstat(stream.fileno()).st_size, name)
    except BaseException:
        stream.close()
        raise
    return stream, name


def _copy_stream(stream: BinaryIO, source: str, limits: PageLimits) -> BinaryIO:
    """All of `stream` in memory, stopped at the limit."""
    copy = io.BytesIO()
    try:
        if stream.seekable():
            stream.seek(0)
        while block := stream.read(_READ_BLOCK):
            if not isinstance(block, bytes):
                raise InputError("is a text stream; open it in binary mode", source)
            copy.write(block)
            limits.check_bytes(copy.tell(), source)
    except OSError as error:
        raise InputError(f"cannot be read: {_reason(error)}", source) from None
    copy.seek(0)
    return copy


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
