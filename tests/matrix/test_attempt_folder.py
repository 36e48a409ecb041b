"""Children that do away with, or put something else in the place of, what the tool keeps of them: one attempt, with its facts."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix.evidence.environment import HookFacts, read_hook
from matrix.evidence.hook_file import FIELDS, hook_records
from matrix.records import Attempt, Observation, read, to_json
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from tests.matrix.conftest import Observe

NAMES = (
    "stdout.log", "stderr.log", "memory.csv", "hook.jsonl", "attempt.json", "observation.json", "stacks.txt", "maps.txt",
    "stacks.1.txt", "stacks.evil.txt", "maps.1.txt", "maps.evil.txt", "core", ".observation.json.PID.part", ".memory.csv.part",
)  # fmt: skip
START = """
import os, pathlib, shutil, sys, time
here = pathlib.Path(os.environ["MATRIX_HOOK_DIR"])
print("step 1", flush=True)
print("said", file=sys.stderr, flush=True)
time.sleep(0.3)
"""
END = "\nprint('step 2', flush=True)\nos._exit(7)"
PUT: dict[str, str] = {
    "nothing": "pass",
    "a FIFO": "os.mkfifo(path)",
    "a folder": "path.mkdir()",
    "a folder that holds something": "path.mkdir(); (path / 'x').write_text('x')",
    "a link to a file": "path.symlink_to(victim)",
    "a link to nowhere": "path.symlink_to('nowhere')",
    "a link to itself": "path.symlink_to(path)",
    "a device": "path.symlink_to('/dev/zero')",
    "a socket": "import socket; os.chdir(here); socket.socket(socket.AF_UNIX).bind(path.name)",
    "an empty file": "path.touch()",
    "binary": "path.write_bytes(bytes(range(256)) * 100)",
    "a file without rights": "path.write_text('x'); path.chmod(0)",
    "a huge file": "path.touch(); os.truncate(path, 1 << 40)",
}


def seen_after(harm: str, observe: Observe, folder: Path) -> Observation:
    """One attempt of a program that does harm between two lines of output, and the next one in the same guardian."""
    seen: Observation = observe(START + harm + END)
    assert (seen.exit.returncode, seen.progress.last_step) == (7, 2)
    place = folder / "attempts" / seen.attempt
    assert "step 2" in (place / "stdout.log").read_text()
    assert "said" in (place / "stderr.log").read_text()
    assert read(Observation, place / "observation.json") == seen
    assert read(Attempt, place / "attempt.json").id == seen.attempt
    following: Observation = observe("print('step 5')")
    assert (following.exit.returncode, following.progress.last_step) == (0, 5)
    return seen


@pytest.mark.parametrize("what", PUT)
def test_whatever_lies_in_the_place_of_a_file_of_ours_the_attempt_is_complete(
    observe: Observe, tmp_path: Path, what: str
) -> None:
    """All files at once; one by one in the slow tier."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    seen = seen_after(replacing(NAMES, PUT[what], victim), observe, tmp_path)
    assert victim.read_text() == "mine"
    if what.startswith(("a FIFO", "a folder", "a link", "a device", "a socket")):
        assert any("hook.jsonl" in missing.what for missing in seen.not_collected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", PUT)
def test_the_same_with_each_file_alone(observe: Observe, tmp_path: Path, what: str, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    seen_after(replacing((name,), PUT[what], victim), observe, tmp_path)
    assert victim.read_text() == "mine"


def replacing(names: tuple[str, ...], put: str, victim: Path) -> str:
    """Source of a program's part that removes files of ours and puts something else there."""
    return f"""
victim = pathlib.Path({str(victim)!r})
for name in {names!r}:
    path = here / name.replace("PID", str({os.getpid()}))
    path.unlink(missing_ok=True)
    {put}
"""


AWAY: dict[str, str] = {
    "removed": "shutil.rmtree(here)",
    "removed with all attempts": "shutil.rmtree(here.parent)",
    "moved": "here.rename(here.parent / 'elsewhere')",
    "a file": "shutil.rmtree(here); here.write_text('x')",
    "a FIFO": "shutil.rmtree(here); os.mkfifo(here)",
    "another folder": "shutil.rmtree(here); here.mkdir()",
    "a link": "(here.parent / 'elsewhere').mkdir(); shutil.rmtree(here); here.symlink_to(here.parent / 'elsewhere')",
    "without rights": "here.chmod(0)",
    "without the right to write": "here.chmod(0o500)",
}


@pytest.mark.parametrize("what", AWAY)
def test_a_child_that_does_away_with_its_folder_is_one_attempt_with_its_facts(
    observe: Observe, tmp_path: Path, what: str
) -> None:
    seen = seen_after(AWAY[what], observe, tmp_path)
    place = tmp_path / "attempts" / seen.attempt
    assert stat.S_IMODE(place.lstat().st_mode) == 0o700 and not place.is_symlink()
    elsewhere = tmp_path / "attempts" / "elsewhere"
    assert not (elsewhere / "observation.json").exists()
    if not what.startswith("without"):
        assert any("folder" in missing.what for missing in seen.not_collected)


def test_an_attempt_json_that_the_child_forged_is_written_anew(observe: Observe, tmp_path: Path) -> None:
    forge = "import json; path = here / 'attempt.json'; it = json.loads(path.read_text()); it['key'] = 'forged'; "
    seen = seen_after(forge + "path.write_text(json.dumps(it))", observe, tmp_path)
    assert read(Attempt, tmp_path / "attempts" / seen.attempt / "attempt.json").key == "k"


# ------------------------------------------------------------------ lines of the hook that are not the hook's
WRONG: list[Any] = [None, "x", -1, 1 << 70, 1.5, 1e300, float("nan"), float("inf"), True, [], ["x"], [None], [[1]], {}, {"a": 1}, "\ud800"]
GOOD: dict[str, dict[str, Any]] = {
    "hello": {"ppid": 1, "argv0": "x", "main": True, "start": "exec", "helper": None, "task": None, "dump_signal": 40},
    "env": {"name": "OMP_NUM_THREADS", "value": "1", "removed": False, "module": "x"},
    "fork": {"threads": 2, "names": ["a"], "start_method": "fork", "module": "x"},
    "exit": {"call": "os._exit", "status": "1", "where": "a.py:1 in f", "installed": False},
    "rlimit": {"name": "nofile", "soft": 1, "hard": 2},
    "modules": {"native": ["a.b"]},
    "state": {"cpus": [0], "native_threads": 0, "limits": ["RLIMIT_NOFILE=1"], "sigpipe_default": None},
    "sigpipe": {"default": True},
    "end": {},
}


def lines() -> list[str]:
    """Every field of every kind with every wrong value, without it, and lines that are no records at all."""
    found = ["", "null", "[]", "3", '"x"', "{", "{}", "[" * 5000, '{"t": 1, "pid": ' + "9" * 5000 + ', "kind": "end"}', "\x00\xff"]
    for kind, fields in GOOD.items():
        whole = {"t": 1.0, "pid": 7, "kind": kind, **fields}
        found.append(json.dumps(whole))
        for name in whole:
            found.append(json.dumps({other: value for other, value in whole.items() if other != name}))
            found += [json.dumps({**whole, name: value}) for value in WRONG]
    return found


def test_no_line_of_a_hook_file_ends_the_reading_and_whole_ones_arrive(tmp_path: Path) -> None:
    assert FIELDS.keys() <= GOOD.keys()
    path = tmp_path / "hook.jsonl"
    for line in lines():
        path.write_text(line, errors="surrogatepass")
        facts = read_hook(path, 0.0)
        to_json(facts)
        for record in hook_records(path):
            to_json(record)
    path.write_text("\n".join(lines()), errors="surrogatepass")
    assert read_hook(path, 0.0).processes[7].ppid == 1
    assert read_hook(path, 0.0) != HookFacts()


def test_a_program_that_writes_such_lines_is_one_attempt(observe: Observe, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("\n".join(lines()) + "\n", errors="surrogatepass")
    harm = f"(here / 'hook.jsonl').open('ab').write(pathlib.Path({str(tmp_path / 'lines')!r}).read_bytes())"
    probes = {"one_thread": "", "default_sigpipe": "", "raised_nofile": ""}
    seen: Observation = observe(START + harm + END, probes=probes, rlimits={"RLIMIT_NOFILE": (100, 100)})
    assert (seen.exit.returncode, seen.progress.last_step) == (7, 2)
    assert read(Observation, tmp_path / "attempts" / seen.attempt / "observation.json") == seen


# ------------------------------------------------------------------ the guardian
def test_a_child_that_stops_the_guardian_delays_nobody_for_ever(observe: Observe) -> None:
    stops = "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); print('step 1', flush=True); time.sleep(0.2); os._exit(3)"
    for _ in range(2):
        seen: Observation = observe(stops)
        assert (seen.exit.returncode, seen.progress.last_step) == (3, 1)
    assert observe("print('step 4')").exit.returncode == 0


def test_a_guardian_that_is_stopped_between_two_attempts_starts_the_next_one(observe: Observe, guardian: Guardian) -> None:
    for _ in range(2):
        os.kill(guardian.process.pid, 19)
        assert observe("print('step 4')").exit.returncode == 0


def test_a_guardian_that_is_stopped_at_the_end_ends_all_the_same(job: Callable[..., Job]) -> None:
    with Guardian() as guardian:
        run(job("pass"), guardian, stop=threading.Event())
        os.kill(guardian.process.pid, 19)
    assert guardian.process.returncode == 0
    assert not guardian.folder.exists()
