"""`init`: what is proposed for a command is a specification that runs as it is, and its known-bad cell is the command."""

from __future__ import annotations

import dataclasses
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.__main__ import program_problems
from matrix.preview import preview
from matrix.propose import Facts, specification
from matrix.propose.draft import SHELL_SIGNS
from matrix.propose.masks import masked
from matrix.propose.words import read
from matrix.records import Observation
from matrix.spec import Spec, load_spec
from tests.matrix.command_line import matrix

PLACES = {"attempt_dir": "HERE", "attempt": "1", "port": "1", "cpu_list": "0", "gpu": ""}
PARSER = """
import argparse, sys
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--bs", type=int, default=32, help="of a step")
parser.add_argument("--accum", type=int, default=1, help="micro-batches")
parser.add_argument("-j", "--workers", type=int, default=4, metavar="N", help="of the loader")
parser.add_argument("--mining", choices=["off", "sync", "thread"], default="off", help="when")
parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True, help="the data")
parser.add_argument("--amp", action="store_true", help="mixed precision")
parser.add_argument("--precision", default="32-true", help="of numbers")
parser.add_argument("--max-steps", type=int, default=1000, help="when to stop")
parser.add_argument("--out", default="runs/x", help="folder")
parser.add_argument("--seed", type=int, default=0, help="of all")
args = parser.parse_args()
open("started", "w").close()
print("step 1/1")
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """A program in the folder from which the job is started."""

    def write(text: str = PARSER, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


def proposed(argv: list[str], folder: Path, env: dict[str, str] | None = None, **options: Any) -> Spec:
    """The specification, read back from a file in that folder."""
    path = folder / "proposed.yaml"
    path.write_text(specification(argv, cwd=folder, env=env if env is not None else {"PATH": str(Path(sys.executable).parent)}, **options))
    return load_spec(path)


def known_bad(spec: Spec) -> list[str]:
    return spec.launch(spec.known_bad, max_steps=None, placeholders=PLACES).argv


# ------------------------------------------------------------------ every command
FLAGS = st.sampled_from(
    [
        "--bs", "--batch-size", "--batch_size", "-b", "--data.batch_size", "--workers", "--num_workers", "--accum", "--fp16",
        "--no-shuffle", "--device", "--seed", "--lr",
        "--set", "--threads", "--precision", "--prefetch", "--model", "--deepspeed", "--no-cuda",
        "--start-method", "--pin_memory", "--x.", "--Größe", "-x",
    ]
)  # fmt: skip
VALUES = st.one_of(
    st.integers(-3, 5000).map(str),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12),
    st.sampled_from(
        [
            "", " ", "{}", "{port}", "{a: 1}", "}{", '{"zero": {"stage": 3}}', "yes", "off", "null", "~", "1e-4", "007", "0x10", "1:30",
            "3.10",
            "a b", "True", "false", "-1", "é\u2028x\ufeff", "#x", "a: b", "- b", "*a", "&b", "!c", "'", '"', "\\", "%TAG", "cpu", "cuda:0",
            "bf16-mixed",
        ]
    ),
)  # fmt: skip
STARTS = st.sampled_from(
    [
        ["python", "train.py"], ["python", "-u", "-X", "dev", "train.py"], ["python", "-m", "pkg.train"],
        ["python", "-m", "pkg.train", "fit"],
        ["sh", "job.sh"], ["./run"], ["env", "A=1", "python", "train.py"], ["sh", "-c", "python train.py"],
        ["python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py"],
        ["python", "tool.py", "--", "python", "train.py"], ["A=b", "OMP_NUM_THREADS=3", "python", "train.py"],
    ]
)  # fmt: skip
PART = st.one_of(
    st.tuples(FLAGS, VALUES).map(list), st.tuples(FLAGS, VALUES).map(lambda both: ["=".join(both)]), FLAGS.map(lambda flag: [flag]),
    st.tuples(st.sampled_from(["data.batch_size", "+trainer.num_workers", "optim.lr"]), VALUES).map(lambda both: ["=".join(both)]),
    VALUES.map(lambda word: [word]), st.just(["--"]),
)  # fmt: skip


def check_every_command(folder: Path, start: list[str], parts: list[list[str]]) -> None:
    argv = [*start, *(word for part in parts for word in part if word not in SHELL_SIGNS)]
    spec = proposed(argv, folder, {"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin"}, run_help=False)
    assert not list(program_problems(spec))
    preview(spec, None)
    given_words = [word for word in argv if word not in ("A=b", "OMP_NUM_THREADS=3")] if argv[0] == "A=b" else argv
    launched = known_bad(spec)
    assert _pieces(launched) == _pieces(given_words)
    assert spec.run.env.get("A") == ("b" if argv[0] == "A=b" else None)


def _pieces(words: list[str]) -> list[str]:
    """What is said, whatever the order; placeholders that a person wrote are filled in."""
    return sorted(word.replace("{port}", "1") if re.fullmatch(r"[^{}]*\{port\}[^{}]*", word) else word for word in words[1:])


def prepared(folder: Path) -> Path:
    for name in ("train.py", "tool.py", "pkg/train.py", "pkg/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("print('step 1')\n")
    for name in ("job.sh", "run"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@given(start=STARTS, parts=st.lists(PART, max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whatever_the_command_the_specification_is_valid_and_its_known_bad_cell_is_the_command(
    tmp_path: Path, start: list[str], parts: list[list[str]]
) -> None:
    check_every_command(prepared(tmp_path), start, parts)


@pytest.mark.nightly
@given(start=STARTS, parts=st.lists(PART, max_size=10))
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_of_thousands_of_commands_each_gives_a_valid_specification(tmp_path: Path, start: list[str], parts: list[list[str]]) -> None:
    check_every_command(prepared(tmp_path), start, parts)


# ------------------------------------------------------------------ what is recognised
def test_flags_become_axes_with_smaller_values_and_defaults_count_too(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    flags = ["--bs", "64", "--accum", "16", "--mining", "sync", "--amp", "--precision", "16-mixed", "--out", "runs/one"]
    spec = proposed(["python", "train.py", *flags], tmp_path)
    axes = {axis.name: (axis.values, spec.known_bad[axis.name]) for axis in spec.axes}
    threads = axes.pop("threads")
    assert threads[0][0] == 1 and threads[1] == threads[0][-1]
    assert axes == {
        "workers": ((0, 2, 4), 4),
        "bs": ((16, 32, 64), 64),
        "accum": ((1, 4, 16), 16),
        "precision": (("16-mixed", "32"), "16-mixed"),
        "amp": (("amp", "without"), "amp"),
        "mining": (("sync", "off"), "sync"),
    }
    assert spec.run.length is not None and spec.run.length.flag == "--max-steps"
    launched = known_bad(spec)
    assert launched[launched.index("--out") + 1] == "HERE/one"
    text = (tmp_path / "proposed.yaml").read_text()
    assert "# seed: " in text and "# shuffle: {choices: {shuffle: " in text
    assert not (tmp_path / "started").exists()


def test_a_flag_whose_value_nobody_tells_is_named_with_what_to_do(tmp_path: Path, script: Callable[..., Path]) -> None:
    parser = PARSER.replace("formatter_class=argparse.ArgumentDefaultsHelpFormatter", "")
    script(re.sub(r'("--(?:bs|accum)".*)default=\d+', r"\1default=int(sys.argv[0] == 'x')", parser))
    command = ["python", "train.py", "--workers", "4"]
    env = {"PATH": str(Path(sys.executable).parent)}
    text = specification(command, cwd=tmp_path, env=env)
    assert "# --bs: its value is not known; add it to the command to vary it" in text and "# --accum: its value" in text
    assert "--workers: its value" not in text and "bs" not in proposed(command, tmp_path).known_bad
    assert "its value" not in specification([*command, "--bs", "8", "--accum", "2"], cwd=tmp_path, env=env)


def test_a_script_that_would_ignore_help_is_never_started(tmp_path: Path, script: Callable[..., Path]) -> None:
    script(
        """
        import argparse
        args = argparse.Namespace(bs=32)  # as notebooks do
        open("started", "w").close()
        """
    )
    spec = proposed(["python", "train.py"], tmp_path)
    assert [axis.name for axis in spec.axes] == ["threads"]
    assert not (tmp_path / "started").exists()
    assert "takes no flags that were recognised" in (tmp_path / "proposed.yaml").read_text()


def test_a_program_that_never_answers_help_is_ended_with_its_children(
    tmp_path: Path, script: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    script(
        """
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open("pids", "w").write(str(child.pid))
        time.sleep(600)
        parser.parse_args()
        """
    )
    monkeypatch.setattr("matrix.propose.ask.HELP_S", 5.0)
    spec = proposed(["python", "train.py", "--bs", "8"], tmp_path)
    assert spec.axis("bs").values == (2, 4, 8)
    pids = tmp_path / "pids"
    assert not pids.exists() or not _runs(int(pids.read_text()))


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


def test_help_is_asked_of_the_subcommand_and_of_the_script_behind_a_launcher(tmp_path: Path, script: Callable[..., Path]) -> None:
    script(
        """
        import argparse
        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers()
        fit = commands.add_parser("fit")
        fit.add_argument("--bs", type=int, help="size (default: 12)")
        parser.add_argument("--verbose", action="store_true")
        parser.parse_args()
        """
    )
    env = {"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin"}
    for argv in (
        ["python", "train.py", "fit"],
        ["python", "train.py", "--verbose", "fit"],
        ["python", "-m", "torch.distributed.run", "train.py", "fit"],
    ):
        assert proposed(argv, tmp_path, env).axis("bs").values == (3, 6, 12), argv


def test_where_words_in_front_of_help_could_start_the_job_it_is_asked_alone(tmp_path: Path, script: Callable[..., Path]) -> None:
    script(
        """
        import sys
        open("asked", "w").write(" ".join(sys.argv[1:]))
        print("FLAGS\\n    -b, --bs=BS\\n        Default: 32\\n    --[no]shuffle: x\\n      (default: 'true')")
        # fire.Fire(train) would call train("data") first
        """
    )
    spec = proposed(["python", "train.py", "data", "--noshuffle"], tmp_path)
    assert (tmp_path / "asked").read_text() == "--help"
    assert spec.axis("bs").values == (8, 16, 32)
    assert spec.axis("shuffle").values == ("noshuffle", "shuffle") and spec.known_bad["shuffle"] == "noshuffle"


def test_a_configuration_file_gives_values_where_flags_override_it_and_advice_where_not(
    tmp_path: Path, script: Callable[..., Path]
) -> None:
    script(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--config")
        parser.add_argument("--data.batch_size", type=int, help="(type: int, default: 1)")
        parser.parse_args()
        """
    )
    (tmp_path / "fit.yaml").write_text("data:\n  class_path: Made\n  init_args: {batch_size: 24, num_workers: 8}\n")
    spec = proposed(["python", "train.py", "--config", "fit.yaml"], tmp_path)
    assert spec.axis("data.batch_size").values == (6, 12, 24) and spec.known_bad["data.batch_size"] == 24
    text = (tmp_path / "proposed.yaml").read_text()
    assert "fit.yaml also sets data.init_args.num_workers: 8, for which no flag was found" in text
    advice = next(line for line in text.splitlines() if line.startswith("  # config: "))
    moved = text.replace(advice, advice.replace("  # ", "  ").partition("; take")[0]).replace("--config, fit.yaml]\n", "]\n", 1)
    (tmp_path / "proposed.yaml").write_text(moved)
    assert load_spec(tmp_path / "proposed.yaml").axis("config").values == ("as_it_is", "other")


