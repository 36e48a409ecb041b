"""From what all sources say to one observation, so that the rules of the diagnosis judge it as they judge an attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from matrix.diagnosis import endings, judge, memory_causes, native_causes, ranking, sigkill
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding, message
from matrix.evidence import deaths, fault
from matrix.explain import kernel_lines
from matrix.explain.kernel_lines import Linked
from matrix.explain.output import peer_is_gone
from matrix.explain.part import Ending, Part, Piece
from matrix.records import Death, Exit, Finding, Memory, NotCollected, Observation, Progress, Ranked, Trial
from matrix.search import Result

ATTEMPT = "remains"
SAID_SO = 5.0  # nats
OPEN = (*memory_causes.NAMES, "watchdog_or_time_limit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """What the remains of one death prove together."""

    pieces: list[Piece]
    ending: Ending | None  # None: no source says how it ended
    doubts: list[str]  # where sources disagree, or what was taken for granted
    sender: sigkill.Attribution | None  # None: no SIGKILL
    ranking: list[Ranked]  # []: too little is known for one
    no_ranking: str  # why; "": there is one
    observation: Observation
    kinds: frozenset[str]
    logs: list[str]


def explain(part: Part) -> Explained:
    """Combine, link and judge."""
    linked = kernel_lines.link(part)
    ending = _ending(part.endings)
    seen = _observation(part, linked, ending)
    why = _why_no_ranking(part, ending, seen)
    return Explained(
        pieces=[*part.pieces, *linked.pieces],
        ending=ending,
        doubts=list(_doubts(part, ending)),
        sender=sigkill.attribute(seen),
        ranking=[] if why else _ranking(part, seen),
        no_ranking=why,
        observation=seen,
        kinds=part.kinds | ({"kernel log"} if part.kernel else set()),
        logs=part.logs,
    )


# ------------------------------------------------------------------ how it ended
def _ending(endings: Sequence[Ending]) -> Ending | None:
    """The most direct source that names a signal; a plain status often is only a launcher's, about what its child did."""
    ordered = sorted(endings, key=lambda one: one.by)
    signals = [one for one in ordered if one.exit.signal]
    if ordered and ordered[0].exit.returncode == 0:
        return ordered[0]
    return next(iter([*signals, *ordered]), None)


def _doubts(part: Part, ending: Ending | None) -> list[str]:
    if ending is None:
        return []
    found = []
    for other in part.endings:
        if other.exit.signal and ending.exit.signal and other.exit.signal != ending.exit.signal:
            both = f"{ending.where} says {ending.exit.signal}, {other.where} says {other.exit.signal}"
            found.append(f"{both}: they may be two processes, or two deaths")
        elif not other.exit.signal and ending.exit.signal and other.exit.returncode:
            found.append(
                f"{other.where} says status {other.exit.returncode}, which only follows when a launcher reports {ending.exit.signal}"
            )
    return list(dict.fromkeys(found))


# ------------------------------------------------------------------ the observation
def _observation(part: Part, linked: Linked, ending: Ending | None) -> Observation:
    main, exit_ = part.main or 0, ending.exit if ending else Exit(returncode=None)
    lines = [line.text for line in linked.lines]
    return Observation(
        attempt=ATTEMPT,
        key="",
        trial=Trial(id=0, cell={}),
        exit=exit_,
        wall_s=0.0,
        started_unix_s=0.0,
        progress=part.progress or Progress(),
        memory=Memory(oom_kills=_group_kills(part, linked, exit_)),
        libraries=part.libraries,
        python_error=part.python_error,
        crash_stack=part.dumps[0].frames if part.dumps else [],
        native_stack=part.stack,
        other_stacks=part.other_stacks,
        kernel_lines=lines,
        output_tail=part.tail,
        deaths=_deaths(part, lines, main, exit_),
        metrics=part.metrics,
        messages=part.messages,
        faults=part.faults or fault.of_kernel(lines),
        crash_dumps=part.dumps,
        native_imports=part.native_imports,
        not_collected=_not_collected(part, linked),
    )


def _deaths(part: Part, lines: list[str], main: int, exit_: Exit) -> list[Death]:
    killed = {
        kill.pid: "worker" if kill.pid in part.pids else "other"
        for kill in kernel_lines.kills(part.kernel)
        if any(kill.text == line for line in lines)
    }
    scene = deaths.Scene(
        main=main, ending=exit_, end_s=0.0, events={}, roles=killed | {main: "main"}, kernel_lines=lines, said=part.said
    )  # fmt: skip
    return deaths.deaths(scene)


def _group_kills(part: Part, linked: Linked, exit_: Exit) -> int | None:
    """A counter of the whole life of a group says nothing of an end by another signal than SIGKILL."""
    counted = max(part.group_kills or 0, linked.group_kills)
    killed = exit_.signal == "SIGKILL" or any(one.signal == "SIGKILL" for one in part.said)
    return counted if counted and killed else None


