"""Files that make up the program of one attempt, with their content: an attempt counts only for the files that it ran with.

The hook tells which files the Python processes loaded and opened; the files that can be found without a run are given.  A file that
the run itself writes is no part of the program.  A file over 64 MiB counts by its size, its date and its two ends, any other by all
of its content.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from matrix.records import UsedFile

WHOLE_BYTES = 64 << 20  # a larger file is not read whole
END_BYTES = 1 << 20
CODE = (".py", ".pyc", ".pyx", ".so", ".pyd", ".dylib", ".sh", ".bash", ".zsh", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp")
NOT_INPUTS = {".git", ".cache", "__pycache__", "node_modules"}  # folders of what is made anew when it is gone
Kind = Literal["code", "data", "elsewhere"]
CHANGED = "changed while the attempt ran"  # in place of a digest: equal to none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """Files of the program that are known before a run."""

    code: tuple[str, ...] = ()  # absolute paths
    data: tuple[str, ...] = ()  # files and folders that the command names
    output: str = ""  # the run folder: nothing below it is an input


@dataclasses.dataclass(frozen=True, kw_only=True)
class Used:
    """What an attempt used."""

    files: list[UsedFile]
    written: list[str]  # names of files that the attempt wrote below the program's folder
    packages: list[str]  # top-level names of installed packages that were loaded
    complete: bool  # False: there were more files than the hook writes down


def used_files(records: Iterable[Mapping[str, Any]], given: Given, *, cwd: str, started_unix_s: float) -> Used:
    """The files of one attempt, from the records of its hook and from what is given."""
    folder = os.path.realpath(cwd)
    uses: dict[str, set[str]] = {path: {"read"} for path in (*given.code, *given.data)}
    packages: dict[str, None] = {}
    complete = True
    for record in records:
        if record.get("kind") == "package" and isinstance(record.get("name"), str):
            packages[record["name"]] = None
        elif record.get("kind") == "file" and record.get("use") == "more":
            complete = False
        elif record.get("kind") == "file" and isinstance(record.get("path"), str):
            uses.setdefault(os.path.normpath(record["path"]), set()).add(str(record.get("use")))
    started_ns = int(started_unix_s * 1e9)
    written = {path for path, use in uses.items() if "write" in use}
    folders = tuple(f"{path}/" for path in written if os.path.isdir(path))  # noqa: PTH112 - a folder that was moved into its place
    written |= {path for path in uses if path.startswith(folders)}
    files = {}
    for path, use in uses.items():
        if path in written or not _is_text(path):
            continue
        kind = _kind(path, use, given, folder)
        status = _status(path) if kind else None
        if status is None or kind is None:
            continue
        if max(status.st_mtime_ns, status.st_ctime_ns) < started_ns:
            files[path] = describe(path, status, name_of(path, folder), kind)
        elif kind == "code":
            files[path] = UsedFile(name=name_of(path, folder), kind=kind, size=status.st_size, digest=CHANGED)
        else:
            written.add(path)
    outputs = (name_of(path, folder) for path in written if _is_text(path) and _kind(path, {"read"}, given, folder))
    return Used(
        files=sorted(files.values(), key=lambda file: file.name),
        written=sorted(outputs),
        packages=sorted(packages),
        complete=complete,
    )


def name_of(path: str, folder: str) -> str:
    """The path relative to the program's folder when it lies below: a program may be moved."""
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else path


def present(file: UsedFile, cwd: str) -> UsedFile | None:
    """The same file as it is now; None: it is gone."""
    path = os.path.join(os.path.realpath(cwd), file.name)  # noqa: PTH118
    status = _status(path)
    return describe(path, status, file.name, file.kind) if status else None


def describe(path: str, status: os.stat_result, name: str, kind: Kind) -> UsedFile:
    """Size and digest of a file; of one that is no part of the program the size alone."""
    size = status.st_size
    if kind == "elsewhere":
        return UsedFile(name=name, kind=kind, size=size, digest="")
    digest = _digest(path, status.st_dev, status.st_ino, size, status.st_mtime_ns, status.st_ctime_ns)
    return UsedFile(name=name, kind=kind, size=size, digest=digest)


def _kind(path: str, use: set[str], given: Given, folder: str) -> Kind | None:
    """None: it is no input."""
    if given.output and path.startswith(f"{given.output}/"):
        return None
    below = path.startswith(f"{folder}/")
    if not NOT_INPUTS.isdisjoint((path[len(folder) :] if below else path).split("/")):
        return "elsewhere"
    if path in given.code or "native" in use or path.endswith(CODE):
        return "code"
    named = any(path == root or path.startswith(f"{root}/") for root in given.data)
    return "data" if below or named else "elsewhere"


def _is_text(path: str) -> bool:
    """False for a name that no record can hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _status(path: str) -> os.stat_result | None:
    """Of a plain file; None: it is gone, a folder or a device."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return status if os.path.isfile(path) else None  # noqa: PTH113


@functools.lru_cache(maxsize=20_000)
def _digest(path: str, device: int, inode: int, size: int, modified_ns: int, changed_ns: int) -> str:
    """SHA-256 in 32 digits.  Read once for each state of a file: hundreds of attempts have the same data."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as source:  # noqa: PTH123
            if size > WHOLE_BYTES:
                digest.update(f"{size} {modified_ns}".encode())
                digest.update(source.read(END_BYTES))
                source.seek(-END_BYTES, os.SEEK_END)
            for chunk in _chunks(source):
                digest.update(chunk)
    except OSError as problem:
        return f"unreadable: {problem.strerror}"
    return digest.hexdigest()[:32]


def _chunks(source: Any) -> Iterator[bytes]:
    while chunk := source.read(1 << 20):
        yield chunk


def words_that_name_files(argv: list[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """Files and folders that a command or its environment names: `data/x.npz`, `--data=./data`, `train.txt,test.txt`."""
    found: dict[str, None] = {}
    for word in (*argv[1:], *env.values()):
        for part in (word, word.partition("=")[2], *word.split(","), *word.split(os.pathsep)):
            path = os.path.normpath(cwd / part) if part and "\0" not in part and len(part) < 4096 else ""
            if path not in ("", "/", os.path.normpath(cwd)) and os.path.exists(path):  # noqa: PTH110
                found[path] = None
    return list(found)
