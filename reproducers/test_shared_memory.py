"""Suspect: /dev/shm.  Every micro-batch of a DataLoader worker travels through it, and containers give it 64 MB."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproducers.stand import Stand, Suspect, one_thread


def suspect(pairs: Path, *further: str) -> Suspect:
    return Suspect(
        name="DataLoader with shared memory",
        asks="is /dev/shm too small for the micro-batches that two workers load ahead (16 of 8 MB)?",
        program="workers",
        arguments=(str(pairs), "--bs", "1300", "--prefetch", "8", "--steps", "14", "--pause", "1", *further),
        env=one_thread(),
        cure="a larger /dev/shm (docker run --shm-size=1g; in Kubernetes an emptyDir of medium Memory), or --prefetch 2, or fewer workers",
        patience_s=12.0,
    )


def test_the_shared_memory_of_this_machine_is_cleared(stand: Stand, pairs: Path) -> None:
    stand.clears(suspect(pairs))


@pytest.mark.control
def test_the_64_mb_of_a_container_are_seen_to_be_too_little(stand: Stand, pairs: Path) -> None:
    observation, report = stand.convicts(suspect(pairs, "--shm-mb", "64"))
    assert {message.kind for message in observation.messages} & {"bus error", "no space"}
    assert observation.progress.last_step is None or observation.progress.last_step < 14
    assert "--shm-size" in report
