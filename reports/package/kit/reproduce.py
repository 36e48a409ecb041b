"""Replay the failing and the nearest surviving configuration of this package, with nothing but Python and sh.

    python3 reproduce.py                      both, the failing one until it ends as recorded
    python3 reproduce.py failing --tries 5    only that one, five times at most
Exit status: 0 each ended as recorded, 1 one did not, 2 it could not be started as recorded: an input or a package is missing.
Every run is written below replays/: stdout.log, stderr.log, memory.csv, ending.json.
"""

from __future__ import annotations

import argparse
import hashlib
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
IMPORTS = ("ModuleNotFoundError", "ImportError")
LAST_LINES = 8
WHOLE_BYTES = 64 << 20  # a larger input is compared by its size alone
FIND = "import importlib.util as u, sys; print('\\n'.join(n for n in sys.argv[1:] if u.find_spec(n) is None))"


def main() -> int:
    options = arguments()
    recipe = json.loads((HERE / "scripts" / "replay.json").read_text(encoding="utf-8", errors="replace"))
    recorded = {name: {"python_path": recipe.get("python_path", []), **cell} for name, cell in recipe["cells"].items()}
    fills = dict(pair.partition("=")[::2] for pair in options.fill)
    wanted = [name for name in ("failing", "surviving") if options.which in ("both", name)]
    for name in [name for name in wanted if name not in recorded]:
        print(f"{name}: this package holds no such run")
    missing = [*missing_inputs(recipe, fills, options), *missing_packages(recipe, fills, options)]
    for text in missing:
        print(f"missing: {text}")
    if missing and not options.anyway:
        print("Not started: a run without these ends otherwise. Put them there, or run it all the same with --anyway")
        return 2
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
    parser.add_argument("--anyway", action="store_true", help="run it although an input or a package is missing")
    return parser.parse_args()


# ------------------------------------------------------------------ what must be there
def missing_inputs(recipe: dict[str, Any], fills: dict[str, str], options: argparse.Namespace) -> list[str]:
    """Inputs that are not packed and not here; those that differ from the recorded ones are told at once."""
    found = []
    for name, about in recipe.get("inputs_not_packed", {}).items():
        path = Path(options.program, filled(name, {}, fills))
        if not path.exists():
            found.append(f"input {path} ({about['size']:,} bytes)")
        elif path.is_file() and (path.stat().st_size != about["size"] or is_another(path, about.get("digest", ""))):
            print(f"note: {path} is not the recorded file (size or content differs), so a run may end otherwise")
    return found


def is_another(path: Path, digest: str) -> bool:
    if not digest or path.stat().st_size > WHOLE_BYTES:
        return False
    found = hashlib.sha256()
    with path.open("rb") as source:
        for chunk in iter(lambda: source.read(1 << 20), b""):
            found.update(chunk)
    return found.hexdigest()[:32] != digest


def missing_packages(recipe: dict[str, Any], fills: dict[str, str], options: argparse.Namespace) -> list[str]:
    """Packages that the recorded runs loaded and that the interpreter here does not have."""
    names = recipe.get("packages", {})
    if not names:
        return []
    try:
        asked = subprocess.run(
            [options.python, "-c", FIND, *names], cwd=options.program, env=environment(recipe, {}, options), capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"note: {options.python} could not be asked for its packages: {problem}")
        return []
    found = asked.stdout.decode("utf-8", "replace").split()
    return [f"package {name}{f' (recorded: {names[name]})' if names.get(name) else ''}, for {options.python}" for name in found]


