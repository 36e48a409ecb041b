"""The data model on one page.

Data flows one way: Spec -> Trial -> Attempt -> Observation -> Finding -> Verdict -> report.
Facts (`Observation`), judgements (`Finding`, `Ranked`) and words (`reports/`) are different types:
an observation says `returncode=-9, peak_tree_rss_bytes=...` and never "looks like OOM".

Every record is frozen and keyword-only, carries units in its names and says what `None` means.
Readers must treat every field that has a default as optional: files of older versions lack it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

Value = str | int | float | bool
Cell = dict[str, Value]
Purpose = Literal["calibrate", "find", "verify", "control"]

T = TypeVar("T")


# ------------------------------------------------------------------ what to run
@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One question that the search or the diagnosis asks."""

    id: int
    cell: Cell
    max_steps: int | None = None  # None: to the program's natural end
    purpose: Purpose = "find"
    probes: dict[str, str] = dataclasses.field(default_factory=dict)
    why: str = ""  # one sentence for people: what the answer will tell
    watched: bool = True  # False: without hook, samples, cores or events of the kernel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One child process, as it was going to be started (attempt.json)."""

    id: str  # "0007-ab12cd34": number in the run folder and hash of the cell
    trial: Trial
    argv: list[str]
    env: dict[str, str]  # what the specification sets on top of the inherited environment
    cwd: str
    key: str  # equal keys mean: same cell, command, environment and program
    program: str  # fingerprint of the program's own files
    memory_limit_bytes: int | None = None  # None: no limit asked for
    cpus: list[int] | None = None  # None: every CPU of the tool
    schema: str = "matrix.attempt/1"


