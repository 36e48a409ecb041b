"""How long `--help` takes against an empty Python, interleaved in one run: `python -m benchmarks.startup`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.record import save, spread

ROUNDS = 30
EMPTY, HELP = ["-c", "pass"], ["-m", "matrix", "--help"]


def once(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *argv], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    once(EMPTY), once(HELP)  # warm
    pairs = [(once(EMPTY), once(HELP)) for _ in range(ROUNDS)]
    empty, asked = zip(*pairs, strict=True)
    ratio = statistics.median(h / e for e, h in pairs)
    save(
        "startup",
        {
            "rounds": ROUNDS,
            "python -c pass": spread(empty),
            "python -m matrix --help": spread(asked),
            "ratio_median": round(ratio, 2),
            "ratio_wanted_at_most": 5,
        },
    )


if __name__ == "__main__":
    main()
