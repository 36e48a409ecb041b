"""What is known about a death beside how it ended: each fact with a real child that makes it true."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from matrix.diagnosis.judge import outcome
from matrix.evidence import cores, exits, fault, settings, space
from matrix.evidence.pidfds import why_not as no_pidfds
from matrix.evidence.signals import watch
from matrix.records import Fault, Observation
from matrix.runner.patience import Limits, Patience
from tests.matrix.conftest import Observe

MIB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
no_cores = cores.plan(Path("/tmp")).why_not
needs_cores = pytest.mark.skipif(bool(no_cores) or platform.machine() != "x86_64", reason=f"cores of x86-64: {no_cores}")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def most_mappings() -> int:
    return int(settings.MAPPINGS.read_text()) if settings.MAPPINGS.exists() else 1 << 30


# ------------------------------------------------------------------ the instruction
def fault_of(seen: Observation) -> Fault:
    (found,) = seen.faults
    return found


@needs_cores
@pytest.mark.parametrize("hook", [True, False], ids=["faulthandler on top", "bare"])
@pytest.mark.parametrize("stacks", [True, False], ids=["whole core", "cut off"])
def test_the_address_that_could_not_be_written_is_told_though_a_handler_raised_the_signal_again(
    observe: Observe, hook: bool, stacks: bool
) -> None:
    found = fault_of(observe("import ctypes; ctypes.memset(0x1234, 1, 4)", hook=hook, stacks=stacks))
    assert (found.source, found.trap, found.address, found.mapping) == ("core", "segfault", 0x1234, "nothing")
    assert found.library.startswith("libc") and len(found.code) == 32 and found.access in ("write", None)
    assert (found.access == "write") == hook  # only the frame of a handler keeps the processor's error code
    assert found.stack_left_bytes is not None and found.stack_left_bytes > 7 * MIB


HOLE = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
block = libc.mmap(None, ctypes.c_size_t(1 << 20), 3, 0x22, -1, ctypes.c_size_t(0))
page = block + (1 << 19)
libc.munmap({start}, 4096 * {pages})
ctypes.memset(page, 1, 4)
"""


@needs_cores
@pytest.mark.parametrize(("start", "pages", "before"), [("page", 1, "anonymous"), ("page - 4096", 2, "nothing")])
def test_what_lies_before_a_page_that_is_not_there_tells_an_overrun_from_what_was_given_back(
    observe: Observe, start: str, pages: int, before: str
) -> None:
    found = fault_of(observe(HOLE.format(start=start, pages=pages), hook=True, stacks=False))
    assert found.address is not None and (found.address % 4096, found.mapping, found.before) == (0, "nothing", before)


GATHER = """
#include <stdlib.h>
static float *table;
void make(void) { table = malloc(4000); for (int i = 0; i < 1000; i++) table[i] = i; }
float gather(long row) { return table[row]; }
float loose(float *row) { return *row; }
"""


@pytest.fixture
def gather(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    source, library = tmp_path / "gather.c", tmp_path / "libgather.so"
    source.write_text(GATHER)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True, timeout=60)
    return library


@needs_cores
@pytest.mark.parametrize("hook", [True, False], ids=["faulthandler on top", "bare"])
@pytest.mark.parametrize("row", [1 << 42, 1 << 36, -(1 << 33)], ids=["no address at all", "far behind", "far before"])
def test_an_index_that_leads_to_nowhere_is_told_from_a_pointer_that_does(observe: Observe, gather: Path, hook: bool, row: int) -> None:
    load = f"import ctypes; job = ctypes.CDLL({str(gather)!r}); job.make();"
    indexed = fault_of(observe(f"{load} job.gather(ctypes.c_long({row}))", hook=hook))
    pointed = fault_of(observe(f"{load} job.loose(ctypes.c_void_p({row} & (1 << 64) - 1))", hook=hook))
    assert indexed.index_bytes == 4 * row and indexed.library == "libgather.so"
    assert pointed.index_bytes is None and pointed.library == "libgather.so"


