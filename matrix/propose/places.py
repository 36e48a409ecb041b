"""Where a program writes: what each attempt gets a folder of its own for, and what stays because the death may be about the place."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from matrix.propose.facts import Facts
from matrix.propose.settings import Setting
from matrix.spec import placeholders
from matrix.spec.problems import Refused

ALWAYS_WRITTEN = ("output_dir", "default_root_dir")  # these are written to the working folder when nobody names them
NOTHING = ("", "none", "null", "false", "true", "stdout", "-")
TEMP = "TMPDIR"
OF_ATTEMPTS = Path("/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir())  # where the tool makes temporary folders
GIB = 1 << 30
TINY_BYTES = 2 * GIB
LITTLE_FREE = 0.03
ABOUT_ROOM = ("no space", "file too large")
ABOUT_RIGHTS = re.compile(r"read-only file system|permission denied|operation not permitted|\[errno (?:13|30)\]", re.IGNORECASE)
LEAST_LETTERS = 3  # a shorter name is found in every log
# What --help says of an option that is written to, whatever its name: "path to save the final model".
WRITES = re.compile(
    r"\b(?:sav(?:e|es|ed|ing)|writ(?:e|es|ten|ing)|stor(?:e|es|ed|ing)|dump(?:s|ed)?|export(?:s|ed)?|output)\b.{0,40}"
    r"\b(?:to|in|into|at|path|file|folder|dir|directory|prefix)\b|\b(?:path|folder|directory|file|where)\b.{0,40}"
    r"\b(?:sav(?:e|ed|ing)|writ(?:e|ten)|stored?|dump(?:ed)?|export(?:ed)?|output)\b",
    re.IGNORECASE,
)
READS = re.compile(r"\b(?:load|read|resume|restore|pre-?trained|input|dataset|from)\b", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A place that the program writes to and that a setting names."""

    setting: Setting
    written: str  # as the command or the default names it; "" where the default names no path
    name: str  # in the attempt's folder
    why_kept: str = ""  # the reason to let the job write where it does; "": every attempt gets a folder of its own

    @property
    def shown(self) -> str:
        """Return the option with the place, for people: `--out runs/x`."""
        return f"{self.setting.flag.rstrip('=')} {self.written}".rstrip()


def escaped(word: str) -> str:
    """Return the word as a specification has it: one that holds the tool's placeholders stays, other braces are doubled."""
    try:
        if any(placeholders.used(word)) and placeholders.check(word):
            return word
    except Refused:
        pass
    return placeholders.escape(word)


def written_places(settings: Sequence[Setting], facts: Facts | None, cwd: Path, runs: Path) -> list[Place]:
    """Return the places that the settings name; `runs`: the folder that the attempts' folders will be in."""
    found = []
    for setting in settings:
        if is_output(setting) and (name := _name_in_the_attempt(setting)):
            written = setting.value if _is_path(setting.value, given=setting.given is not None) else ""
            found.append(Place(setting=setting, written=written or "", name=name))
    named = [place for place in found if _is_named_at_the_end(place, facts, cwd)]
    return [_with_reason(place, named, facts, cwd, runs) for place in found]


def is_output(setting: Setting) -> bool:
    """True if the setting's name or what --help says of it tells that the program writes there."""
    if setting.variable:
        return False
    if setting.role is not None or setting.option is None:
        return setting.role == "output"
    text = setting.option.text.partition("\n\n")[0]
    looks = _looks_like_a_path(setting.value)
    return looks and bool(WRITES.search(text)) and not READS.search(text)


def _looks_like_a_path(value: str | None) -> bool:
    if value is None or not _is_path(value):
        return False
    return "/" in value or bool(re.search(r"\.[A-Za-z]\w{0,5}$", value))


