"""Redaction: nothing planted is left, the technical rest is untouched, and what a reader needs to follow stays readable."""

from __future__ import annotations

import io
import json
import random
import re
import shlex
import struct
import subprocess
import sys
import urllib.parse
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import markupsafe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planted_run import plant, seen_again
from benchmarks.planted_secrets import KINDS, LINES, core, private_key, value
from benchmarks.run_folder import write_run
from benchmarks.technical_tokens import corpus
from reports.package import Wish, draft, pack
from reports.redact import Redactor, leaks, names_of
from reports.redact.glance import may_hold_a_form
from reports.redact.images import without_metadata
from reports.redact.redactor import BLOCK_CHARS, blocks
from reports.redact.shapes import shaped
from reports.render_markdown import escape

ANSI = re.compile(r"\x1b\[[0-9;]*m")
GITHUB = "ghp_" + "a1B2" * 9


def redacted(text: str, name: str = "out.log", *, users: tuple[str, ...] = (), hosts: tuple[str, ...] = (), **env: str) -> str:
    return together({name: text}, users=users, hosts=hosts, **env)[name]


def together(files: dict[str, str], *, users: tuple[str, ...] = (), hosts: tuple[str, ...] = (), **env: str) -> dict[str, str]:
    """The files of one package."""
    redactor = Redactor(names_of(users, hosts), env)
    sources = {name: text.encode(errors="surrogateescape") for name, text in files.items()}
    for name, data in sources.items():
        redactor.learn(name, lambda data=data: io.BytesIO(data))  # type: ignore[misc]
    return {
        name: b"".join(redactor.redact(name, lambda data=data: io.BytesIO(data))).decode(errors="surrogateescape")  # type: ignore[misc]
        for name, data in sources.items()
    }


# ------------------------------------------------------------------ planted secrets
@pytest.mark.parametrize("way", sorted(LINES))
def test_no_kind_of_key_is_left_however_a_line_says_it(way: str) -> None:
    chance = random.Random(way)
    secrets, lines = {}, []
    for kind, (name, _) in KINDS.items():
        secret = value(kind, chance)
        if way != "header" or not re.search("://|[;=]", secret):
            secrets[kind] = core(secret)
            lines += [LINES[way](name, secret), "step 12 loss=2.31"]
    text = redacted("\n".join(lines) + "\n")
    plain = ANSI.sub("", text).replace("\n", "")
    assert len(secrets) > 60
    assert [kind for kind, secret in secrets.items() if secret in plain] == []
    assert text.count("step 12 loss=2.31") == len(secrets)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_no_planted_secret_of_any_channel_is_in_a_finished_package(tmp_path: Path, seed: int) -> None:
    run = write_run(tmp_path / "job/runs/many/20260102-030405", 3)
    planted = plant(run, seed)
    found = draft(run, Wish(kind="extended"), environment=planted.environment)
    package = pack(found, tmp_path / "p.zip", environment=planted.environment)
    assert len({kind for kind, _ in planted.secrets}) >= 60 and len(planted.channels) > 20
    assert seen_again(package, planted) == []


@pytest.mark.slow
def test_an_outside_scanner_finds_nothing_planted_either(tmp_path: Path) -> None:
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    run = write_run(tmp_path / "job/runs/many/20260102-030405", 2)
    planted = plant(run, 13)
    package = pack(draft(run, Wish(), environment=planted.environment), tmp_path / "p.zip", environment=planted.environment)
    before, after = tmp_path / "before.log", tmp_path / "after"
    before.write_text("\n".join(LINES["exported"](name, secret) for name, secret in planted.environment.items()))
    with zipfile.ZipFile(package) as packed:
        packed.extractall(after)
    values = set(planted.secrets.values())
    with default_settings():
        assert sum(1 for _ in scan_file(str(before))) > 60  # it can find such secrets
        texts = [path for path in sorted(after.rglob("*")) if path.is_file() and path.suffix not in (".html", ".svg", ".csv", ".png")]
        found = [secret.secret_value or "" for path in texts for secret in scan_file(str(path))]
    assert [text for text in found if any(known in text or (len(text) > 8 and text in known) for known in values)] == []


