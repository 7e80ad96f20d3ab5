"""Pages that read as poison until they are written and cost nothing until they are touched.

Device memory on real hardware holds whatever was there before. 0xFF bytes are NaN in every float
type and -1 in every integer, so a forgotten initialisation shows. Large blocks are copy-on-write
mappings of one poison file: a program may ask for gigabytes that it never touches. Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache

POISON = 0xFF
_CHUNK = 4 << 20  # one mapping per chunk: 65,530 mappings (Linux default) reach 256 GB
_PAGE = mmap.PAGESIZE
_PROT = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED = 0x10
_MADV_DONTNEED = 4
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                       ctypes.c_int, ctypes.c_long]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@cache
def _poison_file() -> int:
    """A file of one chunk of poison, made once and kept for the life of the process."""
    file = os.memfd_create("poison")
    os.write(file, bytes([POISON]) * _CHUNK)
    return file


class Pages:
    """Owner of poisoned mappings; `release` gives one back to the system."""

    def take(self, size: int) -> tuple[int, int]:
        """(address, mapped length) of at least `size` poisoned bytes. Raises MemoryError."""
        length = max(_PAGE, -(-size // _PAGE) * _PAGE)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        address = _libc.mmap(None, length, _PROT, flags, -1, 0)
        if address == _FAILED:
            raise MemoryError(f"{length} bytes of address space: {os.strerror(ctypes.get_errno())}")
        if length <= _CHUNK:
            ctypes.memset(address, POISON, length)
            return address, length
        for offset in range(0, length, _CHUNK):
            part = min(_CHUNK, length - offset)
            _libc.mmap(address + offset, part, _PROT, mmap.MAP_PRIVATE | _MAP_FIXED,
                       _poison_file(), 0)  # fmt: skip
        return address, length

    def poison(self, address: int, length: int) -> None:
        """Makes the pages read as poison again and gives their memory back."""
        if length <= _CHUNK:
            ctypes.memset(address, POISON, length)
        else:
            _libc.madvise(address, length, _MADV_DONTNEED)

    def release(self, address: int, length: int) -> None:
        """Unmaps; a view that still points there is a crash, as on the real thing."""
        _libc.munmap(address, length)
