"""From a command to everything that its specification will say."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.evidence.runtimes import REGISTERING, identify
from matrix.propose.amounts import why_fixed
from matrix.propose.ask import Sources, described_options, module_is_there, package_folders
from matrix.propose.declared import literal_globals, with_declared
from matrix.propose.facts import Facts
from matrix.propose.masks import is_secret, masked
from matrix.propose.places import TEMP, Place, escaped, why_temp_stays, written_places
from matrix.propose.proposals import (
    DUPLICATE_OK,
    MOST_COMMENTS,
    THREAD_VARIABLES,
    Machine,
    Proposal,
    active,
    folder_axis,
    proposals,
    temp_axis,
)
from matrix.propose.rewrite import Rewritten, rewrite
from matrix.propose.roles import role_of
from matrix.propose.settings import (
    ConfigFile,
    Setting,
    command_settings,
    config_file,
    config_settings,
    help_settings,
    launcher_settings,
    variable_settings,
)
from matrix.propose.steering import axes_for_words, openmp_axis, steered
from matrix.propose.usage import Option
from matrix.propose.words import PYTHON, CommandLine, read, variables_in_front
from matrix.spec import devices, fields

SHELL_SIGNS = frozenset(("|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1", "2>", "&>"))
# Variables that shape how a program dies.  A specification must not depend on the shell that it is started from.
TELLING = re.compile(
    r"(?:OMP|KMP|MKL|OPENBLAS|GOMP|GOTO|BLIS|NUMEXPR|VECLIB|MALLOC|PYTORCH|TORCH|CUDA|NCCL|GLOO|ATEN|NPY)_[A-Z0-9_]+"
    r"|TOKENIZERS_PARALLELISM|LD_PRELOAD|DYLD_INSERT_LIBRARIES|PYTHONMALLOC|PYTHONHASHSEED|ACCELERATE_USE_CPU"
)
OF_A_LAUNCHER_WHY = "an option of the launcher"
NEED_A_VALUE = ("batch", "workers", "accum")
OPENMP_PLACES = ("lib*omp*", "*/lib*omp*", "*/lib/lib*omp*", "*/.dylibs/lib*omp*")


class CannotPropose(Exception):
    """No specification can be made of what was given; the text says why and what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    name: str
    command: CommandLine
    cwd: str | None  # None: the folder that the specification is in
    env: dict[str, str]
    withheld: list[str]  # variables with a secret, which a run inherits from the shell that starts it
    secrets: list[str]  # what gives away those that stand in the command, which has to keep them
    places: list[Place]  # where it writes, with what is made of each
    unmoved: list[str]  # files that the sources write by name, and that no option moves
    fixed: dict[str, list[str]]  # numbers of the command that stay: the reason, and the flags
    rewritten: Rewritten
    varied: list[Proposal]
    others: list[Proposal]  # not varied, for people to choose from
    unvalued: list[str]  # flags and variables that would be varied if their value were known
    config: ConfigFile | None
    facts: Facts | None
    asked_help: bool  # --help was run
    no_help: str  # the exception that it ended with
    options: int  # that it listed
    declared: int  # options that only the sources tell
    constants: list[str]  # "batch_size = 16": what the script itself sets and no option does
    rich_bar: bool  # its progress is drawn by rich, which needs a terminal
    wandb: bool  # its sources mention Weights & Biases

    @property
    def writes_in_place(self) -> bool:
        """True if the job writes where it was started to write, because the death may be about that place."""
        return any(place.why_kept for place in self.places)

    @property
    def has_own_folder(self) -> bool:
        return not self.writes_in_place and any("{attempt_dir}" in word for word in self.rewritten.words)


