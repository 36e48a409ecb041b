"""An interpreter and what is installed for it, without importing any of that: it lists its own distributions, nothing more."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 20.0  # 0.1 s of work; a network file system that hangs must not hang the doctor
NORMAL = re.compile(r"[-_.]+")

# Runs in the interpreter that is examined: the standard library only, and nothing newer than Python 3.8.
SCRIPT = r"""
import json, os, platform, re, site, sys
try:
    from importlib.metadata import distributions
except ImportError:
    sys.exit("Python %d.%d has no importlib.metadata; 3.8 is the oldest that can be examined" % sys.version_info[:2])
NATIVE = re.compile(r"\.(so(\.[0-9.]+)?|dylib)$")
sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
if sys.prefix == sys.base_prefix and not os.environ.get("PYTHONNOUSERSITE"):
    sys.path.append(site.getusersitepackages())
found = []
for each in distributions():
    name = each.metadata["Name"] if each.metadata else None
    if not name:
        continue
    base = str(each.locate_file(""))
    record = each.read_text("RECORD") or ""
    paths = [line.rsplit(",", 2)[0].strip('"') for line in record.splitlines()]
    tags = re.findall(r"^Tag: (\S+)", each.read_text("WHEEL") or "", re.M)
    found.append({
        "name": name, "version": each.version, "base": base, "tags": tags,
        "native": [path for path in paths if NATIVE.search(path)],
        "tops": [path for path in paths if path.endswith(".py") and (path.count("/") == 0 or re.match(r"[^/.]+/__init__\.py$", path))],
    })
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (ValueError, OSError, AttributeError):
    libc = ""
machine = platform.machine()
if sys.maxsize < 2**32:  # on a 64-bit kernel
    machine = {"x86_64": "i686", "aarch64": "armv7l"}.get(machine, machine)
print(json.dumps({
    "executable": sys.executable, "version": list(sys.version_info[:3]), "prefix": sys.prefix, "base_prefix": sys.base_prefix,
    "machine": machine, "libc": libc, "paths": [p for p in sys.path if os.path.isdir(p)],
    "implementation": platform.python_implementation(), "distributions": found,
}))
"""


class NoInterpreter(Exception):
    """There is none that could be examined; the text says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution:
    name: str  # normal form: lower case, words joined by "-"
    version: str
    native: tuple[Path, ...] = ()  # shared libraries and extension modules
    tops: tuple[Path, ...] = ()  # the Python files that run first when it is imported
    tags: tuple[str, ...] = ()  # of its wheel; empty: not installed from one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreter:
    executable: str
    version: tuple[int, int, int]
    implementation: str = "CPython"
    prefix: str = ""
    machine: str = ""
    glibc: tuple[int, int] | None = None  # None: another C library, or not told
    paths: tuple[str, ...] = ()  # folders that it imports from
    distributions: tuple[Distribution, ...] = ()

    def installed(self, name: str) -> Distribution | None:
        return next((each for each in self.distributions if each.name == name), None)


def examine(executable: str | None = None) -> Interpreter:
    """Ask an interpreter what is installed for it, by PYTHONPATH and for this user too.  `-I`: nothing from there is run at its start.

    Raises NoInterpreter when there is none, when it does not answer, or when it is older than 3.8."""
    path = shutil.which(executable) if executable is not None else sys.executable
    if not path:
        raise NoInterpreter(
            f"{executable or repr(executable)}: no such program, or not executable; give the path of a Python, such as .venv/bin/python"
        )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    try:
        done = subprocess.run(
            [path, "-I", "-c", SCRIPT], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, env=environment
        )
    except (OSError, subprocess.SubprocessError) as problem:
        why = f"no answer within {PATIENCE_S:g} s" if isinstance(problem, subprocess.TimeoutExpired) else str(problem)
        raise NoInterpreter(f"{path}: {why}; give the path of a Python that starts") from problem
    try:
        if done.returncode:
            raise ValueError
        return _interpreter(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        why = f"status {done.returncode}{_last_words(done.stderr.decode(errors='replace'))}"
        raise NoInterpreter(f"{path} is no Python interpreter that can be examined ({why}); give the path of one, 3.8 or newer") from None


def _last_words(stderr: str) -> str:
    """What it said at last; "" for nothing, and where another program repeats the script as the name of a file."""
    last = (stderr.strip().splitlines() or [""])[-1]
    repeated = last in SCRIPT or SCRIPT.strip().splitlines()[0] in last
    return "" if repeated else f": {last[:200]}"


def _interpreter(told: dict[str, object]) -> Interpreter:
    version, paths, found = told["version"], told["paths"], told["distributions"]
    assert isinstance(version, list) and isinstance(paths, list) and isinstance(found, list)
    distributions: dict[str, Distribution] = {}
    for each in found:
        distribution = _distribution(each)
        distributions.setdefault(distribution.name, distribution)  # the first on the path is the one that is imported
    glibc = re.match(r"glibc (\d+)\.(\d+)", str(told["libc"]))
    return Interpreter(
        executable=str(told["executable"]),
        version=(version[0], version[1], version[2]),
        implementation=str(told["implementation"]),
        prefix=str(told["prefix"]),
        machine=str(told["machine"]),
        glibc=(int(glibc[1]), int(glibc[2])) if glibc else None,
        paths=tuple(paths),
        distributions=tuple(sorted(distributions.values(), key=lambda each: each.name)),
    )


def _distribution(told: dict[str, object]) -> Distribution:
    base = Path(str(told["base"]))
    native, tops, tags = told["native"], told["tops"], told["tags"]
    assert isinstance(native, list) and isinstance(tops, list) and isinstance(tags, list)
    return Distribution(
        name=NORMAL.sub("-", str(told["name"])).lower(),
        version=str(told["version"]),
        native=tuple(Path(os.path.normpath(base / path)) for path in native),
        tops=tuple(base / path for path in tops),
        tags=tuple(tags),
    )
