"""The doctor's look at a machine: under real limits and groups where they can be set, on made /proc files where they cannot."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matrix.doctor import catalogue, memory
from matrix.doctor.place import Place, size
from matrix.runner import cgroup
from tests.matrix.doctor_places import installed, look, real_library, severities

CHILD = Path(__file__).parents[1] / "children" / "looks_with_doctor.py"
MIB, GIB = 1 << 20, 1 << 30
INFINITE = resource.RLIM_INFINITY
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, cgroups and /dev/shm")
CPUINFO = "processor\t: 0\nflags\t\t: fpu sse sse2 {}\n"
V2 = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
MEMINFO = "MemTotal: 16000000 kB\nMemAvailable: {} kB\nSwapTotal: {} kB\nSwapFree: {} kB\nCommitLimit: 900 kB\nCommitted_AS: 500 kB\n"


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def child(
    *checks: str, limits: dict[int, tuple[int, int]] | None = None, joins: cgroup.Group | None = None, **options: Any
) -> dict[str, Any]:
    """What the checks find in a process with these limits, in this group."""

    def prepare() -> None:
        for folder in joins.folders if joins else ():
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        for name, values in (limits or {}).items():
            resource.setrlimit(name, values)

    argv = [*options.pop("wrapper", ()), sys.executable, str(CHILD), *checks]
    return told(subprocess.run(argv, preexec_fn=prepare, capture_output=True, text=True, **options))


def found(answer: dict[str, Any]) -> dict[str, str]:
    return {name: finding["severity"] for name, finding in answer["found"].items()}


def machine(root: Path, files: dict[str, str], **fields: Any) -> Place:
    """One whose /proc and /sys say this."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Place(**{"python": installed(), "environment": {}, "root": root, "machine": "x86_64", **fields})


def here(environment: dict[str, str]) -> Place:
    return Place(python=installed(), environment=environment)


# ------------------------------------------------------------------ limits
LIMITED = ("stack-size", "open-files", "address-space", "cpu-time", "file-size", "core-limit")


def test_low_limits_are_found_and_what_certainly_kills_is_an_error() -> None:
    low = {
        resource.RLIMIT_STACK: (MIB, MIB),
        resource.RLIMIT_NOFILE: (200, 4000),
        resource.RLIMIT_AS: (8 * GIB, INFINITE),
        resource.RLIMIT_CPU: (600, INFINITE),
        resource.RLIMIT_FSIZE: (GIB, INFINITE),
        resource.RLIMIT_CORE: (0, 0),
    }
    answer = child(*LIMITED, limits=low)
    assert found(answer) == dict.fromkeys(LIMITED, "warning") | {"cpu-time": "error"}
    assert answer["found"]["open-files"]["summary"] == "200 open files (the hard limit is 4,000: it may be raised)"


def test_high_limits_are_fine_but_an_unlimited_stack_gives_threads_a_small_one() -> None:
    high = dict.fromkeys((resource.RLIMIT_STACK, resource.RLIMIT_CPU, resource.RLIMIT_CORE), (INFINITE, INFINITE))
    answer = child(*LIMITED, limits=high | {resource.RLIMIT_NOFILE: (8192, 8192)})
    assert found(answer) == {"stack-size": "info"}
    assert set(answer["fine"]) == set(LIMITED) - {"stack-size"}


def test_an_unlimited_stack_gives_threads_what_the_finding_says() -> None:
    asks = "import ctypes; l = ctypes.CDLL(None); a = (ctypes.c_char * 64)(); l.pthread_attr_init(a); s = ctypes.c_size_t(); "
    asks += "l.pthread_attr_getstacksize(a, ctypes.byref(s)); print(s.value)"
    unlimited = (INFINITE, INFINITE)
    done = subprocess.run(
        [sys.executable, "-c", asks], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, unlimited), capture_output=True
    )
    assert 0 < int(done.stdout) < 8 * MIB


# ------------------------------------------------------------------ groups
@pytest.fixture
def token() -> str:
    if why := cgroup.why_not():
        pytest.skip(why)
    return f"mx-{os.getpid()}-doctor-{time.monotonic_ns()}"


