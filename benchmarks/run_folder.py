"""A made run folder of many attempts, as large as real ones are: logs, memory curves, libraries, stacks."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from matrix.records import (
    Attempt,
    AxisPlan,
    Cell,
    Exit,
    Fact,
    Failure,
    Fix,
    Library,
    Machine,
    Memory,
    NotCollected,
    Observation,
    Outcome,
    Plan,
    Progress,
    Ranked,
    Rate,
    RateInterval,
    RuledOut,
    Trial,
    Value,
    Verdict,
    write,
)  # fmt: skip

MIB, GIB = 2**20, 2**30
AXES: dict[str, list[Value]] = {
    "accum": [1, 4, 16, 32], "bs": [4, 8, 16, 32], "threads": [1, 2, 4], "mining": ["off", "sync", "thread", "process"],
    "runtime": ["two", "one"], "shuffle": ["shuffled", "sequential"],
}  # fmt: skip
KNOWN_BAD: Cell = {"accum": 16, "bs": 32, "threads": 2, "mining": "sync", "runtime": "two", "shuffle": "shuffled"}
STACK = [f"module_{depth}.py:{10 * depth} in function_{depth}" for depth in range(12)]
LIBRARIES = [
    Library(pid=4101, path=f"/opt/env/lib/lib{name}.so", family=family, build_id="8f3a", owner=f"{name} 1.0")
    for name, family in (("iomp5", "openmp-llvm"), ("omp", "openmp-llvm"), ("gomp", "openmp-gnu"), ("openblas", "blas-openblas"))
]


def write_run(root: Path, count: int, seed: int = 0) -> Path:
    """Write the folder and return it: runs of the crash set die after a random number of steps, two side by side."""
    chance = random.Random(seed)
    (root / "attempts").mkdir(parents=True)
    cells = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]
    seen = [_attempt(root, number, KNOWN_BAD if number % 5 == 1 else chance.choice(cells), chance) for number in range(1, count + 1)]
    axes = [AxisPlan(name=name, values=values) for name, values in AXES.items()]
    machine = Machine(system="Linux", kernel="6.1", machine="x86_64", cpus=8, memory_bytes=64 * GIB, python="3.11", tool_version="0")
    command = ["python", "-m", "trainer", "train", "--out", "{attempt_dir}/out"]
    write(root / "plan.json", Plan(name="many", command=command, axes=axes, known_bad=KNOWN_BAD, strategy="full", jobs=2, machine=machine))
    write(root / "verdict.json", _verdict(seen))
    return root


def _attempt(root: Path, number: int, cell: Cell, chance: random.Random) -> Observation:
    dies = cell["runtime"] == "two" and cell["mining"] != "off" and chance.random() < 0.8
    steps = min(2000, 1 + int(chance.expovariate(1 / 500))) if dies else 2000
    name = f"{number:04d}-{chance.getrandbits(32):08x}"
    folder, wall = root / "attempts" / name, 4 + steps / 46
    folder.mkdir()
    trial = Trial(id=number, cell=cell, purpose="find", why="Does it die here too?")
    peak = _curve(folder, wall, steps, chance)
    observation = Observation(
        attempt=name,
        key=f"key{number}",
        trial=trial,
        exit=Exit(returncode=-6, signal="SIGABRT", core_dumped=True) if dies else Exit(returncode=0),
        wall_s=wall,
        started_unix_s=1.76e9 + 25 * number,
        progress=Progress(last_step=steps, total_steps=2000, first_step_s=4.0, last_step_s=wall),
        memory=Memory(isolation="cgroup-v2", limit_bytes=6 * GIB, peak_tree_rss_bytes=peak, last_tree_rss_bytes=peak, samples=200,
            oom_kills=0,
        ),
        libraries=LIBRARIES if cell["runtime"] == "two" else LIBRARIES[1:],
        crash_stack=STACK if dies else [],
        output_tail=[f"step {step}/2000 loss=2.31 lr=5e-05" for step in range(steps - 20, steps)],
        not_collected=[NotCollected(what="core", why="core_pattern pipes to a program outside this container")],
    )  # fmt: skip
    write(
        folder / "attempt.json",
        Attempt(id=name, trial=trial, argv=["python", "-m", "trainer"], env={}, cwd="/srv", key="k", program="p"),
        sync=False,
    )
    for file in ("stdout.log", "stderr.log", "stacks.txt"):
        (folder / file).write_text("step\n" * 50)
    write(folder / "observation.json", observation, sync=False)
    return observation


def _curve(folder: Path, wall: float, steps: int, chance: random.Random) -> int:
    level, lines = int((4 + chance.random()) * GIB), ["time,step,pid,role,rank,device,kind,bytes"]
    for sample in range(200):
        time, held = sample * wall / 200, int(level * min(1, (sample + 1) / 20)) + chance.randrange(64 * MIB)
        lines += [
            f"{time:.3f},{sample * steps // 200},4101,main,,host,{kind},{size}" for kind, size in (("rss", held), ("shared", 300 * MIB))
        ]
    (folder / "memory.csv").write_text("\n".join(lines) + "\n")
    return level + 64 * MIB


def _verdict(seen: list[Observation]) -> Verdict:
    died = [run.attempt for run in seen if run.exit.signal]
    facts = [Fact(fact="two OpenMP runtimes of one family were mapped", attempt=name, file="stacks.txt") for name in died[:200]]
    first = Ranked(
        cause="openmp_runtime_conflict", probability=0.97, grade="confirmed", summary="two runtimes were mapped in every run that died",
        culprit={"runtime": ["two"], "mining": ["sync", "thread", "process"]}, supports=facts,
    )  # fmt: skip
    ranking = [first, Ranked(cause="unknown", probability=0.03, grade="suspected", summary="")]
    fix = Fix(
        kind="cures", set={"runtime": "one"}, cell={**KNOWN_BAD, "runtime": "one"}, advice="keep one runtime", clean_runs=5,
        clean_steps=10000, verified=True, failure_rate_upper_95=Rate(value=0.0003, per="step"),
    )  # fmt: skip
    outcomes = {
        run.attempt: Outcome(kind="died" if run.exit.signal else "survived", steps=run.progress.last_step, seconds=run.wall_s)
        for run in seen
    }
    return Verdict(
        name="many", complete=True, status="diagnosed", status_text="Diagnosed.", ranking=ranking, fix=fix, runs=len(seen),
        crash_rate=RateInterval(low=0.001, median=0.002, high=0.003, per="step"), outcomes=outcomes,
        failures=[Failure(id="A", signature="SIGABRT", main=True, ranking=ranking, attempts=died, fix=fix)],
        steps=sum(run.progress.last_step or 0 for run in seen), wall_s=sum(run.wall_s for run in seen),
        ruled_out=[RuledOut(cause="memory_working_set", why="memory was flat")],
    )  # fmt: skip
