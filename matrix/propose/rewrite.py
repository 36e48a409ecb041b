"""The command as every attempt is to run it: without what the matrix sets, writing to a folder of its own, and of a length that ends."""

from __future__ import annotations

import dataclasses
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.propose.facts import Facts
from matrix.propose.places import Place, escaped
from matrix.propose.proposals import Proposal
from matrix.propose.settings import Setting
from matrix.propose.words import PYTHON, CommandLine
from matrix.spec import placeholders

SEVERAL = 3  # times the step at which it died: what survives that long has passed it


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
    command: CommandLine,
    settings: Sequence[Setting],
    chosen: Sequence[Proposal],
    places: Sequence[Place],
    facts: Facts | None,
    env: Mapping[str, str],
) -> Rewritten:
    changes = Changes()
    removed = [given for proposal in chosen for given in proposal.removes]
    for given in removed:
        changes.replaced |= {index: [] for index in range(given.start, given.end)}
    length = None
    if not command.closed:
        _write_elsewhere(places, changes)
        length = _length(settings, facts, changes)
    words = [new for index, word in enumerate(command.words) for new in changes.replaced.get(index, [escaped(word)])]
    words[:1] = [_interpreter(words[0], env)] if command.words[0] not in ("", *changes.replaced) else words[:1]
    return Rewritten(words=[*words, *changes.added], length=length, remarks=changes.remarks)


def _write_elsewhere(places: Sequence[Place], changes: Changes) -> None:
    """Let each attempt write to a folder of its own, and say in one line what was redirected."""
    for place in places:
        changes.set(place.setting, f"{{attempt_dir}}/{placeholders.escape(place.name)}")
    if places:
        moved = ", ".join(place.shown + (" (its default)" if place.setting.is_default else "") for place in places)
        changes.remarks.append(f"redirected into a folder of each attempt: {moved}")


def _interpreter(word: str, env: Mapping[str, str]) -> str:
    """A bare `python` is the tool's own interpreter to the matrix; where the shell means another one, its full path."""
    if word not in ("python", "python3") or not PYTHON.fullmatch(word):
        return word
    found = shutil.which(word, path=env.get("PATH"))
    return word if found is None or Path(found).parent == Path(sys.executable).parent else found


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