@pytest.fixture
def group(token: str, request: pytest.FixtureRequest) -> Iterator[cgroup.Group]:
    """With the memory and the number of processes that the test is parametrised with."""
    made = cgroup.create(token, *request.param)
    assert made is not None
    yield made
    made.kill()
    made.remove()


@pytest.mark.parametrize("group", [(70 * MIB, 3)], indirect=True)
def test_a_group_without_room_for_imports_or_for_a_pool_of_threads_is_an_error(group: cgroup.Group) -> None:
    answer = child("memory-limit", "threads-left", joins=group)
    assert found(answer) == ({"memory-limit": "error", "threads-left": "error"} if group.pids_path else {"memory-limit": "error"})
    assert answer["found"]["memory-limit"]["summary"].startswith("70 MiB for all processes of this group")


@pytest.mark.parametrize("group", [(GIB, 300)], indirect=True)
def test_a_group_below_the_machine_is_a_warning_and_a_quota_too_unless_threads_fit_it(group: cgroup.Group, token: str) -> None:
    group.limit_cpu(token, 0.9)
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    expected = {"memory-limit": "warning"} | ({"threads-left": "warning"} if group.pids_path else {})
    quota = {"cpu-quota": "warning"} if group.cpu_path else {}
    assert found(child("memory-limit", "threads-left", "cpu-quota", joins=group, env=environment)) == expected | quota
    if quota:
        assert found(child("cpu-quota", joins=group, env={**environment, "OMP_NUM_THREADS": "1"})) == {"cpu-quota": "info"}


@pytest.mark.parametrize("group", [(120 * MIB, None)], indirect=True)
def test_a_kill_in_the_very_group_is_an_error_and_one_elsewhere_is_not(group: cgroup.Group, tmp_path: Path) -> None:
    assert found(child("killed-before", joins=group)).get("killed-before") != "error"
    eats = [sys.executable, "-c", f"print(len(bytearray({400 * MIB})))"]
    procs = group.path / "cgroup.procs"
    assert subprocess.run(eats, preexec_fn=lambda: procs.write_text(str(os.getpid())) and None).returncode == -9
    assert found(child("killed-before", joins=group)) == {"killed-before": "error"}
    assert severities("killed-before", machine(tmp_path, {"proc/vmstat": "oom_kill 3\n"})) == ["info"]
    assert look("killed-before", machine(tmp_path, {"proc/vmstat": "oom_kill 0\n"})) == []


def test_without_a_limit_of_ones_own_group_all_is_fine() -> None:
    own = cgroup.own_group()
    if own is None or (own.memory_limit() or 1 << 62) < memory.meminfo(here({}))["MemTotal"] or own.cpu_share():
        pytest.skip("this machine has such a limit, or no groups")
    assert look("memory-limit", here({})) == []
    assert look("cpu-quota", here({})) == []
    assert look("threads-left", here({})) == []


