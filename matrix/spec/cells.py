"""Cells: known_bad, known_good, exclude, include and observed, checked against the axes and completed.

Works on the raw mapping and skips what is malformed (that is reported elsewhere), so that one bad key does not hide another.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from matrix.records import Cell, Value, describe_cell
from matrix.spec.axes import (
    Axis,
    build_axis,
    check_entry,
    check_places,
    check_shared_targets,
    orderable,
    read_entries,
    same,
    written_values,
)
from matrix.spec.fields import text_of
from matrix.spec.model import AxisEntry
from matrix.spec.problems import Complaint, Where, describe, suggest, wrong_key

MOST_VALUES, MOST_VALUES_IN_ALL = 256, 512  # of an axis; of all axes together
MOST_ENTRIES = 1000  # of exclude, include and observed
MOST_COUNTED = 100_000  # sets of rules


@dataclass(frozen=True)
class Grid:
    """The axes and the cells that may run."""

    axes: tuple[Axis, ...]
    excluded: tuple[Cell, ...] = ()  # rules: a cell that agrees with all that a rule names is excluded
    included: tuple[Cell, ...] = ()  # complete cells, which no rule excludes

    def allowed(self, cell: Mapping[str, Value]) -> bool:
        return self.rule_against(cell) is None or cell in self.included

    def rule_against(self, cell: Mapping[str, Value]) -> int | None:
        """Index of the first exclude rule that a cell meets."""
        return next((index for index, rule in enumerate(self.excluded) if _meets(cell, rule)), None)

    def cells(self) -> Iterator[Cell]:
        """Every cell that may run, the last axis varying fastest."""
        return filter(self.allowed, _product(self.axes))

    def size(self) -> int:
        """How many cells there are, without listing them.  Raises TooManyRules."""
        excluded_but_named = sum(self.rule_against(cell) is not None for cell in self.included)
        return _Count(self.axes, self.excluded).kept() + excluded_but_named


class TooManyRules(Exception):
    """The exclude rules overlap in too many ways to count the cells that they leave."""


class _Count:
    """Counts the cells that no rule excludes, an axis at a time: only the values that rules name are told apart."""

    def __init__(self, axes: Sequence[Axis], rules: Sequence[Cell]) -> None:
        self._axes, self._rules = axes, rules
        self._known: dict[tuple[int, frozenset[int]], int] = {}

    def kept(self, at: int = 0, open_rules: frozenset[int] | None = None) -> int:
        """Cells of the axes from `at` on; `open_rules` are those that all earlier values agree with."""
        rules = frozenset(range(len(self._rules))) if open_rules is None else open_rules
        if not rules:
            return math.prod(len(axis.values) for axis in self._axes[at:])
        if at == len(self._axes):
            return 0  # a rule is met by all values of the cell
        if (at, rules) not in self._known:
            if len(self._known) >= MOST_COUNTED:
                raise TooManyRules
            self._known[at, rules] = self._by_value(at, rules)
        return self._known[at, rules]

    def _by_value(self, at: int, rules: frozenset[int]) -> int:
        axis = self._axes[at]
        silent = frozenset(rule for rule in rules if axis.name not in self._rules[rule])
        saying: dict[Value, set[int]] = {}
        for rule in rules - silent:
            saying.setdefault(self._rules[rule][axis.name], set()).add(rule)
        named = sum(self.kept(at + 1, silent | meets) for meets in saying.values())
        return named + (len(axis.values) - len(saying)) * self.kept(at + 1, silent)


@dataclass
class Settled:
    """What the raw mapping comes to: the grid, the completed cells by the key that they replace, and what is wrong."""

    grid: Grid
    replaced: dict[str, object] = field(default_factory=dict)
    complaints: list[Complaint] = field(default_factory=list)


def settle(raw: Mapping[str, object]) -> Settled:
    """Axes and cells of a raw specification."""
    return _Settler(raw).settle()


class _Settler:
    def __init__(self, raw: Mapping[str, object]) -> None:
        self.raw = raw
        self.entries = read_entries(raw.get("matrix"))
        self.complaints: list[Complaint] = []
        self.axes: dict[str, Axis] = {}
        self.bad: Cell = {}

    def settle(self) -> Settled:
        self._check_number_of_values()
        if self.complaints:
            return Settled(Grid(()), {}, self.complaints)
        self._settle_axes()
        if not self.entries:
            return Settled(Grid(()), {}, self.complaints)  # reported where the whole file is validated
        self.bad = self._known_bad()
        exclude, include = list(self._listed("exclude")), list(self._listed("include"))
        included = [{**self.bad, **cell} for cell in include]
        grid = Grid(
            tuple(self.axes.values()),
            tuple(exclude),
            tuple(cell for index, cell in enumerate(included) if cell not in included[:index]),
        )
        replaced: dict[str, object] = {"known_bad": self.bad, "exclude": exclude, "include": include}
        replaced |= self._known_good() | self._observed()
        if not self.complaints and all(self.entries.values()):
            self._check_reachable(grid, replaced)
            self._check_countable(grid)
        return Settled(grid, replaced, self.complaints)

    def _check_number_of_values(self) -> None:
        """Every value is compared with every other one, so their number is bounded."""
        counts = {name: len(written_values(entry)) for name, entry in self.entries.items() if entry is not None}
        remedy = "name fewer: of an ordered axis some values are enough, and a second run looks between two of them"
        for name, count in counts.items():
            if count > MOST_VALUES:
                self._refuse(("matrix", name), f"has {count} values, and an axis may have {MOST_VALUES}", remedy)
        if not self.complaints and sum(counts.values()) > MOST_VALUES_IN_ALL:
            what = f"has {sum(counts.values())} values in all, and a specification may have {MOST_VALUES_IN_ALL}"
            self._refuse(("matrix",), what, remedy)
        for key in ("exclude", "include", "observed"):
            listed = self.raw.get(key)
            if isinstance(listed, Sequence) and not isinstance(listed, str) and len(listed) > MOST_ENTRIES:
                self._refuse((key,), f"has {len(listed)} entries, and may have {MOST_ENTRIES}", "write fewer")

    def _settle_axes(self) -> None:
        joined = self._joined_values()
        for name, entry in self.entries.items():
            if entry is not None:
                self.complaints += check_entry(name, entry)
                if written_values(entry):
                    self.axes[name] = build_axis(name, entry, joined.get(name, []))
        run = self.raw.get("run")
        length = run.get("length") if isinstance(run, Mapping) else None
        self.complaints += check_shared_targets(self.axes.values(), length.get("flag") if isinstance(length, Mapping) else None)
        if command := _command_words(run.get("command") if isinstance(run, Mapping) else None):
            self.complaints += check_places(self.axes.values(), command)

    def _joined_values(self) -> dict[str, list[Value]]:
        """Values that `include` adds to the axes."""
        joined: dict[str, list[Value]] = {}
        for where, cell in _mappings(self.raw, "include"):
            for name, value in cell.items():
                entry = self.entries.get(name)
                if entry is None or not _can_join(value, entry):
                    continue
                own = [*written_values(entry), *joined.get(name, [])]
                if any(same(value, old) or text_of(value) == text_of(old) for old in own):
                    continue
                if entry.ordered and orderable(own) and not orderable([*own, value]):
                    self._refuse((*where, name), f"{describe(value)} cannot join an ordered axis", "only numbers have an order")
                else:
                    joined.setdefault(name, []).append(value)
        return joined

    def _known_bad(self) -> Cell:
        named = self.raw.get("known_bad", {})
        cell = self._cell(("known_bad",), named) if isinstance(named, Mapping) else {}
        for name, axis in self.axes.items():
            entry = self.entries[name]
            first = axis.match(written_values(entry)[0]) if entry else None
            if first is not None:
                cell.setdefault(name, first)
        return {name: cell[name] for name in self.axes if name in cell}

    def _known_good(self) -> dict[str, object]:
        named = self.raw.get("known_good")
        return {"known_good": {**self.bad, **self._cell(("known_good",), named)}} if isinstance(named, Mapping) else {}

    def _observed(self) -> dict[str, object]:
        """Entries of `observed` with their cells completed."""
        entries = self.raw.get("observed")
        if not isinstance(entries, Sequence) or isinstance(entries, str):
            return {}
        return {"observed": [self._completed(("observed", index), entry) for index, entry in enumerate(entries)]}

    def _completed(self, where: Where, entry: object) -> object:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("cell"), Mapping):
            return entry
        return {**entry, "cell": {**self.bad, **self._cell((*where, "cell"), entry["cell"])}}

    def _listed(self, key: str) -> Iterator[Cell]:
        for where, cell in _mappings(self.raw, key):
            if not cell:
                self._refuse(where, "names no axis", f"name at least one of: {', '.join(self.entries)}")
            yield self._cell(where, cell)

    def _cell(self, where: Where, cell: Mapping[str, object]) -> Cell:
        """The cell in the axes' own values; what does not fit is reported and left out."""
        found: Cell = {}
        for name, value in cell.items():
            if name not in self.entries:
                hint = suggest(name, self.entries, "axes")
                self.complaints.append(wrong_key((*where, name), f"unknown axis '{name}'", hint))
            elif name in self.axes and isinstance(value, (str, int, float)):
                own = self.axes[name].match(value)
                if own is None:
                    self._refuse((*where, name), *_not_on_axis(self.axes[name], self.entries[name], value))
                else:
                    found[name] = own
        return found

    def _check_reachable(self, grid: Grid, replaced: Mapping[str, object]) -> None:
        for key in ("known_bad", "known_good"):
            cell = replaced.get(key)
            if not isinstance(cell, dict) or grid.allowed(cell):
                continue
            rule = grid.rule_against(cell) or 0
            what = f"{key} ({describe_cell(cell)}) is excluded by the rule {describe_cell(grid.excluded[rule])}"
            self._refuse((key,) if key in self.raw else ("exclude", rule), what, "change the rule or the cell")
        if replaced.get("known_good") == replaced["known_bad"]:
            self._refuse(("known_good",), "is the same cell as known_bad", "name a cell that survives, or remove it")

    def _check_countable(self, grid: Grid) -> None:
        try:
            grid.size()
        except TooManyRules:
            what = f"{len(grid.excluded)} rules overlap in more than {MOST_COUNTED} ways, so the cells cannot be counted"
            self._refuse(("exclude",), what, "write fewer rules, or rules that name fewer axes")

    def _refuse(self, where: Where, what: str, hint: str) -> None:
        self.complaints.append(Complaint(where, what, hint))


