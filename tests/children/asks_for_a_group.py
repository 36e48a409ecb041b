"""Makes a group with a limit of memory where it can, lets a child pass it, and says in JSON what came of it; without one, why not.

`asks_for_a_group.py [GROUP]`: with a folder of cgroup version 2 it goes there first, by a right that it may give up afterwards
(`asks_for_a_group.py GROUP setpriv ... python asks_for_a_group.py`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

if len(sys.argv) > 1:
    Path(sys.argv[1], "cgroup.procs").write_text("0")
    os.execvp(sys.argv[2], sys.argv[2:])

from matrix.runner import cgroup  # only where it has come to

GROWS = "x = []\nwhile True: x.append(bytearray(4 << 20))"
told = {"before": cgroup.why_not(), "own": Path("/proc/self/cgroup").read_text().strip()}
group = cgroup.create(f"mx-{os.getpid()}-child", 48 << 20, 20)
told |= {"why": cgroup.why_not(), "moved_to": Path("/proc/self/cgroup").read_text().strip()}
if group:
    group.limit_cpu("", 0.9)
    found = {"home": str(group.path.parent), "limit": group.memory_limit(), "pids": group.pids_limit(), "cpu": group.cpu_share()}
    joins = f"from pathlib import Path\nfor door in {group.doors!r}: Path(door).write_text('0')\n"
    status = subprocess.run([sys.executable, "-I", "-S", "-c", joins + GROWS], stderr=subprocess.PIPE).returncode
    told |= {**found, "isolation": group.isolation, "status": status, "kills": [group.own_oom_kills(), group.oom_kills()]}
    group.end()
    told["left"] = group.path.exists()
print(json.dumps(told))
