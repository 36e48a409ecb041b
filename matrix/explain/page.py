"""The explanation as text for people, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from matrix.explain.next_time import Advice, advice, next_command
from matrix.explain.part import Piece
from matrix.explain.remains import Explained
from matrix.records import CrashPattern, Fact, Ranked

WIDTH = 110
REWORDED = (
    (", limit unknown size", ""),
    ("main 0", "the main process"),  # no source names its pid
    ("the kernel log could not be read", "no line of a kernel log that is known to be about it was given"),
    ("no counter of OOM kills could be read", "no counter of OOM kills was given"),
    ("memory peaked at unknown size", "nobody measured its memory"),
)
SHOWN_CAUSES, SHOWN_OPEN, SHOWN_FACTS = 5, 8, 3


def text(found: Explained) -> str:
    return "\n".join([*_ending(found), "", "EVIDENCE", *_pieces(found), "", *_causes(found), "", *_next(found)])


def to_json(found: Explained | None, pattern: CrashPattern | None) -> str:
    """None: there are no remains, or no numbers of batches."""
    parts = {"schema": "matrix.explanation/1"} | (_remains(found) if found else {})
    return json.dumps(parts | ({"pattern": dataclasses.asdict(pattern)} if pattern else {}), indent=1, ensure_ascii=False)


def _remains(found: Explained) -> dict[str, Any]:
    ending, sender = found.ending, found.sender
    return {
        "ended": None if ending is None else {"by": _how(found), "where": ending.where, "wrapped": ending.exit.wrapped},
        "doubts": found.doubts,
        "evidence": [dataclasses.asdict(piece) for piece in found.pieces],
        "sigkill": None if sender is None else {"grade": sender.grade, "text": _named(sender.text)},
        "ranking": [_entry(entry) for entry in found.ranking],
        "no_ranking": found.no_ranking or None,
        "collect": [dataclasses.asdict(one) for one in advice(found)],
        "next": next_command(found.logs),
    }


def _entry(entry: Ranked) -> dict[str, Any]:
    facts = {"supports": entry.supports, "contradicts": entry.contradicts}
    return {"cause": entry.cause, "title": entry.title, "probability": entry.probability, "grade": entry.grade} | {
        name: [_named(fact.fact) for fact in listed] for name, listed in facts.items()
    }


# ------------------------------------------------------------------ how it ended
def _how(found: Explained) -> str:
    assert found.ending is not None  # for mypy: the callers have looked
    ended = found.ending.exit
    return ended.signal or f"exit status {ended.returncode}"


def _ending(found: Explained) -> Iterator[str]:
    if found.ending is None:
        yield "How it ended: no source says."
    else:
        wrapped = f", from exit status {found.ending.exit.returncode}" if found.ending.exit.wrapped else ""
        yield f"How it ended: {_how(found)}{wrapped} ({found.ending.where})"
    first = next((death for death in found.observation.deaths if death.part == "initiating" and death.role != "main"), None)
    if first:
        how = first.signal or ("nobody says how" if first.status is None else f"status {first.status}")
        yield f"What died first, as far as is told: {first.role} {first.pid}, {how} ({', '.join(first.sources)})"
    if found.sender:
        yield from _wrapped(f"Who sent the SIGKILL: {found.sender.grade}. {_sentence(_named(found.sender.text))}")
    for doubt in found.doubts:
        yield from _wrapped(f"Note: {doubt}.")


def _named(words: str) -> str:
    """Words of the diagnosis, which speaks of runs that were watched."""
    for said, here in REWORDED:
        words = words.replace(said, here)
    return words


# ------------------------------------------------------------------ evidence
def _pieces(found: Explained) -> Iterator[str]:
    for piece in found.pieces:
        yield from _wrapped(f"{piece.where}: {piece.read}", "* ", "  ")
        yield from _wrapped(f"proves: {piece.proves}", "    ", "      ")
        yield from _wrapped(f"does not prove: {piece.not_proves}", "    ", "      ")
        yield f"    grade: {_grade(piece)}"


def _grade(piece: Piece) -> str:
    return f"{piece.grade} (who sent it)" if piece.grade == "unknown" and "sent" in piece.not_proves else piece.grade


# ------------------------------------------------------------------ causes
def _causes(found: Explained) -> Iterator[str]:
    if found.no_ranking:
        yield from _wrapped(f"CAUSES: no ranking, because {found.no_ranking}.")
        return
    yield "CAUSES (by the rules that judge a run; without a contrast none is confirmed)"
    equal = [entry for entry in found.ranking if entry.probability == found.ranking[0].probability]
    if len(equal) > 1:
        yield from _wrapped(f"The first {len(equal)} are equally likely: what was given does not tell them apart.", "  ")
    backed = [entry for entry in found.ranking if entry.supports or entry.cause == "unknown"]
    for entry in backed[:SHOWN_CAUSES]:
        yield f"  {entry.probability:6.1%}  {entry.cause} ({entry.grade}){f': {entry.title}' if entry.title else ''}"
        yield from _facts("for", entry.supports)
        yield from _facts("against", entry.contradicts)
    open_ = [entry for entry in found.ranking if entry not in backed and not entry.contradicts]
    if open_:
        listed = ", ".join(f"{entry.cause} {entry.probability:.1%}" for entry in open_[:SHOWN_OPEN])
        yield from _wrapped(f"neither proven nor ruled out: {listed}", "  ", "    ")


def _facts(word: str, facts: list[Fact]) -> Iterator[str]:
    for fact in facts[:SHOWN_FACTS]:
        yield from _wrapped(f"{word}: {_named(fact.fact)}", " " * 10, " " * 12)


# ------------------------------------------------------------------ what next
def _next(found: Explained) -> Iterator[str]:
    wanted = advice(found)
    for title, now in (("STILL THERE, PERHAPS", True), ("COLLECT NEXT TIME", False)):
        if of_kind := [one for one in wanted if one.now is now]:
            yield title
            yield from _advice(of_kind)
            yield ""
    yield f"NEXT: {next_command(found.logs)}"


def _advice(listed: list[Advice]) -> Iterator[str]:
    for one in listed:
        yield f"  {one.command}"
        yield from _wrapped(one.tells, " " * 6, " " * 6)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _wrapped(words: str, first: str = "", rest: str = "  ") -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
