"""The command line as users meet it: bad input, failing surroundings, and small matrices from start to report."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from matrix.__main__ import axis_values, named_values
from matrix.diagnosis.catalogue import ENTRIES as CAUSES
from tests.matrix.command_line import (
    CAN_DROP_RIGHTS,
    NO_RIGHTS,
    ROOT,
    TOOL,
    complete,
    environment,
    left_by,
    matrix,
    observations,
    only_run,
    specification,
    start,
    verdict,
    wait_until,
)

PASS = {"run": {"command": ["python", "-c", "pass"]}, "matrix": {"mode": ["a", "b"]}}


def without_mounts() -> str:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "needs unshare"
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True).stderr


needs_mounts = pytest.mark.skipif(bool(without_mounts()), reason=f"no mounts here: {without_mounts()}")
needs_no_rights = pytest.mark.skipif(not CAN_DROP_RIGHTS, reason="the rights of root cannot be dropped here")


# ------------------------------------------------------------------ bad input
def text(**changes: Any) -> bytes:
    return json.dumps({**PASS, **changes}).encode()


BAD_SPECIFICATIONS = {
    "all its problems at once": (
        text(known_bad={"mod": "a"}, search={"max_runs": "many"}, limits={"wall": "soon"}, matrix={"mode": ["a"], "bs": []}, limts={}),
        [
            "spec.yaml:1:",
            "unknown axis 'mod'; did you mean 'mode'?",
            "search.max_runs: must be a whole number",
            "limits.wall: cannot read 'soon'",
            "matrix.bs.values: is empty",
            "unknown key 'limts'; did you mean 'limits'?",
        ],
    ),
    "an empty matrix": (text(matrix={}), ["matrix: is empty", "name at least one"]),
    "not YAML": (b"run: [python\nmatrix: {", ["spec.yaml:2:", "YAML"]),
    "binary": (bytes(range(256)) * 8, ["is not UTF-8 text"]),
    "UTF-16": (codecs.BOM_UTF16_LE + text().decode().encode("utf-16-le"), ["is not UTF-8 text", "save it as UTF-8"]),
    "a duplicate key": (b"run: {command: [python]}\nmatrix: {a: [1]}\nmatrix: {b: [1]}\n", ["spec.yaml:3:1", "duplicate key", "line 2"]),
    "a program and a written path that do not exist": (
        text(run={"command": ["no-such-program-anywhere", "x"], "writes": ["cache"]}),
        [
            "spec.yaml: run.command: 'no-such-program-anywhere' was not found on PATH",
            "give the full path",
            "spec.yaml: run.writes: ",
            "cache does not exist",
            "make it first",
        ],
    ),
    "a script that does not exist": (text(run={"command": ["./nope.sh"]}), ["run.command: './nope.sh' was not found in", "full path"]),
    "a working folder that does not exist": (text(run={"command": ["sh"], "cwd": "nowhere"}), ["run.cwd", "nowhere is not there"]),
}


def refused(ended: subprocess.CompletedProcess[str], code: int, words: list[str]) -> None:
    """One clear message on standard error, nothing on standard output, no traceback."""
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert [word for word in words if word not in ended.stderr] == [], ended.stderr


@pytest.mark.parametrize("name", BAD_SPECIFICATIONS)
def test_a_bad_specification_is_refused_in_words_before_anything_runs(tmp_path: Path, name: str) -> None:
    content, words = BAD_SPECIFICATIONS[name]
    (tmp_path / "spec.yaml").write_bytes(content)
    refused(matrix("run", "spec.yaml", cwd=tmp_path), 2, words)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "missing.yaml"], ["missing.yaml: there is no such file"]),
        (["run", "folder"], ["folder: cannot be read: it is not a regular file"]),
        (["run", "spec.yaml", "--set", "nonsense"], ["--set nonsense", "axis=value,value"]),
        (["run", "spec.yaml", "--set", "mode=a,a"], ["spec.yaml: --set mode: duplicate value"]),
        (["run", "spec.yaml", "--max-wall", "soon"], ["--max-wall", "'soon'", "90s"]),
        (["run", "spec.yaml", "--set", "limits.wall=soon"], ["--set limits.wall", "'soon'"]),
        (["run", "spec.yaml", "--set", "limits.wal=60s"], ["unknown key 'wal'", "did you mean 'wall'"]),
        (["run", "spec.yaml", "--set", "evidence.hook=perhaps"], ["--set evidence.hook", "must be true or false"]),
        (["run", "spec.yaml", "--set", "modes=a"], ["--set modes: no axis 'modes'", "did you mean 'mode'"]),
        (["run", "spec.yaml", "--strategy", "nonsense"], ["--strategy", "'nonsense'", "allowed: adaptive, one_at_a_time, pairwise, full"]),
        (["run", "spec.yaml", "--jobs", "0"], ["--jobs", "0 is not in the range"]),
        (["run", "spec.yaml", "--resume"], ["there is no run of 'spec'", "without --resume"]),
        (["report", "folder"], ["folder is not a run folder", "runs/<name>"]),
    ],
    ids=" ".join,
)
def test_a_bad_command_line_is_refused_in_words_before_anything_runs(tmp_path: Path, words: list[str], said: list[str]) -> None:
    specification(tmp_path, PASS)
    (tmp_path / "folder").mkdir()
    refused(matrix(*words, cwd=tmp_path), 2, said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "spec.yaml"]


@pytest.mark.parametrize("words", [("mode=a,",), ("mode=",), ("=a",), ("mode",), ("mode=a", "mode=b")], ids=" ".join)
def test_values_of_an_axis_are_named_once_and_none_is_empty(words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match=r"--set (mode|=a)"):
        [axis_values(name, text) for name, text in named_values(words).items()]


def test_values_of_several_axes_may_be_named() -> None:
    assert named_values(("mode=a,b", "expr=x=1")) == {"mode": "a,b", "expr": "x=1"}
    assert axis_values("mode", "a,b") == ["a", "b"]


def test_limits_of_a_run_and_of_the_matrix_can_be_given_on_the_command_line(tmp_path: Path) -> None:
    program = "import time\nfor step in range(600): print('step', step, flush=True); time.sleep(.1)"
    specification(tmp_path, {**PASS, "run": {"command": ["python", "-c", program]}})
    shown = matrix("plan", "spec.yaml", "--max-wall", "7m", "--set", "limits.wall=90s", cwd=tmp_path)
    assert "at most 420 s in all (--max-wall), 90 s a run (limits.wall)" in shown.stdout
    ended = matrix("run", "spec.yaml", "--max-runs", "1", "--set", "limits.wall=2s", cwd=tmp_path)
    assert ended.returncode == 0
    seen = json.loads(next(tmp_path.glob("runs/*/*/attempts/*/observation.json")).read_text())
    assert seen["exit"]["ended_by"] == "wall"


# ------------------------------------------------------------------ failing surroundings
@pytest.mark.parametrize("blocked", ["runs", "runs/spec"])
def test_a_file_in_the_place_of_the_runs_is_named(tmp_path: Path, blocked: str) -> None:
    specification(tmp_path, PASS)
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("mine")
    refused(matrix("run", "spec.yaml", cwd=tmp_path), 3, [f"{blocked} is not a folder; move it away"])
    assert (tmp_path / blocked).read_text() == "mine"


@needs_no_rights
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    specification(tmp_path, PASS)
    tmp_path.chmod(0o500)
    refused(
        matrix("run", "spec.yaml", cwd=tmp_path, prefix=NO_RIGHTS), 3, [f"run folder {tmp_path}/runs/spec/", "Permission denied; run from"]
    )


@needs_no_rights
def test_a_run_folder_that_may_no_longer_be_written_is_named(tmp_path: Path) -> None:
    specification(tmp_path, PASS)
    (tmp_path / "runs/spec/20260101-000000/attempts").mkdir(parents=True)
    (tmp_path / "runs/spec/20260101-000000").chmod(0o500)
    refused(matrix("run", "spec.yaml", "--resume", cwd=tmp_path, prefix=NO_RIGHTS), 3, ["runs/spec/20260101-000000", "Permission denied"])


def in_own_mounts(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A shell script in a mount namespace that vanishes with it; $matrix is the tool."""
    env = {**environment(), "matrix": " ".join(TOOL)}
    return subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


