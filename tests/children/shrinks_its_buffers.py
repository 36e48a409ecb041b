"""Fills buffers and shrinks each where it lies, as readers of lines do: little stays in use.  Prints how many MiB stay resident."""

import ctypes
import re
from pathlib import Path

BLOCKS, BYTES, KEPT = 400, 100_000, 64
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.realloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.realloc.argtypes = [ctypes.c_size_t], [ctypes.c_void_p, ctypes.c_size_t]
blocks = [libc.malloc(BYTES) for _ in range(BLOCKS)]
for block in blocks:
    ctypes.memset(block, 1, BYTES)
for block in blocks:
    libc.realloc(block, KEPT)
resident = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
for step in (1, 2):  # a figure is printed more than once
    print(f"step {step} resident={int(resident[1]) >> 10}")