def draft(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    facts: Facts | None = None,
    name: str | None = None,
    folder: Path | None = None,
    run_help: bool | None = None,
) -> Draft:
    """Raises CannotPropose.  `folder`: where the specification will be, when not in `cwd`; `run_help`: None asks the program for
    --help when its sources show that it would answer."""
    variables, words = variables_in_front(_words(argv))
    env = {**env, **variables}
    command = read(words)
    _check(command, cwd, env)
    sources = Sources(command, cwd, env)
    asks = sources.parse_options if run_help is None else run_help
    helped, no_help = described_options(command, sources, cwd, env) if asks and command.kind != "code" else ([], "")
    options = with_declared(helped, sources.declared_options() if command.kind != "code" else [])
    config, settings = _settings(command, options, sources, cwd, env)
    facts = _held_against_the_command(facts, settings)
    packages = package_folders(command, env)
    kept, withheld = _kept(env, variables)
    runs = Path.cwd() / "runs"
    places = [] if command.closed else written_places(settings, facts, cwd, runs)
    found = _proposals(settings, places, _machine(packages, env, facts), command, facts)
    if why := why_temp_stays(env, facts):
        found = [temp_axis(env[TEMP], why), *found]
    varied = active(found)
    by_axes = {name for proposal in varied for name in _variables(proposal)}
    return Draft(
        name=_name(name, command),
        command=command,
        cwd=None if folder is None or folder.resolve() == cwd.resolve() else str(cwd.resolve()),
        env={name: escaped(value) for name, value in kept.items() if name not in by_axes},
        withheld=withheld,
        places=places,
        unmoved=[name for name in sources.written_names() if all(name != place.written for place in places)],
        fixed=_fixed_numbers(settings, found),
        secrets=masked(command.words)[1],
        rewritten=rewrite(command, settings, varied, [place for place in places if not place.why_kept], facts, env),
        varied=varied,
        others=[proposal for proposal in found if proposal not in varied][:MOST_COMMENTS],
        unvalued=_unvalued(_addable(settings, command), found),
        config=config,
        facts=facts,
        asked_help=asks,
        no_help=no_help,
        declared=len(options) if not helped else 0,
        constants=_constants(sources, command),
        options=len(helped),
        rich_bar=not (facts and (facts.steps_seen or facts.progress)) and _draws_with_rich(sources, packages),
        wandb=sources.mention(r"\bwandb\b"),
    )


def _words(argv: Sequence[str]) -> list[str]:
    """One word with spaces is a command line in quotes."""
    import shlex

    words = list(argv)
    if len(words) == 1 and re.search(r"\s", words[0]) and not Path(words[0]).exists():
        try:
            words = shlex.split(words[0])
        except ValueError as problem:
            raise CannotPropose(f"the command cannot be split into words: {problem}; close the quotation") from None
    if not words or not words[0]:
        raise CannotPropose("no command: give what you launch after --, as in: init -- python train.py --bs 32")
    if words[0].startswith("-"):
        raise CannotPropose(f"there is no option {words[0]}; the command comes after --, as in: init -- python train.py --bs 32")
    if sign := next((word for word in words if word in SHELL_SIGNS), None):
        raise CannotPropose(f"the command has the word {sign!r}, and no shell will see it; leave it out, or write: bash -c '…'")
    return words


def _check(command: CommandLine, cwd: Path, env: Mapping[str, str]) -> None:
    """The command and its script must be there, or nothing of the specification could run."""
    for word in command.words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise CannotPropose(f"the word {word!r} is not UTF-8, and a specification is; rename what it names") from None
    program = command.words[0]
    found = (cwd / program) if os.sep in program else shutil.which(program, path=env.get("PATH"))
    if not found or not (os.access(found, os.X_OK) and Path(found).is_file()):
        where = f"in {cwd}" if os.sep in program else "on PATH"
        hint = f"; write: python {program}" if program.endswith(".py") else "; give the full path of the program"
        raise CannotPropose(f"{program!r} was not found {where}, or is not executable{hint}")
    if command.kind == "program" and _starts_nothing(command):
        raise CannotPropose(f"{command.target} starts nothing: name the script, or -m and the module, as you launch it")
    if command.kind == "module" and not module_is_there(command, cwd, env):
        where = "start init in the folder, and with the interpreter, that the job is started with"
        raise CannotPropose(f"there is no module {command.target} for {command.interpreter or 'the launcher'} in {cwd}; {where}")
    if command.kind in ("script", "shell") and command.own > command.start + 1 and not (cwd / command.target).exists():
        raise CannotPropose(f"there is no {cwd / command.target}; start init in the folder from which the job is started")


