"""Suspect: a miner in a forked process.  The parent has searched, so its OpenMP threads exist, and fork copies none of them.

With FAISS from PyPI on Linux and more than one thread this hangs, so there a conviction is the truth about the machine.
"""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, one_thread, threads_of_their_own

pytestmark = pytest.mark.quick


def suspect(start: str, *further: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"a miner started with {start}",
        asks=f"does a miner in a process of its own ever answer when it is started with {start} after the parent has searched?",
        program="forked_miner",
        arguments=("--start", start, *further),
        env=threads_of_their_own() if env is None else env,
        cure="start the miner with spawn (trainer: --start-method spawn), or OMP_NUM_THREADS=1, or never search in the parent",
        patience_s=4.0 if start == "fork" else 20.0,  # a forked miner has nothing to import
    )


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_miner_in_another_process_answers(stand: Stand, start: str) -> None:
    stand.clears(suspect(start))


@pytest.mark.control
def test_a_miner_that_inherits_a_held_lock_is_seen_to_hang(stand: Stand) -> None:
    # with one thread nothing but the lock can hang
    observation, report = stand.convicts(suspect("fork", "--hold-lock", env=one_thread()))
    assert observation.exit.ended_by in ("idle", "stall")
    assert observation.progress.last_step == 1
    assert "spawn" in report
