"""Same crash or another one."""

from __future__ import annotations

import dataclasses

import pytest

from matrix.diagnosis.clusters import CUT, Crashes, distance, major, minor, refused, relevant
from matrix.records import Exit, Frame, Observation, Trial


def native(text: str) -> Frame:
    library, _, function = text.partition("!")
    return Frame(function=function, library=library, kind="native", trust="symbol" if function else "library")


def python(function: str) -> Frame:
    return Frame(function=function, place="train.py:3", kind="python", trust="interpreter")


def seen(*stack: Frame) -> Observation:
    died = Exit(returncode=-11, signal="SIGSEGV")
    return Observation(attempt="1", key="k", trial=Trial(id=1, cell={}), exit=died, wall_s=1, started_unix_s=0, native_stack=list(stack))


NATIVE = ("libc.so.6!__strlen_avx2", "fastmetric.so!score", "fastmetric.so!batch")
METRIC = [*map(native, NATIVE), python("step"), native("python!main")]
FAISS = [native("libfaiss.so!search"), native("libfaiss.so!knn"), python("mine"), native("python!main")]


def test_the_frames_of_runtimes_are_dropped_from_the_major_level_and_kept_in_the_minor_one() -> None:
    assert major(seen(*METRIC)) == "SIGSEGV fastmetric.so!score < fastmetric.so!batch"
    assert (minor(seen(*METRIC)) or "").startswith("libc.so.6!__strlen_avx2 < fastmetric.so!score")


def test_python_frames_stand_in_where_every_native_frame_is_a_runtimes() -> None:
    assert major(seen(native("libc.so.6!strlen"), python("inner"), python("outer"))) == "SIGSEGV train.py!inner < train.py!outer"


@pytest.mark.parametrize(
    ("stack", "why"),
    [
        ([], "no frame"),
        ([native("libc.so.6!raise")], "no frame"),
        ([native("libc.so.6!abort"), native("libc.so.6!_int_free"), native("libtorch.so!drop")], "allocator"),
        ([native("libc.so.6!__libc_malloc"), native("libtorch.so!make")], "allocator"),
        ([native("fastmetric.so!down")] * 80, "recursion"),
    ],
)
def test_a_stack_that_says_too_little_gets_no_signature(stack: list[Frame], why: str) -> None:
    assert why in refused(stack)
    assert major(seen(*stack)) is None and minor(seen(*stack)) is None


def test_the_distance_is_0_for_equal_and_1_for_unrelated_stacks_and_the_top_counts_most() -> None:
    a, b = relevant(METRIC), relevant(FAISS)
    assert (distance(a, a), distance(a, b)) == (0.0, 1.0)
    frames = [native(f"lib.so!f{n}") for n in range(6)]
    other = native("lib.so!g")
    assert distance(frames, [other, *frames[1:]]) > distance(frames, [*frames[:5], other]) > 0


def test_a_longer_tail_of_callers_is_the_same_crash() -> None:
    assert distance(relevant(METRIC), [*relevant(METRIC), native("libtorch.so!run"), native("libtorch.so!loop")]) < CUT


def test_another_crash_of_the_same_signal_gets_a_name_of_its_own_once_the_first_is_steady() -> None:
    crashes = Crashes()
    assert [crashes.name("SIGSEGV", seen(*METRIC)) for _ in range(3)] == ["SIGSEGV"] * 3
    assert [crashes.name("SIGSEGV", seen(*FAISS)) for _ in range(2)] == ["SIGSEGV in libfaiss.so"] * 2
    assert crashes.name("SIGSEGV", seen(*METRIC)) == "SIGSEGV"
    assert (crashes.several, crashes.stacks("SIGSEGV")) == (True, 6)


def test_a_crash_that_wanders_keeps_one_name() -> None:
    """A damaged heap crashes anywhere: its attempts must not be taken for different faults."""
    crashes = Crashes()
    places = [[native(f"lib{n}.so!f")] for n in range(6)]
    assert {crashes.name("SIGSEGV", seen(*place)) for place in places} == {"SIGSEGV"}
    assert not crashes.several


def test_an_attempt_without_a_stack_is_never_told_apart() -> None:
    crashes = Crashes()
    for _ in range(3):
        crashes.name("SIGSEGV", seen(*METRIC))
    assert crashes.name("SIGSEGV", seen()) == "SIGSEGV"


def test_a_hang_has_no_crash_to_compare() -> None:
    hung = dataclasses.replace(seen(*METRIC), exit=Exit(returncode=-9, signal="SIGKILL", ended_by="idle"))
    assert Crashes().name("hang", hung) == "hang"
