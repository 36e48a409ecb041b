"""The command: `python -m benchmarks.search --help`."""

from __future__ import annotations

import argparse
import multiprocessing
from typing import Any

import benchmarks.search
from benchmarks.record import RESULTS, save
from benchmarks.search import figures, page, players, table

WANTED = {"calibration_error_at_most": 0.02, "decision_ms_at_most": {"7 axes": 20, "20 axes of 4": 200}, "peak_memory_mib_at_most": 300}


def main() -> None:
    parser = argparse.ArgumentParser(description=benchmarks.search.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=4, help="programs of each row and kind (default 4; 300 for the full figures)")
    parser.add_argument("--rows", nargs="+", default=[], help="only rows whose name contains one of these texts")
    parser.add_argument("--methods", nargs="+", default=[], choices=table.METHODS, metavar="METHOD", help=", ".join(table.METHODS))
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    options = parser.parse_args()
    chosen = table.parts(options.rows, options.methods)
    _play([(part, number) for number in range(options.worlds) for part in chosen], options.jobs)
    every = table.parts([], [])
    summary = _summary({part: list(played.values()) for part in every if (played := part.done())})
    save("search", summary)
    (RESULTS / "search.md").write_text(page.text(summary))
    page.plot(summary["calibration"], RESULTS / "search-reliability.svg")


def _play(tasks: list[table.Task], jobs: int) -> None:
    """What is not done yet; each answer is kept at once."""
    done = {part: part.done().keys() for part, _ in tasks}
    left = [(part, number) for part, number in tasks if number not in done[part]]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for count, (part, number, played) in enumerate(pool.imap_unordered(table.solve, left), 1):
            part.keep(number, played)
            print(f"\r{count} of {len(left)}", end="", flush=True)
    print()


def _summary(played: figures.Played_) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:  # a fresh process for each: memory only grows
        measured = {name: pool.apply(players.decision_times, (name,)) for name in players.SIZES}
    return {
        "rows": figures.rows(played),
        "calibration": figures.calibration(played),
        "decision_cpu_ms": {name: times for name, (times, _) in measured.items()},
        "peak_memory_mib": {name: mib for name, (_, mib) in measured.items()},
        "wanted": WANTED,
    }


if __name__ == "__main__":
    main()
