"""Secrets that only the structure of a document gives away: a `name` and its `value` side by side, escaped and folded text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reports.redact.finder import find
from reports.redact.identity import Identities
from reports.redact.named import is_secret, strength_of

Found = tuple[str, str]  # kind and value
DEEPEST = 200
_ESCAPED = frozenset('\n\t\r"\\')


def secrets_of(name: str, text: str, identities: Identities) -> Iterator[Found]:
    """What a JSON, JSON lines or YAML document holds; nothing of what cannot be parsed (its text is still searched)."""
    for document in _documents(name, text):
        yield from _walk(document, "", identities, 0)


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


def _walk(node: Any, name: str, identities: Identities, depth: int) -> Iterator[Found]:
    if depth > DEEPEST:
        return
    if isinstance(node, dict):
        for pair in (("name", "value"), ("key", "value")):
            if isinstance(node.get(pair[0]), str) and isinstance(node.get(pair[1]), str):
                yield from _scalar(node[pair[1]], node[pair[0]])
        for key, value in node.items():
            yield from _walk(value, str(key), identities, depth + 1)
    elif isinstance(node, list):
        for before, value in zip(["", *node], node, strict=False):
            option = before if isinstance(before, str) and before.startswith("-") and "=" not in before else name
            yield from _walk(value, option, identities, depth + 1)
    elif isinstance(node, str):
        yield from _scalar(node, name)
        if _ESCAPED & set(node):
            yield from ((hit.kind, node[hit.start : hit.end]) for hit in find(node, identities))


def _scalar(value: str, name: str) -> Iterator[Found]:
    if value and is_secret(value, strength_of(name), name) and not value.startswith("-"):
        yield "named-secret", value