# ------------------------------------------------------------------ facts about one attempt
EndedBy = Literal["itself", "startup", "idle", "stall", "starved", "wall", "length", "memory_watchdog", "interrupt", "nobody"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exit:
    """How the main process ended."""

    returncode: int | None  # as in subprocess: negative for a signal; None: it could not be started
    signal: str | None = None  # "SIGABRT"; from the wait status, or from 128+n of a wrapper (see wrapped)
    wrapped: bool = False  # the signal was read from an exit status of 128+n
    core_dumped: bool = False
    ended_by: EndedBy = "itself"  # who ended it: everything else is our own doing, but "nobody": it still runs
    start_error: str | None = None  # why it could not be started
    cpu_s: float | None = None  # used by the main process and those it waited for; None: unknown
    involuntary_switches: int | None = None  # how often the scheduler took the CPU from them while they could run; None: unknown
    voluntary_switches: int | None = None  # how often they gave it up, to wait for something; None: unknown
    left_by: Literal["os._exit", "interpreter", "native code"] | None = None  # who ended it with a status; None: a signal, or no hook in it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Steps as the program printed them."""

    last_step: int | None = None  # None: it ended before its first step
    total_steps: int | None = None  # None: the program does not say how many there will be
    first_step_s: float | None = None  # seconds from start to the first step
    last_step_s: float | None = None
    longest_gap_s: float | None = None  # longest time between two signs of progress
    ran_gap_s: float | None = None  # the same, less the time in which the program could run and got no processor; None: not known
    finished_line: bool | None = None  # None: the specification names no such line
    last_line: str = ""
    rank_steps: dict[int, int] = dataclasses.field(default_factory=dict)  # last step of each rank; {}: no ranks are told apart
    learnt: str = ""  # pattern of the steps, learnt from this output; "": the common forms or the specification's pattern told them
    halves: tuple[int, int] | None = None  # steps in the first and in the second half of the time of all steps; None: not known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """A figure that the program printed with its steps, `loss=0.31`, from the output that was kept."""

    name: str
    last: str  # as printed: "0.31", "nan"
    last_step: int | None  # step on its line; None: none there
    values: int  # how often it was printed
    recent: list[str] = dataclasses.field(default_factory=list)  # the last 8 as printed, the newest last
    median_abs: float | None = None  # of the finite values; None: there was none
    largest_abs: float | None = None
    first_bad: str | None = None  # first value that is no finite number: "nan", "inf"; None: never
    first_bad_step: int | None = None


MessageKind = Literal[
    "heap damaged", "stack overflow", "stack smashed", "assertion", "c++ exception", "fatal python error", "numpy abi",
    "missing symbol", "missing library", "bad instruction", "openmp conflict", "openmp warning", "out of memory",
    "cuda out of memory", "cuda assert", "cuda error", "no space", "bus error", "too many files", "no more processes",
    "cpu time", "file too large", "no more ports", "broken pipe", "worker died", "terminated", "corrupt input", "bad number",
    "recursion",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A line of the program's output whose words have one meaning, whoever prints it."""

    kind: MessageKind
    text: str
    stream: Literal["stdout", "stderr"]
    count: int = 1  # lines of this kind; the text is the first one's
    pid: int | None = None  # named in the line; None: none is


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """What one process of the tree held, as it was last seen alive."""

    pid: int
    role: str  # main | worker | miner | rank | other
    rank: int | None = None  # RANK, or what its launcher sets in its place, in its environment at exec; None: not set
    first_s: float = 0.0  # first and last seconds at which it was sampled
    last_s: float = 0.0
    peak_rss_bytes: int = 0  # the kernel's high-water mark at the last look (at exit for the main process)
    anon_bytes: int = 0
    file_bytes: int = 0  # mapped files: the kernel can drop these pages
    shmem_bytes: int = 0  # /dev/shm, shared anonymous maps
    swap_bytes: int = 0
    pss_bytes: int | None = None  # most seen, as the next one: a process that ends has less; None: not read (gone too soon)
    uss_bytes: int | None = None
    huge_bytes: int | None = None  # of its anonymous memory, most seen in huge pages (transparent ones); None: not read
    minor_faults: int = 0
    major_faults: int = 0
    threads: int = 0  # most seen
    descriptors: int | None = None  # most seen; None: not permitted
    descriptor_limit: int | None = None  # soft limit; None: unlimited or unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of the whole process tree; the curve itself is in memory.csv."""

    isolation: Literal["cgroup-v2", "cgroup-v1", "watchdog", "none"] = "none"
    limit_bytes: int | None = None
    peak_tree_rss_bytes: int | None = None  # largest sum over processes of one sample (shared pages counted repeatedly)
    peak_main_rss_bytes: int | None = None  # the kernel's own high-water mark of the main process
    peak_group_bytes: int | None = None  # the cgroup's high-water mark, page cache included
    peak_group_shmem_bytes: int | None = None  # most seen of it in memory file systems and shared memory; None: not counted
    last_tree_rss_bytes: int | None = None  # last sample before the end
    first_tree_rss_bytes: int | None = None  # the sample nearest to the first step
    samples: int = 0
    oom_kills: int | None = None  # kernel OOM kills in our group and every group nested below it; None: no counter
    system_available_bytes: int | None = None  # of the machine, at the last sample
    peak_tree_pss_bytes: int | None = None  # largest sum of PSS, which counts shared pages once; None: not all were read
    shm_free_bytes: int | None = None  # least free space seen in /dev/shm; None: there is none
    cwd_free_bytes: int | None = None  # ... on the file system of the working folder
    temp_free_bytes: int | None = None  # ... on that of the attempt's temp folder
    processes: list[ProcessMemory] = dataclasses.field(default_factory=list)  # largest peak first, at most 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slope:
    """Growth with its 95 % interval, in bytes per second or bytes per step."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """When growth would meet the limit, from the first half of the curve alone; times are since the start of the attempt."""

    made_s: float  # the last sample that it knows
    limit_s: float | None  # None: no growth that meets the limit
    low_s: float | None  # 95 % interval; None: not to be told
    high_s: float | None  # None: perhaps never
    limit_step: int | None = None  # the step of limit_s; None: no steps


CurveShape = Literal["flat", "plateau", "linear", "staircase", "spike", "cliff", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryCurve:
    """The form of memory over time once the warm-up is cut off; the curve itself is in memory.csv."""

    shape: CurveShape  # unknown: too few samples after the warm-up
    series: Literal["group", "private"]  # charged to the cgroup without file cache, or the sum over processes of RSS without shared pages
    samples: int
    warmup_s: float  # cut off
    start_bytes: int  # after the warm-up
    end_bytes: int  # at the last sample
    peak_bytes: int  # over the whole attempt
    noise_bytes: int  # median deviation from the fitted line
    per_s: Slope | None = None  # None: shape unknown
    per_step: Slope | None = None  # None: shape unknown, or no steps
    stair_bytes: int | None = None  # median height of a stair; None: no staircase
    stair_s: float | None = None  # median seconds between stairs
    stair_steps: float | None = None  # median steps between stairs; None: no steps
    rise_at_end_bytes: int = 0  # of the last moment over the level before it
    limit_bytes: int | None = None  # None: no limit was set
    forecast: Forecast | None = None  # None: no limit, or too few samples


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessSeen:
    """One process of the tree as it was last seen (for hangs: just before it was ended)."""

    pid: int
    ppid: int
    role: str  # main | worker | miner | rank | other
    name: str
    state: str  # R, S, D, T, Z as in /proc
    wchan: str = ""  # kernel function it sleeps in; "" when running or unknown
    threads: int = 1
    cpu_s: float = 0.0  # user + system seconds used in all
    cpu_delta_s: float = 0.0  # used in the last window of window_s seconds
    window_s: float = 0.0
    stack: list[str] = dataclasses.field(default_factory=list)  # innermost first; [] when none could be had
    gil_holder: str | None = None  # thread that holds the interpreter lock while it runs no Python code; None: none, or unknown
    rank: int | None = None  # as in ProcessMemory
    runnable_threads: int | None = None  # threads in state R, the mean of the window; None: not counted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Library:
    """A native library that was mapped into a process of the child."""

    pid: int
    path: str
    family: str  # openmp-llvm | openmp-gnu | blas-openblas | blas-mkl | ...: from exported symbols, never from the name
    build_id: str | None = None
    inode: str = ""  # device:inode, which is what the loader compares
    owner: str | None = None  # wheel or distribution package that ships it
    seen: Literal["core", "exit", "sampled"] = "sampled"  # at death, by the hook at a normal exit, or some time before


@dataclasses.dataclass(frozen=True, kw_only=True)
class OmpRegistration:
    """A registration file that an LLVM/Intel OpenMP runtime left behind in /dev/shm."""

    pid: int
    library: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvChange:
    """An environment variable that the program changed after it was started (invisible from outside)."""

    pid: int
    name: str
    value: str | None  # None: removed, or a value that is not safe to keep
    module: str  # the Python module that made the change
    time_s: float  # since the start of the attempt


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForkEvent:
    pid: int
    threads_alive: int  # kernel threads in the parent at the moment of fork, itself included
    start_method: str | None  # of multiprocessing; None: not multiprocessing, or not chosen yet
    time_s: float
    module: str = ""
    thread_names: list[str] = dataclasses.field(default_factory=list)  # of the Python threads; in the child all but the caller's are gone


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitCall:
    """A call of os._exit or sys.exit seen by the hook."""

    pid: int
    call: str
    status: str
    where: str  # "file.py:12 in f"
    time_s: float
    installed: bool | None = None  # whether the caller is code of an installed package; None: unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filesystem:
    """Room where the child wrote, or could have written."""

    folder: str
    use: Literal["shm", "temp", "cwd", "written"]  # written: it holds a file that a process had open for writing or mapped shared
    total_bytes: int
    least_free_bytes: int  # least seen, for ordinary users
    last_free_bytes: int  # as last seen
    last_s: float  # when that was, in seconds since the start
    least_free_inodes: int | None = None  # None: it has no fixed number
    kind: str = ""  # "tmpfs", "ext4"; "": unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedFile:
    """A regular file that several processes had open for reading at one time, as far as looks twice a second saw."""

    path: str
    pids: list[int]
    own: bool  # each by an open file description of its own; False: they share one, and with it the position in the file
    moved: bool  # the position in it changed while they had it open
    position: int = 0  # in the file, as last seen in one of them


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortFile:
    """A mapped file that was shorter at the end than what was mapped of it (touching the rest raises SIGBUS), or that had been written
    to where the fault lies, or under code that was loaded from it."""

    pid: int
    path: str
    mapped_to_bytes: int  # end of the mapping, as an offset in the file
    size_bytes: int
    at_fault: bool = False  # the fault's address is in this mapping
    changed: bool | None = None  # whether it was written to while it was mapped; None: that cannot be told


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """The machine's account of a fault: the kernel's log line, the registers in the core, or the crash report of macOS."""

    source: Literal["kernel log", "core", "crash report"]
    tid: int
    trap: str  # "segfault", "segfault without an address", "general protection", "bus error", "invalid opcode", "divide error", ...
    address: int | None = (
        None  # that could not be reached; None: a bad pointer, or a stack too full for a handler's frame (stack_left_bytes)
    )
    ip: int | None = None
    sp: int | None = None
    access: Literal["read", "write", "execute"] | None = None
    library: str = ""  # file name of what the instruction belongs to; "": unknown, or none
    library_offset: int | None = None
    mapping: str = ""  # file that is mapped at the address, "anonymous", "no access" (a guard page, say), "nothing"; "": unknown
    before: str = ""  # the same of the byte before the address's page: where nothing is, nothing ran off its end
    stack_distance_bytes: int | None = None  # address minus stack pointer: small on either side when the stack ran over
    stack_left_bytes: int | None = None  # from the stack pointer down to the end of its mapping; 0: it is below; None: unknown
    code: str = ""  # instruction bytes at ip in hexadecimal; "": not in the core
    code_in: Literal["file", "anonymous", "no code", "nothing", ""] = ""  # what ip lies in: "anonymous" may be executed, as generated code
    mapped_bytes: int | None = None  # address space of the process at the crash; None: unknown
    si_code: int | None = None  # of the signal; None: unknown
    index_bytes: int | None = (
        None  # how far the instruction's index led from a pointer into memory to where there is none; None: no index, or unknown
    )
    was_mapped: bool | None = None  # memory was seen at the address before, and nothing is there now; None: not looked at
    filled: int | None = None  # the byte that the pointer consists of, over and over: nobody stored an address there; None: it does not


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binding:
    """A name that a library of the crash calls or uses, and the library that the loader bound it to; paths, but names in `others`."""

    symbol: str
    user: str
    to: str
    own: bool  # the user defines that name itself, and another library's was taken
    others: list[str] = dataclasses.field(default_factory=list)  # mapped libraries that define it as well


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrashDump:
    """What faulthandler wrote in one process that crashed."""

    pid: int
    error: str  # "Segmentation fault"
    frames: list[str]  # of the thread that crashed, innermost first; see Observation.crash_stack
    cut_off: bool  # there were more frames than faulthandler writes (100)
    threads: int  # Python threads that it lists


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """A limit of the kernel that a process was under, whoever set it."""

    name: str  # as | nofile | nproc | pids (cgroup) | maps | inotify, watches (of its user) | cpu | fsize | stack | data | memlock
    soft: int  # bytes, seconds or a count
    hard: int | None  # None: unlimited
    used: int | None = None  # most of it that was seen in use, in the same unit; None: not counted
    refused: int | None = None  # how often the kernel refused more during the attempt; None: the kernel does not count that


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What bounds one process, and what it does with signals; as last seen alive."""

    pid: int
    role: str
    last_s: float
    bounds: list[Bound] = dataclasses.field(default_factory=list)  # those that are not unlimited
    ignored: list[str] = dataclasses.field(default_factory=list)  # "SIGPIPE"
    caught: list[str] = dataclasses.field(default_factory=list)  # handlers of the program or of a library, faulthandler's among them
    blocked: list[str] = dataclasses.field(default_factory=list)
    cpus: int | None = None  # processors that it may run on


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trend:
    """Descriptors or threads of one process over time: a count that only grows meets its limit at a step that can be told."""

    what: Literal["descriptors", "threads"]
    pid: int
    role: str
    first: int
    last: int
    most: int
    samples: int
    limit: int | None = None  # None: unlimited or unknown
    per_s: Slope | None = None  # None: too few samples
    per_step: Slope | None = None  # None: too few samples, or no steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """How many threads wanted to run, against the processors they had."""

    cpus: int  # that the main process may use
    runnable_mean: float  # threads in state R over all processes, of the looks that were taken
    runnable_most: int
    looks: int
    wait_s: float | None = None  # threads waited so long for a processor, those of other programs among the reasons; None: no counter


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignalSent:
    """A signal that somebody sent to a process of the tree, as the kernel saw it."""

    signal: str
    to_pid: int
    from_pid: int  # 0: the kernel itself
    from_name: str  # "" unknown
    inside: bool  # the sender belongs to the tree
    by_tool: bool  # ... or is this tool
    time_s: float
    by_timer: bool = False  # the kernel's, for a timer that the process had made with timer_create


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheduler:
    """What a scheduler said of the job in which it ran, right after its end or when it was asked to end."""

    name: Literal["slurm"]
    job: str
    state: str = ""  # as the scheduler calls it: "RUNNING", "COMPLETING" (it is ending the job), "TIMEOUT"; "": it did not answer
    reason: str = ""  # "TimeLimit"; "": none
    preempted: bool = False  # it makes room for another job
    requeued: bool = False  # it goes back into the queue, and will begin anew
    ends_unix_s: float | None = None  # when the job's time is over; None: no limit, or not known


@dataclasses.dataclass(frozen=True, kw_only=True)
class PythonError:
    """The last uncaught exception that was printed."""

    type: str
    message: str
    frames: list[str] = dataclasses.field(default_factory=list)  # "file.py:12 in f", innermost last
    raised_from: list[str] = dataclasses.field(default_factory=list)  # "ValueError: bad row": its direct causes, the first one first


Trust = Literal["interpreter", "symbol", "library", "none"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame of the thread that crashed, read from a core."""

    function: str  # "": no symbol was found
    kind: Literal["python", "native"]
    trust: Trust  # read from the interpreter; unwound and named; only the library is known; nothing but an address
    library: str = ""  # file name of a native frame's library
    place: str = ""  # "file.py:12"; "": unknown


DeathPart = Literal["initiating", "cascade", "teardown", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Death:
    """One process of the tree that ended badly: by a signal, or with another status than 0."""

    pid: int
    role: str  # main | worker | miner | rank | other
    signal: str | None  # None: by an exit status, or nobody said how
    status: int | None  # None: by a signal, or nobody said how
    time_s: float | None  # since the start of the attempt; None: only a message tells of it
    part: DeathPart = "unknown"  # cascade: it followed from the initiating one; teardown: it was ended together with the rest
    oom: bool = False  # the kernel log says that the out-of-memory killer chose it
    sources: list[str] = dataclasses.field(default_factory=list)  # wait status | kernel event | kernel log | message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit that was asked for, and what the child had: in bytes, seconds or a count."""

    name: str  # nofile | stack | core | cpu_time | pids | cpus, as in the specification
    asked: int
    had: int | None  # None: it could not be set or not be read back
    by: Literal["rlimit", "cgroup", "affinity"]
    refused: int | None = None  # how often the kernel said no because of it; None: no counter


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Whether a probe of the trial took hold, as read from the child.  One that did not is neutral, whatever the child did."""

    name: str
    setting: str  # "": the default
    held: bool | None  # None: it could not be checked
    how: str  # what was read, or why it did not hold


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeapError:
    """A misuse of memory that valgrind saw (a probe): the place comes before the crash that it causes."""

    pid: int
    what: str  # "Invalid write of size 8"
    frames: list[str]  # "function (file.c:12)" or "function (in /path/lib.so)", innermost first
    times: int = 1
    about: str = ""  # the address: "0 bytes after a block of size 64 alloc'd"; "": it says nothing
    freed_by: list[str] = dataclasses.field(default_factory=list)  # frames of who had freed the block, innermost first
    freed_by_other_thread: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsedFile:
    """A file that an attempt loaded or opened, with its content at that time."""

    name: str  # relative to the working folder when it lies below
    kind: Literal["code", "data", "elsewhere"]  # elsewhere: no part of the program, such as settings in a home folder
    size: int
    digest: str  # of its content; of a file over 64 MiB of its size, date and two ends; "": elsewhere


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotCollected:
    what: str
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """Everything that is known about one attempt; written last and atomically (observation.json)."""

    attempt: str
    key: str
    trial: Trial
    exit: Exit
    wall_s: float
    started_unix_s: float
    progress: Progress = Progress()
    memory: Memory = Memory()
    curve: MemoryCurve | None = None  # None: no sample was taken
    processes: list[ProcessSeen] = dataclasses.field(default_factory=list)
    libraries: list[Library] = dataclasses.field(default_factory=list)
    bindings: list[Binding] | None = None  # of the libraries in which it crashed, at most 16; None: not looked at
    mapped: list[str] = dataclasses.field(default_factory=list)  # all files of the main process with code; []: no view at its end was had
    omp_registrations: list[OmpRegistration] = dataclasses.field(default_factory=list)
    env_changes: list[EnvChange] = dataclasses.field(default_factory=list)
    forks: list[ForkEvent] = dataclasses.field(default_factory=list)
    exit_calls: list[ExitCall] = dataclasses.field(default_factory=list)
    python_error: PythonError | None = None  # None: no traceback was printed
    crash_stack: list[str] = dataclasses.field(default_factory=list)  # faulthandler's, innermost first
    native_stack: list[Frame] = dataclasses.field(default_factory=list)  # of the thread that crashed, innermost first; []: no core was read
    other_stacks: list[list[Frame]] = dataclasses.field(default_factory=list)  # of the other threads then; []: unknown
    kernel_lines: list[str] = dataclasses.field(default_factory=list)  # kernel log lines that name our pids
    output_tail: list[str] = dataclasses.field(default_factory=list)  # last lines of stdout and stderr
    dropped_output_bytes: int = 0
    deaths: list[Death] = dataclasses.field(default_factory=list)  # bad ends in the tree, the earliest first
    limits: list[Limit] = dataclasses.field(default_factory=list)  # those that were asked for, but memory's
    survivors_ended: int = 0  # processes that outlived the main one and were ended by us
    paused_s: float = 0.0  # the tool itself was stopped so long (Ctrl-Z): no limit counts it, wall_s does
    starved_s: float = 0.0  # it could have run so long and had no processor: hang limits count it up to a bound, wall_s does
    metrics: list[Metric] = dataclasses.field(default_factory=list)
    messages: list[Message] = dataclasses.field(default_factory=list)  # one of each kind, in the order of their first line
    filesystems: list[Filesystem] = dataclasses.field(default_factory=list)
    shared_files: list[SharedFile] = dataclasses.field(default_factory=list)  # at most 8
    short_files: list[ShortFile] = dataclasses.field(default_factory=list)  # looked for after a SIGBUS only
    faults: list[Fault] = dataclasses.field(default_factory=list)  # the core's first: it is of the process that began it
    crash_dumps: list[CrashDump] = dataclasses.field(default_factory=list)  # the main process's first
    settings: list[ProcessSettings] = dataclasses.field(default_factory=list)  # the main process first, at most 16
    trends: list[Trend] = dataclasses.field(default_factory=list)
    load: Load | None = None  # None: never looked
    signals_sent: list[SignalSent] = dataclasses.field(default_factory=list)  # SIGKILL, TERM, INT, HUP, QUIT, ABRT; all if traced
    scheduler: Scheduler | None = None  # None: not asked, or no job of one
    native_imports: list[str] = dataclasses.field(default_factory=list)  # packages with native modules in the order of import; []: unknown
    env_at_exec: dict[str, str] = dataclasses.field(default_factory=dict)  # of the main process: what runtimes read, no secrets
    probes: list[ProbeResult] = dataclasses.field(default_factory=list)  # one for each probe of the trial
    heap_errors: list[HeapError] = dataclasses.field(default_factory=list)  # []: none, or not under valgrind
    not_collected: list[NotCollected] = dataclasses.field(default_factory=list)
    files: list[UsedFile] = dataclasses.field(default_factory=list)  # of the program and its data; []: an older version wrote this
    files_written: list[str] = dataclasses.field(default_factory=list)  # by this attempt, named like those
    packages: list[str] = dataclasses.field(default_factory=list)  # installed packages that were loaded; []: no hook
    asked_limits: dict[str, float | int | None] = dataclasses.field(default_factory=dict)  # of the specification; {}: not recorded
    schema: str = "matrix.observation/1"


# ------------------------------------------------------------------ judgements
OutcomeKind = Literal["died", "survived", "censored", "unavailable"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the search is told of a trial."""

    kind: OutcomeKind
    steps: int | None = None  # None: the program shows no steps
    seconds: float = 0.0
    signature: str | None = None  # None: did not die
    reason: str = ""
    whole: bool = True  # False: the tool ended it after the steps or the time that were asked for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A judgement on one attempt: one fact and what it says for or against one cause."""

    cause: str
    rule: str  # which rule of the catalogue found it: repeats of one rule in several attempts count once
    weight: float  # log likelihood ratio in nats; negative: speaks against
    fact: str
    attempt: str
    file: str  # the file in the attempt's folder that backs it
    form: str = ""  # the form of the cause that the fact shows, as in `Cause.forms`; "": any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fact:
    fact: str
    attempt: str | None = None  # None: a statement about several attempts
    file: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interaction:
    axes: list[str]
    text: str


Grade = Literal["confirmed", "supported", "suspected"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remedy:
    """What helps against a cause in general; whether it helped here is what `Fix` says."""

    kind: str  # axis | environment | limit | package | code
    change: str
    cost: str = ""  # what it hides or costs; "": nothing known


@dataclasses.dataclass(frozen=True, kw_only=True)
class RivalTold:
    """A cause that looks alike, and how the two were told apart."""

    cause: str
    told: bool  # False: what tells the two apart was not asked, or not answered
    text: str  # for people
    probes: list[str] = dataclasses.field(default_factory=list)  # interventions of the tool that would tell; []: none would


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranked:
    """One entry of the ranking."""

    cause: str
    probability: float
    grade: Grade
    summary: str
    culprit: dict[str, list[Value]] = dataclasses.field(default_factory=dict)
    interactions: list[Interaction] = dataclasses.field(default_factory=list)
    supports: list[Fact] = dataclasses.field(default_factory=list)
    contradicts: list[Fact] = dataclasses.field(default_factory=list)
    not_collected: list[NotCollected] = dataclasses.field(default_factory=list)
    title: str = ""  # of the cause, in words; "": written by an older version
    clause: str = ""  # follows "because": the cause in general, nothing about this run
    remedies: list[Remedy] = dataclasses.field(default_factory=list)  # the least invasive first
    references: list[str] = dataclasses.field(default_factory=list)
    form: str = ""  # of the cause, in words of the catalogue: title, clause and remedies are of this form; "": the cause in general
    rivals: list[RivalTold] = dataclasses.field(default_factory=list)  # of the first entries; []: none is known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    value: float
    per: Literal["run", "step"] = "run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateInterval:
    """95 % interval of the crash rate of the known-bad cell."""

    low: float
    median: float
    high: float
    per: Literal["run", "step"] = "run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fix:
    kind: Literal["cures", "avoids", "hides"]
    set: Cell
    cell: Cell
    advice: str
    why: str = ""  # for hides: why it is no cure
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    limits: dict[str, Value] = dataclasses.field(default_factory=dict)
    packages: dict[str, str] = dataclasses.field(default_factory=dict)
    clean_runs: int = 0
    clean_steps: int = 0
    failure_rate_upper_95: Rate | None = None  # None: no clean run
    verified: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuledOut:
    cause: str
    why: str
    title: str = ""  # of the cause, in words; "": written by an older version


@dataclasses.dataclass(frozen=True, kw_only=True)
class Innocent:
    """An axis that takes no part: it died with other values of that axis too."""

    axis: str
    deaths: int  # with another value than known_bad's
    probability: float  # that it dies with each other value alone, of all that can run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """One signature that is a failure of its own."""

    id: str
    signature: str
    main: bool
    ranking: list[Ranked]
    attempts: list[str] = dataclasses.field(default_factory=list)
    fix: Fix | None = None
    other_fixes: list[Fix] = dataclasses.field(default_factory=list)
    crash_rate: RateInterval | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
    """One possible relation between deaths and their moment, and how well chance alone explains what was seen."""

    name: str  # optimizer step | epoch edge | hazard | constant step | constant time | constant memory
    p: float | None  # under "the moment is arbitrary"; None: a description without a test
    holds: bool
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrashPattern:
    """When it dies."""

    text: str  # one sentence
    laws: list[Law] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)  # of the deaths that it is about


Status = Literal["diagnosed", "suspected", "not_reproduced", "healthy", "inconclusive"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObserverControl:
    """Whether being watched changes how the known-bad cell ends: one run of it without hook, samples and cores."""

    attempt: str | None  # None: it was not run
    changed: bool | None  # None: it was not run, or tells nothing
    text: str  # one sentence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """verdict.json, rewritten after every attempt."""

    name: str
    complete: bool
    status: Status
    status_text: str
    ranking: list[Ranked]
    fix: Fix | None = None
    other_fixes: list[Fix] = dataclasses.field(default_factory=list)
    crash_rate: RateInterval | None = None
    failures: list[Failure] = dataclasses.field(default_factory=list)
    runs: int = 0
    steps: int = 0
    wall_s: float = 0.0
    ruled_out: list[RuledOut] = dataclasses.field(default_factory=list)
    never_tested: list[str] = dataclasses.field(default_factory=list)  # sentences: what the runs say nothing about
    observer: ObserverControl | None = None  # None: not decided yet
    pattern: CrashPattern | None = None  # None: nothing died, or no step of a death is known
    outcomes: dict[str, Outcome] = dataclasses.field(default_factory=dict)  # what each attempt was judged to be, by its id; {}: not written
    innocent: list[Innocent] = dataclasses.field(default_factory=list)  # axes that take no part, as far as the runs decide it
    not_confirmed: list[str] = dataclasses.field(default_factory=list)  # all that is missing for "confirmed"; status_text has the first
    notes: list[str] = dataclasses.field(default_factory=list)  # sentences: files that attempts changed, how steps were read
    differences: list[str] = dataclasses.field(default_factory=list)  # from an observed death that no run repeated; []: none is open
    schema: str = "matrix.verdict/1"


# ------------------------------------------------------------------ the plan, for people and for reports
@dataclasses.dataclass(frozen=True, kw_only=True)
class AxisPlan:
    name: str
    values: list[Value]
    ordered: bool = False
    hides: list[Value] = dataclasses.field(default_factory=list)
    unavailable: dict[str, str] = dataclasses.field(default_factory=dict)  # str(value) -> why it cannot run here


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts about the machine that reports need; no host or user names."""

    system: str
    kernel: str
    machine: str
    cpus: int
    memory_bytes: int
    python: str
    tool_version: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """plan.json: what was going to be done, written before the first attempt."""

    name: str
    command: list[str]
    axes: list[AxisPlan]
    known_bad: Cell
    strategy: str
    jobs: int
    machine: Machine
    notices: list[str] = dataclasses.field(default_factory=list)  # e.g. PYTHONUNBUFFERED was set
    schema: str = "matrix.plan/1"


# ------------------------------------------------------------------ to and from files
def to_json(record: Any) -> str:
    """JSON text of a record, for people too: indented.  A lone surrogate is kept as an escape.  Raises ValueError or TypeError."""
    from pydantic_core import to_json as encode  # here: `--help` must not pay for it

    try:
        return encode(record, indent=1).decode() + "\n"
    except ValueError:  # a byte that is no UTF-8, in a name or an argument: as \udcXX, which Python reads back
        return json.dumps(record, indent=1, default=_as_plain) + "\n"


def _as_plain(value: Any) -> Any:
    return vars(value) if dataclasses.is_dataclass(value) else str(value)


def from_json(kind: type[T], text: str | bytes) -> T:
    """The record in a JSON text.  Raises ValueError when a field is missing or of the wrong type; unknown fields are ignored."""
    key: Any = kind  # mypy does not take type[T] for hashable
    try:
        record: T = _adapter(key).validate_json(text)
    except ValueError:
        if not _has_surrogates(text):
            raise
        record = _adapter(key).validate_python(_parsed(text))
    return record


def _has_surrogates(text: str | bytes) -> bool:
    """True if a JSON text may hold a lone surrogate, which pydantic's own parser refuses."""
    return b"\\ud" in (text.encode(errors="surrogatepass") if isinstance(text, str) else text).lower()


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError as problem:
        raise ValueError("it is nested too deep") from problem


@functools.lru_cache(maxsize=32)
def _adapter(kind: type[Any]) -> Any:
    """Building one takes 20 ms; a run folder holds hundreds of records."""
    from pydantic import TypeAdapter  # here: `--help` must not pay for it

    return TypeAdapter(kind)


def read(kind: type[T], path: Path) -> T:
    """Read one record file.  Raises OSError or ValueError."""
    return from_json(kind, read_plain(path))


def read_plain(path: Path) -> bytes:
    """Content of a plain file.  Raises OSError, also for a FIFO or a device, which could be waited for for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", os.fspath(path))
        return source.read()


PRIVATE = 0o600  # of a file that may hold a secret, and a copy of which keeps the mode


def write(path: Path | str, record: Any, *, sync: bool = True, mode: int = 0o666) -> None:
    """Write one record file whole or not at all."""
    write_text(path, to_json(record), sync=sync, mode=mode)


def write_text(path: Path | str, text: str, *, sync: bool = True, mode: int = 0o666, errors: str = "backslashreplace") -> None:
    """Write a text file whole or not at all: a reader, or a crash, never meets half a file.

    `errors`: for what is no Unicode, a byte of a name or an argument; by default `\\udcXX` stands for the byte XX.
    Without `sync` (10 ms) that holds for every death of this process, but not for one of the machine.  `mode`: less the umask.
    Raises OSError that names `path`."""
    folder, name = os.path.split(path)
    part = os.path.join(folder, f".{name}.{os.getpid()}.part")
    try:
        data = text.encode(errors=errors)
        _write_whole(part, path, data, sync, mode)
    except OSError as problem:
        with contextlib.suppress(OSError):
            os.unlink(part)  # on a full disk each would stay
        problem.filename = os.fspath(path)
        raise


def _write_whole(part: str, path: Path | str, data: bytes, sync: bool, mode: int) -> None:
    """Write beside the file, then put that in its place; a link or a FIFO that lies there is never opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        sink = os.open(part, flags, mode)
    except FileExistsError:  # of a process of this number that was killed, or put there by somebody else
        os.unlink(part)
        sink = os.open(part, flags, mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(sink, left) :]
        if sync:
            os.fsync(sink)
    finally:
        os.close(sink)
    os.replace(part, path)


def describe_cell(cell: Mapping[str, Value]) -> str:
    """`bs=32 accum=16`, for people."""
    return " ".join(f"{name}={value}" for name, value in cell.items())
