"""A Slurm of one node on the loopback interface, with its configuration, spool and logs in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
KILL_WAIT_S = 8
CPUS, MEMORY_MIB = 8, 4000  # of the node, whatever the machine has: most jobs here wait
CONFIGURATION = """
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{task}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
{polling}
KillWait={kill_wait_s}
SlurmdParameters=config_overrides
MinJobAge=300
SchedulerParameters=sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mib}
PartitionName=common Nodes={host} Default=YES PriorityTier=1 GraceTime=3 State=UP
PartitionName=urgent Nodes={host} PriorityTier=10 PreemptMode=OFF State=UP
"""
CGROUPS = """
CgroupPlugin=cgroup/v1
ConstrainRAMSpace=yes
"""


def can_bound_memory() -> bool:
    """Whether its plugin for cgroups of version 1 works here; the one for version 2 wants systemd."""
    return all(Path("/sys/fs/cgroup", name, "cgroup.procs").exists() for name in ("memory", "freezer", "cpuset", "devices"))


def why_not() -> str:
    """Why there can be none here; "" when there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins)"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class Slurm:
    """A cluster that runs; `env` is what its commands need."""

    def __init__(self, folder: Path, *, cgroups: bool) -> None:
        self.folder = folder
        self.env = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        polling = "" if cgroups else "JobAcctGatherParams=OverMemoryKill"
        tracking, task = ("cgroup", "cgroup") if cgroups else ("linuxproc", "none")
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=socket.gethostname(), ports=_free_ports(), tracking=tracking, task=task, polling=polling,
                kill_wait_s=KILL_WAIT_S, cpus=CPUS,
                memory_mib=MEMORY_MIB, folder=folder,
            )
        )  # fmt: skip
        (folder / "cgroup.conf").write_text(CGROUPS)

    def run(self, *words: str | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [str(word) for word in words], env=self.env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: str | Path, cwd: Path) -> str:
        """The number of a job; its output goes to NUMBER.out in `cwd`."""
        return self.run("sbatch", "--parsable", "-o", "%j.out", *words, cwd=cwd).strip()

    def show(self, job: str) -> dict[str, str]:
        """Fields of `scontrol show job`."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", job)))

    def wait_for(self, job: str, *states: str, seconds: float = 240) -> dict[str, str]:
        deadline = time.monotonic() + seconds
        while (shown := self.show(job))["JobState"] not in states:
            assert time.monotonic() < deadline, f"job {job} is {shown['JobState']} {shown['Reason']}, not {states}"
            time.sleep(0.3)
        return shown


@contextlib.contextmanager
def throwaway(folder: Path, *, cgroups: bool) -> Iterator[Slurm]:
    """Start it, and end it with everything in it.  `cgroups`: whether memory is bounded by the kernel, or by Slurm's own looks."""
    cluster = Slurm(folder, cgroups=cgroups)
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with (folder / f"{name}.txt").open("w") as sink:
                daemons.append(subprocess.Popen([name, "-D"], env=cluster.env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink))
        _wait_until_idle(cluster)
        yield cluster
    finally:
        with contextlib.suppress(AssertionError):
            cluster.run("scancel", "--user=root")
            _wait_until_empty(cluster)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
        _remove_groups()


def _remove_groups() -> None:
    """Slurm leaves the outermost of its cgroups."""
    for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{socket.gethostname()}"):
        for folder in sorted((path for path in [top, *top.rglob("*")] if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _wait_until_idle(cluster: Slurm) -> None:
    deadline = time.monotonic() + 60
    said = ""
    while "idle" not in said.split():
        assert time.monotonic() < deadline, f"the node is not ready: {said!r}; see {cluster.folder}"
        time.sleep(0.3)
        with contextlib.suppress(AssertionError):
            said = cluster.run("sinfo", "-h", "-o", "%T")


def _wait_until_empty(cluster: Slurm) -> None:
    deadline = time.monotonic() + 30
    while cluster.run("squeue", "-h") and time.monotonic() < deadline:
        time.sleep(0.3)


def _path() -> str:
    return os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
