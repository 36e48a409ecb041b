"""What a program says about its options: its own --help, its sources, the configuration file it is given.

Nothing of the job is run.  A program is asked for --help only when its sources show that a parser of options reads its command
line (a script without one would ignore --help and start training), and then in a process group of its own that is ended after a
while, without GPUs and without a network for the model hubs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from matrix.evidence.log import python_error
from matrix.propose.declared import declared_options, options_of_globals
from matrix.propose.usage import Option, options, subcommands
from matrix.propose.words import CommandLine
from matrix.spec.fingerprint import own_files

HELP_S = 120.0  # importing a framework took 40 s on a busy machine
NOT_THERE = 44
FIND_MODULE = f"""
import importlib.util, sys
try:
    found = importlib.util.find_spec(sys.argv[1])
except ModuleNotFoundError as problem:
    found = None if sys.argv[1].startswith(problem.name or "?") else problem
sys.exit({NOT_THERE} if found is None else 0)
"""
MOST_BYTES = 1 << 20
MOST_FILES = 40
# Calls that read the command line.  An import alone proves nothing: notebooks use argparse.Namespace.
PARSES = re.compile(
    r"\bparse(?:_known)?(?:_intermixed)?_args(?:_\w+)?\(|\bclick\.(?:command|group)\b|\btyper\.(?:run|Typer)\(|\bfire\.Fire\("
    r"|\bapp\.run\(|\bhydra\.main\b|\bLightningCLI\(|\btyro\.cli\(|\b(?:auto_)?CLI\(|\bdocopt\(|\btap\.|\bdraccus\.|\bsimple_parsing\."
)
CALLS_FIRST = re.compile(r"\bfire\.Fire\(|\bapp\.run\(")  # fire calls a function with the words in front of --help: that would be the job
READ_VARIABLE = re.compile(
    r"""\b(?:environ(?:\.(?:get|setdefault|pop)\(|\[)|getenv\()\s*(?:key\s*=\s*)?["']([A-Z][A-Z0-9_]*)["']"""
    r"""(?!\s*\]\s*=[^=])(?:\s*,\s*(?:default\s*=\s*)?["']?([\w.+-]+)["']?\s*\))?"""  # what is assigned to is not read
)
SHELL_DEFAULT = re.compile(r"\$\{([A-Z][A-Z0-9_]*):?[-=]([\w.+-]*)\}")  # of a shell script: what the environment may set
NAMED_FILE = re.compile(r"""["']([^"'\n{}*]+\.(?:ya?ml|json))["']""")
ENTRY_POINT = re.compile(r"(?m)^from ([\w.]+) import \w+$")
WRITTEN = re.compile(
    r"""\b(?:save|dump|export|to_(?:csv|json|parquet))\w*\([^()\n]*?["'](?P<saved>[\w./-]+\.[A-Za-z]\w{0,9}(?:\.\w{1,4})?)["']"""
    r"""|\bopen\(\s*["'](?P<opened>[\w./-]+\.[A-Za-z]\w{0,9})["']\s*,\s*(?:mode\s*=\s*)?["'][wax]"""
)
OPENED_SCRIPT = re.compile(r"""\bopen\(\s*["']([^"'\n]+\.py)["']""")
HYDRA = re.compile(r"\bhydra\.main\(([^()]*)\)")
QUIET = {
    "COLUMNS": "400", "LINES": "1000", "TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "CUDA_VISIBLE_DEVICES": "",
    "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip


class Sources:
    """The program's own files, as text."""

    def __init__(self, command: CommandLine, cwd: Path, env: Mapping[str, str]) -> None:
        files = [path for path in own_files(list(command.words[command.start :]), cwd) if path.suffix in ("", ".py", ".sh")]
        if command.launcher:
            files = [path for path in files if path.name != PurePath(command.launcher).name]
        if command.kind == "program" and (found := shutil.which(command.target, path=env.get("PATH"))):
            files = [Path(found)]
        texts = [_text(path) for path in files]
        self.installed = not any(path.suffix in (".py", ".sh") for path in files)
        self.named = {word.partition("=")[0] for word in command.arguments}
        if self.installed:
            texts += [_text(path) for path in _installed_files(command, texts, env)]
        folders = (cwd, cwd / Path(command.target).parent)
        texts += [_text(path) for text in texts for path in _opened_scripts(text, folders)]
        self.texts = texts
        self.script = texts[0] if texts else ""

    @property
    def parse_options(self) -> bool:
        return any(PARSES.search(text) for text in self.texts)

    def declared_options(self) -> list[Option]:
        """Return the options that the sources declare, or globals that they let the command line set.

        Where several parsers stand side by side, only those of flags in the command: the others may be of another subcommand.
        """
        found = declared_options(self.texts) or options_of_globals(self.script, self.texts)
        if not self.installed and not self.mention(r"\badd_subparsers\(|\.group\("):
            return found
        return [option for option in found if self.named.intersection(option.flags)]

    @property
    def words_are_safe(self) -> bool:
        """Words in front of --help are looked at only after it."""
        return not any(CALLS_FIRST.search(text) for text in self.texts)

    def variables(self) -> dict[str, str | None]:
        """Environment variables that they read, with the default that stands beside the name."""
        found: dict[str, str | None] = {}
        for match in (match for form in (SHELL_DEFAULT, READ_VARIABLE) for text in self.texts for match in form.finditer(text)):
            found[match[1]] = found.get(match[1]) or match[2] or None
        return found

    def config_names(self) -> list[str]:
        """Configuration files that they name, as they name them: hydra's, and every text that ends like one."""
        named: list[str] = []
        for text in self.texts:
            for call in HYDRA.findall(text):
                parts = dict(re.findall(r"""(config_path|config_name)\s*=\s*["']([^"']+)["']""", call))
                if "config_name" in parts:
                    named.append(f"{parts.get('config_path', '.')}/{parts['config_name'].removesuffix('.yaml')}.yaml")
            named += NAMED_FILE.findall(text)
        return named

    def written_names(self) -> list[str]:
        """Return the files that the program's own sources name where they save, as written there."""
        if self.installed:
            return []
        found = [match["saved"] or match["opened"] for text in self.texts for match in WRITTEN.finditer(text)]
        return list(dict.fromkeys(found))

    @property
    def take_overrides(self) -> bool:
        """Every key of the configuration can be set as `key=value` on the command line."""
        return self.mention(r"\bhydra\.main\(|\bOmegaConf\.from_cli\(\s*\)")

    def mention(self, pattern: str) -> bool:
        return any(re.search(pattern, text) for text in self.texts)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as source:
            return source.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _installed_files(command: CommandLine, texts: Sequence[str], env: Mapping[str, str]) -> list[Path]:
    """Return the sources of an installed program: of its module, and those beside it where that is a package's entry."""
    entry = next((match[1] for text in texts for match in ENTRY_POINT.finditer(text)), None)
    name = command.target if command.kind == "module" else entry
    if not name:
        return []
    for folder in package_folders(command, env):
        place = folder.joinpath(*name.split("."))
        if (module := place.with_suffix(".py")).is_file():
            beside = sorted(module.parent.glob("*.py")) if command.kind == "program" else []
            return list(dict.fromkeys((module, *beside[:MOST_FILES])))
        if place.is_dir():
            return sorted(place.glob("*.py"))[:MOST_FILES]
    return []


def _opened_scripts(text: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Python files that a script opens by name, to run them: `exec(open("configurator.py").read())`."""
    for name in OPENED_SCRIPT.findall(text):
        yield from (folder / name for folder in folders[:1] if (folder / name).is_file())


def package_folders(command: CommandLine, env: Mapping[str, str]) -> list[Path]:
    """Where the program's interpreter looks for packages, as it says itself; [] when it does not."""
    python = _interpreter_of(command, env)
    found = [Path(text) for text in _search_path(python, tuple(sorted(env.items())))]
    return [path for path in found if path.name in ("site-packages", "dist-packages") and path.is_dir()]


def module_is_there(command: CommandLine, cwd: Path, env: Mapping[str, str]) -> bool:
    """False if the command's interpreter, started in that folder, finds no such module; True where that cannot be asked."""
    own = any(path.suffix == ".py" for path in own_files(["python", "-m", command.target], cwd))
    if own or _installed_files(command, (), env):
        return True
    asked = [_interpreter_of(command, env), "-c", FIND_MODULE, command.target]
    try:
        return subprocess.run(asked, cwd=cwd, env=dict(env), capture_output=True, timeout=HELP_S).returncode != NOT_THERE
    except (OSError, subprocess.TimeoutExpired):
        return True


def _interpreter_of(command: CommandLine, env: Mapping[str, str]) -> str:
    """Return the interpreter that runs the command: named in it, in the first line of its program, or the first on PATH."""
    if not command.interpreter and (program := shutil.which(command.words[command.start], path=env.get("PATH"))):
        first = _text(Path(program)).partition("\n")[0]
        if first.startswith("#!/") and "python" in first and "/env " not in first:
            return first[2:].split()[0]
    return shutil.which(command.interpreter or "python", path=env.get("PATH")) or sys.executable


@functools.cache
def _search_path(python: str, env: tuple[tuple[str, str], ...]) -> list[str]:
    asked = [python, "-c", "import sys; print(*sys.path, sep='\\0')"]
    try:
        done = subprocess.run(asked, env=dict(env), capture_output=True, timeout=HELP_S)
        return done.stdout.decode(errors="replace").strip().split("\0")
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return []


# ------------------------------------------------------------------ --help
def described_options(command: CommandLine, sources: Sources, cwd: Path, env: Mapping[str, str]) -> tuple[list[Option], str]:
    """The options that the program's --help lists, and the exception that kept it from answering; "" when none did.

    It is asked with the words in front of the first flag (a subcommand may be among them), and once more with a subcommand
    that comes later.
    """
    entry = [*_starting_words(command, env), *(_leading(command.arguments) if sources.words_are_safe else ())]
    text = _help(entry, cwd, env)
    later = next((at for at, word in enumerate(command.arguments) if word in subcommands(text)), None)
    found = options(text)
    if later is not None and command.arguments[later] not in entry:
        found += options(_help([*_starting_words(command, env), *command.arguments[: later + 1]], cwd, env))
    error = python_error(text) if not found else None
    return found, f"{error.type}: {error.message}" if error else ""


def _starting_words(command: CommandLine, env: Mapping[str, str]) -> list[str]:
    """Those that start the program without its launcher."""
    if not command.launcher:
        return list(command.words[command.start : command.own])
    beside = shutil.which(command.words[command.start], path=env.get("PATH"))
    sibling = Path(beside).parent / "python" if beside and not command.interpreter else None
    python = command.interpreter or (str(sibling) if sibling and sibling.exists() else sys.executable)
    return [python, *(["-m"] if command.kind == "module" else []), command.target]


def _leading(arguments: tuple[str, ...]) -> Iterator[str]:
    for word in arguments:
        if word.startswith("-") or "=" in word:
            return
        yield word


def _help(entry: list[str], cwd: Path, env: Mapping[str, str]) -> str:
    """What it prints; "" when it fails, takes too long, or there is no such program."""
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                [*entry, "--help"],
                cwd=cwd,
                env={**env, **QUIET},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            return ""
        try:
            status = child.wait(HELP_S)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        text = output.read(MOST_BYTES).decode("utf-8", "replace")
        return text if status in (0, 1) else ""  # absl's helps end with 1
