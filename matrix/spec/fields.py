"""Types of single values in a specification: each checks, converts, and tells editors its JSON Schema."""

from __future__ import annotations

import math
import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from matrix import user_pattern
from matrix.records import Value
from matrix.spec import placeholders, units
from matrix.spec.problems import Refused, describe, suggest

FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_SCALAR = {"type": ["string", "number", "boolean"]}
_LINES = {"anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR}]}


def text_of(value: Value) -> str:
    """A value as the program gets it: true and false in small letters, floats as they were written."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(value: object) -> object:
    if not isinstance(value, (str, int, float, bool)):
        raise Refused(f"must be a word, a number, true or false, not {describe(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused(f"{value} is not a finite number", "quote it to pass it on as a word")
    if isinstance(value, str) and "\0" in value:
        raise Refused("holds a NUL character", "no program can be given one")
    return value


def _word(value: object) -> str:
    return text_of(_value(value))  # type: ignore[arg-type]  # _value refuses everything else


def _template(value: object) -> str:
    return placeholders.check(_word(value))


def _words(value: object) -> object:
    """One string is split as a shell would split it, but no shell ever sees it."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise Refused(f"cannot be split into words: {str(error).lower()}", "close the quotation, or write a list of words") from None


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _env_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise Refused(f"{value!r} cannot be the name of an environment variable", "allowed: letters, digits, _; no digit first")
    return value


def _flag(value: str) -> str:
    if not value or re.search(r"\s|\0", value):
        raise Refused(f"{value!r} cannot be a flag", "a flag is one word, as in --bs or trainer.bs=")
    return value


def _file_name(value: str) -> str:
    if not re.fullmatch(FILE_NAME, value):
        raise Refused(f"{value!r} cannot name a folder of runs", "allowed: up to 64 letters, digits, . _ -; a letter or digit first")
    return value


def _regex(value: str) -> str:
    try:
        user_pattern.check(value)
    except user_pattern.BadPattern as problem:
        raise Refused(problem.what, problem.hint) from None
    return value


def _progress(value: str) -> str:
    groups = re.compile(_regex(value)).groupindex
    if "step" not in groups:
        near = "".join(f"did you mean it by (?P<{name}>…)? " for name in groups if name not in ("rank", "total"))
        raise Refused("has no group named step", near + r"write (?P<step>\d+) where the number of the step stands")
    return value


def _not_zero(size: int) -> int:
    if size == 0:
        raise Refused("must be more than 0 bytes", "for no limit, remove the key")
    return size


def _jobs(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise Refused(f"must be a whole number from 1, or auto, not {describe(value)}")


def one_of(*allowed: str, later: tuple[str, ...] = ()) -> BeforeValidator:
    """One of some words; `later` are words that the documentation knows and this version does not."""

    def check(value: object) -> object:
        if value in later:
            raise Refused(f"'{value}' is not available yet", f"allowed: {', '.join(allowed)}")
        if not isinstance(value, str) or value not in allowed:
            raise Refused(f"must be one of the known words, not {describe(value)}", suggest(str(value), allowed, "allowed"))
        return value

    return BeforeValidator(check)


Scalar = Annotated[Value, PlainValidator(_value), WithJsonSchema(_SCALAR)]
Template = Annotated[str, BeforeValidator(_template), WithJsonSchema(_SCALAR)]
CommandLine = Annotated[list[Template], BeforeValidator(_words), WithJsonSchema(_LINES)]
EnvName = Annotated[str, AfterValidator(_env_name)]
EnvNames = Annotated[list[EnvName], BeforeValidator(_one_or_more), WithJsonSchema(_LINES)]
Flag = Annotated[str, AfterValidator(_flag)]
FileName = Annotated[str, AfterValidator(_file_name), Field(json_schema_extra={"pattern": f"^{FILE_NAME}$"})]
Regex = Annotated[str, AfterValidator(_regex), Field(json_schema_extra={"format": "regex"})]
ProgressRegex = Annotated[str, AfterValidator(_progress), Field(json_schema_extra={"format": "regex", "pattern": r"\(\?P<step>"})]
Jobs = Annotated[
    int | Literal["auto"],
    PlainValidator(_jobs),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]
_Size = WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": units.SIZE_PATTERN}]})
Bytes = Annotated[int, BeforeValidator(units.size_bytes), AfterValidator(_not_zero), _Size]
BytesFrom0 = Annotated[int, BeforeValidator(units.size_bytes), _Size]
Seconds = Annotated[
    float,
    BeforeValidator(units.time_s),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": units.TIME_PATTERN}]}),
]
Cell = dict[str, Scalar]
Json = dict[str, Any]
