"""The JSON Schema of the specification file, for editors."""

from __future__ import annotations

from typing import Any

from matrix.spec.spec import Spec

_NULL = {"type": "null"}


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file: keys, kinds of values, units, and a description of each key.

    What no schema can say (known_bad names axes, placeholders, regular expressions) is checked when the file is loaded.
    """
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Crash matrix",
        "description": "What to run, what to vary, and how far to go.",
    }
    return {**_of_file(Spec.model_json_schema(by_alias=True)), **about}


def _of_file(node: Any) -> Any:
    """Without what is true of the Python model only: null for an absent key, defaults of whole sections, generated titles."""
    if isinstance(node, list):
        return [_of_file(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _of_file(value) for key, value in node.items() if not _is_noise(key, value)}
    options = [option for option in kept.get("anyOf", []) if option != _NULL]
    if len(options) == 1:
        del kept["anyOf"]
        return {**options[0], **kept}
    return {**kept, "anyOf": options} if options else kept


def _is_noise(key: str, value: object) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and (value is None or isinstance(value, dict)))
