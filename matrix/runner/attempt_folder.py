"""The folder of one attempt, which its child may write to: what the child made of it is mended before anybody reads it.

A child may remove the folder, put a symlink, a FIFO or another folder in the place of one of our files, take rights away,
or fill a file.  None of that may hang the tool, make it write elsewhere, or end the matrix.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from matrix.records import NotCollected
from matrix.runner.own_files import Identity, aside, identity_of

OURS = re.compile(
    r"attempt\.json|observation\.json|(stdout|stderr)\.log|memory\.csv|hook\.jsonl|strace\.log|core"
    r"|(stacks|maps|valgrind)\b.*|\..*\.part"
)
NUMBERED = re.compile(r"(stacks|maps|valgrind)\.\d+\.(txt|log)|(stacks|maps)\.txt|core")
MOST_BYTES = 64 << 20  # of a text file that a child may write to
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptFolder:
    """A folder as it was made, so that another one in its place is known."""

    path: Path
    identity: Identity

    @classmethod
    def make(cls, path: Path) -> AttemptFolder:
        """Make the folder, for its owner only.  Raises OSError."""
        try:
            os.mkdir(path, 0o700)  # noqa: PTH102 - at every attempt, and its parent is there
        except OSError:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(path=path, identity=identity_of(os.lstat(path)))

    def mend(self) -> list[NotCollected]:
        """Make the folder safe to read and to write, and say what was wrong.  To be called when no process is left."""
        return list(self._mend_folder()) or list(self._mend_files())

    def holds(self, name: str, text: str) -> bool:
        """True if one of our files has this content."""
        with contextlib.suppress(OSError):
            return (self.path / name).read_bytes() == text.encode(errors="backslashreplace")
        return False

    def _mend_folder(self) -> Iterator[NotCollected]:
        """Make a new folder where ours is gone."""
        try:
            status = os.lstat(self.path)
        except OSError:
            status = None
        if status and identity_of(status) == self.identity:
            return
        if status:
            aside(self.path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        what = f"it was replaced by {kind_of(status)}" if status else "it was removed"
        yield NotCollected(what="files in the attempt's folder", why=f"the program did away with the folder: {what}")

    def _mend_files(self) -> Iterator[NotCollected]:
        """Put files of ours aside that are no plain files, cut those that are too long, take rights back."""
        with contextlib.suppress(OSError):
            os.chmod(self.path, 0o700)  # noqa: PTH101
        with os.scandir(self.path) as entries:
            ours = [entry for entry in entries if OURS.fullmatch(entry.name)]
        for entry in ours:
            status = entry.stat(follow_symlinks=False)
            if why := wrong_with(entry.name, status):
                aside(Path(entry.path))
                yield NotCollected(what=entry.name, why=why)
            elif status.st_size > MOST_BYTES and entry.name != "core":
                os.truncate(entry.path, MOST_BYTES)
                yield NotCollected(what=f"the end of {entry.name}", why=f"it had {status.st_size} bytes; {MOST_BYTES} were kept")
            elif not status.st_mode & stat.S_IRUSR:
                os.chmod(entry.path, 0o600)  # noqa: PTH101


def wrong_with(name: str, status: os.stat_result) -> str:
    """Reason why an entry cannot be one of our files; "" if it can."""
    if not stat.S_ISREG(status.st_mode):
        return f"the program put {kind_of(status)} in its place"
    if name == "observation.json" or name.endswith(".part"):
        return "the program wrote a file of that name"
    if name.startswith(("stacks", "maps", "valgrind")) and not NUMBERED.fullmatch(name):
        return "the program wrote a file of a name of ours"
    return ""


def kind_of(status: os.stat_result) -> str:
    """Words for the kind of a directory entry."""
    return KINDS.get(stat.S_IFMT(status.st_mode), "another file" if stat.S_ISREG(status.st_mode) else "a device")