def _name_in_the_attempt(setting: Setting) -> str | None:
    """The last part of the path; None: nothing is written there, or the value is no path."""
    plain = setting.name.rpartition(".")[2].replace("-", "_")
    if setting.given is None and plain not in ALWAYS_WRITTEN and not _is_path(setting.value):
        return None
    if setting.option and setting.option.takes in ("nothing", "many"):
        return None
    if setting.given and not _is_path(setting.value, given=True):
        return None
    name = PurePath(setting.value or "").name if _is_path(setting.value) else ""
    return "out" if name in ("", ".", "..", "attempt_dir") or "{" in name else name


def _is_path(value: str | None, *, given: bool = False) -> bool:
    """A word that can name a folder or file.  Of defaults only what looks like one: a default may be a title, or a sentence."""
    if value is None or value.lower() in NOTHING or re.fullmatch(r"[-+.\d]+", value) or "://" in value or "{" in value:
        return given and value in (".", "..")
    return given or not re.search(r"[\s<>|*?]", value)


def why_temp_stays(env: Mapping[str, str], facts: Facts | None) -> str:
    """Return why the shell's folder for temporary files may matter; "" when the tool may give every attempt one of its own."""
    named = env.get(TEMP, "")
    target = Path(named)
    if not named or not target.is_dir():
        return ""
    why = _what_the_disk_says(target, _device(target) != _device(OF_ATTEMPTS))
    if not why and facts and facts.died and any(named.rstrip("/") + "/" in word for word in (*facts.words, facts.error_message)):
        why = "the log names it"
    return why


# ------------------------------------------------------------------ why a place stays
def _with_reason(place: Place, named: Sequence[Place], facts: Facts | None, cwd: Path, runs: Path) -> Place:
    """The place with the reason to keep it: what the log says of it, then what its file system says."""
    target = _existing_above(cwd / (place.written or "."))
    elsewhere = _device(target) != _device(_existing_above(runs))
    why = _what_the_log_says(place, named, facts) or _what_the_disk_says(target, elsewhere)
    return dataclasses.replace(place, why_kept=why)


def _what_the_log_says(place: Place, named: Sequence[Place], facts: Facts | None) -> str:
    if facts is None or not facts.died:
        return ""
    if named and place not in named:
        return ""
    said = [*facts.words, facts.error_message]
    line = next((text for text in said if ABOUT_RIGHTS.search(text)), "")
    line = line or next((text for kind, text in facts.messages if kind in ABOUT_ROOM), "")
    if line:
        return f"the log says {_short(line)!r}"
    return "the last lines of the log name this place" if named and facts.error else ""


def _short(line: str) -> str:
    return line if len(line) <= 80 else f"{line[:77]}..."


def _is_named_at_the_end(place: Place, facts: Facts | None, cwd: Path) -> bool:
    """True if the log's last words name the place, as it is written or in full."""
    if facts is None or len(place.written.strip("./")) < LEAST_LETTERS:
        return False
    said = "\n".join([*facts.words, facts.error_message, *facts.last_lines])
    written = place.written.rstrip("/").removeprefix("./")
    forms = "|".join(re.escape(form) for form in (written, str((cwd / written).resolve())))
    return bool(re.search(rf"(?<![\w./-])(?:\./)?(?:{forms})(?![\w-])", said))


def _what_the_disk_says(target: Path, elsewhere: bool) -> str:
    try:
        disk, flags = shutil.disk_usage(target), os.statvfs(target).f_flag
    except OSError:
        return ""
    if flags & os.ST_RDONLY or not os.access(target, os.W_OK):
        return f"{target} cannot be written to"
    if not elsewhere:
        return ""
    if disk.total < TINY_BYTES:
        return f"its file system is small: {_amount(disk.total)}, {_amount(disk.free)} free"
    return f"its file system is nearly full: {_amount(disk.free)} free" if disk.free < LITTLE_FREE * disk.total else ""


def _amount(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size >> 20} MiB"


def _existing_above(path: Path) -> Path:
    path = path.resolve()
    return next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))


def _device(path: Path) -> int:
    return path.stat().st_dev
