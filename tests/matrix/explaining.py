"""`explain` as users have it, in this process, with its answer read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from matrix.__main__ import main


def run(*words: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, words)], input=stdin)


def explained(*words: str | Path, stdin: str | None = None) -> dict[str, Any]:
    done = run(*words, "--json", stdin=stdin)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*words: str | Path, stdin: str | None = None) -> str:
    done = run(*words, stdin=stdin)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return done.output


def grades(found: dict[str, Any]) -> set[str]:
    return {entry["grade"] for entry in found["ranking"]}


def piece(found: dict[str, Any], words: str) -> dict[str, str]:
    """The one piece of evidence that reads so, beside the one that shows the last line."""
    matching = [one for one in found["evidence"] if words in one["read"] and not one["read"].startswith("last step")]
    assert len(matching) == 1, [one["read"] for one in found["evidence"]]
    first: dict[str, str] = matching[0]
    return first
