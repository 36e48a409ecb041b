"""The command line.  Importing it, and `--help`, load neither torch nor numpy."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trainer import InputError, TrainingError
from trainer.config import SynthConfig, TrainConfig, check, flag


def main(argv: list[str] | None = None) -> int:
    """Run one command.  Exit status: 0 done, 1 the run could not go on, 2 bad input."""
    command, config = parse(argv)
    try:
        check(config)
        if isinstance(config, SynthConfig):
            from trainer.synth import synth

            synth(config)
        else:
            from trainer.train import train

            train(config)
    except InputError as error:
        print(f"trainer {command}: {error}", file=sys.stderr)
        return 2
    except TrainingError as error:
        print(f"trainer {command}: {error}", file=sys.stderr)
        return 1
    return 0


def parse(argv: list[str] | None) -> tuple[str, SynthConfig | TrainConfig]:
    parser = argparse.ArgumentParser(prog="python -m trainer", description="A two-tower retriever trainer.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, kind, text in [("train", TrainConfig, "train a query tower"), ("synth", SynthConfig, "make clustered pairs and a bank")]:
        add_options(commands.add_parser(name, help=text, description=kind.__doc__), kind)
    values = vars(parser.parse_args(argv))
    command: str = values.pop("command")
    return command, (TrainConfig if command == "train" else SynthConfig)(**values)


def add_options(parser: argparse.ArgumentParser, kind: Any) -> None:
    """One option for each field; its type and its help are the two parts of the field's annotation."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        type_, text = get_args(hints[field.name])
        needed = field.default is dataclasses.MISSING
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
