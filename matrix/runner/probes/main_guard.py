"""Whether a Python program can be started anew by multiprocessing: spawn and forkserver import its main file once more."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_WITH_VALUE = ("-W", "-X")


def why_no_other_start_method(argv: list[str], cwd: Path) -> str:
    """Why; "" when nothing speaks against it."""
    words = list(itertools.dropwhile(lambda word: not _PYTHON.fullmatch(Path(word).name), argv))[1:]
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[2 if words[0] in _WITH_VALUE else 1 :]
    if not words:  # another launcher, or the script itself
        return _of_script(_first_script(argv, cwd) or argv[0], cwd)
    if words[0] == "-c":
        return "the program is the text of a -c option, which no other process can import"
    if words[0] == "-m":
        return _of_module(words[1:], cwd)
    return _of_script(words[0], cwd)


def _of_module(words: list[str], cwd: Path) -> str:
    """A package's __main__.py is not imported again by multiprocessing; a plain module is, as is the script of an installed launcher."""
    path = cwd.joinpath(*words[0].split(".")) if words else cwd
    if path.with_suffix(".py").is_file():
        return _of_script(str(path.with_suffix(".py")), cwd)
    script = None if path.is_dir() else _first_script(words, cwd)
    return _of_script(script, cwd) if script else ""


def _first_script(words: list[str], cwd: Path) -> str | None:
    return next((word for word in words if word.endswith(".py") and (cwd / word).is_file()), None)


def _of_script(word: str, cwd: Path) -> str:
    path = cwd / word
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return f"{word} is no Python file in which a main guard could be seen"
    if any(isinstance(node, ast.If) and _is_guard(node.test) for node in tree.body):
        return ""
    return f'{path.name} has no `if __name__ == "__main__"`: every process that is spawned would run all of it again'


def _is_guard(test: ast.expr) -> bool:
    """`__name__ == "__main__"`, also as a part of a longer condition."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
            if name and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
                return True
    return False
