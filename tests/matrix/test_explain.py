"""What the remains of a death prove: real remains of real deaths, and in both directions, what must not be claimed too."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix import records
from matrix.evidence import memory_curve
from matrix.explain.next_time import next_command
from matrix.records import Exit, Observation, Trial
from matrix.runner import cgroup
from matrix.watch import family
from tests.matrix.command_line import alive, only_run, start, wait_until
from tests.matrix.explaining import explained, grades, piece, refused, run

LIMIT_BYTES = 48 << 20
SEGFAULT = "import ctypes, sys; print('step 7/50', flush=True); ctypes.string_at(16)"
KILLED = """\
step 100 loss=0.31
Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    for batch in loader:
RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.
"""
KERNEL = """\
[12345.678901] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[12345.678999] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/{group},task_memcg=/{group},task=python,pid={pid},uid=0
[12345.679001] Memory cgroup out of memory: Killed process {pid} (python) total-vm:6291456kB, anon-rss:4194304kB, file-rss:1024kB, UID:0
"""
CORES_HERE = Path("/proc/sys/kernel/core_pattern").read_text().strip() in ("core", "core.%p") if sys.platform == "linux" else False


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ------------------------------------------------------------------ a status alone
def test_status_137_alone_names_no_sender_and_suspects_several_causes() -> None:
    found = explained("--status", "137")
    assert found["sigkill"]["grade"] == "unknown"
    assert grades(found) == {"suspected"}
    assert found["ranking"][0]["cause"] == "unknown"
    assert {"external_signal", "memory_retention", "memory_working_set"} <= {entry["cause"] for entry in found["ranking"]}
    assert "that memory ran out" in found["evidence"][0]["not_proves"]
    assert any("dmesg" in one["command"] for one in found["collect"])


def test_a_sender_that_nobody_names_speaks_for_no_cause() -> None:
    ranked = {entry["cause"]: entry for entry in explained("--status", "137")["ranking"]}
    assert not [entry for entry in ranked.values() if entry["supports"]]
    assert ranked["external_signal"]["probability"] == ranked["memory_working_set"]["probability"]
    assert "    for: " not in run("--status", "137").output


def test_a_signal_that_python_names_is_no_wrapped_status() -> None:
    assert explained("--status", "-9")["ended"] == {"by": "SIGKILL", "where": "--status -9", "wrapped": False}
    assert explained("--status", "137")["ended"]["wrapped"] is True


def test_a_plain_status_alone_ranks_nothing() -> None:
    found = explained("--status", "1")
    assert found["ranking"] == []
    assert "alone says nothing" in found["no_ranking"]


def test_text_for_people_says_what_is_proven_and_what_is_not() -> None:
    text = run("--status", "SIGSEGV").output
    assert "proves: one of its instructions touched memory that it may not" in text
    assert "does not prove: which library is at fault" in text
    assert "ulimit -c unlimited" in text
    assert "python -m matrix init -- COMMAND" in text
    assert "--from-log train.log -- COMMAND" in next_command(["stdin", "train.log"])


# ------------------------------------------------------------------ a log and the kernel's log
def test_a_kernel_line_about_the_worker_that_the_log_names_proves_memory(tmp_path: Path) -> None:
    log, kernel = written(tmp_path, "train.log", KILLED), written(tmp_path, "dmesg", KERNEL.format(pid=4242, group="job"))
    found = explained(log, kernel)
    assert found["sigkill"]["grade"] == "kernel, proven"
    assert piece(found, "Killed process 4242")["where"] == f"{kernel}:3"
    assert f"{log}:5" in piece(found, "Killed process 4242")["proves"]
    assert {entry["cause"] for entry in found["ranking"][:4]} == {
        "memory_working_set", "memory_retention", "memory_worker_multiplication", "memory_allocator_retention",
    }  # fmt: skip
    assert grades(found) == {"suspected"}  # which of the four it is nothing tells
    assert not any("dmesg" in one["command"] for one in found["collect"])


def test_a_worker_that_died_is_a_death_though_nobody_says_how_the_job_ended(tmp_path: Path) -> None:
    log = written(tmp_path, "job.log", "step 9/10\nDataLoader worker (pid 4242) is killed by signal: Killed.\n")
    found = explained(log, written(tmp_path, "dmesg.log", KERNEL.format(pid=4242, group="job")))
    assert (found["ended"], found["ranking"]) == (None, [])
    assert "kernel, proven" in {one["grade"] for one in found["evidence"]}
    assert found["no_ranking"].startswith("a process of the job died, but no source says how the job itself ended")


def test_a_kernel_line_about_another_process_is_not_this_job(tmp_path: Path) -> None:
    log, kernel = written(tmp_path, "train.log", KILLED), written(tmp_path, "dmesg", KERNEL.format(pid=777, group="job"))
    found = explained(log, kernel)
    assert found["sigkill"]["grade"] == "unknown"
    assert "no other source names pid 777" in piece(found, "Killed process 777")["not_proves"]
    assert piece(found, "Killed process 777")["grade"] == "unknown"
    assert not any(entry["cause"].startswith("memory") and entry["supports"] for entry in found["ranking"])


def test_a_kernel_log_without_anything_to_link_it_says_how_to_link_it(tmp_path: Path) -> None:
    kernel = written(tmp_path, "dmesg", KERNEL.format(pid=777, group="job"))
    assert "--was-pid" in piece(explained(kernel), "Killed process 777")["not_proves"]
    found = explained(kernel, "--status", "137", "--was-pid", "777")
    assert found["sigkill"]["grade"] == "kernel, proven"


def test_the_parents_exception_about_its_worker_is_no_cause(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "train.log", KILLED))
    assert found["sigkill"]["grade"] == "unknown"
    assert not any(entry["cause"] == "python_exception" for entry in found["ranking"] if entry["probability"] > 0.05)


def test_a_connection_that_was_reset_is_a_death_elsewhere(tmp_path: Path) -> None:
    words = KILLED.replace(
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.", "ConnectionResetError: [Errno 104] reset"
    )
    found = explained(written(tmp_path, "log", words), "--status", "1")
    assert grades(found) == {"suspected"}
    assert found["ranking"][0]["cause"] == "unknown"
    assert "evidence of its own" in piece(found, "a traceback")["not_proves"]


EOF = """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/{module}.py", line 383, in _recv
    raise EOFError
