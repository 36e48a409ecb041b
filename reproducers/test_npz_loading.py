"""Suspect: loading the pairs.  A file larger than the memory limit is read through the trainer's loader, which maps it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproducers.stand import Stand, Suspect, no_memory_limit, one_thread

pytestmark = pytest.mark.quick

LIMIT_BYTES = 96_000_000


def suspect(pairs: Path, *further: str, limit: int | None = LIMIT_BYTES) -> Suspect:
    return Suspect(
        name="loading the pairs file",
        asks="does loading the pairs need as much memory as the file is large?",
        program="npz_loading",
        arguments=(str(pairs), *further),
        env=one_thread(),
        cure="keep the npz uncompressed (np.savez), so that it is mapped; never rewrite a file in place while a run reads it",
        memory_bytes=limit,
    )


def test_loading_a_file_larger_than_the_memory_limit_is_cleared(stand: Stand, pairs: Path) -> None:
    stand.clears(suspect(pairs), missing=no_memory_limit())


@pytest.mark.control
def test_reading_the_file_whole_is_seen_to_exceed_the_limit(stand: Stand, pairs: Path) -> None:
    observation, _ = stand.convicts(suspect(pairs, "--whole"), missing=no_memory_limit())
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGKILL", None)
    assert observation.memory.oom_kills == 1


@pytest.mark.control
def test_a_file_that_is_truncated_while_it_is_mapped_is_seen(stand: Stand, tmp_path: Path) -> None:
    small = tmp_path / "pairs.npz"
    rows = np.ones((200, 768), np.float32)
    np.savez(small, X_train=rows, Y_train=rows, X_val=rows[:8], Y_val=rows[:8])
    observation, _ = stand.convicts(suspect(small, "--truncate-at", "3", limit=None))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGBUS", 3)