def _not_collected(part: Part, linked: Linked) -> list[NotCollected]:
    found = []
    if not part.kernel:
        found.append(NotCollected(what="kernel log", why="none was given, or it holds no line about a death"))
    elif not linked.lines:
        found.append(NotCollected(what="kernel log", why="no line of what was given names a process that is known to be of this job"))
    if "core" not in part.kinds and "crash report" not in part.kinds:
        found.append(NotCollected(what="core", why="none was given"))
    return found


# ------------------------------------------------------------------ judged by the same rules
def _why_no_ranking(part: Part, ending: Ending | None, seen: Observation) -> str:
    if ending is None and not seen.deaths:
        return "no source says how it ended: give its exit status with --status, or the scheduler's account of it"
    if ending and ending.exit.returncode == 0:
        return "its status says that it succeeded: if its work was not done, only a run that is watched tells what ended it"
    if judge.outcome(seen).signature is None:
        if seen.deaths:
            return "a process of the job died, but no source says how the job itself ended: give its exit status with --status"
        return "what was given tells of no death"
    if ending and not ending.exit.signal and "output" not in part.kinds and not part.findings:
        return f"exit status {ending.exit.returncode} alone says nothing of a cause: give the output, stderr above all"
    return ""


def _ranking(part: Part, seen: Observation) -> list[Ranked]:
    outcome = judge.outcome(seen)
    case = Case(
        known_bad={},
        observations=[seen],
        outcomes={ATTEMPT: outcome},
        environments={ATTEMPT: {}},
        result=no_search(),
        signature=outcome.signature,
    )
    return _none_preferred(
        ranking.rank(
            case, [*_heard(part, ranking.collect(case), sigkill.attribute(seen)), *part.findings, *_said_itself(part, seen), *_open(seen)]
        )
    )


def _none_preferred(ranked: list[Ranked]) -> list[Ranked]:
    """Of several causes that are equally likely the first is no better supported than the others."""
    equal = [entry for entry in ranked if entry.probability == ranked[0].probability]
    return [dataclasses.replace(entry, grade="suspected") for entry in equal] + ranked[len(equal) :] if len(equal) > 1 else ranked


def _heard(part: Part, findings: list[Finding], sender: sigkill.Attribution | None) -> list[Finding]:
    """Without those that rest on silence of a source that was not given."""
    silent = set() if "output" in part.kinds else {"stdout.log", "stderr.log"}
    silent |= set() if part.libraries else {"maps.txt"}
    mute = "output" not in part.kinds
    heard = [one for one in findings if one.weight > 0 or not (one.file in silent or (mute and one.rule == "message"))]
    if sender and sender.grade == "unknown":  # whoever sent it is as open as memory is, in `_open`
        heard = [one for one in heard if not (one.cause == "external_signal" and one.rule == "signal")]
    return [_only_a_hint(one) for one in heard] if peer_is_gone(part.python_error) else heard


def _only_a_hint(one: Finding) -> Finding:
    """The exception about a process that was gone: in a run the kernel tells how that one ended, here nobody does."""
    if one.cause != endings.EXCEPTION:
        return one
    return dataclasses.replace(one, weight=min(one.weight, endings.CASCADE))


def _said_itself(part: Part, seen: Observation) -> Iterator[Finding]:
    """The runtime's own words name the cause; the rules of a run ask for the libraries, which only a core can tell here."""
    words = message(seen, "openmp conflict")
    if words and not part.libraries and seen.exit.signal == "SIGABRT":
        fact = f"the second OpenMP runtime said so itself: {words.text[:120]}"
        yield finding("openmp_runtime_conflict", "message", seen, SAID_SO, fact, "stderr.log")


def _open(seen: Observation) -> Iterator[Finding]:
    """A SIGKILL of an unknown sender leaves memory and limits of time open, as an unknown death elsewhere leaves more."""
    sender = sigkill.attribute(seen)
    if sender and sender.grade == "unknown":
        for cause in (*OPEN, "external_signal"):
            yield finding(cause, "open", seen, 0.0, "nothing tells who sent the SIGKILL")
    elif sender is None and peer_is_gone(seen.python_error):
        for cause in (*OPEN, "external_signal", *native_causes.NATIVE_CRASH):
            yield finding(cause, "open", seen, 0.0, "another process was gone, and nothing tells how it ended")


def no_search() -> Result:
    """One death, no run: nothing is contrasted, so nothing can be confirmed."""
    return Result(
        status="inconclusive",
        reproduced=True,
        culprit={},
        interactions=[],
        probability=0.0,
        fix=None,
        other_fixes=[],
        crash_rate=None,
        confirmed=False,
        reasons=["nothing was run, so there is no contrast"],
        main_signature=None,
        other_signatures={},
        never_tested=[],
        runs=0,
        steps=0,
        text="",
    )
