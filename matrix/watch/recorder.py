"""The recorder's event loop: it follows one process tree to its end, and touches nothing.

Built from the parts of the supervisor of attempts (`runner/attempt.py`), with another purpose: nothing is limited, nothing is ended,
a hang is only told, and everything is paced by what it costs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from matrix.evidence import cores, signals
from matrix.evidence.exits import ExitWatch
from matrix.evidence.kernel import SystemLog, system_log
from matrix.evidence.processes import autopsy
from matrix.evidence.progress import ProgressParser
from matrix.records import EndedBy, ProcessSeen, Progress
from matrix.runner.attempt import EXITS, IDLE, MAPPINGS, MEMORY, PAUSE_S, ROOM, SIGNALS, STEPS, SURROUNDINGS
from matrix.runner.cgroup import Group
from matrix.runner.collecting import Collecting
from matrix.runner.mappings import Mappings
from matrix.runner.observe import Raw
from matrix.runner.output import CappedFile
from matrix.runner.patience import Limits, Patience
from matrix.runner.probes import Prepared
from matrix.runner.probes.watch import Watch
from matrix.runner.sampler import Pace
from matrix.runner.surroundings import Surroundings
from matrix.watch import outlook, words
from matrix.watch.bounds import Bounds, Reading
from matrix.watch.ears import REST_S, Ears, Source
from matrix.watch.family import Family
from matrix.watch.pace import LOOK_S, Governor, PacedSampler

READ_BYTES = 1 << 20
PARSED_BYTES, PARSED_LINES = 512, 8  # of a longer stretch of output only its end is searched for steps,
PARSE_COSTS = 500  # but all of it as often as that costs 0.2 % of a core
UNSEEN_S = 0.1  # a delay that nobody minds; where no terminal shows the output it grows with the price, like all intervals
LONGEST_REST_S, READ_COSTS = 0.3, 200  # after output was read: a program that prints without end does not keep us busy
MAPS_COSTS, BOUNDS_COSTS = 500, 300  # 0.2 % and 0.3 % of a core
FIRST_BOUNDS_S, BOUNDS_S = 0.25, 1.0  # a fast leak is over in seconds
FAST_FOR_S = 10.0
MOST_MAPS = 16
AUTOPSY_WINDOW_S = 1.0
GAPS = 10  # a silence counts when it is so many times the longest one before
KEEP_S = 30.0
INTERRUPT_S = 60.0  # a program that ends so soon after Ctrl-C ended because of it
STARTUP_FACTOR = STALL_FACTOR = 3  # a program that works without a word is given so many times the patience
ASKED_S = 2.0  # after SIGTERM what is known is written: a SIGKILL that follows may end this process too
NEAR_S, NEAR_SHARE = 60.0, 0.05  # of the job's time, or of what was left of it at the start, left: it is near
LATE = 1.05  # a run whose end is expected so much beyond its time limit is told


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    progress: str | None = None  # pattern of a step
    hang_s: float = 300.0
    every_s: float | None = 30.0  # a line about the state; None: never
    hook: bool = True
    stop: bool = True  # whether a hang's autopsy may stop a process for the moment that reading its stacks takes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hang:
    """A silence that was told, with what every process did then."""

    kind: str  # startup | idle | stall
    at_s: float
    text: str
    processes: list[ProcessSeen]


@dataclasses.dataclass(kw_only=True)
class Seen:
    """What only a watched run has."""

    warnings: list[outlook.Notice] = dataclasses.field(default_factory=list)
    hangs: list[Hang] = dataclasses.field(default_factory=list)
    memory_limit_bytes: int | None = None
    oom_kills: int | None = None
    asked_s: float | None = None  # when it was first asked to end, by SIGTERM; None: it was not
    cpu_s: float = 0.0  # that recording took
    slowest: float = 1.0  # factor by which intervals were stretched at most


class Recorder:
    def __init__(
        self, source: Source, folder: Path, *, token: str, group: Group | None, core: cores.CorePlan, env: dict[str, str], cwd: str,
        options: Options, say: Callable[[str, bool], None], asked: Callable[[Raw, Seen], None] | None = None,
    ) -> None:  # fmt: skip
        """`say`: a line for people, and whether it is a warning; `asked`: is told once when it was asked to end and still runs."""
        self.source, self.folder, self.options, self.say = source, folder, options, say
        self.env, self.cwd, self.group, self.core, self.token = env, cwd, group, core, token
        self.child, self._asked = source.child, asked
        self.seen = Seen()
        self.started_unix, self.started = time.time(), time.monotonic()
        self.governor = Governor(0.0)
        self.parser = ProgressParser(options.progress)
        folders = {"shm": "/dev/shm", "cwd": cwd, "temp": env.get("TMPDIR", "/tmp")}
        self.sampler = PacedSampler(folder / "memory.csv", self.governor, group=group, folders=folders)
        self.surroundings = Surroundings(folders)
        self.tree = Family(token, self.child.pid or 0, group)
        self.collecting = Collecting(self._less)
        self.bounds = Bounds(self.child.pid or 0, env)
        self.collecting("kills for memory", self.bounds.find_groups, None)
        self.warner = outlook.Warner()
        limits = Limits(startup_s=STARTUP_FACTOR * options.hang_s, idle_s=options.hang_s, stall_s=STALL_FACTOR * options.hang_s)
        self.patience = Patience(limits, expects_steps=False)
        self.processes: list[ProcessSeen] = []
        self.mappings = Mappings()
        self._sinks = {name: CappedFile(folder / f"{name}.log") for name in ("stdout", "stderr")}
        self._hang: EndedBy | None = None
        self._parse_pace = Pace(PARSE_COSTS)
        self._told_late = self._told_off = False
        self._kept_s = self._paused_s = 0.0
        self._names: dict[int, str] = {}
        self._buffer = memoryview(bytearray(READ_BYTES))  # a new one for each read would be mapped and unmapped

    # -------------------------------------------------------------- the loop
    def run(self, kernel: SystemLog, exits: ExitWatch) -> Raw:
        """Until the main process has ended, or the source is left.  `kernel` and `exits` were begun before the program was."""
        self.kernel, self.exits, collect = kernel, exits, self.collecting
        self.signals = collect(SIGNALS, signals.watch, None)
        try:
            self._follow()
            wall_s = self._now()
            self._count(wall_s)
            collect(EXITS, self.exits.read, None)
            self._pids()  # who sent a signal may be one of its own that nobody has seen yet
            self._read_signals()
            self._drain()
        finally:
            for name, sink in self._sinks.items():
                collect(f"all of {name}", sink.close, None)
            collect(MEMORY, self.sampler.close, None)
        return self._raw(kernel, wall_s)

    def _follow(self) -> None:
        next_look, next_line, last = 0.1, self.options.every_s or 0.0, self._now()
        self._maps_pace, self._bounds_pace = Pace(MAPS_COSTS), Pace(BOUNDS_COSTS, FIRST_BOUNDS_S)
        with Ears(self.source, self._read, self._pass_on, self._now) as ears:
            while not self.child.over and not self.source.left():
                due = ears.wait(min(self.sampler.next_s, next_look))
                now = self._now()
                self._forgive(now - max(due, last))
                last = now
                if now >= self.sampler.next_s:
                    self._sample(now)
                if now >= next_look and not self.child.over:
                    self._safely(self._look, now)
                    next_look = now + (FIRST_BOUNDS_S if now < FAST_FOR_S else LOOK_S) * self.governor.factor
                if self._asked and (at_s := self.source.asked_s()) and time.monotonic() - at_s >= ASKED_S:
                    self._safely(self._still_runs, now)
                if self.options.every_s and now >= next_line:
                    self._safely(self._say_state, now)
                    next_line = now + self.options.every_s

    def _forgive(self, late_s: float) -> None:
        """While we are stopped (Ctrl-Z) nobody hears what the program does."""
        if late_s > PAUSE_S:
            self._paused_s += late_s
            self.patience.paused(late_s)
            self.parser.paused(late_s)

    def _still_runs(self, now: float) -> None:
        tell, self._asked = self._asked, None
        if tell and not self.child.over:
            self._look(now)
            self._count(now)
            tell(dataclasses.replace(self._raw(self.kernel, now), ended_by="nobody"), self.seen)

    def _count(self, wall_s: float) -> None:
        self.seen.cpu_s = self.governor.used_cpu_s
        self.seen.oom_kills = self.collecting("kills for memory", self.bounds.oom_kills, None)
        self.seen.memory_limit_bytes = self.collecting("memory limit", self.bounds.memory_limit, None)
        self.collecting(ROOM, lambda: self.surroundings.space.end(wall_s), None)
        if at_s := self.source.asked_s():
            self.seen.asked_s = round(at_s - self.started, 3)

    def _sample(self, now: float) -> None:
        if not self.collecting.succeeds(MEMORY, lambda: self.sampler.sample(now, self.parser.last_step)):
            self.sampler.next_s = now + LOOK_S
        self.collecting(ROOM, lambda: self.surroundings.sample(now), None)

    def _safely(self, act: Callable[[float], None], now: float) -> None:
        """A full disk, or a fault of ours, must not cost the user the run: it goes on, with less known about it."""
        self.collecting("what is recorded every second", lambda: act(now), None)

    def _less(self, problem: Exception) -> None:
        if not self._told_less:
            self._told_less = True
            self.say(f"from now on less is recorded: {type(problem).__name__}: {problem}; the run goes on", True)

    _told_less = False

    def _read(self, reader: int) -> bytes | None:
        """What is there; None at the end."""
        try:
            return bytes(self._buffer[: os.readv(reader, [self._buffer])]) or None
        except BlockingIOError:
            return b""
        except OSError:  # a terminal whose other side is closed
            return None

    def _pass_on(self, reader: int, name: str, data: bytes) -> float:
        """Keep it, and how long its reader may rest."""
        began = time.thread_time()
        self.source.take(reader, data)
        self._heard(name, data)
        until_sample = self.sampler.next_s - self._now()  # then we are awake anyway, which is most of the price
        unseen_s = UNSEEN_S if self.source.is_seen(reader) else UNSEEN_S * self.governor.factor
        wanted = max(REST_S, min(unseen_s, until_sample), READ_COSTS * (time.thread_time() - began))
        return min(LONGEST_REST_S, wanted)

    def _heard(self, name: str, data: bytes) -> None:
        if not name:
            return
        now, before = self._now(), self.parser.last_step
        self.collecting(f"all of {name}", lambda: self._sinks[name].write(data), None)
        began, whole = time.thread_time(), now >= self._parse_pace.next_s
        if not whole and len(data) > PARSED_BYTES:
            lines = data[-PARSED_BYTES:].replace(b"\r", b"\n").split(b"\n")[1:]
            data = b"\n" + b"\n".join(lines[-PARSED_LINES:])  # it ends a bar that was drawn before
        self.collecting(STEPS, lambda: self.parser.feed(name, data, now), None)
        if self.parser.why_no_steps and not self._told_off:
            self._told_off = True
            self.patience.cannot_see_steps()
            self.say(f"steps are not known from now on: {self.parser.why_no_steps}", True)
        if whole:
            self._parse_pace.spent(now, 0.0, time.thread_time() - began)
        self.patience.saw_output(now)
        if self.parser.last_step != before:
            self.patience.saw_progress(now)
        if self._hang:
            self._hang = None
            self.say("it goes on: there is output again", False)

    def _drain(self) -> None:
        """What is still on its way.  A process that outlived the main one may hold the other end, so nothing waits for an end-of-file."""
        self._parse_pace = Pace(PARSE_COSTS)  # the last of it is read to its end
        for reader, name in self.source.readers().items():
            with contextlib.suppress(OSError):
                while data := os.read(reader, READ_BYTES):
                    self.source.take(reader, data)
                    self._heard(name, data)
        for name, data in self.source.polled():
            self._heard(name, data)

    # -------------------------------------------------------------- every second
    def _look(self, now: float) -> None:
        for name, data in self.source.polled():
            self._heard(name, data)
        pids, collect = self._pids(), self.collecting
        collect(MEMORY, lambda: self.sampler.look(now, pids, self.tree.main), None)
        activity = collect("what processes do", lambda: self.tree.activity(pids), IDLE)
        if now >= self._maps_pace.next_s:
            began = time.thread_time()
            self._keep_mappings(sorted(pids)[:MOST_MAPS])
            self._maps_pace.spent(now, 0.0, time.thread_time() - began)
        threads = collect(SURROUNDINGS, lambda: self.surroundings.look(now, pids, self.tree.main, self.mappings.texts), 0)
        runnable = activity.runnable | (threads > 0)
        self.patience.saw_activity(now, activity.cpu_s, on_disk=activity.on_disk, runnable=runnable)
        collect(EXITS, lambda: self._follow_exits(pids), None)
        self._read_signals()  # while those who sent them have a name
        if now >= self._bounds_pace.next_s:
            collect("warnings before a limit is met", lambda: self._foresee(now, pids), None)
        if now >= self._kept_s + KEEP_S:
            self._kept_s = now
            collect("kernel log", lambda: self.kernel.lines_for(set()), None)  # or it overwrites them in a long run
            self.bounds.forget()
        collect("hangs", lambda: self._judge(now), None)
        self.governor.look(now)
        self.seen.slowest = max(self.seen.slowest, self.governor.factor)

    def _pids(self) -> set[int]:
        """Return the living processes, or those known so far where the walk over them fails."""
        return self.collecting("processes", self.tree.pids, set(self.tree.ever - {0}))

    def _keep_mappings(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self.collecting(MAPPINGS, functools.partial(self.mappings.keep, pid), None)

    def _follow_exits(self, pids: set[int]) -> None:
        self.exits.read()
        self.exits.follow(pids)

    def _read_signals(self) -> None:
        if self.signals:
            self.collecting(SIGNALS, self.signals.read, None)

    def _foresee(self, now: float, pids: set[int]) -> None:
        began = time.thread_time()
        readings = list(self.bounds.read(pids, self.surroundings.space.record(), self._called(pids)))
        self._readings = readings
        for warning in self.warner.see(now, self.parser.last_step, self._left_s(), readings):
            self._warn(warning)
        self._foresee_time(now)
        self._bounds_pace.spent(now, FIRST_BOUNDS_S if now < FAST_FOR_S else BOUNDS_S, time.thread_time() - began)

    _readings: list[Reading] = []  # noqa: RUF012 - replaced, never changed

    def _called(self, pids: set[int]) -> dict[int, str]:
        """Ranks have names that a person knows."""
        for process in self.sampler.processes(None) if pids - set(self._names) else ():
            rank = f"rank {process.rank}" if process.rank is not None else process.role
            self._names[process.pid] = f"the main process ({process.pid})" if process.pid == self.tree.main else f"{rank} ({process.pid})"
        return self._names

    def _foresee_time(self, now: float) -> None:
        """The scheduler's limit, when the steps that are left will not fit, or when it is near and nothing says how many they are."""
        ends, left_s = self.bounds.ends_unix_s, self._left_s()
        if ends is None or self._told_late:
            return
        room_s, step, total, there = ends - time.time(), self.parser.last_step, self.parser.total_steps, None
        if total:
            if left_s is None or left_s <= LATE * room_s:
                return
            there = round((step or 0) + (total - (step or 0)) * max(0.0, room_s) / left_s)
        elif (step is None and now < FAST_FOR_S) or room_s > max(NEAR_S, NEAR_SHARE * (ends - self.started_unix)):
            return
        self._told_late = True
        text = words.too_late(ends, room_s, there, total)
        self._warn(outlook.Notice(limit="time of the job", text=text, at_s=now, step=step, in_s=room_s, at_step=there))

    def _left_s(self) -> float | None:
        """Until all steps are taken, by the pace of the last quarter; None: unknown."""
        line, total = self.parser.timeline, self.parser.total_steps
        if not total or len(line) < 8:
            return None
        (then_s, then), (now_s, now) = line[3 * len(line) // 4 - 1], line[-1]
        return (total - now) * (now_s - then_s) / (now - then) if now > then else None

    def _warn(self, warning: outlook.Notice) -> None:
        self.seen.warnings.append(warning)
        self.say(warning.text, True)

    # -------------------------------------------------------------- hangs
    def _judge(self, now: float) -> None:
        overdue = self.patience.overdue(now)
        progress = self.parser.record()
        usual = GAPS * (progress.longest_gap_s or 0.0)
        if self._hang or not overdue or now - (progress.last_step_s or 0.0) < usual:
            return
        self._hang = overdue
        pids = self._pids()
        self._keep_mappings(pids)
        stop = self.options.stop
        self.processes = self.collecting("stacks of the hang", lambda: autopsy(pids, AUTOPSY_WINDOW_S, pause=stop), list[ProcessSeen]())
        text = words.hang(overdue, self.patience, now, self.processes)
        self.seen.hangs.append(Hang(kind=overdue, at_s=round(now, 3), text=text, processes=self.processes))
        self.say(text, True)

    def _ended_by(self) -> EndedBy:
        """A hang that somebody ended was a hang; what the user ended tells nothing."""
        at_s = self.source.interrupted_s()
        if self.source.left() and not self.child.over:
            return "interrupt"
        asked = at_s is not None and time.monotonic() - at_s < INTERRUPT_S
        if self._hang and self._hang != "starved" and self.child.ended and (asked or os.WIFSIGNALED(self.child.ended.status)):
            return self._hang
        return "interrupt" if asked else "itself"

    # -------------------------------------------------------------- what comes out
    def _say_state(self, now: float) -> None:
        text = words.state(now, self.parser, self.sampler, self._readings, self.warner.nearest, self.bounds.ends_unix_s)
        self.say(text, False)

    def _raw(self, kernel: SystemLog, wall_s: float) -> Raw:
        hung = self._hang is not None
        return Raw(
            child=self.child,
            ended_by=self._ended_by(),
            started_unix_s=self.started_unix,
            wall_s=wall_s,
            pids=frozenset(self.tree.ever - {0}),
            leftovers=0,
            progress=self.collecting(STEPS, self.parser.record, Progress()),
            sampler=self.sampler,
            group=self.group,
            core=self.core,
            kernel=kernel,
            maps=self.mappings.texts,
            mapped_unix_s=self.mappings.seen_unix_s,
            had_mapped=self.mappings.had,
            cwds=self.mappings.cwds,
            processes=self.processes if hung else [],
            dropped_bytes=sum(sink.dropped_bytes for sink in self._sinks.values()),
            hook=self.options.hook,
            exits=self.exits,
            started_monotonic_s=self.started,
            ending_s=None,
            env=self.env,
            rlimits={},
            pids_limit=None,
            probes=Watch(Prepared(), self.token),
            surroundings=self.surroundings,
            signals=self.signals,
            tool_pids=frozenset({os.getpid()}),
            paused_s=self._paused_s,
            starved_s=self.patience.starved_s,
            collecting=self.collecting,
            patterns_off=self.parser.switched_off,
        )

    def _now(self) -> float:
        return time.monotonic() - self.started


def begin() -> tuple[SystemLog, ExitWatch]:
    """The kernel's log and its events, from before the program is there."""
    return system_log(), ExitWatch()