@needs_cores
@pytest.mark.parametrize("hook", [True, False], ids=["faulthandler on top", "bare"])
@pytest.mark.parametrize("pointer", [0xDDDDDDDDDDDDDDDD, 0xA5A5A5A5A5A5A5F5, 0x7F0012345678, 0])
def test_a_pointer_that_repeats_one_byte_is_told_from_another(observe: Observe, gather: Path, hook: bool, pointer: int) -> None:
    found = fault_of(observe(f"import ctypes; ctypes.CDLL({str(gather)!r}).loose(ctypes.c_void_p({pointer}))", hook=hook))
    assert (found.library, found.filled) == ("libgather.so", {0xDD: 0xDD, 0xA5: 0xA5}.get(pointer >> 56))


MADE = """
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4096), {access}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
ctypes.memmove(at, bytes.fromhex("{code}"), {size})
ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_char_p, ctypes.c_long)(at)(b"base", -(1 << 36))
"""
INDEXED = "f20f1004f7c3"  # movsd (%rdi,%rsi,8), %xmm0; ret
WIDE = "8fe9780100"  # of XOP, which no processor has any more


@needs_cores
@pytest.mark.parametrize("hook", [True, False], ids=["faulthandler on top", "bare"])
@pytest.mark.parametrize(
    ("code", "access", "trap", "code_in", "index"),
    [
        (INDEXED, 7, "segfault", "anonymous", -(1 << 39)),
        (WIDE, 7, "invalid opcode", "anonymous", None),
        (INDEXED, 3, "segfault", "no code", None),
    ],
    ids=["an index", "an instruction that nobody has", "data"],
)
def test_code_that_was_made_at_run_time_is_told_from_data_and_from_a_library(
    observe: Observe, gather: Path, hook: bool, code: str, access: int, trap: str, code_in: str, index: int | None
) -> None:
    found = fault_of(observe(MADE.format(code=code, size=len(code) // 2, access=access), hook=hook, stacks=True))
    assert (found.trap, found.code_in, found.index_bytes, found.library) == (trap, code_in, index, "")
    assert found.code.startswith(code)
    assert fault_of(observe(f"import ctypes; ctypes.CDLL({str(gather)!r}).loose(None)", hook=hook)).code_in == "file"


DEEP = """
#include <string.h>
int deep(int n) { volatile char b[512]; b[0] = n; return n ? deep(n - 1) + b[0] : 0; }
int wide(int n) { volatile char b[n]; b[0] = 1; return b[0]; }
"""


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    source, library = tmp_path / "deep.c", tmp_path / "deep.so"
    source.write_text(DEEP)
    subprocess.run([compiler, "-O0", "-fno-stack-protector", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@needs_cores
@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("hook", [True, False], ids=["faulthandler on top", "bare"])
def test_a_stack_that_ran_over_is_told_by_what_is_left_of_it(observe: Observe, deep: Path, where: str, hook: bool) -> None:
    start = "lib.deep(10**9)" if where == "main" else "t = threading.Thread(target=lib.deep, args=(10**9,)); t.start(); t.join()"
    seen = observe(f"import ctypes, threading; lib = ctypes.CDLL({str(deep)!r}); {start}", hook=hook)
    found = fault_of(seen)
    assert (seen.exit.signal, found.library) == ("SIGSEGV", "deep.so")
    assert found.stack_left_bytes is not None and found.stack_left_bytes < 8192
    if found.address is not None:
        assert (
            found.stack_distance_bytes is not None and abs(found.stack_distance_bytes) < 8192 and found.mapping in ("nothing", "no access")
        )
    else:  # in a thread the handler's own frame did not fit
        assert (where, hook, found.trap) == ("thread", True, "segfault without an address")


@needs_cores
def test_an_unknown_instruction_is_told_with_its_bytes(observe: Observe) -> None:
    program = """
        import ctypes, mmap
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(bytes.fromhex("0f0b"))
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    """
    found = fault_of(observe(program, stacks=True))
    assert (found.trap, found.code[:4], found.address) == ("invalid opcode", "0f0b", None)


@needs_cores
def test_a_signal_that_a_process_sends_is_no_fault(observe: Observe) -> None:
    for program in ("import os; os.abort()", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"):
        assert observe(program).faults == []


MAPPED = """
    import mmap, os
    file = open("rows.bin", "w+b")
    file.truncate(40960)
    view = mmap.mmap(file.fileno(), 40960)
    view[0] = 1
    {change}
    view[20000]
    view[0]
"""


def test_a_mapped_file_that_was_cut_is_named(observe: Observe, tmp_path: Path) -> None:
    seen = observe(MAPPED.format(change="os.truncate('rows.bin', 100)"))
    (short,) = seen.short_files
    assert (seen.exit.signal, short.path) == ("SIGBUS", str(tmp_path / "cwd" / "rows.bin"))
    assert (short.mapped_to_bytes, short.size_bytes, short.at_fault) == (40960, 100, not no_cores)
    assert short.changed is not False


def test_a_mapped_file_that_was_too_short_from_the_beginning_was_changed_by_nobody(observe: Observe, tmp_path: Path) -> None:
    rows = tmp_path / "rows.bin"
    rows.write_bytes(bytes(100))
    os.utime(rows, (1e9, 1e9))
    program = """
        import ctypes, os, sys
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        at = libc.mmap(None, 40960, 1, 1, os.open("ROWS", os.O_RDONLY), 0)
        ctypes.string_at(at + 20000, 1)
    """
    seen = observe(program.replace("ROWS", str(rows)))
    (short,) = seen.short_files
    assert (seen.exit.signal, short.path, short.changed) == ("SIGBUS", str(rows), False)


def test_whether_a_mapped_file_was_written_to_is_told_by_the_times_of_its_change_and_of_the_mapping() -> None:
    def changed(*, written_s: float, read_s: float, seen_s: float | None, kept: bool = True) -> bool | None:
        times = {"st_mtime": written_s, "st_mtime_ns": int(written_s * 1e9), "st_atime_ns": int(read_s * 1e9)}
        return fault.was_changed(cast("os.stat_result", SimpleNamespace(**times)), kept, 100.0, seen_s)

    assert changed(written_s=50.0, read_s=40.0, seen_s=None) is False  # before the attempt
    assert changed(written_s=105.0, read_s=106.0, seen_s=103.0) is True  # it was mapped by then
    assert changed(written_s=103.0, read_s=102.0, seen_s=103.4) is True  # nobody has read it since
    assert changed(written_s=102.0, read_s=103.0, seen_s=103.4) is False  # what was mapped was written already
    assert changed(written_s=102.0, read_s=103.0, seen_s=103.4, kept=False) is None
    assert changed(written_s=102.0, read_s=102.0, seen_s=None) is None


@pytest.mark.parametrize(("permissions", "named"), [("r-xp", True), ("r--p", False)])
def test_a_file_that_was_rewritten_while_code_of_it_was_loaded_is_named(permissions: str, named: bool, tmp_path: Path) -> None:
    library = tmp_path / "ops.so"
    library.write_bytes(bytes(8192))
    began = library.stat().st_mtime - 10
    maps = f"7f0000000000-7f0000002000 {permissions} 00000000 08:01 {library.stat().st_ino} {library}\n"

    def found(*, seen_s: float, bus: bool, address: int | None = None) -> list[bool | None]:
        clock = fault.Clock(began_unix_s=began, seen_unix_s={(7, str(library)): began + seen_s})
        return [file.changed for file in fault.short_files(7, maps, address, clock, sampled=maps, bus=bus)]

    assert found(seen_s=5, bus=False) == ([True] if named else [])
    assert found(seen_s=5, bus=True) == []  # its pages are all there
    assert found(seen_s=5, bus=True, address=0x7F0000000010) == [True]  # but they were not when it was read
    os.utime(library, (began + 4, began + 3))  # read after that
    assert found(seen_s=5, bus=False) == []


def test_a_mapped_file_that_was_replaced_or_removed_is_none_that_was_cut(observe: Observe) -> None:
    change = "open('new', 'wb').close(); os.replace('new', 'rows.bin'); os.remove('rows.bin')"
    seen = observe(MAPPED.format(change=change))
    assert (seen.exit.returncode, seen.short_files) == (0, [])


@needs_root
@pytest.mark.parametrize("step_s", [0.3, 0.0])
def test_a_file_system_of_the_childs_own_that_ran_full_is_seen(step_s: float, observe: Observe, tmp_path: Path) -> None:
    """A sparse file is mapped; there is no room for its pages: SIGBUS, and nothing of that mount is left afterwards.  Without a
    pause all of it is over between two looks, and is seen while the kernel writes the core: on a crowded machine that may be over, too,
    so it dies again then."""
    program = """
        import ctypes, mmap, os, time
        libc = ctypes.CDLL(None)
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0
        os.makedirs("small", exist_ok=True)
        assert libc.mount(b"tmpfs", b"small", b"tmpfs", 0, b"size=8m") == 0
        file = open("small/rows.bin", "w+b")
        file.truncate(32 << 20)
        view = mmap.mmap(file.fileno(), 32 << 20)
        for step in range(32):
            view[step << 20 : (step + 1) << 20] = bytes([1]) * (1 << 20)
            print("step", step, flush=True)
            time.sleep(STEP_S)
    """
    for _ in range(5):
        seen = observe(program.replace("STEP_S", str(step_s)))
        (small,) = [place for place in seen.filesystems if place.folder == str(tmp_path / "cwd" / "small")]
        if small.least_free_bytes < MIB:
            break
    assert (seen.exit.signal, small.kind, small.use, small.total_bytes) == ("SIGBUS", "tmpfs", "written", 8 * MIB)
    assert small.least_free_bytes < MIB and seen.short_files == []
    assert {place.use for place in seen.filesystems} == {"shm", "temp", "cwd", "written"}


@needs_root
def test_a_file_system_that_came_with_the_program_is_seen_though_no_file_on_it_is_open_for_long(observe: Observe, tmp_path: Path) -> None:
    program = """
        import ctypes, os, pathlib, time
        libc = ctypes.CDLL(None)
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0
        os.mkdir("small")
        assert libc.mount(b"tmpfs", b"small", b"tmpfs", 0, b"size=64m,nr_inodes=40") == 0
        try:
            for number in range(50):
                pathlib.Path("small", str(number)).write_text("x")
        except OSError:
            print("step 1", flush=True)
            time.sleep(1)
            os.abort()
    """
    seen = observe(program)
    (small,) = [place for place in seen.filesystems if place.folder == str(tmp_path / "cwd" / "small")]
    assert (seen.exit.signal, small.kind, small.use, small.least_free_inodes) == ("SIGABRT", "tmpfs", "written", 0)
    assert small.least_free_bytes > 32 * MIB


def test_a_mount_that_nobody_is_seen_to_use_is_told_only_when_it_ran_full_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_mounts", lambda pid: [(Path("/").stat().st_dev, "/")])

    def told(*free_blocks: int) -> list[str]:
        free = iter(free_blocks)
        monkeypatch.setattr(
            os, "statvfs", lambda path: SimpleNamespace(f_bavail=next(free), f_frsize=MIB, f_blocks=100, f_files=0, f_favail=0)
        )
        watched = space.Space({})
        watched.look(0.0, [], os.getpid(), {})
        watched.sample(1.0)
        return [place.folder for place in watched.record()]

    assert told(50, 1) == ["/"]
    assert told(50, 49) == told(1, 1) == []


# ------------------------------------------------------------------ limits, signals, counts
@needs_cores
@pytest.mark.skipif(most_mappings() > 1 << 18, reason="it may have so many mappings that it takes long to make them")
def test_a_process_that_has_as_many_mappings_as_it_may_is_seen_to_have_them(observe: Observe) -> None:
    program = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        at = libc.mmap(None, MOST * 4096, 0, 0x22, -1, 0)
        while libc.mprotect(at, 4096, 1) == 0:  # one page of two: each is a mapping of its own
            at += 8192
        os.abort()
    """
    seen = observe(program.replace("MOST", str(most_mappings() + 8)))
    (used,) = [bound.used for one in seen.settings for bound in one.bounds if bound.name == "maps"]
    assert seen.exit.signal == "SIGABRT"
    assert used is not None and used >= 0.9 * most_mappings()


def test_limits_that_the_program_set_itself_are_seen_with_what_it_used(observe: Observe) -> None:
    program = """
        import os, resource as r, signal, time
        r.setrlimit(r.RLIMIT_AS, (900 << 20, r.RLIM_INFINITY))
        r.setrlimit(r.RLIMIT_NOFILE, (60, 60))
        r.setrlimit(r.RLIMIT_CPU, (50, 60))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: None)
        files = [open("/dev/null") for _ in range(40)]
        block = bytearray(300 << 20)
        time.sleep(1.5)
        os._exit(0)  # Python puts handlers back at its end
    """
    main = observe(program).settings[0]
    bounds = {bound.name: bound for bound in main.bounds}
    assert (main.role, bounds["as"].soft, bounds["as"].hard, bounds["nofile"].soft, bounds["cpu"].hard) == ("main", 900 * MIB, None, 60, 60)
    assert 300 * MIB < (bounds["as"].used or 0) < 900 * MIB and 43 <= (bounds["nofile"].used or 0) <= 60
    assert "SIGHUP" in main.ignored and "SIGPIPE" not in main.ignored and "SIGTERM" in main.caught
    assert main.cpus == len(os.sched_getaffinity(0))


def test_a_limit_that_is_set_a_moment_before_the_death_is_seen(observe: Observe) -> None:
    program = """
        import os, resource as r, time
        time.sleep(0.3)
        r.setrlimit(r.RLIMIT_AS, (900 << 20, 950 << 20))
        os.abort()
    """
    bounds = {bound.name: bound for bound in observe(program).settings[0].bounds}
    assert (bounds["as"].soft, bounds["as"].hard) == (900 * MIB, 950 * MIB)


def test_descriptors_that_a_step_keeps_have_a_slope_and_a_limit(observe: Observe) -> None:
    program = """
        import os, resource, time
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        kept = []
        for step in range(60):
            kept.append(open("/dev/null"))
            print("step", step, flush=True)
            time.sleep(0.1)
    """
    (trend,) = [trend for trend in observe(program).trends if trend.what == "descriptors"]
    assert (trend.role, trend.limit) == ("main", 200) and trend.per_step is not None
    assert 0.9 < trend.per_step.value < 1.1 and trend.most - trend.first > 30  # at its end it closes them


def test_more_threads_than_processors_are_counted(observe: Observe) -> None:
    program = """
        import ctypes, threading, time
        spin = "import time\\nend = time.time() + 2.5\\nwhile time.time() < end: pass"
        import subprocess, sys
        for child in [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(6)]: child.wait()
    """
    seen = observe(program, cpus=[0])
    assert seen.load is not None and seen.load.cpus == 1 and seen.load.runnable_most >= 4
    assert seen.load.wait_s is not None and seen.load.wait_s > 2
    assert seen.exit.involuntary_switches is not None and seen.exit.involuntary_switches > 20
    assert seen.exit.voluntary_switches is not None and seen.exit.voluntary_switches > 0


@pytest.mark.skipif(bool(watch().why_not), reason=f"no trace of signals here: {watch().why_not}")
def test_who_sent_a_signal_is_told_from_the_kernels_own_and_from_ours(observe: Observe) -> None:
    marker = f"ends-here-{os.getpid()}"

    def kill() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end and not (
            found := subprocess.run(["pgrep", "-f", "--", f" {marker}$"], capture_output=True, text=True).stdout.split()
        ):
            time.sleep(0.1)
        os.kill(int(found[0]), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = observe([sys.executable, "-c", "import time; time.sleep(60)", marker])
    killer.join()
    assert [(sent.signal, sent.from_pid, sent.inside) for sent in seen.signals_sent] == [("SIGTERM", os.getpid(), False)]
    inside = observe("import os, signal, subprocess; subprocess.run(['sh', '-c', f'kill -TERM {os.getpid()}; sleep 1'])")
    assert [(sent.signal, sent.inside, sent.by_tool) for sent in inside.signals_sent][:1] == [("SIGTERM", True, False)]
    ours = observe("import time; print('step 1', flush=True); time.sleep(60)", limits=Limits(idle_s=1))
    assert ours.exit.ended_by == "idle" and all(sent.by_tool for sent in ours.signals_sent)


@pytest.mark.parametrize(
    ("program", "left_by"),
    [
        ("import os; os._exit(0)", "os._exit"),
        ("import sys; sys.exit(3)", "interpreter"),
        ("raise ValueError", "interpreter"),
        ("import ctypes; ctypes.CDLL(None).exit(0)", "native code"),
        ("import os; os.abort()", None),
    ],
)
def test_who_ended_a_process_with_a_status_is_told(observe: Observe, program: str, left_by: str | None) -> None:
    assert observe(program).exit.left_by == left_by


def test_what_it_printed_becomes_figures_and_messages(observe: Observe) -> None:
    program = "for n, x in enumerate(['0.5', '7e29', 'inf']): print('step', n, f'loss={x}')\nimport ctypes, resource\nopen('/nothing/x')"
    seen = observe(program)
    (loss,) = seen.metrics
    assert (loss.name, loss.first_bad, loss.first_bad_step, loss.largest_abs) == ("loss", "inf", 2, 7e29)
    full = observe("import errno, os; raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))")
    assert [message.kind for message in full.messages] == ["no space"]


def test_each_process_that_crashed_has_its_dump(observe: Observe) -> None:
    program = """
        import ctypes, os
        def crash(n): crash(n - 1) if n else ctypes.string_at(0)
        if os.fork() == 0:
            crash(150)
        os.wait()
        crash(2)
    """
    seen = observe(program)
    main, child = seen.crash_dumps
    assert (main.error, main.cut_off, main.threads, len(main.frames)) == ("Segmentation fault", False, 1, 5)
    assert (child.error, child.cut_off, len(child.frames)) == ("Segmentation fault", True, 100)


def test_native_packages_are_listed_in_the_order_of_their_import(observe: Observe) -> None:
    for end in ("", "; import os; os.abort()"):
        found = observe(f"import psutil, numpy{end}").native_imports
        assert [name for name in found if name in ("psutil", "numpy")] == ["psutil", "numpy"]


def test_the_environment_at_exec_is_kept_without_secrets(observe: Observe) -> None:
    env = {"OMP_NUM_THREADS": "3", "PYTHON_API_KEY": "hidden", "HOME_OF": "x"}
    found = observe("import os; os.environ['OMP_NUM_THREADS'] = '1'", env=env)
    assert found.env_at_exec["OMP_NUM_THREADS"] == "3" and not {"PYTHON_API_KEY", "HOME_OF"} & set(found.env_at_exec)
    assert [(change.name, change.value) for change in found.env_changes] == [("OMP_NUM_THREADS", "1")]


# ------------------------------------------------------------------ who is who
RANK = """
import os, time
rank = int(os.environ["RANK"])
os.write(1, f"[rank{rank}]: step {3 + 4 * rank}\\n".encode())  # one write: print makes two, and both ranks share the pipe
if rank == 1 and os.fork() == 0:
    time.sleep(60)
time.sleep(2)
os.kill(os.getpid(), 11) if rank == 1 else time.sleep(60)
"""
LAUNCHER = f"""
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", {RANK!r}], env={{**os.environ, "RANK": str(n)}}) for n in range(2)]
ranks[1].wait()
raise SystemExit(1)
"""


def test_ranks_of_a_launcher_are_told_from_its_other_processes_and_have_steps_of_their_own(observe: Observe) -> None:
    seen = observe(LAUNCHER)
    roles = {(process.role, process.rank) for process in seen.memory.processes}
    assert roles >= {("main", None), ("rank", 0), ("rank", 1), ("worker", 1)}
    assert seen.progress.rank_steps == {0: 3, 1: 7}
    if not any(missing.what.startswith("how other") for missing in seen.not_collected):
        assert [(death.role, death.signal) for death in seen.deaths if death.part == "initiating"] == [("rank", "SIGSEGV")]


def test_a_process_that_mines_is_told_from_a_data_worker(observe: Observe) -> None:
    program = """
        import multiprocessing, time
        def mine_negatives(): time.sleep(60)
        def collate(): time.sleep(60)
        fork = multiprocessing.get_context("fork")
        for target in (mine_negatives, collate):
            fork.Process(target=target, daemon=True).start()
        print("step 1", flush=True)
        time.sleep(60)
    """
    seen = observe(program, limits=Limits(idle_s=1))
    assert sorted(process.role for process in seen.processes) == ["main", "miner", "worker"]


def test_threads_that_are_lost_at_a_fork_are_named(observe: Observe) -> None:
    program = (
        "import os, threading, time; threading.Thread(target=time.sleep, args=(1,), name='prefetch').start(); os.fork() or os._exit(0)"
    )
    assert [fork.thread_names for fork in observe(program).forks] == [["MainThread", "prefetch"]]


# ------------------------------------------------------------------ where the kernel sends no events
@pytest.mark.skipif(bool(no_pidfds()), reason=no_pidfds())
def test_without_events_the_kernel_is_asked_how_a_worker_ended(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(exits, "_listening", refused)
    program = """
        import ctypes, multiprocessing, time
        def work():
            time.sleep(2)
            ctypes.string_at(0)
        worker = multiprocessing.get_context("fork").Process(target=work)
        other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        worker.start()
        other.start()
        worker.join()
        time.sleep(1)
        import os
        os._exit(1)
    """
    seen = observe(program)
    first, second, *rest = [(death.role, death.signal, death.part) for death in seen.deaths]
    assert (first, second) == (("worker", "SIGSEGV", "initiating"), ("main", None, "cascade"))
    assert all(part == "teardown" for _, _, part in rest)
    assert any("those that lived for half a second were asked for" in missing.why for missing in seen.not_collected)


# ------------------------------------------------------------------ a tool that is stopped
def test_time_in_which_nobody_looked_counts_against_no_limit() -> None:
    patience = Patience(Limits(wall_s=10, startup_s=5, idle_s=3, stall_s=6), expects_steps=True)
    patience.saw_progress(1.0)
    patience.paused(100.0)
    assert [overdue(patience, at_s) for at_s in (103.5, 104.5)] == [None, "idle"]
    patience.saw_output(105.0)
    assert [overdue(patience, at_s) for at_s in (107.5, 110.5)] == ["stall", "wall"]


def overdue(patience: Patience, now_s: float) -> str | None:
    """Of a program that does nothing."""
    patience.saw_activity(now_s, 0.0, on_disk=False, runnable=False)
    return patience.overdue(now_s)


# ------------------------------------------------------------------ a program that gets no processor
@pytest.mark.parametrize(
    ("cpu_s", "runnable", "expected"),
    [
        pytest.param(0.0, False, "startup", id="waits for something else"),
        pytest.param(1.0, True, "startup", id="has a processor"),
        pytest.param(2.0, True, "startup", id="has two"),
        pytest.param(0.5, True, None, id="has half of one: its limit is not over"),
        pytest.param(0.0, True, None, id="has none"),
    ],
)
def test_time_in_which_a_program_could_run_and_did_not_is_no_silence(cpu_s: float, runnable: bool, expected: str | None) -> None:
    patience = Patience(Limits(startup_s=20), expects_steps=True)
    for second in range(1, 31):
        patience.saw_activity(second, cpu_s, on_disk=False, runnable=runnable)
    assert patience.overdue(30.0) == expected


@pytest.mark.parametrize("limits", [Limits(startup_s=2, idle_s=None, stall_s=None), Limits(startup_s=None, idle_s=2)])
def test_a_program_without_a_processor_is_not_waited_for_for_ever(limits: Limits) -> None:
    patience = Patience(limits, expects_steps=limits.startup_s is not None)
    patience.saw_output(0.0)
    for second in range(1, 50):
        patience.saw_activity(second, 0.01, on_disk=False, runnable=True)
        if patience.overdue(second):
            break
    assert (patience.overdue(second), second) == ("starved", 41)


def test_what_a_program_waited_for_a_processor_is_no_gap_that_a_later_silence_is_measured_by() -> None:
    patience = Patience(Limits(idle_s=3, stall_s=6), expects_steps=True)
    patience.saw_activity(10.0, 1.0, on_disk=False, runnable=False)
    patience.saw_progress(10.0)
    for second in range(11, 31):  # it got a tenth of a processor, and took a step at last
        patience.saw_activity(second, 0.1, on_disk=False, runnable=True)
    patience.saw_progress(30.0)
    assert patience.longest_gap_s == pytest.approx(2.0)
    patience.saw_activity(31.0, 0.0, on_disk=False, runnable=False)
    patience.saw_progress(50.0)
    assert patience.longest_gap_s == pytest.approx(20.0)  # of its own accord


def test_a_program_that_hangs_once_it_has_a_processor_is_overdue() -> None:
    patience = Patience(Limits(idle_s=5), expects_steps=True)
    patience.saw_progress(0.0)
    for second in range(1, 21):
        patience.saw_activity(second, 0.0, on_disk=False, runnable=second <= 10)
        assert patience.overdue(second) == ("idle" if second > 15 else None)


LAST_IN_LINE = """
import os
try:
    open('/proc/self/autogroup', 'w').write('19')
except OSError:
    pass  # processes are not grouped by their session here
os.sched_setaffinity(0, [{cpu}])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print('step 1', flush=True)
while True:
    pass
"""


@pytest.fixture
def busy_cpu() -> Iterator[int]:
    """A processor on which another program runs all the time, so that one of the lowest class hardly ever does."""
    cpu = min(os.sched_getaffinity(0))
    spinner = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"])
    try:
        with subprocess.Popen([sys.executable, "-c", LAST_IN_LINE.format(cpu=cpu)], stdout=subprocess.PIPE, start_new_session=True) as last:
            assert last.stdout
            last.stdout.readline()
            before = psutil.Process(last.pid).cpu_times()
            time.sleep(1)
            after = psutil.Process(last.pid).cpu_times()
            last.kill()
        used_s = after.user + after.system - before.user - before.system
        if used_s > 0.05:
            pytest.skip(f"here the lowest class has {used_s:.2f} s of a busy processor in a second")
        yield cpu
    finally:
        spinner.kill()
        spinner.wait()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs the scheduling classes of Linux")
def test_a_program_that_gets_no_processor_does_not_hang(observe: Observe, busy_cpu: int) -> None:
    seen = observe(LAST_IN_LINE.format(cpu=busy_cpu), limits=Limits(idle_s=0.25))
    found = outcome(seen)
    assert (seen.exit.ended_by, found.kind, found.steps, found.signature) == ("starved", "censored", 1, None), seen
    assert "had no processor" in found.reason
    assert seen.starved_s > 4


STOPPED = """
import pathlib, sys, threading
sys.path.insert(0, {root!r})
from matrix.records import *
from matrix.runner.attempt import *
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits
program = "import time\\nfor n in range(12): print('step', n, flush=True); time.sleep(0.5)"
attempt = Attempt(id='1-x', trial=Trial(id=1, cell={{}}), argv=[sys.executable, '-c', program], env={{}}, cwd='/', key='k', program='p')
with Guardian() as guardian:
    job = Job(attempt=attempt, folder=pathlib.Path('a').resolve(), limits=Limits(idle_s=4, wall_s=12))
    seen = run(job, guardian, stop=threading.Event())
print(seen.exit.ended_by, seen.exit.returncode, seen.paused_s > 4, seen.wall_s > 9, (seen.progress.longest_gap_s or 9) < 4)
"""


@pytest.mark.slow
def test_a_tool_that_was_stopped_for_longer_than_its_limits_ends_nothing(tmp_path: Path) -> None:
    tool = subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(root=str(Path(__file__).parents[2]))], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    log = tmp_path / "a" / "stdout.log"
    while not (log.exists() and "step 2" in log.read_text()):
        assert tool.poll() is None
        time.sleep(0.05)
    tool.send_signal(signal.SIGSTOP)
    time.sleep(8)
    tool.send_signal(signal.SIGCONT)
    assert tool.communicate()[0].split() == ["itself", "0", "True", "True", "True"]
