"""For every test: the repository's packages are importable, and children that tests start inherit a small thread count."""

from __future__ import annotations

import contextlib
import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # tests run side by side: more threads than cores make each other wait

with contextlib.suppress(ImportError):  # `pytest reproducers/` runs without the development packages
    from hypothesis import settings

    settings.register_profile("no clock", deadline=None)  # a busy machine is no failure: tests never assert a time
    settings.load_profile("no clock")
