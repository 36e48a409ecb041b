"""memory.csv: a file of samples that stays a few megabytes however long the run is.

When it holds MOST_ROWS, everything but the newest quarter is thinned out to one sample per bin of time, the highest
one, so that no peak is lost; bins grow by doubling.  So a day has an even, coarse history and a fine end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from matrix.runner.own_files import new_file, put_back

HEADER = "time,step,pid,role,rank,device,kind,bytes\n"
MOST_ROWS = 60_000  # 3 MB; thinning them out takes 0.1 s, which for nine processes is 0.1 % of a core
FIRST_BIN_S = 0.1
SAMPLED = ("rss", "shared", "used")  # written at every sample; every other kind only when it changes


class CurveFile:
    """Made when the first row comes."""

    def __init__(self, path: Path, *, most_rows: int = MOST_ROWS) -> None:
        self.path = path
        self._most = most_rows
        self._rows = 0
        self._bin_s = FIRST_BIN_S
        self._file: TextIO | None = None

    def write(self, rows: list[str]) -> None:
        self.add("".join(rows), len(rows))

    def add(self, text: str, rows: int) -> None:
        """So many whole lines, all of one time."""
        if self._file is None:
            self._file = _new_text(self.path)
            self._file.write(HEADER)
        self._file.write(text)
        self._rows += rows
        if self._rows > self._most:
            self._thin()

    def flush(self) -> None:
        if self._file:
            self._file.flush()

    def close(self) -> None:
        if self._file and not self._file.closed:
            self._file.flush()
            put_back(self.path, self._file.fileno())
            self._file.close()

    def _thin(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)[1:]
        self.close()
        old, new = lines[: -self._most // 4], lines[-self._most // 4 :]
        while new and old and _time(new[0]) == _time(old[-1]):  # a sample is not torn apart
            new.insert(0, old.pop())
        kept = list(_one_per_bin(old, self._bin_s))
        while len(kept) > self._most // 4 and self._bin_s < float(_time(old[-1])):
            self._bin_s *= 2
            kept = list(_one_per_bin(kept, self._bin_s))
        part = self.path.with_name(f".{self.path.name}.part")
        self._file = _new_text(part)
        self._file.writelines([HEADER, *kept, *new])
        self._file.flush()
        part.replace(self.path)
        self._rows = len(kept) + len(new)


def _new_text(path: Path) -> TextIO:
    return os.fdopen(new_file(path), "w+", encoding="utf-8", errors="replace")


def _one_per_bin(lines: list[str], bin_s: float) -> Iterator[str]:
    """Of each bin the sample with the highest RSS in all, and the last of every other figure."""
    totals: dict[str, int] = {}
    last: dict[tuple[int, str, str], int] = {}
    for at, line in enumerate(lines):
        time, _, pid, _, _, _, kind, value = line.split(",")
        if kind == "rss":
            totals[time] = totals.get(time, 0) + int(value)
        elif kind not in SAMPLED:
            last[int(float(time) / bin_s), pid, kind] = at
    highest = _highest(totals.items(), bin_s)
    others = set(last.values())
    for at, line in enumerate(lines):
        if at in others or (_time(line) in highest and line.split(",")[6] in SAMPLED):
            yield line


def _highest(totals: Iterable[tuple[str, int]], bin_s: float) -> set[str]:
    best: dict[int, tuple[int, str]] = {}
    for time, total in totals:
        number = int(float(time) / bin_s)
        if number not in best or total > best[number][0]:
            best[number] = total, time
    return {time for _, time in best.values()}


def _time(line: str) -> str:
    return line[: line.index(",")]
