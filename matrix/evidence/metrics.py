"""Figures that a program prints with its steps, `step 12 loss=0.31 lr=1e-4`: their last values, and when one was no number any more."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import median

from matrix.evidence.digits import whole
from matrix.evidence.progress import ANSI, FORMS
from matrix.records import Metric

SEARCHED_CHARS = 256 << 10  # of the end of the output
LONGEST_CHARS = 1000
RECENT = 8
MOST = 16
NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)(?![\w.])"
# `loss=0.3`, `loss: 0.3`, `"loss": 0.3`, `train/loss = nan`; a clock or a share of a bar is none.
PAIR = re.compile(rf"(?<![\w./:-])[\"']?([A-Za-z][\w./@-]{{0,40}})[\"']?\s?[=:]\s?({NUMBER})(?!\s?[/:%])", re.I)
NO_METRIC = frozenset(
    (
        "step",
        "global_step",
        "iter",
        "iteration",
        "batch",
        "epoch",
        "rank",
        "local_rank",
        "pid",
        "seed",
        "time",
        "eta",
        "elapsed",
        "it",
        "line",
    )
)


def metrics(text: str) -> list[Metric]:
    """One for each name that was printed at least twice or is no finite number, in their order, at most 16."""
    series: dict[str, list[tuple[int | None, str]]] = {}
    for step, name, value in _pairs(text[-SEARCHED_CHARS:]):
        series.setdefault(name, []).append((step, value))
    kept = [(name, values) for name, values in series.items() if len(values) > 1 or not math.isfinite(float(values[0][1]))]
    return [_metric(name, values) for name, values in kept[:MOST]]


def _metric(name: str, values: list[tuple[int | None, str]]) -> Metric:
    finite = [abs(float(text)) for _, text in values if math.isfinite(float(text))]
    bad = next(((step, text) for step, text in values if not math.isfinite(float(text))), None)
    return Metric(
        name=name,
        last=values[-1][1],
        last_step=values[-1][0],
        values=len(values),
        recent=[text for _, text in values[-RECENT:]],
        median_abs=median(finite) if finite else None,
        largest_abs=max(finite, default=None),
        first_bad=bad[1] if bad else None,
        first_bad_step=bad[0] if bad else None,
    )


def _pairs(text: str) -> Iterator[tuple[int | None, str, str]]:
    """(step on the line, name, value as printed)."""
    for line in text.replace("\r", "\n").split("\n"):
        if len(line) > LONGEST_CHARS or not ("=" in line or ":" in line):
            continue
        found = PAIR.findall(ANSI.sub("", line))
        if found:
            step = next((whole(match["step"]) for form in FORMS if (match := form.search(line))), None)
            yield from ((step, name, value.lower()) for name, value in found if name.lower() not in NO_METRIC)
