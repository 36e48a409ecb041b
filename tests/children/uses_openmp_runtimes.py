"""Uses one OpenMP runtime after the other: `uses_openmp_runtimes.py [--torch] LIBRARY...`; a second one of LLVM's kind aborts."""

import ctypes
import sys

paths = [word for word in sys.argv[1:] if word != "--torch"]
if "--torch" in sys.argv:
    import faiss  # noqa: F401
    import torch  # noqa: F401
for path in paths:
    print("step", ctypes.CDLL(path).omp_get_max_threads(), flush=True)
