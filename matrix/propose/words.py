"""The words of a command: which of them start the program, which are its own flags, and what values these have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal

PYTHON = re.compile(r"(?:python|pypy)[0-9.]*(?:\.exe)?")
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "fish"))
LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed", "horovodrun", "fabric"))
LAUNCHER_MODULES = re.compile(r"torch\.distributed\.(?:run|launch)|accelerate\..+|deepspeed\..+|lightning\.fabric\..+")
PYTHON_VALUE_OPTIONS = ("-X", "-W", "--check-hash-based-pycs")
FLAG = re.compile(r"(?P<flag>--?[A-Za-z_][\w.\-/]*)(?:=(?P<value>.*))?", re.DOTALL)
OVERRIDE = re.compile(r"(?P<flag>\+{0,2}[A-Za-z_][\w.@/]*)=(?P<value>.*)", re.DOTALL)  # as Hydra and OmegaConf take them
VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
Takes = Literal["nothing", "one", "perhaps", "many"]  # perhaps: one value or none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """A flag in the command: `words[start:end]`."""

    flag: str  # "--bs"; "trainer.bs=" for an override
    value: str | None  # None: a switch, or several values
    start: int
    end: int
    joined: bool = False  # flag and value are one word

    @property
    def axis_flag(self) -> str:
        """As an axis writes it: one that ends in = joins its value."""
        return self.flag if not self.joined or self.flag.endswith("=") else f"{self.flag}="


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandLine:
    words: tuple[str, ...]
    kind: Literal["script", "module", "code", "shell", "program"]
    target: str  # the script's path, the module's name, or the program
    start: int  # where the words that start the program alone begin: its interpreter, or itself
    own: int  # where its own arguments begin
    launcher: str = ""  # what starts it, when that is no interpreter: "torchrun"
    interpreter: str = ""  # of a script or module; "": the launcher chooses
    launching: tuple[int, int] = (0, 0)  # where the options of a launcher or of what starts it begin and end

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words[self.own :]

    @property
    def launcher_word(self) -> str:
        """Return the word that the launcher's options follow; "" when there is none."""
        return self.words[self.launching[0] - 1] if self.launching[1] else ""

    @property
    def closed(self) -> bool:
        """What is added at the end would not be taken for a flag."""
        return self.kind == "code" or "--" in self.arguments

    @property
    def stem(self) -> str:
        """A short name: `train` for pkg/train.py and for -m pkg.train."""
        last = self.target.rpartition(".")[2] if self.kind == "module" else PurePath(self.target).stem
        return last if last != "__main__" else self.target.split(".")[-2]


def read(words: Sequence[str]) -> CommandLine:
    """Which program a command starts.  Of a wrapper (`nohup`, `env A=1`, `timeout 5`, `tool … -- COMMAND`) it is the inner one."""
    command = _program_of(tuple(words))
    if command.launcher or command.start == 0:
        return command
    return dataclasses.replace(command, launching=(1, command.start))  # of mpirun, srun and their like


def _program_of(words: tuple[str, ...]) -> CommandLine:
    """Return the innermost program that is known to start others."""
    first = max((at + 1 for at, word in enumerate(words[:-1]) if word == "--" and _is_program(words[at + 1])), default=0)
    for at in range(first, len(words)):
        name = PurePath(words[at]).name
        if PYTHON.fullmatch(name):
            return _of_python(words, at)
        if name in LAUNCHERS:
            return _of_launcher(words, at, name)
        if name in SHELLS:
            return _of_shell(words, at)
        if words[at].endswith((".py", ".sh", ".bash")):
            kind: Literal["script", "shell"] = "script" if words[at].endswith(".py") else "shell"
            return CommandLine(words=words, kind=kind, target=words[at], start=at, own=at + 1)
    return CommandLine(words=words, kind="program", target=words[first], start=first, own=first + 1)


def _is_program(word: str) -> bool:
    name = PurePath(word).name
    return bool(PYTHON.fullmatch(name)) or name in LAUNCHERS or name in SHELLS or name.endswith((".py", ".sh"))


