"""Whether it dies at one sample of the data, in native code or by an exception: where deaths come under other batch sizes, orders, seeds.

The search runs most such cells anyway, with the other axes drawn at random; `question` asks for what is missing.  `places.py` finds out
which axes make the size of a step and the order.  A sample that kills is confirmed only where it stays under another seed, and moves
where the seed changes the order: a number drawn at random moves with the seed, and something that fills up with neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from matrix.diagnosis import limits
from matrix.diagnosis.addresses import behind_the_end, the_fault
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding, message
from matrix.diagnosis.native import crash_signal, heap_is_damaged
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.places import APART, Idea, ahead, ideas, is_number, repeated, size_of, steady, step
from matrix.records import Cell, Finding, MessageKind, Observation, Value

CORRUPT, EXCEPTION = "corrupt_input_data", "python_exception"
WHY = "Does it die at the same sample of the data, in steps of another size, in another order or with another seed?"
SEEDS = 3  # values of an axis, of which one may lie far from what those on both sides of it give
NEAR = 0.1  # of the time that the steps took: moments within it are the same
FAR = 1 << 30  # bytes: no table is so large that a count leads there
FULL: tuple[MessageKind, ...] = (  # in whose words an exception says that something was, which what is read may add up to at one sample
    "out of memory", "cuda out of memory", "no space", "too many files", "no more processes", "file too large", "no more ports",
)  # fmt: skip


def findings(case: Case) -> Iterator[Finding]:
    crashed = _crashes(case)
    found = ideas(case, crashed)
    if not found or not (repeated(crashed) or all(each.repeats for each in found)):
        return
    idea = found[0]
    batch = f"if {' times '.join(idea.size)} is the size of a batch"
    if all(each.places_shown for each in found):
        corrupt, native, fact = _in_two_orders(crashed, found, batch)
    elif idea.order.axis is None:
        fact = f"{batch}, all deaths came at one sample, about {idea.places[()][0]}, at several steps"
        by_address = any(crash_signal(death) in ("SIGSEGV", "SIGBUS") for death in crashed)  # so ends a count that leaves its table
        corrupt, native = (1.5, -0.5) if by_address or _raised(crashed[0]) else (3.0, -1.0)  # and so does the end of the data
    else:
        return
    yield finding(CORRUPT, "same sample", crashed[0], corrupt, fact, "stdout.log")
    for cause in (EXCEPTION,) if _raised(crashed[0]) else NATIVE_CRASH:
        yield finding(cause, "same sample", crashed[0], native, fact, "stdout.log")


def _in_two_orders(crashed: Sequence[Observation], found: Sequence[Idea], batch: str) -> tuple[float, float, str]:
    """Nats for the data, and for the causes in native code, and the fact."""
    idea = found[0]
    where = " and ".join(str(idea.places[key][0]) for key in idea.shown)
    orders = " or ".join(dict.fromkeys(" with ".join(each.order.axes) for each in found))
    fact = f"{batch}, deaths came at one sample, {where} by the order that {orders} makes"
    # a cell must have died twice itself: what does not matter is only inferred
    record = repeated(crashed) and all(each.of_a_record for each in found)
    if record:
        fact += f"; it stays there whatever {idea.order.seed} is where {idea.order.axis}={idea.order.plain}: what it holds ends it"
    else:
        fact += ": what it holds ends it, or a number that is drawn at random and changes with the order"
    # how it crashed is the same whether the data or the caller holds what is wrong
    corrupt, native = (5.0, -5.0) if record and not any(map(_may_count, crashed)) else (3.5, -3.0)
    if _raised(crashed[0]) and not record:  # then words that other errors have too confirm nothing beside it either
        corrupt = 2.0
    if idea.order.seed is not None and not record:  # what is drawn at random moves with a seed as well, and so do records
        return 1.5, -2.0, fact
    if not all(each.told for each in found):
        return corrupt / 2, native / 2, f"{fact}, unless it fills something up that many times faster"
    return corrupt, native, fact


# ------------------------------------------------------------------ what to ask
def question(case: Case, allowed: Callable[[Cell], bool], values: Mapping[str, Sequence[Value]]) -> Cell | None:
    """A cell whose death would show more of whether it is one sample: the known-bad one once more, in steps of another size in another
    order, then with each axis that may change the order and that no death tells about yet, then with one that may be the seed.
    `values`: of all axes."""
    crashed = _crashes(case)
    found = ideas(case, crashed)
    if found and not repeated(crashed):
        if len(case.bad_deaths) == 1:
            return case.known_bad
        if not all(idea.repeats for idea in found):  # that of another kind once as well is enough of that
            return None
    if all(idea.of_a_record for idea in found):  # or there is none
        return None
    ran = [run.trial.cell for run in case.unprobed]
    cells = (cell for idea in found for cell in _cells(case, idea, crashed, values))
    return next((cell for cell in cells if cell not in ran and allowed(cell)), None)


def _cells(case: Case, idea: Idea, crashed: Sequence[Observation], values: Mapping[str, Sequence[Value]]) -> Iterator[Cell]:
    """The smallest step first; of another order one cell for each axis, for most axes change none."""
    yield from _other_sizes(idea, crashed)
    if idea.order.axis is None:
        yield from _changed(case, idea, crashed, values).values()
    elif idea.order.seed is None and idea.told and _may_be_confirmed(crashed):
        groups = [[death for death in crashed if idea.order.key(death.trial.cell) == key] for key in idea.shown]
        seeds = {axis: known for axis, known in values.items() if _may_be_seed(known)}
        changed = [_changed(case, idea, deaths, seeds) for deaths in groups]
        yield from (each[axis] for axis in seeds for each in changed if axis in each)
    elif (seed := idea.order.seed) and _may_be_seed(values[seed]) and not idea.order.always_both:
        moving = [death for death in crashed if len(idea.order.key(death.trial.cell)) == 2]
        plain = [death for death in crashed if death not in moving and step(death) >= APART + ahead(death)]
        asks = [(moving, not idea.scattered), (plain, not idea.stayed)]
        yield from ({**death.trial.cell, seed: value} for deaths, open_ in asks if open_ for death in deaths[:1] for value in values[seed])


def _may_be_seed(values: Sequence[Value]) -> bool:
    """Whether it has values enough to tell a seed from a number that something fills up by."""
    return len(values) >= SEEDS and all(map(is_number, values))


def _other_sizes(idea: Idea, crashed: Sequence[Observation]) -> Iterator[Cell]:
    """Cells that died in an order in which it is not shown to be one sample, with other values of the axes of size, where they would die
    at a step of its own."""
    chosen = {tuple(death.trial.cell[axis] for axis in idea.size): size_of(death.trial.cell, idea.size) for death in crashed}
    enough = idea.places_shown if idea.order.always_both else idea.seeds_shown
    for death in crashed if idea.order.axis is not None else ():
        key = idea.order.key(death.trial.cell)
        first, last = idea.places[key]
        if key in idea.shown or not all(idea.apart(key, shown) for shown in idea.shown) or (len(key) == 2 and enough):
            continue
        for value, size in sorted(chosen.items(), key=lambda each: each[1]):
            if min(abs(place // size - step(death)) for place in (first, last - 1)) > APART:
                yield {**death.trial.cell, **dict(zip(idea.size, value, strict=True))}


def _changed(case: Case, idea: Idea, deaths: Sequence[Observation], values: Mapping[str, Sequence[Value]]) -> dict[str, Cell]:
    """By axis: a death's cell with that one changed, if all these deaths have it alike, so that none tells whether it changes where they
    come, and it does not decide whether they do."""
    decides = {axis for axis, _ in case.beside}
    cell = next((death.trial.cell for death in deaths if death.trial.cell == case.known_bad), deaths[0].trial.cell)
    found = {}
    for axis in values.keys() - {*idea.size, *idea.order.axes} - decides:
        seen = {death.trial.cell[axis] for death in deaths}
        others = [value for value in values[axis] if value not in seen]
        if len(seen) == 1 and others:
            found[axis] = {**cell, axis: others[0]}
    return {axis: found[axis] for axis in values if axis in found}


# ------------------------------------------------------------------ deaths
def _crashes(case: Case) -> list[Observation]:
    """Of native code, or exceptions; []: they do not come at one step of their cell, or are as well explained by what is full or by a
    time.  All are of one signature."""
    crashed = [death for death in case.deaths if crash_signal(death)] or [death for death in case.deaths if _raised(death)]
    return crashed if steady(crashed) and not any(map(_fills, crashed)) and not _one_time(crashed) else []


def _raised(death: Observation) -> bool:
    """Whether an exception ended it, and none that says that something was full or used up."""
    left = death.exit.left_by in (None, "interpreter") and death.exit.ended_by == "itself" and not crash_signal(death)
    return left and death.python_error is not None and not death.exit.signal and not any(message(death, kind) for kind in FULL)


def _fills(death: Observation) -> bool:
    """Whether it died as what fills up does: at a limit, or where something wrote on into what is not its own."""
    fault = the_fault(death)
    wrote = fault is not None and (fault.access == "write" or (fault.access is None and behind_the_end(fault)))
    ran_on = fault is not None and wrote and abs(fault.index_bytes or 0) < FAR
    at_limit = any(trend.limit and trend.most >= limits.NEAR * trend.limit for trend in death.trends)
    return ran_on or at_limit or heap_is_damaged(death)


def _may_count(death: Observation) -> bool:
    """Whether a count could lead there as well: what checks itself, or raises, may check how full something is, and what lies just behind
    something is where a table ends."""
    fault = the_fault(death)
    just_behind = fault is not None and (behind_the_end(fault) or fault.before not in ("nothing", ""))
    return crash_signal(death) == "SIGABRT" or just_behind or _raised(death)


def _may_be_confirmed(crashed: Sequence[Observation]) -> bool:
    """Whether a record that is shown would confirm it: an exception's words must be about what was read as well."""
    if _raised(crashed[0]):
        return all(message(death, "corrupt input") for death in crashed)
    return not any(map(_may_count, crashed))


def _one_time(crashed: Sequence[Observation]) -> bool:
    """Whether all deaths may have come at one moment, since the start or since the first step: between the last step and the next."""
    windows = [window for death in crashed if (window := _window(death))]
    off = NEAR * max((late - first for first, _, late in windows), default=0.0)
    by_start = [(early, late) for _, early, late in windows]
    by_step = [(early - first, late - first) for first, early, late in windows]
    return any(max(early for early, _ in each) <= min(late for _, late in each) + off for each in (by_start, by_step) if each)


def _window(death: Observation) -> tuple[float, float, float] | None:
    """The time of the first step, and the earliest and the latest time of death, in seconds since the start; None: no steps."""
    seen = death.progress
    if seen.first_step_s is None or seen.last_step_s is None or seen.longest_gap_s is None:
        return None
    return seen.first_step_s, seen.last_step_s, seen.last_step_s + seen.longest_gap_s
