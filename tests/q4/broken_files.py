"""Directories in which one tensor file is damaged, or is no tensor file at all."""

from __future__ import annotations

import os
import struct
from math import inf, nan
from typing import TYPE_CHECKING

from tests.q4.damage import NORM_FILE, PACKED_FILE, broken, found_when_read, overwrite, overwrite_block
from tests.q4.q4_directory import write

if TYPE_CHECKING:
    from pathlib import Path


@broken
def build_truncated(directory: Path) -> str:
    path = write(directory) / PACKED_FILE
    size = path.stat().st_size
    os.truncate(path, size - 1)
    return f"{PACKED_FILE}: is incomplete: {size} bytes are expected, {size - 1} are here; get it again"


@broken
def build_truncated_header(directory: Path) -> str:
    os.truncate(write(directory) / PACKED_FILE, 30)
    return f"{PACKED_FILE}: is incomplete: the header alone needs 36 bytes, 30 are here; get it again"


@broken
def build_empty_file(directory: Path) -> str:
    (write(directory) / PACKED_FILE).write_bytes(b"")
    return f"{PACKED_FILE}: is incomplete: 0 bytes hold no header"


@broken
def build_trailing_byte(directory: Path) -> str:
    with (write(directory) / PACKED_FILE).open("ab") as file:
        file.write(b"\0")
    return f"{PACKED_FILE}: 1 bytes follow the tensor's"


@broken
def build_version_1(directory: Path) -> str:
    overwrite(write(directory) / PACKED_FILE, 4, struct.pack("<I", 1))
    return f"{PACKED_FILE}: is of KHQ4 version 1, which is not read; re-quantize the model by `lattice quantize`"


@broken
def build_version_3(directory: Path) -> str:
    overwrite(write(directory) / PACKED_FILE, 4, struct.pack("<I", 3))
    return f"{PACKED_FILE}: is of KHQ4 version 3; only version 2 is read"


@broken
def build_wrong_magic(directory: Path) -> str:
    overwrite(write(directory) / PACKED_FILE, 0, b"KHQ3")
    return f"{PACKED_FILE}: is no KHQ4 file: it begins with b'KHQ3'"


@broken
def build_half_file_under_a_packed_name(directory: Path) -> str:
    write(directory)
    (directory / PACKED_FILE).write_bytes((directory / NORM_FILE).read_bytes())
    return f"{PACKED_FILE}: is no KHQ4 file: it begins with b'KHF1'"


@broken
def build_git_lfs_pointer(directory: Path) -> str:
    (write(directory) / PACKED_FILE).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    return f"{PACKED_FILE}: is a Git LFS pointer"


@broken
def build_too_many_dimensions(directory: Path) -> str:
    overwrite(write(directory) / PACKED_FILE, 8, struct.pack("<I", 0xFFFFFFFF))
    return f"{PACKED_FILE}: announces 4294967295 dimensions, at most 16 are possible"


@broken
def build_dimensions_beyond_the_file(directory: Path) -> str:
    write(directory)
    (directory / PACKED_FILE).write_bytes(struct.pack("<4sII", b"KHQ4", 2, 16) + bytes(20))
    return f"{PACKED_FILE}: is incomplete: the header alone needs 148 bytes, 32 are here"


@broken
def build_dimensions_overflow(directory: Path) -> str:
    # The product is 0 modulo 2^64, as the length says.
    overwrite(write(directory) / PACKED_FILE, 12, struct.pack("<QQQ", 1 << 32, 1 << 32, 0))
    return f"{PACKED_FILE}: the shape [4294967296, 4294967296] holds more than 2^63 - 1 values"


@broken
def build_length_mismatch(directory: Path) -> str:
    path = write(directory) / PACKED_FILE
    count = int.from_bytes(path.read_bytes()[28:36], "little")
    overwrite(path, 28, struct.pack("<Q", count - 1))
    return f"{PACKED_FILE}: says that it holds {count - 1} values, its shape"


@broken
def build_enormous_length(directory: Path) -> str:
    overwrite(write(directory) / PACKED_FILE, 12, struct.pack("<QQQ", 1 << 31, 1 << 31, 1 << 62))
    return f"{PACKED_FILE}: is incomplete: {(1 << 57) * 20 + 36} bytes are expected"


@found_when_read
def build_nan_scale(directory: Path) -> str:
    overwrite_block(write(directory) / PACKED_FILE, 5, scale=nan)
    return f"{PACKED_FILE}: block 5 has the scale nan"


@found_when_read
def build_infinite_scale(directory: Path) -> str:
    overwrite_block(write(directory) / PACKED_FILE, 0, scale=inf)
    return f"{PACKED_FILE}: block 0 has the scale inf"


@found_when_read
def build_zero_scale(directory: Path) -> str:
    overwrite_block(write(directory) / PACKED_FILE, 7, scale=0.0)
    return f"{PACKED_FILE}: block 7 has the scale 0.0"


@found_when_read
def build_negative_scale(directory: Path) -> str:
    overwrite_block(write(directory) / PACKED_FILE, 3, scale=-0.5)
    return f"{PACKED_FILE}: block 3 has the scale -0.5"


@found_when_read
def build_infinite_bias(directory: Path) -> str:
    overwrite_block(write(directory) / PACKED_FILE, 9, scale=0.5, bias=-inf)
    return f"{PACKED_FILE}: block 9 has the scale 0.5 and the bias -inf"


@found_when_read
def build_half_not_finite(directory: Path) -> str:
    overwrite(write(directory) / NORM_FILE, 28 + 2 * 4, struct.pack("<e", inf))
    return f"{NORM_FILE}: value 4 of"


@broken
def build_half_truncated(directory: Path) -> str:
    path = write(directory) / NORM_FILE
    os.truncate(path, path.stat().st_size - 1)
    return f"{NORM_FILE}: is incomplete"


@broken
def build_half_trailing(directory: Path) -> str:
    with (write(directory) / NORM_FILE).open("ab") as file:
        file.write(b"\0\0")
    return f"{NORM_FILE}: 2 bytes follow the tensor's"


@broken
def build_half_version(directory: Path) -> str:
    overwrite(write(directory) / NORM_FILE, 4, struct.pack("<I", 2))
    return f"{NORM_FILE}: is of KHF1 version 2; only version 1 is read"


@broken
def build_linked_tensor(directory: Path) -> str:
    path = write(directory) / PACKED_FILE
    path.symlink_to(path.rename(directory / "elsewhere"))
    return f"{PACKED_FILE}: is a symbolic link, which is not followed to a tensor"


@broken
def build_directory_for_a_tensor(directory: Path) -> str:
    path = write(directory) / PACKED_FILE
    path.unlink()
    path.mkdir()
    return f"{PACKED_FILE}: is a directory, not a file"


@broken
def build_pipe_for_a_tensor(directory: Path) -> str:
    path = write(directory) / PACKED_FILE
    path.unlink()
    os.mkfifo(path)
    return f"{PACKED_FILE}: is no regular file"
