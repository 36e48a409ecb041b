"""Deaths that people had before the matrix: what their logs prove, and what differs when no run here dies.

A survival here never outweighs a death elsewhere.  So the matrix names every difference that it knows of.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matrix.diagnosis import catalogue
from matrix.diagnosis.verdict import Earlier
from matrix.records import Fact, Observation, Outcome, Ranked, describe_cell
from matrix.spec import Spec
from matrix.spec.model import Observed

ATTEMPT_FOLDER = "{attempt_dir}"
QUOTED_PATH = re.compile(r"""['"](/[^'"\n]{1,300})['"]""")
PATHS_SHOWN = 2
ENOUGH_SURVIVALS = 4
EVERY_TIME = 0.8  # of a cause: how likely its death is to come in every run
LOG_TAIL_BYTES = 64 << 10
LIMIT_NAMES = {
    "memory_bytes": "memory",
    "cpus": "processors",
    "nofile": "open files",
    "stack_bytes": "stack",
    "pids": "processes",
    "cpu_time_s": "processor time",
    "wall_s": "time",
}


def earlier_deaths(
    spec: Spec, log_rankings: Mapping[str, list[Ranked]], observations: Sequence[Observation], outcomes: Mapping[str, Outcome]
) -> Earlier | None:
    """Return what is known of the deaths in `observed`; None when the specification lists none."""
    deaths = [entry for entry in spec.observed if entry.died]
    if not deaths:
        return None
    ranking = next((log_rankings[entry.log] for entry in deaths if entry.log and entry.log in log_rankings), [])
    return Earlier(
        steps=[entry.step for entry in deaths if entry.step is not None],
        logs=[entry.log for entry in deaths if entry.log],
        ranking=ranking,
        differences=list(_differences(spec, deaths, observations, outcomes)),
    )


def why_repeats_are_useless(
    spec: Spec, log_rankings: Mapping[str, list[Ranked]], observations: Sequence[Observation], outcomes: Mapping[str, Outcome]
) -> str | None:
    """Return why further runs of the known-bad cell would survive as well; None while they may still die."""
    runs = [run for run in observations if run.trial.cell == spec.known_bad]
    survived = [run for run in runs if outcomes[run.attempt].kind == "survived"]
    if len(survived) < ENOUGH_SURVIVALS or any(outcomes[run.attempt].kind == "died" for run in observations):
        return None
    steps = [entry.step for entry in spec.observed if entry.died and entry.step is not None]
    furthest = max(run.progress.last_step or 0 for run in survived)
    if spec.run.length is None and steps and 0 < furthest < min(steps):
        return f"no run comes to step {min(steps)}, where the observed death was"
    first = next((ranking[0] for ranking in log_rankings.values()), None)
    if first and first.grade == "supported" and catalogue.ENTRIES[first.cause].every_time >= EVERY_TIME:
        return f"{first.cause}, which the log of the observed death shows, comes in every run, and not in these"
    return None


# ------------------------------------------------------------------ what the logs prove
def rank_by_log(spec: Spec) -> dict[str, list[Ranked]]:
    """Return the causes that each readable log of a death proves, by the log's name in the specification."""
    names = {entry.log for entry in spec.observed if entry.died and entry.log}
    found = {name: _ranking_of_log(spec.base_dir / name, name) for name in sorted(names)}
    return {name: ranking for name, ranking in found.items() if ranking}


def _ranking_of_log(path: Path, name: str) -> list[Ranked]:
    """Return [] for a log that cannot be read or proves nothing."""
    from matrix.explain import recognise, remains, sources  # here: most specifications name no log

    try:
        with sources.opened((str(path),)) as opened:
            explained = remains.explain(recognise.read_all(opened))
    except (sources.Unreadable, OSError, ValueError):
        return []
    return [_told_by_log(entry, name) for entry in explained.ranking]


def _told_by_log(entry: Ranked, name: str) -> Ranked:
    """Name the log as the source of every fact: no attempt of this matrix holds the facts."""
    supports = [Fact(fact=f"{fact.fact} (log of the observed death, {name})") for fact in entry.supports]
    contradicts = [Fact(fact=f"{fact.fact} (log of the observed death, {name})") for fact in entry.contradicts]
    return dataclasses.replace(entry, supports=supports, contradicts=contradicts)


