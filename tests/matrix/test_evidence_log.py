"""Tracebacks and stacks as real interpreters print them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrix.evidence import log
from matrix.records import PythonError


def stderr_of(tmp_path: Path, code: str, *options: str) -> str:
    script = tmp_path / "job.py"
    script.write_text(code)
    return subprocess.run([sys.executable, *options, str(script)], capture_output=True, text=True, timeout=60).stderr


def test_the_exception_its_message_and_its_frames(tmp_path: Path) -> None:
    text = stderr_of(tmp_path, "def train():\n    raise ValueError('bad batch')\ntrain()\n")
    frames = ["job.py:3 in <module>", "job.py:2 in train"]
    assert log.python_error(text) == PythonError(type="ValueError", message="bad batch", frames=frames)


def test_markers_under_the_source_lines_are_no_frames(tmp_path: Path) -> None:
    text = stderr_of(tmp_path, "x = {'a': None}\nx['a']['b'] + 1\n")
    error = log.python_error(text)
    assert error and error.type == "TypeError"
    assert error.frames == ["job.py:2 in <module>"]


def test_of_chained_exceptions_the_one_that_came_out(tmp_path: Path) -> None:
    text = stderr_of(tmp_path, "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('loss is wrong') from e\n")
    frames = ["job.py:4 in <module>"]
    causes = ["ZeroDivisionError: division by zero"]
    assert log.python_error(text) == PythonError(type="RuntimeError", message="loss is wrong", frames=frames, raised_from=causes)


def test_the_direct_causes_of_an_exception_are_kept_the_first_one_first(tmp_path: Path) -> None:
    code = """
def read():
    try:
        try:
            raise ValueError('row 200 is cut off')
        except ValueError as first:
            raise KeyError('table') from first
    except KeyError as second:
        raise RuntimeError('no data set') from second
read()
"""
    error = log.python_error("step 1\n" + stderr_of(tmp_path, code))
    assert error and error.type == "RuntimeError"
    assert error.raised_from == ["ValueError: row 200 is cut off", "KeyError: 'table'"]


def test_an_exception_while_another_was_handled_is_an_error_of_its_own(tmp_path: Path) -> None:
    error = log.python_error(stderr_of(tmp_path, "try:\n    {}['cache']\nexcept KeyError:\n    int('x')\n"))
    assert error and error.type == "ValueError" and error.raised_from == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_of_an_exception_group_the_group_itself(tmp_path: Path) -> None:
    text = stderr_of(tmp_path, "def f():\n    raise ExceptionGroup('two', [ValueError(1), ExceptionGroup('in', [TypeError(2)])])\nf()\n")
    assert log.python_error(text) == PythonError(
        type="ExceptionGroup", message="two (2 sub-exceptions)", frames=["job.py:3 in <module>", "job.py:2 in f"]
    )


def test_a_script_that_does_not_compile(tmp_path: Path) -> None:
    error = log.python_error(stderr_of(tmp_path, "x = 1\nfor for\n"))
    assert error == PythonError(type="SyntaxError", message="invalid syntax", frames=["job.py:2"])


def test_a_keyboard_interrupt_has_no_message(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.raise_signal(signal.SIGINT)\n"
    error = log.python_error(stderr_of(tmp_path, code))
    assert error == PythonError(type="KeyboardInterrupt", message="", frames=["job.py:3 in <module>"])


def test_a_qualified_type_and_a_deep_recursion(tmp_path: Path) -> None:
    text = stderr_of(tmp_path, "import json\ndef f(n):\n    return f(n + 1) if n < 300 else json.loads('{')\nf(0)\n")
    error = log.python_error(text)
    assert error and error.type == "json.decoder.JSONDecodeError"
    assert error.frames[0] == "job.py:4 in <module>"
    assert error.frames[-1].startswith("json/decoder.py:")


def test_a_message_that_begins_with_a_line_break(tmp_path: Path) -> None:
    code = "import multiprocessing as m\nm.set_start_method('spawn', force=True)\np = m.Process(target=print)\np.start()\np.join()\n"
    error = log.python_error(stderr_of(tmp_path, code))
    assert error and error.type == "RuntimeError"
    assert error.message.startswith("An attempt has been made to start a new process")


def test_a_traceback_after_an_unfinished_bar(tmp_path: Path) -> None:
    code = "import sys\nsys.stderr.write('\\r 37%|███▋      | 37/100 [00:01<00:02]')\nraise OSError(28, 'No space left on device')\n"
    error = log.python_error(stderr_of(tmp_path, code))
    assert error == PythonError(type="OSError", message="[Errno 28] No space left on device", frames=["job.py:3 in <module>"])


def test_the_prefix_of_a_launcher_is_taken_off() -> None:
    text = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/a/b.py", line 3, in f\n[rank1]:     x\n[rank1]: KeyError: 1\n'
    assert log.python_error(text) == PythonError(type="KeyError", message="1", frames=["b.py:3 in f"])


def test_what_only_a_destructor_raised_is_not_the_error(tmp_path: Path) -> None:
    code = "class A:\n    def __del__(self):\n        raise ValueError('late')\na = A()\ndel a\n"
    assert log.python_error(stderr_of(tmp_path, code)) is None


def test_a_logged_traceback_is_returned_with_what_followed_it(tmp_path: Path) -> None:
    caught = "import logging\ntry:\n    1 / 0\nexcept Exception:\n    logging.exception('oops')\n"
    found = log.python_error_at(stderr_of(tmp_path, caught + "for n in range(3):\n    logging.error('step %d', n)\n"))
    assert found == (PythonError(type="ZeroDivisionError", message="division by zero", frames=["job.py:3 in <module>"]), 3)


def test_a_traceback_that_was_cut_off_is_none() -> None:
    assert log.python_error('Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    x = ') is None


def test_installed_packages_keep_their_path_and_others_do_not() -> None:
    assert log.short_path("/home/someone/venv/lib/python3.11/site-packages/faiss/class_wrappers.py") == "faiss/class_wrappers.py"
    assert log.short_path("/usr/lib/python3.11/json/decoder.py") == "json/decoder.py"
    assert log.short_path("/home/someone/job/train.py") == "train.py"


# ------------------------------------------------------------------ faulthandler
def test_the_crash_stack_begins_with_the_innermost_frame(tmp_path: Path) -> None:
    text = stderr_of(tmp_path, "import ctypes\ndef mine():\n    ctypes.string_at(0)\nmine()\n", "-X", "faulthandler")
    stack = log.crash_stack(text)
    assert stack[0].startswith("ctypes/__init__.py:")
    assert stack[1:] == ["job.py:3 in mine", "job.py:4 in <module>"]


def test_the_crash_stack_is_of_the_thread_that_crashed(tmp_path: Path) -> None:
    code = "import ctypes, threading\ndef bad():\n    ctypes.string_at(0)\nt = threading.Thread(target=bad)\nt.start()\nt.join()\n"
    assert log.crash_stack(stderr_of(tmp_path, code, "-X", "faulthandler"))[1] == "job.py:3 in bad"


def test_a_crash_in_a_native_thread_says_so_and_shows_the_main_thread(tmp_path: Path) -> None:
    code = """import ctypes, time
