"""What people see while a matrix runs: plain lines in logs and pipes, a live picture on a terminal."""

from __future__ import annotations

import os
import sys

from matrix.records import Plan
from matrix.view.isolated import IsolatedView
from matrix.view.live import LiveView
from matrix.view.plain import PlainView
from matrix.view.terminal import is_ours


def view_for(plan: Plan, max_wall_s: float | None = None) -> IsolatedView:
    """The live view where standard output is a terminal that can redraw and is ours; plain lines everywhere else."""
    redraws = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    is_live = redraws and is_ours(sys.stdout.fileno())
    return IsolatedView(LiveView(plan, max_wall_s) if is_live else PlainView(plan))