def _of_python(words: tuple[str, ...], at: int) -> CommandLine:
    """`python [options] script | -m module | -c code`."""
    index = at + 1
    while index < len(words) and words[index].startswith("-") and words[index] not in ("-", "--"):
        if words[index] in ("-m", "-c") and index + 1 < len(words):
            if words[index] == "-m" and LAUNCHER_MODULES.fullmatch(words[index + 1]):
                return dataclasses.replace(_of_launcher(words, index + 1, words[index + 1]), start=at, interpreter=words[at])
            kind: Literal["module", "code"] = "module" if words[index] == "-m" else "code"
            target = words[index + 1] if kind == "module" else PurePath(words[at]).name
            return CommandLine(words=words, kind=kind, target=target, start=at, own=index + 2, interpreter=words[at])
        index += 2 if words[index] in PYTHON_VALUE_OPTIONS else 1
    if index >= len(words):
        return CommandLine(words=words, kind="program", target=words[at], start=at, own=at + 1)
    return CommandLine(words=words, kind="script", target=words[index], start=at, own=index + 1, interpreter=words[at])


def _of_launcher(words: tuple[str, ...], at: int, launcher: str) -> CommandLine:
    """The launcher's own options come first, behind its subcommand; then a script or `-m module`."""
    named = words[at + 1 : at + 2]
    is_script = any(word.startswith("-") or word.endswith(".py") for word in named)
    start = at + 1 if is_script or not named else at + 2
    for index in range(at + 1, len(words)):
        region = (start, max(start, index))
        if words[index].endswith(".py"):
            return CommandLine(
                words=words, kind="script", target=words[index], start=at, own=index + 1, launcher=launcher, launching=region
            )
        if words[index] in ("-m", "--module") and index + 1 < len(words):
            return CommandLine(
                words=words, kind="module", target=words[index + 1], start=at, own=index + 2, launcher=launcher, launching=region
            )
    region = (start, len(words))
    return CommandLine(words=words, kind="program", target=words[at], start=at, own=len(words), launcher=launcher, launching=region)


def _of_shell(words: tuple[str, ...], at: int) -> CommandLine:
    """`bash [options] script …` or `bash -c text`, to which nothing can be added."""
    for index in range(at + 1, len(words)):
        if words[index].startswith("-") and "c" in words[index] and not words[index].startswith("--"):
            return CommandLine(words=words, kind="code", target=PurePath(words[at]).name, start=at, own=len(words))
        if not words[index].startswith(("-", "+")):
            return CommandLine(words=words, kind="shell", target=words[index], start=at, own=index + 1)
    return CommandLine(words=words, kind="shell", target=words[at], start=at, own=len(words))


# ------------------------------------------------------------------ flags
def flags(command: CommandLine, takes: Mapping[str, Takes]) -> list[Given]:
    """The program's own flags, in their order; `takes`: what is known of each.  Of the others, one word after it is its value."""
    return _flags_between(command.words, command.own, len(command.words), takes)


def launcher_flags(command: CommandLine) -> list[Given]:
    """Return the options of a launcher that a value follows."""
    start, end = command.launching
    return [given for given in _flags_between(command.words[:end], start, end, {}) if given.value is not None]


def _flags_between(words: tuple[str, ...], start: int, end: int, takes: Mapping[str, Takes]) -> list[Given]:
    found: list[Given] = []
    at = start
    while at < end and words[at] != "--":
        given = _flag_at(words, at, takes)
        found += [given] if given else []
        at = given.end if given else at + 1
    return found


def _flag_at(words: tuple[str, ...], at: int, takes: Mapping[str, Takes]) -> Given | None:
    word = words[at]
    if match := FLAG.fullmatch(word):
        if match["value"] is not None:
            return Given(flag=match["flag"], value=match["value"], start=at, end=at + 1, joined=True)
        return _with_values(words, at, takes.get(match["flag"]))
    if match := OVERRIDE.fullmatch(word):
        return Given(flag=f"{match['flag']}=", value=match["value"], start=at, end=at + 1, joined=True)
    return None


def _with_values(words: tuple[str, ...], at: int, takes: Takes | None) -> Given:
    after = at + 1
    most = {"nothing": 0, "one": 1, "perhaps": 1}.get(takes or "", len(words))
    end = after
    while end < len(words) and end - after < most and not _is_flag(words[end]):
        end += 1
    return Given(flag=words[at], value=words[after] if end == after + 1 else None, start=at, end=end)


def _is_flag(word: str) -> bool:
    return word == "--" or (word.startswith("-") and word != "-" and not NUMBER.fullmatch(word)) or bool(OVERRIDE.fullmatch(word))


def variables_in_front(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """`OMP_NUM_THREADS=4 python …`, as one writes it for a shell: the variables, and the command."""
    found: dict[str, str] = {}
    rest = list(words)
    while len(rest) > 1 and (match := VARIABLE.fullmatch(rest[0])):
        found[match["name"]] = match["value"]
        rest.pop(0)
    return found, rest
