"""Probes: changes of how an attempt is started that need no cooperation from the program, each with a check that it took hold.

`catalogue.py` says what each one changes, `watch.py` reads from the child, `checks.py` compares, `tracer.py` reads what a tracer wrote.
"""

from matrix.runner.probes.catalogue import NAMES, prepare, unavailable
from matrix.runner.probes.change import Change, Context, Prepared

__all__ = ["NAMES", "Change", "Context", "Prepared", "prepare", "unavailable"]
