"""Room that runs out, and files that change under a mapping."""

from __future__ import annotations

import shutil
import subprocess

from reproducers.faults.fault import Amount, Fault, on_linux

FAMILY, ANY_TIME = "room", "seconds:1"


def _why_no_mount() -> str | None:
    if reason := on_linux():
        return reason
    if not shutil.which("unshare"):
        return "the command unshare was not found; on Debian: apt-get install util-linux"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, errors="replace")
    return f"it may not make a mount of its own ({tried.stderr.strip()}); root with CAP_SYS_ADMIN may" if tried.returncode else None


FULL_SHM = Fault(
    name="full-shm",
    family=FAMILY,
    cause="shm_or_disk_full",
    about="""
Shared memory runs full while the program writes to what it has mapped there.

What is real: the process gets a /dev/shm of its own of 16 MiB (--amount), seen by nobody else, as a container has.  At every moment a
file of 1 MiB is mapped there and written to.  When there is no page left, the write ends in SIGBUS, in native code.  What is arranged:
the mount, before the program's first import, and that the files are never removed.
People meet it as DataLoader workers in Docker without --shm-size.
""",
    dies="SIGBUS",
    when=ANY_TIME,
    platforms="Linux",
    needs="root with CAP_SYS_ADMIN",
    why_not=_why_no_mount,
    again=True,
    amount=Amount(default=16, text="MiB of room in /dev/shm"),
)

SHRUNK_FILE = Fault(
    name="shrunk-file",
    family=FAMILY,
    cause="file_changed_under_mmap",
    about="""
A file is cut while it is mapped, and the next read of what is gone is a SIGBUS.

What is real: a file of 4 MiB in the temp folder is mapped and read; another thread truncates it; the next copy out of the mapping
touches a page that is not there any more.  What is arranged: the file (it stays behind, empty), the moment.
People meet it as a bank or index that one job rewrites in place while another one has it open.
""",
    dies="SIGBUS",
    when=ANY_TIME,
    platforms="Linux",
    needs="nothing",
    why_not=on_linux,
)

FAULTS = (FULL_SHM, SHRUNK_FILE)
