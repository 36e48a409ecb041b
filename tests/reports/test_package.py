"""Packages: what is in them, that they are the same each time, that they are safe to open, and that they replay elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.__main__ import main
from reports.folder import load
from reports.package import LeakFound, UnsafePackage, Wish, draft, mismatches, pack, unpack
from reports.package.choose import choose
from reports.redact import Redactor
from tests.reports.package_runs import aborting
from tests.reports.stories import STORIES

Pack = Callable[..., Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return aborting(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def minimal(run: Path) -> Path:
    result = command("package", str(run))
    assert result.exit_code == 0, result.output
    return run / "package-minimal.zip"


def command(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def text(package: Path, name: str) -> str:
    with zipfile.ZipFile(package) as packed:
        return packed.read(name).decode()


def names(package: Path) -> set[str]:
    with zipfile.ZipFile(package) as packed:
        return set(packed.namelist())


# ------------------------------------------------------------------ what is in it
def test_a_minimal_package_holds_what_an_expert_needs_first(minimal: Path, run: Path) -> None:
    chosen = choose(load(run))
    assert chosen.failing is not None and chosen.surviving is not None
    for folder in (chosen.failing, chosen.surviving):
        evidence = ("stdout.log", "stderr.log", "memory.csv", "stacks.txt", "maps.txt", "observation.json", "attempt.json")
        assert {f"attempts/{folder.id}/{name}" for name in evidence} <= names(minimal)
    top = {"SUMMARY.md", "report.html", "report.md", "spec.yaml", "verdict.json", "plan.json", "environment.json", "MANIFEST.json"}
    kit = {"reproduce.py", "scripts/isolate.sh", "scripts/monitor.py", "scripts/replay.json", "program/train.py", "program/helper.py"}
    assert top | kit | {"REDACTION.md"} <= names(minimal)


def test_the_survivor_of_the_package_is_the_nearest_that_went_the_furthest(run: Path) -> None:
    chosen = choose(load(run))
    assert chosen.failing is not None and chosen.failing.trial is not None and chosen.failing.trial.cell == {"bs": 32}
    assert chosen.surviving is not None and chosen.surviving.trial is not None and chosen.surviving.trial.cell["bs"] in (8, 16)


def test_the_cover_letter_is_one_page_with_question_verdict_doubts_and_what_is_asked(minimal: Path) -> None:
    summary = text(minimal, "SUMMARY.md")
    headings = [line for line in summary.splitlines() if line.startswith("## ")]
    assert headings == [f"## {title}" for title in (
        "The question", "The verdict so far", "The doubts", "What was tried", "What is asked of you", "Where to look",
    )]  # fmt: skip
    assert "Why does the job end with SIGABRT at step 2" in summary
    assert "supported, probability 80 %" in summary
    assert "Batches larger than 32 were not run." in summary
    assert len(summary.splitlines()) < 60 and len(summary) < 4000


def test_the_manifest_says_of_every_file_what_it_is_and_of_the_rest_why_it_is_not_there(minimal: Path) -> None:
    manifest = json.loads(text(minimal, "MANIFEST.json"))
    assert {entry["name"] for entry in manifest["files"]} == names(minimal) - {"MANIFEST.json"}
    assert all(len(entry["sha256"]) == 64 and entry["collector"] and entry["status"] == "collected" for entry in manifest["files"])
    logs = [entry for entry in manifest["files"] if entry["name"].endswith("stdout.log")]
    assert {entry["duration_s"] for entry in logs} == {1.0}
    missing = {entry["what"]: entry["why"] for entry in manifest["not_collected"]}
    assert "--extended adds all" in missing["2 other attempts"]
    assert any(what.endswith("/out/") for what in missing)


def test_the_environment_names_the_packages_of_the_diagnosed_interpreter(minimal: Path) -> None:
    sections = {entry["name"]: entry for entry in json.loads(text(minimal, "environment.json"))}
    packages = sections["interpreter"]["value"]["packages"]
    assert any(package.lower().startswith("pytest==") for package in packages)
    assert sections["recorded with the run"]["value"]["kernel"] == "6.1.0-28-amd64"
    assert sections["machine"]["status"] == "not collected"  # the story's machine is another one than this


@pytest.mark.slow
def test_an_extended_package_adds_every_attempt_the_packages_and_earlier_specifications(run: Path) -> None:
    older = run.parent / "20260101-000000"
    older.mkdir()
    (older / "spec.yaml").write_text("name: aborting\n")
    try:
        assert command("package", str(run), "--extended").exit_code == 0
        held = names(run / "package-extended.zip")
        assert all(any(name.startswith(f"attempts/{path.name}/") for name in held) for path in (run / "attempts").iterdir())
        assert {"history/20260101-000000-spec.yaml", "history/20260102-030405-spec.yaml"} <= held
        assert "pip-freeze.txt" in held or "pip-freeze.txt" in text(run / "package-extended.zip", "MANIFEST.json")
    finally:
        shutil.rmtree(older)


def test_a_core_is_packed_only_when_it_is_asked_for(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    folder = sorted((copy / "attempts").iterdir())[0]
    (folder / "core.4101").write_bytes(b"\x7fELF" + b"\0" * 4096)
    listed = command("package", str(copy), "--dry-run").output
    assert "core.4101: a core holds the whole memory of a process" in listed
    assert f"attempts/{folder.name}/core.4101  (kernel)" in command("package", str(copy), "--dry-run", "--cores").output


def test_what_does_not_fit_below_the_cap_is_left_out_and_named(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    folder = sorted((copy / "attempts").iterdir())[0]
    (folder / "stdout.log").write_text("step\n" * 400_000)
    assert command("package", str(copy), "--max-size", "1").exit_code == 0
    left_out = [
        entry for entry in json.loads(text(copy / "package-minimal.zip", "MANIFEST.json"))["not_collected"] if entry["status"] == "left out"
    ]
    assert [entry["what"] for entry in left_out] == [f"attempts/{folder.name}/stdout.log"]
    assert "--max-size" in left_out[0]["why"] and left_out[0]["size"] == 2_000_000


def test_a_dry_run_lists_and_writes_nothing(run: Path, tmp_path: Path) -> None:
    result = command("package", str(run), "--dry-run", "--out", str(tmp_path / "p.zip"))
    assert result.exit_code == 0 and "SUMMARY.md" in result.output and "not packed:" in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_same_run_gives_the_same_bytes(minimal: Path, run: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    assert command("package", str(run), "--out", str(again)).exit_code == 0
    assert again.read_bytes() == minimal.read_bytes()


# ------------------------------------------------------------------ ordinary content
ORDINARY = {
    "a rule of underscores": ("stdout.log", "session ____________________\n"),
    "signs only": ("stdout.log", "token = --------------------====================////\n"),
    "a template": ("train.py", 'x = 1\nheader = f"Cookie: session={x}"\nurl = "token=%s" % x\n'),
    "a password that is a word of ours": ("stdout.log", "DB_PASSWORD=python3\nAPI_TOKEN=reproduce.py\nSECRET_KEY=monitor.py\n"),
    "a secret that ends nowhere": ("stderr.log", 'password="' + "x" * 3000 + "\n-----BEGIN PRIVATE KEY-----\nabc\n"),
}


@pytest.mark.parametrize("content", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_content_never_stops_a_package(content: tuple[str, str], run: Path, tmp_path: Path) -> None:
    root = shutil.copytree(run.parents[2], tmp_path / "job")
    copy = root / run.relative_to(run.parents[2])
    folder = sorted((copy / "attempts").iterdir())[0]
    record = json.loads((folder / "attempt.json").read_text())
    (folder / "attempt.json").write_text(json.dumps({**record, "cwd": str(root)}))
    name, text_ = content
    target = root / name if name.endswith(".py") else folder / name
    target.write_text(text_ + (target.read_text() if name.endswith(".py") else ""))
    result = command("package", str(copy))
    assert result.exit_code == 0, result.output
    package = copy / "package-minimal.zip"
    assert mismatches(package) == []
    kit = Path(__file__).parents[2] / "reports" / "package" / "kit"
    assert text(package, "reproduce.py") == (kit / "reproduce.py").read_text()
    if name == "train.py":
        assert text_ in text(package, "program/train.py")


def test_a_pipe_among_the_logs_is_named_and_not_read(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    folder = sorted((copy / "attempts").iterdir())[0]
    os.mkfifo(folder / "worker.log")
    (folder / "stderr.log").unlink()
    os.mkfifo(folder / "stderr.log")
    words = [sys.executable, "-m", "matrix", "package", str(copy)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    missing = {gap["what"]: gap["why"] for gap in json.loads(text(copy / "package-minimal.zip", "MANIFEST.json"))["not_collected"]}
    for name in ("worker.log", "stderr.log"):
        assert missing[f"attempts/{folder.name}/{name}"] == "it is a pipe, a socket or a device"


# ------------------------------------------------------------------ code
def test_packed_code_is_the_code_that_ran_and_verify_says_when_it_is_not(run: Path, tmp_path: Path) -> None:
    root = shutil.copytree(run.parents[2], tmp_path / "job")
    copy = root / run.relative_to(run.parents[2])
    for record in copy.glob("attempts/*/attempt.json"):
        record.write_text(json.dumps({**json.loads(record.read_text()), "cwd": str(root)}))
    code = (
        "import threading\nfrom pathlib import Path\nHOME = Path.home()\nlocal = threading.local()\n"
        "class Layer:\n    private = internal = None\nLayer.internal = Layer.private\napi_key = 'sk-abcDEF123456abcDEF123456abcDEF12'\n"
    )
    (root / "helper.py").write_text(code + (root / "helper.py").read_text())
    assert command("package", str(copy)).exit_code == 0
    package = copy / "package-minimal.zip"
    packed = text(package, "program/helper.py")
    assert packed.startswith(code.partition("api_key")[0]) and "sk-abc" not in packed
    compile(packed, "helper.py", "exec")
    forged = tmp_path / "forged.zip"
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(forged, "w") as sink:
        changed = packed.replace("Path.home()", "REDACTED-host-2()").encode()
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename == "MANIFEST.json":
                manifest = json.loads(data)
                held = next(file for file in manifest["files"] if file["name"] == "program/helper.py")
                held |= {"size": len(changed), "sha256": hashlib.sha256(changed).hexdigest()}
                data = json.dumps(manifest).encode()
            sink.writestr(entry.filename, changed if entry.filename == "program/helper.py" else data)
    result = command("verify", str(forged))
    assert result.exit_code == 1 and "program/helper.py is not the code that ran" in result.output


# ------------------------------------------------------------------ damage
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_package_is_named_so_and_never_ends_in_a_traceback(data: st.DataObject, minimal: Path, tmp_path: Path) -> None:
    whole = minimal.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    place = st.one_of(st.integers(0, len(whole) - 1), st.integers(directory, len(whole) - 1))
    flips = data.draw(st.lists(st.tuples(place, st.integers(1, 255)), min_size=1, max_size=4))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(whole))))
    damaged = bytearray(whole)
    for at, change in flips:
        damaged[at] ^= change
    package, opened = tmp_path / "damaged.zip", tmp_path / "opened"
    package.write_bytes(damaged[:cut])
    shutil.rmtree(opened, ignore_errors=True)
    for words in (("verify", str(package)), ("open", str(package), "--to", str(opened))):
        result = command(*words)
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code in (0, 1, 2) and "Traceback" not in result.output
        assert result.exit_code == 0 or len(result.output) > 20


def test_a_forged_manifest_is_refused_in_one_sentence(minimal: Path, tmp_path: Path) -> None:
    entry = {"name": "SUMMARY.md", "size": "12", "sha256": 3, "collector": "x", "duration_s": None}
    listed = [json.dumps({"schema": "matrix.package/1", "files": [file]}) for file in (entry, 7, {})]
    manifests = ["[" * 100_000, "[]", "{}", *listed]
    for number, body in enumerate(manifests):
        forged = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(minimal) as source, zipfile.ZipFile(forged, "w") as sink:
            sink.writestr("SUMMARY.md", source.read("SUMMARY.md"))
            sink.writestr("MANIFEST.json", body)
        result = command("verify", str(forged))
        assert result.exit_code == 1 and "MANIFEST.json" in result.output, body[:80]


# ------------------------------------------------------------------ verify
def test_verify_finds_an_intact_package_intact(minimal: Path) -> None:
    assert mismatches(minimal) == []
    assert command("verify", str(minimal)).exit_code == 0


@pytest.mark.parametrize("what", ["changed", "missing", "added"])
def test_verify_names_what_differs(minimal: Path, tmp_path: Path, what: str) -> None:
    forged = tmp_path / "forged.zip"
    with zipfile.ZipFile(minimal) as source, zipfile.ZipFile(forged, "w") as sink:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename == "verdict.json":
                if what == "missing":
                    continue
                data = data.replace(b"0.8", b"0.9") if what == "changed" else data
            sink.writestr(entry.filename, data)
        if what == "added":
            sink.writestr("extra.txt", "x")
    result = command("verify", str(forged))
    assert result.exit_code == 1
    said = {
        "changed": "verdict.json has another content",
        "missing": "verdict.json is missing",
        "added": "extra.txt is not in the manifest",
    }
    assert said[what] in result.output


@pytest.mark.parametrize("word", ["verify", "open"])
def test_what_is_no_package_is_refused_in_one_sentence(word: str, tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_text("no")
    for path in (tmp_path / "no.zip", tmp_path / "nothing.zip", tmp_path):
        result = command(word, str(path))
        assert result.exit_code == 2 and "give the .zip file" in result.output and "Traceback" not in result.output


# ------------------------------------------------------------------ open
def test_open_unpacks_and_shows_where_the_report_is(minimal: Path, tmp_path: Path) -> None:
    result = command("open", str(minimal), "--to", str(tmp_path / "opened"))
    assert result.exit_code == 0 and Path(result.output.strip()) == tmp_path / "opened" / "report.html"
    assert (tmp_path / "opened" / "report.html").read_text().startswith("<!")
    assert command("open", str(minimal), "--to", str(tmp_path / "opened")).exit_code == 2


def hostile(path: Path, name: str, data: bytes = b"x", mode: int = 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as sink:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        sink.writestr(entry, data)
    return path


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("../outside.txt", 0o644), ("a/../../outside.txt", 0o644), ("/etc/outside.txt", 0o644), ("C:/outside.txt", 0o644),
        ("a\\..\\outside.txt", 0o644), ("./a.txt", 0o644), ("a//b.txt", 0o644), ("link", stat.S_IFLNK | 0o777),
        ("pipe", stat.S_IFIFO | 0o644),
        ("folder/", stat.S_IFDIR | 0o755),
    ],
)  # fmt: skip
def test_open_refuses_paths_that_lead_outside_and_anything_but_files(name: str, mode: int, tmp_path: Path) -> None:
    package = hostile(tmp_path / "p.zip", name, b"../../etc/passwd", mode)
    with pytest.raises(UnsafePackage):
        unpack(package, tmp_path / "opened" / "deep")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["p.zip"]
    assert command("open", str(package), "--to", str(tmp_path / "opened")).exit_code == 2


def test_open_refuses_a_bomb_before_it_writes_a_byte(tmp_path: Path) -> None:
    package = hostile(tmp_path / "p.zip", "zeros.txt", b"\0" * (40 << 20))
    result = command("open", str(package), "--to", str(tmp_path / "opened"))
    assert result.exit_code == 2 and "bomb" in result.output
    assert not (tmp_path / "opened").exists()


def test_open_refuses_two_files_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as sink:
        sink.writestr("a.txt", "1")
        sink.writestr("A.txt", "2")
    with pytest.raises(UnsafePackage, match="twice"):
        unpack(tmp_path / "p.zip", tmp_path / "opened")


def test_an_entry_that_is_larger_than_it_says_is_not_written_on(tmp_path: Path) -> None:
    package = hostile(tmp_path / "p.zip", "a.txt", b"x" * 1000)
    data = bytearray(package.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # the unpacked size in both headers
        at = data.index(signature) + offset
        data[at : at + 4] = (10).to_bytes(4, "little")
    package.write_bytes(data)
    with pytest.raises((UnsafePackage, ValueError)):
        unpack(package, tmp_path / "opened")
    assert (tmp_path / "opened" / "a.txt").stat().st_size <= 10


# ------------------------------------------------------------------ the last look
def test_a_package_that_still_holds_a_known_secret_is_not_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redaction that lets one file through."""
    copy = shutil.copytree(run, tmp_path / "run")
    folder = sorted((copy / "attempts").iterdir())[0]
    (folder / "stderr.log").write_text("login with s3cr3t-Value-77\n")
    whole = Redactor.redact

    def careless(self: Redactor, name: str, source: Callable[[], BinaryIO]) -> Iterator[bytes]:
        return iter([source().read()]) if name.endswith("stderr.log") else whole(self, name, source)

    monkeypatch.setattr(Redactor, "redact", careless)
    environment = {"SERVICE_PASSWORD": "s3cr3t-Value-77"}
    found = draft(copy, Wish(), environment=environment)
    with pytest.raises(LeakFound, match=r"stderr\.log") as caught:
        pack(found, tmp_path / "p.zip", environment=environment)
    assert "s3cr3t" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# ------------------------------------------------------------------ replay, without this tool
