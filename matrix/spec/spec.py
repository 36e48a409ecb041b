"""The specification as the other parts use it: axes, cells, and how to start the program for one cell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from matrix.records import Cell, Value
from matrix.spec import devices, fields
from matrix.spec.axes import Axis, flag_words
from matrix.spec.cells import Grid, settle
from matrix.spec.document import Document, read_document
from matrix.spec.model import AxisEntry, EvidenceOptions, Executor, Limits, Observed, Run, SearchOptions, Section
from matrix.spec.placeholders import escape, fill, used
from matrix.spec.problems import Complaint, Problem, SpecError
from matrix.spec.translate import complaints_of


@dataclass(frozen=True)
class Launch:
    """What to start: the words of the command, and the variables to set on top of the inherited environment."""

    argv: list[str]
    env: dict[str, str]


class Spec(Section):
    """What to run, what to vary, and how far to go.

    `Spec.model_validate({...})` takes the same mapping as the file holds and raises SpecError, like `load_spec`.
    `model_dump(by_alias=True)` gives that mapping back, with all cells completed.
    """

    name: fields.FileName = Field(default="matrix", description="Names the folder of the runs. Absent: the name of the file.")
    run: Run = Field(description="The program that dies.")
    matrix: dict[str, AxisEntry] = Field(min_length=1, description="Axes by name: what may vary.")
    exclude: list[fields.Cell] = Field(default=[], description="Cells that never run: those that agree with all that an entry names.")
    include: list[fields.Cell] = Field(
        default=[], description="Further cells; axes not named take known_bad's value, and a new value joins its axis."
    )
    known_bad: fields.Cell = Field(default={}, description="A cell that dies. Axes not named take their first value.")
    known_good: fields.Cell | None = Field(default=None, description="A cell that survives. Axes not named take known_bad's value.")
    observed: list[Observed] = Field(default=[], description="Deaths and survivals that people already have.")
    search: SearchOptions = Field(default=SearchOptions(), description="How to look, and when to stop.")
    limits: Limits = Field(default=Limits(), description="Limits of each attempt.")
    executor: Executor = Field(default=Executor(), description="Where attempts run.")
    evidence: EvidenceOptions = Field(default=EvidenceOptions(), description="What is collected inside the child.")

    _grid: Grid = PrivateAttr()
    _source: Path | None = PrivateAttr(None)

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, data: object, handler: ModelWrapValidatorHandler[Spec], info: ValidationInfo) -> Spec:
        """Structure and cells are checked side by side, so that the error lists everything at once."""
        document = info.context if isinstance(info.context, Document) else None
        if isinstance(data, Spec):
            return data
        if not isinstance(data, Mapping):
            raise _error([Complaint((), "a specification is a mapping", "it needs at least `run` and `matrix`")], document)
        data = _named(data, document)
        complaints = document.complaints if document else []
        settled = settle(data)
        try:
            handler(data)
        except ValidationError as error:
            complaints = [*complaints, *complaints_of(error, cls)]
        complaints = [*complaints, *settled.complaints]
        if complaints:
            raise _error(complaints, document)
        spec = handler({**data, **settled.replaced})
        spec._grid = settled.grid
        spec._source = document.path if document else None
        return spec

    @property
    def source(self) -> Path | None:
        """The file; None: built in Python."""
        return self._source

    @property
    def base_dir(self) -> Path:
        """Folder that relative paths of the specification start from."""
        return self._source.resolve().parent if self._source else Path.cwd()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self._grid.axes

    @property
    def included(self) -> list[Cell]:
        """The cells of `include`, completed."""
        return [dict(cell) for cell in self._grid.included]

    @property
    def size(self) -> int:
        """Number of cells, without listing them."""
        return self._grid.size()

    @property
    def placeholders(self) -> frozenset[str]:
        """Names of the placeholders that the command, an environment or a written path uses."""
        choices = [choice for axis in self.axes for choice in axis.choices.values()]
        texts = [*self.run.command, *self.run.env.values(), *self.run.writes]
        texts += [text for choice in choices for text in (*choice.args, *choice.env.values())]
        return frozenset(name for text in texts for name in used(text))

    def axis(self, name: str) -> Axis:
        """Raises ValueError when there is none of that name."""
        found = next((axis for axis in self.axes if axis.name == name), None)
        if found is None:
            raise ValueError(f"no axis '{name}'; axes: {', '.join(axis.name for axis in self.axes)}")
        return found

    def allowed(self, cell: Mapping[str, Value]) -> bool:
        """Whether a complete cell may run: no exclude rule meets it, or `include` names it."""
        return self._grid.allowed(cell)

    def cells(self) -> Iterator[Cell]:
        """Every cell that may run, the last axis varying fastest."""
        return self._grid.cells()

    def launch(self, cell: Mapping[str, Value], *, max_steps: int | None, placeholders: Mapping[str, str]) -> Launch:
        """How to start the program for a complete cell; `max_steps` is passed on only where the specification says how.

        Raises ValueError for a cell that is not on the grid and for a placeholder that is used and has no value.
        """
        env = dict(self.run.env)
        ends: list[str] = []
        inner: dict[str, list[str]] = {}
        for axis, value in self._settings(cell):
            words = ends if axis.after is None else inner.setdefault(axis.after, [])
            words += axis.argv(value)
            env |= axis.variables(value)
        argv = [*_with_inner_words(self.run.command, inner), *ends]
        if max_steps is not None and self.run.length is not None:
            argv += [escape(word) for word in flag_words(self.run.length.flag, str(max_steps))]
        return Launch([fill(word, placeholders) for word in argv], {name: fill(text, placeholders) for name, text in env.items()})

    def unavailable(self, axis_name: str, value: Value) -> str | None:
        """Why a value cannot run on this machine; None: it can, or that cannot be known."""
        axis = self.axis(axis_name)
        return devices.why_unavailable(str(value)) if devices.is_device_axis(axis.values) else None

    def _settings(self, cell: Mapping[str, Value]) -> Iterator[tuple[Axis, Value]]:
        """Each axis with the cell's value, as the axis spells it."""
        if cell.keys() != self.matrix.keys():
            raise ValueError(f"a cell names every axis ({', '.join(self.matrix)}), not {', '.join(cell) or 'none'}")
        for axis in self.axes:
            value = axis.match(cell[axis.name])
            if value is None:
                raise ValueError(f"{cell[axis.name]!r} is not a value of {axis.name}; values: {', '.join(map(axis.text, axis.values))}")
            yield axis, value