@needs_mounts
def test_a_read_only_file_system_is_named(tmp_path: Path) -> None:
    specification(tmp_path, PASS)
    (tmp_path / "runs").mkdir()
    ended = in_own_mounts("mount --bind runs runs && mount -o remount,ro,bind runs && exec $matrix run spec.yaml", tmp_path)
    refused(ended, 3, ["run folder", "Read-only file system; run from a folder that you may write to"])


@needs_mounts
@pytest.mark.slow
def test_a_full_disk_ends_the_run_in_words_and_resume_goes_on_when_there_is_space(tmp_path: Path) -> None:
    """The program's own output fills it; then there is room again."""
    program = "import os\nfor n in range(100): print('step', n, 'x' * 1000)"
    specification(tmp_path, {**PASS, "run": {"command": ["python", "-c", program]}, "search": {"max_runs": 3}, "executor": {"jobs": 1}})
    (tmp_path / "runs").mkdir()
    script = """
        mount -t tmpfs -o size=200k tmpfs runs
        $matrix run spec.yaml > first.out 2> first.err; echo $?
        ls runs/spec/*/attempts/*/observation.json > before
        mount -o remount,size=20m runs
        $matrix run spec.yaml --resume > second.out 2> second.err; echo $?
        ls runs/spec/*/attempts/*/observation.json > after
    """
    ended = in_own_mounts(script, tmp_path)
    assert (ended.stdout.split(), ended.stderr) == (["3", "0"], "")
    said = (tmp_path / "first.err").read_text()
    assert re.fullmatch(r"(\S+/)?runs/spec/\S+: No space left on device; .* --resume: what is complete is kept\n", said)
    before, after = (set((tmp_path / name).read_text().split()) for name in ("before", "after"))
    assert len(before) == 1 and before < after and len(after) == 3