def test_the_quick_look_says_yes_to_every_kind_of_key_that_a_form_finds() -> None:
    chance = random.Random(3)
    texts = [value(kind, chance) for kind in KINDS for _ in range(20)] + [f"x: Basic {GITHUB[4:20]}\n", private_key(chance)]
    shown = [text for text in texts if list(shaped(text))]
    assert len(shown) > 1000
    assert [text for text in shown if not may_hold_a_form(f"step 1\n{text} of 2\n".encode())] == []
    assert not may_hold_a_form(b"epoch 3: 12%| | 12/400 [00:12<01:02, 46.1it/s, loss=2.31]\n")


# ------------------------------------------------------------------ the technical rest
@pytest.mark.slow
def test_at_most_two_in_a_hundred_technical_tokens_of_this_machine_are_touched() -> None:
    before = corpus()
    after = together(before)
    lost = sum((Counter(text.split()) - Counter(after[name].split())).total() for name, text in before.items())
    assert len(before) >= 8
    assert lost <= 0.02 * sum(len(text.split()) for text in before.values())


@pytest.mark.parametrize(
    "line",
    [
        "TOKENIZERS_PARALLELISM=false max_tokens=512 pad_token=<pad> eos_token=</s> tokens/s=51234.5",
        "libgomp-a34b3233.so.1.0.0 libscipy_openblas64_-6bb31eeb.so build-id 8f3aa1b2c3d4e5f60718293a4b5c6d7e8f901234",
        "#3 0x00007f8aa2c08b80 in _ZN5faiss9IndexFlat6searchElPKflPfPlPKNS_16SearchParametersE () at IndexFlat.cpp:31",
        "torch-2.13.0+cu126-cp311-cp311-manylinux_2_28_x86_64.whl nvidia-cublas-cu12==12.4.5.8 libcudart.so.12.4.127",
        "RuntimeError: DataLoader worker (pid 4105) is killed by signal: Killed.",
        "KeyError: 'token' unexpected token: end primary_key=id sort_key=step",
        "memcpy@@GLIBC_2.14 pthread_create@GLIBC_2.34 127.0.0.1:29500 0.0.0.0 255.255.255.0 ::1",
        "PWD=/srv/job PATH=/usr/bin:/bin SSH_KEY_FILE=/etc/ssl/key.pem password=None",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/mx-7-1a2b3c4d,task=python,pid=7,uid=1000",
    ],
)
def test_what_diagnosis_lives_on_stays_as_it_is(line: str) -> None:
    assert redacted(line + "\n") == line + "\n"


# ------------------------------------------------------------------ any text at all
PIECES = st.sampled_from(
    ["password", "token=", "session ", "_" * 20, "=" * 20, "/" * 20, "+/" * 12, "{x}", "\\", '"', "'", "\x1b[31m", "\r", "\n",
     "-----BEGIN PRIVATE KEY-----", "@", "a.b", "://", "/home/", ".local", "10.0.0.1", "é", "\udc80", "\0", GITHUB, GITHUB[:9],
     "Bearer ", "eyJ", "  ", ":", "-", "0" * 20, "Aa1" * 9, "-u ", "İ"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join), st.sampled_from(["out.log", "a.json", "a.yaml", "a.py", "a.toml", "a.sh", "report.md"]))
def test_no_text_stops_the_redaction_and_no_key_of_it_stays(text: str, name: str) -> None:
    after = redacted(text, name)
    assert len(re.findall(rf"(?<![A-Za-z0-9]){GITHUB}(?![A-Za-z0-9_])", ANSI.sub("", after))) == 0


LONG_LINES = {
    "options": "password abc ", "a sentence": "the token was not found and the password is wrong, ", "mailboxes": "a@", "at": "@",
    "different passwords": "",
    "keys": f"{GITHUB} ", "begins": "-----BEGIN PRIVATE KEY----- ", "named": 'token: "ab12cd34ef", ', "one word": "x",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG_LINES)
