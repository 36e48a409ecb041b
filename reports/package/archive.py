"""Zip files: written with the same bytes for the same content, read without trusting them."""

from __future__ import annotations

import errno
import hashlib
import lzma
import platform
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from reports.package.manifest import NAME as MANIFEST
from reports.package.manifest import Held, from_json
from reports.redact.source import structure_of

LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can tell
MOST_FILES = 100_000
MOST_BYTES = 4 << 30
HIGHEST_RATIO = 400  # unpacked to packed; text of a log reaches 100
LARGE = 16 << 20  # bytes; a ratio matters only from here on
CHUNK = 1 << 20


# What `zipfile` raises for an archive with damaged bytes; RuntimeError: an entry claims to be encrypted, or packed in an unknown way.
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError, RuntimeError, OverflowError)


class UnsafePackage(Exception):
    """An archive that could write where it should not, or fill the disk."""


def info(name: str) -> zipfile.ZipInfo:
    """An entry that says nothing about when and by whom it was made."""
    entry = zipfile.ZipInfo(name, LONG_AGO)
    entry.create_system = 3
    entry.external_attr = (stat.S_IFREG | (0o755 if name.endswith((".sh", ".py")) else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def portable(name: str) -> str:
    """The name as every system can have it: a byte that is no UTF-8 as %XX."""
    return "".join(f"%{ord(letter) & 0xFF:02X}" if "\ud800" <= letter <= "\udfff" else letter for letter in name)


def checked(path: Path) -> zipfile.ZipFile:
    """The opened archive.  Raises UnsafePackage for what must not be unpacked, ValueError when it is no zip file."""
    try:
        packed = zipfile.ZipFile(path)
    except (*DAMAGE, OSError) as problem:
        if isinstance(problem, OSError) and problem.errno not in (None, errno.EINVAL):  # EINVAL: it points before its begin
            raise
        raise ValueError(f"{path} is not a package, or is damaged: {_reason(problem)}") from problem
    try:
        _check(packed.infolist())
    except UnsafePackage:
        packed.close()
        raise
    return packed


def _check(entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_FILES:
        raise UnsafePackage(f"it holds {len(entries):,} files; no package holds more than {MOST_FILES:,}")
    seen: set[str] = set()
    for entry in entries:
        _check_name(entry.orig_filename, seen)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or entry.is_dir():
            raise UnsafePackage(f"{entry.filename!r} is a link, a folder or a device; a package holds plain files only")
        if entry.flag_bits & 1:
            raise UnsafePackage(f"{entry.filename!r} is encrypted")
        if entry.file_size > LARGE and entry.file_size > HIGHEST_RATIO * max(1, entry.compress_size):
            raise UnsafePackage(f"{entry.filename!r} would grow {entry.file_size // max(1, entry.compress_size):,} times: a zip bomb")
    total = sum(entry.file_size for entry in entries)
    if total > MOST_BYTES:
        raise UnsafePackage(f"it would take {total >> 20:,} MiB; no package takes more than {MOST_BYTES >> 20:,} MiB")


def _check_name(name: str, seen: set[str]) -> None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or PureWindowsPath(name).drive or PureWindowsPath(name).root:
        raise UnsafePackage(f"{name!r} is an absolute path")
    if "\\" in name or "\0" in name or not pure.parts or ".." in pure.parts or name != pure.as_posix():
        raise UnsafePackage(f"{name!r} is no plain path inside the package")
    if name.lower() in seen:
        raise UnsafePackage(f"{name!r} is there twice")
    seen.add(name.lower())


def _reason(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200] or type(problem).__name__


def unpack(path: Path, target: Path) -> None:
    """Into a new folder; nothing is written before every entry was looked at.  Raises as `checked` does, UnsafePackage when an
    entry is larger than it says, and ValueError when one is damaged."""
    with checked(path) as packed:
        target.mkdir(parents=True, exist_ok=True)
        for entry in packed.infolist():
            place = target / entry.filename
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                with packed.open(entry) as source, open(place, "xb") as sink:  # noqa: PTH123
                    _copy(source, sink, entry)
            except DAMAGE as problem:
                raise ValueError(f"{path} is damaged: {entry.filename} cannot be read: {_reason(problem)}") from problem
            place.chmod(0o700 if place.suffix in (".sh", ".py") else 0o600)


def _copy(source: IO[bytes], sink: IO[bytes], entry: zipfile.ZipInfo) -> None:
    left = entry.file_size
    while data := source.read(CHUNK):
        left -= len(data)
        if left < 0:
            raise UnsafePackage(f"{entry.filename!r} is larger than it says")
        sink.write(data)


def mismatches(path: Path) -> list[str]:
    """What differs between a package and its manifest, as sentences; [] when nothing does.  Raises as `checked` does."""
    with checked(path) as packed:
        there = {entry.filename: entry for entry in packed.infolist()}
        if MANIFEST not in there:
            return [f"{MANIFEST} is missing"]
        try:
            listed = {entry.name: entry for entry in from_json(packed.read(MANIFEST))}
        except (*DAMAGE, OSError) as problem:
            return [f"{MANIFEST} cannot be read: {_reason(problem)}"]
        found = [f"{name} is missing" for name in sorted(listed.keys() - there.keys())]
        found += [f"{name} is not in the manifest" for name in sorted(there.keys() - listed.keys() - {MANIFEST})]
        for name in sorted(listed.keys() & there.keys()):
            if differs := _differs(packed, name, listed[name]):
                found.append(f"{name} {differs}")
        return found


def _differs(packed: zipfile.ZipFile, name: str, held: Held) -> str | None:
    digest, read = hashlib.sha256(), 0
    try:
        with packed.open(name) as source:
            while data := source.read(CHUNK):
                digest.update(data)
                read += len(data)
    except (*DAMAGE, OSError) as problem:
        return f"cannot be read: {_reason(problem)}"
    if read != held.size:
        return f"has {read:,} bytes, the manifest says {held.size:,}"
    if digest.hexdigest() != held.sha256:
        return "has another content than the manifest says"
    if held.structure is None or held.structure == (structure := structure_of(packed.read(name))):
        return None
    if structure is None:
        return f"does not compile with Python {platform.python_version()}"
    return "is not the code that ran: something beside its texts and comments was changed"