def environment(recipe: dict[str, Any], more: dict[str, str], options: argparse.Namespace) -> dict[str, str]:
    """Ours, with the folders of modules that lay outside of the program's folder."""
    own = [filled(place, {"{program}": options.program}, {}) for place in recipe.get("python_path", [])]
    path = [*own, more.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")]
    return {"PYTHONUNBUFFERED": "1", **os.environ, **more, **({"PYTHONPATH": os.pathsep.join(filter(None, path))} if own else {})}


# ------------------------------------------------------------------ one configuration
def replay(name: str, cell: dict[str, Any], fills: dict[str, str], options: argparse.Namespace) -> int:
    tries = options.tries or (cell["tries"] if name == "failing" else 1)
    print(f"{name}: {' '.join(f'{axis}={value}' for axis, value in cell['cell'].items())}; recorded: {recorded_end(cell['ended'])}")
    for number in range(1, tries + 1):
        folder = fresh_folder(name)
        ended = run(cell, folder, fills, options)
        if ended is None:
            return 2
        differs = difference(cell["ended"], ended)
        verdict = f"not as recorded: {differs}" if differs else "as recorded"
        print(f"  run {number} of at most {tries}: {said(ended)} after {ended['wall_s']} s; {verdict} ({folder})")
        if not differs:
            return 0
        for line in last_lines(folder):
            print(f"    | {line}")
        if could_not_start(cell["ended"], ended):
            print("  It did not get to its first step: something that it needs is missing here.")
            return 2
    return 1


def run(cell: dict[str, Any], folder: Path, fills: dict[str, str], options: argparse.Namespace) -> Any:
    """What its ending.json says; None: it could not be started."""
    places = {"{python}": options.python, "{program}": options.program, "{attempt_dir}": str(folder)}
    argv = [filled(word, places, fills) for word in cell["argv"]]
    env = {key: filled(value, places, fills) for key, value in cell["env"].items()}
    missing = sorted({found for word in [*argv, *env.values()] for found in LEFT_OUT.findall(word)})
    if missing:
        print(f"  note: {', '.join(missing)} were redacted; give them with --fill {missing[0]}=VALUE if the program needs them")
    monitor = [sys.executable, str(HERE / "scripts" / "monitor.py"), "--out", str(folder), "--wall", str(options.wall or cell["wall_s"])]
    monitor += ["--step", cell["step_pattern"]] if cell.get("step_pattern") else []
    for limit, value in cell.get("rlimits", {}).items():
        monitor += ["--limit", f"{limit}={value}"]
    monitor += ["--idle", str(cell["idle_s"] or 0), "--memory", str(cell["memory_limit_bytes"] or 0), "--", *argv]
    limits = ["-m", str(cell["memory_limit_bytes"])] if cell["memory_limit_bytes"] else []
    limits += ["-c", cell["cpus"]] if cell["cpus"] else []
    shell = ["sh", str(HERE / "scripts" / "isolate.sh"), *limits, *monitor]
    subprocess.run(shell, cwd=filled(cell["cwd"], places, fills), env=environment(cell, env, options), check=False)
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


def last_lines(folder: Path) -> list[str]:
    """The end of its standard error, or of its output where that is empty."""
    for name in ("stderr.log", "stdout.log"):
        with (folder / name).open("rb") as source:
            source.seek(max(0, (folder / name).stat().st_size - 20_000))
            lines = source.read().decode("utf-8", "replace").splitlines()
        if lines:
            return [line[:300] for line in lines[-LAST_LINES:]]
    return []


# ------------------------------------------------------------------ as recorded?
def difference(recorded: dict[str, Any], ended: dict[str, Any]) -> str:
    """What tells a run from the recorded one; "": it ended alike.  How often it takes how many steps is chance, so one step is enough."""
    if recorded["memory"] and met_memory(ended):
        return ""  # which process is killed, and what that makes the others say, is chance
    if strange := strange_exceptions(recorded, ended):
        return f"{strange[0].partition(' in ')[0]}: {ended['exceptions'][strange[0]] or strange[0]}"
    if recorded.get("last_step") is not None and ended["last_step"] is None:
        return f"it ended before its first step; recorded: step {recorded['last_step']}"
    return other_end(recorded, ended) or other_process(recorded, ended)


def met_memory(ended: dict[str, Any]) -> bool:
    """Memory is memory whether the kernel or a watchdog ends it."""
    return bool(ended["ended_by"] == "memory_watchdog" or ended["signal"] == "SIGKILL" or ended["oom_kills"])


def strange_exceptions(recorded: dict[str, Any], ended: dict[str, Any]) -> list[str]:
    """Exceptions that the recorded run did not have."""
    known = recorded.get("exceptions")
    return [] if known is None else [name for name in ended["exceptions"] if name not in known]


def other_end(recorded: dict[str, Any], ended: dict[str, Any]) -> str:
    """Whether the main process ended otherwise.  A hang is a hang whoever notices it; what was too slow does not finish in that time
    again."""
    now, then = said(ended), recorded_end(recorded)
    by = recorded["ended_by"]
    if by in HANGS:
        alike = ended["ended_by"] in HANGS
    elif recorded.get("slow"):
        alike = ended["ended_by"] == "wall"
    elif by in ("length", "wall"):
        alike = ended["ended_by"] == "wall" or ended["returncode"] == 0
    else:
        alike = ended["ended_by"] == "itself" and ended["returncode"] == recorded["returncode"]
    if not alike:
        return f"it ended with {now}; recorded: {then}"
    lost = [name for name in recorded.get("exceptions") or {} if name not in ended["exceptions"]]
    return f"it raised no {lost[-1]}" if lost and not ended["exceptions"] else ""


def other_process(recorded: dict[str, Any], ended: dict[str, Any]) -> str:
    """Whether another process than the main one was to die first, and died of something else."""
    process, how = recorded.get("process", "main"), recorded.get("process_end")
    if process == "main" or not how:
        return ""
    seen = ended["other_ends"]
    bad = [end for end in seen if end != "exit 0"]
    return f"no {process} died of {how}; processes ended with {', '.join(bad)}" if bad and how not in seen else ""


def could_not_start(recorded: dict[str, Any], ended: dict[str, Any]) -> bool:
    """An import that fails, or an exit before the first step of what had taken steps."""
    strange = strange_exceptions(recorded, ended)
    if any(name.startswith(IMPORTS) for name in strange) or ended["returncode"] in (126, 127):
        return True
    left = ended["ended_by"] == "itself" and not ended["signal"] and ended["returncode"] != 0
    return bool(left and ended["last_step"] is None and recorded.get("last_step") is not None)


def recorded_end(recorded: dict[str, Any]) -> str:
    """In words: `exit 1, after a worker died of SIGKILL at step 12`."""
    words = said(recorded)
    if recorded.get("process", "main") != "main" and recorded.get("process_end"):
        words += f", after a process ({recorded['process']}) died of {recorded['process_end']}"
    return words if recorded.get("last_step") is None else f"{words} at step {recorded['last_step']}"


def said(ending: dict[str, Any]) -> str:
    words: list[str] = [str(ending["signal"] or f"exit {ending['returncode']}")]
    if ending["ended_by"] in HANGS:
        words = ["it hung"]
    elif ending["ended_by"] != "itself":
        words.append(f"ended by {ending['ended_by']}")
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(main())
