"""Everything that the diagnosis may look at: the observations, how they were judged, what the search found."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.evidence.runtimes import duplicates
from matrix.records import Cell, Library, Observation, Outcome
from matrix.search import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One failure of one specification: all its attempts, seen from one signature."""

    known_bad: Cell
    observations: Sequence[Observation]
    outcomes: dict[str, Outcome]  # by attempt
    environments: dict[str, dict[str, str]]  # what the specification set for each attempt
    result: Result
    signature: str | None  # of the failure that is looked at; None: nothing died
    observed_steps: Sequence[int] = ()  # of deaths in the known-bad cell that people had before
    no_probe: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # interventions that were wanted and cannot be had here, with the reason

    @property
    def deaths(self) -> list[Observation]:
        """Attempts without a probe that died of this signature."""
        return [o for o in self.unprobed if self.outcomes[o.attempt].signature == self.signature is not None]

    @property
    def survivors(self) -> list[Observation]:
        return [o for o in self.unprobed if self.outcomes[o.attempt].kind == "survived"]

    @property
    def unprobed(self) -> list[Observation]:
        """Attempts that say what their cell does by itself."""
        return [o for o in self.observations if not o.trial.probes and o.trial.purpose != "control"]

    @property
    def probed(self) -> list[Observation]:
        """Attempts under an intervention of the tool's own."""
        return [o for o in self.observations if o.trial.probes]

    @property
    def death_rate(self) -> float:
        """Of the known-bad cell in a run: posterior mean from a uniform prior, deaths of other signatures left out."""
        kinds = [self.outcomes[o.attempt].kind for o in self.unprobed if o.trial.cell == self.known_bad]
        return (kinds.count("died") + 1) / (kinds.count("died") + kinds.count("survived") + 2)

    def said_alike(self, kind: str) -> bool:
        """Whether a run that survived printed a line of that kind too: then the words did not end anything."""
        return any(message.kind == kind for survivor in self.survivors for message in survivor.messages)

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
