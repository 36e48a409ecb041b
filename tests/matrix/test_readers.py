"""Every reader of outside text: no input ends it but with its own declared error, and none keeps it busy for long.

A reader is a row of READERS: what it is called with, texts that it knows, and the errors that it declares.  The inputs are its own
texts, spoilt: numbers of 400 and 5,000 digits, odd bytes, deep nesting, lines without end, parts lost or repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix import records
from matrix.evidence import (
    core_notes,
    crash_report,
    deaths,
    environment,
    fault,
    hook_file,
    kernel,
    log,
    memory_curve,
    messages,
    metrics,
    runtimes,
    trends,
    unified_log,
    used_files,
)
from matrix.evidence import settings as process_settings
from matrix.evidence.progress import ProgressParser
from matrix.explain import recognise, recording, remains, sources, statuses
from matrix.propose import from_log, steps, usage
from matrix.records import Attempt, Observation, Plan, Verdict
from matrix.runner.probes import traces
from matrix.spec import SpecError, load_spec
from matrix.watch import slurm as job_of_slurm
from reports.redact.identity import Known
from reports.redact.redactor import Redactor

BUSY_S = 20.0  # of processor time for one input: far beyond what any needs, and no matter how busy the machine is


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """One reader.  `read` is given the text in a file and as bytes."""

    read: Callable[[Path, bytes], object]
    texts: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()


def text(data: bytes) -> str:
    """As every caller decodes what it reads."""
    return data.decode("utf-8", "replace")


def both(*read: Callable[[str], object]) -> Callable[[Path, bytes], object]:
    return lambda _, data: [each(text(data)) for each in read]


# ------------------------------------------------------------------ what they read
SPECIFICATION = b"""name: crash
run: {command: [python, train.py, "{attempt_dir}"], progress: 'step (?P<step>\\d+)', finished: done, env: {A: b}, writes: [x]}
matrix:
  accum: {values: [1, 4, 16], ordered: true}
  threads: {values: [1, 2], env: [OMP_NUM_THREADS]}
  omp: {choices: {plain: {}, ok: {env: {K: "TRUE"}, hides: true}}}
exclude: [{accum: 1, threads: 2}]
include: [{accum: 64}]
known_bad: {accum: 16}
observed: [{cell: {accum: 1}, died: true, step: 117}]
limits: {memory: 6GiB, wall: 1h30m, nofile: 900}
search: {max_runs: 10, seed: 3}
"""
OUTPUT = b"""rank 1: epoch 3 [12/500] step 17/400 loss=0.31 lr: 1e-3
 12%|#2   | 1.3k/10.0k [00:12<01:30, 1.2it/s]
345it [00:12, 3.4it/s]
iter 3 of 40 {"step": 12, "loss": NaN}
OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.
RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Segmentation fault.
double free or corruption (out)
CUDA out of memory. Tried to allocate 20.00 MiB
Traceback (most recent call last):
  File "train.py", line 12, in <module>
    main()
  File "/usr/lib/python3.11/x.py", line 3, in f
ValueError: bad (3)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: rank : 1 (local_rank: 1) exitcode : -9 (pid: 123)
exitcode: -9 (pid: 4711) of binary: python
Exception: process 1 terminated with signal SIGSEGV
Fatal Python error: Segmentation fault

