"""`init`: from a command to a specification that runs as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.propose.draft import CannotPropose, draft
from matrix.propose.facts import Facts, of_observation
from matrix.propose.text import text

__all__ = ["CannotPropose", "Facts", "of_observation", "specification"]


def specification(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    facts: Facts | None = None,
    name: str | None = None,
    run_help: bool | None = None,
) -> str:
    """The text of a specification for that command, to be written into `cwd`.

    It is always one that `load_spec` takes.  `run_help`: whether the program is asked for --help; None: when its sources show that
    it answers.  Raises CannotPropose when there is no such command.
    """
    made = draft(argv, cwd=cwd, env=env, facts=facts, name=name, run_help=run_help)
    return text(made, f"{made.name}.yaml")
