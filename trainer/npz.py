"""npz files: members mapped in place, and whole files written in chunks.

`np.load` ignores `mmap_mode` for an npz and reads every member into memory.  A member that is stored without
compression lies in the file as one piece, so it can be mapped where it is.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trainer import InputError

LOCAL_HEADER_BYTES = 30  # PKZIP application note 4.3.7
ZIP64_BYTES = 20  # the extra field that zipfile adds for sizes that may pass 4 GiB
ALIGNMENT = 64  # a cache line, and more than any instruction asks for
PADDING = 0xD935  # extra field of that id: a number that the data is aligned to, then zeros (Android's zipalign writes it too)
# RuntimeError: encrypted, or packed in an unknown way
BAD_FILE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError)


def open_npz(path: Path, expected: str) -> dict[str, NDArray[Any]]:
    """Every array of an npz file, read-only: mapped where it is stored plainly, else loaded, which a line on stderr says.

    Mapping does not check the member's CRC.  Raises InputError with the path, what is wrong and `expected`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename.removesuffix(".npy"): _open_member(path, archive, info) for info in archive.infolist()}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; expected {expected}") from error
    except BAD_FILE as error:
        raise InputError(f"{path}: damaged or no npz file ({error}); expected {expected}") from error


def _open_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
        return _map_member(path, info)
    advice = "np.savez makes files that are mapped instead"
    print(f"{path}: {info.filename} is compressed, so it is loaded whole ({info.file_size / 1e6:.0f} MB); {advice}", file=sys.stderr)
    with archive.open(info) as source:
        return npy.read_array(source, allow_pickle=False)


def _map_member(path: Path, info: zipfile.ZipInfo) -> NDArray[Any]:
    if info.header_offset < 0:  # zipfile's way of telling that the beginning of the file is missing
        raise ValueError(f"{info.filename} begins before the file does")
    with path.open("rb") as source:
        source.seek(info.header_offset)
        header = source.read(LOCAL_HEADER_BYTES)
        if header[:4] != b"PK\x03\x04":
            raise ValueError(f"no member where {info.filename} should begin")
        name_bytes, extra_bytes = struct.unpack("<HH", header[26:])
        start = source.seek(info.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
        shape, fortran, dtype = _read_header(source)
        offset = source.tell()
    if dtype.hasobject or offset - start + math.prod(shape) * dtype.itemsize != info.file_size:
        raise ValueError(f"{info.filename} is not {shape} values of type {dtype}")
    if 0 in shape:  # nothing to map, which mmap refuses
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def _read_header(source: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(source)
    if version == (1, 0):
        return npy.read_array_header_1_0(source)
    if version == (2, 0):
        return npy.read_array_header_2_0(source)
    raise ValueError(f"npy version {version} is for arrays with named fields")


Member = tuple[tuple[int, ...], Callable[[], Iterable[NDArray[np.float32]]]]  # shape, and a maker of its rows in chunks


def write_npz(path: Path, members: dict[str, Member]) -> None:
    """Write float32 arrays as an uncompressed npz, chunk by chunk, whole or not at all.  Raises OSError.

    The values of each begin at a multiple of 64 bytes.  np.savez puts them anywhere: mapped, they must be copied before native
    code that needs aligned values may see them.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as sink:
            with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
                for name, member in members.items():
                    _write_member(archive, name, member)
            sink.flush()
            os.fsync(sink.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_member(archive: zipfile.ZipFile, name: str, member: Member) -> None:
    shape, chunks = member
    info = zipfile.ZipInfo(f"{name}.npy")
    info.extra = _padding(archive.start_dir + LOCAL_HEADER_BYTES + len(info.filename.encode()) + ZIP64_BYTES)
    with archive.open(info, "w", force_zip64=True) as sink:
        npy.write_array_header_1_0(sink, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for chunk in chunks():
            sink.write(np.ascontiguousarray(chunk, "<f4").data)


def _padding(start: int) -> bytes:
    """An extra field that moves data from `start` on to the next multiple of ALIGNMENT; the npy header keeps it there."""
    rest = -(start + 6) % ALIGNMENT  # 6: id, size, alignment
    return struct.pack("<HHH", PADDING, 2 + rest, ALIGNMENT) + bytes(rest)