Current thread 0x00007f1 (most recent call first):
  File "a.py", line 3 in f
  File "b.py", line 1 in <module>

Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)
slurmstepd: error: Detected 1 oom_kill event in StepId=47.batch. Some of the step tasks have been OOM Killed.
bash: line 1: 4711 Killed                  python train.py
"""
KERNEL_LINES = b"""[ 12.345678] python[4711]: segfault at 7f0000000008 ip 00007f12 sp 00007ffd error 4 in libx.so[7f00+1000] likely on CPU 1
[ 13.0] traps: python[12] general protection fault ip:7f sp:7f error:0 in libtorch.so[7f+1]
[ 14.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a,task=python,pid=4711,uid=0
[ 14.1] Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:123kB, file-rss:0kB, shmem-rss:0kB, UID:0
[ 14.2] memory: usage 102400kB, limit 102400kB, failcnt 33
<6>[ 15.0] oom_reaper: reaped process 4711 (python), now anon-rss:0kB
"""
MAPS = b"""7f0000000000-7f0000001000 r-xp 00000000 08:01 1234                       /usr/lib/libgomp.so.1
7f0000002000-7f0000003000 rw-s 00001000 08:01 99                         /dev/shm/sem.mp-abc (deleted)
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]
"""
HOOK = b"""{"t": 1, "pid": 12, "kind": "hello", "ppid": 1, "main": true, "start": "fork", "helper": null, "task": null, "dump_signal": 12}
{"t": 11, "pid": 12, "kind": "env", "name": "OMP_NUM_THREADS", "value": "1", "removed": false, "module": "x"}
{"t": 11, "pid": 12, "kind": "fork", "threads": 2, "names": ["MainThread"], "start_method": "fork", "module": "a"}
{"t": 12, "pid": 12, "kind": "exit", "call": "os._exit", "status": "1", "where": "/x.py:3 in f", "installed": true}
{"t": 12, "pid": 12, "kind": "rlimit", "name": "as", "soft": 5, "hard": -1}
{"t": 12, "pid": 12, "kind": "modules", "native": ["torch._C"]}
{"t": 12, "pid": 12, "kind": "file", "use": "read", "path": "/tmp/x"}
{"t": 12, "pid": 12, "kind": "package", "name": "numpy"}
{"t": 12, "pid": 12, "kind": "state", "cpus": [0], "native_threads": 1, "limits": ["RLIMIT_AS=5"], "sigpipe_default": true}
{"t": 13, "pid": 12, "kind": "end"}
"""
MEMORY_CSV = b"time,step,pid,role,rank,device,kind,bytes\n" + b"".join(
    b"%d.5,%d,12,main,,host,%s,%d\n" % (at, at, kind, 1000 * at * size)
    for at in range(1, 12)
    for kind, size in ((b"rss", 3), (b"shared", 1), (b"used", 5), (b"file_cache", 1), (b"descriptors", 2), (b"threads", 1))
)
STRACE = b"""12 10.5 --- SIGTERM {si_signo=SIGTERM, si_code=SI_USER, si_pid=99, si_uid=0} ---
12 11.5 kill(13, SIGKILL) = 0
12 11.6 exit_group(1) = ?
 > /usr/lib/libc.so.6(_exit+0x1f) [0xd1]
 > /usr/lib/libx.so(f+0x1f) [0xd1]
