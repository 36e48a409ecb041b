"""The options in a program's --help, as argparse, click, typer, fire, absl, jsonargparse and Hugging Face's parser write it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from matrix.evidence.progress import ANSI
from matrix.propose.words import Takes

BOX = re.compile(r"[│┃╭╮╰╯─━┌┐└┘|]?(?P<text>.*?)[│┃]?\s*")
FLAG = re.compile(r"(?P<flag>--?(?:\[no-?\])?[A-Za-z][\w.\-/]*\+?)(?P<colon>:(?=\s|$))?")
METAVAR = re.compile(
    r"(?P<lead>=|\s+)(?:"
    r"\{(?P<braces>[^{}]*)\}"  # argparse: {cpu,cuda}
    r"|\[(?P<bars>[^\[\]\s|]+(?:\|[^\[\]\s|]+)+)\]"  # click: [cpu|cuda]
    r"|\[=?(?P<perhaps>[A-Za-z_][\w.]*)\]"  # argparse, nargs="?": [FP16]
    r"|<(?P<angles>[^<>]*)>:?"  # typer: <int>; absl: <cpu|gpu>:
    r"|(?P<word>[^\s\[{<,/|-][^\s,]*)"
    r")(?P<more>(?:\s+\[[^\]]*\.\.\.\])|\.\.\.)?"
)
UPPER = re.compile(r"[A-Z][A-Z0-9_.|]*(?:\s+RANGE)?")
SEPARATOR = re.compile(r"\s*[,/|]\s*|\s+(?=-)")
DEFAULT = re.compile(r"\(default: (.*?)\)(?=\s|$|\()|\[default: ([^\];]*)|[,(]\s*default: ([^,)]*)|^\s*Default: (.+?)$", re.MULTILINE)
SUBCOMMANDS = re.compile(r"^ {2,4}\{([\w,.-]+)\}", re.MULTILINE)
MOST_OPTIONS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    flags: tuple[str, ...]  # "-b", "--batch-size"
    off: tuple[str, ...] = ()  # "--no-shuffle": what turns it off
    takes: Takes = "one"
    choices: tuple[str, ...] = ()
    default: str | None = None  # as printed; None: none is
    text: str = ""
    joined: bool = False  # only taken as one word: --name=value

    @property
    def flag(self) -> str:
        """The one that a person would write in a script: the first long one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])


def options(text: str) -> list[Option]:
    """Those in a help text, in their order; a text that is none has none."""
    found = [option for block in _blocks(text) if (option := _option(*block))]
    return found[:MOST_OPTIONS]


def subcommands(text: str) -> tuple[str, ...]:
    """Names of argparse's subcommands, `{train,eval}`."""
    match = SUBCOMMANDS.search(text)
    return tuple(match[1].split(",")) if match else ()


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(the line that an option begins at, the lines below that belong to it)."""
    head, below = "", list[str]()
    for line in ANSI.sub("", text).expandtabs().split("\n"):
        shown = _without_box(line)
        if FLAG.match(shown.lstrip()):
            if head:
                yield head, "\n".join(below)
            head, below = shown.strip(), []
        elif head and shown.strip() and shown.startswith("  "):
            below.append(shown.strip())
        elif head:
            yield head, "\n".join(below)
            head, below = "", []
    if head:
        yield head, "\n".join(below)


def _without_box(line: str) -> str:
    match = BOX.fullmatch(line)
    text = match["text"] if match else line
    return re.sub(r"^(\s*)\*(?=\s)", r"\1 ", text)  # typer's mark of what is required


def _option(head: str, below: str) -> Option | None:
    on: list[str] = []
    off: list[str] = []
    takes: Takes = "nothing"
    choices: tuple[str, ...] = ()
    rest = head
    while match := FLAG.match(rest):
        _sort_in(match["flag"], on, off)
        rest = rest[match.end() :]
        if match["colon"] and "[no" not in match["flag"]:  # absl names no value, and its switches are [no]
            takes = "one"
        if value := _value(rest, bool(match["colon"])):
            takes, choices = _kind_of(value), _choices_of(value) or choices
            rest = rest[value.end() :]
        separator = SEPARATOR.match(rest)
        if separator is None:
            break
        rest = rest[separator.end() :]
    if not on:
        return None
    words = f"{rest.strip()}\n{below}".strip()
    default = next((group for match in [DEFAULT.search(words)] if match for group in match.groups() if group is not None), None)
    return Option(
        flags=tuple(on), off=tuple(off), takes=takes, choices=choices, default=default.strip("'\" ") if default else None, text=words
    )


def _sort_in(flag: str, on: list[str], off: list[str]) -> None:
    """`--no-shuffle` beside `--shuffle` turns it off; alone it is a flag like others."""
    if "[no" in flag:
        on.append(re.sub(r"\[no-?\]", "", flag))
        off.append(flag.replace("[", "").replace("]", ""))
    elif on and flag.startswith("--no") and any(flag.lstrip("-") in _negations(other) for other in on):
        off.append(flag)
    elif not flag.endswith("+"):  # jsonargparse: appends
        on.append(flag)


def _negations(flag: str) -> tuple[str, ...]:
    name = flag.lstrip("-")
    return (f"no-{name}", f"no_{name}", f"no{name}")


def _value(rest: str, after_colon: bool) -> re.Match[str] | None:
    """What stands for the flag's value; a word that is further away than one space is the description, unless it is a type."""
    match = METAVAR.match(rest)
    if match is None or match["word"] is None:
        return match if match is None or not match[0].lstrip().startswith("[default") else None
    near = match["lead"] in ("=", " ") and not after_colon
    return match if near or (not after_colon and UPPER.fullmatch(match["word"])) else None


def _kind_of(value: re.Match[str]) -> Takes:
    if value["perhaps"]:
        return "perhaps"
    if value["more"]:
        return "many"
    return "nothing" if value["angles"] == "bool" else "one"


def _choices_of(value: re.Match[str]) -> tuple[str, ...]:
    if value["braces"]:
        return tuple(word.strip() for word in value["braces"].split(","))
    bars = value["bars"] or (value["angles"] if "|" in (value["angles"] or "") else "")
    return tuple(bars.split("|")) if bars else ()
