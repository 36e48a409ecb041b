"""Made deaths whose evidence looks like that of another cause: the wrong cause is never confirmed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.records import Bound, Death, Exit, Fault, Filesystem, Frame, HeapError, Memory, Metric, ProcessSettings, Progress, ShortFile
from tests.matrix.test_diagnosis import GIB, both, died, lived, verdict
from tests.matrix.test_diagnosis_catalogue import failed, fault, raised, says, segv
from tests.matrix.test_diagnosis_memory import killed, workers
from tests.matrix.test_diagnosis_memory import lived as lived_with

MIB = 1 << 20
NULL = segv(faults=[fault(0)])
KEY = failed(python_error=raised("KeyError", "'loss'"))
NAN = [Metric(name="val_loss", last="nan", last_step=8, values=8, first_bad="nan", first_bad_step=0)]
TOKENS = [Metric(name="tokens", last="5000000", last_step=8, values=8, median_abs=1.0, largest_abs=5e6)]
FULL = [Filesystem(folder="/data", use="written", total_bytes=GIB, least_free_bytes=0, last_free_bytes=0, last_s=1.0)]


def as_limit(soft: int, used: int) -> list[ProcessSettings]:
    return [ProcessSettings(pid=7, role="main", last_s=3.0, bounds=[Bound(name="as", soft=soft, hard=soft, used=used)])]


def trapped(**facts: Any) -> dict[str, Any]:
    return {**died("SIGILL"), "exit": Exit(returncode=-4, signal="SIGILL"), **facts}


BOTH_SAY: dict[str, tuple[str, dict[str, Any], Any, str]] = {
    "a missing symbol in every run and a KeyError": ("binary_incompatibility", KEY, "missing symbol", "undefined symbol: x"),
    "a missing symbol in every run and a crash": ("binary_incompatibility", NULL, "missing symbol", "undefined symbol: x"),
    "skipped records in every run and a KeyError": ("corrupt_input_data", KEY, "corrupt input", "skipped record: JSONDecodeError"),
    "skipped records in every run and an abort": ("corrupt_input_data", died(), "corrupt input", "skipped record: JSONDecodeError"),
    "a device's retries in every run": ("device_backend_fault", KEY, "cuda error", "retry: NCCL error"),
    "refused descriptors in every run": ("resource_limit", KEY, "too many files", "hint: too many open files"),
    "a full disk that is reported in every run": ("shm_or_disk_full", KEY, "no space", "cache: no space left on device"),
}


@pytest.mark.parametrize("name", BOTH_SAY)
def test_words_that_survivors_print_too_accuse_nobody(name: str) -> None:
    cause, facts, kind, text = BOTH_SAY[name]
    other = lived(messages=says(kind, text))
    found = verdict({("u", 1): {**facts, "messages": says(kind, text)}, ("v", 1): other, ("v", 2): other})
    assert (found.ranking[0].cause, found.ranking[0].grade) != (cause, "confirmed")
    assert next((e.probability for e in found.ranking if e.cause == cause), 0.0) < 0.3


def error(kind: str, message: str, words: Any, line: str) -> dict[str, Any]:
    return failed(python_error=raised(kind, message), messages=says(words, line))


UD2 = Fault(source="core", tid=7, trap="invalid opcode", code="0f0b90", library="libjob.so")
SHAPE = "cannot reshape array of size 3"
NO_NUMBER, NO_WAVE = "could not convert string to float: 'auto'", "file does not start with RIFF id"
SHORT = {
    **died("SIGBUS"),
    "exit": Exit(returncode=-7, signal="SIGBUS"),
    "faults": [fault(0x7F1234567890, mapping="anonymous")],
    "short_files": [ShortFile(pid=7, path="/d/a.npy", mapped_to_bytes=9000, size_bytes=10)],
}
LOOKS_LIKE: dict[str, tuple[str, dict[str, Any]]] = {
    "an empty message is in every line": ("resource_limit", error("AssertionError", "", "too many files", "EMFILE")),
    "a short message is in many lines": ("shm_or_disk_full", error("KeyError", "2", "no space", "[Errno 28] No space")),
    "a null pointer alone": ("native_bad_argument", NULL),
    "a null pointer far below a limit on the address space": ("resource_limit", {**NULL, "settings": as_limit(64 * GIB, GIB)}),
    "a trap of the compiler": ("illegal_instruction", trapped(faults=[UD2])),
    "words about instructions and a crash": (
        "illegal_instruction",
        {**NULL, "messages": says("bad instruction", "features not available")},
    ),
    "a figure that is NaN from the start": ("numerical_divergence", {**KEY, "metrics": NAN}),
    "a counter that grows": ("numerical_divergence", {**NULL, "metrics": TOKENS}),
    "a name with nan in it": ("numerical_divergence", failed(python_error=raised("KeyError", "'nanobody'"))),
    "a pipe whose other end is gone": ("corrupt_input_data", error("EOFError", "ended early", "corrupt input", "EOFError: ended early")),
    "a shape that does not fit": ("corrupt_input_data", error("ValueError", SHAPE, "corrupt input", f"ValueError: {SHAPE}")),
    "a text that is no number": ("corrupt_input_data", error("ValueError", NO_NUMBER, "corrupt input", f"ValueError: {NO_NUMBER}")),
    "a file of another format": ("corrupt_input_data", error("wave.Error", NO_WAVE, "corrupt input", f"wave.Error: {NO_WAVE}")),
    "a short file that the fault is not in": ("file_changed_under_mmap", SHORT),
}


@pytest.mark.parametrize("name", LOOKS_LIKE)
def test_what_only_looks_like_a_cause_does_not_confirm_it(name: str) -> None:
    cause, facts = LOOKS_LIKE[name]
    found = verdict({("u", 1): facts, ("v", 1): lived(), ("v", 2): lived()})
    assert (found.ranking[0].cause, found.ranking[0].grade) != (cause, "confirmed")


def test_a_disk_that_is_full_in_the_survivors_too_did_not_end_anything() -> None:
    other = lived(filesystems=FULL)
    found = verdict({("u", 1): {**died(), "filesystems": FULL}, ("v", 1): other, ("v", 2): other})
    assert found.ranking[0].cause != "shm_or_disk_full"


def test_a_disk_that_is_full_in_some_survivors_lost_what_the_others_read_back() -> None:
    words = says("corrupt input", "snapshot: checksum mismatch")
    dead, full = {**died(), "filesystems": FULL, "messages": words}, lived(filesystems=FULL)
    roomy = lived(filesystems=[dataclasses.replace(FULL[0], least_free_bytes=GIB // 2)])
    room_saves = verdict({("u", 1): dead, ("u", 2): full, ("v", 1): roomy, ("v", 2): roomy})
    assert room_saves.ranking[0].cause == "shm_or_disk_full"
    never_room = verdict({("u", 1): dead, ("u", 2): full, ("v", 1): full, ("v", 2): full})
    assert never_room.ranking[0].cause != "shm_or_disk_full"


def test_one_death_that_deviates_outvotes_nobody() -> None:
    finite = [Metric(name="loss", last="0.5", last_step=8, values=8, median_abs=0.5, largest_abs=1.0)]
    nan = [Metric(name="loss", last="nan", last_step=8, values=8, median_abs=0.5, largest_abs=1.0, first_bad="nan", first_bad_step=3)]
    answers = {("u", 1): {**NULL, "metrics": finite}, ("u", 2): {**NULL, "metrics": nan}, ("v", 1): lived(), ("v", 2): lived()}
    assert verdict(answers).ranking[0].cause != "numerical_divergence"


def test_a_loss_that_was_always_infinite_before_a_death_explains_it_though_a_run_lived_with_it() -> None:
    finite = [Metric(name="loss", last="0.5", last_step=8, values=8, median_abs=0.5, largest_abs=1.0)]
    inf = [Metric(name="loss", last="inf", last_step=8, values=8, median_abs=0.5, largest_abs=1.0, first_bad="inf", first_bad_step=3)]
    dead = segv(faults=[fault(0x7F1234567890)], metrics=inf)
    alive = lived(metrics=finite)
    runs = {("u", 1): dead, ("u", 2): lived(metrics=inf), ("v", 1): alive, ("v", 2): alive, ("w", 2): lived(metrics=inf)}
    assert (verdict(runs).ranking[0].cause, verdict(runs).ranking[0].grade) == ("numerical_divergence", "confirmed")
    without = {**runs, ("v", 1): lived(metrics=inf)}  # nothing shows any more that it takes the infinite figure
    assert (verdict(without).ranking[0].cause, verdict(without).ranking[0].grade) != ("numerical_divergence", "confirmed")


def test_another_exception_elsewhere_in_the_matrix_is_not_the_cause_of_this_one() -> None:
    words = "[Errno 28] No space left on device"
    elsewhere = failed(python_error=raised("RuntimeError", words), messages=says("no space", f"RuntimeError: {words}"), filesystems=FULL)
    roomy = [dataclasses.replace(FULL[0], least_free_bytes=GIB // 2)]
    here = failed(python_error=raised("RuntimeError", "the size of tensor a must match"), filesystems=roomy)
    found = verdict({("u", 1): here, ("u", 2): elsewhere, ("v", 1): lived(), ("v", 2): lived()})
    assert found.ranking[0].cause == "python_exception"


def test_workers_that_are_as_many_in_the_survivors_multiply_nothing() -> None:
    held = workers(4, 200 * MIB)
    survivor = lived_with(300 * MIB, *workers(4, 40 * MIB))
    found = verdict({("u", 1): killed(None, *held), ("v", 1): survivor, ("v", 2): survivor})
    assert found.ranking[0].cause != "memory_worker_multiplication"


def test_two_runtimes_that_survivors_load_too_without_the_override_are_harmless() -> None:
    other = lived(libraries=both())
    facts = died(libraries=both(), messages=says("heap damaged", "free(): double free detected in tcache 2"))
    found = verdict({("u", 1): facts, ("v", 1): other, ("v", 2): other})
    assert found.ranking[0].cause != "openmp_runtime_conflict"


def test_a_worker_that_the_kernel_killed_is_a_memory_death_also_when_its_parent_ends_with_status_0() -> None:
    facts = {
        "exit": Exit(returncode=0),
        "progress": Progress(last_step=9, finished_line=False),
        "memory": Memory(isolation="cgroup-v1", limit_bytes=GIB, peak_group_bytes=GIB, oom_kills=1),
        "deaths": [Death(pid=8, role="worker", signal="SIGKILL", status=None, time_s=1.0, part="initiating", oom=True)],
    }
    found = verdict({("u", 1): facts, ("v", 1): lived(), ("v", 2): lived()})
    assert found.failures[0].signature == "SIGKILL:memory"


def test_what_valgrind_says_of_another_library_is_not_about_the_crash() -> None:
    stack = [Frame(function="gather", library="libjob.so", kind="native", trust="symbol")]
    here = HeapError(
        pid=7, what="Invalid read of size 8", frames=["gather (in /x/libjob.so)"], about="0 bytes after a block of size 8 alloc'd"
    )
    crash = segv(faults=[fault(0x7F1234567890)], native_stack=stack)
    answers = {("u", 1): crash, ("v", 1): lived(), ("v", 2): lived()}

    def said(error: HeapError) -> list[str]:
        found = verdict(answers, probed={"valgrind": {**crash, "heap_errors": [error]}})
        return [fact.fact for entry in found.ranking for fact in [*entry.supports, *entry.contradicts] if "valgrind saw" in fact.fact]

    assert said(here)
    assert said(dataclasses.replace(here, frames=["gather (job.c:38)"]))  # a library with debug information
    assert not said(dataclasses.replace(here, frames=["strncmp (in /lib/libc.so.6)"]))


@pytest.mark.parametrize(
    ("about", "cause"),
    [
        ("not stack'd, malloc'd or (recently) free'd", "native_bad_argument"),  # of the heap it says nothing
        ("8 bytes inside a block of size 64 free'd", "native_memory_corruption"),
    ],
)
def test_a_read_far_from_every_block_is_no_use_of_freed_memory(about: str, cause: str) -> None:
    stack = [Frame(function="gather", library="libjob.so", kind="native", trust="symbol")]
    crash = segv(faults=[fault(0x7F1234567890)], native_stack=stack)
    read = HeapError(pid=7, what="Invalid read of size 8", frames=["gather (in /x/libjob.so)"], about=about)
    found = verdict({("u", 1): crash, ("v", 1): lived(), ("v", 2): lived()}, probed={"valgrind": {**crash, "heap_errors": [read]}})
    assert found.ranking[0].cause == cause


def test_what_another_thread_freed_within_the_same_library_is_a_race_and_what_python_freed_is_not() -> None:
    stack = [Frame(function="search", library="libindex.so", kind="native", trust="symbol")]
    crash = segv(faults=[fault(0x7F1234567890)], native_stack=stack)
    used = HeapError(
        pid=7,
        what="Invalid read of size 8",
        frames=["search (in /x/libindex.so)", "main (job.c:3)"],
        about="64 bytes inside a block of size 512 free'd",
        freed_by=["free (in /y/vgpreload_memcheck-amd64-linux.so)", "add (in /x/libindex.so)", "start_thread (pthread_create.c:442)"],
        freed_by_other_thread=True,
    )

    def first(error: HeapError) -> tuple[str, str]:
        found = verdict({("u", 1): crash, ("v", 1): lived(), ("v", 2): lived()}, probed={"valgrind": {**crash, "heap_errors": [error]}})
        return found.ranking[0].cause, found.ranking[0].grade

    assert first(used)[0] == "native_thread_race"
    alike = dataclasses.replace(used, freed_by_other_thread=False)  # a thread of the same kind, or the same one
    assert first(alike)[1] != "confirmed"
    python = [used.freed_by[0], "dict_dealloc (dictobject.c:2)", used.freed_by[2]]
    assert first(dataclasses.replace(used, freed_by=python))[0] == "native_memory_corruption"


def test_a_null_pointer_is_no_place_behind_the_end_of_anything() -> None:
    found = verdict({("u", 1): NULL, ("v", 1): lived(), ("v", 2): lived()})
    assert not any("behind the end" in fact.fact for entry in found.ranking for fact in entry.supports)


def test_a_change_that_lifts_a_limit_and_survives_speaks_for_the_limit() -> None:
    bounded, free = as_limit(800 * MIB, 300 * MIB), [ProcessSettings(pid=7, role="main", last_s=3.0)]
    crash = {**NULL, "settings": bounded}
    lifted = verdict({("u", 1): crash, ("v", 1): lived(settings=free), ("v", 2): lived(settings=free)})
    kept = verdict({("u", 1): crash, ("v", 1): lived(settings=bounded), ("v", 2): lived(settings=bounded)})
    assert (lifted.ranking[0].cause, lifted.ranking[0].grade) == ("resource_limit", "confirmed")
    assert any("is none instead of" in fact.fact for fact in lifted.ranking[0].supports)
    assert kept.ranking[0].grade != "confirmed"
