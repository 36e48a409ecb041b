"""Combinations of versions that are known to go wrong, with where that is written.

A row says what was reported, not that it happens here; `error` is kept for what fails whenever it is imported, and was tried.
"""

from __future__ import annotations

import dataclasses

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from matrix.doctor.finding import Severity
from matrix.doctor.interpreter import Interpreter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """It holds when every package of `packages` is installed in these versions ("": any), on these systems."""

    id: str
    packages: dict[str, str]
    systems: tuple[str, ...] = ("linux", "darwin")
    machines: tuple[str, ...] = ()  # empty: any
    severity: Severity
    causes: str
    remedy: str
    references: tuple[str, ...]

    def holds(self, python: Interpreter, system: str) -> bool:
        if system not in self.systems or (self.machines and python.machine not in self.machines):
            return False
        found = [(python.installed(name), versions) for name, versions in self.packages.items()]
        return all(each is not None and within(each.version, versions) for each, versions in found)


def within(version: str, versions: str) -> bool:
    """Whether a version is one of these ("": any); a word that is no version is none of them."""
    try:
        return not versions or SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _built_for_numpy_1(package: str, versions: str, severity: Severity, causes: str, *references: str) -> Row:
    remedy = f"pip install --upgrade {package}, or 'numpy<2'"
    packages = {package: versions, "numpy": ">=2"}
    return Row(id=f"{package}-numpy-2", packages=packages, severity=severity, causes=causes, remedy=remedy, references=references)


SIZE_CHANGED = 'ValueError "numpy.dtype size changed" at import'
ROWS = (
    _built_for_numpy_1(
        "torch",
        "<2.3",
        "warning",
        '"A module that was compiled using NumPy 1.x cannot be run": torch runs, and fails where it meets numpy; it may crash',
        "https://github.com/pytorch/pytorch/issues/135013",
    ),
    _built_for_numpy_1(
        "pandas",
        "<2.2.2",
        "error",
        SIZE_CHANGED,
        "https://pandas.pydata.org/docs/whatsnew/v2.2.2.html#pandas-2-2-2-is-now-compatible-with-numpy-2-0",
    ),
    _built_for_numpy_1("scikit-learn", "<1.4.2", "error", SIZE_CHANGED, "https://github.com/scikit-learn/scikit-learn/issues/30714"),
    _built_for_numpy_1(
        "scipy",
        "<1.13",
        "error",
        'ImportError "numpy.core.multiarray failed to import" of its modules',
        "https://docs.scipy.org/doc/scipy/release/1.13.0-notes.html",
    ),
    Row(
        id="torch-mkl-2024-1",
        packages={"torch": "<2.3.1", "mkl": ">=2024.1"},
        systems=("linux",),
        severity="warning",
        causes='ImportError "undefined symbol: iJIT_NotifyEvent" of builds that load MKL (conda); wheels have it built in',
        remedy="mkl<2024.1, or a newer torch",
        references=("https://github.com/pytorch/pytorch/issues/123097",),
    ),
    Row(
        id="torch-mkl-service",
        packages={"torch": "", "mkl-service": ""},
        systems=("linux",),
        severity="info",
        causes='"MKL_THREADING_LAYER=INTEL is incompatible with libgomp" in child processes, when torch is imported before numpy',
        remedy="import numpy first, or MKL_THREADING_LAYER=GNU",
        references=("https://github.com/pytorch/pytorch/issues/37377", "https://github.com/numpy/numpy/issues/24683"),
    ),
    Row(
        id="torch-faiss-macos",
        packages={"torch": "", "faiss-cpu": ""},
        systems=("darwin",),
        severity="warning",
        causes="each brings a libomp: SIGSEGV or OMP Error #15 in a parallel region of the second",
        remedy="both from conda-forge, which shares one runtime; or OMP_NUM_THREADS=1",
        references=("https://github.com/faiss-wheels/faiss-wheels/issues/73", "https://github.com/facebookresearch/faiss/issues/4273"),
    ),
    Row(
        id="torch-pyarrow-old",
        packages={"torch": "", "pyarrow": "<0.15"},
        severity="warning",
        causes="SIGSEGV in pyarrow when torch was imported before it",
        remedy="a newer pyarrow",
        references=("https://github.com/apache/arrow/issues/2637", "https://github.com/pytorch/pytorch/issues/22447"),
    ),
    Row(
        id="torch-tensorflow-pyarrow",
        packages={"torch": "", "tensorflow": "", "pyarrow": ""},
        severity="info",
        causes="SIGSEGV of a thread of pyarrow's jemalloc was reported when pyarrow is imported after both",
        remedy="import pyarrow (or pandas) first, or ARROW_DEFAULT_MEMORY_POOL=system",
        references=("https://github.com/ray-project/ray/pull/60478",),
    ),
    *(
        Row(
            id=f"torch-{package}",
            packages={"torch": "", package: ""},
            severity="info",
            causes="OpenCV's thread pool does not survive a fork: DataLoader workers hang in resize or warp when the parent used it before",
            remedy="cv2.setNumThreads(0) at the start, or spawn",
            references=("https://github.com/pytorch/pytorch/issues/1355", "https://github.com/opencv/opencv/issues/5150"),
        )
        for package in ("opencv-python", "opencv-python-headless")
    ),
    *(
        Row(
            id=f"opencv-twice-{other.removeprefix('opencv-')}",
            packages={"opencv-python": "", other: ""},
            severity="warning",
            causes="both write the same folder cv2: files of two builds are mixed; ImportError, or SIGSEGV at import",
            remedy="uninstall both, then install one",
            references=("https://github.com/opencv/opencv-python/issues/467", "https://github.com/cisagov/Malcolm/issues/1046"),
        )
        for other in ("opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")
    ),
    *(
        Row(
            id=f"cuda-11-and-12-{library}",
            packages={f"nvidia-{library}-cu11": "", f"nvidia-{library}-cu12": ""},
            systems=("linux",),
            severity="warning",
            causes="both write the same folder: libraries of two CUDA releases are mixed; undefined symbols at import, or crashes later",
            remedy="uninstall all nvidia-* packages, then reinstall torch",
            references=("https://github.com/rwth-i6/returnn/issues/1802",),
        )
        for library in ("cuda-runtime", "nccl", "cudnn")
    ),
    Row(
        id="grpcio-1-78-1",
        packages={"grpcio": "==1.78.1"},
        severity="warning",
        causes="processes that fork hang (this release was withdrawn)",
        remedy="another release of grpcio",
        references=("https://github.com/grpc/grpc/issues/41768",),
    ),
    Row(
        id="grpcio-fork",
        packages={"grpcio": ">=1.52,<1.54"},
        severity="info",
        causes='"Waiting for thread pool to idle before forking", then a hang, in jobs that fork after a channel was opened (ray)',
        remedy="a newer grpcio",
        references=("https://github.com/grpc/grpc/issues/31885",),
    ),
)
