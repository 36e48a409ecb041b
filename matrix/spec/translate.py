"""pydantic's errors in our own words, with what is allowed and what to do."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from matrix.spec.model import AxisEntry, Choice, Executor, Limits, Observed, Run, SearchOptions
from matrix.spec.problems import Complaint, Refused, describe, suggest, wrong_key

_HOMES: dict[str, type[BaseModel]] = {
    "run": Run,
    "search": SearchOptions,
    "limits": Limits,
    "executor": Executor,
    "an axis": AxisEntry,
    "one of an axis's choices": Choice,
    "an entry of observed": Observed,
}
_EXPECTED = {
    "string_type": "a word",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def complaints_of(error: ValidationError, model: type[BaseModel]) -> Iterator[Complaint]:
    """One complaint for each error of a validation by `model`."""
    for details in error.errors():
        where = tuple(details["loc"])
        if details["type"] == "extra_forbidden":
            key = str(where[-1])
            yield wrong_key(where, f"unknown key '{key}'", _unknown_key_hint(key, _keys(_model_at(model, where[:-1]))))
        elif where and where[-1] == "[key]":  # the key of a mapping, as in env: {…}
            yield wrong_key(where[:-1], *_message(details))
        elif details["type"] == "missing":
            yield Complaint(where[:-1], *_message(details), at_key=True)
        else:
            yield Complaint(where, *_message(details))


def _message(details: ErrorDetails) -> tuple[str, str]:
    kind, context = details["type"], details.get("ctx", {})
    refused = context.get("error")
    if isinstance(refused, Refused):
        return refused.what, refused.hint
    if kind == "missing":
        return f"the key '{details['loc'][-1]}' is missing", "add it"
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {describe(details['input'])}", ""
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {context[key]}, not {details['input']}", ""
    if kind == "too_short":
        return "is empty", "name at least one"
    return details["msg"], ""


def _unknown_key_hint(key: str, allowed: list[str]) -> str:
    homes = [home for home, section in _HOMES.items() if key in _keys(section)]
    return f"it belongs to {' or '.join(homes)}; keys: {', '.join(allowed)}" if homes else suggest(key, allowed, "keys")


def _keys(model: type[BaseModel]) -> list[str]:
    """Keys as the file spells them."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _model_at(model: type[BaseModel], where: tuple[str | int, ...]) -> type[BaseModel]:
    """The model that validates the mapping at a path."""
    kind: Any = model
    for part in where:
        kind = _inside(_bare(kind), part)
    found = _bare(kind)
    return found if _is_model(found) else model


def _inside(kind: Any, part: str | int) -> Any:
    if _is_model(kind):
        return next(info.annotation for name, info in kind.model_fields.items() if part in (name, info.alias))
    return get_args(kind)[-1]  # list[item] or dict[key, item]


def _is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    return get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, BaseModel)  # Python 3.10 takes list[int] for a type


def _bare(kind: Any) -> Any:
    """Without Annotated and without `| None`."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return _bare(next(arg for arg in get_args(kind) if arg is not type(None)))
    return kind