def _with_inner_words(command: list[str], inner: Mapping[str, list[str]]) -> list[str]:
    """The command with the words of axes behind the first word that each of these axes names."""
    waiting = dict(inner)
    return [new for word in command for new in (word, *waiting.pop(word, ()))]


def load_spec(path: Path | str) -> Spec:
    """Read a specification file.  Raises SpecError with every problem in it, each with line and column."""
    document = read_document(Path(path))
    return Spec.model_validate(document.data, context=document)


def _named(data: Mapping[str, object], document: Document | None) -> dict[str, object]:
    """The data, with the file's name where it gives none."""
    stem = document.path.stem if document and document.path else ""
    return {**({"name": stem} if re.fullmatch(fields.FILE_NAME, stem) else {}), **data}


def _error(complaints: list[Complaint], document: Document | None) -> SpecError:
    """Problems in the order of the file, one for each place: a word that is refused for itself is not refused again for its type."""
    problems: dict[tuple[object, ...], Problem] = {}
    for complaint in complaints:
        line, column = complaint.place or (document.position(complaint.where, complaint.at_key) if document else (None, None))
        problem = Problem(line, column, complaint.shown, complaint.what, complaint.hint)
        problems.setdefault((complaint.where, complaint.at_key, complaint.place if complaint.at_key else None), problem)
    ordered = sorted(problems.values(), key=lambda problem: (problem.line or 0, problem.column or 0))
    return SpecError(ordered, document.path if document else None)
