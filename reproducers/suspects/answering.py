"""What suspects that start another process share: it works, it answers, and its parent waits for as long as it lives."""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from reproducers.suspects import give_up

lock = threading.Lock()


def main(work: Callable[[int], float], what: str) -> None:
    """The whole suspect: the parent does `work` itself, and then asks another process for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--start", default="fork", choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--hold-lock", action="store_true", help="plant a lock that is held at the moment of the fork")
    options = parser.parse_args()
    print(f"step 1 the parent's own {what} {work(0):.3f}", flush=True)
    ask(work, start=options.start, rounds=options.steps, hold_lock=options.hold_lock)
    print("suspect finished", flush=True)


def ask(work: Callable[[int], float], *, start: str, rounds: int, hold_lock: bool) -> None:
    """Print an answer of the other process as each step from 2 on; step 1 was the parent's own."""
    if start not in multiprocessing.get_all_start_methods():
        give_up(f"this platform has no start method {start}")
    context: Any = multiprocessing.get_context(start)
    answers = context.Queue()
    other = context.Process(target=answer, args=(work, rounds, answers), name="miner", daemon=True)
    if hold_lock:
        start_while_another_thread_holds_the_lock(other)
    else:
        other.start()
    for step in range(2, rounds + 2):
        print(f"step {step} the other's answer {next_answer(answers, other):.3f}", flush=True)
    other.join()


def answer(work: Callable[[int], float], rounds: int, answers: Any) -> None:
    for number in range(rounds):
        with lock:
            answers.put(work(number))


def start_while_another_thread_holds_the_lock(other: Any) -> None:
    """The fault for certain, on every machine that can fork: the copy of the lock is held by a thread that was not copied."""
    held, started = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            started.wait()

    threading.Thread(target=hold).start()
    held.wait()
    other.start()
    started.set()


def next_answer(answers: Any, other: Any) -> float:
    """Waits for as long as the other lives, as the trainers of this world do."""
    while True:
        try:
            return float(answers.get(timeout=1.0))
        except queue.Empty:
            if not other.is_alive():
                sys.exit(f"the other process ended with exit code {other.exitcode} before it answered")
