"""Packages of real runs, unpacked in a clean folder and replayed there without this tool: our five stories and three of strangers.

The data are not packed, as in life: the script says so first, then they are put where it says.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.package import unpack
from tests.matrix.command_line import ROOT, matrix, only_run, specification

pytestmark = pytest.mark.slow
PATIENCE_S = 1500.0
STORIES = {
    "healthy": ["--max-runs", "2", "--set", "accum=1"],
    "crash_isolation": ["--max-runs", "2", "--set", "accum=16", "--set", "omp=plain,one_runtime"],
    "forked_miner": ["--max-runs", "2", "--set", "shuffle=shuffled", "--set", "start=fork", "--set", "mining=process,off"],
    "dataloader_limit": ["--max-runs", "2", "--set", "prefetch=2", "--set", "accum=1", "--set", "workers=0,8"],
    "accumulation_device": ["--max-runs", "2", "--set", "accum=1,32", "--set", "clear=never", "--set", "shuffle=shuffled"],
}
DATA = {
    "data": ["--train", "640", "--val", "64", "--bank", "2000"],
    "data/long": ["--train", "2000", "--val", "8", "--bank", "100", "--seq-len", "20"],
}
PICTURES = ["--batch-size", "16", "--images", "4000"]
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
STRANGERS = {
    # Batches that are kept hold a descriptor each: the second value of the limit's axis is met.
    "pictures": {
        "run": {"command": ["python", "plain_pytorch.py", *PICTURES]},
        "matrix": {"workers": [2, 0]},
        "limits": {"nofile": 128, "wall": "5m"},
    },
    # The same by two ranks of a launcher, which ends with a status of its own.
    "launched": {
        "run": {"command": ["python", *LAUNCHER, "plain_pytorch.py", *PICTURES]},
        "matrix": {"workers": [2, 0]},
        "limits": {"nofile": 128, "wall": "5m"},
    },
    # An installed program that meets a limit of memory with a large text, and not with a small one.
    "highlighter": {
        "run": {"command": ["python", "-m", "pygments", "-l", "json", "-f", "html", "-O", "full", "-o", "{attempt_dir}/page.html"]},
        "matrix": {"text": {"choices": {"large": {"args": ["large.json"]}, "small": {"args": ["small.json"]}}}},
        "limits": {"memory": "48MiB", "wall": "5m"},
    },
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made")
    for folder, sizes in DATA.items():
        words = [sys.executable, "-m", "trainer", "synth", "--out", str(made / folder), *sizes]
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)
    return made


def replayed(package: Path, to: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`reproduce.py` in a bare environment."""
    bare = ["env", "-i", f"HOME={to}", "PATH=/usr/bin:/bin", sys.executable, "-I", "-S", "reproduce.py", "--python", sys.executable]
    return subprocess.run([*bare, *words], cwd=to, capture_output=True, text=True, timeout=PATIENCE_S)


def check_package(place: Path, to: Path) -> None:
    """Pack the run below `place`, and replay it in `to` when nothing of the first place is left but its inputs."""
    run = only_run(place)
    packed = matrix("package", str(run), "--out", str(to.with_suffix(".zip")), cwd=place)
    assert packed.returncode == 0, packed.stderr
    assert matrix("verify", str(to.with_suffix(".zip")), cwd=place).returncode == 0
    unpack(to.with_suffix(".zip"), to)
    place = place.rename(place.with_name("elsewhere"))
    recipe = json.loads((to / "scripts/replay.json").read_text())
    inputs = recipe["inputs_not_packed"]
    if inputs:
        without = replayed(to, to)
        assert without.returncode == 2, without.stdout + without.stderr
        assert all(f"missing: input {to}/program/{name} " in without.stdout for name in inputs)
    for name in inputs:
        (to / "program" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(place / name, to / "program" / name)
    done = replayed(to, to)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.count("; as recorded") == len(recipe["cells"]) >= 1
    assert "note:" not in done.stdout


@pytest.mark.parametrize("story", sorted(STORIES))
def test_a_package_of_our_own_stories_replays_where_nothing_else_is(story: str, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(data / "data", place / "data")
    for package in ("trainer", "reproducers"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / f"{story}.yaml", place)
    ended = matrix("run", f"{story}.yaml", *STORIES[story], cwd=place, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    check_package(place, tmp_path / "opened")


@pytest.mark.parametrize("name", sorted(STRANGERS))
def test_a_package_of_a_strangers_program_replays_where_nothing_else_is(name: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    shutil.copy(ROOT / "examples/strangers/plain_pytorch.py", place)
    (place / "large.json").write_text(json.dumps([{"number": number, "text": "word " * 20} for number in range(4000)]))
    (place / "small.json").write_text("[1, 2]")
    specification(place, {"name": name, **STRANGERS[name], "search": {"max_runs": 2}, "executor": {"jobs": 1}})
    ended = matrix("run", "spec.yaml", cwd=place, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "died" in ended.stdout
    check_package(place, tmp_path / "opened")
