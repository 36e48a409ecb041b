"""One list of what can be set, wherever it was found: in the command, in --help, in a configuration file, in the environment."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.propose.declared import literal_globals
from matrix.propose.roles import Role, plain_name, role_of
from matrix.propose.usage import Option
from matrix.propose.words import CommandLine, Given, Takes, flags, launcher_flags

MOST_CONFIG_BYTES = 1 << 20
CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
OF_A_LAUNCHER = ("ranks", "threads")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Something that can be set, and how."""

    name: str  # of the axis that it may become
    role: Role | None  # None: its name says nothing
    value: str | None  # None: a switch, or not known
    flag: str = ""  # as an axis writes it; "": it has none
    variable: str = ""  # environment variable that sets it; "": none does
    option: Option | None = None  # what --help says of it; None: nothing
    given: Given | None = None  # None: the command does not name it
    where: str = ""  # where its value stands, for people: "in the command"
    after: str = ""  # word of the command that its flag has to follow, as a launcher's; "": the end
    is_default: bool = False  # nobody set it

    @property
    def number(self) -> int | None:
        """The value, when it is a whole number from 0 as it is written everywhere: not 007."""
        return int(self.value) if self.value and re.fullmatch(r"0|[1-9]\d{0,8}", self.value, re.ASCII) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A configuration file that the command names, the default of a flag, or the program's sources."""

    named: Path  # as it is named
    flag: str | None  # "": a word of its own; None: only the sources name it
    values: dict[str, str]  # "data.batch_size": "32"
    overrides: bool = False  # each can be set as `data.batch_size=32` on the command line


def command_settings(command: CommandLine, options: Sequence[Option]) -> list[Setting]:
    """Of the flags in the command; one that is there twice is left out, as nobody can tell which counts."""
    takes: dict[str, Takes] = {flag: option.takes for option in options for flag in option.flags}
    takes |= dict.fromkeys((off for option in options for off in option.off), "nothing")
    by_flag = {flag: option for option in options for flag in (*option.flags, *option.off)}
    found = flags(command, takes)
    times = Counter(_identity(given, by_flag) for given in found)
    return [_of_given(given, by_flag.get(given.flag)) for given in found if times[_identity(given, by_flag)] == 1]


def _identity(given: Given, by_flag: Mapping[str, Option]) -> str:
    option = by_flag.get(given.flag)
    return option.flag if option else given.flag


def _of_given(given: Given, option: Option | None) -> Setting:
    long = option.flag if option else given.flag
    several = given.value is None and given.end > given.start + 1
    return Setting(
        name=axis_name(long),
        role=None if several else role_of(long),
        value=given.value,
        flag=given.axis_flag,
        option=option,
        given=given,
        where="in the command",
    )


def help_settings(options: Sequence[Option], taken: Sequence[Setting]) -> Iterator[Setting]:
    """Of options that the command does not name, with the default that --help tells."""
    named = {setting.option.flag for setting in taken if setting.option}
    for option in options:
        if option.flag not in named and option.flag not in ("--help", "-h"):
            yield Setting(
                name=axis_name(option.flag),
                role=role_of(option.flag),
                value=option.default,
                flag=written_flag(option),
                option=option,
                where="its default",
                is_default=True,
            )


def variable_settings(variables: Mapping[str, str | None], env: Mapping[str, str]) -> Iterator[Setting]:
    """Of environment variables that the program's sources read."""
    for name, default in variables.items():
        where = "in the environment" if name in env else "the default in the source"
        yield Setting(
            name=name.lower(),
            role=role_of(name),
            value=env.get(name, default),
            variable=name,
            where=where,
            is_default=name not in env,
        )


def launcher_settings(command: CommandLine, cwd: Path) -> list[Setting]:
    """Return what the options of a launcher set, or the configuration file that they name: ranks and threads."""
    found = [
        Setting(
            name=axis_name(given.flag),
            role=role_of(given.flag),
            value=given.value,
            flag=given.axis_flag,
            given=given,
            where="in the command",
            after=command.launcher_word,
        )
        for given in launcher_flags(command)
    ]
    named = next((setting for setting in found if setting.role == "config"), None)
    values = config_values(cwd / named.value) if named and named.value else {}
    roles = {setting.role for setting in found}
    for key, value in values.items():
        if (role := role_of(key)) in OF_A_LAUNCHER and role not in roles and named:
            where = f"in {Path(named.value or '').name}"
            found.append(Setting(name=key, role=role, value=value, flag=f"--{key}", where=where, after=command.launcher_word))
    return found