# ------------------------------------------------------------------ what differs
def _differences(
    spec: Spec, deaths: Sequence[Observed], observations: Sequence[Observation], outcomes: Mapping[str, Outcome]
) -> Iterator[str]:
    yield from _cell_differences(spec, deaths)
    yield from _length_differences(spec, deaths, observations, outcomes)
    yield from _place_differences(spec, deaths)
    yield _limit_difference(spec)
    yield _environment_difference(spec)


def _cell_differences(spec: Spec, deaths: Sequence[Observed]) -> Iterator[str]:
    for entry in deaths:
        changed = {axis: value for axis, value in entry.cell.items() if spec.known_bad.get(axis) != value}
        if changed:
            yield f"that death was with {describe_cell(changed)}, and known_bad has other values: name the same ones there"


def _length_differences(
    spec: Spec, deaths: Sequence[Observed], observations: Sequence[Observation], outcomes: Mapping[str, Outcome]
) -> Iterator[str]:
    steps = [entry.step for entry in deaths if entry.step is not None]
    runs = [run for run in observations if run.trial.cell == spec.known_bad]
    cut_off = [run for run in runs if outcomes[run.attempt].kind == "censored"]
    if cut_off:
        yield f"{len(cut_off)} of the {len(runs)} runs were cut short ({outcomes[cut_off[0].attempt].reason})"
    if not steps:
        return
    furthest = max((run.progress.last_step or 0 for run in runs), default=0)
    if not furthest:
        yield f"that death came at step {min(steps)}, and no step was recognised in these runs: name run.progress"
    elif furthest < min(steps):
        yield f"that death came at step {min(steps)}, and the longest of these runs ended at step {furthest}: ask for longer runs"


def _place_differences(spec: Spec, deaths: Sequence[Observed]) -> Iterator[str]:
    redirected = _redirected_settings(spec)
    if redirected:
        free = shutil.disk_usage(spec.base_dir).free >> 20
        where = f"the folder of each attempt ({free} MiB free)"
        advice = "give the old place back, or make the place an axis"
        yield f"{' and '.join(redirected)} led into {where}, not to where that run wrote: {advice}"
    if spec.run.writes:
        yield f"{', '.join(spec.run.writes)}: each run wrote to a private copy in the temp folder (run.writes)"
    paths = dict.fromkeys(path for entry in deaths for path in _paths_in_log(spec, entry))
    for path in list(paths)[:PATHS_SHOWN]:
        yield f"the log of that death names {path}{_room_at(path)}"


def _redirected_settings(spec: Spec) -> list[str]:
    """Return the flags and variables whose value lies in the attempt's folder."""
    words, found = spec.run.command, []
    for number, word in enumerate(words):
        if ATTEMPT_FOLDER in word:
            flag = word.split("=")[0] if word.startswith("-") else words[number - 1]
            found.append(flag if flag.startswith("-") else word)
    return found + [name for name, value in spec.run.env.items() if ATTEMPT_FOLDER in value]


def _paths_in_log(spec: Spec, entry: Observed) -> list[str]:
    """Return the absolute paths that the end of a log quotes, as exceptions about files do."""
    if not entry.log:
        return []
    try:
        with (spec.base_dir / entry.log).open("rb") as source:
            source.seek(max(0, source.seek(0, 2) - LOG_TAIL_BYTES))
            text = source.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [path for line in text.splitlines() if "Error" in line for path in QUOTED_PATH.findall(line)]


def _room_at(path: str) -> str:
    """Describe the file system of a path, of which the nearest folder that exists tells."""
    there = next((parent for parent in [Path(path), *Path(path).parents] if parent.exists()), None)
    if there is None:
        return ""
    return f", where {shutil.disk_usage(there).free >> 20} MiB are free now"


def _limit_difference(spec: Spec) -> str:
    limits = [name for field, name in LIMIT_NAMES.items() if getattr(spec.limits, field) is not None]
    ours = f"these runs had limits on {', '.join(limits)}" if limits else "these runs had no limits of their own"
    memory = "" if spec.limits.memory_bytes else ", so none on memory (limits.memory sets one)"
    return f"{ours}{memory}; what that run had is not known"


def _environment_difference(spec: Spec) -> str:
    unbuffered = "PYTHONUNBUFFERED and " if spec.run.unbuffered else ""
    return f"these runs had {unbuffered}a temp folder of their own; the machine, variables and other jobs may differ"
