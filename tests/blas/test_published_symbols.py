import struct
import sys

import pytest

from lattice_mlx.elf import MACHINES, absolute_symbols

linux = pytest.mark.skipif(sys.platform != "linux", reason="shared objects of this kind are loaded on Linux")


@linux
def test_a_published_function_is_the_one_that_mlx_calls(python):
    code = """
import ctypes
from lattice_mlx.elf import publish
calls = []
kind = ctypes.CFUNCTYPE(None, *([ctypes.c_int] * 6), ctypes.c_float, ctypes.c_void_p, ctypes.c_int)
sgemm = kind(lambda order, left, right, rows, columns, inner, *rest: calls.append((rows, columns, inner)))
publish({"unused": 1, "cblas_sgemm": ctypes.cast(sgemm, ctypes.c_void_p).value}, "libtest.so")
import mlx.core as mx
with mx.stream(mx.cpu):
    mx.eval(mx.zeros((3, 5)) @ mx.zeros((5, 7)))
print(calls)
"""
    assert python(code) == "[(3, 7, 5)]"


@linux
def test_every_name_gets_its_own_address(python):
    code = """
import ctypes
from lattice_mlx.elf import publish
addresses = {f"lattice_test_{n}": 4096 * n + n for n in range(1, 40)}
publish(addresses, "libtest.so")
process = ctypes.CDLL(None)
print({name: ctypes.cast(process[name], ctypes.c_void_p).value for name in addresses} == addresses)
print(hasattr(process, "lattice_test_0"))
"""
    assert python(code).split() == ["True", "False"]


@linux
def test_an_object_is_loaded_where_no_file_in_memory_can_be_made(python):
    code = """
import ctypes, os
from lattice_mlx.elf import publish
def refuse(name):
    raise PermissionError(name)
os.memfd_create = refuse
publish({"lattice_test": 4097}, "libtest.so")
print(ctypes.cast(ctypes.CDLL(None).lattice_test, ctypes.c_void_p).value)
"""
    assert python(code) == "4097"


@linux
def test_an_architecture_that_was_never_tried_is_refused_by_name(python):
    code = """
import platform
from lattice_mlx.elf import publish
platform.machine = lambda: "s390x"
try:
    publish({"lattice_test": 1}, "libtest.so")
except OSError as error:
    print(error)
"""
    assert python(code) == "no symbols can be published on s390x, only on x86_64, aarch64"


@pytest.mark.parametrize("machine", MACHINES.values())
def test_the_object_asks_for_no_executable_memory(machine):
    data = absolute_symbols({"one": 1}, machine, "libtest.so")
    assert data[:6] == b"\x7fELF\x02\x01"
    assert struct.unpack_from("<H", data, 18) == (machine,)
    offset, size, count = struct.unpack_from("<Q14xHH", data, 32)
    flags = [struct.unpack_from("<I", data, offset + n * size + 4)[0] for n in range(count)]
    assert len(flags) == 3
    assert not any(flag & 1 for flag in flags)
