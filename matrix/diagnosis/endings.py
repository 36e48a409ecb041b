"""What the way of ending says by itself: exceptions, exits, signals from outside, packages that do not fit, devices."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis import sigkill
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, remedy
from matrix.diagnosis.judge import worker_that_began
from matrix.diagnosis.limits import TIMERS
from matrix.diagnosis.native import FAULTS
from matrix.records import Finding, Message, Observation, SignalSent

EXTERNAL, EXIT, EXCEPTION, BINARY, DEVICE = (
    "external_signal",
    "library_exit",
    "python_exception",
    "binary_incompatibility",
    "device_backend_fault",
)
NO_MEMORY = ("memoryerror", "outofmemoryerror", "out of memory", "cannot allocate memory", "can't allocate memory")
NOT_THE_CAUSE = ("worker died", "terminated", "broken pipe")  # exceptions that only report how something else ended
CPU = "cpu"  # the device that every framework calls so: an axis on which it survives is one of devices

CAUSES = (
    Cause(
        name=EXTERNAL,
        title="A signal from outside",
        clause="another process, a terminal, a pipe or a scheduler sends a signal that ends the job; the job itself does nothing wrong",
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
        remedies=(
            remedy("axis", "the setting under which that path is not taken"),
            remedy("code", "check the argument before the call; run the library in a process of its own"),
        ),
    ),
    Cause(
        name=EXCEPTION,
        title="An ordinary Python exception",
        clause="an exception in Python code ends the job; the traceback in its output says where",
        remedies=(remedy("code", "the last line of the traceback says what to repair"),),
    ),
    Cause(
        name=BINARY,
        title="Native packages that do not fit together",
        clause="a native package was built against a different version of another package or library than the one that is loaded",
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
        yield from _packages(death)
        yield from _device(death)
        if signature.startswith("hang"):
            yield finding(EXCEPTION, "traceback", death, -5.0, "it hung; it did not raise")
        elif first := worker_that_began(death):
            fact = f"{first.role} {first.pid} was ended by {first.signal} before; what its parent did only followed"
            yield finding(EXCEPTION, "traceback", death, -5.0, fact)
            yield from _signal(death, first.signal or "")
        elif death.exit.signal:
            yield finding(EXCEPTION, "traceback", death, -5.0, f"it was ended by {death.exit.signal}, not by an exception")
            yield from _signal(death, death.exit.signal)
        else:
            yield from _exit(death)
    if case.deaths:
        yield from _device_contrast(case)


# ------------------------------------------------------------------ exits and exceptions
def _exit(death: Observation) -> Iterator[Finding]:
    error = death.python_error
    native = death.exit.left_by == "native code"
    if error and not native:
        yield from _exception(death, f"{error.type}: {error.message[:200]}")
        return
    yield finding(EXCEPTION, "traceback", death, -5.0, "no traceback was printed" if not error else "native code ended it", "stderr.log")
    fact = f"it ended with exit status {death.exit.returncode} by itself, without a traceback"
    yield finding(EXIT, "silent exit", death, 2.5, fact)
    if native:
        yield finding(EXIT, "who", death, 2.5, "native code ended the process: the interpreter did not get to its own end", "hook.jsonl")
    for call in death.exit_calls[-1:]:
        if call.call != "interpreter end":
            yield finding(EXIT, "who", death, 2.0, f"{call.call}({call.status}) was called at {call.where}", "hook.jsonl")
    if death.exit.returncode == 0 and death.exit.left_by == "interpreter":
        yield finding(EXIT, "who", death, 0.5, "the interpreter reached its own end, with status 0", "hook.jsonl")


def _exception(death: Observation, said: str) -> Iterator[Finding]:
    fact = f"it printed a traceback and ended: {said}"
    if any(word in said.lower() for word in NO_MEMORY):
        device = any(message.kind == "cuda out of memory" for message in death.messages)
        yield finding("memory_working_set", "allocation", death, 4.5 if device else 3.5, f"an allocation failed: {said}", "stderr.log")
        if not device:  # a limit on the address space fails in the same words
            yield finding("resource_limit", "allocation", death, 2.5, f"an allocation failed: {said}", "stderr.log")
        return
    follows = next((message for message in death.messages if message.kind in NOT_THE_CAUSE and message.text[:60] in said), None)
    weight = 1.0 if follows else 4.5 if death.exit.returncode else 2.0
    yield finding(EXCEPTION, "traceback", death, weight, fact, "stderr.log")
    yield finding(EXIT, "silent exit", death, -3.0, fact, "stderr.log")


# ------------------------------------------------------------------ signals
def _signal(death: Observation, name: str) -> Iterator[Finding]:
    if name == "SIGKILL":
        yield from _kill(death)
    elif name in FAULTS:
        sent = _sent(death, name)
        if sent and not sent.inside:
            yield finding(EXTERNAL, "signal", death, 3.5, f"{name} was sent by {_sender(sent)}")
        else:
            yield finding(EXTERNAL, "signal", death, -4.0, f"{name} is raised by the program's own instructions")
    elif name not in TIMERS and name != "SIGXFSZ":
        yield finding(EXTERNAL, "signal", death, 4.0, f"{name} is sent from outside the program's own instructions")
        if sent := _sent(death, name):
            yield finding(EXTERNAL, "sender", death, 1.0, f"{name} was sent by {_sender(sent)}")


def _sent(death: Observation, name: str) -> SignalSent | None:
    return next((sent for sent in death.signals_sent if sent.signal == name and not sent.by_tool), None)


def _sender(sent: SignalSent) -> str:
    where = "of its own tree" if sent.inside else "from outside its tree"
    return f"pid {sent.from_pid} ({sent.from_name or 'unknown'}), {where}" if sent.from_pid else "the kernel"


KILLED: dict[sigkill.Grade, float] = {
    "kernel, proven": -6.0,
    "kernel, by its counter": -4.0,
    "memory at its limit": -1.0,
    "our own limit": -4.0,
    "another process": 4.0,
    "unknown": 1.0,
}  # nats for a signal from outside


def _kill(death: Observation) -> Iterator[Finding]:
    if found := sigkill.attribute(death):
        yield finding(EXTERNAL, "signal", death, KILLED[found.grade], f"SIGKILL ({found.grade}): {found.text}")
        if found.grade == "another process" and (sent := _sent(death, "SIGKILL")):
            yield finding(EXTERNAL, "sender", death, 1.0, f"SIGKILL was sent by {_sender(sent)}")


# ------------------------------------------------------------------ packages and devices
def _packages(death: Observation) -> Iterator[Finding]:
    """The loader's and NumPy's own complaints."""
    for kind, weight in (("numpy abi", 4.0), ("missing symbol", 4.5), ("missing library", 3.0)):
        if said := _message(death, kind):
            fact = f"native parts do not fit together: {said.text.strip()[:200]}"
            yield finding(BINARY, "message", death, weight, fact, f"{said.stream}.log")
            for cause in (EXCEPTION, "native_bad_argument", "native_memory_corruption"):
                yield finding(cause, "packages", death, -2.5, fact, f"{said.stream}.log")
            return


def _device(death: Observation) -> Iterator[Finding]:
    for kind in ("cuda assert", "cuda error"):
        if said := _message(death, kind):
            fact = f"the device's own runtime reports an error: {said.text.strip()[:200]}"
            yield finding(DEVICE, "message", death, 4.0, fact, f"{said.stream}.log")
            yield finding(EXCEPTION, "reported", death, -3.0, fact, f"{said.stream}.log")
            return


def _message(death: Observation, kind: str) -> Message | None:
    return next((message for message in death.messages if message.kind == kind), None)


def _device_contrast(case: Case) -> Iterator[Finding]:
    """It dies with an accelerator and not without: the device is part of it."""
    for axis, values in case.result.culprit.items():
        dying = [str(value) for value in values]
        fine = {str(o.trial.cell[axis]) for o in case.survivors if axis in o.trial.cell} - set(dying)
        if CPU in fine and CPU not in dying and all(_is_device(value) for value in [*dying, *fine]):
            death = case.deaths[0]
            fact = f"it dies on the device {' and '.join(dying)} and not on {' or '.join(sorted(fine))}, with everything else equal"
            yield finding(DEVICE, "contrast", death, 4.5, fact)
            for cause in ("native_memory_corruption", "native_bad_argument"):
                yield finding(cause, "device", death, -1.5, fact)


def _is_device(value: str) -> bool:
    """A word, or a word with a number: `cuda:0`."""
    name, _, index = value.partition(":")
    return name.isidentifier() and (not index or index.isdigit())
