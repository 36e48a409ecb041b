"""What the way of ending says by itself: exceptions, exits, signals from outside, packages that do not fit, devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from matrix.diagnosis import exchanged, launchers, signals, slow
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message, remedy, reports
from matrix.diagnosis.judge import worker_that_began
from matrix.diagnosis.launchers import after_silence
from matrix.diagnosis.limits import SAID, TIME
from matrix.diagnosis.native import crash_signal, heap_is_damaged
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.signals import EXIT, EXTERNAL
from matrix.evidence.deaths import initiating
from matrix.records import Death, ExitCall, Finding, MessageKind, Observation, PythonError

LAST_LINES = 4  # of the output
SAID_CHARS = 100  # of the last line, which may be cut off in front
EXCEPTION, BINARY, DEVICE = "python_exception", exchanged.BINARY, "device_backend_fault"
NO_MEMORY = re.compile(
    r"\bout of memory(?=\s*(?:$|[^\w\s-])|\s+(?:trying|while|when|error)\b)"
    r"|\b(?:cannot|can't) allocate memory\b|\bunable to allocate \d"
)  # and not: "index out of memory bank"
MEMORY_TYPES = ("MemoryError", "OutOfMemoryError")
ABOUT_ANOTHER = (
    "ChildFailedError",
    "ProcessExitedException",
    "CalledProcessError",
    "BrokenProcessPool",
    "TerminatedWorkerError",
    "Empty",
    "EOFError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
    "BrokenPipeError",
    "TimeoutError",
)  # what a parent or a peer raises when another process has gone
CARRIED = ("ProcessRaisedException", "RemoteError")  # the exception of another process, raised once more with its traceback
CASCADE = 0.5  # nats at most for an exception after the death of another process
THREAD_START = re.compile(r"threading\.py:\d+ in (?:Thread\.)?_bootstrap_inner$")
RAISED = 1  # the status that the interpreter ends with after an uncaught exception
NOT_THE_CAUSE = ("worker died", "terminated", "broken pipe")  # exceptions that only report how something else ended
CPU = "cpu"  # the device that every framework calls so: an axis on which it survives is one of devices

MISFITS: dict[MessageKind, float] = {"numpy abi": 4.0, "missing symbol": 4.5, "missing library": 3.0}  # nats of the loader's complaints
ON_DEVICE: tuple[MessageKind, ...] = ("cuda assert", "cuda error")
ENDS_S = 1.0  # from the call to the interpreter's end; what came before did not end the main thread
OWN = 1.0  # nats of an exit that the program's own code called: by it alone nothing is confirmed
LOADER_GIVES_UP = 127  # glibc's ld.so, when a function that is called first now is nowhere

CAUSES = (
    Cause(
        name=EXTERNAL,
        title="A signal from outside",
        clause="another process, a terminal, a pipe or a scheduler sends a signal that ends the job; the job itself does nothing wrong",
        every_time=0.7,
        remedies=(
            remedy("axis", "the launch without the sender: no pipe to a reader that may end, no time limit of the launcher"),
            remedy("limit", "a longer reservation, or a queue that does not pre-empt"),
            remedy("code", "checkpoints, and a handler that saves when it is asked to end"),
        ),
        references=("man 7 signal",),
        cures_it={"own_session": 0.4, "ignore_sighup": 0.4},
    ),
    Cause(
        name=EXIT,
        title="A library ends the process",
        clause="a library or a handler ends the process itself (exit, _exit, abort), without a traceback and sometimes with status 0",
        every_time=0.95,
        remedies=(
            remedy("axis", "the setting under which that path is not taken"),
            remedy("code", "check the argument before the call; run the library in a process of its own"),
        ),
    ),
    Cause(
        name=EXCEPTION,
        title="An ordinary Python exception",
        clause="an exception in Python code ends the job; the traceback in its output says where",
        every_time=0.9,
        remedies=(remedy("code", "the last line of the traceback says what to repair"),),
    ),
    Cause(
        name=BINARY,
        title="Native packages that do not fit together",
        clause="a native package was built against a different version of another package or library than the one that is loaded",
        every_time=0.98,
        remedies=(
            remedy("package", "versions that were built for each other (pip check; one channel for all native packages)"),
            remedy("package", "a build of the extension from source on this machine", "time"),
        ),
        references=("NumPy 2 migration guide, C-API changes",),
        cures_it={"clean_preload": 0.2, "runtime_override": 0.02},
    ),
    Cause(
        name=DEVICE,
        title="A fault of the device or its backend",
        clause="the accelerator's driver, backend or memory fails; the same job does not fail on another device",
        every_time=0.7,
        remedies=(
            remedy("axis", "another device, or the setting under which it does not fail", "speed"),
            remedy("package", "another version of the driver or of the backend"),
        ),
        references=("PyTorch documentation, CUDA_LAUNCH_BLOCKING",),
        cures_it={"cuda_launch_blocking": 0.2, "no_cuda_caching": 0.3},
    ),
)


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        signature = case.outcomes[death.attempt].signature or ""
        yield from _packages(case, death)
        yield from _device(case, death)
        if signature.startswith("hang"):
            yield from _hang(case, death)
        elif signature == slow.SIGNATURE:
            yield finding(EXCEPTION, "traceback", death, -5.0, "it went on making steps; no exception ended it")
        elif first := worker_that_began(death):
            fact = f"{first.role} {first.pid} was ended by {first.signal} before; what its parent did only followed"
            yield finding(EXCEPTION, "traceback", death, -5.0, fact)
            yield from signals.findings(death, first.signal or "")
        elif death.exit.signal:
            yield finding(EXCEPTION, "traceback", death, -5.0, f"it was ended by {death.exit.signal}, not by an exception")
            yield from signals.findings(death, death.exit.signal)
        elif began := _began_elsewhere(death):
            yield from _cascade(death, began)
        else:
            yield from _exit(death)
            yield from _refused_before(case, death)
    if case.deaths:
        yield from _device_contrast(case)
        yield from exchanged.findings(case)


# ------------------------------------------------------------------ another process ended first
def _began_elsewhere(death: Observation) -> Death | None:
    """Another process than the main one whose end began it; one that the main process ended itself only followed, unless that waited
    for it in vain before."""
    first = initiating(death.deaths)
    if first is None or first.role == "main":
        return None
    parents = {one.pid for one in death.deaths if one.role == "main"} | {one.pid for one in death.processes if one.role == "main"}
    sent = [one for one in death.signals_sent if one.to_pid == first.pid and one.signal == first.signal and one.from_pid in parents]
    return None if sent and not after_silence(death, sent[0].time_s) else first


def _hang(case: Case, death: Observation) -> Iterator[Finding]:
    error = death.python_error
    if first := _began_elsewhere(death):
        yield from _cascade(death, first)
    elif error is None:
        yield finding(EXCEPTION, "traceback", death, -5.0, "it hung; it did not raise")
    elif _is_of_memory(error):
        yield from _allocation(death, error)
    else:
        weight = CASCADE if _reports_another(death, error) else 2.0
        yield finding(EXCEPTION, "traceback", death, weight, f"a traceback was printed before it hung: {_said(error)}", "stderr.log")
        if _ended_its_thread(error):
            lived = any(other.python_error and _ended_its_thread(other.python_error) for other in case.survivors)
            weight, but = (-1.0, "; but so it did in a run that survived") if lived else (2.5, ", and the others wait for it")
            yield finding(EXCEPTION, "thread", death, weight, f"nobody caught that exception: it ended its thread{but}", "stderr.log")


def _ended_its_thread(error: PythonError) -> bool:
    """Whether its traceback begins where the interpreter starts threads: `threading.excepthook` prints what nobody caught."""
    return bool(error.frames) and THREAD_START.match(error.frames[0]) is not None


def _cascade(death: Observation, first: Death) -> Iterator[Finding]:
    """The end of that process is judged; what the others raised about it is at most a hint."""
    error, who = death.python_error, f"{first.role} {first.pid}"
    how = first.signal or ("an unknown status" if first.status is None else f"status {first.status}")
    raised_there = first.status == RAISED and error is not None and not _calls_of(death, first.pid)
    if error is not None and _is_of_memory(error) and not first.signal:
        yield from _allocation(death, error)
    elif error is None:
        yield finding(EXCEPTION, "traceback", death, -5.0 if not raised_there else 0.0, "no traceback was printed")
    else:
        weight = CASCADE
        if raised_there and not _reports_another(death, error):
            weight = 3.5 if _kind(error) in CARRIED else 1.5
        fact = f"{who} ended by {how} before; a traceback was printed: {_said(error)}"
        yield finding(EXCEPTION, "traceback", death, weight, fact, "stderr.log")
    if first.signal:
        yield from signals.findings(death, first.signal)
    elif raised_there:
        yield finding(EXCEPTION, "process", death, 2.0, f"{who} ended by {how}, as an uncaught exception ends a process")
    elif first.status is not None:
        yield finding(EXIT, "silent exit", death, 2.5, f"{who} ended by {how}, without a signal and without a traceback of its own")
        for call in _calls_of(death, first.pid)[-1:]:
            yield _who(death, call)


def _who(death: Observation, call: ExitCall) -> Finding:
    """A library that exits leaves its user no choice; the program's own code may have decided so, and nothing shows that it did not."""
    fact = f"{call.call}({call.status}) was called at {call.where}"
    if call.installed:
        return finding(EXIT, "who", death, 2.0, f"{fact}, in an installed package", "hook.jsonl")
    return finding(EXIT, "who", death, OWN, f"{fact}, by the program's own code", "hook.jsonl")


