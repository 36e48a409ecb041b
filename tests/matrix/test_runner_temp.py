"""The temp folder of an attempt is no part of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable

from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian

SAYS_TEMP = "import os, pathlib; pathlib.Path(os.environ['TMPDIR'], 'big').write_bytes(bytes(1000))"


def test_files_in_the_programs_own_temp_folder_are_no_part_of_the_program(job: Callable[..., Job]) -> None:
    guardian = Guardian()
    try:
        made = job(SAYS_TEMP + "; open(os.path.join(os.environ['TMPDIR'], 'big'), 'rb').close()")
        run(made, guardian, stop=threading.Event())
    finally:
        guardian.close()
    assert "/big" not in (made.folder / "hook.jsonl").read_text()
