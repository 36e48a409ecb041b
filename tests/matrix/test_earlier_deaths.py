"""A death that people had before is never answered with "healthy": the verdict says what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.matrix.command_line import matrix, only_run, specification, verdict

LIVES = "import sys\nfor n in range(1, 6): print('step', n, flush=True)\nprint('done')\n"
FULL_DISK = """step 1
step 3
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    save(model, a.out)
OSError: [Errno 28] No space left on device: '/small/checkpoint.pt'
"""


def answer(folder: Path, observed: dict[str, Any], **sections: Any) -> tuple[Any, str]:
    """Return the verdict and the report of a program that always survives here."""
    (folder / "job.py").write_text(LIVES)
    (folder / "old.log").write_text(FULL_DISK)
    spec = {
        "run": {"command": ["python", "job.py", "--out", "{attempt_dir}/out"], "finished": "done"},
        "matrix": {"bs": [4, 8]},
        "observed": [observed],
        "search": {"max_runs": 16},
        "limits": {"wall": "60s"},
        **sections,
    }
    done = matrix("run", str(specification(folder, spec)), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only_run(folder)
    return verdict(run), (run / "report.md").read_text()


@pytest.mark.parametrize(
    ("observed", "sections", "said"),
    [
        ({"cell": {}, "died": True}, {}, "--out led into the folder of each attempt"),
        ({"cell": {}, "died": True, "step": 400}, {}, "at step 400, and the longest of these runs ended at step 5"),
        ({"cell": {"bs": 8}, "died": True}, {}, "that death was with bs=8"),
        ({"cell": {}, "died": True}, {"limits": {"memory": "2GiB", "wall": "60s"}}, "limits on memory, time"),
        ({"cell": {}, "died": True, "log": "no such file"}, {}, "so none on memory"),
    ],
    ids=["redirected folder", "length", "cell", "limits", "log that is gone"],
)
@pytest.mark.slow
def test_an_observed_death_that_no_run_repeats_is_not_healthy_and_what_differs_is_named(
    tmp_path: Path, observed: dict[str, Any], sections: dict[str, Any], said: str
) -> None:
    found, report = answer(tmp_path, observed, **sections)
    assert found.status == "inconclusive" and found.ranking[0].cause == "unknown"
    assert "healthy" not in {entry.cause for entry in found.ranking}
    assert any(said in each for each in found.differences) and said in found.status_text
    assert "nothing to change" not in report and "None is needed" not in report and "not reproduced" in report


def test_the_log_of_the_observed_death_is_the_evidence_where_no_run_dies(tmp_path: Path) -> None:
    """The log proves a cause that comes in every run, so the matrix does not repeat the surviving run dozens of times."""
    found, report = answer(tmp_path, {"cell": {}, "died": True, "step": 3, "log": "old.log"})
    first = found.ranking[0]
    assert (found.status, first.cause, first.grade) == ("suspected", "shm_or_disk_full", "supported")
    assert any("/small/checkpoint.pt" in each for each in found.differences)
    assert found.runs <= 7 and found.fix is None and "Shared memory or disk full" in report


def test_without_an_observed_death_a_program_that_lives_is_healthy(tmp_path: Path) -> None:
    found, _ = answer(tmp_path, {"cell": {}, "died": False})
    assert (found.status, found.ranking[0].cause, found.differences) == ("healthy", "healthy", [])
