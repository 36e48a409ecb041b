"""The planted faults, in real processes: how they die, what lets them live, and that nothing else changes."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.diagnosis import catalogue
from reproducers.faults import FAULTS, CannotPlant, plant, planting

SEARCHES = """
import os, sys
import numpy, faiss
bank = numpy.random.default_rng(0).standard_normal((50, 8)).astype("float32")
print("before", flush=True)
if sys.argv[1] == "index":
    index = faiss.IndexFlatIP(8)
    index.add(bank)
    index.search(bank[:2], 3)
elif sys.argv[1] == "knn":
    faiss.knn(bank[:2], bank, 3)
elif sys.argv[1] == "binary":
    index = faiss.IndexBinaryFlat(64)
    index.add(bank.view("uint8")[:, :8].copy())
    index.search(bank.view("uint8")[:2, :8].copy(), 3)
print("after", flush=True)
"""

needs_runtime = pytest.mark.skipif(FAULTS["omp-conflict"].why_not() is not None, reason=str(FAULTS["omp-conflict"].why_not()))


@dataclasses.dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str
    registered: str | None  # what the first runtime left in /dev/shm; None: nothing


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plants")


def no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def start(arguments: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    """Run the command line as a user does, and take away what the runtime of this very process left behind."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KMP_", "PLANTED_"))}
    path = os.pathsep.join([*(env or {}).get("PYTHONPATH", "").split(os.pathsep), str(Path(__file__).parents[2])]).lstrip(os.pathsep)
    with subprocess.Popen(
        [sys.executable, "-m", "reproducers.faults", *arguments],
        env={**inherited, "OMP_NUM_THREADS": "1", **(env or {}), "PYTHONPATH": path},
        cwd=cwd, preexec_fn=no_core, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            stdout, stderr = child.communicate(timeout=60)
        finally:
            child.kill()
    left = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{child.pid}_{os.getuid()}")
    registered = left.read_text().rstrip("\0 ") if left.exists() else None
    left.unlink(missing_ok=True)
    return Ended(child.returncode, stdout, stderr, registered)


def conflict(cache: Path, search: str, env: dict[str, str] | None = None, options: list[str] | None = None) -> Ended:
    """omp-conflict between numpy and faiss: the same fault without the two seconds that torch takes to import."""
    plan = ["omp-conflict", "--first", "numpy", "--cache", str(cache), *(options or [])]
    return start([*plan, "--", "python", "-c", SEARCHES, search], env)


# ------------------------------------------------------------------ omp-conflict
@needs_runtime
@pytest.mark.parametrize("search", ["index", "knn", "binary"])
def test_the_second_runtime_aborts_the_process_at_the_first_search(cache: Path, search: str) -> None:
    ended = conflict(cache, search)
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "before\n")
    assert "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized." in ended.stderr
    assert ended.registered is not None
    assert ended.registered.endswith("libiomp5.so")


@needs_runtime
@pytest.mark.parametrize(
    ("search", "env"), [("index", {"KMP_DUPLICATE_LIB_OK": "TRUE"}), ("index", {"PLANTED_RUNTIMES": "one"}), ("none", {})]
)
def test_the_override_one_runtime_and_no_search_survive(cache: Path, search: str, env: dict[str, str]) -> None:
    ended = conflict(cache, search, env)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "before\nafter\n", "")
    assert ended.registered is None


@needs_runtime
def test_the_two_runtimes_are_two_files_of_the_same_content(cache: Path) -> None:
    folder = Path(plant("omp-conflict", cache=cache)["PYTHONPATH"].split(os.pathsep)[0])
    first, second = folder / "libplanted_first.so", folder / "libplanted_second.so"
    assert first.stat().st_ino != second.stat().st_ino
    assert first.read_bytes() == second.read_bytes()
    assert folder.stat().st_mode & 0o077 == 0


@needs_runtime
def test_a_renamed_plant_dies_alike_and_keeps_no_old_name(cache: Path) -> None:
    ended = conflict(cache, "index", options=["--rename", "acme"])
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "before\n")
    assert "Error #15" in ended.stderr
    survived = conflict(cache, "index", {"ACME_RUNTIMES": "one", "PLANTED_RUNTIMES": "two"}, ["--rename", "acme"])
    assert (survived.returncode, survived.stdout) == (0, "before\nafter\n")
    names = sorted(file.name for folder in cache.glob("acme-*") for file in folder.iterdir() if file.suffix != ".pyc")
    assert [name for name in names if name != "__pycache__"] == [
        "acme.json", "acme.py", "acme_harm.py", "libacme_first.so", "libacme_second.so", "sitecustomize.py",
    ]  # fmt: skip


