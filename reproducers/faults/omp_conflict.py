"""Two OpenMP runtimes in one process: the second one aborts when it is first used.

What is real: two copies of Intel's OpenMP runtime, taken from the PyPI package intel-openmp, in two files, as two wheels
bring them.  The first is initialised once the first user's module (torch) has been imported, the second at the chosen
moment.  It finds the registration of the first, prints `OMP: Error #15` and aborts (SIGABRT); nobody else ends the process.
KMP_DUPLICATE_LIB_OK=TRUE makes it go on, as it does for everyone; with <PREFIX>_RUNTIMES=one both users load the same file,
which is the cure.  What is arranged: that torch and FAISS are the ones who use them (their wheels of today bring libgomp).
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

from reproducers.faults.fault import CannotPlant, Fault

PACKAGE = "intel-openmp"
RUNTIME = "libiomp5.so"


def _why_not() -> str | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"{PACKAGE} brings {RUNTIME} for Linux on x86-64 only, and this is {sys.platform} on {platform.machine()}"
    if _runtime() is None:
        return f"{RUNTIME} of the package {PACKAGE} was not found; install it into this environment: pip install {PACKAGE}"
    return None


def _files(prefix: str) -> dict[str, Path]:
    runtime = _runtime()
    if runtime is None:
        raise CannotPlant(f"{RUNTIME} of the package {PACKAGE} has just gone")
    return {f"lib{prefix}_first.so": runtime, f"lib{prefix}_second.so": runtime}


def _runtime() -> Path | None:
    try:
        shipped = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in shipped if file.name == RUNTIME)
    return next((path for path in found if path.is_file()), None)


FAULT = Fault(
    name="omp-conflict",
    family="openmp",
    cause="openmp_runtime_conflict",
    about=__doc__,
    dies="SIGABRT, OMP: Error #15",
    when="mining",
    platforms="Linux on x86-64",
    needs=f"{PACKAGE} from PyPI",
    why_not=_why_not,
    files=_files,
)
