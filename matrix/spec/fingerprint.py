"""What identifies the program itself: the content of its own files.

These are the files that can be found without a run; `evidence/used_files.py` adds what the runs load and open, and `--resume`
compares all of them.  The files alone decide which attempts are pooled: a commit hash would miss uncommitted edits and would change
with edits that the program never sees, so the state of git is not part of it.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SHELL_SUFFIXES = (".sh", ".bash", ".zsh")
_PROGRAM_STARTS = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # script; ELF; Mach-O for one and for several machines
_EXTENSION_SUFFIXES = (".so", ".pyd")


def fingerprint(argv: list[str], cwd: Path) -> str:
    """16 hexadecimal digits over the content of the program's own files; nothing of the program is imported or run.

    These are: every word of `argv` that names a script or a binary (data files are not read), the module of `-m`, and what these
    import from below their folder or `cwd`, followed statically.  Imports whose names are made at run time are missed, and so are
    installed packages.  Files count by their path relative to `cwd`, so that a moved folder keeps its fingerprint.
    """
    lines = sorted(f"{name} {_digest(path)}" for path, name in own_files(argv, cwd).items())
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


def own_files(argv: list[str], cwd: Path) -> dict[Path, str]:
    """The program's own files, and the name by which each counts; of an installed program only that program."""
    cwd = cwd.resolve()
    seen: dict[Path, str] = {}
    waiting = [(path, [path.parent, cwd]) for path in _entries(argv, cwd)]
    while waiting:
        path, roots = waiting.pop()
        if path not in seen and not _is_installed(path):
            seen[path] = _name(path, [cwd, *roots])
            waiting += [(imported, roots) for imported in _imports(_python_source(path), path, roots)]
    if not seen and argv and (found := shutil.which(argv[0])):
        seen[Path(found)] = argv[0]  # nothing of its own: an installed program
    return seen


def _entries(argv: list[str], cwd: Path) -> list[Path]:
    """Files at which the program starts."""
    found: list[Path] = []
    for before, word in zip(["", *argv], argv, strict=False):
        if before == "-m" and not found:  # after a script, -m is a flag of the script's own
            found += _module_files([*word.split("."), "__main__"], [cwd])
        elif before == "-c" and not found:
            found += _imports(word.encode(errors="replace"), None, [cwd])
        elif _is_program(cwd / word):
            found.append(cwd / word)
    return found


def _is_program(path: Path) -> bool:
    try:
        if not path.is_file() or _PYTHON.fullmatch(path.name):
            return False
        with path.open("rb") as source:
            return path.suffix in (".py", *_SHELL_SUFFIXES) or source.read(4).startswith(_PROGRAM_STARTS)
    except (OSError, ValueError):  # too long for a path, holds a NUL, or may not be read
        return False


def _is_installed(path: Path) -> bool:
    """Part of an environment of packages, which is not the program's own."""
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts) or (path.parent.parent / "pyvenv.cfg").exists()


def _name(path: Path, roots: list[Path]) -> str:
    return next((path.relative_to(root).as_posix() for root in roots if path.is_relative_to(root)), path.name)


def _python_source(path: Path) -> bytes:
    """The text of a Python file; nothing for any other."""
    try:
        with path.open("rb") as source:
            start = source.read(200)
            first_line = start.partition(b"\n")[0]
            is_python = path.suffix == ".py" or (start.startswith(b"#!") and b"python" in first_line)
            return start + source.read() if is_python else b""
    except OSError:
        return b""


def _imports(text: bytes, path: Path | None, roots: list[Path]) -> Iterator[Path]:
    """Files below the roots that a Python text imports, wherever in the text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # its content counts all the same
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(alias.name.split("."), roots)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            start = _relative_roots(path, node.level, roots) if node.level else roots
            for alias in node.names:  # each name may be a module of its own
                yield from _module_files([*base, alias.name], start)


def _relative_roots(path: Path | None, level: int, roots: list[Path]) -> list[Path]:
    """The folder that a relative import starts from, when it is below a root."""
    folders = [] if path is None else list(path.parents)[level - 1 : level]
    return [folder for folder in folders if any(folder.is_relative_to(root) for root in roots)]


def _module_files(parts: list[str], roots: list[Path]) -> list[Path]:
    """Files of a dotted name, the packages above it included, from the first root that has any."""
    names = list(itertools.takewhile(str.isidentifier, parts))  # stops at the * of `from a import *`
    return next((files for root in roots if (files := list(_walk(names, root)))), [])


def _walk(names: list[str], folder: Path) -> Iterator[Path]:
    for name in names:
        package = folder / name / "__init__.py"
        modules = [folder / f"{name}.py", *_extensions(folder, name)]
        if package.is_file():
            yield package
        elif any(module.is_file() for module in modules):
            yield from (module for module in modules if module.is_file())
            return
        folder = folder / name  # without __init__.py it is a namespace package, or not there at all


def _extensions(folder: Path, name: str) -> list[Path]:
    return sorted(file for suffix in _EXTENSION_SUFFIXES for file in folder.glob(f"{name}.*{suffix[1:]}") if file.suffix == suffix)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as source:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()
