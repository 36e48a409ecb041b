"""Do this now: the fix, its launch command, what was verified; and the workarounds that only hide the failure."""

from __future__ import annotations

from matrix.records import Fix, Verdict
from reports.folder import RunFolder
from reports.launch import Launch, fixed_runs, not_verified, verified
from reports.model import Block, Bullets, Code, Heading, Line, Para, Section, Span, code, line, strong
from reports.text import plural, sentence
from reports.words import FIXES


def do_this_now(folder: RunFolder, found: Launch | str | None) -> Section:
    verdict = folder.verdict
    if verdict and verdict.fix:
        blocks = _fix(folder, verdict.fix, found)
    elif verdict and verdict.differences:
        blocks = _repeat_the_death(verdict)
    else:
        blocks = [Para(_no_fix(verdict, folder))]
    return Section("now", "Do this now", [*blocks, *(_others(folder, verdict) if verdict else [])])


def _fix(folder: RunFolder, fix: Fix, found: Launch | str | None) -> list[Block]:
    kind = f"This {FIXES[fix.kind]}. "
    blocks: list[Block] = [Bullets(_settings(folder, fix)), Para(line(kind, sentence(fix.advice)))]
    if isinstance(found, Launch):
        script = Span("launch.sh", "launch.sh")  # written together with the report
        blocks.append(Para(line("Launch command, as a script in ", script, f" (the command of attempt {found.attempt}):")))
        blocks.append(Code(found.body, "launch command"))
    elif found:
        blocks.append(Para(line(found)))
    return [*blocks, Bullets(_trust(folder, fix))]


def _repeat_the_death(verdict: Verdict) -> list[Block]:
    """Nothing died here: list what to bring back before the next matrix."""
    words = "No run here died, and the observed death stands. Take these differences back, one by one, and run the matrix again:"
    return [Para(line(words)), Bullets([line(sentence(each)) for each in verdict.differences])]


def _settings(folder: RunFolder, fix: Fix) -> list[Line]:
    before = folder.plan.known_bad if folder.plan else {}
    lines = [
        line("Set ", strong(name), " to ", strong(str(value)), f" (it was {before[name]})" if name in before else "")
        for name, value in fix.set.items()
    ]
    lines += [line("Set the environment variable ", code(f"{name}={value}")) for name, value in fix.env.items()]
    lines += [line("Set the limit ", strong(f"{name} = {value}")) for name, value in fix.limits.items()]
    return [*lines, *(line("Install ", code(f"{name}=={version}")) for name, version in fix.packages.items())]


def _trust(folder: RunFolder, fix: Fix) -> list[Line]:
    state = "Verified: " if fix.verified else "Not verified yet: "
    lines = [line(strong(state), verified(fix), *_runs(folder, fix))]
    return [*lines, line(strong("Not verified: "), not_verified(folder, fix))] if fix.clean_runs else lines


def _runs(folder: RunFolder, fix: Fix) -> list[Span]:
    """Links to the fresh runs of the fixed configuration, or to all where none was made to verify."""
    runs = fixed_runs(folder, fix)
    fresh = [found for found, seen in runs if seen.trial.purpose == "verify"] or [found for found, _ in runs]
    links = [(found.id, folder.attempt_href(found.id, "observation.json")) for found in fresh]
    spans = [part for name, href in links[:8] for part in (Span(" "), Span(name.split("-")[0], href))]
    more = [Span(f" and {len(links) - 8} more")] if len(links) > 8 else []
    return [Span(" Attempts"), *spans, *more] if spans else []


def _no_fix(verdict: Verdict | None, folder: RunFolder) -> Line:
    if verdict is None or not verdict.complete:
        return line("Wait for the runs to finish, or go on with an interrupted matrix: ", code("python -m matrix run SPEC --resume"))
    if verdict.status in {"healthy", "not_reproduced"}:
        return line(
            "There is nothing to change. If the job dies again, run more or longer: a failure rarer than the bound above can stay unseen."
        )
    if folder.plan and folder.plan.strategy == "watch" and (folder.path / "next.yaml").is_file():
        settle = code(f"python -m matrix run {folder.path / 'next.yaml'}")
        return line("One run was watched, and nothing was varied in it. What would settle it: ", settle, ".")
    more = f"python -m matrix run SPEC --resume --max-runs {2 * max(verdict.runs, 1)}"
    return line(
        "No fix was verified. More runs can settle it: ",
        code(more),
        "; also see ",
        Span("what was never tested", "#untested"),
        " and ",
        Span("what was not collected", "#missing"),
        ".",
    )


def _others(folder: RunFolder, verdict: Verdict) -> list[Block]:
    honest = [fix for fix in verdict.other_fixes if fix.kind != "hides"]
    hiding = [fix for fix in verdict.other_fixes if fix.kind == "hides"]
    blocks: list[Block] = []
    if honest:
        blocks += [Heading("Other ways"), Bullets([_other(fix) for fix in honest])]
    if hiding:
        blocks += [Heading("Workarounds that only hide it"), Bullets([_hides(fix) for fix in hiding])]
    return blocks


def _other(fix: Fix) -> Line:
    return line(strong(_short(fix)), f" {FIXES[fix.kind]}. {sentence(fix.advice)} {_tried(fix)}")


def _hides(fix: Fix) -> Line:
    return line(strong(_short(fix)), f" {FIXES['hides']}. {sentence(fix.why or 'why it is no cure was not recorded')} {_tried(fix)}")


def _short(fix: Fix) -> str:
    return (
        " ".join(f"{name}={value}" for name, value in {**fix.set, **fix.env, **fix.limits, **fix.packages}.items()) or "no setting named:"
    )


def _tried(fix: Fix) -> str:
    return f"Tried: {plural(fix.clean_runs, 'run')} without a death." if fix.clean_runs else "Not tried by itself."