@needs_runtime
@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "reached"), [("mining", "imported stepped saved"), ("step:2", "imported"), ("epoch-end", "imported stepped")]
)
def test_torch_uses_the_first_runtime_and_the_moment_is_kept(cache: Path, tmp_path: Path, when: str, reached: str) -> None:
    program = tmp_path / "train.py"
    program.write_text("""
import torch, faiss, numpy
print("imported", flush=True)
weight = torch.nn.Parameter(torch.ones(2))
optimiser = torch.optim.AdamW([weight])
for _ in range(2):
    weight.sum().backward()
    optimiser.step()
print("stepped", flush=True)
torch.save(weight, "weight.pt")
print("saved", flush=True)
faiss.knn(numpy.ones((1, 4), "float32"), numpy.ones((9, 4), "float32"), 1)
print("searched", flush=True)
""")
    ended = start(["omp-conflict", "--when", when, "--cache", str(cache), "--", "python", str(program)], cwd=tmp_path)
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGABRT, reached.split())
    assert "OMP: Error #15" in ended.stderr


# ------------------------------------------------------------------ bad-pointer
def test_a_bad_pointer_is_a_segmentation_fault_at_its_moment(cache: Path) -> None:
    ended = start(["bad-pointer", "--when", "mining", "--cache", str(cache), "--", "python", "-X", "faulthandler", "-c", SEARCHES, "index"])
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "before\n")
    assert "Segmentation fault" in ended.stderr


@pytest.mark.slow
def test_the_backward_moment_is_before_the_first_gradient(cache: Path) -> None:
    program = "import torch; w = torch.ones(2, requires_grad=True); print('forward', flush=True); w.sum().backward(); print('backward')"
    ended = start(["bad-pointer", "--cache", str(cache), "--", "python", "-c", program])
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "forward\n")


# ------------------------------------------------------------------ what must not change
SITECUSTOMIZE = {
    "user": "print('user', flush=True)",
    # chains to the plant wherever it stands, even when the plant has just chained to it
    "backward": """
import os, runpy, sys
print("backward", flush=True)
for place in list(sys.path):
    if "planted-" in place:
        runpy.run_path(os.path.join(place, "sitecustomize.py"))
""",
    # leaves the path and lets Python look again
    "leaving": """
import os, sys
print("leaving", flush=True)
sys.path.remove(os.path.dirname(__file__))
mine = sys.modules.pop("sitecustomize")
import sitecustomize
sys.modules.setdefault("sitecustomize", mine)
""",
}


@pytest.mark.parametrize(
    "order", ["plant, user", "backward, plant, user", "plant, backward", "leaving, plant, user", "plant, leaving, user", "leaving, plant"]
)
def test_every_sitecustomize_on_the_path_runs_and_the_fault_is_planted_once(cache: Path, tmp_path: Path, order: str) -> None:
    folders = {"plant": plant("bad-pointer", when="mining", cache=cache)["PYTHONPATH"].split(os.pathsep)[0]}
    for name, text in SITECUSTOMIZE.items():
        folders[name] = str(tmp_path / name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(text)
    names = order.split(", ")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders[name] for name in names)}
    command = [sys.executable, "-c", SEARCHES, "index"]
    ended = subprocess.run(command, env=env, preexec_fn=no_core, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGSEGV, "")
    assert ended.stdout.split() == [name for name in names if name != "plant"] + ["before"]


@pytest.mark.parametrize("status", [0, 7])
def test_exit_statuses_pass_through_unchanged(cache: Path, status: int) -> None:
    assert start(["bad-pointer", "--cache", str(cache), "--", "python", "-c", f"raise SystemExit({status})"]).returncode == status


def test_a_signal_reaches_the_command_itself(cache: Path) -> None:
    ended = start(["bad-pointer", "--cache", str(cache), "--", "sh", "-c", "kill -TERM $$"])
    assert ended.returncode == -signal.SIGTERM


def test_a_broken_pipe_ends_the_command_as_it_would_without_the_plant(cache: Path) -> None:
    ended = start(["bad-pointer", "--cache", str(cache), "--", "sh", "-c", "kill -PIPE $$; echo ignored"])
    assert (ended.returncode, ended.stdout) == (-signal.SIGPIPE, "")


