"""`shorten`: bring a death that takes long forward, and show that it stayed the same death before anything is built on it.

Candidates are a memory limit that is scaled with the measured slope (the tool knows how fast memory grows) and words that the
user adds to the command: a checkpoint to start from, a part of the data.  Each is run on the known-bad cell; only one whose
signature, exception, crash stack and form of the memory curve are those of the long run is written as a specification.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix import records
from matrix.assembly import Assembly
from matrix.diagnosis import clusters, judge
from matrix.executors.local import LocalPool
from matrix.records import MemoryCurve, Observation, PythonError, Trial
from matrix.spec import Spec

REPEATS = 2  # deaths that must agree
SHARES = (0.25, 0.5)  # of the room above the first level that a scaled memory limit leaves, the shortest first
ROOM = 1.3  # times the level after the warm-up: below it the program would die at its start, of something else
GROWING = ("linear", "staircase", "cliff")
# of an exception's message, what differs between two runs of one fault: quoted parts, paths, addresses and hashes, numbers
VARIES = re.compile(
    r"""(?<!\w)'[^']*' | "[^"]*" | `[^`]*`
    | (?<![\w/]) [~.\w-]* / [\w./~+-]+
    | 0x[0-9a-fA-F]+ | \b (?=[a-f]*\d) [0-9a-f]{6,} \b
    | \d+ (?:\.\d+)?""",
    re.VERBOSE,
)


class CannotShorten(Exception):
    """There is nothing to compare with, or nothing to try; the text says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to a shorter run."""

    what: str  # for people
    spec: Spec
    keys: dict[str, str]  # what is different in the specification


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried:
    candidate: Candidate
    same: bool
    why: str
    wall_s: float


def reference(folder: Path, spec: Spec) -> list[Observation]:
    """The deaths of the known-bad cell in a run folder.  Raises CannotShorten when there is none."""
    deaths = []
    for attempt in sorted((folder / "attempts").glob("[0-9]*-*")):
        try:
            observation = records.read(Observation, attempt / "observation.json")
        except (OSError, ValueError):
            continue
        plain = not observation.trial.probes and observation.trial.watched
        if plain and observation.trial.cell == spec.known_bad and judge.outcome(observation).kind == "died":
            deaths.append(observation)
    if not deaths:
        raise CannotShorten(
            f"{folder} holds no death of the known-bad cell to compare with; run it to its death once: matrix run SPEC --max-runs 1"
        )
    return deaths


def candidates(spec: Spec, deaths: Sequence[Observation], words: Sequence[str]) -> list[Candidate]:
    """What may be tried.  Raises CannotShorten when that is nothing."""
    found = [_more_words(spec, text) for text in words] + list(_scaled_limits(spec, deaths))
    if not found:
        raise CannotShorten(
            "nothing to try: the death is not one of memory that grows to limits.memory, and no --try was given; "
            "add what makes a run shorter, for example --try '--resume last.pt' or --try '--subset 1000'"
        )
    return found


def _more_words(spec: Spec, text: str) -> Candidate:
    command = [*spec.run.command, *shlex.split(text)]
    changed = spec.model_copy(update={"run": spec.run.model_copy(update={"command": command})})
    return Candidate(what=f"with {text}", spec=changed, keys={"run.command": shlex.join(command)})


def _scaled_limits(spec: Spec, deaths: Sequence[Observation]) -> Iterator[Candidate]:
    limit, curve = spec.limits.memory_bytes, next((death.curve for death in deaths if death.curve), None)
    if limit is None or curve is None or judge.signature(deaths[0]) != "SIGKILL:memory" or not _grows(curve):
        return
    for share in SHARES:
        scaled = int(curve.start_bytes + share * (limit - curve.start_bytes))
        if scaled >= ROOM * curve.start_bytes:
            limits = spec.limits.model_copy(update={"memory_bytes": scaled})
            text = f"{scaled >> 20}MiB"
            yield Candidate(what=f"limits.memory {text}", spec=spec.model_copy(update={"limits": limits}), keys={"limits.memory": text})


def _grows(curve: MemoryCurve) -> bool:
    return curve.shape in GROWING and curve.per_s is not None and curve.per_s.low > 0


def attempt(pool: LocalPool, folder: Path, number: int, candidate: Candidate) -> Observation:
    """One run of the known-bad cell under a candidate."""
    spec = candidate.spec
    assembly = Assembly(spec, folder.resolve())
    trial = Trial(id=number, cell=dict(spec.known_bad), purpose="control", why=f"Does it die alike, and sooner, {candidate.what}?")
    made, holders = assembly.attempt(number, trial, None)
    pool.submit(assembly.job(made, holders, stacks=True))
    observation = pool.wait()
    assert observation is not None  # without a time limit wait() gives an observation or raises
    return observation


def same_death(long: Sequence[Observation], short: Observation) -> tuple[bool, str]:
    """Whether a death is that of the long runs: signature, exception, crash stack, form of the memory curve."""
    before, after = judge.outcome(long[0]), judge.outcome(short)
    if after.kind != "died":
        return False, f"it {after.kind}{': ' + after.reason if after.reason else ''}"
    if after.signature != before.signature:
        return False, f"it died of {after.signature}, not of {before.signature}"
    if not short.progress.last_step and all(death.progress.last_step for death in long):
        return False, f"it died of {after.signature} before its first step, and the long run took steps: another death"
    if str(after.signature).startswith("exit") and (why := _other_exception(long, short)):
        return False, why
    stacks = [clusters.relevant(death.native_stack) for death in long if death.native_stack]
    mine = clusters.relevant(short.native_stack)
    if stacks and mine and not any(clusters.refused(death.native_stack) for death in (*long, short) if death.native_stack):
        distance = min(clusters.distance(mine, stack) for stack in stacks)
        if distance > clusters.CUT:
            return False, f"the same signal, but the crash stack is another one (distance {distance:.2f}, cut at {clusters.CUT})"
    if before.signature == "SIGKILL:memory" and (why := _other_form(long, short)):
        return False, why
    return True, f"the same signature ({after.signature})" + (" and crash stack" if stacks and mine else "")


def _other_exception(long: Sequence[Observation], short: Observation) -> str | None:
    """Why the exception is none of the long runs': one type serves many faults, so its message and its place must agree."""
    error, others = short.python_error, [death.python_error for death in long if death.python_error]
    if error is None or not others:
        return None
    alike = [other for other in others if skeleton(other.message) == skeleton(error.message)]
    if not alike:
        return f"another {error.type}: {error.message[:120]!r}, not {others[0].message[:120]!r}"
    if _place(error) and _place(error) not in {_place(other) or _place(error) for other in alike}:
        return f"the same {error.type}, but in {_place(error)}, not in {_place(alike[0])}"
    return None


