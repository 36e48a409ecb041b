"""Everything that the diagnosis may look at: the observations, how they were judged, what the search found."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from matrix.evidence.runtimes import duplicates
from matrix.records import Cell, Library, Observation, Outcome
from matrix.search import Result

MOST_CERTAIN = 0.98  # rate of death that is taken for granted: an intervention may always meet the run that would have survived


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One failure of one specification: all its attempts up to now, seen from one signature.  Made anew after every attempt."""

    known_bad: Cell
    observations: Sequence[Observation]
    outcomes: dict[str, Outcome]  # by attempt
    environments: dict[str, dict[str, str]]  # what the specification set for each attempt
    result: Result
    signature: str | None  # of the failure that is looked at; None: nothing died
    observed_steps: Sequence[int] = ()  # of deaths in the known-bad cell that people had before
    no_probe: dict[str, str] = dataclasses.field(default_factory=dict)  # probe that was wanted -> why it cannot be had here

    @functools.cached_property
    def deaths(self) -> list[Observation]:
        """Attempts without a probe that died of this signature."""
        return [o for o in self.unprobed if self.outcomes[o.attempt].signature == self.signature is not None]

    @functools.cached_property
    def survivors(self) -> list[Observation]:
        return [o for o in self.unprobed if self.outcomes[o.attempt].kind == "survived"]

    @functools.cached_property
    def unprobed(self) -> list[Observation]:
        """Attempts that say what their cell does by itself, with all that can be known of them."""
        return [o for o in self.observations if not o.trial.probes and o.trial.purpose != "control" and o.trial.watched]

    @functools.cached_property
    def probed(self) -> list[Observation]:
        """Attempts under an intervention of the tool's own."""
        return [o for o in self.observations if o.trial.probes]

    @functools.cached_property
    def bad_deaths(self) -> list[Observation]:
        """Those of the known-bad cell itself."""
        return [death for death in self.deaths if death.trial.cell == self.known_bad]

    @functools.cached_property
    def beside(self) -> list[tuple[str, Observation]]:
        """Survivors that differ from the known-bad cell in one axis alone, each with that axis."""
        found = []
        for survivor in self.survivors:
            changed = [axis for axis, value in survivor.trial.cell.items() if self.known_bad.get(axis) != value]
            if len(changed) == 1:
                found.append((changed[0], survivor))
        return found

    @property
    def death_rate(self) -> float:
        """Of the known-bad cell in a run: what the search makes of all its answers; before that, the posterior mean of the cell's own
        runs from a uniform prior, deaths of other signatures left out."""
        if (rate := self.result.crash_rate) is not None and rate.per == "run":
            return min(rate.median, MOST_CERTAIN)
        kinds = [self.outcomes[o.attempt].kind for o in self.unprobed if o.trial.cell == self.known_bad]
        return (kinds.count("died") + 1) / (kinds.count("died") + kinds.count("survived") + 2)

    def said_alike(self, kind: str) -> bool:
        """Whether a run that survived printed a line of that kind too: then the words did not end anything."""
        return any(message.kind == kind for survivor in self.survivors for message in survivor.messages)

    def outcomes_of(self, cell: Cell) -> list[Outcome]:
        """Return how the attempts of a cell ended, those with probes left out."""
        return [self.outcomes[o.attempt] for o in self.unprobed if o.trial.cell == cell]

    def survivors_of(self, cell: Cell) -> list[Observation]:
        return [o for o in self.survivors if o.trial.cell == cell]

    def runs_as_much(self, cell: Cell, *, but: str = "") -> bool:
        """Whether the surviving attempts of `cell` still load every native runtime that the dying ones did, `but` one family.

        This tells a cure from switching off what would crash."""
        wanted = {library.path for death in self.deaths for library in death.libraries if library.family != but}
        survivors = [o for o in self.survivors_of(cell) if o.libraries]
        return bool(survivors) and all(wanted <= {library.path for library in o.libraries} for o in survivors)

    def environment(self, observation: Observation, name: str) -> str | None:
        """A variable as the specification set it and the program then changed it; what the shell handed down is not known here."""
        value = self.environments.get(observation.attempt, {}).get(name)
        for change in observation.env_changes:
            if change.name == name:
                value = change.value
        return value


def duplicate_runtimes(observation: Observation) -> list[list[Library]]:
    """Groups of OpenMP runtimes of one family that were mapped into one process, each of which registers itself."""
    return duplicates(observation.libraries)