def test_environment_variables_that_the_sources_read_become_axes(tmp_path: Path, script: Callable[..., Path]) -> None:
    script('import os\nbatch = int(os.environ.get("BATCH_SIZE", "32"))\nworkers = int(os.environ["NUM_WORKERS"])\n')
    spec = proposed(["NUM_WORKERS=8", "python", "train.py"], tmp_path)
    assert spec.axis("batch_size").values == (8, 16, 32) and spec.axis("batch_size").env == ("BATCH_SIZE",)
    assert spec.axis("num_workers").values == (0, 4, 8) and spec.known_bad["num_workers"] == 8


def test_a_variable_that_nothing_sets_is_named_with_where_it_goes(tmp_path: Path, script: Callable[..., Path]) -> None:
    read = 'os.environ["BATCH_SIZE"], os.getenv("NUM_WORKERS"), os.environ.setdefault("GRAD_ACCUM_STEPS", "4")'
    script(f'import os\nos.environ["WORKERS"] = "3"\nprint({read})\n')
    spec = proposed(["python", "train.py"], tmp_path)
    assert spec.axis("grad_accum_steps").env == ("GRAD_ACCUM_STEPS",) and spec.known_bad["grad_accum_steps"] == 4
    text = (tmp_path / "proposed.yaml").read_text()
    for name in ("BATCH_SIZE", "NUM_WORKERS"):
        assert f"# {name} ({name}=N in front): its value is not known; add it to the command to vary it" in text
    assert "# WORKERS" not in text  # the program sets that one itself
    assert proposed(["BATCH_SIZE=8", "python", "train.py"], tmp_path).axis("batch_size").values == (2, 4, 8)


