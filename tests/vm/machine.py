"""A guest with cgroup version 2 for tests that cannot run where version 1 holds the controllers: a Debian kernel that is a program.

User-mode Linux needs no right to a virtual machine and runs the very interpreter and packages of the host at nearly their
speed.  The guest sees the host's whole file system below a layer in its own memory: what it writes there is gone with it.
No network, no systemd, one processor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".nightly" / "vm"  # what was downloaded, once
PACKAGE = "user-mode-linux"
MEMORY = "2G"
INIT = """\
#!/bin/sh
# The first process of the guest; its root is the host's, which nothing here writes to.
export PATH={path}
mount -t proc none /proc
mount -t tmpfs -o size=60% none /tmp
{python} -I -S -c 'import ctypes, os, sys; sys.exit(ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], 0), b"", 0))' {overlay}
mkdir /tmp/over /tmp/work /tmp/root
mount -t overlay -o lowerdir=/,upperdir=/tmp/over,workdir=/tmp/work none /tmp/root
cd /tmp/root
for place in proc:proc sysfs:sys devtmpfs:dev tmpfs:tmp tmpfs:run cgroup2:sys/fs/cgroup; do
  mount -t "${{place%%:*}}" none "${{place#*:}}"
done
mkdir -p dev/pts dev/shm run/vm run/old
ln -sf /proc/self/fd dev/fd
mount -t devpts none dev/pts
mount -t tmpfs none dev/shm
chmod 1777 tmp dev/shm
mount -t hostfs -o {shared} none run/vm
pivot_root . run/old
exec chroot . /bin/sh /run/vm/start
"""
START = """\
cd {folder}
export HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 {env}
( {command} ) </dev/null >/run/vm/output 2>&1
echo $? >/run/vm/rc
sync
echo o >/proc/sysrq-trigger
sleep 60
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command did in the guest."""

    rc: int | None  # None: the guest did not come to its end in time, or not at all
    output: str
    console: str  # what its kernel and its first process said


def why_not() -> str:
    """Why no guest can be started here; empty when one can, as far as that is known before its kernel is fetched."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the guest's kernel is a program for Linux on x86_64"
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/run"):
        return f"the guest has a /tmp and a /run of its own, and this checkout is {ROOT}"
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    return f"the guest's kernel is a Debian package, and there is no {' and no '.join(missing)} here" if missing else ""


def unpacked(store: Path = STORE) -> Path:
    """The folder with the kernel and its modules.  Raises RuntimeError with apt's words when they cannot be had."""
    if (store / "usr").is_dir():
        return store
    shutil.rmtree(store, ignore_errors=True)
    part = store / "part"
    part.mkdir(parents=True)
    for command in (["apt-get", "download", PACKAGE], ["sh", "-c", "dpkg-deb --extract *.deb ."]):
        done = subprocess.run(command, cwd=part, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()[-400:]}")
    (part / "usr").rename(store / "usr")
    shutil.rmtree(part)
    return store


def run(command: str, *, timeout_s: float, env: Mapping[str, str] | None = None, folder: Path = ROOT) -> Ran:
    """Run a shell command as root in a new guest, in `folder`, alone but for the first process and in the root cgroup."""
    store = unpacked()
    with tempfile.TemporaryDirectory(prefix="vm-") as place:
        shared, init = Path(place, "shared"), Path(place, "init")
        shared.mkdir()
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in (env or {}).items())
        (shared / "start").write_text(START.format(folder=folder, env=words, command=command), encoding="utf-8")
        overlay = next(store.glob("usr/lib/uml/modules/*/kernel/fs/overlayfs/overlay.ko"))
        init.write_text(INIT.format(path=os.environ["PATH"], python=sys.executable, overlay=overlay, shared=shared), encoding="utf-8")
        init.chmod(0o755)
        console = _boot(store / "usr/bin/linux.uml", Path(place), timeout_s)
        return Ran(
            rc=int(text) if (text := _text(shared / "rc").strip()) else None,
            output=_text(shared / "output"),
            console=console,
        )


def _boot(kernel: Path, place: Path, timeout_s: float) -> str:
    """Until it powers off or `timeout_s` has passed; what it wrote on its console."""
    words = [f"mem={MEMORY}", "rootfstype=hostfs", "rootflags=/", "ro", f"init={place / 'init'}", f"uml_dir={place}", "printk.time=1"]
    command = [str(kernel), *words, "quiet", "con=null", "con0=null,fd:1", "console=tty0"]
    environment = {**os.environ, "TMPDIR": str(place)}  # its memory is a file there
    with (
        (place / "console").open("wb") as sink,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True, env=environment) as guest,
    ):
        with contextlib.suppress(subprocess.TimeoutExpired):
            guest.wait(timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(guest.pid, signal.SIGKILL)  # also the processes of a guest that is gone
    return _text(place / "console")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
