"""Changes to a specification that come from the command line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Value
from matrix.spec.axes import Axis
from matrix.spec.placeholders import fill
from matrix.spec.problems import Problem, SpecError, suggest
from matrix.spec.spec import Spec

SECTIONS = ("search", "limits", "run", "executor", "evidence")


def override(
    spec: Spec,
    *,
    search: Mapping[str, Any],
    axes: Mapping[str, Sequence[str]],
    settings: Mapping[str, str] | None = None,
) -> Spec:
    """Return the specification with other search options, other single keys, and only these values of the named axes.

    known_bad takes the first value given where its own is not among them; rules and cells with a value that is left out go
    with it.  A name that is no axis but a flag of the command becomes an axis.  `settings`: `{"limits.wall": "60s"}`.
    Raises SpecError.
    """
    data = spec.model_dump(by_alias=True)
    data["search"].update(search)
    for key, text in (settings or {}).items():
        section, _, name = key.partition(".")
        data[section][name] = _scalar(text)
    for name, texts in axes.items():
        if name in spec.matrix:
            _use_values(spec.axis(name), texts, data, spec)
        else:
            _add_axis(name, texts, data, spec)
    try:
        changed = Spec.model_validate(_without_none(data))
    except SpecError as error:  # the file itself is valid, so it is the command line that is not
        named = [dataclasses.replace(problem, where=_option(problem, search)) for problem in error.problems]
        raise SpecError(named, spec.source) from None
    changed._source = spec.source
    return changed


def is_setting(spec: Spec, name: str) -> bool:
    """True if the name is a key of the specification, as in limits.wall, and no axis."""
    return name not in spec.matrix and name.partition(".")[0] in SECTIONS and "." in name


def _option(problem: Problem, search: Mapping[str, Any]) -> str:
    """The option that set a key of the specification: `search.max_runs` is --max-runs, `matrix.bs.values[1]` is --set bs."""
    section, _, rest = problem.where.partition(".")
    name = rest.partition(".")[0]
    if section == "search" and name in search:
        return f"--{name.replace('_', '-')}"
    if section == "matrix":
        return f"--set {name}"
    return f"--set {problem.where}" if section in SECTIONS else problem.where


def _scalar(text: str) -> Value:
    """A value of the command line as YAML would read it."""
    if text in ("true", "false"):
        return text == "true"
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


# ------------------------------------------------------------------ axes
def _use_values(axis: Axis, texts: Sequence[str], data: dict[str, Any], spec: Spec) -> None:
    """Leave only these values of an axis."""
    values = [_value(axis, text) for text in texts]
    entry = data["matrix"][axis.name]
    if axis.kind == "choices":
        entry["choices"] = {str(value): entry["choices"][value] for value in values}
    else:
        entry["values"] = values
    if spec.known_bad[axis.name] not in values:
        data["known_bad"][axis.name] = values[0]
    _leave_out(data, axis.name, values)


def _add_axis(name: str, texts: Sequence[str], data: dict[str, Any], spec: Spec) -> None:
    """Make an axis of a flag that the command gives a value, or of one that waits in the file as a comment.

    known_bad has the command's value, which joins the others; of an axis that the command does not name the first value.
    """
    words: list[str] = data["run"]["command"]
    waiting = _commented_axis(name, spec)
    found = _flag_in(words, name) or _flag_in(words, str(waiting.get("flag", "")).rstrip("="))
    if found is None and not waiting:
        others = "a flag of the command with a value can be named too, and an axis that is a comment in the file"
        hint = f"{suggest(name, spec.matrix, 'axes')}; {others}"
        raise SpecError([Problem(None, None, f"--set {name}", f"no axis '{name}'", hint)], spec.source)
    if found is None:
        data["matrix"][name] = {**waiting, **_levels(name, texts, waiting, spec)}
        data["known_bad"][name] = _numbers_or_words(texts)[0]
        return
    at, flag, given = found
    after = words[at - 1] if any(word.endswith(".py") for word in words[at:]) else None
    del words[at : at + (1 if flag.endswith("=") else 2)]
    values = _numbers_or_words(list(dict.fromkeys([given, *texts])))
    entry = {"values": values, "flag": flag, "after": after}
    data["matrix"][name] = {key: value for key, value in entry.items() if value is not None}
    data["known_bad"][name] = values[0]


def _levels(name: str, texts: Sequence[str], entry: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the values of an axis, or those of its choices that are named."""
    choices = entry.get("choices")
    if choices is None:
        return {"values": _numbers_or_words(texts)}
    if unknown := [text for text in texts if text not in choices]:
        what = f"{unknown[0]!r} is not a value of {name}"
        raise SpecError([Problem(None, None, f"--set {name}", what, f"values: {', '.join(choices)}")], spec.source)
    return {"choices": {text: choices[text] for text in texts}}


def _numbers_or_words(texts: Sequence[str]) -> list[Any]:
    numbers = [_number(text) for text in texts]
    return list(texts) if None in numbers else numbers


def _commented_axis(name: str, spec: Spec) -> dict[str, Any]:
    """Return the axis of that name that is a comment in the specification, as `init` writes those that wait; {} for none."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if spec.source is None:
        return {}
    text = spec.source.read_text(encoding="utf-8", errors="replace")
    line = re.search(rf"(?m)^\s*#\s*({re.escape(name)}: [\[{{].*?[\]}}])(?:\s+#.*)?$", text)
    try:
        found = YAML(typ="safe", pure=True).load(line[1])[name] if line else {}
    except (YAMLError, ValueError):
        return {}
    return {"values": found} if isinstance(found, list) else dict(found)


def _flag_in(words: Sequence[str], name: str) -> tuple[int, str, str] | None:
    """(place, flag as an axis writes it, value) of the flag of that name in the command; None: there is none with a value."""
    for at, word in enumerate(words[1:], 1):
        flag, joined, value = word.partition("=")
        if not _same_name(flag, name):
            continue
        if not joined:
            value = words[at + 1] if at + 1 < len(words) and flag.startswith("-") else "{"
        if "{" not in value.replace("{{", ""):  # what holds a placeholder has no value yet
            return at, f"{flag}{joined}", fill(value, {})
    return None


def _same_name(flag: str, name: str) -> bool:
    return flag.lstrip("-").replace("-", "_") == name.lstrip("-").replace("-", "_") != ""


def _leave_out(data: dict[str, Any], name: str, values: Sequence[Value]) -> None:
    """Drop the rules and the cells that speak of other values of an axis."""
    for key in ("exclude", "include"):
        data[key] = [cell for cell in data[key] if cell.get(name, values[0]) in values]
    data["observed"] = [seen for seen in data["observed"] if seen["cell"][name] in values]
    if data["known_good"] is not None and (data["known_good"][name] not in values or data["known_good"] == data["known_bad"]):
        data["known_good"] = None


def _value(axis: Axis, text: str) -> Value:
    """One of the axis's own values by its text, or a new one of the same type; a choice has to be there already."""
    for own in axis.values:
        if axis.text(own) == text:
            return own
    if axis.kind != "choices":
        if not axis.ordered:
            return text
        if (number := _number(text)) is not None:
            return number
    allowed = ", ".join(map(axis.text, axis.values))
    raise SpecError([Problem(None, None, f"--set {axis.name}", f"{text!r} is not a value of {axis.name}", f"values: {allowed}")])


def _without_none(data: Any) -> Any:
    """A key that is absent and one that is null are not the same in a specification."""
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return data
