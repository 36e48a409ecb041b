"""The sections of a specification file, one class each: what the file may hold, and what is assumed where it is silent.

Keys of the file carry no units (`wall: 10m`), attributes do (`wall_s`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from matrix.spec.fields import (
    Bytes,
    BytesFrom0,
    Cell,
    CommandLine,
    EnvName,
    EnvNames,
    Flag,
    Jobs,
    Json,
    ProgressRegex,
    Regex,
    Scalar,
    Seconds,
    Template,
    one_of,
)


class Section(BaseModel):
    """A mapping with known keys only.  Strict: a quoted number is a word, `"yes"` is not true."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Length(Section):
    flag: Flag = Field(description="Flag that takes the number of steps, e.g. --max-steps; ends in = when the number joins it in one word.")


class Environment(Section):
    base: Annotated[Literal["freeze"] | None, one_of("freeze")] = Field(default=None, description="What the interpreter has.")
    requirements: str | None = Field(default=None, description="A requirements file, relative to the specification.")


class Run(Section):
    command: CommandLine = Field(
        min_length=1, description="The program: a list of words, or one string that is split as a shell would. No shell is involved."
    )
    env: dict[EnvName, Template] = Field(default={}, description="Environment variables on top of the inherited ones.")
    cwd: str = Field(default=".", description="Working folder, relative to the specification.")
    length: Length | None = Field(
        default=None, description="How to ask for a shorter or longer run. Absent: the tool ends the child after the step it asked for."
    )
    progress: ProgressRegex | None = Field(
        default=None, description="Regular expression with a group named step, and optionally rank and total."
    )
    finished: Regex | None = Field(default=None, description="Regular expression of a line without which exit status 0 is a failure too.")
    writes: list[Template] = Field(default=[], description="Paths that the program writes: each attempt gets a fresh copy.")
    pty: bool = Field(default=False, description="true for programs that only talk to a terminal.")
    unbuffered: bool = Field(default=True, description="Whether PYTHONUNBUFFERED is set: without it the last lines are lost.")
    environment: Environment = Field(default=Environment(), description="What package axes build on.")


class Choice(Section):
    args: CommandLine = Field(default=[], description="Words added to the command.")
    env: dict[EnvName, Template] = Field(default={}, description="Environment variables that are set.")
    hides: bool = Field(default=False, description="true: a workaround that masks the failure; it is never the recommended fix.")


class AxisEntry(Section):
    """One axis: a list of values, or a mapping that also says how they reach the program."""

    values: list[Scalar] | None = Field(default=None, min_length=1, description="known_bad has the first unless it says otherwise.")
    ordered: bool | None = Field(default=None, description="Whether larger is more of the same. Absent: true when all values are numbers.")
    flag: Flag | None = Field(default=None, description="Flag that takes the value. Absent: -- and the axis's name.")
    env: EnvNames | None = Field(default=None, min_length=1, description="Environment variables that take the value, instead of a flag.")
    choices: dict[str, Choice] | None = Field(default=None, min_length=1, description="Named sets of arguments and environment variables.")
    after: str | None = Field(
        default=None,
        min_length=1,
        description="Word of the command that the axis's words follow, for a launcher's options. Absent: the end.",
    )
    package: str | None = Field(default=None, min_length=1, description="Python package whose version varies (not available yet).")
    python: bool | None = Field(default=None, description="true: the version of Python varies (not available yet).")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"values": data} if isinstance(data, list) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        full = handler.resolve_ref_schema(handler(core_schema))
        full["oneOf"] = [{"required": ["values"]}, {"required": ["choices"]}]
        return {"anyOf": [full["properties"]["values"], full]}


class Observed(Section):
    """A death or a survival that people already have."""

    cell: Cell = Field(description="Where; axes not named take known_bad's value.")
    died: bool = Field(description="false: it survived.")
    step: int | None = Field(default=None, ge=0, lt=10**15, description="Last step that was seen.")
    log: str | None = Field(default=None, description="Its log file, relative to the specification.")


Strategy = Annotated[
    Literal["adaptive", "one_at_a_time", "pairwise", "full"], one_of("adaptive", "one_at_a_time", "pairwise", "full")
]  # fmt: skip


class SearchOptions(Section):
    strategy: Strategy = Field(default="adaptive", description="How the next cell is chosen.")
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Probability at which the search stops.")
    max_runs: int = Field(default=60, ge=1, le=1_000_000, description="Most attempts.")
    max_wall_s: Seconds | None = Field(default=None, alias="max_wall", description="Longest time for the whole matrix. Absent: no limit.")
    seed: int = Field(default=0, ge=0, lt=1 << 63, description="Same seed and same answers: same questions.")
    repeats: int = Field(default=3, ge=1, le=1_000_000, description="Attempts of each cell; adaptive does not use it.")


class Limits(Section):
    """Limits of each attempt.  Absent: no limit, or the time given here."""

    wall_s: Seconds | None = Field(default=None, alias="wall", description="Longest time of one attempt.")
    startup_s: Seconds = Field(default=300.0, alias="startup", description="Longest time until the first step.")
    idle_s: Seconds = Field(
        default=60.0, alias="idle", description="Longest time without output, without progress, and with process states that agree."
    )
    stall_s: Seconds = Field(default=600.0, alias="stall", description="Longest time with output but without progress.")
    memory_bytes: Bytes | None = Field(default=None, alias="memory", description="Memory of the whole process tree, e.g. 6GiB.")
    cpus: int | None = Field(default=None, ge=1, le=1 << 16, description="Number of CPUs.")
    nofile: int | None = Field(default=None, ge=1, lt=1 << 31, description="Open files of a process.")
    stack_bytes: Bytes | None = Field(default=None, alias="stack", description="Stack of the main thread.")
    core_bytes: BytesFrom0 | None = Field(default=None, alias="core", description="Largest core file; 0 for none.")
    pids: int | None = Field(default=None, ge=1, le=1 << 22, description="Processes and threads.")
    cpu_time_s: Seconds | None = Field(default=None, alias="cpu_time", description="Processor time of a process.")
    address_space_bytes: Bytes | None = Field(
        default=None, alias="address_space", description="Address space of a process (ulimit -v): all that it maps, used or not."
    )
    data_bytes: Bytes | None = Field(default=None, alias="data", description="Heap and private mappings of a process (ulimit -d).")
    file_size_bytes: Bytes | None = Field(default=None, alias="file_size", description="Largest file that a process may write (ulimit -f).")
    processes: int | None = Field(
        default=None, ge=1, description="Processes and threads of the user (ulimit -u; not for root); pids counts those of the attempt."
    )


class Executor(Section):
    kind: Annotated[Literal["local"], one_of("local", later=("slurm", "ray"))] = Field(default="local", description="Where attempts run.")
    jobs: Jobs = Field(default="auto", description="Attempts at the same time.")


class EvidenceOptions(Section):
    """`"off"`, quoted, for all of them: the program runs bare, and only its output, progress and end are seen."""

    hook: bool = Field(default=True, description="Whether Python children load the hook; without it less is known.")
    cores: bool = Field(default=True, description="Whether core files are made, read and removed: libraries, faults, native stacks.")
    watch: bool = Field(default=True, description="Whether memory, processes and the kernel's events are followed.")
    control: bool = Field(default=True, description="Whether one run that should die goes unwatched, to see whether watching matters.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return dict.fromkeys(("hook", "cores", "watch", "control"), False) if data == "off" else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {"anyOf": [{"const": "off"}, handler.resolve_ref_schema(handler(core_schema))]}
