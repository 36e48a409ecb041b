"""The loop of a matrix: ask, run, tell, judge, write; the only module that knows how search and diagnosis alternate.

Everything is on disk before the next step starts: an attempt is complete when its observation is there, and the
verdict is rewritten after every attempt.  So whatever kills the tool, `--resume` adopts what is complete (`adoption.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Protocol

from matrix import earlier_deaths, observer_control, records
from matrix.adoption import Sources, adopt, highest_number
from matrix.assembly import CAN_BIND, Assembly, Holders, usable_cpus, working_folder
from matrix.diagnosis import catalogue, judge, probing, ranking, samples, slow, suspects, told_at_once
from matrix.diagnosis.case import Case
from matrix.diagnosis.clusters import Crashes
from matrix.diagnosis.cures import advise
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.verdict import build
from matrix.executors.local import LocalPool
from matrix.records import Attempt, Observation, Outcome, Trial, Verdict
from matrix.runner import probes
from matrix.runner.attempt import Live
from matrix.safekeeping import Safekeeping
from matrix.search import Search
from matrix.spec import Spec
from matrix.taught import Taught, taught_by, with_length

STACKS_WANTED = 4  # deaths with native stacks; of the others only the libraries are read (a whole core costs about a second)
TICK_S = 0.25
MORE_FRESH = "Once more, as runs are quick: does it hold?"
TIME_FOR_MORE = 0.5  # of the time that the answer took
MOST_MORE, MOST_WITH_MORE = 4, 12  # runs for that, and runs of all kinds with them
TOLD = 0.5  # probability of a cause that is told before it is known where it comes
MOST_CELLS = 5  # runs that are asked for to see whether it is one sample of the data that kills
LEFT_OPEN = 0.5  # share of what a probe tells early that the contrast would not have told in the end


class View(Protocol):
    """Who watches: plain lines, or a live picture."""

    def expects(self, runs: int) -> None: ...
    def started(self, attempt: Attempt) -> None: ...
    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None: ...
    def refresh(self, running: dict[str, Live]) -> None: ...
    def note(self, text: str) -> None: ...


class Planner:
    """One run of one specification in one run folder."""

    def __init__(self, spec: Spec, folder: Path, pool: LocalPool, view: View) -> None:
        self.spec = spec
        self.folder = folder.resolve()  # {attempt_dir} must hold from the program's own working folder too
        self.pool = pool
        self.view = view
        self.search = Search(spec, seed=spec.search.seed)
        self._assembly = Assembly(spec, self.folder)
        self.observations: list[Observation] = []
        self.outcomes: dict[str, Outcome] = {}
        self.environments: dict[str, dict[str, str]] = {}
        self._trials: dict[str, Trial] = {}
        self._started = time.monotonic()
        self._crashes = Crashes()
        self._stacks = 0
        self._longest_gap = 0.0
        self._wall_before_s = 0.0
        self._verdict: Verdict | None = None
        self._log_rankings = earlier_deaths.rank_by_log(spec)
        self._safe = Safekeeping(self.folder, working_folder(spec), _named_paths(spec))
        self._shares: dict[str, float] = {}  # of the causes, by the first death alone
        self._told = ""  # what a death that says itself what it is proves, whatever the axes are
        self._suspected = ""  # the attempt whose death was told to the search
        self._said: list[str] = []  # notes
        self._no_probe: dict[str, str] = {}  # probe -> why it cannot be had here
        self.edited = ""  # the file of the program that was edited while the matrix ran
        self._sources = Sources()
        self._safe.recover()  # before incomplete attempts go: their files tell until when they ran
        self._next_number = highest_number(self.folder) + 1
        self._adopt_folder()

    def run(self, asked_to_end: threading.Event) -> Verdict:
        """Until the search has no more questions or a budget is spent; an incomplete verdict when it was asked to end before.

        Raises RunnerError and OSError when the surroundings fail."""
        self._write(self._case(), complete=False)
        self._safe.begin()
        while not asked_to_end.is_set() and not self.edited:
            self._fill()
            if not self.pool.running:
                self._safe.end()
                return self._write(self._case(), complete=True)
            observation = self.pool.wait(TICK_S)
            if observation is not None:
                self._take(observation)
            self.view.refresh(self.pool.running)
        return self._end()

    def _end(self) -> Verdict:
        """End what runs, keep what is complete."""
        self.pool.interrupt()
        while self.pool.running:
            observation = self.pool.wait(TICK_S)
            if observation is not None and observation.exit.ended_by != "interrupt":
                self._take(observation)
            elif observation is not None:
                self._safe.note_attempt(observation.attempt, observation.files_written)
            self.view.refresh(self.pool.running)
        self._safe.put_back()
        self._safe.end()
        return self._write(self._case(), complete=False)

    # -------------------------------------------------------------- asking
    def _fill(self) -> None:
        if self._out_of_time():
            self.search.stop("max_wall is used up")
        while self.pool.free and self._runs_left() > 0:
            before = self._everything_changed() or self._better_probe()
            trial = before or self._searched() or self._sample() or self._last_probe()
            trial = trial or self._more_verification() or self._control()
            if trial is None:
                return
            attempt, holders = self._assembly.attempt(self._next_number, trial, self._cpus())
            if reason := self._unavailable(trial):
                outcome = Outcome(kind="unavailable", reason=reason)
                self.search.tell(trial, outcome)
                self.view.finished(attempt.id, trial, outcome, self.search.leading())
            else:
                self._submit(attempt, holders)
        if self._runs_left() <= 0 and not self.pool.running and not self.search.done:
            self.search.stop(f"max_runs ({self.spec.search.max_runs}) are used up")

    def _searched(self) -> Trial | None:
        """The search's next run; one fresh death that is as good as certain goes unwatched."""
        trial = self.search.ask()
        if trial is None or trial.purpose != "verify" or not self.spec.evidence.control:
            return trial
        wanted = all(asked.watched for asked in self._trials.values())
        return observer_control.bare(trial, self.observations, self.outcomes) if wanted and self.search.sure_to_die(trial.cell) else trial

    def _everything_changed(self) -> Trial | None:
        """Before a search, where the death says itself what it is: does it come whatever the axes are?"""
        if self._verdict is None or self._told or self._out_of_time():
            return None
        asked = [trial.cell for trial in self._trials.values()]
        cause = self._verdict.ranking[0].cause
        cell = told_at_once.cell_with_everything_changed(self._case(), cause, self.spec.axes, self.spec.allowed, asked)
        if cell is None or any(self.spec.unavailable(axis, value) for axis, value in cell.items()):
            return None
        return Trial(id=self.search.new_id(), cell=cell, purpose="find", why=told_at_once.WHY)

    def _runs_left(self) -> int:
        """Of max_runs; the search counts its own only, and it may have more questions once probes have changed what leads."""
        return self.spec.search.max_runs - len(self.observations) - len(self.pool.running)

    def _better_probe(self) -> Trial | None:
        """A probe before the search's next run, when it is expected to teach more for its time: where deaths are quick and survivals
        take long, asking why costs little."""
        if self._probing() or (gain := self.search.gain()) is None or (probe := self._probe()) is None:
            return None
        of_search, survived_s, died_s = gain
        better = LEFT_OPEN * probe.bits_per_s(survived_s, died_s) > of_search
        return self._probe_trial(self.search.new_id(), probe.name) if better else None

    def _sample(self) -> Trial | None:
        """Once it is known where it dies: a cell that tells whether one sample of the data kills, while nothing else is clear."""
        asked = sum(trial.why == samples.WHY for trial in self._trials.values())  # also before the run was resumed
        if self.pool.running or self._out_of_time() or self._verdict is None or asked >= MOST_CELLS:
            return None
        first = self._verdict.ranking[0]
        unsettled = first.cause == samples.CORRUPT and first.grade != "confirmed"
        unclear = unsettled or first.cause in (*NATIVE_CRASH, samples.EXCEPTION, "unknown")
        values = {axis.name: axis.values for axis in self.spec.axes}
        cell = samples.question(self._case(), self.spec.allowed, values) if unclear else None
        if cell is None:
            return None
        # one that was to find would have all verified afresh
        return Trial(id=self.search.new_id(), cell=cell, purpose="verify", why=samples.WHY)

    def _last_probe(self) -> Trial | None:
        """Once it is known where it dies: whatever still tells why, one at a time."""
        if self.pool.running or (probe := self._probe()) is None:
            return None
        return self._probe_trial(self.search.new_id(), probe.name)

    def _more_verification(self) -> Trial | None:
        """Where runs are quick, further fresh runs of the fix and of the known-bad cell: one clean run excludes hardly anything."""
        verdict = self._verdict
        if self.pool.running or verdict is None or verdict.status != "diagnosed" or verdict.fix is None or not verdict.fix.verified:
            return None
        made = [run for run in self.observations if run.trial.why == MORE_FRESH]
        walls = [run.wall_s for run in self.observations if run.trial.cell == verdict.fix.cell]
        spent_s = self._elapsed_s() - sum(run.wall_s for run in made)
        left_s = TIME_FOR_MORE * spent_s - sum(run.wall_s for run in made)
        if len(made) >= MOST_MORE or len(self.observations) >= MOST_WITH_MORE or statistics.median(walls) > left_s:
            return None
        cell = dict(self.spec.known_bad) if len(made) % 3 == 2 else dict(verdict.fix.cell)
        return Trial(id=self.search.new_id(), cell=cell, purpose="verify", why=MORE_FRESH)

    def _elapsed_s(self) -> float:
        return self._wall_before_s + time.monotonic() - self._started

    def _probing(self) -> bool:
        return any(live.attempt.trial.probes for live in self.pool.running.values())

    def _probe(self) -> probing.Proposal | None:
        """The intervention that would teach most about why it dies, within the same budget."""
        if self._out_of_time() or self._verdict is None:
            return None
        shares = {entry.cause: entry.probability for entry in self._verdict.ranking}
        case = self._case()
        wanted = [probe for rival in self._verdict.ranking[0].rivals if not rival.told for probe in rival.probes]
        return probing.propose(case, shares, catalogue.causes_of(case), self._can_probe, probes.NAMES, wanted)

    def _probe_trial(self, number: int, name: str) -> Trial:
        why = f"An intervention of the tool's own, to tell why it dies: {name.replace('_', ' ')}."
        return Trial(id=number, cell=dict(self.spec.known_bad), purpose="find", probes={name: ""}, why=why)

    def _can_probe(self, name: str) -> bool:
        trial = self._probe_trial(0, name)  # it is only asked about
        if reason := self._assembly.unavailable(trial, self._cpus()) or self._too_slow(name):
            self._no_probe[name] = reason
        return not reason

    def _too_slow(self, name: str) -> str | None:
        """A probe that takes longer than an attempt may would only be cut off."""
        walls = [o.wall_s for o in self.observations if self.outcomes[o.attempt].kind == "died"] or [0.0]
        wall_s = sorted(walls)[len(walls) // 2]
        _, most_s = probes.estimate_s(name, "", wall_s=wall_s, cpu_s=wall_s)
        limit = self.spec.limits.wall_s
        return f"it would take up to {most_s:.0f} s, and limits.wall allows {limit:.0f} s" if limit and most_s > limit else None

    def _control(self) -> Trial | None:
        """At last the same without being watched, within the same budget, unless a fresh death was."""
        if self.pool.running or self._out_of_time() or self._told or not self.spec.evidence.control:
            return None
        return observer_control.trial(
            self.search.new_id(), self.observations, self.outcomes, dict(self.spec.known_bad), max_runs=self.spec.search.max_runs
        )

    def _submit(self, attempt: Attempt, holders: Holders) -> None:
        self._trials[attempt.id] = attempt.trial
        self.environments[attempt.id] = attempt.env
        self._next_number += 1
        self.view.started(attempt)
        stacks = self._stacks < STACKS_WANTED or self._crashes.several
        self.pool.submit(self._assembly.job(attempt, holders, stacks=stacks, taught=self._taught(attempt.trial)))

    def _taught(self, trial: Trial) -> Taught:
        limits = self.spec.limits
        taught = taught_by(
            self.observations, self.outcomes, idle_s=limits.idle_s, startup_s=limits.startup_s, longest_gap_s=self._longest_gap
        )
        fix = self._verdict.fix.cell if self._verdict and self._verdict.fix else None
        return with_length(taught, trial, fix, self.observations, self.outcomes)

    def _unavailable(self, trial: Trial) -> str | None:
        return next((why for axis, value in trial.cell.items() if (why := self.spec.unavailable(axis, value))), None)

    def _out_of_time(self) -> bool:
        limit = self.spec.search.max_wall_s
        return limit is not None and self._elapsed_s() > limit

    def _cpus(self) -> list[int] | None:
        """CPUs of the next free place when the specification limits them, so that attempts side by side do not share any."""
        share = self.spec.limits.cpus
        if not share or not CAN_BIND:
            return None
        every = usable_cpus()
        taken = {cpu for live in self.pool.running.values() for cpu in live.attempt.cpus or ()}
        return ([cpu for cpu in every if cpu not in taken] + [cpu for cpu in every if cpu in taken])[: int(share)]

    # -------------------------------------------------------------- telling
    def _take(self, observation: Observation) -> None:
        self._safe.note_attempt(observation.attempt, observation.files_written)
        if not self.pool.running:
            self._safe.put_back()
        self._remember(observation)
        self._tell(observation)

    def _remember(self, observation: Observation) -> None:
        self.observations.append(observation)
        self._assembly.remember(observation)
        self.edited = self.edited or self._sources.edited(observation)
        outcome = judge.outcome(observation)
        if outcome.signature:
            outcome = dataclasses.replace(outcome, signature=self._crashes.name(outcome.signature, observation))
        outcome = judge.under_probe(observation, outcome, self._unprobed_signatures())
        self.outcomes[observation.attempt] = outcome
        self._stacks += bool(observation.native_stack)
        if outcome.kind == "survived":
            gap_s = observation.progress.ran_gap_s
            self._longest_gap = max(self._longest_gap, (observation.progress.longest_gap_s or 0.0) if gap_s is None else gap_s)

        self._revise(observation.attempt)

    def _unprobed_signatures(self) -> set[str | None]:
        return {self.outcomes[run.attempt].signature for run in self.observations[:-1] if not run.trial.probes}

    def _revise(self, latest: str) -> None:
        """What the observations up to this one make of runs that were cut off."""
        for attempt, outcome in slow.proven(self.observations, self.outcomes, self.spec.known_bad).items():
            self.outcomes[attempt] = outcome
            if attempt != latest:
                trial = self._trials[attempt]
                if trial.watched:
                    self.search.revise(trial, outcome)
                self.view.finished(attempt, trial, outcome, "")

    def _tell(self, observation: Observation) -> None:
        trial = self._trials[observation.attempt]
        self._tell_search(observation)
        self._judge()
        if reason := earlier_deaths.why_repeats_are_useless(self.spec, self._log_rankings, self.observations, self.outcomes):
            self.search.stop(reason)
        learnt = " ".join([self.search.leading(), *self._new_notes()])
        self.view.finished(observation.attempt, trial, self.outcomes[observation.attempt], learnt)
        if trial.purpose == "calibrate":
            self.view.expects(self.search.expected_runs(self._crash_rate()))

    def _new_notes(self) -> list[str]:
        """Return what is worth telling at once, each sentence the first time: how steps are read, and what a death proves already."""
        notes = [note for note in [*self._steps_note(), *self._so_far()] if note not in self._said]
        self._said += notes
        return notes

    def _so_far(self) -> list[str]:
        """Say what the deaths prove by themselves, before it is known where they come."""
        first = self._verdict.ranking[0] if self._verdict and self._verdict.ranking else None
        if first is None or first.cause in ("unknown", "healthy") or first.grade != "supported" or first.probability < TOLD:
            return []
        if self._told:
            return [f"Known: {first.cause} (supported): {self._told}."]
        return [f"Known by now: {first.cause} (supported): {first.summary} The next runs ask where it comes, and what helps."]

    def _steps_note(self) -> list[str]:
        """Say how steps were found where the specification says nothing of them, or how to name them."""
        survivors = [run for run in self.observations if self.outcomes[run.attempt].kind == "survived"]
        if self.spec.run.progress or not survivors:
            return []
        if learnt := next((run.progress.learnt for run in reversed(self.observations) if run.progress.learnt), ""):
            return [f"Steps are counted by a pattern that was learnt from the output: {learnt}"]
        if all(run.progress.last_step is None and run.output_tail for run in survivors):
            return [r"No steps are recognised in the output, so seconds count; to name them: run.progress: 'round (?P<step>\d+)'."]
        return []

    def _tell_search(self, observation: Observation) -> None:
        trial, outcome = self._trials[observation.attempt], self.outcomes[observation.attempt]
        told = outcome if trial.watched else observer_control.told(observation, self.observations, self.outcomes)
        if told is not None:
            self.search.tell(trial, told)
        self._revise_unwatched(observation.attempt)

    def _revise_unwatched(self, latest: str) -> None:
        """What all watched deaths are of, and so what an unwatched run says, is not known before the last of them."""
        for one in self.observations:
            if not one.trial.watched and one.attempt != latest:
                told = observer_control.told(one, self.observations, self.outcomes)
                if told is not None:
                    self.search.revise(self._trials[one.attempt], told)

    def _judge(self) -> None:
        """The verdict so far, and what it makes of the changes that survive."""
        case = self._case()  # one for both: the search's result takes longer than a decision
        self._suspect(case)
        ranked = self._write(case, complete=False).ranking
        self._told = told_at_once.why_no_axis_matters(case, ranked[0].cause, self.spec.axes) or ""
        if self._told:
            self.search.stop(self._told)
        self.search.expect_rule(1 - sum(entry.probability for entry in ranked if entry.cause == "unknown"))
        advise(self.search, case, ranked[0].cause)

    def _suspect(self, case: Case) -> None:
        """What the first death alone says of the axes and of how often it comes: how later ones end is the search's own evidence, and
        must not count twice.  What the runs that led to an answer were under does.

        The first is the one that was started first: of attempts side by side it may be told after another."""
        first = min(case.bad_deaths, key=lambda death: death.attempt, default=None)
        if first is None:
            return
        if first.attempt != self._suspected:
            # what other runs have taught is not its own
            untold = dataclasses.replace(case.result, confirmed=False, culprit={}, crash_rate=None)
            alone = dataclasses.replace(case, observations=[first], result=untold)
            self._suspected = first.attempt
            self._shares = {entry.cause: entry.probability for entry in ranking.rank(alone, ranking.collect(alone))}
            self.search.expect_every_time(suspects.every_time(self._shares, catalogue.ENTRIES))
        led = [one for one in case.unprobed if one.trial.purpose != "verify"]
        self.search.suspect_axes(suspects.weights(self.spec, self._shares, catalogue.CAUSES, led))

    def _crash_rate(self) -> float:
        """Share of deaths among the answers of the calibration."""
        kinds = [self.outcomes[name].kind for name, trial in self._trials.items() if trial.purpose == "calibrate" and name in self.outcomes]
        deaths, survivals = kinds.count("died"), kinds.count("survived")
        return deaths / (deaths + survivals) if deaths + survivals else 1.0

    def _write(self, case: Case, *, complete: bool) -> Verdict:
        earlier = earlier_deaths.earlier_deaths(self.spec, self._log_rankings, self.observations, self.outcomes)
        wall_s = self._elapsed_s()
        verdict = build(case, name=self.spec.name, complete=complete, wall_s=wall_s, earlier=earlier, told=self._told)
        observer = observer_control.result(
            self.observations, self.outcomes, dict(self.spec.known_bad), wanted=self.spec.evidence.control, complete=complete
        )
        verdict = dataclasses.replace(verdict, observer=observer, notes=[*self._safe.notes, *self._steps_note()])
        records.write(self.folder / "verdict.json", verdict)
        self._verdict = verdict
        return verdict

    def _case(self) -> Case:
        result = self.search.result()
        return Case(
            known_bad=self.spec.known_bad,
            observations=self.observations,
            outcomes=self.outcomes,
            environments=self.environments,
            result=result,
            signature=result.main_signature,
            observed_steps=[o.step for o in self.spec.observed if o.died and o.step is not None and o.cell == self.spec.known_bad],
            no_probe=self._no_probe,
        )

    # -------------------------------------------------------------- resuming
    def _adopt_folder(self) -> None:
        """Tell the search what counts for this program and specification, and people why the rest does not."""
        adopted = adopt(self._assembly)
        for note in adopted.notes:
            self.view.note(note)
        with contextlib.suppress(OSError, ValueError):
            self._wall_before_s = records.read(Verdict, self.folder / "verdict.json").wall_s
        for attempt, observation in adopted.attempts:
            trial = dataclasses.replace(attempt.trial, id=self.search.new_id())
            self._trials[attempt.id] = trial
            self.environments[attempt.id] = attempt.env
            self._remember(observation)
            self._tell_search(observation)
            self.view.finished(attempt.id, trial, self.outcomes[attempt.id], "")
        if self.observations:
            self._judge()
            self.view.expects(self.search.expected_runs(self._crash_rate()))


def _named_paths(spec: Spec) -> list[Path]:
    """Files and folders outside of the working folder that the command names: the program may write there."""
    cwd = working_folder(spec)
    words = [word.split("=", 1)[-1] for word in [*spec.run.command[1:], *spec.run.env.values()]]
    paths = [(cwd / word).resolve() for word in words if os.sep in word and "{" not in word and "\0" not in word]
    return [path for path in paths if not path.is_relative_to(cwd) and not cwd.is_relative_to(path) and path.exists()]