EOFError
"""


def test_the_end_of_a_connection_is_no_damaged_file_and_that_of_a_file_is_no_lost_process(tmp_path: Path) -> None:
    lost = explained(written(tmp_path, "one", "step 1\n" + EOF.format(module="multiprocessing/connection")))
    file = explained(written(tmp_path, "two", "step 1\n" + EOF.format(module="pickle")))
    assert not any("file" in one["proves"] for one in lost["evidence"])
    assert any("file that was read is damaged" in one["proves"] for one in file["evidence"])
    assert "another process is gone" in piece(lost, "a traceback")["not_proves"]
    assert "another process is gone" not in piece(file, "a traceback")["not_proves"]


def test_an_exception_in_other_words_about_a_worker_that_was_killed_links_its_pid_too(tmp_path: Path) -> None:
    words = KILLED.replace("DataLoader worker (pid 4242) is killed by signal: Killed.", "rollout process (pid 4242) died")
    log, kernel = written(tmp_path, "log", words), written(tmp_path, "dmesg", KERNEL.format(pid=4242, group="job"))
    assert explained(log)["ranking"][0]["cause"] == "unknown"
    assert explained(log, kernel)["sigkill"]["grade"] == "kernel, proven"


def test_faulthandlers_own_timer_is_a_hang_that_somebody_expected(tmp_path: Path) -> None:
    program = "import faulthandler, time; faulthandler.dump_traceback_later(0.2, exit=True); time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    found = explained(written(tmp_path, "log", done.stdout + done.stderr), "--status", str(done.returncode))
    assert "only with exit=True" in piece(found, "Timeout (0:00:00.2")["not_proves"]
    assert found["ranking"][0]["cause"] == "watchdog_or_time_limit"


def test_an_ordinary_exception_at_the_end_is_what_it_is(tmp_path: Path) -> None:
    words = KILLED.replace("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.", "KeyError: 'labels'")
    found = explained(written(tmp_path, "log", words))
    assert (found["ranking"][0]["cause"], found["ranking"][0]["grade"]) == ("python_exception", "supported")


def test_a_log_may_come_from_stdin() -> None:
    found = explained("-", stdin=KILLED)
    assert piece(found, "pid 4242, ended by SIGKILL")["where"] == "stdin:5"


# ------------------------------------------------------------------ the words of libraries and launchers
def test_openmps_own_error_names_its_cause_though_nobody_saw_the_signal(tmp_path: Path) -> None:
    log = written(tmp_path, "log", "step 3/9\nOMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.\n")
    found = explained(log)
    assert found["ended"]["by"] == "SIGABRT"
    assert found["ranking"][0]["cause"] == "openmp_runtime_conflict"
    assert found["ranking"][0]["grade"] == "supported"
    assert found["ranking"][0]["probability"] <= 0.9


def test_words_after_which_it_went_on_ended_nothing(tmp_path: Path) -> None:
    log = written(tmp_path, "log", "free(): invalid pointer\nstep 1\nstep 2\nstep 3\n")
    assert explained(log)["ended"] is None


def test_a_log_that_only_stops_ranks_nothing(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "log", "step 1/9\rstep 2/9\r 45%|####      | 4/9 [00:0"))
    assert found["ended"] is None
    assert found["ranking"] == []
    assert "not flushed" in found["evidence"][0]["not_proves"]


TORCHRUN = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-05_10:11:10
  host      : node1
  rank      : 3 (local_rank: 3)
  exitcode  : -11 (pid: 1236)
  error_file: <N/A>
  traceback : Signal 11 (SIGSEGV) received by PID 1236
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-05_10:11:12
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 1234)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 1234
============================================================
"""


