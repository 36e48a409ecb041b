"""How it died: what the operating system and the program's own output say about one typical death of each kind."""

from __future__ import annotations

from matrix.records import Fault, Observation, ProcessSeen
from reports.ending import ending, how_it_ended
from reports.folder import RunFolder
from reports.model import Block, Bullets, Code, Heading, Line, Para, Section, Span, code, line, strong
from reports.text import duration, one_line, plural, size

FILES = ["stdout.log", "stderr.log", "stacks.txt", "hook.jsonl", "maps.txt", "memory.csv", "observation.json"]
OUTPUT_LINES, STACK_LINES, STACKS, KERNEL_LINES, LAST_LINE = 12, 8, 3, 4, 160


def deaths(folder: RunFolder) -> Section | None:
    """One death of each signature; None when nothing died."""
    typical = typical_deaths(folder)
    blocks: list[Block] = []
    for signature, seen, count in typical:
        blocks += [Heading(f"{signature} ({plural(count, 'run')})")] if len(typical) > 1 else []
        blocks += _death(folder, seen)
    return Section("death", "How it died", blocks) if blocks else None


def typical_deaths(folder: RunFolder) -> list[tuple[str, Observation, int]]:
    """(signature, a death of it, how many there are); the main failure first, each shown without probes where possible.  What died
    without instruments has no signature of its own: nobody saw who began it."""
    groups: dict[str, list[Observation]] = {}
    names = {found.id: found for found in (folder.verdict.failures if folder.verdict else [])}
    for _, seen in folder.observed:
        end = ending(seen, folder.verdict)
        if end.kind == "died" and seen.trial.watched:
            groups.setdefault(names[end.failure].signature if end.failure in names else end.how, []).append(seen)
    main = {found.signature for found in names.values() if found.main}
    chosen = [(name, min(runs, key=_oddness), len(runs)) for name, runs in groups.items()]
    return sorted(chosen, key=lambda entry: (entry[0] not in main, -entry[2]))


def _oddness(seen: Observation) -> tuple[bool, bool]:
    return bool(seen.trial.probes), not seen.output_tail


def _death(folder: RunFolder, seen: Observation) -> list[Block]:
    blocks: list[Block] = [Bullets(_facts(folder, seen))]
    if seen.output_tail:
        blocks += [
            Para(line(strong("Last lines of the output"))),
            Code("\n".join(seen.output_tail[-OUTPUT_LINES:]), "last lines of the output"),
        ]
    if seen.kernel_lines:
        blocks += [Para(line(strong("Kernel log"))), Code("\n".join(seen.kernel_lines[:KERNEL_LINES]), "kernel log lines")]
    for title, stack in _stacks(seen):
        blocks += [Para(line(strong(f"{title}, innermost first"))), Code("\n".join(stack[:STACK_LINES]), title)]
    return blocks


def _stacks(seen: Observation) -> list[tuple[str, list[str]]]:
    """Of a crash the one that was printed; of a hang those of the processes, the children first: they hold what the main one waits for."""
    if seen.crash_stack:
        return [("Stack", seen.crash_stack)]
    living = sorted((process for process in seen.processes if process.stack), key=lambda process: process.role == "main")
    return [(f"Stack of process {process.pid} ({process.role})", process.stack) for process in living[:STACKS]]


def _facts(folder: RunFolder, seen: Observation) -> list[Line]:
    lines = [_exit(seen), _progress(seen), _memory(seen), *_signals(seen)]
    lines += [_process(process) for process in seen.processes if seen.exit.ended_by in {"startup", "idle", "stall", "wall", "nobody"}][:6]
    if seen.python_error:
        lines.append(line("Exception: ", code(f"{seen.python_error.type}: {seen.python_error.message}")))
    lines += [_fault(fault) for fault in seen.faults[:2]]
    lines += [
        line("Under valgrind: ", code(one_line(f"{error.what} {error.about}", 200)), f" in {one_line((error.frames or ['?'])[0], 120)}")
        for error in seen.heap_errors[:4]
    ]
    lines += [
        line("Left a registration of the OpenMP runtime ", code(found.library), f" (pid {found.pid})")
        for found in seen.omp_registrations[:4]
    ]
    links = [(name, folder.attempt_href(seen.attempt, name)) for name in FILES]
    files = [part for name, href in links if href for part in (Span(" "), Span(name, href))]
    return [*lines, line(f"Files of attempt {seen.attempt}:", *files)]


