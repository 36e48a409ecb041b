"""The options that a program's sources declare: for their defaults, which --help seldom tells, and where --help cannot be had.

Nothing is imported or run.  argparse's `add_argument` and click's `option` are read, and the globals of a script that takes
`--name=value` for each of them.
"""

from __future__ import annotations

import ast
import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from matrix.propose.usage import Option
from matrix.propose.words import Takes

Literal = str | int | float | bool | None
DECLARE = ("add_argument", "option")
SETS_GLOBALS = re.compile(r"\bglobals\(\)\s*\[[^\]]+\]\s*=|\bglobals\(\)\.update\(|\bexec\(open\(")
NO_VALUE = ("store_true", "store_false", "store_const", "count", "append_const")
OTHER_ACTIONS = ("help", "version", "append", "extend")
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def declared_options(texts: Iterable[str]) -> list[Option]:
    """Return the options that these Python sources declare, in their order."""
    found: dict[str, Option] = {}
    for text in texts:
        tree = _parsed(text)
        for option in _calls(tree) if tree else ():
            found.setdefault(option.flag, option)
    return list(found.values())


def options_of_globals(script: str, texts: Iterable[str]) -> list[Option]:
    """Return one option for each global of a script whose sources set globals by name from the command line."""
    if not any(SETS_GLOBALS.search(text) for text in texts) or "sys.argv" not in "".join(texts):
        return []
    return [
        Option(flags=(f"--{name}",), default=str(value), joined=True)
        for name, value in literal_globals(script).items()
        if not name.startswith("_")
    ]


def literal_globals(text: str) -> dict[str, Literal]:
    """Return what a script assigns to names at its top level, where the value is a literal or a product of some."""
    tree = _parsed(text)
    found: dict[str, Literal] = {}
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            known, value = _literal(node.value)
            if known and value is not None:
                found[node.targets[0].id] = value
    return found


def with_declared(helped: Sequence[Option], declared: Sequence[Option]) -> list[Option]:
    """Return what --help says, with defaults of the sources where it tells none; what only the sources have is added."""
    by_flag = {flag: option for option in declared for flag in option.flags}
    known = {flag for option in helped for flag in option.flags}
    merged = [_with_default(option, by_flag) for option in helped]
    return merged if helped else [option for option in declared if not known.intersection(option.flags)]


def _with_default(option: Option, by_flag: Mapping[str, Option]) -> Option:
    own = next((by_flag[flag] for flag in option.flags if flag in by_flag), None)
    if own is None or own.default is None or option.default is not None:
        return option
    return dataclasses.replace(option, default=own.default)


# ------------------------------------------------------------------ one call
def _calls(tree: ast.Module) -> Iterator[Option]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in DECLARE:
            continue
        flags = [known for argument in node.args if isinstance(known := _literal(argument)[1], str)]
        flags = [flag for flag in flags if flag.startswith("-")]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if flags:
            yield _option(flags, keywords)


def _option(flags: list[str], keywords: Mapping[str, ast.expr]) -> Option:
    on_off = [flag.partition("/") for flag in flags]  # click: --shuffle/--no-shuffle
    off = [second for _, _, second in on_off if second]
    if _name(keywords.get("action")) == "BooleanOptionalAction":
        off += [f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")]
    default = _literal(keywords.get("default"))[1]
    return Option(
        flags=tuple(first for first, _, _ in on_off),
        off=tuple(off),
        takes=_takes(keywords, bool(off)),
        choices=_choices(keywords.get("choices")),
        default=None if default is None else str(default),
        text=str(_literal(keywords.get("help"))[1] or ""),
    )


def _takes(keywords: Mapping[str, ast.expr], has_off: bool) -> Takes:
    action, nargs = _literal(keywords.get("action"))[1], _literal(keywords.get("nargs"))[1]
    if action in NO_VALUE or has_off or _literal(keywords.get("is_flag"))[1] is True:
        return "nothing"
    if nargs == "?":
        return "perhaps"
    return "many" if nargs is not None or action in OTHER_ACTIONS else "one"


def _choices(node: ast.expr | None) -> tuple[str, ...]:
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return ()
    values = [_literal(item) for item in node.elts]
    return tuple(str(value) for _, value in values) if all(known for known, _ in values) else ()


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr | None) -> tuple[bool, Literal]:
    """(True, the value) of a constant or of arithmetic with constants; (False, None) of everything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
        return True, node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        known, value = _literal(node.operand)
        return (True, -value) if known and isinstance(value, (int, float)) else (False, None)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = _literal(node.left)[1], _literal(node.right)[1]
        if isinstance(left, (int, float)) and isinstance(right, (int, float)) and right:
            return True, ARITHMETIC[type(node.op)](left, right)
    return False, None


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # no Python, or of another version
