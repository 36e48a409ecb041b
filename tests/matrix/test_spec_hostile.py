"""Specifications that a reader must survive: huge numbers, huge grids, patterns beyond any engine, text that is no Unicode."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix import folder as folders
from matrix.spec import Spec, SpecError, load_spec
from matrix.spec.cells import MOST_VALUES, MOST_VALUES_IN_ALL
from tests.matrix.command_line import matrix

PASS: dict[str, Any] = {"run": {"command": ["python", "-c", "pass"]}, "matrix": {"m": ["a", "b"]}}
DIGITS = "9" * 400


def refusal(folder: Path, content: dict[str, Any] | str) -> str:
    """All that the loader says of a specification; it says something."""
    path = folder / "s.yaml"
    path.write_text(content if isinstance(content, str) else json.dumps({**PASS, **content}))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "key", "value", "named"),
    [
        ("limits", "memory", DIGITS, "1 EiB"),
        ("limits", "memory", DIGITS + "GiB", "1 EiB"),
        ("limits", "memory", 10**39, "1 EiB"),
        ("limits", "stack", "99999999 TiB", "1 EiB"),
        ("limits", "wall", DIGITS, "longer than 0"),
        ("limits", "wall", 10**39, "100 years"),
        ("limits", "wall", "9" * 30 + "d", "100 years"),
        ("limits", "nofile", 10**39, "less than"),
        ("limits", "pids", 10**39, "at most"),
        ("limits", "cpus", 10**39, "at most"),
        ("search", "seed", 10**39, "less than"),
        ("search", "max_runs", 10**39, "at most"),
        ("search", "repeats", 10**39, "at most"),
    ],
)
def test_a_number_beyond_every_machine_is_refused_with_the_limit(tmp_path: Path, section: str, key: str, value: Any, named: str) -> None:
    said = refusal(tmp_path, {section: {key: value}})
    assert f"{section}.{key}" in said and named in said
    assert len(said) < 600


@pytest.mark.parametrize("number", ["0x" + "f" * 6000, "0o" + "7" * 6000, "1" * 6000, "1e" + "9" * 400])
def test_a_huge_number_as_a_value_is_a_word_or_is_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"run: {{command: [python]}}\nmatrix: {{m: [1, {number}]}}\nlimits: {{pids: {number}}}\n")
    with pytest.raises(SpecError, match="limits"):
        load_spec(path)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"\d{4294967296}", "repeats something too often"),
        ("(" * 3000 + ")" * 3000, "characters"),
        ("(" * 900 + "a" + ")" * 900, "nested too deep"),
        ("a" * 2001, "2000"),
        ("[", "not a regular expression"),
    ],
)
@pytest.mark.parametrize("key", ["progress", "finished"])
def test_a_pattern_beyond_the_engine_is_refused(tmp_path: Path, key: str, pattern: str, named: str) -> None:
    said = refusal(tmp_path, {"run": {"command": ["python"], key: pattern}})
    assert f"run.{key}" in said and named in said


# ------------------------------------------------------------------ large grids
def axes(count: int, values: int) -> dict[str, list[int]]:
    return {f"a{number}": list(range(values)) for number in range(count)}


@pytest.mark.parametrize(("count", "values"), [(1, 5000), (2, 3000)])
def test_an_axis_of_too_many_values_is_refused_with_the_limit(tmp_path: Path, count: int, values: int) -> None:
    said = refusal(tmp_path, {"matrix": axes(count, values)})
    assert f"has {values} values, and an axis may have {MOST_VALUES}" in said


def test_too_many_values_in_all_are_refused_with_the_limit(tmp_path: Path) -> None:
    assert f"a specification may have {MOST_VALUES_IN_ALL}" in refusal(tmp_path, {"matrix": axes(5, 200)})


def test_a_grid_of_a_billion_cells_with_a_rule_over_all_axes_is_counted_and_planned(tmp_path: Path) -> None:
    content = {**PASS, "matrix": axes(9, 10), "exclude": [dict.fromkeys(axes(9, 10), 1)]}
    assert Spec.model_validate(content).size == 10**9 - 1
    (tmp_path / "s.yaml").write_text(json.dumps(content))
    done = matrix("plan", "s.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "999999999 cells" in done.stdout


def test_the_largest_grid_that_is_allowed_is_planned(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(json.dumps({**PASS, "matrix": axes(2, MOST_VALUES)}))
    done = matrix("plan", "s.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{MOST_VALUES**2} cells" in done.stdout


def test_rules_that_overlap_in_too_many_ways_are_refused(tmp_path: Path) -> None:
    rules = [{f"a{at}": at % 3, f"a{(at * 7 + 1) % 60}": 1, f"a{(at * 11 + 5) % 60}": 2} for at in range(1, 60)]
    assert "cannot be counted" in refusal(tmp_path, {"matrix": axes(60, 4), "exclude": rules})


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1),
        max_size=6,
    )
)
def test_the_size_is_the_number_of_cells_for_any_rules(rules: list[dict[str, int]]) -> None:
    names = "abc"
    free = [dict(zip(names, values, strict=True)) for values in itertools.product(range(3), repeat=3)]
    kept = [cell for cell in free if not any(rule.items() <= cell.items() for rule in rules)]
    if not kept:
        return
    content = {**PASS, "matrix": {name: [0, 1, 2] for name in names}, "exclude": rules, "known_bad": kept[0]}
    assert Spec.model_validate(content).size == len(kept)


# ------------------------------------------------------------------ files that are none
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_as_a_specification_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for command in ("run", "plan"):
        done = matrix(command, "pipe.yaml", cwd=tmp_path)
        assert (done.returncode, "not a regular file" in done.stderr) == (2, True), done.stderr


def test_a_folder_and_a_device_are_refused(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/zero")):
        with pytest.raises(SpecError, match="not a regular file"):
            load_spec(place)


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("# " + "x" * (5 << 20))
    with pytest.raises(SpecError, match="larger than 4 MiB"):
        load_spec(path)


# ------------------------------------------------------------------ text that is no Unicode
@pytest.mark.parametrize("place", ["command", "value", "key", "name", "axis"])
def test_a_lone_surrogate_is_refused_with_its_place(tmp_path: Path, place: str) -> None:
    text = '{run: {command: ["python", "COMMAND"], env: {A: "b"}}, matrix: {AXIS: ["VALUE", "c"]}, name: "NAME", known_bad: {"KEY": "c"}}'
    words = {"COMMAND": "x", "VALUE": "v", "KEY": "m", "NAME": "n", "AXIS": "m"}
    for old, new in {**words, place.upper(): "\\uD800"}.items():
        text = text.replace(old, f'"{new}"' if old == "AXIS" else new)
    assert "no Unicode" in refusal(tmp_path, text)


def test_letters_beyond_the_first_plane_that_json_writes_as_two_escapes_are_one_letter(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps({"run": {"command": ["python", "💪😀"]}, "matrix": {"m": ["💪", "b"]}}))
    assert "\\ud83d" in path.read_text()
    loaded = load_spec(path)
    assert (loaded.run.command, loaded.axes[0].values) == (["python", "💪😀"], ("💪", "b"))


def test_an_escape_may_stand_for_a_byte_that_is_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(r'{run: {command: ["python", "caf\udce9"]}, matrix: {m: [1, 2]}}')
    assert os.fsencode(load_spec(path).run.command[1]) == b"caf\xe9"


# ------------------------------------------------------------------ run folders in the order of time
def test_the_newest_run_is_the_newest_also_when_the_clock_was_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In local time the run after the change of the hour has the smaller stamp."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        moments = [datetime.datetime(2026, 10, 25, 0, 30 + minutes, tzinfo=datetime.timezone.utc) for minutes in (0, 29)]
        moments += [datetime.datetime(2026, 10, 25, 1, 5, tzinfo=datetime.timezone.utc)]  # 02:30, 02:59, and 02:05 again
        made = [made_at(moment, tmp_path, monkeypatch) for moment in moments]
        assert folders.latest("job", root=tmp_path) == made[-1]
        assert sorted(folder.name for folder in made) == [folder.name for folder in made]
    finally:
        monkeypatch.undo()
        time.tzset()


def made_at(moment: datetime.datetime, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Clock:  # type: ignore[override]
            shown = moment.astimezone(tz) if tz else moment.astimezone().replace(tzinfo=None)
            return cls(*shown.timetuple()[:6], tzinfo=shown.tzinfo)

    monkeypatch.setattr(folders.datetime, "datetime", Clock)
    return folders.create("job", root=root)


def test_a_run_of_an_old_version_with_a_stamp_in_local_time_is_put_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for name in ("20261129-190000", "20261129-100001Z", "20261129-185959-3", "by hand"):  # the first is 10:00:00 UTC
            (tmp_path / "job" / name / "attempts").mkdir(parents=True)
        assert folders.latest("job", root=tmp_path).name == "20261129-100001Z"
        (tmp_path / "job" / "20261129-190002-10" / "attempts").mkdir(parents=True)
        (tmp_path / "job" / "20261129-190002-9" / "attempts").mkdir(parents=True)
        assert folders.latest("job", root=tmp_path).name == "20261129-190002-10"
    finally:
        monkeypatch.undo()
        time.tzset()
