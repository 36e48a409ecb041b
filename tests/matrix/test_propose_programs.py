"""`init` reads every way of starting a program: launchers, modules, installed commands, and options that only sources tell."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from matrix.propose import CannotPropose, specification
from matrix.propose.declared import declared_options, literal_globals
from matrix.propose.words import launcher_flags, read
from matrix.spec import Spec, load_spec
from tests.matrix.command_line import TOOL, environment

PLACES = {"attempt_dir": "HERE", "attempt": "1", "port": "1", "cpu_list": "0", "gpu": ""}
PARSER = """
import argparse
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--batch-size", type=int, default=8, help="of a step")
parser.add_argument("--workers", type=int, default=2, help="of the loader")
parser.add_argument("--readers", type=int, default=1, help="where shards come from")
parser.parse_args()
"""


def proposed(words: list[str], folder: Path, path: str = "") -> Spec:
    env = {"PATH": path or f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (folder / "proposed.yaml").write_text(specification(words, cwd=folder, env=env))
    return load_spec(folder / "proposed.yaml")


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def launched(spec: Spec, **changed: object) -> list[str]:
    return spec.launch({**spec.known_bad, **changed}, max_steps=None, placeholders=PLACES).argv  # type: ignore[dict-item]


# ------------------------------------------------------------------ launchers
@pytest.mark.parametrize(
    ("start", "flag", "one_rank"),
    [
        ("torchrun --nproc_per_node=2 train.py", "--nproc_per_node=", "torchrun --nproc_per_node=1 train.py"),
        (
            "torchrun --standalone --nproc-per-node 2 train.py",
            "--nproc-per-node",
            "torchrun --nproc-per-node 1 --standalone train.py",
        ),
        ("accelerate launch --num_processes 2 train.py", "--num_processes", "accelerate launch --num_processes 1 train.py"),
        ("mpirun -np 2 python train.py", "-np", "mpirun -np 1 python train.py"),
        ("deepspeed --num_gpus 2 train.py", "--num_gpus", "deepspeed --num_gpus 1 train.py"),
    ],
)
def test_the_ranks_of_a_launcher_are_an_axis_whose_words_stay_with_the_launcher(
    tmp_path: Path, start: str, flag: str, one_rank: str
) -> None:
    program(tmp_path, "train.py", PARSER)
    program(tmp_path, f"bin/{start.split()[0]}", "#!/bin/sh\nexit 0\n")
    spec = proposed([*start.split(), "--batch-size", "4"], tmp_path)
    axis = next(axis for axis in spec.axes if axis.flag == flag)
    assert axis.values == (1, 2) and spec.known_bad[axis.name] == 2
    words = launched(spec, **{axis.name: 1})
    python = next((word for word in words if word.endswith("/python")), "python")
    assert words[: len(one_rank.split())] == one_rank.replace("python", python).split()
    assert spec.known_bad["batch-size"] == 4 and spec.known_bad["workers"] == 2


def test_the_ranks_that_a_launchers_configuration_file_names_are_an_axis_too(tmp_path: Path) -> None:
    program(tmp_path, "train.py", PARSER)
    program(tmp_path, "bin/accelerate", "#!/bin/sh\nexit 0\n")
    (tmp_path / "two.yaml").write_text("compute_environment: LOCAL_MACHINE\nnum_processes: 4\nmain_process_port: 29500\n")
    spec = proposed(["accelerate", "launch", "--config_file", "two.yaml", "train.py"], tmp_path)
    assert (spec.axis("num_processes").values, spec.known_bad["num_processes"]) == ((1, 2, 4), 4)
    words = launched(spec, num_processes=1)
    assert words[:4] == ["accelerate", "launch", "--num_processes", "1"] and words.index("two.yaml") < words.index("train.py")


def test_the_other_numbers_of_a_launcher_stay_and_are_named(tmp_path: Path) -> None:
    program(tmp_path, "train.py", PARSER)
    program(tmp_path, "bin/torchrun", "#!/bin/sh\nexit 0\n")
    spec = proposed(["torchrun", "--nnodes", "1", "--nproc_per_node", "2", "--master_port", "29501", "train.py"], tmp_path)
    assert "nnodes" not in spec.known_bad
    text = (tmp_path / "proposed.yaml").read_text()
    assert "# --nnodes 1" in text and "an option of the launcher" in text and "--master_port 29501" in text


def test_where_a_launchers_own_options_end_is_known() -> None:
    command = read(["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--mixed_precision", "fp16", "train.py", "--x", "3"])
    assert [(given.flag, given.value) for given in launcher_flags(command)] == [
        ("--num_processes", "2"),
        ("--mixed_precision", "fp16"),
    ]
    assert command.launcher_word == "launch" and command.arguments == ("--x", "3")
    assert read(["python", "train.py", "--np", "2"]).launcher_word == ""


# ------------------------------------------------------------------ modules and installed commands
@pytest.fixture
def environment_of_packages(tmp_path: Path) -> Path:
    """An interpreter's bin folder, whose site-packages hold a trainer that a command and a module start."""
    root = tmp_path / "env"
    packages = root / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    program(packages, "shoptrain/__init__.py", "")
    program(packages, "shoptrain/cli.py", f"{PARSER}\ndef main():\n    pass\n")
    program(packages, "shoptrain/run.py", PARSER)
    program(
        root / "bin",
        "python",
        f"""\
        #!/bin/sh
        export PYTHONPATH={packages}
        exec {sys.executable} "$@"
        """,
    )
    program(root / "bin", "shoptrain", f"#!{root / 'bin' / 'python'}\nimport sys\nfrom shoptrain.cli import main\nsys.exit(main())\n")
    return root / "bin"


