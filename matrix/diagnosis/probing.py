"""The tool's own interventions: which one to try next, and what its outcome says about each cause.

A probe has a prediction under each cause (`Cause.cures_it`).  One that did not take hold is neutral; so is a death of another
kind, which cut the answer short.  A probe that the death survives speaks against the causes that it would have cured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, message
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.suspects import LEVERS
from matrix.records import Finding, Observation, describe_cell

UNKNOWN_CURED = 0.12  # chance that a probe happens to help against something that is not in the catalogue
MOST_NATS = 3.5  # one run under one probe proves no more
LEAST_NATS = 0.25  # less than that is no fact that supports or contradicts anything
LEAST_BITS = 0.03  # a probe that is expected to teach less is not worth its time
LUCK, MOST_REPEATS = 0.1, 2  # chance that runs survived without the intervention's doing, and runs after which no more are asked for
MOST_PROBES = 5  # in one matrix: the budget is for the search as well
CLEAR = 0.88  # probability of the first cause from which no probe is needed
HEAP = ("poisoned_heap", "checked_heap")  # these change a damaged heap: a death elsewhere, or of another kind, is an answer too
ONE_THREAD = "one_thread"
THREADS = {name for name, probe in LEVERS.items() if probe == ONE_THREAD}
CHECKED = "valgrind"  # sees the misuse of memory itself; slow, so it comes last and only for causes that it tells apart
Chances = Mapping[str, Cause]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """A probe that would be worth a run."""

    name: str
    bits: float  # expected, about the cause
    survives: float  # chance that the run does not die

    def bits_per_s(self, survived_s: float, died_s: float) -> float:
        return self.bits / (self.survives * survived_s + (1 - self.survives) * died_s)


def findings(case: Case, causes: Chances) -> Iterator[Finding]:
    """Judgements on every probed run of the known-bad cell that took hold and gave an answer, and on axes that do what a probe does."""
    for run, ended in _one_thread_by_axis(case):
        value = {axis: value for axis, value in run.trial.cell.items() if case.known_bad.get(axis) != value}
        told = "survived" if ended == "survived" else "died alike"
        fact = f"with {describe_cell(value)}, which leaves one thread to the native libraries, it {told}"
        for cause in causes.values():
            weight = _nats(cause.goes_away(ONE_THREAD), case.death_rate, ended)
            if abs(weight) >= LEAST_NATS:
                yield _judgement(cause, ONE_THREAD, run, weight, fact)
    on_stack = all(message(death, "stack smashed") for death in case.deaths)  # another heap changes nothing there
    for name, answered in _answers(case).items():
        run, answer = answered[-1]
        fact = f"under the probe {name} ({_how(run)}) it {'died alike' if answer == 'died' else _changed(case, run)}"
        fact += f", as in {len(answered)} such runs" if len(answered) > 1 else ""
        for cause in causes.values():
            every = sum(_nats(cause.goes_away(name), case.death_rate, each) for _, each in answered)
            weight = max(-MOST_NATS, min(MOST_NATS, every))
            if abs(weight) >= LEAST_NATS and not (on_stack and name in HEAP and cause.name in NATIVE_CRASH):
                yield _judgement(cause, name, run, weight, fact)


def _answers(case: Case) -> dict[str, list[tuple[Observation, str]]]:
    """Return the runs of each intervention in the known-bad cell that took hold and gave an answer; they are independent."""
    found: dict[str, list[tuple[Observation, str]]] = {}
    for run in case.probed:
        name, answer = next(iter(run.trial.probes)), _answer(case, run)
        if answer and run.trial.cell == case.known_bad and not (name == ONE_THREAD and _had_one_thread(case)):
            found.setdefault(name, []).append((run, answer))
    return found


def cured(case: Case, name: str) -> bool | None:
    """Return True if the death goes away under an intervention, with little left to luck; False: it dies alike; None: open.

    A crash that comes now and then stays away by luck, so one survival may not do."""
    answers = [answer for _, answer in _answers(case).get(name, ())]
    if "died" in answers:
        return False
    luck = (1 - case.death_rate) ** len(answers)
    return True if answers and (luck <= LUCK or len(answers) >= MOST_REPEATS) else None


def _judgement(cause: Cause, probe: str, run: Observation, weight: float, fact: str) -> Finding:
    return Finding(cause=cause.name, rule=f"probe {probe}", weight=weight, fact=fact, attempt=run.attempt, file="observation.json")


def _one_thread_by_axis(case: Case) -> Iterator[tuple[Observation, str]]:
    """Runs that differ from the known-bad cell in nothing but the native libraries' number of threads, which is one, and their answers."""
    bad = next((case.environments.get(death.attempt, {}) for death in case.bad_deaths), None)
    if bad is None:
        return
    for run in case.unprobed:
        axes = [axis for axis, value in run.trial.cell.items() if case.known_bad.get(axis) != value]
        ours = case.environments.get(run.attempt, {})
        changed = {name: ours.get(name) for name in {*ours, *bad} if ours.get(name) != bad.get(name)}
        if len(axes) == 1 and changed and set(changed) <= THREADS and set(changed.values()) == {"1"}:
            outcome = case.outcomes[run.attempt]
            if outcome.kind == "survived" or (outcome.kind == "died" and outcome.signature == case.signature):
                yield run, outcome.kind