def test_a_line_of_two_megabytes_is_redacted(kind: str) -> None:
    """What takes time by the square of a line's length needs more than an hour here, and seconds where it does not."""
    program = (
        "import io, sys; from tests.reports.test_redact import LONG_LINES, redacted; kind = sys.argv[1]; size = 2 << 20\n"
        "piece = LONG_LINES[kind]; many = ' '.join(f'password=Ab{number}xY{number}' for number in range(size // 22))\n"
        "print(len(redacted(piece * (size // len(piece)) if piece else many)))"
    )
    done = subprocess.run([sys.executable, "-c", program, kind], capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2])
    assert done.returncode == 0 and int(done.stdout) > 1000, done.stderr


# ------------------------------------------------------------------ tokens
def test_the_same_secret_is_the_same_token_in_every_file_and_another_one_is_another() -> None:
    other = "ghp_" + "z9Y8" * 9
    files = together({"a.log": f"x {GITHUB} y {other}", "b.json": json.dumps({"note": f"used {GITHUB}"}), "c.md": f"bare {GITHUB}"})
    assert files["a.log"] == "x REDACTED-github-token-1 y REDACTED-github-token-2"
    assert files["b.json"] == '{"note": "used REDACTED-github-token-1"}' and files["c.md"] == "bare REDACTED-github-token-1"


def test_a_password_that_one_file_names_is_taken_out_where_it_stands_bare_in_another() -> None:
    files = together({"env.json": '{"DB_PASSWORD": "Tr0ub4dor"}', "out.log": "login with Tr0ub4dor failed\n"})
    assert files["out.log"] == "login with REDACTED-password-1 failed\n"


def test_a_secret_of_the_packing_environment_is_taken_out_of_logs() -> None:
    assert redacted("sent s3cr3t-Value\n", MY_API_TOKEN="s3cr3t-Value") == "sent REDACTED-named-secret-1\n"


def test_a_short_password_goes_where_it_is_named_and_no_ordinary_word_is_destroyed() -> None:
    files = together({"hook.jsonl": '{"kind": "env", "name": "DB_PASSWORD", "value": "model"}\n', "out.log": "saving the model\n"})
    assert json.loads(files["hook.jsonl"])["value"].startswith("REDACTED-")
    assert files["out.log"] == "saving the model\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"argv": ["x", "--password", "hunter"], "env": {"API_KEY": "ab c\"d\\e"}, "deep": [{"secret": "s1 s2"}]})),
        ("a.yaml", "run:\n  env:\n    DB_PASSWORD: hunter22\n    LICENSE_KEY: |\n"
            "      line-one-of-the-key-1a2b\n      line-two-of-the-key-3c4d\n"),
        ("a.sh", "export DB_PASSWORD='two words'\ncurl -H 'Authorization: Bearer abcdefgh12345678' https://x.example.com\n"),
        ("a.log", "machine h login me password pa55word\n"),
    ],
)  # fmt: skip
def test_the_structure_of_a_document_gives_its_secrets_away(name: str, text: str) -> None:
    after = redacted(text, name)
    for secret in ("hunter", "ab c", "s1 s2", "line-one", "line-two", "two words", "abcdefgh12345678", "pa55word"):
        assert secret not in after
    if name == "a.json":
        json.loads(after)


def test_a_secret_is_known_in_every_spelling_that_our_own_files_use() -> None:
    secret = "p$a*s'w\"o<r>d&7_x"
    texts = [json.dumps(secret), str(markupsafe.escape(secret)), escape(secret), shlex.quote(secret), urllib.parse.quote(secret, safe="")]
    for text in texts:
        assert redacted(f"at {text} end\n", SERVICE_PASSWORD=secret).count("REDACTED-named-secret-1") == 1, text


# ------------------------------------------------------------------ cut in two
def test_a_secret_is_found_through_colours_and_over_a_line_end() -> None:
    coloured = "".join(f"\x1b[3{number % 7}m{letter}\x1b[0m" for number, letter in enumerate(GITHUB))
    text = redacted(f"a {coloured} b\nc {GITHUB[:20]}\n{GITHUB[20:]} d\n")
    assert ANSI.sub("", text) == "a REDACTED-github-token-1 b\nc REDACTED-github-token-1 d\n"


