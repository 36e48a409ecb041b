"""Axes: what may vary, in which values, and how a value reaches the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from matrix.records import Value
from matrix.spec.fields import text_of
from matrix.spec.model import AxisEntry, Choice
from matrix.spec.placeholders import escape
from matrix.spec.problems import Complaint, Where, describe, wrong_key

Kind = Literal["flag", "env", "choices", "package", "python"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_KINDS: tuple[Kind, ...] = ("flag", "env", "choices", "package", "python")


@dataclass(frozen=True)
class Axis:
    """One thing that varies.  The values of an ordered axis ascend; otherwise they stand as they were written."""

    name: str
    values: tuple[Value, ...]
    ordered: bool = False
    hides: tuple[Value, ...] = ()  # values that mask the failure instead of curing it
    kind: Kind = "flag"
    flag: str | None = None
    env: tuple[str, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict, hash=False)
    texts: Mapping[Value, str] = field(default_factory=dict, hash=False)  # values that are passed on otherwise than str() would
    after: str | None = None  # word of the command that the axis's words follow; None: the end

    def match(self, value: object) -> Value | None:
        """The axis's own value that equals this one (2 finds 2.0, but "2" and true do not find 2), or None."""
        return next((own for own in self.values if same(own, value)), None)

    def argv(self, value: Value) -> list[str]:
        """Words of the command that set the axis to a value, still to be filled in (see placeholders.fill)."""
        if self.kind == "choices":
            return list(self.choices[str(value)].args)
        return [escape(word) for word in flag_words(self.flag, self.text(value))] if self.flag else []

    def variables(self, value: Value) -> dict[str, str]:
        """Environment variables that set the axis to a value, still to be filled in."""
        if self.kind == "choices":
            return dict(self.choices[str(value)].env)
        return dict.fromkeys(self.env, escape(self.text(value)))

    def text(self, value: Value) -> str:
        """The value as the program gets it."""
        return self.texts.get(value, text_of(value))


def flag_words(flag: str, text: str) -> list[str]:
    """`--bs 32`; a flag that ends in = joins its value, as in `trainer.bs=32`."""
    return [flag + text] if flag.endswith("=") else [flag, text]


def read_entries(matrix: object) -> dict[str, AxisEntry | None]:
    """Axis entries by name; None for one that is malformed, which is reported where the whole file is validated."""
    return {str(name): _entry(raw) for name, raw in matrix.items()} if isinstance(matrix, Mapping) else {}


def _entry(raw: Any) -> AxisEntry | None:
    """The entry without its malformed keys, so that a slip in one does not hide another; None when its values are malformed."""
    try:
        return AxisEntry.model_validate(raw)
    except ValidationError as error:
        malformed = {details["loc"][:1] for details in error.errors()}
    if not isinstance(raw, Mapping) or malformed & {(), ("values",), ("choices",)}:
        return None
    return AxisEntry.model_validate({key: value for key, value in raw.items() if (key,) not in malformed})


def written_values(entry: AxisEntry) -> list[Value]:
    """The values in the order of the file."""
    return list(entry.choices or {}) if entry.choices is not None else list(entry.values or [])


def build_axis(name: str, entry: AxisEntry, joined: Iterable[Value] = ()) -> Axis:
    """The axis of an entry; `joined` are values that `include` adds.  What is wrong with the entry, `check_entry` says."""
    written = [*written_values(entry), *joined]
    values: list[Value] = [float(value) if isinstance(value, float) else value for value in written]
    ordered = all(_number(value) for value in values) if entry.ordered is None else entry.ordered and orderable(values)
    kind: Kind = next((kind for kind in _KINDS if getattr(entry, kind)), "flag")
    return Axis(
        name=name,
        values=tuple(sorted(values)) if ordered else tuple(values),
        ordered=ordered,
        hides=tuple(label for label, choice in (entry.choices or {}).items() if choice.hides),
        kind=kind,
        flag=(entry.flag or f"--{name}") if kind == "flag" else None,
        env=tuple(entry.env or ()),
        choices=entry.choices or {},
        texts={float(value): str(value) for value in written if isinstance(value, float)},
        after=entry.after,
    )


