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
FEW_MISSING = 0.2  # share of samples without the group's own figure, above which it is not drawn
POINTS = 300  # of a drawn curve: more cannot be seen, and make the page heavy
CHUNK_ROWS = 400_000
_CUT = re.compile(rb",(rss|shared),\d+$")
MOST_TRIED = 8  # attempts of a kind whose file is opened
SHOWN = 5  # curves of a kind: more cannot be told apart
HEAVY_BYTES = 20 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Times in seconds since the attempt's start, memory in bytes, one entry a point that is drawn."""

    times: list[float]
    rss: list[float]  # sum of RSS over the processes of the tree: pages they share are counted repeatedly
    private: list[float]  # the same without file-backed and shared pages
    by_role: dict[str, list[float]]
    processes: dict[str, int]  # role -> how many different processes
    steps: list[tuple[float, int]]  # (time of the first sample, step)
    counted: list[float] = dataclasses.field(default_factory=list)  # what the group's limit counts, without file cache; []: no group

    def level(self, counted: bool) -> list[float]:
        """Return what is drawn: what the limit counts, where pages that processes share count once, or the sum of RSS."""
        return self.counted if counted else self.rss

    def by_step(self, counted: bool) -> list[tuple[float, float]]:
        """(step, memory) of each point since the first step; a point between two steps lies between them, as its time does."""
        import numpy

        times, steps = [time for time, _ in self.steps], [step for _, step in self.steps]
        since = [(time, level) for time, level in zip(self.times, self.level(counted), strict=True) if times and time >= times[0]]
        places = numpy.interp([time for time, _ in since], times, steps).tolist() if since else []
        return [(place, level) for place, (_, level) in zip(places, since, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """One run with its curve."""

    seen: Observation
    end: Ending
    row: CellRow
    curve: Curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """Runs worth drawing, the most telling of each kind first."""

    died: list[Drawn]
    survived: list[Drawn]
    problems: list[str]  # what could not be read on the way


def choose(rows: Sequence[CellRow], folder: Path) -> Chosen:
    """Typical deaths and the survivors to hold against them: without probes, known-bad and the fix first, then the longest."""
    runs = [(row, seen, end) for row in rows for seen, end in row.runs]
    died = sorted(
        (run for run in runs if run[2].kind == "died"), key=lambda run: (bool(run[0].probes), run[0].role != "known bad", -run[1].wall_s)
    )
    survived = sorted(
        (run for run in runs if run[2].kind == "survived"), key=lambda run: (bool(run[0].probes), run[0].role != "fix", -run[1].wall_s)
    )
    problems: list[str] = []
    return Chosen(died=_readable(died, folder, problems), survived=_readable(survived, folder, problems), problems=problems)


def _readable(runs: Sequence[tuple[CellRow, Observation, Ending]], folder: Path, problems: list[str]) -> list[Drawn]:
    """Up to SHOWN of them; those after the first only where reading them is quick."""
    found: list[Drawn] = []
    for row, seen, end in runs[:MOST_TRIED]:
        path = folder / "attempts" / seen.attempt / "memory.csv"
        if len(found) >= SHOWN or (found and _heavy(path)):
            continue
        curve = read(path)
        if isinstance(curve, Curve):
            found.append(Drawn(seen=seen, end=end, row=row, curve=curve))
        elif seen.memory.samples or path.exists():  # of a run that nobody followed there is none, and nothing is amiss
            problems.append(f"attempts/{seen.attempt}/memory.csv was not drawn: {curve}")
    return found


def _heavy(path: Path) -> bool:
    try:
        return path.stat().st_size > HEAVY_BYTES
    except OSError:
        return False


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

    chunk = chunk[chunk["kind"].isin(["rss", "shared", "used", "file_cache"])].copy()
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
    counted = _counted(frame, total)
    kept = _kept(total if counted is None else counted)
    steps = rss.dropna(subset=["step"]).groupby("step")["time"].min()
    summed, private = total.to_numpy()[kept], (total - shared).clip(lower=0).to_numpy()[kept]
    return Curve(
        times=total.index.to_numpy(dtype=float)[kept].tolist(),
        rss=summed.tolist(),
        private=private.tolist(),
        by_role={str(role): roles[role].to_numpy(dtype=float)[kept].tolist() for role in roles.columns},
        processes={str(role): int(count) for role, count in rss.groupby(rss["role"].fillna("other"))["pid"].nunique().items()},
        counted=[] if counted is None else counted.to_numpy()[kept].tolist(),
        steps=sorted((float(time), int(step)) for step, time in steps.items() if 0 <= float(str(step)) < 1e12),
    )


def _counted(frame: pd.DataFrame, total: pd.Series[float]) -> pd.Series[float] | None:
    """Return what the group was charged with at each sample, less the file cache as last seen; None: that was not sampled."""
    used, cache = (frame[frame["kind"] == kind].groupby("time")["bytes"].max().sort_index() for kind in ("used", "file_cache"))
    used = used.reindex(total.index)
    if used.isna().mean() > FEW_MISSING:
        return None
    times = total.index.union(cache.index)
    given_up = cache.reindex(times).ffill().reindex(total.index).fillna(0)
    counted: pd.Series[float] = (used.ffill().bfill() - given_up).clip(lower=0)
    return counted


def _kept(total: pd.Series[float]) -> list[int]:
    """Positions of the points to draw: the highest of each equal part, so that no peak is lost, and the first and last."""
    count = len(total)
    if count <= POINTS:
        return list(range(count))
    values, edges = total.to_numpy(), [round(part * count / POINTS) for part in range(POINTS + 1)]
    highest = {low + int(values[low:high].argmax()) for low, high in pairwise(edges)}
    return sorted(highest | {0, count - 1})