12 11.7 tgkill(12, 13, SIGKILL <unfinished ...>
"""
VALGRIND = b"""==12== Invalid write of size 8
==12==    at 0x4C: f (a.c:12)
==12==    by 0x4D: g (in /usr/lib/libx.so)
==12==  Address 0x5 is 0 bytes inside a block of size 8 free'd
==12==    at 0x4C: free (vg.c:1)
==12== Invalid read of size 4
"""
SACCT = b"""JobID           JobName      State ExitCode     MaxRSS     ReqMem    Elapsed  Timelimit
------------ ---------- ---------- -------- ---------- ---------- ---------- ----------
4711              train OUT_OF_ME+    0:125                   4Gn   00:10:00   12:00:00
4711.batch        batch CANCELLED+    0:15     3.5G        4Gn   00:10:00
"""
SACCT_BARS = b"JobID|State|ExitCode|MaxRSS|Elapsed|Timelimit\n99|TIMEOUT|0:0|1.5K|12:00:17|12:00:00\n99.batch|CANCELLED by 0|0:15|100K||\n"
SCONTROL = b"""JobId=4711 JobName=train
   UserId=u(1000) GroupId=g(1000) MCS_label=N/A
   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:15
   RunTime=00:10:00 TimeLimit=00:10:00 TimeMin=N/A EndTime=2026-01-01T00:00:00
   MinMemoryNode=4G
"""
POD = {
    "kind": "Pod",
    "metadata": {"name": "train"},
    "spec": {"containers": [{"name": "a", "resources": {"limits": {"memory": "4Gi"}}}]},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "containerStatuses": [
            {
                "name": "a",
                "restartCount": 3,
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "signal": 9, "finishedAt": "2026-01-01T00:00:00Z"}},
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }
        ],
    },
}
POD_YAML = b"""apiVersion: v1
kind: Pod
metadata: {name: train}
status:
  containerStatuses:
  - name: a
    restartCount: 3
    lastState:
      terminated:
        exitCode: 137
        reason: OOMKilled
"""
DESCRIBED = b"""Name:         train
Namespace:    default
Status:       Failed
Containers:
  a:
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Last State:     Terminated
      Reason:       Error
      Exit Code:    139
    Restart Count:  3
    Limits:
      memory:  4Gi
Events:
  Type     Reason     Age   From     Message
  Warning  BackOff    1m    kubelet  Back-off restarting failed container
"""
TORCHRUN = b"""[2026-01-01 00:00:00,000] torch.distributed.elastic: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 12) of binary: python
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : node
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 12)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12
============================================================
"""
CRASH_HEAD = {"bug_type": "309", "app_name": "python"}
CRASH_BODY = {
    "pid": 12,
    "faultingThread": 0,
    "threads": [{"id": 3, "frames": [{"imageIndex": 0, "imageOffset": 5, "symbol": "f"}], "threadState": {"far": {"value": 8}}}],
    "usedImages": [{"name": "libx.dylib", "base": 1, "path": "/x"}],
    "exception": {"type": "EXC_BAD_ACCESS", "subtype": "KERN_INVALID_ADDRESS at 0x0000000000000008", "signal": "SIGSEGV"},
    "asi": {"libsystem_c.dylib": ["abort() called"]},
}
JETSAM = {"processes": [{"pid": 12, "reason": "per-process-limit", "name": "python"}]}
USAGE = b"""usage: train.py [-h] [--lr LR] [--mode {a,b}] {train,eval} ...

options:
  -h, --help            show this help message and exit
  --lr LR, -l LR        learning rate (default: 0.1)
  --mode {a,b}          the mode
  --shuffle, --no-shuffle
                        whether (default: True)
  --[no]amp             absl
 \xe2\x94\x82 * --epochs   INTEGER  [default: 3] \xe2\x94\x82
