"""MANIFEST.json: what a package holds, where it comes from, and what is not in it and why."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

NAME = "MANIFEST.json"
SCHEMA = "matrix.package/1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """One file of the package."""

    name: str
    size: int  # bytes
    sha256: str
    collector: str  # who wrote it
    duration_s: float | None  # how long that took; of an attempt's files the attempt itself; None: written by the packing
    status: str = "collected"
    structure: str | None = None  # sha256 of a Python source's syntax tree without its texts, before anything was taken out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missing:
    what: str
    why: str
    size: int | None = None  # bytes; None: unknown, or nothing is there
    status: str = "not collected"


def to_json(run: str, kind: str, held: list[Held], missing: list[Missing], collectors: list[dict[str, Any]]) -> bytes:
    body = {
        "schema": SCHEMA,
        "run": run,
        "kind": kind,
        "files": [_without_empty(entry) for entry in sorted(held, key=lambda entry: entry.name)],
        "not_collected": [vars(entry) for entry in missing],
        "collectors": collectors,
    }
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")  # which is JSON's own escape


def _without_empty(entry: Held) -> dict[str, Any]:
    return {name: value for name, value in vars(entry).items() if name != "structure" or value is not None}


def from_json(data: bytes) -> list[Held]:
    """The files that a manifest lists.  Raises ValueError when it is no manifest of ours."""
    try:
        body = json.loads(data)
    except RecursionError as problem:
        raise ValueError(f"{NAME} is damaged: it is nested too deeply") from problem
    if not isinstance(body, dict) or body.get("schema") != SCHEMA or not isinstance(body.get("files"), list):
        raise ValueError(f"{NAME} is not of schema {SCHEMA}")
    fields = {field.name for field in dataclasses.fields(Held)}
    try:
        held = [Held(**{key: value for key, value in entry.items() if key in fields}) for entry in body["files"]]
    except (TypeError, AttributeError) as problem:
        raise ValueError(f"{NAME} is damaged: {problem}") from problem
    for entry in held:
        if not (isinstance(entry.name, str) and isinstance(entry.size, int) and isinstance(entry.sha256, str)):
            raise ValueError(f"{NAME} is damaged: a file's name, size or sha256 is of another type")
    return held
