"""Changes to a specification that come from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Value
from matrix.spec.axes import Axis
from matrix.spec.problems import Problem, SpecError
from matrix.spec.spec import Spec


def override(spec: Spec, *, search: Mapping[str, Any], axes: Mapping[str, Sequence[str]]) -> Spec:
    """The specification with other search options, and with only these values of the named axes.

    known_bad takes the first value given where its own is not among them; rules and cells with a value that is left out go with it.
    Raises SpecError.
    """
    data = spec.model_dump(by_alias=True)
    data["search"].update(search)
    for name, texts in axes.items():
        axis = _axis(spec, name)
        values = [_value(axis, text) for text in texts]
        entry = data["matrix"][name]
        if axis.kind == "choices":
            entry["choices"] = {str(value): entry["choices"][value] for value in values}
        else:
            entry["values"] = values
        if spec.known_bad[name] not in values:
            data["known_bad"][name] = values[0]
        _leave_out(data, name, values)
    try:
        changed = Spec.model_validate(_without_none(data))
    except SpecError as error:  # the file itself is valid, so it is the command line that is not
        raise SpecError([dataclasses.replace(problem, where=_option(problem.where)) for problem in error.problems], spec.source) from None
    changed._source = spec.source
    return changed


def _option(where: str) -> str:
    """The option that set a key of the specification: `search.max_runs` is --max-runs, `matrix.bs.values[1]` is --set bs."""
    section, _, rest = where.partition(".")
    name = rest.partition(".")[0]
    return {"search": f"--{name.replace('_', '-')}", "matrix": f"--set {name}"}.get(section, where)


def _leave_out(data: dict[str, Any], name: str, values: Sequence[Value]) -> None:
    """Drop the rules and the cells that speak of other values of an axis."""
    for key in ("exclude", "include"):
        data[key] = [cell for cell in data[key] if cell.get(name, values[0]) in values]
    data["observed"] = [seen for seen in data["observed"] if seen["cell"][name] in values]
    if data["known_good"] is not None and (data["known_good"][name] not in values or data["known_good"] == data["known_bad"]):
        data["known_good"] = None


def _axis(spec: Spec, name: str) -> Axis:
    try:
        return spec.axis(name)
    except ValueError as problem:
        raise SpecError([Problem(None, None, f"--set {name}", str(problem), "name an axis of the matrix")], spec.source) from problem


def _value(axis: Axis, text: str) -> Value:
    """One of the axis's own values by its text, or a new one of the same type; a choice has to be there already."""
    for own in axis.values:
        if axis.text(own) == text:
            return own
    if axis.kind != "choices":
        if not axis.ordered:
            return text
        for read in (int, float):
            try:
                return read(text)
            except ValueError:
                continue
    allowed = ", ".join(map(axis.text, axis.values))
    raise SpecError([Problem(None, None, f"--set {axis.name}", f"{text!r} is not a value of {axis.name}", f"values: {allowed}")])


def _without_none(data: Any) -> Any:
    """A key that is absent and one that is null are not the same in a specification."""
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return data
