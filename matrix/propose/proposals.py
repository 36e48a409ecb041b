"""From what can be set to what is worth varying: axes with their values, the most telling ones first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from matrix.propose.amounts import number_levels
from matrix.propose.flow import number
from matrix.propose.places import TEMP, Place, escaped
from matrix.propose.roles import Role, plain_name
from matrix.propose.settings import Setting
from matrix.propose.words import Given
from matrix.spec.placeholders import escape

MOST_ACTIVE = 7
MOST_COMMENTS = 12
MOST_CHOICES = 6
MANY_TIMES = 4
NEED_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")  # torch refuses them without worker processes
OFF = ("off", "no", "none", "never", "false", "disabled", "0")
TRUTHS = {"true": "False", "false": "True", "1": "0", "0": "1", "yes": "no", "no": "yes", "on": "off", "off": "on"}
FULL_PRECISION = ("fp32", "float32", "32-true", "32", "no", "full", "none")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
DUPLICATE_OK = "KMP_DUPLICATE_LIB_OK"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """An axis."""

    axis: str
    entry: dict[str, object]  # as the specification has it, but for the name
    bad: str  # known_bad's value
    why: str
    weight: int  # how much it is likely to tell; 0 and less: written as a comment only
    removes: tuple[Given, ...] = ()  # the words that the axis takes the place of
    role: Role | None = None

    @property
    def levels(self) -> list[str]:
        """The values, or the names of the choices, as people read them."""
        levels = self.entry.get("values") or self.entry.get("choices")
        return [str(level) for level in levels] if isinstance(levels, Iterable) else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    threads: int  # what an OpenMP runtime would start by itself
    cpus: int = 1  # processors that the job may use
    accelerator: str | None = None  # "cuda", "mps"; None: there is none
    openmp_runtimes: tuple[str, ...] = ()  # files of those that refuse each other, of the program's interpreter
    duplicate_ok: bool = False  # the shell lets them run side by side
    forked_with_threads: bool = False  # a run that was seen did
    needs_workers: bool = False  # the command says how workers work, so there have to be some


def proposals(settings: Iterable[Setting], machine: Machine) -> list[Proposal]:
    """The most telling first; of several settings of one role the first counts, and so of several axes of one name."""
    settings = list(settings)
    machine = dataclasses.replace(
        machine, needs_workers=any(setting.given and plain_name(setting.name).endswith(NEED_WORKERS) for setting in settings)
    )
    found: dict[str, Proposal] = {}
    roles: set[Role] = set()
    workers = any(setting.role == "workers" and setting.number for setting in settings)
    for setting in settings:
        proposal = _proposal(setting, machine)
        if proposal is None or (setting.role in roles and setting.role not in (None, "switch", "amount", "half")):
            continue
        if setting.role == "start" and not workers:
            proposal = dataclasses.replace(proposal, weight=-1)  # nothing is started
        roles |= {setting.role} if setting.role else set()
        found.setdefault(proposal.axis, dataclasses.replace(proposal, role=setting.role))
    for proposal in _of_the_environment(machine, "threads" in roles):
        name = proposal.axis if proposal.axis not in found else f"env_{proposal.axis}"
        found[name] = dataclasses.replace(proposal, axis=name)
    return sorted(found.values(), key=lambda proposal: -proposal.weight)


def excluded(chosen: Sequence[Proposal]) -> list[dict[str, str]]:
    """Cells that torch refuses: worker processes that are started in some way, and are none."""
    none = [proposal for proposal in chosen if proposal.role == "workers" and "0" in proposal.levels]
    spawned = [proposal for proposal in chosen if proposal.role == "start" and "as_it_is" in proposal.levels]
    return [{workers.axis: number("0"), start.axis: "spawn"} for workers in none for start in spawned]


def active(found: list[Proposal]) -> list[Proposal]:
    """Those that the matrix varies; there is always one."""
    return [proposal for proposal in found if proposal.weight > 0][:MOST_ACTIVE] or found[:1]


def _proposal(setting: Setting, machine: Machine) -> Proposal | None:
    if setting.role is None:
        return _of_choices(setting) or _of_a_number(setting)
    build = BUILDERS.get(setting.role)
    return build(setting, machine) if build else None


# ------------------------------------------------------------------ one function for each kind of setting
def _batch(setting: Setting, machine: Machine) -> Proposal | None:
    size = setting.number
    if not size:
        return None
    values = sorted({max(1, size // 4), max(1, size // 2), size} if size > 1 else {1, 2})
    return _numbers(setting, values, size, "batch size: memory, and how often a step does something", 90 if size > 1 else -1)


def _accum(setting: Setting, machine: Machine) -> Proposal | None:
    steps = setting.number
    if not steps:
        return None
    values = sorted({1, steps // 4, steps} - {0} if steps > 1 else {1, 4})
    return _numbers(setting, values, steps, "accumulation: micro-batches of a step", 85 if steps > 1 else -2)


def _workers(setting: Setting, machine: Machine) -> Proposal | None:
    count = setting.number
    if count is None:
        return None
    least = 1 if machine.needs_workers and count else 0
    values = sorted({least, max(least, count // 2), count} if count else {0, 2})
    why = "worker processes" if least else "worker processes: 0 loads in the main process, without a fork"
    return _numbers(setting, values, count, why, (100 if len(values) > 1 else -3) if count else -3)


def _threads(setting: Setting, machine: Machine) -> Proposal | None:
    count = setting.number
    if not count:
        return None
    return _numbers(setting, sorted({1, count} if count > 1 else {1, 2}), count, "threads: races, OpenMP, fork", 80 if count > 1 else -4)


def _ranks(setting: Setting, machine: Machine) -> Proposal | None:
    count = setting.number
    if not count or setting.is_default:
        return None
    values = sorted({1, max(1, count // 2), count} if count > 1 else {1, 2})
    return _numbers(setting, values, count, "ranks: 1 needs no other process", 96 if count > 1 else -3)


def _device(setting: Setting, machine: Machine) -> Proposal | None:
    given = setting.value
    if not given or given.lower() in ("none", "null") or (setting.given is None and machine.accelerator is None):
        return None
    other = "cpu" if given != "cpu" else (machine.accelerator or "cuda")
    other = "gpu" if other != "cpu" and setting.name.endswith("accelerator") else other
    telling = machine.accelerator is not None or given not in ("cpu", "auto")
    return _words(setting, [given, other], given, "device", 95 if telling else -5)


def _no_device(setting: Setting, machine: Machine) -> Proposal | None:
    if setting.given is None and machine.accelerator is None:
        return None
    return _switch(setting, machine, why="device: without the accelerator", weight=95 if machine.accelerator else -5)


def _start(setting: Setting, machine: Machine) -> Proposal | None:
    why = "how worker processes are started: a fork copies locks, not threads"
    if setting.given and setting.value:
        return _words(setting, [setting.value, "spawn" if setting.value != "spawn" else "fork"], setting.value, why, 75)
    entry: dict[str, object] = {"choices": {"as_it_is": {}, "spawn": {"args": _flag_and(setting, "spawn")}}}
    return Proposal(axis=setting.name, entry=entry, bad="as_it_is", why=why, weight=75) if setting.flag else None


def _precision(setting: Setting, machine: Machine) -> Proposal | None:
    if not setting.given or not setting.value:
        return None
    choices = setting.option.choices if setting.option else ()
    full = next((word for word in FULL_PRECISION if word in choices), "float32" if "float" in setting.value else "32")
    telling = setting.value.lower() not in FULL_PRECISION and setting.value != full
    other = full if telling else "bf16" if "bf16" in choices or not choices else choices[0]
    return None if other == setting.value else _words(setting, [setting.value, other], setting.value, "precision", 60 if telling else -6)


def _switch(setting: Setting, machine: Machine, *, why: str = "", weight: int = 50) -> Proposal | None:
    """True or False after the flag, `--x/--no-x`, or a flag that is there or not."""
    why = why or "on and off"
    if (setting.value or "").lower() in OFF:
        weight = min(weight, -7)  # what is off already kills nothing
    if setting.variable or (setting.given and setting.value is not None) or (setting.option and setting.option.takes == "one"):
        opposite = TRUTHS.get((setting.value or "").lower())
        if opposite is None:
            return None
        opposite = opposite if (setting.value or "")[:1].isupper() else opposite.lower()
        return _words(setting, [setting.value or "", opposite], setting.value or "", why, weight if setting.given else -7)
    off = setting.option.off[0] if setting.option and setting.option.off else ""
    on = setting.option.flag if setting.option else setting.flag
    if setting.given:
        on, off = (setting.given.flag, off if setting.given.flag != off else on)
        bad, other = on, off
    elif setting.value is not None and off:
        bad, other = (off, on) if setting.value.lower() in ("false", off.lstrip("-")) else (on, off)
    else:
        bad, other = "", on
    labels = {word: word.strip("-") or "without" for word in (bad, other)}
    entry: dict[str, object] = {"choices": {labels[word]: {"args": [word]} if word else {} for word in (bad, other)}}
    return Proposal(
        axis=_plain(setting.name),
        entry=entry,
        bad=labels[bad],
        why=why,
        weight=weight if setting.given else -7,
        removes=_given_words(setting),
    )


def _amount(setting: Setting, machine: Machine) -> Proposal | None:
    size = setting.number
    if not size or size < 2:
        return None
    return _numbers(setting, [size // 2, size], size, "an amount: memory scales with it, or not", 40 if setting.given else -8)


def _seed(setting: Setting, machine: Machine) -> Proposal | None:
    seed = setting.number
    if seed is None:
        return None
    return _numbers(setting, [seed, seed + 1, seed + 2], seed, "seed: does it depend on the data's order?", -9, ordered=False)


def _of_choices(setting: Setting) -> Proposal | None:
    """A flag that --help gives words to choose from, when the command names it: with the word that turns it off, where there is one.
    The others may have troubles of their own, so they are for a person to choose."""
    choices = setting.option.choices if setting.option else ()
    if not setting.given or setting.value not in choices or not 2 <= len(choices) <= MOST_CHOICES:
        return None
    off = next((word for word in choices if word.lower() in OFF and word != setting.value), None)
    words = [setting.value, off] if off else list(choices)
    return _words(setting, words, setting.value, "one of the words that --help lists", 35 if off else -9)


def _of_a_number(setting: Setting) -> Proposal | None:
    """A number whose name says nothing; of a launcher only what has a role is varied."""
    levels = None if setting.after or setting.variable else number_levels(setting)
    return _numbers(setting, levels.values, setting.number or 0, levels.why, levels.weight) if levels else None


BUILDERS: dict[Role, Callable[[Setting, Machine], Proposal | None]] = {
    "batch": _batch,
    "accum": _accum,
    "workers": _workers,
    "threads": _threads,
    "ranks": _ranks,
    "device": _device,
    "no_device": _no_device,
    "start": _start,
    "precision": _precision,
    "half": _switch,
    "switch": _switch,
    "amount": _amount,
    "seed": _seed,
}


# ------------------------------------------------------------------ what every program has
def _of_the_environment(machine: Machine, has_flag: bool) -> Iterator[Proposal]:
    most = max(2, machine.threads)
    too_many = MANY_TIMES * machine.cpus < most  # one thread is slow: as many as processors may do
    levels = sorted({1, most, *([machine.cpus] if too_many else [])})
    yield Proposal(
        axis="threads",
        entry={"values": [number(str(level)) for level in levels], "env": list(THREAD_VARIABLES)},
        bad=number(str(max(1, machine.threads))),
        why="threads of OpenMP, MKL and OpenBLAS: "
        + ("it was seen to fork while several threads were alive" if machine.forked_with_threads else "races, conflicts of runtimes, fork"),
        weight=-4 if has_flag else 98 if machine.forked_with_threads else 80,
    )


# ------------------------------------------------------------------ forms of axes
def _numbers(setting: Setting, values: list[int], bad: int, why: str, weight: int, *, ordered: bool = True) -> Proposal:
    entry: dict[str, object] = {"values": [number(str(value)) for value in values]} | ({} if ordered else {"ordered": False})
    return _values(setting, entry, number(str(bad)), why, weight)


def _words(setting: Setting, values: list[str], bad: str, why: str, weight: int) -> Proposal:
    as_numbers = [number(value) for value in values]
    mixed = len({type(value) for value in as_numbers}) > 1  # "16-mixed" beside 32: both are words
    shown = values if mixed else as_numbers
    return _values(setting, {"values": shown}, shown[values.index(bad)], why, weight)


def _values(setting: Setting, entry: dict[str, object], bad: str, why: str, weight: int) -> Proposal:
    name = _plain(setting.name)
    if setting.variable:
        entry = {**entry, "env": [setting.variable]}
    elif setting.flag != f"--{name}":
        entry = {**entry, "flag": setting.flag}
    if setting.after:
        entry = {**entry, "after": setting.after}
    where = f"{setting.given.flag} in the command" if setting.given and not setting.after else setting.where
    return Proposal(axis=name, entry=entry, bad=bad, why=f"{why}; {bad} is {where}", weight=weight, removes=_given_words(setting))


def _given_words(setting: Setting) -> tuple[Given, ...]:
    return (setting.given,) if setting.given else ()


def folder_axis(kept: Sequence[Place]) -> Proposal | None:
    """Where the job writes: as it does now, or in the attempt's folder; None: no place is kept."""
    if not kept:
        return None
    stays = [word for place in kept if place.setting.given for word in _place_words(place, escaped(place.setting.value or ""))]
    moves = [word for place in kept for word in _place_words(place, f"{{attempt_dir}}/{escape(place.name)}")]
    return Proposal(
        axis="folder",
        entry={"choices": {"as_it_is": {"args": stays} if stays else {}, "attempt_folder": {"args": moves}}},
        bad="as_it_is",
        why=f"where it writes ({', '.join(place.shown for place in kept)}): {kept[0].why_kept}",
        weight=120,
        removes=tuple(place.setting.given for place in kept if place.setting.given),
    )


def temp_axis(folder: str, why: str) -> Proposal:
    """Temporary files: where the shell puts them, or in the folder of its own that the tool gives every attempt."""
    return Proposal(
        axis="temp",
        entry={"choices": {"as_it_is": {"env": {TEMP: escaped(folder)}}, "of_the_attempt": {}}},
        bad="as_it_is",
        why=f"where temporary files go ({TEMP}={folder}): {why}",
        weight=119,
    )


def _place_words(place: Place, value: str) -> list[str]:
    return _flag_and(place.setting, value)


def _flag_and(setting: Setting, word: str) -> list[str]:
    return [setting.flag + word] if setting.flag.endswith("=") else [setting.flag, word]


def _plain(name: str) -> str:
    """No name that a reader of YAML takes for something else."""
    return name if name.lower() not in ("y", "n", "yes", "no", "on", "off", "true", "false", "null") else f"{name}_"
