"""Options in the --help of every parser that training scripts are written with."""

from __future__ import annotations

import argparse
import textwrap

import click
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from matrix.propose.roles import role_of
from matrix.propose.usage import Option, options, subcommands


def found(text: str) -> dict[str, Option]:
    return {option.flag: option for option in options(textwrap.dedent(text))}


def test_argparse() -> None:
    parser = argparse.ArgumentParser(prog="x", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("-b", "--batch-size", type=int, default=64, metavar="N", help="of a step")
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True, help="the data")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where")
    parser.add_argument("--no-cuda", action="store_true", help="disables CUDA")
    parser.add_argument("--lrs", nargs="+", type=float, help="learning rates")
    parser.add_argument("--fp16", nargs="?", const=True, default=False, help="half")
    parser.add_argument("--a-flag-with-a-name-so-long-that-its-help-begins-a-line-below", type=int, default=3, help="x")
    read = found(parser.format_help())
    assert (read["--batch-size"].flags, read["--batch-size"].takes, read["--batch-size"].default) == (("-b", "--batch-size"), "one", "64")
    assert (read["--shuffle"].off, read["--shuffle"].takes, read["--shuffle"].default) == (("--no-shuffle",), "nothing", "True")
    assert (read["--device"].choices, read["--device"].default) == (("cpu", "cuda"), "cpu")
    assert read["--no-cuda"].takes == "nothing" and read["--lrs"].takes == "many" and read["--fp16"].takes == "perhaps"
    assert read["--a-flag-with-a-name-so-long-that-its-help-begins-a-line-below"].default == "3"


def test_click() -> None:
    @click.command()
    @click.option("-b", "--batch-size", default=32, show_default=True, help="Batch size.")
    @click.option("--shuffle/--no-shuffle", default=True)
    @click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
    @click.option("--workers", type=click.IntRange(min=0), default=4, show_default=True)
    @click.option("--amp", is_flag=True, help="Mixed precision.")
    def main(**_: object) -> None: ...

    read = found(CliRunner().invoke(main, ["--help"]).output)
    assert (read["--batch-size"].default, read["--shuffle"].off, read["--device"].choices) == ("32", ("--no-shuffle",), ("cpu", "cuda"))
    assert (read["--workers"].takes, read["--workers"].default, read["--amp"].takes) == ("one", "4", "nothing")


def test_typer_with_its_boxes() -> None:
    read = found("""
        ╭─ Options ───────────────────────────────────────────────────────────────────╮
        │ *  --data                        <str>   [required]                         │
        │    --bs                          <int>   batch size [default: 32]           │
        │    --shuffle     --no-shuffle    <bool>  [default: shuffle]                 │
        │    --workers     -j              INTEGER  [default: 4]                      │
        ╰─────────────────────────────────────────────────────────────────────────────╯
        """)
    assert {flag: (option.takes, option.default) for flag, option in read.items()} == {
        "--data": ("one", None),
        "--bs": ("one", "32"),
        "--shuffle": ("nothing", "shuffle"),
        "--workers": ("one", "4"),
    }


def test_the_dataclasses_of_hugging_face_and_the_command_line_of_lightning() -> None:
    read = found("""
        options:
          -h, --help            show this help message and exit
          --per_device_train_batch_size PER_DEVICE_TRAIN_BATCH_SIZE, --per-device-train-batch-size PER_DEVICE_TRAIN_BATCH_SIZE
                                The batch size per device for training. (default: 8)
          --max_steps MAX_STEPS, --max-steps MAX_STEPS
                                Overrides `num_train_epochs`. If set to a positive number, the total number of training steps.
                                (e.g. a streaming dataset). (default: -1)
          --fp16 [FP16]         Enable float16 (FP16) mixed precision training. (default: False)
          --no_dataloader_pin_memory, --no-dataloader-pin-memory
                                Whether to pin memory (default: False)
          --trainer.devices DEVICES, --trainer.devices+ DEVICES
                                The devices to use. Default: ``"auto"``. (type: Union[list[int], str, int], default: auto)
          --data.num_workers NUM_WORKERS
                                (type: int, default: 2)
          --data.shuffle {true,false}
                                (type: bool, default: True)
        """)
    values = {flag: (option.takes, option.default) for flag, option in read.items()}
    assert values["--per_device_train_batch_size"] == ("one", "8") and values["--max_steps"] == ("one", "-1")
    assert values["--fp16"] == ("perhaps", "False") and values["--trainer.devices"] == ("one", "auto")
    assert values["--data.num_workers"] == ("one", "2") and read["--data.shuffle"].choices == ("true", "false")


def test_absl_and_fire() -> None:
    read = found("""
        train.py:
          --batch_size: Batch size
            (default: '32')
            (an integer)
          --device: <cpu|gpu>: which
            (default: 'cpu')
          --[no]shuffle: x
            (default: 'true')

        FLAGS
            -w, --workers=WORKERS
                Default: 4
        """)
    assert (read["--batch_size"].default, read["--device"].choices, read["--workers"].default) == ("32", ("cpu", "gpu"), "4")
    assert (read["--shuffle"].off, read["--shuffle"].takes) == (("--noshuffle",), "nothing")


def test_the_names_of_subcommands_are_read() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    commands.add_parser("fit")
    commands.add_parser("validate")
    assert subcommands(parser.format_help()) == ("fit", "validate")


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["--x", "-", "  ", "[", "]", "{a,b}", "=", ":", "│", "\n", "(default: ", "N", "..."])).map("".join)
)
def test_whatever_a_program_prints_it_is_read_without_an_error(text: str) -> None:
    for option in options(text):
        assert option.flags and all(flag.startswith("-") for flag in option.flags)
    subcommands(text)


def test_roles_are_told_by_names_and_evaluation_is_none_of_them() -> None:
    names = {
        "--bs": "batch", "--per_device_train_batch_size": "batch", "data.init_args.batch_size=": "batch", "BATCH_SIZE": "batch",
        "--gradient-accumulation-steps": "accum", "--trainer.accumulate_grad_batches": "accum", "--dataloader_num_workers": "workers",
        "-j": None, "--num_threads": "threads", "--trainer.accelerator": "device", "--no-cuda": "no_device", "--max_steps": "steps",
        "--trainer.max_steps": "steps", "--num_train_epochs": "epochs", "--output_dir": "output", "--save-dir": "output",
        "--config": "config",
        "--fp16": "half", "--pin_memory": "switch", "--seq-len": "amount", "--start-method": "start", "--eval_steps": None,
        "--logging_steps": None, "--per_device_eval_batch_size": None, "--warmup_steps": None, "--steps_per_epoch": None, "--model": None,
        "--lr": None, "--data_dir": None, "--batchSize": "batch",
    }  # fmt: skip
    assert {name: role_of(name) for name in names} == names
