"""The stories of run folders that the report tests read, with figures that such runs have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matrix.records import (
    Cell,
    Exit,
    Fact,
    Failure,
    Fix,
    Interaction,
    Library,
    NotCollected,
    OmpRegistration,
    Outcome,
    ProcessSeen,
    Progress,
    PythonError,
    Ranked,
    Rate,
    RateInterval,
    RuledOut,
    Value,
    Verdict,
)
from tests.reports.run_folders import GIB, MIB, Story, aborted, finished, flat, growing

OMP_LINES = [
    "epoch 6:  31%|███▏      | 463/1500 [00:09<00:22, 46.1it/s, loss=2.31]",
    "mining: searching 771115 x 768, k 128",
    "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.",
    "OMP: Hint This means that multiple copies of the OpenMP runtime have been linked into the program.",
]
LIBRARIES = [
    Library(pid=4101, path="/opt/env/lib/libiomp5.so", family="openmp-llvm", build_id="8f3a", owner="intel-openmp 2025.2", seen="exit"),
    Library(
        pid=4101, path="/opt/env/lib/python3.11/site-packages/faiss/libiomp5.so", family="openmp-llvm", build_id="8f3a", owner="faiss-cpu"
    ),
]
STACK = [
    "libiomp5.so: __kmp_register_library_startup",
    "libiomp5.so: __kmp_do_serial_initialize",
    "faiss::IndexFlat::search",
    "trainer/mining.py:88 in search",
    "trainer/loop.py:141 in train",
]
OMP_AXES: dict[str, list[Value]] = {
    "accum": [1, 16],
    "bs": [8, 32],
    "mining": ["off", "sync"],
    "runtime": ["two", "one"],
    "override": ["plain", "duplicate_ok"],
    "shuffle": ["shuffled", "sequential"],
    "threads": [2],
    "device": ["cpu", "mps"],
}


def openmp(root: Path) -> Path:
    """The first story of the project: diagnosed, 15 attempts, a cure, a workaround that hides."""
    bad: Cell = {
        "accum": 16,
        "bs": 32,
        "mining": "sync",
        "runtime": "two",
        "override": "plain",
        "shuffle": "shuffled",
        "threads": 2,
        "device": "cpu",
    }
    story = Story(root, bad)
    facts: dict[str, Any] = {
        "output_tail": OMP_LINES,
        "libraries": LIBRARIES,
        "crash_stack": STACK,
        "omp_registrations": [OmpRegistration(pid=4101, library="/opt/env/lib/libiomp5.so")],
        "not_collected": [NotCollected(what="core", why="core_pattern pipes to a program outside this container")],
    }

    def die(cell: Cell, step: int, **more: Any) -> str:
        line = f"step {step} loss=2.31"
        return story.run(
            cell,
            aborted(),
            steps=step,
            wall_s=4 + step / 46,
            progress=Progress(last_step=step, total_steps=2000, last_line=line),
            **facts,
            **more,
        )

    died = [die({}, 117, trial={"purpose": "calibrate"}), die({}, 464, trial={"purpose": "calibrate"})]
    off = story.run({"mining": "off"}, finished(), steps=2000, wall_s=41, curves={"main": [flat(4.1 * GIB)]})
    one = story.run({"runtime": "one"}, finished(), steps=2000, wall_s=47)
    story.run({"override": "duplicate_ok"}, finished(), steps=2000, wall_s=47)
    died += [die({"accum": 1}, 472), die({"bs": 8}, 927), die({"shuffle": "sequential"}, 951), die({}, 118, trial={"purpose": "control"})]
    story.run({}, Exit(returncode=-9, signal="SIGKILL", ended_by="wall"), steps=1210, wall_s=90, trial={"probes": {"one_core": "1"}})
    for _ in range(5):
        story.run({"runtime": "one"}, finished(), steps=2000, wall_s=47, trial={"purpose": "verify"})
    ranked = Ranked(
        cause="openmp_runtime_conflict",
        probability=0.973,
        grade="confirmed",
        summary="libiomp5.so was mapped twice from different paths; every death came at a FAISS search and printed OMP: Error #15",
        culprit={"runtime": ["two"], "mining": ["sync"]},
        interactions=[Interaction(axes=["runtime", "mining"], text="it takes both: two runtimes, and mining to use the second one")],
        supports=[
            Fact(fact="the output ends with OMP: Error #15", attempt=died[0], file="stderr.log"),
            Fact(
                fact="two OpenMP runtimes of the LLVM family were mapped, from intel-openmp and from faiss-cpu",
                attempt=died[0],
                file="maps.txt",
            ),
            Fact(
                fact="the innermost frames are the registration of the runtime, called from a FAISS search",
                attempt=died[1],
                file="stacks.txt",
            ),
            Fact(fact="with one runtime 6 of 6 runs went to their end", attempt=one, file="observation.json"),
            Fact(fact="without mining it survives although both runtimes are mapped", attempt=off, file="observation.json"),
        ],
        not_collected=[NotCollected(what="checked heap", why="valgrind is not installed")],
    )
    rest = [
        Ranked(
            cause="native_memory_corruption",
            probability=0.015,
            grade="suspected",
            summary="SIGABRT can also come from a damaged heap",
            contradicts=[Fact(fact="no allocator message was printed", attempt=died[0], file="stderr.log")],
        ),
        Ranked(cause="unknown", probability=0.012, grade="suspected", summary=""),
    ]
    fix = Fix(
        kind="cures",
        set={"runtime": "one"},
        cell={**bad, "runtime": "one"},
        clean_runs=5,
        clean_steps=10000,
        verified=True,
        failure_rate_upper_95=Rate(value=0.0003, per="step"),
        advice="remove intel-openmp, or the copy that faiss brings, so that one OpenMP runtime is left",
    )
    others = [
        Fix(
            kind="avoids",
            set={"mining": "off"},
            cell={**bad, "mining": "off"},
            clean_runs=1,
            clean_steps=2000,
            advice="train without hard negatives",
        ),
        Fix(
            kind="hides",
            set={"override": "duplicate_ok"},
            cell={**bad, "override": "duplicate_ok"},
            clean_runs=1,
            clean_steps=2000,
            advice="",
            why="KMP_DUPLICATE_LIB_OK lets both runtimes go on side by side; its own message warns of crashes and of wrong results",
        ),
    ]
    flat_memory = f"memory was flat at 5.4 GiB and the kernel counted no OOM kill (attempt {died[0]}, memory.csv)"
    rate = RateInterval(low=0.0012, median=0.0026, high=0.0049, per="step")
    outcomes = {
        seen.attempt: Outcome(kind="died", steps=seen.progress.last_step, signature="SIGABRT:omp15")
        if seen.attempt in died
        else Outcome(kind="censored" if seen.exit.ended_by == "wall" else "survived", steps=seen.progress.last_step)
        for seen in story.attempts
    }
    return story.end(
        Verdict(
            name="crash_isolation",
            complete=True,
            status="diagnosed",
            ranking=[ranked, *rest],
            fix=fix,
            other_fixes=others,
            crash_rate=rate,
            status_text="the cause was found and the fix was verified on fresh runs",
            outcomes=outcomes,
            failures=[
                Failure(id="A", signature="SIGABRT:omp15", main=True, ranking=[ranked, *rest], attempts=died, fix=fix, other_fixes=others)
            ],
            ruled_out=[
                *(RuledOut(cause=name, why=flat_memory) for name in ("memory_working_set", "memory_retention")),
                RuledOut(cause="device_backend_fault", why="every run was on the cpu"),
                RuledOut(cause="python_exception", why="no traceback was printed, and the exit was a signal"),
            ],
            never_tested=["Accumulation of more than 16 steps was not run.", "No other version of faiss or torch was run."],
        ),
        OMP_AXES,
        unavailable={"device": {"mps": "this machine has no MPS device"}},
    )


def healthy(root: Path) -> Path:
    """Nothing wrong: not reproduced, with a bound and no invented cause."""
    story = Story(root, {"bs": 32, "mining": "sync"})
    for _ in range(8):
        story.run({}, finished(), steps=2000, wall_s=47, trial={"purpose": "calibrate"})
    ranking = [
        Ranked(cause="healthy", probability=0.96, grade="supported", summary="8 runs went to their natural end"),
        Ranked(cause="unknown", probability=0.04, grade="suspected", summary="a failure that is rarer than these runs can show"),
    ]
    return story.end(
        Verdict(
            name="nothing_wrong",
            complete=True,
            status="not_reproduced",
            ranking=ranking,
            status_text="not reproduced in 16,000 steps",
            crash_rate=RateInterval(low=0.0, median=0.0001, high=0.00019, per="step"),
            never_tested=["Runs longer than 2,000 steps."],
        ),
        {"bs": [8, 32], "mining": ["off", "sync"]},
    )


def inconclusive(root: Path) -> Path:
    """It dies, rarely, and nothing explains it yet."""
    story = Story(root, {"bs": 32, "threads": 2})
    died = story.run(
        {},
        Exit(returncode=-11, signal="SIGSEGV"),
        steps=811,
        wall_s=22,
        output_tail=["step 811 loss=1.9"],
        kernel_lines=["python[4101]: segfault at 18 ip 00007f12 sp 00007ffd error 4 in fastmetric.so[7f11+9000]"],
    )
    for cell in ({}, {}, {"bs": 8}, {"threads": 1}):
        story.run(cell, finished(), steps=2000, wall_s=47)
    fact = Fact(fact="the kernel names fastmetric.so in its segfault line", attempt=died, file="observation.json")
    ranking = [
        Ranked(
            cause="native_thread_race",
            probability=0.41,
            grade="suspected",
            summary="one death in three runs with two threads",
            supports=[fact],
        ),
        Ranked(cause="native_memory_corruption", probability=0.33, grade="suspected", summary="a fault inside a native extension"),
        Ranked(cause="unknown", probability=0.26, grade="suspected", summary=""),
    ]
    failure = Failure(id="A", signature="SIGSEGV:fastmetric", main=True, ranking=ranking, attempts=[died])
    return story.end(
        Verdict(
            name="rare_segfault",
            complete=True,
            status="inconclusive",
            ranking=ranking,
            failures=[failure],
            crash_rate=RateInterval(low=0.01, median=0.18, high=0.58),
            status_text="max_runs reached before a cause was sure",
        ),
        {"bs": [8, 32], "threads": [1, 2]},
    )


def hang(root: Path) -> Path:
    """A miner in a forked process that never answers; with a second failure beside it."""
    bad: Cell = {"mining": "process", "start": "fork", "threads": 2}
    story = Story(root, bad, limit=None)
    processes = [
        ProcessSeen(pid=4101, ppid=1, role="main", name="python", state="S", wchan="futex_do_wait", threads=9, cpu_s=31.0, window_s=10.0),
        ProcessSeen(
            pid=4102,
            ppid=4101,
            role="miner",
            name="python",
            state="R",
            threads=1,
            cpu_s=61.0,
            cpu_delta_s=10.0,
            window_s=10.0,
            stack=["sched_yield", "libopenblaso: exec_blas", "faiss::IndexFlat::search", "trainer/mining.py:88 in search"],
        ),
    ]
    curves = {"main": [flat(2.6 * GIB)], "miner": [flat(0.9 * GIB)]}
    stuck = Exit(returncode=-9, signal="SIGKILL", ended_by="idle")
    died = [
        story.run({}, stuck, steps=40, wall_s=75, processes=processes, curves=curves, output_tail=["step 40 waiting for negatives"])
        for _ in range(2)
    ]
    for cell in ({"start": "spawn"}, {"threads": 1}, {"start": "spawn"}, {"start": "spawn"}, {"start": "spawn"}):
        story.run(cell, finished(), steps=2000, wall_s=60, curves=curves, trial={"purpose": "verify"})
    error = PythonError(type="KeyError", message="'doc|id' `x` <b>", frames=["trainer/data.py:12 in load"])
    other = story.run({"mining": "sync"}, Exit(returncode=1), steps=3, wall_s=8, python_error=error, output_tail=["KeyError: 'doc|id'"])
    ranked = Ranked(
        cause="fork_unsafe",
        probability=0.98,
        grade="confirmed",
        summary="the forked miner spins in an OpenMP BLAS whose threads it does not have",
        culprit={"start": ["fork"], "threads": [2]},
        supports=[Fact(fact="9 threads were alive at the fork", attempt=died[0], file="hook.jsonl")],
    )
    fix = Fix(
        kind="cures",
        set={"start": "spawn"},
        cell={**bad, "start": "spawn"},
        clean_runs=4,
        clean_steps=8000,
        verified=True,
        failure_rate_upper_95=Rate(value=0.53),
        advice="start the miner with spawn",
    )
    failures = [
        Failure(id="A", signature="HANG:idle", main=True, ranking=[ranked], attempts=died, fix=fix),
        Failure(
            id="B",
            signature="exit1:KeyError",
            main=False,
            attempts=[other],
            ranking=[Ranked(cause="python_exception", probability=0.99, grade="supported", summary="KeyError in data.py")],
        ),
    ]
    return story.end(
        Verdict(
            name="silent_miner",
            complete=True,
            status="diagnosed",
            ranking=[ranked, Ranked(cause="unknown", probability=0.02, grade="suspected", summary="")],
            fix=fix,
            failures=failures,
            status_text="two failures; the main one is the hang",
        ),
        {"mining": ["sync", "process"], "start": ["fork", "spawn"], "threads": [1, 2]},
    )


def workers(root: Path) -> Path:
    """Eight workers with a cache each, killed by the kernel at the limit; four are fine."""
    bad: Cell = {"workers": 8, "bs": 32}
    story = Story(root, bad, limit=4 * GIB)
    main = [flat(0.9 * GIB)]
    tail = ["RuntimeError: DataLoader worker (pid 4105) is killed by signal: Killed."]
    log = ["Memory cgroup out of memory: Killed process 4105 (python) total-vm:2100000kB, anon-rss:450000kB"]
    died = [
        story.run(
            {},
            Exit(returncode=1),
            steps=300,
            wall_s=24,
            curves={"main": main, "worker": [growing(0.12 * GIB, 13.4 * MIB)] * 8},
            memory={"oom_kills": 1},
            output_tail=tail,
            kernel_lines=log,
            python_error=PythonError(type="RuntimeError", message=tail[0]),
        )
        for _ in range(2)
    ]
    for _ in range(5):
        story.run({"workers": 4}, finished(), steps=500, wall_s=36, curves={"main": main, "worker": [growing(0.12 * GIB, 13.4 * MIB)] * 4})
    ranked = Ranked(
        cause="memory_worker_multiplication",
        probability=0.95,
        grade="confirmed",
        summary="the kernel killed a worker at the limit; memory grows with the number of workers",
        culprit={"workers": [8]},
        supports=[Fact(fact="the group's oom_kill counter went from 0 to 1", attempt=died[0], file="observation.json")],
    )
    fix = Fix(
        kind="avoids",
        set={"workers": 4},
        cell={**bad, "workers": 4},
        clean_runs=5,
        clean_steps=2500,
        verified=True,
        failure_rate_upper_95=Rate(value=0.45),
        advice="use four workers, or share one cache between them",
        limits={"memory": "4GiB"},
    )
    return story.end(
        Verdict(
            name="killed_workers",
            complete=True,
            status="diagnosed",
            ranking=[ranked, Ranked(cause="unknown", probability=0.05, grade="suspected", summary="")],
            fix=fix,
            status_text="the kernel's counter proves the kill",
            failures=[Failure(id="A", signature="SIGKILL:oom", main=True, ranking=[ranked], attempts=died, fix=fix)],
        ),
        {"workers": [2, 4, 8], "bs": [32]},
    )


def partial(root: Path) -> Path:
    """After three of many attempts: not complete, and the fourth is still running."""
    story = Story(root, {"bs": 32, "accum": 16})
    died = [story.run({}, aborted(), steps=11, wall_s=6, output_tail=["step 11"]) for _ in range(2)]
    story.run({"accum": 1}, finished(), steps=200, wall_s=14)
    running = root / "attempts" / "0004-00000000"
    running.mkdir()
    (running / "stdout.log").write_text("step 1\n")
    ranking = [
        Ranked(cause="native_memory_corruption", probability=0.4, grade="suspected", summary="SIGABRT twice"),
        Ranked(cause="unknown", probability=0.6, grade="suspected", summary=""),
    ]
    return story.end(
        Verdict(
            name="still_running",
            complete=False,
            status="inconclusive",
            ranking=ranking,
            status_text="3 of at most 60 runs",
            failures=[Failure(id="A", signature="SIGABRT", main=True, ranking=ranking, attempts=died)],
        ),
        {"bs": [8, 32], "accum": [1, 16]},
    )


def empty(root: Path) -> Path:
    """A run folder before its first attempt."""
    story = Story(root, {"bs": 32})
    story.end(Verdict(name="just_started", complete=False, status="inconclusive", status_text="", ranking=[]), {"bs": [8, 32]})
    (root / "verdict.json").unlink()
    return root


STORIES: dict[str, Callable[[Path], Path]] = {
    "openmp": openmp,
    "healthy": healthy,
    "inconclusive": inconclusive,
    "hang": hang,
    "workers": workers,
    "partial": partial,
    "empty": empty,
}
