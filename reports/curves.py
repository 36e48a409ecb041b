"""Memory curves out of memory.csv: whole-tree sums per sample, and which two runs are worth showing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.records import Observation
from reports.cells import CellRow
from reports.ending import Ending

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["time", "step", "pid", "role", "kind", "bytes"]
POINTS = 300  # of a drawn curve: more cannot be seen, and make the page heavy
CHUNK_ROWS = 400_000
_CUT = re.compile(rb",(rss|shared),\d+$")
MOST_TRIED = 5  # attempts whose file is opened before giving up


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Times in seconds since the attempt's start, memory in bytes, one entry a point that is drawn."""

    times: list[float]
    rss: list[float]  # sum of RSS over the processes of the tree: pages they share are counted repeatedly
    private: list[float]  # the same without file-backed and shared pages
    by_role: dict[str, list[float]]
    processes: dict[str, int]  # role -> how many different processes
    steps: list[tuple[float, int]]  # (time of the first sample, step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """One run with its curve."""

    seen: Observation
    end: Ending
    row: CellRow
    curve: Curve


def choose(rows: Sequence[CellRow], folder: Path) -> tuple[Drawn | None, Drawn | None, list[str]]:
    """A typical death, the survivor to hold against it, and what could not be read on the way."""
    runs = [(row, seen, end) for row in rows for seen, end in row.runs]
    died = sorted(
        (run for run in runs if run[2].kind == "died"), key=lambda run: (bool(run[0].probes), run[0].role != "known bad", -run[1].wall_s)
    )
    survived = sorted(
        (run for run in runs if run[2].kind == "survived"), key=lambda run: (bool(run[0].probes), run[0].role != "fix", -run[1].wall_s)
    )
    problems: list[str] = []
    return _first_readable(died, folder, problems), _first_readable(survived, folder, problems), problems


def _first_readable(runs: Sequence[tuple[CellRow, Observation, Ending]], folder: Path, problems: list[str]) -> Drawn | None:
    for row, seen, end in runs[:MOST_TRIED]:
        curve = read(folder / "attempts" / seen.attempt / "memory.csv")
        if isinstance(curve, Curve):
            return Drawn(seen=seen, end=end, row=row, curve=curve)
        problems.append(f"attempts/{seen.attempt}/memory.csv was not drawn: {curve}")
    return None


def read(path: Path) -> Curve | str:
    """The curve, or a sentence on why there is none.  Damaged lines are left out."""
    import pandas as pd

    try:
        chunks = pd.read_csv(
            path,
            usecols=COLUMNS,
            chunksize=CHUNK_ROWS,
            on_bad_lines="skip",
            quoting=3,
            encoding_errors="replace",
            low_memory=False,
            dtype=str,
        )
        usable = [_usable(chunk) for chunk in chunks]
        cut = _ends_in_a_figure(path)
    except OSError as error:
        return error.strerror or type(error).__name__
    except ValueError as error:  # pandas raises subclasses of it for what is no table
        return " ".join(str(error).split())[:160]
    frame = pd.concat(usable)
    frame = frame.iloc[:-1] if cut else frame
    return _curve(frame) if (frame["kind"] == "rss").any() else "it holds no usable sample"


def _usable(chunk: pd.DataFrame) -> pd.DataFrame:
    """The rows whose figures are figures, as numbers."""
    import pandas as pd

    chunk = chunk[chunk["kind"].isin(["rss", "shared"])].copy()
    for name in ("time", "step", "bytes"):
        chunk[name] = pd.to_numeric(chunk[name], errors="coerce").astype(float)
    usable: pd.DataFrame = chunk[chunk["time"].between(0, 1e8) & chunk["bytes"].between(0, 2.0**55)]
    return usable


def _ends_in_a_figure(path: Path) -> bool:
    """Whether the last line has no end, so that its figure may lack digits."""
    with path.open("rb") as source:
        source.seek(max(0, path.stat().st_size - 4096))
        return _CUT.search(source.read().rpartition(b"\n")[2]) is not None


def _curve(frame: pd.DataFrame) -> Curve:
    rss = frame[frame["kind"] == "rss"]
    total = rss.groupby("time")["bytes"].sum().sort_index()
    shared = frame[frame["kind"] == "shared"].groupby("time")["bytes"].sum().reindex(total.index, fill_value=0)
    roles = rss.assign(role=rss["role"].fillna("other")).pivot_table(
        index="time", columns="role", values="bytes", aggfunc="sum", fill_value=0
    )
    kept = _kept(total)
    steps = rss.dropna(subset=["step"]).groupby("step")["time"].min()
    return Curve(
        times=[float(total.index[at]) for at in kept],
        rss=[float(total.iloc[at]) for at in kept],
        private=[float(max(0.0, total.iloc[at] - shared.iloc[at])) for at in kept],
        by_role={str(role): [float(roles[role].iloc[at]) for at in kept] for role in roles.columns},
        processes={str(role): int(count) for role, count in rss.groupby(rss["role"].fillna("other"))["pid"].nunique().items()},
        steps=sorted((float(time), int(step)) for step, time in steps.items() if 0 <= float(str(step)) < 1e12),
    )


def _kept(total: pd.Series[float]) -> list[int]:
    """Positions of the points to draw: the highest of each equal part, so that no peak is lost, and the first and last."""
    count = len(total)
    if count <= POINTS:
        return list(range(count))
    values, edges = total.to_numpy(), [round(part * count / POINTS) for part in range(POINTS + 1)]
    highest = {low + int(values[low:high].argmax()) for low, high in pairwise(edges)}
    return sorted(highest | {0, count - 1})
