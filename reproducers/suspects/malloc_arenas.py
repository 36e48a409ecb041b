"""A pool of threads that take turns: each job uses some memory in pieces and gives it back, and one job runs at a time.

The work needs the memory of one job.  glibc has an arena for each thread, and an arena gives back to the system only what lies
above the last piece in use, and only when that has become much (MALLOC_TRIM_THRESHOLD_, which grows by itself).
"""

from __future__ import annotations

import argparse
import mmap
import queue
import threading
from pathlib import Path

PIECE = 60_000  # bytes: malloc's own, neither Python's small objects nor a mapping of its own


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=48)
    parser.add_argument("--mb", type=int, default=16, help="of one job")
    options = parser.parse_args()
    asked = [queue.SimpleQueue[bool]() for _ in range(options.threads)]
    answered: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    for questions in asked:
        threading.Thread(target=serve, args=(questions, answered, options.mb * 1_000_000 // PIECE), daemon=True).start()
    before, results = resident_bytes(), list[bytes]()
    for step in range(1, options.jobs + 1):
        asked[step % options.threads].put(True)
        results.append(answered.get())
        held = (resident_bytes() - before) / 1e6
        print(f"step {step} needs_mb={options.mb} resident_mb={held:.1f} times={held / options.mb:.2f}", flush=True)
    print("suspect finished", flush=True)


def serve(questions: queue.SimpleQueue[bool], answered: queue.SimpleQueue[bytes], pieces: int) -> None:
    while questions.get():
        answered.put(job(pieces))


def job(pieces: int) -> bytes:
    """Uses that many pieces at a time, and returns a small result that is made while they are all there."""
    used = [b"\1" * PIECE for _ in range(pieces)]
    return bytes(used[0][: PIECE // 100])


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(errors="replace").split()[1]) * mmap.PAGESIZE


if __name__ == "__main__":
    main()
