"""Which probes there are, when one cannot be had, and that a probed trial is another question than an unprobed one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from matrix.assembly import Assembly
from matrix.records import Cell, Trial
from matrix.runner import cgroup
from matrix.runner.probes import NAMES, Context, machine, prepare, unavailable
from matrix.runner.probes.main_guard import why_no_other_start_method
from matrix.spec import Spec


def context(**changes: object) -> Context:
    start: dict[str, object] = {"argv": ["python", "x.py"], "env": {}, "cwd": "/", "folder": Path("/a"), "temp": "/tmp", "cpus": [0, 1]}
    return Context(**{**start, **changes})  # type: ignore[arg-type]


def test_every_probe_can_be_had_or_says_in_one_line_why_not() -> None:
    reasons = {name: unavailable(name, "", context(env=dict(os.environ))) for name in NAMES}
    assert all(reason is None or (reason and "\n" not in reason) for reason in reasons.values())
    assert len(NAMES) == 30
    assert not reasons["one_thread"]


@pytest.mark.parametrize(
    ("name", "setting", "changes", "why"),
    [
        ("one_core", "", {"cpus": [3]}, "it has only one processor anyway"),
        ("one_core", "7", {}, "processor 7 is not one of [0, 1]"),
        ("one_core", "first", {}, "'first' is not the number of a processor"),
        ("memory_x2", "", {}, "no memory limit of ours (limits.memory) to change"),
        ("memory_x2", "", {"memory_limit_bytes": 1 << 50}, "this machine has no 2147483648 MiB"),
        ("memory_half", "", {"memory_limit_bytes": 1 << 30, "watch": False}, "the attempt runs unwatched, without a memory limit"),
        ("raised_address_space", "", {"rlimits": {"RLIMIT_AS": (-1, -1)}}, "RLIMIT_AS is unlimited already"),
        ("raised_nofile", "10", {"rlimits": {"RLIMIT_NOFILE": (64, 64)}}, "RLIMIT_NOFILE is 64 already, and more is not allowed here"),
        ("valgrind", "", {"env": {"PATH": "/nowhere"}}, "valgrind is not installed"),
        ("who_ended_it", "", {"env": {"PATH": "/nowhere"}}, "strace is not installed"),
        ("clean_preload", "", {}, "LD_PRELOAD is not set"),
        ("start_spawn", "", {"hook": False}, "the hook is switched off (evidence)"),
        ("default_sigpipe", "", {"hook": False}, "the hook is switched off (evidence)"),
        ("bigger_temp", "", {"temp": "/no/where"}, "there is no /no"),
        ("no_such", "", {}, "there is no probe no_such"),
    ],
)
def test_what_cannot_be_had_is_named(name: str, setting: str, changes: dict[str, object], why: str) -> None:
    assert (unavailable(name, setting, context(**changes)) or "").startswith(why)


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a device here")
@pytest.mark.parametrize("name", ["cuda_launch_blocking", "no_cuda_caching", "nccl_debug"])
def test_without_a_device_its_probes_cannot_be_had(name: str) -> None:
    assert unavailable(name, "", context()) == "there is no NVIDIA device here"


def test_a_slower_clock_needs_a_quota_that_the_kernel_takes() -> None:
    assert unavailable("slower_clock", "0.001", context()) is not None
    if cgroup.can_limit_cpu():
        assert unavailable("slower_clock", "0.5", context()) is None


def test_a_place_in_memory_has_to_be_bigger_than_what_is_free() -> None:
    shm = os.statvfs("/dev/shm")
    reason = unavailable("bigger_shm", "", context())
    if machine.why_no_mount():
        assert reason == machine.why_no_mount()
    else:
        assert (reason is not None) == (shm.f_bavail * shm.f_frsize >= min(machine.available_bytes() // 2, 4 * shm.f_blocks * shm.f_frsize))
        assert unavailable("bigger_shm", str(1 << 30), context()) is None


def test_one_core_keeps_the_thread_counts_of_the_unprobed_run() -> None:
    free = prepare(context(), {"one_core": ""}).total.env
    assert (free["OMP_NUM_THREADS"], free["OPENBLAS_NUM_THREADS"]) == ("2", "2")
    assert prepare(context(env={"OMP_NUM_THREADS": "5"}), {"one_core": ""}).total.env == {}
    assert prepare(context(argv=["torchrun", "x.py"]), {"one_core": ""}).total.env == {}
    both = prepare(context(), {"one_core": "", "one_thread": ""})
    assert both.total.env["OMP_NUM_THREADS"] == "1"


def test_values_that_are_there_are_added_to_and_not_replaced() -> None:
    if machine.malloc_debug_library() is None:
        pytest.skip("no libc_malloc_debug.so here")
    env = {"LD_PRELOAD": "/mine.so", "GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
    changed = prepare(context(env=env), {"checked_heap": ""}).total.env
    assert changed["LD_PRELOAD"] == f"{machine.malloc_debug_library()}:/mine.so"
    assert changed["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=1:glibc.malloc.check=3"


# ------------------------------------------------------------------ main guards
GUARDED = "def main(): pass\nif main and __name__ == '__main__':\n    main()\n"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["python", "guarded.py", "-m", "x"], ""),
        (["python3.11", "-u", "-X", "dev", "guarded.py"], ""),
        (["/usr/bin/env", "A=1", "python", "guarded.py"], ""),
        (["./guarded.py"], ""),
        (["python", "-m", "guarded"], ""),
        (["python", "-m", "package"], ""),
        (["torchrun", "--nproc-per-node", "2", "guarded.py"], ""),
        (["python", "-m", "torch.distributed.run", "guarded.py"], ""),
        (["python", "-m", "torch.distributed.run", "bare.py"], "bare.py has no `if __name__"),
        (["torchrun", "bare.py"], "bare.py has no `if __name__"),
        (["python", "bare.py"], "bare.py has no `if __name__"),
        (["python", "-m", "bare"], "bare.py has no `if __name__"),
        (["python", "-c", "print(1)"], "the program is the text of a -c option"),
        (["sh", "run.sh"], "sh is no Python file"),
        (["python", "torn.py"], "torn.py is no Python file"),
    ],
)
def test_another_start_method_needs_a_main_guard(tmp_path: Path, argv: list[str], reason: str) -> None:
    (tmp_path / "guarded.py").write_text(GUARDED)
    (tmp_path / "bare.py").write_text("print('all of it')\nif __name__ == 'other': pass\n")
    (tmp_path / "torn.py").write_text("if (")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("print(1)")
    found = why_no_other_start_method(argv, tmp_path)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


# ------------------------------------------------------------------ the key, and the way from a trial
@pytest.fixture
def assembly(tmp_path: Path) -> Assembly:
    spec = Spec.model_validate({"name": "x", "run": {"command": ["python", "-c", "pass"]}, "matrix": {"a": [1, 2]}})
    return Assembly(spec, tmp_path)


def test_probed_and_unprobed_trials_of_one_cell_have_keys_of_their_own(assembly: Assembly) -> None:
    cell: Cell = {"a": 1}
    settings: list[dict[str, str]] = [{}, {"one_thread": ""}, {"one_core": ""}, {"one_core": "1"}, {"one_core": "", "one_thread": ""}]
    keys = [assembly.key(Trial(id=1, cell=cell, probes=probes)) for probes in settings]
    assert len(set(keys)) == len(settings)
    assert assembly.key(Trial(id=9, cell=cell, probes={"one_core": "1"})) == keys[3]


def test_the_assembly_tells_whether_a_trial_can_be_had(assembly: Assembly) -> None:
    assert assembly.unavailable(Trial(id=1, cell={"a": 1})) is None
    assert assembly.unavailable(Trial(id=1, cell={"a": 1}, probes={"one_thread": ""})) is None
    reason = assembly.unavailable(Trial(id=1, cell={"a": 1}, probes={"one_thread": "", "memory_x2": ""}))
    assert reason == "probe memory_x2: no memory limit of ours (limits.memory) to change"
