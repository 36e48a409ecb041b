"""The top of the report: the verdict in one sentence, the figures that matter, what must be known first."""

from __future__ import annotations

from collections import Counter

from matrix.records import Ranked, Rate, Verdict, describe_cell
from reports.ending import ending
from reports.folder import RunFolder
from reports.launch import cell_key
from reports.model import Line, Span, Tone, line, strong
from reports.text import at_most, clean_runs, duration, interval, listed, one_line, percent, plural, sentence, span_of
from reports.words import FIXES, GRADES, STATUSES, clause, title

_WELL = {"healthy", "not_reproduced"}


def label(verdict: Verdict | None) -> tuple[str, Tone]:
    if verdict is None:
        return "No verdict yet", "warn"
    text, tone = STATUSES.get(verdict.status, (verdict.status, "warn"))
    return text, tone  # type: ignore[return-value]


def headline(folder: RunFolder) -> Line:
    verdict = folder.verdict
    if verdict is None:
        died = sum(ending(seen, None).kind == "died" for _, seen in folder.observed)
        return line(f"There is no verdict yet: {plural(len(folder.observed), 'run')} complete, {died} of them died.")
    first = verdict.ranking[0] if verdict.ranking else None
    if verdict.differences:
        return _unreproduced(verdict, first)
    if verdict.status in _WELL:
        return _well(verdict)
    if first is None or first.cause in {"unknown", "healthy"} or verdict.status == "inconclusive":
        return _open(verdict, first)
    certainty = f" ({first.grade}, probability {percent(first.probability)})"
    because = "because" if verdict.status == "diagnosed" else "probably because"
    return line(f"The job {_verb(folder)} {because} ", strong(clause(first)), certainty, ".")


def _well(verdict: Verdict) -> Line:
    worst = Rate(value=verdict.crash_rate.high, per=verdict.crash_rate.per) if verdict.crash_rate else None
    bound = f" {sentence(at_most(worst))}" if worst else ""
    what = "Nothing wrong was found" if verdict.status == "healthy" else "The failure was not reproduced"
    return line(strong(what), f" in {plural(verdict.runs, 'run')} with {plural(verdict.steps, 'step')} in all.{bound}")


def _unreproduced(verdict: Verdict, first: Ranked | None) -> Line:
    """Nothing died here, but a death was observed elsewhere."""
    told = f" Its log speaks for {title(first)} ({first.grade})." if first and first.cause != "unknown" else ""
    runs = f"in {plural(verdict.runs, 'run')}: something differs from the run that died."
    return line(strong("The observed death was not reproduced"), f" {runs}{told}")


def _open(verdict: Verdict, first: Ranked | None) -> Line:
    if first is None or first.cause in {"unknown", "healthy"}:
        survives = describe_cell(verdict.fix.set) if verdict.fix else ""
        but = f", but it survives with {survives}" if survives else ""
        return line(strong(f"The cause is not known{but}"), f" ({plural(verdict.runs, 'run')}).{_innocent(verdict)}")
    return line(
        strong("The cause is not settled"),
        f" after {plural(verdict.runs, 'run')}. First on the list, and no more than {first.grade}: "
        f"{title(first)} (probability {percent(first.probability)}).",
    )


def _verb(folder: RunFolder) -> str:
    """A job that we ended because it no longer moved hangs, one that was too slow does not finish; every other one dies."""
    endings = [seen.exit.ended_by for _, seen in folder.observed if ending(seen, folder.verdict).kind == "died"]
    hangs = sum(ended_by in {"startup", "idle", "stall"} for ended_by in endings)
    if endings and 2 * endings.count("wall") > len(endings):
        return "does not finish"
    return "hangs" if endings and 2 * hangs > len(endings) else "dies"


# ------------------------------------------------------------------ the verdict in five lines
def verdict_lines(folder: RunFolder) -> list[tuple[str, Line]]:
    """What dies, why, how sure that is, the fix, and what was ruled out; also where there is nothing to say."""
    verdict = folder.verdict
    if verdict is None:
        return [("State", headline(folder))]
    return [
        ("What dies", _what(folder, verdict)),
        ("Why", _why(folder, verdict)),
        ("How sure", _sure(verdict)),
        ("The fix", _fix(verdict)),
        ("Ruled out", _ruled_out(verdict)),
    ]


def _what(folder: RunFolder, verdict: Verdict) -> Line:
    ends = [ending(seen, verdict) for _, seen in folder.observed]
    died = [end for end in ends if end.kind == "died"]
    if not died:
        return line(strong("Nothing died"), f" in {plural(verdict.runs, 'run')}.")
    main = Counter(end.how for end in died).most_common(1)[0][0].removeprefix("hang: ").removeprefix("hang ").removeprefix("stall: ")
    where = describe_cell(folder.plan.known_bad) if folder.plan else ""
    steps = [end.step for end in died if end.step is not None]
    at = f", at step {span_of(steps)}" if steps else ", before any step" if verdict.steps else ""
    known = f" The known-bad configuration ({one_line(where, 160)}) {_how_often(folder, verdict)}." if where else ""
    return line(strong(f"The job {_verb(folder)}: {one_line(main, 100)}"), f" in {len(died)} of {plural(len(ends), 'run')}{at}.{known}")


