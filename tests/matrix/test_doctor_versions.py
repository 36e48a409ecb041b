"""Known-bad combinations of versions, each row both ways, and the ages of interpreters and C libraries."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.doctor import catalogue
from matrix.doctor.interpreter import Distribution
from matrix.doctor.known_bad import ROWS
from matrix.doctor.native import Native
from matrix.doctor.place import Place
from tests.matrix.doctor_places import Environment, installed, look, make_environment, severities

# Of each row: packages with which it holds, and the nearest with which it does not; "darwin:" in front: seen from there.
CASES = {
    "torch-numpy-2": ("torch==2.2.2 numpy==2.0.0", "torch==2.3.0 numpy==2.0.0"),
    "pandas-numpy-2": ("pandas==2.2.1 numpy==2.0.0", "pandas==2.2.2 numpy==2.0.0"),
    "scikit-learn-numpy-2": ("scikit-learn==1.4.1.post1 numpy==2.0.0", "scikit-learn==1.4.1 numpy==1.26.4"),
    "scipy-numpy-2": ("scipy==1.12.0 numpy==2.4.6", "scipy==1.13.0 numpy==2.4.6"),
    "torch-mkl-2024-1": ("torch==2.3.0 mkl==2024.1.0", "torch==2.3.0 mkl==2024.0.0"),
    "torch-mkl-service": ("torch==2.13.0+cpu mkl-service==2.4", "torch==2.13.0+cpu"),
    "torch-faiss-macos": ("darwin: torch==2.1 faiss-cpu==1.7.4", "torch==2.1 faiss-cpu==1.7.4"),
    "torch-pyarrow-old": ("torch==1.0 pyarrow==0.14.1", "torch==1.0 pyarrow==0.15.0"),
    "torch-tensorflow-pyarrow": ("torch==2.3 tensorflow==2.15 pyarrow==19.0.1", "torch==2.3 tensorflow==2.15"),
    "torch-opencv-python": ("torch==2.3 opencv-python==4.9", "torch==2.3 opencv-python-headless==4.9"),
    "torch-opencv-python-headless": ("torch==2.3 opencv-python-headless==4.9", "opencv-python-headless==4.9"),
    "opencv-twice-python-headless": ("opencv-python==4.9 opencv-python-headless==4.9", "opencv-python==4.9"),
    "opencv-twice-contrib-python": ("opencv-python==4.9 opencv-contrib-python==4.9", "opencv-contrib-python==4.9"),
    "opencv-twice-contrib-python-headless": ("opencv-python==4.9 opencv-contrib-python-headless==4.9", "opencv-python==4.9"),
    "cuda-11-and-12-cuda-runtime": ("nvidia-cuda-runtime-cu11==11 nvidia-cuda-runtime-cu12==12", "nvidia-cuda-runtime-cu12==12"),
    "cuda-11-and-12-nccl": ("nvidia-nccl-cu11==2.14.3 nvidia-nccl-cu12==2.27.3", "nvidia-nccl-cu11==2.14.3"),
    "cuda-11-and-12-cudnn": ("nvidia-cudnn-cu11==8 nvidia-cudnn-cu12==9", "nvidia-nccl-cu11==2 nvidia-cudnn-cu12==9"),
    "grpcio-1-78-1": ("grpcio==1.78.1", "grpcio==1.78.0"),
    "grpcio-fork": ("grpcio==1.53.2", "grpcio==1.54.0"),
}  # fmt: skip


def seen(check: str, words: str) -> list[str]:
    system = "darwin" if words.startswith("darwin:") else "linux"
    return severities(check, Place(python=installed(*words.removeprefix("darwin:").split()), environment={}, system=system))


def test_every_row_has_a_case() -> None:
    assert sorted(CASES) == sorted(row.id for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_holds_for_its_versions_and_not_for_the_nearest_others(row: object) -> None:
    id, severity = row.id, row.severity  # type: ignore[attr-defined]
    bad, good = CASES[id]
    assert seen(id, bad) == [severity]
    assert seen(id, good) == []


def test_what_is_an_error_was_tried_and_what_was_reported_is_not_called_shown() -> None:
    [finding] = look("pandas-numpy-2", Place(python=installed("pandas==2.1.4", "numpy==2.2.6"), environment={}))
    assert (finding.severity, finding.summary) == ("error", "pandas 2.1.4 with numpy 2.2.6")
    assert "tried with pandas 2.1.4" in finding.unproven
    [finding] = look("torch-numpy-2", Place(python=installed("torch==2.0", "numpy==2.2.6"), environment={}))
    assert "known from reports" in finding.unproven


def test_local_and_preliminary_versions_are_versions_and_nonsense_is_none() -> None:
    assert seen("torch-numpy-2", "torch==from-source numpy==2.1.0") == []
    assert seen("torch-mkl-service", "torch==from-source mkl-service==2.4") == ["info"]  # any version
    assert seen("torch-numpy-2", "torch==2.2.0a0+gitabc numpy==2.0.0rc1") == []  # 2.0.0rc1 comes before 2
    assert seen("torch-numpy-2", "torch==2.2.0+cu118 numpy==2.1.0") == ["warning"]


def aged(version: tuple[int, int], year: int, month: int) -> list[str]:
    python = installed(version=(*version, 5))
    return severities("python-end-of-life", Place(python=python, environment={}, today=datetime.date(year, month, 15)))


def test_a_python_ends_in_the_month_after_its_last() -> None:
    assert aged((3, 10), 2026, 10) == []
    assert aged((3, 10), 2026, 11) == ["info"]
    assert aged((3, 7), 2026, 1) == ["warning"]
    python = Place(python=installed(version=(3, 15, 0)), environment={})
    [(_, why)] = catalogue.run(python, (catalogue.find("python-end-of-life"),)).not_seen
    assert "not in the table" in why


def test_a_glibc_with_the_lost_wakeup_is_told() -> None:
    def of(*glibc: int) -> list[str]:
        python = dataclasses.replace(installed(), glibc=glibc or None)
        return severities("glibc-lost-wakeup", Place(python=python, environment={}))

    assert [of(2, 26), of(2, 27), of(2, 40), of(2, 41), of()] == [[], ["info"], ["info"], [], []]


def test_static_thread_local_storage_runs_out_with_copies_of_libgomp_on_aarch64() -> None:
    def on(machine: str) -> list[str]:
        place = Place(python=installed(machine=machine), environment={}, system="linux")
        copies = [Native(path=Path(f"/{name}/libgomp.so.1"), owner=name, families=("openmp-gnu",)) for name in ("sklearn", "xgboost")]
        place.__dict__["libraries"] = copies  # ELF files of another machine are not to be had here
        return severities("static-tls", place)

    assert on("aarch64") == ["warning"]
    assert on("x86_64") == []


@pytest.mark.skipif(sys.platform != "linux", reason="compares Linux wheels")
def test_wheels_of_another_platform_are_errors() -> None:
    def wheel(*tags: str, glibc: tuple[int, int] | None = (2, 31)) -> list[str]:
        python = dataclasses.replace(installed(), glibc=glibc, distributions=(Distribution(name="a", version="1", tags=tags),))
        return severities("wheel-platform", Place(python=python, environment={}))

    assert wheel("cp312-cp312-manylinux_2_28_x86_64") == []
    assert wheel("cp312-cp312-manylinux_2_34_x86_64") == ["error"]
    assert wheel("cp312-cp312-manylinux_2_34_x86_64", "cp312-cp312-manylinux2014_x86_64") == []
    assert wheel("cp312-cp312-manylinux_2_17_aarch64") == ["error"]
    assert wheel("cp312-cp312-musllinux_1_2_x86_64") == ["error"]
    assert wheel("cp312-cp312-musllinux_1_2_x86_64", glibc=None) == []
    assert wheel("cp312-cp312-linux_x86_64") == []
    assert wheel("py3-none-any") == wheel() == []


@pytest.mark.nightly
@pytest.mark.skipif(not (3, 9) <= sys.version_info[:2] <= (3, 12), reason="there are no wheels of pandas 2.1 for this Python")
def test_pandas_built_for_numpy_1_fails_at_import_as_the_doctor_says(tmp_path: Path) -> None:
    """The real wheels, from the package index."""
    environment: Environment = make_environment(tmp_path / "venv")
    wanted = ["pandas==2.1.4", "numpy==2.0.2", "python-dateutil", "pytz", "six", "tzdata"]
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "-q", "--no-deps", *wanted]
    if subprocess.run(pip, capture_output=True).returncode:
        pytest.skip("the package index is not reachable")
    assert severities("pandas-numpy-2", environment.place()) == ["error"]
    ended = subprocess.run([environment.python, "-c", "import pandas"], capture_output=True, text=True)
    assert ended.returncode == 1 and "numpy.dtype size changed" in ended.stderr
