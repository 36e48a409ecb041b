"""Secrets that only the structure of a document gives away: a `name` and its `value` side by side, escaped and folded text."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from reports.redact.finder import find
from reports.redact.identity import Identities
from reports.redact.named import is_secret, strength_of

Found = tuple[str, str]  # kind and value
DEEPEST = 200
_OPTION = re.compile(r"[\w.-]{1,80}")  # --password=x, PASSWORD=x
_ESCAPED = frozenset('\n\t\r"\\')


def secrets_of(name: str, text: str, identities: Identities) -> list[Found]:
    """What a JSON, JSON lines or YAML document holds; nothing of what cannot be parsed (its text is still searched)."""
    found: list[Found] = []
    for document in _documents(name, text):
        _walk(document, "", identities, DEEPEST, found)
    return found


def parses(name: str, text: str) -> bool:
    """Return False for a document of YAML or TOML that is damaged; True for all other text."""
    if not name.endswith((".yaml", ".yml", ".toml")):
        return True
    try:
        if name.endswith(".toml"):
            return _parses_as_toml(text)
        from ruamel.yaml import YAML

        list(YAML(typ="safe", pure=True).load_all(text))
    except Exception:  # a reader of YAML raises what it likes
        return False
    return True


def _parses_as_toml(text: str) -> bool:
    if sys.version_info < (3, 11):
        return True
    import tomllib  # type: ignore[import-not-found,unused-ignore]

    tomllib.loads(text)
    return True


def _documents(name: str, text: str) -> Iterator[Any]:
    if name.endswith(".json"):
        yield from _parsed(text)
    elif name.endswith(".jsonl"):
        for line in text.splitlines():
            yield from _parsed(line)
    elif name.endswith((".yaml", ".yml")):
        yield from _yaml(text)


def _parsed(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        return


def _yaml(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        yield YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError, TypeError):
        return


def _walk(node: Any, name: str, identities: Identities, deeper: int, found: list[Found]) -> None:
    if isinstance(node, str):
        _scalar(node, name, found)
        option, _, value = node.partition("=")
        if value and _OPTION.fullmatch(option):
            _scalar(value, option, found)
        if not _ESCAPED.isdisjoint(node):
            found += ((hit.kind, node[hit.start : hit.end]) for hit in find(node, identities))
    elif deeper and isinstance(node, dict):
        for named in ("name", "key"):
            if isinstance(node.get(named), str) and isinstance(node.get("value"), str):
                _scalar(node["value"], node[named], found)
        for key, value in node.items():
            if isinstance(value, str | dict | list):
                _walk(value, str(key), identities, deeper - 1, found)
    elif deeper and isinstance(node, list):
        before: Any = ""
        for value in node:
            option = before if isinstance(before, str) and before.startswith("-") and "=" not in before else name
            _walk(value, option, identities, deeper - 1, found)
            before = value


def _scalar(value: str, name: str, found: list[Found]) -> None:
    if value and (strength := strength_of(name)) and is_secret(value, strength, name) and not value.startswith("-"):
        found.append(("named-secret", value))
