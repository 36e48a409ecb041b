"""Real native faults, planted into a real run from outside.

The program is started unchanged; a `sitecustomize` on PYTHONPATH waits for the moment and does what the faulty library
would have done.  Nothing raises an exception or sends a signal: the process dies in native code, as it would on the
machine of somebody who has the fault for real.

    python -m reproducers.faults list
    python -m reproducers.faults omp-conflict --when mining -- python -m trainer train …
"""

from reproducers.faults.fault import CannotPlant, Fault
from reproducers.faults.planting import FAULTS, MOMENTS, plant

__all__ = ["FAULTS", "MOMENTS", "CannotPlant", "Fault", "plant"]
