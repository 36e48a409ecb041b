"""First stage: does the known-bad cell die, how, and how often?"""

from __future__ import annotations

from matrix.records import Outcome, Trial
from matrix.search.ledger import Ledger, ran_whole
from matrix.search.stats import clean_runs_for
from matrix.search.want import Step, Want
from matrix.search.words import changed, counted

# A crash that comes one time in five would have shown, with 95 %, in so many runs (14).  Fewer would call exactly the
# crashes "not reproduced" that people meet and cannot pin down; a bound of 10 % would cost twice as many runs.
CLEAN_RUNS = clean_runs_for(0.20)
MOST_CLEAN = clean_runs_for(
    0.05
)  # of a large budget more may go into seeing it die at all: a crash of 20 % hides in 14 runs one time in 23
SHARE = 0.4  # of the budget
FEWEST = 6  # survivals, however long they were
DOUBLINGS = 4  # of the length of a run, where the specification says how to ask for a longer one
OF_WALL = 0.5  # of the limit on an attempt's time, at most
DEATHS = 2  # alike, when every run dies
FLAKY_DEATHS = 3  # alike, when some runs survive or end otherwise: fewer say too little about how rare it is
FIRST_DEATH = 1  # is enough until another signature shows up: how often it dies is learnt from every run
USELESS = 6  # runs that were all cut short: more of the same will not help
CONTRASTS = 3  # of other cells among these, where it was cut short while it made steps


def over(ledger: Ledger, max_runs: int) -> bool:
    """Whether the known-bad cell has been run often enough to go on, or to stop."""
    tally = ledger.tally(ledger.grid.known_bad)
    if tally.unavailable or tally.deaths >= deaths_wanted(ledger):
        return True
    if tally.deaths == 0:
        enough = tally.survivals >= FEWEST and exposure(ledger) >= clean_wanted(max_runs)
        return enough or (tally.survivals == 0 and tally.neutral + min(CONTRASTS, len(_others(ledger))) >= USELESS)
    return tally.deaths + tally.survivals + tally.neutral >= max(CLEAN_RUNS, max_runs // 2)  # the other half is for the cause


def clean_wanted(max_runs: int) -> int:
    """Natural runs' worth of survivals after which it is not reproduced."""
    return max(CLEAN_RUNS, min(MOST_CLEAN, int(SHARE * max_runs)))


def exposure(ledger: Ledger) -> float:
    """The survivals of the known-bad cell, counted in natural runs: a run of twice the steps counts twice."""
    natural = _natural(ledger)
    longer = [outcome.steps for trial, outcome in _survivals(ledger) if not ran_whole(trial, outcome)]
    whole = sum(ran_whole(trial, outcome) for trial, outcome in _survivals(ledger))
    return whole + (sum((steps or 0) / natural for steps in longer) if natural else 0.0)


def _survivals(ledger: Ledger) -> list[tuple[Trial, Outcome]]:
    bad = ledger.grid.key(ledger.grid.known_bad)
    return [(t, o) for t, o in ledger.entries() if o.kind == "survived" and ledger.grid.key(t.cell) == bad]


def _natural(ledger: Ledger) -> int | None:
    """Steps of a natural run that survived; None: not known."""
    return next((o.steps for t, o in _survivals(ledger) if ran_whole(t, o) and o.steps), None)


def _length(ledger: Ledger) -> int | None:
    """Each survival doubles the length of the next run, as far as the limit on its time allows."""
    spec, natural, survived = ledger.grid.spec, _natural(ledger), _survivals(ledger)
    if natural is None or spec.run.length is None or ledger.tally(ledger.grid.known_bad).deaths:
        return None
    pace, limit = max(o.seconds / o.steps for _, o in survived if o.steps), spec.limits.wall_s
    doublings = min(DOUBLINGS, len(survived))
    while doublings and limit is not None and natural * 2**doublings * pace > OF_WALL * limit:
        doublings -= 1
    return natural * 2**doublings if doublings else None


def deaths_wanted(ledger: Ledger) -> int:
    tally = ledger.tally(ledger.grid.known_bad)
    if not ledger.other_signatures():
        return FIRST_DEATH
    return FLAKY_DEATHS if tally.survivals or tally.neutral else DEATHS


def step(ledger: Ledger, max_runs: int, seed: int) -> Step:
    if over(ledger, max_runs):
        return None
    if (contrast := _contrast(ledger, seed)) is not None:
        return contrast
    tally = ledger.tally(ledger.grid.known_bad)
    if tally.pending >= max(DEATHS, deaths_wanted(ledger)) - tally.deaths:
        return "wait"
    return Want(cell=ledger.grid.known_bad, purpose="calibrate", max_steps=_length(ledger), why=_why(tally.deaths, tally.survivals))


def _contrast(ledger: Ledger, seed: int) -> Want | None:
    """A cell that may finish where the known-bad one was cut short: how long the work takes elsewhere tells whether it is too slow."""
    grid, bad = ledger.grid, ledger.grid.key(ledger.grid.known_bad)
    cut = any(o.kind == "censored" and o.steps and grid.key(t.cell) == bad for t, o in ledger.entries())
    running = [trial for trial in ledger.pending.values() if grid.key(trial.cell) != bad]
    if not cut or ledger.tally(grid.known_bad).deaths or len(_others(ledger)) + len(running) >= CONTRASTS:
        return None
    seen = {grid.key(trial.cell) for trial in [*(trial for trial, _ in ledger.entries()), *running]}
    good = [grid.spec.known_good] if grid.spec.known_good else []
    for cell in [*good, *grid.opposites(seed)]:
        if grid.key(cell) not in seen:
            why = f"The known-bad cell made steps until it was cut short: how long does the same take with {changed(grid.changes(cell))}?"
            return Want(cell=cell, purpose="find", why=why)
    return None


def _others(ledger: Ledger) -> list[Outcome]:
    """The answers of other cells."""
    bad = ledger.grid.key(ledger.grid.known_bad)
    return [o for t, o in ledger.entries() if o.kind != "unavailable" and ledger.grid.key(t.cell) != bad]


def _why(deaths: int, survivals: int) -> str:
    if not deaths and not survivals:
        return "Does the known-bad cell die here at all, and how?"
    if not survivals:
        return "The known-bad cell died: does it die again, in the same way?"
    if not deaths:
        return f"The known-bad cell has survived {counted(survivals, 'run')}: is the crash only rarer than that?"
    return f"The known-bad cell died in {deaths} of {deaths + survivals} runs: how often does it die?"
