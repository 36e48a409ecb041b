"""Each cause of the catalogue has its evidence, and the evidence of one accuses no other; made observations, one rule at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from matrix.diagnosis import addresses, catalogue, figures, judge, limits, native, probing, samples
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import RemedyKind
from matrix.diagnosis.native_causes import ARGUMENT, CORRUPTION
from matrix.evidence.messages import WORDS
from matrix.records import (
    Bound,
    CrashDump,
    Death,
    Exit,
    Fault,
    Filesystem,
    ForkEvent,
    Frame,
    Load,
    Memory,
    Message,
    MessageKind,
    Metric,
    Observation,
    ProcessMemory,
    ProcessSeen,
    ProcessSettings,
    Progress,
    PythonError,
    ShortFile,
    Slope,
    Trend,
    Trial,
    Verdict,
)
from matrix.runner import probes
from matrix.search import Search
from tests.matrix.test_diagnosis import SPEC, died, hung, lived, verdict

PAGE = 4096
VOCABULARY = {
    "openmp_runtime_conflict", "fork_unsafe", "shm_or_disk_full", "file_changed_under_mmap", "memory_working_set", "memory_retention",
    "memory_worker_multiplication", "memory_allocator_retention", "resource_limit", "watchdog_or_time_limit", "illegal_instruction",
    "stack_overflow", "native_memory_corruption", "native_bad_argument", "native_thread_race", "numerical_divergence",
    "binary_incompatibility", "external_signal", "deadlock", "cpu_bound_stall", "library_exit", "corrupt_input_data",
    "device_backend_fault", "python_exception",
}  # fmt: skip


def segv(**facts: Any) -> dict[str, Any]:
    return {**died("SIGSEGV"), "exit": Exit(returncode=-11, signal="SIGSEGV"), **facts}


def fault(address: int | None, **more: Any) -> Fault:
    return Fault(
        **{"source": "core", "tid": 7, "trap": "segfault", "address": address, "mapping": "nothing", "library": "libjob.so", **more}
    )


def says(kind: Any, text: str) -> list[Message]:
    return [Message(kind=kind, text=text, stream="stderr")]


def raised(kind: str, message: str) -> PythonError:
    return PythonError(type=kind, message=message)


def failed(**facts: Any) -> dict[str, Any]:
    return {**lived(), "exit": Exit(returncode=1), **facts}


def first(facts: dict[str, Any], survivor: dict[str, Any] | None = None) -> tuple[str, str]:
    return first_of(of(facts, survivor))


def first_of(found: Verdict) -> tuple[str, str]:
    return found.ranking[0].cause, found.ranking[0].grade


def of(facts: dict[str, Any], survivor: dict[str, Any] | None = None) -> Verdict:
    other = survivor or lived()
    return verdict({("u", 1): facts, ("v", 1): other, ("v", 2): other})


# ------------------------------------------------------------------ the catalogue itself
def test_the_catalogue_holds_the_whole_vocabulary_and_nothing_else() -> None:
    assert set(catalogue.CAUSES) == VOCABULARY


def test_every_prediction_names_a_probe_that_exists_and_a_chance() -> None:
    for cause in catalogue.CAUSES.values():
        assert set(cause.cures_it) <= set(probes.NAMES), cause.name
        assert all(0 < chance < 1 for chance in cause.cures_it.values()), cause.name


def test_every_cause_says_what_it_is_and_what_helps() -> None:
    for cause in catalogue.CAUSES.values():
        assert cause.title and cause.clause and cause.remedies, cause.name
        assert {remedy.kind for remedy in cause.remedies} <= set(get_args(RemedyKind)), cause.name


def test_findings_are_only_about_causes_of_the_catalogue() -> None:
    made = [segv(faults=[fault(16)]), hung(), failed(), failed(python_error=raised("ValueError", "x")), died("SIGBUS"), died("SIGTERM")]
    for facts in made:
        found = of(facts)
        assert {entry.cause for entry in found.ranking} <= VOCABULARY | {"unknown"}


def test_what_ends_by_several_signals_where_no_library_is_ran_code_that_was_given_back() -> None:
    """Code that a library makes while it runs is in no file either, but there one fault ends in one way."""
    opcode = dataclasses.replace(NOWHERE, trap="invalid opcode")
    refused = {**died("SIGILL"), "exit": Exit(returncode=-4, signal="SIGILL"), "faults": [opcode]}
    crashed = segv(faults=[NOWHERE])
    alive = {("v", at): lived() for at in (1, 2)}
    one, several = (verdict({("u", 1): crashed, ("u", 2): other, ("w", 1): crashed, **alive}) for other in (crashed, refused))
    assert one.ranking[0].grade != "confirmed"
    assert (several.ranking[0].cause, several.ranking[0].grade) == ("native_memory_corruption", "confirmed")


GENERATED = fault(0x7F2234567890, access="read", ip=0x7F1234567010, library="", code_in="anonymous", code="f20f1004f7c3" + "00" * 10)


def test_an_index_that_generated_code_took_too_far_is_an_argument_and_emptied_code_is_no_code() -> None:
    def found(*faults: Fault) -> tuple[str, str]:
        death = segv(faults=list(faults))
        deaths = {("u", 1): death, ("w", 1): death}
        return first_of(verdict({**deaths, ("v", 1): lived(), ("v", 2): lived()}, probed={"poisoned_heap": death}))

    led_away = dataclasses.replace(GENERATED, index_bytes=1 << 36)
    assert found(led_away) == ("native_bad_argument", "confirmed")
    assert found(GENERATED)[1] != "confirmed"  # it may have been other code by then
    assert found(dataclasses.replace(led_away, code="")) == found(dataclasses.replace(GENERATED, code=""))  # nobody knows what it ran
    for byte in ("00", "cc"):
        assert found(dataclasses.replace(GENERATED, code=byte * 16, index_bytes=1 << 36))[0] == "native_memory_corruption"
    assert found(dataclasses.replace(GENERATED, code="cc"))[0] != "native_memory_corruption"  # the last byte of what the core holds


def test_an_instruction_of_an_extension_in_generated_code_is_one_that_the_processor_lacks_and_other_bytes_are_not() -> None:
    def found(code: str, code_in: Any = "anonymous") -> tuple[str, str]:
        refused = dataclasses.replace(GENERATED, trap="invalid opcode", address=None, access=None, code=code + "00" * 10, code_in=code_in)
        return first({**died("SIGILL"), "exit": Exit(returncode=-4, signal="SIGILL"), "faults": [refused]})

    assert found("62f17c4858c1") == ("illegal_instruction", "confirmed")  # a register of 512 bits
    assert found("060708090a0b")[1] != "confirmed"
    assert found("62f17c4858c1", "no code")[0] != "illegal_instruction"


# ------------------------------------------------------------------ native code
STACK = {"stack_distance_bytes": 64, "stack_left_bytes": 0, "mapping": "no access"}
NOWHERE = fault(None, trap="general protection", ip=0x7F1234567010, library="", index_bytes=1 << 44)
NATIVE: dict[str, tuple[str, dict[str, Any]]] = {
    "a fault below the stack": ("stack_overflow", segv(faults=[fault(0x7F0000000000, **STACK)])),
    "a recursion that ran off the stack": (
        "stack_overflow",
        segv(
            faults=[fault(0x7F0000000000, **STACK)],
            native_stack=[Frame(function="put", library="libtree.so", kind="native", trust="symbol")] * 80,
        ),
    ),
    "a heap that was found damaged": (
        "native_memory_corruption",
        died(messages=says("heap damaged", "free(): double free detected in tcache 2")),
    ),
    "an index that points nowhere": ("native_bad_argument", segv(faults=[fault(0x7F1234567890)])),
    "an index to nowhere": ("native_bad_argument", segv(faults=[fault(None, trap="general protection", index_bytes=1 << 44)])),
    "a read behind the end": ("native_bad_argument", segv(faults=[fault(0x7F1234567000, access="read")])),
    "a read behind what is there": (
        "native_bad_argument",
        segv(faults=[fault(0x7F1234567000, access="read", before="anonymous")]),
    ),
    "an instruction that is unknown": (
        "illegal_instruction",
        {**died("SIGILL"), "exit": Exit(returncode=-4, signal="SIGILL"), "faults": [fault(None, trap="invalid opcode")]},
    ),
    "a module for another NumPy": (
        "binary_incompatibility",
        segv(faults=[fault(0x10)], messages=says("numpy abi", "A module that was compiled using NumPy 1.x cannot be run in NumPy 2")),
    ),
}


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_crash_is_told_by_its_address_and_words(name: str) -> None:
    cause, facts = NATIVE[name]
    assert first(facts)[0] == cause


@pytest.mark.parametrize(("offset", "before"), [(addresses.MMAP_HEADER, ""), (addresses.MMAP_HEADER, "anonymous"), (0, "nothing")])
def test_a_block_that_was_given_back_is_corruption_and_a_read_behind_the_end_is_not(offset: int, before: str) -> None:
    """What runs off an end has something before it."""
    freed = of(segv(faults=[fault(0x7F1234567000 + offset, before=before)]))
    assert freed.ranking[0].cause in ("native_memory_corruption", "unknown")
    shares = {entry.cause: entry.probability for entry in freed.ranking}
    assert shares["native_memory_corruption"] > 5 * shares.get("native_bad_argument", 0.0)


def thread(*functions: str, python: str = "job.py:9", library: str = "libindex.so") -> list[Frame]:
    frames = [Frame(function=name, library=library, kind="native", trust="symbol") for name in functions]
    return [*frames, Frame(function="work", place=python, kind="python", trust="interpreter")]


def test_another_thread_with_a_call_of_its_own_in_the_same_library_is_a_race() -> None:
    stacks: dict[str, Any] = {"native_stack": thread("search"), "other_stacks": [thread("add", python="job.py:20")]}
    assert first(segv(faults=[fault(0x7F1234567890)], **stacks))[0] == "native_thread_race"


def test_another_thread_that_was_seen_in_one_death_of_many_speaks_against_a_wrong_argument_too() -> None:
    alone = segv(faults=[fault(0x7F1234567890)], native_stack=thread("search"), other_stacks=[thread("futex_wait")])
    seen = {**alone, "other_stacks": [thread("add", python="job.py:20")]}
    found = verdict({("u", 1): alone, ("w", 1): seen, ("w", 2): seen, ("v", 1): lived(), ("v", 2): lived()})
    assert found.ranking[0].cause == "native_thread_race"
    assert sum(entry.probability for entry in found.ranking if entry.cause == "native_bad_argument") < 0.4


@pytest.mark.parametrize(
    "other",
    [thread("futex_wait"), thread("pause", "gather"), thread("gather")[:1], thread("gather", library="libother.so")],
    ids=["waits", "waits in a call", "of a pool", "elsewhere"],
)
def test_a_thread_that_waits_or_works_for_the_same_call_or_elsewhere_is_no_race(other: list[Frame]) -> None:
    found = of(segv(faults=[fault(0x7F1234567890)], native_stack=thread("search"), other_stacks=[other]))
    assert all(entry.probability < 0.1 for entry in found.ranking if entry.cause == "native_thread_race")


def test_a_thread_that_queues_at_the_allocator_within_a_call_of_its_own_is_no_idle_one() -> None:
    queues = thread("futex_wait", "__lll_lock_wait_private", "_int_free", "add", python="job.py:20")
    damaged = died(messages=says("heap damaged", "corrupted size vs. prev_size"), native_stack=thread("_int_free", "add"))
    assert of({**damaged, "other_stacks": [queues]}).ranking[0].cause == "native_thread_race"
    assert of(damaged).ranking[0].cause == "native_memory_corruption"


@pytest.mark.parametrize(("steps", "told"), [((11, 11, 11, 11), True), ((11, 11, 11), False), ((11, 11, 12, 11), False), ((0,) * 4, False)])
def test_one_step_in_many_cells_is_a_repeat_too_unless_it_is_among_the_first(steps: tuple[int, ...], told: bool) -> None:
    """Where every run was spent on another cell, none has died twice."""
    deaths = []
    for n, step in enumerate(steps):
        facts = segv(progress=Progress(last_step=step), trial=Trial(id=n, cell={"a1": n, "a2": 1}))
        deaths.append(Observation(attempt=str(n), key="k", wall_s=3.0, started_unix_s=0.0, **facts))
    outcomes = {death.attempt: judge.outcome(death) for death in deaths}
    result = Search(SPEC).result()
    case = Case(known_bad=deaths[0].trial.cell, observations=deaths, outcomes=outcomes, environments={}, result=result, signature="SIGSEGV")
    assert any((found.cause, found.rule) == (ARGUMENT, "repeats") for found in native.findings(case)) is told
    fork = ForkEvent(pid=7, threads_alive=1, start_method="fork", time_s=1.0)
    forked = dataclasses.replace(case, observations=[dataclasses.replace(death, forks=[fork]) for death in deaths])
    assert all((found.cause, found.rule) != (ARGUMENT, "repeats") for found in native.findings(forked))


def asleep_in(*functions: str) -> list[Frame]:
    """A thread of the program's own, from its start, outside Python."""
    names = [(name, "libjob.so" if name in ("evict", "refill") else "libc.so.6") for name in (*functions, "start_thread", "__clone3")]
    return [Frame(function=name, library=library, kind="native", trust="symbol") for name, library in names]