def _fault(fault: Fault) -> Line:
    where = (
        f" in {fault.library}" + (f" at offset {fault.library_offset:#x}" if fault.library_offset is not None else "")
        if fault.library
        else ""
    )
    address = f", address {fault.address:#x}" if fault.address is not None else ""
    access = f", {fault.access}" if fault.access else ""
    return line(
        f"Fault, by the {fault.source}: ",
        strong(fault.trap),
        f"{where}{address}{access}",
        f" ({fault.mapping} there)" if fault.mapping else "",
    )


def _exit(seen: Observation) -> Line:
    exit_ = seen.exit
    status = _status(exit_.returncode)
    core = ", a core was written" if exit_.core_dumped else ""
    ended = {"itself": "ended by itself", "nobody": "not ended"}.get(exit_.ended_by, "ended by this tool")
    return line("Exit: ", strong(how_it_ended(seen)), f"{status}, {ended}{core}, after {duration(seen.wall_s)}")


def _signals(seen: Observation) -> list[Line]:
    """Signals from others, and whether the program handled them: whoever handles SIGTERM ends with a status of its own."""
    lines = []
    for sent in [each for each in seen.signals_sent if not each.by_tool][:3]:
        caught = any(sent.signal in process.caught for process in seen.settings if process.pid == sent.to_pid)
        handled = "; the program handled it" if caught and seen.exit.signal != sent.signal else ""
        who = f"{one_line(sent.from_name, 60) or 'a process'} (pid {sent.from_pid})" if sent.from_pid else "the kernel"
        lines.append(line("Signal: ", strong(sent.signal), f" to process {sent.to_pid} from {who} after {duration(sent.time_s)}{handled}"))
    return lines


def _status(returncode: int | None) -> str:
    if returncode is None:
        return ""
    shell = f", {128 - returncode} in a shell" if returncode < 0 else ""
    return f" (return code {returncode}{shell})"


def _progress(seen: Observation) -> Line:
    progress = seen.progress
    total = f" of {progress.total_steps:,}" if progress.total_steps else ""
    last = f"last step {progress.last_step:,}{total}" if progress.last_step is not None else "no step was seen"
    return line(f"Progress: {last}", *(("; last line ", code(one_line(progress.last_line, LAST_LINE))) if progress.last_line else ()))


def _memory(seen: Observation) -> Line:
    memory = seen.memory
    limit = f", limit {size(memory.limit_bytes)}" if memory.limit_bytes else ", no limit set"
    kills = "no counter of kernel kills" if memory.oom_kills is None else f"{plural(memory.oom_kills, 'kernel OOM kill')} in its group"
    free = f", {size(memory.system_available_bytes)} available on the machine" if memory.system_available_bytes else ""
    last = size(memory.last_tree_rss_bytes) if memory.last_tree_rss_bytes else "not measured"
    return line(f"Memory at the last sample: {last} (sum of RSS){limit}; {kills}{free}")


def _process(process: ProcessSeen) -> Line:
    sleeping = f" in {process.wchan}" if process.wchan else ""
    busy = (
        f"{process.cpu_delta_s:.1f} s of processor in the last {process.window_s:.0f} s"
        if process.window_s
        else f"{process.cpu_s:.0f} s of processor"
    )
    return line(
        f"Process {process.pid} ({process.role}, {process.name}): state {process.state}{sleeping}, ",
        f"{plural(process.threads, 'thread')}, {busy}",
    )
