"""The form of memory over time: made curves with a known answer, then real children."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.evidence.memory_curve import Series, describe, read
from matrix.evidence.robust import line
from matrix.records import MemoryCurve
from matrix.runner import cgroup
from tests.matrix.conftest import Observe

MIB = 1 << 20
REMEMBERS = str(Path(__file__).parents[1] / "children" / "remembers.py")
needs_cgroup = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")


def made(form: Callable[[float], float], *, seconds: float = 30.0, seed: int = 0, noise: float = 0.5 * MIB, memory: float = 0.0) -> Series:
    """A load of two seconds to 200 MiB, then `form` on top of it, 5 steps a second; the noise forgets with 1 - `memory` a sample."""
    rng, off = random.Random(seed), 0.0
    times, values = [], []
    for at in range(int(seconds * 20)):
        time = at / 20
        off = memory * off + math.sqrt(1 - memory**2) * rng.gauss(0, noise)
        times.append(time)
        values.append(int(min(1.0, time / 2) * 200 * MIB + (form(time - 2) if time > 2 else 0) + off))
    return Series(kind="group", times=times, steps=[None if time < 2 else int((time - 2) * 5) for time in times], values=values)


def form_of(
    form: Callable[[float], float], *, died: bool = False, limit: int | None = None, seed: int = 0, memory: float = 0.0
) -> MemoryCurve:
    return describe(made(form, seed=seed, memory=memory), first_step_s=2.0, limit_bytes=limit, died=died, oom=False)


FORMS: list[tuple[str, Callable[[float], float]]] = [
    ("flat", lambda t: 0),
    ("flat", lambda t: (t * 3 % 1) * 20 * MIB),  # a garbage collector
    ("flat", lambda t: (t / 5 % 1) * 40 * MIB),  # a slow one
    ("linear", lambda t: t * 2 * MIB),
    ("linear", lambda t: t * 0.4 * MIB),
    ("linear", lambda t: int(t * 5) * MIB),  # a stair with every step is growth per step
    ("plateau", lambda t: 100 * MIB * (1 - math.exp(-t / 3))),  # a cache that fills
    ("staircase", lambda t: int(t / 4) * 20 * MIB),
    ("spike", lambda t: 300 * MIB if 12 < t < 13 else 0),
]


@pytest.mark.parametrize("memory", [0.0, 0.95], ids=["independent noise", "noise that lasts a second"])
@pytest.mark.parametrize(("shape", "form"), FORMS)
def test_each_form_is_told_from_the_others(shape: str, form: Callable[[float], float], memory: float) -> None:
    seen = [form_of(form, seed=seed, memory=memory).shape for seed in range(10)]
    assert seen.count(shape) >= 9, seen  # type: ignore[arg-type]


def test_a_rise_in_the_last_moment_before_a_death_is_a_cliff_and_without_a_death_it_is_none() -> None:
    def form(t: float) -> float:
        return 400 * MIB if t > 27.8 else 0

    assert form_of(form, died=True).shape == "cliff"
    assert form_of(form, died=True).rise_at_end_bytes == pytest.approx(400 * MIB, rel=0.05)
    assert form_of(form).shape != "cliff"


def test_a_limit_that_was_met_between_two_samples_is_a_cliff_too() -> None:
    seen = describe(made(lambda t: 0), first_step_s=2.0, limit_bytes=600 * MIB, died=True, oom=True)
    assert (seen.shape, seen.rise_at_end_bytes // MIB) == ("cliff", pytest.approx(400, abs=5))


def test_what_others_hold_after_the_death_that_began_it_is_no_part_of_the_form() -> None:
    series = made(lambda t: t * 20 * MIB if t < 10 else -150 * MIB)
    seen = describe(series, first_step_s=2.0, limit_bytes=None, died=True, oom=True, until_s=12.0)
    assert (seen.shape, seen.end_bytes // MIB) == ("linear", pytest.approx(400, abs=5))
    assert describe(series, first_step_s=2.0, limit_bytes=None, died=True, oom=True).shape != "linear"


def test_growth_that_ends_at_the_limit_is_no_cliff() -> None:
    seen = describe(made(lambda t: t * 10 * MIB), first_step_s=2.0, limit_bytes=480 * MIB, died=True, oom=True)
    assert seen.shape == "linear"


def test_the_start_of_a_program_is_cut_off() -> None:
    """A line through everything would show a leak of 3 MiB/s in a program that only loads its data."""
    series = made(lambda t: 0)
    seen = describe(series, first_step_s=None, limit_bytes=None, died=False, oom=False)
    naive = line(series.times[::20], [float(value) for value in series.values[::20]])
    assert 1.0 <= seen.warmup_s <= 3.0
    assert seen.per_s is not None and naive is not None
    assert abs(seen.per_s.value) < 0.1 * MIB
    assert naive[0].high > seen.per_s.high


def test_slopes_are_per_second_and_per_step() -> None:
    seen = form_of(lambda t: t * 5 * MIB)
    assert seen.per_s is not None and seen.per_step is not None
    assert seen.per_s.low < 5 * MIB < seen.per_s.high
    assert seen.per_step.value == pytest.approx(MIB, rel=0.02)


@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.92), (0.9, 0.90)])
def test_the_interval_of_the_slope_holds_the_truth_as_often_as_it_says(memory: float, least: float) -> None:
    """150 made curves; the nominal 95 % with what chance allows.  Noise that lasts a third of the run would give less."""
    hits = 0
    for seed in range(150):
        seen = form_of(lambda t: t * MIB, seed=seed, memory=memory)
        assert seen.per_s is not None
        hits += seen.per_s.low <= MIB <= seen.per_s.high
    assert hits / 150 >= least


def test_stairs_tell_their_height_and_period() -> None:
    seen = form_of(lambda t: int(t / 4) * 20 * MIB)
    assert seen.stair_bytes == pytest.approx(20 * MIB, rel=0.1)
    assert (seen.stair_s, seen.stair_steps) == (pytest.approx(4, abs=0.3), pytest.approx(20, abs=1.5))


def test_the_first_half_of_a_growth_tells_when_the_limit_will_be_met() -> None:
    limit = 480 * MIB  # met at 30 s
    seen = form_of(lambda t: t * 10 * MIB, limit=limit).forecast
    assert seen and seen.limit_s and seen.low_s and seen.high_s and seen.limit_step
    assert seen.made_s == pytest.approx(16, abs=1)
    assert seen.low_s <= 30 <= seen.high_s
    assert (seen.limit_s, seen.limit_step) == (pytest.approx(30, abs=0.5), pytest.approx(140, abs=3))


def test_nothing_is_forecast_for_memory_that_does_not_grow() -> None:
    seen = form_of(lambda t: 0, limit=480 * MIB).forecast
    assert seen and (seen.limit_s, seen.low_s, seen.high_s, seen.limit_step) == (None, None, None, None)


def test_too_few_samples_say_nothing() -> None:
    few = Series(kind="private", times=[0.1, 0.2, 0.3], steps=[None] * 3, values=[MIB, 2 * MIB, 3 * MIB])
    seen = describe(few, first_step_s=None, limit_bytes=None, died=False, oom=False)
    assert (seen.shape, seen.per_s, seen.peak_bytes) == ("unknown", None, 3 * MIB)


# ------------------------------------------------------------------ memory.csv
HEAD = "time,step,pid,role,rank,device,kind,bytes\n"


def test_file_cache_is_not_charged(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    path.write_text(
        HEAD + "0.0,,,tree,,host,file_cache,100\n0.1,,7,main,,host,rss,500\n0.1,,,tree,,host,used,400\n0.2,3,,tree,,host,used,450\n"
    )
    assert read(path) == Series(kind="group", times=[0.1, 0.2], steps=[None, 3], values=[300, 350])


def test_without_a_group_shared_pages_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    rows = [f"0.1,,{pid},worker,,host,{kind},{value}\n" for pid in (7, 8) for kind, value in (("rss", 500), ("shared", 100))]
    path.write_text(HEAD + "".join(rows))
    assert read(path) == Series(kind="private", times=[0.1], steps=[None], values=[800])


def test_damaged_lines_are_left_out_and_an_empty_file_is_no_curve(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    path.write_text(HEAD + "\0\0\0\n0.1,x,7,main,,host,rss,5\n0.2,1,7,main,,host,rss,500\n0.3,1,7,ma")
    assert read(path) == Series(kind="private", times=[0.2], steps=[1], values=[500])
    path.write_text(HEAD)
    assert read(path) is None


# ------------------------------------------------------------------ real children
@pytest.mark.slow
@pytest.mark.parametrize(
    ("argument", "shape"), [("flat", "flat"), ("grows", "linear"), ("stairs", "staircase"), ("spike", "spike"), ("settles", "plateau")]
)
def test_a_real_child_shows_its_form(observe: Observe, argument: str, shape: str) -> None:
    curve = observe([sys.executable, REMEMBERS, argument, "160"]).curve
    assert curve and curve.shape == shape
    if shape == "linear":
        assert curve.per_step and curve.per_step.value == pytest.approx(MIB, rel=0.15)
    if shape == "staircase":
        assert (curve.stair_bytes, curve.stair_steps) == (pytest.approx(20 * MIB, rel=0.1), pytest.approx(30, abs=3))


@needs_cgroup
@pytest.mark.slow
def test_the_forecast_of_a_growing_child_is_met_by_its_real_death(observe: Observe) -> None:
    seen = observe([sys.executable, REMEMBERS, "grows", "400"], memory=240 * MIB)
    assert (seen.exit.signal, seen.memory.oom_kills) == ("SIGKILL", 1)
    curve = seen.curve
    assert curve and curve.shape == "linear" and curve.forecast and curve.forecast.limit_s and curve.forecast.limit_step
    assert curve.forecast.limit_s == pytest.approx(seen.wall_s, rel=0.15)
    assert curve.forecast.limit_step == pytest.approx(seen.progress.last_step, rel=0.15)


@needs_cgroup
@pytest.mark.slow
def test_a_child_that_is_killed_in_one_large_step_falls_off_a_cliff(observe: Observe) -> None:
    seen = observe([sys.executable, REMEMBERS, "cliff", "100"], memory=240 * MIB)
    assert (seen.exit.signal, seen.memory.oom_kills, seen.progress.last_step) == ("SIGKILL", 1, 99)
    assert seen.curve and seen.curve.shape == "cliff"
    assert seen.curve.rise_at_end_bytes > 150 * MIB
