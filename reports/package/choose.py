"""Which attempts an expert needs: those that show the failure, those that survive next to it, and those that the verdict cites."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from matrix.records import Cell, Fact, Observation
from reports.ending import ending
from reports.folder import AttemptFolder, RunFolder

MOST = 12  # attempts of a minimal package


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """failing and surviving None: there is no complete attempt of that kind."""

    failing: AttemptFolder | None
    surviving: AttemptFolder | None
    cited: list[AttemptFolder]  # with both of them first, each once

    @property
    def ids(self) -> list[str]:
        return [folder.id for folder in self.cited]


def choose(folder: RunFolder) -> Chosen:
    failing = _failing(folder)
    surviving = _nearest_survivor(folder, failing)
    by_id = {found.id: found for found in folder.attempts}
    wanted = [found.id for found in (failing, surviving) if found]
    wanted += [name for name in _cited(folder) if name in by_id]
    wanted += [found.id for found in folder.attempts[:1]] if not wanted else []
    return Chosen(failing=failing, surviving=surviving, cited=[by_id[name] for name in dict.fromkeys(wanted)][:MOST])


def _failing(folder: RunFolder) -> AttemptFolder | None:
    """Of the main failure; the known-bad cell without probes before others, and one that was seen to its natural end."""
    main = next((failure for failure in (folder.verdict.failures if folder.verdict else []) if failure.main), None)
    bad = folder.plan.known_bad if folder.plan else None
    died = [(found, seen) for found, seen in folder.observed if found.attempt and ending(seen, folder.verdict).kind == "died"]

    def rank(pair: tuple[AttemptFolder, Observation]) -> tuple[bool, bool, bool, bool, str]:
        found, seen = pair
        evident = bool(seen.native_stack or seen.crash_stack or seen.processes)
        return main is not None and found.id not in main.attempts, seen.trial.cell != bad, bool(seen.trial.probes), not evident, found.id

    return min(died, key=rank)[0] if died else None


def _nearest_survivor(folder: RunFolder, failing: AttemptFolder | None) -> AttemptFolder | None:
    """The fewest axes away from the failing cell; of those, without probes, and the one that went the furthest."""
    survived = [(found, seen) for found, seen in folder.observed if found.attempt and ending(seen, folder.verdict).kind == "survived"]
    cell = failing.trial.cell if failing and failing.trial else {}

    def rank(pair: tuple[AttemptFolder, Observation]) -> tuple[bool, int, int, str]:
        found, seen = pair
        return bool(seen.trial.probes), distance(cell, seen.trial.cell), -(seen.progress.last_step or 0), found.id

    return min(survived, key=rank)[0] if survived else None


def distance(one: Cell, other: Cell) -> int:
    """On how many axes two cells differ."""
    return sum(one.get(axis) != other.get(axis) for axis in {*one, *other})


def _cited(folder: RunFolder) -> Iterator[str]:
    """Attempts that the verdict names: facts of the first cause, then one of each other failure, then one that verified the fix."""
    verdict = folder.verdict
    if verdict is None:
        return
    for entry in verdict.ranking[:2]:
        facts: list[Fact] = [*entry.supports, *entry.contradicts]
        yield from (fact.attempt for fact in facts if fact.attempt)
    yield from (failure.attempts[0] for failure in verdict.failures if failure.attempts)
    if fix := verdict.fix:
        fixed = [found.id for found, seen in folder.observed if seen.trial.cell == fix.cell]
        yield from fixed[:1]