"""
SECRETS = b"""export AWS_SECRET_ACCESS_KEY=abcd1234efgh5678ijkl
password: hunter2 curl -u me:secret https://user:pw@host.internal/x
{"token": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}
"""
ATTEMPT = Attempt(id="0001-a", trial=records.Trial(id=1, cell={"m": 1}), argv=["a"], env={"A": "b"}, cwd="/", key="k", program="p")
OBSERVATION = Observation(
    attempt="0001-a",
    key="k",
    trial=ATTEMPT.trial,
    exit=records.Exit(returncode=-11, signal="SIGSEGV"),
    wall_s=1.5,
    started_unix_s=1.0,
    progress=records.Progress(last_step=3, rank_steps={1: 2}),
    kernel_lines=["x"],
)
VERDICT = Verdict(name="n", complete=True, status="healthy", status_text="t", ranking=[], runs=3)
PLAN = Plan(
    name="n",
    command=["a"],
    axes=[records.AxisPlan(name="m", values=[1, 2])],
    known_bad={"m": 1},
    strategy="adaptive",
    jobs=1,
    machine=records.Machine(system="l", kernel="k", machine="m", cpus=1, memory_bytes=1, python="3", tool_version="0"),
)


def core_file() -> bytes:
    """A small core of two threads with a list of files."""

    def note(kind: int, body: bytes) -> bytes:
        return struct.pack("<III", 5, len(body), kind) + b"CORE\0\0\0\0" + body + b"\0" * (-len(body) % 4)

    status = note(1, struct.pack("<iiihxxQQii", 11, 1, 0, 11, 0, 0, 4711, 1) + b"\0" * 296)
    names = b"/usr/lib/libx.so\0"
    files = note(0x46494C45, struct.pack("<QQ", 1, 4096) + struct.pack("<QQQ", 0x7F0000000000, 0x7F0000001000, 0) + names)
    info = note(0x53494749, struct.pack("<iii", 11, 0, 1) + b"\0" * 116)
    notes = status + info + files + status
    header = b"\x7fELF\2\1\1" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    of_notes = struct.pack("<IIQQQQQQ", 4, 0, 176, 0, 0, len(notes), 0, 1)
    of_memory = struct.pack("<IIQQQQQQ", 1, 7, 0, 0x7F0000000000, 0, 0, 4096, 1)
    return header + of_notes + of_memory + notes


# ------------------------------------------------------------------ how they are called
def parsed(_: Path, data: bytes) -> object:
    parser = ProgressParser()
    for at in range(0, len(data), 997):
        parser.feed("stdout", data[at : at + 997], float(at))
    return records.to_json(parser.record())


def explained(path: Path, _: bytes) -> object:
    return remains.explain(recognise.read(sources.read("given", path)))


def recorded(path: Path, data: bytes) -> object:
    """A run folder without a verdict, in which each file holds the text."""
    with tempfile.TemporaryDirectory() as name:
        for file in ("attempt.json", "memory.csv", "hook.jsonl", "stdout.log", "stderr.log", "stacks.txt", "watch.log"):
            (Path(name) / file).write_bytes(data)
        return remains.explain(recording.read(Path(name)))


def curve(path: Path, _: bytes) -> object:
    series = memory_curve.read(path)
    if series is None:
        return None
    found = memory_curve.describe(series, first_step_s=1.0, limit_bytes=10**6, died=True, oom=True)
    return records.to_json(found)


def counted(path: Path, _: bytes) -> object:
    return records.to_json(trends.trends(path, limits={12: 100}, end_s=20.0))


def hooked(path: Path, _: bytes) -> object:
    found = environment.read_hook(path, 1.0)
    given = used_files.Given()
    used = used_files.used_files(hook_file.hook_records(path), given, cwd="/nonexistent", started_unix_s=1.0)
    return records.to_json([found.env_changes, found.forks, found.exit_calls, found.limits, used.files])


def traced(path: Path, _: bytes) -> object:
    sent, calls = traces.ends(path, started_unix_s=1.0, pids={12}, name_of=lambda _: "x")
    return records.to_json([sent, calls])


def checked_heap(path: Path, data: bytes) -> object:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "valgrind.12.log").write_bytes(data)
        return records.to_json(traces.heap_errors(Path(name)))


def redacted(_: Path, data: bytes) -> object:
    found = []
    for name in ("attempts/0001/stdout.log", "spec.yaml", "program/train.py", "verdict.json", "attempts/0001/hook.jsonl"):
        redactor = Redactor(Known(), {"MY_TOKEN": "s3cr3tvalue1234"})
        source = lambda: io.BytesIO(data)  # noqa: E731
        redactor.spare_names(name, source)
        redactor.learn(name, source)
        found.append(b"".join(redactor.redact(name, source)))
    return found


def of_kernel(_: Path, data: bytes) -> object:
    lines = text(data).splitlines()
    scene = deaths.Scene(
        main=4711, ending=OBSERVATION.exit, end_s=1.0, events={}, roles={4711: "main"}, kernel_lines=lines, said=deaths.said(text(data))
    )
    watched = kernel.KernelLog(wanted=False)
    watched._lines = lines
    return records.to_json([fault.of_kernel(lines), deaths.deaths(scene), watched.lines_for({4711})[0]])


def record(kind: type[Any]) -> Callable[[Path, bytes], object]:
    return lambda path, _: records.read(kind, path)


def as_json(found: object) -> bytes:
    return records.to_json(found).encode()


READERS = {
    "specification": Reader(
        read=lambda path, _: load_spec(path).size,
        texts=(SPECIFICATION, b'{"run": {"command": ["a"]}, "matrix": {"m": [1]}}'),
        errors=(SpecError,),
    ),
    "progress": Reader(read=parsed, texts=(OUTPUT,)),
    "tracebacks": Reader(
        read=both(log.python_error, log.crash_stack, lambda said: log.crash_dump(1, said), log.extension_modules, log.dumped_stacks),
        texts=(OUTPUT,),
    ),
    "messages": Reader(
        read=both(lambda said: messages.messages(stdout=said, stderr=said), metrics.metrics, deaths.said, lambda s: log.last_lines(s, 20)),
        texts=(OUTPUT,),
    ),
    "kernel lines": Reader(read=of_kernel, texts=(KERNEL_LINES,)),
    "unified log": Reader(
        read=both(lambda said: unified_log.lines_for(said, {12})),
        texts=(b'{"eventMessage": "memorystatus: killing process 12 [python]", "timestamp": "t", "processImagePath": "/kernel"}\n',),
    ),
    "maps": Reader(
        read=both(
            fault.mappings,
            fault.mapped_files,
            lambda said: runtimes.census(said, pid=1, seen="core"),
            lambda said: process_settings.bounds(said, {}),
            process_settings.group_of_pids,
        ),
        texts=(MAPS, b"Max open files            1024                 1048576              files     \n", b"7:pids:/a\n0::/user.slice\n"),
    ),
    "hook.jsonl": Reader(read=hooked, texts=(HOOK,)),
    "attempt.json": Reader(read=record(Attempt), texts=(as_json(ATTEMPT),), errors=(ValueError,)),
    "observation.json": Reader(read=record(Observation), texts=(as_json(OBSERVATION),), errors=(ValueError,)),
    "verdict.json": Reader(read=record(Verdict), texts=(as_json(VERDICT),), errors=(ValueError,)),
    "plan.json": Reader(read=record(Plan), texts=(as_json(PLAN),), errors=(ValueError,)),
    "remains": Reader(
        read=explained,
        texts=(
            *(OUTPUT, KERNEL_LINES, SACCT, SACCT_BARS, SCONTROL, json.dumps(POD).encode(), POD_YAML, DESCRIBED, TORCHRUN, b"137\n"),
            f"{json.dumps(CRASH_HEAD)}\n{json.dumps(CRASH_BODY)}".encode(),
        ),
        errors=(sources.Unreadable,),
    ),
    "recording": Reader(read=recorded, texts=(MEMORY_CSV, HOOK, OUTPUT), errors=(sources.Unreadable,)),
    "exit statuses": Reader(
        read=both(statuses.decoded), texts=(b"137", b"0:9", b"SIGKILL", b"-11", b"OOMKilled"), errors=(statuses.NoStatus,)
    ),
    "crash reports": Reader(
        read=both(crash_report.parse, crash_report.jetsam),
        texts=(
            f"{json.dumps(CRASH_HEAD)}\n{json.dumps(CRASH_BODY)}".encode(),
            f"{json.dumps({'bug_type': '298'})}\n{json.dumps(JETSAM)}".encode(),
        ),
    ),
    "cores": Reader(
        read=lambda path, _: [core_notes.read_core(path), core_notes.pid_of(path), fault.of_core(path, text(MAPS), stack_limit_bytes=None)],
        texts=(core_file(),),
    ),
    "a core among remains": Reader(read=explained, texts=(core_file(), OUTPUT), errors=(sources.Unreadable,)),
    "memory.csv": Reader(read=curve, texts=(MEMORY_CSV,)),
    "counts in memory.csv": Reader(read=counted, texts=(MEMORY_CSV,)),
    "strace": Reader(read=traced, texts=(STRACE,)),
    "valgrind": Reader(read=checked_heap, texts=(VALGRIND,)),
    "usage": Reader(read=both(usage.options, usage.subcommands), texts=(USAGE,)),
    "the log of init": Reader(
        read=lambda path, data: [from_log.of_log(path), steps.pattern_of(text(data).splitlines())],
        texts=(OUTPUT,),
        errors=(from_log.LogError,),
    ),
    "Slurm's variables": Reader(
        read=both(lambda said: job_of_slurm.ends({"SLURM_JOB_END_TIME": said, "SLURM_JOB_ID": said})), texts=(b"1764411906",)
    ),
    "redaction": Reader(read=redacted, texts=(SECRETS, SPECIFICATION, HOOK, OUTPUT, as_json(OBSERVATION))),
}

# ------------------------------------------------------------------ spoilt texts
HOSTILE = [
    *(b"9" * 400, b"9" * 5000, b"-" + b"9" * 400, b"1e999", b"-1", b"0", b"1.5.5", "²".encode(), "٣".encode(), b"NaN", b"inf"),
    *(b"0x" + b"f" * 400, b"f" * 400, b"f" * 17, b"18446744073709551616"),
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[31m", b"\x1b]", b"\r", b"\n", b"\t", "\u2028".encode(), "\u202e".encode()),
    *(b"[" * 3000, b"{" * 3000, b"(" * 3000, b'"', b"'", b"`", b"\\"),
    *(b"\\uD800", b"\\udc80", b"&a [*a]", b"!!python/object:x", b"%s", b"%|"),
    *(b"null", b"true", b"[]", b"{}", b'""', b'{"a": 1}', b": ", b", ", b"- ", b"|", b">"),
    *(b" " * 5000, b"a" * 5000, b"ab " * 2000, b"a=" * 2000, b"/" * 5000, b"==12==" * 500, b"Traceback (most recent call last):\n" * 50),
]
NUMBERS = b"0123456789"


@st.composite
def spoilt(draw: st.DrawFn, texts: tuple[bytes, ...]) -> bytes:
    """One of the texts with up to four changes; now and then any bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        data = draw(st.sampled_from(CHANGES))(draw, data)
    return data[: 256 << 10]