def test_room_for_threads_is_that_of_the_machine_and_of_the_user_too(tmp_path: Path) -> None:
    files = {
        "proc/loadavg": "0.1 0.1 0.1 1/990 77\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/self/status": "Uid:\t1000\nCapEff:\t0\n",
    }
    full = machine(tmp_path / "full", files | {"proc/sys/kernel/threads-max": "991\n"})
    [finding] = look("threads-left", full)
    assert finding.severity == "error" and finding.summary.startswith("threads on the machine (kernel.threads-max): 1 of 991 are left")
    roomy = machine(tmp_path / "roomy", files | {"proc/sys/kernel/threads-max": "190000\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    try:
        bound = look("threads-left", roomy)
        free = look("threads-left", machine(tmp_path / "roomy", {"proc/self/status": "Uid:\t0\t0\nCapEff:\t0\n"}))
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    assert [finding.severity for finding in bound] == ["error"] and "ulimit -u" in bound[0].summary
    assert free == []


def private(script: str, *checks: str) -> dict[str, Any]:
    """What the checks find in a mount namespace of their own, after this shell script."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    return child(*checks, wrapper=["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh"])


@pytest.mark.slow
def test_without_groups_what_needs_them_is_said_not_to_be_seen() -> None:
    answer = private("umount -R /sys/fs/cgroup", "memory-limit", "memory-limits-possible", "cpu-quota")
    assert found(answer) == {"memory-limits-possible": "info"}
    assert [name for name, _ in answer["not_seen"]] == ["memory-limit", "cpu-quota"]


# ------------------------------------------------------------------ memory
def test_free_memory_swap_and_overcommit_by_what_the_kernel_says(tmp_path: Path) -> None:
    files = {"proc/meminfo": MEMINFO.format(500_000, 1000, 100), "proc/sys/vm/overcommit_memory": "2\n", "proc/sys/vm/panic_on_oom": "1"}
    files |= {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"}
    poor = machine(tmp_path / "poor", files)
    for check, severity in (("memory-free", "warning"), ("swap", "warning"), ("overcommit", "warning"), ("panic-on-oom", "warning")):
        assert severities(check, poor) == [severity]
    assert severities("huge-pages", poor) == ["info"]
    files = {"proc/meminfo": MEMINFO.format(9_000_000, 1000, 900), "proc/sys/vm/overcommit_memory": "0\n", "proc/sys/vm/panic_on_oom": "0"}
    files |= {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n"}
    rich = machine(tmp_path / "rich", files)
    assert [look(check, rich) for check in ("memory-free", "swap", "overcommit", "panic-on-oom", "huge-pages")] == [[]] * 5
    assert severities("swap", machine(tmp_path / "none", {"proc/meminfo": MEMINFO.format(9_000_000, 0, 0)})) == ["info"]


def test_an_oom_daemon_is_found_by_the_name_of_its_process(tmp_path: Path) -> None:
    assert not any("nohang" in finding.summary for finding in look("oom-daemon", here({})))
    daemon = Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "nohang"))
    with subprocess.Popen([daemon, "60"]) as running:
        while Path(f"/proc/{running.pid}/comm").read_text() != "nohang\n":  # the kernel names it a moment after its exec is seen
            time.sleep(0.01)
        [finding] = [finding for finding in look("oom-daemon", here({})) if "nohang" in finding.summary]
        running.kill()
    assert finding.severity == "warning" and f"pid {running.pid}" in finding.summary


def test_a_preferred_victim_is_told() -> None:
    def prefer() -> None:
        Path("/proc/self/oom_score_adj").write_text("600")

    done = subprocess.run([sys.executable, CHILD, "oom-score"], preexec_fn=prefer, capture_output=True, text=True)
    assert found(told(done)) == {"oom-score": "warning"}
    if Path("/proc/self/oom_score_adj").read_text().strip() == "0":
        assert look("oom-score", here({})) == []


def test_crashes_of_python_are_read_from_the_kernel_log(monkeypatch: pytest.MonkeyPatch) -> None:
    if memory.history()[1]:
        pytest.skip("the kernel log cannot be read")
    subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(16)"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not any("segfault at 10" in line for line in memory.history()[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    if not any("segfault" in line for line in memory.history()[0]):
        pytest.skip("this kernel does not log segfaults")
    [finding] = look("crashed-before", here({}))
    assert "crashes of Python in the kernel log" in finding.summary
    trap = "[9.1] traps: python3[7] trap invalid opcode ip:7f sp:7f error:0 in libopenblas-3a.so[7f+1]"
    monkeypatch.setattr(memory, "history", lambda: ([trap, trap], ""))
    assert (
        look("crashed-before", here({}))[0].summary == "2 crashes of Python in the kernel log: libopenblas-3a.so 2x (trap invalid opcode)"
    )
    monkeypatch.setattr(memory, "history", lambda: (["[1.0] cat[7]: segfault at 8 ip 0 sp 0 error 4 in libc.so.6[7f]"], ""))
    assert look("crashed-before", here({})) == []


# ------------------------------------------------------------------ room
def test_a_small_full_or_missing_shm_is_found() -> None:
    small = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    assert found(private(small, "shm-room")) == {"shm-room": "warning"}
    assert found(private(f"{small} && head -c 64M /dev/zero > /dev/shm/fill", "shm-room")) == {"shm-room": "error"}


def test_no_shm_at_all_is_an_error(tmp_path: Path) -> None:
    assert severities("shm-room", machine(tmp_path, {"proc/vmstat": ""})) == ["error"]


def test_what_dead_processes_left_in_shm_is_told_and_what_living_ones_hold_is_not(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    place = machine(tmp_path, {f"dev/shm/torch_{os.getpid()}_1_0": "x" * 10, "dev/shm/other": "y"})
    assert look("shm-litter", place) == []
    (tmp_path / f"dev/shm/torch_{dead.pid}_1_0").write_text("x" * 2048)
    (tmp_path / f"dev/shm/__KMP_REGISTERED_LIB_{dead.pid}_0").write_text("x" * 1024)
    [finding] = look("shm-litter", place)
    assert finding.summary == "2 files in /dev/shm of processes that do not run here, 3.0 KiB"


@pytest.mark.slow
def test_a_temp_folder_that_is_missing_or_too_deep_for_sockets_is_found(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    for folder, words in ((deep, "sockets take 75"), (tmp_path / "missing", "cannot be written to")):
        answer = child("temp-folder", env={**os.environ, "TMPDIR": str(folder)})
        assert words in answer["found"]["temp-folder"]["summary"]


@pytest.mark.slow
def test_sockets_fail_above_the_length_that_the_doctor_names(tmp_path: Path) -> None:
    """The figure, tried: a manager's socket in a folder whose path is as long as it may be, and one byte longer."""
    base = Path("/tmp") / f"mx-doctor-{os.getpid()}"
    starts = "import multiprocessing as m\nif __name__ == '__main__': m.Manager().shutdown()"
    try:
        ends = []
        for length in (75, 76):
            folder = Path(f"{base}-".ljust(length, "d"))
            folder.mkdir()
            script = folder / "s.py"
            script.write_text(starts)
            done = subprocess.run([sys.executable, script], env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True)
            ends.append((done.returncode, "AF_UNIX path too long" in done.stderr))
        if sys.version_info < (3, 13):
            assert ends == [(0, False), (1, True)]
        else:
            assert ends[0] == (0, False)
    finally:
        for folder in Path("/tmp").glob(f"{base.name}-*"):
            shutil.rmtree(folder)


@pytest.mark.slow
def test_a_full_working_folder_is_an_error(tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o size=8m tmpfs {tmp_path} && cd {tmp_path}"
    assert found(private(script, "disk-room")) == {"disk-room": "error"}
    assert found(private(script.replace("size=8m", "size=1g"), "disk-room")) == {"disk-room": "warning"}


def test_a_file_system_that_counts_nothing_is_not_called_full(tmp_path: Path) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("no /proc")
    report = catalogue.run(dataclasses.replace(here({}), cwd=Path("/proc")), (catalogue.find("disk-room"),))
    assert [finding.severity for finding in report.findings if "full" in finding.summary] == []
    assert os.access("/proc", os.W_OK) is bool(report.not_seen)


# ------------------------------------------------------------------ what the system says in another form
def test_what_was_seen_stays_when_the_rest_cannot_be_looked_at(tmp_path: Path) -> None:
    place = machine(tmp_path, {"proc/loadavg": "1 1 1 1/100 7\n", "proc/sys/kernel/threads-max": "100\n", "proc/self/status": ""})
    report = catalogue.run(place, (catalogue.find("threads-left"),))
    assert ("threads-left", "error") in [(finding.id, finding.severity) for finding in report.findings]
    assert [why for _, why in report.not_seen] == ["/proc/sys/kernel/pid_max: No such file or directory"]


def test_one_thread_that_was_asked_for_needs_less_room_than_a_pool_of_all_processors(tmp_path: Path) -> None:
    files = {"proc/loadavg": "1 1 1 1/95 7\n", "proc/sys/kernel/threads-max": "100\n", "proc/self/status": ""}
    files["proc/sys/kernel/pid_max"] = "4000000\n"
    for threads, severity in (("1", "warning"), ("4", "error")):
        found = look("threads-left", machine(tmp_path, files, environment={"OMP_NUM_THREADS": threads}))
        assert [one.severity for one in found if "threads-max" in one.summary] == [severity]


@pytest.mark.parametrize(
    ("check", "file", "text"),
    [
        ("memory-free", "proc/meminfo", "MemTotal: 8 kB\n"),
        ("swap", "proc/meminfo", "MemTotal: much kB\n"),
        ("threads-left", "proc/loadavg", "0.1\n"),
        ("core-pattern", "proc/sys/kernel/core_pattern", "|\n"),
    ],
)
def test_a_file_of_the_system_in_another_form_stops_nothing(check: str, file: str, text: str, tmp_path: Path) -> None:
    report = catalogue.run(machine(tmp_path, {file: text}), (catalogue.find(check),))
    assert report.findings == report.fine == []
    assert "was not understood" in report.not_seen[0][1]


def test_page_cache_is_room_that_the_kernel_gives_back(tmp_path: Path) -> None:
    v1 = {"memory.usage_in_bytes": "1000", "memory.stat": "active_file 5\ntotal_active_file 600\ntotal_inactive_file 300\n"}
    v2 = {"memory.current": "1000", "memory.stat": "anon 90\nactive_file 600\ninactive_file 300\n"}
    for isolation, files in (("cgroup-v1", v1), ("cgroup-v2", v2)):
        folder = tmp_path / isolation
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        assert cgroup.Group(folder, isolation).used_bytes() == 100  # type: ignore[arg-type]


# ------------------------------------------------------------------ evidence after a death
def test_core_patterns_by_who_gets_the_core(tmp_path: Path) -> None:
    def pattern(text: str, uses_pid: str = "0") -> list[str]:
        place = machine(tmp_path, {"proc/sys/kernel/core_pattern": text, "proc/sys/kernel/core_uses_pid": uses_pid, "usr/bin/takes": ""})
        return severities("core-pattern", place)

    assert pattern("|/usr/bin/takes %p\n") == ["info"]
    assert pattern("|/usr/lib/missing %p\n") == ["info"]
    assert pattern("core\n") == ["info"]
    assert pattern("core\n", uses_pid="1") == []
    for number in "pPiIt":
        assert pattern(f"/var/cores/core.%e.%{number}\n") == []


def test_whether_stacks_can_be_read_is_tried() -> None:
    assert look("stacks-of-live-processes", here({})) == []
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace, under which nobody else may trace")
    answer = child("stacks-of-live-processes", wrapper=[strace, "-f", "-qq", "-e", "trace=none", "-o", "/dev/null"])
    assert found(answer) == {"stacks-of-live-processes": "warning"}


def test_missing_readers_and_a_missing_kernel_log_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert severities("kernel-log", machine(tmp_path, {"proc/vmstat": ""})) == ["info"]
    if os.access("/dev/kmsg", os.R_OK):
        assert look("kernel-log", here({})) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    [finding] = look("stack-readers", here({}))
    assert "py-spy" in finding.summary and "gdb" in finding.summary
    for name in ("py-spy", "gdb"):
        (tmp_path / name).touch(mode=0o755)
    assert look("stack-readers", here({})) == []


# ------------------------------------------------------------------ variables
def test_thread_variables_are_held_against_the_processors() -> None:
    assert look("thread-count", here({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})) == []
    assert severities("thread-count", here({"OMP_NUM_THREADS": "100000"})) == ["warning"]
    assert severities("thread-count", here({"OMP_NUM_THREADS": "all"})) == ["warning"]
    assert severities("thread-count", here({"OMP_NUM_THREADS": "²"})) == ["warning"]
    if here({}).cpus() > 1:
        assert severities("thread-count", here({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "2"})) == ["info"]


@pytest.mark.parametrize(
    ("check", "environment", "severity"),
    [
        ("thread-pinning", {"OMP_PROC_BIND": "close"}, "warning"),
        ("thread-pinning", {"OMP_PROC_BIND": "false"}, None),
        ("duplicate-ok-set", {"KMP_DUPLICATE_LIB_OK": "TRUE"}, "warning"),
        ("duplicate-ok-set", {"KMP_DUPLICATE_LIB_OK": "FALSE"}, None),
        ("preload", {"LD_PRELOAD": "/nowhere/libjemalloc.so"}, "warning"),
        ("preload", {}, None),
        ("allocator-variables", {"MALLOC_ARENA_MAX": "1"}, "info"),
        ("allocator-variables", {}, None),
        ("output-lost", {"PYTHONUNBUFFERED": "1"}, "info"),
        ("output-lost", {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}, None),
    ],
)
def test_variables_that_change_how_a_job_dies(check: str, environment: dict[str, str], severity: str | None, tmp_path: Path) -> None:
    place = machine(tmp_path, {"proc/vmstat": ""}, environment=environment)
    assert severities(check, place) == ([severity] if severity else [])


def test_a_preload_for_every_program_is_found(tmp_path: Path) -> None:
    assert severities("preload", machine(tmp_path, {"etc/ld.so.preload": "/lib/spy.so\n"})) == ["warning"]


def test_a_library_path_counts_only_with_a_runtime_in_it(tmp_path: Path) -> None:
    (tmp_path / "libother.so").write_text("not a library")
    place = here({"LD_LIBRARY_PATH": f"{tmp_path}:/nowhere"})
    assert look("library-path", place) == []
    shutil.copy(real_library("torch", "libgomp"), tmp_path / "libgomp.so.1")
    [finding] = look("library-path", place)
    assert finding.severity == "warning" and "openmp-gnu" in finding.summary


# ------------------------------------------------------------------ processor
def test_wheels_that_need_more_than_the_processor_has_are_errors_where_they_end_at_import(tmp_path: Path) -> None:
    python = installed("numpy==2.4.6", "polars==1.20", "tensorflow==2.19", "jaxlib==0.5", "torch==2.13")
    old = machine(tmp_path / "old", {"proc/cpuinfo": CPUINFO.format("hypervisor")}, python=python)
    findings = look("instruction-set", old)
    found = [(finding.severity, finding.summary.split()[0]) for finding in findings]
    assert found == [("error", "numpy"), ("error", "tensorflow"), ("error", "jaxlib"), ("warning", "polars")]
    assert "the hypervisor may hide it" in findings[0].summary
    new = machine(tmp_path / "new", {"proc/cpuinfo": CPUINFO.format(f"{V2} avx avx2 fma bmi1 bmi2 abm movbe")}, python=python)
    assert look("instruction-set", new) == []
    light = installed("numpy==2.3.5", "polars==1.20", "polars-lts-cpu==1.20")
    assert look("instruction-set", machine(tmp_path / "old", {}, python=light)) == []


def test_a_variable_that_asks_for_instructions_that_are_not_there_is_an_error(tmp_path: Path) -> None:
    def forced(**environment: str) -> list[str]:
        return severities(
            "instructions-forced", machine(tmp_path, {"proc/cpuinfo": CPUINFO.format("avx avx2 fma")}, environment=environment)
        )

    assert forced(OPENBLAS_CORETYPE="SkylakeX") == ["error"]
    assert forced(ATEN_CPU_CAPABILITY="avx512") == ["error"]
    assert forced(OPENBLAS_CORETYPE="Haswell") == ["info"]
    assert forced() == []


def test_openblas_told_to_use_missing_instructions_ends_with_sigill() -> None:
    """What the error claims, on a processor where it can be shown."""
    if " avx512f" in Path("/proc/cpuinfo").read_text() or Place(python=installed()).machine != "x86_64":
        pytest.skip("this processor has AVX-512, or is another")
    real_library("numpy", "libscipy_openblas")
    multiply = [sys.executable, "-c", "import numpy; a = numpy.ones((300, 300)); a @ a"]
    assert subprocess.run(multiply, env={**os.environ, "OPENBLAS_CORETYPE": "SkylakeX"}).returncode == -4


def test_sizes_are_told_in_the_largest_unit_that_leaves_a_digit() -> None:
    assert [size(count) for count in (0, 1023, 1536, 20 * MIB, 3 * GIB, 5 << 40)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "20 MiB",
        "3.0 GiB",
        "5.0 TiB",
    ]