def test_torchruns_first_observed_failure_is_not_taken_for_the_first(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "log", TORCHRUN))
    assert "rank 3 failed before it" in piece(found, "torchrun's table, 2 failed ranks")["not_proves"]
    assert any("SIGSEGV" in fact for entry in found["ranking"] for fact in entry["supports"])


def test_rays_guesses_are_no_evidence(tmp_path: Path) -> None:
    words = "A worker died or was killed. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer\n"
    found = explained(written(tmp_path, "log", words))
    assert "they are guesses" in piece(found, "potential root causes")["not_proves"]
    assert found["sigkill"] is None
    assert found["ranking"] == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("./run.sh: line 3: 4242 Aborted                 (core dumped) python train.py", "SIGABRT"),
        ("Segmentation fault (core dumped)", "SIGSEGV"),
        ("subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.", "SIGKILL"),
        ("[2026-01-05 10:11:12] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = -11", "SIGSEGV"),
    ],
)
def test_launchers_and_shells_say_how_it_ended(tmp_path: Path, line: str, name: str) -> None:
    assert explained(written(tmp_path, "log", f"step 5\n{line}\n"))["ended"]["by"] == name


def test_a_launchers_status_1_does_not_hide_the_signal_below_it(tmp_path: Path) -> None:
    found = explained(written(tmp_path, "log", "step 5\n./run.sh: line 3: 4242 Killed   python train.py\n"), "--status", "1")
    assert found["ended"]["by"] == "SIGKILL"
    assert any("status 1" in doubt for doubt in found["doubts"])


def test_the_watchdog_of_nccl_accuses_no_rank(tmp_path: Path) -> None:
    words = "[rank0]:[E1] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 milliseconds\n"
    ended = "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    found = explained(written(tmp_path, "log", f"step 5\n{words}{ended}"))
    assert (found["ended"]["by"], found["ranking"][0]["cause"]) == ("SIGABRT", "watchdog_or_time_limit")
    assert any("look for the rank that did not" in one["not_proves"] for one in found["evidence"])


def test_torchs_guess_about_shared_memory_stays_a_guess(tmp_path: Path) -> None:
    words = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    found = explained(written(tmp_path, "log", f"step 5\n{words}"))
    assert "the message guesses" in piece(found, "might be caused by insufficient shared memory")["not_proves"]


@pytest.mark.parametrize(
    "line",
    [
        "Jan 05 10:11:12 node1 kernel: Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:2048kB, file-rss:0kB",
        "[Mon Jan  5 10:11:12 2026] Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:2048kB, file-rss:0kB",
    ],
)
def test_the_journal_and_dmesg_with_times_read_alike_and_the_machine_is_told_from_a_group(tmp_path: Path, line: str) -> None:
    found = explained(written(tmp_path, "log", KILLED), written(tmp_path, "kernel", line + "\n"))
    assert "the whole machine ran out of memory; it held 2 MiB" in piece(found, "Killed process 4242")["proves"]