def test_what_this_shell_sets_goes_into_the_specification_but_no_secret(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    shell = {"MKL_THREADING_LAYER": "GNU", "HF_TOKEN": "hf_x", "PYTORCH_API_KEY": "x", "TOKENIZERS_PARALLELISM": "false", "HOME": "/root"}
    spec = proposed(["python", "train.py"], tmp_path, {"PATH": str(Path(sys.executable).parent), "OMP_NUM_THREADS": "6", **shell})
    assert spec.run.env == {"MKL_THREADING_LAYER": "GNU", "TOKENIZERS_PARALLELISM": "false"}
    assert spec.axis("threads").values == (1, 6)


def test_a_workaround_that_the_shell_sets_is_an_axis_that_hides(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    spec = proposed(["python", "train.py"], tmp_path, {"PATH": str(Path(sys.executable).parent), "KMP_DUPLICATE_LIB_OK": "TRUE"})
    assert spec.known_bad["omp"] == "duplicate_ok" and spec.axis("omp").hides == ("duplicate_ok",)
    assert spec.axis("omp").variables("plain") == {"KMP_DUPLICATE_LIB_OK": "FALSE"}


def test_another_python_than_the_tools_is_named_by_its_path(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    spec = proposed(["python", "train.py"], tmp_path, {"PATH": str(other.parent)}, run_help=False)
    assert spec.run.command[0] == str(other)


def test_words_after_a_double_dash_cannot_be_followed_by_flags(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    spec = proposed(["python", "train.py", "--bs", "8", "--", "file"], tmp_path)
    assert [axis.name for axis in spec.axes] == ["threads"] and spec.run.length is None


def test_what_a_watched_run_showed_sets_limits_length_and_what_was_observed(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    facts = Facts(
        source="old.log", died=True, signal="SIGABRT", last_step=117, seconds=1000.0, startup_s=200.0, memory_limit_bytes=2 << 30,
        openmp_runtimes=("/a/libiomp5.so", "/b/libomp.so"), forked_with_threads=True,
        words=("OMP: Error #15: initializing",), progress=r"round (?P<step>\d+)",
    )  # fmt: skip
    spec = proposed(["python", "train.py", "--max-steps", "90000"], tmp_path, facts=facts)
    assert known_bad(spec)[known_bad(spec).index("--max-steps") + 1] == "360"
    assert (spec.limits.memory_bytes, spec.limits.wall_s, spec.limits.startup_s) == (2 << 30, 3000.0, 1020.0)
    assert spec.axes[0].name == "workers" and spec.axes[1].name == "threads"
    assert "omp" in spec.matrix and spec.run.progress == facts.progress
    (entry,) = spec.observed
    assert (entry.cell, entry.died, entry.step, entry.log) == (spec.known_bad, True, 117, "old.log")


def test_facts_of_an_observation_say_what_was_seen(observe: Callable[..., Observation]) -> None:
    from matrix.propose import of_observation

    seen = observe(
        "import os, signal\nprint('step 3/10', flush=True)\nprint('step 4/10', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)"
    )
    facts = of_observation(seen, source="x.log")
    shown = (facts.died, facts.signal, facts.last_step, facts.total_steps, facts.source)
    assert shown == (True, "SIGSEGV", 4, 10, "x.log")


def test_what_torch_refuses_without_worker_processes_is_no_cell(tmp_path: Path, script: Callable[..., Path]) -> None:
    script(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--num-workers", type=int, help="(default: 0)")
        parser.add_argument("--start-method", help="of the workers")
        parser.add_argument("--prefetch-factor", type=int)
        parser.parse_args()
        """
    )
    spec = proposed(["python", "train.py", "--num-workers", "4"], tmp_path)
    assert spec.exclude == [{"num-workers": 0, "start-method": "spawn"}] and spec.known_bad["start-method"] == "as_it_is"
    spec = proposed(["python", "train.py", "--num-workers", "4", "--prefetch-factor", "8"], tmp_path)
    assert spec.axis("num-workers").values == (1, 2, 4)
    spec = proposed(["python", "train.py"], tmp_path)
    assert [axis.name for axis in spec.axes] == ["threads"]


# ------------------------------------------------------------------ which program
@pytest.mark.parametrize(
    ("command", "kind", "target", "arguments"),
    [
        ("python train.py --bs 2", "script", "train.py", "--bs 2"),
        ("python -u -W ignore train.py a", "script", "train.py", "a"),
        ("python3.11 -m a.train x", "module", "a.train", "x"),
        ("python -c code x", "code", "python", "x"),
        ("torchrun --nproc_per_node 2 --rdzv_backend c10d a/train.py --bs 2", "script", "a/train.py", "--bs 2"),
        ("torchrun -m a.train --bs 2", "module", "a.train", "--bs 2"),
        ("accelerate launch --config_file x.yaml train.py --bs 2", "script", "train.py", "--bs 2"),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "script", "train.py", "--deepspeed ds.json"),
        ("python -m torch.distributed.launch --nproc_per_node=2 train.py x", "script", "train.py", "x"),
        ("srun -n 2 nice -n 5 python train.py x", "script", "train.py", "x"),
        ("tool faults --when x -- python -m trainer train --bs 2", "module", "trainer", "train --bs 2"),
        ("bash -e job.sh x", "shell", "job.sh", "x"),
        ("bash -ec text", "code", "bash", ""),
        ("./train --bs 2", "program", "./train", "--bs 2"),
    ],
)
def test_the_program_is_found_behind_interpreters_launchers_and_wrappers(command: str, kind: str, target: str, arguments: str) -> None:
    found = read(command.split())
    assert (found.kind, found.target, list(found.arguments)) == (kind, target, arguments.split())


# ------------------------------------------------------------------ the command line
def test_init_writes_a_specification_that_plan_takes_and_says_what_it_recognised(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    done = matrix("init", "--", "python", "train.py", "--bs", "8", "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "its --help lists 11 options" in done.stdout and "workers" in done.stdout
    assert "python -m matrix run train.yaml" in done.stdout
    planned = matrix("plan", "train.yaml", cwd=tmp_path)
    assert planned.returncode == 0 and "known bad: workers=2" in planned.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["init"], "no command: give what you launch after --"),
        (["init", "--", "no-such-program", "x"], "'no-such-program' was not found on PATH"),
        (["init", "--", "./train.py"], "is not executable; write: python ./train.py"),
        (["init", "--", "python", "gone.py"], "there is no "),
        (["init", "--", "python train.py | tee x"], "the command has the word '|', and no shell will see it"),
        (["init", "--", "python 'train.py"], "cannot be split into words"),
        (["init", "--from-log", "gone.log", "--", "python", "train.py"], "the log gone.log cannot be read: No such file"),
        (["init", "--from-log", "empty.log", "--", "python", "train.py"], "the log empty.log is empty"),
        (["init", "-o", "there.yaml", "--", "python", "train.py"], "there.yaml is there already; give another file with -o, or --force"),
        (["init", "-o", "no/such/x.yaml", "--", "python", "train.py"], "there is no such folder"),
        (["init", "--bogus", "python", "train.py"], "there is no option --bogus; the command comes after --"),
        (["init", "--from-log", ".", "--", "python", "train.py"], "Is a directory; give a file that you may read, or - for stdin"),
        (["init", "-o", "link.yaml", "--", "python", "train.py"], "link.yaml is there already"),
        (["init", "--name", "a b", "--", "python", "train.py"], "'a b' cannot name a folder of runs"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_status_2(tmp_path: Path, words: list[str], said: str) -> None:
    from click.testing import CliRunner

    from matrix.__main__ import main

    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "empty.log").write_text("\n")
    (tmp_path / "there.yaml").write_text("mine\n")
    (tmp_path / "link.yaml").symlink_to("nowhere.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and said in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert (tmp_path / "there.yaml").read_text() == "mine\n" and not (tmp_path / "train.yaml").exists()


def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path: Path, script: Callable[..., Path]) -> None:
    script()
    done = matrix("init", "--no-run-help", "-o", "/proc/x.yaml", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 3 and done.stderr.startswith("/proc/x.yaml: ") and ".part" not in done.stderr


def test_facts_are_frozen_and_everything_in_them_is_optional() -> None:
    assert Facts() == dataclasses.replace(Facts(died=True), died=None)


def test_a_secret_is_left_to_the_shell_or_hidden_where_people_read_and_the_file_is_private(
    tmp_path: Path, script: Callable[..., Path]
) -> None:
    script("import os\nprint(os.environ['HF_TOKEN'])\n")
    words = ["--api-key", "sk-12", "--token=a b", "--data", "https://me:pw9@host/x", "--tokenizer", "bert", "--max-tokens", "512"]
    variables = ["HF_TOKEN=hf_abc", "HUB=http://me:pw9@hub", "MAX_TOKENS=7"]
    done = matrix("init", "--no-run-help", "--", *variables, "python", "train.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "train.yaml"
    text, spec = file.read_text(), load_spec(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert known_bad(spec)[2:] == words
    assert spec.run.env["MAX_TOKENS"] == "7" and not {"HF_TOKEN", "HUB"} & spec.run.env.keys()  # a shell may have set more that matter
    assert "# HF_TOKEN: set it in the shell that starts the run" in text and "# HUB: set it" in text
    comments = "\n".join(line for line in text.splitlines() if line.lstrip().startswith("#"))
    assert not [secret for secret in ("hf_abc", "sk-12", "a b", "pw9") if secret in comments + done.stdout + done.stderr]
    (notice,) = done.stderr.strip().splitlines()
    assert "--api-key, --token, https://" in notice and "tokenizer" not in notice


def test_secrets_inside_a_text_for_a_shell_are_hidden_too() -> None:
    shown, names = masked(["bash", "-c", "cd x; HF_TOKEN=hf_x python t.py --api-key sk-1 --pad-token 0 --token $T --bs 3", "ssh://u:p@h"])
    assert shown[2:] == ["cd x; HF_TOKEN=HIDDEN python t.py --api-key HIDDEN --pad-token 0 --token $T --bs 3", "ssh://HIDDEN@h"]
    assert names == ["HF_TOKEN", "--api-key", "ssh://"]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("hf_" + "aB3" * 11, "hf_HIDDEN"),
        ("sk-proj-" + "aB3_" * 10, "sk-HIDDEN"),
        ("ghp_" + "x7" * 18, "ghp_HIDDEN"),
        ("train --with=" + "AKIA" + "ABCD1234" * 2, "train --with=AKIAHIDDEN"),
        ("hf_model_checkpoint_00012345", "hf_model_checkpoint_00012345"),
        ("sk-learn", "sk-learn"),
        ("task-2024-11-28-with-a-long-name", "task-2024-11-28-with-a-long-name"),
    ],
)
def test_a_token_is_known_by_how_it_begins_wherever_it_stands(word: str, shown: str) -> None:
    assert masked(["python", "t.py", word])[0][2] == shown
