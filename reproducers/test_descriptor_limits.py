"""Suspect: the limit on open files.  Kept batches of DataLoader workers hold a descriptor for each tensor."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, one_thread

BATCHES = 200
FEW = (128, 128)


def suspect(*further: str, nofile: tuple[int, int] | None = None) -> Suspect:
    return Suspect(
        name="the limit on open files",
        asks=f"do {BATCHES} kept batches of two tensors from DataLoader workers meet the limit on open files?",
        program="descriptor_limits",
        arguments=("--batches", str(BATCHES), *further),
        env=one_thread(),
        rlimits={"RLIMIT_NOFILE": nofile} if nofile else {},
        cure="torch.multiprocessing.set_sharing_strategy('file_system'); or keep copies (tensor.clone()); or a higher limit (ulimit -n)",
    )


def test_kept_batches_stay_below_the_limit_on_open_files(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_low_limit_is_seen_and_sharing_by_files_does_without_descriptors(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("--sharing", "file_descriptor", nofile=FEW))
    assert observation.progress.last_step is not None
    assert observation.progress.last_step < BATCHES
    assert "set_sharing_strategy" in report
    most = max(process.descriptors or 0 for process in observation.memory.processes)
    assert most > FEW[0] / 2  # torch's words for it differ from one place to the other
    _, judgement = stand.asks(suspect("--sharing", "file_system", nofile=FEW))
    assert judgement.kind == "cleared"