def skeleton(message: str) -> str:
    """The words of a message without what differs between two runs of one fault."""
    return " ".join(VARIES.sub("#", message).split())


def _place(error: PythonError) -> str | None:
    """The function that raised; None: no frame was printed."""
    return error.frames[-1].rpartition(" in ")[2] if error.frames else None


def _other_form(long: Sequence[Observation], short: Observation) -> str | None:
    """Why the growth is not that of the long runs: its slope per step, or per second without steps, must agree within a factor of two."""
    slopes = [slope for death in long if (slope := _slope(death)) is not None]
    mine = _slope(short)
    if not slopes or mine is None:
        which = "this run" if mine is None else "the long run"
        return f"the form of its memory is not comparable: {which} has too few samples for a slope"
    usual = statistics.median(slopes)
    if usual > 0 and not 0.5 <= mine / usual <= 2.0:
        return f"memory grew {mine / usual:.1f} times as fast as in the long run: another death"
    return None


def _slope(observation: Observation) -> float | None:
    curve = observation.curve
    slope = curve and (curve.per_step or curve.per_s)
    return slope.value if slope else None


def judge_candidate(long: Sequence[Observation], short: Sequence[Observation], candidate: Candidate) -> Tried:
    """All of its runs must have died alike, and sooner."""
    for observation in short:
        same, why = same_death(long, observation)
        if not same:
            return Tried(candidate=candidate, same=False, why=why, wall_s=observation.wall_s)
    wall_s = statistics.median(observation.wall_s for observation in short)
    before = statistics.median(observation.wall_s for observation in long)
    if wall_s >= before:
        return Tried(
            candidate=candidate, same=False, why=f"it died alike, but not sooner ({wall_s:.0f} s against {before:.0f} s)", wall_s=wall_s
        )
    why = f"{same_death(long, short[0])[1]} in {len(short)} of {len(short)} runs, after {wall_s:.0f} s instead of {before:.0f} s"
    return Tried(candidate=candidate, same=True, why=why, wall_s=wall_s)


def write(spec: Spec, tried: Tried, path: Path) -> None:
    """The specification with what was changed, its comments kept, and why it may be trusted.  Raises OSError."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 200
    if spec.source is None:
        raise ValueError("a specification without a file cannot be rewritten")
    data = yaml.load(spec.source.read_text(encoding="utf-8", errors="replace"))
    for key, value in tried.candidate.keys.items():
        section, name = key.split(".")
        data.setdefault(section, {})[name] = value
    data["name"] = f"{spec.name}_short"
    data.yaml_set_start_comment(f"A shorter form of {spec.source.name}, {tried.candidate.what}: {tried.why}.")
    with path.open("w", encoding="utf-8", errors="backslashreplace") as sink:
        yaml.dump(data, sink)


def shorten(spec: Spec, folder: Path, words: Sequence[str], where: Path) -> Iterator[Tried]:
    """Try every candidate, the shortest first; attempts are kept in `where`.  Raises CannotShorten."""
    long = reference(folder, spec)
    with LocalPool(1) as pool:
        number = 0
        for candidate in candidates(spec, long, words):
            short: list[Observation] = []
            while len(short) < REPEATS and all(same_death(long, one)[0] for one in short):
                number += 1
                short.append(attempt(pool, where, number, candidate))
            yield judge_candidate(long, short, candidate)
