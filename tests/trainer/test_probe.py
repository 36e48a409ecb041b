from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.conftest import ROOT
from trainer.__main__ import main

SIZE = 40_000_000  # bytes of the array


def probed(path: Path) -> tuple[list[str], dict[str, tuple[float, float]]]:
    """The output's lines, and the stages with total and anonymous MB, of a process of its own."""
    done = subprocess.run([sys.executable, "-m", "trainer", "probe", str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    stages = {line[:26].strip(): line[26:].split() for line in lines if line.startswith(("before", "after"))}
    return lines, {name: (float(total), float(anonymous)) for name, (total, anonymous) in stages.items()}


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is not known elsewhere")
def test_a_mapped_file_takes_no_memory_when_it_is_opened_and_a_compressed_one_all_of_its_size(tmp_path: Path) -> None:
    array = np.zeros(SIZE // 4, np.float32)
    np.savez(tmp_path / "stored.npz", a=array)
    lines, stages = probed(tmp_path / "stored.npz")
    assert lines[0].startswith("a: mapped")
    assert lines[-1].endswith("stored.npz: 1 of 1 arrays are mapped, 0 loaded")
    assert list(stages) == ["before", "after opening", "after one access to each"]
    assert stages["after opening"][1] - stages["before"][1] < SIZE / 1e6 / 10
    assert stages["after one access to each"][1] - stages["before"][1] < SIZE / 1e6 / 10

    np.savez_compressed(tmp_path / "packed.npz", a=array)
    lines, stages = probed(tmp_path / "packed.npz")
    assert lines[0] == f"a: loaded, float32 ({SIZE // 4},), 40.0 MB"
    assert lines[-1].endswith("packed.npz: 0 of 1 arrays are mapped, 1 loaded")
    assert stages["after opening"][1] - stages["before"][1] > SIZE / 1e6 * 0.9


def test_values_that_are_not_where_native_code_wants_them_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3, np.float32), empty=np.zeros(0), scalar=np.array(1.0))
    assert main(["probe", str(tmp_path / "x.npz")]) == 0
    out = capsys.readouterr().out
    assert "bytes past a multiple of 64, float32 (3,)" in out
    assert "empty: loaded" in out  # there is nothing to map


def test_a_damaged_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npz").write_text("no archive")
    assert main(["probe", str(tmp_path / "x.npz")]) == 2
    assert capsys.readouterr().err.startswith(f"trainer probe: {tmp_path / 'x.npz'}: damaged or no npz file (")
