"""A failing run held against the nearest surviving one: stacks, native libraries, environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

from matrix.records import Attempt, Cell, Frame, Library, Observation, describe_cell
from reports.deaths import typical_deaths
from reports.ending import ending
from reports.folder import RunFolder
from reports.launch import cell_key
from reports.model import Block, Code, Heading, Line, Pair, Para, Row, Section, Span, Table, code, line, strong
from reports.text import one_line, plural, size

STACK_LINES, MOST_ROWS = 24, 60
_FAMILIES = {"openmp": "OpenMP runtime", "blas": "linear algebra"}


def contrast(folder: RunFolder) -> Section | None:
    """None when nothing died."""
    typical = typical_deaths(folder)
    if not typical:
        return None
    failing = typical[0][1]
    surviving = nearest(folder, failing)
    return Section("contrast", "Failing against surviving", [
        Para(_who(folder, failing, surviving)),
        *_stacks(failing, surviving),
        *_census(failing, surviving),
        *_environment(folder, failing, surviving),
    ])  # fmt: skip


def nearest(folder: RunFolder, failing: Observation) -> Observation | None:
    """The survivor whose configuration differs least; without probes where there is one, then the longest."""
    survived = [seen for _, seen in folder.observed if ending(seen, folder.verdict).kind == "survived"]
    return min(survived, key=lambda seen: _distance(seen, failing), default=None)


def _distance(seen: Observation, failing: Observation) -> tuple[bool, int, float]:
    return bool(seen.trial.probes), len(differing(seen.trial.cell, failing.trial.cell)), -seen.wall_s


def differing(cell: Cell, other: Cell) -> Cell:
    """What of `cell` is not so in `other`."""
    return {name: value for name, value in cell.items() if cell_key({"": value}) != cell_key({"": other.get(name, "")})}


def _who(folder: RunFolder, failing: Observation, surviving: Observation | None) -> Line:
    dead = Span(failing.attempt, folder.attempt_href(failing.attempt, "observation.json"))
    if surviving is None:
        return line("Failing: ", dead, ". No run survived, so there is nothing to hold it against.")
    changes = describe_cell(differing(surviving.trial.cell, failing.trial.cell))
    probes = " ".join(f"{name}={value}" for name, value in surviving.trial.probes.items())
    how = f"with {changes}" if changes else "with the same configuration" if not probes else f"with the probe {probes}"
    alive = Span(surviving.attempt, folder.attempt_href(surviving.attempt, "observation.json"))
    return line("Failing: ", dead, f" ({describe_cell(failing.trial.cell)}). Nearest surviving: ", alive, ", ", strong(how), ".")


# ------------------------------------------------------------------ stacks
def _stacks(failing: Observation, surviving: Observation | None) -> list[Block]:
    pair = Pair(Code(_stack(failing), f"failing, {failing.attempt}"), Code(_survivor(surviving), _title(surviving)))
    return [Heading("Stacks, innermost first"), pair]


def _title(surviving: Observation | None) -> str:
    return f"surviving, {surviving.attempt}" if surviving else "surviving"


def _survivor(surviving: Observation | None) -> str:
    return _stack(surviving) if surviving else "No run survived."


def _stack(seen: Observation) -> str:
    parts = [f"{'Python' if seen.native_stack else 'At the end'}:", *seen.crash_stack[:STACK_LINES]] if seen.crash_stack else []
    parts += ["Native, from the core:", *(frame(found) for found in seen.native_stack[:STACK_LINES])] if seen.native_stack else []
    for process in [] if parts else [process for process in seen.processes if process.stack][:3]:
        parts += [f"Process {process.pid} ({process.role}):", *process.stack[:STACK_LINES]]
    return "\n".join(one_line(part, 200) for part in parts) or "No stack was recorded in this run."


def frame(found: Frame) -> str:
    """`libc.so.6: abort at abort.c:79`, `faiss.so: no symbol`."""
    where = f" at {found.place}" if found.place else ""
    return f"{found.library + ': ' if found.library else ''}{found.function or 'no symbol'}{where}"


# ------------------------------------------------------------------ libraries
def _census(failing: Observation, surviving: Observation | None) -> list[Block]:
    if not failing.libraries and not (surviving and surviving.libraries):
        return [Heading("Native libraries"), Para(line("No census of native libraries was recorded in either run."))]
    mine, theirs = _copies(failing.libraries), _copies(surviving.libraries if surviving else [])
    families = {key[0] for key in mine if sum(mine[other] for other in mine if other[0] == key[0]) > 1}
    keys = sorted({*mine, *theirs})
    shown = [key for key in keys if mine.get(key, 0) != theirs.get(key, 0) or key[0] in families]
    same = len(keys) - len(shown)
    rows = [_library_row(key, mine.get(key, 0), theirs.get(key, 0)) for key in shown[:MOST_ROWS]]
    caption = "Native libraries that differ, or of whose kind there are several in the failing run"
    table = Table(caption, ["Kind", "Library", "Build", "From", "Failing", "Surviving"], rows, frozenset({4, 5}))
    note = Para(line(f"{plural(same, 'other library')} mapped alike in both.".replace("librarys", "libraries")))
    return [Heading("Native libraries"), *([table] if rows else []), note]


def _copies(libraries: Sequence[Library]) -> dict[tuple[str, str, str, str], int]:
    """(family, file name, build-id, owner) -> most copies in one process."""
    found: dict[tuple[str, str, str, str], dict[int, set[str]]] = {}
    for library in libraries:
        key = (library.family, PurePosixPath(library.path).name, (library.build_id or "")[:12], library.owner or "")
        found.setdefault(key, {}).setdefault(library.pid, set()).add(library.inode or library.path)
    return {key: max(map(len, copies.values())) for key, copies in found.items()}


def _library_row(key: tuple[str, str, str, str], mine: int, theirs: int) -> Row:
    family, name, build, owner = key
    known = next((word for start, word in _FAMILIES.items() if family.startswith(start)), "")
    kind = f"{known} ({family})" if known else family
    cells = [line(kind), line(code(name)), line(code(build) if build else "–"), line(owner or "not known")]
    return Row(
        [*cells, line(_count(mine, theirs)), line(str(theirs) if theirs else "–")],
        "bad" if mine > theirs else "calm" if mine < theirs else "",
    )


def _count(mine: int, theirs: int) -> Span | str:
    text = str(mine) if mine else "–"
    return strong(text) if mine != theirs else text


# ------------------------------------------------------------------ environment
def _environment(folder: RunFolder, failing: Observation, surviving: Observation | None) -> list[Block]:
    attempts = {found.id: found.attempt for found in folder.attempts}
    mine = _surroundings(failing, attempts.get(failing.attempt))
    theirs = _surroundings(surviving, attempts.get(surviving.attempt)) if surviving else {}
    different = [key for key in dict.fromkeys([*mine, *theirs]) if mine.get(key) != theirs.get(key)] if surviving else []
    rows = [Row([line(key), line(_or_none(mine.get(key))), line(_or_none(theirs.get(key)))]) for key in different[:MOST_ROWS]]
    same = len({*mine, *theirs}) - len(different)
    table = Table("What differs between the two runs", ["What", "Failing", "Surviving"], rows, prose=frozenset({1, 2}))
    words = "the same in both" if surviving else "recorded of the failing run"
    note = Para(line(f"{plural(same, 'setting')} (environment variables, limits, words of the command) {words}."))
    return [Heading("Environment"), *([table] if rows else []), note]


def _or_none(text: str | None) -> Span | str:
    return code(one_line(text, 200)) if text else "–"


def _surroundings(seen: Observation, attempt: Attempt | None) -> dict[str, str]:
    """Settings by name; an attempt's own folder is written as {attempt}, since it differs always."""
    found: dict[str, str] = {}
    if attempt:
        found |= {f"env {name} at exec": value for name, value in attempt.env.items()}
        found |= _words(attempt.argv)
        found["processors"] = " ".join(map(str, attempt.cpus)) if attempt.cpus else "all"
        found["memory limit"] = size(attempt.memory_limit_bytes) if attempt.memory_limit_bytes else "none"
    found |= {f"env {name} at exec": value for name, value in seen.env_at_exec.items()}
    for main in seen.settings[:1]:
        found |= {f"bound {bound.name}": str(bound.soft) for bound in main.bounds}
        found |= {"signals ignored": " ".join(main.ignored)} if main.ignored else {}
    found |= {f"env {change.name}, set by {change.module}": change.value or "(removed, or not kept)" for change in seen.env_changes}
    found |= {f"limit {limit.name}": "not set" if limit.had is None else str(limit.had) for limit in seen.limits}
    return {one_line(name, 120): re.sub(re.escape(seen.attempt), "{attempt}", value) for name, value in found.items()}


def _words(argv: Sequence[str]) -> dict[str, str]:
    """`--flag value` pairs and single words of a command."""
    found: dict[str, str] = {}
    for word, after in zip_longest(argv, argv[1:], fillvalue=""):
        if word.startswith("--"):
            name, sign, value = word.partition("=")
            found[f"command {name}"] = value if sign else (after if after and not after.startswith("--") else "given")
    return found