@pytest.mark.parametrize("start", ["python -m shoptrain.run", "shoptrain"])
def test_an_installed_program_is_read_like_a_script(tmp_path: Path, environment_of_packages: Path, start: str) -> None:
    path = f"{environment_of_packages}:/usr/bin:/bin"
    spec = proposed([*start.split(), "--readers", "4"], tmp_path, path)
    assert (spec.known_bad["batch-size"], spec.known_bad["workers"], spec.known_bad["readers"]) == (8, 2, 4)


# ------------------------------------------------------------------ options that only the sources tell
def test_a_default_that_help_does_not_tell_is_read_from_the_source(tmp_path: Path) -> None:
    program(tmp_path, "train.py", PARSER.replace("formatter_class=argparse.ArgumentDefaultsHelpFormatter", ""))
    assert proposed(["python", "train.py"], tmp_path).axis("batch-size").values == (2, 4, 8)


def test_options_of_a_program_whose_help_cannot_be_had_here_are_read_from_its_source(tmp_path: Path) -> None:
    program(tmp_path, "train.py", f"import a_package_that_is_not_here\n{PARSER}")
    spec = proposed(["python", "train.py", "--batch-size", "4"], tmp_path)
    assert spec.known_bad["batch-size"] == 4 and spec.axis("workers").values == (0, 1, 2)


def test_where_subcommands_have_parsers_of_their_own_only_flags_in_the_command_count(tmp_path: Path) -> None:
    source = """
        import argparse, a_package_that_is_not_here
        sub = argparse.ArgumentParser().add_subparsers()
        sub.add_parser("a").add_argument("--workers", type=int, default=2)
        sub.add_parser("b").add_argument("--batch-size", type=int, default=2)
        """
    program(tmp_path, "train.py", source)
    spec = proposed(["python", "train.py", "b", "--batch-size", "4"], tmp_path)
    assert "workers" not in spec.known_bad and spec.known_bad["batch-size"] == 4


def test_declarations_of_argparse_and_click_are_understood() -> None:
    found = declared_options(
        [
            """
parser.add_argument("-b", "--bs", type=int, default=4 * 8, help="size")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--start", choices=["fork", "spawn"], default="fork")
parser.add_argument("--out", default=os.path.join("a", "b"))
parser.add_argument("--files", nargs="+")
parser.add_argument("data")
@click.option("--workers", default=2)
@click.option("--cache/--no-cache", default=True)
def main(): ...
"""
        ]
    )
    assert [(option.flags, option.takes, option.default, option.off, option.choices) for option in found] == [
        (("-b", "--bs"), "one", "32", (), ()),
        (("--amp",), "nothing", None, (), ()),
        (("--shuffle",), "nothing", "True", ("--no-shuffle",), ()),
        (("--start",), "one", "fork", (), ("fork", "spawn")),
        (("--out",), "one", None, (), ()),
        (("--files",), "many", None, (), ()),
        (("--workers",), "one", "2", (), ()),
        (("--cache",), "nothing", "True", ("--no-cache",), ()),
    ]
    assert declared_options(["not python (", "\0"]) == []


