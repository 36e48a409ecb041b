"""The launch configuration to use now, as a shell script: the command of a run that survived with the fix."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex

from matrix.records import Attempt, Cell, Fix, Observation
from reports.ending import ending
from reports.folder import AttemptFolder, RunFolder
from reports.redact.command import Secrets, secrets_in_command
from reports.text import at_most, clean_runs, duration, one_line, plural

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OUT = "\ue000"  # stands for the attempt's folder until everything else is quoted; a private character that no command line holds

_SECRET = "\ue001"  # stands before and after the name of the variable that a secret is taken from
_INSERTED = re.compile(f"({_OUT}|{_SECRET}[A-Z0-9_]+{_SECRET})", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    body: str  # what runs; shown in the report
    script: str  # the body with its comments
    attempt: str  # whose command it is


def cell_key(cell: Cell) -> str:
    """Equal for equal cells; unlike `==` it tells 1 from True."""
    return json.dumps(cell, sort_keys=True)


def launch(folder: RunFolder) -> Launch | str | None:
    """The launch configuration; a sentence when there is a fix but no command for it; None without a fix."""
    fix = folder.verdict.fix if folder.verdict else None
    if fix is None:
        return None
    source = _source(folder, fix)
    if source is None:
        return "There is no script, because no readable run survived with exactly this configuration."
    attempt, observation = source
    if "\0" in "".join([*attempt.argv, *attempt.env.values(), *fix.env.values()]):
        return f"There is no script, because the command of attempt {attempt.id} holds a null byte."
    body = _body(folder, attempt, fix)
    comments = [*_comments(folder, fix), *_length_note(attempt, observation)]
    script = "#!/bin/sh\n" + "".join(f"# {one_line(text)}\n" for text in comments) + body
    return Launch(body=body, script=script, attempt=attempt.id)


def _source(folder: RunFolder, fix: Fix) -> tuple[Attempt, Observation] | None:
    """The attempt to take the command from: to the natural end, made to verify, without probes, in that order."""
    survived = [
        (found.attempt, seen)
        for found, seen in folder.observed
        if found.attempt and cell_key(seen.trial.cell) == cell_key(fix.cell) and ending(seen, folder.verdict).kind == "survived"
    ]
    return max(survived, key=lambda pair: _preference(pair[1]), default=None)


def _preference(observation: Observation) -> tuple[bool, bool, bool]:
    trial = observation.trial
    return trial.max_steps is None, trial.purpose == "verify", not trial.probes


def fixed_runs(folder: RunFolder, fix: Fix) -> list[tuple[AttemptFolder, Observation]]:
    """The complete runs of the fixed configuration."""
    return [pair for pair in folder.observed if cell_key(pair[1].trial.cell) == cell_key(fix.cell)]


# ------------------------------------------------------------------ the part that runs
def _body(folder: RunFolder, attempt: Attempt, fix: Fix) -> str:
    env = {name: _without_folder(value, folder, attempt) for name, value in {**attempt.env, **fix.env}.items()}
    argv = [_without_folder(word, folder, attempt) for word in attempt.argv]
    secrets = secrets_in_command(argv, env)
    env = {name: _without_secrets(value, secrets) for name, value in env.items()}
    argv = [_without_secrets(word, secrets) for word in argv]
    lines = ["set -eu", *(f': "${{{name}:?set {name} first: the report keeps no secret}}"' for name in secrets.values())]
    if any(_OUT in word for word in [*argv, *env.values()]):
        lines += ["out=${1:-run-$(date +%Y%m%d-%H%M%S)}  # where this run writes", 'mkdir -p -- "$out"', 'out=$(cd -- "$out" && pwd)']
    cwd = _without_folder(attempt.cwd, folder, attempt)
    lines.append(f"cd -- {shlex.quote(cwd)}" if _OUT not in cwd else "# the runs had a working folder of their own: start this in yours")
    lines += [f"export {name}={_quoted(value)}" for name, value in env.items() if _NAME.fullmatch(name)]
    return "\n".join([*lines, _command(argv)]) + "\n"


def _command(argv: list[str]) -> str:
    """`exec program \\` and one option with its values a line."""
    lines: list[list[str]] = [["exec"]]
    for position, word in enumerate(argv):
        if word.startswith("--") and position:
            lines.append([])
        lines[-1].append(_quoted(word))
    return " \\\n  ".join(" ".join(words) for words in lines)


def _quoted(word: str) -> str:
    """The word for a shell; the attempt's folder becomes "$out", a secret the variable that holds it."""
    parts = [part for part in _INSERTED.split(word) if part]
    return "".join(_inserted(part) if _INSERTED.fullmatch(part) else shlex.quote(part) for part in parts) or "''"


def _inserted(part: str) -> str:
    return '"$out"' if part == _OUT else f'"${{{part.strip(_SECRET)}}}"'


def _without_secrets(word: str, secrets: Secrets) -> str:
    for secret, name in secrets.items():
        word = word.replace(secret, f"{_SECRET}{name}{_SECRET}")
    return word


def _without_folder(word: str, folder: RunFolder, attempt: Attempt) -> str:
    """The run folder may have been moved since, or was given as a relative path, so its old place is found by its form."""
    here = str(folder.path.resolve() / "attempts" / attempt.id)
    moved = re.compile(r"(^|(?<=[=:,]))(?:[^=:,]*/)?attempts/" + re.escape(attempt.id) + r"(?=$|[/=:,])")
    return moved.sub(_OUT, word.replace(here, _OUT))


# ------------------------------------------------------------------ the part that explains
def _comments(folder: RunFolder, fix: Fix) -> list[str]:
    name = folder.verdict.name if folder.verdict else ""
    wanted = [f"{axis}={value}" for axis, value in {**fix.set, **fix.env}.items()]
    comments = [f"Launch configuration for {name}, written by the report of run {folder.path.resolve().name}.", f"Fix: {' '.join(wanted)}"]
    comments += [f"Set this limit first: {name}={value}" for name, value in fix.limits.items()]
    comments += [f"Needs the package {name}=={version}" for name, version in fix.packages.items()]
    return [*comments, f"Verified: {verified(fix)}", f"Not verified: {not_verified(folder, fix)}"]


def verified(fix: Fix) -> str:
    """One sentence on what was tried."""
    if not fix.clean_runs:
        return "nothing; no fresh run with this configuration has ended without a death yet."
    steps = f" with {plural(fix.clean_steps, 'step')} in all" if fix.clean_steps else ""
    bound = fix.failure_rate_upper_95
    limit = f"; {at_most(bound)}" if bound else ""
    state = "" if fix.verified else " That is not enough yet to call it verified."
    return f"{clean_runs(fix)}{steps}, none died{limit}.{state}"


def not_verified(folder: RunFolder, fix: Fix) -> str:
    """One sentence on what the runs with the fix say nothing about."""
    runs = [seen for _, seen in fixed_runs(folder, fix)]
    if not runs:
        return "anything; no run of this configuration can be read here."
    steps = max((seen.progress.last_step or 0 for seen in runs), default=0)
    longest = f"{duration(max(seen.wall_s for seen in runs))}" + (f" or step {steps:,}" if steps else "")
    return f"anything after {longest} of one run, which is how far the longest went, and any other machine, data or version."


def _length_note(attempt: Attempt, observation: Observation) -> list[str]:
    asked = observation.trial.max_steps
    if asked is None or str(asked) not in attempt.argv:
        return []
    return [f"The run that this command was taken from was asked for {asked} steps only: change {asked} below to the length that you need."]
