"""What memory a run was predicted to take against what it took; only where the program left a prediction.

A prediction is a file estimate.json in the attempt's folder or in its out/: an object with `peak_bytes` and, when it is known,
`components`, an object of names and bytes.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from matrix.records import Observation
from reports.folder import RunFolder
from reports.model import Block, Heading, Para, Row, Table, line
from reports.text import listed, one_line, percent, size

PLACES = ("estimate.json", "out/estimate.json")
LARGEST, MOST = 2**20, 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    seen: Observation
    file: str  # relative to the attempt's folder
    peak_bytes: float
    components: dict[str, float]


def estimate(folder: RunFolder) -> list[Block]:
    """[] when no attempt has a prediction."""
    found = [made for attempt, seen in folder.observed if (made := _prediction(attempt.path, seen))][:MOST]
    if not found:
        return []
    columns = ["Attempt", "Predicted peak", "Measured peak", "Measured over predicted", "Measured as", "Largest predicted parts"]
    table = Table(
        "Predicted against measured memory", columns, [_row(folder, made) for made in found], frozenset({1, 2, 3}), frozenset({5})
    )
    note = "A run that died early may not have come to its peak. PSS counts pages that processes share once, RSS once for each."
    return [Heading("Estimate against measured memory"), table, Para(line(note))]


def _prediction(where: Path, seen: Observation) -> Prediction | None:
    for name in PLACES:
        try:
            path = where / name
            said = json.loads(path.read_bytes()) if path.is_file() and path.stat().st_size < LARGEST else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(said, dict) and _bytes(said.get("peak_bytes")):
            parts = said.get("components")
            known = {str(part): float(amount) for part, amount in parts.items() if _bytes(amount)} if isinstance(parts, dict) else {}
            return Prediction(seen=seen, file=name, peak_bytes=float(said["peak_bytes"]), components=known)
    return None


def _bytes(amount: Any) -> bool:
    return isinstance(amount, (int, float)) and not isinstance(amount, bool) and 0 < amount < 2**60


def _row(folder: RunFolder, made: Prediction) -> Row:
    from reports.causes import attempt_links

    memory = made.seen.memory
    measured = memory.peak_tree_pss_bytes or memory.peak_tree_rss_bytes
    largest = sorted(made.components.items(), key=lambda part: -part[1])[:4]
    cells = [
        (*attempt_links(folder, [made.seen.attempt]), *line(" ", made.file)),
        line(size(made.peak_bytes)),
        line(size(measured) if measured else "not measured"),
        line(percent_of(measured, made.peak_bytes)),
        line("sum of PSS" if memory.peak_tree_pss_bytes else "sum of RSS"),
        line(listed([f"{one_line(name, 40)} {size(amount)}" for name, amount in largest]) or "not told"),
    ]
    return Row(cells, "", {1: made.peak_bytes, 2: float(measured or 0), 3: (measured or 0) / made.peak_bytes})


def percent_of(measured: int | None, predicted: float) -> str:
    if not measured:
        return "–"
    share = measured / predicted
    return percent(share) if share <= 1 else f"{100 * share:,.0f} %"
