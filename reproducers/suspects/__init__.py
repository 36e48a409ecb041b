"""The suspects as programs: each does one thing that a training job does, prints its steps and says when it has finished."""

from __future__ import annotations

import sys
from typing import NoReturn

COULD_NOT_RUN = 77  # exit status of a suspect that this machine cannot run; its last line says why


def give_up(reason: str) -> NoReturn:
    print(reason)
    sys.exit(COULD_NOT_RUN)
