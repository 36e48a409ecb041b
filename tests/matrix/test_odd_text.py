"""Text that is no Unicode, from a program and its surroundings: every command survives, and the observation is kept."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix import records
from matrix.records import Attempt, Exit, Message, Observation, Trial
from tests.matrix.command_line import PATIENCE_S, TOOL, environment, observations, only_run, verdict

linux = pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
LATIN = b"caf\xe9"
DIES = r"""
import os, signal, sys, time
print(os.fsencode(sys.argv[1]), os.environb[b"ODD"], flush=True)
sys.stdout.buffer.write(b"step 1 \xff\xfe\n"); sys.stdout.flush()
open(os.path.join(os.environb[b"MATRIX_HOOK_DIR"], b"odd\xff.txt"), "wb").write(b"x")
os.environ["OMP_NUM_THREADS"] = "1\udcfe"
time.sleep(0.6)
os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder whose name is no UTF-8, with a program in it."""
    folder = tmp_path / os.fsdecode(LATIN)
    folder.mkdir()
    (folder / "dies.py").write_text(DIES)
    return folder


def tool(place: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {**environment(), "ODD": "x\udcffy", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([*TOOL, *words], cwd=place, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done


def check_everything_reads_it(place: Path, run: Path) -> None:
    log = next(run.glob("attempts/*/stdout.log"))
    commands = [["report", str(run)], ["package", str(run)], ["package", "--extended", str(run)], ["explain", str(log), "--status", "139"]]
    for words in commands:
        done = tool(place, *words)
        assert done.returncode == 0, (words, done.stderr)
    for form in ("--json", "--csv", "--junit", "--summary"):
        assert tool(place, "report", str(run), form).returncode == 0
    for kind in ("minimal", "extended"):
        package = run / f"package-{kind}.zip"
        assert tool(place, "verify", str(package)).returncode == 0
        with zipfile.ZipFile(package) as packed:
            assert packed.testzip() is None
    assert (run / "report.md").read_bytes().decode("utf-8")  # strictly: what is no Unicode stands there as an escape


@linux
@pytest.mark.slow
def test_a_matrix_of_a_program_with_odd_words_variables_and_folders_is_run_reported_and_packed(place: Path) -> None:
    content = {
        "run": {"command": [sys.executable, "dies.py", "arg\udce9"], "env": {"ODD": "x\udcffy"}},
        "matrix": {"m": ["a", "b\udce9"]},
        "search": {"max_runs": 3},
    }
    (place / "s.yaml").write_text(json.dumps(content))
    assert tool(place, "plan", "s.yaml").returncode == 0
    done = tool(place, "run", "s.yaml")
    assert done.returncode == 0, done.stderr
    run = only_run(place)
    seen = observations(run)
    assert {each.exit.signal for each in seen} == {"SIGSEGV"}
    assert b"b'arg\\xe9' b'x\\xffy'" in (run / "attempts" / seen[0].attempt / "stdout.log").read_bytes()
    assert records.read(Attempt, run / "attempts" / seen[0].attempt / "attempt.json").argv[2] == "arg\udce9"
    assert verdict(run).runs == len(seen)
    assert tool(place, "run", "s.yaml", "--resume").returncode == 0
    assert tool(place, "replay", str(run), seen[0].attempt).returncode == 0
    check_everything_reads_it(place, run)


@linux
@pytest.mark.slow
def test_a_watched_program_with_odd_words_variables_and_folders_is_recorded(place: Path) -> None:
    done = tool(place, "watch", "--", sys.executable, "dies.py", os.fsdecode(b"arg\xe9"))
    assert done.returncode == 128 + 11, done.stderr
    assert done.stdout == b"b'arg\\xe9' b'x\\xffy'\nstep 1 \xff\xfe\n"
    run = only_run(place)
    (seen,) = observations(run)
    assert (seen.exit.signal, seen.progress.last_step) == ("SIGSEGV", 1)
    check_everything_reads_it(place, run)
    proposed = run / "next.yaml"
    if proposed.exists():
        assert tool(place, "plan", str(proposed)).returncode == 0


@linux
def test_a_process_with_odd_words_is_looked_at(place: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", b"arg\xe9"], cwd=place, env={"ODD": b"x\xff"})
    try:
        done = tool(place, "explain", "--pid", str(process.pid))
        assert done.returncode == 0, done.stderr
    finally:
        process.kill()
        process.wait()


# ------------------------------------------------------------------ records
anything = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates as well


@given(anything, anything, st.dictionaries(anything, anything, max_size=3))
def test_a_record_comes_back_as_it_was_whatever_text_it_holds(word: str, line: str, env: dict[str, str]) -> None:
    attempt = Attempt(id="a", trial=Trial(id=1, cell={"m": word}), argv=[word, line], env=env, cwd=line, key="k", program="p")
    assert records.from_json(Attempt, records.to_json(attempt)) == attempt


@given(anything)
def test_an_observation_comes_back_as_it_was_whatever_text_it_holds(text: str) -> None:
    seen = Observation(
        attempt="a",
        key="k",
        trial=Trial(id=1, cell={}),
        exit=Exit(returncode=-11, signal="SIGSEGV"),
        wall_s=1.0,
        started_unix_s=0.0,
        output_tail=[text],
        messages=[Message(kind="assertion", text=text, stream="stderr", pid=3)],
        env_at_exec={text: text},
    )
    assert records.from_json(Observation, records.to_json(seen)) == seen
    assert dataclasses.asdict(seen)["output_tail"] == [text]


def test_a_text_that_is_no_unicode_is_written_with_escapes_and_a_script_with_the_bytes(tmp_path: Path) -> None:
    records.write_text(tmp_path / "page.md", "caf\udce9 \ud800")
    records.write_text(tmp_path / "run.sh", "echo caf\udce9", errors="surrogateescape")
    assert (tmp_path / "page.md").read_text() == "caf\\udce9 \\ud800"
    assert (tmp_path / "run.sh").read_bytes() == b"echo caf\xe9"


def test_json_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ValueError):
        records.from_json(Attempt, '{"id": "\\udc80", "x": ' + "[" * 100_000 + "]" * 100_000 + "}")
