"""What a log shows: how far it came, how it ended, and the pattern of its progress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrix.evidence.progress import ProgressParser
from matrix.propose import Facts, specification
from matrix.propose.from_log import of_log
from matrix.propose.steps import pattern_of
from matrix.spec import load_spec
from tests.matrix.command_line import TOOL, environment

BAR = "".join(
    f"\rEpoch 0: {step / 10:3.0f}%|{'█' * (step // 100):10}| {step}/1000 [00:{step // 10:02d}<01:40, 10.00it/s]" for step in range(1, 118)
)


@pytest.fixture
def log(tmp_path: Path):  # type: ignore[no-untyped-def]
    def read(text: str) -> Facts:
        path = tmp_path / "run.log"
        path.write_text(text, encoding="utf-8")
        return of_log(path, shown_as="run.log")

    return read


def test_a_log_may_come_from_a_pipe_and_is_not_named_then(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    words = [*TOOL, "init", "--from-log", "-", "--", "python", "train.py"]
    text = "".join(f"step {step}/50\n" for step in range(1, 20)) + "Segmentation fault\n"
    done = subprocess.run(words, cwd=tmp_path, env=environment(), input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "stdin: step 19 of 50; SIGSEGV" in done.stdout
    text = (tmp_path / "train.yaml").read_text()
    assert "observed: [{cell: {}, died: true, step: 19}]" in text and load_spec(tmp_path / "train.yaml").name == "train"


def test_a_bar_that_stops_in_the_middle_of_a_line_is_a_death_without_a_word(log) -> None:  # type: ignore[no-untyped-def]
    facts = log(f"using device: cuda:0\nbatch size: 32\n{BAR}")
    assert (facts.died, facts.signal, facts.error, facts.words) == (True, None, None, ())
    assert (facts.last_step, facts.total_steps, facts.epoch, facts.seconds, facts.steps_per_s) == (117, 1000, 0, 11.0, 10.0)
    assert (facts.device, facts.batch_size, facts.source, facts.progress) == ("cuda:0", 32, "run.log", None)
    assert "117/1000" in facts.steps_seen


@pytest.mark.parametrize(
    ("end", "signal"),
    [
        ("Segmentation fault (core dumped)", "SIGSEGV"),
        ("job.sh: line 3: 4711 Killed                  python train.py", "SIGKILL"),
        ("Killed", "SIGKILL"),
        ("Aborted (core dumped)", "SIGABRT"),
        ("run.sh: line 3:  4711 Aborted                 (core dumped) python train.py", "SIGABRT"),
        ("run.sh: line 3:  4711 Terminated              python train.py", "SIGTERM"),
        ("srun: error: node1: task 0: Exited with exit code 139", "SIGSEGV"),
        ("failed (exitcode: -6) local_rank: 0 (pid: 7) of binary: /usr/bin/python", "SIGABRT"),
        ("subprocess.CalledProcessError: died with <Signals.SIGBUS: 7>.", "SIGBUS"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", "SIGKILL"),
        ('Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: bad', None),
        ("the learning rate was killed", None),
    ],
)
def test_the_signal_is_read_from_the_words_of_shells_schedulers_and_launchers(log, end: str, signal: str | None) -> None:  # type: ignore[no-untyped-def]
    facts = log("".join(f"step {step}/50 loss 0.{step}\n" for step in range(1, 20)) + end + "\n")
    assert (facts.signal, facts.died, facts.last_step, facts.total_steps) == (signal, True, 19, 50)
    assert facts.error == ("ValueError" if "ValueError" in end else None) or signal == "SIGBUS"


def test_a_log_that_goes_to_the_end_is_no_death_and_no_observation(log, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    facts = log("".join(f"step {step}/50\n" for step in range(1, 51)) + "done\n")
    assert facts.died is None
    assert "observed" not in _specification(facts, tmp_path)


def test_a_counter_in_words_of_its_own_gives_a_pattern_with_the_lines_that_it_matches(log, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lines = [f"2026-01-05 10:{i // 60:02d}:{i % 60:02d} round {3 * i} of 900 | loss 0.{99 - i} | lr 1e-4" for i in range(1, 90)]
    facts = log("\n".join(["loading 3 shards", *lines, "OMP: Error #15: Initializing libiomp5.so", "Aborted (core dumped)"]))
    assert facts.progress is not None and facts.progress_lines[-1] == lines[-1]
    assert (facts.last_step, facts.total_steps, facts.seconds, facts.signal) == (267, 900, 88.0, "SIGABRT")
    text = _specification(facts, tmp_path)
    assert f"#   {lines[-1]}" in text
    spec = load_spec(tmp_path / "spec.yaml")
    parser = ProgressParser(spec.run.progress)
    parser.feed("stdout", (lines[4] + "\n").encode(), 0.0)
    assert (parser.last_step, parser.total_steps) == (15, 900)
    assert spec.observed[0].step == 267 and spec.observed[0].died


@pytest.mark.parametrize(
    "lines",
    [
        [f"{i} 0.{i} 0.1" for i in range(1, 30)],
        [f"[trainer] it={i:06d} loss=nan" for i in range(1, 30)],
        [f"samples seen: {64 * i}, {i * 1.5:.2f} s" for i in range(1, 30)],
        [f"host{i % 2}: update {i}/100 ({i}.0%)" for i in range(1, 30)],
    ],
)
def test_the_pattern_that_is_found_is_one_that_the_tool_reads(lines: list[str]) -> None:
    found = pattern_of(["nothing here", "Loaded 17 files", *lines])
    assert found is not None
    parser = ProgressParser(found[0])
    parser.feed("stdout", ("\n".join(lines) + "\n").encode(), 0.0)
    assert parser.last_step is not None and parser.last_step >= 29


@pytest.mark.parametrize("lines", [[], ["loss 0.5"] * 9, [f"loss 0.{i}" for i in range(9)], [f"epoch took {i % 3} s" for i in range(9)]])
def test_lines_without_a_number_that_grows_give_no_pattern(lines: list[str]) -> None:
    assert pattern_of(lines) is None


def _specification(facts: Facts, folder: Path) -> str:
    (folder / "train.py").write_text("print()\n")
    text = specification(["python", "train.py"], cwd=folder, env={"PATH": str(Path(sys.executable).parent)}, facts=facts)
    (folder / "spec.yaml").write_text(text)
    load_spec(folder / "spec.yaml")
    return text


# ------------------------------------------------------------------ a death, or a good end
STEPS = "".join(f"step {step} loss 0.{step}\n" for step in range(10, 200, 10))


@pytest.mark.parametrize(
    "end",
    [
        "training finished\n",
        "saved model to out/\nDone.\n",
        "{'train_runtime': 12.3, 'train_loss': 0.4}\n",
        "| End of training | test loss 4.2 |\n",
        "`Trainer.fit` stopped: `max_epochs=1` reached.\n",
        "*** Best metric: 71.2 (epoch 3)\n",
        "srun: job step completed, exit code 0\n",
    ],
)
def test_the_log_of_a_run_that_says_it_is_over_is_no_death(log, end: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    facts = log(STEPS + end)
    assert (facts.died, facts.ended_well, facts.last_step) == (None, True, 190)
    assert "observed:" not in _specification(facts, tmp_path)


def test_a_run_that_made_all_steps_that_the_command_asks_for_is_no_death(log, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    facts = log(STEPS)
    assert facts.died is True
    _axes(facts, tmp_path, "--max-steps", "191")
    assert "observed" not in (tmp_path / "spec.yaml").read_text()
    _axes(facts, tmp_path, "--max-steps", "500")
    assert "observed" in (tmp_path / "spec.yaml").read_text()


def test_a_run_that_prints_every_tenth_step_need_not_print_its_last(log) -> None:  # type: ignore[no-untyped-def]
    steps = "".join(f"step {step}/1005\n" for step in range(10, 1001, 10))
    assert (log(steps).died, log(steps.replace("1005", "2000")).died) == (None, True)


@pytest.mark.parametrize(
    "words",
    [
        "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",
        "libgomp: Thread creation failed: Resource temporarily unavailable",
        "RuntimeError: can't start new thread",
        "OSError: [Errno 24] Too many open files",
    ],
)
def test_words_after_which_no_program_goes_on_are_a_death_also_without_a_step(log, words: str) -> None:  # type: ignore[no-untyped-def]
    facts = log(f"loading\n{words}\n")
    assert facts.died is True and facts.last_step is None
    assert log(f"loading\n{words}\n{STEPS}training finished\n").died is None


# ------------------------------------------------------------------ the words steer
def _axes(facts: Facts, folder: Path, *words: str) -> list[str]:
    (folder / "train.py").write_text("print()\n")
    command = ["python", "train.py", *words]
    text = specification(command, cwd=folder, env={"PATH": str(Path(sys.executable).parent)}, facts=facts)
    (folder / "spec.yaml").write_text(text)
    return [axis.name for axis in load_spec(folder / "spec.yaml").axes]


FLAGS = ("--workers", "4", "--bs", "32", "--accum", "8", "--precision", "16-mixed", "--readers", "3", "--amp", "--fused", "--out", "o")


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.", ["omp", "threads"]),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", ["threads", "workers", "arenas"]),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", ["bs", "accum", "precision"]),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed", ["workers", "bs"]),
        ("OSError: [Errno 28] No space left on device: 'o/x.pt'", ["folder", "workers"]),
        ("numpy.core._exceptions.MemoryError: Unable to allocate 3 GiB", ["bs", "workers", "accum"]),
    ],
)
def test_the_words_of_a_death_put_the_axes_first_that_speak_to_it(  # type: ignore[no-untyped-def]
    log, words: str, first: list[str], tmp_path: Path
) -> None:
    axes = _axes(log(f"{STEPS}{words}\n"), tmp_path, *FLAGS)
    assert axes[: len(first)] == first and len(axes) <= 7
    plain = _axes(log(f"{STEPS}Segmentation fault\n"), tmp_path, *FLAGS)
    assert not {"omp", "arenas", "folder"} & set(plain)


def test_the_way_out_that_only_hides_two_openmp_runtimes_is_marked_as_such(log, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    _axes(log(f"{STEPS}OMP: Error #15: found libomp.so already initialized.\n"), tmp_path)
    spec = load_spec(tmp_path / "spec.yaml")
    assert spec.axis("omp").hides == ("duplicate_ok",) and spec.known_bad["omp"] == "plain"
    assert spec.observed[0].step == 190 and spec.observed[0].log == "run.log"
