"""Lines of a hook.jsonl, which the program can write to as well: a line that is not as the hook writes it is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST_BYTES = 64 << 20  # of the file; the hook bounds what each process writes
MOST = 1 << 62  # of a number
Record = dict[str, Any]

TEXT, NUMBER, COUNT, YES, NAMES = (str,), (int, float), (int,), (bool,), (list,)
NOTHING = type(None)
# What each kind of line holds beside "t", "pid" and "kind"; a kind that is not here has its own reader.
FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "hello": {
        "ppid": COUNT, "main": YES, "start": (str, NOTHING), "helper": (str, NOTHING),
        "task": (str, NOTHING), "dump_signal": (int, NOTHING),
    },
    "env": {"name": TEXT, "value": (str, NOTHING), "module": TEXT},
    "fork": {"threads": COUNT, "names": (list, NOTHING), "start_method": (str, NOTHING), "module": TEXT},
    "exit": {"call": TEXT, "status": TEXT, "where": TEXT, "installed": (bool, NOTHING)},
    "rlimit": {"name": TEXT, "soft": COUNT, "hard": COUNT},
    "modules": {"native": NAMES},
    "state": {
        "cpus": (list, NOTHING), "native_threads": (int, NOTHING), "limits": (list, NOTHING),
        "sigpipe_default": (bool, NOTHING),
    },
    "sigpipe": {"default": YES},
}  # fmt: skip
LISTS_OF_NUMBERS = ("cpus",)


def hook_records(path: Path) -> list[Record]:
    """Whole, well-formed lines of a hook.jsonl; [] when there is none."""
    try:
        with path.open("rb") as source:
            lines = source.read(MOST_BYTES).splitlines()
    except OSError:
        return []
    return [record for line in lines if (record := _record(line)) is not None]


def _record(line: bytes) -> Record | None:
    """The record of one line; None when it is torn, as of a process that was killed, or not of the hook's form."""
    try:
        record = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not _is_of_the_hook(record):
        return None
    return {**dict.fromkeys(FIELDS.get(record["kind"], ())), **_clean(record)}


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity are no JSON


def _is_of_the_hook(record: Record) -> bool:
    base = {"t": NUMBER, "pid": COUNT, "kind": TEXT}
    fields = {**base, **FIELDS.get(str(record.get("kind")), {})}
    return all(_fits(name, record.get(name), kinds) for name, kinds in fields.items())


def _fits(name: str, value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, (int, float)):
        return isinstance(value, kinds) and abs(value) < MOST  # False for NaN too
    if isinstance(value, list):
        items: tuple[type, ...] = (int,) if name in LISTS_OF_NUMBERS else (str,)
        return list in kinds and all(_fits("", item, items) for item in value)
    return isinstance(value, kinds)


def _clean(value: Any) -> Any:
    """The same with every text writable: half of a surrogate pair can be read from JSON and not be written."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {_clean(name): _clean(item) for name, item in value.items()} if isinstance(value, dict) else value
