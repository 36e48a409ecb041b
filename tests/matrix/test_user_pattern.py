"""A user's pattern that would take for ever is named and switched off; the matrix goes on, and Ctrl-C is heard."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.evidence.progress import ProgressParser
from matrix.user_pattern import BadPattern, UserPattern, check
from tests.matrix.command_line import PATIENCE_S, TOOL, environment, matrix, observations, only_run, specification, start, wait_until

FOR_EVER = "^(a|aa)+$"  # for the package that runs it
NESTED = "^(a+)+$"  # for the standard library alone
LINE = "a" * 40 + "!"
PRINTS = f"import time; print({LINE!r}, flush=True); time.sleep(0.3); print('step 3', flush=True); raise SystemExit(3)"


def test_a_pattern_that_takes_too_long_is_switched_off_and_named() -> None:
    pattern = UserPattern(FOR_EVER)
    assert pattern.found_in("aaaa")
    assert not pattern.found_in(LINE)
    assert FOR_EVER in pattern.why_off and "switched off" in pattern.why_off and "a" * 40 in pattern.why_off
    assert not pattern.found_in("aaaa")  # nothing is found from then on


def test_a_pattern_that_is_slow_again_and_again_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrix.user_pattern.SLOW_S", -1.0)
    pattern = UserPattern("step")
    for _ in range(49):
        list(pattern.matches("step 1"))
    assert not pattern.why_off
    list(pattern.matches("step 1"))
    assert "50 times" in pattern.why_off


def test_a_finished_line_that_is_not_looked_for_any_more_is_unknown_and_not_missing() -> None:
    parser = ProgressParser(None, FOR_EVER)
    parser.feed("stdout", f"{LINE}\n".encode(), 1.0)
    assert parser.record().finished_line is None
    assert list(parser.switched_off) == ["the line that says that it finished"]


@pytest.mark.parametrize(
    "text",
    ["[", r"\d{4294967296}", "(" * 3000 + ")" * 3000, "[[a]b]", "[a--b]", "(?:step){e<=1}", "(?:step){e}", "a" * 2001, r"\p{L}", "*"],
)
def test_what_is_no_pattern_or_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(BadPattern) as caught:
        check(text)
    assert caught.value.what and caught.value.hint


@pytest.mark.parametrize(
    "text",
    [r"step (?P<step>\d+)", r'\{"step": (?P<step>\d+)', r'{"step": (?P<step>\d+)', "a{2,3}", "(?i)Step", r"\d{3}", "^$"],
)
def test_usual_patterns_are_patterns(text: str) -> None:
    check(text)


@given(st.text("ab(|)*?[]^$.\\dws+{2,}-0", max_size=12), st.text("ab01 \n", max_size=12))
def test_what_is_accepted_finds_what_the_standard_library_finds(pattern: str, text: str) -> None:
    try:
        check(pattern)
    except BadPattern:
        return
    expected = re.search(pattern, text, re.MULTILINE)
    assert UserPattern(pattern).found_in(text) == (expected is not None)


def test_a_nested_repeat_comes_to_its_end() -> None:
    pattern = UserPattern(NESTED)
    assert not pattern.found_in(LINE)
    assert not pattern.why_off
    assert pattern.found_in("aaaa")


@pytest.mark.parametrize("key", ["finished", "progress"])
@pytest.mark.slow
def test_the_matrix_goes_on_and_the_report_says_so(tmp_path: Path, key: str) -> None:
    pattern = FOR_EVER if key == "finished" else f"{FOR_EVER}(?P<step>\\d*)"
    content = {"run": {"command": [sys.executable, "-c", PRINTS], key: pattern}, "matrix": {"m": [1]}, "search": {"max_runs": 2}}
    done = matrix("run", str(specification(tmp_path, content)), cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    run = only_run(tmp_path)
    seen = observations(run)
    assert {each.exit.returncode for each in seen} == {3}
    assert all("is switched off" in " ".join(missing.why for missing in each.not_collected) for each in seen)
    assert "is switched off" in (run / "report.md").read_text()


def test_ctrl_c_is_heard_while_such_a_pattern_is_matched(tmp_path: Path) -> None:
    prints = f"import time\nprint('begun', flush=True)\nwhile True: print({LINE!r}, flush=True); time.sleep(0.01)"
    content = {"run": {"command": [sys.executable, "-c", prints], "finished": FOR_EVER}, "matrix": {"m": [1]}}
    tool = start("run", str(specification(tmp_path, content)), cwd=tmp_path)
    try:
        logs = tmp_path / "runs"
        assert wait_until(lambda: any(b"begun" in log.read_bytes() for log in logs.glob("*/*/attempts/*/stdout.log")))
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=PATIENCE_S)
        assert tool.returncode == 130
    finally:
        if tool.poll() is None:
            os.kill(tool.pid, signal.SIGKILL)
            tool.communicate()


def test_a_watched_job_ends_as_it_would(tmp_path: Path) -> None:
    argv = [*TOOL, "watch", "--progress", FOR_EVER + r"(\d*)", "--", sys.executable, "-c", PRINTS]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (3, f"{LINE}\nstep 3\n"), done.stderr
    assert "steps are not known from now on" in done.stderr and "is switched off" in done.stderr


@pytest.mark.parametrize("command", ["plan", "run"])
def test_plan_and_run_refuse_a_pattern_that_is_read_in_two_ways(tmp_path: Path, command: str) -> None:
    content = {"run": {"command": [sys.executable], "finished": "[[:alpha:]]"}, "matrix": {"m": [1]}}
    done = matrix(command, str(specification(tmp_path, content)), cwd=tmp_path)
    assert done.returncode == 2
    assert "run.finished" in done.stderr and "two ways" in done.stderr
