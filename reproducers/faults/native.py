"""A write through a bad pointer at the chosen moment, as a broken kernel of a native library does it.

What is real: libc's memset writes to address 1, the kernel answers with SIGSEGV, and the crash stands in native code below a
Python frame.  What is arranged: the moment.
"""

from __future__ import annotations

from reproducers.faults.fault import Fault

FAULT = Fault(
    name="bad-pointer",
    about=__doc__,
    dies="SIGSEGV",
    when="backward",
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
    files=lambda prefix: {},
)
