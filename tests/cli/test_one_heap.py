"""The command keeps its process to one heap of the C library, which can be given back to its end."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, pathlib, sys, threading
from lattice_core.cli import one_heap
if sys.argv[1] == "one":
    one_heap.keep_to_one_heap()
kept = []
threads = [threading.Thread(target=lambda: kept.append([bytes(5000) for _ in range(200)])) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(pathlib.Path(sys.argv[2]).read_text().count("<heap nr="))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc makes heaps for threads")
def test_threads_share_one_heap(tmp_path):
    def heaps(kind):
        command = [sys.executable, "-c", SCRIPT, kind, str(tmp_path / kind)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert heaps("one") == 1
    assert heaps("several") > 1