@pytest.mark.parametrize(
    ("other", "is_race"),
    [
        (asleep_in("clock_nanosleep", "nanosleep", "evict"), True),
        (asleep_in("__futex_abstimed_wait_common64", "pthread_cond_wait", "evict"), False),
        (asleep_in("epoll_wait", "evict"), False),
        (asleep_in("clock_nanosleep", "nanosleep", "refill"), False),
    ],
    ids=["halfway", "waits for a thread", "has nothing to do", "elsewhere in the library"],
)
def test_a_thread_halfway_through_the_function_that_met_the_damage_is_a_race_unless_it_waits_for_a_lock(
    other: list[Frame], is_race: bool
) -> None:
    damaged = died(messages=says("heap damaged", "double free or corruption (!prev)"), native_stack=asleep_in("_int_free", "free", "evict"))
    found = of({**damaged, "other_stacks": [other]})
    assert found.ranking[0].cause == ("native_thread_race" if is_race else "native_memory_corruption")


def test_a_pointer_of_the_bytes_that_freed_memory_is_filled_with_was_read_from_such_memory() -> None:
    answers = {("u", 1): segv(faults=[fault(8)]), ("v", 1): lived(), ("v", 2): lived()}
    filling = {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165"}

    def told(filled: int | None, **env: str) -> tuple[str, float]:
        poisoned = segv(faults=[fault(None, trap="general protection", filled=filled)], env_at_exec=env)
        top = verdict(answers, probed={"poisoned_heap": poisoned}).ranking[0]
        return top.cause, top.probability

    assert min(told(0xDD, **filling), told(165, **filling))[0] == "native_memory_corruption" == told(165, MALLOC_PERTURB_="165")[0]
    usual = told(None, **filling)
    assert usual == told(0x5A, **filling) == told(0xDD) != told(0xDD, **filling)  # others, and none were filled with those


def test_a_damaged_heap_under_a_probe_that_does_not_check_it_says_nothing_new() -> None:
    damaged = died(messages=says("heap damaged", "double free or corruption (!prev)"))
    answers = {("u", 1): segv(faults=[fault(0x7F1234567890)]), ("v", 1): lived(), ("v", 2): lived()}
    told = [verdict(answers, probed={name: damaged}).ranking[0].cause for name in ("one_core", "checked_heap")]
    assert told == ["native_bad_argument", "native_memory_corruption"]


@pytest.mark.parametrize(("pool", "is_race"), [("libjob.so", True), ("libgomp.so.1", False)], ids=["a thread of its own", "of a pool"])
def test_a_native_thread_in_the_same_library_is_a_race_when_no_pool_started_it(pool: str, is_race: bool) -> None:
    names = (("add_rows", "libjob.so"), ("run", pool), ("start_thread", "libc.so.6"), ("__clone3", "libc.so.6"))
    native = [Frame(function=name, library=library, kind="native", trust="symbol") for name, library in names]
    found = of(segv(faults=[fault(0x7F1234567890)], native_stack=thread("add_rows", library="libjob.so"), other_stacks=[native]))
    assert (found.ranking[0].cause == "native_thread_race") is is_race


def test_a_crash_with_room_on_the_stack_is_no_overflow() -> None:
    found = of(segv(faults=[fault(0x7F1234567890, stack_left_bytes=7 << 20)]))
    assert all(entry.probability < 0.01 for entry in found.ranking if entry.cause == "stack_overflow")


# ------------------------------------------------------------------ limits, room, files, time
def test_descriptors_that_grow_to_their_limit_are_a_resource_limit_whatever_was_raised() -> None:
    grows = Trend(
        what="descriptors",
        pid=7,
        role="main",
        first=12,
        last=128,
        most=128,
        samples=40,
        limit=128,
        per_step=Slope(value=1, low=0.9, high=1.1),
    )
    words = "Too many open files. Communication with the workers is no longer possible."
    facts = failed(python_error=raised("RuntimeError", words), messages=says("too many files", f"RuntimeError: {words}"), trends=[grows])
    assert first(facts) == ("resource_limit", "confirmed")


def test_the_same_words_in_mere_output_confirm_nothing() -> None:
    found = of(died("SIGTERM", messages=says("too many files", "hint: too many open files are bad")))
    assert found.ranking[0].cause == "external_signal"


def bounded(name: str, soft: int, used: int) -> list[ProcessSettings]:
    return [ProcessSettings(pid=7, role="main", last_s=1.0, bounds=[Bound(name=name, soft=soft, hard=soft, used=used)])]


@pytest.mark.parametrize("kind", [kind for kind, (_, weight) in limits.SAID.items() if weight == max(w for _, w in limits.SAID.values())])
def test_the_systems_words_for_what_it_refused_weigh_alike_in_whichever_words(kind: MessageKind) -> None:
    words = f"[Errno 12345] {WORDS[kind][0]}"
    hint = says("bus error", "hint: a bus error may follow") if limits.SAID[kind][0] == "shm_or_disk_full" else []
    facts = failed(python_error=raised("OSError", words), messages=[*says(kind, f"OSError: {words}"), *hint])
    assert first(facts) == (limits.SAID[kind][0], "confirmed")
    no_limit_on_memory = [ProcessSettings(pid=7, role="main", last_s=3.0)]
    assert first({**facts, "settings": no_limit_on_memory}) == (limits.SAID[kind][0], "confirmed")


@pytest.mark.parametrize(
    ("frames", "shown", "settings", "cause"),
    [
        (["cache.py:8 in take"], "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)", [], "python_exception"),
        (["train.py:8 in <module>"], "pid = os.fork()", [], "resource_limit"),
        (["train.py:8 in <module>", "subprocess.py:1885 in _execute_child"], "", [], "resource_limit"),
        (["native.py:8 in call"], "", bounded("pids", 24, 24), "resource_limit"),
    ],
)
def test_what_is_not_available_for_now_may_be_a_lock_where_nothing_was_to_be_started(
    frames: list[str], shown: str, settings: list[ProcessSettings], cause: str
) -> None:
    words = "[Errno 11] Resource temporarily unavailable"
    error = PythonError(type="BlockingIOError", message=words, frames=frames)
    last = says("no more processes", f"BlockingIOError: {words}")
    tail = ["Traceback (most recent call last):", f"    {shown}", last[0].text]
    assert first(failed(python_error=error, messages=last, output_tail=tail, settings=settings)) == (cause, "confirmed")


def test_an_address_that_is_refused_is_a_wrong_setting_at_the_start_and_may_be_a_lack_of_ports_at_work() -> None:
    words = "[Errno 99] Cannot assign requested address"
    facts = failed(python_error=raised("OSError", words), messages=says("no more ports", f"OSError: {words}"))
    assert facts["progress"].last_step and first(facts)[0] == "resource_limit"
    assert first({**facts, "progress": Progress()}) == ("python_exception", "confirmed")


def test_a_file_that_grew_too_large_needs_no_limit_on_the_address_space() -> None:
    assert first(died("SIGXFSZ", settings=[ProcessSettings(pid=7, role="main", last_s=3.0)])) == ("resource_limit", "confirmed")


def test_a_null_pointer_in_a_group_without_room_for_a_thread_is_the_limits_doing() -> None:
    assert first(segv(faults=[fault(8)], settings=bounded("pids", 24, 24))) == ("resource_limit", "confirmed")
    assert first(segv(faults=[fault(8)], settings=bounded("pids", 24, 3)))[0] != "resource_limit"


@pytest.mark.parametrize(
    "refused",
    [
        fault(8),
        fault((1 << 64) - 1, mapping="nothing"),
        fault(0x7F1234567040, mapping="no access", access="write", stack_left_bytes=1 << 20),
    ],
    ids=["null", "MAP_FAILED", "reserved and never made accessible"],
)
def test_what_is_used_unchecked_where_no_mapping_is_left_is_the_limits_doing(refused: Fault) -> None:
    assert first(segv(faults=[refused], settings=bounded("maps", 65530, 65531)), lived(settings=bounded("maps", 65530, 900))) == (
        "resource_limit",
        "confirmed",
    )
    assert first(segv(faults=[refused], settings=bounded("maps", 65530, 900)))[0] != "resource_limit"


def test_a_stack_that_ran_over_is_no_refused_mapping() -> None:
    over = fault(0x7F0000000000, **STACK)
    assert first(segv(faults=[over], settings=bounded("maps", 65530, 65531)))[0] == "stack_overflow"


def test_a_null_pointer_where_the_user_may_have_no_other_watcher_of_files_is_the_limits_doing() -> None:
    assert first(segv(faults=[fault(8)], settings=bounded("inotify", 128, 128))) == ("resource_limit", "confirmed")
    assert first(segv(faults=[fault(8)], settings=bounded("inotify", 128, 70)))[0] != "resource_limit"


@pytest.mark.parametrize("kind", ["out of memory", "cuda out of memory"])
@pytest.mark.parametrize("limit", ["maps", "data", "memlock"])
def test_an_allocation_that_a_limit_of_another_kind_refused_is_that_limits_doing_whatever_its_words_say(limit: str, kind: Any) -> None:
    aborted = died("SIGABRT", messages=says(kind, "pool: out of memory, tried to allocate 4 KiB"))
    assert first({**aborted, "settings": bounded(limit, 65530, 65530)}) == ("resource_limit", "confirmed")
    assert first({**aborted, "settings": bounded(limit, 65530, 40000)})[0] != "resource_limit"


def test_a_null_pointer_under_a_full_address_space_is_the_limits_doing() -> None:
    facts = segv(faults=[fault(0)], settings=bounded("as", 800 << 20, 500 << 20))
    assert first(facts)[0] == "resource_limit"
    assert first(segv(faults=[fault(0)]))[0] != "resource_limit"


@pytest.mark.parametrize("signal", sorted(limits.TIMERS))
def test_a_timers_signal_is_a_time_limit(signal: str) -> None:
    assert first({**died(signal), "exit": Exit(returncode=-9, signal=signal)}) == ("watchdog_or_time_limit", "confirmed")


def room(free: int, use: Any = "shm") -> list[Filesystem]:
    return [Filesystem(folder="/dev/shm", use=use, total_bytes=64 << 20, least_free_bytes=free, last_free_bytes=free, last_s=1.0)]


def test_a_bus_error_with_a_full_file_system_is_a_full_one_and_with_a_shortened_file_is_that() -> None:
    bus = {**died("SIGBUS"), "exit": Exit(returncode=-7, signal="SIGBUS")}
    short = ShortFile(pid=7, path="/data/bank.npy", mapped_to_bytes=1 << 20, size_bytes=PAGE, at_fault=True)
    assert first({**bus, "filesystems": room(0)}) == ("shm_or_disk_full", "confirmed")
    assert first({**bus, "filesystems": room(60 << 20), "short_files": [short]}) == ("file_changed_under_mmap", "confirmed")


def test_a_null_pointer_where_no_file_could_be_made_any_more_is_what_was_refused() -> None:
    no_inode = [dataclasses.replace(place, least_free_inodes=0) for place in room(60 << 20, "written")]
    found = of(segv(faults=[fault(0)], filesystems=no_inode))
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("shm_or_disk_full", "confirmed")
    assert any("no inode for another file" in fact.fact for fact in found.ranking[0].supports)


def test_a_mapped_file_that_nobody_wrote_to_since_was_damaged_before() -> None:
    bus = {**died("SIGBUS"), "exit": Exit(returncode=-7, signal="SIGBUS"), "filesystems": room(60 << 20)}
    short = ShortFile(pid=7, path="/data/bank.npy", mapped_to_bytes=1 << 20, size_bytes=PAGE, at_fault=True)
    whose = {changed: first({**bus, "short_files": [dataclasses.replace(short, changed=changed)]}) for changed in (True, False, None)}
    assert whose[False] == ("corrupt_input_data", "confirmed")
    assert whose[True] == whose[None] == ("file_changed_under_mmap", "confirmed")


def test_code_that_was_rewritten_while_it_was_loaded_explains_a_crash_in_any_place() -> None:
    anew = [ShortFile(pid=7, path="/lib/ops.so", mapped_to_bytes=2 * PAGE, size_bytes=2 * PAGE, changed=True)]
    crash = segv(faults=[fault(0x7F1234567890)])
    assert first({**crash, "short_files": anew}) == ("file_changed_under_mmap", "confirmed")
    assert first(crash)[0] != "file_changed_under_mmap"


FREE = 6 << 30
AMPLE = dataclasses.replace(room(FREE, "written")[0], folder="/data", total_bytes=8 << 30, least_free_inodes=9000)


def test_an_exception_that_reports_a_full_disk_is_a_full_disk() -> None:
    words = "[Errno 28] No space left on device"
    facts = failed(python_error=raised("OSError", words), messages=says("no space", f"OSError: {words}"), filesystems=room(0, "cwd"))
    assert first(facts) == ("shm_or_disk_full", "confirmed")


@pytest.mark.parametrize("free", [AMPLE, dataclasses.replace(AMPLE, least_free_bytes=1 << 30)])
def test_words_about_space_confirm_no_full_disk_where_there_was_ample_room_and_other_limits_are_told_so(free: Filesystem) -> None:
    words = "[Errno 28] No space left on device"
    facts = failed(python_error=raised("OSError", words), messages=says("no space", f"OSError: {words}"), filesystems=[free])
    found = of(facts)
    assert found.ranking[0].cause == "shm_or_disk_full" and (found.ranking[0].grade != "confirmed") is (free is AMPLE)
    watching = of({**facts, "settings": bounded("watches", 192_536, 200)}).ranking[0]
    assert (watching.cause == "resource_limit") is (free is AMPLE)
    told = [fact.fact for entry in found.ranking for fact in [*entry.supports, *entry.contradicts]]
    assert any("inotify" in fact for fact in told) is (free is AMPLE)


def test_deaths_after_the_same_time_at_different_steps_speak_for_a_clock() -> None:
    found = of({**died("SIGTERM"), "exit": Exit(returncode=-15, signal="SIGTERM")})
    assert all("a clock ends it" not in fact.fact for entry in found.ranking for fact in entry.supports)  # one step only


# ------------------------------------------------------------------ figures and input
def test_a_loss_that_became_nan_before_the_crash_explains_it_and_a_finite_one_does_not() -> None:
    nan = [Metric(name="loss", last="nan", last_step=8, values=8, median_abs=1.0, largest_abs=9.0, first_bad="nan", first_bad_step=6)]
    finite = [Metric(name="loss", last="0.3", last_step=8, values=8, median_abs=0.5, largest_abs=1.0)]
    crash = segv(faults=[fault(0x7F1234567890)])
    assert first({**crash, "metrics": nan}, lived(metrics=finite))[0] == figures.DIVERGED
    assert first({**crash, "metrics": nan}, lived(metrics=nan))[0] != figures.DIVERGED
    assert first({**crash, "metrics": finite})[0] != figures.DIVERGED


def growing(*values: str) -> list[Metric]:
    largest = max(map(float, values))
    return [Metric(name="loss", last=values[-1], last_step=60, values=60, recent=list(values), median_abs=1.0, largest_abs=largest)]


@pytest.mark.parametrize(
    ("values", "runs_away"),
    [
        (("2e7", "9e8", "4e10", "3e12", "8e13"), True),  # a factor with every step
        (("3e7", "4e7", "5e7", "6e7", "7e7"), False),  # a counter
        (("2e7", "9e8"), False),  # too few to tell
        (("4e31", "-2e30", "1e36"), True),  # nothing that is counted gets there
    ],
)
def test_a_figure_on_its_way_to_infinity_explains_a_program_that_ended_before_it_printed_that(
    values: tuple[str, ...], runs_away: bool
) -> None:
    finite = [Metric(name="loss", last="1.0", last_step=8, values=8, median_abs=1.0, largest_abs=2.0)]
    ended = failed(metrics=growing(*values))  # a check of its own ended it, with no traceback
    expected = (figures.DIVERGED, "confirmed") if runs_away else ("library_exit", "suspected")
    assert first(ended, lived(metrics=finite)) == expected
    assert first(ended, lived(metrics=growing(*values)))[0] != figures.DIVERGED


def test_an_exception_about_nan_is_divergence_though_the_figures_before_it_were_finite() -> None:
    finite = [Metric(name="loss", last="1.0", last_step=8, values=8, median_abs=1.0, largest_abs=2.0)]
    found = failed(python_error=raised("ValueError", "cannot convert float NaN to integer"), metrics=finite)
    assert first(found, lived(metrics=finite)) == ("numerical_divergence", "confirmed")


def test_a_warning_of_nan_that_no_survivor_printed_explains_a_crash_though_the_figures_that_were_printed_are_finite() -> None:
    finite = [Metric(name="correct", last="9", last_step=8, values=8, median_abs=7.0, largest_abs=9.0)]
    warned = says("bad number", "job.py:54: RuntimeWarning: invalid value encountered in multiply")
    crash = segv(faults=[fault(0x55CD3D3FE820, access="write", index_bytes=-(1 << 33) + 2048)], metrics=finite, messages=warned)
    assert first(crash, lived(metrics=finite)) == (figures.DIVERGED, "confirmed")
    assert first(crash, lived(metrics=finite, messages=warned))[0] != figures.DIVERGED
    assert first({**crash, "messages": []}, lived(metrics=finite))[0] != figures.DIVERGED
    damaged = says("heap damaged", "free(): invalid pointer")
    assert first({**died(), "metrics": finite, "messages": [*damaged, *warned]}, lived(metrics=finite))[0] == CORRUPTION


def test_input_that_was_refused_is_damaged_input_and_no_ordinary_exception() -> None:
    words = "Error -3 while decompressing data: invalid block type"
    facts = failed(python_error=raised("zlib.error", words), messages=says("corrupt input", f"zlib.error: {words}"))
    assert first(facts) == (samples.CORRUPT, "confirmed")


def test_crashes_that_follow_one_sample_through_batch_sizes_and_orders_are_its_doing() -> None:
    def at(step: int) -> dict[str, Any]:
        return segv(faults=[fault(0x7F1234567000, access="read")], progress=Progress(last_step=step))

    cured = {("v", 1): lived(), ("v", 2): lived()}
    follows = {("u", 1): at(45), ("u", 2): at(22), ("w", 1): at(63), ("w", 2): at(31), **cured}
    assert verdict(follows).ranking[0].cause == samples.CORRUPT
    assert verdict({**follows, ("w", 2): at(40)}).ranking[0].cause == ARGUMENT
    assert verdict({**follows, ("w", 1): at(45), ("w", 2): at(22)}).ranking[0].cause == ARGUMENT  # so dies what fills up
    assert verdict({**follows, ("w", 1): at(91), ("w", 2): at(45)}).ranking[0].cause == ARGUMENT  # and this, at half the speed


# ------------------------------------------------------------------ endings
def test_a_loader_that_gives_up_is_packages_that_do_not_fit_and_no_librarys_exit() -> None:
    told = says("missing symbol", "python: symbol lookup error: libjob.so: undefined symbol: added_later")
    ended = {"exit": Exit(returncode=127), "exit_calls": [], "messages": told}
    found = of(ended)
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("binary_incompatibility", "confirmed")


def test_an_ordinary_exception_is_one() -> None:
    assert first(failed(python_error=raised("KeyError", "'loss'"))) == ("python_exception", "confirmed")


def test_native_code_that_exits_is_a_librarys_exit() -> None:
    assert first(failed(exit=Exit(returncode=255, left_by="native code"))) == ("library_exit", "confirmed")


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGINT"])
def test_a_signal_that_no_instruction_raises_comes_from_outside(signal: str) -> None:
    assert first({**died(signal), "exit": Exit(returncode=-15, signal=signal)}) == ("external_signal", "confirmed")


def test_a_devices_own_error_is_a_device_fault() -> None:
    words = "CUDA error: an illegal memory access was encountered"
    facts = failed(python_error=raised("RuntimeError", words), messages=says("cuda error", f"RuntimeError: {words}"))
    assert first(facts)[0] == "device_backend_fault"


def test_a_devices_lack_of_memory_is_a_memory_cause() -> None:
    words = "CUDA out of memory. Tried to allocate 2.00 GiB"
    facts = failed(python_error=raised("torch.OutOfMemoryError", words), messages=says("cuda out of memory", words))
    assert first(facts)[0] == "memory_working_set"


# ------------------------------------------------------------------ hangs
def process(**facts: Any) -> ProcessSeen:
    return ProcessSeen(**{"pid": 7, "ppid": 1, "role": "main", "name": "python", "state": "S", "window_s": 2.0, **facts})


def test_sleepers_in_locks_without_a_fork_are_a_deadlock() -> None:
    waits = process(wchan="futex_do_wait", threads=3, stack=["libpython in PyThread_acquire_lock_timed", "job.py:5 in work"])
    assert first(hung(processes=[waits])) == ("deadlock", "confirmed")


def test_one_thread_that_spins_and_makes_no_step_is_a_stall_that_the_number_of_threads_could_not_cure() -> None:
    spins = process(state="R", cpu_delta_s=0.9, runnable_threads=1, stack=["job.py:30 in clean"])
    single = Memory(oom_kills=0, processes=[ProcessMemory(pid=7, role="main", threads=1)])
    answers = {("u", 1): hung(processes=[spins], memory=single), ("v", 1): lived(), ("v", 2): lived()}
    found = verdict(answers, probed={"one_thread": hung(processes=[spins])}).ranking[0]
    assert (found.cause, found.grade) == ("cpu_bound_stall", "confirmed")
    assert all("one_thread" not in fact.fact for fact in found.contradicts)


@pytest.mark.parametrize(("own_s", "others_s", "grade"), [(0.1, 0.1, "confirmed"), (0.9, 0.1, "suspected"), (0.1, 0.9, "suspected")])
def test_a_busy_step_for_which_was_waited_hardly_longer_than_others_take_is_no_stall_for_certain(
    own_s: float, others_s: float, grade: str
) -> None:
    """Steps that grow by design (longer sequences, more negatives) come to their end, each later than the one before."""
    spins = process(state="R", cpu_delta_s=0.9, runnable_threads=1, stack=["job.py:30 in clean"])
    alone = Memory(oom_kills=0, processes=[ProcessMemory(pid=7, role="main", threads=1)])

    def paced(longest_s: float) -> Progress:
        return Progress(last_step=9, first_step_s=0.1, last_step_s=1.0, longest_gap_s=longest_s)  # of 3 s

    well = lived(progress=paced(others_s))
    answers = {("u", 1): hung(processes=[spins], memory=alone, progress=paced(own_s)), ("v", 1): well, ("v", 2): well}
    found = verdict(answers, probed={"one_thread": hung(processes=[spins])}).ranking[0]
    assert found.grade == grade


def test_many_spinning_threads_on_few_processors_are_a_stall() -> None:
    spins = process(state="R", threads=32, cpu_delta_s=2.0)
    assert first(hung(processes=[spins], load=Load(cpus=2, runnable_mean=30.0, runnable_most=32, looks=5))) == (
        "cpu_bound_stall",
        "confirmed",
    )


def test_a_crash_in_a_forked_worker_is_the_forks_doing_where_workers_that_are_started_anew_live() -> None:
    fork = ForkEvent(pid=7, threads_alive=1, start_method="fork", time_s=1.0)
    ended = Death(pid=9, role="worker", signal="SIGSEGV", status=None, time_s=2.0, part="initiating")
    facts = failed(faults=[fault(0, tid=9)], forks=[fork], deaths=[ended])
    crew = Memory(isolation="none", processes=[ProcessMemory(pid=9, role="worker", last_s=2.0)])
    assert first(facts, lived(memory=crew))[0] == "fork_unsafe"
    assert first(facts, lived(memory=crew, forks=[fork]))[0] != "fork_unsafe"  # they are forked there too
    assert first(facts, lived())[0] != "fork_unsafe"  # there are none
    assert first({**facts, "deaths": [dataclasses.replace(ended, pid=7, role="main")]}, lived(memory=crew))[0] != "fork_unsafe"


def test_a_child_that_waits_in_a_pool_whose_threads_it_lost_is_an_unsafe_fork_also_with_a_thread_of_its_own() -> None:
    fork = ForkEvent(pid=7, threads_alive=4, start_method="fork", time_s=1.0)
    child = process(
        pid=8, ppid=7, role="worker", wchan="futex_do_wait", threads=2, stack=["libgomp.so.1 in ?", "libgomp.so.1 in GOMP_parallel"]
    )
    facts = hung(processes=[process(wchan="poll_schedule_timeout"), child], forks=[fork])
    assert first(facts)[0] == "fork_unsafe"


# ------------------------------------------------------------------ interventions
def shares(**named: float) -> Mapping[str, float]:
    return {**named, "unknown": 1 - sum(named.values())}


def case_of(*observations: Observation) -> Any:
    from matrix.diagnosis.case import Case
    from matrix.search import Search
    from tests.matrix.test_diagnosis import BAD, SPEC

    search = Search(SPEC)
    trial = search.ask()
    assert trial is not None
    death = Observation(attempt="0001-0", key="k", trial=trial, wall_s=1.0, started_unix_s=0.0, **segv(progress=Progress(last_step=5)))
    search.tell(trial, judge.outcome(death))
    seen = [death, *observations]
    outcomes = {each.attempt: judge.outcome(each) for each in seen}
    return Case(known_bad=BAD, observations=seen, outcomes=outcomes, environments={}, result=search.result(), signature="SIGSEGV")


def test_the_probe_that_separates_the_leading_causes_is_proposed() -> None:
    found = probing.propose(
        case_of(), shares(stack_overflow=0.45, native_bad_argument=0.45), catalogue.CAUSES, lambda name: True, probes.NAMES
    )
    assert found is not None and found.name == "larger_stacks"


def test_no_probe_is_proposed_for_a_clear_cause_or_one_that_cannot_be_had() -> None:
    clear, open_ = shares(stack_overflow=0.95), shares(stack_overflow=0.45, native_bad_argument=0.45)
    assert probing.propose(case_of(), clear, catalogue.CAUSES, lambda name: True, probes.NAMES) is None
    assert probing.propose(case_of(), open_, catalogue.CAUSES, lambda name: False, probes.NAMES) is None


def test_a_death_that_goes_away_with_larger_stacks_is_a_stack_overflow_and_one_that_stays_is_less_so() -> None:
    unclear = segv(faults=[fault(0x7F1234567890, stack_left_bytes=None)])
    answers = {("u", 1): unclear, ("v", 1): lived(), ("v", 2): lived()}

    def share(outcome: dict[str, Any]) -> float:
        return next(
            (e.probability for e in verdict(answers, probed={"larger_stacks": outcome}).ranking if e.cause == "stack_overflow"), 0.0
        )

    assert share(lived()) > 3 * share(unclear)


def test_a_probe_that_did_not_take_hold_is_neutral() -> None:
    answers = {("u", 1): segv(), ("v", 1): lived(), ("v", 2): lived()}
    loose = dataclasses.replace(verdict(answers), outcomes={})
    from matrix.records import ProbeResult

    slipped = [ProbeResult(name="larger_stacks", setting="", held=False, how="the program set its own")]
    found = dataclasses.replace(verdict(answers, probed={"larger_stacks": lived(probes=slipped)}), outcomes={})
    assert [(e.cause, e.probability) for e in found.ranking] == [(e.cause, e.probability) for e in loose.ranking]


def test_a_recursion_that_faulthandler_cut_off_speaks_for_the_stack() -> None:
    dump = CrashDump(pid=7, error="Segmentation fault", frames=["job.py:3 in f"], cut_off=True, threads=1)
    assert first(segv(faults=[fault(0x7F0000000000, **STACK)], crash_dumps=[dump]))[0] == "stack_overflow"


def test_an_axis_of_devices_on_which_only_the_cpu_survives_convicts_the_device() -> None:
    from matrix.diagnosis import endings, judge
    from matrix.diagnosis.case import Case
    from matrix.search import Search
    from matrix.spec import Spec

    spec = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": {"d": ["standin", "cpu"], "a2": [1, 2]}})
    search, seen = Search(spec), list[Observation]()
    while (trial := search.ask()) is not None:
        facts = lived() if trial.cell["d"] == "cpu" else segv(faults=[fault(0x7F1234567000, access="write")])
        base: dict[str, Any] = {"attempt": f"{len(seen):04d}-0", "key": "k", "trial": trial, "wall_s": 1.0, "started_unix_s": 0.0}
        seen.append(Observation(**{**base, "progress": Progress(last_step=9), **facts}))
        search.tell(trial, judge.outcome(seen[-1]))
    outcomes = {each.attempt: judge.outcome(each) for each in seen}
    case = Case(
        known_bad=spec.known_bad, observations=seen, outcomes=outcomes, environments={}, result=search.result(), signature="SIGSEGV"
    )
    from matrix.diagnosis.verdict import build

    assert [f.cause for f in endings.findings(case) if f.rule == "contrast"] == ["device_backend_fault"]
    assert build(case, name="made", complete=True, wall_s=1.0).ranking[0].cause == "device_backend_fault"


@pytest.mark.parametrize(("ends", "expected"), [("survived", 1), ("died", -1)])
def test_an_axis_that_leaves_one_thread_to_the_libraries_says_what_the_probe_would(ends: str, expected: int) -> None:

    case: Case = case_of()
    cell = {**case.known_bad, "a2": 2}
    facts = segv(progress=Progress(last_step=5)) if ends == "died" else {"exit": Exit(returncode=0)}
    other = Observation(attempt="0002-1", key="k", trial=Trial(id=2, cell=cell), wall_s=1.0, started_unix_s=0.0, **facts)
    observations = [*case.observations, other]
    told = dataclasses.replace(
        case,
        observations=observations,
        outcomes={each.attempt: judge.outcome(each) for each in observations},
        environments={"0001-0": {"OMP_NUM_THREADS": "2", "A": "1"}, "0002-1": {"OMP_NUM_THREADS": "1", "A": "1"}},
    )
    other_way = dataclasses.replace(told, environments={"0001-0": {"OMP_NUM_THREADS": "2"}, "0002-1": {"OMP_NUM_THREADS": "1", "A": "2"}})
    weights = [each.weight for each in probing.findings(told, catalogue.CAUSES) if each.cause == "native_thread_race"]
    assert len(weights) == 1 and weights[0] * expected > 0
    assert not list(probing.findings(other_way, catalogue.CAUSES))


# ------------------------------------------------------------------ which axes the first death speaks of
def test_the_axis_that_moves_the_likely_cause_is_suspected_by_what_it_sets_and_not_by_its_name() -> None:
    from matrix.diagnosis import suspects
    from matrix.spec import Spec

    axes = {
        "a1": {"choices": {"u": {}, "v": {"env": {"KMP_DUPLICATE_LIB_OK": "1"}}}},
        "a2": {"values": [1, 2], "env": ["OMP_NUM_THREADS"]},
        "omp": {"flag": "--omp", "values": ["one", "two"]},
    }
    spec = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": axes})
    found = suspects.weights(spec, shares(openmp_runtime_conflict=0.9), catalogue.CAUSES)
    assert found["a1"] > 4 and found["a2"] < 1 and "omp" not in found
    assert suspects.weights(spec, {"unknown": 1.0}, catalogue.CAUSES) == {"a1": 1.0, "a2": 1.0}


def under(number: int, cell: Mapping[str, Any], **facts: Any) -> Observation:
    trial = Trial(id=number, cell=dict(cell))
    return Observation(attempt=str(number), key="", trial=trial, exit=Exit(returncode=0), wall_s=1.0, started_unix_s=0.0, **facts)


def with_bound(name: str, soft: int) -> list[ProcessSettings]:
    return [ProcessSettings(pid=1, role="main", last_s=0.0, bounds=[Bound(name=name, soft=soft, hard=soft)])]


def test_an_axis_that_says_what_a_limit_was_is_suspected_where_that_limit_is_the_likely_cause() -> None:
    from matrix.diagnosis import suspects
    from matrix.spec import Spec

    spec = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": {"a": [64, 128], "b": [64, 16], "c": [1, 2]}})
    first = under(1, {"a": 64, "b": 64, "c": 1}, settings=with_bound("nofile", 64))
    likely, unlikely = {"resource_limit": 0.9, "unknown": 0.1}, {"deadlock": 1.0}
    both = suspects.weights(spec, likely, catalogue.CAUSES, [first])
    assert both["a"] == both["b"] > 2 and "c" not in both, "one value each: either may set it"
    second = under(2, {"a": 128, "b": 16, "c": 1}, settings=with_bound("nofile", 128))
    followed = suspects.weights(spec, likely, catalogue.CAUSES, [first, second])
    assert followed["a"] > both["a"] and "b" not in followed
    assert suspects.weights(spec, unlikely, catalogue.CAUSES, [first, second])["a"] == 1.0
    fixed = [first, under(3, {"a": 128, "b": 16, "c": 1}, settings=with_bound("nofile", 64))]
    assert not suspects.weights(spec, likely, catalogue.CAUSES, fixed), "the limit was the same whatever they said"


@pytest.mark.parametrize(
    ("cause", "value", "facts"),
    [
        ("memory_retention", 700, {"kernel_lines": ["[1.0] memory: usage 716800kB, limit 716800kB, failcnt 12"]}),
        (
            "shm_or_disk_full",
            48,
            {"filesystems": [Filesystem(folder="/x", use="shm", total_bytes=48 << 20, least_free_bytes=0, last_free_bytes=0, last_s=1.0)]},
        ),
        ("watchdog_or_time_limit", 3, {"settings": with_bound("cpu", 3)}),
        ("resource_limit", 800, {"settings": with_bound("as", 800 * 10**6)}),
        ("stack_overflow", 256, {"settings": with_bound("stack", 256 << 10)}),
        ("fork_unsafe", "fork", {"forks": [ForkEvent(pid=1, threads_alive=3, start_method="fork", time_s=0.1)]}),
        ("fork_unsafe", 3, {"memory": Memory(processes=[ProcessMemory(pid=n, role="worker") for n in range(3)])}),
    ],
)
def test_whatever_a_run_was_under_is_found_in_what_an_axis_says(cause: str, value: int | str, facts: dict[str, Any]) -> None:
    from matrix.diagnosis import suspects
    from matrix.spec import Spec

    spec = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": {"a": [value, 7777], "b": [11, 12]}})
    assert suspects.weights(spec, {cause: 1.0}, catalogue.CAUSES, [under(1, {"a": value, "b": 11}, **facts)]).keys() == {"a"}


def test_no_limit_and_an_empty_pool_say_nothing_of_any_axis() -> None:
    from matrix.diagnosis import suspects
    from matrix.spec import Spec

    spec = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": {"a": [0, 4], "b": [0, 1]}})
    runs = [under(1, {"a": 0, "b": 0}, settings=with_bound("cpu", 0), memory=Memory(processes=[ProcessMemory(pid=1, role="main")]))]
    assert not suspects.weights(spec, {"watchdog_or_time_limit": 0.5, "fork_unsafe": 0.5}, catalogue.CAUSES, runs)


def test_every_lever_is_an_intervention_that_there_is() -> None:
    from matrix.diagnosis import suspects

    assert set(suspects.LEVERS.values()) <= set(probes.NAMES)


def test_a_frame_that_was_found_overwritten_is_corruption_and_another_heap_says_nothing_of_it() -> None:
    smashed = died(messages=says("stack smashed", "*** stack smashing detected ***: terminated"))
    assert first(smashed) == ("native_memory_corruption", "confirmed")
    answers = {("u", 1): smashed, ("v", 1): lived(), ("v", 2): lived()}
    assert verdict(answers, probed={"checked_heap": smashed}).ranking[0].probability == verdict(answers).ranking[0].probability
    copied = died(messages=says("stack smashed", "*** buffer overflow detected ***: terminated"))
    assert first(copied)[0] == "native_memory_corruption" and first(copied)[1] != "confirmed"
    assert first(smashed, lived(messages=smashed["messages"]))[0] != "native_memory_corruption"  # of a helper that died


def test_an_exception_that_was_raised_from_a_refused_record_is_about_the_data() -> None:
    """A library wraps what its reader met into an exception of its own."""
    refused = "ArrowInvalid: JSON parse error: Invalid encoding in string. in row 200"
    wrapped = dataclasses.replace(raised("DatasetGenerationError", "An error occurred while generating"), raised_from=[refused])
    line = says("corrupt input", f"Failed to read with error {refused}")
    assert first(failed(python_error=wrapped, messages=line))[0] == "corrupt_input_data"
    alone = raised("DatasetGenerationError", "An error occurred while generating")
    assert first(failed(python_error=alone, messages=line))[0] == "python_exception"


def test_threads_that_the_kernel_refused_to_start_are_the_limit_and_not_the_library_that_reports_it() -> None:
    """The count was low again when anybody looked; the kernel's own counter stays."""
    told = says("no more processes", "libgomp: Thread creation failed: Resource temporarily unavailable")
    bound = Bound(name="pids", soft=40, hard=40, used=8, refused=1)
    settings = [ProcessSettings(pid=9, role="main", last_s=1.0, bounds=[bound])]
    left = Exit(returncode=1, left_by="native code")
    facts = {**failed(messages=told, settings=settings), "exit": left}
    cause, grade = first(facts)
    assert cause == "resource_limit" and grade in ("supported", "confirmed")
    unseen = [dataclasses.replace(settings[0], bounds=[dataclasses.replace(bound, refused=0)])]
    share = {entry.cause: entry.probability for entry in of({**facts, "settings": unseen}).ranking}
    proven = {entry.cause: entry.probability for entry in of(facts).ranking}
    assert proven["resource_limit"] > share["resource_limit"] and proven["library_exit"] < share["library_exit"]
    assert first(facts, {**lived(), "settings": settings})[1] not in ("confirmed",)