def test_the_kernels_line_of_a_fault_is_linked_by_the_pid_that_the_shell_names(tmp_path: Path) -> None:
    line = "[1.5] python[{pid}]: segfault at 10 ip 00007f0000001000 sp 00007ffc00000000 error 4 in fast.so[7f0000000000+2000]\n"
    log = written(tmp_path, "log", "step 5\n./run.sh: line 3: 4242 Segmentation fault      python train.py\n")
    ours, other = written(tmp_path, "ours", line.format(pid=4242)), written(tmp_path, "other", line.format(pid=5))
    assert "of this job died of a segfault in fast.so" in piece(explained(log, ours), "segfault at 10")["proves"]
    assert "no other source names thread 5" in piece(explained(log, other), "segfault at 10")["not_proves"]
    assert any("fast.so" in fact for entry in explained(log, ours)["ranking"] for fact in entry["supports"])
    assert not any("fast.so" in fact for entry in explained(log, other)["ranking"] for fact in entry["supports"])


def test_a_log_that_was_cut_in_place_is_text_though_it_begins_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\0" * 9000 + KILLED.encode())
    assert explained(path)["sigkill"]["grade"] == "unknown"


def test_a_compressed_log_is_refused_with_the_command_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(KILLED.encode() * 200))
    assert "zcat FILE |" in refused(path)


# ------------------------------------------------------------------ real deaths
def test_real_text_of_faulthandler_gives_the_signal_and_the_python_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", SEGFAULT], capture_output=True, text=True)
    found = explained(written(tmp_path, "log", done.stdout + done.stderr), "--status", str(done.returncode))
    assert found["ended"]["by"] == "SIGSEGV"
    assert "string_at" in piece(found, "Fatal Python error: Segmentation fault")["read"]
    assert not any("FAULTHANDLER" in one["command"] for one in found["collect"])
    assert "supported" not in {entry["grade"] for entry in found["ranking"] if entry["cause"] == "python_exception"}


@pytest.mark.skipif(not CORES_HERE, reason="cores go elsewhere here")
def test_a_real_core_gives_the_instruction_the_address_and_the_process(tmp_path: Path) -> None:
    script = f'cd {tmp_path}; ulimit -c unlimited; {sys.executable} -c "{SEGFAULT}"; true'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    (core,) = tmp_path.glob("core*")
    log = written(tmp_path, "log", done.stdout + done.stderr)
    found = explained(core, log)
    read = piece(found, "a core of process")["read"]
    assert "SIGSEGV" in read
    assert "0x10" in read
    assert found["ended"] == {"by": "SIGSEGV", "where": str(core), "wrapped": False}
    assert not any("ulimit -c" in one["command"] for one in found["collect"])
    assert explained("--core", core)["ranking"]


@contextlib.contextmanager
def small_group(name: str) -> Iterator[cgroup.Group]:
    group = cgroup.create(name, LIMIT_BYTES)
    if group is None:
        pytest.skip(f"no memory cgroup can be made here: {cgroup.why_not()}")
    try:
        yield group
    finally:
        group.kill()
        group.remove()


def test_a_real_kill_of_the_kernel_is_linked_by_its_pid(tmp_path: Path) -> None:
    with small_group(f"explain{os.getpid()}") as group:
        hog = f"open('{group.path}/cgroup.procs', 'w').write('0'); b = [bytearray(8 << 20) for _ in range(64)]"
        script = written(tmp_path, "run.sh", f'{sys.executable} -c "{hog}"\ntrue\n')
        done = subprocess.run(["bash", str(script)], capture_output=True, text=True)
        assert "Killed" in done.stderr
    pid = done.stderr.split("line 1:")[1].split()[0]
    log, kernel = written(tmp_path, "log", done.stderr), tmp_path / "dmesg"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        kernel.write_text(subprocess.run(["dmesg"], capture_output=True, text=True).stdout)
        if f"rocess {pid} " in kernel.read_text():
            break
        time.sleep(0.1)
    else:
        pytest.skip("dmesg cannot be read here")
    found = explained(log, kernel)
    assert found["sigkill"]["grade"] == "kernel, proven"
    assert "the limit of its cgroup was reached" in piece(found, f"Killed process {pid} ")["proves"]
    assert found["ranking"][0]["cause"].startswith("memory")