def _constants(sources: Sources, command: CommandLine) -> list[str]:
    """Names at the top of the script that set what would be worth varying, with their values."""
    if command.kind != "script" or sources.installed:
        return []
    known = ("batch", "accum", "workers", "threads", "precision", "device")
    return [f"{name} = {value}" for name, value in literal_globals(sources.script).items() if role_of(name) in known]


def _starts_nothing(command: CommandLine) -> bool:
    """True of an interpreter, or a launcher, that no program follows."""
    rest = command.words[command.start + 1 :]
    if PYTHON.fullmatch(Path(command.target).name):
        return not rest or rest[-1] in ("-m", "-c")
    start, end = command.launching
    return bool(command.launcher) and all(word.startswith("-") for word in command.words[start : max(start, end)])


def _settings(
    command: CommandLine, options: list[Option], sources: Sources, cwd: Path, env: Mapping[str, str]
) -> tuple[ConfigFile | None, list[Setting]]:
    """What the command says counts before what a file says, and that before defaults."""
    settings = [*launcher_settings(command, cwd), *command_settings(command, options)]
    defaults = list(help_settings(options, settings))
    config = config_file([*settings, *defaults], command, cwd, sources.config_names(), sources.take_overrides)
    if config:
        settings += config_settings(config, options, settings)
    settings += help_settings(options, settings)
    ours = {*THREAD_VARIABLES, DUPLICATE_OK}
    variables = {name: default for name, default in sources.variables().items() if name not in ours}
    return config, [*settings, *variable_settings(variables, env)]


def _held_against_the_command(facts: Facts | None, settings: Sequence[Setting]) -> Facts | None:
    """The facts; a run that made all the steps that the command asks for, and left no word of a death, ended well."""
    if facts is None or not facts.died or facts.last_step is None or facts.signal or facts.error or facts.words:
        return facts
    asked = next((setting.number for setting in settings if setting.role == "steps" and setting.number), None)
    if asked is None or facts.last_step + 1 < asked:
        return facts
    return dataclasses.replace(facts, died=None, ended_well=True)


def _unvalued(settings: Sequence[Setting], found: Sequence[Proposal]) -> list[str]:
    """Flags that --help lists and the command leaves out, and variables that the sources read and nothing sets, of a kind for
    which no other value was found either."""
    known = {proposal.role for proposal in found}
    open_ = [setting for setting in settings if setting.role in NEED_A_VALUE and setting.role not in known and setting.number is None]
    flags = [setting.flag for setting in open_ if setting.option and not setting.given]
    return flags + [
        f"{setting.variable} ({setting.variable}=N in front)" for setting in open_ if setting.variable and setting.value is None
    ]


def _addable(settings: list[Setting], command: CommandLine) -> list[Setting]:
    """An axis adds its words at the end of the command; where these would not be flags any more, only variables are left."""
    return [setting for setting in settings if setting.variable or setting.after] if command.closed else settings


def _proposals(
    settings: list[Setting], places: Sequence[Place], machine: Machine, command: CommandLine, facts: Facts | None
) -> list[Proposal]:
    """Every axis that could be varied, the most telling first: by what is known of programs, then by the words of the log."""
    written = {place.setting.flag for place in places}
    addable = [setting for setting in _addable(settings, command) if setting.flag not in written or not setting.flag]
    found = {proposal.axis: proposal for proposal in proposals(addable, machine)}
    two = len(machine.openmp_runtimes) > 1
    if machine.duplicate_ok or two:
        names = " and ".join(path.rpartition("/")[2] for path in machine.openmp_runtimes[:2])
        found["omp"] = openmp_axis(f"OpenMP runtimes that refuse each other ({names}): " if two else "", hidden=machine.duplicate_ok)
    for proposal in axes_for_words(facts):
        found.setdefault(proposal.axis, proposal)
    folder = folder_axis([place for place in places if place.why_kept])
    if folder is not None:
        found["folder"] = folder
    return steered(list(found.values()), facts)