def check_entry(name: str, entry: AxisEntry) -> Iterator[Complaint]:
    """Everything that is wrong with one axis by itself."""
    where: Where = ("matrix", name)
    if not _NAME.fullmatch(name):
        yield wrong_key(where, f"{name!r} cannot name an axis", "allowed: letters, digits, _ . -; no . or - first")
    yield from _check_kind(where, entry)
    yield from _check_values(where, entry)
    if entry.ordered and (entry.choices is not None or not orderable(entry.values or [])):
        what = "only numbers (or true and false) have an order"
        yield Complaint((*where, "ordered"), what, "remove `ordered`, or write the values as numbers")


def check_shared_targets(axes: Iterable[Axis], length_flag: object) -> Iterator[Complaint]:
    """Two axes that set the same flag or variable: the later would undo the earlier, and neither would be tested."""
    owners: dict[str, str] = {length_flag: "run.length"} if isinstance(length_flag, str) else {}
    for axis in axes:
        targets = [axis.flag, *axis.env, *(name for choice in axis.choices.values() for name in choice.env)]
        for target in dict.fromkeys(target for target in targets if target):
            owner = owners.setdefault(target, axis.name)
            if owner != axis.name:
                yield Complaint(("matrix", axis.name), f"sets {target}, and so does {owner}", "let one of them set it", at_key=True)


def check_places(axes: Iterable[Axis], command: Sequence[str]) -> Iterator[Complaint]:
    """Axes whose words have to follow a word that the command does not have."""
    for axis in axes:
        if axis.after is not None and axis.after not in command:
            what = f"the command has no word {axis.after!r}"
            yield Complaint(("matrix", axis.name, "after"), what, f"name one of: {' '.join(command)}")


def _check_kind(where: Where, entry: AxisEntry) -> Iterator[Complaint]:
    kinds = [kind for kind in _KINDS if getattr(entry, kind)]
    if len(kinds) > 1:
        yield Complaint(where, f"has both {' and '.join(kinds)}", f"an axis has at most one of: {', '.join(_KINDS)}", at_key=True)
    if (entry.values is None) == (entry.choices is None):
        what = "has both values and choices" if entry.choices else "has no values"
        yield Complaint(where, what, "give it `values: […]`, or `choices: {name: {args: […], env: {…}}}`", at_key=True)
    for kind in ("package", "python"):
        if getattr(entry, kind):
            yield Complaint((*where, kind), f"{kind} axes are not available yet", "use one specification for each environment")


def _check_values(where: Where, entry: AxisEntry) -> Iterator[Complaint]:
    seen: dict[object, Value] = {}
    for index, value in enumerate(entry.values or []):
        place: Where = (*where, "values", index)
        if (entry.package or entry.python) and not isinstance(value, str):
            yield Complaint(place, f"unquoted {value}: as a number, 3.10 is 3.1", f'quote versions: "{value}"')
        keys = (_number(value), value), text_of(value)  # 1 and true are equal, and not the same
        twin = next((seen[key] for key in keys if key in seen), None)
        if twin is not None:
            yield Complaint(place, f"duplicate value: {describe(value)} is {describe(twin)} again", "name each value once")
        for key in keys:
            seen.setdefault(key, value)


def orderable(values: Iterable[Value]) -> bool:
    """Whether all are numbers, or all true or false."""
    kinds = {bool if isinstance(value, bool) else float if isinstance(value, (int, float)) else str for value in values}
    return kinds in ({float}, {bool})


def same(one: object, other: object) -> bool:
    """Equal as values of an axis: 2 and 2.0 are, 2 and "2" or 1 and true are not."""
    return one == other and (type(one) is type(other) or (_number(one) and _number(other)))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
