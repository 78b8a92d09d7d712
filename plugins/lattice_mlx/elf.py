"""A shared object that holds nothing but names: each of its symbols stands at an address given by the caller.

Owns the bytes of such an object and its loading. Knows nothing of BLAS or MLX.

The object has no code and no section. Its symbols are absolute (``SHN_ABS``), which the dynamic linker of glibc 2.28 and
later takes as they are, without adding the load address; so it serves every architecture with 64-bit little-endian ELF.
Format: System V ABI, chapters 4 and 5 (ELF header, program headers, symbol table, hash table, dynamic section).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import tempfile
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINES = {"x86_64": 62, "aarch64": 183}
"""``e_machine`` of the architectures that this has been tried on, by ``platform.machine()``."""

_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_GLOBAL_FUNCTION = 0x12
_SHN_ABS = 0xFFF1
_HEADER, _PROGRAM_HEADER, _SYMBOL = 64, 56, 24
_PAGE = 0x10000  # the largest page size of the architectures above


def absolute_symbols(addresses: Mapping[str, int], machine: int, soname: str) -> bytes:
    """The bytes of a shared object called ``soname`` whose functions ``addresses`` names with their addresses."""
    names = [soname.encode() + b"\0", *(name.encode() + b"\0" for name in addresses)]
    offsets = list(accumulate((len(name) for name in names), initial=1))
    strings = b"\0" + b"".join(names)
    symbols = bytes(_SYMBOL) + b"".join(
        struct.pack("<IBBHQQ", offset, _GLOBAL_FUNCTION, 0, _SHN_ABS, address, 0)
        for offset, address in zip(offsets[1:], addresses.values(), strict=False)
    )
    # One bucket whose chain runs through all symbols: the linker compares a handful of names.
    count = len(addresses) + 1
    chain = [0, *range(2, count), 0]
    table = struct.pack(f"<III{count}I", 1, count, 1, *chain)

    symbols_at = _HEADER + 3 * _PROGRAM_HEADER
    table_at = symbols_at + len(symbols)
    strings_at = table_at + len(table)
    dynamic_at = -(-(strings_at + len(strings)) // 8) * 8
    dynamic = struct.pack(
        "<14Q",
        *(_DT_HASH, table_at),
        *(_DT_STRTAB, strings_at),
        *(_DT_SYMTAB, symbols_at),
        *(_DT_STRSZ, len(strings)),
        *(_DT_SYMENT, _SYMBOL),
        *(_DT_SONAME, offsets[0]),
        *(0, 0),
    )
    end = dynamic_at + len(dynamic)

    def program_header(kind: int, offset: int, size: int, align: int) -> bytes:
        return struct.pack("<IIQQQQQQ", kind, _READ_WRITE, offset, offset, offset, size, size, align)

    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(b"\x7fELF\x02\x01\x01", _ET_DYN, machine, 1),
        *(0, _HEADER, 0, 0),  # no entry point, program headers next, no section headers
        *(_HEADER, _PROGRAM_HEADER, 3, 0, 0, 0),
    )
    # Writable because the linker relocates the dynamic section; the stack entry keeps it from asking for an executable one.
    programs = (
        program_header(_PT_LOAD, 0, end, _PAGE)
        + program_header(_PT_DYNAMIC, dynamic_at, len(dynamic), 8)
        + program_header(_PT_GNU_STACK, 0, 0, 16)
    )
    return (header + programs + symbols + table + strings).ljust(dynamic_at, b"\0") + dynamic


def publish(addresses: Mapping[str, int], soname: str) -> None:
    """Make ``addresses`` visible by name to every library that is loaded from now on in this process, for good.

    Names that a library loaded earlier already published keep their meaning. Raises ``OSError`` where this architecture
    is none of ``MACHINES`` or the system does not let an object be loaded from memory.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(f"no symbols can be published on {platform.machine()}, only on {', '.join(MACHINES)}")
    with _anonymous_file() as file:
        file.write(absolute_symbols(addresses, machine, soname))
        file.flush()
        # ctypes never unloads, so the names stay when the file is gone.
        ctypes.CDLL(f"/proc/self/fd/{file.fileno()}", mode=ctypes.RTLD_GLOBAL)


def _anonymous_file() -> BinaryIO:
    """A file without a name, so that nobody else can open or replace it."""
    try:
        return os.fdopen(os.memfd_create("lattice-symbols"), "w+b")
    except OSError:
        return tempfile.TemporaryFile()  # where the system gives no memory file
