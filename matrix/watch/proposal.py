"""The watched run as a specification of its own, and the one of the matrix that would settle what it leaves open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.propose import of_observation
from matrix.propose.draft import draft
from matrix.propose.text import text
from matrix.records import Observation, Verdict
from matrix.spec.placeholders import escape


def as_it_was(name: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    """Nothing is varied: what a replay needs."""
    lines = ["# The run as it was watched; nothing is varied here.", f"name: {_word(name)}", "run:", "  command:"]
    lines += [f"    - {_word(escape(word))}" for word in argv]
    lines.append(f"  cwd: {_word(cwd)}")
    if env:
        lines += ["  env:", *(f"    {key}: {_word(escape(value))}" for key, value in sorted(env.items()))]
    return "\n".join([*lines, "matrix:", "  run: {choices: {as_it_was: {}}}", ""])


def matrix(
    name: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str], observation: Observation, verdict: Verdict, path: Path
) -> str:  # fmt: skip
    """YAML that `python -m matrix run` takes as it is, from `path`.  Raises CannotPropose when the command is not there any more."""
    made = draft(argv, cwd=cwd, env=env, facts=of_observation(observation), name=name, folder=path.parent)
    first = verdict.ranking[0]
    head = f"# Proposed after the watched run died.  That one run points at {first.cause} ({first.grade}, {first.probability:.0%});\n"
    return head + "# these runs would settle it.\n" + text(made, str(path))


def _word(word: str) -> str:
    """A JSON string is a YAML one."""
    return json.dumps(word)