def test_a_reader_that_goes_away_ends_the_run_tidily(tmp_path: Path) -> None:
    specification(tmp_path, {**PASS, "search": {"max_runs": 3}})
    tool = start("run", "spec.yaml", cwd=tmp_path)
    assert tool.stdout and tool.stderr
    tool.stdout.close()
    assert tool.stderr.read() == "interrupted: nobody reads the output any more\n"
    assert (tool.wait(), left_by(tool.pid)) == (130, [])


INTERRUPTED_AT_ITS_IMPORTS = """
import os, signal, sys
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "matrix.console":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
"""
SCRIPT = "import sys\nfrom matrix.__main__ import main\nsys.exit(main())\n"  # as pip makes it


@pytest.mark.parametrize("how", [["-m", "matrix"], ["matrix"]], ids=["module", "script"])
def test_ctrl_c_while_the_tool_is_still_being_imported_is_told_in_a_line(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_AT_ITS_IMPORTS)
    (tmp_path / "matrix").write_text(SCRIPT)
    argv = [sys.executable, *how, "schema"]
    env = environment() | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


# ------------------------------------------------------------------ plan
def test_plan_shows_the_cells_runs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    program = "import pathlib; pathlib.Path('was-run').write_text('')"
    content = {
        "run": {"command": ["python", "-c", program]},
        "matrix": {"mode": ["a", "b"], "size": [1, 2, 4]},
        "exclude": [{"mode": "b", "size": 4}],
        "limits": {"memory": "64MiB"},
    }
    specification(tmp_path, content)
    ended = matrix("plan", "spec.yaml", "--jobs", "2", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    said = ("mode         a, b", "size         1, 2, 4", "known bad: mode=a size=1", "5 cells", "2 at a time", "64 MiB", "{attempt_dir}")
    assert [words for words in said if words not in ended.stdout] == []
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


# ------------------------------------------------------------------ run: a crash with a contrast
WITNESS = """
import json, os, resource, socket, sys, pathlib
options = dict(word.split("=", 1) for word in sys.argv[1:])
count = pathlib.Path("cache/count")
seen = {
    "argv": sys.argv[1:], "cwd": os.getcwd(), "env": {name: os.environ.get(name) for name in ("GREETING", "SIZE", "PYTHONUNBUFFERED")},
    "cpus": sorted(os.sched_getaffinity(0)), "nofile": resource.getrlimit(resource.RLIMIT_NOFILE), "count": count.read_text(),
}
count.write_text(str(int(seen["count"]) + 1))
with socket.socket() as server:
    server.bind(("127.0.0.1", int(options["port"])))
pathlib.Path(options["out"]).mkdir()
pathlib.Path(options["out"], "seen.json").write_text(json.dumps(seen))
print("step 1/2", flush=True)
if options["--mode"] == "bad":
    raise ZeroDivisionError("as it was told")
print("step 2/2")
"""
CRASH = {
    "name": "contrast",
    "run": {
        "command": ["python", "witness.py", "out={attempt_dir}/out", "port={port}", "number={attempt}", "cpus={cpu_list}", "braces={{}}"],
        "env": {"GREETING": "hello from {attempt}"},
        "cwd": "job",
        "writes": ["cache"],
        "finished": "step 2/2",
    },
    "matrix": {"mode": {"values": ["bad", "good"], "flag": "--mode="}, "size": {"values": [1, 2], "env": "SIZE"}},
    "limits": {"cpus": 1, "nofile": 99, "wall": "1m"},
    "executor": {"jobs": 2},
}


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run from a folder that is neither the specification's nor the program's."""
    home = tmp_path_factory.mktemp("home")
    (home / "project/job/cache").mkdir(parents=True)
    (home / "project/job/cache/count").write_text("0")
    (home / "project/job/witness.py").write_text(WITNESS)
    specification(home / "project", CRASH, "contrast.yaml")
    ended = matrix("run", "project/contrast.yaml", cwd=home)
    return only_run(home), ended


Run = tuple[Path, "subprocess.CompletedProcess[str]"]


def test_a_matrix_that_ends_is_success_though_variants_died(crash: Run) -> None:
    run, ended = crash
    assert (ended.returncode, ended.stderr) == (0, "")
    assert run.parent.parent.name == "runs" and run.parent.name == "contrast"
    lines = ended.stdout.splitlines()
    assert lines[0] == f"run folder: runs/contrast/{run.name}"
    assert lines[-1].startswith("report: ") and "report.html" in lines[-1]
    assert sum(bool(re.match(r"\d{4}-[0-9a-f]{8}  ", line)) for line in lines) == len(observations(run))
    assert {"spec.yaml", "plan.json", "verdict.json", "report.md", "report.html", "launch.sh"} <= {path.name for path in run.iterdir()}
    assert (run / "spec.yaml").read_bytes() == (run.parents[2] / "project/contrast.yaml").read_bytes()


def test_the_run_folder_is_private(crash: Run) -> None:
    run, _ = crash
    folders = [run.parent, run, run / "attempts", *(run / "attempts").iterdir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_the_verdict_has_the_cause_the_contrast_and_the_fix(crash: Run) -> None:
    found = verdict(crash[0])
    first = found.ranking[0]
    assert (found.name, found.complete, found.status) == ("contrast", True, "diagnosed")
    assert (first.cause, first.grade, first.culprit) == ("python_exception", "confirmed", {"mode": ["bad"]})
    assert found.fix is not None
    assert (found.fix.set, found.fix.cell, found.fix.verified) == ({"mode": "good"}, {"mode": "good", "size": 1}, True)
    assert found.crash_rate is not None and found.crash_rate.median > 0.8


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "null"}, schema]}


def record(optional: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": sorted(set(properties) - set(optional)), "properties": properties}


def list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


WORD, COUNT, SHARE = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "number", "minimum": 0, "maximum": 1}
CELL = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
PER = {"enum": ["run", "step"]}
RATE = record(low=SHARE, median=SHARE, high=SHARE, per=PER)
FIX = record(
    kind={"enum": ["cures", "avoids", "hides"]}, set={**CELL, "minProperties": 1}, env={"type": "object"}, limits={"type": "object"},
    packages={"type": "object"}, advice={**WORD, "minLength": 1}, cell=CELL, clean_runs=COUNT, clean_steps=COUNT,
    failure_rate_upper_95=nullable(record(value=SHARE, per=PER)), verified={"type": "boolean"},
)  # fmt: skip
FACT = record(fact={**WORD, "minLength": 1}, attempt=nullable(WORD), file=nullable(WORD))
RANKED = record(
    cause={"enum": [*CAUSES]}, probability=SHARE, grade={"enum": ["confirmed", "supported", "suspected"]}, summary={**WORD, "minLength": 1},
    culprit={"type": "object", "additionalProperties": {"type": "array", "minItems": 1}},
    interactions=list_of(record(axes=list_of(WORD), text=WORD)), supports=list_of(FACT), contradicts=list_of(FACT),
    not_collected=list_of(record(what=WORD, why=WORD)),
)  # fmt: skip
JUDGED = {"ranking": {**list_of(RANKED), "minItems": 1}, "fix": nullable(FIX), "other_fixes": list_of(FIX), "crash_rate": nullable(RATE)}
VERDICT = record(
    schema={"const": "matrix.verdict/1"}, name=WORD, complete={"type": "boolean"},
    status={"enum": ["diagnosed", "suspected", "not_reproduced", "healthy", "inconclusive"]},
    failures=list_of(record(id=WORD, signature=WORD, main={"type": "boolean"}, **JUDGED)),
    runs=COUNT, steps=COUNT, wall_s={"type": "number", "minimum": 0}, ruled_out=list_of(record(cause={"enum": [*CAUSES]}, why=WORD)),
    **JUDGED,
)  # fmt: skip


def check_verdict(run: Path) -> None:
    """Every field of the contract, and what the fields promise to each other and to the folder."""
    found = json.loads((run / "verdict.json").read_text())
    jsonschema.validate(found, VERDICT)
    assert sum(entry["probability"] for entry in found["ranking"]) == pytest.approx(1)
    assert "unknown" in [entry["cause"] for entry in found["ranking"]]
    known_bad = json.loads((run / "plan.json").read_text())["known_bad"]
    for fix in filter(None, [found["fix"], *found["other_fixes"]]):
        assert fix["cell"] == {**known_bad, **fix["set"]}
    assert (found["fix"] or {}).get("kind") != "hides"
    main = [failure for failure in found["failures"] if failure["main"]]
    if main:
        assert {key: main[0][key] for key in JUDGED} == {key: found[key] for key in JUDGED}
    assert len(main) == min(1, len(found["failures"]))
    assert found["runs"] == len(observations(run)) == len(found["outcomes"])
    facts = [fact for entry in found["ranking"] for fact in (*entry["supports"], *entry["contradicts"])]
    assert [fact for fact in facts if fact["file"] and not (run / "attempts" / (fact["attempt"] or "") / fact["file"]).is_file()] == []


def test_the_verdict_holds_every_field_of_the_contract(crash: Run) -> None:
    check_verdict(crash[0])


def test_the_program_was_started_as_the_specification_says(crash: Run) -> None:
    run, _ = crash
    cpus = sorted(os.sched_getaffinity(0))
    for folder in sorted((run / "attempts").iterdir()):
        seen = json.loads((folder / "out/seen.json").read_text())
        attempt = json.loads((folder / "attempt.json").read_text())
        number, cell = str(int(folder.name[:4])), attempt["trial"]["cell"]
        port = next(word for word in seen["argv"] if word.startswith("port="))
        listed = f"cpus={seen['cpus'][0]}"
        assert seen["argv"] == [f"out={folder}/out", port, f"number={number}", listed, "braces={}", f"--mode={cell['mode']}"]
        assert 1024 <= int(port.removeprefix("port=")) < 65536
        assert seen["env"] == {"GREETING": f"hello from {number}", "SIZE": str(cell["size"]), "PYTHONUNBUFFERED": "1"}
        assert seen["cwd"] == str(run.parents[2] / "project/job")
        assert len(seen["cpus"]) == 1 and seen["cpus"][0] in cpus
        assert seen["nofile"] == [99, 99]


def test_each_attempt_has_a_fresh_copy_of_what_it_writes(crash: Run) -> None:
    run, _ = crash
    counts = {json.loads(path.read_text())["count"] for path in run.glob("attempts/*/out/seen.json")}
    assert (counts, (run.parents[2] / "project/job/cache/count").read_text()) == ({"0"}, "0")


# An ordinary user, who is only let through to an interpreter below /root.
ORDINARY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def without_user_namespaces() -> str:
    if not NO_RIGHTS or not CAN_DROP_RIGHTS:
        return "needs root and setpriv"
    probe = f"unshare -Um true && exec {sys.executable} -c ''"
    return subprocess.run([*ORDINARY, "sh", "-c", probe], capture_output=True, text=True).stderr


@pytest.mark.slow
@pytest.mark.skipif(bool(without_user_namespaces()), reason=f"no user namespaces here: {without_user_namespaces()}")
def test_an_ordinary_user_has_fresh_copies_too() -> None:
    """Without the right to mount, in a user namespace in which the program still sees its own user."""
    with tempfile.TemporaryDirectory() as place:  # pytest's folders are below one that is root's alone
        check_fresh_copies(Path(place))


def check_fresh_copies(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    command = ["sh", "-c", "read n < count; echo $n $(id -u); echo $((n + 1)) > count"]
    specification(tmp_path, {**PASS, "run": {"command": command, "writes": ["count"]}, "search": {"max_runs": 2}})
    for path in (tmp_path, tmp_path / "count"):
        os.chown(path, 65534, 65534)
    ended = matrix("run", "spec.yaml", cwd=tmp_path, prefix=["env", f"HOME={tmp_path}", *ORDINARY])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [observation.output_tail for observation in observations(only_run(tmp_path))] == [["0 65534"]] * 2
    assert (tmp_path / "count").read_text() == "0"


# ------------------------------------------------------------------ run: nothing wrong
def test_nothing_wrong_is_said_to_be_nothing_wrong(tmp_path: Path) -> None:
    """On a terminal, as the specification asks; and what is shorter than a sample is still measured."""
    program = "import sys; print('step 1', sys.stdout.isatty(), sys.argv[1:], flush=True)"
    content = {
        "run": {"command": ["python", "-c", program], "pty": True, "length": {"flag": "--max-steps"}},
        "matrix": {"mode": ["a", "b"]},
        "evidence": {"hook": False},
        "executor": {"jobs": 2},
    }
    specification(tmp_path, content)
    ended = matrix("run", "spec.yaml", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    run = only_run(tmp_path)
    check_verdict(run)
    found = verdict(run)
    assert (found.status, found.ranking[0].cause, found.fix, found.failures) == ("healthy", "healthy", None, [])
    assert found.crash_rate is not None and (found.crash_rate.low, found.crash_rate.high) < (0.01, 0.25)
    assert "healthy" in ended.stdout and "fix:" not in ended.stdout and not (run / "launch.sh").exists()
    seen = [one for one in observations(run) if one.trial.watched]
    assert {line.partition(", '--max-steps'")[0].rstrip("]") for o in seen for line in o.output_tail} == {"step 1 True ['--mode', 'a'"}
    assert {(each.what, each.why) for o in seen for each in o.not_collected} == {("hook", "switched off by the specification")}
    assert not list(run.glob("attempts/*/hook.jsonl"))
    assert any(o.memory.samples for o in seen)  # not each of them: on a loaded machine one may end before it is looked at
    assert found.observer is not None and found.observer.changed is False  # the one run that nothing watched survived too


def test_a_death_that_people_report_and_that_does_not_come_again_is_not_called_healthy(tmp_path: Path) -> None:
    """With the time used up after a few runs."""
    program = "import time; time.sleep(0.4); print('step 1')"
    content = {
        "run": {"command": ["python", "-c", program]},
        "matrix": {"mode": ["a", "b"]},
        "observed": [{"cell": {"mode": "a"}, "died": True, "step": 117}],
        "search": {"max_wall": "1.5s"},
        "executor": {"jobs": 1},
    }
    specification(tmp_path, content)
    ended = matrix("run", "spec.yaml", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    run = only_run(tmp_path)
    check_verdict(run)
    found = verdict(run)
    assert found.complete and 1 <= found.runs <= 5
    assert found.status != "healthy"


# ------------------------------------------------------------------ run: which cells
def test_the_full_strategy_runs_every_cell_that_the_rules_allow(tmp_path: Path) -> None:
    content = {
        "run": {"command": ["sh", "-c", "echo step 1; [ $MODE != bad ] || kill -ABRT $$"]},
        "matrix": {"mode": {"values": ["bad", "good"], "env": "MODE"}, "size": {"values": [1, 2, 3], "env": "SIZE"}},
        "exclude": [{"mode": "good", "size": 2}],
        "include": [{"mode": "good", "size": 9}],
        "executor": {"jobs": 1},
    }
    specification(tmp_path, content)
    ended = matrix("run", "spec.yaml", "--strategy", "full", "--set", "size=1,2,9", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    run = only_run(tmp_path)
    check_verdict(run)
    tested = Counter((o.trial.cell["mode"], o.trial.cell["size"]) for o in observations(run))
    assert set(tested) == {("bad", 1), ("bad", 2), ("bad", 9), ("good", 1), ("good", 9)}
    assert json.loads((run / "plan.json").read_text())["strategy"] == "full"


@pytest.mark.slow
def test_max_runs_is_a_limit_and_the_cpu_time_of_the_child_too(tmp_path: Path) -> None:
    content = {
        "run": {"command": ["python", "-c", "print('step 1', flush=True)\nwhile True: pass"]},
        "matrix": {"mode": ["a", "b"]},
        "limits": {"cpu_time": "1s", "core": 0},
        "executor": {"jobs": 1},
    }
    specification(tmp_path, content)
    ended = matrix("run", "spec.yaml", "--max-runs", "1", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    run = only_run(tmp_path)
    check_verdict(run)
    assert [(o.exit.signal, o.exit.core_dumped) for o in observations(run)] == [("SIGXCPU", False)]


# ------------------------------------------------------------------ several tools at once
def test_a_folder_in_use_is_refused_to_resume_and_a_plain_run_gets_its_own(tmp_path: Path) -> None:
    specification(tmp_path, {**PASS, "run": {"command": ["sh", "-c", "sleep 300"]}, "executor": {"jobs": 1}})
    first = start("run", "spec.yaml", cwd=tmp_path)
    second = None
    try:
        assert wait_until(lambda: len(list(tmp_path.glob("runs/spec/*/attempts/*/attempt.json"))) == 1)
        refused(matrix("run", "spec.yaml", "--resume", cwd=tmp_path), 3, [str(only_run(tmp_path).name), "in use by another run"])
        second = start("run", "spec.yaml", cwd=tmp_path)
        assert wait_until(lambda: len(list(tmp_path.glob("runs/spec/*/attempts/*/attempt.json"))) == 2)
        assert len(complete(tmp_path)) == 0 and len(list(tmp_path.glob("runs/spec/*/"))) == 2
    finally:
        for tool in filter(None, (first, second)):
            tool.send_signal(signal.SIGKILL)
            tool.communicate()
    assert wait_until(lambda: not left_by(first.pid) and not left_by(second.pid))


# ------------------------------------------------------------------ start-up
def test_help_lists_the_commands_without_a_heavy_import() -> None:
    code = "import sys; sys.argv = ['matrix', '--help']\nimport runpy\ntry: runpy.run_module('matrix', run_name='__main__')\n"
    code += "except SystemExit: pass\nprint([m for m in ('numpy', 'pandas', 'pydantic', 'rich', 'matplotlib') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
    assert all(name in ended.stdout for name in ("run", "plan", "report", "schema"))