def test_globals_that_the_command_line_sets_are_options_with_the_values_of_a_config_script(tmp_path: Path) -> None:
    program(tmp_path, "train.py", "batch_size = 12\nnum_workers = 0\nout_dir = 'out'\nexec(open('read_args.py').read())\n")
    program(
        tmp_path,
        "read_args.py",
        """
        import sys
        for word in sys.argv[1:]:
            if '=' in word:
                key, value = word[2:].split('=')
                globals()[key] = eval(value)
        """,
    )
    program(tmp_path, "config/small.py", "batch_size = 4 * 8\nout_dir = 'out-small'\n")
    spec = proposed(["python", "train.py", "config/small.py", "--num_workers=4"], tmp_path)
    assert (spec.axis("batch_size").values, spec.axis("batch_size").flag) == ((8, 16, 32), "--batch_size=")
    assert spec.axis("num_workers").values == (0, 2, 4)
    assert "--out_dir={attempt_dir}/out-small" in spec.run.command
    assert literal_globals("a = 2 * 3\nb = [1]\nc, d = 1, 2\ne = -1.5\n") == {"a": 6, "e": -1.5}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", "batch_size: 16\nlr: 0.1\n"),
        ("job.json", '{"batch_size": 16, "lr": 0.1}'),
        pytest.param(
            "job.toml",
            "batch_size = 16\nlr = 0.1\n",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML"),
        ),
    ],
)
def test_configuration_files_in_three_forms_give_the_values_that_flags_can_change(tmp_path: Path, name: str, text: str) -> None:
    program(tmp_path, "train.py", PARSER.replace("parser.parse_args()", 'parser.add_argument("--config"); parser.parse_args()'))
    (tmp_path / name).write_text(text)
    spec = proposed(["python", "train.py", "--config", name], tmp_path)
    assert spec.axis("batch-size").values == (4, 8, 16)


# ------------------------------------------------------------------ what cannot run, or says nothing
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("torchrun", "torchrun starts nothing: name the script"),
        ("torchrun --standalone", "torchrun starts nothing"),
        ("accelerate launch", "accelerate starts nothing"),
        ("python", "python starts nothing"),
        ("python -m", "python starts nothing"),
        ("python -m no_such_package.train --bs 4", "there is no module no_such_package.train"),
        ("python -m json.toool", "there is no module json.toool"),
        ("torchrun --nproc_per_node=2 nosuch.py", "nosuch.py"),
    ],
)
def test_a_command_that_cannot_run_is_refused_with_what_to_do(tmp_path: Path, words: str, said: str) -> None:
    for name in ("torchrun", "accelerate"):
        program(tmp_path, f"bin/{name}", "#!/bin/sh\nexit 0\n")
    with pytest.raises(CannotPropose, match=said):
        proposed(words.split(), tmp_path)


@pytest.mark.parametrize("module", ["json.tool", "pkg.train"])
def test_a_module_of_the_interpreter_or_of_the_folder_is_found(tmp_path: Path, module: str) -> None:
    program(tmp_path, "pkg/train.py", "print('step 1')\n")
    assert proposed(["python", "-m", module], tmp_path).name == module.partition(".")[2]


def test_why_help_cannot_be_had_and_what_the_script_sets_itself_is_said(tmp_path: Path) -> None:
    program(tmp_path, "train.py", f"import a_package_that_is_not_here\n{PARSER}")
    done = subprocess.run([*TOOL, "init", "--", "python", "train.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    first = done.stdout.splitlines()[0]
    assert "--help could not be had (ModuleNotFoundError: No module named 'a_package_that_is_not_here')" in first
    assert "its sources declare 3 options" in first
    program(tmp_path, "plain.py", "batch_size = 2 * 8\nname = 'x'\nnum_workers = 3\n")
    text = specification(["python", "plain.py"], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert "# set in the source: batch_size = 16, num_workers = 3" in text


def test_of_many_threads_the_number_of_processors_lies_between(tmp_path: Path) -> None:
    program(tmp_path, "train.py", "print('step 1')\n")
    spec = proposed(["OMP_NUM_THREADS=3000", "python", "train.py"], tmp_path)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert spec.axis("threads").values == tuple(sorted({1, cpus, 3000})) and spec.known_bad["threads"] == 3000
