"""The harness of other people's programs: the faults really come from outside, and the marks follow the facts."""

import argparse
import dataclasses
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.patients.__main__ import bare, folder_of, story, summary
from benchmarks.patients.score import scored
from benchmarks.patients.surroundings import NOTHING, Killer, Surroundings, arranged
from benchmarks.patients.table import PATIENTS, Patient

SCRIPT = "import time; print('step 1', flush=True); time.sleep(60)"
RIGHT = {"cause": "shm_or_disk_full", "grade": "confirmed", "culprit": {"out_dir": ["disk"]}, "summary": "The disk is full."}
FIX = {"kind": "cures", "set": {"out_dir": "elsewhere"}, "advice": "Write to another folder."}


def _patient(**changes: object) -> Patient:
    plain = Patient(
        name="made", command="python train.py", causes=("shm_or_disk_full",), axes=("out_dir",), place="disk", advice="another folder"
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def _start(folder: Path, around: Surroundings, code: str) -> tuple[int, str]:
    (folder / "train.py").write_text(code)
    with arranged(around, folder) as entrance:
        argv = [*entrance.prefix, sys.executable, "train.py"]
        env = {**os.environ, **entrance.env}
        done = subprocess.run(argv, cwd=folder, env=env, preexec_fn=entrance.enter, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def test_a_limit_holds_for_the_program_and_not_for_the_benchmark(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert _start(tmp_path, Surroundings(told="few files", limits={resource.RLIMIT_NOFILE: 64}), code) == (0, "(64, 64)\n")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a mount needs root and unshare")
def test_a_small_file_system_is_full_for_the_program_alone(tmp_path: Path) -> None:
    code = "import pathlib\ntry: pathlib.Path('disk/x').write_bytes(bytes(2 << 20))\nexcept OSError as problem: print(problem.errno)"
    assert _start(tmp_path, Surroundings(told="small", mounts={"disk": "1m"}), code) == (0, "28\n")
    assert list((tmp_path / "disk").iterdir()) == []


def test_the_killer_ends_the_rank_that_it_is_told_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    killer = Killer(script="train.py", after_s=0.5, number=signal.SIGTERM, rank="1")
    with arranged(Surroundings(told="a killer", killer=killer), tmp_path) as entrance:
        ranks = [
            subprocess.Popen(
                [sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, **entrance.env, "RANK": rank}, stdout=subprocess.DEVNULL
            )
            for rank in ("0", "1")
        ]
        assert ranks[1].wait(timeout=60) == -signal.SIGTERM
        time.sleep(1)  # rank 0 is older than the age at which it would have got the signal
        assert ranks[0].poll() is None
    assert ranks[0].wait(timeout=60) == -signal.SIGKILL  # what is left is ended with the surroundings


def test_a_right_answer_is_right() -> None:
    marks = scored(_patient(), {"status": "diagnosed", "ranking": [RIGHT], "fix": FIX}, fix_survived=True, harmed=[])
    assert marks["right"] and not marks["confirmed_and_wrong"]


@pytest.mark.parametrize(
    ("change", "fix", "survived", "harmed"),
    [
        ({"cause": "python_exception"}, FIX, True, []),
        ({}, FIX, False, []),  # it dies outside of the tool
        ({}, FIX, None, []),  # there was nothing to launch
        ({}, {**FIX, "set": {"batch_size": 1}}, True, []),  # an innocent axis
        ({}, {**FIX, "kind": "hides"}, True, []),
        ({}, None, None, []),  # no word of what helps
        ({}, FIX, True, ["model.pt"]),  # it wrote over a file of the user's
    ],
)
def test_a_wrong_cause_a_useless_fix_and_a_harmed_file_are_not_right(
    change: dict[str, object], fix: dict[str, object] | None, survived: bool | None, harmed: list[str]
) -> None:
    verdict = {"status": "diagnosed", "ranking": [{**RIGHT, **change}], "fix": fix}
    assert not scored(_patient(), verdict, fix_survived=survived, harmed=harmed)["right"]


def test_healthy_against_a_death_is_wrong_and_confirmed_with_an_innocent_axis_counts() -> None:
    assert not scored(_patient(), {"status": "healthy", "ranking": [RIGHT], "fix": FIX}, fix_survived=True, harmed=[])["cause"]
    innocent = {**RIGHT, "culprit": {"batch_size": [4]}}
    assert scored(_patient(), {"status": "diagnosed", "ranking": [innocent]}, fix_survived=None, harmed=[])["confirmed_and_wrong"]


def test_a_patient_whose_packages_or_sources_are_missing_is_not_here(tmp_path: Path) -> None:
    options = argparse.Namespace(sources=tmp_path, keep=None, outside=True, minutes=1.0)
    told = {
        "package": story(_patient(needs=("no_such_package",)), options, None),
        "source": story(_patient(needs=(), sources=(("nowhere/train.py", "train.py"),)), options, None),
    }
    assert summary(told) == {
        "patients": 0, "right": 0, "cause": 0, "place": 0, "fix": 0, "safe": 0, "confirmed_and_wrong": 0, "not_here": ["package", "source"]
    }  # fmt: skip


def test_a_program_that_lives_with_its_fault_is_no_patient(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('training finished')")
    patient = _patient(needs=(), sources=(("train.py", "train.py"),), around=NOTHING)
    options = argparse.Namespace(sources=tmp_path, keep=None, outside=True, minutes=1.0)
    assert story(patient, options, None)["not_here"] == "it does not die of this fault here, or it dies without"


def test_damage_is_done_to_the_copy_and_only_with_the_fault(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import pathlib, sys; sys.exit(pathlib.Path('bad').exists())")
    patient = _patient(needs=(), sources=(("train.py", "train.py"),), spoil=lambda folder: (folder / "bad").touch())
    options = argparse.Namespace(sources=tmp_path, keep=None, outside=True, minutes=1.0)
    assert bare(patient, options)["died"] and not bare(patient, options, well=True)["died"]
    with folder_of(patient, options) as (folder, why):
        assert not why and folder.parent != tmp_path
    assert not folder.exists() and not (tmp_path / "bad").exists()


def test_the_table_has_one_answer_for_each_patient() -> None:
    names = [patient.name for patient in PATIENTS]
    assert len(set(names)) == len(names) >= 12
    assert all((patient.spoil is None) != (patient.around is NOTHING) for patient in PATIENTS)  # one fault each
