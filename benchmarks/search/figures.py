"""From what was played to the figures: runs, accuracy, what was said and what was true."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.search.bound import capacity, entropy
from benchmarks.search.peers import ERROR
from benchmarks.search.players import Played
from benchmarks.search.table import Part, Row
from benchmarks.search.worlds import KINDS

Look = tuple[float, bool]
Played_ = dict[Part, list[Played]]
BINS = 10


def rows(played: Played_) -> list[dict[str, Any]]:
    """One line for each row, method and kind, and one for all kinds together where there are several."""
    lines, bits = [], {kind: entropy(kind) for kind in (*KINDS, "all")}
    groups: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in played:
        groups[part.row.name, part.method].append(part)
    for cells in groups.values():
        row, everything = cells[0].row, [each for part in cells for each in played[part]]
        kinds = {part.kind: played[part] for part in cells if len(cells) > 1}
        for kind, group in {**kinds, "all": everything}.items():
            line = {"row": row.name, "method": cells[0].method, "kind": kind, **_line(group)}
            if row.kinds == KINDS or (row.kinds == ("mixed",) and "chosen" not in row.options):
                line["bound_runs"] = round((bits[kind] + math.log2(1 / ERROR)) / capacity(row.rate), 1)
                line["entropy_runs"] = round(bits[kind] / capacity(row.rate), 1)
            if cells[0].method == "adaptive":
                line |= _wanted(row, kind)
            lines.append(line)
    return lines


def _line(group: Sequence[Played]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "worlds": len(group),
        "median_runs": statistics.median(each.runs for each in group),
        "exact": _share(each.exact for each in group),
    }
    if not any(each.decisions for each in group):
        return line
    decisions = sum(each.decisions for each in group)
    return line | {
        "median_verify_runs": statistics.median(each.verify for each in group),
        "exact_at_the_posterior": _share(each.exact if each.exact_then is None else each.exact_then for each in group),
        "not_reproduced": sum(not each.reproduced for each in group),
        "confirmed": _share(each.confirmed for each in group),
        "confirmed_and_wrong": sum(each.confirmed and not each.exact for each in group),
        "median_cost_s": round(statistics.median(each.cost_s for each in group), 1),
        "decision_cpu_ms": round(1e3 * sum(each.decisions_cpu_s for each in group) / max(1, decisions), 2),
        "slowest_decision_cpu_ms": round(1e3 * max(each.slowest_cpu_s for each in group), 1),
    }


def _share(found: Iterable[bool]) -> float:
    values = list(found)
    return round(sum(values) / len(values), 4)


def _wanted(row: Row, kind: str) -> dict[str, Any]:
    runs = {"median_runs_wanted": row.runs_wanted} if row.runs_wanted and kind == "all" else {}
    return runs | ({"exact_wanted": row.exact_wanted} if row.exact_wanted else {})


# ------------------------------------------------------------------ do the probabilities mean what they say?
def calibration(played: Played_) -> dict[str, dict[str, Any]]:
    """Looks after every answer, on programs drawn like the search's prior and on all others that have one crash set to name.

    A look counts alike wherever it was taken: the time of a look depends on the answers so far only, so the difference of what
    was said and what was true has mean zero at each of them, if the probabilities mean what they say."""
    groups: dict[str, list[Look]] = {"like the prior": [], "other programs": [], "no hypothesis": []}
    for part, of in played.items():
        if part.method != "adaptive" or part.kind == "two causes":
            continue
        name = part.row.name if part.row.name == "like the prior" else "other programs"
        groups["no hypothesis" if part.row.name.startswith("no hypothesis") else name] += [look for each in of for look in each.looks]
    return {name: _calibration(looks) for name, looks in groups.items() if looks}


def _calibration(looks: list[Look]) -> dict[str, Any]:
    """`error`: the mean distance of what was said and what was true, in bins of a tenth, weighted by looks."""
    bins: dict[int, list[Look]] = defaultdict(list)
    for said, right in looks:
        bins[min(BINS - 1, int(said * BINS))].append((said, right))
    table = [
        {"looks": len(of), "said": round(statistics.mean(s for s, _ in of), 4), "true": round(sum(r for _, r in of) / len(of), 4)}
        for _, of in sorted(bins.items())
    ]
    error = sum(line["looks"] * abs(line["said"] - line["true"]) for line in table) / len(looks)
    return {"looks": len(looks), "error": round(error, 4), "bins": table}
