"""Suspect: a process forked after torch has computed.  Its OpenMP threads exist in the parent, and fork copies none of them.

With torch's wheels for Linux and more than one thread this hangs, so there a conviction is the truth about the machine.
"""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, one_thread, threads_of_their_own


def suspect(start: str, *further: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"torch in a process started with {start}",
        asks=f"does a process that is started with {start} after its parent has computed with torch ever answer?",
        program="fork_after_torch",
        arguments=("--start", start, *further),
        env=threads_of_their_own() if env is None else env,
        cure="start the process with spawn, or OMP_NUM_THREADS=1 (torch.set_num_threads(1) in it, as DataLoader workers do), "
        "or fork before torch computes",
        patience_s=5.0 if start == "fork" else 30.0,  # a forked process has nothing to import
    )


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_process_after_torch_answers(stand: Stand, start: str) -> None:
    stand.clears(suspect(start))


@pytest.mark.control
def test_a_process_that_inherits_a_held_lock_is_seen_to_hang(stand: Stand) -> None:
    # with one thread nothing but the lock can hang
    observation, report = stand.convicts(suspect("fork", "--hold-lock", env=one_thread()))
    assert observation.exit.ended_by in ("idle", "stall")
    assert observation.progress.last_step == 1
    assert any(seen.role != "main" and seen.state == "S" for seen in observation.processes)
    assert "it hung" in report
