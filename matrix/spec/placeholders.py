"""`{attempt_dir}` and its like in commands, environment and written paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from matrix.spec.problems import Refused, suggest

NAMES = ("attempt_dir", "attempt", "port", "cpu_list", "gpu")

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")
_BRACES = "write {{ and }} for braces"


def check(text: str) -> str:
    """The text itself.  Raises Refused for an unknown placeholder or an unbalanced brace."""
    for token in _TOKEN.finditer(text):
        if token[0] in "{}":
            raise Refused(f"unbalanced '{token[0]}' in {text!r}", f"{_BRACES}; placeholders: {_listed()}")
        if token["name"] is not None and token["name"] not in NAMES:
            raise Refused(f"unknown placeholder {token[0]!r}", f"{suggest(token['name'], NAMES, 'placeholders')}; {_BRACES}")
    return text


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders replaced, `{{` and `}}` turned into braces.

    Raises ValueError when it uses a placeholder that `values` lacks.
    """

    def replacement(token: re.Match[str]) -> str:
        name = token["name"]
        if name is None:
            return token[0][0]
        if name not in values:
            raise ValueError(f"{text!r} uses {token[0]}, which has no value in this attempt; known: {', '.join(sorted(values))}")
        return values[name]

    return _TOKEN.sub(replacement, text)


def escape(text: str) -> str:
    """The text such that `fill` gives it back unchanged."""
    return text.replace("{", "{{").replace("}", "}}")


def used(text: str) -> Iterator[str]:
    """Names of the placeholders in a text."""
    return (token["name"] for token in _TOKEN.finditer(text) if token["name"] is not None)


def _listed() -> str:
    return " ".join(f"{{{name}}}" for name in NAMES)
