"""One attempt, from launch to observation: the supervisor that every executor runs.

One thread, one event loop: it drains the child's output, takes memory samples, looks at the processes twice a
second, and ends the child when its patience is over.  A dead child is data; only `RunnerError` is raised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import select
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from matrix import records
from matrix.evidence import signals
from matrix.evidence.exits import ExitWatch
from matrix.evidence.kernel import KernelLog, SystemLog, system_log
from matrix.evidence.processes import autopsy
from matrix.evidence.progress import ProgressParser
from matrix.records import EndedBy, NotCollected, Observation, ProcessSeen, Progress
from matrix.runner import cgroup, probes
from matrix.runner.attempt_folder import AttemptFolder
from matrix.runner.collecting import Collecting
from matrix.runner.job import HOOK as HOOK
from matrix.runner.job import Job as Job
from matrix.runner.job import Live as Live
from matrix.runner.job import child_environment, core_plan, fresh_copy, probed
from matrix.runner.job import context as context
from matrix.runner.launcher import Child, Guardian, Launch
from matrix.runner.leftovers import remove_shared_objects, shared_objects
from matrix.runner.mappings import Mappings
from matrix.runner.observe import Raw, observe
from matrix.runner.output import CappedFile, pipes
from matrix.runner.patience import Patience
from matrix.runner.probes.output_files import Space, open_files
from matrix.runner.probes.watch import Watch
from matrix.runner.sampler import Sampler
from matrix.runner.surroundings import Surroundings
from matrix.runner.tree import Activity, Tree

# Facts as they are listed where their collector failed.
MEMORY, STEPS, EXITS, SIGNALS = "memory samples", "steps", "ends of other processes", "who sent signals"
ROOM, SURROUNDINGS, MAPPINGS = "room on disks", "limits and load of processes", "mapped files"
IDLE = Activity(cpu_s=0.0, on_disk=False, runnable=False)
MOST_MAPS = 16
LOOK_S = 0.5
FIRST_LOOK_S = 0.01  # until then the loader is at work
JUDGE_S = 0.05  # but at every sample where nothing else bounds the memory
WORTH_SYNCING_S = 1.0  # a shorter attempt is repeated sooner than it is made safe against a power cut; resuming finds what is not whole
READ_BYTES = 1 << 20
AUTOPSY_WINDOW_S = 1.0
GIVE_UP_S = 60.0  # after SIGKILL
PAUSE_S = 2.0  # a wait that took so much longer than asked for: the tool was stopped (Ctrl-Z), or had no processor
ROOMY_BYTES = 64 << 20  # a group with less room might have its guardian killed, which is in it for a moment
TRACER_S = 0.1  # a tracer learns of the end when we do, and has a line to write


def run(job: Job, guardian: Guardian, *, stop: threading.Event, live: Live | None = None) -> Observation:
    """Run one attempt to its end and write its observation, unless it was interrupted: then it is not complete.

    Raises RunnerError when the surroundings fail."""
    folder = AttemptFolder.make(job.folder)
    asked_for = job.attempt
    records.write(f"{job.folder}/attempt.json", asked_for, sync=False)  # without an observation it counts for nothing
    with contextlib.ExitStack() as undo:
        token, temp = guardian.token(), guardian.temp()
        undo.callback(guardian.give_back, temp)
        prepared = probes.Prepared()
        if names := job.attempt.trial.probes:
            prepared = probes.prepare(context(job, temp, guardian.environment), names)
            job = probed(job, prepared.total)
        limited = job.attempt.memory_limit_bytes is not None or job.pids is not None
        group = cgroup.create(token, job.attempt.memory_limit_bytes, job.pids) if job.watch or limited else None
        if group:
            group.strangers = frozenset({guardian.process.pid})
            undo.callback(group.end)
            if prepared.total.cpu_share:
                group.limit_cpu(token, prepared.total.cpu_share)
        supervisor = Supervisor(job, token, temp, group, prepared, folder)
        raw = supervisor.run(guardian, stop, live or Live(attempt=job.attempt, started_monotonic=time.monotonic()))
        observation = observe(job.attempt, job.folder, raw)
        observation = dataclasses.replace(observation, not_collected=[*observation.not_collected, *supervisor.damage])
        if observation.exit.ended_by != "interrupt":
            sync = observation.wall_s > WORTH_SYNCING_S
            # an observation must not outlive its attempt.json, and the child may have written there
            if sync or not folder.holds("attempt.json", records.to_json(asked_for)):
                records.write(f"{job.folder}/attempt.json", asked_for, sync=sync)
            records.write(f"{job.folder}/observation.json", observation, sync=sync)
        return observation


class Supervisor:
    def __init__(
        self, job: Job, token: str, temp: Path, group: cgroup.Group | None, prepared: probes.Prepared, folder: AttemptFolder
    ) -> None:
        self.job = job
        self.folder = folder
        self.damage: list[NotCollected] = []  # what the child did to the attempt's folder
        self.token = token
        self.temp = temp
        self.group = group
        self.probes = Watch(prepared, token)
        self.parser = ProgressParser(job.progress, job.finished, job.learnt)
        self.patience = Patience(job.limits, expects_steps=job.progress is not None)
        self.core = core_plan(job)
        self.ended_by: EndedBy = "itself"
        self.ending_s: float | None = None
        self.processes: list[ProcessSeen] = []
        self.mappings = Mappings()
        self.collecting = Collecting()
        self._finished_seen = False
        self._look_at_once = False
        self.paused_s = 0.0

    # -------------------------------------------------------------- the loop
    def run(self, guardian: Guardian, stop: threading.Event, live: Live) -> Raw:
        begin = self.collecting
        none: SystemLog = KernelLog(wanted=False)
        kernel = begin("kernel log", lambda: system_log(wanted=self.job.watch), none)
        self.exits = begin(EXITS, lambda: ExitWatch(wanted=self.job.watch), ExitWatch(wanted=False))
        self.signals = begin(SIGNALS, signals.watch, None) if self.job.watch else None
        self._reaper = guardian.process.pid
        lazy = not self.job.watch
        sinks = {name: CappedFile(f"{self.job.folder}/{name}.log", lazy=lazy) for name in ("stdout", "stderr")}
        to_file = self.probes.prepared.total.to_file
        readers, writers = open_files(self.temp) if to_file else pipes(self.job.pty)
        self.started_unix, self.started = time.time(), time.monotonic()
        child = guardian.start(self._launch(guardian.environment), writers[0], writers[1])
        for descriptor in set(writers):
            os.close(descriptor)
        folders = {"shm": "/dev/shm", "cwd": self.job.attempt.cwd, "temp": str(self.temp)}
        folders = {name: path for name, path in folders.items() if path not in self.probes.prepared.total.tmpfs}  # the child has its own
        sampler = Sampler(self.job.folder / "memory.csv", group=self.group, folders=folders)
        self.surroundings = Surroundings(folders, wanted=self.job.watch, own=str(self.job.folder))
        try:
            self._follow(guardian, child, readers, sinks, sampler, stop, live)
            wall_s = self._now()
            if self.probes.prepared.total.traced:
                time.sleep(TRACER_S)
            collect = self.collecting
            collect(ROOM, lambda: self.surroundings.space.end(wall_s), None)
            collect(EXITS, self.exits.read, None)  # before the rest is ended: what ended until here was not our doing
            if child.ended and os.WIFSIGNALED(child.ended.status):
                self._pids()  # who sent it may be one of its own that nobody has seen yet
                self._read_signals()  # while it has a name
            leftovers = self.tree.kill() if child.pid else 0
            collect("shared memory left behind", self._remove_shared_objects, None)
            collect(EXITS, self.exits.read, None)
            self._drain(readers, sinks)
            self.damage = self.folder.mend()
            for name, sink in sinks.items():
                sink.close()  # now, because it counts what it drops
                if sink.replaced:
                    self.damage.append(NotCollected(what=f"{name}.log of the program's own", why="what was printed is in its place"))
            return self._raw(child, kernel, sampler, sinks, wall_s, leftovers)
        finally:
            for sink in sinks.values():
                sink.close()
            self.collecting(MEMORY, sampler.close, None)
            self.exits.close()
            child.close()
            for descriptor in readers:
                os.close(descriptor)

    def _follow(
        self,
        guardian: Guardian,
        child: Child,
        readers: dict[int, str],
        sinks: dict[str, CappedFile],
        sampler: Sampler,
        stop: threading.Event,
        live: Live,
    ) -> None:
        """Until the main process has ended."""
        self.tree, next_wake = Tree(self.token, 0, self.group), LOOK_S
        next_look, next_judge, last = FIRST_LOOK_S if self.job.watch else LOOK_S, 0.0, self._now()
        to_file, space = self.probes.prepared.total.to_file, Space()
        poll = select.poll()  # a handful of descriptors for a short time: epoll takes a call for each
        for descriptor in (child.status_fd, self.exits.fileno(), *(() if to_file else readers)):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)
                poll.register(descriptor, select.POLLIN)
        guards_memory = bool(self.job.attempt.memory_limit_bytes) and self.group is None and self.job.watch
        while not child.over and not self._cannot_be_ended():
            due = max(next_judge, sampler.next_s)
            if child.pid:
                due = min(due, next_look, self.probes.next_s)
            ready = self._wait(poll, sampler, due)
            self._forgive(self._now() - max(due, last))  # before what was written meanwhile is read
            for descriptor, _ in ready:
                if descriptor == child.status_fd:
                    child.read_status()
                    self._note_start(child)
                elif descriptor == self.exits.fileno():
                    if not self.collecting.succeeds(EXITS, self._read_exits):
                        poll.unregister(descriptor)  # or its events would wake us for ever
                elif not self._read(descriptor, readers[descriptor], sinks):
                    poll.unregister(descriptor)
            for descriptor in readers if to_file else ():
                self._read(descriptor, readers[descriptor], sinks)
                space.give_back(descriptor)
            last = now = self._now()
            if now >= next_wake:
                guardian.wake()
                next_wake = now + LOOK_S
            if child.pid and now >= self.probes.next_s:
                self._look_at_probes(now)
            if (now >= next_look or self._look_at_once) and child.pid:
                self._look(now, sampler, live)
                next_look = now + LOOK_S
            if self.job.watch and now >= sampler.next_s:
                self._sample(now, sampler)
            if now >= next_judge or (ready and self.job.stop_after_step is not None):  # which must not be passed by many
                self._judge(now, stop, sampler)
                next_judge = sampler.next_s if guards_memory else now + JUDGE_S

    def _wait(self, poll: select.poll, sampler: Sampler, due: float) -> list[tuple[int, int]]:
        """Return the descriptors that are ready before `due`."""
        if self.job.watch:
            try:
                return sampler.wait(poll.poll, self.started, due, self.parser.last_step)
            except Exception as problem:
                self.collecting.failed(MEMORY, problem)
        return poll.poll(max(0.0, due - self._now()) * 1000)

    def _sample(self, now: float, sampler: Sampler) -> None:
        if not self.collecting.succeeds(MEMORY, lambda: sampler.sample(now, self.parser.last_step)):
            sampler.next_s = now + LOOK_S
        self.collecting(ROOM, lambda: self.surroundings.sample(now), None)

    def _look_at_probes(self, now: float) -> None:
        if not self.collecting.succeeds("whether probes hold", lambda: self.probes.look(now, self._pids())):
            self.probes.next_s = now + LOOK_S

    def _read_exits(self) -> None:
        self.exits.read()
        self._look_at_once |= bool(self.exits.dumping) and bool(self.exits.dumping & self._pids())
        self.exits.dumping.clear()

    def _read_signals(self) -> None:
        if self.signals:
            self.collecting(SIGNALS, self.signals.read, None)

    def _pids(self) -> set[int]:
        """Return the living processes, or those known so far where the walk over them fails."""
        return self.collecting("processes", self.tree.pids, set(self.tree.ever - {0}))

    def _remove_shared_objects(self) -> None:
        remove_shared_objects({inode for text in self.mappings.texts.values() for inode in shared_objects(text)})

    def _forgive(self, late_s: float) -> None:
        """A child that could not be followed meanwhile has not been silent."""
        if late_s > PAUSE_S:
            self.paused_s += late_s
            self.patience.paused(late_s)
            self.parser.paused(late_s)

    def _cannot_be_ended(self) -> bool:
        """SIGKILL does not reach a process that waits for a dead disk or a server that is gone."""
        return self.ending_s is not None and self._now() > self.ending_s + GIVE_UP_S

    def _note_start(self, child: Child) -> None:
        if child.pid and not self.tree.main:
            self.tree = Tree(self.token, child.pid, self.group, self._reaper)

    def _read(self, descriptor: int, name: str, sinks: dict[str, CappedFile]) -> bool:
        """Take what is there; False at end-of-file."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # a terminal whose other side is closed
            return False
        if not data:
            return False
        now, before = self._now(), self.parser.last_step
        sinks[name].write(data)
        self._parse(name, data, now)
        self.patience.saw_output(now)
        self._look_at_once |= before is None and self.parser.last_step is not None
        if self.parser.last_step != before or (self.parser.finished and not self._finished_seen):
            self._finished_seen = self.parser.finished
            self.patience.saw_progress(now)
        return True

    def _drain(self, readers: dict[int, str], sinks: dict[str, CappedFile]) -> None:
        """What is still in the pipes; nobody is left to write more, so an empty pipe is the end."""
        for descriptor, name in readers.items():
            while True:
                try:
                    data = os.read(descriptor, READ_BYTES)
                except OSError:
                    break
                if not data:
                    break
                sinks[name].write(data)
                self._parse(name, data, self._now())

    def _parse(self, name: str, data: bytes, now: float) -> None:
        self.collecting(STEPS, lambda: self.parser.feed(name, data, now), None)
        if self.parser.why_no_steps:
            self.patience.cannot_see_steps()

    def _look(self, now: float, sampler: Sampler, live: Live) -> None:
        """Twice a second, at the first step (all is set up, and a short run may not see another look) and while a process that
        a signal has ended is still there: which processes there are, whether they do anything, what they have mapped."""
        at_once, self._look_at_once = self._look_at_once, False
        if not self.job.watch and now < LOOK_S:
            return
        pids, collect = self._pids(), self.collecting
        if self.job.watch:
            collect(MEMORY, lambda: sampler.look(now, pids, self.tree.main), None)
        activity = collect("what processes do", lambda: self.tree.activity(pids), IDLE)
        self._keep_mappings(pids)
        runnable = activity.runnable
        if self.job.watch:
            look = self.surroundings.look
            runnable |= collect(SURROUNDINGS, lambda: look(now, pids, self.tree.main, self.mappings.texts, at_once=at_once), 0) > 0
            collect(EXITS, lambda: self.exits.follow(pids - {self.tree.main}), None)
        self.patience.saw_activity(now, activity.cpu_s, on_disk=activity.on_disk, runnable=runnable)
        self._read_signals()  # while those who sent them have a name
        live.step, live.total = self.parser.last_step, self.parser.total_steps
        live.rss_bytes, live.last_line = sampler.last_total, self.parser.last_line

    def _keep_mappings(self, pids: set[int]) -> None:
        for pid in sorted(pids)[:MOST_MAPS]:
            self.collecting(MAPPINGS, functools.partial(self.mappings.keep, pid), None)

    # -------------------------------------------------------------- ending it
    def _judge(self, now: float, stop: threading.Event, sampler: Sampler) -> None:
        if self.ended_by != "itself" or not self.tree.main:
            return
        limit = self.job.attempt.memory_limit_bytes
        step = self.parser.last_step
        if stop.is_set():
            self._end("interrupt")
        elif self._is_long_enough(step, now):
            self._end("length")
        elif limit and self.group is None and self.collecting(MEMORY, lambda: sampler.exceeds(now, limit), False):
            self._end("memory_watchdog")
        elif overdue := self.patience.overdue(now):
            self._end(overdue)

    def _is_long_enough(self, step: int | None, now: float) -> bool:
        """True after the steps that were asked for, or after the seconds; time without a processor does not count."""
        wanted, wanted_s = self.job.stop_after_step, self.job.stop_after_s
        if wanted is not None and step is not None and step >= wanted:
            return True
        if step is not None and step < self.job.stop_beyond_step:
            return False
        return wanted_s is not None and now - self.paused_s - self.patience.starved_s > wanted_s

    def _end(self, why: EndedBy) -> None:
        if why in ("startup", "idle", "stall", "starved", "wall"):
            pids = self._pids()
            self._keep_mappings(pids)
            self.processes = self.collecting("stacks of the hang", lambda: autopsy(pids, AUTOPSY_WINDOW_S), list[ProcessSeen]())
        self.ended_by = why
        self.ending_s = self._now()
        self.tree.kill()

    # -------------------------------------------------------------- what goes in, what comes out
    def _launch(self, inherited: Mapping[str, str]) -> Launch:
        job, change = self.job, self.probes.prepared.total
        env = child_environment(inherited, job, self.token, self.temp)
        self.env = {name: value for name, value in env.items() if name not in change.unset} if change.unset else env
        doors = self.group.doors if self.group else []
        return Launch(
            argv=[*change.wrapper, *job.attempt.argv],
            env=self.env,
            cwd=job.attempt.cwd,
            cgroups=doors,
            roomy=len(doors) == 1 and (job.attempt.memory_limit_bytes or ROOMY_BYTES) >= ROOMY_BYTES,
            rlimits={"RLIMIT_CORE": (self.core.cap_bytes, -1), **job.rlimits},
            cpus=job.attempt.cpus,
            mounts=[(str(fresh_copy(path, self.temp / f"copy{n}")), str(path)) for n, path in enumerate(job.writes)],
            pty=job.pty,
            tmpfs=list(change.tmpfs.items()),
            no_huge_pages=change.no_huge_pages,
            ignored=change.ignored,
        )

    def _raw(self, child: Child, kernel: SystemLog, sampler: Sampler, sinks: dict[str, CappedFile], wall_s: float, leftovers: int) -> Raw:
        return Raw(
            child=child,
            ended_by=self.ended_by,
            started_unix_s=self.started_unix,
            wall_s=wall_s,
            pids=frozenset(self.tree.ever - {0}),
            leftovers=leftovers,
            progress=self.collecting(STEPS, lambda: self.parser.record(ran_gap_s=round(self.patience.longest_gap_s, 3)), Progress()),
            sampler=sampler,
            group=self.group,
            core=self.core,
            kernel=kernel,
            maps=self.mappings.texts,
            mapped_unix_s=self.mappings.seen_unix_s,
            had_mapped=self.mappings.had,
            cwds=self.mappings.cwds,
            processes=self.processes,
            dropped_bytes=sum(sink.dropped_bytes for sink in sinks.values()),
            hook=self.job.hook,
            exits=self.exits,
            started_monotonic_s=self.started,
            ending_s=self.ending_s,
            env=self.env,
            rlimits=self.job.rlimits,
            pids_limit=self.job.pids,
            probes=self.probes,
            surroundings=self.surroundings,
            signals=self.signals,
            tool_pids=frozenset((os.getpid(), self._reaper)),
            paused_s=self.paused_s,
            starved_s=self.patience.starved_s,
            pty=self.job.pty,
            files=self.job.files,
            asked_limits=self.job.asked_limits,
            patterns_off=self.parser.switched_off,
            collecting=self.collecting,
        )

    def _now(self) -> float:
        return time.monotonic() - self.started
