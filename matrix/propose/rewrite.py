"""The command as every attempt is to run it: without what the matrix sets, writing to a folder of its own, and of a length that ends."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from matrix.propose.facts import Facts
from matrix.propose.proposals import Proposal
from matrix.propose.settings import Setting
from matrix.propose.words import PYTHON, CommandLine
from matrix.spec import placeholders
from matrix.spec.problems import Refused

ALWAYS_WRITTEN = ("output_dir", "default_root_dir")  # what these are for is written to the working folder when nobody names them
SEVERAL = 3  # times the step at which it died: what survives that long has passed it
NOTHING = ("", "none", "null", "false", "true", "stdout", "-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewritten:
    words: list[str]  # with placeholders, braces doubled
    length: str | None = None  # flag that takes a number of steps
    remarks: list[str] = dataclasses.field(default_factory=list)  # what was changed, and why


@dataclasses.dataclass
class Changes:
    """Of the words: those that are replaced, by index, and those that are added at the end."""

    replaced: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    added: list[str] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)

    def set(self, setting: Setting, value: str) -> None:
        """The flag with another value, in its place or at the end."""
        words = [setting.flag + value] if setting.flag.endswith("=") else [setting.flag, value]
        if setting.given is None:
            self.added += words
        else:
            self.replaced |= {index: [] for index in range(setting.given.start, setting.given.end)} | {setting.given.start: words}


def rewrite(
    command: CommandLine, settings: Sequence[Setting], chosen: Sequence[Proposal], facts: Facts | None, env: Mapping[str, str]
) -> Rewritten:
    changes = Changes()
    for proposal in chosen:
        if proposal.removes:
            changes.replaced |= {index: [] for index in range(proposal.removes.start, proposal.removes.end)}
    if removed := [proposal.removes.flag.rstrip("=") for proposal in chosen if proposal.removes]:
        changes.remarks.append(f"set by the matrix: {', '.join(removed)}")
    length = None
    if not command.closed:
        _write_elsewhere(settings, changes)
        length = _length(settings, facts, changes)
    words = [new for index, word in enumerate(command.words) for new in changes.replaced.get(index, [escaped(word)])]
    words[:1] = [_interpreter(words[0], env)] if command.words[0] not in ("", *changes.replaced) else words[:1]
    return Rewritten(words=[*words, *changes.added], length=length, remarks=changes.remarks)


def escaped(word: str) -> str:
    """A word that holds one of the tool's placeholders stays; other braces are doubled."""
    try:
        if any(placeholders.used(word)) and placeholders.check(word):
            return word
    except Refused:
        pass
    return placeholders.escape(word)


def _interpreter(word: str, env: Mapping[str, str]) -> str:
    """A bare `python` is the tool's own interpreter to the matrix; where the shell means another one, its full path."""
    if word not in ("python", "python3") or not PYTHON.fullmatch(word):
        return word
    found = shutil.which(word, path=env.get("PATH"))
    return word if found is None or Path(found).parent == Path(sys.executable).parent else found


# ------------------------------------------------------------------ where it writes
def _write_elsewhere(settings: Sequence[Setting], changes: Changes) -> None:
    moved: list[str] = []
    for setting in settings:
        if setting.role == "output" and (name := _output_name(setting)):
            changes.set(setting, f"{{attempt_dir}}/{placeholders.escape(name)}")
            moved.append(setting.flag.rstrip("="))
    if moved:
        changes.remarks.append(f"every attempt writes to a folder of its own: {', '.join(moved)}")


def _output_name(setting: Setting) -> str | None:
    """The last part of the path; None: it writes nothing there, or that is no path."""
    plain = setting.name.rpartition(".")[2].replace("-", "_")
    if setting.given is None and plain not in ALWAYS_WRITTEN and not _is_path(setting.value):
        return None
    if setting.variable or (setting.option and setting.option.takes in ("nothing", "many")):
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


# ------------------------------------------------------------------ how long it runs
def _length(settings: Sequence[Setting], facts: Facts | None, changes: Changes) -> str | None:
    """The flag for the number of steps.  Where a log shows the death, the run is made to end a while after it."""
    steps = next((setting for setting in settings if setting.role == "steps" and setting.flag and _is_count(setting)), None)
    death = facts.last_step if facts and facts.died else None
    if steps is None:
        _fewer_epochs(settings, facts, changes)
        return None
    asked = steps.number if steps.given else facts.total_steps if facts else None
    if death and (asked is None or asked > SEVERAL * death):
        enough = _rounded(SEVERAL * death)
        changes.set(steps, str(enough))
        changes.remarks.append(f"{steps.flag.rstrip('=')} {enough}: {SEVERAL} times the step at which it died, so that survivors end")
    return steps.flag


def _is_count(setting: Setting) -> bool:
    takes_one = setting.option is None or setting.option.takes == "one"
    return takes_one and (setting.number is not None if setting.given else True)


def _fewer_epochs(settings: Sequence[Setting], facts: Facts | None, changes: Changes) -> None:
    epochs = next((setting for setting in settings if setting.role == "epochs" and setting.given and setting.number), None)
    if facts is None or not facts.died or epochs is None or facts.epoch is None:
        return
    enough = facts.epoch + 2
    if (epochs.number or 0) > enough:
        changes.set(epochs, str(enough))
        changes.remarks.append(
            f"{epochs.flag.rstrip('=')} {enough}: it died in epoch {facts.epoch}, so survivors need not go on to the end"
        )


def _rounded(steps: int) -> int:
    """Up to two digits that count: 351 becomes 360."""
    unit: int = 10 ** max(0, int(math.log10(steps)) - 1)
    return -(-steps // unit) * unit
