"""The ranking, the evidence for and against each entry, the other failures, what was ruled out, the grades."""

from __future__ import annotations

import re
from collections.abc import Sequence

from matrix.records import Fact, Failure, Ranked, Remedy, Value, Verdict
from reports.folder import RunFolder
from reports.model import Block, Bullets, Code, Details, Heading, Line, Para, Row, Section, Span, Table, code, line, strong
from reports.text import interval, listed, one_line, percent, plural, sentence
from reports.words import GRADES, clause, title

MOST_FACTS, MOST_SOURCES = 12, 4
_BACKED = re.compile(r" \(attempt (\S+), (\S+)\)\.?$")


def ranking(folder: RunFolder, verdict: Verdict) -> Section:
    rows = [_ranked_row(entry, first=position == 0) for position, entry in enumerate(verdict.ranking)]
    table = Table("Causes by probability", ["Cause", "Probability", "Grade", "Why"], rows, frozenset({1}), frozenset({0, 3}))
    source = Para(line("The same with every detail: ", Span("verdict.json", folder.href("verdict.json"))))
    return Section("ranking", "What it can be", [table, source] if rows else [Para(line("Nothing is ranked yet."))])


def _ranked_row(entry: Ranked, first: bool) -> Row:
    name = line(strong(title(entry)) if first else title(entry), " ", code(entry.cause))
    open_world = entry.cause in {"unknown", "healthy"}
    why = sentence(entry.summary) or sentence(clause(entry))
    return Row([name, line(percent(entry.probability)), line("–" if open_world else entry.grade), line(why)])


def evidence(folder: RunFolder, verdict: Verdict) -> Section | None:
    """For and against each ranked cause, and what was not collected; the first one open.  None when no cause has any evidence."""
    told = [entry for entry in verdict.ranking if entry.cause != "healthy" and _has_evidence(entry)]
    blocks: list[Block] = [_evidence(folder, entry, opened=position == 0) for position, entry in enumerate(told)]
    return Section("evidence", "The evidence for each cause", blocks) if blocks else None


def _has_evidence(entry: Ranked) -> bool:
    found = bool(entry.culprit or entry.interactions or entry.supports or entry.contradicts or entry.not_collected)
    return found or (bool(entry.summary) and entry.cause != "unknown")


def _evidence(folder: RunFolder, entry: Ranked, opened: bool) -> Details:
    blocks: list[Para | Bullets | Table | Code | Heading] = [Para(line(sentence(entry.summary)))] if entry.summary else []
    blocks += [Bullets(_culprit(entry.culprit, entry))] if entry.culprit or entry.interactions else []
    blocks += [Heading("Supports"), _facts(folder, entry.supports, "No fact that speaks for it was recorded.")]
    blocks += [Heading("Contradicts"), _facts(folder, entry.contradicts, "No fact that speaks against it was recorded.")]
    if entry.rivals:
        blocks += [Heading("Told from what looks alike"), Bullets([line(f"{sentence(rival.text)}") for rival in entry.rivals])]
    missing = [line(strong(f"{one_line(gap.what)}."), f" {sentence(gap.why)}") for gap in entry.not_collected]
    blocks += [Heading("Not collected"), Bullets(missing) if missing else Para(line("Nothing was recorded as missing."))]
    if entry.remedies:
        blocks += [Heading("What helps against this cause"), Bullets([_remedy(remedy) for remedy in entry.remedies])]
        blocks += [Para(line("In general; whether it helped here is under the fix." + _read_on(entry.references)))]
    grade = "" if entry.cause == "unknown" else f", {entry.grade}"
    return Details(f"{title(entry)} ({percent(entry.probability)}{grade})", blocks, opened)


def _remedy(remedy: Remedy) -> Line:
    cost = f" Cost: {remedy.cost}." if remedy.cost else ""
    return line(strong(f"{remedy.kind}: "), f"{remedy.change}.{cost}")


def _read_on(references: Sequence[str]) -> str:
    return f" To read on: {'; '.join(references)}." if references else ""


def _culprit(culprit: dict[str, list[Value]], first: Ranked) -> list[Line]:
    lines = [
        line(
            strong(axis),
            " matters: it dies with ",
            strong(listed([str(value) for value in dying])),
            ", and changing this axis alone stops it.",
        )
        for axis, dying in culprit.items()
    ]
    return [*lines, *(line(strong(f"{listed(found.axes)}: "), sentence(found.text)) for found in first.interactions)]


def _facts(folder: RunFolder, facts: Sequence[Fact], none: str) -> Bullets | Para:
    """One line for each different fact: the same fact of several attempts is one line with several links."""
    same: dict[str, list[Fact]] = {}
    for fact in facts:
        same.setdefault(sentence(fact.fact), []).append(fact)
    lines = [line(f"{text} ", *_sources(folder, group)) for text, group in list(same.items())[:MOST_FACTS]]
    more = (
        [line(f"{len(same) - MOST_FACTS} more are in ", Span("verdict.json", folder.href("verdict.json")))]
        if len(same) > MOST_FACTS
        else []
    )
    return Bullets([*lines, *more]) if lines else Para(line(none))