def broken(name: str, secret: str, at: int, width: int) -> str:
    """`NAME=secret` at the end of a log line whose first line end falls `at` characters behind the begin of the name."""
    room = width - at
    text = f"[2026-01-02 03:04:05] INFO {'-' * width}"[: room - 1] + " " * (room > 0) + f"{name}={secret}"
    return "\n".join(text[start : start + width] for start in range(0, len(text), width))


def halves(secret: str) -> tuple[str, ...]:
    half = len(secret) // 2
    return (secret[:half], secret[half:]) if half >= 10 else (secret,)


@pytest.mark.parametrize("width", [72, *(pytest.param(width, marks=pytest.mark.nightly) for width in (40, 60, 80, 132))])
def test_a_key_goes_wherever_the_edge_of_a_terminal_cuts_its_name_or_itself(width: int) -> None:
    left, lost, tried = [], 0, 0
    for kind, (name, _) in KINDS.items():
        chance = random.Random(f"{width} {kind}")
        for at in range(1, min(width, len(f"{name}={value(kind, chance)}"))):
            secret = value(kind, chance)
            text = redacted(f"{broken(name, secret, at, width)}\nstep 1 loss=2.3\n")
            left += [(kind, at)] if any(half in text or half in text.replace("\n", "") for half in halves(core(secret))) else []
            lost += "step 1 loss=2.3" not in text
            tried += 1
    assert tried > 4000 and left == []
    assert lost <= tried / 1000  # a key may end with the line's last character and the next line look like more of it


@pytest.mark.parametrize(
    "lines",
    [
        "2026-01-02 03:04:05 INFO trainer: the tokenizer has written its new max_\ntokens=512 lr=0.1 key=a\n",
        "2026-01-02 03:04:05 WARNING loader: this run has no value for its api_key\nstep=12 loss=2.31\n",
        "2026-01-02 03:04:05 INFO downloading https://example.com:443/models/bert\nuser@3 of 12\n",
        "2026-01-02 03:04:05 INFO loaded libscipy_openblas64_-6bb31eeb.so build-id 8f3aa1b2c3d4e5f6\n0718293a4b5c6d7e8f901234\n",
        "2026-01-02 03:04:05 INFO rank 0 waits for the others at 127.0.0.1:29500\nEpoch 3: 100%|####| 12/12\n",
    ],
)
def test_lines_that_only_happen_to_stand_below_each_other_are_not_joined(lines: str) -> None:
    assert redacted(lines) == lines