def _calls_of(death: Observation, pid: int) -> list[ExitCall]:
    return [call for call in death.exit_calls if call.pid == pid and call.call != "interpreter end"]


def _reports_another(death: Observation, error: PythonError) -> bool:
    if _kind(error) in ABOUT_ANOTHER:
        return True
    return _only_reports(death, error)


def _only_reports(death: Observation, error: PythonError) -> bool:
    """Whether its words are those in which somebody says how something else ended."""
    return any(line.kind in NOT_THE_CAUSE and line.text[:60] in _said(error) for line in death.messages)


def _kind(error: PythonError) -> str:
    return error.type.rpartition(".")[2]


def _said(error: PythonError) -> str:
    began = f" (raised from {error.raised_from[0][:200]})" if error.raised_from else ""
    return f"{error.type}: {error.message[:200]}{began}"


# ------------------------------------------------------------------ exits and exceptions
def _exit(death: Observation) -> Iterator[Finding]:
    error, status = death.python_error, death.exit.returncode
    native, left = death.exit.left_by == "native code", _left_by_exit(death)
    if error and not native and (left is None or _is_of_memory(error)):
        yield from _exception(death, error)
        return
    if error and native and status == RAISED and _is_last_said(death, error):
        yield from _unheard(death, error)
        return
    after = f"after its traceback {left} ended it" if left else "native code ended it"
    yield finding(EXCEPTION, "traceback", death, -5.0, "no traceback was printed" if not error else after, "stderr.log")
    yield from launchers.findings(death)
    fact = f"it ended with exit status {status} by itself, {'and not by the exception that it printed' if error else 'without a traceback'}"
    began = launchers.handed_on(death)
    handed = f", as {began.role} {began.pid} had done before with status {began.status}" if began else ""
    yield finding(EXIT, "silent exit", death, 2.5, f"{fact}{handed}")
    calls = [call for call in death.exit_calls if began is None or call.pid == began.pid]
    if native and began is None:
        yield finding(EXIT, "who", death, 2.5, "native code ended the process: the interpreter did not get to its own end", "hook.jsonl")
    elif call := _exit_within(calls):
        yield _who(death, call)
    elif left and began is None:
        yield finding(EXIT, "who", death, OWN, f"{left} ended the process", "hook.jsonl")
    elif status == 0 and death.exit.left_by == "interpreter":
        yield finding(EXIT, "who", death, 0.5, "the interpreter reached its own end, with status 0", "hook.jsonl")


