"""Complete run folders, written from records as the tool writes them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matrix.diagnosis import catalogue
from matrix.records import (
    Attempt,
    AxisPlan,
    Cell,
    Exit,
    Machine,
    Memory,
    Observation,
    Plan,
    Progress,
    RuledOut,
    Trial,
    Value,
    Verdict,
    write,
)

GIB, MIB = 2**30, 2**20
MACHINE = Machine(
    system="Linux", kernel="6.1.0-28-amd64", machine="x86_64", cpus=8, memory_bytes=128 * GIB, python="3.11.2", tool_version="0.1.0"
)
NOTICES = ["PYTHONUNBUFFERED=1 was set, so that the last line before a death is seen"]
Amount = Callable[[float], float]  # seconds -> bytes


@dataclasses.dataclass
class Story:
    """A run folder that is being filled."""

    root: Path
    known_bad: Cell
    attempts: list[Observation] = dataclasses.field(default_factory=list)
    period_s: float = 0.25
    limit: int | None = 6 * GIB

    def run(self, cell: Cell, exit_: Exit, *, steps: int | None = None, wall_s: float = 30.0, **more: Any) -> str:
        """Add one complete attempt; `more` overrides fields of the observation, `trial` those of the trial; returns its id."""
        number = len(self.attempts) + 1
        full = {**self.known_bad, **cell}
        trial = Trial(id=number, cell=full, **more.pop("trial", {}))
        name = f"{number:04d}-{hashlib.sha256(repr(full).encode()).hexdigest()[:8]}"
        folder = self.root / "attempts" / name
        folder.mkdir(parents=True)
        curves: dict[str, list[Amount]] = more.pop("curves", None) or {"main": [flat(5.4 * GIB)]}
        peak, last = self._memory(folder, curves, wall_s, steps)
        memory = Memory(
            isolation="cgroup-v2",
            limit_bytes=self.limit,
            peak_tree_rss_bytes=peak,
            last_tree_rss_bytes=last,
            samples=9,
            oom_kills=0,
            system_available_bytes=119 * GIB,
        )
        seen = Observation(
            attempt=name,
            key=f"k{number}",
            trial=trial,
            exit=exit_,
            wall_s=wall_s,
            started_unix_s=1.76e9 + 60 * number,
            progress=more.pop("progress", Progress(last_step=steps, total_steps=2000, first_step_s=3.1)),
            memory=dataclasses.replace(memory, **more.pop("memory", {})),
            **more,
        )
        self._files(folder, seen)
        write(folder / "attempt.json", self._attempt(folder, trial, name))
        write(folder / "observation.json", seen)
        self.attempts.append(seen)
        return name

    def _attempt(self, folder: Path, trial: Trial, name: str) -> Attempt:
        flags = [word for axis, value in trial.cell.items() if axis not in {"override", "runtime"} for word in (f"--{axis}", str(value))]
        argv = ["python", "-m", "trainer", "train", "--pairs", "data/pairs.npz", "--out", f"{folder.resolve()}/out", *flags]
        env = {"WANDB_MODE": "offline", **({"MX_RUNTIME": str(trial.cell["runtime"])} if "runtime" in trial.cell else {})}
        argv += ["--max-steps", str(trial.max_steps)] if trial.max_steps else []
        return Attempt(id=name, trial=trial, argv=argv, env=env, cwd="/srv/train job", key="k", program="p", memory_limit_bytes=self.limit)

    def _memory(self, folder: Path, curves: dict[str, list[Amount]], wall_s: float, steps: int | None) -> tuple[int, int]:
        lines, peak, total = ["time,step,pid,role,rank,device,kind,bytes"], 0, 0
        for sample in range(1, int(wall_s / self.period_s) + 1):
            time = sample * self.period_s
            step = "" if steps is None or time < 3.1 else str(round(steps * (time - 3.1) / max(wall_s - 3.1, 0.1)))
            total, pid = 0, 4100
            for role, amounts in curves.items():
                for amount in amounts:
                    pid += 1
                    rss = int(amount(time))
                    total += rss
                    prefix = f"{time:.3f},{step},{pid},{role},,host"
                    lines += [f"{prefix},rss,{rss}", f"{prefix},shared,{min(rss // 5, 310 * MIB)}"]
            peak = max(peak, total)
        (folder / "memory.csv").write_text("\n".join(lines) + "\n")
        return peak, total

    def _files(self, folder: Path, seen: Observation) -> None:
        (folder / "stdout.log").write_text("training\n" + (seen.progress.last_line or "step 1") + "\n", encoding="utf-8")
        (folder / "stderr.log").write_text("\n".join(seen.output_tail) + "\n", encoding="utf-8")
        (folder / "stacks.txt").write_text("\n".join(seen.crash_stack) + "\n")
        (folder / "hook.jsonl").write_text("")
        (folder / "maps.txt").write_text("\n".join(library.path for library in seen.libraries) + "\n")

    def end(self, verdict: Verdict, values: dict[str, list[Value]], **plan: Any) -> Path:
        """Write the plan and the verdict; the sums of runs are those of the attempts."""
        axes = [
            AxisPlan(name=name, values=listed, unavailable=plan.get("unavailable", {}).get(name, {})) for name, listed in values.items()
        ]
        command = ["python", "-m", "trainer", "train", "--pairs", "data/pairs.npz", "--out", "{attempt_dir}/out"]
        write(
            self.root / "plan.json",
            Plan(
                name=verdict.name,
                command=command,
                axes=axes,
                known_bad=self.known_bad,
                strategy="adaptive",
                jobs=1,
                machine=MACHINE,
                notices=NOTICES,
            ),
        )
        (self.root / "spec.yaml").write_text("name: story\n")
        worded = dataclasses.replace(
            verdict,
            ranking=[_worded(entry) for entry in verdict.ranking],
            ruled_out=[_worded(entry) for entry in verdict.ruled_out],
            failures=[dataclasses.replace(each, ranking=[_worded(entry) for entry in each.ranking]) for each in verdict.failures],
            wall_s=sum(seen.wall_s for seen in self.attempts),
            runs=len(self.attempts),
            steps=sum(seen.progress.last_step or 0 for seen in self.attempts),
        )
        write(self.root / "verdict.json", worded)
        return self.root


def _worded(entry: Any) -> Any:
    """With the words of the catalogue, as a verdict has them."""
    words = catalogue.ENTRIES.get(entry.cause)
    if words is None:
        return entry
    more = {"title": words.title} if isinstance(entry, RuledOut) else {"title": words.title, "clause": words.clause}
    return dataclasses.replace(entry, **more)


def flat(level: float, ramp_s: float = 3.0) -> Amount:
    """Imports, then a level with the small waves of batches and mining."""
    return lambda time: (
        30 * MIB + (level - 30 * MIB) * min(1.0, time / ramp_s) ** 1.5 + 0.012 * level * math.sin(2.1 * time) * (time > ramp_s)
    )


def growing(start: float, per_second: float) -> Amount:
    return lambda time: flat(start)(time) + per_second * max(0.0, time - 3.0)


def finished() -> Exit:
    return Exit(returncode=0)


def aborted() -> Exit:
    return Exit(returncode=-6, signal="SIGABRT")