@pytest.mark.parametrize("title", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_goes_whole_also_when_the_log_ends_within_it(title: str) -> None:
    key = private_key(random.Random(5), title)
    assert redacted(f"a\n{key}\nb\n") == "a\nREDACTED-private-key-1\nb\n"
    assert redacted("a\n" + key[:400]).startswith("a\nREDACTED-private-key-1")
    assert key.splitlines()[3] not in redacted(json.dumps({"text": key}), "a.json")


@settings(max_examples=15)
@given(st.integers(min_value=-200, max_value=60))
def test_a_secret_at_the_edge_of_a_block_is_found(offset: int) -> None:
    head = "step 1 loss=2.31\n" * (BLOCK_CHARS // 17 + 2)
    at = BLOCK_CHARS - (1 << 14) + offset
    text = head[:at] + f"\nkey {GITHUB}\n" + head[at : at + (1 << 15)]
    assert [block for block in blocks(io.BytesIO(text.encode())) if GITHUB[:8] in block and GITHUB not in block] == []


def test_bytes_that_are_no_text_come_out_as_they_went_in() -> None:
    data = b"\xff\xfe\0step 1\r\n\x1b[2K\xe9" * 50
    redactor = Redactor(names_of([], []))
    assert b"".join(redactor.redact("x.log", lambda: io.BytesIO(data))) == data


# ------------------------------------------------------------------ who and where
def test_names_addresses_and_mailboxes_of_people_and_machines_go() -> None:
    text = (
        "jdoe@gpu-node-17:~$ ssh jane@login.cluster.local\nloaded /home/jdoe/x from 10.0.3.17 and fe80::1ff:fe23:4567:890a\n"
        "mail jane.doe@example.org; MASTER_ADDR=trainbox7 mac 52:54:00:ab:cd:ef gpu-node-17 again\n"
    )
    after = redacted(text, users=("jdoe",), hosts=("gpu-node-17.lab.example.com",))
    for gone in ("jdoe", "jane", "gpu-node-17", "login.cluster", "10.0.3.17", "fe80::", "example.org", "trainbox7", "52:54:00"):
        assert gone not in after
    assert "loaded /home/REDACTED-user-1/x from REDACTED-ip-1 and" in after


def test_hosts_go_with_their_domains_and_addresses_with_their_ports() -> None:
    text = (
        "postgres://u:pw12345x@db.internal:5432/x git@gitlab.corp:a/b.git [2001:db8::1]:29500 [fe80::1ff:fe23:4567:890a]:29500 fd00::17\n"
        "HOSTNAME=gpu7.lab.example.com then gpu7 and gpu8.lab.example.com and ::ffff:10.0.0.3\n"
    )
    after = redacted(text)
    for gone in ("db.internal", "gitlab.corp", "2001:db8", "fe80", "fd00", "gpu7", "gpu8", "lab.example", "10.0.0.3", "pw12345x"):
        assert gone not in after, gone
    assert ":5432/x" in after and after.count(":29500") == 2
    kept = "c10::detail::x ab::cd 12:34:56 at::add c10::d ::1 std::abc dead::beef_x\n"
    assert redacted(kept) == kept


def test_a_path_keeps_its_shape_with_its_spaces_and_foreign_letters_to_be_seen() -> None:
    after = redacted('open("/home/jörg müller/my data/züge.npz")\nC:\\Users\\anna\\x.npz\n/root/x /home/ubuntu/y\n')
    assert after == (
        'open("/home/REDACTED user-1-é/my data/züge.npz")\nC:\\Users\\REDACTED-user-2\\x.npz\n/root/x /home/ubuntu/y\n'
    )  # fmt: skip


# ------------------------------------------------------------------ images and binaries
def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_a_picture_loses_what_it_says_beside_the_picture() -> None:
    picture = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")
    start = b"\x89PNG\r\n\x1a\n"
    told = start + picture[:25] + chunk(b"tEXt", b"Author\0jdoe") + chunk(b"eXIf", b"MM place") + picture[25:] + b"trailing"
    assert without_metadata(told) == start + picture
    jpeg = b"\xff\xd8\xff\xe0\x00\x04JF\xff\xe1\x00\x08Exif12\xff\xfe\x00\x06jdoe\xff\xda\x00\x02rest"
    assert without_metadata(jpeg) == b"\xff\xd8\xff\xe0\x00\x04JF\xff\xda\x00\x02rest"
    assert without_metadata(b"<svg><metadata><x>jdoe</x></metadata><g/><!-- at host --></svg>") == b"<svg><g/></svg>"
    assert without_metadata(b"no image") == b"no image"


def test_a_binary_keeps_its_length_when_a_secret_is_taken_out() -> None:
    redactor = Redactor(names_of([], []), {"API_TOKEN": "s3cr3t-Value"})
    assert redactor.mask("core", b"\x7fELF\0s3cr3t-Value\0tail") == b"\x7fELF\0XXXXXXXXXXXX\0tail"


# ------------------------------------------------------------------ the last look
@pytest.mark.parametrize("said", ["x s3cr3t-Value y", "x s3cr3\x1b[0mt-Value", "x s3cr3t-\nValue", f"x {GITHUB}"])
def test_the_last_look_finds_what_was_left_and_does_not_repeat_it(tmp_path: Path, said: str) -> None:
    redactor = Redactor(names_of([], []), {"API_TOKEN": "s3cr3t-Value"})
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as packed:
        packed.writestr("clean.txt", "nothing here REDACTED-github-token-1")
        packed.writestr("left.txt", said)
    found = leaks(tmp_path / "p.zip", redactor.vault)
    assert [leak.member for leak in found] == ["left.txt"]
    assert "s3cr3t" not in str(found) and GITHUB not in str(found)