@pytest.mark.slow
def test_a_real_dataloader_whose_worker_is_killed(tmp_path: Path) -> None:
    program = """
import os, signal, torch.utils.data as data
class Dies(data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 9: os.kill(os.getpid(), signal.SIGKILL)
        return i
if __name__ == "__main__":
    for step, _ in enumerate(data.DataLoader(Dies(), num_workers=1)): print("step", step, flush=True)
"""
    script = written(tmp_path, "train.py", program)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = explained(written(tmp_path, "log", done.stdout + done.stderr), "--status", str(done.returncode))
    assert grades(found) == {"suspected"}  # it raises about the worker, or about the connection to it that was reset
    assert sum(entry["probability"] for entry in found["ranking"] if entry["cause"] == "python_exception") < 0.2
    assert any("gone" in one["not_proves"] or "ended by SIGKILL" in one["read"] for one in found["evidence"])


# ------------------------------------------------------------------ macOS
def test_a_crash_report_of_macos_is_known_by_its_content(tmp_path: Path) -> None:
    from tests.matrix.test_evidence_macos import report

    found = explained(written(tmp_path, "something", report()))
    assert "a macOS crash report" in found["evidence"][0]["read"]
    assert found["ended"]["by"].startswith("SIG")
    assert found["ranking"]


@pytest.mark.parametrize("text", ["137\n", "exit code: 137", "rc=137\n\n", "Exited with status 137\n"])
def test_a_file_that_holds_only_a_status_is_read_as_one(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, "status", text)
    found = explained(file)
    assert (found["ended"]["by"], found["ended"]["where"]) == ("SIGKILL", str(file))
    assert found["sigkill"]["grade"] == "unknown"


def test_a_number_in_place_of_a_file_is_told_where_a_status_goes() -> None:
    assert "137: No such file or directory" in refused("137") and "goes with --status 137" in refused("137")
    assert "nothing in its 1 lines is known here" in refused("-", stdin="999\n")


# ------------------------------------------------------------------ a recorder that was killed itself
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="follows a process")
def test_of_a_recorder_that_was_killed_what_it_had_on_disk_is_read(tmp_path: Path) -> None:
    def seen(name: str) -> str:
        return "".join(path.read_text() for path in tmp_path.glob(f"runs/*/*/attempts/*/{name}"))

    def sampled() -> bool:
        """At step 41, with a sample of memory: the rows of a look come a few at a time."""
        curves = map(memory_curve.read, tmp_path.glob("runs/*/*/attempts/*/memory.csv"))
        return any(curve is not None and 41 in curve.steps for curve in curves)

    program = "import os, time\nprint('pid', os.getpid(), flush=True)\nprint('step 41 of 50', flush=True)\ntime.sleep(600)"
    recorder = start("watch", "--", sys.executable, "-c", program, cwd=tmp_path)
    try:
        assert wait_until(sampled, seconds=300)
    finally:
        recorder.kill()
        recorder.wait()
    pid = int(seen("stdout.log").split()[1])
    try:
        found = explained(only_run(tmp_path))
        assert found["ended"] is None
        assert piece(found, "the program still runs")["where"] == f"pid {pid}"
        assert "at step 41" in piece(found, "last sample")["read"]
        assert any(one["read"].startswith("last step 41 of 50") for one in found["evidence"])
    finally:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(pid))
    family.sweep()
    with_kernel = explained(only_run(tmp_path), written(tmp_path, "kernel.log", KERNEL.format(group="job", pid=pid)))
    assert not any("still runs" in one["read"] for one in with_kernel["evidence"])
    assert with_kernel["sigkill"] is None or "proven" in with_kernel["sigkill"]["grade"]
    assert any(f"Killed process {pid}" in one["read"] for one in with_kernel["evidence"])


def test_a_run_folder_that_has_a_verdict_is_not_explained_again(tmp_path: Path) -> None:
    attempts = tmp_path / "run" / "attempts"
    for name in ("0001-aa", "0002-bb"):
        (attempts / name).mkdir(parents=True)
        (attempts / name / "attempt.json").write_text("{}")
    seen = Observation(attempt="0001-aa", key="", trial=Trial(id=1, cell={}), exit=Exit(returncode=0), wall_s=1.0, started_unix_s=0.0)
    records.write(attempts / "0001-aa" / "observation.json", seen)
    assert "holds 2 runs; python -m matrix report" in refused(tmp_path / "run")
    assert f"python -m matrix report {tmp_path / 'run'}" in refused(attempts / "0001-aa")
    assert "wrote no sample" in explained(attempts / "0002-bb")["evidence"][0]["read"]


