"""SUMMARY.md: one page for an expert who knows nothing of the run: the question, the verdict, the doubts, what was tried, what is asked."""

from __future__ import annotations

from matrix.records import Observation, Ranked, Verdict, describe_cell
from reports.ending import ending, how_it_ended
from reports.folder import AttemptFolder, RunFolder
from reports.package.choose import Chosen, distance
from reports.render_markdown import code, escape
from reports.text import clean_runs, duration, interval, listed, one_line, percent, plural, sentence, size
from reports.words import clause, title

MOST = 4  # lines of a list, so that it stays one page


def summary(folder: RunFolder, chosen: Chosen, kind: str) -> str:
    verdict = folder.verdict
    name = verdict.name if verdict else folder.plan.name if folder.plan else "unnamed run"
    parts = [
        f"# {escape(name)}: a training job to look at",
        "## The question",
        *_question(folder, chosen),
        "## The verdict so far",
        *_verdict(verdict),
        "## The doubts",
        _bullets(_doubts(verdict)),
        "## What was tried",
        _bullets(_tried(folder, verdict)),
        "## What is asked of you",
        _bullets(_asked(verdict, chosen)),
        "## Where to look",
        _bullets(_where(chosen, kind)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _question(folder: RunFolder, chosen: Chosen) -> list[str]:
    died = [seen for _, seen in folder.observed if ending(seen, folder.verdict).kind == "died"]
    failing = chosen.failing.observation if chosen.failing else None
    if failing is None:
        return ["Does this job fail at all? No complete attempt in this package ended in a failure."]
    again = f" {plural(len(died), 'run')} of {len(folder.observed)} ended in a failure."
    last = one_line(failing.progress.last_line, 160)
    words = f"; the last line that it printed was {code(last)}" if last else ""
    step = f" at step {failing.progress.last_step:,}" if failing.progress.last_step is not None else " before its first step"
    asked = f"Why does the job end with {escape(how_it_ended(failing))}{step}{words}?{again}"
    return [asked, f"The configuration that fails: {code(describe_cell(failing.trial.cell))}. {_machine(folder)}"]


def _machine(folder: RunFolder) -> str:
    machine = folder.plan.machine if folder.plan else None
    if machine is None:
        return ""
    system = f"{machine.system} {machine.kernel} on {machine.machine}"
    power = f"{plural(machine.cpus, 'processor')}, {size(machine.memory_bytes)} of memory"
    return f"Machine: {escape(system)}, {power}, Python {escape(machine.python)}."


def _verdict(verdict: Verdict | None) -> list[str]:
    if verdict is None or not verdict.ranking:
        return ["There is none yet."]
    first = verdict.ranking[0]
    words = f"**{escape(title(first))}** ({first.grade}, probability {percent(first.probability)})"
    lines = [f"{words}: {escape(sentence(first.summary or clause(first)))}"]
    if verdict.crash_rate and verdict.status not in ("healthy", "not_reproduced"):
        lines.append(f"The configuration above fails {interval(verdict.crash_rate)}.")
    if fix := verdict.fix:
        tested = f"{clean_runs(fix)} without a failure" if fix.clean_runs else "not tried on fresh runs"
        lines.append(
            f"What helps: {code(describe_cell(fix.set))} ({fix.kind}; {tested}). {escape(sentence(fix.advice)) if fix.advice else ''}"
        )
    return lines


def _doubts(verdict: Verdict | None) -> list[str]:
    if verdict is None or not verdict.ranking:
        return ["Everything: nothing was concluded."]
    first, *others = verdict.ranking
    lines = [] if verdict.complete else ["The matrix is not finished; all of this can change."]
    lines += [f"speaks against it: {escape(one_line(fact.fact, 200))}" for fact in first.contradicts[:2]]
    lines += [_other(entry) for entry in others[:2] if entry.cause != "unknown"]
    unknown = next((entry for entry in verdict.ranking if entry.cause == "unknown"), None)
    lines += [f"a cause that is not in the catalogue: probability {percent(unknown.probability)}"] if unknown else []
    lines += [f"not collected: {escape(entry.what)}, because {escape(one_line(entry.why, 160))}" for entry in first.not_collected[:MOST]]
    return [*lines, *(escape(one_line(text, 200)) for text in verdict.never_tested[:MOST])]


def _other(entry: Ranked) -> str:
    summary = f": {escape(one_line(entry.summary, 160))}" if entry.summary else ""
    return f"{escape(title(entry))} is still possible ({percent(entry.probability)}){summary}"


def _tried(folder: RunFolder, verdict: Verdict | None) -> list[str]:
    axes = [f"{axis.name} ({', '.join(map(str, axis.values[:6]))})" for axis in (folder.plan.axes if folder.plan else [])]
    lines = [f"{plural(verdict.runs, 'run')} with {plural(verdict.steps, 'step')} in {duration(verdict.wall_s)}"] if verdict else []
    lines += [f"axes: {escape(listed(axes, 12))}"] if axes else []
    for fix in (verdict.other_fixes if verdict else [])[:MOST]:
        lines.append(f"{code(describe_cell(fix.set))} {fix.kind} it{': ' + escape(one_line(fix.why, 160)) if fix.why else ''}")
    ruled_out = [title(entry) for entry in (verdict.ruled_out if verdict else [])]
    return [*lines, *([f"ruled out: {escape(listed(ruled_out))}"] if ruled_out else [])] or ["nothing yet"]


def _asked(verdict: Verdict | None, chosen: Chosen) -> list[str]:
    first = verdict.ranking[0] if verdict and verdict.ranking else None
    if first is None or first.cause == "unknown":
        lines = ["Which cause explains the stacks and the memory curves of the attempts below?"]
    elif first.cause == "healthy":
        lines = ["Is there a failure that these runs cannot show? What would have to be run to see it?"]
    else:
        lines = [f"Is the cause named above right ({escape(title(first))})? What in the stacks or curves contradicts it?"]
        lines.append("Is the fix safe for a long run, or is there a better one?")
    replay = f"Does {code('python3 reproduce.py')} end on your machine as it did here?" if chosen.failing else ""
    return [*lines, *([replay] if replay else [])]


def _where(chosen: Chosen, kind: str) -> list[str]:
    lines = ["`report.html` (or `report.md`): everything that was found, with its evidence"]
    if chosen.failing:
        lines.append(f"`attempts/{chosen.failing.id}/`: a run that fails ({_files(chosen.failing)})")
    if chosen.surviving:
        lines.append(f"`attempts/{chosen.surviving.id}/`: the nearest run that survives{_differs(chosen)}")
    lines += ["`environment.json`: the machine and the interpreter's packages; `MANIFEST.json`: every file, and what is not here and why"]
    lines += ["`REDACTION.md`: what was taken out; `reproduce.py`, `scripts/`, `program/`: to run both again without this tool"]
    return [*lines, f"this is the {kind} package; links of the report to attempts that are not packed lead nowhere"]


def _files(found: AttemptFolder) -> str:
    there = [name for name in ("stderr.log", "stacks.txt", "native_stacks.txt", "maps.txt", "memory.csv") if (found.path / name).is_file()]
    return ", ".join(there) or "no files"


def _differs(chosen: Chosen) -> str:
    one, other = _seen(chosen.failing), _seen(chosen.surviving)
    if one is None or other is None:
        return ""
    axes = [axis for axis in {**one.trial.cell, **other.trial.cell} if one.trial.cell.get(axis) != other.trial.cell.get(axis)]
    if not distance(one.trial.cell, other.trial.cell):
        return ", of the same configuration"
    return f", with {code(describe_cell({axis: other.trial.cell[axis] for axis in axes if axis in other.trial.cell}))}"


def _seen(found: AttemptFolder | None) -> Observation | None:
    return found.observation if found else None