def at_a_place(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from(HOSTILE)) + data[at:]


def in_place_of_a_number(draw: st.DrawFn, data: bytes) -> bytes:
    starts = [at for at in range(len(data)) if data[at] in NUMBERS and (at == 0 or data[at - 1] not in NUMBERS)]
    if not starts:
        return at_a_place(draw, data)
    start = draw(st.sampled_from(starts))
    end = start
    while end < len(data) and data[end] in NUMBERS:
        end += 1
    return data[:start] + draw(st.sampled_from(HOSTILE)) + data[end:]


def in_place_of_a_word(draw: st.DrawFn, data: bytes) -> bytes:
    words = data.split(b" ")
    words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(HOSTILE))
    return b" ".join(words)


def without_a_part(draw: st.DrawFn, data: bytes) -> bytes:
    start = draw(st.integers(0, len(data)))
    return data[:start] + data[draw(st.integers(start, len(data))) :]


def with_a_part_again(draw: st.DrawFn, data: bytes) -> bytes:
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 300)))
    return data[:start] + data[start:end] * draw(st.sampled_from((2, 3, 100))) + data[start:]


def with_lines_joined(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    return b"\n".join(lines[:at]) + b"".join(lines[at:])


def with_another_byte(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, max(0, len(data) - 1)))
    return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]


