"""Where a disk ran full, the axis that says where the program writes is asked about first."""

from __future__ import annotations

from matrix.diagnosis import catalogue, suspects
from matrix.spec import Spec

SPEC = Spec.model_validate(
    {
        "run": {"command": ["program"]},
        "matrix": {
            "bs": [4, 8],
            "out": {"choices": {"as_given": {"args": ["--out", "disk/out"]}, "elsewhere": {"args": ["--out", "{attempt_dir}/out"]}}},
            "threads": [1, 2],
        },
    }
)


def test_a_full_disk_suspects_the_axis_that_names_a_place_and_another_cause_does_not() -> None:
    full = suspects.weights(SPEC, {"shm_or_disk_full": 0.8, "unknown": 0.2}, catalogue.CAUSES)
    crash = suspects.weights(SPEC, {"native_bad_argument": 0.8, "unknown": 0.2}, catalogue.CAUSES)
    assert full["out"] > 5 and full.get("bs", 1.0) == full.get("threads", 1.0) == 1.0
    assert crash.get("out", 1.0) == 1.0
