"""What is read from groups of version 2, on folders made like the kernel's; the kernel's own are in test_cgroup_v2."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.runner import cgroup, cgroup_home
from matrix.runner.leftovers import group_pids


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the hierarchy is mounted."""
    for module in (cgroup, cgroup_home):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    return tmp_path


def made(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text + "\n")
    return folder


def kills(folder: Path) -> tuple[int | None, int | None]:
    group = cgroup.Group(folder, "cgroup-v2")
    return group.own_oom_kills(), group.oom_kills()


def test_kills_of_nested_groups_are_counted_also_of_removed_ones_and_where_the_kernel_adds_nothing_up(root: Path) -> None:
    removed = made(root / "a", memory_events="oom 3\noom_kill 2", memory_events_local="oom_kill 0")
    assert kills(removed) == (0, 2)
    memory_localevents = made(root / "b", memory_events="oom_kill 1", memory_events_local="oom_kill 1")
    made(root / "b/nested", memory_events="oom_kill 1", memory_events_local="oom_kill 1")
    assert kills(memory_localevents) == (1, 2)
    before_linux_5_2 = made(root / "c", memory_events="low 0\noom_kill 0")
    made(root / "c/nested", memory_events="low 0\noom_kill 1")
    assert kills(before_linux_5_2) == (0, 1)
    assert kills(made(root / "d")) == (None, None)


def test_a_bound_of_any_group_around_it_holds_and_nothing_outside_of_the_hierarchy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(root.parent, memory_max="1")
    made(root / "slice", memory_max="900", memory_high="max", cpu_max="150000 100000", memory_stat="file 0", pids_max="40")
    own = made(root / "slice/session", memory_max="max", memory_high="700", cpu_max="max 100000", memory_stat="file 0")
    monkeypatch.setattr(cgroup, "own_v2", lambda: own)
    group = cgroup.own_group()
    assert group is not None
    found = (group.path, group.pids_path, group.memory_limit(), group.slowed_from(), group.cpu_share())
    assert found == (own, root / "slice", 900, 700, 1.5)
    monkeypatch.setattr(cgroup, "own_v2", lambda: made(own / "without_a_controller"))
    group = cgroup.own_group()
    assert group is not None and (group.path, group.memory_limit()) == (own, 900)  # where its memory counts


@pytest.mark.parametrize("name", cgroup_home.LIMITS)
def test_a_group_with_a_limit_is_never_left(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    own = made(root / "a/b", **{"memory.max": "max", "cpu.max": "max 100000", "cpuset.cpus": "", "pids.max": "max", "io.max": ""})
    monkeypatch.setattr(cgroup_home, "own_v2", lambda: own)
    assert list(cgroup_home._candidates()) == [own, root / "a", root]
    (own / name).write_text({"cpuset.cpus": "0-1", "cpuset.mems": "0", "io.max": "8:0 rbps=1 wbps=max"}.get(name, "50000 100000") + "\n")
    assert list(cgroup_home._candidates()) == [own]


@pytest.mark.parametrize(
    ("group", "mounted", "found"),
    [
        ("/user.slice/session-1.scope", "/", "user.slice/session-1.scope"),
        ("/", "/", ""),  # the root of a container, or of the machine
        ("/docker/ab/x", "/docker/ab", "x"),  # a container without a namespace of its own sees its part
        ("/docker/ab", "/docker/ab", ""),
        ("/docker/abc", "/docker/ab", None),
        ("/", "/../..", None),  # a namespace of its own, and the mount of another
        ("/../other", "/", None),  # it was moved out of its namespace
    ],
)
def test_the_own_group_is_found_below_what_is_mounted(
    root: Path, monkeypatch: pytest.MonkeyPatch, group: str, mounted: str, found: str | None
) -> None:
    lines = {
        "/proc/self/cgroup": [f"0::{group}"],
        "/proc/self/mountinfo": ["1 0 0:1 / / rw - ext4 a rw", f"2 1 0:2 {mounted} {root} rw - x"],
    }
    monkeypatch.setattr(cgroup_home, "_lines", lambda file: lines[str(file)])
    assert cgroup_home.own_v2() == (None if found is None else root / found)


def test_a_process_of_another_container_is_never_one_to_end(root: Path) -> None:
    """It has no number here, so the kernel writes 0; a signal to 0 goes to all of our own process group."""
    group = made(root / "a", cgroup_procs="0\n17")
    assert group_pids([str(group)]) == {17}