CHANGES = [
    *(at_a_place, in_place_of_a_number, in_place_of_a_number, in_place_of_a_word, without_a_part, with_a_part_again),
    *(with_lines_joined, with_another_byte),
]


class KeptBusy(BaseException):
    """A reader took more processor time than any input is worth."""


@contextlib.contextmanager
def not_for_long() -> Iterator[None]:
    """Processor time, not time: a busy machine is no failure."""

    def end(*_: object) -> None:
        raise KeptBusy

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, BUSY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def check(reader: Reader, path: Path, inputs: int, *, derandomize: bool = True) -> None:
    """`derandomize`: the same inputs each time, for what gates a change must not be a draw; the nightly run draws new ones."""

    @settings(max_examples=inputs, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=derandomize)
    @given(spoilt(reader.texts))
    def survives(data: bytes) -> None:
        path.write_bytes(data)
        with not_for_long(), contextlib.suppress(*reader.errors):
            reader.read(path, data)

    survives()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_what_it_knows(name: str, tmp_path: Path) -> None:
    """Or the inputs below, which are made of these texts, would test nothing."""
    reader, path = READERS[name], tmp_path / "given"
    understood = 0
    for data in reader.texts:
        path.write_bytes(data)
        with contextlib.suppress(*reader.errors):
            understood += bool(reader.read(path, data))
    assert understood


@pytest.mark.parametrize("name", READERS)
def test_no_spoilt_text_ends_a_reader(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path / "given", 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_no_spoilt_text_of_a_thousand_ends_a_reader(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path / "given", 1000)


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_no_spoilt_text_of_a_hundred_thousand_ends_a_reader(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path / "given", 100_000, derandomize=False)
