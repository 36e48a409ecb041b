"""The specification of the first story: valid, and its cells really end as the story says."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.records import Cell
from matrix.spec import load_spec
from reproducers.faults import FAULTS

ROOT = Path(__file__).parents[2]
SPEC = load_spec(ROOT / "crash_isolation.yaml")
SMALL: Cell = {**SPEC.known_bad, "bs": 8, "threads": 1}

needs_runtime = pytest.mark.skipif(FAULTS["omp-conflict"].why_not() is not None, reason=str(FAULTS["omp-conflict"].why_not()))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story")
    synth = ["-m", "trainer", "synth", "--out", str(folder / "data"), "--train", "160", "--val", "16", "--bank", "400"]
    subprocess.run([sys.executable, *synth], cwd=ROOT, check=True, capture_output=True)
    return folder


def attempt(place: Path, cell: Cell) -> subprocess.CompletedProcess[str]:
    launch = SPEC.launch(cell, max_steps=12, placeholders={"attempt_dir": str(place)})
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KMP_", "PLANTED_"))}
    with subprocess.Popen(
        [sys.executable, *launch.argv[1:]],
        env={**inherited, **launch.env, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(place / "cache")},
        cwd=place, preexec_fn=no_core, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            stdout, stderr = child.communicate(timeout=120)
        finally:
            child.kill()
    Path(f"/dev/shm/__KMP_REGISTERED_LIB_{child.pid}_{os.getuid()}").unlink(missing_ok=True)
    return subprocess.CompletedProcess(child.args, child.returncode, stdout, stderr)


def no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def test_the_known_bad_cell_is_the_story_and_the_override_is_marked_as_hiding() -> None:
    assert SPEC.known_bad == {
        "device": "cpu", "accum": 16, "bs": 32, "threads": 2, "mining": "sync", "omp": "plain", "shuffle": "shuffled",
    }  # fmt: skip
    assert {name for name, choice in SPEC.axis("omp").choices.items() if choice.hides} == {"duplicate_ok"}
    assert SPEC.launch(SPEC.known_bad, max_steps=None, placeholders={"attempt_dir": "x"}).argv[:4] == [
        "python", "-m", "reproducers.faults", "omp-conflict",
    ]  # fmt: skip


@needs_runtime
@pytest.mark.slow
def test_the_known_bad_cell_aborts_in_its_first_mining(place: Path) -> None:
    ended = attempt(place, SMALL)
    assert ended.returncode == -signal.SIGABRT
    assert ended.stdout.splitlines()[-1].startswith("step 9/12")
    assert ended.stderr.startswith("OMP: Error #15")


@needs_runtime
@pytest.mark.slow
@pytest.mark.parametrize("change", [{"omp": "one_runtime"}, {"omp": "duplicate_ok"}, {"mining": "off"}])
def test_one_runtime_the_override_or_no_mining_lets_it_finish(place: Path, change: Cell) -> None:
    ended = attempt(place, {**SMALL, **change})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "training finished"