def _how_often(folder: RunFolder, verdict: Verdict) -> str:
    """`died in 5 of 5 runs (95 % interval 57 % to > 99 %)`."""
    bad = cell_key(folder.plan.known_bad) if folder.plan else ""
    runs = [seen for _, seen in folder.observed if not seen.trial.probes and cell_key(seen.trial.cell) == bad]
    kinds = Counter(ending(seen, verdict).kind for seen in runs)
    died, answered = kinds["died"], kinds["died"] + kinds["survived"]
    rate = verdict.crash_rate
    count = f"died in {died} of {plural(answered, 'run')}"
    if rate is None:
        return count
    if rate.per == "step":
        return f"{count}, {interval(rate)}"
    return f"{count} (95 % interval {percent(rate.low)} to {percent(rate.high)})"


def _innocent(verdict: Verdict) -> str:
    """` It is not accum, not bs: it died with other values of them too (at least 97 % sure).`"""
    if not verdict.innocent:
        return ""
    names = ", ".join(f"not {one_line(each.axis, 40)}" for each in verdict.innocent)
    sure = percent(min(each.probability for each in verdict.innocent))
    return f" It is {names}: it died with other values of {'it' if len(verdict.innocent) == 1 else 'them'} too (at least {sure} sure)."


def _why(folder: RunFolder, verdict: Verdict) -> Line:
    first = verdict.ranking[0] if verdict.ranking else None
    open_ended = first is None or first.cause in {"unknown", "healthy"} or verdict.status == "inconclusive"
    if first is None or open_ended or verdict.status in _WELL or verdict.differences:
        return headline(folder)
    culprit = " and ".join(f"{axis}={listed([str(value) for value in values])}" for axis, values in first.culprit.items())
    known = verdict.status == "diagnosed"
    together = " together" if len(first.culprit) > 1 else ""
    place = f" It happens {'only' if known else 'probably only'} with {one_line(culprit, 160)}{together}." if culprit else ""
    likely = "" if known else "Probably: "
    return line(likely, strong(f"{title(first)}"), f": {clause(first)}.{place}{_innocent(verdict)}")


def _sure(verdict: Verdict) -> Line:
    steps = f" and {plural(verdict.steps, 'step')}" if verdict.steps else ""
    tried = f"{plural(verdict.runs, 'run')}{steps} in {duration(verdict.wall_s)}."
    first = verdict.ranking[0] if verdict.ranking else None
    if first is None:
        return line(f"Nothing is ranked yet; {tried}")
    if first.cause in {"unknown", "healthy"}:
        return line(
            strong(f"Probability {percent(first.probability)}"),
            f" of {title(first)[:1].lower()}{title(first)[1:]}, after {tried}",
        )
    grade = GRADES.get(first.grade, "")
    return line(
        strong(f"{first.grade.capitalize()}, probability {percent(first.probability)}"),
        f": {grade}. {tried}" if grade else f", after {tried}",
    )


def _fix(verdict: Verdict) -> Line:
    fix = verdict.fix
    if fix is None and verdict.differences:
        return line("None was tried, for nothing died. ", Span("What differs from the run that died", "#now"))
    if fix is None:
        return line("None is needed." if verdict.status in _WELL else "None was found.")
    bound = fix.failure_rate_upper_95
    limit = f"; {at_most(bound)}" if bound else ""
    tried = f"{clean_runs(fix)} without a death{limit}" if fix.clean_runs else "not tried on fresh runs"
    change = {**fix.set, **fix.env, **fix.limits, **fix.packages}
    state = "verified" if fix.verified else "not verified yet"
    return line(strong(describe_cell(change) or sentence(fix.advice)), f" {FIXES[fix.kind]} ({state}: {tried}). ", Span("How", "#now"))


def _ruled_out(verdict: Verdict) -> Line:
    titles = [title(entry) for entry in verdict.ruled_out]
    if not titles:
        return line("Nothing.")
    return line(
        f"{'. '.join(titles[:4])}" + (f", and {len(titles) - 4} more. " if len(titles) > 4 else ". "), Span("Why not", "#ruled-out")
    )


def notices(folder: RunFolder) -> list[Line]:
    verdict, found = folder.verdict, []
    if verdict and not verdict.complete:
        found.append(
            line(strong("The matrix is not finished."), f" This is the state after {plural(verdict.runs, 'run')}; all of it can change.")
        )
    if verdict and len(verdict.failures) > 1:
        found.append(
            line(
                strong(f"{len(verdict.failures)} different failures"),
                " were seen. The verdict above is about the main one; see ",
                Span("the others", "#failures"),
                ".",
            )
        )
    if folder.problems:
        found.append(line(f"{plural(len(folder.problems), 'thing')} could not be read or counted; see ", Span("the list", "#unread"), "."))
    return found


def status_line(folder: RunFolder) -> Line:
    """What the diagnosis itself says about its status, and where that is written."""
    verdict = folder.verdict
    if verdict is None or not verdict.status_text:
        return ()
    href = folder.href("verdict.json")
    return line(sentence(verdict.status_text), " ", Span("verdict.json", href))
