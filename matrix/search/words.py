"""Sentences for people about what the search has learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.records import Cell, Fix, Value
from matrix.search.stats import upper95

if TYPE_CHECKING:
    from matrix.search.decode import State, View
    from matrix.search.grid import Change
    from matrix.search.ledger import Tally


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def changed(changes: Cell) -> str:
    """`bs=8, omp=plain and accum=1`."""
    parts = [f"{name}={value}" for name, value in changes.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def tried(fix: Fix) -> str:
    """How well a fix was tried."""
    runs = counted(fix.clean_runs, "clean run")
    limit = f", fails in fewer than {fix.failure_rate_upper_95.value:.0%} of runs with 95 % confidence" if fix.failure_rate_upper_95 else ""
    return f"verified in {runs}{limit}" if fix.verified else f"{runs}, not verified"


def learnt_of(view: View, culprit: dict[str, list[Value]], probability: float) -> str:
    """One sentence or two: what is known of the crash."""
    tally = view.ledger.tally(view.grid.known_bad)
    if not tally.deaths:
        return not_reproduced(tally)
    often = f"died in {tally.deaths} of {counted(tally.deaths + tally.survivals, 'run')} ({view.ledger.main_signature()})"
    if culprit:
        where = "; ".join(f"{name}={' or '.join(map(str, values))}" for name, values in culprit.items())
        dies = "It dies" if culprit == view.culprit() else "It probably dies"
        return f"The known-bad cell {often}. {dies} with {where} (probability {probability:.3f})."
    decided = all(state != "open" for state in view.states().values())
    return f"The known-bad cell {often}; " + ("no single change survives." if decided else "no single change is known to survive yet.")


def not_reproduced(tally: Tally) -> str:
    """The known-bad cell has not died: how rarely it would have to die for that."""
    if tally.unavailable:
        return f"The known-bad cell cannot run here: {tally.unavailable}."
    if not tally.survivals:
        return f"The known-bad cell has given no answer in {counted(tally.neutral, 'run')}."
    runs = counted(tally.survivals, "run") + (f" and {counted(tally.steps, 'step')}" if tally.steps else "")
    rate = f"{upper95(tally.survivals):.2f} per run" + (f" ({upper95(tally.steps):.2g} per step)" if tally.steps else "")
    return f"Not reproduced in {runs}: the crash rate is below {rate} with 95 % confidence."


def learnt(view: View) -> str:
    """One short line for the live view, once the crash has been reproduced."""
    if view.belief is not None and not view.belief.decided:
        return "Leading: " + ", or ".join(f"{words} ({share:.0%})" for words, share in view.belief.leading()) + "."
    states = view.states()
    decided = sum(state != "open" for state in states.values())
    alive = ", ".join(changed(dict([change])) for change, state in states.items() if state == "survives" and view.seen_alive(change))
    ways = f"survives with {alive}" if alive else "nothing survives yet"
    return f"{decided} of {counted(len(states), 'change')} decided; {ways}."


def never_tested(view: View) -> list[str]:
    """What the runs say nothing about: one phrase for each change of the known-bad cell."""
    if not view.ledger.tally(view.grid.known_bad).deaths:
        return ["every cell but the known-bad one, because that one has not died"]
    states = view.states()
    inferred = [change for change in view.grid.singles if view.belief is not None and _only_inferred(view, change, states[change])]
    reasons = {change: view.grid.reasons.get(change) or _undecided(view, change, states[change]) for change in view.grid.order}
    found = [f"{changed(dict([change]))}: {reason}" for change, reason in reasons.items() if reason]
    return found + (["not run alone, inferred from the other runs: " + ", ".join(f"{a}={v}" for a, v in inferred)] if inferred else [])


def _only_inferred(view: View, change: Change, state: State) -> bool:
    tally = view.tally(change)
    return state in ("dies", "survives") and not tally.deaths + tally.survivals + tally.neutral


def _undecided(view: View, change: Change, state: State) -> str | None:
    tally = view.tally(change)
    runs = counted(tally.neutral + tally.survivals, "run")
    ended = f"{tally.other_deaths} died of something else, {tally.censored} were cut short"
    if state == "unavailable":
        return tally.unavailable or "it cannot run here"
    if state in ("dies", "survives") and tally.neutral and not tally.deaths + tally.survivals:
        return f"no answer in {runs} ({ended}), inferred from the other runs"
    return {"unknown": f"no answer in {runs} ({ended})", "open": f"not decided after {runs}"}.get(state)
