"""First stage: does the known-bad cell die, how, and how often?"""
from __future__ import annotations

from matrix.search.ledger import Ledger
from matrix.search.stats import clean_runs_for
from matrix.search.want import Step, Want
from matrix.search.words import counted

# A crash that comes one time in five would have shown, with 95 %, in so many runs (14).  Fewer would call exactly the
# crashes "not reproduced" that people meet and cannot pin down; a bound of 10 % would cost twice as many runs.
CLEAN_RUNS = clean_runs_for(0.20)
DEATHS = 2  # alike, when every run dies
FLAKY_DEATHS = 3  # alike, when some runs survive or end otherwise: fewer say too little about how rare it is
FIRST_DEATH = 1  # is enough until another signature shows up: how often it dies is learnt from every run
USELESS = 6  # runs that were all cut short: more of the same will not help


def over(ledger: Ledger, max_runs: int) -> bool:
    """Whether the known-bad cell has been run often enough to go on, or to stop."""
    tally = ledger.tally(ledger.grid.known_bad)
    if tally.unavailable or tally.deaths >= deaths_wanted(ledger):
        return True
    if tally.deaths == 0:
        return tally.survivals >= CLEAN_RUNS or (tally.survivals == 0 and tally.neutral >= USELESS)
    return tally.deaths + tally.survivals + tally.neutral >= max(CLEAN_RUNS, max_runs // 2)  # the other half is for the cause


def deaths_wanted(ledger: Ledger) -> int:
    tally = ledger.tally(ledger.grid.known_bad)
    if not ledger.other_signatures():
        return FIRST_DEATH
    return FLAKY_DEATHS if tally.survivals or tally.neutral else DEATHS


def step(ledger: Ledger, max_runs: int) -> Step:
    if over(ledger, max_runs):
        return None
    tally = ledger.tally(ledger.grid.known_bad)
    if tally.pending >= max(DEATHS, deaths_wanted(ledger)) - tally.deaths:
        return "wait"
    return Want(cell=ledger.grid.known_bad, purpose="calibrate", why=_why(tally.deaths, tally.survivals))


def _why(deaths: int, survivals: int) -> str:
    if not deaths and not survivals:
        return "Does the known-bad cell die here at all, and how?"
    if not survivals:
        return "The known-bad cell died: does it die again, in the same way?"
    if not deaths:
        return f"The known-bad cell has survived {counted(survivals, 'run')}: is the crash only rarer than that?"
    return f"The known-bad cell died in {deaths} of {deaths + survivals} runs: how often does it die?"
