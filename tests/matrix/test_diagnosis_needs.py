"""Roles that causes cannot do without, rivals that must be asked about, and facts that tell kinds apart; made observations."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.diagnosis import catalogue, exchanged, rivals
from matrix.records import (
    Binding,
    Bound,
    CrashDump,
    Death,
    Exit,
    ForkEvent,
    Frame,
    Memory,
    Message,
    ProcessMemory,
    ProcessSeen,
    ProcessSettings,
    Progress,
    PythonError,
    Ranked,
    SharedFile,
    SignalSent,
    Verdict,
)
from matrix.runner import probes
from tests.matrix.test_diagnosis import died, hung, lived, verdict
from tests.matrix.test_diagnosis_catalogue import fault, segv

MIB = 1 << 20


def entry(found: Verdict, cause: str) -> Ranked | None:
    return next((each for each in found.ranking if each.cause == cause), None)


def top(found: Verdict) -> tuple[str, str]:
    return found.ranking[0].cause, found.ranking[0].grade


def of(facts: dict[str, Any], survivor: dict[str, Any] | None = None, **probed: dict[str, Any]) -> Verdict:
    """Two values of one axis: one dies, the other lives; `probed`: runs of the known-bad cell under an intervention."""
    other = survivor or lived()
    return verdict({("u", 1): facts, ("v", 1): other, ("v", 2): other}, probed=probed)


# ------------------------------------------------------------------ roles
def worker(pid: int, size: int, **facts: Any) -> ProcessMemory:
    held = {"peak_rss_bytes": size, "anon_bytes": size, "uss_bytes": size, "first_s": 0.5, "last_s": 3.0}
    return ProcessMemory(**{"pid": pid, "role": "worker", **held, **facts})


def killed(*workers: ProcessMemory, peak: int = 300 * MIB) -> dict[str, Any]:
    main = ProcessMemory(pid=7, role="main", peak_rss_bytes=30 * MIB, anon_bytes=20 * MIB, uss_bytes=20 * MIB, last_s=3.0, threads=1)
    held = Memory(
        isolation="cgroup-v1", limit_bytes=300 * MIB, peak_tree_rss_bytes=peak, oom_kills=1, samples=90, processes=[main, *workers]
    )
    return {"exit": Exit(returncode=-9, signal="SIGKILL"), "memory": held}


def test_a_cause_is_contradicted_where_the_role_that_it_needs_was_taken_away_and_it_dies_alike() -> None:
    """Both values of a2 die, one of them without workers: then no copies in workers are the cause."""
    pool = [worker(8, 120 * MIB), worker(9, 120 * MIB)]
    small = lived()
    answers = {("u", 1): killed(*pool), ("v", 1): small, ("v", 2): small, ("w", 1): killed(*pool)}
    with_pool, without = (verdict({**answers, ("u", 2): other, ("w", 2): other}) for other in (killed(*pool), killed()))
    assert with_pool.ranking[0].cause == "memory_worker_multiplication"
    assert without.ranking[0].cause != "memory_worker_multiplication"
    multiplied = entry(without, "memory_worker_multiplication")
    assert multiplied is None or any("died alike without two workers" in fact.fact for fact in multiplied.contradicts)


def test_one_worker_that_grew_is_no_multiplication_and_one_that_took_its_place_is_not_counted() -> None:
    death = Death(pid=8, role="worker", signal="SIGKILL", status=None, time_s=1.0, part="initiating", oom=True)
    replaced = [worker(8, 240 * MIB, last_s=1.1), worker(9, 8 * MIB), worker(10, 4 * MIB, first_s=1.2)]
    idle = lived(memory=dataclasses.replace(killed(worker(8, 9 * MIB), worker(9, 8 * MIB), peak=50 * MIB)["memory"], oom_kills=0))
    found = of({**killed(*replaced), "deaths": [death]}, idle)
    assert found.ranking[0].cause == "memory_working_set"
    assert any("2 worker processes in both" in fact.fact for fact in found.ranking[0].supports)


# ------------------------------------------------------------------ hangs
def process(**facts: Any) -> ProcessSeen:
    return ProcessSeen(**{"pid": 7, "ppid": 1, "role": "main", "name": "python", "state": "S", "window_s": 1.0, **facts})


POLLS = process(wchan="hrtimer_nanosleep", stack=["libc.so.6 in clock_nanosleep", "launch.py:9 in watch"])


def rank(number: int, line: int, **facts: Any) -> ProcessSeen:
    stack = ["libc.so.6 in ?", "libgroup.so in waitRecv", f"job.py:{line} in step"]
    return process(**{"pid": 8 + number, "ppid": 7, "role": "rank", "rank": number, "wchan": "futex_do_wait", "stack": stack, **facts})


def test_a_launcher_that_polls_hides_no_deadlock_of_its_ranks_and_each_is_named_with_its_line() -> None:
    found = of(hung(processes=[POLLS, rank(0, 30), rank(1, 44)]))
    assert top(found) == ("deadlock", "confirmed")
    facts = [fact.fact for fact in found.ranking[0].supports]
    assert any("rank 0 (pid 8) waits for a lock at job.py:30 in step" in fact for fact in facts)
    assert any("rank 0 waits at job.py:30 in step; rank 1 waits at job.py:44 in step" in fact for fact in facts)
    assert found.ranking[0].form == "ranks apart"


def test_one_helper_that_waits_for_what_to_do_is_no_rank_and_two_programs_that_wait_are_stuck() -> None:
    stack = ["libc.so.6 in read", "serve.py:4 in listen"]
    helpers = [process(pid=8 + at, ppid=7, role="other", wchan="anon_pipe_read", stack=stack) for at in range(2)]
    assert of(hung(processes=[POLLS, *helpers[:1]])).ranking[0].cause != "deadlock"
    assert of(hung(processes=[POLLS, *helpers])).ranking[0].cause == "deadlock"


def test_a_wait_for_a_remote_is_a_hang_also_beside_a_process_that_left_the_program() -> None:
    waits = process(wchan="wait_woken", stack=["libc.so.6 in recv", "job.py:12 in fetch"])
    daemon = process(pid=20, ppid=2, role="other", wchan="hrtimer_nanosleep")
    found = of(hung(processes=[waits, daemon])).ranking[0]
    assert (found.cause, found.form) == ("deadlock", "silent remote")
    child = dataclasses.replace(daemon, ppid=7)
    assert of(hung(processes=[waits, child])).ranking[0].cause != "deadlock"  # it waits for somebody who sleeps


IN_A_POOL = [
    "libc.so.6 in pthread_cond_wait",
    "crew.cc:102 in std::condition_variable::wait<>",
    "crew.cc:11 in crew::go",
    "job.py:3 in work",
]


def forked(threads: int, stack: list[str], names: int = 1) -> dict[str, Any]:
    main = process(wchan="anon_pipe_read", stack=["libc.so.6 in read", "multiprocessing/queues.py:103 in Queue.get", "job.py:8 in main"])
    child = process(pid=8, ppid=7, role="worker", threads=threads, wchan="futex_do_wait", stack=stack)
    event = ForkEvent(pid=7, threads_alive=4, start_method="fork", time_s=1.0, thread_names=["MainThread"] * names)
    return hung(processes=[main, child], forks=[event])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_in_a_native_pool_of_any_name_has_lost_its_threads_whatever_it_started_itself(threads: int) -> None:
    assert of(forked(threads, IN_A_POOL)).ranking[0].cause == "fork_unsafe"


def test_a_child_that_waits_in_python_after_only_pythons_threads_were_lost_is_none() -> None:
    own_lock = ["libc.so.6 in ?", "libpython3.11.so.1.0 in PyThread_acquire_lock_timed", "job.py:3 in work"]
    assert of(forked(2, own_lock)).ranking[0].cause == "deadlock"
    assert of(forked(2, IN_A_POOL, names=4)).ranking[0].cause != "fork_unsafe"


def test_a_deadlock_is_confirmed_only_when_it_was_asked_whether_a_fork_is_to_blame() -> None:
    """The child waits for nobody knows what: a fork may have lost it.  Started anew it hangs as well, or it does not."""
    unknown = forked(2, ["libc.so.6 in ?", "libpython3.11.so.1.0 in PyThread_acquire_lock_timed", "job.py:3 in work"])
    open_, alike, cured = of(unknown), of(unknown, start_spawn=unknown), of(unknown, start_spawn=lived())
    assert top(open_) == ("deadlock", "supported")
    assert [(rival.cause, rival.told, "start_spawn" in rival.probes) for rival in open_.ranking[0].rivals] == [("fork_unsafe", False, True)]
    assert "fork_unsafe looks alike" in open_.status_text
    assert top(alike) == ("deadlock", "confirmed")
    assert top(cured) != ("deadlock", "confirmed")


# ------------------------------------------------------------------ files that workers read by one position
def reader(own: bool, *, moved: bool = True, position: int = 0) -> list[SharedFile]:
    return [SharedFile(path="/data/rows_12.bin", pids=[7, 8, 9], own=own, moved=moved, position=position)]


FORK = [ForkEvent(pid=7, threads_alive=1, start_method="fork", time_s=1.0)]
WRONG = {
    "a crash": segv(faults=[fault(0x7F1234567890)]),
    "an exception": {**lived(), "exit": Exit(returncode=1), "python_error": PythonError(type="ValueError", message="row length 77")},
}


@pytest.mark.parametrize("how", WRONG)
def test_a_file_that_forked_processes_read_by_one_position_is_of_the_fork(how: str) -> None:
    death = {**WRONG[how], "forks": FORK, "shared_files": reader(own=False)}
    assert of(death, lived(forks=FORK, shared_files=reader(own=True))).ranking[0].cause == "fork_unsafe"
    inherited = lived(forks=FORK, shared_files=reader(own=False))
    assert of(death, inherited).ranking[0].cause != "fork_unsafe"  # it moves there as well


# ------------------------------------------------------------------ crashes
def test_memory_that_had_been_there_was_given_back_and_what_never_was_there_is_an_argument() -> None:
    gone, never = (segv(faults=[fault(0x7F1234567890, before="nothing", was_mapped=was)]) for was in (True, False))
    first = of(gone).ranking[0]
    assert (first.cause, first.form, first.title) == ("native_memory_corruption", "given back", "Memory is used after it was given back")
    assert of(never).ranking[0].cause == "native_bad_argument"
    behind = segv(faults=[fault(0x7F1234567000, access="read", before="anonymous", was_mapped=True)])
    led_there = segv(faults=[fault(0x7F1234567890, before="nothing", index_bytes=1 << 30, was_mapped=True)])
    for overrun in (behind, led_there):  # what ran off an end may come to where something else was before
        assert of(overrun).ranking[0].cause == "native_bad_argument"


def test_memory_that_another_thread_in_the_same_library_gave_back_is_a_race() -> None:
    def searches(name: str) -> list[Frame]:
        call = Frame(function="call", place="job.py:9", kind="python", trust="interpreter")
        return [Frame(function=name, library="libindex.so", kind="native", trust="symbol"), call]

    gone = fault(0x7F1234567890, library="libindex.so", before="nothing", was_mapped=True)
    both = segv(faults=[gone], native_stack=searches("scan"), other_stacks=[searches("add")])
    assert of(both).ranking[0].cause == "native_thread_race"
    assert of({**both, "other_stacks": []}).ranking[0].cause == "native_memory_corruption"


def test_an_index_that_holds_what_fresh_memory_is_filled_with_was_never_set() -> None:
    wild = segv(faults=[fault(0x7F1234567890, index_bytes=3112009168)])
    poisoned = {**segv(faults=[fault(0x7F1234567890, index_bytes=0x5A5A5A5A * 4)]), "env_at_exec": {"MALLOC_PERTURB_": "165"}}
    computed = {**wild, "env_at_exec": {"MALLOC_PERTURB_": "165"}}
    assert of(wild, poisoned_heap=poisoned).ranking[0].cause == "native_memory_corruption"
    assert top(of(wild, poisoned_heap=computed)) == ("native_bad_argument", "confirmed")
    assert top(of(wild)) == ("native_bad_argument", "supported")  # nobody asked


def test_a_reference_count_that_the_interpreter_found_spoilt_is_corruption() -> None:
    said = "Fatal Python error: none_dealloc: deallocating None: bug likely caused by a refcount error in a C extension"
    death = died("SIGABRT", messages=[Message(kind="fatal python error", text=said, stream="stderr")])
    assert top(of(death)) == ("native_memory_corruption", "confirmed")
    other = Message(kind="fatal python error", text="Fatal Python error: init_fs_encoding: failed", stream="stderr")
    assert of(died("SIGABRT", messages=[other])).ranking[0].cause != "native_memory_corruption"


ABORTS = [
    Frame(function="abort", library="libc.so.6", kind="native", trust="symbol"),
    Frame(function="os_abort_impl", library="libpython3.11.so.1.0", kind="native", trust="symbol"),
]


@pytest.mark.parametrize(("silent_s", "cause"), [(1.0, "watchdog_or_time_limit"), (0.1, "unknown")])
def test_a_python_thread_that_aborts_in_a_long_step_is_a_watchdog_however_short_its_patience(silent_s: float, cause: str) -> None:
    frames = ["job.py:5 in guard", "threading.py:982 in run", "threading.py:1045 in _bootstrap_inner"]
    dump = CrashDump(pid=7, error="Aborted", frames=frames, cut_off=False, threads=2)
    gave_up = died(
        native_stack=ABORTS, crash_dumps=[dump], wall_s=2.0 + silent_s, progress=Progress(last_step=9, last_step_s=2.0, longest_gap_s=0.05)
    )
    slow = lived(progress=Progress(last_step=20, last_step_s=9.0, longest_gap_s=5.0))
    assert of(gave_up, slow).ranking[0].cause == cause


def test_a_native_thread_that_runs_while_the_process_ends_is_a_race() -> None:
    def frames(*names: str) -> list[Frame]:
        return [
            Frame(function=name, library="liblog.so" if "Log" in name else "libc.so.6", kind="native", trust="symbol") for name in names
        ]

    writer = frames("Log::write()", "start_thread", "__clone3")
    ends = frames("Log::~Log()", "__run_exit_handlers", "exit", "__libc_start_main@@GLIBC_2.34")
    works = frames("poll", "__libc_start_main@@GLIBC_2.34")
    at_exit, before = (of(segv(faults=[fault(16)], native_stack=writer, other_stacks=[stack])) for stack in (ends, works))
    assert (at_exit.ranking[0].cause, at_exit.ranking[0].form) == ("native_thread_race", "at exit")
    assert before.ranking[0].form != "at exit"


# ------------------------------------------------------------------ libraries
def crash_in(library: str, bindings: list[Binding] | None, mapped: list[str]) -> dict[str, Any]:
    stack = [Frame(function="use", library=library, kind="native", trust="symbol")]
    return {**segv(faults=[fault(0x7F1234567890, library=library)]), "native_stack": stack, "mapped": mapped, "bindings": bindings}


APP, OLD, NEW = "/opt/app/use.so", "/opt/old/libit.so.3", "/opt/new/libit.so.3"
TIE = Binding(symbol="it_make", user=APP, to=OLD, own=False)


def test_a_crash_in_the_caller_of_a_library_of_the_same_name_from_another_folder_does_not_fit() -> None:
    survivor = lived(mapped=[APP, NEW])
    assert of(crash_in("use.so", [TIE], [APP, OLD]), survivor).ranking[0].cause == exchanged.BINARY
    chosen = crash_in("libit.so.3", [], [APP, OLD])  # nothing is bound to it: the program opened it by itself, as a backend
    assert of(chosen, survivor).ranking[0].cause != exchanged.BINARY


def test_a_name_that_two_libraries_define_goes_to_the_one_that_was_loaded_first() -> None:
    taken = Binding(symbol="lookup", user="/x/b.so", to="/x/a.so", own=True)
    death = crash_in("b.so", [taken], ["/x/b.so", "/x/a.so"])
    assert of(death, lived(mapped=["/x/a.so", "/x/b.so"])).ranking[0].cause == exchanged.BINARY
    same_order = lived(mapped=["/x/b.so", "/x/a.so"])
    assert of(death, same_order).ranking[0].cause != exchanged.BINARY
    assert of(death, same_order, poisoned_heap=death).ranking[0].grade != "confirmed"  # nothing bound the name otherwise


def test_an_allocator_that_was_loaded_before_the_c_library_and_gets_its_blocks_does_not_fit() -> None:
    freed = Binding(symbol="free", user=APP, to="/usr/lib/liballoc.so.2", own=False, others=["libc.so.6"])
    death = crash_in("liballoc.so.2", [freed], [APP, "/usr/lib/liballoc.so.2", "/usr/lib/libstdc++.so.6", "/usr/lib/libc.so.6"])
    assert of(death, lived(mapped=[APP, "/usr/lib/libc.so.6"])).ranking[0].cause == exchanged.BINARY
    assert of(death, lived(mapped=["/usr/lib/libc.so.6"])).ranking[0].cause != exchanged.BINARY  # its caller is gone as well


# ------------------------------------------------------------------ exits and signals
SPACE = Bound(name="as", soft=585 * MIB, hard=585 * MIB, used=548 * MIB)


def test_an_exit_after_the_systems_own_words_is_of_the_limit_and_no_librarys_whim() -> None:
    said = "libgomp: Thread creation failed: Resource temporarily unavailable"
    facts = {
        "exit": Exit(returncode=1, left_by="native code"),
        "messages": [Message(kind="no more processes", text=said, stream="stderr")],
        "output_tail": [said],
        "settings": [ProcessSettings(pid=7, role="main", last_s=3.0, bounds=[SPACE])],
    }
    for found in (of({**lived(), **facts}), of({**lived(), **facts}, raised_address_space=lived())):
        assert found.ranking[0].cause == "resource_limit"
    silent = {**facts, "messages": [], "output_tail": []}
    assert top(of({**lived(), **silent}))[1] != "confirmed"  # nobody asked whether the limit is to blame
    assert of({**lived(), **silent}, raised_address_space=lived()).ranking[0].cause == "resource_limit"


def sent(name: str, time_s: float, pid: int = 9) -> SignalSent:
    return SignalSent(signal=name, to_pid=7, from_pid=pid, from_name="python", inside=True, by_tool=False, time_s=time_s)


def test_who_asks_first_and_kills_then_is_a_sender_as_schedulers_are_also_from_within_the_tree() -> None:
    death = Death(pid=7, role="main", signal="SIGKILL", status=None, time_s=3.0, part="initiating")
    killed_ = {**died("SIGKILL"), "exit": Exit(returncode=-9, signal="SIGKILL"), "deaths": [death]}
    asked, at_once, by_another = (
        of({**killed_, "signals_sent": [*before, sent("SIGKILL", 3.0)]})
        for before in ([sent("SIGTERM", 2.0)], [], [sent("SIGTERM", 2.0, pid=10)])
    )
    assert top(asked) == ("external_signal", "confirmed")
    assert "SIGTERM 1.0 s before, and it went on" in asked.ranking[0].supports[0].fact
    assert at_once.ranking[0].cause != "external_signal" and by_another.ranking[0].cause != "external_signal"


def test_every_rival_is_a_cause_of_the_catalogue_and_every_probe_is_there() -> None:
    for rival in rivals.RIVALS:
        assert {rival.cause, rival.rival} <= set(catalogue.CAUSES), rival
        assert set(rival.probes) <= set(probes.NAMES), rival
        assert rival.question


# ------------------------------------------------------------------ whose memory, and of which kind
def held(*processes: ProcessMemory, files: int = 0) -> Ranked:
    counted = dataclasses.replace(killed()["memory"], processes=list(processes), peak_group_bytes=300 * MIB, peak_group_shmem_bytes=files)
    return of({**killed(), "memory": counted}).ranking[0]


def test_the_report_says_who_held_the_memory_and_of_which_kind_and_the_advice_follows() -> None:
    main, rank_ = worker(7, 20 * MIB, role="main"), worker(8, 240 * MIB, role="rank", rank=2)
    assert "anonymous memory of rank 2 (pid 8) made up 240 MiB of it" in held(main, rank_).supports[0].fact
    files, neighbour = held(main, files=250 * MIB), held(main, worker(9, 240 * MIB, role="other"))
    assert "250 MiB of it were files in memory file systems" in files.supports[0].fact
    assert "another process beside it (pid 9)" in neighbour.supports[0].fact
    assert (files.form, neighbour.form, held(main, rank_).form) == ("memory files", "neighbour", "")
    assert not any("detach" in remedy.change for remedy in files.remedies)
    mapped = worker(7, 20 * MIB, role="main", shmem_bytes=250 * MIB)
    assert held(mapped, files=250 * MIB).form == ""  # the process has these pages mapped: shared memory, and no files that nobody reads
