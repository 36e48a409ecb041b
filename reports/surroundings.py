"""How the runs were made, what they say nothing about, how to see it again, what could not be read."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

from matrix.records import Machine, Observation, Plan
from reports.contrast import nearest
from reports.deaths import typical_deaths
from reports.folder import RunFolder
from reports.model import Block, Bullets, Code, Line, Para, Section, Span, code, line, strong
from reports.text import duration, listed, plural, sentence, size
from reports.words import ISOLATION, PURPOSES


def untested(folder: RunFolder) -> Section:
    sentences = folder.verdict.never_tested if folder.verdict else []
    lines = [line(sentence(text)) for text in sentences]
    return Section("untested", "What was never tested", [Bullets(lines) if lines else Para(line("Nothing was recorded as never tested."))])


def how_made(folder: RunFolder) -> Section:
    plan, runs = folder.plan, [seen for _, seen in folder.observed]
    lines = _planned(plan) if plan else [line("plan.json could not be read, so the machine and the plan are not known here.")]
    lines += _ran(folder, runs) if runs else []
    lines += [line(strong("Note: "), sentence(note)) for note in folder.verdict.notes] if folder.verdict else []
    files = [Span(name, folder.href(name)) for name in ("spec.yaml", "plan.json", "verdict.json") if folder.href(name)]
    sources = [line("Written in: ", *[part for span in files for part in (span, Span(" "))][:-1])] if files else []
    return Section("made", "How the runs were made", [Bullets([*lines, *sources])])


def _planned(plan: Plan) -> list[Line]:
    lines = [
        line("Machine: ", _machine(plan.machine)),
        line("Command: ", code(" ".join(plan.command))),
        line(f"Strategy: {plan.strategy}; {plural(plan.jobs, 'run')} at a time"),
    ]
    return [*lines, *(line(strong("Notice: "), sentence(notice)) for notice in plan.notices)]


def _machine(machine: Machine) -> str:
    return (
        f"{machine.system}, kernel {machine.kernel}, {machine.machine}, {plural(machine.cpus, 'processor')}, "
        f"{size(machine.memory_bytes)} of memory, Python {machine.python}, this tool {machine.tool_version}"
    )


def _ran(folder: RunFolder, runs: list[Observation]) -> list[Line]:
    purposes = Counter(seen.trial.purpose for seen in runs)
    made = "; ".join(f"{count} {PURPOSES[purpose]}" for purpose, count in purposes.items())
    levels = Counter(seen.memory.isolation for seen in runs)
    lines = [
        line(f"First run: {_when(runs)}; {duration(sum(seen.wall_s for seen in runs))} of runs in all"),
        line(f"Runs: {made}"),
        *(line(f"Memory isolation ({plural(count, 'run')}): {ISOLATION[level]}") for level, count in levels.items()),
        line(_limits(folder)),
    ]
    return [*lines, *_leftovers(runs)]


def _when(runs: list[Observation]) -> str:
    begin = min(seen.started_unix_s for seen in runs)
    return f"{datetime.fromtimestamp(begin, tz=timezone.utc):%Y-%m-%d %H:%M} UTC" if 0 < begin < 1e11 else "at an unknown time"


def _limits(folder: RunFolder) -> str:
    limits = Counter(found.attempt.memory_limit_bytes for found in folder.attempts if found.attempt)
    words = [f"{size(limit) if limit else 'none'} ({plural(count, 'run')})" for limit, count in limits.items()]
    cpus = {len(found.attempt.cpus) for found in folder.attempts if found.attempt and found.attempt.cpus}
    pinned = f"; pinned to {listed([plural(count, 'processor') for count in sorted(cpus)])}" if cpus else "; not pinned to processors"
    return f"Memory limit: {listed(words) or 'not known'}{pinned}"


def _leftovers(runs: list[Observation]) -> list[Line]:
    dropped, ended = sum(seen.dropped_output_bytes for seen in runs), sum(seen.survivors_ended for seen in runs)
    lines = [line(f"Output: {size(dropped)} were dropped (the head and the tail are kept)")] if dropped else []
    return [*lines, line(f"Left behind: {plural(ended, 'process')} outlived a run and were ended")] if ended else lines


def reproduce(folder: RunFolder) -> Section:
    where = _where(folder)
    typical = typical_deaths(folder)
    failing = typical[0][1] if typical else None
    surviving = nearest(folder, failing) if failing else None
    first = failing or (folder.observed[0][1] if folder.observed else None)
    if first is None:
        return Section("reproduce", "See it again", [Para(line("The matrix:")), Code(f"python -m matrix run {where}/spec.yaml", "command")])
    what = "One run with the same command, environment and limits; exit status 0 when it ends as it did here:"
    blocks: list[Block] = [Para(line(what)), Code(f"python -m matrix replay {where} {first.attempt}", "command")]
    if surviving:
        blocks += [Para(line("The nearest run that survived:")), Code(f"python -m matrix replay {where} {surviving.attempt}", "command")]
    return Section("reproduce", "See it again", blocks)


def _where(folder: RunFolder) -> str:
    """`runs/NAME/STAMP` where the folder lies like that: an absolute path would name its owner."""
    path = folder.path.resolve()
    return "/".join(path.parts[-3:]) if path.parent.parent.name == "runs" else path.name


def unread(folder: RunFolder) -> Section | None:
    lines = [line(sentence(problem)) for problem in folder.problems]
    return Section("unread", "What could not be read", [Bullets(lines)]) if lines else None
