"""A draft as the text of a specification: what is proposed, the reason behind each line, and what else could be varied."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from matrix.propose.draft import Draft
from matrix.propose.facts import Facts
from matrix.propose.flow import comment, flow, scalar
from matrix.propose.limits import ends, in_words
from matrix.propose.masks import masked
from matrix.propose.proposals import Proposal, excluded
from matrix.propose.roles import plain_name, role_of

WIDTH = 120
RICH_BAR = r"Epoch (?P<epoch>\d+)/\S+ +[━╸╺ ]*(?P<step>\d+)/(?P<total>\d+|--) "  # as Lightning draws it


def text(draft: Draft, file: str) -> str:
    """The whole file; `file` is its name, for the commands that it tells."""
    parts = [_head(draft, file), _run(draft), _matrix(draft), _cells(draft), ends(draft)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(draft: Draft, file: str) -> list[str]:
    named = scalar(file) if " " in file else file
    return [
        f"# Why does this die?  {comment(shlex.join(masked(draft.command.words)[0]), most=100)}",
        "# Written by `python -m matrix init`; it runs as it is.  Change what you know better, uncomment what you suspect.",
        "#",
        f"#   python -m matrix plan {comment(named)}     # cells, runs, cost; runs nothing",
        f"#   python -m matrix run {comment(named)}",
        f"name: {scalar(draft.name)}",
    ]


# ------------------------------------------------------------------ run
def _run(draft: Draft) -> list[str]:
    lines = ["run:", *(f"  # {comment(remark, most=400)}" for remark in draft.rewritten.remarks), *_command(draft.rewritten.words)]
    if variables := list(_variables(draft)):
        lines += ["  env:", *(f"    {scalar(name)}: {scalar(value)}  # {why}" for name, value, why in variables)]
    lines += [f"  # {name}: set it in the shell that starts the run; a secret is not written here" for name in draft.withheld]
    if draft.cwd:
        lines.append(f"  cwd: {scalar(draft.cwd)}")
    lines += _length(draft)
    lines += _progress(draft)
    lines.append("  # finished: 'training finished'   # a line that only a complete run prints: exit status 0 without it is a failure too")
    if not draft.has_own_folder and not draft.writes_in_place:
        lines.append("  # writes: [checkpoints]           # paths that it writes: each attempt gets a fresh copy")
    return lines


def _variables(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """(name, value, reason)"""
    yield from ((name, value, "as it was set where init ran") for name, value in draft.env.items())
    if draft.wandb and "WANDB_MODE" not in draft.env:
        yield "WANDB_MODE", "offline", "its sources use Weights & Biases: dozens of runs need not go there"
    if draft.rich_bar:
        yield "TERM", "xterm", "the bar below is drawn on a terminal only"


def _command(words: Sequence[str]) -> list[str]:
    """One line when it fits; else one for each flag with its values."""
    whole = f"  command: {flow(list(words))}"
    if len(whole) <= WIDTH:
        return [whole]
    lines: list[str] = []
    for word in words:
        shown = scalar(word)
        if not lines or (word.startswith("-") and len(word) > 2) or len(lines[-1]) + len(shown) > WIDTH - 8:
            lines.append(f"{shown},")
        else:
            lines[-1] += f" {shown},"
    return ["  command: [", *(f"    {line}" for line in lines), "  ]"]


def _length(draft: Draft) -> list[str]:
    if draft.rewritten.length:
        return [f"  length: {{flag: {scalar(draft.rewritten.length)}}}  # how a shorter or longer run is asked for"]
    return [
        "  # length: {flag: --max-steps}     # no flag for the number of steps was found: a run is ended after the step that is asked for"
    ]


def _progress(draft: Draft) -> list[str]:
    facts = draft.facts
    if facts and facts.progress:
        shown = [f"  #   {comment(line)}" for line in facts.progress_lines[:3]]
        return [f"  progress: {scalar(facts.progress)}  # from the log:", *shown]
    if facts and facts.steps_seen:
        return [f"  # its steps are understood: {comment(facts.steps_seen)}"]
    if draft.rich_bar:
        return [
            "  pty: true  # Lightning draws its bar with rich, which shows nothing without a terminal",
            f"  progress: {scalar(RICH_BAR)}",
        ]
    return ["  # progress: 'round (?P<step>\\d+)' # only where it counts in words of its own: bars, step N, batch N, iter N are understood"]


# ------------------------------------------------------------------ matrix
def _matrix(draft: Draft) -> list[str]:
    lines = ["matrix:"]
    for proposal in draft.varied:
        lines += [f"  # {comment(proposal.why, most=400)}", f"  {_axis(proposal)}"]
    if draft.others or draft.unvalued or draft.fixed:
        lines += ["  # not varied:", *(line for proposal in draft.others for line in _other(proposal))]
        lines += [f"  # {comment(', '.join(flags))}: {why}" for why, flags in draft.fixed.items()]
        lines += [f"  # {comment(name)}: its value is not known; add it to the command to vary it" for name in draft.unvalued]
    return lines + [f"  # {comment(line, most=240)}" for line in _not_reachable(draft)]


def _axis(proposal: Proposal) -> str:
    entry = proposal.entry
    return f"{scalar(proposal.axis)}: {flow(entry['values'] if set(entry) == {'values'} else entry)}"


def _other(proposal: Proposal) -> Iterator[str]:
    """With the words that have to leave the command when it is uncommented, as the axis adds them."""
    flags = ", ".join(given.flag.rstrip("=") for given in proposal.removes)
    taken = f"; take {flags} out of the command then" if flags else ""
    yield f"  # {comment(_axis(proposal), most=200)}  # {comment(proposal.why)}{taken}"


def _not_reachable(draft: Draft) -> Iterator[str]:
    """What could matter and has no flag, and the least that has to be done about it."""
    if draft.command.closed:
        yield "what is added at the end of this command would not reach the program as flags, so only the environment is varied"
    elif draft.command.kind == "shell":
        yield f'flags reach the program only if {draft.command.target} passes them on ("$@")'
    elif draft.command.kind in ("script", "module") and not (
        draft.options or draft.command.arguments or draft.config or _reads_variables(draft)
    ):
        yield f"{draft.command.target} takes no flags that were recognised: let it read its batch size and workers from flags or"
        yield "environment variables (os.environ), and init finds them"
        if draft.constants:
            yield f"set in the source: {', '.join(draft.constants[:6])}"
    config, set_by_axes = draft.config, {plain_name(proposal.axis) for proposal in (*draft.varied, *draft.others)}
    inside = [key for key in (config.values if config else {}) if role_of(key) in ("batch", "workers", "accum", "device", "precision")]
    missing = [key for key in inside if plain_name(key) not in set_by_axes]
    if config and missing:
        named = ", ".join(f"{key}: {config.values[key]}" for key in missing[:6])
        yield f"{config.named.name} also sets {named}, for which no flag was found."
        if config.flag is None:
            yield f"Only the program's sources name {config.named.name}, and the matrix changes flags and environment variables, not files."
            yield "Let the program take the file's path from a flag (--config), or these values from flags, and init finds them."
            return
        yield "The matrix changes flags and environment variables, not files.  To vary these, copy the file, change one value, and write:"
        flag = [config.flag] if config.flag else []
        one, other = ([*flag, str(path)] for path in (config.named, config.named.with_name(f"other_{config.named.name}")))
        taken = "; take it out of the command then" if any(str(config.named) in word for word in draft.command.arguments) else ""
        yield f"config: {{choices: {{as_it_is: {{args: {flow(one)}}}, other: {{args: {flow(other)}}}}}}}{taken}"


def _reads_variables(draft: Draft) -> bool:
    return bool(draft.unvalued) or any(proposal.role in ("batch", "workers", "accum") for proposal in (*draft.varied, *draft.others))


def _cells(draft: Draft) -> list[str]:
    bad = {proposal.axis: proposal.bad for proposal in draft.varied}
    lines = [f"exclude: {flow(rules)}  # torch refuses that"] if (rules := excluded(draft.varied)) else []
    lines.append(f"known_bad: {flow(bad)}  # the command as it was given")
    facts = draft.facts
    if facts and facts.died is not None:
        entry: dict[str, object] = {"cell": {}, "died": facts.died}
        entry |= {"step": facts.last_step} if facts.last_step is not None else {}
        entry |= {"log": facts.source} if facts.source else {}
        lines.append(f"observed: [{flow(entry)}]" + (f"  # {comment(said)}" if (said := how_it_ended(facts)) else ""))
    return lines


def how_it_ended(facts: Facts) -> str:
    """ "SIGABRT: OMP: Error #15 …"; "" when nothing was said."""
    if facts.ended_well:
        return "it ended well, so no death is taken from this log"
    if facts.died is None:
        return "it does not show a death; where it died, write observed: [{cell: {}, died: true}]"
    named = facts.signal or facts.error or ("without a word" if facts.died and not facts.words else "")
    words = (facts.words[0] if facts.words else "").removeprefix(f"{named}: ")
    return ": ".join(part for part in (named, words) if part)


def what_it_showed(facts: Facts) -> str:
    """One line: `step 117 of 1000, 3.2 steps/s, epoch 0, batch size 32, cuda; SIGABRT: OMP: Error #15`."""
    parts = [
        f"step {facts.last_step}" + (f" of {facts.total_steps}" if facts.total_steps else "")
        if facts.last_step is not None
        else "no steps",
        f"{facts.steps_per_s:.3g} steps/s" if facts.steps_per_s else "",
        in_words(facts.seconds) if facts.seconds else "",
        f"epoch {facts.epoch}" if facts.epoch is not None else "",
        f"batch size {facts.batch_size}" if facts.batch_size else "",
        facts.device or "",
    ]
    return "; ".join(part for part in (", ".join(part for part in parts if part), how_it_ended(facts)) if part)