def written_flag(option: Option) -> str:
    """Return the option's flag as an axis writes it: one that ends in = joins its value."""
    return f"{option.flag}=" if option.joined else option.flag


def axis_name(flag: str) -> str:
    """`--data.batch_size` as data.batch_size; what cannot name an axis loses what it may not have."""
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_.-") else "_" for letter in flag.strip("-+=~"))
    return name.lstrip(".-") or "axis"


# ------------------------------------------------------------------ configuration files
def config_file(
    settings: Sequence[Setting], command: CommandLine, cwd: Path, in_sources: Sequence[str] = (), overrides: bool = False
) -> ConfigFile | None:
    """Return the first configuration file that can be read.

    The file may be named after --config, stand as a word of its own (as Hugging Face takes it), be the default of such a
    flag, or be named by the program's sources, from the working folder or their own.
    """
    flags_ = [(setting.flag, setting.value, setting.given) for setting in settings if setting.role == "config" and setting.value]
    scripts = (".py",) if any(setting.option and setting.option.joined for setting in settings) else ()
    named: list[tuple[str | None, str | None]] = [(flag, value) for flag, value, given in flags_ if given]
    named += [("", word) for word in command.arguments if word.endswith((*CONFIG_SUFFIXES, *scripts)) and "=" not in word]
    named += [(flag, value) for flag, value, given in flags_ if not given and flag]
    beside = Path(command.target).parent if command.kind in ("script", "shell") else Path()
    named += [(None, str(folder / name)) for name in in_sources for folder in dict.fromkeys((Path(), beside))]
    for flag, value in named:
        path = cwd / (value or "")
        if path.suffix in (*CONFIG_SUFFIXES, *scripts) and (values := config_values(path)):
            return ConfigFile(named=Path(value or ""), flag=flag, values=values, overrides=overrides)
    return None


def config_values(path: Path) -> dict[str, str]:
    """Return what a configuration file sets, each key with the keys around it; {} where it cannot be read."""
    try:
        if path.stat().st_size > MOST_CONFIG_BYTES:
            return {}
        text = path.read_text(encoding="utf-8", errors="strict")
    except (OSError, UnicodeDecodeError):
        return {}
    if path.suffix == ".py":
        return {name: str(value) for name, value in literal_globals(text).items()}
    return dict(_flat(_parsed(text, path.suffix), ""))


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        tomllib = importlib.import_module("tomllib") if importlib.util.find_spec("tomllib") else None  # from Python 3.11
        try:
            return tomllib.loads(text) if tomllib else {}
        except ValueError:
            return {}
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        return {}


def _flat(data: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{prefix}{key}.")
    elif isinstance(data, (str, int, float, bool)) and prefix:
        yield prefix[:-1], str(data)


def config_settings(config: ConfigFile, options: Sequence[Option], taken: Sequence[Setting]) -> Iterator[Setting]:
    """Of what the file sets and a flag of the program, or `key=value`, can set as well."""
    named = {setting.option.flag for setting in taken if setting.option}
    for key, value in config.values.items():
        dotted = next((option for option in options if option.flag.lstrip("-") == key.replace(".init_args.", ".")), None)
        option = dotted or next((option for option in options if plain_name(option.flag) == plain_name(key)), None)
        if config.overrides and option is None:
            if not any(setting.flag.lstrip("+") == f"{key}=" for setting in taken):
                yield Setting(name=axis_name(key), role=role_of(key), value=value, flag=f"{key}=", where=f"in {config.named.name}")
        elif option and option.flag not in named:
            yield Setting(
                name=axis_name(option.flag),
                role=role_of(key),
                value=value,
                flag=written_flag(option),
                option=option,
                where=f"in {config.named.name}",
            )
