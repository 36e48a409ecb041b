"""Packages that change variables of native runtimes when they are imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from matrix.doctor.finding import Seen, Severity, check
from matrix.doctor.place import Place
from matrix.evidence.runtimes import REGISTERING

NAMES = re.compile(r"^(OMP|KMP|GOMP|MKL|OPENBLAS|NUMEXPR|VECLIB)_|^(LD_PRELOAD|MALLOC_ARENA_MAX)$")
WORDS = re.compile(rb"(OMP|KMP|GOMP|MKL|OPENBLAS|NUMEXPR|VECLIB)_|LD_PRELOAD|MALLOC_ARENA_MAX")  # of a file that is worth parsing
HIDES = "KMP_DUPLICATE_LIB_OK"


@check(
    id="import-changes-environment",
    group="libraries",
    fine="no package sets thread or OpenMP variables when it is imported",
    causes="what is imported, and in which order, decides how OpenMP behaves; where KMP_DUPLICATE_LIB_OK is set the abort by two "
    "runtimes is "
    "hidden: the same script dies without that import and lives with it",
    unproven="that your program imports it, or in which order; only the files that run first of each package are read",
    by_hand="python -c 'import os, PACKAGE; print(os.environ.get(\"KMP_DUPLICATE_LIB_OK\"))'; /proc/PID/environ does not show it",
    remedy="set the variables that you want before Python starts; leave such packages out of a run that looks for a crash",
    references=("measured: abort without `import threadpoolctl`, exit 0 with it", "https://github.com/joblib/threadpoolctl"),
)
def import_changes(place: Place) -> Iterator[Seen]:
    lines = [
        (each.name, name, f"{place.short(path)}:{line} sets {name}")
        for each in place.python.distributions
        for path in each.tops
        for name, line in assigned(path)
    ]
    if not lines:
        return
    hides = sorted({package for package, name, _ in lines if name == HIDES})
    others = sorted({package for package, _, _ in lines} - set(hides))
    duplicates = len(place.of_family(REGISTERING)) > 1
    parts = [f"{', '.join(hides)} set{'s' * (len(hides) == 1)} {HIDES}"] * bool(hides)
    parts += [f"{', '.join(others)} set{'s' * (len(others) == 1)} thread variables"] * bool(others)
    hidden = " and there are two runtimes whose abort it hides" if hides and duplicates else ""
    severity: Severity = "warning" if hidden else "info"
    yield Seen(severity=severity, summary=f"on import {'; '.join(parts)}{hidden}", evidence=tuple(line for _, _, line in lines))


def assigned(path: Path) -> list[tuple[str, int]]:
    """Variables of native runtimes that a module sets in os.environ, with the line, also within functions that nobody may call."""
    try:
        text = path.read_bytes()
        if not WORDS.search(text):
            return []
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return []
    return [(name, line) for node in ast.walk(tree) for name, line in _set_by(node) if NAMES.search(name)]


def _set_by(node: ast.AST) -> Iterator[tuple[str, int]]:
    """`os.environ[NAME] = …`, `os.environ.setdefault(NAME, …)`, `os.putenv(NAME, …)`."""
    if isinstance(node, ast.Assign):
        subscripts = [target for target in node.targets if isinstance(target, ast.Subscript) and _ends(target.value, "environ")]
        names: list[ast.expr] = [target.slice for target in subscripts]
    elif isinstance(node, ast.Call) and _ends(node.func, "environ.setdefault", "os.putenv"):
        names = node.args[:1]
    else:
        return
    yield from ((str(name.value), name.lineno) for name in names if isinstance(name, ast.Constant))


def _ends(node: ast.expr, *words: str) -> bool:
    return ast.unparse(node).endswith(words)
