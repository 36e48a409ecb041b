"""Replay the failing and the nearest surviving configuration of this package, with nothing but Python and sh.

    python3 reproduce.py                      both, the failing one until it ends as recorded
    python3 reproduce.py failing --tries 5    only that one, five times at most
Exit status: 0 each ended as recorded, 1 one did not, 2 it could not be started as recorded.
Every run is written below replays/: stdout.log, stderr.log, memory.csv, ending.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LEFT_OUT = re.compile(r"REDACTED[- ][a-z0-9-]+-\d+(?:-é)?")
HANGS = ("startup", "idle", "stall")


def main() -> int:
    options = arguments()
    recorded = json.loads((HERE / "scripts" / "replay.json").read_text(encoding="utf-8", errors="replace"))["cells"]
    fills = dict(pair.partition("=")[::2] for pair in options.fill)
    wanted = [name for name in ("failing", "surviving") if options.which in ("both", name)]
    for name in [name for name in wanted if name not in recorded]:
        print(f"{name}: this package holds no such run")
    results = [replay(name, recorded[name], fills, options) for name in wanted if name in recorded]
    return max(results, default=2)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reproduce.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", default="both", choices=["both", "failing", "surviving"])
    parser.add_argument("--tries", type=int, help="most runs of the failing one; default: enough to meet the failure with 95 %% chance")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to use in place of the recorded one")
    parser.add_argument("--program", default=str(HERE / "program"), help="the folder of the program; default: the packed sources")
    parser.add_argument(
        "--fill", action="append", default=[], metavar="TOKEN=VALUE", help="what stands for a redacted value; may be repeated"
    )
    parser.add_argument("--wall", type=float, help="end a run after so many seconds")
    return parser.parse_args()


def replay(name: str, cell: dict[str, Any], fills: dict[str, str], options: argparse.Namespace) -> int:
    tries = options.tries or (cell["tries"] if name == "failing" else 1)
    print(f"{name}: {' '.join(f'{axis}={value}' for axis, value in cell['cell'].items())}; recorded: {said(cell['ended'])}")
    for number in range(1, tries + 1):
        folder = fresh_folder(name)
        ended = run(cell, folder, fills, options)
        if ended is None:
            return 2
        alike = is_alike(cell["ended"], ended)
        verdict = "as recorded" if alike else "not as recorded"
        print(f"  run {number} of at most {tries}: {said(ended)} after {ended['wall_s']} s; {verdict} ({folder})")
        if alike:
            return 0
    return 1


def run(cell: dict[str, Any], folder: Path, fills: dict[str, str], options: argparse.Namespace) -> Any:
    places = {"{python}": options.python, "{program}": options.program, "{attempt_dir}": str(folder)}
    argv = [filled(word, places, fills) for word in cell["argv"]]
    env = {key: filled(value, places, fills) for key, value in cell["env"].items()}
    missing = sorted({found for word in [*argv, *env.values()] for found in LEFT_OUT.findall(word)})
    if missing:
        print(f"  note: {', '.join(missing)} were redacted; give them with --fill {missing[0]}=VALUE if the program needs them")
    monitor = [sys.executable, str(HERE / "scripts" / "monitor.py"), "--out", str(folder), "--wall", str(options.wall or cell["wall_s"])]
    monitor += ["--idle", str(cell["idle_s"] or 0), "--memory", str(cell["memory_limit_bytes"] or 0), "--", *argv]
    limits = ["-m", str(cell["memory_limit_bytes"])] if cell["memory_limit_bytes"] else []
    limits += ["-c", cell["cpus"]] if cell["cpus"] else []
    shell = ["sh", str(HERE / "scripts" / "isolate.sh"), *limits, *monitor]
    subprocess.run(shell, cwd=filled(cell["cwd"], places, fills), env={"PYTHONUNBUFFERED": "1", **os.environ, **env}, check=False)
    try:
        return json.loads((folder / "ending.json").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        print(f"  {argv[0]} could not be started; is it installed here? Choose an interpreter with --python", file=sys.stderr)
        return None


def fresh_folder(name: str) -> Path:
    number = 1
    while (folder := HERE / "replays" / f"{name}-{number:02d}").exists():
        number += 1
    folder.mkdir(parents=True)
    return folder


def filled(word: str, places: dict[str, str], fills: dict[str, str]) -> str:
    for token, value in {**places, **fills}.items():
        word = word.replace(token, value)
    return word


def is_alike(recorded: dict[str, Any], ended: dict[str, Any]) -> bool:
    """The same signal or status; a hang is a hang whoever notices it; memory is memory whether the kernel or a watchdog ends it; what was
    too slow does not finish in that time again."""
    if recorded["ended_by"] in HANGS:
        return ended["ended_by"] in HANGS
    if recorded["memory"] and (ended["ended_by"] == "memory_watchdog" or ended["signal"] == "SIGKILL" or ended["oom_kills"]):
        return True
    if recorded.get("slow"):
        return bool(ended["ended_by"] == "wall")
    if recorded["ended_by"] in ("length", "wall"):
        return bool(ended["ended_by"] == "wall" or ended["returncode"] == 0)
    return bool(ended["ended_by"] == "itself" and ended["returncode"] == recorded["returncode"])


def said(ending: dict[str, Any]) -> str:
    words: list[str] = [str(ending["signal"] or f"exit {ending['returncode']}")]
    if ending["ended_by"] in HANGS:
        words = ["it hung"]
    elif ending["ended_by"] != "itself":
        words.append(f"ended by {ending['ended_by']}")
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(main())
