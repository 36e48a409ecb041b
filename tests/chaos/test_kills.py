"""Kills at random moments: of the tool, its guardian, or both, by any signal that ends or stops; then it goes on.

Nothing complete is lost or changed, the verdict is that of an undisturbed run, and nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from matrix.records import Verdict
from tests.matrix.command_line import PATIENCE_S, verdict
from tests.matrix.test_resume import Place

pytestmark = [pytest.mark.chaos]
HARMS = ("KILL", "TERM", "INT", "HUP", "STOP")
VICTIMS = ("tool", "guardian", "both")
MOST_S = 4.0  # until the harm: a start of the tool takes half a second and more


def guardians_of(tool: subprocess.Popen[str]) -> list[int]:
    """Pid of the guardian; [] before there is one, and where the tool is gone."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(tool.pid).children()
        return [child.pid for child in children if any("guardian.py" in word for word in child.cmdline())]
    return []


def harm(tool: subprocess.Popen[str], rng: random.Random) -> str:
    """Do it, and let what was stopped go on; what was done."""
    name, whom = rng.choice(HARMS), rng.choice(VICTIMS)
    pids = [tool.pid] if whom in ("tool", "both") else []
    pids += guardians_of(tool) if whom in ("guardian", "both") else []
    number = getattr(signal, f"SIG{name}")
    send(pids, number)
    if name == "STOP":
        time.sleep(rng.uniform(0, 0.5))
        send(pids, signal.SIGCONT)
    return f"SIG{name} to {whom}"


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def answer(found: Verdict) -> tuple[object, ...]:
    """What a user acts on."""
    first = found.ranking[0]
    return found.status, first.cause, first.culprit, found.fix.set if found.fix else None


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(10, 0, marks=pytest.mark.slow),
        *(pytest.param(20, seed, marks=pytest.mark.nightly) for seed in range(1, 51)),
    ],
)
def test_whatever_is_killed_at_whatever_moment_nothing_is_lost_and_the_verdict_is_the_same(
    tmp_path: Path, kills: int, seed: int
) -> None:
    rng = random.Random(seed)
    (tmp_path / "undisturbed").mkdir()
    undisturbed = Place(tmp_path / "undisturbed", work_s=0.1)
    undisturbed.finish()
    done = list[str]()
    while len(done) < kills:
        (folder := tmp_path / f"disturbed{len(done)}").mkdir()
        place = Place(folder, work_s=0.1)
        for _ in range(5):
            before = place.complete()
            tool = place.start()
            time.sleep(rng.uniform(0, MOST_S))
            done.append(harm(tool, rng))
            tool.communicate(timeout=PATIENCE_S)
            assert (after := place.complete()) | before == after, done
        place.finish()
        assert answer(verdict(place.run)) == answer(verdict(undisturbed.run)), done
