"""The trainable cache: what was updated comes back, from every tier, after evictions, restarts, kills and a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.conftest import ROOT
from tests.trainer.test_checkpoint import small_disk  # noqa: F401  # a fixture
from trainer import InputError
from trainer.cache import EmbeddingCache
from trainer.journal import Journal

DIM, ROWS = 8, 200
MB_OF_A_VECTOR = 4 * DIM / 1e6


def cache_of(path: Path, l1: int = 8, l2: int = 16, **more: Any) -> EmbeddingCache:
    """Sizes in vectors."""
    return EmbeddingCache(
        path, ROWS, DIM, l1_mb=l1 * MB_OF_A_VECTOR, l2_mb=l2 * MB_OF_A_VECTOR, **{"batch": 4, "percent": lambda: 0.0, **more}
    )


def train_by_chance(cache: EmbeddingCache, steps: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Add one to random vectors, some of them several times; what should be there now.  Each read is checked."""
    rng = np.random.default_rng(seed)
    expected = cache.get(np.arange(ROWS))
    for _ in range(steps):
        rows = rng.choice(ROWS, 4, replace=False)
        values = cache.get(rows)
        np.testing.assert_array_equal(values, expected[rows])
        expected[rows] += rng.random((4, DIM), np.float32)
        cache.update(rows, expected[rows])
    return expected


@pytest.mark.parametrize(("l1", "l2"), [(1, 1), (8, 16), (3, 500), (500, 1), (4, 4)])
def test_what_was_updated_comes_back_after_evictions_and_after_a_restart(tmp_path: Path, l1: int, l2: int) -> None:
    cache = cache_of(tmp_path / "v", l1, l2)
    np.testing.assert_array_equal(cache.get(np.arange(ROWS)), 0)
    expected = train_by_chance(cache, 300)
    np.testing.assert_array_equal(cache.get(np.arange(ROWS)), expected)
    cache.close()
    again = cache_of(tmp_path / "v")
    np.testing.assert_array_equal(again.get(np.arange(ROWS)), expected)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "v", np.float32).reshape(ROWS, DIM), expected)


def test_a_vector_is_in_one_tier_of_memory_at_most_and_tiers_are_never_larger_than_asked(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "v")
    train_by_chance(cache, 100)
    assert not cache.l1.places.keys() & cache.l2.places.keys()
    assert (len(cache.l1.places), len(cache.l2.places)) <= (8, 16)
    assert (cache.l1.values.nbytes, cache.l2.values.nbytes) == (8 * 4 * DIM, 16 * 4 * DIM)


def test_hits_of_each_tier_are_counted_and_start_anew_with_each_summary(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "v", l1=4, l2=4, batch=1)
    for row in (0, 1, 2, 3, 3, 4, 0, 50):  # 4 sends 0 to the second tier, from where it comes back
        cache.get(np.array([row]))
    assert (cache.counts.l1, cache.counts.l2, cache.counts.disk) == (1, 1, 6)
    assert "hits L1 12.5%, L2 12.5%, disk 75.0% of 8;" in cache.summary()
    assert "of 0;" in cache.summary()


def test_changes_reach_the_file_with_the_next_sync_and_not_before(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "v")
    cache.update(np.array([5]), np.ones((1, DIM), np.float32))
    assert not np.fromfile(tmp_path / "v", np.float32).any()
    assert cache.journal.path.stat().st_size > 0
    cache.sync()
    assert np.fromfile(tmp_path / "v", np.float32).reshape(ROWS, DIM)[5].all()
    assert cache.journal.path.stat().st_size == 0


@pytest.mark.parametrize(("batch", "l1", "chunk"), [(1, 100, 1), (32, 1000, 32), (33, 1000, 64), (64, 8, 2), (64, 1, 1)])
def test_the_number_of_vectors_moved_at_a_time_follows_the_batch_and_fits_the_first_tier(
    tmp_path: Path, batch: int, l1: int, chunk: int
) -> None:
    cache = EmbeddingCache(tmp_path / "v", 5000, DIM, l1_mb=l1 * MB_OF_A_VECTOR, l2_mb=1, batch=batch)
    assert cache.chunk == chunk