def _refused_before(case: Case, death: Observation) -> Iterator[Finding]:
    """Judge an exit right after words of the system: who ends a process for such a reason only reports it."""
    last = " ".join(death.output_tail[-LAST_LINES:])
    for line in death.messages:
        if line.kind in SAID and SAID[line.kind][0] != TIME and line.text[:60] in last and not case.said_alike(line.kind):
            fact = f"its last words give a reason that the system gave: {line.text.strip()[:160]}"
            yield finding(EXIT, "reported", death, -3.0, fact, f"{line.stream}.log")
            return


def _is_last_said(death: Observation, error: PythonError) -> bool:
    """Whether its last line of output is the end of that traceback."""
    told = f"{error.type}: {error.message}" if error.message else error.type
    return bool(death.output_tail) and told.rstrip().endswith(death.output_tail[-1].strip()[-SAID_CHARS:])


def _unheard(death: Observation, error: PythonError) -> Iterator[Finding]:
    """All as after an uncaught exception, but the hook noted no end of the interpreter: native code ended it just then, or nothing could
    be noted any more (another user by then, another root, no descriptor or no room left).  Neither is shown."""
    if _is_of_memory(error):
        yield from _allocation(death, error)
        return
    fact = f"its last words are a traceback, and its status that of one, but no end of the interpreter was noted: {_said(error)}"
    yield finding(EXCEPTION, "traceback", death, 1.0 if _only_reports(death, error) else 3.0, fact, "stderr.log")
    yield finding(EXIT, "silent exit", death, 1.0, fact, "hook.jsonl")


def _exit_within(calls: list[ExitCall]) -> ExitCall | None:
    """The call that ended it, of os._exit or from within a function; one at the outermost level is how a script usually ends."""
    if not calls or calls[-1].call != "interpreter end":
        return calls[-1] if calls else None
    end = calls[-1]
    last = next((call for call in reversed(calls[:-1]) if call.pid == end.pid), None)
    within = last is not None and not last.where.endswith(" in <module>") and end.time_s - last.time_s <= ENDS_S
    return last if within else None


