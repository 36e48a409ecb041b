"""The flight recorder on a real terminal: the program has one too, keys reach it, and a lost connection ends nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.matrix.command_line import ROOT, TOOL, observations, only_run, wait_until
from tests.matrix.screens import Screen

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="Linux only")]
BAR = """
import sys, time
print("terminals:", sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), flush=True)
for step in range(1, int(sys.argv[1]) + 1):
    print(f"\\r{step}%|###| {step}/{sys.argv[1]} [00:01", end="", file=sys.stderr, flush=True)
    time.sleep(0.05)
print("\\nname?", flush=True)
print("hello", sys.stdin.readline().strip() or "nobody", flush=True)
sys.exit(5)
"""
Open = Callable[..., Screen]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Open]:
    screens: list[Screen] = []

    def start(*words: str, options: tuple[str, ...] = (), program: str = BAR) -> Screen:
        argv = [*TOOL, "watch", *options, "--", sys.executable, "-c", program, *words]
        screens.append(Screen(argv, tmp_path, columns=140, lines=40, env={"PYTHONPATH": str(ROOT)}))
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()


def test_the_program_has_a_terminal_bars_stay_whole_and_what_is_typed_reaches_it_once(watch: Open, tmp_path: Path) -> None:
    screen = watch("40", options=("--every", "1s"))
    screen.until("name?")
    assert "terminals: True True True" in screen.text
    assert any(row.startswith("[watch") and " of 40; " in row for row in screen.rows)
    screen.type("ann\n")
    assert screen.end() == 5
    assert "hello ann" in screen.text
    assert screen.count("ann\n") == 2  # its echo, and the answer
    assert all("[watch" not in row or row.startswith("[watch") for row in screen.rows)
    (seen,) = observations(only_run(tmp_path))
    assert (seen.exit.returncode, seen.progress.last_step) == (5, 40)
    logs = next(tmp_path.glob("runs/*/*/attempts/*"))
    assert "terminals:" in (logs / "stdout.log").read_text()
    assert "[watch" not in (logs / "stderr.log").read_text()


def test_ctrl_c_ends_the_program_as_usual_and_the_result_is_written(watch: Open, tmp_path: Path) -> None:
    screen = watch("4000")
    screen.until("%|###|")
    screen.type("\x03")
    assert screen.end() == 130
    assert "KeyboardInterrupt" in screen.text
    assert "ended by you after step" in screen.text
    assert screen.echoes
    (seen,) = observations(only_run(tmp_path))
    assert seen.exit.ended_by == "interrupt"
    assert not list(tmp_path.glob("runs/*/*/next.yaml"))


def test_a_lost_connection_ends_neither_the_program_nor_the_recording(watch: Open, tmp_path: Path) -> None:
    screen = watch("60")
    screen.until("%|###|")
    screen.hang_up()
    assert wait_until(lambda: bool(list(tmp_path.glob("runs/*/*/report.html"))), seconds=90)
    assert screen.reap() == 5
    (seen,) = observations(only_run(tmp_path))
    assert (seen.exit.returncode, seen.exit.signal, seen.progress.last_step) == (5, None, 60)
    assert "hello nobody" in (next(tmp_path.glob("runs/*/*/attempts/*")) / "stdout.log").read_text()


def test_a_new_size_of_the_window_reaches_the_program(watch: Open) -> None:
    columns = "import os, time\nfor _ in range(4000):\n print('wide', os.get_terminal_size(1).columns, flush=True); time.sleep(0.05)"
    screen = watch(program=columns)
    screen.until("wide 140")
    screen.resize(77, 30)
    screen.until("wide 77")
    screen.type("\x1c")  # Ctrl-\\
    assert screen.end() == 131


def test_a_shell_can_stop_it_and_go_on_with_it_in_the_background_and_in_the_foreground(tmp_path: Path) -> None:
    (tmp_path / "ticks.py").write_text("import time\nfor step in range(3000): print('tick step', step, flush=True); time.sleep(0.3)")
    screen = Screen(["bash", "--norc", "-i"], tmp_path, columns=120, lines=60, env={"PYTHONPATH": str(ROOT), "PS1": "$ "})
    try:
        screen.until("$")
        screen.type(f"{' '.join([*TOOL, 'watch', '--', sys.executable, 'ticks.py'])}\n")
        screen.until("tick step 2")
        screen.type("\x1a")
        screen.until("Stopped")
        seen = screen.count("tick")
        screen.type("bg\n")
        screen.until(lambda: screen.count("tick") > seen + 2)
        screen.type("echo $((6 * 7))\n")
        screen.until("\n42")
        named = screen.written.count(b"ticks.py")
        screen.type("fg\n")
        screen.until(lambda: screen.written.count(b"ticks.py") > named)  # the shell says what it goes on with
        screen.type("\x03")
        screen.until("ended by you after step")
        screen.until(lambda: screen.last_row == "$")  # the report is written
        screen.type("exit\n")
        screen.end()
    finally:
        screen.close()
    (observed,) = observations(only_run(tmp_path))
    assert observed.exit.ended_by == "interrupt"