def test_the_tiers_shrink_while_memory_is_short_lose_nothing_and_grow_again(tmp_path: Path) -> None:
    used = [50.0]
    cache = cache_of(tmp_path / "v", percent=lambda: used[0], memory_limit=90)
    expected = train_by_chance(cache, 50)
    sizes = []
    for percent in (91, 91, 91, 91, 91, 85, 79, 79, 79, 79, 79):
        used[0] = percent
        cache.adapt()
        sizes.append((cache.l1.capacity, cache.l2.capacity))
        assert (len(cache.l1.places) <= cache.l1.capacity, len(cache.l2.places) <= cache.l2.capacity) == (True, True)
    assert sizes == [(4, 8), (2, 4), (1, 2), (1, 1), (1, 1), (1, 1), (2, 2), (4, 4), (8, 8), (8, 16), (8, 16)]
    np.testing.assert_array_equal(cache.get(np.arange(ROWS)), expected)


def test_memory_goes_back_to_the_system_when_the_tiers_shrink(tmp_path: Path) -> None:
    def anonymous() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))

    if sys.platform != "linux":
        pytest.skip("read from /proc")
    cache = EmbeddingCache(tmp_path / "v", 50_000, 100, l1_mb=10, l2_mb=10, batch=500, percent=lambda: 99.0)
    for start in range(0, 50_000, 500):
        cache.get(np.arange(start, start + 500))
    before = anonymous()
    cache.adapt()
    assert before - anonymous() > 8e6


# ------------------------------------------------------------------ kills and full disks
UPDATES = f"""
import numpy as np
from pathlib import Path
from trainer.cache import EmbeddingCache
cache = EmbeddingCache(Path("v"), {ROWS}, {DIM}, l1_mb={8 * MB_OF_A_VECTOR}, l2_mb={16 * MB_OF_A_VECTOR}, batch=4)
rng = np.random.default_rng(1)
for step in range(1, 1_000_000):
    rows = rng.choice({ROWS}, 4, replace=False)
    cache.get(rows)
    cache.update(rows, np.full((4, {DIM}), step, np.float32))
    if step % 50 == 0:
        cache.sync()
    print(step, flush=True)
"""


def test_a_killed_process_loses_no_update_that_it_had_made(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", UPDATES], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        printed = [int(child.stdout.readline()) for _ in range(175)]
        child.send_signal(signal.SIGKILL)
        printed += [int(line) for line in child.stdout if line.endswith("\n")]
    last = printed[-1]
    states = []
    rng, expected = np.random.default_rng(1), np.zeros(ROWS)
    for step in range(1, last + 2):  # it may have died between the update after the last line and that line
        expected[rng.choice(ROWS, 4, replace=False)] = step
        states.append(expected.copy())
    found = cache_of(tmp_path / "v").get(np.arange(ROWS))
    assert (found == found[:, :1]).all()
    # the update that was under way may be there in part: its records are written in one piece, but a kill can cut that
    assert any((found[:, 0] == state).all() for state in states[-2:]) or set(np.unique(found[:, 0])) <= set(np.unique(states[-1]))


@pytest.mark.parametrize("cut", [1, 20, 43])
def test_a_record_that_was_cut_off_is_left_out_and_the_ones_before_are_kept(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path / "j", DIM)
    for row in (3, 4):
        journal.append(np.array([row]), np.full((1, DIM), row, np.float32))
    os.truncate(tmp_path / "j", (tmp_path / "j").stat().st_size - cut)
    assert [(row, value.tolist()) for row, value in journal.replay()] == [(3, [3.0] * DIM)]


def test_a_record_that_was_damaged_ends_what_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", DIM)
    for row in (3, 4, 5):
        journal.append(np.array([row]), np.full((1, DIM), row, np.float32))
    content = bytearray((tmp_path / "j").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "j").write_bytes(content)
    assert [row for row, _ in journal.replay()] == [3]


def test_a_disk_that_is_full_loses_no_update(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    cache = cache_of(small_disk / "v")
    with (small_disk / "filler").open("wb", buffering=0) as sink, pytest.raises(OSError, match="No space left"):
        while sink.write(bytes(4096)):
            pass
    expected = train_by_chance(cache, 100)
    assert "No space left on device; changes are written to" in capsys.readouterr().err
    os.close(cache.journal.file)  # as a killed process leaves it
    np.testing.assert_array_equal(cache_of(small_disk / "v").get(np.arange(ROWS)), expected)


def test_a_disk_without_room_for_the_file_is_refused_before_anything_is_trained(small_disk: Path) -> None:  # noqa: F811
    with pytest.raises(InputError, match=r"v: No space left on device; 4 MB are needed for 100000 vectors"):
        EmbeddingCache(small_disk / "v", 100_000, 10, l1_mb=1, l2_mb=1, batch=4)
    assert list(small_disk.iterdir()) == []


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(bytes(10))
    with pytest.raises(InputError, match=r"v: has 10 bytes; expected 6400 for 200 vectors of 8 values"):
        cache_of(tmp_path / "v")
