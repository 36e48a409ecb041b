"""The command line.  Importing it, and `--help`, load neither torch nor numpy."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trainer import InputError, TrainingError
from trainer.config import Config, EstimateConfig, ProbeConfig, SubsetConfig, SynthConfig, TrainConfig, check, flag

COMMANDS: dict[str, tuple[Any, str]] = {
    "train": (TrainConfig, "train a query tower"),
    "estimate": (EstimateConfig, "tell how much memory a run needs"),
    "probe": (ProbeConfig, "tell whether an npz is mapped or loaded"),
    "subset": (SubsetConfig, "cut small files out of large ones"),
    "synth": (SynthConfig, "make clustered pairs and a bank"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command.  Exit status: 0 done, 1 the run could not go on, 2 bad input."""
    command, config = parse(argv)
    try:
        check(config)
        # The entry of each command is the function of its name in the module of its name, imported only when it is asked for.
        getattr(importlib.import_module(f"trainer.{command}"), command)(config)
    except InputError as error:
        print(f"trainer {command}: {error}", file=sys.stderr)
        return 2
    except TrainingError as error:
        print(f"trainer {command}: {error}", file=sys.stderr)
        return 1
    return 0


def parse(argv: list[str] | None) -> tuple[str, Config]:
    parser = argparse.ArgumentParser(prog="python -m trainer", description="A two-tower retriever trainer.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (kind, text) in COMMANDS.items():
        add_options(commands.add_parser(name, help=text, description=kind.__doc__), kind)
    values = vars(parser.parse_args(argv))
    command: str = values.pop("command")
    return command, COMMANDS[command][0](**values)


def add_options(parser: argparse.ArgumentParser, kind: Any) -> None:
    """One option for each field; its type and its help are the two parts of the field's annotation.

    What a command is given to look at (`file`, `config`) is an argument without a name.
    """
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        type_, text = get_args(hints[field.name])
        needed = field.default is dataclasses.MISSING
        if field.name in ("file", "config"):
            parser.add_argument(field.name, type=type_, metavar=field.name.upper(), help=text)
            continue
        extra: dict[str, Any] = {"required": True} if needed else {"default": field.default}
        if type_ is bool:
            extra["action"] = argparse.BooleanOptionalAction
        elif get_origin(type_) is Literal:
            extra["choices"] = get_args(type_)
        else:
            extra |= {"type": type_, "metavar": type_.__name__.upper()}
        parser.add_argument(flag(field.name), help=text if needed else f"{text} [{field.default}]", **extra)


if __name__ == "__main__":
    sys.exit(main())
