"""What people see while a matrix runs: the texts, the picture for any size, and both on a real pseudo-terminal."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from matrix.records import Attempt, AxisPlan, Machine, Outcome, Plan, Trial
from matrix.view import words
from matrix.view.live import Pace, estimate_left
from matrix.view.picture import Row, Scene, ansi, draw, result_line
from matrix.view.plain import PlainView
from tests.matrix.screens import Screen

MIB = 1 << 20
MATRIX = [sys.executable, "-m", "matrix"]


# ------------------------------------------------------------------ words
def test_a_cell_is_named_by_what_differs_from_the_known_bad_one() -> None:
    bad = {"bs": 32, "omp": "plain", "shuffle": True}
    assert words.difference({"bs": 32, "omp": "one_runtime", "shuffle": True}, bad) == "omp=one_runtime"
    assert words.difference({"bs": 8, "omp": "plain", "shuffle": False}, bad) == "bs=8 shuffle=False"
    assert words.difference(dict(bad), bad) == "known bad"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(kind="died", signature="SIGABRT", steps=11, seconds=3.21), "died SIGABRT at step 11 after 3.2 s"),
        (Outcome(kind="died", signature="SIGKILL", seconds=1), "died SIGKILL before its first step after 1.0 s"),
        (Outcome(kind="survived", steps=24, seconds=12), "survived 24 steps after 12.0 s"),
        (Outcome(kind="censored", seconds=60, reason="wall\nlimit"), "censored after 60.0 s (wall limit)"),
        (Outcome(kind="unavailable", reason="no MPS"), "unavailable (no MPS)"),
    ],
)
def test_an_outcome_is_one_phrase(outcome: Outcome, text: str) -> None:
    assert words.describe(outcome) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("step 1", "step 1"),
        ("a\tb\r\nc", "a b c"),
        ("\x1b[2Jwiped \x9b2J", "[2Jwiped 2J"),  # without its first byte a control sequence is text
        ("\u202eevil\u202c \u200bzero\u2028line", "evil zero line"),
        ("進捗 10% é 👍🏽\ufe0f", "進捗 10% é 👍🏽"),
    ],
)
def test_nothing_that_moves_the_cursor_is_shown(raw: str, shown: str) -> None:
    assert words.clean(raw) == shown


def test_times_and_speeds_are_no_longer_than_they_need_to_be() -> None:
    assert [words.duration(s) for s in (0.9, 59, 192, 3900)] == ["0s", "59s", "3m12s", "1h05m"]
    assert [words.time_left(s) for s in (None, 0, 31, 299, 5400)] == [
        "time left unknown",
        "about 5s left",
        "about 35s left",
        "about 5m left",
        "about 1h30m left",
    ]
    assert [words.speed(v) for v in (None, 0.0, 123.4, 3.21, 0.5, 1 / 90)] == ["-", "-", "123/s", "3.2/s", "2.0s/step", "1m30s/step"]
    assert [words.memory(*v) for v in ((None, None), (612 * MIB, 3072 * MIB), (2000 * MIB, None))] == ["-", "612M/3.0G", "2.0G"]


# ------------------------------------------------------------------ estimates
def test_a_rate_is_of_the_last_seconds_and_not_since_the_start() -> None:
    pace = Pace()
    for tick in range(200):  # a minute at one step a second, then 40 s at ten
        pace.see(tick / 2, tick // 2 if tick < 120 else 60 + (tick - 120) * 5)
    rate = pace.steps_per_s(99.5)
    assert rate is not None and 9 < rate <= 10


def test_slow_steps_have_a_rate_and_it_falls_while_none_comes() -> None:
    pace = Pace()
    for now, step in ((0.0, None), (30.0, 1), (60.0, 2), (90.0, 3), (100.0, 3)):
        pace.see(now, step)
    assert pace.steps_per_s(90.0) == pytest.approx(1 / 30)
    assert pace.steps_per_s(390.0) == pytest.approx(2 / 360)


def test_there_is_no_rate_before_a_second_step() -> None:
    pace = Pace()
    pace.see(1.0, None)
    pace.see(2.0, 7)
    assert pace.steps_per_s(3.0) is None


def test_the_time_left_is_unknown_before_the_first_end_and_when_more_runs_come_than_expected() -> None:
    assert estimate_left([], [4.0], 12, 1) is None
    assert estimate_left([3.0], [], None, 1) is None
    assert estimate_left([3.0] * 12, [1.0], 12, 1) is None


def test_the_time_left_is_shared_by_the_jobs_but_never_shorter_than_what_runs() -> None:
    assert estimate_left([10.0, 10.0, 99.0], [4.0], 10, 1) == pytest.approx(6 * 10 + 6)
    assert estimate_left([10.0], [4.0, 8.0], 7, 2) == pytest.approx((4 * 10 + 6 + 2) / 2)
    assert estimate_left([10.0], [1.0], 2, 8) == pytest.approx(9.0)


@given(st.lists(st.floats(0, 1e6)), st.lists(st.floats(0, 1e6)), st.integers(0, 1000), st.integers(1, 8))
def test_the_time_left_is_never_negative(seconds: list[float], ages: list[float], expected: int, jobs: int) -> None:
    left = estimate_left(seconds, ages, expected, jobs)
    assert left is None or left >= 0


# ------------------------------------------------------------------ the picture
SLOW = ("step 5", "7.1s/step", "2.9G/3.0G", "36s")


SLOW = ("step 5", "7.1s/step", "2.9G/3.0G", "36s")


def scene(jobs: int = 2) -> Scene:
    rows = [
        Row(number="0021", cell="omp=one_runtime", figures=("step 11/24", "3.2/s", "612M/3.0G", "12s"), last_line="step 11/24 loss 2.31"),
        Row(number="0022", cell="mining=off accum=1 shuffle=sequential", figures=SLOW, last_line="検索器" * 40),
        *(Row(number=f"00{n}", cell=f"bs={n}", figures=("no step yet", "-", "-/3.0G", "0s")) for n in range(23, 29)),
    ]
    return Scene(
        title="crash_isolation",
        clock="3m12s, about 4m left",
        runs={"survived": 4, "died": 7, "censored": 1},
        cells={"died": 3, "survived": 2},
        expected=21,
        absent_values=2,
        learnt="5 of 9 changes decided; survives with omp=one_runtime, omp=duplicate_ok, mining=off.",
        asking="Does it still die with bs=8 instead of 32? (0022)",
        rows=rows[:jobs],
    )


def plain(lines: list[Text]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def test_at_80_columns_the_picture_reads_like_this() -> None:
    assert plain(draw(scene(), 79, 23)) == [
        "── crash_isolation ───────────────── 3m12s, about 4m left ──",
        "runs    12 of about 21: 7 died, 4 survived, 1 censored",
        "cells   5: 3 died, 2 survived; 2 values cannot run here",
        "learnt  5 of 9 changes decided; survives with omp=one_runtime,",
        "        omp=duplicate_ok, mining=off.",
        "asking  Does it still die with bs=8 instead of 32? (0022)",
        "0021  omp=one_runtime                     step 11/24      3.2/s  612M/3.0G  12s",
        "      step 11/24 loss 2.31",
        "0022  mining=off accum=1 shuffle=seque…       step 5  7.1s/step  2.9G/3.0G  36s",
        "      " + "検索器" * 12 + "…",
    ]


@pytest.mark.parametrize("jobs", [0, 1, 8])
@pytest.mark.parametrize("lines", [1, 4, 9, 23, 60])
@pytest.mark.parametrize("columns", [1, 19, 39, 79, 119, 199])
def test_the_picture_fits_any_size(columns: int, lines: int, jobs: int) -> None:
    picture = draw(scene(jobs), columns, lines)
    assert len(picture) <= lines
    assert all(line.cell_len <= columns for line in picture)


@pytest.mark.parametrize("size", [(79, 23), (39, 23), (199, 23), (79, 13)])
def test_eight_attempts_are_all_shown_where_one_line_each_fits(size: tuple[int, int]) -> None:
    text = "\n".join(plain(draw(scene(8), *size)))
    assert [n for n in range(21, 29) if f"00{n}  " not in text] == []


def test_a_small_screen_drops_output_lines_before_figures_and_says_that_something_is_missing() -> None:
    text = plain(draw(scene(8), 79, 13))
    assert "      step 11/24 loss 2.31" not in text and "step 11/24" in text[5]
    smaller = plain(draw(scene(8), 79, 6))
    assert [row[:4] for row in smaller] == ["── c", "runs", "0021", "0022", "0023", "…"]


def test_more_runs_than_expected_are_called_so() -> None:
    text = plain(draw(Scene(title="t", clock="c", runs={"died": 13}, cells={"died": 1}, expected=12), 79, 20))
    assert text[1] == "runs    13, more than the 12 expected: 13 died"


def test_colours_can_be_left_out_and_then_the_words_remain() -> None:
    line = result_line("0001", "find", "bs=8", "died SIGABRT", "died")
    coloured, bare = ansi(line, colour=True), ansi(line, colour=False)
    assert "31m" in coloured and "31m" not in bare
    assert "died SIGABRT" in bare


# ------------------------------------------------------------------ plain lines
def test_plain_lines_tell_each_end_and_what_is_new() -> None:
    out = io.StringIO()
    with PlainView(plan(), out) as view:
        for number, value in ((1, "two"), (2, "two"), (3, "one")):
            trial = Trial(id=number, cell={"runtimes": value}, purpose="find", why="?")
            view.started(Attempt(id=f"000{number}-aa", trial=trial, argv=[], env={}, cwd="", key="", program=""))
            died = Outcome(kind="died", signature="SIGABRT", steps=2)
            view.finished(f"000{number}-aa", trial, died, "Learnt." if number > 1 else "Nothing.")
            view.refresh({})
    assert out.getvalue().splitlines() == [
        "0001-aa  find       known bad: died SIGABRT at step 2 after 0.0 s",
        "           Nothing.",
        "0002-aa  find       known bad: died SIGABRT at step 2 after 0.0 s",
        "           Learnt.",
        "0003-aa  find       runtimes=one: died SIGABRT at step 2 after 0.0 s",
    ]


def plan() -> Plan:
    machine = Machine(system="", kernel="", machine="", cpus=1, memory_bytes=1, python="", tool_version="")
    axis = AxisPlan(name="runtimes", values=["two", "one"])
    return Plan(name="tiny", command=[], axes=[axis], known_bad={"runtimes": "two"}, strategy="adaptive", jobs=1, machine=machine)


# ------------------------------------------------------------------ on a terminal
PROGRAM = r"""
echo "step 1/3"
seq 20000
printf '\033[2J\033[Hstep 2/3 \033[31mloss\033[0m %s\n' 検索器検索器検索器検索器検索器検索器検索器検索器検索器検索器検索器
[ "$1" = two ] && kill -ABRT $$
until [ -e go ]; do sleep 0.02; done
echo "step 3/3"
"""
SPEC = """
run: {command: [sh, program.sh]}
matrix: {runtimes: {choices: {two: {args: [two]}, one: {args: [one]}}}}
known_bad: {runtimes: two}
search: {strategy: one_at_a_time, max_runs: 3}
limits: {memory: 1GiB}
"""
RUN = [*MATRIX, "run", "tiny.yaml", "--jobs", "1"]
Open = Callable[..., Screen]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs die at once, the third one waits for the file `go`."""
    (tmp_path / "program.sh").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "tiny.yaml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def open_screen(folder: Path) -> Iterator[Open]:
    opened: list[Screen] = []

    def start(argv: list[str] = RUN, **options: object) -> Screen:
        opened.append(Screen(argv, folder, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()


def waiting(screen: Screen) -> bool:
    """The second attempt runs, and the picture says so."""
    return "0002  runtimes=one" in screen.text and "step 2/3" in screen.text and "M/1.0G" in screen.text


PICTURE = ("── tiny ", "runs ", "cells ", "learnt ", "asking ")


def test_a_run_is_watched_at_80_columns_and_leaves_a_tidy_terminal(open_screen: Open, folder: Path) -> None:
    screen = open_screen()
    screen.until(lambda: waiting(screen))
    picture = screen.rows[screen.rows.index("runs    1 of about 3: 1 died") - 1 :]
    assert picture[0].startswith("── tiny ───") and picture[0].endswith("s left ──")
    assert picture[2] == "cells   1: 1 died"
    assert picture[3].startswith("learnt  ") and "nothing survives yet." in picture[3]
    asking = next(row for row in picture if row.startswith("asking  "))
    running = next(at for at, row in enumerate(picture) if row.startswith("0002  runtimes=one  "))
    assert "runtimes=one" in asking and picture.index(asking) < running
    assert "step 2/3" in picture[running] and "M/1.0G" in picture[running]
    assert picture[running + 1] == "      step 2/3 loss " + "検索器" * 9 + "検索…"
    assert screen.count("calibrate known bad: died SIGABRT at step 2") == 1
    assert screen.cursor_is_hidden and not screen.echoes
    (folder / "go").touch()
    assert screen.end() == 0
    assert not screen.cursor_is_hidden and screen.echoes
    assert screen.count("calibrate known bad") == 1 and screen.count("runtimes=one: survived 3 steps") >= 1
    assert [part for part in PICTURE if any(row.startswith(part) for row in screen.rows)] == []
    assert "report: " in screen.text


def test_keys_and_resizes_leave_one_picture_and_every_permanent_line(open_screen: Open) -> None:
    screen = open_screen()
    screen.until(lambda: waiting(screen))
    screen.type("\n\n\n")
    for columns, last_line in ((40, "\n  step 2/3 loss 検索器"), (80, "\n      step 2/3 loss 検索器"), (130, "s  step 2/3 loss 検索器")):
        screen.resize(columns, 24)
        screen.until(last_line)
        assert [screen.count(part) for part in PICTURE] == [1] * len(PICTURE)
        assert screen.count("calibrate known bad") == 1


def test_a_screen_of_six_lines_shows_the_start_of_the_picture_and_never_scrolls(open_screen: Open) -> None:
    screen = open_screen(lines=6)
    screen.until(lambda: waiting(screen))
    before = screen.rows[0]
    seen = len(screen.written)
    screen.until(lambda: len(screen.written) > seen + 1000)  # several pictures later
    assert screen.rows[0] == before and "calibrate known bad" in before
    assert screen.rows[1].startswith("── tiny ") and screen.rows[2].startswith("runs    1 of about 3")
    assert screen.rows[3].startswith("cells ") and screen.rows[4].startswith("learnt ")
    assert screen.rows[5].startswith("0002  runtimes=one")


@pytest.mark.parametrize("how", ["Ctrl-C", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_an_interrupted_run_gives_the_terminal_back_and_says_how_to_go_on(open_screen: Open, how: str) -> None:
    screen = open_screen()
    screen.until(lambda: waiting(screen))
    interrupt(screen, how)
    assert screen.end() == 130
    assert not screen.cursor_is_hidden and screen.echoes
    assert [part for part in PICTURE if part in screen.text] == []
    assert screen.count("interrupted;") == 1 and "--resume" in screen.text


@pytest.mark.slow
def test_an_interrupted_run_is_resumed_to_its_end(open_screen: Open, folder: Path) -> None:
    screen = open_screen()
    screen.until(lambda: waiting(screen))
    interrupt(screen, "Ctrl-C")
    assert screen.end() == 130
    (folder / "go").touch()
    resumed = subprocess.run([*RUN, "--resume"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert resumed.returncode == 0, resumed.stderr
    assert "\x1b" not in resumed.stdout
    assert (
        len(re.findall(r"calibrate +known bad: died SIGABRT at step 2", resumed.stdout)) == 1
        and "runtimes=one: survived 3 steps" in resumed.stdout
    )


def interrupt(screen: Screen, how: str) -> None:
    if how == "Ctrl-C":
        screen.type("\x03")
    else:
        os.kill(screen.pid, signal.SIGTERM)


@pytest.mark.slow
def test_a_lost_connection_ends_the_run_tidily(open_screen: Open, folder: Path) -> None:
    screen = open_screen()
    screen.until(lambda: waiting(screen))
    screen.hang_up()
    assert screen.reap() == 130
    assert len([*folder.glob("runs/tiny/*/report.md")]) == 1


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs a shell with job control")
def test_ctrl_z_gives_the_shell_a_tidy_terminal_and_fg_the_picture_back(open_screen: Open, folder: Path) -> None:
    screen = open_screen(["bash", "--norc", "--noprofile", "-i"], env={"PS1": "shell> "})
    screen.until("shell>")
    screen.type(" ".join(RUN) + "\n")
    screen.until(lambda: waiting(screen))
    screen.type("\x1a")
    screen.until(lambda: "Stopped" in screen.text and screen.last_row == "shell>")
    assert [part for part in PICTURE if part in screen.text] == []
    assert not screen.cursor_is_hidden
    screen.type("fg\n")
    screen.until(lambda: waiting(screen) and screen.cursor_is_hidden)
    (folder / "go").touch()
    screen.until(lambda: "report: " in screen.text and screen.last_row == "shell>")
    assert screen.count("── tiny ") == 0 and not screen.cursor_is_hidden


@pytest.mark.slow
def test_a_background_job_writes_plain_lines(open_screen: Open, folder: Path) -> None:
    (folder / "go").touch()
    screen = open_screen(["bash", "--norc", "--noprofile", "-i"], env={"PS1": "shell> "})
    screen.until("shell>")
    screen.type(" ".join(RUN) + " &\n")
    screen.until("report: ")
    assert b"\x1b[?25l" not in screen.written
    assert screen.count("runtimes=one: survived 3 steps") >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("env", "absent"), [({"TERM": "dumb"}, b"\x1b"), ({"NO_COLOR": "1"}, b"\x1b[31m")])
def test_colours_are_left_out_where_they_are_not_wanted(open_screen: Open, folder: Path, env: dict[str, str], absent: bytes) -> None:
    (folder / "go").touch()
    screen = open_screen(env=env)
    assert screen.end() == 0
    assert b"died SIGABRT" in screen.written
    assert absent not in screen.written


def test_a_run_goes_on_when_nobody_reads_the_terminal(open_screen: Open) -> None:
    draw_much = """
import os, sys
from matrix.view.terminal import Terminal
terminal = Terminal(1)
terminal.enter()
for n in range(300):
    terminal.say(f"line {n}")
    terminal.show(["x" * 1000])
terminal.leave()
"""
    screen = open_screen([sys.executable, "-c", draw_much], env={"PYTHONPATH": str(Path(__file__).parents[2])})
    assert screen.reap() == 0
