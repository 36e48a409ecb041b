"""When a limit will be met, and when that is worth saying: on made series, without a clock and without a process."""

from __future__ import annotations

import math
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from matrix.watch import cgroups, slurm
from matrix.watch.bounds import Bounds, Reading, span, tightening
from matrix.watch.cgroups import Place
from matrix.watch.outlook import Notice, Track, Warner
from matrix.watch.session import rank_of

MIB, GIB = 1 << 20, 1 << 30


def reading(used: float, limit: float = 16 * GIB, name: str = "memory of the cgroup") -> Reading:
    return Reading(name=name, unit="bytes", used=used, limit=limit)


def notices(uses: list[float], *, every_s: float = 4.0, left_s: float | None = None, limit: float = 16 * GIB) -> list[Notice]:
    """As many steps as seconds."""
    warner = Warner()
    return [said for at, used in enumerate(uses) for said in warner.see(at * every_s, int(at * every_s), left_s, [reading(used, limit)])]


def test_a_steady_leak_is_foreseen_with_its_step_and_said_again_only_when_half_of_the_time_is_left() -> None:
    noise = random.Random(0)
    said = notices([2 * GIB + at * 40 * MIB + noise.gauss(0, 3 * MIB) for at in range(355)])
    by_slope = [one for one in said if one.in_s is not None]
    assert 4 <= len(by_slope) <= 16
    last = 14 * GIB / (10 * MIB)
    for one in by_slope[1:]:
        assert one.in_s is not None
        assert one.at_s + one.in_s == pytest.approx(last, rel=0.1)
        assert one.at_step == pytest.approx(last, rel=0.1)
    for before, after in pairwise(by_slope):
        assert after.in_s is not None
        assert before.in_s is not None
        assert after.in_s <= before.in_s / 2


def test_the_interval_of_a_leak_holds_the_moment_at_which_the_limit_is_met() -> None:
    met = 0
    for seed in range(40):
        noise = random.Random(seed)
        track = Track()
        for at in range(200):
            track.add(at, at, 2 * GIB + at * 10 * MIB + noise.gauss(0, 40 * MIB))
        outlook = track.outlook(6 * GIB)
        assert outlook is not None
        met += outlook.low_s <= 4 * GIB / (10 * MIB) - 199 <= outlook.high_s
    assert met >= 34


def test_a_leak_that_begins_late_is_seen_at_once() -> None:
    said = notices([4 * GIB + (at % 3) * MIB for at in range(900)] + [4 * GIB + at * 20 * MIB for at in range(400)])
    first = next(one for one in said if one.in_s is not None)
    assert first.at_s < 4.0 * (900 + 240)


@pytest.mark.parametrize(
    "uses",
    [
        [6 * GIB for _ in range(600)],
        [6 * GIB + GIB * math.sin(at / 10) for at in range(300)],  # up and down within its range
        [6 * GIB + (at % 50) * 20 * MIB for at in range(300)],  # grows in every epoch, and falls back
        [2 * GIB * (1 - math.exp(-at / 10)) for at in range(300)],  # a warm-up
        [6 * GIB + at * 1024 for at in range(300)],  # an allocator's drift
    ],
    ids=["flat", "waves", "sawtooth", "warm-up", "drift"],
)
def test_what_is_heading_nowhere_is_not_told(uses: list[float]) -> None:
    assert notices(uses) == []


def test_a_run_that_will_be_done_before_is_not_told() -> None:
    leak = [2 * GIB + at * 40 * MIB for at in range(150)]
    assert notices(leak, left_s=60.0) == []
    assert notices(leak, left_s=6000.0) != []


def test_a_share_of_a_limit_is_told_once_and_a_disk_that_was_full_before_is_not() -> None:
    assert [one.text for one in notices([15 * GIB] * 50)] == ["memory of the cgroup: 15.0 GiB of 16.0 GiB is used (94%)"]
    warner = Warner()
    assert warner.see(0, None, None, [reading(15 * GIB, name="disk space at /")]) == []


def test_of_two_limits_of_memory_only_the_nearer_one_is_told() -> None:
    warner = Warner()
    said = [
        one
        for at in range(150)
        for one in warner.see(at, at, None, [reading(at * 90 * MIB), reading(at * 90 * MIB, 32 * GIB, "memory of the machine")])
    ]
    assert {one.limit for one in said} == {"memory of the cgroup"}


# ------------------------------------------------------------------ what is read
def test_the_limits_of_a_cgroup_are_read_in_both_versions(tmp_path: Path) -> None:
    v2, v1 = tmp_path / "v2", tmp_path / "v1"
    files = {
        v2: {
            "memory.max": "1000",
            "memory.current": "700",
            "memory.stat": "active_file 100\ninactive_file 50",
            "memory.events.local": "oom_kill 3",
        },
        v1: {
            "memory.limit_in_bytes": "1000",
            "memory.usage_in_bytes": "700",
            "memory.stat": "total_active_file 100\ntotal_inactive_file 50",
            "memory.oom_control": "oom_kill_disable 0\noom_kill 3",
        },
    }
    for folder, texts in files.items():
        folder.mkdir()
        for name, content in texts.items():
            (folder / name).write_text(content)
        place = Place(folder=folder, v2=folder == v2)
        assert (place.memory_limit(), place.memory_used(), place.oom_kills()) == (1000, 550, 3)
    (v2 / "memory.max").write_text("max\n")
    (v1 / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert [Place(folder=v2, v2=True).memory_limit(), Place(folder=v1, v2=False).memory_limit()] == [None, None]


def test_a_container_that_shows_its_own_group_as_the_mount_is_understood() -> None:
    text = (
        "30 24 0:26 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    found = [(str(place.folder), place.v2, root) for place, root in cgroups._mounts(text, "memory")]
    assert found == [("/sys/fs/cgroup/memory", False, "/docker/ab12"), ("/sys/fs/cgroup", True, "/")]


def test_when_the_scheduler_ends_the_job_is_read_from_its_variables() -> None:
    assert slurm.ends({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1700000000"}) == 1_700_000_000
    assert slurm.ends({}) is None


def test_of_nested_groups_with_one_limit_the_outermost_is_told(tmp_path: Path) -> None:
    places = [Place(folder=tmp_path / name, v2=True) for name in ("task", "step", "job", "all")]
    for place, limit in zip(places, ("max", "1000", "1000", "5000"), strict=True):
        place.folder.mkdir()
        (place.folder / "memory.max").write_text(limit)
    assert [place.folder.name for place in tightening(places)] == ["job", "all"]


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4"}, 3),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}, 1),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, None),  # a batch script
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "gold", "WORLD_SIZE": "2"}, None),
    ],
)
def test_one_of_several_recorders_knows_which_it_is(env: dict[str, str], rank: int | None) -> None:
    assert rank_of(env) == rank


def test_the_limits_around_this_process_are_read() -> None:
    readings = list(Bounds(os.getpid(), {}).read({os.getpid()}, [], {os.getpid(): "me"}))
    assert any(one.name == "memory of the machine" and 0 < one.used < one.limit for one in readings)
    assert all(one.limit > 0 for one in readings)


@pytest.mark.parametrize(
    ("seconds", "text"), [(8, "8 s"), (840, "14 min"), (7800, "2 h 10 min"), (400_000, "4.6 days")]
)  # fmt: skip
def test_spans_of_time_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_kills_in_the_groups_below_are_not_those_of_the_group(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("oom 3\noom_kill 3\n")
    (tmp_path / "memory.events.local").write_text("oom 1\noom_kill 1\n")
    assert Place(folder=tmp_path, v2=True).oom_kills() == 1
