"""Keep the user's files as they were: the program may overwrite files in its working folder, its own old model for example.

The contents are copied before the first attempt, because only an attempt shows which files the program writes.  After the
attempts every file that the program changed gets its old content back.  New files stay where the program put them.

People and other programs may work in the same folder.  So a file is put back only when the hook saw an attempt open it for writing,
or when it is a binary output, which libraries write unseen and nobody edits.  Of every file that is put back both contents are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import itertools
import json
import os
import re
import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from matrix import records
from matrix.folder import FolderError, locked

FOLDER, MANIFEST = "saved", "saved/manifest.json"
MOST_FILES = 20_000
MANY_ALIKE = 200  # files of one kind in one folder: a data set, which a program reads
MOST_BYTES = 2 << 30
MOST_OTHER_BYTES = 256 << 20  # of all files together that do not look like outputs
FREE_SHARE = 0.25  # of the room on the disk that the copies may take
MOST_COPY_S = 20.0
WORTH_TELLING_S = 2.0
LATE_S = 60.0  # a change so long after the last sign of an attempt is not the attempt's
TWICE = 2  # attempts that changed a file: then the program does it, and not somebody else
SHOWN = 5
NOT_ENTERED = {".git", ".hg", ".svn", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "__pycache__", "node_modules", "site-packages"}
SOURCES = {".py", ".pyi", ".pyc", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".go", ".js", ".ts", ".sh", ".md", ".so"}
OUTPUTS = {".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pkl", ".h5", ".hdf5", ".onnx", ".npz", ".npy", ".index", ".faiss"}  # binary
CLONE = 0x40049409  # FICLONE of Linux: a copy that shares its blocks
AFTER = ".after"  # of the copy of what the program wrote
SHELLS = {"sh", "bash", "dash", "zsh", "fish", "tmux", "screen"}  # they write nothing themselves
DEFAULT_OF_FLAG = r"""add_argument\(\s*(?:['"]-\w['"]\s*,\s*)?['"](--[\w-]+)['"][^)]*?default\s*=\s*['"](?:\./)?{path}['"]"""


@dataclasses.dataclass(kw_only=True)
class Kept:
    """A file as it was before the first attempt."""

    size: int
    mtime_ns: int
    mode: int
    owner: tuple[int, int]
    copy: str | None  # name of its copy; None: there was no room for one
    changed_by: list[str] = dataclasses.field(default_factory=list)  # attempts after which it was another one
    written_back: int = 0

    @property
    def state(self) -> tuple[int, int]:
        return self.size, self.mtime_ns


class Safekeeping:
    """Of the files below the working folder of one run; `named`: files elsewhere that the command names."""

    def __init__(self, folder: Path, cwd: Path, named: Sequence[Path] = ()) -> None:
        self._folder = folder
        self._cwd = cwd
        self._named = named
        self._files: dict[str, Kept] = {}
        self._attempts: list[str] = []  # since the last look
        self._written: set[str] = set()  # files that the program was seen to write
        self._last: dict[str, tuple[int, int] | None] = {}  # state of each file at the last look
        self._took: list[str] = []  # a sentence, where the copies took long

    # -------------------------------------------------------------- before and after
    def recover(self) -> None:
        """Put back what tools that were killed could not: of this run, and of others of its name."""
        for manifest in self._folder.parent.glob(f"*/{MANIFEST}"):
            other = manifest.parents[1]
            if other != self._folder:
                with contextlib.suppress(FolderError), locked(other):
                    Safekeeping(other, self._cwd).complete()
        self.complete()

    def begin(self) -> None:
        """Copy what may be overwritten."""
        (self._folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        started = time.monotonic()
        self._save(sorted(self._found(), key=_most_likely_first))
        took_s = time.monotonic() - started
        if took_s > WORTH_TELLING_S:
            mib = sum(kept.size for kept in self._files.values() if kept.copy) >> 20
            self._took = [f"copying files that the program might overwrite ({mib} MiB) took {took_s:.0f} s before the first attempt"]
        self._last = {path: kept.state for path, kept in self._files.items()}
        self._write_manifest()

    def complete(self) -> None:
        """Put back what changed until the last sign of the attempts, when the tool was killed before it could."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            text = (self._folder / MANIFEST).read_text(encoding="utf-8", errors="surrogateescape")
            self._files = {path: Kept(**{**kept, "owner": tuple(kept["owner"])}) for path, kept in json.loads(text).items()}
        if not self._files:
            return
        signs = [path.stat().st_mtime for path in self._folder.glob("attempts/*/*")]
        last_s = max(signs, default=0.0) + LATE_S
        for path, kept in self._files.items():
            if kept.copy and _differs(path, kept) and _changed_before(path, last_s) and Path(path).suffix in OUTPUTS:
                kept.changed_by.append("an interrupted attempt")
                self._write_back(path, kept)
        self.end()

    def note_attempt(self, attempt: str, written: Sequence[str]) -> None:
        """Take an attempt that ended, and the files that it was seen to write, relative to the working folder."""
        self._attempts.append(attempt)
        self._written |= {str(self._cwd / path) for path in written}

    def put_back(self) -> None:
        """Give every file that the attempts since the last call changed its old content back.  No attempt may be running."""
        now = {path: _state_of(path) for path in self._files}
        before, self._last = self._last, now
        changed = [path for path, state in now.items() if state != before.get(path, self._files[path].state)]
        attempts, self._attempts = self._attempts, []
        if not changed or not attempts:
            return
        for path in changed:
            self._files[path].changed_by.append(attempts[-1])
        alone = not _others_work_in(self._cwd)
        for path in changed:
            kept = self._files[path]
            if kept.copy and (path in self._written or self._is_probably_written(path, alone=alone)):
                self._write_back(path, kept)
                self._last[path] = _state_of(path)
        self._write_manifest()

    def _is_probably_written(self, path: str, *, alone: bool) -> bool:
        """True for a binary output whose change nobody saw, when nobody but the program is likely to have made it."""
        return Path(path).suffix in OUTPUTS and (alone or len(self._files[path].changed_by) >= TWICE)

    def end(self) -> None:
        """Remove the copies that nobody needs any more; what was not put back by now stays as it is."""
        (self._folder / MANIFEST).unlink(missing_ok=True)
        needed = {kept.copy for path, kept in self._files.items() if kept.copy and kept.changed_by and _differs(path, kept)}
        needed |= {f"{kept.copy}{AFTER}" for kept in self._files.values() if kept.written_back}
        for copy in (self._folder / FOLDER).glob("[0-9]*"):
            if copy.name not in needed:
                copy.unlink(missing_ok=True)
        if not needed:
            shutil.rmtree(self._folder / FOLDER, ignore_errors=True)

    # -------------------------------------------------------------- what to say
    @property
    def notes(self) -> list[str]:
        """Sentences about files of the user's that the program changed, and about those that were not saved."""
        changed = {path: kept for path, kept in self._files.items() if kept.changed_by}
        back = [path for path, kept in changed.items() if kept.written_back]
        left = [path for path, kept in changed.items() if not kept.written_back and kept.copy]
        lost = [path for path, kept in changed.items() if not kept.copy]
        found = list(self._took)
        if back:
            text = f"the program overwrites files that were there before; each has its old content back: {self._listed(back)}"
            found.append(f"{text}; what it wrote is in {self._folder / FOLDER}")
        if left:
            copies = ", ".join(f"{self._shown(path)} in {self._folder / FOLDER}/{changed[path].copy}" for path in left[:SHOWN])
            found.append(f"files changed while attempts ran, by the program or by somebody else; the old contents are kept: {copies}")
        if lost:
            found.append(f"files changed while attempts ran, and were too large to be saved before: {self._listed(lost)}")
        return found

    def _listed(self, paths: Sequence[str]) -> str:
        shown = ", ".join(self._shown(path) + self._flag_of(path) for path in paths[:SHOWN])
        return shown + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._cwd) if path.startswith(f"{self._cwd}{os.sep}") else path

    def _flag_of(self, path: str) -> str:
        """Name the flag whose default is that path, in a script of the working folder."""
        form = re.compile(DEFAULT_OF_FLAG.format(path=re.escape(self._shown(path))), re.S)
        for script in sorted(self._cwd.glob("*.py")):
            with contextlib.suppress(OSError):
                if match := form.search(script.read_text(encoding="utf-8", errors="replace")):
                    return f" (the default of {match[1]})"
        return ""

    # -------------------------------------------------------------- saving
    def _found(self) -> Iterator[str]:
        """Paths of regular files that a program might overwrite, at most MOST_FILES."""
        below = _files_below(self._cwd, self._folder)
        named = (path for root in self._named for path in _files_at(root, self._folder))
        yield from itertools.islice(dict.fromkeys(itertools.chain(below, named)), MOST_FILES)

    def _save(self, paths: Iterable[str]) -> None:
        room = min(MOST_BYTES, int(FREE_SHARE * shutil.disk_usage(self._folder).free))
        deadline = time.monotonic() + MOST_COPY_S
        other_room = min(room, MOST_OTHER_BYTES)
        used = [int(copy.stem) for copy in (self._folder / FOLDER).glob("[0-9]*")]  # kept by an earlier part of this run
        for number, path in enumerate(paths, max(used, default=0) + 1):
            try:
                seen = Path(path).stat()
                fits = seen.st_size <= (room if Path(path).suffix in OUTPUTS else other_room) and time.monotonic() < deadline
                copy = f"{number:05d}" if fits else None
                if copy:
                    _copy(Path(path), self._folder / FOLDER / copy)
                    room, other_room = room - seen.st_size, other_room - seen.st_size * (Path(path).suffix not in OUTPUTS)
            except OSError:  # it is gone, or may not be read: then the program cannot need it
                continue
            mode, owner = stat.S_IMODE(seen.st_mode), (seen.st_uid, seen.st_gid)
            self._files[path] = Kept(size=seen.st_size, mtime_ns=seen.st_mtime_ns, mode=mode, owner=owner, copy=copy)

    def _write_manifest(self) -> None:
        text = json.dumps({path: dataclasses.asdict(kept) for path, kept in self._files.items()})
        records.write_text(self._folder / MANIFEST, text, mode=0o600)

    # -------------------------------------------------------------- putting back
    def _write_back(self, path: str, kept: Kept) -> None:
        """Put the old content back, and keep what is there now as well."""
        assert kept.copy is not None
        old = self._folder / FOLDER / kept.copy
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _set_aside(Path(path), old.with_name(old.name + AFTER))
            _copy(old, Path(path))
            Path(path).chmod(kept.mode)
            with contextlib.suppress(PermissionError):
                os.chown(path, *kept.owner)
            os.utime(path, ns=(kept.mtime_ns, kept.mtime_ns))
        except OSError:  # the copy stays, and `notes` tells where it is
            return
        kept.written_back += 1


# ------------------------------------------------------------------ files
def _copy(source: Path, target: Path) -> None:
    """Copy a file's content, without reading it where the file system can share blocks."""
    with source.open("rb") as reader, target.open("wb") as writer:
        try:
            fcntl.ioctl(writer, CLONE, reader.fileno())
        except OSError:
            shutil.copyfileobj(reader, writer, 1 << 20)


def _set_aside(path: Path, target: Path) -> None:
    """Move a file, or copy it where a link, another name or another disk needs it to stay; nothing for a file that is gone."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1:
        try:
            path.rename(target)
            return
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
    _copy(path, target)


def _files_below(root: Path, run_folder: Path) -> Iterator[str]:
    for name, folders, files in os.walk(root):
        folder = Path(name)
        folders[:] = [inner for inner in sorted(folders) if not _is_not_entered(folder / inner, run_folder)]
        alike = Counter(Path(file).suffix for file in files)
        few = (folder / file for file in sorted(files) if alike[Path(file).suffix] <= MANY_ALIKE)
        yield from (str(path) for path in few if path.suffix not in SOURCES and _is_regular(path))


def _files_at(root: Path, run_folder: Path) -> Iterable[str]:
    """Return a file itself, and of a folder outside of the working folder what looks like a program's output."""
    if root.is_dir():
        return (path for path in _files_below(root, run_folder) if Path(path).suffix in OUTPUTS)
    return [str(root)] if _is_regular(root) else []


def _is_not_entered(folder: Path, run_folder: Path) -> bool:
    """True for folders that hold installed packages, histories, or the runs of this tool."""
    if folder.name in NOT_ENTERED or folder in (run_folder / "attempts", run_folder / FOLDER):
        return True
    return any((folder / sign).exists() for sign in ("pyvenv.cfg", "conda-meta", "attempts"))


def _is_regular(path: Path) -> bool:
    """True for a file, or a link to one; other kinds block or have no content."""
    try:
        return path.is_file()
    except OSError:
        return False


def _most_likely_first(path: str) -> tuple[bool, int]:
    """Order by how likely a program is to write the file, then by size: small ones are saved in any case."""
    state = _state_of(path)
    return Path(path).suffix not in OUTPUTS, state[0] if state else 0


def _state_of(path: str) -> tuple[int, int] | None:
    """Return size and time of the last change in nanoseconds; None for a file that is gone."""
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns


def _changed_before(path: str, time_s: float) -> bool:
    state = _state_of(path)
    return state is None or state[1] <= time_s * 1e9


def _differs(path: str, kept: Kept) -> bool:
    return _state_of(path) != kept.state


# ------------------------------------------------------------------ who else is there
def _others_work_in(cwd: Path) -> bool:
    """True if a process works in that folder that neither is this tool nor started it: a change may be that process's."""
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    ours |= {child.pid for child in psutil.Process().children(recursive=True)}
    inside = f"{cwd}{os.sep}"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in ours and f"{process.cwd()}{os.sep}".startswith(inside) and process.name() not in SHELLS:
                return True
    return False
