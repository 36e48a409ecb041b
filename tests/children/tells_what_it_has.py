"""What a process can see of what probes change, as one line of JSON; with `again`, it first takes back what it can."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

AGAIN = sys.argv[1:] == ["again"]
if AGAIN:
    os.environ["OMP_NUM_THREADS"] = "3"
    os.environ["MALLOC_ARENA_MAX"] = "9"
    os.environ.pop("KMP_DUPLICATE_LIB_OK", None)
    os.sched_setaffinity(0, range(os.cpu_count()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)
    time.sleep(0.3)  # what it does with signals is seen only from outside

NAMES = ("NOFILE", "STACK", "NPROC", "AS", "CPU")
status = {name: value.strip() for name, _, value in (line.partition(":") for line in Path("/proc/self/status").read_text().splitlines())}
files = {line.split()[-1].rpartition("/")[2] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
told = {
    "env": dict(os.environ),
    "cpus": sorted(os.sched_getaffinity(0)),
    "limits": {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in NAMES},
    "huge_pages": status.get("THP_enabled"),
    "ignored": [number for number in range(1, 32) if int(status["SigIgn"], 16) >> (number - 1) & 1],
    "files": sorted(files),
    "output": str(Path("/proc/self/fd/1").readlink()),
    "sessions": [os.getpid(), os.getsid(0)],
}
print(json.dumps(told), flush=True)
