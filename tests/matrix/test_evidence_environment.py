"""From the hook's lines, written by real children, to records."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from matrix.evidence.environment import END, HookFacts, read_hook
from matrix.records import EnvChange

HOOK = Path(__file__).parents[2] / "matrix/runner/hook"
CHILDREN = Path(__file__).parents[1] / "children"


def facts_of(folder: Path, *argv: str) -> tuple[HookFacts, int]:
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    env = {**inherited, "PYTHONPATH": str(HOOK), "MATRIX_HOOK_DIR": str(folder)}
    started = time.time()
    child = subprocess.Popen([sys.executable, *argv], env=env, stdout=subprocess.DEVNULL)
    child.wait(timeout=60)
    return read_hook(folder / "hook.jsonl", started), child.pid


def test_a_change_of_the_environment_names_who_made_it(tmp_path: Path) -> None:
    facts, pid = facts_of(tmp_path, str(CHILDREN / "changes_environment.py"))
    first = facts.env_changes[0]
    assert first == EnvChange(pid=pid, name="KMP_DUPLICATE_LIB_OK", value="True", module="some_library", time_s=first.time_s)
    assert 0 < first.time_s < 60


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_forks_and_the_roles_of_the_processes(tmp_path: Path) -> None:
    facts, pid = facts_of(tmp_path, str(CHILDREN / "forks_with_threads.py"))
    assert [(fork.pid, fork.threads_alive, fork.start_method, fork.module) for fork in facts.forks] == [
        (pid, 2, "fork", "__main__"),
        (pid, 2, None, "__main__"),
    ]
    assert facts.processes[pid].role == "main"
    roles = [process.role for process in facts.processes.values() if process.ppid == pid]
    assert [role for role in roles if role != "other"] == ["worker"] * 3  # multiprocessing's resource tracker may end before it says so


def test_exits_have_a_short_place_and_a_normal_end_is_told_apart(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import sys\ndef leave():\n    sys.exit(3)\nleave()\n")
    facts, pid = facts_of(tmp_path, str(script))
    assert [(call.pid, call.call, call.status, call.where) for call in facts.exit_calls] == [
        (pid, "sys.exit", "3", "job.py:3 in leave"),
        (pid, END, "", ""),
    ]


def test_a_native_exit_leaves_no_exit_call(tmp_path: Path) -> None:
    facts, pid = facts_of(tmp_path, str(CHILDREN / "exits_in_c.py"))
    assert (list(facts.processes), facts.exit_calls) == ([pid], [])


def test_half_a_line_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    facts, _ = facts_of(tmp_path, str(CHILDREN / "changes_environment.py"))
    path = tmp_path / "hook.jsonl"
    started = time.time()
    whole = read_hook(path, started)
    path.write_bytes(path.read_bytes() + b'[1]\n{"t": 1}\n\xff\xfe\n{"t":1795817397.122268,"pid":9081,"ki')
    assert read_hook(path, started) == whole
    assert len(whole.env_changes) == len(facts.env_changes) == 7


def test_without_a_file_there_are_no_facts(tmp_path: Path) -> None:
    assert read_hook(tmp_path / "hook.jsonl", 0.0) == HookFacts()
