"""Becomes another program inside a new memory cgroup: `joins_a_small_cgroup.py FOLDER MIB PROGRAM ...`; FOLDER is made, v1 or v2."""

import os
import sys
from pathlib import Path

folder, mib = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir()
limit = next(name for name in ("memory.max", "memory.limit_in_bytes") if (folder / name).exists())
(folder / limit).write_text(str(mib << 20))
(folder / "cgroup.procs").write_text("0")
os.execvp(sys.argv[3], sys.argv[3:])