def _had_one_thread(case: Case) -> bool:
    """Whether no process had a second thread when it died: a probe that changes nothing teaches nothing."""
    seen = [process.threads for death in case.bad_deaths for process in death.memory.processes]
    return bool(seen) and all(threads == 1 for threads in seen)


def propose(
    case: Case,
    shares: Mapping[str, float],
    causes: Chances,
    available: Callable[[str], bool],
    names: Iterable[str],
    wanted: Sequence[str] = (),
) -> Proposal | None:
    """The probe that teaches most about the cause; None: the cause is clear, or no probe would tell.

    `shares`: probabilities of the causes, `unknown` among them.  All probes run the same cell, so the one with most bits has most per
    second.  `wanted`: interventions that tell the first cause from a rival, the best first: without their answer it is not confirmed,
    however clear it looks."""
    tried = {next(iter(run.trial.probes)) for run in case.probed} | {ONE_THREAD for _ in _one_thread_by_axis(case)}
    tried |= {ONE_THREAD} if _had_one_thread(case) else set()
    open_ = [each for each in wanted if cured(case, each) is None and (each not in tried or each in _answers(case))]
    if case.result.reproduced and (name := next(filter(available, open_), None)):
        return information(name, shares, causes, case.death_rate)
    if (
        len(tried) >= MOST_PROBES
        or not case.result.reproduced
        or max((p for name, p in shares.items() if name != "unknown"), default=0.0) >= CLEAR
    ):
        return None
    best = None
    for name in names:
        if name in tried or name == CHECKED or not any(cause.goes_away(name) > UNKNOWN_CURED for cause in causes.values()):
            continue
        proposal = information(name, shares, causes, case.death_rate)
        if proposal.bits > (best.bits if best else LEAST_BITS) and available(name):
            best = proposal
    seen = sum(shares.get(cause, 0.0) for cause in NATIVE_CRASH)
    if best is None and CHECKED not in tried and seen > 0.5 and available(CHECKED):
        return Proposal(name=CHECKED, bits=0.0, survives=0.5)
    return best


def information(name: str, shares: Mapping[str, float], causes: Chances, died: float) -> Proposal:
    """What one run under a probe is expected to teach about the cause, when unprobed runs die with probability `died`."""
    chances = [(share, _survives(_cured(cause, name, causes), died)) for cause, share in shares.items() if share > 0]
    whole = sum(share for share, _ in chances)
    mean = sum(share * chance for share, chance in chances) / whole
    bits = _entropy(mean) - sum(share * _entropy(chance) for share, chance in chances) / whole
    return Proposal(name=name, bits=bits, survives=mean)


def _cured(cause: str, name: str, causes: Chances) -> float:
    return causes[cause].goes_away(name) if cause in causes else UNKNOWN_CURED


def _survives(cured: float, died: float) -> float:
    return cured + (1 - cured) * (1 - died)


def _nats(cured: float, died: float, answer: str) -> float:
    """Log likelihood ratio of the answer against what is not in the catalogue."""
    here, base = _survives(cured, died), _survives(UNKNOWN_CURED, died)
    nats = math.log(here / base) if answer == "survived" else math.log((1 - here) / (1 - base))
    return max(-MOST_NATS, min(MOST_NATS, nats))


def _answer(case: Case, run: Observation) -> str | None:
    """died (alike) | survived (not alike, for a heap that was changed); None: it did not take hold, or something else ended the run."""
    if not all(result.held for result in run.probes) or not run.probes:
        return None
    outcome = case.outcomes[run.attempt]
    if outcome.kind == "survived":
        return "survived"
    if outcome.kind != "died":
        return None
    alike = outcome.signature == case.signature
    if next(iter(run.trial.probes)) in HEAP:
        if alike and not _same_place(case, run) and not _one_step(case):
            return None  # it dies at any step without the probe as well
        return "died" if alike and _same_place(case, run) else "survived"
    return "died" if alike else None


def _one_step(case: Case) -> bool:
    """Whether the known-bad cell dies at one step only, as far as it has died more than once."""
    steps = [death.progress.last_step for death in case.bad_deaths]
    return len(steps) > 1 and len(set(steps)) == 1


def _same_place(case: Case, run: Observation) -> bool:
    """Whether it died at a step at which the known-bad cell dies without the probe."""
    return run.progress.last_step in {death.progress.last_step for death in case.bad_deaths}


def _changed(case: Case, run: Observation) -> str:
    outcome = case.outcomes[run.attempt]
    return "survived" if outcome.kind == "survived" else f"died of {outcome.signature} at step {outcome.steps}, which is another end"


def _how(run: Observation) -> str:
    return "; ".join(result.how for result in run.probes)[:160]


def _entropy(chance: float) -> float:
    return 0.0 if chance <= 0 or chance >= 1 else -(chance * math.log2(chance) + (1 - chance) * math.log2(1 - chance))
