"""`init`: numbers of a command are axes, or are named with the reason why they stay."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from matrix.propose import specification
from matrix.propose.amounts import number_levels, why_fixed
from matrix.propose.settings import Setting
from matrix.propose.usage import Option
from matrix.propose.words import Given
from matrix.spec import load_spec
from matrix.spec.override import override


def given(flag: str, value: str, help_text: str = "") -> Setting:
    words = Given(flag=flag, value=value, start=2, end=4)
    return Setting(
        name=flag.lstrip("-"), role=None, value=value, flag=flag, option=Option(flags=(flag,), text=help_text), given=words
    )


@pytest.mark.parametrize(
    ("flag", "value", "help_text", "values"),
    [
        ("--readers", "4", "", [0, 2, 4]),
        ("--prefetch", "4", "batches ahead of the step", [0, 2, 4]),
        ("--mining", "1", "", [0, 1]),
        ("--blocks", "6", "of the sampler", [1, 3, 6]),
        ("--negatives", "5000", "", [2500, 5000]),
        ("--x", "3", "how many processes read", [0, 1, 3]),
    ],
)
def test_a_whole_number_is_varied_by_its_size_and_what_help_says(flag: str, value: str, help_text: str, values: list[int]) -> None:
    levels = number_levels(given(flag, value, help_text))
    assert levels is not None and levels.values == values and levels.weight > 0


def test_what_decides_how_a_program_runs_comes_before_the_shape_of_a_model() -> None:
    order = [given("--readers", "4"), given("--blocks", "4"), given("--n_layer", "4"), given("--log_interval", "4")]
    weights = [levels.weight for setting in order if (levels := number_levels(setting))]
    assert weights == sorted(weights, reverse=True) and len(set(weights)) == 4 and weights[-1] < 0


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("--lr", "1e-4", "real numbers"),
        ("--drop", "0.5", "real numbers"),
        ("--port", "29500", "names something"),
        ("--local_rank", "0", "names something"),
        ("--limit", "-1", "negative"),
        ("--lr_decay_iters", "5000", "schedule"),
    ],
)
def test_a_number_that_is_no_amount_stays_with_the_reason(flag: str, value: str, reason: str) -> None:
    assert reason in (why_fixed(given(flag, value)) or "") and number_levels(given(flag, value)) is None


def test_of_defaults_only_those_count_whose_help_speaks_of_processes() -> None:
    def default(text: str, value: str = "4") -> Setting:
        return Setting(name="x", role=None, value=value, flag="--x", option=Option(flags=("--x",), text=text), is_default=True)

    assert number_levels(default("processes that decode")) is not None
    assert number_levels(default("layers of the model")) is None and number_levels(default("worker ids", "4000")) is None


def test_every_number_of_the_command_is_an_axis_or_a_line_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step 1')\n")
    flags = ["--readers", "4", "--mining=1", "--lr", "0.1", "--port", "8080", "--epochs", "3", "--seed", "7"]
    many = [word for at in range(12) for word in (f"--knob{at}", "6")]
    text = specification(
        ["python", "train.py", *flags, *many], cwd=tmp_path, env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )
    (tmp_path / "spec.yaml").write_text(text)
    spec = load_spec(tmp_path / "spec.yaml")
    assert {"readers", "mining"} <= set(spec.known_bad) and len(spec.axes) <= 7
    stays = [line for line in text.splitlines() if line.startswith("  # ")]
    for flag in ("--lr 0.1", "--port 8080", "--epochs 3", "seed: ", "knob11: "):
        assert any(flag in line for line in stays), flag
    assert "--epochs" in spec.run.command and "--lr" in spec.run.command


def test_what_waits_in_the_file_of_init_can_be_added_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step 1')\n")
    many = [word for at in range(9) for word in (f"--knob{at}", "6")]
    text = specification(
        ["python", "train.py", "--seed", "7", *many], cwd=tmp_path, env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )
    (tmp_path / "spec.yaml").write_text(text)
    spec = load_spec(tmp_path / "spec.yaml")
    waiting = next(f"knob{at}" for at in range(9) if f"knob{at}" not in spec.known_bad)
    changed = override(spec, search={}, axes={"seed": ["8"], waiting: ["2"]})
    assert (changed.known_bad["seed"], changed.known_bad[waiting]) == (7, 6)
    assert changed.axis(waiting).values == (2, 6)
