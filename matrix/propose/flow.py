"""Values as YAML in one line, each such that the specification's reader gives back exactly what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WORD = re.compile(r"[A-Za-z_/][\w/+-]*(?:[.=][\w/+-]+)*|--?[A-Za-z_][\w.-]*|\.{1,2}/[\w./-]*", re.ASCII)
DISPUTED = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
WHOLE = re.compile(r"-?[1-9]\d{0,30}|0", re.ASCII)
BROKEN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)", re.ASCII)


class Number(str):
    """A number that keeps the text in which it was written."""


def number(text: str) -> str:
    """A Number where the reader would pass the same text on; else the word."""
    return Number(text) if WHOLE.fullmatch(text) or BROKEN.fullmatch(text) else text


def flow(value: object) -> str:
    """`{values: [8, 16], flag: --batch-size}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (Number, int, float)):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(str(value))


def scalar(text: str) -> str:
    """A word, in quotes where readers could take it for something else."""
    if WORD.fullmatch(text) and text.lower() not in DISPUTED:
        return text
    if "\\" in text and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isprintable() and letter != "\ufeff":
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def comment(text: str, *, most: int = 110) -> str:
    """One line that can stand behind a #."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return shown if len(shown) <= most else shown[: most - 1] + "…"
