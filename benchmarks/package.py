"""Packages: time for a run of 2,000 attempts, planted secrets that are left, technical tokens lost: `python -m benchmarks.package`.

Secrets are of kinds that public scanners list (benchmarks/planted_secrets.py), in every place that a run may keep one, with values of
their own in each place; what is left is counted by reading the archive, and by an outside scanner.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.planted_run import Planted, plant, seen_again
from benchmarks.record import save
from benchmarks.run_folder import write_run
from benchmarks.technical_tokens import corpus
from reports.package import Wish, draft, pack
from reports.redact import Redactor, names_of

ATTEMPTS, SEEDS = 2000, (101, 102)
SCANNED = (".md", ".json", ".jsonl", ".log", ".txt", ".yaml", ".py", ".sh")  # pages and pictures take the scanner minutes
LOG_MIB = 10
WANTED = {"kinds_at_least": 60, "left": 0, "technical_lost_percent_at_most": 2.0, "package_wall_s_below": 20.0}


def packing(run: Path, *words: str) -> dict[str, float]:
    """One package in a fresh interpreter."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "matrix", "package", str(run), *words], check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}


def speed(root: Path) -> dict[str, Any]:
    run = write_run(root / "runs/many/20260102-030405", ATTEMPTS)
    subprocess.run([sys.executable, "-m", "matrix", "report", str(run)], check=True, capture_output=True)  # as after every run
    minimal = [packing(run) for _ in range(3)]
    extended = packing(run, "--extended", "--max-size", "4000")
    sizes = {kind: (run / f"package-{kind}.zip").stat().st_size for kind in ("minimal", "extended")}
    return {"attempts": ATTEMPTS, "minimal": minimal, "extended": extended, "bytes": sizes}


def secrets(root: Path) -> dict[str, Any]:
    left, kinds, channels, planted_count, outside = [], set[str](), set[str](), 0, 0
    for seed in SEEDS:
        folder = root / f"job{seed}"
        run = write_run(folder / "runs/many/20260102-030405", 3)
        planted = plant(run, seed)
        package = pack(
            draft(run, Wish(kind="extended"), environment=planted.environment), folder / "p.zip", environment=planted.environment
        )
        left += seen_again(package, planted)
        outside += by_outside_scanner(package, planted, folder / "unpacked")
        kinds |= {kind for kind, _ in planted.secrets}
        channels |= set(planted.channels)
        planted_count += len(planted.secrets)
    return {"kinds": len(kinds), "channels": sorted(channels), "planted": planted_count, "left": left, "left_by_outside_scanner": outside}


def by_outside_scanner(package: Path, planted: Planted, target: Path) -> int:
    """How many planted secrets detect-secrets finds in what was packed."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    with zipfile.ZipFile(package) as packed:
        packed.extractall(target)
    values = set(planted.secrets.values())
    with default_settings():
        found = [secret.secret_value or "" for path in _texts(target) for secret in scan_file(str(path))]
    return sum(any(known in text or (len(text) > 8 and text in known) for known in values) for text in found)


def _texts(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in SCANNED]


def technical() -> dict[str, Any]:
    parts, lost, total = corpus(), {}, 0
    redactor = Redactor(names_of([], []))
    for name, text in parts.items():
        redactor.learn(name, lambda text=text: io.BytesIO(text.encode(errors="surrogateescape")))  # type: ignore[misc]
    for name, text in parts.items():
        after = redactor.text(name, text)
        total += len(text.split())
        lost[name] = (Counter(text.split()) - Counter(after.split())).total()
    return {"tokens": total, "lost": lost, "lost_percent": round(100 * sum(lost.values()) / total, 3)}


def log_speed() -> dict[str, Any]:
    """A log of progress lines with a few warnings and keys in it."""
    line = "epoch 6:  31%|███▏      | {}/150000 [00:09<00:22, 46.1it/s, loss=2.31] tokens/s=512\n"
    rest = "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py:{}: UserWarning: key mismatch\n"
    text = "".join(line.format(number) + (rest.format(number) if number % 7 == 0 else "") for number in range(LOG_MIB * 9200)).encode()
    redactor, began = Redactor(names_of([], [])), time.process_time()
    redactor.learn("stdout.log", lambda: io.BytesIO(text))
    size = sum(map(len, redactor.redact("stdout.log", lambda: io.BytesIO(text))))
    return {"mib": round(size / 2**20, 1), "cpu_s": round(time.process_time() - began, 2)}


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="mx-package-"))
    try:
        figures = {"speed": speed(root), "log": log_speed(), "secrets": secrets(root), "technical": technical(), "load": os.getloadavg()[0]}
    finally:
        shutil.rmtree(root)
    save("package", {**figures, "wanted": WANTED})


if __name__ == "__main__":
    main()