def test_a_package_replays_in_a_bare_environment_with_only_python(minimal: Path, tmp_path: Path) -> None:
    unpack(minimal, tmp_path / "elsewhere")
    home = tmp_path / "home of another"
    home.mkdir()
    bare = ["env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin", sys.executable, "-I", "-S", "reproduce.py"]
    done = subprocess.run([*bare, "--tries", "1"], cwd=tmp_path / "elsewhere", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failing: bs=32; recorded: SIGABRT" in done.stdout and "run 1 of at most 1: SIGABRT" in done.stdout
    replays = tmp_path / "elsewhere" / "replays"
    ending = json.loads((replays / "failing-01" / "ending.json").read_text())
    assert (ending["signal"], ending["ended_by"]) == ("SIGABRT", "itself")
    assert (replays / "surviving-01" / "out" / "model.txt").read_text() == "trained"
    assert "step 2" in (replays / "failing-01" / "stdout.log").read_text()
    assert (replays / "surviving-01" / "memory.csv").read_text().startswith("time,step,pid,role,rank,device,kind,bytes\n")


def test_a_replay_that_ends_otherwise_says_so(minimal: Path, tmp_path: Path) -> None:
    unpack(minimal, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "program" / "helper.py").write_text("def steps():\n    return 1\n")
    done = subprocess.run(
        [sys.executable, "reproduce.py", "failing", "--tries", "1"], cwd=tmp_path / "elsewhere", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and "not as recorded" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a memory group here")
def test_what_isolates_a_replay_leaves_nothing_behind(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "reports" / "package" / "kit" / "isolate.sh"
    program = "import os; print(os.environ['TMPDIR']); print(os.environ['REPLAY_GROUP'])"
    done = subprocess.run(
        ["sh", str(script), "-m", str(200 << 20), sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    temp, group = [*done.stdout.splitlines(), "", ""][:2]
    assert done.returncode == 0 and temp.startswith("/tmp/replay-") and not Path(temp).exists()
    assert not group or not Path(group).exists()


@pytest.mark.slow
@pytest.mark.parametrize("story", sorted(STORIES))
def test_every_story_can_be_packed_also_one_without_a_verdict_or_a_death(story: str, tmp_path: Path) -> None:
    run = tmp_path / "runs" / story / "20260102-030405"
    run.mkdir(parents=True)
    STORIES[story](run)
    (run / "attempts").mkdir(exist_ok=True)  # as every run folder has from its first moment
    result = command("package", str(run), "--extended")
    assert result.exit_code == 0, result.output
    assert mismatches(run / "package-extended.zip") == []
    assert text(run / "package-extended.zip", "SUMMARY.md").count("## ") == 6