libc = ctypes.CDLL(None)
handle = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(handle), None, ctypes.cast(libc.strlen, ctypes.c_void_p), None)
time.sleep(20)
"""
    native, main = log.crash_stack(stderr_of(tmp_path, code, "-X", "faulthandler"))
    assert native == log.NATIVE
    assert main in ("job.py:4 in <module>", "job.py:5 in <module>")  # it may die before the main thread goes on


def test_a_dump_on_request_is_no_crash(tmp_path: Path) -> None:
    code = "import faulthandler, threading\nt = threading.Thread(target=lambda: e.wait())\ne = threading.Event()\nt.start()\n"
    text = stderr_of(tmp_path, code + "def f():\n    faulthandler.dump_traceback(all_threads=True)\nf()\ne.set()\n")
    assert log.crash_stack(text) == []
    main, other = log.dumped_stacks(text)
    assert main == ["job.py:6 in f", "job.py:7 in <module>"]
    assert "job.py:2 in <lambda>" in other


# ------------------------------------------------------------------ tail
def test_the_tail_shows_what_a_terminal_would(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n\x1b[31mred\x1b[0m\n\r 10%|#\r 20%|##\n\n\x00\xff\x1b[2Kend")
    assert log.last_lines(log.text(path), 3) == ["red", " 20%|##", "�end"]


def test_the_tail_of_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert log.last_lines(log.text(tmp_path / "absent"), 3) == []


LAUNCHED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "job.py", line 7, in <module>
[rank1]:     step()
[rank1]: ValueError: bad batch
[rank0]: Traceback (most recent call last):
[rank0]:   File "job.py", line 7, in <module>
[rank0]:     step()
[rank0]: RuntimeError: Connection closed by peer
Traceback (most recent call last):
  File "launch.py", line 3, in main
    raise failure
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: job.py FAILED
"""


def test_of_a_launcher_that_reports_a_rank_the_ranks_own_exception_is_told() -> None:
    assert log.first_error(LAUNCHED) == PythonError(type="ValueError", message="bad batch", frames=["job.py:7 in <module>"])
    alone = LAUNCHED[LAUNCHED.index("Traceback (most recent call last):\n  File") :]
    assert (found := log.first_error(alone)) and found.type.endswith("ChildFailedError")
    assert (other := log.first_error(LAUNCHED.replace("ChildFailedError", "OSError"))) and other.type.endswith("OSError")