# ------------------------------------------------------------------ what cannot be read
def test_everything_that_cannot_be_read_is_said_at_once(tmp_path: Path) -> None:
    empty, said = written(tmp_path, "empty", ""), refused(tmp_path / "absent", tmp_path, tmp_path / "empty", "/dev/null", "x" * 300)
    assert "/dev/null: is a device" in said
    assert "File name too long" in said
    assert f"{tmp_path / 'absent'}: No such file" in said
    assert f"{empty}: is empty" in said
    assert "is a folder" in said


@pytest.mark.parametrize("content", [b"nothing that anybody knows\n", b"\0\1\2" * 99, b"\x7fELF\x02\x01\x01" + b"\0" * 199])
def test_a_file_of_no_known_kind_is_refused_with_what_was_looked_for(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    assert "looked for a core (ELF)" in refused(path)


@pytest.mark.parametrize(("text", "tool"), [("Killed\n".encode("utf-16"), "iconv -f UTF-16"), (bz2.compress(b"Killed\n" * 99), "bzcat")])
def test_text_in_another_form_is_refused_with_the_command_that_reads_it(text: bytes, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    assert tool in refused(path)


def test_a_closed_standard_input_is_a_clear_error() -> None:
    done = subprocess.run([sys.executable, "-m", "matrix", "explain", "-"], capture_output=True, text=True, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (2, "-: standard input is closed; give a file, or pipe one into this command\n")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_letters_that_the_terminal_does_not_have_end_nothing(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"price\xff.log")
    path.write_text("Traceback (most recent call last):\n  File 'a.py', line 3, in f\nValueError: 3 \u20ac\n")
    argv = [sys.executable, "-m", "matrix", "explain", path]
    done = subprocess.run(argv, capture_output=True, env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"})
    assert done.returncode == 0, done.stderr
    assert b"\\udcff.log" in done.stdout
    assert ("3 \u20ac".encode() if encoding == "utf-8" else b"3 \\u20ac") in done.stdout


def test_numbers_of_batches_are_json_too_alone_and_beside_remains() -> None:
    alone, both = explained("--batches", "117,464,472"), explained("--batches", "117,464,472", "--status", "137")
    assert alone["pattern"]["steps"] == [117, 464, 472]
    assert "ended" not in alone and both["ended"]["by"] == "SIGKILL" and both["pattern"] == alone["pattern"]


def test_what_was_piped_in_is_not_named_as_a_file_for_later(tmp_path: Path) -> None:
    log = written(tmp_path, "log", "Killed\n")
    program = f"exec {sys.executable} -m matrix explain <(cat {log}) --json"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert json.loads(done.stdout)["next"].startswith("python -m matrix init -- COMMAND"), done.stderr


def test_a_core_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "core"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x04\0\x3e\0" + b"\0" * 60)
    assert "its notes are cut off" in refused(path)


@pytest.mark.parametrize(
    "words", [[], ["--status", "banana"], ["--status", "4000"], ["--status", "9" * 5000 + ":9"], ["--pid", "1", "--status", "3"]]
)
def test_what_names_no_ending_is_a_clear_error(words: list[str]) -> None:
    refused(*words)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_log_of_200_megabytes_is_read_with_bounded_memory(tmp_path: Path) -> None:
    log = tmp_path / "huge.log"
    line = b"epoch 1 batch 17 loss=0.31 and so on, for as long as the disk lasts, with nothing to say about any death\n"
    with log.open("wb") as sink:
        sink.write(KERNEL.format(pid=4242, group="job").encode())
        for _ in range(200):
            sink.write(line * ((1 << 20) // len(line)))
        sink.write(KILLED.encode())
    program = "import sys; from matrix.__main__ import main\n"  # not ru_maxrss: a child begins with the peak of who started it
    program += "try: main(sys.argv[1:])\nfinally: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, "explain", str(log), "--json"], capture_output=True, text=True)
    assert '"kernel, proven"' in done.stdout, done.stderr  # the first lines were read, and the last
    assert int(done.stderr.split()[-1]) < 160 << 10  # KiB
