"""Signals that others sent are told, and whether the program handled them."""

from __future__ import annotations

import pytest

from matrix.records import Exit, Observation, ProcessSettings, SignalSent, Trial
from reports.deaths import _signals


@pytest.mark.parametrize(
    ("returncode", "signal", "caught", "handled"),
    [(3, None, ["SIGTERM"], True), (-15, "SIGTERM", ["SIGTERM"], False), (3, None, [], False)],
)
def test_a_signal_that_was_handled_is_told(returncode: int, signal: str | None, caught: list[str], handled: bool) -> None:
    sent = [
        SignalSent(signal="SIGTERM", to_pid=7, from_pid=1, from_name="watchman", inside=False, by_tool=False, time_s=2.0),
        SignalSent(signal="SIGKILL", to_pid=7, from_pid=2, from_name="matrix", inside=False, by_tool=True, time_s=3.0),
    ]
    seen = Observation(
        attempt="1",
        key="",
        trial=Trial(id=1, cell={}),
        exit=Exit(returncode=returncode, signal=signal),
        wall_s=3.0,
        started_unix_s=0.0,
        signals_sent=sent,
        settings=[ProcessSettings(pid=7, role="main", last_s=1.0, caught=caught)],
    )
    (told,) = _signals(seen)
    text = "".join(span.text for span in told)
    assert "SIGTERM to process 7 from watchman (pid 1) after 2.0 s" in text and ("handled" in text) is handled
