"""What the recorder says to people while it follows a run and when the run is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from matrix.diagnosis.signals import by_scheduler
from matrix.evidence.deaths import initiating
from matrix.evidence.progress import ProgressParser
from matrix.records import Observation, Outcome, ProcessSeen, Scheduler, Verdict
from matrix.runner.patience import Patience
from matrix.runner.sampler import Sampler
from matrix.watch.bounds import Reading, clock, size, span
from matrix.watch.outlook import Outlook

MOST_PROCESSES, FRAMES = 8, 3
ENTRIES = 3
WORTH = 0.1  # probability of a cause that is told though nothing speaks for it


def state(
    now_s: float,
    parser: ProgressParser,
    sampler: Sampler,
    readings: Sequence[Reading],
    nearest: tuple[Reading, Outlook] | None,
    ends_unix_s: float | None,
) -> str:
    """`step 4,812 of 80,000; 5.3 GiB of 16.0 GiB; open files of the main process in 3 h`."""
    parts = [span(now_s), steps(parser)]
    memory = min((one for one in readings if one.name.startswith("memory")), key=lambda one: one.limit - one.used, default=None)
    held = sampler.last_total
    if held is not None:
        parts.append(size(held) + (f", {size(memory.limit - memory.used)} left of the {memory.name}" if memory else ""))
    if nearest:
        reading, outlook = nearest
        at = f" (step {outlook.step:,})" if outlook.step is not None else ""
        parts.append(
            f"{reading.name}: the limit in {span(outlook.in_s)}{at}" if outlook.in_s < 7 * 86_400 else f"{reading.name} grows slowly"
        )
    if ends_unix_s is not None:
        parts.append(f"time ends at {clock(ends_unix_s)}")
    return "; ".join(filter(None, parts))


def steps(parser: ProgressParser) -> str:
    ranks = parser.ranks
    if len(ranks) > 1 and len(set(ranks.values())) > 1:
        return "steps " + ", ".join(f"rank {rank}: {step:,}" for rank, step in ranks.items())
    if parser.last_step is None:
        return "no step seen yet"
    return f"step {parser.last_step:,}" + (f" of {parser.total_steps:,}" if parser.total_steps else "")


def too_late(ends_unix_s: float, room_s: float, there: int | None, total: int | None) -> str:
    """`there`: the step that it will have reached; None: nothing says how many there will be."""
    ends = f"the job's time ends at {clock(ends_unix_s)}, in {span(room_s)}"
    if there is None or total is None:
        return f"{ends}: save a checkpoint before"
    return f"{ends}; at this pace it will be at step {there:,} of {total:,} then: save a checkpoint before, or ask for more time"


def hang(kind: str, patience: Patience, now_s: float, processes: Sequence[ProcessSeen]) -> str:
    """What each process does now."""
    what = {"idle": "silent, without progress, and it does nothing", "stall": "working without any progress", "startup": "not heard of yet"}
    if kind == "starved":
        begin = f"it gets no processor: ready to run, it waited for one for {span(patience.starved_s)} of {span(now_s)}"
    else:
        begin = f"it hangs, or looks like it after {span(now_s)}: {what[kind]}"
    lines = [f"{begin}. Nothing is ended. Its processes:"]
    for process in processes[:MOST_PROCESSES]:
        rank = f" rank {process.rank}" if process.rank is not None else ""
        busy = f"{100 * process.cpu_delta_s / process.window_s:.0f} % of a processor" if process.window_s else ""
        waits = f", waits in {process.wchan}" if process.wchan else ""
        lines.append(f"  {process.role}{rank} {process.pid} ({process.name}): state {process.state}, {busy}{waits}")
        lines += [f"    {frame}" for frame in process.stack[:FRAMES]]
    if len(processes) > MOST_PROCESSES:
        lines.append(f"  and {len(processes) - MOST_PROCESSES} more; all of them are in watch.json")
    return "\n".join(lines)


def asked(scheduler: Scheduler | None, now_unix_s: float, step: int | None) -> str:
    """That it was asked to end and has not done so yet."""
    _, why = by_scheduler(scheduler, now_unix_s)
    return (
        "it was asked to end by SIGTERM and still runs" + (f" at step {step:,}" if step is not None else "") + (f": {why}" if why else "")
    )


# ------------------------------------------------------------------ at the end
def was_asked(observation: Observation, asked_s: float) -> str:
    """That somebody had asked it to end, and why, where that is known; "" where the verdict says so itself."""
    if observation.exit.signal == "SIGTERM":
        return ""
    _, why = by_scheduler(observation.scheduler, observation.started_unix_s + observation.wall_s)
    sent = next((one for one in observation.signals_sent if one.signal == "SIGTERM" and not one.by_tool and one.from_name), None)
    by = f" by {sent.from_name} ({sent.from_pid})" if sent else ""
    return f"it had been asked to end{by}, with SIGTERM, {span(observation.wall_s - asked_s)} before" + (f": {why}" if why else "")


def ended(observation: Observation, outcome: Outcome) -> str:
    """How it ended, in a line."""
    ending = observation.exit
    last = observation.progress.last_step
    at = f" after step {last:,}" if last is not None else ""
    wall = span(observation.wall_s)
    if ending.start_error:
        return f"it could not be started: {ending.start_error}"
    if outcome.kind == "censored" and ending.ended_by == "interrupt":
        return f"ended by you{at}, {wall}"
    if ending.returncode is None:
        return f"it ended{at}, {wall}; how is not known: {outcome.reason}"
    if outcome.kind == "survived":
        return f"it ended well{at}, {wall}"
    how = ending.signal or f"exit status {ending.returncode}"
    return f"it died{at}, {wall}: {outcome.signature if outcome.signature and outcome.signature != ending.signal else how}"


def died_first(observation: Observation) -> str:
    """Which process of the tree began it; "" when that was the main one, or is not known."""
    first = initiating(observation.deaths)
    if first is None or first.role == "main":
        return ""
    rank = next((one.rank for one in observation.memory.processes if one.pid == first.pid), None)
    how = first.signal or (f"exit status {first.status}" if first.status is not None else "how is not known")
    return f"what died first: {first.role if rank is None else f'rank {rank}'} ({first.pid}), {how}"


def summary(observation: Observation, outcome: Outcome, verdict: Verdict, where: Path, proposal: Path | None, asked: str) -> list[str]:
    """The verdict of everything that one run can prove, with grades."""
    lines = [ended(observation, outcome), *([first] if (first := died_first(observation)) else []), *([asked] if asked else [])]
    peak = observation.memory.peak_tree_rss_bytes
    if peak:
        limit = observation.memory.limit_bytes
        lines.append(f"memory: peak {size(peak)}" + (f" of a limit of {size(limit)}" if limit else ""))
    ranks = {one.rank: one.peak_rss_bytes for one in observation.memory.processes if one.rank is not None and one.role in ("rank", "main")}
    if len(ranks) > 1:
        lines.append("memory by rank: " + ", ".join(f"{rank}: {size(held)}" for rank, held in sorted(ranks.items())))
    if observation.progress.rank_steps:
        lines.append(
            "last step by rank: " + ", ".join(f"{rank}: {step:,}" for rank, step in sorted(observation.progress.rank_steps.items()))
        )
    if outcome.kind == "died":
        told = [one for at, one in enumerate(verdict.ranking[:ENTRIES]) if at == 0 or one.supports or one.probability >= WORTH]
        lines += [f"  {one.probability:6.1%}  {one.cause} ({one.grade}): {one.summary}" for one in told]
        lines.append("one run has no contrast, so nothing is confirmed by it")
    lines.append(f"report: {where / 'report.html'}  {where / 'report.md'}")
    if proposal:
        lines.append(f"what would settle it: python -m matrix run {proposal}")
    return lines


def stamp() -> str:
    return time.strftime("%H:%M:%S")


def limits(found: Sequence[str]) -> str:
    return "limits: " + "; ".join(found) if found else "no limit of memory or time is set around it but the machine's own"
