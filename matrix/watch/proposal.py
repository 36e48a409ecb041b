"""The specification of the matrix that would settle what one run leaves open: its axes are what the evidence points at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix.records import Observation, Verdict
from matrix.spec.placeholders import escape

Lines = list[str]
POOLS = "OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS"
MOST_AXES = 4


def as_it_was(name: str, argv: Sequence[str], cwd: str, env: dict[str, str]) -> str:
    """The watched run itself as a specification, with nothing varied: what a replay needs."""
    lines = [f"# The run as it was watched; nothing is varied here.\n{_head(name, argv, cwd, env)}", "matrix:"]
    return "\n".join([*lines, "  run: {choices: {as_it_was: {}}}", ""])


def matrix(name: str, argv: Sequence[str], cwd: str, env: dict[str, str], observation: Observation, verdict: Verdict) -> str:
    """YAML that `python -m matrix run` takes as it is."""
    causes = [entry.cause for entry in verdict.ranking[:3]]
    axes = [axis for cause in causes for axis in _axes(cause, observation)]
    chosen = list({axis[1]: axis for axis in [*axes, *_axes("", observation)]}.values())[:MOST_AXES]
    lead = verdict.ranking[0]
    lines = [
        "# Written by `matrix watch` after the run died.  It runs the same command a number of times, with one or several things changed,",
        "# and says what makes the difference.  Look at it first:  python -m matrix plan FILE;  then:  python -m matrix run FILE",
        f"# One run points at: {lead.cause} ({lead.grade}, {lead.probability:.0%}).",
        _head(name, argv, cwd, env),
        "matrix:",
        *(line for axis in chosen for line in axis),
        "# Add what you can vary yourself, e.g.   bs: [8, 16, 32]   becomes --bs VALUE; the first value is taken for the one that dies.",
        *_limits(observation),
        "search: {max_runs: 30}",
        "",
    ]
    return "\n".join(lines)


def _head(name: str, argv: Sequence[str], cwd: str, env: dict[str, str]) -> str:
    lines = [f"name: {_text(name)}", "run:", "  command:", *(f"    - {_text(escape(word))}" for word in argv), f"  cwd: {_text(cwd)}"]
    if env:
        lines += ["  env:", *(f"    {key}: {_text(escape(value))}" for key, value in sorted(env.items()))]
    return "\n".join(lines)


def _axes(cause: str, observation: Observation) -> Iterator[Lines]:
    """Each axis: a comment, then its entry.  Its first value is the run as it was."""
    if cause in ("openmp_runtime_conflict", "fork_unsafe", "thread_oversubscription", ""):
        yield _axis("one thread each: races, forks after threads, and pools that share processors go away", "threads",
                    f"{{choices: {{as_it_was: {{}}, one: {{env: {_same('1')}}}}}}}")  # fmt: skip
    if cause == "openmp_runtime_conflict":
        yield _axis("an override that only hides a second OpenMP runtime, to tell it from other aborts", "omp_override",
                    "{choices: {as_it_was: {}, allowed: {env: {KMP_DUPLICATE_LIB_OK: 'TRUE'}, hides: true}}}")  # fmt: skip
    if cause.startswith("memory"):
        yield _axis("one arena of the allocator: retention goes away, what the program keeps does not", "arenas",
                    "{choices: {as_it_was: {}, one: {env: {MALLOC_ARENA_MAX: '1'}}}}")  # fmt: skip
    if cause in ("heap_corruption", "native_crash", "use_after_free", ""):
        yield _axis("freed memory is overwritten: what reads it dies sooner, or differently", "allocator",
                    "{choices: {as_it_was: {}, debug: {env: {PYTHONMALLOC: debug, MALLOC_PERTURB_: '165'}}}}")  # fmt: skip
    if cause == "illegal_instruction":
        yield _axis("kernels without newer instructions", "instructions",
                    "{choices: {as_it_was: {}, plain: {env: {ATEN_CPU_CAPABILITY: default}}}}")  # fmt: skip


def _axis(comment: str, name: str, entry: str) -> Lines:
    return [f"  # {comment}", f"  {name}: {entry}"]


def _same(value: str) -> str:
    return "{" + ", ".join(f"{name}: '{value}'" for name in POOLS.split(", ")) + "}"


def _limits(observation: Observation) -> Lines:
    """Times from the run that died: each attempt may take twice as long."""
    wall = max(60, round(2 * observation.wall_s))
    lines = [f"  wall: {wall}s  # twice what the watched run took"]
    if observation.progress.first_step_s is not None:
        lines.append(f"  startup: {max(60, round(5 * observation.progress.first_step_s))}s")
    if limit := observation.memory.limit_bytes:
        lines.append(f"  memory: {limit >> 20}MiB  # the limit that it ran under")
    return ["limits:", *lines]


def _text(word: str) -> str:
    """A JSON string is a YAML one."""
    return json.dumps(word)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
