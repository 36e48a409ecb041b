"""`init`: from a command to a specification that runs as it is."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matrix.propose.draft import CannotPropose
    from matrix.propose.facts import Facts, of_observation

__all__ = ["CannotPropose", "Facts", "of_observation", "specification"]


def __getattr__(name: str) -> object:
    """The other names, at first use: `--help` imports this package, and the reader of specifications is slow to import."""
    if name in __all__:
        return getattr(importlib.import_module("matrix.propose.draft" if name == "CannotPropose" else "matrix.propose.facts"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    from matrix.propose.draft import draft
    from matrix.propose.text import text

    made = draft(argv, cwd=cwd, env=env, facts=facts, name=name, run_help=run_help)
    return text(made, f"{made.name}.yaml")