def test_asking_for_a_module_without_importing_it_does_not_lose_the_plant(cache: Path) -> None:
    program = "import importlib.util; importlib.util.find_spec('faiss')\n" + SEARCHES
    ended = start(["bad-pointer", "--when", "mining", "--cache", str(cache), "--", "python", "-c", program, "index"])
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "before\n")


# ------------------------------------------------------------------ the command line
def test_list_names_every_fault_with_its_family_and_cause_and_whether_it_can_be_planted_here() -> None:
    ended = start(["list"])
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()[1:]
    assert [tuple(line.split()[:3]) for line in lines[: len(FAULTS)]] == [(f.family, f.cause, f.name) for f in FAULTS.values()]
    here = [not fault.why_not() for fault in FAULTS.values()]
    assert ["could not be planted" not in line for line in lines[: len(FAULTS)]] == here


def test_the_long_list_says_of_every_fault_what_is_real_and_what_is_arranged() -> None:
    ended = start(["list", "--long"])
    assert [line for line in ended.stdout.splitlines() if line in FAULTS] == list(FAULTS)
    assert [ended.stdout.count(words) for words in ("What is real", "What is arranged")] == [len(FAULTS)] * 2


def test_every_cause_that_the_diagnosis_knows_has_a_fault_in_the_family_where_its_rules_are() -> None:
    families = {cause.name: family.__name__.rpartition(".")[2] for family in catalogue.FAMILIES for cause in family.CAUSES}
    assert {fault.cause: fault.family for fault in FAULTS.values()} == families


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["omp-conflikt", "--", "true"], {}, "no fault is named 'omp-conflikt'; did you mean omp-conflict? There are: omp-conflict, "),
        (["bad-pointer"], {}, "COMMAND"),
        (["bad-pointer", "--when", "step:0", "--", "true"], {}, "'step:0' is no moment; allowed: seconds:S, print:N, call:MODULE:"),
        (["bad-pointer", "--when", "call:time", "--", "true"], {}, "--when 'call:time' is no moment"),
        (["python-exception", "--when", "seconds:1", "--", "true"], {}, "python-exception acts on a call, so its moment is one"),
        (["heap-overrun", "--amount", "3", "--", "true"], {}, "--amount 3 is too little: bytes written past the block, at least 16"),
        (["damaged-file", "--", "true"], {}, "damaged-file wants to know which file of the program's: --file PATH"),
        (["damaged-file", "--file", "/nowhere", "--", "true"], {}, "--file /nowhere is no file"),
        (["bad-pointer", "--", "true"], {"PLANTED_FAULT": "no"}, "PLANTED_FAULT is 'no'; allowed: on, off; absent means on"),
        (["bad-pointer", "--when", "step:N", "--", "true"], {}, "--when 'step:N' is no moment"),
        (["bad-pointer", "--rename", "../up", "--", "true"], {}, "--rename '../up' must be small letters"),
        (["bad-pointer", "--rename", "json", "--", "true"], {}, "--rename 'json' would hide the module of that name"),
        (["bad-pointer", "--", "true"], {"PLANTED_RUNTIMES": "on"}, "PLANTED_RUNTIMES is 'on'; allowed: two, one"),
        (["bad-pointer", "--", "no-such-program"], {}, "the command 'no-such-program' could not be started: No such file or directory"),
    ],
)
def test_bad_usage_is_refused_with_what_is_allowed(tmp_path: Path, arguments: list[str], env: dict[str, str], message: str) -> None:
    ended = start(arguments, {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), **env})
    assert ended.returncode == 2
    assert message in ended.stderr


def test_a_cache_that_cannot_be_written_is_told_with_status_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = start(["bad-pointer", "--cache", str(tmp_path / "file"), "--", "true"])
    assert ended.returncode == 125
    assert ended.stderr.startswith("bad-pointer could not be planted: the cache folder")
    assert "--cache DIR" in ended.stderr


def test_a_machine_that_the_runtime_is_not_made_for_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(CannotPlant, match="for Linux on x86-64 only, and this is darwin on arm64"):
        plant("omp-conflict")


def test_a_plant_that_was_made_meanwhile_is_taken_as_it_is(cache: Path, tmp_path: Path) -> None:
    planting._make(tmp_path / "plant", {}, {"mine.json": "1"})
    planting._make(tmp_path / "plant", {}, {"mine.json": "2"})
    assert (tmp_path / "plant" / "mine.json").read_text() == "1"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plant"]