def _fixed_numbers(settings: Sequence[Setting], found: Sequence[Proposal]) -> dict[str, list[str]]:
    """Numbers that the command gives and that no axis takes: the reason, and the flags with their values."""
    taken = {given for proposal in found for given in proposal.removes}
    fixed: dict[str, list[str]] = {}
    for setting in settings:
        if setting.given is None or setting.given in taken or setting.value is None:
            continue
        why = why_fixed(setting) or (OF_A_LAUNCHER_WHY if setting.after and setting.number is not None else None)
        if why:
            fixed.setdefault(why, []).append(f"{setting.flag.rstrip('=')} {setting.value}")
    return fixed


def _machine(packages: Sequence[Path], env: Mapping[str, str], facts: Facts | None) -> Machine:
    threads = env.get("OMP_NUM_THREADS", "")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    seen = facts.openmp_runtimes if facts else ()
    return Machine(
        cpus=cpus,
        threads=int(threads) if re.fullmatch(r"[1-9]\d{0,4}", threads) else cpus,
        accelerator=next((name for name in ("cuda", "mps") if _is_here(name)), None),
        openmp_runtimes=seen or _installed_runtimes(tuple(packages)),
        forked_with_threads=bool(facts and facts.forked_with_threads),
        duplicate_ok=env.get(DUPLICATE_OK, "").lower() in ("true", "1"),
    )


def _is_here(device: str) -> bool:
    return devices.why_unavailable(device) is None


@functools.cache
def _installed_runtimes(packages: tuple[Path, ...]) -> tuple[str, ...]:
    """OpenMP runtimes of the LLVM and Intel family; asked of the files, nothing is imported."""
    folders = [folder for package in packages for folder in (package, package.parent.parent)]
    files = {path.resolve() for folder in folders for pattern in OPENMP_PLACES for path in folder.glob(pattern) if path.is_file()}
    return tuple(sorted(str(path) for path in files if _refuses_others(path)))


def _draws_with_rich(sources: Sources, packages: Sequence[Path]) -> bool:
    """Lightning's bar is drawn by rich where that is installed, and then only on a terminal."""
    if not sources.mention(r"(?m)^\s*(?:import|from)\s+(?:lightning|pytorch_lightning)\b") or sources.mention(r"\bTQDMProgressBar\b"):
        return False
    return any((package / "rich").is_dir() for package in packages)


def _refuses_others(path: Path) -> bool:
    if platform.system() == "Darwin":  # what a Mach-O file exports is not read here
        return bool(re.match(r"libi?omp5?\.dylib", path.name))
    return ".so" in path.name and REGISTERING in identify(path).families


def _kept(env: Mapping[str, str], written: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables that the specification may set: those written before the command, and those of this shell that shape a death; and
    the names of those that hold a secret."""
    telling = {name: value for name, value in sorted(env.items()) if TELLING.fullmatch(name) and value and value.isprintable()}
    both = {**telling, **written}
    withheld = [name for name, value in both.items() if is_secret(name, value)]
    return {name: value for name, value in both.items() if name not in withheld}, withheld


def _variables(proposal: Proposal) -> list[str]:
    names = proposal.entry.get("env", [])
    return [str(name) for name in names] if isinstance(names, list) else []


def _name(given: str | None, command: CommandLine) -> str:
    if given is not None:
        if not re.fullmatch(fields.FILE_NAME, given):
            raise CannotPropose(
                f"{given!r} cannot name a folder of runs; allowed: up to 64 letters, digits, . _ -; a letter or digit first"
            )
        return given
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", command.stem).strip("._-")[:60]
    return plain if re.fullmatch(fields.FILE_NAME, plain) else "job"