def _left_by_exit(death: Observation) -> str | None:
    """The call of os._exit that ended the main process: no exception does that."""
    main = next((one.pid for one in death.deaths if one.role == "main"), None)
    calls = [call for call in death.exit_calls if call.call == "os._exit" and main in (None, call.pid)]
    call = next((call for call in reversed(calls) if call.status == str(death.exit.returncode)), None)
    if death.exit.left_by == "os._exit" or (death.exit.left_by is None and call):
        return f"os._exit({call.status}) at {call.where}" if call else "os._exit"
    return None


def _exception(death: Observation, error: PythonError) -> Iterator[Finding]:
    if _is_of_memory(error):
        yield from _allocation(death, error)
        return
    fact = f"it printed a traceback and ended: {_said(error)}"
    weight = 1.0 if _only_reports(death, error) else 4.5 if death.exit.returncode else 2.0
    yield finding(EXCEPTION, "traceback", death, weight, fact, "stderr.log")
    yield finding(EXIT, "silent exit", death, -3.0, fact, "stderr.log")


def _is_of_memory(error: PythonError) -> bool:
    return _kind(error).endswith(MEMORY_TYPES) or NO_MEMORY.search(error.message.lower()) is not None


def _allocation(death: Observation, error: PythonError) -> Iterator[Finding]:
    device = message(death, "cuda out of memory") is not None
    yield finding("memory_working_set", "allocation", death, 4.5 if device else 3.5, f"an allocation failed: {_said(error)}", "stderr.log")
    if not device:  # a limit on the address space fails in the same words
        yield finding("resource_limit", "allocation", death, 2.5, f"an allocation failed: {_said(error)}", "stderr.log")


# ------------------------------------------------------------------ packages and devices
def _packages(case: Case, death: Observation) -> Iterator[Finding]:
    """The loader's and NumPy's own complaints."""
    for kind, weight in MISFITS.items():
        if said := message(death, kind):
            fact = f"native parts do not fit together: {said.text.strip()[:200]}"
            if case.said_alike(kind):
                yield finding(BINARY, "message", death, -1.0, f"{fact}; but a run that survived printed such a line too")
                return
            most = 4.5 if reports(death, said) or "symbol lookup error" in said.text else 2.0
            if crash_signal(death) and most < 3.0:  # NumPy's notice comes while the module is loaded; then the crash is the next thing
                most = 4.0 if any(said.text[:60] in line for line in death.output_tail) else 3.0
            yield finding(BINARY, "message", death, min(weight, most), fact, f"{said.stream}.log")
            for cause in (EXCEPTION, *NATIVE_CRASH) if most > 2.0 else ():
                yield finding(cause, "packages", death, -2.5, fact, f"{said.stream}.log")
            if "symbol lookup error" in said.text and death.exit.returncode == LOADER_GIVES_UP:
                fact = f"the dynamic loader ended the process (status {LOADER_GIVES_UP}), and no library of its own accord"
                yield finding(EXIT, "loader", death, -4.0, fact, f"{said.stream}.log")
            return


def _device(case: Case, death: Observation) -> Iterator[Finding]:
    for kind in ON_DEVICE:
        if said := message(death, kind):
            fact = f"the device's own runtime reports an error: {said.text.strip()[:200]}"
            if case.said_alike(kind):
                yield finding(DEVICE, "message", death, -1.0, f"{fact}; but so it did in a run that survived")
                return
            ended = reports(death, said) or (message(death, "c++ exception") is not None and crash_signal(death) == "SIGABRT")
            yield finding(DEVICE, "message", death, 4.0 if ended else 2.0, fact, f"{said.stream}.log")
            if ended:
                yield finding(EXCEPTION, "reported", death, -3.0, fact, f"{said.stream}.log")
            return


def _device_contrast(case: Case) -> Iterator[Finding]:
    """With nothing else changed it dies with an accelerator and not without: the device, or code that only runs there, is part of it."""
    for axis, values in case.result.culprit.items():
        dying = [str(value) for value in values]
        fine = {str(survivor.trial.cell[axis]) for changed, survivor in case.beside if changed == axis} - set(dying)
        if CPU in fine and CPU not in dying and all(_is_device(value) for value in [*dying, *fine]):
            death = case.deaths[0]
            crashed = crash_signal(death) is not None
            told = any(message(death, kind) for kind in ON_DEVICE)
            fact = f"it died with {axis}={' and '.join(dying)} and survived with {' or '.join(sorted(fine))}, with nothing else changed"
            yield finding(DEVICE, "contrast", death, 2.0 + (1.5 if told or crashed else 0.0), fact)
            for cause in NATIVE_CRASH if not heap_is_damaged(death) else ():
                yield finding(cause, "device", death, -2.0, fact)


def _is_device(value: str) -> bool:
    """A word, or a word with a number: `cuda:0`."""
    name, _, index = value.partition(":")
    return name.isidentifier() and (not index or index.isdigit())
