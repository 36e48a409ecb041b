"""The doctor: runs a dying job on purpose, one thing changed at a time, and says why it dies."""

import os
import sys

__version__ = "0.1.0"


def _is_the_command() -> bool:
    """Whether this import begins `python -m matrix ...`, or the script of that name that was installed."""
    words = sys.orig_argv
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return module == ["matrix"] or os.path.basename(sys.argv[0] if sys.argv else "") == "matrix"  # noqa: PTH119 - its import takes 5 ms


def _stop(_number: int, _frame: object) -> None:
    """Ctrl-C while everything else is still being imported; the commands have their own way from then on."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if _is_the_command():
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