def _sources(folder: RunFolder, facts: Sequence[Fact]) -> list[Span]:
    """The files behind a fact; one that is not there is said to be missing, not linked."""
    parts = [part for fact in facts[:MOST_SOURCES] for part in (_source(folder, fact), Span(" "))]
    return [*parts, Span(f"and {len(facts) - MOST_SOURCES} more")] if len(facts) > MOST_SOURCES else parts[:-1]


def _source(folder: RunFolder, fact: Fact) -> Span:
    if not fact.file:
        return Span(f"(attempt {fact.attempt})" if fact.attempt else "(of several attempts)")
    name = f"{fact.attempt}/{fact.file}" if fact.attempt else fact.file
    href = folder.attempt_href(fact.attempt, fact.file) if fact.attempt else folder.href(fact.file)
    return Span(name, href) if href else Span(f"({name}: the file is not in this folder)")


# ------------------------------------------------------------------ more than one failure
def failures(folder: RunFolder, verdict: Verdict) -> Section | None:
    if len(verdict.failures) < 2:
        return None
    rows = [_failure_row(folder, failure) for failure in sorted(verdict.failures, key=lambda failure: not failure.main)]
    columns = ["Failure", "Signature", "First cause", "Fix", "Rate", "Attempts"]
    return Section(
        "failures", "All failures that were seen", [Table("One row for each failure of its own", columns, rows, prose=frozenset({2}))]
    )


def _failure_row(folder: RunFolder, failure: Failure) -> Row:
    first = failure.ranking[0] if failure.ranking else None
    top = f"{title(first)} ({first.grade}, {percent(first.probability)})" if first else "not ranked"
    fix = " ".join(f"{name}={value}" for name, value in {**failure.fix.set, **failure.fix.env}.items()) if failure.fix else "none found"
    rate = interval(failure.crash_rate) if failure.crash_rate else "not measured"
    name = line(strong(f"{failure.id} (main)") if failure.main else failure.id)
    return Row([name, line(code(failure.signature)), line(top), line(fix), line(rate), attempt_links(folder, failure.attempts)])


def attempt_links(folder: RunFolder, attempts: Sequence[str], most: int = 8) -> Line:
    """`0001 0004 0007 +3`, each a link to its observation."""
    spans = [Span(name.split("-")[0], folder.attempt_href(name, "observation.json")) for name in attempts[:most]]
    parts = [part for span in spans for part in (span, Span(" "))]
    return (*parts, Span(f"+{len(attempts) - most}")) if len(attempts) > most else tuple(parts[:-1])


# ------------------------------------------------------------------ what it is not
def ruled_out(folder: RunFolder, verdict: Verdict) -> Section | None:
    if not verdict.ruled_out and verdict.status in {"healthy", "not_reproduced"}:
        return None
    same: dict[str, list[str]] = {}
    for entry in verdict.ruled_out:
        same.setdefault(entry.why, []).append(f"{title(entry)}.")
    lines = [line(strong(" ".join(titles)), " ", *_why(folder, why)) for why, titles in same.items()]
    return Section("ruled-out", "What it is not", [Bullets(lines) if lines else Para(line("No cause was ruled out."))])


def _why(folder: RunFolder, why: str) -> Line:
    """The reason; where it ends with the file that backs it, a link to that."""
    named = _BACKED.search(why)
    href = folder.attempt_href(named[1], named[2]) if named else None
    return line(sentence(why[: named.start()]), " ", Span(f"{named[1]}/{named[2]}", href)) if named and href else line(sentence(why))


def grades() -> Section:
    lines = [line(strong(f"{grade}: "), f"{meaning}.") for grade, meaning in GRADES.items()]
    note = "The probabilities sum to 1 with what is not in the catalogue, and hold for this program on this machine."
    return Section("grades", "How to read the grades", [Bullets(lines), Para(line(note))])


def not_collected(folder: RunFolder, verdict: Verdict | None) -> Section:
    """What is missing from the evidence, each reason once, with how many attempts it concerns."""
    first = verdict.ranking[0].not_collected if verdict and verdict.ranking else []
    missing: dict[tuple[str, str], list[str]] = {(entry.what, entry.why): [] for entry in first}
    for found, seen in folder.observed:
        for entry in seen.not_collected:
            missing.setdefault((entry.what, entry.why), []).append(found.id)
    lines = [
        line(strong(f"{one_line(what)}."), f" {sentence(why)}", *_where(folder, attempts)) for (what, why), attempts in missing.items()
    ]
    nothing = "No collector reported that something was missing." if folder.observed else "No run is complete yet."
    return Section("missing", "What was not collected", [Bullets(lines) if lines else Para(line(nothing))])


def _where(folder: RunFolder, attempts: list[str]) -> Line:
    return line(f" ({plural(len(attempts), 'attempt')}: ", *attempt_links(folder, attempts, 4), ")") if attempts else ()
