"""Probes: changes of how an attempt is started that need no cooperation from the program, each with a check that it took hold.

`catalogue.py` lists them, `resources.py` and `programs.py` say what each one changes, `watch.py` reads from the child, `checks.py`
compares, `traces.py` reads what tracers wrote.
"""

from matrix.runner.probes.catalogue import NAMES, estimate_s, prepare, unavailable
from matrix.runner.probes.change import Change, Context, Prepared

__all__ = ["NAMES", "Change", "Context", "Prepared", "estimate_s", "prepare", "unavailable"]