def _mappings(raw: Mapping[str, object], key: str) -> Iterator[tuple[Where, Mapping[str, object]]]:
    items = raw.get(key)
    if isinstance(items, Sequence) and not isinstance(items, str):
        yield from (((key, index), item) for index, item in enumerate(items) if isinstance(item, Mapping))


def _command_words(raw: object) -> list[str]:
    """Words of the command; [] where it is malformed, which is reported where the whole file is validated."""
    if isinstance(raw, str):
        try:
            return shlex.split(raw)
        except ValueError:
            return []
    return [str(word) for word in raw] if isinstance(raw, Sequence) else []


def _can_join(value: object, entry: AxisEntry) -> TypeGuard[Value]:
    """Choices cannot grow by a name alone, and versions are words."""
    return entry.choices is None and isinstance(value, str if entry.package or entry.python else (str, int, float))


def _not_on_axis(axis: Axis, entry: AxisEntry | None, value: Value) -> tuple[str, str]:
    values = ", ".join(f'"{own}"' if isinstance(own, str) else axis.text(own) for own in axis.values)
    if entry is not None and (entry.package or entry.python) and not isinstance(value, str):
        return f"unquoted {value}: as a number, 3.10 is 3.1", f'quote versions: "{value}" (values: {values})'
    if any(text_of(value) == axis.text(own) for own in axis.values):
        change = "remove the quotes" if isinstance(value, str) else f'quote it: "{text_of(value)}"'
        return f"{describe(value)} is not a value of {axis.name}", f"{change} (values: {values})"
    texts = [axis.text(own) for own in axis.values]
    return f"{describe(value)} is not a value of {axis.name}", suggest(text_of(value), texts, "values")


def _meets(cell: Mapping[str, Value], rule: Cell) -> bool:
    return rule.items() <= cell.items()


def _product(axes: Sequence[Axis]) -> Iterator[Cell]:
    names = [axis.name for axis in axes]
    return (dict(zip(names, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes)))
