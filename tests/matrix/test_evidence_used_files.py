"""Which files belong to an attempt, and when one of them counts as another file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from matrix.evidence.used_files import CHANGED, WHOLE_BYTES, Given, Used, present, used_files, words_that_name_files


def used(folder: Path, *records: tuple[str, str], given: Given | None = None, started: float | None = None) -> Used:
    """Of (name, use); the attempt starts now unless said otherwise."""
    time.sleep(0.02)  # the kernel's clock of files is coarse
    found: list[dict[str, Any]] = [{"kind": "file", "path": str(folder / name), "use": use} for name, use in records]
    return used_files(found, given or Given(), cwd=str(folder), started_unix_s=time.time() if started is None else started)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    for name in ("job.py", "data.csv", ".cache/made.so", ".git/HEAD", "runs/x/attempts/1/model.pt", "out.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "far.csv").write_text("far")
    (tmp_path / "lib.py").write_text("lib")
    return folder


def kinds(found: Used) -> dict[str, str]:
    return {file.name: file.kind for file in found.files}


def test_code_counts_wherever_it_lies_and_data_below_the_program_or_where_the_command_points(program: Path, tmp_path: Path) -> None:
    opened = [("job.py", "read"), ("data.csv", "read"), ("../far.csv", "read"), ("../lib.py", "read")]
    far, lib = str(tmp_path / "far.csv"), str(tmp_path / "lib.py")
    assert kinds(used(program, *opened)) == {"job.py": "code", "data.csv": "data", far: "elsewhere", lib: "code"}
    assert kinds(used(program, *opened, given=Given(data=(str(tmp_path),))))[far] == "data"


def test_caches_histories_and_the_run_folder_are_no_inputs(program: Path) -> None:
    opened = [(".cache/made.so", "native"), (".git/HEAD", "read"), ("runs/x/attempts/1/model.pt", "read")]
    found = used(program, *opened, given=Given(output=str(program / "runs/x")))
    assert set(kinds(found).values()) == {"elsewhere"} and len(found.files) == 2


def test_what_was_written_is_no_input_also_in_a_folder_that_was_moved_into_its_place(program: Path) -> None:
    (program / "made").mkdir()
    (program / "made/part.py").write_text("")
    found = used(program, ("out.txt", "write"), ("out.txt", "read"), ("made", "write"), ("made/part.py", "read"))
    assert found.files == [] and {"out.txt", "made/part.py"} <= set(found.written)


def test_code_that_was_edited_while_the_attempt_ran_is_equal_to_nothing_and_data_are_results(program: Path) -> None:
    found = used(program, ("job.py", "read"), ("data.csv", "read"), started=time.time() - 60)
    assert [(file.name, file.digest) for file in found.files] == [("job.py", CHANGED)]
    assert found.written == ["data.csv"]


def test_a_large_file_counts_by_its_size_its_date_and_its_two_ends(program: Path) -> None:
    path = program / "large.bin"
    with path.open("wb") as sink:
        sink.truncate(WHOLE_BYTES + 1)
    (file,) = used(program, ("large.bin", "read")).files

    def digest_now() -> str:
        now = present(file, str(program))
        assert now is not None
        return now.digest

    assert digest_now() == file.digest
    dates = path.stat()
    with path.open("r+b") as sink:
        sink.seek(-1, os.SEEK_END)
        sink.write(b"x")
    os.utime(path, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert digest_now() != file.digest
    with path.open("r+b") as sink:
        sink.seek(-1, os.SEEK_END)
        sink.write(b"\0")
    os.utime(path, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert digest_now() == file.digest
    os.utime(path, ns=(dates.st_atime_ns, dates.st_mtime_ns + 10**9))
    assert digest_now() != file.digest


def test_words_of_a_command_name_files_in_all_their_forms(program: Path) -> None:
    argv = ["python", "job.py", "--data=data.csv", "a,out.txt", "--flag", "no such file", "/", ".", "x" * 5000, "\0"]
    names = [Path(path).name for path in words_that_name_files(argv, {"LIST": f"data.csv{os.pathsep}.git"}, program)]
    assert names == ["job.py", "data.csv", "out.txt", ".git"]
