"""The top of the report: the verdict in one sentence, the figures that matter, what must be known first."""

from __future__ import annotations

from matrix.records import Ranked, Rate, Verdict, describe_cell
from reports.ending import ending
from reports.folder import RunFolder
from reports.model import Line, Span, Tone, line, strong
from reports.text import duration, interval, percent, plural, rate, sentence
from reports.words import STATUSES, cause

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
    if verdict.status in _WELL:
        return _well(verdict)
    if first is None or first.cause in {"unknown", "healthy"} or verdict.status == "inconclusive":
        return _open(verdict, first)
    certainty = f" ({first.grade}, probability {percent(first.probability)})"
    because = "because" if verdict.status == "diagnosed" else "probably because"
    return line(f"The job {_verb(folder)} {because} ", strong(cause(first.cause).clause), certainty, ".")


def _well(verdict: Verdict) -> Line:
    worst = Rate(value=verdict.crash_rate.high, per=verdict.crash_rate.per) if verdict.crash_rate else None
    bound = f" With 95 % confidence it fails at most {rate(worst)}." if worst else ""
    what = "Nothing wrong was found" if verdict.status == "healthy" else "The failure was not reproduced"
    return line(strong(what), f" in {plural(verdict.runs, 'run')} with {plural(verdict.steps, 'step')} in all.{bound}")


def _open(verdict: Verdict, first: Ranked | None) -> Line:
    if first is None or first.cause in {"unknown", "healthy"}:
        survives = describe_cell(verdict.fix.set) if verdict.fix else ""
        but = f", but it survives with {survives}" if survives else ""
        return line(strong(f"The cause is not known{but}"), f" ({plural(verdict.runs, 'run')}).")
    return line(
        strong("The cause is not settled"),
        f" after {plural(verdict.runs, 'run')}. First on the list, and no more than {first.grade}: "
        f"{cause(first.cause).title} (probability {percent(first.probability)}).",
    )


def _verb(folder: RunFolder) -> str:
    """A job that we ended because it no longer moved hangs; every other one dies."""
    endings = [seen.exit.ended_by for _, seen in folder.observed if ending(seen, folder.verdict).kind == "died"]
    hangs = sum(ended_by in {"startup", "idle", "stall"} for ended_by in endings)
    return "hangs" if endings and 2 * hangs > len(endings) else "dies"


def key_figures(folder: RunFolder) -> list[tuple[str, str]]:
    verdict = folder.verdict
    if verdict is None:
        return [("Runs complete", str(len(folder.observed)))]
    first = verdict.ranking[0] if verdict.ranking else None
    figures = []
    if first and first.cause != "unknown" and verdict.status not in _WELL:
        figures.append(("Grade and probability", f"{first.grade}, {percent(first.probability)}"))
    if verdict.crash_rate and verdict.status not in _WELL:  # there the headline has the bound
        figures.append(("The known-bad cell fails", interval(verdict.crash_rate)))
    if verdict.fix and verdict.fix.failure_rate_upper_95:
        figures.append(("With the fix it fails at most", rate(verdict.fix.failure_rate_upper_95)))
    steps = f", {plural(verdict.steps, 'step')}" if verdict.steps else ""
    return [*figures, ("Tried", f"{plural(verdict.runs, 'run')}{steps} in {duration(verdict.wall_s)}")]


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
