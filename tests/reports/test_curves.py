"""memory.csv as it is found on disk, also after a kill in the middle of a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports import curves
from reports.curves import Curve, read

HEADER = "time,step,pid,role,rank,device,kind,bytes\n"
TWO_PROCESSES = HEADER + (
    "0.5,,11,main,,host,rss,100\n0.5,,11,main,,host,shared,40\n"
    "1.0,1,11,main,,host,rss,200\n1.0,1,11,main,,host,shared,40\n1.0,1,12,worker,,host,rss,50\n1.0,1,12,worker,,host,shared,40\n"
    "1.5,2,11,main,,host,rss,300\n1.5,2,11,main,,host,shared,40\n1.5,2,12,worker,,host,rss,60\n1.5,2,12,worker,,host,shared,40\n"
)
EXPECTED = Curve(
    times=[0.5, 1.0, 1.5],
    rss=[100.0, 250.0, 360.0],
    private=[60.0, 170.0, 280.0],
    by_role={"main": [100.0, 200.0, 300.0], "worker": [0.0, 50.0, 60.0]},
    processes={"main": 1, "worker": 1},
    steps=[(1.0, 1), (1.5, 2)],
)


def curve(folder: Path, text: str | bytes) -> Curve | str:
    path = folder / "memory.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def test_a_sample_is_the_sum_over_the_processes_of_the_tree(tmp_path: Path) -> None:
    assert curve(tmp_path, TWO_PROCESSES) == EXPECTED


def test_what_the_limit_counts_is_the_groups_figure_without_file_cache_and_not_the_sum_of_rss(tmp_path: Path) -> None:
    """Forked processes share pages: the sum of RSS may pass a limit that nothing has met."""
    cache = "0.4,,,tree,,host,file_cache,10\n1.2,,,tree,,host,file_cache,30\n"
    used = "".join(f"{time},,,tree,,host,used,{bytes_}\n" for time, bytes_ in (("0.5", 110), ("1.0", 180), ("1.5", 230)))
    found = curve(tmp_path, TWO_PROCESSES + cache + used)
    assert isinstance(found, Curve)
    assert found.counted == [100.0, 170.0, 200.0]
    assert (found.level(True), found.level(False)) == (found.counted, EXPECTED.rss)
    assert EXPECTED.counted == []


def test_the_sum_is_the_same_when_the_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "CHUNK_ROWS", 3)
    assert curve(tmp_path, TWO_PROCESSES) == EXPECTED


def test_a_last_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    for cut in ("2.0,3,11,main,,host,rss,12", "2.0,3,11,ma", "2.", '2.0,3,"11'):
        assert curve(tmp_path, TWO_PROCESSES + cut) == EXPECTED, cut


def test_damaged_lines_and_other_kinds_are_left_out(tmp_path: Path) -> None:
    figures = ["-5", "nan", "inf", "", "1e99", "12x"]
    noise = "x,y,z\n,,,,,,rss,\n1e300,1,11,main,,host,rss,5\n" + "".join(f"1.0,1,11,main,,host,rss,{figure}\n" for figure in figures)
    other = '1.0,1,0,gpu,,cuda:0,device,999\n"a quote\n1.0,1,1,2,3,4,5,6,7,8,9,10\n'
    assert curve(tmp_path, TWO_PROCESSES + noise + other) == EXPECTED


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "No columns to parse from file"), (HEADER, "it holds no usable sample"), ("a,b\n1,2\n", "Usecols do not match columns")],
)
def test_a_file_without_samples_says_why_there_is_no_curve(tmp_path: Path, text: str, why: str) -> None:
    found = curve(tmp_path, text)
    assert isinstance(found, str) and why in found
    assert read(tmp_path / "nothing.csv") == "No such file or directory"


def test_a_long_curve_keeps_its_peak_its_first_and_its_last_point(tmp_path: Path) -> None:
    lines = [f"{at / 10:.1f},,7,main,,host,rss,{9_000_000 if at == 4321 else 1000 + at}\n" for at in range(20_000)]
    found = curve(tmp_path, HEADER + "".join(lines))
    assert isinstance(found, Curve)
    assert len(found.times) <= curves.POINTS + 2
    assert max(found.rss) == 9_000_000 and found.times[found.rss.index(9_000_000)] == 432.1
    assert (found.times[0], found.times[-1]) == (0.0, 1999.9)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    assert curve(folder, TWO_PROCESSES.encode() + tail)
    assert curve(folder, tail)
