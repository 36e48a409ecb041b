"""A run folder with a secret of every kind in every place that a run may keep one; each place has values of its own."""

from __future__ import annotations

import dataclasses
import html
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.planted_secrets import KINDS, LINES, core, private_key, value
from matrix import records
from matrix.records import Attempt, EnvChange, Fact, Observation, PythonError, Verdict

_TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Planted:
    """What must not be seen again: (kind, channel) -> the secret part; and the environment of the packing process."""

    secrets: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def channels(self) -> list[str]:
        return sorted({channel for _, channel in self.secrets})


def plant(run: Path, seed: int = 0) -> Planted:
    """Into a complete run folder of at least one attempt."""
    chance, planted = random.Random(seed), Planted()
    folder = sorted((run / "attempts").iterdir())[0]

    def fresh(channel: str) -> Iterator[tuple[str, str]]:
        for kind, (name, _) in KINDS.items():
            secret = value(kind, chance)
            planted.secrets[kind, channel] = core(secret)
            yield name, secret

    known = list(fresh("environment of an attempt"))
    _in_attempt(folder, {f"{name}_{number}": secret for number, (name, secret) in enumerate(known)}, list(fresh("command line")))
    _in_observation(folder, list(fresh("environment changes")), list(fresh("output tail")), private_key(chance))
    hook = [{"t": 1.0, "pid": 7, "kind": "env", "name": name, "value": secret, "module": "m"} for name, secret in fresh("hook")]
    (folder / "hook.jsonl").write_text("".join(json.dumps(line) + "\n" for line in hook))
    for way, say in LINES.items():
        with (folder / "stdout.log").open("a") as log:
            log.writelines(f"{say(name, secret)}\nstep 1 loss=2.3\n" for name, secret in _fitting(fresh(f"log: {way}"), way))
    (run / "spec.yaml").write_text(
        "name: planted\nrun:\n  env:\n" + "".join(f"    {n}: {json.dumps(s)}\n" for n, s in fresh("specification"))
    )
    _in_verdict(run, list(fresh("verdict")))
    program = run.parent.parent.parent / "train.py"
    program.write_text("".join(f'{name.lower()} = "{secret}"\n' for name, secret in fresh("program")) + private_key(chance, "PRIVATE KEY"))
    (run / "plots").mkdir(exist_ok=True)
    (run / "plots" / "extra.png").write_bytes(_png(" ".join(f"{name}={secret}" for name, secret in fresh("image"))))
    planted.environment = {f"{name}_{number}": secret for number, (name, secret) in enumerate(fresh("environment of the packer"))}
    bare = [*planted.environment.values(), *(secret for _, secret in known)]
    (folder / "stderr.log").write_text("".join(f"connecting with {secret} now\n" for secret in bare))
    for number, (_, secret) in enumerate(known):
        if "/" not in secret and len(secret) < 120:
            (folder / f"upload {number} {secret}.txt").write_text("uploaded\n")
    return planted


def _fitting(pairs: Iterator[tuple[str, str]], way: str) -> Iterator[tuple[str, str]]:
    """A header does not carry a URL or a connection string."""
    return (pair for pair in pairs if way != "header" or not re.search("://|[;=]", pair[1]))


def _in_attempt(folder: Path, env: dict[str, str], options: list[tuple[str, str]]) -> None:
    attempt = records.read(Attempt, folder / "attempt.json")
    words = [word for name, secret in options for word in (f"--{name.lower().replace('_', '-')}", secret)]
    cwd = str(folder.parents[4])
    records.write(folder / "attempt.json", dataclasses.replace(attempt, argv=["python", "train.py", *words], env=env, cwd=cwd))


def _in_observation(folder: Path, changes: list[tuple[str, str]], tail: list[tuple[str, str]], key: str) -> None:
    seen = records.read(Observation, folder / "observation.json")
    changed = [EnvChange(pid=7, name=name, value=secret, module="m", time_s=1.0) for name, secret in changes]
    lines = [LINES["log"](name, secret) for name, secret in tail]
    error = PythonError(type="AuthError", message=f"key rejected:\n{key}", frames=["train.py:3 in main"])
    records.write(folder / "observation.json", dataclasses.replace(seen, env_changes=changed, output_tail=lines, python_error=error))


def _in_verdict(run: Path, pairs: list[tuple[str, str]]) -> None:
    verdict = records.read(Verdict, run / "verdict.json")
    facts = [Fact(fact=f"the output says {LINES['plain'](name, secret)}") for name, secret in pairs]
    first = dataclasses.replace(verdict.ranking[0], supports=[*verdict.ranking[0].supports, *facts])
    records.write(run / "verdict.json", dataclasses.replace(verdict, ranking=[first, *verdict.ranking[1:]]))


def _png(comment: str) -> bytes:
    """One grey pixel and a comment."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    text = chunk(b"tEXt", b"Comment\0" + comment.encode())
    return b"\x89PNG\r\n\x1a\n" + header + text + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")


def seen_again(archive: Path, planted: Planted) -> list[tuple[str, str, str]]:
    """Kind, channel and file of every planted secret that can still be read, also without colours and line ends, or half of it."""
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
        texts = {name: packed.read(name).decode(errors="replace") for name in names} | {"file names": "\n".join(names)}
    found = []
    for file, text in texts.items():
        plain = html.unescape(_TERMINAL.sub("", text))
        flat = plain.replace("\n", "")
        for (kind, channel), secret in planted.secrets.items():
            half = len(secret) // 2
            pieces = (secret[:half], secret[half:]) if half >= 10 else (secret,)
            if any(piece in whole for piece in pieces for whole in (text, plain, flat)):
                found.append((kind, channel, file))
    return found
